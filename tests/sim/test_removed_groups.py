"""Groups are placed, used, emptied and removed, while clients append, nodes die, and other hosts are chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim.test_group_moves import ROUGH
from tests.sim.test_groups import PlacedWorld
from tests.sim.test_removed_streams import read
from tests.sim.test_sealing import KEYS, Keeper, begin, described, pass_time
from viewstamp.client.results import SpreadRecord
from viewstamp.sim.faults import Faults
from viewstamp.sim.group_moves import GroupMoves
from viewstamp.sim.group_removals import GroupRemovals
from viewstamp.sim.swarm import Swarm


def run(seed: int, swarm: Swarm = ROUGH, number: int = 3) -> GroupRemovals:
    """Run a world in which groups come and go; return the operator that removed them."""
    world = PlacedWorld(seed, swarm, number=0)
    try:
        topic = begin(world)
        homes = list(dict.fromkeys(world.placer.placed))
        writer = Keeper(world, timeout=[0.3, 20.0][seed % 2])
        tasks = [writer.process.spawn(writer.keep(key)) for key in KEYS]
        removals = GroupRemovals(world, world.placer, topic.name, homes, number)
        moves, faults = GroupMoves(world, world.placer), Faults(world, world.loop.entropy("faults"))
        for each in (removals, moves, faults):
            each.start()
        pass_time(world, swarm.seconds)
        faults.stop()
        world.calm()
        moves.stop()
        faults.operator.finish()
        assert world.loop.run_until(lambda: removals.is_done, seconds=120.0), world.describe()
        assert world.loop.run_until(lambda: moves.is_done and not removals.left, seconds=60.0), removals.left
        writer.is_over = True
        assert world.loop.run_until(lambda: all(task.done() for task in tasks), seconds=60.0)
        for task in tasks:
            task.result()
        pass_time(world, 1.0)
        check(world, writer)
        world.placer.spread = described(world)
        world.finish(names_min=1)
        assert world.loop.run_until(lambda: not moves.unlike, seconds=60.0)
        moves.check()
        removals.check()
        writer.client._close()
        return removals
    finally:
        world.close()


def check(world: PlacedWorld, writer: Keeper) -> None:
    """Check the kept records of the topic against the answers of all calls."""
    first = described(world).first_position
    records: list[SpreadRecord] = writer.run(read(writer, first))
    assert [each.position for each in records] == list(range(first, first + len(records)))
    kept = {bytes(each.value): each for each in records}
    assert len(kept) == len(records), "a record was written twice"
    assert not writer.refused & kept.keys(), "a record is there of which the client said that it was not written"
    topic = described(world)
    streams = {number: writer.run(writer.client.describe_stream("spread", number)) for number in topic.kept_streams}
    for value, receipt in writer.receipts.items():
        found = kept.get(value)
        if found is not None:
            assert (found.stream, found.stream_position) == (receipt.stream, receipt.position)
            continue
        stream = streams.get(receipt.stream)
        if stream is not None and receipt.position >= stream.first_position:  # Its group has not followed the trim yet.
            at = writer.run(writer.client.find_global_position("spread", receipt)).global_position
            assert at < first, f"{value!r} is lost: {receipt}, position {at} of the topic"
    for key, values in writer.sent.items():
        of_key = [bytes(each.value) for each in records if each.key == key]
        assert of_key == [value for value in values if value in kept], f"the records of {key!r} changed their order"


@pytest.mark.parametrize("seed", [1])
def test_a_group_comes_and_goes_while_nodes_die(seed: int) -> None:
    assert len(run(seed, replace(ROUGH, seconds=2.0), number=1).removed) == 1
