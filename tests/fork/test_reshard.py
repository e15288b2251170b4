"""The files of a new cluster whose instances live in other groups, made from members' files on one simulated disk."""

from __future__ import annotations

import random
from collections.abc import Sequence as SequenceOf
from typing import Any

import pytest

from tests.fork.test_fork import APART, IN_PLACE, new_members
from tests.replay import members
from tests.streams.actors import CLASSES, Counter, arguments, call, commands, result_of
from viewstamp.errors import (
    ConfigError,
    CorruptionError,
    OutdatedCodeError,
    RequestError,
    StorageFullError,
    UnknownActorError,
)
from viewstamp.fork import ForkResult, Reshard, finish_fork, fork, judge_source, plan_reshard
from viewstamp.fork.states import state_at_end
from viewstamp.ids import GROUP_0, GroupId, NodeId, Sequence, SessionId, TopicId
from viewstamp.node.actor_owners import SpreadActorsQuery
from viewstamp.node.fork_mark import check_not_forking
from viewstamp.node.placement_queries import GroupsQuery
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash
from viewstamp.streams import Streams
from viewstamp.streams.resharding import HeldInstances
from viewstamp.wal.control_file import read_control_state
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.placing import encode_hosted, encode_place
from viewstamp.wire.spread_actors import SpreadActor, encode_spread_actor
from viewstamp.wire.spreading import SLOTS

KEYS = [f"k{number}" for number in range(24)]


class Old:
    """A stopped cluster of n1 to n3: a counter spread over groups, with records beside, and a journal in group 0.

    n3 lacks the last calls of each group.
    """

    def __init__(self, groups: int = 3, *, keys: SequenceOf[str] = KEYS, version: int = 1, slots: int = SLOTS) -> None:
        self.disk = SimulatedDisk()
        self.home = home = members.Log()
        home.membership()
        founders = {NodeId(name): members.MEMBERSHIP.addresses[NodeId(name)] for name in members.NAMES}
        self.groups: list[GroupId] = []
        for at in range(groups):
            self.groups.append(GroupId(home.add(encode_place(founders, [f"group-{at + 1}"], since=0)).first_index))
            for number, node in enumerate(members.NAMES):
                home.add(encode_hosted(self.groups[-1], NodeId(node), f"{at + 1}{number}" * 8))
        self.logs = {group: members.Log() for group in self.groups}
        if groups:
            spread = home.add(encode_spread_actor("counter", self.groups, slots=slots))
            self.actor = SpreadActor.over(spread.first_index, "counter", slots, self.groups)
        for at, log in enumerate(self.logs.values()):
            log.membership()
            log.seconds += at  # The logs have other log times, and other lengths.
            log.topic(f"orders-{at}")
            self.append(log, at + 1)
        self.values: dict[str, int] = {}
        for number, key in enumerate(keys):
            self.call(key, number + 1, version)
            self.call(key, 1, version)
        self.enter(home, call("write", "first", actor="journal", key="j"))
        self.write()

    def call(self, key: str, amount: int, version: int = 1) -> None:
        self.values[key] = self.values.get(key, 0) + amount
        log = self.logs[self.actor.group_of(key)] if self.logs else self.home
        self.enter(log, call("add", amount, key=key, version=version))

    def append(self, log: members.Log, count: int) -> None:
        session = SessionId(log.add(build_batch([b""], kind=Kind.OPEN_SESSION)).first_index)
        log.add(build_batch([b"a"] * count, topic=TopicId(1), session=session, sequence=Sequence(1)), 1)

    def enter(self, log: members.Log, record: bytes) -> None:
        session = log.add(build_batch([b""], kind=Kind.OPEN_SESSION)).first_index
        log.add(commands(session, 1, record))

    def write(self) -> None:
        for node in members.NAMES:
            members.write_member(self.disk, node, self.home)
            for group, log in self.logs.items():
                kept = log.copy()
                if node == "n3":
                    kept.batches = kept.batches[:-2]
                place = f"{node}/groups/{group}"
                members.write_member(self.disk, place, kept, node=node)
                members.change_control(self.disk, place, group=group)


def planned(
    old: Old, groups: int, *, to: SequenceOf[str] = IN_PLACE, classes: Any = CLASSES, spread: SequenceOf[str] = ()
) -> Reshard:
    source = judge_source(old.disk, IN_PLACE, with_groups=True)
    return plan_reshard(old.disk, source, groups=groups, members=new_members(to), classes=classes, spread=spread)


def resharded(
    old: Old, groups: int, to: SequenceOf[str] = IN_PLACE, plan: Reshard | None = None, cluster: str = "d"
) -> ForkResult:
    plan = plan or planned(old, groups, to=to)
    return fork(
        old.disk,
        plan.source,
        cluster=cluster,
        members=new_members(to),
        entropy=random.Random(7),
        segment_bytes=members.SMALL.segment_bytes,
        check=plan.check,
    )


def machines(disk: SimulatedDisk, to: SequenceOf[str]) -> dict[GroupId, Streams]:
    """Return the states of all groups of the new cluster, as its files have them."""
    source = judge_source(disk, to, with_groups=True)
    home = state_at_end(disk, source, GROUP_0, None, CLASSES)
    others = {e.placed.id: state_at_end(disk, e.source, e.placed.id, home, CLASSES) for e in source.groups}
    return {GROUP_0: home, **others}


def check_new(old: Old, to: SequenceOf[str], groups: int) -> dict[GroupId, Streams]:
    """Check that each instance is in the group that owns it, with its value, and that everything else is there."""
    found = machines(old.disk, to)
    assert len(check_values(old, found).groups) == groups
    placed = found[GROUP_0].query(GroupsQuery())
    assert {each.id for each in placed} == set(found) - {GROUP_0}
    for each in placed:
        assert each.is_established
        for node in each.members:
            control = read_control_state(old.disk, f"{to[int(node[1:]) - 1]}/groups/{each.id}")
            assert control is not None
            assert (control.cluster_id, control.group) == ("d", each.id)
            assert control.incarnation == each.incarnations[node]
    for at, group in enumerate(old.groups):
        assert found[group]._state.names[f"orders-{at}"].next_position == at + 2, "records stay in their group"
    assert len(found[GROUP_0].held()["journal"].instances) == 1
    return found


@pytest.mark.parametrize("to", [APART, IN_PLACE])
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 8), (3, 1), (8, 3)])
def test_the_instances_are_in_the_groups_that_own_them(before: int, after: int, to: SequenceOf[str]) -> None:
    old = Old(before)
    plan = planned(old, after, to=to)
    assert len(plan.new_groups) == max(after - before, 0)
    (moved,) = plan.moved
    assert (moved.name, moved.before, len(moved.after)) == ("counter", tuple(old.groups), after)
    assert moved.instances == len(KEYS)
    assert 0 < moved.moved < len(KEYS)
    result = resharded(old, after, to, plan)
    assert result.groups == (*old.groups, *plan.new_groups)
    check_new(old, to, after)
    if to is APART:
        assert planned(old, after).moved == [moved], "the old cluster is as it was"


def test_an_actor_of_an_earlier_release_gets_the_slots_of_this_one() -> None:
    """Also without another number of groups, because with 4,096 slots similar keys may have the same group."""
    old = Old(4, keys=[f"{shop}-{till}" for shop in range(8) for till in range(8)], slots=4096)
    assert {old.actor.group_of(key) for key in old.values} == set(old.groups[2:])
    plan = planned(old, 4)
    assert plan.moved[0].before == plan.moved[0].after == tuple(old.groups)
    resharded(old, 4, plan=plan)
    found = check_new(old, IN_PLACE, 4)
    assert min(len(found[group].held()["counter"].instances) for group in old.groups) > 8


def test_a_cluster_without_groups_spreads_the_actors_that_are_named() -> None:
    old = Old(0)
    plan = planned(old, 3, spread=["counter"])
    assert plan.moved[0].before == (GROUP_0,)
    assert plan.moved[0].moved == len(KEYS)
    resharded(old, 3, plan=plan)
    found = check_new(old, IN_PLACE, 3)
    assert "counter" not in found[GROUP_0].held()


def test_a_new_cluster_is_resharded_again() -> None:
    old = Old(3)
    resharded(old, 5)
    before = machines(old.disk, IN_PLACE)
    plan = planned(old, 2)
    assert plan.new_groups == []
    resharded(old, 2, APART, planned(old, 2, to=APART), cluster="e")
    found = machines(old.disk, APART)
    assert set(found) == set(before), "groups stay, also without instances"
    check_values(old, found)


def check_values(old: Old, found: dict[GroupId, Streams]) -> SpreadActor:
    (actor,) = found[GROUP_0].query(SpreadActorsQuery())
    assert {
        group: len(each.held().get("counter", HeldInstances(0, [], 0)).instances) for group, each in found.items()
    } == {group: sum(actor.group_of(key) == group for key in old.values) for group in found}
    for key, value in old.values.items():
        assert result_of(found[actor.group_of(key)]._actors.query("counter", key, "read", arguments())) == value
    return actor


def test_log_time_goes_on_from_the_highest_one_of_all_groups() -> None:
    """So ``now`` never goes back for an instance that comes from a group whose log was ahead."""
    old = Old(3)
    last = max(log.batches[-1].log_time for log in (old.home, *old.logs.values()))
    resharded(old, 4)
    source = judge_source(old.disk, IN_PLACE, with_groups=True)
    assert {each.last_log_time for each in (source, *(group.source for group in source.groups))} == {last + 1}


# Refusals. Nothing is written.


def check_untouched(old: Old) -> None:
    for directory in IN_PLACE:
        check_not_forking(old.disk, directory)
        state = read_control_state(old.disk, directory)
        assert state is not None
        assert state.cluster_id == "c"
        assert not [path for path in old.disk.list_directory(f"{directory}/new-cluster") if "control" in path]


@pytest.mark.parametrize(
    ("groups", "spread", "error", "message"),
    [
        (3, [], RequestError, "the actors live in these groups already"),
        (0, [], RequestError, "actors cannot live in 0 groups"),
        (257, [], RequestError, "actors cannot live in 257 groups"),
        (5, ["nobody"], UnknownActorError, "no instance of an actor 'nobody'"),
    ],
)
def test_a_plan_without_effect_or_sense_is_refused(
    groups: int, spread: list[str], error: type[RequestError], message: str
) -> None:
    old = Old(3)
    with pytest.raises(error, match=message):
        planned(old, groups, spread=spread)
    check_untouched(old)


def test_an_actor_that_is_not_spread_has_to_be_named() -> None:
    with pytest.raises(RequestError, match="no actor is spread over groups") as refused:
        planned(Old(0), 3)
    assert "--spread NAME" in refused.value.remedy


class NewCounter(Counter):
    version = 2


def test_a_group_that_the_new_code_has_not_been_called_in_is_refused() -> None:
    old = Old(3)
    classes = {**CLASSES, "counter": NewCounter}
    behind = [group for group in old.groups if group != old.actor.group_of("k0")]
    old = Old(3)
    old.call("k0", 1, version=2)
    old.disk = SimulatedDisk()
    old.write()
    with pytest.raises(RequestError, match=f"not yet in {behind[0]}, {behind[1]}: version 1, version 1"):
        planned(old, 5, classes=classes)
    check_untouched(old)


def test_code_that_is_missing_or_older_is_refused() -> None:
    old = Old(3)
    with pytest.raises(OutdatedCodeError, match=rf"group {old.groups[0]}: .*counter\['k"):
        planned(old, 5, classes={"journal": CLASSES["journal"]})
    with pytest.raises(OutdatedCodeError, match="group"):
        planned(Old(3, version=2), 5)
    check_untouched(old)


def test_a_target_with_data_is_refused() -> None:
    old = Old(1)
    members.write_member(old.disk, "m2", members.orders())
    with pytest.raises(ConfigError, match="/m2 holds data already"):
        resharded(old, 3, APART)


def test_a_node_that_ran_while_the_files_were_written_is_noticed() -> None:
    old = Old(3)
    plan = planned(old, 5)

    def run(staged: SequenceOf[str]) -> None:
        plan.check(staged)
        members.change_control(old.disk, f"n2/groups/{old.groups[0]}", term=5)

    with pytest.raises(ConfigError, match=f"a node has run on /n2/groups/{old.groups[0]} since"):
        fork(
            old.disk,
            plan.source,
            cluster="d",
            members=new_members(IN_PLACE),
            entropy=random.Random(7),
            segment_bytes=members.SMALL.segment_bytes,
            check=run,
        )
    check_untouched(old)


def test_new_files_that_differ_are_no_cluster() -> None:
    """Whatever a later version writes: the files are read back before anything is decided."""
    old = Old(3)
    plan = planned(old, 5)
    behind = plan.source.groups[3].source.behind

    def one_less() -> list[Batch]:
        return list(behind())[:-1]

    plan.source.groups[3].source.behind = one_less
    with pytest.raises(CorruptionError, match="actor 'counter' has 24 instances in the old cluster and"):
        resharded(old, 5, plan=plan)
    check_untouched(old)


def test_a_full_disk_leaves_the_old_files_and_no_mark() -> None:
    old = Old(3)
    plan = planned(old, 5)
    old.disk.capacity_bytes = old.disk.volume.bytes_used() + 20_000
    with pytest.raises(StorageFullError):
        resharded(old, 5, plan=plan)
    check_untouched(old)


# Deaths.


@pytest.mark.slow
def test_death_leaves_the_old_cluster_a_refused_directory_or_the_whole_new_one() -> None:
    """At each 53rd call of the disk, because ``test_fork.py`` has each call for the files of one group."""
    to, call = IN_PLACE, 0
    decided: list[bool] = []
    while True:
        old = Old(3, keys=KEYS[:8])
        plan = planned(old, 8)
        old.disk.crash_at(old.disk.calls + call)
        try:
            resharded(old, 8, plan=plan)
        except SimulatedCrash:
            old.disk.crash(random.Random(call))
        else:
            break
        is_refused = False
        for directory in to:
            try:
                check_not_forking(old.disk, directory)
            except ConfigError:
                is_refused = True
        states = [read_control_state(old.disk, each) for each in to]
        if not is_refused and all(each is not None and each.cluster_id == "c" for each in states):
            assert planned(old, 8).moved == plan.moved
        was_decided = finish_fork(old.disk, to) is not None
        if not was_decided and not all(each is not None and each.cluster_id == "d" for each in states):
            resharded(old, 8)
        else:
            was_decided = True
        decided.append(was_decided)
        check_new(old, to, 8)
        call += 53
    assert decided == sorted(decided)
    assert {False, True} == set(decided)
