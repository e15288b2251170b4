"""Real nodes, real files: a replay of a cluster's files gives the records that the cluster showed, to every target."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from viewstamp.cli.main import run
from viewstamp.client import Client, SinkCommit
from viewstamp.embed.local_cluster import ClusterHandle, local_cluster
from viewstamp.errors import ConfigError, FencedError, RequestError, StorageError
from viewstamp.host.disk import RealDisk
from viewstamp.replay import Digest, ExtentReader, OfflineReplay
from viewstamp.replay.read import RecordRun
from viewstamp.replay.topic import append_to_topic, check_one_topic, sink_name
from viewstamp.wire.batch import Columns, Record, build_batch, build_columns

pytestmark = pytest.mark.slow

SMALL = {"wal.segment_bytes": 65536, "snapshots.log_bytes": 65536, "wal.reserve_bytes": 0}


async def fill(client: Client, *, rounds: int, size: int, entropy: random.Random) -> None:
    """Append, stage, commit, leave staged records behind, and now and then trim: all at once."""
    for name in ("orders", "bills"):
        await client.create_topic(name)

    async def append(name: str) -> None:
        for number in range(rounds):
            values = [b"%s %d.%d " % (name.encode(), number, at) + bytes(size) for at in range(5)]
            headers = {"n": b"%d" % number} if number % 3 == 0 else None
            await asyncio.gather(*(client.append(name, value, key=value[:9], headers=headers) for value in values))

    async def stage() -> None:
        sink = client.sink("etl")
        for batch in range(rounds // 2):
            attempt, other = await sink.begin(batch, "one"), await sink.begin(batch, "other")
            left = await sink.begin(batch, "left")
            assert not any(isinstance(each, SinkCommit) for each in (attempt, other, left))
            sealed = []
            for each, topic in ((attempt, "orders"), (other, "bills")):
                assert not isinstance(each, SinkCommit)
                await each.stage_records(topic, [b"staged %d.%d" % (batch, at) + bytes(size) for at in range(7)])
                sealed.append(await each.seal())
            assert not isinstance(left, SinkCommit)
            await left.stage_records("orders", [b"never"])
            await sink.commit(batch, sealed)

    await asyncio.gather(append("orders"), append("bills"), stage())


async def read_all(client: Client) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for topic in await client.list_topics():
        found[topic.name] = [record async for record in client.read(topic.name)]
    return found


def replayed(replay: OfflineReplay) -> tuple[dict[str, list[Record]], str]:
    """The records that a replay shows, and its digest."""
    assert replay.problem is None, replay.problem
    found: dict[str, list[Record]] = {}
    digest = Digest()
    disk = RealDisk()
    with ExtentReader(disk) as reader:
        for run_, columns in replay.runs(reader, digest):
            batch = build_columns(columns)
            for at, record in enumerate(batch.records()):
                whole = record._replace(
                    position=run_.position + at, term=run_.term, index=run_.index + at, timestamp=run_.log_time
                )
                found.setdefault(run_.topic, []).append(whole)
    return found, digest.hexdigest()


def digest_of(topics: dict[str, list[Record]]) -> str:
    """The digest of records as a client read them, one by one."""
    digest = Digest()
    for name, records in topics.items():
        for record in records:
            batch = build_batch([record.value], keys=[record.key], headers=[record.headers])
            digest.add(name, record.position, batch.columns())
    return digest.hexdigest()


@asynccontextmanager
async def written(
    tmp_path: Path, *, rounds: int = 12, size: int = 300, settings: dict[str, object] | None = None
) -> AsyncIterator[tuple[ClusterHandle, dict[str, list[Record]]]]:
    async with local_cluster(directory=tmp_path / "cluster", settings=settings or {}) as cluster:
        client = cluster.client()
        await fill(client, rounds=rounds, size=size, entropy=random.Random(1))
        yield cluster, await read_all(client)


def directories(tmp_path: Path) -> list[str]:
    return [str(tmp_path / "cluster" / name) for name in ("n1", "n2", "n3")]


async def test_a_replay_shows_what_readers_saw(tmp_path: Path) -> None:
    """Every field of every record: position, term, index, time, key, value, headers."""
    async with written(tmp_path) as (_, live):
        pass
    found, digest = replayed(OfflineReplay.open(RealDisk(), [str(tmp_path / "cluster")]))
    assert found == live
    assert digest == digest_of(live)


async def test_a_replay_of_trimmed_logs_with_recycled_segments_shows_what_is_kept(tmp_path: Path) -> None:
    """Small segments, snapshots and trims: most of the log is deleted, and its files are segments again."""
    async with local_cluster(directory=tmp_path / "cluster", settings=SMALL) as cluster:
        client = cluster.client()
        for _ in range(4):
            await fill(client, rounds=20, size=1500, entropy=random.Random(1))
            orders = await client.describe_topic("orders")
            await client.trim_topic("orders", orders.last_position - 40)
            bills = await client.describe_topic("bills")
            await client.trim_topic("bills", bills.last_position - 70)
            for node in cluster.ids:
                await client.create_snapshot(node)
            await client.sink("etl").abort(10_000)
            await client.forget_sink("etl")
        live = await read_all(client)
    replay = OfflineReplay.open(RealDisk(), directories(tmp_path))
    found, _ = replayed(replay)
    assert found == live
    assert replay.chain is not None
    assert replay.chain.begin > 100, "the beginning of the log has been dropped"
    for directory in directories(tmp_path):
        others = [each for each in directories(tmp_path) if each != directory]
        assert replayed(OfflineReplay.open(RealDisk(), others))[0] == live


async def test_nodes_that_were_killed_and_led_by_turns_replay_to_one_log(tmp_path: Path) -> None:
    async with local_cluster(directory=tmp_path / "cluster") as cluster:
        client = cluster.client()
        for name in ("n1", "n2", "n3"):
            await fill(client, rounds=3, size=50, entropy=random.Random(1))
            await client.forget_sink("etl")
            await cluster.stop(name)
            await client.append("orders", b"while %s is away" % name.encode())
            await cluster.start(name)
        live = await read_all(client)
    assert replayed(OfflineReplay.open(RealDisk(), directories(tmp_path)))[0] == live


@pytest.mark.spark  # for Arrow, which comes with Spark
async def test_parquet_holds_every_field_in_order(tmp_path: Path) -> None:
    from pyarrow import parquet

    from viewstamp.replay.parquet import write_parquet

    async with written(tmp_path) as (_, live):
        pass
    replay = OfflineReplay.open(RealDisk(), directories(tmp_path))
    target = str(tmp_path / "out")
    with ExtentReader(RealDisk()) as reader:
        files = write_parquet(target, replay.runs(reader, Digest()), file_bytes=20_000)
    assert files > 1
    assert sorted(os.listdir(target)) == [f"part-{number:05}.parquet" for number in range(files)]
    rows = [row for name in sorted(os.listdir(target)) for row in parquet.read_table(f"{target}/{name}").to_pylist()]
    for topic, records in live.items():
        of_topic = [row for row in rows if row["topic"] == topic]
        assert [
            (row["position"], row["term"], row["index"], row["value"], row["key"], dict(row["headers"] or []) or None)
            for row in of_topic
        ] == [(r.position, r.term, r.index, r.value, r.key, r.headers) for r in records]
        assert [round(row["timestamp"].timestamp() * 1e6) for row in of_topic] == [r.timestamp for r in records]


@pytest.mark.spark  # for Arrow, which comes with Spark
async def test_parquet_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    from viewstamp.replay.parquet import write_parquet

    target = tmp_path / "out"

    def failing() -> Iterator[tuple[RecordRun, Columns]]:
        yield RecordRun("t", 1, 1, 1, 1, 1), build_batch([b"x"]).columns()
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match="No space left"):
        write_parquet(str(target), failing(), file_bytes=1)
    assert not target.exists()
    assert write_parquet(str(target), iter(())) == 1
    with pytest.raises(ConfigError, match="already exists"):
        write_parquet(str(target), iter(()))


async def test_a_topic_gets_each_record_once_however_often_it_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replay is cut off in the middle, repeated by another process, and repeated once more when it is complete."""
    async with written(tmp_path, rounds=20, size=3000) as (_, live):
        pass
    replay = OfflineReplay.open(RealDisk(), directories(tmp_path)).only(["orders"])
    assert replay.plan is not None
    plan = replay.plan
    check_one_topic(plan)
    small = {"_BATCH_BYTES": 60_000, "_BLOCK_BYTES": 20_000}
    for name, value in small.items():
        monkeypatch.setattr(f"viewstamp.replay.topic.{name}", value)
    async with local_cluster(directory=tmp_path / "other") as cluster:
        client = cluster.client()
        staged = 0

        class EnoughError(Exception):
            pass

        def stop_half_way(size: int) -> None:
            nonlocal staged
            staged += size
            if staged > 150_000:
                raise EnoughError

        with ExtentReader(RealDisk()) as reader:
            with pytest.raises(EnoughError):
                await append_to_topic(client, "copy", plan, replay.runs(reader, Digest()), on_bytes=stop_half_way)
            first = [record async for record in client.read("copy")]
            assert 0 < len(first) < len(live["orders"])
            again = await append_to_topic(client, "copy", plan, replay.runs(reader, Digest()))
            assert again == len(live["orders"]) - len(first)
            assert await append_to_topic(client, "copy", plan, replay.runs(reader, Digest())) == 0
            copied = [record async for record in client.read("copy")]
            assert [(r.position, r.value, r.key, r.headers) for r in copied] == [
                (r.position, r.value, r.key, r.headers) for r in live["orders"]
            ]
            other = OfflineReplay.open(RealDisk(), directories(tmp_path)).only(["bills"])
            assert other.plan is not None
            with pytest.raises(FencedError, match="a replay of other records") as caught:
                await append_to_topic(client, "copy", other.plan, other.runs(reader, Digest()))
            assert f"viewstamp sink forget {sink_name('copy')}" in caught.value.remedy


async def test_several_topics_are_named_and_not_mixed(tmp_path: Path) -> None:
    async with written(tmp_path, rounds=2) as _:
        pass
    replay = OfflineReplay.open(RealDisk(), directories(tmp_path))
    assert replay.plan is not None
    with pytest.raises(RequestError, match="records of 2 topics: orders, bills"):
        check_one_topic(replay.plan)


# The command.


def spoil(directory: Path, text: bytes) -> None:
    """Flip a bit of the first batch that holds ``text``."""
    for segment in sorted(directory.glob("wal/*.segment")):
        data = bytearray(segment.read_bytes())
        at = data.find(text)
        if at >= 0:
            data[at] ^= 1
            segment.write_bytes(data)
            return


@pytest.mark.spark  # for Arrow, which comes with Spark
async def test_the_command_prints_the_fields_and_exits_as_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with written(tmp_path, rounds=4) as (_, live):
        pass
    paths = directories(tmp_path)
    assert await asyncio.to_thread(run, ["replay", *paths, "--output", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed)[:7] == [
        "records",
        "batches",
        "replicas",
        "dropped_divergent",
        "repaired",
        "corrupt",
        "digest",
    ]
    assert printed["records"] == sum(map(len, live.values()))
    assert printed["digest"] == digest_of(live)
    assert printed["replicas"] == 3
    assert await asyncio.to_thread(run, ["replay", paths[0], "--output", "json"]) == 3
    assert json.loads(capsys.readouterr().err)["error"] == "NoQuorumError"
    assert await asyncio.to_thread(run, ["replay", paths[0], "--unsafe"]) == 0
    assert "WARNING" in capsys.readouterr().err
    assert await asyncio.to_thread(run, ["replay", str(tmp_path / "nowhere")]) == 2
    assert await asyncio.to_thread(run, ["replay", *paths, "--to", "csv", "out"]) == 2
    assert await asyncio.to_thread(run, ["replay", *paths, "--topic", "loans"]) == 5
    capsys.readouterr()
    for path in paths:
        spoil(Path(path), b"orders 1.")
    target = tmp_path / "out"
    assert await asyncio.to_thread(run, ["replay", *paths, "--to", "parquet", str(target), "--output", "json"]) == 7
    captured = capsys.readouterr()
    assert json.loads(captured.out)["corrupt"] == 1
    assert json.loads(captured.out)["digest"] is None
    assert [finding["kind"] for finding in json.loads(captured.out)["findings"]] == ["damage"] * 3
    assert "no replica has indices" in json.loads(captured.err)["message"]
    assert not target.exists()
