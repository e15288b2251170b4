"""``format("viewstamp-wal")``: the segment files of stopped nodes, as one table in the order of their log.

It has the two passes of ``viewstamp/replay``. The first reads headers, from which the driver plans the replica of each
batch. The second reads the batches. A partition is a run of that plan, so the partitions are in order one after the
other, and nothing is shuffled or sorted.

Spark cannot run tasks while a source plans. So ``spark.read`` does the first pass in the planner's process, with a
thread for each replica. :func:`planned`, which ``viewstamp replay --spark`` uses, runs it as a job of its own, with a
few segments for each task, and its second pass also computes the digest in the tasks.

Spark imports this module before any read, so slow imports are inside the functions.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from viewstamp.errors import ConfigError, RequestError
from viewstamp.spark.options import COLUMNS, WalSourceOptions
from viewstamp.spark.remedies import remedies

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from viewstamp.host.disk import RealDisk
    from viewstamp.replay import Extent, OfflineReplay, ReplayPlan

__all__ = ["Planned", "PlannedDataSource", "ViewstampWalDataSource", "planned"]

_PART_BYTES: Final = 32 * 1024 * 1024
"""Approximate bytes of a partition. A larger one makes a larger file, and repeats more work after a failure."""
_SCAN_BYTES: Final = 128 * 1024 * 1024
"""Approximate bytes of a task of the first pass: whole segments, about a tenth of a second."""
_TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"


class ViewstampWalDataSource(DataSource):
    """The records of data directories as a table. Runs on the driver."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "viewstamp-wal"

    def schema(self) -> StructType:
        """Return the columns: all, or those of the option ``columns``.

        Raises:
          ConfigError: an option is wrong.
        """
        from viewstamp.spark.records import spark_schema

        with remedies():
            return spark_schema(WalSourceOptions.parse(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader. It reads the files when it plans.

        Raises:
          ConfigError: an option is wrong.
        """
        with remedies():
            return WalReader(WalSourceOptions.parse(self.options))


@dataclass
class Part(InputPartition):
    """A run of the plan. ``number`` counts from 0, in order."""

    number: int
    extents: list[Extent]


class WalReader(DataSourceReader):
    """Plans, and reads the planned parts. Spark pickles it to every task."""

    def __init__(self, options: WalSourceOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Read the headers, and return the part of each task.

        Raises:
          NoQuorumError: the directories are of fewer than a majority of the members.
          CorruptionError: replicas contradict each other, or no replica has a required record.
          ConfigError: a directory has no log, they do not belong together, or a node runs on one.
          RequestError: a topic is not in the log, or records of it are only in the archive.
        """
        with remedies():
            plan = _plan_of(_open(self.options), self.options.topics)
            if plan.archived and not self.options.unsafe:  # Nobody reads findings here.
                names = ", ".join(plan.topics[topic] for topic in sorted(plan.archived))
                raise RequestError(
                    f"records of {names} are only in the archive, because the logs have deleted them; nothing was read",
                    remedy="name other topics; or read these from a running cluster: format viewstamp",
                )
            return parts_of(plan)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition. If there is nothing to read, Spark passes one without extents."""
        if isinstance(partition, Part):
            yield from read_part(partition, self.options.columns)


def _open(options: WalSourceOptions) -> OfflineReplay:
    from concurrent.futures import ThreadPoolExecutor

    from viewstamp.host.disk import RealDisk
    from viewstamp.replay.replay import OfflineReplay
    from viewstamp.replay.replica import find_replicas, read_replica

    disk = RealDisk()
    directories = find_replicas(disk, [os.path.abspath(path) for path in options.paths])
    if not options.unsafe:
        _check_not_running(disk, directories)
    with ThreadPoolExecutor(len(directories)) as threads:
        replicas = list(threads.map(lambda directory: read_replica(disk, directory), directories))
    return OfflineReplay.of(disk, replicas, unsafe=options.unsafe)


def _check_not_running(disk: RealDisk, directories: Sequence[str]) -> None:
    """Reject the directories of running nodes, because tasks read the files later, and a node may delete them first.

    Raises:
      ConfigError: a process has one of them open.
    """
    for directory in directories:
        if holder := disk.lock_holder(directory):
            raise ConfigError(
                f"{directory} is in use: {holder} has it open",
                remedy="stop the node, or copy its directory and read the copy; a cluster that runs is read with"
                ' format("viewstamp"); .option("unsafe", "true") reads it all the same, and fails if a file changes',
            )


def _plan_of(replay: OfflineReplay, topics: Sequence[str]) -> ReplayPlan:
    if replay.problem is not None:
        raise replay.problem
    assert replay.plan is not None, "without a problem there is a plan"
    return replay.plan.only(topics) if topics else replay.plan


def parts_of(plan: ReplayPlan, part_bytes: int = _PART_BYTES) -> list[Part]:
    """Divide a plan into runs of about ``part_bytes`` bytes, in order; at least one, which may be empty."""
    from viewstamp.replay.read import extents
    from viewstamp.wire.batch import Batch

    parts = [Part(0, [])]
    size = 0
    for extent in extents(plan):
        batch_size = Batch.measure(extent.header)
        if size and size + batch_size > part_bytes:
            parts.append(Part(len(parts), []))
            size = 0
        parts[-1].extents.append(extent)
        size += batch_size
    return parts


def read_part(
    part: Part, columns: Sequence[str], on_batch: Callable[..., None] = lambda extent, columns: None
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a part, in order. ``on_batch`` is called with each extent and its records, as columns.

    Raises:
      CorruptionError: a batch has changed since the first pass.
      StorageError: a file cannot be read.
    """
    from viewstamp.host.disk import RealDisk
    from viewstamp.replay.read import ExtentReader
    from viewstamp.spark.records import join, to_record_batch
    from viewstamp.spark.worker_objects import freeze_once
    from viewstamp.wire.columns import slice_columns

    def batches() -> Iterator[pa.RecordBatch]:
        with ExtentReader(RealDisk()) as reader:
            for extent in part.extents:
                batch = reader.read(extent)
                end = extent.position + extent.count
                on_batch(extent, slice_columns(batch.columns(), extent.skip, extent.skip + extent.count))
                yield to_record_batch(batch, extent.position, end, extent.topic, columns)

    freeze_once()
    with remedies():
        yield from join(batches())


# For `viewstamp replay --spark`: the first pass as a job, and the digest of the records of the second.


class PlannedDataSource(DataSource):
    """The result of :func:`planned`. ``path`` is the directory with the plan; users do not set it."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "viewstamp-wal-planned"

    def schema(self) -> StructType:
        """Return all columns."""
        from viewstamp.spark.records import spark_schema

        return spark_schema(COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the plan."""
        return PlannedReader(self.options["path"])


class PlannedReader(DataSourceReader):
    """Reads the parts of a plan. Each task writes the digest of its part to a file in the directory of the plan."""

    def __init__(self, path: str) -> None:
        self.path = path

    def partitions(self) -> Sequence[InputPartition]:
        """Return the planned parts."""
        return _unpacked(self.path)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a part; after the last one, write its digest."""
        from viewstamp.replay.digest import Digest

        assert isinstance(partition, Part), "there is always a part"
        digest = Digest()
        add: Callable[..., None] = lambda extent, columns: digest.add(extent.topic, extent.position, columns)  # noqa: E731
        yield from read_part(partition, COLUMNS, add)
        # A task may run twice: both runs write the same file, and each renames a complete one.
        with tempfile.NamedTemporaryFile("wb", dir=self.path, delete=False) as stream:
            stream.write(digest.pack())
        os.replace(stream.name, f"{self.path}/digest-{partition.number}")


@dataclass(frozen=True, slots=True)
class Planned:
    """A replay whose records are the rows of ``frame``, in order from partition to partition.

    ``frame`` is valid inside the context of :func:`planned` only; None = there is a problem, which ``replay`` has.
    """

    replay: OfflineReplay
    frame: DataFrame | None
    _path: str

    def digest(self) -> str:
        """Return the digest of all rows. They must have been read to their end."""
        from viewstamp.replay.digest import Digest

        whole = Digest()
        for number in range(len(_unpacked(self._path))):
            with open(f"{self._path}/digest-{number}", "rb") as stream:
                whole.join(Digest.unpack(stream.read()))
        return whole.hexdigest()


@contextmanager
def planned(
    spark: SparkSession,
    paths: Sequence[str],
    *,
    topics: Sequence[str] = (),
    unsafe: bool = False,
    part_bytes: int = _PART_BYTES,
) -> Iterator[Planned]:
    """Run the first pass as a job of Spark, and plan.

    Args:
      spark: a session whose executors can read ``paths`` and this process's temporary directory.
      paths: absolute paths, of data directories or of a local cluster.
      topics: the topics to show; () = all.
      unsafe: continue with fewer than a majority of the members.
      part_bytes: approximate bytes of a partition.

    Raises:
      NoQuorumError, ConfigError, RequestError: as :class:`viewstamp.replay.OfflineReplay` does.
    """
    from viewstamp.host.disk import RealDisk
    from viewstamp.replay.replay import OfflineReplay, total_bytes
    from viewstamp.replay.replica import assemble, find_replicas, list_segments

    disk = RealDisk()
    directories = find_replicas(disk, paths)
    files = [list_segments(disk, directory) for directory in directories]
    flat = [file for each in files for file in each]
    tasks = max(total_bytes(disk, paths) // _SCAN_BYTES, spark.sparkContext.defaultParallelism)
    scans = iter(spark.sparkContext.parallelize(flat, max(min(len(flat), tasks), 1)).map(_scan).collect())
    replicas = [
        assemble(disk, directory, [next(scans) for _ in each])
        for directory, each in zip(directories, files, strict=True)
    ]
    replay = OfflineReplay.of(disk, replicas, unsafe=unsafe)
    if topics:
        replay = replay.only(topics)
    with tempfile.TemporaryDirectory(prefix="viewstamp-replay-") as path:
        if replay.problem is not None:
            yield Planned(replay, None, path)
            return
        with open(f"{path}/parts", "wb") as stream:
            stream.write(_packed(parts_of(_plan_of(replay, ()), part_bytes)))
        spark.dataSource.register(PlannedDataSource)
        yield Planned(replay, spark.read.format(PlannedDataSource.name()).load(path), path)


def _packed(parts: Sequence[Part]) -> bytes:
    """Return a plan as msgpack, because a pickle in a file that another user wrote could run code."""
    import msgpack

    packed: bytes = msgpack.packb([part.extents for part in parts])
    return packed


def _unpacked(path: str) -> list[Part]:
    import msgpack

    from viewstamp.replay.read import Extent

    with open(f"{path}/parts", "rb") as stream:
        parts = msgpack.unpackb(stream.read())
    return [Part(number, [Extent(*each) for each in extents]) for number, extents in enumerate(parts)]


def _scan(file: object) -> object:
    from viewstamp.host.disk import RealDisk
    from viewstamp.replay.replica import SegmentFile, scan

    assert isinstance(file, SegmentFile), "segments were listed"
    return scan(RealDisk(), file)


def write_parquet(planned: Planned, path: str) -> None:
    """Write all rows to parquet files in the directory ``path``, whose names are in order; complete or absent.

    Raises:
      ConfigError: ``path`` exists.
    """
    import shutil

    from viewstamp.replay.parquet import check_target

    assert planned.frame is not None, "without a problem there are rows"
    check_target(path)
    temporary = f"{path}.incomplete"
    shutil.rmtree(temporary, ignore_errors=True)
    conf = planned.frame.sparkSession.conf
    before = conf.get(_TIMESTAMPS)
    # Spark's default is an old type of 96 bits that has no time zone.
    conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
    try:
        planned.frame.write.parquet(f"file://{os.path.abspath(temporary)}")
    finally:
        conf.set(_TIMESTAMPS, before or "INT96")
    os.rename(temporary, path)
