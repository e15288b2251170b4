"""The choice of the log, and the batches that lead back from its end."""

from __future__ import annotations

import pytest

from tests.replay.members import (
    NAMES,
    Log,
    change_control,
    cluster,
    flip,
    opened,
    orders,
    places_of,
    replayed,
    shown,
    visible,
    write_control,
    write_member,
    write_snapshot,
)
from viewstamp.errors import ConfigError, CorruptionError, NoQuorumError
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.wire.batch import Kind


def test_three_equal_members_give_each_record_once() -> None:
    log = orders()
    disk = cluster(log)
    replay = opened(disk)
    assert shown(disk, replay) == visible(log)
    summary = replay.summary()
    assert (summary.replicas, summary.dropped_divergent, summary.repaired, summary.corrupt) == (3, 0, 0, 0)
    assert (summary.records, summary.batches) == (12, 6)
    assert replay.findings == []


def test_the_suffix_of_a_deposed_leader_is_dropped() -> None:
    """The winner ends at (term 4, index 5). A leader of term 3 holds 6 and 7, and no other replica has those."""
    log = Log()
    log.membership()
    log.topic()
    log.records(b"three")
    deposed = log.copy()
    deposed.term = 3
    for value in (b"four of term 3", b"five of term 3", b"six of term 3", b"seven of term 3"):
        deposed.records(value)
    log.term = 4
    log.records(b"four of term 4")
    log.records(b"five of term 4")
    assert (log.end, deposed.end) == (6, 8)
    disk = SimulatedDisk()
    for name, held in zip(NAMES, (log, deposed, log), strict=True):
        write_member(disk, name, held)
    replay = opened(disk)
    assert shown(disk, replay) == visible(log)
    assert replay.summary().dropped_divergent == 4
    assert replay.summary().not_known_committed == 3


def test_a_higher_term_in_the_middle_is_dropped() -> None:
    """At index 5 the winner has a record of term 2 and a minority one of term 4; the winner's next one is of term 5."""
    log = Log()
    log.membership()
    log.topic()
    log.records(b"three")
    log.records(b"four")
    minority = log.copy()
    log.term = 2
    log.records(b"five of term 2")
    log.term = 5
    log.records(b"six of term 5")
    minority.term = 4
    minority.records(b"five of term 4")
    disk = SimulatedDisk()
    for name, held in zip(NAMES, (log, log, minority), strict=True):
        write_member(disk, name, held)
    replay = opened(disk)
    assert [value for _, _, value in shown(disk, replay)] == [b"three", b"four", b"five of term 2", b"six of term 5"]
    assert replay.summary().dropped_divergent == 1


def test_a_term_without_a_record_wins_over_a_longer_log() -> None:
    """The member that took the announcement of term 3 would not vote for a log that ends in term 2, however long."""
    log = orders()
    longer = log.copy()
    longer.term = 2
    longer.records(b"never committed")
    disk = SimulatedDisk()
    write_member(disk, "n1", log, history=[*log.history, (3, log.end)])
    write_member(disk, "n2", longer)
    replay = opened(disk, "n1", "n2")
    assert shown(disk, replay) == visible(log)
    assert replay.summary().dropped_divergent == 1


def test_stored_history_beyond_the_end_of_the_log_does_not_count() -> None:
    """It was stored, but the crash cut off its records. So only the part within the log is advertised."""
    log = orders()
    longer = log.copy()
    longer.term = 2
    longer.records(b"of term 2")
    disk = SimulatedDisk()
    write_member(disk, "n1", log, history=[*log.history, (3, log.end + 5)])
    write_member(disk, "n2", longer)
    assert replayed(disk, "n1", "n2") == visible(longer)


def test_longest_log_of_the_last_term_is_taken_and_records_not_known_to_be_committed_are_counted() -> None:
    log = orders(6)
    disk = SimulatedDisk()
    write_member(disk, "n1", orders(4), hint=7)
    write_member(disk, "n2", log, hint=5)
    replay = opened(disk, "n1", "n2")
    assert shown(disk, replay) == visible(log)
    assert replay.summary().not_known_committed == 8


@pytest.mark.parametrize("name", NAMES)
def test_one_member_of_three_is_refused_and_taken_unsafely(name: str) -> None:
    log = orders()
    disk = cluster(log)
    with pytest.raises(NoQuorumError, match="a majority of n1, n2, n3 is needed") as caught:
        opened(disk, name)
    assert all(other in caught.value.message for other in NAMES)
    assert "--unsafe" in caught.value.remedy
    replay = opened(disk, name, unsafe=True)
    assert not replay.is_majority
    assert shown(disk, replay) == visible(log)


def test_two_of_three_are_enough() -> None:
    log = orders()
    disk = cluster(log)
    for left_out in NAMES:
        names = [name for name in NAMES if name != left_out]
        assert replayed(disk, *names) == visible(log)


def test_learner_does_not_vote_but_provides_its_batches() -> None:
    log = orders()
    disk = SimulatedDisk()
    write_member(disk, "n1", log)
    write_member(disk, "n9", log)
    with pytest.raises(NoQuorumError, match="missing: n2, n3"):
        opened(disk, "n1", "n9")
    write_member(disk, "n2", log)
    places = [list(places_of(disk, name, lambda batch: batch.kind is Kind.RECORDS)) for name in ("n1", "n2")]
    for path, at in (*places[0][:-2], *places[1][:-2]):
        flip(disk, path, at + 100)
    assert replayed(disk, "n1", "n2", "n9") == visible(log)
    # The last group of each could be a torn tail, and on a damaged disk it could be rot: their ends are not known.
    flip(disk, places[0][-1][0], places[0][-1][1] + 100)
    flip(disk, places[1][-1][0], places[1][-1][1] + 100)
    with pytest.raises(NoQuorumError, match="the end of the log of n1 is lost"):
        opened(disk, "n1", "n2", "n9")


def test_logs_of_two_groups_do_not_elect_together() -> None:
    log = orders()
    disk = cluster(log)
    change_control(disk, "n2", group=7)
    with pytest.raises(ConfigError, match="/n2 belongs to group 7, /n1 to group 0"):
        opened(disk)


def test_one_node_named_twice_does_not_vote_twice() -> None:
    log = orders()
    disk = SimulatedDisk()
    write_member(disk, "n1", log)
    write_member(disk, "copy", log, node="n1")
    with pytest.raises(ConfigError, match="both belong to member n1"):
        opened(disk, "n1", "copy")
    with pytest.raises(ConfigError, match="named twice"):
        opened(disk, "n1", "n1")


def test_members_of_two_clusters_are_refused() -> None:
    disk = cluster(orders())
    for copy in ("control-a", "control-b"):
        disk.remove(f"/n2/{copy}")
    write_control(disk, "n2", orders().history, cluster_id="another")
    with pytest.raises(ConfigError, match="/n2 belongs to cluster another, /n1 to c"):
        opened(disk)


def test_equal_viewstamps_with_different_bytes_are_reported_and_never_picked() -> None:
    log = orders()
    other = orders(3)
    other.records(b"4A", b"4B")
    other.records(b"5a", b"5b")
    disk = SimulatedDisk()
    write_member(disk, "n1", log)
    write_member(disk, "n2", log)
    write_member(disk, "n3", other)
    replay = opened(disk)
    assert isinstance(replay.problem, CorruptionError)
    assert "term 1, indices 9 to 10" in replay.problem.message
    assert replay.summary().corrupt >= 1
    with pytest.raises(CorruptionError):
        shown(disk, replay)


def test_log_that_ends_below_a_committed_record_is_rejected() -> None:
    """Another member's files show that more was committed than these members hold."""
    log = orders()
    disk = SimulatedDisk()
    write_member(disk, "n1", orders(2), hint=log.end)
    write_member(disk, "n2", orders(3))
    write_member(disk, "n3", orders(3))
    problem = opened(disk).problem
    assert isinstance(problem, CorruptionError)
    assert "indices 9 to 14 are missing" in problem.message
    taken = opened(disk, unsafe=True)
    assert shown(disk, taken) == visible(orders(3))
    assert "index 14 was committed, but this log ends at 8" in [each.text for each in taken.findings]


def test_a_committed_record_that_is_not_in_the_chosen_log_is_a_contradiction() -> None:
    log = orders(3)
    committed = log.copy()
    committed.records(b"committed")
    log.term = 2
    log.records(b"another")
    log.records(b"yet another")
    disk = SimulatedDisk()
    write_member(disk, "n1", committed, hint=committed.end)
    write_member(disk, "n2", log)
    write_member(disk, "n3", log)
    problem = opened(disk).problem
    assert isinstance(problem, CorruptionError)
    assert "committed according to n1" in problem.message


def trimmed_and_stopped(*, hint: int, other: bytes | None = None) -> tuple[SimulatedDisk, Log, Log]:
    """n3 stopped in term 1; n1 and n2 continued in terms 2 and 4, and their logs and histories begin after n3's end.

    With ``other`` the last two records of n3 have this value, and term 3.
    """
    log = orders(3)
    stopped = log.copy()
    if other is not None:
        stopped.batches.pop()
        stopped.term = 3
        stopped.records(other, other)
    log.term = 2
    for number in range(6):
        log.records(b"of term 2, %d" % number)
    log.command(Kind.TRIM_TOPIC, name="orders", position=10)
    log.term = 4
    log.records(b"last")
    history = [(2, log.batches[8].first_index), (4, log.batches[-1].first_index)]
    disk = SimulatedDisk()
    for name in ("n1", "n2"):
        write_member(disk, name, log, first=8, history=history)
        write_snapshot(disk, name, log, history=history)
    write_member(disk, "n3", stopped, hint=hint)
    write_snapshot(disk, "n3", orders(1))
    return disk, log, stopped


def test_records_known_to_be_committed_by_a_member_that_stopped_long_ago_are_no_contradiction() -> None:
    """n3's log ends before the trimmed logs of n1 and n2 begin. Only n3's snapshot has the terms of n3's records."""
    disk, log, stopped = trimmed_and_stopped(hint=9)
    assert stopped.end == 9
    replay = opened(disk)
    assert shown(disk, replay) == [each for each in visible(log) if each[1] >= 10]
    assert replay.chain is not None
    assert [(gap.first, gap.end) for gap in replay.chain.gaps] == [(9, log.batches[8].first_index)]
    assert (replay.chain.begin, replay.summary().dropped_divergent) == (1, 0)


def test_no_batch_below_a_gap_is_taken_that_no_member_knew_to_be_committed() -> None:
    disk, log, _ = trimmed_and_stopped(hint=7)
    replay = opened(disk)
    assert shown(disk, replay) == [each for each in visible(log) if each[1] >= 10]
    assert replay.chain is not None
    assert [(gap.first, gap.end) for gap in replay.chain.gaps] == [(7, log.batches[8].first_index)]
    assert replay.summary().dropped_divergent == 1


def test_batches_below_a_gap_that_cannot_be_passed_are_reported() -> None:
    """No stored history reaches down to them, and no replica knew that they were committed."""
    disk, _, stopped = trimmed_and_stopped(hint=0)
    (name,) = disk.list_directory("/n3/snapshots")
    disk.remove(f"/n3/snapshots/{name}")
    replay = opened(disk)
    assert replay.chain is not None
    assert replay.chain.unlinked == len(stopped.batches)
    assert [finding.kind for finding in replay.findings if "could not be followed" in finding.text] == ["not linked"]


def test_a_committed_record_of_a_later_term_below_a_gap_is_a_contradiction() -> None:
    """Terms never decrease along a log: above the gap it is in term 2, so no record of term 3 was committed below."""
    disk, _, _ = trimmed_and_stopped(hint=9, other=b"of term 3")
    problem = opened(disk).problem
    assert isinstance(problem, CorruptionError)
    assert "term 3, indices 7 to 8: committed according to n3" in problem.message
