"""Streams that are added, and streams that move to them, while clients append and read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.sim.test_groups import CALM, PLACED, PlacedWorld
from tests.sim.test_sealing import KEYS, STREAMS, Keeper, begin, described, finish, has_sealed, pass_time
from tests.sim.test_spread_appends import Writer
from viewstamp.client.results import SpreadRecord
from viewstamp.errors import RequestError, UnavailableError
from viewstamp.sim.faults import Faults


class Follower:
    """A reader of the topic that has begun before the streams are added."""

    def __init__(self, world: PlacedWorld) -> None:
        self.seen: list[SpreadRecord] = []
        self._caller = Writer(world, timeout=1.0)
        self._task = self._caller.process.spawn(self._read())

    async def _read(self) -> None:
        while True:
            try:
                async for record in self._caller.client.read("spread", len(self.seen) + 1, follow=True):
                    assert isinstance(record, SpreadRecord)
                    self.seen.append(record)
            except UnavailableError:
                await asyncio.sleep(0.1)

    def check(self, world: PlacedWorld, records: list[SpreadRecord]) -> None:
        """Check that it gets the same records as a reader that begins at the end."""
        assert world.loop.run_until(lambda: len(self.seen) >= len(records) or self._task.done(), seconds=60.0)
        assert not self._task.done(), self._task.exception()
        assert [(each.position, each.value) for each in self.seen] == [(each.position, each.value) for each in records]
        self._task.cancel()
        self._caller.client._close()


@pytest.fixture
def calm() -> Iterator[PlacedWorld]:
    world = PlacedWorld(1, CALM, number=0)
    yield world
    world.close()


def test_an_added_stream_is_used_and_read_by_clients_that_knew_the_topic_before(calm: PlacedWorld) -> None:
    topic = begin(calm)
    writer = Keeper(calm, timeout=20.0)
    writer.run(writer.client.append("spread", b"before"))
    follower = Follower(calm)
    pass_time(calm, 0.5)
    with pytest.raises(RequestError, match="has no stream 5"):
        writer.run(writer.client.append("spread", b"early", stream=5))
    wider = calm.ask(lambda client: client.add_stream("spread", group=topic.groups[1]))
    assert wider.groups == (*topic.groups, topic.groups[1])
    assert wider.ranges == topic.ranges, "no key has another stream"
    assert calm.ask(lambda client: client.add_stream("spread", stream=5)) == wider, "the number makes it the same one"
    receipt = writer.run(writer.client.append("spread", b"named", stream=5, ordered=True))
    assert (receipt.stream, receipt.position) == (5, 1)
    streams = {writer.run(writer.client.append("spread", b"free")).stream for _ in range(2 * STREAMS + 2)}
    assert streams == {1, 2, 3, 4, 5}, "records without a key use it"
    pass_time(calm, 1.0)
    follower.check(calm, writer.run(writer.all_records()))
    writer.client._close()


def test_a_stream_moves_to_another_group_and_a_repetition_goes_on_where_it_was_interrupted(calm: PlacedWorld) -> None:
    topic = begin(calm)
    writer = Keeper(calm, timeout=20.0)
    follower = Follower(calm)
    tasks = [writer.process.spawn(writer.keep(key)) for key in KEYS]
    pass_time(calm, 0.3)
    own, other = topic.groups[0], topic.groups[1]
    with pytest.raises(RequestError, match=f"stream 1 of topic 'spread' is in group {own} already"):
        calm.ask(lambda client: client.move_stream("spread", 1, own))
    calm.ask(lambda client: client.add_stream("spread", stream=5, group=other))  # The caller died after this step.
    moved = calm.ask(lambda client: client.move_stream("spread", 1, other))
    assert [(each.stream, each.into) for each in moved.closed] == [(1, 5)]
    assert moved.groups == (*topic.groups, other)
    assert calm.ask(lambda client: client.move_stream("spread", 1, other)).groups == moved.groups
    with pytest.raises(RequestError, match=f"into stream 5, which is in group {other}, not {topic.groups[2]}"):
        calm.ask(lambda client: client.move_stream("spread", 1, topic.groups[2]))
    pass_time(calm, 0.5)
    calm.placer.spread = calm.ask(lambda client: client.move_stream("spread", 5, own))
    records = finish(calm, writer, tasks, 1, 5)
    assert not writer.refused, "a move costs no append"
    after = described(calm)
    assert after.groups == (*topic.groups, other, own)
    assert {stream for _, stream in after.ranges} == {2, 3, 4, 6}
    assert {each.stream for each in records if each.key is not None} >= {5, 6}
    follower.check(calm, records)


@pytest.mark.parametrize("seed", [1])
def test_streams_move_while_leaders_die_and_disks_are_lost(seed: int) -> None:
    world = PlacedWorld(seed, replace(PLACED, seconds=2.0), number=0)
    try:
        topic = begin(world)
        writer = Keeper(world, timeout=[0.3, 1.0, 20.0][seed % 3])
        follower = Follower(world)
        tasks = [writer.process.spawn(writer.keep(key)) for key in KEYS]
        pass_time(world, 0.3)
        faults = Faults(world, world.loop.entropy("faults"))
        faults.start()
        pass_time(world, 0.5)
        world.ask(lambda client: client.move_stream("spread", 1, topic.groups[2]))
        pass_time(world, 0.3 * (seed % 3))
        world.placer.spread = world.ask(lambda client: client.move_stream("spread", 2, topic.groups[0]))
        pass_time(world, 1.5)
        faults.stop()
        records = finish(world, writer, tasks, 1, 2)
        assert len(records) > 50
        follower.check(world, records)
        assert has_sealed(world, 1, 2).groups == (*topic.groups, topic.groups[2], topic.groups[0])
    finally:
        world.close()
