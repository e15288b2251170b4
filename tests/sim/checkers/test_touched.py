"""The checkers look only at members that an event can have changed: at one, if the event is of its process."""

from __future__ import annotations

from viewstamp.ids import GROUP_0, GroupId, NodeId
from viewstamp.sim.disk_log import core_of
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.world import World


def test_an_event_changes_no_other_member_than_that_of_its_process() -> None:
    world = World(1, Swarm(nodes=3, groups=2, faults={}))
    states: dict[tuple[NodeId, GroupId], tuple[object, ...]] = {}
    counts = {1: 0, 3: 0}
    check = world.loop.after_event
    assert check is not None

    def compare() -> None:
        check()
        touched = world.touched()
        counts[len(touched)] += 1
        for member in world.members:
            for group in (GROUP_0, GroupId(1)):
                core = core_of(member, group)
                if core is None:
                    continue
                log = core.log
                state = core, core.term, core.leader, log.end, log.durable_end, log.commit_end
                if member in touched:
                    states[member.id, group] = state
                assert states[member.id, group] == state, f"{member.id} changed in an event of {touched}"

    world.loop.after_event = compare
    for member in world.members:
        world.bring_up(member)
    assert world.loop.run_until(lambda: world.has_settled, seconds=20.0)
    world.take_down(world.members[0], power=True)
    world.loop.run_until(lambda: False, seconds=1.0)
    world.bring_up(world.members[0])
    assert world.loop.run_until(lambda: world.has_settled, seconds=20.0)
    assert counts[1] > counts[3] > 0
