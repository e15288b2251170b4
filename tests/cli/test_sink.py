"""``viewstamp sink`` against nodes that have one sink."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.client.cluster import Cluster
from tests.in_thread import in_thread
from viewstamp.cli import main
from viewstamp.client import Attempt

COMMITTED = "1970-01-01 00:00:00+00:00"


@pytest.fixture
def cluster() -> Iterator[str]:
    """Yield the address of a cluster with the sink ``lake``, which has committed batch 7 and staged rows of batch 8."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Cluster]:
        cluster = Cluster()
        await cluster.start(1)
        client = cluster.client()
        await client.create_topic("orders")
        sink = client.sink("lake", owner="query", run="run1", keep_seconds=60)
        for batch in (7, 8):
            attempt = await sink.begin(batch)
            assert isinstance(attempt, Attempt)
            await attempt.stage_records("orders", [b"a", b"b"])
            sealed = await attempt.seal()
            if batch == 7:
                await sink.commit(batch, [sealed])
        yield cluster
        await cluster.close()

    with in_thread(opened) as held:
        yield held.held.nodes[0].address


def run(cluster: str, *arguments: str) -> int:
    return main.run(["sink", *arguments, "--cluster", cluster])


def table(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]


def test_list_shows_the_last_batch_and_the_staged_bytes(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cluster, "list") == 0
    text = capsys.readouterr().out
    assert table(text) == [
        ["sink", "batch", "committed", "topics", "attempts", "bytes"],
        ["lake", "7", COMMITTED, "orders", "1", "120"],
    ]
    assert run(cluster, "list", "--output", "json") == 0
    (sink,) = json.loads(capsys.readouterr().out)["sinks"]
    assert (sink["name"], sink["owner"], sink["batch"], sink["bytes"]) == ("lake", "query", 7, 120)
    assert sink["ranges"] == [{"topic": "orders", "first_position": 1, "count": 2}]


def test_describe_shows_the_positions_of_the_last_batch(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cluster, "describe", "lake") == 0
    rows = table(capsys.readouterr().out)
    assert rows[:5] == [["sink", "lake"], ["owner", "query"], ["run", "run1"], ["batch", "7"], ["committed", COMMITTED]]
    assert rows[6] == ["attempts", "1, 1 of them sealed: 120 bytes, kept 60 s"]
    assert rows[7:] == [[], ["topic", "first", "count"], ["orders", "1", "2"]]
    assert run(cluster, "describe", "lake", "--output", "json") == 0
    assert json.loads(capsys.readouterr().out)["run"] == "run1"
    assert run(cluster, "describe", "sea") == 5
    assert "no sink is named 'sea'" in capsys.readouterr().err


def test_forget_without_yes_prints_the_consequences_and_changes_nothing(
    cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cluster, "forget", "lake") == 2
    message = capsys.readouterr().err
    assert "batches, up to 7," in message
    assert "IN THE TOPIC TWICE" in message
    assert "120 staged bytes" in message
    assert "--yes" in message
    assert run(cluster, "list") == 0
    assert "lake" in capsys.readouterr().out
    assert run(cluster, "forget", "lake", "--output", "json") == 2
    assert json.loads(capsys.readouterr().err)["error"] == "ConfigError"


def test_forget_with_yes_prints_the_consequences_and_forgets(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cluster, "forget", "lake", "--yes", "--output", "json") == 0
    captured = capsys.readouterr()
    assert "IN THE TOPIC TWICE" in captured.err
    assert json.loads(captured.out)["forgotten"]["batch"] == 7
    assert run(cluster, "list", "--output", "json") == 0
    assert json.loads(capsys.readouterr().out) == {"sinks": []}
