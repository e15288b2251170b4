"""Role and lifecycle of a member in its group. Both are derived, never stored."""

from __future__ import annotations

from enum import Enum

from viewstamp.consensus.membership import Membership
from viewstamp.enums import fast_members
from viewstamp.ids import NodeId

__all__ = ["Lifecycle", "Role", "role_of"]


@fast_members
class Role(Enum):
    """The role of a member in its group. Derived from (membership, leader, self), never stored."""

    LEADER = "leader"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEARNER = "learner"
    NON_PARTICIPANT = "non-participant"


@fast_members
class Lifecycle(Enum):
    """The state of a member between its start and normal operation.

    BOOTSTRAPPING: it replays its log and answers nothing. CONFIGURING: no client writes; a leader replicates the
    membership record of its term. RUNNING: that record is known here to be *committed*.
    """

    BOOTSTRAPPING = "bootstrapping"
    CONFIGURING = "configuring"
    RUNNING = "running"


def role_of(membership: Membership, me: NodeId, leader: NodeId | None, *, campaigning: bool) -> Role:
    """Return a member's role, by the rules of Kudu's ``GetConsensusRole``."""
    if me in membership.electors:
        if leader == me:
            return Role.LEADER
        return Role.CANDIDATE if campaigning else Role.FOLLOWER
    return Role.LEARNER if me in membership.learners else Role.NON_PARTICIPANT
