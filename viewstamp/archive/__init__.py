"""The archive: old records of topics as immutable files, called runs, that other programs can read (design note 0022).

Promises
    * A run holds the records of one topic at the positions ``[first, end)``, as the log has them: term, index, log
      time, key, value and headers of each.
    * The digest of a run depends on its records only, not on the release of pyarrow that wrote the file.
    * Nothing that was read is returned before it is verified. A file that is truncated, changed, of another cluster or
      of another run is a ``CorruptionError`` that names it; one of a newer format is an ``OutdatedCodeError``.
    * Writing and reading take memory for one row group, not for a run.
    * Without pyarrow (the extra ``viewstamp[archive]``) everything else works, and each call here raises
      ``ConfigError``.

Modules
    `columns.py`   columns of batches as Arrow arrays, without copies of the bytes
    `store.py`     the store of runs, and the store in a directory, which targets of backups use too
    `s3_store.py`  the store in a bucket, with conditional writes (the extra ``viewstamp[s3]``)
    `s3_client.py` the client of S3, and what its errors mean
    `store_watch.py` looks in the background whether a store can be used
    `location.py`  which store a setting names
    `identity.py`  whether an object is the one that the catalogue means
    `run_file.py`  the file of a run: Parquet, with a description that has a checksum for each row group
    `opened.py`    a file of a run that stays open: opened again before it is called damaged
    `ordered_run.py` the run of a stream, read by positions in the topic
    `row_columns.py` the rows of records as Arrow columns, one for each field of a schema
    `run_rows.py`  the typed columns of a run, and which of its row groups a condition needs
    `run_batches.py` the records of a row group as batches, for readers
    `run_store.py` the objects of the runs of one cluster: written from batches, checked, listed, removed
    `creation.py`  the file of an object that is being written, and its completion
    `key_rows.py`  the rows of a run of keys, its description and its filter
    `key_columns.py` a group of those rows as Arrow columns, with the bytes of its checksum
    `key_file.py`  the file of a run of keys: Parquet, sorted by key
    `key_store.py` the objects of runs of keys: dumped, merged, checked, read
    `committed_runs.py` which archived records a reader takes from which file
    `arrow_reader.py` a topic as Arrow batches: the plan, and the public calls
    `arrow_lanes.py` its pieces, read from files in threads and through the nodes
    `ordered_merge.py` tables of several streams, merged by position
    `run_process.py` the same calls as a node makes them: in the archive process, with a time limit
    `worker.py`    the archive process
    `export.py`    the steps of an export of a topic into an Iceberg table
    `exported_topic.py` a topic as an export reads it, with streams or without
    `iceberg.py`   the table: what it has, data files, commits (the extra ``viewstamp[iceberg]``)
    `pipe.py`      the messages between the two

The catalogue of runs is in ``streams/runs.py``: it decides which files exist and may be read. ``node/archivist.py``
has the steps of the leader that writes them, and ``node/archived.py`` the reads of clients.

Deliberately lacking: stores other than directories and S3.
"""
