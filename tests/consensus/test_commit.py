"""The commit rule: rule 7, and the mode that proposes nothing."""

from dataclasses import replace

from tests.consensus.group import OPTIONS, Group, age, with_slow_disks
from tests.consensus.test_announcement import SYNC_ONLY, disk_of
from viewstamp.consensus.messages import (
    Announcement,
    AnnouncementResponse,
    AppendRequest,
    AppendResponse,
    HeartbeatResponse,
    PreVoteRequest,
    PreVoteResponse,
    VoteRequest,
    VoteResponse,
)
from viewstamp.consensus.progress import ProgressState
from viewstamp.consensus.roles import Lifecycle, Role
from viewstamp.ids import Index, NodeId

VOTES = (PreVoteRequest, PreVoteResponse, VoteRequest, VoteResponse)


def commit_index(group: Group, me: str) -> int:
    return group[me].core.log.commit_end - 1


def test_the_end_in_a_vote_response_is_no_acknowledgement() -> None:
    """The voters hold all of the winner's records.

    But nothing is committed before they have accepted the announcement.
    """
    group = Group(3, options=SYNC_ONLY, disks={NodeId(me): disk_of(1, 1) for me in ("n1", "n2", "n3")})
    group.campaign("n1")
    for kind in VOTES:
        group.deliver(kind)
    assert group["n1"].core.role is Role.LEADER
    assert commit_index(group, "n1") == 0
    group.deliver(Announcement)
    assert commit_index(group, "n1") == 0
    group.deliver(AnnouncementResponse, source="n2")
    assert commit_index(group, "n1") == 2


def test_a_long_divergent_log_does_not_count_before_it_was_cut() -> None:
    """n3's end is beyond the leader's term start, but its records differ."""
    group = Group(
        3,
        options=SYNC_ONLY,
        disks={NodeId("n1"): disk_of(1, 2), NodeId("n2"): disk_of(1), NodeId("n3"): disk_of(1, 1, 1, 1)},
    )
    for me in ("n2", "n3"):
        age(group[me].core, 10)
    group.campaign("n1")
    for kind in VOTES:
        group.deliver(kind)
    group.deliver(Announcement, target="n3")
    [response] = group.matching(AnnouncementResponse, source="n3")
    assert isinstance(response, AnnouncementResponse)
    assert response.end == 2, "it reports its end after the cut"
    group.deliver(AnnouncementResponse)
    assert commit_index(group, "n1") == 0, "it has not reached the term start 3"
    group.deliver(AppendRequest, target="n3")
    group.deliver(AppendResponse, source="n3")
    assert commit_index(group, "n1") == 2


def test_from_the_moment_that_a_quorum_reached_the_term_start_old_records_are_committed() -> None:
    """No record of the leader's own term is needed: the announcement works like a record without length."""
    group = Group(3, options=SYNC_ONLY, disks={NodeId("n1"): disk_of(1, 1, 1)})
    group.elect("n1")
    assert group["n1"].disk.records() == ["1.1", "1.2", "1.3"]
    assert commit_index(group, "n1") == 3


def test_a_leader_counts_itself_only_from_its_own_sync() -> None:
    group = Group(3)
    group.elect("n1")
    group.run(3)
    group.crash("n3")
    group.is_quick_disk = False
    group.propose("n1", b"a")
    group.deliver(AppendRequest)
    group.sync("n2")
    group.deliver(AppendResponse)
    assert group.values("n1") == []
    group.sync("n1")
    assert group.values("n1") == [b"a"]


def test_a_member_acknowledges_only_synced_records() -> None:
    group = with_slow_disks()
    group.propose("n1", b"a")
    end = group["n2"].core.log.end
    group.deliver(AppendRequest, target="n2")
    assert group.matching(AppendResponse) == []
    group.tick("n1", 2)
    group.deliver(target="n2")
    assert [m.end for m in group.matching(HeartbeatResponse)] == [end]  # type: ignore[attr-defined]
    group.sync("n2")
    assert [m.end for m in group.matching(AppendResponse)] == [end + 1]  # type: ignore[attr-defined]


def test_answers_of_one_turn_are_one_cumulative_answer() -> None:
    group = with_slow_disks()
    for value in (b"a", b"b", b"c"):
        group.propose("n1", value)
    group.deliver(AppendRequest, target="n2")
    group.write("n2", 3)
    member = group["n2"]
    for notice in member.notices:
        member.core.log.end  # noqa: B018 - the end is read, nothing is stepped
        assert member.raft is not None
        member.raft.durable(notice.notice)
    member.notices.clear()
    group.after("n2")
    assert [m.end for m in group.matching(AppendResponse)] == [5]  # type: ignore[attr-defined]


def test_sync_only_brings_a_quorum_to_its_term_and_twice_gives_the_same_end() -> None:
    """Neon's command ``sync-safekeepers`` (checklist B3, line 10)."""
    group = Group(3, options=SYNC_ONLY, disks={NodeId("n1"): disk_of(1, 1, 2), NodeId("n2"): disk_of(1, 1)})
    ends = []
    for me in ("n1", "n2"):
        group.elect(me)
        group.run(6)
        ends.append((commit_index(group, me), [member.disk.end for member in group.up()]))
    assert ends == [(3, [4, 4, 4])] * 2
    assert group["n1"].core.term > 2


def test_sync_only_on_an_empty_group_commits_nothing_twice() -> None:
    group = Group(3, options=SYNC_ONLY)
    for me in ("n1", "n2"):
        group.elect(me)
        group.run(6)
        assert (commit_index(group, me), group[me].disk.end) == (0, 1)
        assert group[me].core.leading.is_reached


def test_a_sync_only_leader_is_never_running() -> None:
    group = Group(3, options=SYNC_ONLY)
    group.elect("n1")
    group.run(6)
    assert {member.core.lifecycle for member in group.up()} == {Lifecycle.CONFIGURING}


def test_the_commit_index_is_the_leaders_as_far_as_the_own_log_reaches() -> None:
    """It is min(sent, own end), and never goes backwards (rule 8)."""
    group = Group(3, options=replace(OPTIONS, append_bytes_max=1))
    group.elect("n1")
    group.run(3)
    group.crash("n3")
    for value in (b"a", b"b"):
        group.propose("n1", value)
    group.run(2)
    group.start("n3")
    while not group.matching(AppendRequest, target="n3"):
        group.tick("n1")
        group.deliver(target="n3")
        group.deliver(source="n3")
    first = group.matching(AppendRequest, target="n3")[0]
    assert isinstance(first, AppendRequest)
    assert first.commit_end == 4
    group.step("n3", first)
    assert group["n3"].core.log.commit_end == group["n3"].core.log.end == 3
    group.run(4)
    assert group["n3"].core.log.commit_end == 4
    group.step("n3", replace(first, commit_end=Index(2)))
    assert group["n3"].core.log.commit_end == 4


def test_after_a_new_announcement_a_member_counts_from_its_new_report() -> None:
    group = Group(3)
    group.elect("n1")
    group.run(3)
    group.propose("n1", b"a")
    group.run(2)
    group.restart("n2")
    group.tick("n1", 2)
    group.deliver(target="n2")
    group.deliver(source="n2")
    progress = group["n1"].core.leading.progress[NodeId("n2")]
    assert (progress.state, progress.durable_end) == (ProgressState.ANNOUNCING, Index(0))
    group.run(4)
    assert progress.durable_end == 3
