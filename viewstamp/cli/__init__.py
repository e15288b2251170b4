"""The ``viewstamp`` command: a cluster on this machine, and any cluster by its addresses.

Promises
  * Results go to stdout; progress and logs go to stderr. With ``--output json`` stdout holds JSON only, and an
    error is one JSON object on stderr with ``error`` (the class), ``message`` and ``remedy``.
  * The exit code says what to do next:

    | code | meaning | error |
    | --- | --- | --- |
    | 0 | done | |
    | 1 | a proof or a check failed (or a bug: then with a traceback) | |
    | 2 | usage or configuration | ConfigError, DirectoryInUseError, usage |
    | 3 | unavailable; nothing was written | UnavailableError, PeerError |
    | 4 | outcome unknown | OutcomeUnknownError |
    | 5 | the request is wrong | RequestError |
    | 6 | storage failed or full | StorageError |
    | 7 | corruption | CorruptionError |
    | 8 | an actor's command was applied, and raised | CommandError |
    | 130 | interrupted | Ctrl-C |

  * ``append`` says how far it came, whatever happens to it.
  * A process is killed only if it provably is the node that was started: a process number alone, which the
    system gives out again, is never enough.

Which cluster: ``--dir DIR`` (a local one) or ``--cluster HOST:PORT,...``; without either ``VIEWSTAMP_CLUSTER``,
else ``./viewstamp-data``.

A local cluster's directory::

    DIR/n1.toml ...       settings, one file a node, made once; of a node that joined later when it did
    DIR/n2.toml.removed   of one that is no member any more: it is not started, and its name is not given again
    DIR/n1/ ...           a node's data, with log.jsonl (what it printed) and pid (who it is)
    DIR/n1/chaos.json     what the node is told to suffer (``host.chaos``); usually not there
    DIR/cluster.lock      held while processes are started
    DIR/spark/ ...        of demo-spark: its input, Spark's checkpoints, and driver.log, all that Spark printed

The pieces: ``main.py`` puts the commands together and turns errors into exit codes; ``options.py`` and
``target.py`` hold what commands have in common; ``local.py`` and ``process.py`` run the nodes of a local cluster;
``node_process.py`` is a node's own process, and starts without the parser;
``findings.py`` makes the doctor's sentences of a ``report.py`` of the nodes, and is pure; ``damage.py`` is what chaos
does to files; then one file a command.

Commands import what they need when they run: ``viewstamp --help`` must not wait for an event loop to be loaded.

Deliberately lacking
  * Anything that a program cannot do too: each command is a thin shell over the client, the WAL's offline readers,
    the simulator or a process.
"""
