"""Interval mode with several members: the possible and the impossible losses of a power cut (docs/design/0007)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from viewstamp.client.aio import Client
from viewstamp.consensus.roles import Lifecycle
from viewstamp.node.running_mark import INTERVAL
from viewstamp.sim.cluster import Member
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.trace import Trace
from viewstamp.sim.world import World
from viewstamp.testing.cluster import SimulatedCluster
from viewstamp.wal.control_file import ControlState, read_control_state

ResultT = TypeVar("ResultT")

NEVER_SYNCED = 50.0
"""Seconds between syncs: within these tests, only syncs for other reasons happen."""


class Scene:
    """A world in interval mode, with a client."""

    def __init__(self, *, nodes: int = 3, absent: int = 0, **swarm: Any) -> None:
        """Start the members without the first ``absent`` ones, and create a topic."""
        self.lines: list[str] = []
        swarm = {"sync_seconds": NEVER_SYNCED, **swarm}
        self.world = World(1, Swarm(nodes=nodes, faults={}, seconds=60.0, **swarm), trace=Trace(sink=self.lines.append))
        present = self.world.members[absent:]
        for member in present:
            self.world.bring_up(member)
        self.until(lambda: self.world.leader is not None and all(map(runs, present)))
        self.process = self.world.loop.process("caller")
        self.client = self.new_client()
        self.run(self.client.create_topic("t"))

    def new_client(self, timeout: float = 5.0) -> Client:
        return SimulatedCluster(self.world, f"client {self.world.loop.events}").client(timeout=timeout)

    @property
    def leader(self) -> Member:
        leader = self.world.leader
        assert leader is not None, self.world.describe()
        return leader

    @property
    def others(self) -> list[Member]:
        return [member for member in self.world.members if member is not self.leader]

    def until(self, condition: Callable[[], bool], seconds: float = 20.0) -> None:
        assert self.world.loop.run_until(condition, seconds=seconds), self.world.describe()

    def run_for(self, seconds: float) -> None:
        self.world.loop.run_until(lambda: False, seconds=seconds)

    def run(self, call: Coroutine[Any, Any, ResultT]) -> ResultT:
        task = self.process.spawn(call)
        self.until(task.done)
        return task.result()

    def append(self, value: bytes) -> None:
        assert self.run(self.client.append("t", value)).durability == INTERVAL

    def values(self, topic: str = "t") -> list[bytes]:
        async def read(client: Client) -> list[bytes]:
            return [record.value async for record in client.read(topic, 1)]

        return self.run(read(self.new_client()))

    def cut_power(self, *members: Member) -> None:
        """Cut the power of these members, which loses their unsynced writes; within the budget, or without one."""
        for member in members:
            if not self.world.swarm.majority_loses_power:
                assert self.world.damages.lose_power(member), "only a minority may lose power here"
            self.world.take_down(member, power=True)

    def settles(self, seconds: float = 20.0) -> None:
        self.until(lambda: self.world.has_settled, seconds)

    def says(self, *texts: str) -> bool:
        return any(all(text in line for text in texts) for line in self.lines)

    def stored(self, member: Member) -> ControlState:
        state = read_control_state(member.disk, member.data_dir)
        assert state is not None
        return state


@pytest.fixture
def scenes() -> Iterator[Callable[..., Scene]]:
    made: list[Scene] = []

    def make(**options: Any) -> Scene:
        made.append(Scene(**options))
        return made[-1]

    yield make
    for scene in made:
        scene.world.close()


Scenes = Callable[..., Scene]


def runs(member: Member) -> bool:
    return member.is_up and member.node is not None and member.node.lifecycle is Lifecycle.RUNNING


def recovering(member: Member) -> bool:
    assert member.node is not None
    assert member.node.replica is not None
    return member.node.replica.raft.core.recovering_until is not None


def acknowledged_by_the_leader_and(scene: Scene, value: bytes) -> tuple[Member, Member, Member]:
    """Return the leader, the member that holds ``value`` too, and the one that was cut off meanwhile."""
    leader, holder, absent = scene.leader, *scene.others
    scene.world.isolate(absent)
    scene.append(value)
    return leader, holder, absent


def lost_by_the_holder_while_the_leader_is_cut_off(scene: Scene) -> tuple[Member, Member, Member]:
    """Return the leader, now alone with an acknowledged record; the holder, which lost it; and the absent member."""
    leader, holder, absent = acknowledged_by_the_leader_and(scene, b"acknowledged")
    scene.cut_power(holder)
    scene.world.network.heal()
    scene.world.isolate(leader)
    scene.world.bring_up(holder)
    return leader, holder, absent


def test_one_power_loss_and_two_partitions_lose_nothing_and_stop_no_member(scenes: Scenes) -> None:
    """The member that lost power and the one without the record elect no leader until the third one answers."""
    scene = scenes()
    leader, holder, absent = lost_by_the_holder_while_the_leader_is_cut_off(scene)
    scene.run_for(10.0)
    assert recovering(holder)
    assert scene.world.leader in (None, leader)
    scene.world.network.heal()
    scene.settles()
    assert scene.values() == [b"acknowledged"]
    assert runs(leader)
    assert not recovering(holder)
    assert absent.is_up


@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_a_member_that_lost_power_counts_again_in_the_term_of_its_leader(scenes: Scenes, nodes: int) -> None:
    """The member counts within 1.5 s and without an election. An election could not help a group of two voters."""
    scene = scenes(nodes=nodes, majority_loses_power=nodes == 2)
    scene.append(b"1")
    leader, member = scene.leader, scene.others[0]
    assert leader.node is not None
    assert leader.node.replica is not None
    term = leader.node.replica.raft.core.term
    scene.cut_power(member)
    scene.world.bring_up(member)
    scene.until(lambda: runs(member) and not recovering(member), seconds=1.5)
    assert leader.node.replica.raft.core.term == term
    scene.append(b"2")
    assert scene.values() == [b"1", b"2"]


def test_a_killed_process_and_a_clean_stop_cost_nothing(scenes: Scenes) -> None:
    scene = scenes()
    scene.append(b"1")
    member = scene.others[0]
    assert scene.stored(member).running == (member.host.boot_id(), INTERVAL)
    scene.world.take_down(member, power=False)
    scene.world.bring_up(member)
    scene.settles()
    assert not scene.says("the machine lost power")
    assert member.node is not None
    scene.append(b"2")
    stopping = scene.world.loop.process("operator").spawn(member.node.stop())
    scene.until(stopping.done)
    assert scene.stored(member).running is None
    scene.world.take_down(member, power=True)
    scene.world.bring_up(member)
    scene.settles()
    assert not scene.says("the machine lost power")
    assert scene.values() == [b"1", b"2"]


def test_the_mark_is_on_the_disk_before_anything_is_sent(scenes: Scenes) -> None:
    """A member is killed as soon as it runs, then its machine loses power; the member can detect that."""
    scene = scenes()
    for member in scene.world.members:
        assert scene.stored(member).running == (member.host.boot_id(), INTERVAL)
    member = scene.others[0]
    scene.append(b"1")
    scene.world.take_down(member, power=False)
    scene.cut_power(member)
    scene.world.bring_up(member)
    scene.until(lambda: scene.says("the machine lost power"))
    scene.settles()
    assert scene.values() == [b"1"]


@pytest.mark.parametrize("nodes", [1, 3])
def test_after_a_power_cut_of_the_whole_site_the_group_goes_on_when_all_are_back(scenes: Scenes, nodes: int) -> None:
    scene = scenes(nodes=nodes, majority_loses_power=True)
    scene.append(b"1")
    *most, last = scene.world.members
    scene.cut_power(*scene.world.members)
    for member in most:
        scene.world.bring_up(member)
    scene.run_for(10.0)
    assert scene.world.leader is None, "the absent voter may hold acknowledged records"
    scene.world.bring_up(last)
    scene.settles()
    assert not scene.says("acknowledged records may be lost")


@pytest.mark.parametrize("losing", ["the leader", "both"])
def test_a_voter_whose_disk_was_never_named_is_not_waited_for(scenes: Scenes, losing: str) -> None:
    """No acknowledged record rests on its disk, so the others elect a leader after a power loss without it."""
    scene = scenes(absent=1, majority_loses_power=True)
    scene.append(b"1")
    leader, other = scene.leader, next(each for each in scene.others if each.is_up)
    lost = [leader] if losing == "the leader" else [leader, other]
    scene.cut_power(*lost)
    for member in lost:
        scene.world.bring_up(member)
    scene.until(lambda: scene.world.leader is not None and runs(scene.leader))
    assert not scene.says("acknowledged records may be lost")
    scene.append(b"2")
    assert scene.values()[-1] == b"2"
    assert losing == "both" or scene.values() == [b"1", b"2"]
    scene.world.bring_up(scene.world.members[0])
    scene.settles()


def test_a_client_goes_on_in_its_session_though_acknowledged_batches_of_it_are_gone(scenes: Scenes) -> None:
    """The batch in flight has a sequence after those of the lost batches, and must be accepted all the same."""
    scene = scenes(majority_loses_power=True)
    for number in range(5):
        scene.append(b"acknowledged %d" % number)
    in_flight = scene.process.spawn(scene.client.append("t", b"in flight"))
    scene.run_for(0.0001)
    scene.cut_power(*scene.world.members)
    for member in scene.world.members:
        scene.world.bring_up(member)
    scene.settles()
    scene.until(in_flight.done)
    in_flight.result()
    scene.append(b"later")
    *kept, first, second = scene.values()
    assert len(kept) < 5, "the power loss took an acknowledged record"
    assert kept == [b"acknowledged %d" % number for number in range(len(kept))]
    assert [first, second] == [b"in flight", b"later"]


def test_after_a_power_cut_of_the_whole_site_no_session_and_no_topic_is_given_out_again(scenes: Scenes) -> None:
    """A client that still uses an acknowledged name would share it with the new owner, and get its receipts."""
    scene = scenes(majority_loses_power=True)
    old, new = scene.new_client(), scene.new_client()
    scene.run(old.create_topic("old"))
    scene.run(old.append("old", b"lost"))
    scene.cut_power(*scene.world.members)
    for member in scene.world.members:
        scene.world.bring_up(member)
    scene.settles()
    scene.run(new.create_topic("new"))
    scene.run(new.append("new", b"of the new client"))
    scene.run(old.append("old", b"of the old client"))
    assert scene.values("new") == [b"of the new client"]
    assert scene.values("old")[-1] == b"of the old client"


def test_after_the_wait_a_majority_continues_with_a_warning_and_the_absent_member_sets_its_log_aside(
    scenes: Scenes,
) -> None:
    """It never failed and must not be stopped; its records stay on its disk."""
    scene = scenes(majority_loses_power=True, wait_all_seconds=3.0)
    leader, holder, absent = lost_by_the_holder_while_the_leader_is_cut_off(scene)
    scene.until(lambda: scene.world.leader in (holder, absent) and runs(scene.leader), seconds=10.0)
    assert scene.says("acknowledged records may be lost", f"missing={leader.id}")
    with suppress(Exception):
        scene.run(scene.new_client().append("t", b"other"))
    scene.world.network.heal()
    scene.settles()
    assert leader.is_up
    assert leader.starts == 1, "the node restarted its parts within its process"
    assert scene.says("the log is set aside")
    assert leader.disk.list_directory(f"{leader.data_dir}/damaged-1/wal") != []
    assert b"acknowledged" not in scene.values()


def test_a_death_on_the_way_of_setting_the_log_aside_is_no_crash_loop(scenes: Scenes) -> None:
    scene = scenes(majority_loses_power=True, wait_all_seconds=3.0)
    leader, holder, absent = lost_by_the_holder_while_the_leader_is_cut_off(scene)
    scene.until(lambda: scene.world.leader in (holder, absent) and runs(scene.leader), seconds=10.0)

    def died() -> None:
        scene.world.take_down(leader, power=False)
        scene.world.loop.call_later(0.1, scene.world.bring_up, leader)

    for calls in range(2, 26, 4):
        leader.disk.crash_at(leader.disk.calls + calls, died)
        scene.world.network.heal()
        scene.run_for(1.0)
    leader.disk.crash_at(None)
    scene.world.bring_up(leader)
    scene.settles()
    assert b"acknowledged" not in scene.values()


@pytest.mark.slow
def test_a_power_cut_at_any_call_of_a_clean_stop_is_noticed(scenes: Scenes) -> None:
    """The mark stays while anything is unsynced; the checkers verify that the member detects its loss."""
    scene = scenes()
    member = scene.others[0]
    for calls in range(1, 16):
        scene.append(b"%d" % calls)
        cuts: list[int] = []

        def died(cuts: list[int] = cuts) -> None:
            cuts.append(1)
            scene.cut_power(member)

        assert member.node is not None
        member.disk.crash_at(member.disk.calls + calls, died)
        assert member.process is not None
        stopping = member.process.spawn(member.node.stop())
        scene.until(lambda stopping=stopping, cuts=cuts: stopping.done() or cuts)  # type: ignore[misc]
        member.disk.crash_at(None)
        scene.world.take_down(member, power=False)
        scene.world.bring_up(member)
        scene.settles()
    assert scene.values() == [b"%d" % calls for calls in range(1, 16)]
