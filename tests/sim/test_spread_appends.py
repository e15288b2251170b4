"""Appends to a topic that is spread over streams of several groups of a simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.sim.test_client_of_groups import Caller, change_leaders
from tests.sim.test_groups import CALM, PlacedWorld
from viewstamp.cli.unordered import wait_for_positions
from viewstamp.client import Outcome, Receipt, SpreadTopicInfo
from viewstamp.client.reader import TopicReader
from viewstamp.errors import OutcomeUnknownError, UnavailableError
from viewstamp.ids import GroupId
from viewstamp.wire.batch import Record
from viewstamp.wire.spreading import slot_of


@pytest.fixture
def calm() -> Iterator[PlacedWorld]:
    world = PlacedWorld(1, CALM, number=0)
    yield world
    world.close()


def spread(world: PlacedWorld, groups: list[GroupId], streams: int) -> SpreadTopicInfo:
    topic = world.placer.spread = world.ask(lambda client: client.create_spread_topic("spread", streams, groups=groups))
    return topic


class Writer(Caller):
    """A client that appends to the spread topic "spread"."""

    def __init__(self, world: PlacedWorld, addresses: list[str] | None = None, **options: object) -> None:
        super().__init__(world, addresses, **options)
        self.answers: dict[tuple[bytes, bytes], Receipt | Outcome | None] = {}

    async def write(self, key: bytes) -> None:
        """Append records with one key, one after the other, until ``is_over``."""
        while not self.is_over:
            value = b"%06d" % next(self.numbers)
            try:
                self.answers[key, value] = await self.client.append("spread", value, key=key)
            except UnavailableError:
                self.answers[key, value] = None
                await asyncio.sleep(0.1)
            except OutcomeUnknownError as error:
                self.answers[key, value] = await self.outcome(error.token)
            await asyncio.sleep(0.005)

    async def records(self, topic: SpreadTopicInfo, stream: int) -> list[Record]:
        """Return the records of a stream, linearizably."""
        client = self.client
        with client._groups.call(topic.group_of(stream)) as parts:
            parts.router.start()
            reader = TopicReader(
                *(client._runtime, parts.router, client._options, topic.topic_of(stream), 1),
                end=None,
                follow=False,
                node=None,
            )
            return [record async for record in reader.records()]


def test_each_record_is_in_its_stream_once_and_each_key_in_order_while_leaders_change() -> None:
    world = PlacedWorld(5, CALM, number=0)
    try:
        groups = [world.place(f"s{number}") for number in range(3)]
        assert world.loop.run_until(lambda: all(world.writers.acknowledged[each] for each in groups), seconds=60.0)
        topic = spread(world, groups, 5)
        writer = Writer(world, timeout=0.15)
        keys = [b"key %d" % number for number in range(8)]
        tasks = [writer.process.spawn(writer.write(key)) for key in keys]
        changes = change_leaders(world, groups)
        writer.is_over = True
        assert world.loop.run_until(lambda: all(task.done() for task in tasks), seconds=60.0)
        assert changes > 2
        world.finish(names_min=1)
        streams = {stream: writer.run(writer.records(topic, stream)) for stream in range(1, topic.streams + 1)}
        found = [(bytes(each.key or b""), bytes(each.value)) for records in streams.values() for each in records]
        assert len(found) == len(set(found)), "a record was written twice"
        for (key, value), answer in writer.answers.items():
            stream = topic.stream_of(slot_of(key, topic.slots))
            if isinstance(answer, Receipt):
                assert answer.stream == stream
                assert bytes(streams[stream][answer.position - 1].value) == value
            else:
                assert ((key, value) in found) == (answer is not None and answer.applied)
        for key in keys:
            values = [value for each, value in found if each == key]
            assert values == sorted(values)
            assert len(values) > 3
        assert any(isinstance(answer, Outcome) for answer in writer.answers.values()), "no outcome was unknown"
        writer.client._close()
    finally:
        world.close()


def test_a_command_that_reads_behind_appends_waits_for_their_positions(calm: PlacedWorld) -> None:
    groups = [calm.place("s1", "n1", "n2"), calm.place("s2", "n2", "n3")]
    assert calm.loop.run_until(lambda: all(calm.writers.acknowledged[each] for each in groups), seconds=60.0)
    spread(calm, groups, 2)
    writer = Writer(calm, timeout=10.0)

    async def read() -> list[bytes]:
        """Append records to both streams, and read the topic, as the command does."""
        value = b"%06d" % next(writer.numbers)
        for stream in (1, 2):
            await writer.client.append("spread", value, stream=stream)
        assert await wait_for_positions(writer.client, "spread") == 0
        return [bytes(record.value) async for record in writer.client.read("spread") if record.value == value]

    for _ in range(4):
        assert len(writer.run(read())) == 2
    assert writer.run(wait_for_positions(writer.client, "none")) == 0
    writer.client._close()


def test_the_records_of_a_group_without_a_majority_are_not_waited_for(calm: PlacedWorld) -> None:
    groups = [calm.place("s1", "n3"), calm.place("s2", "n1")]
    assert calm.loop.run_until(lambda: all(calm.writers.acknowledged[each] for each in groups), seconds=60.0)
    spread(calm, groups, 2)
    writer = Writer(calm, timeout=10.0)
    for stream in (1, 2):
        writer.run(writer.client.append("spread", b"first", stream=stream))
    calm.take_down(calm.members[2], power=False)
    waiting = writer.run(wait_for_positions(writer.client, "spread", 0.5), seconds=5.0)
    assert waiting <= 1, "only the record of the other stream is known"
    writer.client._close()


def test_a_group_without_a_majority_delays_no_record_of_another_stream(calm: PlacedWorld) -> None:
    stuck, other = calm.place("s1", "n2", "n3"), calm.place("s2", "n1", "n2")
    spread(calm, [stuck, other], 2)
    writer = Writer(calm, timeout=10.0, bytes_in_flight_max=30_000)
    for stream in (1, 2):
        writer.run(writer.client.append("spread", b"first", stream=stream))
    calm.take_down(calm.members[2], power=False)
    waiting = [writer.process.spawn(writer.client.append("spread", bytes(1000), stream=1)) for _ in range(50)]
    calm.loop.run_until(lambda: False, seconds=1.0)
    for number in range(50):
        receipt = writer.run(writer.client.append("spread", b"x", stream=2), seconds=1.0)
        assert receipt.position == number + 2
    assert not any(task.done() for task in waiting)
    assert calm.loop.run_until(lambda: all(task.done() for task in waiting), seconds=60.0)
    assert all(isinstance(task.exception(), UnavailableError | OutcomeUnknownError) for task in waiting)
    writer.client._close()


def test_without_a_majority_of_group_0_routes_are_read_and_missing_topics_are_not_missed(calm: PlacedWorld) -> None:
    group = calm.place("s1", "n1")
    spread(calm, [group], 1)
    known = Writer(calm, timeout=20.0)
    assert known.run(known.client.append("spread", b"a")).position == 1
    assert calm.loop.run_until(lambda: calm.has_settled, seconds=60.0)
    for member in calm.members[1:]:
        calm.take_down(member, power=False)
    assert known.run(known.client.append("spread", b"b"), seconds=2.0).position == 2
    new = Writer(calm, timeout=20.0)
    assert new.run(new.client.append("spread", b"c")).position == 3
    with pytest.raises(UnavailableError, match="nothing was written"):
        new.run(new.client.append("invoices", b"c", timeout=5.0))
    for writer in (known, new):
        writer.client._close()
