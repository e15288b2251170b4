"""Readers of a topic with streams, by position, while groups of a simulated cluster are down."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.sim.test_groups import CALM, PlacedWorld
from tests.sim.test_spread_appends import Writer, spread
from viewstamp.cli.topic import describe_any
from viewstamp.client.results import SpreadTopicInfo
from viewstamp.errors import UnavailableError
from viewstamp.wire.batch import Record


@pytest.fixture
def calm() -> Iterator[PlacedWorld]:
    world = PlacedWorld(1, CALM, number=0)
    yield world
    world.close()


async def ordered(writer: Writer, records: int) -> None:
    """Wait until so many records have a position."""
    while True:
        if (await writer.client.describe_spread_topic("spread")).next_position > records:
            return
        await asyncio.sleep(0.05)


async def read(writer: Writer, found: list[Record], *, start: int = 1, end: int | None = None) -> None:
    async for record in writer.client.read("spread", start, end=end):
        found.append(record)


def test_without_a_node_of_a_group_the_others_are_read_and_the_error_names_the_stream(calm: PlacedWorld) -> None:
    groups = [calm.place("s1", "n1"), calm.place("s2", "n2")]
    assert calm.loop.run_until(lambda: all(calm.writers.acknowledged[each] for each in groups), seconds=60.0)
    spread(calm, groups, 2)
    writer = Writer(calm, timeout=3.0)
    for count, stream in enumerate((2, 1, 2), 1):
        writer.run(writer.client.append("spread", b"%d" % stream, stream=stream))
        writer.run(ordered(writer, count))
    assert calm.loop.run_until(lambda: calm.has_settled, seconds=60.0)
    calm.take_down(calm.members[0], power=False)
    found: list[Record] = []
    with pytest.raises(UnavailableError, match=f"stream 1 of topic 'spread', in group {groups[0]}: "):
        writer.run(read(writer, found))
    assert [(record.position, record.value) for record in found] == [(1, b"2")], "position 2 is of stream 1"
    calm.bring_up(calm.members[0])
    writer.run(read(writer, found, start=2))
    assert [(record.position, record.value) for record in found] == [(1, b"2"), (2, b"1"), (3, b"2")]
    writer.client._close()


def test_without_a_majority_of_group_0_a_reader_gets_what_is_ordered_and_waits(calm: PlacedWorld) -> None:
    group = calm.place("s1", "n1")
    spread(calm, [group], 1)
    writer = Writer(calm, timeout=5.0)
    writer.run(writer.client.append("spread", b"a"))
    writer.run(ordered(writer, 1))
    reader = Writer(calm, timeout=5.0)
    found: list[Record] = []

    async def follow() -> None:
        async for record in reader.client.read("spread", 1, follow=True):
            found.append(record)

    reader.process.spawn(follow())
    assert calm.loop.run_until(lambda: len(found) == 1, seconds=60.0)
    for member in calm.members[1:]:
        calm.take_down(member, power=False)
    calm.loop.run_until(lambda: False, seconds=1.0)
    assert writer.run(writer.client.append("spread", b"b")).position == 2, "it is durable, and has no position yet"
    assert not calm.loop.run_until(lambda: len(found) > 1, seconds=3.0)
    topic, streams = writer.run(describe_any(writer.client, "spread", 8.0))
    assert isinstance(topic, SpreadTopicInfo)
    assert topic.age_seconds > 0, "the order may stand still"
    assert (topic.next_position, topic.ordered_ends, streams[0].last_position) == (2, (2,), 2)
    for member in calm.members[1:]:
        calm.bring_up(member)
    assert calm.loop.run_until(lambda: len(found) > 1, seconds=60.0)
    assert [(record.position, record.value) for record in found] == [(1, b"a"), (2, b"b")]
    for each in (writer, reader):
        each.client._close()
