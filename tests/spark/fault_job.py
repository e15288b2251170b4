"""A stream that fails: three files, each a micro-batch, to one topic. Also a program: the driver that is killed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.spark import faulty
from tests.spark.jobs import finish, read_files, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["BATCHES", "ROWS", "ROW_BYTES", "SETTINGS", "FaultJob", "prepare"]

BATCHES: Final = 3
ROWS: Final = 1600
"""Rows of one micro-batch; two partitions have half of them each."""
ROW_BYTES: Final = 3000
SETTINGS: Final = {"spark.sql.execution.arrow.maxRecordsPerBatch": "400"}
"""Spark passes rows in pieces of somewhat more than one block, so that a block is staged before the next piece."""


class FaultJob:
    """The query over the files and the checkpoint in ``directory``."""

    def __init__(self, spark: SparkSession, cluster: str, topic: str, directory: Path) -> None:
        self._spark = spark
        self._cluster = cluster
        self._topic = topic
        self.directory = directory

    @property
    def mark(self) -> str:
        """The prefix of the names of files that record events."""
        return str(self.directory / "mark")

    def start(
        self, where: str = "", action: str = "raise", *, times: int = 1, partitions: int = 2, process: int = 0
    ) -> StreamingQuery:
        """Start or restart the query, with a fault in the second micro-batch or without; see ``faulty.py``."""
        rows = read_files(self._spark, self.directory / "files").repartition(partitions)
        options: dict[str, Any] = {"topic": self._topic}
        if where:
            options |= {"sink": faulty.FaultySource.name(), "fault": where, "action": action, "times": times}
            options |= {"batch": 1, "mark": self.mark, "process": process, "bytes": ROWS * ROW_BYTES // 2 + 500_000}
        return start(rows, self.directory / "checkpoint", self._cluster, **options)


def prepare(spark: SparkSession) -> None:
    """Register the faulty sink in a session."""
    from pyspark.cloudpickle import register_pickle_by_value

    register_pickle_by_value(faulty)
    spark.dataSource.register(faulty.FaultySource)


def main() -> None:
    """Run the job until it ends its own JVM: CLUSTER TOPIC DIRECTORY WHERE."""
    from viewstamp.spark import session

    cluster, topic, directory, where = sys.argv[1:]
    spark = session("killed", cores=2, **SETTINGS)
    prepare(spark)
    process = spark._jvm.java.lang.ProcessHandle.current().pid()
    finish(FaultJob(spark, cluster, topic, Path(directory)).start(where, "kill", process=process))


if __name__ == "__main__":
    main()
