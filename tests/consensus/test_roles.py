"""The roles are derived, never stored; the edges between them, and the table of messages."""

import sys
from pathlib import Path

import pytest

from tests.consensus.group import Group
from viewstamp.consensus.membership import Membership, MembershipEntry
from viewstamp.consensus.messages import MESSAGES, Announcement, PreVoteRequest, TermResponse, VoteResponse
from viewstamp.consensus.raft import DISPATCH, describe_dispatch, ignored, impossible
from viewstamp.consensus.roles import Role, role_of
from viewstamp.consensus.state import Campaign, Following, Leading
from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import PeerError
from viewstamp.ids import Index, NodeId, Term

ME, OTHER, STRANGER = NodeId("me"), NodeId("other"), NodeId("stranger")


def membership(voters: str, learners: str) -> Membership:
    return Membership({NodeId(v): "" for v in voters.split()}, {NodeId(v): "" for v in learners.split()})


@pytest.mark.parametrize(
    ("voters", "learners", "leader", "campaigning", "expected"),
    [
        # A voter leads if it is itself the leader, and follows otherwise, under any leader.
        ("me other", "", ME, False, Role.LEADER),
        ("me other", "", OTHER, False, Role.FOLLOWER),
        ("me other", "", STRANGER, False, Role.FOLLOWER),
        ("me other", "", None, False, Role.FOLLOWER),
        ("me", "", ME, False, Role.LEADER),
        ("me", "", None, False, Role.FOLLOWER),
        # Only a voter without a leader is a candidate.
        ("me other", "", None, True, Role.CANDIDATE),
        ("other", "me", None, True, Role.LEARNER),
        # A learner is never a leader, even if it is named as one.
        ("other", "me", OTHER, False, Role.LEARNER),
        ("other", "me", None, False, Role.LEARNER),
        ("other", "me", ME, False, Role.LEARNER),
        # An unnamed node takes no part, and is no leader even if it is named as one.
        ("other", "", OTHER, False, Role.NON_PARTICIPANT),
        ("other", "", ME, False, Role.NON_PARTICIPANT),
        ("other", "stranger", None, False, Role.NON_PARTICIPANT),
        ("", "", None, False, Role.NON_PARTICIPANT),
    ],
)
def test_a_role_follows_from_membership_leader_and_self(
    voters: str, learners: str, leader: NodeId | None, campaigning: bool, expected: Role
) -> None:
    """Kudu's truth table (TestGetConsensusRole)."""
    assert role_of(membership(voters, learners), ME, leader, campaigning=campaigning) is expected


def test_the_table_covers_every_role_and_message_exactly_once() -> None:
    """The handled, ignored and impossible pairs are disjoint and cover the product."""
    assert set(DISPATCH) == {Following, Campaign, Leading}
    for state, row in DISPATCH.items():
        assert list(row) == list(MESSAGES), f"{state} has another set or order of messages"
        assert all(callable(handler) for handler in row.values())


def test_every_handler_stands_in_the_table() -> None:
    """A handler that is missing from the table is never called, so its message would be ignored."""
    handlers = {handler for row in DISPATCH.values() for handler in row.values()} - {ignored, impossible}
    found = {
        getattr(module, name)
        for module in {sys.modules[handler.__module__] for handler in handlers}
        for name in module.__all__
        if name.startswith("on_") and name not in ("on_durable", "on_tick")
    }
    assert found == handlers


def test_a_message_that_only_a_second_leader_could_send_stops_the_leader() -> None:
    group = Group(3)
    group.elect("n1")
    message = Announcement(
        source=NodeId("n2"),
        target=NodeId("n1"),
        term=group["n1"].core.term,
        number=1,
        history=TermHistory(),
        start=Index(1),
    )
    with pytest.raises(PeerError, match="n2 sent Announcement to a leader"):
        group.step("n1", message)


def test_a_message_for_another_member_is_dropped() -> None:
    group = Group(3)
    group.step(
        "n1",
        TermResponse(source=NodeId("n2"), target=NodeId("n3"), term=Term(9)),
    )
    assert group["n1"].core.term == 0


# -- The state diagram ----------------------------------------------------------------------------------------


def change_membership(group: Group, me: str, voters: str, learners: str) -> None:
    """Append a membership to a member's log, as its leader would."""
    core = group[me].core
    core.memberships.append(MembershipEntry(core.log.end, core.term, membership(voters, learners)))


def test_every_allowed_edge_of_the_diagram_works() -> None:
    group = Group(3)
    core = group["n1"].core
    seen = [core.role]
    group.campaign("n1")
    seen.append(core.role)
    group.settle()
    seen.append(core.role)
    group.step("n1", TermResponse(source=NodeId("n2"), target=NodeId("n1"), term=Term(9)))
    seen.append(core.role)
    group.campaign("n1")
    group.step("n1", TermResponse(source=NodeId("n2"), target=NodeId("n1"), term=Term(12)))
    seen.append(core.role)
    for voters, learners in (("n2", "n1"), ("n1 n2", ""), ("n2", ""), ("n2", "n1"), ("n2", ""), ("n1 n2", "")):
        change_membership(group, "n1", voters, learners)
        seen.append(core.role)
    assert seen == [
        Role.FOLLOWER,
        Role.CANDIDATE,
        Role.LEADER,
        Role.FOLLOWER,
        Role.FOLLOWER,
        Role.LEARNER,
        Role.FOLLOWER,
        Role.NON_PARTICIPANT,
        Role.LEARNER,
        Role.NON_PARTICIPANT,
        Role.FOLLOWER,
    ]


@pytest.mark.parametrize(("voters", "learners"), [("n2 n3", "n1"), ("n2 n3", "")])
def test_a_learner_or_stranger_never_becomes_candidate_or_leader(voters: str, learners: str) -> None:
    group = Group(3)
    change_membership(group, "n1", voters, learners)
    del group["n1"].core.memberships[0]  # As if it were known to be committed.
    group.tick("n1", 100)
    assert group["n1"].core.role in (Role.LEARNER, Role.NON_PARTICIPANT)
    assert group.matching(PreVoteRequest, source="n1") == []


def test_a_follower_that_did_not_stand_is_not_made_a_leader_by_votes() -> None:
    """The only way to lead is a majority of votes in a term that the member began itself."""
    group = Group(3)
    group.step(
        "n1",
        *(
            VoteResponse(
                source=NodeId(me),
                target=NodeId("n1"),
                term=Term(4),
                granted=True,
                history=TermHistory(),
                end=Index(1),
            )
            for me in ("n1", "n2", "n3")
        ),
    )
    assert group["n1"].core.role is Role.FOLLOWER


def test_the_documents_hold_the_table_as_the_code_prints_it() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
    assert describe_dispatch() in page


def test_the_documents_name_every_message() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
    table = page[page.index("## Messages") : page.index("## An election")]
    assert [kind.__name__ for kind in MESSAGES if f"| `{kind.__name__}` |" not in table] == []
