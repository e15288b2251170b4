"""A follower finds what is committed by itself, when its leader tells how far its own log is durable (rule 7)."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.consensus.group import OPTIONS, Group
from tests.consensus.test_announcement import disk_of
from viewstamp.consensus.membership import AddMember
from viewstamp.consensus.messages import (
    Announcement,
    AnnouncementResponse,
    AppendRequest,
    AppendResponse,
    DurableNotice,
    HeartbeatRequest,
    HeartbeatResponse,
    Message,
    PreVoteRequest,
    PreVoteResponse,
    ReadIndexRequest,
    ReadIndexResponse,
    VoteRequest,
    VoteResponse,
)
from viewstamp.consensus.quiet import is_in_step
from viewstamp.errors import BrokenRuleError
from viewstamp.ids import Index, NodeId, Term


def running(members: int = 3, *, options: object = OPTIONS, learners: Iterable[str] = ()) -> Group:
    """Return a group that n1 leads, with a committed record."""
    group = Group(members, options=options, learners=[NodeId(each) for each in learners])  # type: ignore[arg-type]
    group.elect("n1")
    group.run(3)
    group.propose("n1", b"a")
    group.run(3)
    group.is_quick_disk = False
    return group


def tell(group: Group, leader: str = "n1", *names: str) -> None:
    """Ask the leader to tell the members of these nodes."""
    raft = group[leader].raft
    assert raft is not None
    raft.tell_durable_end(frozenset(names or ("n2",)))
    group.after(leader)


def proposed(group: Group) -> Index:
    """Propose a record that n2 has received and synced, and return its end; nobody has acknowledged it to n1 yet."""
    group.propose("n1", b"b")
    tell(group)
    group.deliver(AppendRequest, target="n2")
    group.sync("n2")
    return group["n1"].core.log.end


def test_a_follower_finds_a_commit_before_its_leader_knows_it() -> None:
    group = running()
    end = proposed(group)
    assert group.matching(DurableNotice) == []  # The leader has not synced.
    group.sync("n1")
    group.deliver(DurableNotice)
    assert (group["n2"].core.log.commit_end, group["n1"].core.log.commit_end) == (end, end - 1)
    assert group["n2"].applied[-1].end == end
    group.is_quick_disk = True
    group.run(3)
    assert group["n1"].core.log.commit_end == end


def test_the_notice_may_come_before_the_own_sync() -> None:
    group = running()
    group.propose("n1", b"b")
    tell(group)
    group.sync("n1")
    group.deliver(AppendRequest, target="n2")
    group.deliver(DurableNotice)
    assert group["n2"].core.log.commit_end == group["n2"].core.log.end - 1
    group.sync("n2")
    assert group["n2"].core.log.commit_end == group["n2"].core.log.end


def test_a_leader_tells_nobody_unless_it_is_asked_and_only_once_it_has_synced_all() -> None:
    group = running()
    group.propose("n1", b"b")
    group.sync("n1")
    assert group.matching(DurableNotice) == []
    group.propose("n1", b"c")
    tell(group)
    assert [notice.end for notice in notices(group)] == [group["n1"].core.log.end - 1]
    group.sync("n1")
    assert [notice.end for notice in notices(group)][-1] == group["n1"].core.log.end
    assert group["n1"].core.leading.notices == {}
    group.deliver(AppendRequest)
    group.sync("n3")
    group.deliver(AppendResponse)
    group.drop(DurableNotice)
    tell(group)
    assert group.matching(DurableNotice) == []  # The commit end says as much.


def notices(group: Group) -> list[DurableNotice]:
    """Return the notices in flight."""
    return [each for each in group.matching(DurableNotice) if isinstance(each, DurableNotice)]


def test_two_of_five_are_no_quorum() -> None:
    group = running(5)
    proposed(group)
    group.sync("n1")
    assert group.matching(DurableNotice) == []
    core = group["n2"].core
    group.step("n2", notice_for(group, core.log.end))
    assert core.log.commit_end == core.log.end - 1


def notice_for(group: Group, end: int, *, number: int = 0, term: int = 0, source: str = "n1") -> DurableNotice:
    """Return a notice to n2."""
    core = group["n2"].core
    return DurableNotice(
        source=NodeId(source),
        target=NodeId("n2"),
        term=Term(term or core.term),
        number=number or core.announced_number,
        end=Index(end),
    )


def test_a_learner_counts_for_nothing() -> None:
    group = running(3, learners=("n4",))
    group.propose("n1", b"b")
    tell(group, "n1", "n4")
    group.deliver(AppendRequest, target="n4")
    group.sync("n4")
    group.sync("n1")
    assert group.matching(DurableNotice) == []
    core = group["n4"].core
    forged = replace(notice_for(group, core.log.end), target=NodeId("n4"), number=core.announced_number)
    group.step("n4", forged)
    assert core.log.commit_end == core.log.end - 1


def test_nothing_is_found_before_the_announcement_is_accepted() -> None:
    group = running()
    group.restart("n2")
    core = group["n2"].core
    before = core.log.commit_end
    group.step("n2", notice_for(group, core.log.end, number=1))
    assert core.log.commit_end == before
    assert core.leader_durable_end == 0


def test_a_notice_of_an_older_term_says_nothing_about_this_leader() -> None:
    group = running()
    old = notice_for(group, 99)
    group.is_quick_disk = True
    group.elect("n3")
    group.run(3)
    group.is_quick_disk = False
    group.propose("n3", b"b")
    group.deliver(AppendRequest, target="n2")
    group.sync("n2")
    core = group["n2"].core
    group.step("n2", old)
    assert core.leader_durable_end == 0
    assert core.log.commit_end == core.log.end - 1


def test_what_the_leader_before_said_is_forgotten() -> None:
    group = running()
    group.step("n2", notice_for(group, group["n2"].core.log.end + 5))
    group.is_quick_disk = True
    group.elect("n3")
    assert group["n2"].core.leader_durable_end == 0


def test_nothing_is_found_before_the_term_start() -> None:
    """Both hold a record of an older term, which another leader may still replace (Raft paper, figure 8)."""
    options = replace(OPTIONS, append_bytes_max=1)
    group = Group(3, options=options, disks={NodeId("n1"): disk_of(1, 1)})
    group.let_vote_for("n1")
    group.campaign("n1")
    while not group.matching(AppendRequest, target="n2"):
        group.deliver((PreVoteRequest, VoteRequest, Announcement))
        group.deliver((PreVoteResponse, VoteResponse, AnnouncementResponse))
    group.step("n2", group.matching(AppendRequest, target="n2")[0])
    core = group["n2"].core
    assert core.log.durable_end == 2 < group["n1"].core.leading.term_start
    tell(group)
    group.deliver(DurableNotice)
    assert core.leader_durable_end > core.log.durable_end
    assert core.log.commit_end == 1
    group.step("n2", group.matching(AppendRequest, target="n2")[1])
    assert core.log.commit_end == 3 == group["n1"].core.leading.term_start


def test_a_recovering_member_finds_nothing_and_a_recovering_leader_tells_nothing() -> None:
    group = running()
    end = proposed(group)
    for me in ("n1", "n2"):
        group[me].core.recovering_until = (Term(99), Index(99))
    group.sync("n1")
    assert group.matching(DurableNotice) == []
    group.step("n2", notice_for(group, end))
    assert group["n2"].core.log.commit_end == end - 1


def test_interval_mode_has_no_notices() -> None:
    """There a log is called durable before it is synced."""
    group = running(options=replace(OPTIONS, may_lose_acknowledged=True))
    end = proposed(group)
    group.sync("n1")
    assert group.matching(DurableNotice) == []
    group.step("n2", notice_for(group, end))
    assert group["n2"].core.log.commit_end == end - 1


def test_a_disk_that_the_membership_does_not_name_finds_nothing() -> None:
    group = running()
    for me in ("n1", "n2", "n3"):
        raft = group["n1"].raft
        assert raft is not None
        raft.note_incarnation(NodeId(me), f"disk of {me}")
    group.is_quick_disk = True
    group.run(3)  # The leader names them.
    group.is_quick_disk = False
    raft = group["n2"].raft
    assert raft is not None
    raft.note_incarnation(NodeId("n2"), "another disk")
    end = proposed(group)
    group.sync("n1")
    group.deliver(DurableNotice)
    assert group["n2"].core.log.commit_end < end
    raft.core.incarnations[NodeId("n2")] = "disk of n2"
    group.step("n2", notice_for(group, end))
    assert group["n2"].core.log.commit_end == end


def test_an_end_inside_a_batch_is_refused() -> None:
    group = running()
    group.propose("n1", b"b", b"c")
    group.deliver(AppendRequest, target="n2")
    group.sync("n2")
    raft = group["n2"].raft
    assert raft is not None
    with pytest.raises(BrokenRuleError, match="inside a batch"):
        raft.step(notice_for(group, raft.core.log.end - 1))


def test_a_second_leader_of_a_term_is_refused() -> None:
    group = running()
    raft = group["n2"].raft
    assert raft is not None
    with pytest.raises(BrokenRuleError, match="both n1 and n3 lead"):
        raft.step(notice_for(group, 1, source="n3"))


def test_a_read_covers_what_a_member_may_have_found() -> None:
    """A client of n2 has seen the record. A read on the leader that begins now must wait for it."""
    group = running()
    end = proposed(group)
    group.sync("n1")
    group.deliver(DurableNotice)
    assert group["n2"].applied[-1].end == end
    token = group.read("n1")
    group.deliver(HeartbeatRequest, target="n3")
    group.deliver(HeartbeatResponse, source="n3")
    assert token not in group["n1"].reads
    group.deliver(AppendResponse, source="n2")
    assert group["n1"].reads[token] == end - 1


def test_a_member_is_not_told_that_a_read_index_is_committed_before_it_is() -> None:
    group = running()
    end = proposed(group)
    group.sync("n1")
    group.drop(DurableNotice)
    group.drop(AppendResponse)
    group.read("n3")
    group.deliver(ReadIndexRequest)
    group.deliver(HeartbeatRequest, target="n3")
    group.deliver(HeartbeatResponse, source="n3")
    assert group.matching(ReadIndexResponse) == []
    group.is_quick_disk = True
    group.run(3)
    assert group["n3"].core.log.commit_end == end
    assert group["n1"].core.leading.reads == []


def test_a_lease_releases_no_read_of_what_is_not_committed() -> None:
    group = running(options=replace(OPTIONS, lease_us=10_000_000))
    for me in ("n1", "n2", "n3"):
        raft = group[me].raft
        assert raft is not None
        raft.begin_turn(1)
    group.is_quick_disk = True
    group.run(4)
    token = group.read("n1")
    assert token in group["n1"].reads
    group.is_quick_disk = False
    end = proposed(group)
    group.sync("n1")
    token = group.read("n1")
    assert token not in group["n1"].reads
    group.is_quick_disk = True
    group.run(3)
    assert group["n1"].reads[token] == end - 1


def test_a_member_that_is_ahead_is_not_in_step() -> None:
    """So its answers travel on the connection of its group, whose health they have to show."""
    group = running()
    proposed(group)
    group.sync("n1")
    group.deliver(DurableNotice)
    core = group["n2"].core
    answer = HeartbeatResponse(
        source=core.me, target=NodeId("n1"), term=core.term, number=core.announced_number, end=core.log.end, round=0
    )
    assert not is_in_step(core, answer)
    group.is_quick_disk = True
    group.run(3)
    assert is_in_step(core, answer)


def test_a_member_finds_the_commit_of_a_membership_before_its_leader() -> None:
    group = running(2, learners=("n3",))
    group.change("n1", AddMember(NodeId("n3"), "at-n3"))
    tell(group)
    sent: list[Message] = group.deliver(AppendRequest, target="n2")
    group.sync("n2")
    group.sync("n1")
    group.deliver(DurableNotice)
    assert sent
    core = group["n2"].core
    assert core.log.commit_end == core.log.end
    assert len(core.memberships) == 1
    group.is_quick_disk = True
    group.run(30)
    assert group["n1"].core.membership.voters.keys() == {"n1", "n2", "n3"}
