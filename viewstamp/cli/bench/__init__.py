"""``viewstamp bench``: measure, and say under which conditions.

| command | measures |
| --- | --- |
| ``append`` | appends, until a majority has them on its disks |
| ``read`` | all of a topic by one reader; its last record by many |
| ``failover`` | SIGKILL of the leader until the next acknowledged write, over and over, under load if asked |
| ``restart`` | the start of all nodes, killed with a long log, until the first acknowledged write |
| ``wal`` | the log of one node alone, without a cluster |

``failover`` and ``restart`` read back, or count, what was acknowledged: what is missing is said, and the exit code 1.

One file a command: ``append.py``, ``read.py``, ``failover.py``, ``restart.py``, ``wal.py``; ``commands.py`` the group.
How it is measured is in ``viewstamp.bench``.
"""

from viewstamp.cli.bench.commands import app

__all__ = ["app"]
