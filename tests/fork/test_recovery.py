"""The files of a new cluster with groups, made from what is left of the old one."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.fork.test_groups import Old
from tests.replay import members
from viewstamp.errors import ConfigError
from viewstamp.fork import (
    Basis,
    ForkResult,
    ForkSource,
    GroupsRecovery,
    NewMember,
    finish_fork,
    fork,
    judge_source,
    plan_groups,
    possible_loss,
)
from viewstamp.fork.build import remove_files
from viewstamp.fork.recovery import LostInstances, OldGroupReader, OldHomeReader, read_log
from viewstamp.ids import GroupId, NodeId, Position, Stream
from viewstamp.node.fork_mark import check_not_forking
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash
from viewstamp.streams.joint_cut import contradictions
from viewstamp.streams.state import State
from viewstamp.wal.control_file import read_control_state
from viewstamp.wire.batch import Kind
from viewstamp.wire.spread_actors import encode_spread_actor

LEFT = ("/n3",)


def judged(old: Old, sources: Sequence[str] = LEFT) -> ForkSource:
    return judge_source(old.disk, sources, basis=Basis.SURVIVORS, with_groups=True)


def recovered(old: Old, to: Sequence[str] = LEFT, sources: Sequence[str] = LEFT) -> tuple[GroupsRecovery, ForkResult]:
    source = judged(old, sources)
    plan = plan_groups(old.disk, source)
    return plan, made(old, source, to)


def made(old: Old, source: ForkSource, to: Sequence[str]) -> ForkResult:
    return fork(
        old.disk,
        source,
        cluster="d",
        members=new_members(to),
        entropy=random.Random(7),
        segment_bytes=members.SMALL.segment_bytes,
    )


def states_of(old: Old, directory: str) -> tuple[State, dict[GroupId, State]]:
    """Return the states of the new cluster, which contradict each other in nothing."""
    source = judged(old, (directory,))
    home = read_log(old.disk, source, OldHomeReader).state
    groups = {each.placed.id: read_log(old.disk, each.source, OldGroupReader).state for each in source.groups}
    assert contradictions(home, groups) == []
    return home, groups


def new_members(to: Sequence[str]) -> list[NewMember]:
    return [
        NewMember(node=NodeId(each.strip("/")), address=f"127.0.0.1:{8001 + at}", directory=each)
        for at, each in enumerate(to)
    ]


def lose(disk: SimulatedDisk, *directories: str) -> None:
    for directory in directories:
        remove_files(disk, directory)


def test_a_survivor_that_lacks_ordered_records_goes_on_without_them_and_says_which() -> None:
    old = Old()
    source = judged(old)
    assert not source.has_majorities
    recovery, result = recovered(old)
    assert result.groups == tuple(old.groups)
    first, second = recovery.plan.streams
    assert (first.ordered_end, first.kept_end, first.next_position, first.lost) == (5, 4, 4, 1)
    assert (second.lost, second.unplaced) == (0, 0)
    assert not first.is_given_up
    assert not second.is_given_up
    assert [(each.topic, each.first, each.end) for each in recovery.plan.lost_positions] == [("spread", 4, 5)]
    home, groups = states_of(old, "/n3")
    assert home.order.ordered_end(old.streams[0]) == 4
    assert home.order.next_position("spread") == 7
    assert home.spread.topics["spread"].lost_positions == (4, 5)
    assert groups[old.groups[0]].names["spread.1"].next_position == 4
    placed = home.placements.groups[old.groups[0]]
    assert placed.is_established
    assert placed.members == {NodeId("n3"): new_members(LEFT)[0].address}
    assert not home.sessions.by_id


def test_the_best_survivor_of_each_group_is_taken() -> None:
    old = Old()
    lose(old.disk, f"/n1/groups/{old.groups[1]}", f"/n2/groups/{old.groups[1]}", f"/n2/groups/{old.groups[0]}")
    recovery, result = recovered(old, to=("/n1", "/n3"), sources=("/n1", "/n3"))
    assert result.groups == tuple(old.groups)
    assert not any(each.lost or each.is_given_up for each in recovery.plan.streams)
    assert recovery.plan.lost_positions == []
    home, _ = states_of(old, "/n1")
    assert home.order.next_position("spread") == 7


def test_a_group_of_which_nothing_is_left_begins_again_and_its_streams_are_given_up() -> None:
    old = Old()
    old.home.add(encode_spread_actor("counter", old.groups, slots=16))
    for node in members.NAMES:
        remove_files(old.disk, f"/{node}")
        members.write_member(old.disk, node, old.home)
        remove_files(old.disk, f"/{node}/groups/{old.groups[1]}")
        members.write_member(old.disk, f"{node}/groups/{old.groups[0]}", old.logs[0], node=node)
        members.change_control(old.disk, f"{node}/groups/{old.groups[0]}", group=old.groups[0])
    source = judged(old, ("/n1", "/n2"))
    assert source.is_majority
    assert not source.has_majorities, "a group has none"
    recovery, result = recovered(old, to=("/n1", "/n2"), sources=("/n1", "/n2"))
    assert result.groups == tuple(old.groups)
    assert recovery.actors == (LostInstances("counter", (old.groups[1],)),)
    first, second = recovery.plan.streams
    assert not first.is_given_up
    assert (second.is_given_up, second.ordered_end, second.kept_end, second.lost) == (True, 3, 1, 2)
    assert [(each.first, each.end) for each in recovery.plan.lost_positions] == [(5, 7)]
    home, groups = states_of(old, "/n1")
    [closed] = home.spread.topics["spread"].closed
    assert (closed.stream, closed.into, closed.end, closed.lost_at) == (2, 1, 1, 7)
    assert not groups[old.groups[1]].names, "it begins empty"
    control = read_control_state(old.disk, f"/n2/groups/{old.groups[1]}")
    assert control is not None
    assert control.incarnation == home.placements.groups[old.groups[1]].incarnations[NodeId("n2")]


def test_a_group_that_never_had_a_leader_goes_on_empty() -> None:
    old = Old()
    for node in members.NAMES:
        lose(old.disk, f"/{node}/groups/{old.groups[1]}")
        members.write_member(old.disk, f"{node}/groups/{old.groups[1]}", members.Log(), node=node)
        members.change_control(old.disk, f"{node}/groups/{old.groups[1]}", group=old.groups[1])
    _, result = recovered(old)
    assert result.groups == tuple(old.groups)
    states_of(old, "/n3")


def test_a_group_that_group_0_does_not_know_is_left_behind() -> None:
    old = Old()
    for log in [old.home]:
        log.batches = [each for each in log.batches if each.first_index < old.groups[1]]
    remove_files(old.disk, "/n3")
    members.write_member(old.disk, "n3", old.home)
    for group, log in zip(old.groups, old.logs, strict=True):
        members.write_member(old.disk, f"n3/groups/{group}", log, node="n3")
        members.change_control(old.disk, f"n3/groups/{group}", group=group)
    source = judged(old)
    assert source.left_behind == [str(old.groups[1])]
    recovery, result = recovered(old)
    assert result.groups == (old.groups[0],)
    assert recovery.plan.aside == {Stream(old.groups[0], "spread.1"): 4}
    home, groups = states_of(old, "/n3")
    assert list(home.placements.groups) == [old.groups[0]]
    assert list(groups[old.groups[0]].names) == ["spread.1~1"]
    aside = judge_source(old.disk, [f"/n3/old-cluster-1/groups/{old.groups[1]}"], basis=Basis.SURVIVORS)
    assert read_log(old.disk, aside, OldGroupReader).state.names
    assert judged(old).left_behind == [], "its files are set aside"
    everything = Old()
    everything.home.batches = everything.home.batches[:1]
    remove_files(everything.disk, "/n3")
    members.write_member(everything.disk, "n3", everything.home)
    for group, log in zip(everything.groups, everything.logs, strict=True):
        members.write_member(everything.disk, f"n3/groups/{group}", log, node="n3")
        members.change_control(everything.disk, f"n3/groups/{group}", group=group)
    source = judged(everything)
    assert source.left_behind == sorted(map(str, everything.groups))
    assert made(everything, source, LEFT).groups == ()


def test_groups_whose_logs_begin_behind_snapshots_are_recovered_with_them() -> None:
    old = Old()
    old.trim()
    recovery, _ = recovered(old)
    assert not any(each.is_given_up or each.lost for each in recovery.plan.streams)
    home, _ = states_of(old, "/n3")
    assert home.order.next_position("spread") == 7


def test_a_recovered_cluster_is_recovered_again() -> None:
    old = Old()
    recovered(old, to=("/n3", "/e2", "/e3"))
    source = judged(old, ("/n3",))
    assert source.cluster == "d"
    again = plan_groups(old.disk, source)
    assert not any(each.is_given_up or each.lost for each in again.plan.streams)
    assert [(each.first, each.end) for each in again.plan.lost_positions] == [(4, 5)], "they stay lost"
    assert again.plan.lost_positions
    fork(
        old.disk,
        source,
        cluster="e",
        members=new_members(LEFT),
        entropy=random.Random(8),
        segment_bytes=members.SMALL.segment_bytes,
    )
    home, _ = states_of(old, "/n3")
    assert home.spread.topics["spread"].lost_positions == (4, 5)
    assert len(home.placements.groups[old.groups[0]].members) == 1


def test_the_report_of_each_group_counts_its_own_voters() -> None:
    old = Old()
    source = judged(old)
    losses = [possible_loss(each.source) for each in source.groups]
    assert [(loss.survivors, loss.lost, loss.acknowledged) for loss in losses] == [(["n3"], ["n1", "n2"], True)] * 2
    assert [[(topic.name, topic.kept) for topic in loss.topics] for loss in losses] == [
        [("spread.1", 3)],
        [("spread.2", 2)],
    ]


@pytest.mark.slow
def test_death_in_a_recovery_leaves_the_old_groups_or_a_refused_directory() -> None:
    """At each 13th call of the disk: a repetition finishes the recovery, or begins it again."""
    call, decided = 0, []
    while True:
        old = Old(3)
        source = judged(old)
        plan_groups(old.disk, source)
        old.disk.crash_at(old.disk.calls + call)
        try:
            made(old, source, LEFT)
        except SimulatedCrash:
            old.disk.crash(random.Random(call))
        else:
            break
        is_refused = False
        try:
            check_not_forking(old.disk, "/n3")
        except ConfigError:
            is_refused = True
        state = read_control_state(old.disk, "/n3")
        was_decided = finish_fork(old.disk, LEFT) is not None
        if not was_decided and (state is None or state.cluster_id == "c"):
            assert is_refused or state is not None
            recovered(old)
        else:
            was_decided = True
        decided.append(was_decided)
        home, _ = states_of(old, "/n3")
        assert home.order.next_position("spread") == 6
        call += 13
    assert decided == sorted(decided)
    assert {False, True} == set(decided)


def test_a_log_of_group_0_that_is_older_than_the_maps_takes_over_what_they_know() -> None:
    old = Old()
    # Only the ORDER is lost of which the map of the first stream has the run already.
    at = next(at for at, batch in enumerate(old.home.batches) if batch.kind is Kind.ORDER)
    old.home.batches = old.home.batches[:at]
    remove_files(old.disk, "/n1")
    members.write_member(old.disk, "n1", old.home)
    for group, log in zip(old.groups, old.logs, strict=True):
        members.write_member(old.disk, f"n1/groups/{group}", log, node="n1")
        members.change_control(old.disk, f"n1/groups/{group}", group=group)
    recovery, _ = recovered(old, to=("/n1",), sources=("/n1",))
    assert recovery.plan.lost_positions == []
    home, groups = states_of(old, "/n1")
    assert home.order.ordered_end(old.streams[0]) == 3
    assert home.order.next_position("spread") == 3
    assert groups[old.groups[0]].maps.find_global("spread.1", 2) == 2
    assert home.order.ordered_end(old.streams[1]) == Position(1), "its records get positions in the new cluster"


def test_positions_of_orders_that_may_never_have_been_committed_are_named() -> None:
    old = Old()
    recovery, _ = recovered(old)
    assert [(each.topic, each.first, each.end) for each in recovery.plan.doubtful] == [("spread", 1, 7)]
    old = Old()
    members.change_control(old.disk, "n3", commit_hint=old.home.end - 1)
    recovery, _ = recovered(old)
    assert [(each.topic, each.first, each.end) for each in recovery.plan.doubtful] == [("spread", 3, 7)]
    old = Old()
    members.change_control(old.disk, "n3", commit_hint=old.home.end)
    recovery, _ = recovered(old)
    assert recovery.plan.doubtful == []
