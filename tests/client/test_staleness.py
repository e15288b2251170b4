"""Stale reads: requested by name, with an optional bound, and with the age in the answer."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.client.cluster import Cluster
from tests.client.test_actors import Inventory
from viewstamp.client import Client
from viewstamp.errors import RequestError, UnavailableError, UnknownTopicError
from viewstamp.wire.commands import Stale
from viewstamp.wire.frame import FrameKind


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster(actors={"inventory": Inventory})
    await cluster.start(3)
    yield cluster
    await cluster.close()


async def ready(cluster: Cluster) -> Client:
    """Return the client of a topic with three records."""
    client = cluster.client()
    await client.create_topic("orders")
    await client.append_many("orders", [b"a", b"b", b"c"])
    await client.actor("inventory", Inventory).put("A")
    return client


def asked(cluster: Cluster, kind: FrameKind) -> dict[str, Any]:
    return [body for each, body in cluster.bodies if each == kind][-1]


async def test_a_topic_is_described_with_its_age(cluster: Cluster) -> None:
    client = await ready(cluster)
    assert (await client.describe_topic("orders")).age_seconds == 0
    assert asked(cluster, FrameKind.DESCRIBE_TOPIC)["stale"] is False
    assert (await client.describe_topic("orders", stale=True)).age_seconds == 1.5
    assert (await client.describe_topic("orders", max_staleness=2)).age_seconds == 1.5
    assert (await client.describe_topic("orders", max_staleness=1)).age_seconds == 0
    assert asked(cluster, FrameKind.DESCRIBE_TOPIC)["max_staleness"] == 1
    assert [topic.age_seconds for topic in await client.list_topics(max_staleness=2)] == [1.5]


async def test_stale_records_come_with_the_age_of_their_end(cluster: Cluster) -> None:
    client = await ready(cluster)
    stale = await client.read_stale("orders", 2, max_staleness=2)
    assert (stale.age_seconds, stale.applied_index) == (1.5, cluster.log.next_index - 1)
    await client.append("orders", b"d")
    assert [record.value async for record in stale.value] == [b"b", b"c"]
    assert [record.value async for record in (await client.read_stale("orders", end=3)).value] == [b"a", b"b"]


async def test_stale_reads_of_an_empty_topic_return_at_once(cluster: Cluster) -> None:
    client = await ready(cluster)
    with pytest.raises(UnknownTopicError):
        await client.read_stale("nobody's")
    stale = await client.read_stale("orders", 4)
    assert [record async for record in stale.value] == []


async def test_queries_take_a_bound_too(cluster: Cluster) -> None:
    client = await ready(cluster)
    for answer in (
        await client.query("inventory", "available", "A", max_staleness=2),
        await client.query("inventory", "available", "A", stale=True),
        await client.actor("inventory", Inventory, max_staleness=2).available.stale("A"),
    ):
        assert isinstance(answer, Stale)
        assert answer.age_seconds == 1.5
    assert (await client.actor("inventory", Inventory, max_staleness=1).available.stale("A")).age_seconds == 0
    assert not isinstance(await client.actor("inventory", Inventory, max_staleness=1).available("A"), Stale)
    assert "max_staleness" not in asked(cluster, FrameKind.QUERY)


async def test_a_node_that_is_not_fresh_enough_is_left_for_another_one(cluster: Cluster) -> None:
    await ready(cluster)
    for seed in range(8):
        found = await cluster.client(1, 2, seed=seed).describe_topic("orders", max_staleness=2)
        assert found.age_seconds == 1.5
    with pytest.raises(UnavailableError, match="n2 has not known since its start"):
        await cluster.client(1, timeout=0.05).describe_topic("orders", max_staleness=2)
    assert math.isinf((await cluster.client(1).read_stale("orders")).age_seconds)


@pytest.mark.parametrize("bound", [-1, math.nan, "1", True])
async def test_an_invalid_bound_is_refused_at_once(cluster: Cluster, bound: Any) -> None:
    client = await ready(cluster)
    for call in (
        client.describe_topic("orders", max_staleness=bound),
        client.read_stale("orders", max_staleness=bound),
        client.query("inventory", "available", "A", max_staleness=bound),
    ):
        with pytest.raises(RequestError):
            await call
