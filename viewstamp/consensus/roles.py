"""Roles and the lifecycle: what a member does in its group, and how far it has come. Derived, never stored."""

from __future__ import annotations

from enum import Enum

from viewstamp.consensus.membership import Membership
from viewstamp.enums import fast_members
from viewstamp.ids import NodeId

__all__ = ["Lifecycle", "Role", "role_of"]


@fast_members
class Role(Enum):
    """What a member does in its group. Derived from (membership, leader, self), never stored."""

    LEADER = "leader"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEARNER = "learner"
    NON_PARTICIPANT = "non-participant"


@fast_members
class Lifecycle(Enum):
    """How far a member has come.

    BOOTSTRAPPING: it replays its log and answers nothing. CONFIGURING: no client writes; a leader replicates the
    membership record of its term. RUNNING: that record is *committed*, as far as this member can tell.
    """

    BOOTSTRAPPING = "bootstrapping"
    CONFIGURING = "configuring"
    RUNNING = "running"


def role_of(membership: Membership, me: NodeId, leader: NodeId | None, *, campaigning: bool) -> Role:
    """Derive a member's role (Kudu's ``GetConsensusRole``)."""
    if me in membership.electors:
        if leader == me:
            return Role.LEADER
        return Role.CANDIDATE if campaigning else Role.FOLLOWER
    return Role.LEARNER if me in membership.learners else Role.NON_PARTICIPANT
