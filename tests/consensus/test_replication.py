"""Batches from the leader to the members: only missing ones, in bounded pieces, and every loss is repaired."""

from dataclasses import replace

import pytest

from tests.consensus.group import OPTIONS, Disk, Group, record
from viewstamp.consensus.messages import (
    Announcement,
    AppendRequest,
    AppendResponse,
    HeartbeatRequest,
    HistoryResponse,
    TermResponse,
)
from viewstamp.consensus.progress import ProgressState
from viewstamp.consensus.roles import Role
from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import OverloadedError, PeerError
from viewstamp.ids import Index, NodeId, Term


def running(**options: object) -> Group:
    """Return a group of three, led by n1, RUNNING on every member, without messages in flight."""
    group = Group(3, options=replace(OPTIONS, **options))  # type: ignore[arg-type]
    group.elect("n1")
    group.run(3)
    assert all(group.is_running(me) for me in group.members)
    group.sent.clear()
    return group


def appends_to(group: Group, target: str) -> list[AppendRequest]:
    return [m for m in group.sent if isinstance(m, AppendRequest) and m.target == target]


def test_an_append_is_committed_and_applied_everywhere() -> None:
    group = running()
    group.propose("n1", b"a", b"b")
    group.propose("n1", b"c")
    group.run(3)
    assert [group.values(me) for me in group.members] == [[b"a", b"b", b"c"]] * 3


def test_the_leader_sends_before_its_own_disk_and_may_commit_without_it() -> None:
    """Two followers are a quorum; the leader's own sync is only a third vote (thesis 10.2.1)."""
    group = running()
    group.is_quick_disk = False
    group.propose("n1", b"a")
    group.deliver(AppendRequest)
    group.sync("n2")
    group.sync("n3")
    group.deliver(AppendResponse)
    assert group.values("n1") == [b"a"]
    assert group["n1"].core.log.durable_end < group["n1"].core.log.commit_end
    assert group["n1"].disk.commit_hint <= group["n1"].disk.end


def test_only_the_missing_suffix_is_sent_to_each_member() -> None:
    """The sent bytes show that a member that was down gets the records that it lacks, and no member gets any twice."""
    group = running()
    for _ in range(5):
        group.propose("n1", b"x" * 100)
    group.run(3)
    group.crash("n3")
    missing = 0
    for _ in range(4):
        group.propose("n1", b"y" * 50)
        missing += group["n1"].disk.batches[-1].size
    group.run(3)
    group.sent.clear()
    group.start("n3")
    group.run(6)
    assert sum(batch.size for message in appends_to(group, "n3") for batch in message.batches) == missing
    assert appends_to(group, "n2") == []
    assert group.values("n3") == group.values("n1")


def test_bytes_in_flight_are_bounded_and_an_acknowledgement_makes_room() -> None:
    """At most the window and the append that filled it; without answers nothing more is sent."""
    group = running(in_flight_bytes_max=1000, append_bytes_max=400)
    group.crash("n3")
    for _ in range(40):
        group.propose("n1", b"x" * 60)
    in_flight = sum(batch.size for message in appends_to(group, "n2") for batch in message.batches)
    assert 1000 <= in_flight <= 1000 + 400
    assert group["n1"].core.leading.progress[NodeId("n2")].in_flight_bytes == in_flight
    group.deliver(AppendRequest, target="n2")
    group.drop(AppendResponse, source="n2")
    assert len(group.matching(AppendRequest, target="n2")) == 0
    group.run(6)
    assert group.values("n2") == [b"x" * 60] * 40


def test_one_append_holds_a_bounded_run_of_batches_and_a_large_batch_goes_alone() -> None:
    group = running(append_bytes_max=400)
    group.crash("n3")
    group.crash("n2")
    for size in (50, 50, 2000, 50):
        group.propose("n1", b"x" * size)
    group.sent.clear()
    group.start("n2")
    group.run(6)
    sizes = [[batch.size for batch in message.batches] for message in appends_to(group, "n2")]
    assert all(len(run) == 1 or sum(run) <= 400 for run in sizes)
    assert [run[0] > 2000 for run in sizes if len(run) == 1].count(True) == 1
    assert group["n2"].core.log.end == group["n1"].core.log.end


def test_a_leader_takes_no_more_than_its_limit_of_uncommitted_bytes() -> None:
    group = running(uncommitted_bytes_max=500)
    group.crash("n2")
    group.crash("n3")
    while group["n1"].core.leading.uncommitted_bytes < 300:
        group.propose("n1", b"x" * 100)
    with pytest.raises(OverloadedError, match="wait to be committed"):
        group.propose("n1", b"x" * 200)
    assert group["n1"].core.leading.uncommitted_bytes <= 500
    group.start("n2")
    group.run(6)
    group.propose("n1", b"after")
    group.run(2)
    assert group.values("n2")[-1] == b"after"


def test_a_lost_append_is_found_by_the_next_and_sent_again_once() -> None:
    """One append is lost, and a hundred small ones follow, each beyond the end of the member's log.

    The member reports this each time. If each of these answers made the leader send the whole window again, a hundred
    batches would become ten thousand.
    """
    group = running()
    group.crash("n3")
    for number in range(100):
        group.propose("n1", b"%d" % number)
    group._take(group.matching(AppendRequest, target="n2")[0])
    group.run(4)
    assert group.values("n2") == [b"%d" % number for number in range(100)]
    assert sum(len(message.batches) for message in appends_to(group, "n2")) <= 3 * 100


def test_a_lost_last_append_is_found_by_the_heartbeat() -> None:
    group = running()
    group.propose("n1", b"a")
    group.drop(AppendRequest)
    group.run(3)
    assert group.values("n3") == [b"a"]


def test_a_lost_answer_is_made_good_by_the_next_heartbeat() -> None:
    group = running()
    group.propose("n1", b"a")
    group.deliver(AppendRequest)
    group.drop(AppendResponse)
    assert group.values("n1") == []
    group.run(3)
    assert group.values("n1") == [b"a"]


def test_a_doubled_append_is_answered_with_the_end_and_changes_nothing() -> None:
    """Its acknowledgement may have been lost.

    If the doubled append were an error, it would stall the follower (rule 6).
    """
    group = running()
    group.propose("n1", b"a")
    [message] = group.deliver(AppendRequest, target="n2", keep=True)
    end = group["n2"].core.log.end
    group.drop(AppendResponse)
    group.step("n2", message)
    [answer] = group.matching(AppendResponse, source="n2")
    assert isinstance(answer, AppendResponse)
    assert (answer.end, answer.rejected) == (end, False)
    assert group["n2"].core.log.end == end


def test_an_append_beyond_the_end_is_refused_with_the_end() -> None:
    group = running()
    group.propose("n1", b"a")
    group.propose("n1", b"b")
    second = group.matching(AppendRequest, target="n2")[1]
    end = group["n2"].core.log.end
    group.step("n2", second)
    [answer] = group.matching(AppendResponse, source="n2")
    assert isinstance(answer, AppendResponse)
    assert (answer.received_end, answer.rejected) == (end, True)
    assert group["n2"].core.log.end == end


def test_an_append_that_overlaps_the_end_is_never_taken_in_part() -> None:
    """Appends are accepted exactly at the end of the log, so nothing is rewritten."""
    group = running()
    group.propose("n1", b"a")
    group.propose("n1", b"b")
    first, second = group.matching(AppendRequest, target="n2")
    assert isinstance(first, AppendRequest)
    assert isinstance(second, AppendRequest)
    group.step("n2", first)
    both = replace(first, batches=first.batches + second.batches)
    written = list(group["n2"].disk.log)
    group.step("n2", both)
    assert group["n2"].disk.log == written
    group.run(3)
    assert group.values("n2") == [b"a", b"b"]


def test_an_append_before_the_announcement_is_not_taken_but_asks_for_one() -> None:
    """A restarted member has accepted no announcement.

    Its log equals the leader's, but only the leader can determine that.
    """
    group = running()
    group.restart("n2")
    group.propose("n1", b"a")
    group.deliver(AppendRequest, target="n2")
    assert "2.2" not in group["n2"].disk.records()
    assert len(group.matching(HistoryResponse, source="n2")) == 1
    group.run(2)
    assert group.values("n2") == [b"a"]


def test_an_append_of_an_older_term_is_answered_with_the_present_one_and_the_sender_steps_down() -> None:
    group = running()
    group.propose("n1", b"late")
    late = group.drop(AppendRequest, target="n2")[0]
    group.drop()
    group.elect("n2", "n2", "n3")
    end = group["n2"].core.log.end
    group.step("n2", late)
    assert group["n2"].core.log.end == end
    assert len(group.matching(TermResponse, target="n1")) == 1
    assert group["n1"].core.role is Role.LEADER
    group.deliver(TermResponse, target="n1")
    assert group["n1"].core.role is Role.FOLLOWER
    assert group["n1"].core.term == group["n2"].core.term


def test_an_acknowledgement_under_an_older_announcement_does_not_count() -> None:
    """A restarted member has lost nothing, but only its reports since the new announcement count, lower or not."""
    group = running()
    group.propose("n1", b"a")
    group.deliver(AppendRequest, target="n2")
    [old] = group.drop(AppendResponse, source="n2")
    group.restart("n2")
    group.run(2)
    progress = group["n1"].core.leading.progress[NodeId("n2")]
    before = (progress.number, progress.durable_end)
    assert isinstance(old, AppendResponse)
    assert old.number < progress.number
    group.step("n1", old)
    assert (progress.number, progress.durable_end) == before


def test_a_member_that_claims_more_than_its_leader_holds_is_a_broken_peer() -> None:
    group = running()
    group.propose("n1", b"a")
    group.deliver(AppendRequest, target="n2")
    [answer] = group.drop(AppendResponse, source="n2")
    assert isinstance(answer, AppendResponse)
    with pytest.raises(PeerError, match="n2 synced 4 of 3"):
        group.step("n1", replace(answer, end=Index(answer.end + 1)))


def test_an_append_whose_previous_term_is_wrong_is_refused() -> None:
    group = running()
    group.propose("n1", b"a")
    [message] = group.drop(AppendRequest, target="n2")
    assert isinstance(message, AppendRequest)
    with pytest.raises(PeerError, match="has term 7 before index"):
        group.step("n2", replace(message, previous_term=Term(7)))


def test_a_batch_of_a_term_that_was_not_announced_is_refused() -> None:
    group = running()
    group.propose("n1", b"a")
    [message] = group.drop(AppendRequest, target="n2")
    assert isinstance(message, AppendRequest)
    with pytest.raises(PeerError, match="were announced"):
        group.step("n2", replace(message, batches=(record(9, message.start),)))


def test_a_cold_log_is_read_from_disk_for_a_member_that_is_far_behind() -> None:
    """Batches that have left the memory are read from disk, one bounded piece at a time."""
    group = running(cache_bytes_max=0, append_bytes_max=500)
    group.crash("n3")
    for number in range(30):
        group.propose("n1", b"%d" % number)
        group.settle()
    assert group["n1"].core.log.slice(Index(2), 100) is None
    group.start("n3")
    for _ in range(40):
        group.tick("n1")
        group.deliver()
        assert len(group["n1"].fetches) <= 1
        group.answer_fetches("n1")
    group.run(3)
    assert group.values("n3") == [b"%d" % number for number in range(30)]
    assert all(sum(b.size for b in m.batches) <= 500 for m in appends_to(group, "n3"))


def test_a_read_from_disk_that_comes_too_late_is_dropped() -> None:
    """The leader was deposed, its log cut and rewritten, and it leads again: the old bytes must not be sent."""
    group = running(cache_bytes_max=0, append_bytes_max=500)
    group.crash("n3")
    for number in range(10):
        group.propose("n1", b"%d" % number)
        group.settle()
    group.start("n3")
    group.run(2, "n3")
    while not group["n1"].fetches:
        group.tick("n1")
        group.deliver()
    late = list(group["n1"].fetches)
    group["n1"].fetches.clear()
    group.drop()
    group.elect("n2", "n1", "n2")
    group.elect("n1", "n1", "n2")
    group["n1"].fetches = late
    group.sent.clear()
    group.answer_fetches("n1")
    assert appends_to(group, "n3") == []
    group.run(8)
    assert group.values("n3") == group.values("n1")


def test_an_empty_read_from_disk_is_asked_for_again() -> None:
    group = running(cache_bytes_max=0)
    group.crash("n3")
    for number in range(5):
        group.propose("n1", b"%d" % number)
        group.settle()
    group.start("n3")
    while not group["n1"].fetches:
        group.tick("n1")
        group.deliver()
    group["n1"].fetches = [(fetch, []) for fetch, _ in group["n1"].fetches]
    group.answer_fetches("n1")
    group.run(3)
    assert group.values("n3") == group.values("n1")


def test_a_commit_that_no_append_carries_is_sent_at_the_next_tick() -> None:
    """At the next tick instead of the next heartbeat, so that reads on a follower do not lag by that interval."""
    group = running()
    group.propose("n1", b"a")
    group.settle()
    assert group.values("n2") == []
    group.tick("n1")
    assert [m.commit_end for m in group.matching(HeartbeatRequest, target="n2")] == [  # type: ignore[attr-defined]
        group["n1"].core.log.commit_end
    ]
    group.deliver(HeartbeatRequest)
    assert group.values("n2") == [b"a"]


def test_a_member_takes_no_commit_index_before_the_announcement() -> None:
    """Rule 8: its own log may hold other records there; here, the cut tail of an older term."""
    tail = Disk(
        term=Term(1),
        history=TermHistory([(0, 1), (1, 1)]),
        batches=[record(1, 1, previous_term=0), record(1, 2), record(1, 3)],
    )
    short = [
        Disk(term=Term(1), history=TermHistory([(0, 1), (1, 1)]), batches=[record(1, 1, previous_term=0)])
        for _ in range(2)
    ]
    group = Group(3, disks={NodeId("n1"): tail, NodeId("n2"): short[0], NodeId("n3"): short[1]})
    group.elect("n2", "n2", "n3")
    group.propose("n2", b"new")
    group.run(3, "n2", "n3")
    heartbeat = HeartbeatRequest(
        source=NodeId("n2"),
        target=NodeId("n1"),
        term=Term(2),
        number=1,
        commit_end=group["n2"].core.log.commit_end,
        sent_end=Index(1),
        round=0,
    )
    group.step("n1", heartbeat)
    assert group["n1"].core.log.commit_end == 1
    group.run(4)
    assert group.values("n1")[-1] == b"new"
    assert "1.2" not in group["n1"].disk.records()


def test_a_member_whose_announcement_takes_long_is_replicated_to_in_the_end() -> None:
    """If its disk is so slow that the leader asks again meanwhile, its late answer still counts.

    Else it would never finish.
    """
    group = Group(3)
    group.elect("n1", "n1", "n2")
    group.is_quick_disk = False
    slow = group["n3"]
    ticks_since_write = 0
    for _ in range(300):
        group.tick("n1")
        group.tick("n3")
        group.deliver()
        group.sync("n1")
        group.sync("n2")
        ticks_since_write = ticks_since_write + 1 if slow.queue else 0
        if ticks_since_write == 15:
            group.sync("n3")
            ticks_since_write = 0
        if group["n1"].core.leading.progress[NodeId("n3")].state is ProgressState.REPLICATING:
            break
    assert group["n1"].core.leading.progress[NodeId("n3")].state is ProgressState.REPLICATING
    assert len([m for m in group.sent if isinstance(m, Announcement) and m.target == "n3"]) <= 2


def test_a_member_that_takes_no_appends_is_probed_now_and_then_and_not_sent_its_window_at_every_heartbeat() -> None:
    """The member's disk is full, so its node drops batches, and every response to a heartbeat reports a short log.

    If clients read meanwhile, there is a heartbeat in every turn.
    """
    group = running(append_bytes_max=500, in_flight_bytes_max=5000)
    for _ in range(20):
        group.propose("n1", b"x" * 100)
    group.drop(AppendRequest, target="n3")
    group.sent.clear()
    for _ in range(200):
        group.tick("n1")
        group.read("n1")
        group.drop(AppendRequest, target="n3")
        group.settle()
        group.drop(AppendRequest, target="n3")
    resent = sum(batch.size for message in appends_to(group, "n3") for batch in message.batches)
    assert resent <= 500 * (200 / (4 * OPTIONS.heartbeat_ticks) + 2)
    group.run(20)
    assert group.values("n3") == group.values("n1") == [b"x" * 100] * 20
