"""How well a member is, and how its state compares with the other members'. Nothing here is on the path of an append.

| file | owns | knows nothing of |
| --- | --- | --- |
| ``digests`` | comparing states between members; the odd one out stops | what a state is |
| ``headroom`` | how much of its log a leader leaves free, because other members have less left | connections |
| ``latency`` | the worst lag of the event loop and of the disk, for the status | causes |
| ``watchdog`` | stopping a node whose replica has ended | why it ended |
"""
