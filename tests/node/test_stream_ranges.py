"""Ranges of a topic with streams, read stream by stream from real nodes: they have what a reader of the topic gets."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.node.test_ordered_reads import ordered
from tests.node.test_stream_topics import Spreading
from viewstamp.client.aio import Client
from viewstamp.client.spread_reader import StreamPart
from viewstamp.client.stream_ranges import StreamRange, StreamRanges
from viewstamp.errors import PeerError, TrimmedError, UnknownTopicError
from viewstamp.wire.batch import Record


async def read_part(ranges: StreamRanges, topic: str, part: StreamRange) -> list[Record]:
    return [record async for chunk in ranges.read(topic, part) for each in chunk for record in each.records()]


async def read(ranges: StreamRanges, topic: str, start: int, end: int, *, records_max: int = 1000) -> list[Record]:
    """Return the records of a range, by position."""
    found = await ranges.describe(topic)
    parts = await ranges.cut(found, await ranges.divide(found, start, end), records_max)
    assert all(0 < part.records <= records_max for part in parts)
    records = [record for part in parts for record in await read_part(ranges, topic, part)]
    return sorted(records, key=lambda record: record.position)


async def fill(client: Client, topic: str, streams: Sequence[int], *, batch: int = 1) -> None:
    """Append a batch to each of these streams, one after the other, and wait until all have positions."""
    before = (await client.describe_spread_topic(topic)).next_position - 1
    for stream in set(streams):
        await client.describe_stream(topic, stream)
    for number, stream in enumerate(streams):
        await client.append_many(topic, [b"%d.%d" % (number, each) for each in range(batch)], stream=stream)
        if number % 3 == 2:
            await asyncio.sleep(0)  # Another ORDER may come between them.
    await ordered(client, topic, before + len(streams) * batch)


async def test_a_range_has_the_records_that_a_reader_gets(tmp_path: Path) -> None:
    async with Spreading(tmp_path, 1) as group:
        await group.run()
        await group.established("s1")
        await group.established("s2")
        client = group.client()
        await client.create_spread_topic("orders", 3)
        ranges = StreamRanges(group.client(seed=2))
        with pytest.raises(UnknownTopicError):
            await ranges.describe("nothing")
        empty = await ranges.describe("orders")
        assert (empty.first_position, empty.last_position, await ranges.divide(empty, 1, 1)) == (1, 0, [])
        await fill(client, "orders", [1, 2])
        await fill(client, "orders", [1, 3, 1, 2], batch=3)
        await fill(client, "orders", [3])
        expected = [record async for record in client.read("orders")]
        assert len(expected) == 15
        info = await ranges.describe("orders")
        assert (info.first_position, info.last_position) == (1, 15)
        assert info.bytes > 0
        for start, end in itertools.combinations((1, 4, 9, 16), 2):
            fresh = StreamRanges(group.client(seed=3))
            for asked in (ranges, fresh):
                assert await read(asked, "orders", start, end) == expected[start - 1 : end - 1]
        assert await read(ranges, "orders", 1, 16, records_max=2) == expected
        stale = replace(info, found=replace(info.found, next_position=3, ordered_ends=(2, 2, 1)))
        assert sum(part.records for part in await StreamRanges(client).divide(stale, 1, 3)) == 2, "of an earlier moment"


async def test_what_was_trimmed_is_named_before_and_after_the_plan(tmp_path: Path) -> None:
    async with Spreading(tmp_path, 1) as group:
        await group.run()
        await group.established("s1")
        client = group.client()
        await client.create_spread_topic("orders", 2)
        for _ in range(3):
            await fill(client, "orders", [1], batch=3)
            await fill(client, "orders", [2], batch=3)
        expected = [record async for record in client.read("orders")]
        ranges = StreamRanges(client)
        info = await ranges.describe("orders")
        planned = await ranges.divide(info, 1, 19)
        await client.trim_spread_topic("orders", 11)

        while (info := await ranges.describe("orders")).first_position != 11:
            await client.describe_stream("orders", 1)
        assert await read(ranges, "orders", info.first_position, 19) == expected[10:]
        with pytest.raises(TrimmedError, match="positions 5 to 18 of topic 'orders' have been trimmed") as caught:
            await StreamRanges(client).divide(info, 5, 19)
        assert caught.value.first == 11
        for part in planned:
            with pytest.raises(TrimmedError, match=f"records of stream {part.stream} .* from position 1 on") as caught:
                await read_part(ranges, "orders", part)
            assert caught.value.first in (10, 11)
        for part in await StreamRanges(client).divide(info, 11, 19):
            for wrong in (replace(part, first=part.first - 1), replace(part, last_end=part.last_end - 1)):
                with pytest.raises(PeerError, match="nothing was skipped"):
                    await read_part(ranges, "orders", wrong)
            with pytest.raises(PeerError, match="has no further one"):
                await read_part(ranges, "orders", replace(part, last_end=part.last_end + 1))


async def test_a_node_that_sends_other_records_is_an_error(tmp_path: Path) -> None:
    async with Spreading(tmp_path, 1) as group:
        await group.run()
        await group.established("s1")
        client = group.client()
        await client.create_spread_topic("orders", 2)
        await fill(client, "orders", [1, 2, 1, 2, 1])
        ranges = StreamRanges(client)
        info = await ranges.describe("orders")
        parts = await ranges.divide(info, 1, 6)
        original = ranges._fetch

        def lie(change: Callable[[list[StreamPart], int], tuple[list[StreamPart], int]]) -> None:
            async def fetch(*asked: Any) -> tuple[list[StreamPart], int, int]:
                chunk, known_to, kept_from = await original(*asked)
                return *change(chunk, known_to), kept_from

            ranges._fetch = fetch  # type: ignore[method-assign]

        lie(lambda chunk, known_to: (chunk[1:], known_to))
        with pytest.raises(PeerError, match="a node sent record 2"):
            await read_part(ranges, "orders", parts[0])
        lie(lambda chunk, known_to: (chunk[:1], known_to))
        with pytest.raises(PeerError, match="where record 2 should follow, a node has no further one"):
            await read_part(ranges, "orders", parts[0])
        lie(lambda chunk, known_to: ([*chunk, chunk[-1]], known_to))
        with pytest.raises(PeerError, match="a node sent record 3"):
            await read_part(ranges, "orders", replace(parts[0], last_end=5))
