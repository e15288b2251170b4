"""The health of a member, and the comparison of the members' states. No append waits for anything here.

| file | owns | does not depend on |
| --- | --- | --- |
| ``checks`` | whether a node is alive, and whether it is ready, from its status | HTTP |
| ``digests`` | comparing states between members; a member that differs stops | the content of a state |
| ``disk_probe`` | the seconds for which the disk thread has not answered | causes |
| ``headroom`` | the space that a leader keeps free in its log, because other members have less left | connections |
| ``latency`` | the worst lag of the event loop and of the disk, for the status | causes |
| ``port`` | ``/livez`` and ``/readyz`` over HTTP | the meaning of a check |
| ``watchdog`` | stopping a node whose replica has ended | the reason of the end |
"""
