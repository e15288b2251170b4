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

Which cluster: ``--dir DIR`` (a local one) or ``--cluster HOST:PORT,...``; without either ``VIEWSTAMP_CLUSTER``,
else ``./viewstamp-data``.

The pieces: ``main.py`` turns errors into exit codes; ``commands.py`` is the tree of the commands, and ``group.py`` the
class of each group; ``options.py`` and ``quantities.py`` hold what commands have in common; then one file a command, or
a group of them: ``actor.py``, ``append.py``, ``bench``, ``chaos.py``, ``cluster.py``, ``completion.py``, ``config.py``,
``demo.py``, ``doctor.py``, ``leader.py``, ``members.py``, ``node.py``, ``read.py``, ``replay.py``, ``sim.py``,
``sink.py``, ``snapshot.py``, ``status.py``, ``topic.py`` and ``wal.py``. They stand on ``local``, ``doctor``,
``demo``, ``bench`` and ``terminal``.

Commands import what they need when they run: ``viewstamp --help`` must not wait for an event loop to be loaded.

Deliberately lacking
  * Anything that a program cannot do too: each command is a thin shell over the client, the WAL's offline readers,
    the simulator or a process.
"""
