"""Two and three groups on each node of a simulated cluster, with the invariants of consensus checked for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from viewstamp.client.aio import Client
from viewstamp.errors import RequestError
from viewstamp.ids import GROUP_0, GroupId, NodeId, name_of
from viewstamp.node.placement_queries import GroupsQuery
from viewstamp.node.state_machine import StateMachine
from viewstamp.sim.checkers.liveness import check_liveness
from viewstamp.sim.cluster import Member
from viewstamp.sim.faults import Faults
from viewstamp.sim.group_writers import GroupWriters
from viewstamp.sim.groups import PlacedGroups
from viewstamp.sim.history import ReadFrom
from viewstamp.sim.run import run_seed
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.topics import PASSING
from viewstamp.sim.violation import Violation
from viewstamp.sim.workload import Workload
from viewstamp.sim.world import World
from viewstamp.wal.control_file import ControlFile

AnswerT = TypeVar("AnswerT")

CALM = Swarm(nodes=3, faults={}, seconds=1.0)
ROUGH = Swarm(
    nodes=3,
    groups=2,
    seconds=3.0,
    faults=dict.fromkeys(("kill", "power", "isolate", "crash-in-call", "failed-sync", "pause"), 1.0),
)


class PlacedWorld(World):
    """A world in which groups are placed and written to while it runs."""

    def __init__(
        self,
        seed: int,
        swarm: Swarm,
        number: int,
        *,
        machine: Callable[[NodeId], StateMachine] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(seed, swarm, machine=machine)
        self.placed = PlacedGroups(self, number, **{"cancels": False, **more})
        self.writers, self.placer = self.placed.writers, self.placed.placer
        for member in self.members:
            self.bring_up(member)
        self.placed.start()

    @property
    def is_level(self) -> bool:
        """Whether all members have all groups with the same logs."""
        return self.placed.is_level

    def finish(self, names_min: int) -> None:
        """End all faults; wait until each group has acknowledged ``names_min`` topics, and check everything."""
        self.calm()
        acknowledged = self.writers.acknowledged
        assert self.loop.run_until(
            lambda: bool(acknowledged) and all(len(names) >= names_min for names in acknowledged.values()), seconds=60.0
        ), f"{acknowledged}; {self.describe()}"
        self.writers.stop()
        check_liveness(self, lambda: self.is_level)
        self.loop.check()
        self.placed.check()

    def ask(self, call: Callable[[Client], Coroutine[Any, Any, AnswerT]]) -> AnswerT:
        """Ask with a client, however often that fails; return the answer, or raise its RequestError."""
        answers: list[AnswerT | RequestError] = []

        async def ask() -> None:
            async with self.placer.client() as client:
                while not answers:
                    try:
                        answers.append(await call(client))
                    except RequestError as error:
                        answers.append(error)
                    except PASSING:
                        await asyncio.sleep(0.05)

        self.loop.process("ask").spawn(ask())
        assert self.loop.run_until(lambda: bool(answers), seconds=60.0), self.describe()
        answer = answers[0]
        if isinstance(answer, RequestError):
            raise answer
        return answer

    def place(self, stream: str, *nodes: str) -> GroupId:
        """Place a group with these founders; none = all."""
        group = self.ask(lambda client: client.place_group(stream, founders=nodes)).id
        self.placer.placed.append(group)
        self.writers.write_to(group)
        return group

    def records_of(self, member: Member) -> int | None:
        """Return the end of a member's log in group 0; None = it does not run."""
        hosted = member.group(GROUP_0)
        return hosted.replica.raft.core.log.end if hosted is not None and hosted.replica is not None else None

    def group_check(self, member: Member) -> list[str]:
        """Return why a node is not ready because of its groups."""
        assert member.node is not None
        return [each.reason for each in member.node.check_ready() if each.name == "groups" and not each.is_ok]


def run(seed: int, swarm: Swarm) -> GroupWriters:
    """Run a world with writers to group 0 and to the others; check all of it at the end."""
    world = World(seed, swarm)
    try:
        workload, faults = Workload(world, world.loop.entropy("workload")), Faults(world, world.loop.entropy("faults"))
        writers = GroupWriters(world)
        for member in world.members:
            world.bring_up(member)
        workload.start()
        writers.start()
        faults.start()
        world.loop.run_until(lambda: False, seconds=swarm.seconds)
        faults.stop()
        world.calm()
        workload.stop()
        writers.stop()
        faults.operator.finish()
        check_liveness(world, lambda: workload.is_done and faults.operator.is_done)
        world.loop.check()
        writers.check()
        return writers
    finally:
        world.close()


def test_three_groups_in_a_node_have_leaders_and_states_of_their_own() -> None:
    writers = run(1, replace(CALM, groups=3))
    assert all(len(names) > 5 for names in writers.acknowledged.values())
    assert GROUP_0 not in writers.acknowledged


@pytest.mark.parametrize("seed", [5])
def test_groups_survive_faults_of_their_machines(seed: int) -> None:
    assert run(seed, ROUGH).acknowledged[GroupId(1)]


PLACED = Swarm(
    nodes=3,
    seconds=3.0,
    faults=dict.fromkeys(("kill", "power", "isolate", "crash-in-call", "pause", "lost-disk"), 2.0),
)


@pytest.mark.parametrize("seed", [5, 10])
def test_groups_are_placed_and_established_under_faults_and_lost_disks(seed: int) -> None:
    world = PlacedWorld(seed, PLACED, number=2)
    try:
        faults = Faults(world, world.loop.entropy("faults"))
        faults.start()
        world.loop.run_until(lambda: False, seconds=PLACED.seconds)
        faults.stop()
        world.finish(names_min=2)
        assert len(world.placer.placed) == 2
        assert any(member.disk.damages for member in world.members)
    finally:
        world.close()


def test_groups_are_cancelled_under_faults_and_stay_gone() -> None:
    world = PlacedWorld(3, PLACED, number=3, cancels=True)
    try:
        faults = Faults(world, world.loop.entropy("faults"))
        faults.start()
        world.loop.run_until(lambda: False, seconds=PLACED.seconds)
        faults.stop()
        world.finish(names_min=1)
        assert len(world.placer.placed) == 3
        assert world.placer.cancelled
    finally:
        world.close()


def test_a_cancelled_group_is_watched_no_more_if_a_member_applies_its_placement_later() -> None:
    """A disk that was lost then would count as damaged for ever, because nobody repairs a cancelled group."""
    world = PlacedWorld(2, CALM, number=3, cancels=True)
    try:
        assert world.loop.run_until(lambda: world.placer.is_done and world.is_level, seconds=60.0)
        assert len(world.placer.cancelled) == 3
        assert list(world.damages_of) == [GROUP_0, *world.placer.placed]
    finally:
        world.close()


@pytest.mark.parametrize("death", range(0, 24, 4))
def test_a_group_is_established_wherever_a_founder_dies_while_it_is_created(death: int) -> None:
    world = PlacedWorld(death, replace(CALM, seconds=0.0), number=1)
    try:
        assert world.loop.run_until(lambda: bool(world.placer.placed), seconds=60.0)
        victim = next(each for each in world.members if each is not world.leader)
        victim.disk.crash_at(victim.disk.calls + death, lambda: die(world, victim))
        world.loop.run_until(lambda: not victim.is_up, seconds=2.0)
        world.finish(names_min=2)
    finally:
        world.close()


def test_a_founder_that_lost_a_group_is_not_taken_for_the_founder_again() -> None:
    world = PlacedWorld(3, CALM, number=1)
    try:
        acknowledged = world.writers.acknowledged
        assert world.loop.run_until(lambda: any(len(names) > 2 for names in acknowledged.values()), seconds=60.0)
        (group,) = acknowledged
        victim = world.members[2]
        world.take_down(victim, power=True)
        assert world.damages_of[group].lose_directory(victim)
        world.bring_up(victim)
        world.finish(names_min=6)
        hosted = victim.group(group)
        assert hosted is not None
        assert hosted.me != victim.name == name_of(hosted.me)
        voters = {"n1", "n2", hosted.me}
        assert world.loop.run_until(lambda: hosted.membership.voters.keys() == voters, seconds=60.0)
    finally:
        world.close()


def test_a_machine_that_lost_its_whole_disk_joins_each_group_under_another_id() -> None:
    world = PlacedWorld(1, CALM, number=0)
    try:
        groups = [world.place(f"s{number}") for number in range(5)]
        acknowledged = world.writers.acknowledged
        assert world.loop.run_until(lambda: all(acknowledged[each] for each in groups) and world.is_level, seconds=60.0)
        victim = world.members[2]
        world.take_down(victim, power=False)
        assert world.damages.do("lost-disk", victim, world.loop.entropy("lost disk"))
        world.bring_up(victim)
        world.finish(names_min=4)
        ids = [hosted.me for each in groups if (hosted := victim.group(each)) is not None]
        assert [name_of(each) for each in ids] == [victim.name] * 5
        assert len({*ids, victim.id, victim.name}) == 7
    finally:
        world.close()


def test_all_machines_move_one_after_the_other_and_one_then_loses_its_disk(calm: PlacedWorld) -> None:
    """The records of the group have the old addresses for ever; the new disk has to join at the new ones."""
    group = calm.place("s1")
    acknowledged = calm.writers.acknowledged[group]
    for number, member in enumerate(calm.members):
        calm.ask(
            lambda client, member=member, number=number: client.add_member(member.id, f"127.0.0.1:{8000 + number}")
        )
        assert calm.loop.run_until(lambda: calm.has_settled, seconds=60.0), "each member has the new address"
        calm.take_down(member, power=True)
        member.address = f"127.0.0.1:{8000 + number}"
        calm.bring_up(member)
        other = calm.members[number - 1]
        calm.take_down(other, power=True)
        seen = len(acknowledged) + 1
        assert calm.loop.run_until(lambda seen=seen: len(acknowledged) > seen, seconds=60.0), calm.describe()
        calm.bring_up(other)
    assert calm.loop.run_until(lambda: calm.has_settled and calm.is_level, seconds=60.0), calm.describe()
    victim = calm.members[0]
    calm.take_down(victim, power=False)
    assert calm.damages.do("lost-disk", victim, calm.loop.entropy("lost disk"))
    calm.bring_up(victim)
    calm.finish(names_min=1)
    hosted = victim.group(group)
    assert hosted is not None
    assert name_of(hosted.me) == victim.name != hosted.me


def test_a_member_that_was_down_during_a_move_elects_with_the_moved_one(calm: PlacedWorld) -> None:
    """It has the old address on record, and the leader, which has the new one, does not come back."""
    assert calm.loop.run_until(lambda: calm.has_settled, seconds=60.0)
    leader = calm.leader
    assert leader is not None
    moving, lagging = (member for member in calm.members if member is not leader)
    calm.take_down(lagging, power=False)
    calm.ask(lambda client: client.add_member(moving.id, "127.0.0.1:8001"))
    calm.take_down(moving, power=False)
    moving.address = "127.0.0.1:8001"
    calm.bring_up(moving)
    assert calm.loop.run_until(lambda: calm.records_of(moving) == calm.records_of(leader), seconds=60.0)
    calm.take_down(leader, power=False)
    calm.bring_up(lagging)
    assert calm.loop.run_until(lambda: calm.leader in (moving, lagging), seconds=60.0), calm.describe()
    calm.bring_up(leader)
    assert calm.loop.run_until(lambda: calm.has_settled, seconds=60.0), calm.describe()


@pytest.fixture
def calm() -> Iterator[PlacedWorld]:
    """Yield a world without faults, whose groups the test places."""
    world = PlacedWorld(1, CALM, number=0)
    yield world
    world.close()


def fill(calm: PlacedWorld) -> Member:
    """Fill the disk of a member, so that it cannot create the directory of a group, and return it."""
    assert calm.loop.run_until(lambda: calm.has_settled, seconds=60.0)
    full = calm.members[2]
    full.disk.capacity_bytes = full.disk.volume.bytes_used()
    return full


def test_a_read_that_misses_an_acknowledged_topic_of_a_group_is_found(calm: PlacedWorld) -> None:
    group = calm.place("s1")
    assert calm.loop.run_until(lambda: bool(calm.writers.acknowledged[group]), seconds=60.0)
    history = calm.writers.history
    history.answered(history.call(f"group {group}", ReadFrom(1, is_whole=True)), ())
    with pytest.raises(Violation, match=f"Linearizable: group {group}"):
        calm.finish(names_min=2)


def test_a_seed_may_place_groups_and_cancel_them() -> None:
    assert run_seed(2, swarm=replace(CALM, seconds=0.3, placed=2, cancels=True, callers=1)).invariant == ""


def test_no_founder_opens_a_group_before_all_have_reported_their_disks(calm: PlacedWorld) -> None:
    fill(calm)
    group = calm.place("s1")
    assert calm.loop.run_until(
        lambda: all(recorded(each, group) == {"n1", "n2"} for each in calm.members[:2]), seconds=60.0
    )
    calm.loop.run_until(lambda: False, seconds=2.0)
    assert [each.group(group) for each in calm.members] == [None] * 3
    calm.finish(names_min=2)


def test_the_only_founder_never_begins_anew_with_an_empty_directory(calm: PlacedWorld) -> None:
    """It would elect itself, and its empty log would take the place of the lost one."""
    group, founder = calm.place("s1", "n2"), calm.members[1]
    acknowledged = calm.writers.acknowledged[group]
    assert calm.loop.run_until(lambda: len(acknowledged) > 1, seconds=60.0)
    calm.take_down(founder, power=False)
    names = list(acknowledged)
    assert not calm.damages_of[group].lose_directory(founder)
    del calm.others[group]  # The loss is beyond the budget.
    lose_directory(founder, group)
    calm.bring_up(founder)
    assert calm.loop.run_until(lambda: founder.group(group) is not None, seconds=60.0)
    calm.loop.run_until(lambda: False, seconds=3.0)
    hosted = founder.group(group)
    assert hosted is not None
    assert hosted.me not in hosted.membership.electors
    assert acknowledged == names
    assert calm.group_check(founder) == [f"group {group}: {hosted.me} is not a member yet"]


def test_a_directory_that_has_voted_with_another_disk_is_refused_and_the_node_goes_on(calm: PlacedWorld) -> None:
    group, victim = calm.place("s1"), calm.members[2]
    acknowledged = calm.writers.acknowledged[group]
    assert calm.loop.run_until(lambda: len(acknowledged) > 1 and calm.is_level, seconds=60.0)
    calm.take_down(victim, power=False)
    control = ControlFile.open(victim.disk, f"{victim.data_dir}/groups/{group}")
    assert control.state is not None
    control.write(replace(control.state, incarnation="f" * 16))
    calm.bring_up(victim)
    seen = len(acknowledged) + 2
    assert calm.loop.run_until(lambda: len(acknowledged) > seen and bool(calm.group_check(victim)), seconds=60.0)
    assert victim.node is not None
    assert calm.loop.run_until(lambda: bool(victim.node and victim.node.hosting.failures), seconds=60.0)
    assert "has another disk of n3" in victim.node.hosting.failures[group]
    assert calm.group_check(victim) == [f"group {group}: {victim.node.hosting.failures[group]}"]
    assert victim.group(group) is None
    assert victim.node.replica is not None


def test_a_founder_with_a_full_disk_takes_part_when_there_is_room_again(calm: PlacedWorld) -> None:
    full = fill(calm)
    group = calm.place("s1")
    assert calm.loop.run_until(lambda: bool(full.node and full.node.hosting.failures), seconds=60.0)
    assert full.node is not None
    assert "the disk has 0 bytes left" in full.node.hosting.failures[group]
    assert full.starts == 1
    calm.finish(names_min=2)
    assert full.node.hosting.failures == {}
    assert full.starts == 1


def test_a_cancelled_group_is_forgotten_and_its_streams_can_be_placed_again(calm: PlacedWorld) -> None:
    fill(calm)
    group = calm.place("s1")
    assert calm.loop.run_until(lambda: recorded(calm.members[0], group) == {"n1", "n2"}, seconds=60.0)
    for _ in range(2):  # The second time as after an answer that was lost.
        calm.ask(lambda client: client.cancel_group(group))
    calm.placer.placed.remove(group)
    again = calm.place("s1", "n1", "n2")
    assert again > group
    assert calm.loop.run_until(lambda: len(calm.writers.acknowledged[again]) > 1, seconds=60.0)
    assert recorded(calm.members[0], group) is recorded(calm.members[1], group) is None
    assert [each.group(group) for each in calm.members] == [None] * 3
    calm.placer.cancelled.append(group)
    assert calm.loop.run_until(lambda: not calm.placed.leftovers, seconds=60.0)
    assert [each.node.hosting.kept for each in calm.members if each.node is not None] == [{}] * 3


def test_a_directory_of_a_cancelled_group_is_removed_at_the_next_start_unless_it_has_voted(calm: PlacedWorld) -> None:
    fill(calm)
    groups = [calm.place(stream) for stream in ("s1", "s2")]
    for group in groups:
        assert calm.loop.run_until(lambda group=group: recorded(calm.members[0], group) == {"n1", "n2"}, seconds=60.0)
    down = next(each for each in calm.members[:2] if each is not calm.leader)
    calm.take_down(down, power=True)
    voted = f"{down.data_dir}/groups/{groups[0]}"
    control = ControlFile.open(down.disk, voted)
    assert control.state is not None
    control.write(replace(control.state, term=1))
    down.disk.volume.make_directory(f"{down.data_dir}/groups/999")
    for group in groups:
        calm.ask(lambda client, group=group: client.cancel_group(group))
    calm.placer.cancelled.extend(groups)
    calm.bring_up(down)
    assert calm.loop.run_until(lambda: not calm.placed.leftovers, seconds=60.0), calm.placed.leftovers
    assert down.node is not None
    assert down.disk.volume.exists(voted)
    assert down.disk.volume.exists(f"{down.data_dir}/groups/999"), "no cancelled group has this id"
    status = next(each for each in calm.ask(lambda client: client.status()) if each["address"] == down.address)
    assert status["reachable"], status
    kept = {each["group"]: each["reason"] for each in status["kept_directories"]}
    assert kept.keys() == {999, groups[0]}
    assert "has a control file with term 1, which" in kept[groups[0]]
    assert kept[GroupId(999)].startswith("no group of this id is placed, by the log of group 0 up to index ")


def test_a_directory_of_a_group_of_other_nodes_is_reported_and_not_opened(calm: PlacedWorld) -> None:
    fill(calm)
    group = calm.place("s1", "n1", "n2")
    down = calm.members[2]
    calm.take_down(down, power=True)
    down.disk.volume.make_directory(f"{down.data_dir}/groups")
    down.disk.volume.make_directory(f"{down.data_dir}/groups/{group}")
    calm.bring_up(down)

    def status() -> dict[str, Any]:
        return next(each for each in calm.ask(lambda client: client.status()) if each["address"] == down.address)

    assert calm.loop.run_until(lambda: down.node is not None and down.node.hosting.unused, seconds=60.0)
    assert status()["kept_directories"] == [{"group": group, "reason": "the group is placed on n1, n2"}]
    assert "hosted" not in status()


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (("n1", "n9"), "the founder 'n9', which is no member of group 0: n1, n2, n3"),
        (("n1", "n1"), "founder 'n1' is named twice"),
    ],
)
def test_founders_have_to_be_members_of_group_0(calm: PlacedWorld, nodes: tuple[str, ...], message: str) -> None:
    with pytest.raises(RequestError, match=message) as refused:
        calm.place("s1", *nodes)
    assert refused.value.remedy


def lose_directory(member: Member, group: GroupId) -> None:
    """Remove the files of a group on a machine whose process is dead."""
    directory = member.directory_of(group)
    for path in (directory, f"{directory}/wal", f"{directory}/snapshots"):
        for name in list(member.disk.volume.names(path)):
            member.disk.volume.lose(f"{path}/{name}")


def recorded(member: Member, group: GroupId) -> set[NodeId] | None:
    """Return the founders that a member has on record; None = it has no such group."""
    assert member.node is not None
    placed = {each.id: each for each in member.machine.query(GroupsQuery())}
    return set(placed[group].incarnations) if group in placed else None


def die(world: World, member: Member) -> None:
    world.take_down(member, power=True)
    world.loop.call_later(0.3, world.bring_up, member)
