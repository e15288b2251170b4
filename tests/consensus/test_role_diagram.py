"""The truth table of roles, and the diagram of their changes in the life of a group (checklist B2, line 11)."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.consensus import schedule
from tests.consensus.group import Group
from viewstamp.consensus.membership import AddMember, Membership, RemoveMember
from viewstamp.consensus.messages import AppendRequest
from viewstamp.consensus.roles import Role, role_of
from viewstamp.consensus.state import Core
from viewstamp.ids import NodeId

A, B, C, D, NOBODY = (NodeId(name) for name in ("A", "B", "C", "D", ""))

PLAIN = Membership({A: "", B: ""}, {C: ""})
JOINT = Membership({A: "", B: "", C: ""}, outgoing={A: "", B: ""})
"""C is being promoted: the record is appended, so in force, but not committed."""
LEAVING = Membership({B: "", C: ""}, outgoing={A: "", B: "", C: ""})


@pytest.mark.parametrize(
    ("membership", "me", "leader", "expected"),
    [
        # The committed membership alone.
        (PLAIN, A, A, Role.LEADER),
        (PLAIN, B, A, Role.FOLLOWER),
        (PLAIN, A, None, Role.FOLLOWER),
        (PLAIN, C, A, Role.LEARNER),
        (PLAIN, C, C, Role.LEARNER),
        (PLAIN, D, A, Role.NON_PARTICIPANT),
        (PLAIN, D, D, Role.NON_PARTICIPANT),
        (PLAIN, NOBODY, A, Role.NON_PARTICIPANT),
        (PLAIN, NOBODY, None, Role.NON_PARTICIPANT),
        # A pending membership is in force.
        (JOINT, A, A, Role.LEADER),
        (JOINT, B, A, Role.FOLLOWER),
        (JOINT, C, A, Role.FOLLOWER),
        (JOINT, D, A, Role.NON_PARTICIPANT),
        (JOINT, D, D, Role.NON_PARTICIPANT),
        # Our addition: a member that leaves in a joint change leads or follows until the change is over.
        (LEAVING, A, A, Role.LEADER),
        (LEAVING, A, B, Role.FOLLOWER),
        (LEAVING.left(), A, A, Role.NON_PARTICIPANT),
    ],
)
def test_a_role_follows_the_fourteen_rows(
    membership: Membership, me: NodeId, leader: NodeId | None, expected: Role
) -> None:
    """Only a voter can be a candidate; a campaign does not change the role of others."""
    assert role_of(membership, me, leader, campaigning=False) is expected
    if leader is not None or expected in (Role.LEARNER, Role.NON_PARTICIPANT):
        campaigning = role_of(membership, me, leader, campaigning=True)
        assert campaigning is (Role.CANDIDATE if expected is Role.FOLLOWER else expected)


EDGES = {
    (Role.NON_PARTICIPANT, Role.LEARNER): "the group takes it in",
    (Role.LEARNER, Role.FOLLOWER): "it is promoted",
    (Role.FOLLOWER, Role.CANDIDATE): "it has no leader, or is asked to campaign",
    (Role.CANDIDATE, Role.LEADER): "a majority has voted for it",
    (Role.CANDIDATE, Role.FOLLOWER): "another one leads, or it was refused",
    (Role.LEADER, Role.FOLLOWER): "a higher term, or no answers of a quorum",
    (Role.LEADER, Role.NON_PARTICIPANT): "it was removed, and that is committed",
    (Role.CANDIDATE, Role.NON_PARTICIPANT): "it was removed",
    (Role.FOLLOWER, Role.NON_PARTICIPANT): "it was removed",
    (
        Role.NON_PARTICIPANT,
        Role.CANDIDATE,
    ): "its removal may not be committed: the others may need it",
    (Role.LEARNER, Role.NON_PARTICIPANT): "it was removed",
}
"""Every allowed edge, except those that a cut causes; all others are forbidden."""
TAKEN_BACK = {(Role.FOLLOWER, Role.LEARNER), (Role.NON_PARTICIPANT, Role.FOLLOWER)}
"""The record of a promotion or removal was cut, so the membership before it is in force again (protocol rule 15)."""


class Watch:
    """Records each change of a member's role between inputs of its core; a restart begins anew."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.edges: Counter[tuple[Role, Role]] = Counter()
        self._last: dict[int, tuple[Core, Role]] = {}
        after = Group.after

        def watched(group: Group, me: str) -> None:
            self.look(group[me].core)
            after(group, me)
            self.look(group[me].core)

        monkeypatch.setattr(Group, "after", watched)

    def look(self, core: Core) -> None:
        _, before = self._last.get(id(core), (core, core.role))
        if before is not core.role:
            self.edges[before, core.role] += 1
        self._last[id(core)] = core, core.role


@pytest.mark.slow
def test_no_schedule_takes_an_edge_that_is_not_in_the_diagram(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, no learner becomes a candidate, no follower a leader, and no leader a candidate."""
    watch = Watch(monkeypatch)
    for mix in ("even", "changes", "changes of five", "changes and damage"):
        for seed in range(3):
            schedule.run(mix, seed, finish=True)
    assert set(watch.edges) <= set(EDGES) | TAKEN_BACK, watch.edges
    often = {edge for edge, count in watch.edges.items() if count >= 3}
    assert often >= {edge for edge in EDGES if Role.NON_PARTICIPANT not in edge and Role.LEARNER not in edge}
    assert len(EDGES) == 11


def test_every_edge_of_the_diagram_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every edge is caused by events in the life of a group, not by changes to a member's internals."""
    watch = Watch(monkeypatch)
    group = Group(3)
    group.elect("n1")
    group.run(5)
    for learner in ("n4", "n5"):
        group.add(learner)
    group.change("n1", AddMember(NodeId("n5"), "at-n5", becomes_voter=False))
    group.run(5)
    group.change("n1", AddMember(NodeId("n4"), "at-n4"))
    group.run(15)
    group.change("n1", RemoveMember(NodeId("n5")))
    group.run(10)
    group.change("n1", RemoveMember(NodeId("n4")))
    group.run(10)
    group.transfer("n1", "n2")
    group.run(10)
    group.change("n2", RemoveMember(NodeId("n2")))
    group.run(15)
    # A candidate receives a heartbeat of the leader that it had missed.
    [leader] = group.leaders()
    other = "n3" if leader == "n1" else "n1"
    group.campaign(other)
    group.drop(source=other)
    group.run(4)
    # A candidate is removed: the first record that it receives is the second one, which leaves the joint membership.
    group.change(leader, RemoveMember(NodeId(other)))
    group.settle()
    group.campaign(other)
    group.drop(source=other)
    assert group[other].core.role is Role.CANDIDATE
    group.tick(leader)
    group.deliver(AppendRequest, target=other)
    group.run(10)
    assert group[other].core.role is Role.NON_PARTICIPANT
    # A removed member restarts with a removal that only it has; the others need its vote, and it campaigns.
    group = Group(4)
    group.elect("n1")
    group.run(5)
    group.change("n1", RemoveMember(NodeId("n1")))
    group.settle()
    group.tick("n1")
    group.drop()
    group.crash("n4")
    group.restart("n1")
    group.run(60, "n1", "n2", "n3")
    assert set(EDGES) - set(watch.edges) == set(), watch.edges
    assert set(watch.edges) <= set(EDGES)
