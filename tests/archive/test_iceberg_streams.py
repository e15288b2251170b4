"""An Iceberg table of a topic with streams: the records in the order of the topic, each once, without gaps."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("pyiceberg")

from pyiceberg.catalog.sql import SqlCatalog

from tests.archive.test_iceberg import TestFailures as Failing
from tests.archive.test_iceberg import TestRaces as Racing
from tests.archive.test_iceberg import export, loaded, positions, rows
from tests.spark.cluster import RunningCluster, running_cluster
from viewstamp.archive.iceberg import NEXT, TableOfTopic, TablePlace
from viewstamp.cli import main
from viewstamp.client import Client
from viewstamp.client.results import SpreadRecord
from viewstamp.client.stream_ranges import StreamRanges
from viewstamp.errors import OutcomeUnknownError, RequestError, StorageError, TrimmedError, UnavailableError

pytestmark = pytest.mark.slow

SOAK = bool(os.environ.get("VIEWSTAMP_SOAK"))
KILLS = ["after table", "after file", "before catalogue", "after catalogue"]
MORE_KILLS = ["before file", "before manifests", "after manifests", "before metadata", "after metadata"]

_numbers = itertools.count(1)


@pytest.fixture(scope="module", name="cluster")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """One node with two groups, and an archive in a directory."""
    archive = str(tmp_path_factory.mktemp("archive"))
    with running_cluster(nodes=1, groups=2, settings={"archive.directory": archive}) as cluster:
        yield cluster


async def fill(client: Client, topic: str, streams: list[int]) -> None:
    """Append five records to each of these streams, and wait until they have positions in the topic."""
    end = (await client.describe_spread_topic(topic)).next_position + 5 * len(streams)
    for stream in streams:
        headers: Any = [None, {"a": b"1"}, None, {"a": b"1", "b": b""}, None]
        await client.append_many(topic, [b"%d.%d" % (stream, at) for at in range(5)], stream=stream, headers=headers)
    while (await client.describe_spread_topic(topic)).next_position < end:
        pass


@pytest.fixture(name="topic")
def _topic(cluster: RunningCluster) -> str:
    """A topic with three streams and 40 records, of which those of streams 1 and 2 among the first 25 are archived."""
    topic = f"orders-{next(_numbers)}"

    async def make(client: Client) -> None:
        await client.create_spread_topic(topic, 3)
        for stream in (1, 2, 3):
            await client.describe_stream(topic, stream)
        await fill(client, topic, [1, 2, 1, 2, 1])
        await client.archive_spread_topic(topic)
        await fill(client, topic, [2, 1, 2])

    cluster.run(make)
    return topic


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> TablePlace:
    return TablePlace("lake.orders", tmp_path / "lake")


def records(cluster: RunningCluster, topic: str) -> list[SpreadRecord]:
    async def read(client: Client) -> list[SpreadRecord]:
        return [record async for record in client.read(topic) if isinstance(record, SpreadRecord)]

    return cluster.run(read)


def test_the_table_has_the_records_of_all_streams_in_the_order_of_the_topic(
    cluster: RunningCluster, topic: str, place: TablePlace
) -> None:
    """Each snapshot has all records before its end, and the streams of its records."""
    done = export(cluster, topic, place, file_bytes=40, commit_files=2)
    assert (done.first, done.end, done.records, done.skipped) == (1, 41, 40, 0)
    found = rows(place)
    for row in found:
        row["timestamp"] = round(row["timestamp"].astimezone(UTC).timestamp() * 1e6)
    assert found == [
        {
            "position": record.position,
            "term": record.term,
            "index": record.index,
            "timestamp": record.timestamp,
            "key": record.key,
            "value": record.value,
            "headers": list((record.headers or {}).items()) or None,
            "stream": record.stream,
        }
        for record in records(cluster, topic)
    ]
    assert {row["stream"] for row in found} == {1, 2}
    table = loaded(place)
    ends = [int(each.summary[NEXT]) for each in table.snapshots()]
    assert len(ends) > 2
    for snapshot, end in zip(table.snapshots(), ends, strict=True):
        seen = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()["position"].to_pylist()
        assert sorted(seen) == list(range(1, end))


def test_a_later_export_adds_only_the_new_records(cluster: RunningCluster, topic: str, place: TablePlace) -> None:
    assert export(cluster, topic, place, until=8).end == 8
    assert export(cluster, topic, place, until="archived").end == 26, "no later position is archived in all streams"
    assert export(cluster, topic, place, until=10).files == 0
    cluster.run(lambda client: fill(client, topic, [3]))
    assert export(cluster, topic, place).first == 26
    assert export(cluster, topic, place).snapshots == ()
    assert positions(place) == [*range(1, 46)]
    assert [row["stream"] for row in rows(place)][40:] == [3] * 5


def test_the_archived_end_is_that_of_the_stream_that_is_behind(
    cluster: RunningCluster, topic: str, place: TablePlace
) -> None:
    """A stream with all its records in runs holds back nothing; one without runs does from its first record on."""

    async def more(client: Client) -> None:
        await fill(client, topic, [3])
        await client.archive_spread_topic(topic)
        await fill(client, topic, [1])

    new = f"new-{next(_numbers)}"

    async def create(client: Client) -> None:
        await client.create_spread_topic(new, 2)
        await client.describe_stream(new, 1)
        await client.describe_stream(new, 2)

    assert export(cluster, topic, place, until="archived").end == 26
    cluster.run(more)
    assert export(cluster, topic, place, until="archived").end == 46
    cluster.run(create)
    with pytest.raises(RequestError, match="no archived records"):
        export(cluster, new, TablePlace("lake.new", place.directory), until="archived")


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (Failing.after(SqlCatalog, "create_table"), StorageError),
        (Failing.before(SqlCatalog, "commit_table"), OutcomeUnknownError),
    ],
)
def test_an_export_that_fails_between_files_and_commit_is_repeated(
    cluster: RunningCluster,
    topic: str,
    place: TablePlace,
    step: Callable[[], AbstractContextManager[object]],
    error: type[Exception],
) -> None:
    with step(), pytest.raises(error, match="the machine stopped"):
        export(cluster, topic, place, until=15)
    assert export(cluster, topic, place).end == 41
    assert positions(place) == [*range(1, 41)]


def test_a_kill_at_each_step_of_an_export_leaves_a_prefix_and_the_next_one_adds_each_record_once(
    cluster: RunningCluster, topic: str, place: TablePlace
) -> None:
    before = [(record.position, record.stream, record.value) for record in records(cluster, topic)]
    where = [topic, "--table", place.name, "--warehouse", str(place.directory), "--cluster", cluster.addresses]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-m", "tests.archive.dying_export"], **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        done = 0
        for number, step in enumerate([*KILLS, *MORE_KILLS * SOAK, ""], 1):
            process.stdin.write("\t".join([step, *where, *(["--until", str(4 * number)] if step else [])]) + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == ("9\n" if step else "0\n"), step
            found = [(row["position"], row["stream"], row["value"]) for row in rows(place)]
            assert found == before[: len(found)], step
            done = 4 * number if step == "after catalogue" else done if step else len(before)
            assert len(found) == done, step


def test_of_two_exports_one_wins_and_the_other_adds_nothing(
    cluster: RunningCluster, topic: str, place: TablePlace
) -> None:
    export(cluster, topic, place, until=10)

    def other() -> None:
        assert export(cluster, topic, place).end == 41

    with Racing.meanwhile(other), pytest.raises(UnavailableError, match="another program changed table"):
        export(cluster, topic, place)
    assert positions(place) == [*range(1, 41)]


def trimmed_meanwhile(cluster: RunningCluster, topic: str, before: int) -> AbstractContextManager[object]:
    """Trim the topic when an export has described it, and has read nothing yet."""
    original = TableOfTopic.evolve

    async def trim(client: Client) -> None:
        await client.trim_spread_topic(topic, before)
        while (await StreamRanges(client).describe(topic)).first_position < before:
            pass

    def evolve(self: TableOfTopic, text: str) -> bool:
        cluster.run(trim)
        return original(self, text)

    return patch.object(TableOfTopic, "evolve", evolve)


def test_records_that_are_deleted_during_an_export_leave_a_gap_only_if_that_is_asked_for(
    cluster: RunningCluster, topic: str, place: TablePlace
) -> None:
    export(cluster, topic, place, until=5)
    with (
        trimmed_meanwhile(cluster, topic, 26),
        pytest.raises(TrimmedError, match=r"positions 5 to 25 of topic .* were deleted before they were exported"),
    ):
        export(cluster, topic, place)
    assert positions(place) == [1, 2, 3, 4]
    with trimmed_meanwhile(cluster, topic, 31):
        done = export(cluster, topic, place, skip_deleted=True)
    assert (done.first, done.end, done.records, done.skipped) == (26, 41, 10, 26)
    assert positions(place) == [1, 2, 3, 4, *range(31, 41)]


def test_the_fields_of_rows_are_columns(cluster: RunningCluster, place: TablePlace) -> None:
    topic = f"rows-{next(_numbers)}"

    async def make(client: Client) -> None:
        await client.create_spread_topic(topic, 2)
        for stream in (1, 2):
            await client.describe_stream(topic, stream)
        await client.set_schema(topic, "id: int64")
        for stream in (1, 2):
            await client.append_rows(topic, [{"id": stream}], stream=stream)
        while (await client.describe_spread_topic(topic)).next_position < 3:
            pass

    cluster.run(make)
    export(cluster, topic, place)
    assert sorted((row["stream"], row["row"]["id"]) for row in rows(place)) == [(1, 1), (2, 2)]


def test_the_command_exports_a_topic_with_streams(
    cluster: RunningCluster, topic: str, place: TablePlace, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--table", place.name, "--warehouse", str(place.directory), "--cluster", cluster.addresses]
    assert main.run(["archive", "export", topic, *where, "--until", "7", "--output", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["first_position"], shown["last_position"], shown["records"]) == (1, 7, 7)
