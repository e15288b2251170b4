"""Streams that are removed after their records were trimmed, while clients append and read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.sim.test_groups import CALM, PLACED, PlacedWorld
from tests.sim.test_lost_streams import Loser, lose
from tests.sim.test_lost_streams import begin as begin_losable
from tests.sim.test_sealing import KEYS, Keeper, begin, described, has_sealed, pass_time, seal
from viewstamp.client import Receipt, SpreadTopicInfo
from viewstamp.client.results import SpreadRecord
from viewstamp.client.stream_ranges import StreamRanges
from viewstamp.errors import RequestError, StreamSealedError, TrimmedError, UnavailableError
from viewstamp.ids import GROUP_0, Position, Stream
from viewstamp.node.order_queries import MissingRunsQuery, OrderStatusQuery
from viewstamp.node.placement_queries import SealedStreamQuery
from viewstamp.node.state_machine import TopicsQuery
from viewstamp.sim.cluster import Member
from viewstamp.sim.faults import Faults
from viewstamp.wire.spreading import slot_of


@pytest.fixture
def calm() -> Iterator[PlacedWorld]:
    world = PlacedWorld(1, CALM, number=0)
    yield world
    world.close()


def remove(world: PlacedWorld, stream: int) -> SpreadTopicInfo:
    return world.ask(lambda client: client.remove_stream("spread", stream))


def trim(world: PlacedWorld, position: int) -> SpreadTopicInfo:
    return world.ask(lambda client: client.trim_spread_topic("spread", position))


def removed(world: PlacedWorld, *streams: int) -> SpreadTopicInfo:
    """Trim the topic above the records of these sealed streams, and remove each when its group has followed."""
    topic = has_sealed(world, *streams)
    for stream in streams:
        position = topic.lost_at(stream)
        if not position and (end := topic.closed_at(stream)) > 1:
            last = Receipt(Position(end - 1), 0, 0, 0, stream=stream)  # type: ignore[arg-type]
            found = world.ask(lambda client, last=last: client.find_global_position("spread", last))  # type: ignore[misc]
            position = found.global_position + 1
        world.placer.spread = trim(world, max(position, 1))
        for _ in range(600):
            try:
                world.placer.spread = topic = remove(world, stream)
                break
            except RequestError:
                pass_time(world, 0.1)
        assert stream in topic.removed_streams
        world.placer.removed.add(stream)
    return topic


def names(world: PlacedWorld) -> list[set[str]]:
    """Return the streams that each running member has in any group."""
    nodes = [member.node for member in world.members if member.is_up and member.node is not None]
    groups = [[group for group in node.groups.values() if group.id] for node in nodes]
    return [{each["name"] for group in of_node for each in group.machine.query(TopicsQuery())} for of_node in groups]


def test_clients_and_readers_that_knew_the_stream_go_on_when_it_is_removed(calm: PlacedWorld) -> None:
    topic = begin(calm)
    calm.writers.stop()
    writer, idle = Keeper(calm, timeout=20.0), Keeper(calm, timeout=20.0)
    first = [key for key in KEYS if topic.stream_of(slot_of(key, topic.slots)) == 1]
    assert first, "a key belongs to stream 1"
    for stream in (1, 2, 1, 3, 2):
        writer.run(writer.client.append("spread", b"%d" % stream, stream=stream, ordered=True))
    old = idle.run(idle.client.append("spread", b"old", key=first[0], ordered=True))
    assert old.stream == 1
    seen: list[SpreadRecord] = []

    async def follow() -> None:
        async for record in writer.client.read("spread", follow=True):
            assert isinstance(record, SpreadRecord)
            seen.append(record)

    following = writer.process.spawn(follow())
    ranges = StreamRanges(idle.client)
    before = idle.run(ranges.describe("spread"))
    assert calm.loop.run_until(lambda: len(seen) == 6, seconds=20.0)
    seal(calm, 1, 2)
    has_sealed(calm, 1)
    with pytest.raises(RequestError, match="keeps 3 records, up to position 6 of the topic"):
        remove(calm, 1)
    topic = removed(calm, 1)
    assert (topic.gone_at(1), topic.kept_streams, topic.ranges[0]) == (7, [2, 3, 4], (0, 2))
    assert remove(calm, 1).closed == topic.closed, "a second call finds it removed"
    assert calm.loop.run_until(lambda: all("spread.1" not in each for each in names(calm)), seconds=20.0)
    # A client that has read the topic before, and its token.
    receipt = idle.run(idle.client.append("spread", b"new", key=first[0], ordered=True))
    assert (receipt.stream, receipt.global_position) == (2, 7)
    with pytest.raises(StreamSealedError):
        writer.run(writer.client.append("spread", b"late", stream=1))
    # A reader that has begun before, one of ranges, and new ones.
    assert calm.loop.run_until(lambda: [each.position for each in seen] == list(range(1, 8)), seconds=20.0)
    assert not following.done()
    following.cancel()
    with pytest.raises(TrimmedError) as caught:
        idle.run(ranges.divide(before, 1, 7))
    assert caught.value.first == 7
    later = idle.run(ranges.describe("spread"))
    assert (later.first_position, later.last_position) == (7, 7)
    assert [(each.stream, each.records) for each in idle.run(ranges.divide(later, 7, 8))] == [(2, 1)]
    with pytest.raises(TrimmedError) as caught:
        writer.run(read(writer, 1))
    assert caught.value.first == 7
    assert [each.position for each in writer.run(read(writer, None))] == [7]
    for member in calm.members:
        hosted = member.group(topic.group_of(1))
        assert hosted is not None
        assert hosted.machine.keep_from() is None, "the log of its group keeps nothing for it"
    calm.loop.check()
    for each in (writer, idle):
        each.client._close()


async def read(writer: Keeper, start: int | None) -> list[SpreadRecord]:
    return [record async for record in writer.client.read("spread", start)]


def has_dropped(member: Member, stream: Stream) -> bool:
    hosted = member.group(stream.group)
    if hosted is None or hosted.parts is None or not hosted.machine.query(SealedStreamQuery(stream.name)):
        return False
    return stream.name not in {each["name"] for each in hosted.machine.query(TopicsQuery())}


def test_a_lost_stream_is_removed_and_its_group_deletes_it_when_it_is_found_again(calm: PlacedWorld) -> None:
    topic = begin_losable(calm)
    writer = Loser(calm, timeout=2.0)
    for stream in (1, 2, 1):
        writer.run(writer.client.append("spread", b"%d" % stream, stream=stream, ordered=True))
    dead = calm.members[2]
    stream = Stream(topic.group_of(1), "spread.1")
    calm.network.isolate("n1", [dead.name])
    calm.network.isolate("n2", [dead.name])
    writer.run(writer.client.append("spread", b"behind the end", stream=1))
    calm.take_down(dead, power=True)
    pass_time(calm, 1.0)
    lost_at = lose(calm, 1, 2).lost_at(1)
    with pytest.raises(RequestError, match="is lost, and has records from global position 1 on") as caught:
        remove(calm, 1)
    assert f"viewstamp topic trim spread --before {lost_at}" in caught.value.remedy
    for start in (1, None):
        with pytest.raises(UnavailableError, match="stream 1 of topic 'spread'"):
            writer.run(writer.records_from(start))
    topic = removed(calm, 1)
    assert topic.gone_at(1) == lost_at
    group_0 = calm.members[0].group(GROUP_0)
    assert group_0 is not None
    assert group_0.machine.query(MissingRunsQuery(stream, Position(1), 9)) == [], "group 0 keeps no run of it"
    assert [each.mapped for each in group_0.machine.query(OrderStatusQuery()) if each.stream == stream] == [3]
    after = writer.run(writer.client.append("spread", b"after", stream=2, ordered=True))
    assert [each.position for each in writer.run(writer.records_from(None))] == [after.global_position]
    for name in ("n1", "n2"):
        calm.network.heal(name, dead.name)
        calm.network.heal(dead.name, name)
    calm.bring_up(dead)
    assert calm.loop.run_until(lambda: has_dropped(dead, stream), seconds=60.0)
    hosted = dead.group(stream.group)
    assert hosted is not None
    assert hosted.machine.keep_from() is None, "its log keeps nothing for it, also not what was behind the end"
    calm.loop.check()
    writer.client._close()


@pytest.mark.parametrize("seed", [1, 2])
def test_streams_are_removed_while_leaders_die_and_disks_are_lost(seed: int) -> None:
    world = PlacedWorld(seed, replace(PLACED, seconds=2.0), number=0)
    try:
        begin(world)
        writer = Keeper(world, timeout=[0.3, 20.0][seed % 2])
        tasks = [writer.process.spawn(writer.keep(key)) for key in KEYS]
        pass_time(world, 0.3)
        faults = Faults(world, world.loop.entropy("faults"))
        faults.start()
        for stream in (1, 2):
            seal(world, stream)
            removed(world, stream)
        pass_time(world, 0.5)
        faults.stop()
        world.calm()
        pass_time(world, 1.0)
        writer.is_over = True
        assert world.loop.run_until(lambda: all(task.done() for task in tasks), seconds=60.0)
        for task in tasks:
            task.result()
        pass_time(world, 1.0)
        first = described(world).first_position
        records: list[SpreadRecord] = writer.run(read(writer, first))
        assert [each.position for each in records] == list(range(first, first + len(records)))
        kept = {bytes(each.value) for each in records}
        assert not writer.refused & kept
        for key, values in writer.sent.items():
            of_key = [bytes(each.value) for each in records if each.key == key]
            assert of_key == [value for value in values if value in kept], f"the records of {key!r} changed their order"
        last = [writer.receipts[values[-1]] for values in writer.sent.values() if values[-1] in writer.receipts]
        assert {receipt.stream for receipt in last} <= {3, 4}
        world.finish(names_min=1)
        assert all(not each & {"spread.1", "spread.2"} for each in names(world))
        writer.client._close()
    finally:
        world.close()
