"""Completions of writes are matched by the term under which the write was accepted (rule 9)."""

from tests.consensus.group import Group, record, with_slow_disks
from tests.consensus.test_announcement import SYNC_ONLY, disk_of
from viewstamp.consensus.messages import (
    Announcement,
    AnnouncementResponse,
    AppendRequest,
    AppendResponse,
    HistoryRequest,
)
from viewstamp.consensus.ready import TruncateLog
from viewstamp.consensus.term_history import TermHistory
from viewstamp.ids import Index, NodeId, Term, Viewstamp


def announcement(term: int, history: list[tuple[int, int]], start: int, *, number: int = 1) -> Announcement:
    return Announcement(
        source=NodeId("n2"),
        target=NodeId("n1"),
        term=Term(term),
        number=number,
        history=TermHistory(history),
        start=Index(start),
    )


def test_a_completion_that_outlives_a_truncation_acknowledges_nothing() -> None:
    """The write of a term is pending when an announcement cuts the log, so its completion names the old end.

    It must neither make the cut log durable beyond its end nor end the installation.
    """
    group = Group(3, options=SYNC_ONLY, disks={NodeId("n1"): disk_of(1, 1, 1)}, is_quick_disk=False)
    member = group["n1"]
    group.step("n1", HistoryRequest(source=NodeId("n2"), target=NodeId("n1"), term=Term(2), number=0))
    group.step("n1", announcement(2, [(0, 1), (1, 1), (2, 2)], 2))
    assert [type(w).__name__ for p in member.queue for w in p.writes] == ["WriteTerm", "TruncateLog", "WriteHistory"]
    core = member.core
    group.write("n1")
    assert member.notices[0].notice == (0, 3)
    group.notify("n1")
    assert core.installing
    assert core.log.durable_end == core.log.end == 2
    group.sync("n1")
    assert [m.end for m in group.matching(AnnouncementResponse)] == [2]  # type: ignore[attr-defined]


def test_only_the_completion_of_its_own_writes_ends_the_installation() -> None:
    """A second announcement of the term, after a snapshot replaced the history, and while an answer waits for the disk.

    The completion of the answer's write has the announcement's term and end. If it counted as the announcement's, the
    member would acknowledge before the term's history is on its disk, and after a crash it would advertise less than it
    had promised.
    """
    group = Group(3, options=SYNC_ONLY, disks={NodeId("n1"): disk_of(1)}, is_quick_disk=False)
    core = group["n1"].core
    group.step("n1", announcement(2, [(0, 1), (1, 1), (2, 2)], 2))
    group.sync("n1")
    group.step("n1", HistoryRequest(source=NodeId("n2"), target=NodeId("n1"), term=Term(2), number=1))
    core.history = group["n1"].disk.history = TermHistory([(0, 1), (1, 1)])  # As by a snapshot installed in between.
    group.step("n1", announcement(2, [(0, 1), (1, 1), (2, 2)], 2, number=2))
    group.messages.clear()
    group.write("n1")
    assert [pending.notice for pending in group["n1"].notices] == [core.durable_viewstamp()]
    group.notify("n1")
    assert core.installing
    assert not group.matching(AnnouncementResponse)
    group.sync("n1")
    assert group.matching(AnnouncementResponse)


def test_the_same_record_cut_and_appended_again_is_another_write() -> None:
    """A completion with the record's own (term, index) cannot distinguish the two writes; ours names the leadership."""
    group = Group(3, options=SYNC_ONLY, disks={NodeId("n1"): disk_of(1, 1)}, is_quick_disk=False)
    member = group["n1"]
    group.step("n1", announcement(3, [(0, 1), (1, 1), (3, 4)], 3))
    group.sync("n1")
    first = member.core.durable_viewstamp()
    assert first == (3, 2), "the term of the announcement, the last index: not the 1 in the record's header"
    append = AppendRequest(
        source=NodeId("n2"),
        target=NodeId("n1"),
        term=Term(3),
        number=1,
        start=Index(3),
        previous_term=Term(1),
        commit_end=Index(1),
        batches=(record(1, 3),),
    )
    group.step("n1", append)
    assert member.queue[0].notice == (3, 3)
    assert member.raft is not None
    before = member.core.log.durable_end
    member.raft.durable(Viewstamp(Term(1), Index(3)))
    assert member.core.log.durable_end == before < 4, "the term in the record's header does not count"
    member.raft.durable(Viewstamp(Term(3), Index(3)))
    assert member.core.log.durable_end == 4


def test_a_completion_covers_all_writes_before_it() -> None:
    group = with_slow_disks()
    for value in (b"a", b"b", b"c"):
        group.propose("n1", value)
    group.write("n1", 3)
    last = group["n1"].notices.pop()
    group["n1"].notices.clear()
    assert group["n1"].raft is not None
    group["n1"].raft.durable(last.notice)
    group.after("n1")
    assert group["n1"].core.log.durable_end == 5


def test_requests_received_while_the_log_was_not_synced_are_answered_when_it_is() -> None:
    """The member keeps only the latest request of each kind from each member."""
    group = Group(3, options=SYNC_ONLY, disks={NodeId("n1"): disk_of(1)}, is_quick_disk=False)
    member = group["n1"]
    member.core.append(record(1, 2))
    group.after("n1")
    stale = announcement(2, [(0, 1), (1, 1), (2, 2)], 1)
    group.step("n1", stale, announcement(2, [(0, 1), (1, 1), (2, 2)], 2, number=2))
    assert len(member.core.stash) == 1
    group.sync("n1")
    assert [m.number for m in group.matching(AnnouncementResponse)] == [2]  # type: ignore[attr-defined]
    assert member.core.stash == {}


def test_a_completion_under_a_former_leader_is_not_acknowledged_to_the_new_one_before_its_announcement() -> None:
    group = with_slow_disks()
    group.propose("n1", b"a")
    group.deliver(AppendRequest, target="n2")
    group.is_quick_disk = True
    group.drop()
    member = group["n2"]
    assert member.queue
    heartbeat = announcement(9, [(0, 1), (9, 1)], 1)
    assert heartbeat.term == 9
    group.step(
        "n2",
        AppendRequest(
            source=NodeId("n3"),
            target=NodeId("n2"),
            term=Term(9),
            number=1,
            start=Index(2),
            previous_term=Term(1),
            commit_end=Index(1),
            batches=(),
        ),
    )
    group.sync("n2")
    assert group.matching(AppendResponse, source="n2") == []
    assert member.core.log.durable_end == 3


def test_no_truncation_is_handed_out_behind_an_append_of_the_same_turn() -> None:
    """The cut of a truncation waits until the appends of the same turn are durable."""
    group = with_slow_disks("n2")
    group.propose("n2", b"a")
    [append] = group.matching(AppendRequest, target="n1")
    group.drop()
    group.step("n1", append, announcement(5, [(0, 1), (1, 1), (5, 2)], 2))
    assert TruncateLog not in [type(w) for p in group["n1"].queue for w in p.writes]
    group.sync("n1")
    assert group["n1"].disk.log[-2:] == ["truncate 2", "history [(0,1), (1,1), (5,2)]"]
