"""Spark reads topics and writes to them, exactly once: ``format("viewstamp")``.

Promises
  * **The sink** (streaming and batch): every row is in the topic once, durable on a majority, in one order, even if
    tasks, the driver or nodes are killed. All rows of a micro-batch, or of a batch write, become readable at one
    instant, over all topics. A batch that fails leaves no readable record.
  * **The source** (streaming and batch): the records of the requested positions, each once, in the order of their
    positions within a partition. The same positions give the same records again, as long as they are retained.
  * **Errors before work**: an unknown option, a wrong value, an unknown topic, and a token without a right on the topic
    or on a named sink fail on the driver, before any task starts. The error names the value and the remedy. A sink that
    belongs to another query fails in the tasks, before anything is staged.
  * **No secret in an option**: options name files with certificates and tokens, because Spark stores and shows options.

How the sink works
  A task stages its rows under an attempt of its own, and seals it: the rows are then durable and invisible. The driver
  commits the sealed attempts of the batch in one log record, which gives all of them their positions. A batch number
  that the sink has committed is not committed again, so a batch that Spark runs twice is written once. Attempts that no
  commit names are deleted. Every decision is made in the replicated log (``viewstamp/streams/staging.py``). So two
  drivers, a task that still runs although Spark has given it up, and a repeated commit are harmless, without clocks or
  leases.

The parts
  * ``java.py``, ``local_spark.py``: find a Java, or provide one; a quiet session for one machine; ``register``.
  * ``options.py``: every option, checked on the driver; ``option_values.py``: their values. ``data_source.py``: the
    class that Spark calls.
  * ``blocking_client.py``: one client for each process and cluster, for code that is not async.
  * ``rows.py``: rows to records; ``sink.py``: the writers.
  * ``records.py``: records to rows, without a copy; ``source.py``, ``stream_source.py``: the readers.
    ``topic_pattern.py``: topics by a pattern; ``trigger_delay.py``: micro-batches that wait for more records.
  * ``progress.py``: how far a query is behind. ``installed.py``: checks that Spark is installed and new enough.
  * ``worker_objects.py``: keeps imported modules out of the garbage collection after each task.
  * ``archived.py``: archived records, read by tasks from the files of runs; ``archived_streams.py``: of topics with
    streams; ``run_files.py``: the store of a process.
  * ``spread.py``: topics with streams, planned by the order over all streams, and read stream by stream.
  * ``ranges.py``: the positions to read, in pieces, of ``topic_range.py``; ``filters.py``: conditions that reduce them.
    ``whole_rows.py``: a whole row as one value; ``typed_rows.py``: the fields of rows as columns. ``remedies.py``:
    errors that show their remedy in Spark's tracebacks.
  * ``wal_source.py``: ``format("viewstamp-wal")``, the segment files of stopped nodes.

Tables
  Spark passes the options of a table in its catalogue to no source in Python, but it keeps the metadata of the columns.
  So ``CREATE TABLE`` stores the options there (``records.py``), and readers and writers find them in the schema.

Assumptions
  * Executors have this package and pyarrow in their Python, and can connect to every node of the cluster.
  * A checkpoint belongs to one query. Without a checkpoint there is no exactly-once, with any sink.

Invariants
  * Only these modules and ``pyspark_viewstamp`` import pyspark or pyarrow. Importing this package imports neither, and
    an executor does not import a node.

Deliberately lacking: writers of single rows, and continuous or real-time mode (Spark has no Python for it).
"""

from viewstamp.spark.java import ensure_java
from viewstamp.spark.local_spark import register, session
from viewstamp.spark.progress import lag

__all__ = ["ensure_java", "lag", "register", "session"]
