"""The rules of counting: which members may vote and campaign, which votes and acknowledgements count, and majorities.

This is the only home of these rules. The core applies them to messages, node repair to its own directory, and the
offline replay to the disks that it is given, so that all three choose the same log. Everything here is pure.

| member | votes | campaigns | its vote is counted | its end counts for commit |
| --- | --- | --- | --- | --- |
| voter, before and after the change while the membership is joint (rule 15) | yes | yes | yes | yes |
| recovering: it has lost a part of its log (rule 17) | no | no | no | no |
| recovering after a power loss in interval mode (docs/design/0007) | yes, marked | yes | see :func:`wins` | no |
| with a disk that no record names, where disks are named at all (rule 18) | yes | yes | no | no |
| with another disk than the one that the membership names (rule 18) | refused | refused | no | no |
| reborn, under a new id since it lost its disk (rule 18) | as that id | as that id | as that id | as that id |
| learner, or no member (rule 14) | yes | no | no | no |

A majority of a joint membership is a majority of the voters before the change and a majority of those after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from viewstamp.consensus.membership import Membership, MembershipEntry
from viewstamp.ids import Index, NodeId, Term

__all__ = [
    "Claim",
    "Pair",
    "commit_end",
    "counting_ends",
    "decides_alone",
    "elect",
    "end_of_most",
    "has_regained",
    "is_majority",
    "is_up_to_date",
    "is_voter",
    "lacking",
    "majority",
    "majority_end",
    "may_have_acknowledged",
    "may_stand",
    "may_vote",
    "vote_counts",
    "wins",
]

Pair = tuple[Term, Index]
"""The pair by which logs are compared: the last term of the advertised history, and the durable end."""

_NONE = Index(0)


# -- Majorities ----------------------------------------------------------------------------------------------------


def majority(count: int) -> int:
    """Return the least number of voters that is more than half of ``count``."""
    return count // 2 + 1


def is_majority(membership: Membership, members: Collection[NodeId]) -> bool:
    """Return whether ``members`` include a majority of the voters, and while joint also of the outgoing voters."""
    voters, outgoing = membership.voters, membership.outgoing
    return _has_majority(voters, members) and (not outgoing or _has_majority(outgoing, members))


def lacking(membership: Membership, members: Collection[NodeId]) -> list[list[NodeId]]:
    """Return each set of voters without a majority in ``members``, sorted; [] if there is a majority of all sets."""
    sets = [voters for voters in (membership.voters, membership.outgoing) if voters]
    return [sorted(voters) for voters in sets if not _has_majority(voters, members)]


def _has_majority(voters: Mapping[NodeId, str], members: Collection[NodeId]) -> bool:
    return len(voters.keys() & members) >= majority(len(voters))


def majority_end(membership: Membership, ends: Mapping[NodeId, Index]) -> Index:
    """Return the largest end that a majority holds, of both sets of voters while joint; a missing end counts as 0."""
    end = _end_of(membership.voters, ends)
    return min(end, _end_of(membership.outgoing, ends)) if membership.outgoing else end


def _end_of(voters: Mapping[NodeId, str], ends: Mapping[NodeId, Index]) -> Index:
    return end_of_most(list(map(ends.get, voters, repeat(_NONE)))) if voters else _NONE


def end_of_most(ends: list[Index]) -> Index:
    """Return the largest end that more than half of these voters hold. Sorts ``ends`` in place."""
    ends.sort()
    return ends[(len(ends) - 1) // 2]


def is_voter(membership: Membership, member: NodeId) -> bool:
    """Return whether ``member`` counts in a majority. In a joint membership the outgoing voters count, too."""
    return member in membership.electors


def decides_alone(membership: Membership, member: NodeId) -> bool:
    """Return whether ``member`` is the only voter, so that no other member has a copy that counts."""
    return membership.electors.keys() == {member}


# -- One member ----------------------------------------------------------------------------------------------------


def may_vote(recovering_until: Pair | None, *, lost_power: bool = False) -> bool:
    """Return whether a member may vote: not while it has to regain ``recovering_until`` (rule 17).

    The member may have lost a record that it acknowledged, so its vote could elect a leader without that record. A
    member that ``lost_power`` in interval mode still votes, marked as recovering, because its term and vote are intact;
    :func:`wins` decides whether the vote counts. Otherwise a power cut of the whole site would leave no voter.
    """
    return recovering_until is None or lost_power


def has_regained(pair: Pair, recovering_until: Pair | None) -> bool:
    """Return whether a durable log at ``pair`` holds at least all records from before the damage (rule 17).

    Reaching the leader's commit end is not enough, because a record that this member had acknowledged may be committed
    only later, by that same acknowledgement.
    """
    return recovering_until is None or pair >= recovering_until


def may_stand(
    member: NodeId, memberships: Iterable[MembershipEntry], recovering_until: Pair | None, *, lost_power: bool = False
) -> bool:
    """Return whether a member may campaign, by the ``memberships`` in its log that may still be in force.

    A member that was removed by a record which is not known to be committed may still campaign, because the others may
    need its vote, and it cannot vote for a log that is shorter than its own (Raft thesis 4.2.2).
    """
    is_elector = any(member in entry.membership.electors for entry in memberships)
    return is_elector and may_vote(recovering_until, lost_power=lost_power)


def is_up_to_date(candidate: Pair, own: Pair) -> bool:
    """Return whether a voter with the pair ``own`` may vote for a candidate with the pair ``candidate``.

    The lengths of the logs do not decide.
    """
    return candidate >= own


def vote_counts(membership: Membership, voter: NodeId, candidate: NodeId) -> bool:
    """Return whether the membership names the disk of ``voter``, or no disk at all, so that its vote may be counted.

    Only the disk is compared here. :func:`is_majority` ignores voters that are not in ``membership``.
    """
    return voter == candidate or not membership.incarnations or voter in membership.incarnations


def may_have_acknowledged(membership: Membership) -> set[NodeId]:
    """Return the voters on whose disks an acknowledged record may rest: all, unless the membership names some disks.

    :func:`commit_end` commits nothing on the acknowledgement of a disk that no record names.
    """
    return {voter for voter in membership.electors if vote_counts(membership, voter, NodeId(""))}


def counting_ends(entries: Sequence[MembershipEntry], ends: Mapping[NodeId, Index]) -> dict[NodeId, Index]:
    """Return the members in ``ends`` that hold a record of ``entries`` which names their own disk, with their ends.

    Without this rule a member that never met the first disk would accept the second one; with one disk wiped and one
    member down, a committed record would be lost (rule 18).
    """
    counting = {}
    for member, end in ends.items():
        for entry in entries:
            if entry.index < end and member in entry.membership.incarnations:
                counting[member] = end
                break
    return counting


def commit_end(
    entries: Sequence[MembershipEntry],
    ends: Mapping[NodeId, Index],
    term_start: Index,
    *,
    disks_are_named: bool,
    committed: Index,
    term: Term,
) -> Index:
    """Return the end up to which a majority holds the leader's log (rule 7); below ``term_start`` it commits nothing.

    An acknowledgement counts only for a commit that covers the record which names the member's disk, and only if that
    record is committed before or is of the leader's own term. So a majority holds the record for good, also after power
    losses, because interval mode completes it only when it is durable. Every later leader then has it, and refuses
    another disk under the same id. A record of an older term is not enough: a member that loses the records behind it
    compares by that older term again, and votes for a log without it (Raft paper, figure 8).

    Args:
      entries: the memberships in the leader's log; the last one is in force.
      ends: the durable end of each member that follows in this term and is not recovering, the leader included.
      term_start: the first index of the leader's term. An end below it counts for nothing (Raft paper, figure 8).
      disks_are_named: whether the disks of members have names here (rule 18).
      committed: the end of what the leader knows to be committed.
      term: the leader's term.
    """
    membership, end = entries[-1].membership, _NONE
    if not disks_are_named:
        end = majority_end(membership, ends)
    else:
        naming = [entry for entry in entries if entry.index < committed or entry.term == term]
        for count, entry in enumerate(naming, 1):
            held = majority_end(membership, counting_ends(naming[:count], ends))
            if held > entry.index:
                end = held
    return end if end >= term_start else _NONE


def wins(membership: Membership, votes: Iterable[NodeId], recovering: Collection[NodeId], *, has_waited: bool) -> bool:
    """Return whether a candidate is elected, or may ask for votes, by these granted votes.

    Votes of members that are ``recovering`` after a power loss do not count towards a majority, because such a member
    may have lost the very record because of which it would have refused the candidate. They count in two cases:

    * Every voter that :func:`may_have_acknowledged` records has granted its vote. Then the candidate's log is at least
      as good as all their logs. If a minority lost power, a record that a majority acknowledged is still on a member
      that did not, and this member has compared its log with the candidate's. So no acknowledged record is lost, unless
      a majority lost it.
    * The candidate ``has_waited`` for the others as long as the operator allows. An absent voter may hold the last copy
      of acknowledged records, so the leader reports that they may be lost.

    Args:
      membership: the one in force in the candidate's log.
      votes: the members that granted a vote which :func:`vote_counts` allows, the candidate included.
      recovering: those of them that reported a power loss.
      has_waited: whether ``interval_wait_all_seconds`` are over without a leader.
    """
    granted = set(votes)
    if is_majority(membership, granted.difference(recovering)):
        return True
    return is_majority(membership, granted) and (has_waited or granted >= may_have_acknowledged(membership))


# -- An election, among disks --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The data of one member in an election among disks, as read from its disk.

    ``member`` is its id in the group, which names one disk for ever. ``pair`` is what it would advertise.
    ``recovering_until`` is the pair that it has to regain; None = it lost nothing; ``lost_power``: because of a power
    loss in interval mode. ``memberships`` are those in its log, oldest first; the last one
    is in force. ``met`` are the incarnations of the disks that it has met.
    """

    member: NodeId
    incarnation: str
    pair: Pair
    recovering_until: Pair | None = None
    lost_power: bool = False
    memberships: tuple[MembershipEntry, ...] = ()
    met: Mapping[NodeId, str] = field(default_factory=dict)

    @property
    def recovering(self) -> Pair | None:
        """The pair that it still has to regain; None = it counts, because it lost nothing or has regained that pair."""
        return None if has_regained(self.pair, self.recovering_until) else self.recovering_until

    def refuses(self, other: Claim) -> bool:
        """Return whether ``other`` has another disk than the one that this member met under its id (rule 18)."""
        named = self.memberships[-1].membership.incarnations if self.memberships else {}
        known = named.get(other.member) or self.met.get(other.member)
        return bool(known) and known != other.incarnation

    def votes_for(self, candidate: Claim) -> bool:
        """Return whether this member votes for ``candidate`` in a new term, and ``candidate`` may count the vote."""
        if self.member != candidate.member and (self.refuses(candidate) or candidate.refuses(self)):
            return False
        counts = vote_counts(candidate.memberships[-1].membership, self.member, candidate.member)
        votes = may_vote(self.recovering, lost_power=self.lost_power)
        return counts and votes and is_up_to_date(candidate.pair, self.pair)


def elect(claims: Sequence[Claim]) -> Claim | None:
    """Return the winner of an election among ``claims``, so that its log is kept; None = they cannot elect a leader.

    If several could win, the one with the largest pair is returned, because it holds all committed records of the
    others.
    """
    for candidate in sorted(claims, key=lambda claim: claim.pair, reverse=True):
        if may_stand(candidate.member, candidate.memberships, candidate.recovering, lost_power=candidate.lost_power):
            votes = [claim for claim in claims if claim.votes_for(candidate)]
            recovering = [claim.member for claim in votes if claim.recovering is not None]
            membership = candidate.memberships[-1].membership
            if wins(membership, [claim.member for claim in votes], recovering, has_waited=False):
                return candidate
    return None
