"""A driver for a standalone cluster of Spark: writes a stream to a topic and reads it back, as a batch and as a stream.

It runs where no package of the tests can be found, and its tasks cannot import this file either. Their functions are
pickled by value, because they are in ``__main__``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from pyspark import TaskContext
from pyspark.sql import SparkSession

BATCHES = 2
ROWS = 1600
"""Rows of one micro-batch; two partitions have half of them each."""
PADDING = "." * 2000


def put_files(directory: Path) -> None:
    directory.mkdir()
    for batch in range(BATCHES):
        values = [f"{batch}-{row} {PADDING}" for row in range(ROWS)]
        pa.parquet.write_table(pa.table({"value": values}), directory / f"{batch}.parquet")
        os.utime(directory / f"{batch}.parquet", (1_700_000_000 + batch, 1_700_000_000 + batch))


def linger(directory: str, seconds: int):  # type: ignore[no-untyped-def]
    """Return a step that passes all rows on; the first attempt at partition 0 of batch 1 then waits for its end.

    By then the rows of this attempt are staged. Each attempt leaves a file with its number and the process id of its
    executor.
    """

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time
        from pathlib import Path

        context = TaskContext.get()
        assert context is not None
        batch, partition = context.getLocalProperty("streaming.sql.batchId"), context.partitionId()
        yield from batches
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
        executor = daemon.rpartition(")")[2].split()[1]
        # Numbered by the order of their ends, because Spark counts anew when it runs a stage again.
        attempt = len(list(Path(directory).glob(f"attempt-{batch}-{partition}-*")))
        (Path(directory) / f"attempt-{batch}-{partition}-{attempt}").write_text(executor)
        if (batch, partition, attempt) == ("1", 0, 0):
            for _ in range(10 * seconds):
                time.sleep(0.1)

    return step


def main() -> None:
    """Run it: OPTIONS DIRECTORY SECONDS. With SECONDS 0 it reads back the records that it has written.

    OPTIONS are those of ``format("viewstamp")``, as JSON.
    """
    options, directory, seconds = json.loads(sys.argv[1]), *sys.argv[2:]
    spark = SparkSession.builder.appName("standalone").getOrCreate()
    import viewstamp

    if ".zip" in viewstamp.__file__:
        from viewstamp.spark import register

        register(spark)
    put_files(Path(directory, "files"))
    rows = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).parquet(f"{directory}/files")
    rows = rows.repartition(2).mapInArrow(linger(directory, int(seconds)), "value string")
    writer = rows.writeStream.format("viewstamp").options(**options, sinkId=options["topic"])
    query = writer.option("checkpointLocation", f"{directory}/written").trigger(availableNow=True).start()
    query.awaitTermination()
    result = {"package": viewstamp.__file__}
    if not int(seconds):
        result |= read_back(spark, options, directory)
    Path(directory, "result.json").write_text(json.dumps(result), encoding="utf-8")
    spark.stop()


def read_back(spark: SparkSession, options: dict[str, str], directory: str) -> dict[str, int]:
    records = spark.read.format("viewstamp").options(**options).load()
    found = records.selectExpr("count(*) AS count", "count(DISTINCT value) AS different").first()
    reader = spark.readStream.format("viewstamp").options(**options).load().writeStream.format("noop")
    query = reader.option("checkpointLocation", f"{directory}/read").trigger(availableNow=True).start()
    query.awaitTermination()
    return {
        "count": found["count"],
        "different": found["different"],
        "streamed": sum(progress["numInputRows"] for progress in query.recentProgress),
    }


if __name__ == "__main__":
    main()
