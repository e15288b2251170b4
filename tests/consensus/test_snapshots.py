"""Snapshots in the core: when one is offered and installed, in which order, and which state it must not undo."""

from __future__ import annotations

from dataclasses import replace

from tests.consensus.group import Disk, Group, Snapshot, record
from viewstamp.consensus.membership import Membership, MembershipEntry
from viewstamp.consensus.messages import AppendRequest, HistoryRequest, SnapshotOffer, VoteResponse
from viewstamp.consensus.ready import ResetLog, WriteHistory
from viewstamp.consensus.state import SnapshotPoint
from viewstamp.consensus.term_history import TermHistory
from viewstamp.ids import Index, NodeId, Term


def left_behind() -> Group:
    """n1 leads n2, both have dropped their logs up to a snapshot; n3 was down all the time and is up again."""
    group = Group(3)
    group.crash("n3")
    group.elect("n1", "n1", "n2")
    for number in range(10):
        group.propose("n1", b"%d" % number)
    group.run(5)
    for me in ("n1", "n2"):
        assert group.snapshot(me) is not None
        group.trim(me)
    group.start("n3")
    return group


def test_a_member_behind_the_begin_of_the_log_gets_the_snapshot_and_then_the_log() -> None:
    """A stopped node holds back nothing; it begins anew from a snapshot."""
    group = left_behind()
    group.run(10)
    assert any(isinstance(message, SnapshotOffer) for message in group.sent)
    assert group["n3"].disk.begin == group["n1"].disk.begin > 1
    group.propose("n1", b"after")
    group.run(10)
    assert group.values("n3") == [b"%d" % number for number in range(10)] + [b"after"]
    assert group.is_running("n3")


def test_a_member_that_still_fits_the_log_is_sent_batches_and_no_snapshot() -> None:
    group = Group(3)
    group.elect("n1")
    group.propose("n1", b"a")
    group.run(5)
    group.crash("n3")
    group.propose("n1", b"b")
    group.run(5)
    end = group["n3"].disk.end
    assert group.snapshot("n1") is not None
    group.trim("n1", end)
    group.start("n3")
    group.run(10)
    assert not any(isinstance(message, SnapshotOffer) for message in group.sent)
    assert group.values("n3") == [b"a", b"b"]


def test_the_log_is_reset_before_the_history_of_the_snapshot_is_stored() -> None:
    """If the history came first, it would describe the old tail as records of other terms (protocol rule 19)."""
    group = left_behind()
    group.is_quick_disk = False
    for _ in range(30):
        for me in ("n1", "n2", "n3"):
            group.tick(me)
            group.sync(me)
        group.deliver()
        if group.fetch_snapshot("n3"):
            break
    assert group["n3"].fetched is not None
    while not group.install("n3"):
        group.sync("n3")
    writes = [write for pending in group["n3"].queue for write in pending.writes]
    assert [type(write) for write in writes[-2:]] == [ResetLog, WriteHistory]


def test_a_death_between_the_file_and_the_reset_is_made_good_at_the_next_start() -> None:
    """The file is durable and the log is the old one.

    Recovery resets the log first, and repeats that as often as necessary.
    """
    group = left_behind()
    group["n3"].disk.snapshots.append(group["n1"].disk.snapshots[-1])
    for _ in range(2):
        group.restart("n3")
        assert group["n3"].disk.begin == group["n1"].disk.snapshots[-1].point.end
    group.run(10)
    assert group.values("n3") == [b"%d" % number for number in range(10)]


def test_a_snapshot_at_or_below_the_own_commit_is_ignored() -> None:
    group = left_behind()
    old = group["n1"].disk.snapshots[-1]
    group.run(10)
    raft = group["n3"].raft
    assert raft is not None
    before = list(group["n3"].disk.log)
    assert raft.install(old.point) is False
    assert group["n3"].disk.log == before


def test_a_snapshot_waits_until_no_write_is_under_way() -> None:
    """The completion of an older write must not count for the log that has been reset."""
    group = left_behind()
    group.is_quick_disk = False
    raft = group["n3"].raft
    assert raft is not None
    group.step("n3", HistoryRequest(source=NodeId("n1"), target=NodeId("n3"), term=Term(5), number=0))
    assert group["n3"].queue, "the write of the term is pending"
    point = group["n1"].disk.snapshots[-1].point
    assert raft.install(point) is None
    group.sync("n3")
    assert raft.install(point) is True


def test_while_a_snapshot_is_being_installed_the_member_answers_nothing() -> None:
    group = left_behind()
    group.is_quick_disk = False
    raft = group["n3"].raft
    assert raft is not None
    assert raft.install(group["n1"].disk.snapshots[-1].point)
    group.after("n3")
    sent = len(group.sent)
    group.step("n3", HistoryRequest(source=NodeId("n1"), target=NodeId("n3"), term=Term(9), number=0))
    assert len(group.sent) == sent


def test_a_restart_does_not_take_a_member_back_behind_the_term_that_it_has_reached() -> None:
    """The log behind the snapshot is empty, and the stored history contains a later term that begins right there.

    n2 holds records 1 to 4 of term 1 in a snapshot, and has reached the start of term 5, which is index 5. So the
    leader of term 5 may have committed records 1 to 4 through it. n3 alone holds another record 4, of term 3. If n2
    took the snapshot's history at each start, it would advertise (1, 5) again, vote for n3, and lose record 4: figure 8
    by a restart.
    """
    members = Membership({NodeId(f"n{number}"): f"at-n{number}" for number in (1, 2, 3)})
    applied = tuple(record(1, index) for index in range(1, 5))
    point = SnapshotPoint(
        end=Index(5),
        last_term=Term(1),
        history=TermHistory([(0, 1), (1, 1)]),
        membership=MembershipEntry(Index(0), Term(0), members),
        log_time=0,
    )
    reached = Disk(
        term=Term(5),
        history=TermHistory([(0, 1), (1, 1), (5, 5)]),
        begin=Index(5),
        begin_term=Term(1),
        commit_hint=Index(5),
        snapshots=[Snapshot(point, applied)],
    )
    stale = Disk(
        term=Term(3),
        history=TermHistory([(0, 1), (1, 1), (3, 4)]),
        batches=[record(1, 1), record(1, 2), record(1, 3), record(3, 4, b"never committed", previous_term=1)],
    )
    group = Group(3, disks={NodeId("n2"): reached, NodeId("n3"): stale})
    group.crash("n1")
    for _ in range(3):
        group.restart("n2")
    assert group["n2"].core.pair == (5, 5)
    group.campaign("n3")
    group.settle("n2", "n3")
    assert not any(message.granted for message in group.sent if isinstance(message, VoteResponse))
    group.elect("n2", "n2", "n3")
    group.run(5, "n2", "n3")
    assert [batch.term for batch in group["n3"].applied[:4]] == [1, 1, 1, 1]


def test_the_winner_of_an_election_trims_its_history_to_its_log() -> None:
    """Each election removes old entries, so that a log of many years has a short history.

    A member with a longer log keeps the entries for that part.
    """
    group = Group(3)
    for term in range(1, 6):
        group.elect(f"n{term % 2 + 1}")
        group.propose(f"n{term % 2 + 1}", b"%d" % term)
        group.run(5)
    assert group.snapshot("n1") is not None
    group.trim("n1")
    before = group["n1"].core.history
    group.elect("n1")
    group.run(5)
    after = group["n1"].core.history
    assert len(after.starts) < len(before.starts)
    assert after.starts[0].begin < group["n1"].disk.begin, (
        "the history still has the term of the record before the first"
    )
    kept = group["n3"].core.history
    assert kept.starts[0] == before.starts[0]
    assert kept.starts[-1] == after.starts[-1]


def test_a_batch_that_was_trimmed_while_it_was_wanted_leads_to_a_snapshot() -> None:
    """A slow member's read from disk comes back empty; the leader then asks the member again, and offers a snapshot."""
    options = replace(Group(3).options[NodeId("n1")], cache_bytes_max=0, in_flight_bytes_max=1)
    group = Group(3, options=options)
    group.elect("n1")
    group.crash("n3")
    for number in range(5):
        group.propose("n1", b"%d" % number)
    group.run(5, "n1", "n2")
    group.start("n3")
    for _ in range(20):
        group.tick("n1")
        group.deliver()
        if group["n1"].fetches:
            break
    assert group["n1"].fetches, "the leader reads from disk for n3"
    assert group.snapshot("n1") is not None
    group.trim("n1")
    group["n1"].fetches = [(fetch, []) for fetch, _ in group["n1"].fetches]
    group.run(20)
    assert any(isinstance(message, SnapshotOffer) for message in group.sent)
    assert group.values("n3") == [b"%d" % number for number in range(5)]


def test_the_slowest_member_that_is_being_sent_batches_is_known() -> None:
    """The records that it lacks are kept while there is room; a stopped member does not count (checklist B2, 10)."""
    group = Group(3)
    group.elect("n1")
    group.run(5)
    raft = group["n1"].raft
    assert raft is not None
    end = raft.core.log.end
    group.propose("n1", b"a")
    group.drop(AppendRequest, target="n3")
    group.settle("n1", "n2")
    assert raft.slowest_end == end < raft.core.log.end
    group.crash("n3")
    for _ in range(11 * raft.core.options.election_timeout_ticks):
        group.tick("n1")
        group.settle("n1", "n2")
    assert raft.core.leader == "n1"
    assert raft.slowest_end == raft.core.log.end


def test_a_member_that_takes_no_record_does_not_keep_the_log_although_it_answers() -> None:
    """A member whose log is full answers heartbeats. It can only go on from a snapshot, behind a trim."""
    group = Group(3)
    group.elect("n1")
    group.run(5)
    raft = group["n1"].raft
    assert raft is not None
    for number in range(3):
        group.propose("n1", b"%d" % number)
        group.drop(AppendRequest, target="n3")
    end = group["n3"].disk.end
    assert raft.slowest_end == end
    for _ in range(11 * raft.core.options.election_timeout_ticks):
        group.tick("n1")
        while group.messages:
            group.drop(AppendRequest, target="n3")
            group.deliver()
            for member in group.up():
                group.sync(member.me)
    assert group["n3"].disk.end == end
    assert raft.core.leader == "n1"
    assert raft.core.leading.progress[NodeId("n3")].ticks_since_response < raft.core.options.election_timeout_ticks
    assert raft.slowest_end == raft.core.log.end
    assert group.snapshot("n1") is not None
    group.trim("n1")
    group.run(20)
    assert group.values("n3") == [b"0", b"1", b"2"]
    group.propose("n1", b"3")
    assert raft.slowest_end < raft.core.log.end
