"""Backups of a cluster in a directory or an object store, and the files that a restore begins with.

Promises
    * A backup holds the state of the cluster at one index: all topics, sinks and actors. Every record that was
      acknowledged before the backup began is in it, unless it was deleted since. No record is in it that the cluster
      did not commit.
    * A backup of a cluster with other groups has the logs of all of them, which do not contradict each other: each
      record that the order of a topic with streams names is there, and each position has one home.
    * Writes go on meanwhile. A backup reads from a follower if there is one, at a bounded rate.
    * Later backups into the same target copy only the records since the last one, and the newest snapshot. A piece of
      the log is immutable, and several backups share it.
    * The manifest of a backup is written last. So a backup that is listed was complete, and a process that dies in
      between leaves objects that no manifest names, which the next pruning removes.
    * Every byte is covered by a SHA-256 in a manifest, and the manifest by its own. Damage is an error that names the
      object. Nothing is restored from an object that has not been verified.
    * Incarnations of members are replaced by zeros or digests before the bytes leave a node, so no process can pose as
      a member with a backup. The records themselves are there, so the files are readable for their owner only.

Assumes
    * The target keeps its bytes. It is used by one cluster; several processes are kept apart by a lock.
    * Committed records never change. In interval mode the cluster may lose some in a power cut; then the next backup
      fails, because the target and the cluster contradict each other.

Modules
    `objects.py`        names and contents of objects: pieces of the log, parts of snapshots
    `manifest.py`       the description of one backup
    `store.py`          the interface to a target, and the target in a directory
    `fsspec_store.py`   the target behind an fsspec URL
    `catalogue.py`      the backups in a target
    `source.py`         the members of a running cluster, as the source of a backup
    `files_source.py`   the files of stopped nodes, as the source of a backup
    `create.py`         taking a backup
    `log_copier.py`     copying the log of one group
    `options.py`        the load of a backup, and its attempts
    `verify.py`         verifying backups
    `prune.py`          removing old backups
    `restore.py`        choosing a backup, and writing the files of a stopped member from it

A restore is a fork of these files (``viewstamp.fork``): the result is a new cluster with an id of its own, in which
all sessions have ended.

Deliberately lacking: encryption and compression of objects (most stores encrypt; batches may be compressed), and a
schedule (a timer of the system starts ``viewstamp backup create``).
"""
