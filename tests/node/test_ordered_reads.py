"""Readers of a topic with streams by position, in one order, on real nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.node.test_stream_readers import append
from tests.node.test_stream_topics import Spreading
from viewstamp.client.aio import Client
from viewstamp.client.results import SpreadRecord, SpreadTopicInfo
from viewstamp.errors import RequestError


async def ordered(client: Client, topic: str, records: int) -> SpreadTopicInfo:
    """Wait until so many records of a topic have positions."""
    while True:
        info = await client.describe_spread_topic(topic)
        if info.next_position > records:
            return info
        await asyncio.sleep(0.05)


async def test_the_records_of_all_streams_are_read_in_one_order(tmp_path: Path) -> None:
    async with Spreading(tmp_path) as group:
        await group.run()
        await group.established("s1")
        await group.established("s2")
        client = group.client()
        topic = await client.create_spread_topic("orders", 3)
        await append(client, topic, 1, b"a1")
        await append(client, topic, 2, b"b1", b"b2")
        await ordered(client, "orders", 3)
        await append(client, topic, 1, b"a2")
        await append(client, topic, 3, b"c1")
        info = await ordered(client, "orders", 5)
        assert (info.next_position, info.ordered_ends) == (6, (3, 3, 2))
        found = [record async for record in client.read("orders")]
        assert all(isinstance(record, SpreadRecord) for record in found)
        assert [record.position for record in found] == [1, 2, 3, 4, 5]
        assert {record.value for record in found[:3]} == {b"a1", b"b1", b"b2"}
        by_stream = [(record.stream, record.stream_position) for record in found if isinstance(record, SpreadRecord)]
        assert sorted(by_stream) == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)]
        for node in ("n1", "n2", "n3"):
            assert [record async for record in group.client(seed=2).read("orders", node=node)] == found
        assert [record async for record in client.read("orders", 2, end=5)] == found[1:4]
        with pytest.raises(RequestError, match="has streams"):
            _ = [batch async for batch in client.read_batches("orders")]
        with pytest.raises(RequestError, match="has streams"):
            await client.read_stale("orders")
        following = client.read("orders", 5, follow=True)
        assert (await anext(following)) == found[4]
        late = asyncio.ensure_future(anext(following))
        await append(client, topic, 2, b"b3")
        assert (await late)[:1] == (6,)
        await following.aclose()
