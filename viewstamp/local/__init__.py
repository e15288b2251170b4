"""What starts, finds and stops the node processes of this machine.

Promises
  * A process is killed only if it provably is the node that was started: a process number alone, which the
    system gives out again, is never enough.
  * Only the processes of a directory count as its nodes: a node that answers at the right address and belongs to a
    copy of the directory does not.

A local cluster's directory::

    DIR/n1.toml ...       settings, one file a node, made once; of a node that joined later when it did
    DIR/n2.toml.removed   of one that is no member any more: it is not started, and its name is not given again
    DIR/n1/ ...           a node's data, with log.jsonl (what it printed) and pid (who it is)
    DIR/n1/chaos.json     what the node is told to suffer (``host.chaos``); usually not there
    DIR/cluster.lock      held while processes are started
    DIR/spark/ ...        of demo-spark: its input, Spark's checkpoints, and driver.log, all that Spark printed

The pieces: ``cluster.py`` is the cluster in a directory and ``node.py`` one of its nodes; ``process.py`` says who a
process is; ``node_process.py`` is a node's own process, and starts without the parser of the commands; ``target.py`` is
a cluster to which a client connects; ``find.py`` finds the one that a command means; ``damage.py`` damages a node's
files, for chaos; ``offline.py`` reads a topic out of them.
"""
