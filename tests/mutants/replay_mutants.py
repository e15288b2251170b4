"""Planted mistakes in the offline replay: votes that must not count, and batches that do not belong to the log."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from tests.mutants.mutants import Mutant, patched
from viewstamp.consensus import standing
from viewstamp.consensus.membership import MembershipEntry
from viewstamp.consensus.standing import Claim
from viewstamp.ids import NodeId
from viewstamp.replay import chain, visible
from viewstamp.replay.headers import BatchLink
from viewstamp.replay.replica import ReplicaFiles

__all__ = ["REPLAY_MUTANTS"]


def replay_counts_recovering() -> AbstractContextManager[None]:
    return patched(Claim, recovering=property(lambda self: None))


def replay_counts_reborn() -> AbstractContextManager[None]:
    """A disk votes under the name of its node, although the node got another id after it lost a disk."""

    def claim(self: ReplicaFiles) -> Claim | None:
        found = original.__get__(self)
        return found and replace(found, member=NodeId(self.name), incarnation="", met={})

    original = ReplicaFiles.__dict__["claim"]
    return patched(ReplicaFiles, claim=property(claim))


def replay_counts_half() -> AbstractContextManager[None]:
    """The voters before an unfinished change are not counted."""
    original = standing.elect

    def new_voters(entry: MembershipEntry) -> MembershipEntry:
        return replace(entry, membership=replace(entry.membership, outgoing={}))

    def elect(claims: Sequence[Claim]) -> Claim | None:
        halves = [replace(each, memberships=tuple(map(new_voters, each.memberships))) for each in claims]
        winner = original(halves)
        return None if winner is None else claims[halves.index(winner)]

    return patched(standing, elect=elect)


def replay_takes_uncommitted() -> AbstractContextManager[None]:
    """Below a gap, a batch is accepted that no history confirms as committed."""

    def belongs(self: chain._Walk, link: BatchLink, replica: ReplicaFiles) -> bool:
        return self._known_term(link.end - 1) in (None, link.term)

    return patched(chain._Walk, _belongs=belongs)


def replay_misses_silently() -> AbstractContextManager[None]:
    return patched(visible._Counts, missing=lambda self: [])


def leave_groups_behind() -> AbstractContextManager[None]:
    """The groups whose records are not read are not named."""
    original = visible._Planner._find

    def find(self: visible._Planner, kind: str, path: str, text: str, location: int = 0) -> None:
        if kind != "other group":
            original(self, kind, path, text, location)

    return patched(visible._Planner, _find=find)


def replay_shows_both_sides_of_a_hole() -> AbstractContextManager[None]:
    """A replay shows the records of the log before archived ones that it lacks, and those behind them."""
    return patched(visible, _ends_of_holes=lambda items, first, archived: {})


REPLAY_MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "replay-counts-recovering",
            "the replay counts the vote of a member that has not regained its log",
            replay_counts_recovering,
            rule="rule 17",
        ),
        Mutant(
            "replay-counts-reborn",
            "the replay counts an empty disk under the id of the lost one",
            replay_counts_reborn,
            rule="rule 18",
        ),
        Mutant(
            "replay-counts-half",
            "the replay counts one half of a joint membership",
            replay_counts_half,
            rule="rule 15",
        ),
        Mutant(
            "replay-takes-uncommitted",
            "the replay accepts a batch below a gap that no member knew to be committed",
            replay_takes_uncommitted,
            rule="§4",
        ),
        Mutant(
            "replay-misses-silently",
            "the replay shows less than the topics keep, without an error",
            replay_misses_silently,
            rule="replay",
        ),
        Mutant(
            "leave-groups-behind",
            "a fork does not name the groups that it leaves behind",
            leave_groups_behind,
            rule="replay",
        ),
        Mutant(
            "replay-shows-both-sides-of-a-hole",
            "the replay shows records on both sides of archived ones that the log lacks",
            replay_shows_both_sides_of_a_hole,
            rule="replay",
        ),
    )
}
"""The mutants by name."""
