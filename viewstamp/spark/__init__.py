"""Spark reads topics and writes to them, exactly once: ``format("viewstamp")``.

What it promises
  * **The sink** (streaming and batch): every row lands once, durable on a majority, in one order, whatever is killed:
    tasks, the driver, nodes. All rows of a micro-batch, or of a batch write, become readable at one instant, over all
    topics that they go to; a batch that fails leaves nothing to be seen.
  * **The source** (streaming and batch): the records of the positions that were asked for, each once, in the order of
    their positions within a partition. The same positions give the same records again, as long as they are kept.
  * **Errors before work**: an unknown option, a wrong value, an unknown topic, a sink that belongs to another query
    fail on the driver, before any task, and name the value and the remedy.

How the sink does it
  A task stages its rows under an attempt of its own, and seals it: then they are durable, and invisible. The driver
  commits the sealed attempts of the batch in one log record, which gives all of them their positions. A batch number
  that the sink has committed is not committed again, so what Spark runs twice lands once; what no commit names is
  dropped. Everything that decides stands in the replicated log (``viewstamp/streams/staging.py``): two drivers, a task
  that was given up and still runs, and a commit sent twice need no clock and no lease.

The parts
  * ``java.py``, ``local_spark.py``: a Java, also where there is none; a quiet session for one machine; ``register``.
  * ``options.py``: every option, checked on the driver. ``data_source.py``: what Spark talks to.
  * ``blocking_client.py``: one client a process and cluster, for code that is not async.
  * ``rows.py``: rows to records; ``sink.py``: the writers.
  * ``records.py``: records to rows, without a copy; ``source.py``, ``stream_source.py``: the readers.
  * ``progress.py``: how far a query is behind. ``installed.py``: whether Spark is there, and new enough.
  * ``ranges.py``: which positions are read, in which pieces; ``filters.py``: the conditions that cut them.
    ``whole_rows.py``: a whole row as one value. ``remedies.py``: errors that show their remedy in Spark's tracebacks.
  * ``wal_source.py``: ``format("viewstamp-wal")``, the segment files of nodes that do not run.

Tables
  Spark hands the options of a table of its catalogue to no source in Python, but keeps the metadata of the columns. So
  ``CREATE TABLE`` stores the options there (``records.py``), and readers and writers find them in the schema.

What is assumed
  * Executors have this package and pyarrow in their Python, and reach every node of the cluster.
  * A checkpoint belongs to one query. Without a checkpoint there is no exactly-once, with any sink.

Invariants
  * Nothing here but these modules, and ``pyspark_viewstamp``, imports pyspark or pyarrow; importing this package
    imports neither, and an executor imports no node.

What it deliberately lacks: writers of single rows, and continuous or real-time mode (Spark has no Python for it).
"""

from viewstamp.spark.java import ensure_java
from viewstamp.spark.local_spark import register, session
from viewstamp.spark.progress import lag

__all__ = ["ensure_java", "lag", "register", "session"]
