"""Streams whose groups are lost: the order goes on without them, and each key keeps its order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.sim.leaders import leader_of
from tests.sim.test_groups import CALM, PlacedWorld
from tests.sim.test_sealing import KEYS, Keeper, described, has_sealed, pass_time, seal
from tests.sim.test_spread_appends import spread
from viewstamp.client import SpreadTopicInfo
from viewstamp.client.results import SpreadRecord
from viewstamp.errors import (
    OutcomeUnknownError,
    RequestError,
    StreamSealedError,
    TrimmedError,
    UnavailableError,
)
from viewstamp.ids import GROUP_0, GroupId
from viewstamp.node.placement_queries import SealedStreamQuery
from viewstamp.node.state_machine import TopicsQuery
from viewstamp.sim.cluster import Member
from viewstamp.wire.batch import Record
from viewstamp.wire.spreading import slot_of


class Loser(Keeper):
    """A keeper that does not ask for the outcomes that it does not know, because a lost group never answers."""

    def __init__(self, world: PlacedWorld, **options: object) -> None:
        super().__init__(world, **options)
        self.unknown: set[bytes] = set()

    async def append(self, key: bytes) -> None:
        value = b"%06d" % next(self.numbers)
        self.sent[key].append(value)
        try:
            self.receipts[value] = await self.client.append("spread", value, key=key)
        except UnavailableError:
            self.refused.add(value)
        except OutcomeUnknownError:
            self.unknown.add(value)

    async def records_from(self, start: int | None, end: int | None = None) -> list[SpreadRecord]:
        return [record async for record in self.client.read("spread", start, end=end)]

    async def of_stream(self, stream: int) -> list[Record]:
        return [record async for record in self.client.read("spread", stream=stream)]

    def keys_of(self, topic: SpreadTopicInfo, stream: int) -> list[bytes]:
        return [key for key in KEYS if topic.stream_of(slot_of(key, topic.slots)) == stream]

    def check_keys(self, records: list[SpreadRecord], keys: list[bytes]) -> None:
        """Check that the records of each key follow one another as they were appended, each once."""
        for key in keys:
            found = [bytes(each.value) for each in records if each.key == key]
            assert found == [value for value in self.sent[key] if value in set(found)], f"{key!r} changed its order"
            assert not self.refused & set(found), "a record is there of which the client said that it was not written"


@pytest.fixture
def calm() -> Iterator[PlacedWorld]:
    world = PlacedWorld(1, CALM, number=0)
    yield world
    world.close()


def begin(world: PlacedWorld) -> SpreadTopicInfo:
    """Create the topic with stream 1 on n3 alone, and streams 2 and 3 on all nodes."""
    groups = [world.place("s1", "n3"), world.place("s2")]
    assert world.loop.run_until(lambda: all(world.writers.acknowledged[each] for each in groups), seconds=60.0)
    topic = spread(world, [groups[0], groups[1], groups[1]], 3)
    world.writers.stop()
    return topic


def lose(world: PlacedWorld, stream: int, into: int | None = None) -> SpreadTopicInfo:
    return world.ask(lambda client: client.lose_stream("spread", stream, into=into))


def ends(world: PlacedWorld, tasks: list[asyncio.Task[None]]) -> None:
    assert world.loop.run_until(lambda: all(task.done() for task in tasks), seconds=120.0), world.describe()
    for task in tasks:
        task.result()


def test_appends_and_their_order_go_on_in_another_stream_without_the_lost_group(calm: PlacedWorld) -> None:
    topic = begin(calm)
    writer = Loser(calm, timeout=1.0)
    tasks = [writer.process.spawn(writer.keep(key)) for key in KEYS[:3]]
    pass_time(calm, 0.5)
    dead = calm.members[2]
    calm.take_down(dead, power=True)
    pass_time(calm, 2.0)
    lost = lose(calm, 1, 2)
    (ended,) = lost.closed
    assert (ended.stream, ended.into, ended.phase) == (1, 2, "lost")
    acknowledged = len(writer.receipts)
    pass_time(calm, 3.0)
    writer.is_over = True
    ends(calm, tasks)
    moved = [key for key in writer.keys_of(topic, 1) if writer.sent[key]]
    assert moved, "no key was moved"
    assert len(writer.receipts) > acknowledged + 20
    assert all(writer.receipts[writer.sent[key][-1]].stream == 2 for key in moved), "new appends go to the next stream"
    pass_time(calm, 1.0)
    with pytest.raises(UnavailableError, match="stream 1 of topic 'spread', in group") as caught:
        writer.run(writer.records_from(1))
    assert f"read from position {ended.lost_at}" in caught.value.remedy
    later = writer.run(writer.records_from(ended.lost_at))
    assert [each.position for each in later] == list(range(ended.lost_at, described(calm).next_position))
    assert {each.stream for each in later} <= {2, 3}
    writer.check_keys(later, KEYS)
    calm.bring_up(dead)  # It was not lost after all.
    assert calm.loop.run_until(lambda: is_sealed(dead, topic), seconds=60.0)
    pass_time(calm, 2.0)
    whole = writer.run(writer.records_from(1))
    assert [each.position for each in whole] == list(range(1, len(whole) + 1))
    assert sum(each.stream == 1 for each in whole) == ended.end - 1
    writer.check_keys(whole, KEYS)
    kept = writer.run(writer.of_stream(1))
    behind = {bytes(each.value) for each in kept[ended.end - 1 :]}
    found = {bytes(each.value) for each in whole}
    assert not behind & found, "a record has a position twice"
    assert writer.receipts.keys() <= found | behind, "a record that was acknowledged is nowhere"
    with pytest.raises(StreamSealedError):
        writer.run(writer.client.append("spread", b"late", stream=1))
    calm.loop.check()
    writer.client._close()


def test_a_sealed_stream_whose_group_is_lost_later_keeps_its_positions_and_is_removed_without_it(
    calm: PlacedWorld,
) -> None:
    topic = begin(calm)
    writer = Loser(calm, timeout=1.0)
    tasks = [writer.process.spawn(writer.keep(key)) for key in KEYS[:3]]
    pass_time(calm, 0.3)
    seal(calm, 1, 2)
    ended = has_sealed(calm, 1).closed[0]
    dead = calm.members[2]
    calm.take_down(dead, power=True)
    pass_time(calm, 1.0)
    (lost,) = lose(calm, 1).closed
    assert (lost.phase, lost.end, lost.into) == ("lost", ended.end, 2), "no record loses its position"
    pass_time(calm, 0.5)
    writer.is_over = True
    ends(calm, tasks)
    pass_time(calm, 0.5)
    later = writer.run(writer.records_from(lost.lost_at))
    assert [each.position for each in later] == list(range(lost.lost_at, described(calm).next_position))
    assert {each.stream for each in later} <= {2, 3}
    calm.bring_up(dead)  # It was not lost after all, so its records are read as before.
    assert calm.loop.run_until(lambda: is_sealed(dead, topic), seconds=60.0)
    pass_time(calm, 1.0)
    whole = writer.run(writer.records_from(1))
    assert [each.position for each in whole] == list(range(1, len(whole) + 1))
    assert sum(each.stream == 1 for each in whole) == ended.end - 1 > 0
    writer.check_keys(whole, KEYS)
    assert writer.receipts.keys() <= {bytes(each.value) for each in whole}, "a record that was acknowledged is nowhere"
    calm.take_down(dead, power=True)
    with pytest.raises(RequestError, match="is lost, and has records from global position 1 on"):
        calm.ask(lambda client: client.remove_stream("spread", 1))
    calm.ask(lambda client: client.trim_spread_topic("spread", lost.lost_at))
    assert calm.ask(lambda client: client.remove_stream("spread", 1)).phase_of(1) == "removed"
    pass_time(calm, 2.0)
    assert writer.run(writer.records_from(None)) == later
    calm.bring_up(dead)
    assert calm.loop.run_until(lambda: has_dropped(dead, topic), seconds=60.0)
    assert writer.run(writer.records_from(None)) == later
    calm.loop.check()
    writer.client._close()


def has_dropped(member: Member, topic: SpreadTopicInfo) -> bool:
    """Return whether the group of stream 1 has deleted it, by its own log."""
    hosted = member.group(topic.group_of(1))
    return (
        hosted is not None
        and hosted.parts is not None
        and is_sealed(member, topic)
        and not any(each["name"] == "spread.1" for each in hosted.machine.query(TopicsQuery()))
    )


def is_sealed(member: Member, topic: SpreadTopicInfo) -> bool:
    """Return whether the group of stream 1 has sealed it, by its own log."""
    hosted = member.group(topic.group_of(1))
    if hosted is None or hosted.parts is None:
        return False
    return hosted.machine.query(SealedStreamQuery("spread.1"))


def test_appends_that_were_not_sent_to_the_lost_group_go_on_and_others_have_an_unknown_outcome(
    calm: PlacedWorld,
) -> None:
    """The append after one whose caller is cancelled makes the client look. All have long timeouts."""
    topic = begin(calm)
    writer = Loser(calm, timeout=20.0)
    key = writer.keys_of(topic, 1)[0]
    writer.run(writer.append(key))
    dead = calm.members[2]
    calm.network.isolate("caller", [dead.name])
    sent = [writer.process.spawn(writer.append(key)) for _ in range(3)]
    pass_time(calm, 0.2)
    calm.take_down(dead, power=True)
    pass_time(calm, 4.0)
    unsent = [writer.process.spawn(writer.append(key)) for _ in range(80)]
    pass_time(calm, 0.2)
    lose(calm, 1, 3)
    given_up = writer.process.spawn(writer.client.append("spread", b"given up", key=key))
    pass_time(calm, 0.1)
    given_up.cancel()
    pass_time(calm, 0.1)
    unsent.append(writer.process.spawn(writer.append(key)))
    pass_time(calm, 1.0)
    going = [task for task in unsent if not task.done()]
    assert len(going) <= 64, "appends that were not sent wait for nothing"
    began = calm.loop.time()
    ends(calm, [*sent, *unsent])
    assert calm.loop.time() - began < 21.0
    assert writer.unknown, "the first ones were sent, and nobody knows whether the group has them"
    assert {writer.receipts[value].stream for value in writer.sent[key][1:] if value in writer.receipts} == {3}
    pass_time(calm, 1.0)
    lost_at = described(calm).closed[0].lost_at
    writer.check_keys(writer.run(writer.records_from(lost_at)), [key])
    writer.client._close()


def test_readers_pass_a_lost_stream_that_is_trimmed_and_one_that_waits_goes_on(calm: PlacedWorld) -> None:
    begin(calm)
    writer = Loser(calm, timeout=3.0)
    for stream in (1, 2, 1, 3):
        writer.run(writer.client.append("spread", b"%d" % stream, stream=stream, ordered=True))
    followed: list[int] = []

    async def follow() -> None:
        while True:  # As a program does that reads on after an error.
            try:
                async for record in writer.client.read("spread", len(followed) + 1, follow=True):
                    followed.append(record.position)
            except UnavailableError:
                await asyncio.sleep(0.5)

    following = writer.process.spawn(follow())
    assert calm.loop.run_until(lambda: len(followed) == 4, seconds=20.0)
    calm.take_down(calm.members[2], power=True)
    pass_time(calm, 1.0)
    lost = lose(calm, 1)
    assert lost.closed[0].lost_at == 5
    for stream in (2, 3):
        writer.run(writer.client.append("spread", b"%d" % stream, stream=stream, ordered=True))
    assert calm.loop.run_until(lambda: followed == [1, 2, 3, 4, 5, 6], seconds=60.0), followed
    pass_time(calm, 6.0)
    writer.run(writer.client.append("spread", b"2", stream=2, ordered=True))
    assert calm.loop.run_until(lambda: followed[-1] == 7, seconds=1.0), "it waits for the lost group no more"
    following.cancel()
    for start in (None, 1, 3):
        with pytest.raises(UnavailableError, match="stream 1 of topic 'spread'"):
            writer.run(writer.records_from(start))
    trimmed = calm.ask(lambda client: client.trim_spread_topic("spread", 4))
    assert trimmed.first_position == 4
    with pytest.raises(UnavailableError):
        writer.run(writer.records_from(1))
    calm.ask(lambda client: client.trim_spread_topic("spread", 5))
    pass_time(calm, 2.0)
    for start in (1, 3):
        with pytest.raises(TrimmedError) as caught:
            writer.run(writer.records_from(start))
        assert caught.value.first == 5
    for start in (None, 5):
        assert [each.position for each in writer.run(writer.records_from(start))] == [5, 6, 7]
    writer.client._close()


def test_a_group_with_a_majority_is_not_given_up(calm: PlacedWorld) -> None:
    topic = begin(calm)
    with pytest.raises(RequestError, match="has a leader with a majority; nothing was changed"):
        lose(calm, 1)
    assert described(calm).closed == ()
    calm.take_down(calm.members[2], power=False)
    pass_time(calm, 1.0)
    assert lose(calm, 1).closed == lose(calm, 1).closed, "a second copy finds the first"
    with pytest.raises(RequestError, match="its slots go to stream"):
        lose(calm, 1, 5 - described(calm).closed[0].into)
    assert topic.streams == 3


def move_leader(world: PlacedWorld, group: GroupId, name: str) -> None:
    member = leader_of(world, group)
    assert member is not None
    if member.name != name:
        hosted = member.group(group)
        assert hosted is not None
        world.loop.process("move").spawn(hosted.transfer_leadership(name))
    assert world.loop.run_until(
        lambda: (found := leader_of(world, group)) is not None and found.name == name, seconds=9
    )


def test_what_a_node_of_the_group_knows_is_counted_and_gets_its_position_when_the_node_can_report_it() -> None:
    """The leader of the stream does not reach group 0, so its last records are never reported. Then it dies."""
    world = PlacedWorld(1, replace(CALM, nodes=5), number=0)
    try:
        group, other = world.place("s1", "n2", "n3"), world.place("s2")
        assert world.loop.run_until(
            lambda: all(world.writers.acknowledged[each] for each in (group, other)), seconds=60
        )
        spread(world, [group, other], 2)
        world.writers.stop()
        move_leader(world, GROUP_0, "n1")
        move_leader(world, group, "n3")
        writer = Loser(world, timeout=20.0)
        for _ in range(2):
            writer.run(writer.client.append("spread", b"ordered", stream=1, ordered=True))
        assert world.loop.run_until(lambda: world.has_settled, seconds=60.0)
        for name in ("n2", "n3"):
            world.network.isolate(name, ["n1", "n4", "n5"])
        for _ in range(3):
            writer.run(writer.client.append("spread", b"acknowledged", stream=1))
        pass_time(world, 0.5)
        world.take_down(world.members[2], power=True)
        pass_time(world, 8.0)
        loss = world.ask(lambda client: client.describe_loss("spread", 1))
        assert not loss.is_led
        assert (loss.nodes, loss.silent, loss.end, loss.lost_records) == ({"n2": 5}, ("n3",), 3, 3)
        for name in ("n1", "n4", "n5"):
            world.network.heal("n2", name)
            world.network.heal(name, "n2")
        pass_time(world, 5.0)
        ended = lose(world, 1).closed[0]
        assert (ended.end, ended.lost_at) == (6, 6), "n2 has reported them, although it leads nothing"
        assert [each.position for each in writer.run(writer.records_from(1))] == [1, 2, 3, 4, 5], "n2 has these records"
        writer.client._close()
    finally:
        world.close()
