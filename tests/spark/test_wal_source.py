"""The segment files as a table: the same records, in the same order, with the same digest as without Spark."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyarrow import parquet

from tests.guides.guide import blocks
from tests.node.test_archived import Source, archived_group
from viewstamp.cli.main import run
from viewstamp.embed.local_cluster import local_cluster
from viewstamp.errors import ConfigError, CorruptionError, NoQuorumError, RequestError
from viewstamp.host.disk import RealDisk
from viewstamp.replay import Digest, ExtentReader, OfflineReplay
from viewstamp.replay.parquet import write_parquet as write_parquet_here
from viewstamp.spark.options import WalSourceOptions
from viewstamp.spark.wal_source import Part, ViewstampWalDataSource, WalReader, parts_of, planned, write_parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

TOPICS = ("orders", "bills")


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The files of three nodes: records of two topics, some through a sink, a trim, a bad page in one of them."""
    root = tmp_path_factory.mktemp("files") / "cluster"
    asyncio.run(_fill(str(root)))
    _spoil(root / "n2", b"orders 3.")
    return [str(root / node) for node in ("n1", "n2", "n3")]


async def _fill(root: str) -> None:
    async with local_cluster(directory=root) as cluster:
        client = cluster.client()
        for topic in TOPICS:
            await client.create_topic(topic)
        for number in range(8):
            for topic in TOPICS:
                values = [b"%s %d.%d" % (topic.encode(), number, at) + bytes(200) for at in range(50)]
                keys = [None if at % 3 else b"%d" % at for at in range(50)]
                headers = {"n": b"%d" % number} if number % 2 else None
                await asyncio.gather(
                    *(client.append(topic, v, key=k, headers=headers) for v, k in zip(values, keys, strict=True))
                )
        sink = client.sink("etl")
        attempt: Any = await sink.begin(0)
        await attempt.stage_records("orders", [b"staged %d" % at for at in range(100)])
        sealed = await attempt.seal()
        await client.append("orders", b"before the commit")
        await sink.commit(0, [sealed])
        await client.trim_topic("bills", 30)


def _spoil(directory: Path, text: bytes) -> None:
    for segment in sorted(directory.glob("wal/*.segment")):
        data = bytearray(segment.read_bytes())
        if (at := data.find(text)) >= 0:
            data[at] ^= 1
            segment.write_bytes(data)
            return


def here(directories: list[str], target: Path) -> tuple[OfflineReplay, str, list[dict[str, Any]]]:
    """The result of the local path: the replay, its digest, the rows that it writes."""
    replay = OfflineReplay.open(RealDisk(), directories)
    digest = Digest()
    with ExtentReader(RealDisk()) as reader:
        write_parquet_here(str(target), replay.runs(reader, digest))
    return replay, digest.hexdigest(), rows_of(target)


def rows_of(directory: Path) -> list[dict[str, Any]]:
    """The rows of parquet files, in the order of their names."""
    names = sorted(name for name in os.listdir(directory) if name.endswith(".parquet"))
    return [row for name in names for row in parquet.read_table(directory / name).to_pylist()]


def test_spark_writes_the_same_rows_with_the_same_digest(
    spark: SparkSession, directories: list[str], tmp_path: Path
) -> None:
    """The rows are written as one file for each partition, with names in order, and repaired from the same damage."""
    expected, digest, rows = here(directories, tmp_path / "here")
    assert len(rows) > 800
    target = str(tmp_path / "spark")
    with planned(spark, directories, part_bytes=30_000) as plan:
        assert plan.frame is not None
        assert plan.frame.rdd.getNumPartitions() > 3
        write_parquet(plan, target)
        assert plan.digest() == digest
        assert asdict(plan.replay.summary(digest)) == asdict(expected.summary(digest))
        assert plan.replay.summary().repaired == 1
        assert [str(each) for each in plan.replay.findings] == [str(each) for each in expected.findings]
    assert rows_of(Path(target)) == rows
    with (
        planned(spark, directories) as plan,
        pytest.raises(ConfigError, match="already exists"),
    ):
        write_parquet(plan, target)


def test_a_table_of_the_files_has_all_records_in_order(
    spark: SparkSession, directories: list[str], tmp_path: Path
) -> None:
    _, _, rows = here(directories, tmp_path / "here")
    found = spark.read.format("viewstamp-wal").load(directories).collect()
    assert [(row["topic"], row["position"], row["index"], row["value"]) for row in found] == [
        (row["topic"], row["position"], row["index"], row["value"]) for row in rows
    ]
    bills = spark.read.format("viewstamp-wal").option("topic", "bills").option("columns", "position").load(directories)
    assert [row["position"] for row in bills.collect()] == list(range(30, 401))


def test_the_job_that_the_guide_shows_runs(
    spark: SparkSession, directories: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "replay.md"
    (job,) = [text for language, text in blocks(guide.read_text(encoding="utf-8")) if language == "python"]
    exec(job.replace("shop", os.path.dirname(directories[0])), {})
    shown = capsys.readouterr().out
    assert "|orders|  501|" in shown
    assert "| bills|  371|" in shown


def test_command_has_the_same_result_with_and_without_spark(
    spark: SparkSession, directories: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for more in ([], ["--spark"], ["--spark", "--to", "parquet", str(tmp_path / "out")]):
        assert run(["replay", *directories, "--output", "json", *more]) == 0
        printed.append(json.loads(capsys.readouterr().out))
    assert printed[1] == printed[0]
    assert printed[2] == printed[0]
    assert printed[0]["repaired"] == 1
    assert len(rows_of(tmp_path / "out")) == printed[0]["records"]
    assert run(["replay", *directories, "--spark", "--to", "topic", "lines"]) == 2
    assert run(["replay", directories[0], "--spark"]) == 3
    assert spark.range(3).count() == 3, "a session that was there is left alone"


def test_what_cannot_be_planned_fails_on_the_driver(directories: list[str], tmp_path: Path) -> None:
    def reader(*paths: str, **options: str) -> WalReader:
        return WalReader(WalSourceOptions.parse({"path": paths[0], **options}))

    with pytest.raises(NoQuorumError, match="a majority of n1, n2, n3 is needed"):
        reader(directories[0]).partitions()
    assert len(reader(directories[0], unsafe="true").partitions()) == 1
    with pytest.raises(ConfigError, match="has no log"):
        reader(str(tmp_path)).partitions()
    cluster = os.path.dirname(directories[0])
    with pytest.raises(RequestError, match="no topic 'loans'"):
        reader(cluster, topic="loans").partitions()
    with pytest.raises(ConfigError, match="no option majority"):
        reader(cluster, majority="no")


def test_records_that_only_the_archive_has_are_missed_before_a_task_starts(tmp_path: Path) -> None:
    async def archive() -> None:
        source = Source(tmp_path)
        async with archived_group(tmp_path, lambda _: source):
            pass

    asyncio.run(archive())

    def parts(**options: str) -> list[Part]:
        reader = WalReader(WalSourceOptions.parse({"path": str(tmp_path / "n1"), **options}))
        return [part for part in reader.partitions() if isinstance(part, Part)]

    for options in ({}, {"topic": "orders"}):
        with pytest.raises(RequestError, match="records of orders are only in the archive"):
            parts(**options)
    assert any(part.extents for part in parts(topic="filler"))
    assert any(part.extents for part in parts(unsafe="true"))


def test_directory_of_a_running_node_is_rejected(directories: list[str]) -> None:
    cluster = os.path.dirname(directories[0])
    lock = RealDisk().lock(directories[1])
    try:
        with pytest.raises(ConfigError, match=f"{directories[1]} is in use: process {os.getpid()} has it open"):
            WalReader(WalSourceOptions.parse({"path": cluster})).partitions()
        assert WalReader(WalSourceOptions.parse({"path": cluster, "unsafe": "true"})).partitions()
    finally:
        lock.release()
    assert WalReader(WalSourceOptions.parse({"path": cluster})).partitions()


def test_damage_everywhere_is_an_error_before_any_task(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "cluster"
    asyncio.run(_fill(str(root)))
    paths = [str(root / node) for node in ("n1", "n2", "n3")]
    for path in paths:
        _spoil(Path(path), b"orders 3.")
    with pytest.raises(CorruptionError, match="no replica has indices"):
        WalReader(WalSourceOptions.parse({"path": str(root)})).partitions()
    with planned(spark, paths) as plan:
        assert plan.frame is None
        assert plan.replay.summary().corrupt == 1


def test_the_parts_are_runs_of_the_plan(directories: list[str]) -> None:
    plan = OfflineReplay.open(RealDisk(), directories).plan
    assert plan is not None
    parts = parts_of(plan, 20_000)
    assert [part.number for part in parts] == list(range(len(parts)))
    assert [extent for part in parts for extent in part.extents] == parts_of(plan)[0].extents
    assert parts_of(plan.only([])) == [Part(0, [])]


def test_spark_finds_it_without_registration() -> None:
    import pyspark_viewstamp_wal

    assert pyspark_viewstamp_wal.DefaultSource is ViewstampWalDataSource
    assert ViewstampWalDataSource.name() == "viewstamp-wal"
