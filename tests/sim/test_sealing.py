"""Streams that end while clients append to them: each key keeps its order in the order of all streams."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.sim.leaders import leader_of
from tests.sim.test_groups import CALM, PLACED, PlacedWorld
from tests.sim.test_spread_appends import Writer, spread
from viewstamp.client import Receipt, SpreadTopicInfo
from viewstamp.client.results import SpreadRecord
from viewstamp.errors import OutcomeUnknownError, RequestError, StreamSealedError, UnavailableError
from viewstamp.ids import GroupId
from viewstamp.sim.faults import Faults
from viewstamp.wire.spreading import slot_of

STREAMS = 4
KEYS = [b"key %d" % number for number in range(6)]
_CALLS_MAX = 6


class Keeper(Writer):
    """A client that has several appends with the same key in flight, and notes which were acknowledged."""

    def __init__(self, world: PlacedWorld, **options: object) -> None:
        super().__init__(
            world, batch_bytes=1, batches_eager=64, batches_in_flight=64, batches_in_flight_far=64, **options
        )
        self.sent: dict[bytes, list[bytes]] = {key: [] for key in KEYS}
        """The values of each key, in the order of the calls."""
        self.receipts: dict[bytes, Receipt] = {}
        self.refused: set[bytes] = set()
        """The values that were certainly not written."""

    async def append(self, key: bytes) -> None:
        value = b"%06d" % next(self.numbers)
        self.sent[key].append(value)
        try:
            self.receipts[value] = await self.client.append("spread", value, key=key)
        except UnavailableError:
            self.refused.add(value)
        except OutcomeUnknownError as error:
            outcome = await self.outcome(error.token)
            if outcome.applied:
                self.receipts[value] = outcome.receipts[0]
            elif outcome.answer == "not applied":
                self.refused.add(value)

    async def keep(self, key: bytes) -> None:
        """Append records until ``is_over``; some of the key are in flight, in batches of about one record."""
        calls: set[asyncio.Task[None]] = set()
        while not self.is_over:
            calls.add(self.process.spawn(self.append(key)))
            await asyncio.sleep(0.01)
            if len(calls) >= _CALLS_MAX:
                await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            calls = {call for call in calls if not call.done()}
        if calls:
            await asyncio.wait(calls)

    async def all_records(self) -> list[SpreadRecord]:
        """Return all records of the topic in its order."""
        return [record async for record in self.client.read("spread", follow=False)]

    def check(self, topic: SpreadTopicInfo) -> list[SpreadRecord]:
        """Check the whole topic against the answers of all calls."""
        records: list[SpreadRecord] = self.run(self.all_records())
        assert [each.position for each in records] == list(range(1, len(records) + 1))
        found = {bytes(each.value): each for each in records}
        assert len(found) == len(records), "a record was written twice"
        for value, receipt in self.receipts.items():
            assert value in found, f"{value!r} was acknowledged at {receipt} and is lost"
            assert (found[value].stream, found[value].stream_position) == (receipt.stream, receipt.position)
        assert not self.refused & found.keys(), "a record is there of which the client said that it was not written"
        for key, values in self.sent.items():
            of_key = [bytes(each.value) for each in records if each.key == key]
            assert of_key == [value for value in values if value in found], (
                f"the records of {key!r} changed their order"
            )
        for each in topic.closed:
            assert each.end == 1 + sum(record.stream == each.stream for record in records)
        return records


def begin(world: PlacedWorld, groups: int = 3) -> SpreadTopicInfo:
    placed = [world.place(f"s{number}") for number in range(groups)]
    assert world.loop.run_until(lambda: all(world.writers.acknowledged[each] for each in placed), seconds=60.0)
    return spread(world, [GroupId(placed[number % groups]) for number in range(STREAMS)], STREAMS)


def pass_time(world: PlacedWorld, seconds: float) -> None:
    world.loop.run_until(lambda: False, seconds=seconds)


def seal(world: PlacedWorld, stream: int, into: int | None = None) -> None:
    world.ask(lambda client: client.seal_stream("spread", stream, into=into))


def described(world: PlacedWorld) -> SpreadTopicInfo:
    return world.ask(lambda client: client.describe_spread_topic("spread"))


def has_sealed(world: PlacedWorld, *streams: int) -> SpreadTopicInfo:
    """Wait until these streams are sealed, and return the topic."""
    for _ in range(600):
        topic = described(world)
        if topic.sealed_streams >= set(streams):
            return topic
        pass_time(world, 0.1)
    raise AssertionError(f"{topic.closed}; {world.describe()}")


def finish(world: PlacedWorld, writer: Keeper, tasks: list[asyncio.Task[None]], *streams: int) -> list[SpreadRecord]:
    world.calm()
    topic = has_sealed(world, *streams)
    pass_time(world, 1.0)
    writer.is_over = True
    assert world.loop.run_until(lambda: all(task.done() for task in tasks), seconds=60.0)
    for task in tasks:
        task.result()
    pass_time(world, 1.0)  # Until everything is ordered.
    records = writer.check(topic)
    world.finish(names_min=1)
    writer.client._close()
    return records


@pytest.fixture
def calm() -> Iterator[PlacedWorld]:
    world = PlacedWorld(1, CALM, number=0)
    yield world
    world.close()


def test_the_records_of_each_key_go_on_in_another_stream_in_their_order(calm: PlacedWorld) -> None:
    topic = begin(calm)
    writer = Keeper(calm, timeout=20.0)
    tasks = [writer.process.spawn(writer.keep(key)) for key in KEYS]
    pass_time(calm, 0.5)
    seal(calm, 1, 2)
    pass_time(calm, 0.2)
    seal(calm, 2)
    records = finish(calm, writer, tasks, 1, 2)
    assert not writer.refused, "a seal costs no append"
    ended = described(calm)
    assert [(each.stream, each.phase) for each in ended.closed] == [(1, "sealed"), (2, "sealed")]
    assert ended.open_streams == [3, 4]
    assert {stream for _, stream in ended.ranges} == {3, 4}
    moved = {each.key for each in records if each.stream in (1, 2)}
    assert moved, "no key was moved"
    assert all(any(each.stream > 2 for each in records if each.key == key) for key in moved)
    assert topic.ranges != ended.ranges


def test_a_stream_that_is_named_and_sealed_is_refused_and_other_appends_go_on(calm: PlacedWorld) -> None:
    topic = begin(calm)
    writer = Keeper(calm, timeout=20.0)
    for stream in range(1, STREAMS + 1):
        writer.run(writer.client.append("spread", b"named", stream=stream))
    seal(calm, 3, 1)
    has_sealed(calm, 3)
    with pytest.raises(StreamSealedError, match="is sealed; nothing was written"):
        writer.run(writer.client.append("spread", b"late", stream=3))
    with pytest.raises(StreamSealedError):
        writer.run(writer.client.append("spread", b"late", stream=3, expected_position=2))
    receipts = [writer.run(writer.client.append("spread", b"free")) for _ in range(2 * STREAMS)]
    assert {receipt.stream for receipt in receipts} <= {1, 2, 4}
    new = Keeper(calm, timeout=20.0)
    with pytest.raises(StreamSealedError):
        new.run(new.client.append("spread", b"late", stream=3))
    for stream in (2, 4):
        seal(calm, stream, 1)
    has_sealed(calm, 2, 3, 4)
    with pytest.raises(RequestError, match="stream 1 is the last open stream"):
        seal(calm, 1)
    # The client may not have heard of the seals, so the keys have to be of one stream before them too.
    first = [key for key in KEYS if topic.stream_of(slot_of(key, topic.slots)) == 2]
    assert len(first) > 1, "two keys belong to stream 2"
    many = writer.run(writer.client.append_many("spread", [b"a", b"b"], keys=first[:2], ordered=True))
    assert [receipt.stream for receipt in many] == [1, 1]
    assert many[1].global_position == many[0].global_position + 1
    records: list[SpreadRecord] = writer.run(writer.all_records())
    assert b"late" not in {bytes(each.value) for each in records}
    for each in (writer, new):
        each.client._close()


def test_a_caller_that_leaves_while_its_stream_ends_writes_nothing(calm: PlacedWorld) -> None:
    """Group 0 has no majority, so that the stream is sealed in its group and never gives its slots away."""
    group = calm.place("s1", "n1")
    topic = spread(calm, [group], 2)
    writer = Keeper(calm, timeout=20.0)
    for stream in (1, 2):
        writer.run(writer.client.append("spread", b"first", stream=stream))
    seal(calm, 1)
    for member in calm.members[1:]:
        calm.take_down(member, power=False)
    pass_time(calm, 1.0)
    keys = [key for key in KEYS if topic.stream_of(slot_of(key, topic.slots)) == 1]
    held = [writer.process.spawn(writer.client.append("spread", b"held", key=key, timeout=3.0)) for key in keys]
    pass_time(calm, 1.0)
    held += [writer.process.spawn(writer.client.append("spread", b"held", key=key, timeout=3.0)) for key in keys]
    pass_time(calm, 0.5)
    assert not any(task.done() for task in held)
    for task in (held[0], held[-1]):
        task.cancel()
    receipt = writer.run(writer.client.append("spread", b"x", stream=2))
    assert receipt.position == 2, "the other stream goes on"
    assert calm.loop.run_until(lambda: all(task.done() for task in held), seconds=20.0)
    for task in held[1:-1]:
        assert isinstance(task.exception(), UnavailableError)
        assert "nothing was written" in str(task.exception())
    pass_time(calm, 1.0)
    assert not writer.client._moves._moves, "nobody waits, so nothing is asked"
    assert not writer.client._appends._begun
    writer.client._close()


@pytest.mark.parametrize("seed", [1])
def test_streams_end_while_leaders_die_and_disks_are_lost(seed: int) -> None:
    world = PlacedWorld(seed, replace(PLACED, seconds=2.0), number=0)
    try:
        begin(world)
        writer = Keeper(world, timeout=[0.3, 1.0, 20.0][seed % 3])
        tasks = [writer.process.spawn(writer.keep(key)) for key in KEYS]
        pass_time(world, 0.3)
        faults = Faults(world, world.loop.entropy("faults"))
        faults.start()
        pass_time(world, 0.5)
        seal(world, 1, 2)
        pass_time(world, 0.3 * (seed % 3))
        seal(world, 2)
        pass_time(world, 1.5)
        faults.stop()
        assert len(finish(world, writer, tasks, 1, 2)) > 50
    finally:
        world.close()


def test_a_route_with_another_sealed_stream_lets_no_append_overtake_one_without_an_outcome(calm: PlacedWorld) -> None:
    """The client cannot reach the leader of the second stream, and learns from the first one that both are sealed."""
    topic = begin(calm)
    writer = Keeper(calm, timeout=20.0)
    first, second = ([key for key in KEYS if topic.stream_of(slot_of(key, topic.slots)) == n] for n in (1, 2))
    for key in (first[0], second[0]):
        writer.run(writer.append(key))
    leaders = {n: leader_of(calm, topic.group_of(n)) for n in (1, 2)}
    assert leaders[2] is not None
    assert leaders[1] is not leaders[2], "the seed of this run has to be another one"
    calm.network.isolate("caller", [leaders[2].name])
    waiting = [writer.process.spawn(writer.append(second[0])) for _ in range(3)]
    pass_time(calm, 0.1)
    seal(calm, 1, 3)
    seal(calm, 2, 3)
    has_sealed(calm, 1, 2)
    moved = writer.process.spawn(writer.append(first[0]))
    pass_time(calm, 0.5)
    waiting += [writer.process.spawn(writer.append(second[0])) for _ in range(3)]
    pass_time(calm, 0.5)
    calm.network.heal()
    assert calm.loop.run_until(lambda: moved.done() and all(task.done() for task in waiting), seconds=60.0)
    pass_time(calm, 1.0)
    records = writer.check(described(calm))
    assert sorted(each.stream for each in records) == [1, 2, 3, 3, 3, 3, 3, 3, 3]
    writer.client._close()
