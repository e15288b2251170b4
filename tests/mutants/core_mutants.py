"""Planted mistakes in the core that the model checker's list lacks.

Membership, transfer, recovery, reads, snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

from tests.mutants.mutants import Mutant, both, patched
from viewstamp.consensus import candidate, follower, leader, lease, quiet, raft, reads, reconfigure, standing
from viewstamp.consensus.membership import Membership
from viewstamp.consensus.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    Message,
    PreVoteRequest,
    TimeoutNow,
    VoteRequest,
)
from viewstamp.consensus.patience import Patience
from viewstamp.consensus.progress import Progress, ProgressState
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.ready import EndRecovery, Ready
from viewstamp.consensus.state import Core, Entropy, Leading, RaftOptions, Stored
from viewstamp.ids import Index, NodeId

__all__ = ["CORE_MUTANTS"]

_UNKNOWN_END = Index(2**62)


def forget_vote() -> AbstractContextManager[None]:
    original = Core.__init__

    def __init__(self: Core, me: NodeId, options: RaftOptions, stored: Stored, entropy: Entropy) -> None:  # noqa: N807
        original(self, me, options, replace(stored, vote=""), entropy)

    return patched(Core, __init__=__init__)


def count_old_answers() -> AbstractContextManager[None]:
    """An answer to an earlier announcement of the same term counts as one to the newest."""

    def replicating(leading: Leading, member: NodeId, _: int) -> Progress | None:
        progress = leading.progress.get(member)
        return progress if progress is not None and progress.state is ProgressState.REPLICATING else None

    return patched(leader, replicating=replicating)


def take_commit_unbounded() -> AbstractContextManager[None]:
    def take_commit(core: Core, commit_end: Index) -> None:
        core.log.commit_end = max(core.log.commit_end, commit_end)
        core.forget_committed_memberships()

    return patched(follower, take_commit=take_commit)


def cut_below_commit() -> AbstractContextManager[None]:
    """A member cuts its log at the announced point, even below its own commit index."""
    return both(trust_any_point(), patched(follower, check_announcement=lambda core, message: None))


def trust_any_point() -> AbstractContextManager[None]:
    return patched(follower, _continue_from=lambda core, message: Index(min(message.start, core.log.end)))


# -- Votes --------------------------------------------------------------------------------------------------


def refuse_a_vote_given() -> AbstractContextManager[None]:
    """A repeated vote request is checked against the voter's log, which may have grown, instead of the given vote."""
    original = candidate.is_up_to_date

    def on_vote_request(core: Core, message: VoteRequest) -> None:
        if message.term == core.term and core.vote == message.source and not original(core, message):
            core.vote = "\0nobody"
            answer(core, message)
            core.vote = message.source
        else:
            answer(core, message)

    answer = candidate.on_vote_request
    return patched(candidate, on_vote_request=on_vote_request)


def depose_a_leader_that_is_heard() -> AbstractContextManager[None]:
    """Votes and pre-votes are given although a leader is alive."""
    return patched(Core, has_live_leader=property(lambda self: False))


def lead_unheard() -> AbstractContextManager[None]:
    """A leader continues although no quorum answers it (no check-quorum)."""
    original = leader.on_tick

    def on_tick(core: Core, leading: Leading, ticks: int) -> None:
        leading.ticks_since_check = 0
        original(core, leading, ticks)

    return patched(leader, on_tick=on_tick)


def stand_at_a_loss() -> AbstractContextManager[None]:
    """A member that loses its leader campaigns in the next term at once, without a pre-vote."""
    original = follower.lose_leader

    def lose_leader(core: Core, member: NodeId) -> None:
        is_lost = member == core.leader != core.me
        original(core, member)
        if is_lost and candidate._may_stand(core):
            candidate._start_vote(core, transfers=True)

    return patched(follower, lose_leader=lose_leader)


def lose_anybody() -> AbstractContextManager[None]:
    """The loss of any member counts as the loss of the leader."""
    original = follower.lose_leader

    def lose_leader(core: Core, member: NodeId) -> None:
        original(core, core.leader or member)

    return patched(follower, lose_leader=lose_leader)


def stand_together() -> AbstractContextManager[None]:
    """All members that lost their leader campaign in the same moment, so the votes split."""
    original = follower.lose_leader

    def lose_leader(core: Core, member: NodeId) -> None:
        original(core, member)
        core.election_ticks = min(core.election_ticks, 2)

    return patched(follower, lose_leader=lose_leader)


def remember_every_full_tick() -> AbstractContextManager[None]:
    """Ticks without room are counted and never reset."""
    original = leader.on_tick
    counted: dict[Core, int] = {}

    def on_tick(core: Core, leading: Leading, ticks: int) -> None:
        counted[core] = counted.get(core, 0) + (0 if core.has_room else ticks)
        leading.full_ticks = counted[core] - ticks
        original(core, leading, ticks)

    return patched(leader, on_tick=on_tick)


def stand_after_losing() -> AbstractContextManager[None]:
    """A candidate that can no longer win waits for its timeout."""
    return patched(candidate, _maybe_give_up=lambda core, campaign: False)


def impatient() -> AbstractContextManager[None]:
    """Delays are not measured, so timeouts are those of a good network on every network."""
    return patched(Patience, note=lambda self, peer, delay: None)


def keep_the_term_to_oneself() -> AbstractContextManager[None]:
    """A message of a lower term is not answered."""
    return patched(Core, answer_term=lambda self, message: None)


def take_the_term_of_a_pre_vote() -> AbstractContextManager[None]:
    original = candidate.on_pre_vote_request

    def on_pre_vote_request(core: Core, message: PreVoteRequest) -> None:
        if message.term > core.term:
            follower.step_down(core, message.term)
        original(core, message)

    return patched(candidate, on_pre_vote_request=on_pre_vote_request)


# -- Membership ---------------------------------------------------------------------------------------------


def learner_for_a_voter() -> AbstractContextManager[None]:
    """A learner's end counts like a voter's."""

    def end_of_all(membership: Membership, ends: Mapping[NodeId, Index]) -> Index:
        held = sorted((ends.get(member, Index(0)) for member in membership.addresses), reverse=True)
        return held[standing.majority(len(membership.voters)) - 1]

    return patched(standing, majority_end=end_of_all)


def departed_counts_itself() -> AbstractContextManager[None]:
    original = leader._maybe_commit

    def maybe_commit(core: Core, leading: Leading) -> None:
        entry = core.memberships[-1]
        if core.me not in entry.membership.voters:
            counted = replace(entry.membership, voters={**entry.membership.voters, core.me: ""})
            core.memberships[-1] = replace(entry, membership=counted)
        original(core, leading)
        core.memberships[-1] = entry

    return patched(leader, _maybe_commit=maybe_commit)


def departed_leads_on() -> AbstractContextManager[None]:
    return patched(reconfigure, _depart=lambda core, leading: None)


def depart_before_commit() -> AbstractContextManager[None]:
    """A leader that is being removed steps down as soon as the record is in its log."""
    original = leader.append_membership

    def append_membership(core: Core, leading: Leading, membership: Membership) -> object:
        viewstamp = original(core, leading, membership)
        if core.me not in membership.addresses or (core.me in membership.outgoing and core.me not in membership.voters):
            follower.step_down(core, core.term)
        return viewstamp

    return patched(leader, append_membership=append_membership)


def promote_at_once() -> AbstractContextManager[None]:
    return patched(Progress, has_caught_up=lambda self, end, ticks_max: True)


def promote_while_the_old_disk_answers() -> AbstractContextManager[None]:
    """A learner is promoted in the place of a member that was reported as lost, but still answers with its old disk."""
    original = reconfigure._advance_membership

    def advance_membership(core: Core, leading: Leading) -> None:
        with patched(reconfigure, is_responding=lambda core, member: False):
            original(core, leading)

    return patched(reconfigure, _advance_membership=advance_membership)


def gone_by_the_setting() -> AbstractContextManager[None]:
    """A member counts as gone after the configured timeout, not after the one that the network needs."""

    def is_responding(core: Core, member: NodeId) -> bool:
        patience = reconfigure.GONE_TIMEOUTS * core.options.election_timeout_ticks
        return member == core.me or core.leading.progress[member].ticks_since_response <= patience

    return patched(reconfigure, is_responding=is_responding)


def keep_a_membership_that_is_cut() -> AbstractContextManager[None]:
    return patched(Core, truncate=lambda self, end: self.log.truncate(end))


def membership_from_its_commit() -> AbstractContextManager[None]:
    """A membership takes effect when it is known to be committed, not when it is in the log."""

    def membership(self: Core) -> Membership:
        known = [entry for entry in self.memberships if entry.index < self.log.commit_end]
        return (known or self.memberships[:1])[-1].membership

    return patched(Core, membership=property(membership))


def two_changes_at_a_time() -> AbstractContextManager[None]:
    original = reconfigure.change

    def change(core: Core, wanted: object) -> object:
        before, core.log.commit_end = core.log.commit_end, core.log.end
        try:
            return original(core, wanted)  # type: ignore[arg-type]
        finally:
            core.log.commit_end = before

    return patched(reconfigure, change=change)


def believe_any_vote() -> AbstractContextManager[None]:
    """The vote of a voter counts, even with another disk."""
    return patched(candidate, _counts=lambda core, voter: True)


def believe_any_disk() -> AbstractContextManager[None]:
    """The acknowledgements of a voter count, even with another disk."""
    return patched(standing, counting_ends=lambda entries, ends: ends)


# -- Sleep --------------------------------------------------------------------------------------------------


def oversleep() -> AbstractContextManager[None]:
    """A leader sleeps until its next heartbeat, although a tick would have an effect before."""
    original = quiet.quiet_ticks

    def quiet_ticks(core: Core) -> int:
        leading = core.state
        if isinstance(leading, Leading):
            return max(1, core.options.heartbeat_ticks - leading.heartbeat_elapsed)
        return original(core)

    return patched(quiet, quiet_ticks=quiet_ticks)


def stand_unread() -> AbstractContextManager[None]:
    """The last ticks before an election timeout pass as one, so a stopped process campaigns before it reads."""
    return patched(quiet, LAST_TICKS=0)


# -- Transfer -----------------------------------------------------------------------------------------------


def transfer_without_waiting() -> AbstractContextManager[None]:
    def continue_transfer(core: Core, leading: Leading, *, is_due: bool) -> None:
        target = leading.transferee
        assert target is not None
        leading.transfer_ticks += 1
        if target not in leading.progress or leading.transfer_ticks > core.options.election_timeout_ticks:
            leading.transferee = None
        elif is_due:
            core.output.messages.append(TimeoutNow(source=core.me, target=target, term=core.term))

    return patched(leader, continue_transfer=continue_transfer)


def transfer_refused() -> AbstractContextManager[None]:
    """A candidate that the leader has asked to campaign is refused because there is a leader."""
    original = candidate.on_vote_request

    def on_vote_request(core: Core, message: VoteRequest) -> None:
        original(core, replace(message, transfers=False))

    return patched(candidate, on_vote_request=on_vote_request)


def transfer_for_ever() -> AbstractContextManager[None]:
    original = leader.continue_transfer

    def continue_transfer(core: Core, leading: Leading, *, is_due: bool) -> None:
        leading.transfer_ticks = 0
        original(core, leading, is_due=is_due)

    return patched(leader, continue_transfer=continue_transfer)


def stand_for_anybody() -> AbstractContextManager[None]:
    original = candidate.on_timeout_now

    def on_timeout_now(core: Core, message: TimeoutNow) -> None:
        if core.leader is not None:
            message = replace(message, source=core.leader)
        original(core, message)

    return patched(candidate, on_timeout_now=on_timeout_now)


# -- Recovery ------------------------------------------------------------------------------------------------


def _speaking(core: Core, call: object, *arguments: object) -> None:
    """Run a call as if the member were not recovering."""
    before, core.recovering_until = core.recovering_until, None
    try:
        call(core, *arguments)  # type: ignore[operator]
    finally:
        core.recovering_until = before


def forget_recovery() -> AbstractContextManager[None]:
    """A member continues from the remains of its log."""
    original = Core.__init__

    def __init__(self: Core, me: NodeId, options: RaftOptions, stored: Stored, entropy: Entropy) -> None:  # noqa: N807
        original(self, me, options, replace(stored, recovering_until=None), entropy)

    return patched(Core, __init__=__init__)


def recovering_votes() -> AbstractContextManager[None]:
    original = candidate.on_vote_request
    return patched(candidate, on_vote_request=lambda core, message: _speaking(core, original, message))


def recovering_stands() -> AbstractContextManager[None]:
    def may_stand(core: Core, *, transfers: bool = False) -> bool:
        return core.me in core.membership.electors and core.is_synced and not core.installing and core.has_room

    return patched(candidate, _may_stand=may_stand)


def recovering_counts() -> AbstractContextManager[None]:
    """The leader counts the acknowledgements of a recovering member."""
    acknowledged, become_replicating = Progress.acknowledged, Progress.become_replicating
    return patched(
        Progress,
        acknowledged=lambda self, end, *, is_recovering: acknowledged(self, end, is_recovering=False),
        become_replicating=lambda self, end, *, is_recovering: become_replicating(self, end, is_recovering=False),
    )


def recovering_confirms_reads() -> AbstractContextManager[None]:
    original = reads.on_heartbeat_response

    def on_heartbeat_response(core: Core, message: HeartbeatResponse) -> None:
        original(core, message)
        progress = leader.replicating(core.leading, message.source, message.number)
        if progress is not None:
            progress.confirmed_round = max(progress.confirmed_round, message.round)
            reads.confirm(core, core.leading)

    return patched(reads, on_heartbeat_response=on_heartbeat_response)


def _end_recovery(core: Core) -> None:
    if core.recovering_until is not None and core.recovery_completions_left == 0:
        core.recovery_completions_left = core.unfinished + 1
        core.output.writes.append(EndRecovery())


def recovering_until_the_leaders_end() -> AbstractContextManager[None]:
    """A member that holds all records that the leader sent counts as having regained all lost ones."""
    original = follower.on_heartbeat_request

    def on_heartbeat_request(core: Core, message: HeartbeatRequest) -> None:
        original(core, message)
        if not core.installing and core.announced_number > 0 and core.log.durable_end >= message.sent_end:
            _end_recovery(core)

    return patched(follower, on_heartbeat_request=on_heartbeat_request)


def promote_in_place() -> AbstractContextManager[None]:
    """A member that has lost everything votes again under its old name once it has caught up with its leader."""
    original = follower.on_heartbeat_request

    def on_heartbeat_request(core: Core, message: HeartbeatRequest) -> None:
        original(core, message)
        is_wiped = core.recovering_until is not None and core.recovering_until[1] == _UNKNOWN_END
        if is_wiped and not core.installing and core.announced_number > 0 and core.log.end >= message.sent_end:
            _end_recovery(core)

    return patched(follower, on_heartbeat_request=on_heartbeat_request)


def speak_before_it_is_stored() -> AbstractContextManager[None]:
    original = Core.maybe_end_recovery

    def maybe_end_recovery(self: Core) -> None:
        original(self)
        if self.recovery_completions_left:
            self.recovery_completions_left, self.recovering_until = 0, None

    return patched(Core, maybe_end_recovery=maybe_end_recovery)


def recovering_for_ever() -> AbstractContextManager[None]:
    """A recovering voter with an unknown target gets no help, although it lacks nothing."""
    return patched(reconfigure, _help_recovering=lambda core, leading: None)


# -- Reads --------------------------------------------------------------------------------------------------


def read_unconfirmed() -> AbstractContextManager[None]:
    original = reads.confirm

    def confirm(core: Core, leading: Leading) -> None:
        for progress in leading.progress.values():
            progress.confirmed_round = leading.round
        original(core, leading)

    return patched(reads, confirm=confirm)


def read_by_an_older_answer() -> AbstractContextManager[None]:
    original = reads.on_heartbeat_response

    def on_heartbeat_response(core: Core, message: HeartbeatResponse) -> None:
        original(core, replace(message, round=core.leading.round))

    return patched(reads, on_heartbeat_response=on_heartbeat_response)


def read_before_the_term_start() -> AbstractContextManager[None]:
    original = Raft.ready

    def ready(self: Raft) -> Ready | None:
        leading = self.core.state
        if not isinstance(leading, Leading):
            return original(self)
        before = leading.is_reached, leading.term_start
        leading.is_reached, leading.term_start = True, Index(0)
        try:
            return original(self)
        finally:
            leading.is_reached, leading.term_start = before

    return patched(Raft, ready=ready)


def lease_after_its_end() -> AbstractContextManager[None]:
    return patched(lease, is_held=lambda core, leading: leading.lease_until_us > 0 and not leading.has_released)


def promise_and_vote() -> AbstractContextManager[None]:
    return patched(lease, is_promised=lambda core: False)


def lease_after_a_transfer() -> AbstractContextManager[None]:
    original = lease.is_held

    def is_held(core: Core, leading: Leading) -> bool:
        before, leading.has_released = leading.has_released, False
        try:
            return original(core, leading)
        finally:
            leading.has_released = before

    return patched(lease, is_held=is_held)


def forget_the_promise() -> AbstractContextManager[None]:
    original = Core.__init__

    def __init__(self: Core, me: NodeId, options: RaftOptions, stored: Stored, entropy: Entropy) -> None:  # noqa: N807
        original(self, me, options, replace(stored, promised_us=0), entropy)

    return patched(Core, __init__=__init__)


# -- Installing ---------------------------------------------------------------------------------------------


def answer_while_installing() -> AbstractContextManager[None]:
    original = Raft.step

    def step(self: Raft, message: Message) -> None:
        core = self.core
        is_question = isinstance(message, VoteRequest | HeartbeatRequest)
        before, core.installing = core.installing, core.installing and not is_question
        original(self, message)
        core.installing = core.installing or before

    return patched(raft.Raft, step=step)


def announce_by_memory() -> AbstractContextManager[None]:
    """An earlier announcement still counts after an installation."""
    original = follower.install

    def install(core: Core, point: object) -> bool | None:
        number = core.announced_number
        taken = original(core, point)  # type: ignore[arg-type]
        core.announced_number = number
        return taken

    return patched(follower, install=install)


CORE_MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant("forget-vote", "a vote is forgotten by a restart, and given twice", forget_vote, rule="§11, rule 2"),
        Mutant("cut-below-commit", "a member cuts below its own commit end", cut_below_commit, rule="§11, rule 4"),
        Mutant("count-old-answers", "answers to an older announcement count", count_old_answers, rule="rule 6"),
        Mutant(
            "take-commit-unbounded", "a member takes a commit end beyond its log", take_commit_unbounded, rule="rule 8"
        ),
        Mutant(
            "answer-while-installing",
            "a member votes while it installs an announcement",
            answer_while_installing,
            rule="rule 5",
        ),
        Mutant(
            "announce-by-memory",
            "after a snapshot is installed, the earlier announcement still counts",
            announce_by_memory,
            rule="rule 19",
        ),
        Mutant("refuse-a-vote-given", "a vote that was given is refused", refuse_a_vote_given, rule="rule 2"),
        Mutant(
            "depose-who-is-heard",
            "a vote is given although a leader is alive",
            depose_a_leader_that_is_heard,
            rule="rule 13",
        ),
        Mutant(
            "lead-unheard", "a leader to which no quorum responds does not step down", lead_unheard, rule="design §4"
        ),
        Mutant(
            "stand-at-a-loss",
            "a member that loses its leader campaigns without a pre-vote",
            stand_at_a_loss,
            rule="rule 13",
        ),
        Mutant("lose-anybody", "the loss of any member counts as the loss of the leader", lose_anybody, rule="rule 13"),
        Mutant(
            "stand-together",
            "all members that lose their leader stand for election at the same time",
            stand_together,
            rule="design §4",
        ),
        Mutant(
            "remember-full-ticks",
            "ticks without free space are counted even if they are not consecutive",
            remember_every_full_tick,
            rule="design §4",
        ),
        Mutant(
            "stand-after-losing",
            "a candidate that has lost continues its campaign",
            stand_after_losing,
            rule="design §4",
        ),
        Mutant("impatient", "timeouts do not adapt to a slow network", impatient, rule="design §4"),
        Mutant("oversleep", "a leader sleeps while it has something to do", oversleep, rule="design §4"),
        Mutant("stand-unread", "a member sleeps up to its election timeout", stand_unread, rule="design §4"),
        Mutant("lower-term-unanswered", "a lower term is not answered", keep_the_term_to_oneself, rule="rule 13"),
        Mutant("pre-vote-takes-term", "a pre-vote changes the term", take_the_term_of_a_pre_vote, rule="rule 13"),
        Mutant("learner-for-a-voter", "a learner's end counts as a voter's", learner_for_a_voter, rule="rule 14"),
        Mutant(
            "departed-counts-itself",
            "a leader that has removed itself counts its own log for commit",
            departed_counts_itself,
            rule="rule 15",
        ),
        Mutant("departed-leads-on", "a removed leader does not step down", departed_leads_on, rule="rule 15"),
        Mutant(
            "depart-before-commit",
            "a leader steps down before its removal is committed",
            depart_before_commit,
            rule="rule 15",
        ),
        Mutant("promote-at-once", "a learner is promoted that lacks most of the log", promote_at_once, rule="§4"),
        Mutant(
            "promote-while-it-answers",
            "a learner replaces a member whose disk still answers",
            promote_while_the_old_disk_answers,
            rule="rule 18",
        ),
        Mutant(
            "gone-by-the-setting",
            "a member that answers slowly is taken to be gone",
            gone_by_the_setting,
            rule="rule 18",
        ),
        Mutant(
            "keep-a-cut-membership",
            "a membership stays in force after its record was cut off",
            keep_a_membership_that_is_cut,
            rule="rule 15",
        ),
        Mutant(
            "membership-from-commit",
            "a membership is in force only when it is committed",
            membership_from_its_commit,
            rule="rule 15",
        ),
        Mutant("two-changes", "a change begins before the last is committed", two_changes_at_a_time, rule="rule 15"),
        Mutant(
            "believe-any-vote",
            "a vote counts although no record names the voter's disk",
            believe_any_vote,
            rule="rule 18",
        ),
        Mutant(
            "believe-any-disk",
            "an acknowledgement counts although no record names the member's disk",
            believe_any_disk,
            rule="rule 18",
        ),
        Mutant("transfer-at-once", "a transfer does not wait for the log", transfer_without_waiting, rule="§4"),
        Mutant("transfer-refused", "a vote for a transfer is refused", transfer_refused, rule="§4"),
        Mutant("transfer-for-ever", "a transfer that fails is not given up", transfer_for_ever, rule="§4"),
        Mutant(
            "stand-for-anybody",
            "a member accepts TimeoutNow from a node that does not lead",
            stand_for_anybody,
            rule="§4",
        ),
        Mutant(
            "forget-recovery",
            "a recovery cuts a damaged suffix and does not store that records were lost",
            forget_recovery,
            rule="row 21, rule 17",
        ),
        Mutant("recovering-votes", "a recovering member votes", recovering_votes, rule="rule 17"),
        Mutant("recovering-stands", "a recovering member stands for election", recovering_stands, rule="rule 17"),
        Mutant(
            "recovering-counts", "the end of a recovering member counts for commit", recovering_counts, rule="rule 17"
        ),
        Mutant(
            "recovering-confirms-reads", "a recovering member confirms reads", recovering_confirms_reads, rule="rule 17"
        ),
        Mutant(
            "recovering-until-leaders-end",
            "recovery ends when a member has all records that the leader has sent",
            recovering_until_the_leaders_end,
            rule="rule 17",
        ),
        Mutant("promote-in-place", "a wiped member that has caught up counts again", promote_in_place, rule="row 20"),
        Mutant(
            "speak-before-stored",
            "a member counts again before the end of its recovery is on the disk",
            speak_before_it_is_stored,
            rule="rule 17",
        ),
        Mutant(
            "recovering-for-ever",
            "a leader does not hand over for a recovering voter that has all records",
            recovering_for_ever,
            rule="rule 17",
        ),
        Mutant("read-unconfirmed", "a read-index is answered unconfirmed", read_unconfirmed, rule="reads"),
        Mutant(
            "read-by-older-answer",
            "an answer to an older heartbeat confirms a read",
            read_by_an_older_answer,
            rule="reads",
        ),
        Mutant(
            "read-before-term-start",
            "a read is answered before the term start is reached",
            read_before_the_term_start,
            rule="reads",
        ),
        Mutant("lease-after-its-end", "a lease is used after its end", lease_after_its_end, rule="leases"),
        Mutant("promise-and-vote", "a member with a promise elects another leader", promise_and_vote, rule="leases"),
        Mutant("lease-after-transfer", "a lease is used after a transfer", lease_after_a_transfer, rule="leases"),
        Mutant("forget-promise", "a promise is forgotten by a restart", forget_the_promise, rule="leases"),
    )
}
"""The mutants by name."""
