"""The ``viewstamp`` command: runs a cluster on this machine, and talks to any cluster by its addresses.

Promises
  * Results go to stdout; progress and messages go to stderr. With ``--output json`` stdout holds JSON only, and an
    error is one JSON object on stderr with ``error`` (the class), ``message`` and ``remedy``.
  * An error is two lines on stderr: the problem with its values and its effect on the data, then the remedy.
  * The exit code tells a script how to react; ``docs/errors.md`` has the table.
  * ``append`` reports how many records were acknowledged, however it ends.

``docs/operating.md`` has the options that name a cluster, ``docs/security.md`` those of TLS and tokens.

The pieces: ``main.py`` turns errors into exit codes; ``commands.py`` is the tree of the commands, and ``group.py`` the
class of each group; ``options.py`` holds the shared options; then one file for each command or
group of commands: ``actor.py``, ``append.py``, ``archive.py``, ``audit.py``, ``backup.py``, ``bench``, ``chaos.py``,
``cluster.py``, ``completion.py``, ``config.py``, ``demo.py``, ``doctor.py``, ``fork.py``, ``groups.py``,
``keyed.py``, ``leader.py``, ``members.py``, ``node.py``, ``read.py``, ``recover.py``, ``replay.py``,
``reshard.py``, ``sim.py``, ``sink.py``, ``snapshot.py``, ``status.py``,
``stream.py``, ``tls.py``, ``token.py``, ``topic.py`` and ``wal.py``.
``archive_wait.py`` waits until a topic is archived, and ``archive_export.py`` is the export of a topic into an Iceberg
table. ``topic_archive.py`` has the tables about the archive of a topic, ``topic_schema.py`` those about its schema,
``rows.py`` rows as JSON, and ``keyed_lines.py`` lines with keys. ``unordered.py`` waits until
records have positions, and ``confirmation.py`` asks for words before what cannot be undone.
They use ``local``, ``doctor``, ``demo``, ``bench`` and ``terminal``.

Commands import their libraries inside the function, because ``viewstamp --help`` should not wait until an event loop is
loaded.

Deliberately lacking
  * Logic that a program could not use too: each command is a thin shell over the client, the offline readers of the
    WAL, the simulator or a process.
"""
