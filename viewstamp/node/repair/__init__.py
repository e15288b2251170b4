"""Recovers the core's state from the files of a directory, and repairs damage.

| file | owns | does not depend on |
| --- | --- | --- |
| ``recovery`` | the steps of a start, in their order: open, replay, reconcile | the running node |
| ``repair`` | reconciling: the repair of damage that was found | the running node |
| ``refetch`` | fetching missing records from the other members, and checking them | the cause of the loss |
| ``salvage`` | the intact parts of a damaged log, for other members | connections |
| ``scrubber`` | finding rot in files that are rarely read | the repair |
"""
