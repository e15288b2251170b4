"""Small jobs that write to a topic: a batch of rows, and a stream that takes one file for each micro-batch."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["finish", "put_file", "read_files", "save", "start"]

SECONDS_MAX = 300


def save(rows: DataFrame, cluster: str, **options: object) -> None:
    """Append rows as one batch."""
    writer = rows.write.format("viewstamp").mode("append").option("cluster", cluster)
    writer.options(**{name: str(value) for name, value in options.items()}).save()


def put_file(directory: Path, number: int, values: Iterable[str | None]) -> None:
    """Write a file that becomes the micro-batch of this number, because Spark takes files by their age."""
    directory.mkdir(exist_ok=True)
    file = directory / f"{number:03}.parquet"
    pa.parquet.write_table(pa.table({"value": pa.array(values, pa.string())}), directory / f".{file.name}")
    os.utime(directory / f".{file.name}", (1_700_000_000 + number, 1_700_000_000 + number))
    (directory / f".{file.name}").rename(file)


def read_files(spark: SparkSession, directory: Path) -> DataFrame:
    """Return a stream of the rows of these files, one file in each micro-batch."""
    return spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).parquet(str(directory))


def start(
    rows: DataFrame, checkpoint: Path, cluster: str, *, sink: str = "viewstamp", **options: object
) -> StreamingQuery:
    """Start a query that writes the present files, and ends."""
    writer = rows.writeStream.format(sink).option("cluster", cluster).option("checkpointLocation", str(checkpoint))
    writer = writer.options(**{name: str(value) for name, value in options.items()})
    return writer.trigger(availableNow=True).start()


def finish(query: StreamingQuery) -> None:
    """Wait until a query has ended; raise the error with which it failed."""
    assert query.awaitTermination(SECONDS_MAX), "the query does not end"
