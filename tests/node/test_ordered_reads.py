"""Readers of a topic with streams by position, in one order, on real nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.node.group import wait_for
from tests.node.test_stream_readers import append
from tests.node.test_stream_topics import Spreading
from viewstamp.client.aio import Client
from viewstamp.client.named_reader import NamedReader
from viewstamp.client.results import SpreadRecord, SpreadTopicInfo
from viewstamp.client.streams import StreamCalls
from viewstamp.errors import RequestError, TrimmedError
from viewstamp.ids import GlobalPosition, NodeId, Position, TopicId
from viewstamp.node import ordered_reads
from viewstamp.node.order_queries import Cover
from viewstamp.wire.batch import Kind, build_batch
from viewstamp.wire.ordering import GlobalRun
from viewstamp.wire.spread_requests import ReadOrdered


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


def _cover(end: int, *runs: GlobalRun) -> Cover:
    position = GlobalPosition(1)
    return Cover(TopicId(1), Position(1), Position(end), runs, known_to=position, kept_from=position)


async def test_a_reader_waits_for_records_too_while_the_order_is_ahead_of_them_here(tmp_path: Path) -> None:
    """A group's record without an ORDER wakes a reader if a known position has no record here yet, and only then."""
    ahead = _cover(3, GlobalRun(1, GlobalPosition(1), Position(1), 4))
    level = _cover(5, GlobalRun(1, GlobalPosition(1), Position(1), 4))
    assert ordered_reads._lacks_records(ahead)
    assert not ordered_reads._lacks_records(level)
    assert not ordered_reads._lacks_records(_cover(1))
    async with Spreading(tmp_path, 1) as group:
        await group.run()
        placed = await group.established("s1")
        node = group.nodes[NodeId("n1")]
        hosted = node.groups[placed]
        waits = node.order_waits

        async def waiting(cover: Cover) -> None:
            further = hosted.reading if ordered_reads._lacks_records(cover) else None
            await waits.wait_moved(placed, further=further)

        both = [asyncio.ensure_future(waiting(cover)) for cover in (ahead, level)]
        await asyncio.sleep(0)
        applied = asyncio.get_running_loop().create_future()
        hosted.propose(build_batch([b""], kind=Kind.OPEN_SESSION), applied.set_result)
        await applied
        await asyncio.wait_for(both[0], 60)
        assert not both[1].done(), "nothing was ordered"
        both[1].cancel()


async def test_a_node_that_does_not_know_an_added_stream_yet_waits_for_it(tmp_path: Path) -> None:
    """Its log of group 0 ends before the record that adds it, and the client knows it from another node."""
    async with Spreading(tmp_path, 1) as group:
        await group.run()
        placed = await group.established("s1")
        client = group.client()
        await client.create_spread_topic("orders", 1)
        calls = StreamCalls(client._runtime, client._options, client._groups)
        request = ReadOrdered(name="orders", stream=2, position=1, needed=0, bytes_max=1000, wait=60.0)
        with client._groups.call(placed) as parts:
            early = asyncio.ensure_future(calls.ask(parts, request, seconds=60.0, wait=60.0))
            waits = group.nodes[NodeId("n1")].order_waits
            await wait_for(lambda: early.done() or placed in waits._looking, group.journal.tail)
            await client.add_stream("orders")
            await client.append("orders", b"b1", stream=2)
            _, frame = await early
        assert frame.body["runs"] == [[1, 1, 1]]


async def test_large_batches_are_read_one_at_a_time_and_what_was_trimmed_is_named(tmp_path: Path) -> None:
    async with Spreading(tmp_path, 1) as group:
        await group.run()
        await group.established("s1")
        client = group.client()
        topic = await client.create_spread_topic("orders", 3)
        for stream in (1, 2, 3):
            await client.describe_stream(topic.name, stream)
        for _ in range(3):
            for stream in (1, 2, 3):
                await client.append_many("orders", [bytes(20_000)] * 10, stream=stream)
        await ordered(client, "orders", 90)
        reader = group.client(read_bytes=65536)._reader("orders", 1, end=None, node=None)
        assert isinstance(reader, NamedReader)
        records, held = 0, []
        while (chunk := await reader.next_chunk()) is not None:
            assert reader._spread._merge is not None
            records += sum(len(reader.cut(part)) for part in chunk)
            if records < 30:  # Each stream has more records, so its node answers at once.
                await wait_for(lambda: not reader._spread._asking, group.journal.tail)
            held.append(sum(lane.size for lane in reader._spread._merge.lanes.values()))
        assert records == 90
        assert max(held) < 220_000, "no batch is fetched ahead that is larger than the share of its stream"

        kept = await client.create_spread_topic("kept", 2, retain_bytes=100_000)
        await append(client, kept, 2, b"first")
        await client.describe_stream("kept", 1)
        await ordered(client, "kept", 1)
        for number in range(4):
            await client.append_many("kept", [bytes(10_000)] * 9, stream=1)
            await ordered(client, "kept", 9 * number + 10)
        with pytest.raises(TrimmedError, match="position 2 has been trimmed") as caught:
            _ = [record async for record in client.read("kept", 1)]
        first = caught.value.first
        assert (first - 2) % 9 == 0
        found = [record.position async for record in client.read("kept")]
        assert found == list(range(first, 38))
        assert found == [record.position async for record in client.read("kept", first)]
        assert [record.value async for record in client.read("kept", 1, end=2)] == [b"first"]
