"""From the files of a directory to a core that may run, and what is done about damage on the way.

| file | owns | knows nothing of |
| --- | --- | --- |
| ``recovery`` | the steps of a start, in their order: open, replay, reconcile | what runs afterwards |
| ``repair`` | reconciling: what is done about damage that was found | what runs afterwards |
| ``refetch`` | asking the other members for what is missing, and checking it | why it is missing |
| ``salvage`` | what a damaged log still holds that other members may use | connections |
| ``scrubber`` | finding rot in files that nobody reads | what is done about it |
"""
