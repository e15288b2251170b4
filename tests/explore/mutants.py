"""Mistakes that only the explorer finds, planted in the same way as those of ``tests.mutants``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from tests.explore.disk import Disk
from tests.mutants.mutants import MUTANTS, Mutant, patched
from tests.mutants.notice_mutants import NOTICE_MUTANTS
from viewstamp.consensus import follower, leader, reconfigure, standing, term_history
from viewstamp.consensus.membership import Change, Membership, MembershipEntry
from viewstamp.consensus.messages import AppendRequest, HeartbeatRequest
from viewstamp.consensus.progress import Progress
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.ready import EndRecovery, ResetLog, WriteHistory
from viewstamp.consensus.state import Campaign, Core, Entropy, Leading, RaftOptions, SnapshotPoint, Stored
from viewstamp.consensus.term_history import TermHistory
from viewstamp.ids import Index, NodeId, Term, Viewstamp

__all__ = ["EXPLORED"]


@contextmanager
def both(*plants: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Plant several mistakes as one."""
    with ExitStack() as planted:
        for plant in plants:
            planted.enter_context(plant())
        yield


def completion_uncounted() -> AbstractContextManager[None]:
    """Any completion of the current term ends an installation, even that of an earlier write."""

    def begin_installing(self: Core) -> None:
        self.installing = True
        self.completions_left = 1

    return patched(Core, begin_installing=begin_installing)


def completion_by_index_uncounted() -> AbstractContextManager[None]:
    """The core checks neither the term nor the number of a completion, each of which would be enough."""
    return both(completion_uncounted, MUTANTS["completion-by-index"].plant)


def completion_by_record() -> AbstractContextManager[None]:
    """The completion carries the term in the header of the last record, and counts if that record is still there."""

    def durable_viewstamp(self: Core) -> Viewstamp:
        last = Index(self.log.end - 1)
        return Viewstamp(self.history.term_at(last), last)

    original = Raft.durable

    def durable(self: Raft, viewstamp: Viewstamp) -> None:
        core = self.core
        is_there = viewstamp.index < core.log.end and core.history.term_at(viewstamp.index) == viewstamp.term
        original(self, Viewstamp(core.accept_term if is_there else Term(-1), viewstamp.index))

    return both(
        completion_uncounted,
        partial(patched, Core, durable_viewstamp=durable_viewstamp),
        partial(patched, Raft, durable=durable),
    )


def resume_term() -> AbstractContextManager[None]:
    original = Raft.__init__

    def __init__(self: Raft, me: NodeId, options: RaftOptions, stored: Stored, entropy: Entropy) -> None:  # noqa: N807
        original(self, me, options, stored, entropy)
        core = self.core
        begin = stored.history.begin_of(stored.term)
        if stored.vote == me and begin is not None and begin <= stored.end:
            progress = {each: Progress() for each in core.membership.addresses if each != me}
            core.become(Leading(leader=me, term_start=begin, progress=progress))
            core.accept_term = core.term

    return patched(Raft, __init__=__init__)


def extend_stored_history() -> AbstractContextManager[None]:
    original = leader.become_leader

    def become_leader(core: Core, campaign: Campaign, *, elected_without: tuple[NodeId, ...] = ()) -> None:
        stored = core.history
        original(core, campaign, elected_without=elected_without)
        core.history = stored.extended(core.term, core.leading.term_start)
        core.output.writes[-1] = WriteHistory(core.history)

    return patched(leader, become_leader=become_leader)


def commit_unannounced() -> AbstractContextManager[None]:
    """The leader sends the commit index with the announcement, and the member uses it at once."""
    is_announced = follower.is_announced

    def believe(core: Core, message: AppendRequest | HeartbeatRequest) -> bool:
        follower.take_commit(core, message.commit_end)
        return is_announced(core, message)

    announce = leader._announce

    def announce_too(core: Core, member: NodeId, progress: Progress, start: Index | None, *, life: int = 0) -> None:
        announce(core, member, progress, start, life=life)
        leader.send_heartbeat(core, core.leading, member, progress)

    return both(
        partial(patched, follower, is_announced=believe),
        partial(patched, leader, _announce=announce_too),
    )


def votes_acknowledge() -> AbstractContextManager[None]:
    original = leader._announce

    def announce(core: Core, member: NodeId, progress: Progress, start: Index | None, *, life: int = 0) -> None:
        original(core, member, progress, start, life=life)
        if member in core.leading.vote_responses:
            end = min(core.leading.vote_responses[member].end, core.log.end)
            progress.counted_end = progress.durable_end = progress.next_end = end

    return patched(leader, _announce=announce)


def commit_by_counting() -> AbstractContextManager[None]:
    def maybe_commit(core: Core, leading: Leading) -> None:
        ends = {member: progress.counted_end for member, progress in leading.progress.items()}
        ends[core.me] = core.log.durable_end
        end = standing.majority_end(core.membership, ends)
        if not core.installing and end > core.log.commit_end:
            leading.is_reached = True
            core.log.commit_end = end
            core.forget_committed_memberships()

    return patched(leader, _maybe_commit=maybe_commit)


def forget_recovery() -> AbstractContextManager[None]:
    """A member that lost some or all data on its disk continues as if nothing had been there."""
    original = Disk.stored

    def stored(self: Disk, hint: Membership) -> Stored:
        return replace(original(self, hint), recovering_until=None)

    return patched(Disk, stored=stored)


def recovering_until_committed() -> AbstractContextManager[None]:
    """A member that has all records up to the leader's commit index takes its lost ones for regained."""

    def maybe_end_recovery(self: Core) -> None:
        is_caught_up = self.announced_number > 0 and self.log.durable_end >= self.log.commit_end
        if self.recovering_until is not None and not self.installing and is_caught_up:
            self.recovering_until = None
            self.output.writes.append(EndRecovery())

    return patched(Core, maybe_end_recovery=maybe_end_recovery)


def count_new_voters_only() -> AbstractContextManager[None]:
    """While the membership is joint, the old voters do not count."""
    is_majority, majority_end = standing.is_majority, standing.majority_end

    def is_majority_of_new(membership: Membership, members: Iterable[NodeId]) -> bool:
        return is_majority(replace(membership, outgoing={}), members)

    def majority_end_of_new(membership: Membership, ends: Mapping[NodeId, Index]) -> Index:
        return majority_end(replace(membership, outgoing={}), ends)

    return patched(standing, is_majority=is_majority_of_new, majority_end=majority_end_of_new)


def count_learners() -> AbstractContextManager[None]:
    majority_end = standing.majority_end

    def majority_end_of_all(membership: Membership, ends: Mapping[NodeId, Index]) -> Index:
        return majority_end(replace(membership, voters=membership.addresses, outgoing={}), ends)

    return patched(standing, majority_end=majority_end_of_all)


def leave_joint_early() -> AbstractContextManager[None]:
    """The leader does not wait until the joint membership is committed."""
    original = reconfigure._advance_membership

    def advance_membership(core: Core, leading: Leading) -> None:
        if core.membership.is_joint:
            leader.append_membership(core, leading, core.membership.left())
        else:
            original(core, leading)

    return patched(reconfigure, _advance_membership=advance_membership)


def change_unguarded() -> AbstractContextManager[None]:
    """A change in one step, not joint, even if neither a record of this term nor the last change is committed."""

    def change(core: Core, wanted: Change) -> Viewstamp:
        if core.leader != core.me:
            raise leader.not_leader(core)
        return leader.append_membership(core, core.leading, replace(core.membership.changed(wanted), outgoing={}))

    return patched(reconfigure, change=change)


def keep_history_at_reset() -> AbstractContextManager[None]:
    """A start with a snapshot that the log does not hold resets the log, but keeps the history."""

    def recovered(self: Disk) -> Disk:
        point = self.snapshot
        if point is None or self.end >= point.end:
            return self
        return replace(self.written(ResetLog(point.end, point.last_term)), commit_hint=point.end)

    return patched(Disk, recovered=recovered)


def install_history_first() -> AbstractContextManager[None]:
    original = follower.install

    def install(core: Core, point: SnapshotPoint) -> bool | None:
        taken = original(core, point)
        if taken:
            core.output.writes[-2:] = reversed(core.output.writes[-2:])
        return taken

    return patched(follower, install=install)


def common_prefix() -> AbstractContextManager[None]:
    """The search for the common point begins behind the longest common prefix of the histories, trimmed or not."""
    original = term_history.common_point

    def common_point(leader: TermHistory, leader_end: Index, member: TermHistory, member_end: Index) -> Index | None:
        if leader.starts[0] != member.starts[0]:
            return Index(1)
        return original(leader, leader_end, member, member_end)

    return both(
        partial(patched, leader, common_point=common_point), partial(patched, follower, common_point=common_point)
    )


def commit_before_the_name() -> AbstractContextManager[None]:
    """An acknowledgement counts also for a commit that does not cover the record which names the member's disk."""

    def commit_end(
        entries: Sequence[MembershipEntry],
        ends: Mapping[NodeId, Index],
        term_start: Index,
        *,
        disks_are_named: bool,
        committed: Index,
        term: Term,
    ) -> Index:
        counted = standing.counting_ends(entries, ends) if disks_are_named else ends
        end = standing.majority_end(entries[-1].membership, counted)
        return end if end >= term_start else Index(0)

    return patched(standing, commit_end=commit_end)


EXPLORED: dict[str, Mutant] = {
    **{name: mutant for name, mutant in MUTANTS.items() if mutant.mix},
    **{
        name: NOTICE_MUTANTS[name]
        for name in (
            "find-before-sync",
            "find-below-the-term",
            "find-while-recovering",
            "tell-before-sync",
            "believe-the-leader-before",
        )
    },
    **{
        mutant.name: mutant
        for mutant in (
            Mutant("completion-uncounted", "an earlier completion ends the installation", completion_uncounted),
            Mutant(
                "completion-by-index-uncounted",
                "a completion is matched by index alone, and an earlier one ends the installation",
                completion_by_index_uncounted,
            ),
            Mutant(
                "completion-by-record",
                "a completion is matched by its record's header, and an earlier one ends the installation",
                completion_by_record,
            ),
            Mutant("resume-term", "a restarted leader goes on in its stored term", resume_term),
            Mutant("extend-stored-history", "a winner extends the stored history", extend_stored_history),
            Mutant("commit-unannounced", "the commit end is taken before the announcement", commit_unannounced),
            Mutant("votes-acknowledge", "an end in a vote counts as an acknowledgement", votes_acknowledge),
            Mutant(
                "commit-by-counting",
                "a record on a quorum is committed, even before a record of the term is",
                commit_by_counting,
            ),
            Mutant("forget-recovery", "a damaged or wiped disk comes back as if it were whole", forget_recovery),
            Mutant("keep-history-at-reset", "a start resets the log and keeps its history", keep_history_at_reset),
            Mutant("install-history-first", "a snapshot's history is stored before the reset", install_history_first),
            Mutant("common-prefix", "histories are compared as prefixes, also trimmed ones", common_prefix),
            Mutant("count-new-voters-only", "a joint membership counts its new voters only", count_new_voters_only),
            Mutant("count-learners", "a learner counts for commit", count_learners),
            Mutant("leave-joint-early", "a joint membership is left before it is committed", leave_joint_early),
            Mutant("change-unguarded", "single steps, with nothing of the term committed", change_unguarded),
            Mutant(
                "recovering-until-committed", "recovery ends at the leader's commit end", recovering_until_committed
            ),
            Mutant(
                "commit-before-the-name",
                "a commit counts a disk, but does not cover the record that names it",
                commit_before_the_name,
                rule="interval, rule 18",
            ),
        )
    },
}
"""The mutants by name."""
