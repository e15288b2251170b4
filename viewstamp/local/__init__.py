"""Starts, finds and stops the node processes of this machine.

Promises
  * A process is killed only if it is proven to be the node that was started. Its process number alone is never enough,
    because the system reuses numbers.
  * Only the processes of a directory count as its nodes. A node that answers at the right address but belongs to a copy
    of the directory does not.

A local cluster's directory::

    DIR/n1.toml ...       the settings of each node; written once, for a node that joined later at that time
    DIR/n2.toml.removed   the settings of a removed member: it is not started, and its name is not used again
    DIR/n1/ ...           a node's data, with log.jsonl (its output) and pid (the identity of its process)
    DIR/n1/chaos.json     the faults to inject into the node (``host.chaos``); usually absent
    DIR/cluster.lock      locked while processes are started
    DIR/spark/ ...        of demo-spark: its input, Spark's checkpoints, and driver.log, Spark's output

The pieces: ``cluster.py`` is the cluster in a directory and ``node.py`` one of its nodes; ``process.py`` identifies
processes; ``node_process.py`` is the process of a node, and starts without the parser of the commands; ``target.py`` is
a cluster to which a client connects; ``find.py`` finds the cluster that a command means and ``token.py`` its token;
``forking.py`` begins a new cluster with the files of stopped nodes, and ``resharding.py`` one whose actors live in
other groups; ``readdress.py`` gives a stopped node another
address; ``damage.py`` damages a node's files, for chaos; ``offline.py`` reads a topic from them; ``restore.py`` makes a
cluster out of a backup, and ``drill.py`` starts one for a moment.
"""
