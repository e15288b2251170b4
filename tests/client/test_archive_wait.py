"""``viewstamp archive run`` while the leader cannot archive, or none leads: it waits, says why, and ends in time."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.cluster import Cluster
from viewstamp.cli.archive_wait import archived
from viewstamp.errors import NoQuorumError, RequestError, UnavailableError, UnknownTopicError
from viewstamp.wire.frame import FrameKind

AWAY = "run 7 is not committed: the store does not answer"


class Shown:
    """The lines that were shown."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.has_some = asyncio.Event()

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        self.has_some.set()


async def ready(cluster: Cluster) -> Shown:
    """Append three records."""
    client = cluster.client()
    await client.create_topic("orders")
    await client.append_many("orders", [b"a", b"b", b"c"])
    return Shown()


def requests(cluster: Cluster) -> int:
    return sum(kind == FrameKind.ARCHIVE_TOPIC for _, kind in cluster.requests)


async def test_each_change_of_the_state_is_shown_once_and_the_records_are_those_of_the_begin(cluster: Cluster) -> None:
    shown = await ready(cluster)
    cluster.archiving.extend([UnavailableError(AWAY, remedy="look")] * 30)
    cluster.archiving.extend([{"is_running": True, "archived_end": 3}] * 20)
    work = asyncio.create_task(archived(cluster.client(), "orders", None, None, 600.0, shown))
    await shown.has_some.wait()
    await cluster.client().append("orders", b"later")
    assert await work == 4, "not 5"
    assert shown.lines == [
        f"topic 'orders' is not archived yet: {AWAY}",
        "topic 'orders' is not archived yet, only up to position 2; the leader goes on",
    ]


async def test_a_store_that_stays_away_ends_the_command_with_the_reason(cluster: Cluster) -> None:
    shown = await ready(cluster)
    cluster.archiving.extend([UnavailableError(AWAY, remedy="look")] * 10_000)
    began = asyncio.get_running_loop().time()
    with pytest.raises(UnavailableError, match=AWAY) as caught:
        await archived(cluster.client(), "orders", None, None, 600.0, shown)
    assert caught.value.exit_code == 3
    assert [AWAY in line for line in shown.lines] == [True], "one line for one state"
    assert 600 <= asyncio.get_running_loop().time() - began < 607


async def test_without_a_majority_the_reason_is_shown_soon_and_the_command_fails_in_time(cluster: Cluster) -> None:
    shown = await ready(cluster)
    cluster.leader = None
    for node in cluster.nodes:
        node.refusal = NoQuorumError("n1 has no majority", remedy="start a majority")
    loop = asyncio.get_running_loop()
    began = loop.time()
    work = loop.create_task(archived(cluster.client(), "orders", None, None, 60.0, shown))
    await shown.has_some.wait()
    assert loop.time() - began < 10
    with pytest.raises(UnavailableError) as caught:
        await work
    assert 60 <= loop.time() - began < 67
    assert caught.value.exit_code == 3
    assert requests(cluster) == 0


async def test_what_is_final_is_raised_at_once(cluster: Cluster) -> None:
    shown = await ready(cluster)
    cluster.archiving.append(RequestError("the store is full"))
    with pytest.raises(RequestError, match="full"):
        await archived(cluster.client(), "orders", None, None, 600.0, shown)
    with pytest.raises(UnknownTopicError, match="'trades'"):
        await archived(cluster.client(), "trades", None, None, 600.0, shown)
    assert shown.lines == []
