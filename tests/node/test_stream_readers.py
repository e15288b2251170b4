"""Readers of one stream of a spread topic, at the group of the stream."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.mutants.mutants import patched
from tests.node.group import wait_for
from tests.node.test_stream_topics import Spreading
from viewstamp.client.aio import Client
from viewstamp.client.results import SpreadTopicInfo
from viewstamp.errors import RequestError, UnavailableError, UnknownTopicError
from viewstamp.ids import NodeId
from viewstamp.node.stream_topics import StreamTopics


async def append(client: Client, topic: SpreadTopicInfo, stream: int, *values: bytes) -> None:
    """Append to one stream."""
    await client.describe_stream(topic.name, stream)
    for value in values:
        await client.append(topic.name, value, stream=stream)


async def test_a_stream_is_read_by_itself_with_positions_of_its_own(tmp_path: Path) -> None:
    async with Spreading(tmp_path) as group:
        await group.run()
        await group.established("s1")
        await group.established("s2")
        client = group.client()
        topic = await client.create_spread_topic("orders", 2)
        await append(client, topic, 1, b"a", b"b", b"c")
        await append(client, topic, 2, b"d")
        reader = group.client(seed=2)
        found = [(record.position, record.value) async for record in reader.read("orders", 1, stream=1)]
        assert found == [(1, b"a"), (2, b"b"), (3, b"c")]
        assert [record.value async for record in reader.read("orders", stream=2)] == [b"d"]
        assert [record.value async for record in reader.read("orders", 2, end=3, stream=1)] == [b"b"]
        assert [record.value async for record in reader.read("orders", stream=1, node="n2")][:1] == [b"a"]
        assert [batch.first_position async for batch in reader.read_batches("orders", 2, stream=1)] == [2, 3]
        stale = await reader.read_stale("orders", stream=2, max_staleness=60.0)
        assert [record.value async for record in stale.value] == [b"d"]
        info = await reader.describe_stream("orders", 1)
        assert (info.name, info.first_position, info.last_position) == ("orders.1", 1, 3)
        following = reader.read("orders", 4, follow=True, stream=1)
        late = asyncio.ensure_future(anext(following))
        await append(client, topic, 1, b"e")
        assert (await late).value == b"e"
        await following.aclose()


async def test_a_stream_that_does_not_exist_is_named(tmp_path: Path) -> None:
    async with Spreading(tmp_path, 1) as group:
        await group.run()
        await group.established("s1")
        client = group.client()
        await client.create_spread_topic("orders", 2)
        for stream in (0, 3):
            with pytest.raises(RequestError, match=f"topic 'orders' has no stream {stream}"):
                await client.describe_stream("orders", stream)
            with pytest.raises(RequestError, match=f"topic 'orders' has no stream {stream}"):
                _ = [record async for record in client.read("orders", stream=stream)]
        await client.create_topic("bills")
        with pytest.raises(UnknownTopicError, match="no topic with streams is named 'bills'"):
            _ = [record async for record in client.read("bills", stream=1)]


async def test_a_reader_waits_for_a_stream_that_its_group_has_not_created_yet(tmp_path: Path) -> None:
    async with Spreading(tmp_path) as group:
        await group.run()
        placed = await group.established("s1", nodes=("n3",))
        client = group.client()
        await client.create_spread_topic("orders", 1)
        await group.have_streams(placed, "orders.1", nodes=("n3",))
        await group.stop("n3")
        topic = await client.create_spread_topic("bills", 1)
        with pytest.raises(UnavailableError):
            await client.describe_stream("bills", 1, timeout=0.5)
        waiting = asyncio.ensure_future(group.client(seed=2).describe_stream("bills", 1, timeout=60))
        await group.run("n3")
        assert (await waiting).name == topic.topic_of(1)
        await wait_for(lambda: group.streams(placed, "n3") == ["orders.1", "bills.1"], group.journal.tail)
        assert NodeId("n3") in group.nodes


async def test_a_stream_that_its_group_has_not_created_yet_is_no_unknown_topic(tmp_path: Path) -> None:
    """It exists, because group 0 has the topic: a program that took it for unknown would create another one."""
    async with Spreading(tmp_path, 1) as group:
        await group.run()
        placed = await group.established("s1")
        client = group.client()
        with patched(StreamTopics, look=lambda self: None):
            await client.create_spread_topic("orders", 1)
            with pytest.raises(UnavailableError, match=f"the leader of group {placed} has not created the stream yet"):
                await client.describe_stream("orders", 1, timeout=0.5)
            reading = asyncio.ensure_future(anext(client.read("orders", 1, follow=True, stream=1)))
            assert group.streams(placed, "n1") == []
        group.nodes[NodeId("n1")].stream_topics.look()
        topic = await client.describe_spread_topic("orders")
        await append(client, topic, 1, b"a")
        assert (await reading).value == b"a"
