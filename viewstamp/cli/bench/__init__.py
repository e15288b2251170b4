"""``viewstamp bench``: measure, and say under which conditions.

Promises
  * A caller awaits each of its calls before the next. The callers are in this process, the nodes in processes of
    their own; with ``append --embedded`` this process is also the leader. So beside each figure stands
    ``client_cores``: the cores that this process was busy with. Near 1, it is the callers that are measured.
  * ``durability`` and ``filesystem`` are in every output, and memory is not passed off as a disk.
  * What is a cluster's own is made in the current directory, on its disk, and is gone in the end, whatever ends it.

| command | measures |
| --- | --- |
| ``append`` | appends, until a majority has them on its disks |
| ``read`` | all of a topic by one reader; its last record by many |
| ``failover`` | SIGKILL of the leader until the next acknowledged write, over and over, under load if asked |
| ``restart`` | the start of all nodes, killed with a long log, until the first acknowledged write |
| ``wal`` | the log of one node alone, without a cluster |

``failover`` and ``restart`` read back, or count, what was acknowledged: what is missing is said, and the exit code 1.

The pieces: ``load.py`` keeps callers going and counts; ``cluster.py`` makes a cluster, or takes one that is there;
``fill.py`` puts records into it; ``plot.py`` draws percentiles; ``report.py`` prints; then one file a command.
"""

from viewstamp.cli.bench.commands import app

__all__ = ["app"]
