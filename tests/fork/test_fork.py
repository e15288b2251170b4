"""The files of a new cluster, made from members' files on one simulated disk."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgpack
import pytest

from tests.replay import members
from viewstamp.errors import ConfigError, NoQuorumError, RequestError
from viewstamp.fork import Basis, ForkResult, ForkSource, NewMember, finish_fork, fork, judge_source
from viewstamp.ids import NodeId
from viewstamp.node.fork_mark import check_not_forking
from viewstamp.replay import OfflineReplay
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash
from viewstamp.wal.control_file import read_control_state
from viewstamp.wire.batch import Batch, Kind

APART = ("/m1", "/m2", "/m3")
IN_PLACE = tuple(f"/{name}" for name in members.NAMES)


def new_members(directories: Sequence[str]) -> list[NewMember]:
    return [
        NewMember(node=NodeId(f"n{at}"), address=f"127.0.0.1:{8000 + at}", directory=directory)
        for at, directory in enumerate(directories, 1)
    ]


def forked(
    disk: SimulatedDisk,
    *sources: str,
    to: Sequence[str] = APART,
    basis: Basis = Basis.ELECTED,
    until: int | None = None,
    until_time: int | None = None,
) -> ForkResult:
    source = judge_source(disk, sources or IN_PLACE, basis=basis, until=until, until_time=until_time)
    return fork(
        disk,
        source,
        cluster="d",
        members=new_members(to),
        entropy=random.Random(7),
        segment_bytes=members.SMALL.segment_bytes,
    )


def batches_of(disk: SimulatedDisk, directory: str) -> list[Batch]:
    """The batches of one directory, as an offline replay reads them."""
    replay = OfflineReplay.open(disk, [directory], unsafe=True)
    assert replay.chain is not None
    chain = replay.chain
    return [chain.replicas[0].rows.batch(chain.copy(at).row) for at in range(len(chain))]


def test_new_cluster_has_all_records_behind_a_new_identity() -> None:
    log = members.orders()
    disk = members.cluster(log)
    result = forked(disk)
    assert (result.source, result.cluster, result.term, result.end) == ("c", "d", 2, log.end + 2)
    replay = members.opened(disk, "m1", "m2", "m3")
    assert members.shown(disk, replay) == members.visible(log)
    assert [str(finding) for finding in replay.findings] == []
    states = [read_control_state(disk, directory) for directory in APART]
    assert [state and (state.cluster_id, state.node_id, state.commit_hint) for state in states] == [
        ("d", f"n{at}", log.end + 2) for at in (1, 2, 3)
    ]
    assert len({state.incarnation for state in states if state} | {state.log_id for state in states if state}) == 6
    *old, membership, end = batches_of(disk, "/m1")
    assert [batch.term for batch in old] == [batch.term for batch in log.batches]
    assert (membership.kind, end.kind) == (Kind.MEMBERSHIP, Kind.FORK)
    assert msgpack.unpackb(end.values()[0]) == {"from": "c", "cluster": "d", "end": log.end}
    assert members.replayed(disk) == members.visible(log), "the source is unchanged"


def test_elected_log_is_forked_and_not_the_longest() -> None:
    log = members.orders()
    stale = log.copy()
    stale.records(b"never acknowledged", b"by a majority")
    log.term = 3
    log.records(b"x")
    disk = members.cluster(log)
    members.write_member(disk, "n4", stale, node="n3")
    forked(disk, "/n1", "/n4")
    assert members.replayed(disk, "m1", "m2", "m3") == members.visible(log)


def test_minority_is_refused_and_nothing_is_written() -> None:
    disk = members.cluster(members.orders())
    with pytest.raises(NoQuorumError):
        forked(disk, "/n1")
    assert not disk.exists("/m1")


def test_committed_part_of_one_copy_is_forked() -> None:
    log = members.orders()
    disk = SimulatedDisk()
    members.write_member(disk, "n1", log, hint=8)
    forked(disk, "/n1", basis=Basis.COMMITTED)
    committed = log.copy()
    committed.batches = [batch for batch in log.batches if batch.end <= 8]
    assert members.replayed(disk, "m1", "m2", "m3") == members.visible(committed)


@pytest.mark.parametrize("until", [2, 5, 6, 7, 100])
def test_index_to_keep_leaves_out_later_batches(until: int) -> None:
    log = members.orders()
    disk = members.cluster(log)
    forked(disk, until=until)
    kept = log.copy()
    kept.batches = [batch for batch in log.batches if batch.end - 1 <= until]
    assert members.replayed(disk, "m1", "m2", "m3") == members.visible(kept)


def test_no_new_record_has_the_viewstamp_of_a_record_that_was_left_out() -> None:
    """Else one viewstamp would name two records: one of the old cluster, and one of the new."""
    log = members.orders(2)
    kept = log.end
    log.term = 2
    log.records(b"left out")
    disk = members.cluster(log)
    forked(disk, until=kept - 1)
    *_, membership, end = batches_of(disk, "/m1")
    old = {(batch.term, index) for batch in log.batches for index in range(batch.first_index, batch.end)}
    assert (2, membership.first_index) in old
    assert not old & {(each.term, each.first_index) for each in (membership, end)}


def test_time_to_keep_leaves_out_later_batches() -> None:
    log = members.orders(4)
    log.seconds += 60
    log.records(b"later")
    disk = members.cluster(log)
    forked(disk, until_time=log.batches[-2].log_time)
    assert members.replayed(disk, "m1", "m2", "m3") == members.visible(log)[:-1]


def trimmed(disk: SimulatedDisk) -> members.Log:
    """Members with logs that begin behind a snapshot; the topic's first records are deleted."""
    log = members.orders(8, size=900)
    log.command(Kind.TRIM_TOPIC, name="orders", position=9)
    early = log.copy()
    log.records(b"x")
    for name in members.NAMES:
        members.write_member(disk, name, log, first=6, hint=log.end)
        members.write_snapshot(disk, name, early)
    return log


def test_log_that_begins_behind_a_snapshot_is_forked_with_it() -> None:
    disk = SimulatedDisk()
    trimmed(disk)
    forked(disk)
    assert members.replayed(disk, "m1", "m2", "m3") == members.replayed(disk)
    assert disk.list_directory("/m2/snapshots") == disk.list_directory("/n2/snapshots")
    assert [finding.kind for finding in members.opened(disk, "m1", "m2", "m3").findings] == []


def test_index_before_the_snapshot_is_refused_with_the_first_possible_one() -> None:
    disk = SimulatedDisk()
    trimmed(disk)
    with pytest.raises(RequestError, match="known from index 19 on"):
        forked(disk, until=16)


def test_files_of_a_stopped_cluster_become_the_new_one_in_place() -> None:
    log = members.orders()
    disk = members.cluster(log)
    result = forked(disk, to=IN_PLACE)
    assert members.replayed(disk) == members.visible(log)
    state = read_control_state(disk, "/n1")
    assert state is not None
    assert state.cluster_id == "d"
    assert result.aside == {directory: f"{directory}/old-cluster-1" for directory in IN_PLACE}
    old = read_control_state(disk, "/n1/old-cluster-1")
    assert old is not None
    assert old.cluster_id == "c"
    assert members.replayed(disk, *(f"{name}/old-cluster-1" for name in members.NAMES)) == members.visible(log)


def test_fork_of_a_fork_sets_the_files_of_both_aside() -> None:
    disk = members.cluster(members.orders())
    forked(disk, to=IN_PLACE)
    source = judge_source(disk, IN_PLACE)
    result = fork(disk, source, cluster="e", members=new_members(IN_PLACE), entropy=random.Random(8))
    assert result.term == 3
    assert result.aside["/n1"] == "/n1/old-cluster-2"


def test_targets_with_other_data_or_a_shared_name_are_refused() -> None:
    disk = members.cluster(members.orders())
    source = judge_source(disk, ["/n1", "/n2"])
    with pytest.raises(ConfigError, match="/n3 holds data already"):
        fork(disk, source, cluster="d", members=new_members(["/m1", "/n3"]), entropy=random.Random(1))
    with pytest.raises(RequestError, match="cannot have the id of the old one"):
        fork(disk, source, cluster="c", members=new_members(["/m1"]), entropy=random.Random(1))
    with pytest.raises(RequestError, match="two members have the data directory /m1"):
        fork(disk, source, cluster="d", members=new_members(["/m1", "/m1"]), entropy=random.Random(1))
    check_not_forking(disk, "/m1")
    assert members.replayed(disk) == members.visible(members.orders())


def test_directories_with_other_groups_are_refused_because_a_fork_keeps_group_0_alone() -> None:
    disk = members.cluster(members.orders())
    source = judge_source(disk, IN_PLACE)
    for directory in ("/n2/groups/7", "/m1/groups/9"):
        disk.make_directory(directory)
    for refused in (lambda: judge_source(disk, IN_PLACE), lambda: fork_into(disk, source, IN_PLACE)):
        with pytest.raises(ConfigError, match="/n2 also holds the groups 7, whose records would be left behind"):
            refused()
    with pytest.raises(ConfigError, match="/m1 also holds the groups 9"):
        fork_into(disk, source, APART)
    for directory in (*IN_PLACE, *APART):
        check_not_forking(disk, directory)
    assert members.replayed(disk) == members.visible(members.orders())


def test_a_fork_names_the_groups_that_it_leaves_behind_on_other_machines() -> None:
    log = members.orders()
    founders = {"n1": "127.0.0.1:7000"}
    placed = [
        log.command(Kind.PLACE_GROUP, members=founders, streams=[stream], since=0).first_index
        for stream in ("s1", "s2")
    ]
    log.command(Kind.HOSTED, group=placed[0], node="n1", incarnation="a" * 16)
    result = forked(members.cluster(log), "/n2", "/n3")
    text = f"the cluster also has group {placed[0]} on n1, whose records are not read"
    assert [(finding.kind, finding.text) for finding in result.findings] == [("other group", text)]


def fork_into(disk: SimulatedDisk, source: ForkSource, to: Sequence[str]) -> ForkResult:
    return fork(disk, source, cluster="d", members=new_members(to), entropy=random.Random(1))


def test_directory_that_a_process_uses_is_refused() -> None:
    disk = members.cluster(members.orders())
    lock = disk.lock("/n2")
    with pytest.raises(ConfigError, match="uses /n2"):
        forked(disk)
    lock.release()
    forked(disk)


def survives_death(disk: SimulatedDisk, to: Sequence[str], log: members.Log) -> bool:
    """Check the directories after a death, and repeat the fork; return whether the fork had been decided."""
    refused = 0
    for directory in to:
        try:
            check_not_forking(disk, directory)
        except ConfigError:
            refused += 1
            continue
        state = read_control_state(disk, directory)
        if state is not None and state.cluster_id == "c":
            assert members.replayed(disk, directory.strip("/"), unsafe=True) == members.visible(log)
        elif state is not None:
            assert (state.cluster_id, state.commit_hint) == ("d", log.end + 2)
        else:
            assert disk.list_directory(f"{directory}/wal") == [], "a node would take it for a new directory"
    result = finish_fork(disk, to)
    if result is not None:
        return True
    if all((state := read_control_state(disk, each)) is not None and state.cluster_id == "d" for each in to):
        return True  # It had ended.
    forked(disk, to=to)
    return False


@pytest.mark.parametrize("to", [APART, IN_PLACE])
def test_death_at_each_disk_call_leaves_the_old_files_or_a_refused_directory(to: Sequence[str]) -> None:
    log = members.orders(3)
    decided = []
    call = 0
    while True:
        disk = members.cluster(log)
        source = judge_source(disk, IN_PLACE)
        disk.crash_at(disk.calls + call)
        try:
            fork(
                disk,
                source,
                cluster="d",
                members=new_members(to),
                entropy=random.Random(7),
                segment_bytes=members.SMALL.segment_bytes,
            )
        except SimulatedCrash:
            disk.crash(random.Random(call))
            decided.append(survives_death(disk, to, log))
        else:
            break
        for directory in to:
            check_not_forking(disk, directory)
        assert members.replayed(disk, *(each.strip("/") for each in to)) == members.visible(log), f"call {call}"
        call += 1
    assert decided == sorted(decided), "a fork that was decided stays decided"
    assert {False, True} == set(decided)


def test_node_that_ran_since_the_files_were_judged_is_noticed() -> None:
    """It may have acknowledged records that the judged files lack."""
    disk = members.cluster(members.orders())
    source = judge_source(disk, IN_PLACE)
    members.change_control(disk, "n2", term=5)
    with pytest.raises(ConfigError, match="a node has run on /n2 since its files were judged"):
        fork(disk, source, cluster="d", members=new_members(IN_PLACE), entropy=random.Random(7))
    for directory in IN_PLACE:
        check_not_forking(disk, directory)
