"""The files of a new cluster with groups, made from members' files on one simulated disk."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.fork.test_fork import APART, IN_PLACE, new_members
from tests.replay import members
from viewstamp.errors import ConfigError, CorruptionError, NoQuorumError
from viewstamp.fork import ForkResult, ForkSource, finish_fork, fork, judge_source
from viewstamp.fork.build import remove_files
from viewstamp.ids import GroupId, NodeId, Position, Stream
from viewstamp.node.fork_mark import check_not_forking
from viewstamp.replay import OfflineReplay
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash
from viewstamp.streams.ledger import Ledger
from viewstamp.streams.state import State
from viewstamp.wal.control_file import read_control_state
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.ordering import GlobalRun, StreamReport, encode_context, encode_order
from viewstamp.wire.placing import encode_hosted, encode_place
from viewstamp.wire.spreading import encode_spread


class Old:
    """A stopped cluster: group 0 with a spread topic, and two groups with its streams, which hold 4 and 2 records.

    Each of n1 to n3 hosts both groups. n3 lacks the last records of the first group.
    """

    def __init__(self, records: int = 4) -> None:
        self.disk = SimulatedDisk()
        self.home = home = members.Log()
        home.membership()
        founders = {NodeId(name): members.MEMBERSHIP.addresses[NodeId(name)] for name in members.NAMES}
        self.groups: list[GroupId] = []
        for name in ("s1", "s2"):
            self.groups.append(GroupId(home.add(encode_place(founders, [name], since=0)).first_index))
            for number, node in enumerate(members.NAMES):
                home.add(encode_hosted(self.groups[-1], NodeId(node), f"{len(self.groups)}{number}" * 8))
        home.add(encode_spread("spread", self.groups))
        self.streams = [Stream(group, f"spread.{at}") for at, group in enumerate(self.groups, 1)]
        self.logs = [self._group(f"spread.{at}", count) for at, count in ((1, records), (2, 2))]
        ends = (records + 1, 3)
        home.add(encode_order([StreamReport(self.streams[0], Position(3), Position(1))]))
        self.logs[0].add(encode_context("spread.1", [GlobalRun(1, 1, Position(1), 2)]))  # type: ignore[arg-type]
        home.add(
            encode_order(
                [StreamReport(each, Position(end), Position(1)) for each, end in zip(self.streams, ends, strict=True)]
            )
        )
        for node in members.NAMES:
            members.write_member(self.disk, node, home)
            for group, log in zip(self.groups, self.logs, strict=True):
                kept = log.copy()
                if node == "n3" and log is self.logs[0]:
                    kept.batches = kept.batches[:-2]
                place = f"{node}/groups/{group}"
                members.write_member(self.disk, place, kept, node=node)
                members.change_control(self.disk, place, group=group)

    def _group(self, stream: str, count: int) -> members.Log:
        log = members.Log()
        log.membership()
        log.topic(stream)
        for number in range(count):
            log.records(b"%d" % number)
        return log

    def trim(self) -> None:
        """Let all logs begin behind a snapshot, with streams that are trimmed empty."""
        for number, log in enumerate(self.logs, 1):
            log.command(
                Kind.TRIM_TOPIC, name=f"spread.{number}", position=log.state().names[f"spread.{number}"].next_position
            )
        self.disk = SimulatedDisk()
        for node in members.NAMES:
            for group, log in zip((0, *self.groups), (self.home, *self.logs), strict=True):
                place = f"{node}/groups/{group}" if group else node
                members.write_member(self.disk, place, log, first=len(log.batches) - 1, node=node, hint=log.end)
                members.write_snapshot(self.disk, place, log, group=group)
                members.change_control(self.disk, place, group=group)


def judged(old: Old, sources: Sequence[str] = IN_PLACE) -> ForkSource:
    return judge_source(old.disk, sources, with_groups=True)


def forked(old: Old, to: Sequence[str], source: ForkSource | None = None) -> ForkResult:
    return fork(
        old.disk,
        source or judged(old),
        cluster="d",
        members=new_members(to),
        entropy=random.Random(7),
        segment_bytes=members.SMALL.segment_bytes,
    )


def state_of(disk: SimulatedDisk, *directories: str) -> State:
    """Return the state after the log that these directories elect."""
    chain = OfflineReplay.open(disk, list(directories)).chain
    assert chain is not None
    ledger = Ledger(State())
    for at in range(len(chain)):
        copy = chain.copy(at)
        ledger.apply(chain.replicas[copy.replica].rows.batch(copy.row))
    return ledger.state


def check_new(old: Old, to: Sequence[str]) -> None:
    """Check that the new cluster has all groups, on the recorded disks, and that its states never contradict."""
    disk = old.disk
    home = state_of(disk, *to)
    assert list(home.placements.groups) == old.groups
    assert home.order.next_position("spread") == len(home_records(old)) + 1
    for stream, placed in zip(old.streams, home.placements.groups.values(), strict=True):
        assert placed.is_established
        assert placed.members == {member.node: member.address for member in new_members(to)}
        for member in new_members(to):
            control = read_control_state(disk, f"{member.directory}/groups/{placed.id}")
            assert control is not None
            assert (control.cluster_id, control.group, control.member_id) == ("d", placed.id, "")
            assert control.incarnation == placed.incarnations[member.node]
        state = state_of(disk, *(f"{directory}/groups/{placed.id}" for directory in to))
        topic = state.names[stream.name]
        assert topic.next_position == home.order.ordered_end(stream), "the order names no record that is missing"
        assert state.maps.mapped_end(stream.name) <= home.order.ordered_end(stream)


def home_records(old: Old) -> list[Batch]:
    return [batch for log in old.logs for batch in log.batches if batch.kind is Kind.RECORDS]


@pytest.mark.parametrize("to", [APART, IN_PLACE])
def test_a_new_cluster_has_the_groups_with_their_logs_and_one_order(to: Sequence[str]) -> None:
    old = Old()
    result = forked(old, to)
    assert result.groups == tuple(old.groups)
    assert result.findings == []
    check_new(old, to)
    disks = {
        state.incarnation
        for directory in to
        for place in ("", *(f"/groups/{group}" for group in old.groups))
        if (state := read_control_state(old.disk, directory + place)) is not None
    }
    assert len(disks) == 9, "each directory of each group has a disk of its own"
    if to is IN_PLACE:
        forked_again = judge_source(old.disk, to, with_groups=True)
        assert [each.placed.id for each in forked_again.groups] == old.groups
        assert state_of(old.disk, *(f"{each}/old-cluster-1/groups/{old.groups[0]}" for each in to)).names


def test_groups_whose_logs_begin_behind_a_snapshot_are_forked_with_it() -> None:
    old = Old()
    old.trim()
    forked(old, IN_PLACE)
    again = judge_source(old.disk, IN_PLACE, with_groups=True)
    assert [each.placed.id for each in again.groups] == old.groups
    for group, source in ((0, again), *((each.placed.id, each.source) for each in again.groups)):
        assert source.start > 1
        assert [(each.meta.cluster, each.meta.group) for each in source.snapshots] == [("d", group)]
    assert again.groups[0].placed.members == {member.node: member.address for member in new_members(IN_PLACE)}


def test_a_group_without_a_majority_of_its_directories_is_refused_and_nothing_is_written() -> None:
    old = Old()
    for node in ("n1", "n2"):
        remove_files(old.disk, f"/{node}/groups/{old.groups[1]}")
    with pytest.raises(NoQuorumError, match=f"group {old.groups[1]}: no majority"):
        judged(old)
    remove_files(old.disk, f"/n3/groups/{old.groups[1]}")
    with pytest.raises(NoQuorumError, match=f"no directory of group {old.groups[1]} was found"):
        judged(old)
    for directory in IN_PLACE:
        check_not_forking(old.disk, directory)


def test_a_node_that_wrote_to_a_group_since_its_files_were_judged_is_noticed() -> None:
    old = Old()
    source = judged(old)
    members.change_control(old.disk, f"n2/groups/{old.groups[0]}", term=5)
    with pytest.raises(ConfigError, match=f"a node has run on /n2/groups/{old.groups[0]} since"):
        forked(old, IN_PLACE, source)


@pytest.mark.parametrize(
    "rows", [[7], [[2]], [[99, {"n1": ["a:1", "0" * 16]}]], [[2, {}]], [[2, {"n1": "a:1"}]], [[2, [["n1"]]]]]
)
def test_a_record_of_a_fork_that_names_no_established_group_is_damage(rows: list[object]) -> None:
    old = Old()
    with pytest.raises(CorruptionError, match="the record of a fork has"):
        old.home.state().placements.forked(rows)


@pytest.mark.slow
def test_death_leaves_the_old_groups_or_a_refused_directory() -> None:
    """At each 17th call of the disk, because ``test_fork.py`` has each call for the files of one group."""
    to, call = IN_PLACE, 0
    decided: list[bool] = []
    while True:
        old = Old(3)
        source = judged(old)
        old.disk.crash_at(old.disk.calls + call)
        try:
            forked(old, to, source)
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
            assert [each.placed.id for each in judged(old).groups] == old.groups
        was_decided = finish_fork(old.disk, to) is not None
        if not was_decided and not all(each is not None and each.cluster_id == "d" for each in states):
            forked(old, to)
        else:
            was_decided = True
        decided.append(was_decided)
        check_new(old, to)
        call += 17
    assert decided == sorted(decided)
    assert {False, True} == set(decided)
