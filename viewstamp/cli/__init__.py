"""The ``viewstamp`` command: runs a cluster on this machine, and talks to any cluster by its addresses.

Promises
  * Results go to stdout; progress and messages go to stderr. With ``--output json`` stdout holds JSON only, and an
    error is one JSON object on stderr with ``error`` (the class), ``message`` and ``remedy``.
  * An error is two lines on stderr: the problem with its values and its effect on the data, then the remedy.
  * The exit code tells a script how to react:

    | code | meaning | error |
    | --- | --- | --- |
    | 0 | done | |
    | 1 | a proof or a check failed (or a bug, with a traceback) | |
    | 2 | usage or configuration | ConfigError, DirectoryInUseError, usage |
    | 3 | unavailable; nothing was written | UnavailableError, PeerError |
    | 4 | outcome unknown | OutcomeUnknownError |
    | 5 | the request is wrong | RequestError |
    | 6 | storage failed or full | StorageError |
    | 7 | corruption | CorruptionError |
    | 8 | an actor's command was applied, and raised | CommandError |
    | 130 | interrupted | Ctrl-C |

  * ``append`` reports how many records were acknowledged, however it ends.

Cluster options: ``--dir DIR`` names a local cluster, ``--cluster HOST:PORT,...`` any cluster. Without either, the
command takes ``VIEWSTAMP_CLUSTER``, else ``./viewstamp-data``. For a cluster with TLS, ``--dir`` uses ``[tls]`` of the
settings there, and ``--cluster`` the variables ``VIEWSTAMP_TLS_AUTHORITY``, ``VIEWSTAMP_TLS_CERTIFICATE`` and
``VIEWSTAMP_TLS_KEY``, or the options of the root command that set them. ``--token-file FILE`` names the token to use;
without it the command takes ``VIEWSTAMP_TOKEN``. A command with ``--dir`` needs no token, because it proves that it can
read the directory.

The pieces: ``main.py`` turns errors into exit codes; ``commands.py`` is the tree of the commands, and ``group.py`` the
class of each group; ``options.py`` holds the shared options; then one file for each command or
group of commands: ``actor.py``, ``append.py``, ``audit.py``, ``backup.py``, ``bench``, ``chaos.py``, ``cluster.py``,
``completion.py``, ``config.py``, ``demo.py``, ``doctor.py``, ``fork.py``, ``leader.py``, ``members.py``, ``node.py``,
``read.py``, ``recover.py``, ``replay.py``, ``sim.py``, ``sink.py``, ``snapshot.py``, ``status.py``, ``tls.py``,
``token.py``, ``topic.py`` and
``wal.py``. They use ``local``, ``doctor``, ``demo``, ``bench`` and ``terminal``.

Commands import their libraries inside the function, because ``viewstamp --help`` should not wait until an event loop is
loaded.

Deliberately lacking
  * Logic that a program could not use too: each command is a thin shell over the client, the offline readers of the
    WAL, the simulator or a process.
"""
