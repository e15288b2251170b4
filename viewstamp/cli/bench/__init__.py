"""The commands ``viewstamp bench``: each measures one kind of work and prints the conditions beside the figures.

| command | measures |
| --- | --- |
| ``append`` | appends, each until it is on the disks of a majority |
| ``read`` | reads of a whole topic by one reader, and of its last record by many callers |
| ``failover`` | the time from SIGKILL of the leader to the next acknowledged write, repeatedly, with or without load |
| ``restart`` | the time from the start of all nodes, killed with a long log, to the first acknowledged write |
| ``wal`` | commits to the log of one node, without a cluster |

At their end ``failover`` reads all acknowledged records back and ``restart`` counts them. If any is missing they print
the number and exit with code 1.

Each command has a file: ``append.py``, ``read.py``, ``failover.py``, ``restart.py``, ``wal.py``. ``commands.py`` has
the group. The package ``viewstamp.bench`` does the measuring.
"""

from viewstamp.cli.bench.commands import app

__all__ = ["app"]
