"""Following: accepting a leader's announcement, its batches and its commit index. Learners do the same."""

from __future__ import annotations

from viewstamp.consensus import lease, standing
from viewstamp.consensus.membership import Membership
from viewstamp.consensus.messages import (
    NUMBER_END,
    Announcement,
    AnnouncementResponse,
    AppendRequest,
    AppendResponse,
    DurableNotice,
    HeartbeatRequest,
    HeartbeatResponse,
    HistoryRequest,
    HistoryResponse,
    Message,
    SnapshotOffer,
)
from viewstamp.consensus.ready import ResetLog, TruncateLog
from viewstamp.consensus.state import Campaign, Core, Following, SnapshotPoint
from viewstamp.consensus.term_history import common_point
from viewstamp.errors import PeerError
from viewstamp.ids import Index, NodeId, Term
from viewstamp.wire.batch import Batch, Kind

__all__ = [
    "check_announcement",
    "check_commit",
    "install",
    "is_announced",
    "lose_leader",
    "note_leader",
    "on_announcement",
    "on_append_request",
    "on_durable",
    "on_durable_notice",
    "on_heartbeat_request",
    "on_history_request",
    "on_snapshot_offer",
    "step_down",
    "take_commit",
]


_NEWS_TICKS = 2
"""Ticks until every running member has noticed that the leader's process is dead: one to two."""


def step_down(core: Core, term: Term, *, vote: str = "") -> None:
    """Become a follower in ``term``, without a leader so far; a higher term is stored.

    If a leader steps down, its unsynced tail stays in memory and in the queue of the disk, because it may be on other
    disks and may win. Only an announcement cuts it (rule 10).
    """
    if not isinstance(core.state, Following):
        core.restart_election_timer()
    core.become(Following())
    if term > core.term:
        core.announced_number = 0
        core.store_term(term, vote)


def note_leader(core: Core, message: Message) -> None:
    """Follow the sender of a leader's message, and fix the vote of this term to it (rule 11)."""
    if core.leader is None:
        if core.last_leader == (core.term, message.source):
            # This member gave up the leader too early, so the delay is noted.
            core.patience.note(message.source, core.ticks_since_message)
        step_down(core, core.term)
        core.become(Following(message.source))
        core.last_leader = core.term, message.source
        if core.vote == "":
            core.store_term(core.term, message.source)
        core.restart_election_timer()
    elif core.leader != message.source:
        core.refuse(message.source, "one-leader", f"both {core.leader} and {message.source} lead")
    elif core.ticks_since_message > core.patience.slow:
        core.patience.note(message.source, core.ticks_since_message)
        core.restart_election_timer()
    core.ticks_since_leader = core.ticks_since_message = 0
    if core.options.lease_us:
        lease.promise(core)


def lose_leader(core: Core, member: NodeId) -> None:
    """Stop waiting for a leader that seems to be dead; see :meth:`Raft.lost_leader`.

    The first successor campaigns after ``_NEWS_TICKS``, because until then others may not have noticed, and would
    refuse their votes. Each further one campaigns a heartbeat later, so that votes do not split, and so that a member
    with a better log than the first gets its turn soon.
    """
    if member != core.leader or member == core.me:
        return
    step_down(core, core.term)
    core.restart_election_timer()
    successors = [voter for voter in sorted(core.membership.electors) if voter != member]
    if core.me in successors:
        own_turn = _NEWS_TICKS + successors.index(core.me) * core.options.heartbeat_ticks
        core.election_ticks = lease.promised_ticks(core) + own_turn


def on_history_request(core: Core, message: HistoryRequest) -> None:
    """Send the history and end of this log to the leader, once the log is synced and the term is durable."""
    note_leader(core, message)
    _report_history(core, message, number=message.number)


def on_announcement(core: Core, message: Announcement) -> None:
    """Make this log a prefix of the leader's.

    An announcement that would cut below the own commit end comes from a broken peer, except in interval mode: there a
    majority may have lost power and with it acknowledged records, and the group went on without them. Then the node
    sets the log aside; this member does not answer, so the leader repeats its announcement until that is done.

    The writes, in this order: term (if it is new), truncation, history. A crash between any two leaves the old
    history on a log that is the same or shorter, which is safe. If the history were written first, it would describe
    records of an old term as records of the new one; that loses a committed record in 10 steps (model-checked).
    """
    check_announcement(core, message)
    note_leader(core, message)
    if message.number <= core.announced_number:
        return
    if not core.is_synced:
        core.stash_until_synced(message)
        return
    start = _continue_from(core, message)
    if start != message.start:
        _report_history(core, message, number=message.number)
        return
    if start < core.log.commit_end:
        reason = f"{message.source} leads without records that are committed here, from index {start} on"
        core.output.superseded = reason
        return
    core.bound_recovery(message)
    if start < core.log.end:
        core.truncate(start)
        core.output.writes.append(TruncateLog(start))
    # Written even if it is the same, because its completion ends the installation.
    core.store_history(message.history.preceded_by(core.history).trimmed(core.first_index))
    core.accept_term = core.term
    core.announced_number = message.number
    core.begin_installing()


def _continue_from(core: Core, message: Announcement) -> Index | None:
    """Return the common point with the leader's log, computed from this member's *own present* state."""
    end = core.log.durable_end
    return common_point(message.history, end, core.advertised, end)


def check_announcement(core: Core, message: Announcement) -> None:
    """Check all of an announcement against this log, before its term is adopted and before anything is cut.

    If both histories contain a term, its begin must be the same in both. A difference in a term with records that are
    committed here is a contradiction, because the leader's log does not hold records that this member has applied. A
    cut of committed records is one too, except in interval mode. After any other mismatch only the message is refused,
    because it may be the message that is wrong.

    Raises:
      BrokenRuleError: the message is refused.
      ContradictionError: the node stops.
    """
    if message.number <= core.announced_number and message.term == core.term:
        return  # Doubled or late: on_announcement ignores it.
    for term, begin in core.advertised.starts:
        found = message.history.begin_of(term)
        if found is None or found == begin:
            continue
        complaint = f"{message.source} announced that term {term} begins at {found}, here it begins at {begin}"
        if begin < core.log.commit_end:
            core.contradict(f"{complaint}, and its records are committed")
        core.refuse(message.source, "history", complaint)
    try:
        message.history.preceded_by(core.history)
        start = _continue_from(core, message)
    except PeerError as error:
        core.refuse(
            message.source, "history", f"{message.source} announced a history that contradicts this log: {error}"
        )
    if start is None or start != message.start or not core.is_synced:
        return  # on_announcement does not accept it as it is: it reports this member's state instead, or waits.
    if start < core.log.commit_end and core.options.may_lose_acknowledged:
        return  # The node sets the log aside.
    if start < core.log.commit_end:
        core.contradict(
            f"{message.source} announced a cut to {start}, but everything before {core.log.commit_end} is committed"
        )
    if not core.log.is_boundary(start):
        core.refuse(message.source, "boundary", f"{message.source} announced a cut to {start}, inside a batch")


def on_snapshot_offer(core: Core, message: SnapshotOffer) -> None:
    """Let the node fetch the leader's snapshot, unless everything in it is known to be committed here."""
    note_leader(core, message)
    if message.end > core.log.commit_end:
        core.output.offer = message


def install(core: Core, point: SnapshotPoint) -> bool | None:
    """Replace the log by a snapshot; see :meth:`Raft.install`.

    The file is already durable. The writes, in this order: the log is reset, then the history is stored. A crash
    between any two leaves the file with a log that does not hold its last record, or with a history that gives another
    term for it: recovery resets the log again. If the history were stored first, it would describe the old tail as
    records of other terms (rule 19).
    """
    log = core.log
    _check_point(core, point)
    is_held = point.end <= log.end and core.history.term_at(Index(point.end - 1)) == point.last_term
    if core.leader == core.me or point.end <= log.commit_end or is_held:
        return False
    if core.installing or core.unfinished or core.output.writes or not core.is_synced:
        return None
    if isinstance(core.state, Campaign):
        step_down(core, core.term)
    log.reset(point.end)
    core.first_index = point.end
    core.base = (point.end, point.last_term)
    core.memberships = [core.readdressing.entry(point.membership)]
    core.log_time = max(core.log_time, point.log_time)
    core.output.writes.append(ResetLog(point.end, point.last_term))
    core.store_history(point.history)
    core.announced_number = 0  # The leader must announce again, because its appends do not fit the new log.
    core.begin_installing()
    return True


def _check_point(core: Core, point: SnapshotPoint) -> None:
    """Check that a snapshot's history agrees with what is committed here. Raises ContradictionError."""
    for term, begin in core.history.starts:
        found = point.history.begin_of(term)
        if found not in (None, begin) and begin < core.log.commit_end:
            core.contradict(f"in a snapshot term {term} begins at {found}, here it begins at {begin}")


def on_append_request(core: Core, message: AppendRequest) -> None:
    """Append batches that start exactly at the end, in the announced term; the answer is sent after the sync."""
    note_leader(core, message)
    if not is_announced(core, message):
        return
    log = core.log
    if message.batches and message.start == log.end:
        _check_batches(core, message)
        core.append(*message.batches)
    else:
        check_commit(core, message.source, message.commit_end)
        # Wholly below the end, it is doubled or late. Beyond it, an append was lost, or the end moved. Neither is an
        # error.
        end = message.batches[-1].end if message.batches else message.start
        _answer_append(core, rejected=end > log.end)
    take_commit(core, message.commit_end)


def is_announced(core: Core, message: AppendRequest | HeartbeatRequest | DurableNotice) -> bool:
    """Return whether ``message`` belongs to the accepted announcement.

    If its announcement is a newer one, report this member's state, so that the leader announces again.
    """
    if message.number == core.announced_number:
        return message.number > 0  # If both are 0, nothing was announced. No leader sends 0.
    if message.number > core.announced_number:
        _report_history(core, message, number=0)
    return False


def _check_batches(core: Core, message: AppendRequest) -> None:
    """Check all batches of an append, before the first of them reaches the log. Raises BrokenRuleError.

    The decoder has already checked their checksums (``node/peers/codec.py``).
    """
    source, end, commit_end = message.source, message.start, message.commit_end
    newest, newest_begin = core.history.starts[-1]
    own = newest if end > newest_begin else core.history.term_at(Index(end - 1))
    if message.previous_term != own:
        complaint = f"{source} has term {message.previous_term} before index {end}, here it is {own}"
        core.refuse(source, "previous-term", complaint)
    is_boundary = commit_end <= core.log.commit_end or commit_end == end
    is_boundary = is_boundary or (commit_end < end and core.log.is_boundary(commit_end))
    for batch in message.batches:
        expected = newest if batch.first_index >= newest_begin else core.history.term_at(batch.first_index)
        if batch.term != expected or batch.first_index != end:
            complaint = f"{batch!r} from {source}: term {expected} and index {end} were announced"
            core.refuse(source, "announced-batch", complaint)
        if batch.end >= NUMBER_END or not 0 <= batch.log_time < NUMBER_END:
            complaint = f"{batch!r} from {source} has log time {batch.log_time} and ends at {batch.end}"
            core.refuse(source, "batch-numbers", complaint)
        if batch.kind is Kind.MEMBERSHIP:
            _check_membership(core, source, batch)
        end = batch.end
        is_boundary = is_boundary or commit_end == end
    if not is_boundary and commit_end < end:
        core.refuse(source, "boundary", f"{source} sent the commit end {commit_end}, which is inside a batch")


def _check_membership(core: Core, source: NodeId, batch: Batch) -> None:
    try:
        membership = Membership.decode(batch.values()[0])
    except PeerError as error:
        core.refuse(source, "membership", f"{batch!r} from {source}: {error}")
    if batch.count != 1 or not membership.voters:
        core.refuse(source, "membership", f"{batch!r} from {source} is no record of a membership with voters")


def check_commit(core: Core, source: NodeId, commit_end: Index) -> None:
    """Check that a commit end is between two batches, if it is above the own one and within this log."""
    if core.log.commit_end < commit_end < core.log.end and not core.log.is_boundary(commit_end):
        core.refuse(source, "boundary", f"{source} sent the commit end {commit_end}, which is inside a batch")


def on_heartbeat_request(core: Core, message: HeartbeatRequest) -> None:
    """Answer immediately, because the answer promises only state that is already durable."""
    note_leader(core, message)
    if not is_announced(core, message):
        return
    check_commit(core, message.source, message.commit_end)
    take_commit(core, message.commit_end)
    if message.commit_end >= core.ahead_end:
        core.ahead_end = Index(0)
    core.output.messages.append(
        HeartbeatResponse(
            source=core.me,
            target=message.source,
            term=core.term,
            number=message.number,
            end=core.log.durable_end,
            round=message.round,
            is_recovering=core.recovering_until is not None,
            promise_us=core.options.lease_us,
        )
    )
    if message.sent_end > core.log.end:
        _answer_append(core, rejected=True)


def on_durable(core: Core, *, was_installing: bool) -> None:
    """Report the new durable end, or the durable announcement, to the leader, if there still is one."""
    if core.recovering_until is not None:
        core.maybe_end_recovery()
    if core.leader is None or core.announced_number == 0:
        return
    if was_installing:
        core.output.messages.append(
            AnnouncementResponse(
                source=core.me,
                target=core.leader,
                term=core.term,
                number=core.announced_number,
                end=core.log.durable_end,
                is_recovering=core.recovering_until is not None,
            )
        )
    else:
        _answer_append(core, rejected=False)
    if core.leader_durable_end > core.log.commit_end:
        _find_commit(core)


def on_durable_notice(core: Core, message: DurableNotice) -> None:
    """Note how far the leader's own log is durable, and what that commits."""
    note_leader(core, message)
    if not is_announced(core, message):
        return
    check_commit(core, message.source, message.end)
    core.leader_durable_end = max(core.leader_durable_end, message.end)
    _find_commit(core)


def _find_commit(core: Core) -> None:
    """Find what is committed because the leader and this member hold it durably, by the leader's own rule (rule 7).

    The leader may not know it yet, and both stay right: that the two hold it in this term is what commits it, and not
    who knows. The leader may have a newer membership in its log. Then it has committed the one that is in force here,
    and a majority of each shares a voter with a majority of the other (rule 15).
    """
    log, me, leader = core.log, core.me, core.leader
    if leader is None or core.recovering_until is not None or core.options.may_lose_acknowledged:
        return  # It counts for nothing (rule 17), or calls a log durable that is not synced.
    is_named = bool(core.incarnations)
    if is_named and core.membership.incarnations.get(me) != core.incarnations.get(me):
        return  # The membership does not name this disk (rule 18).
    end, begin = min(core.leader_durable_end, log.durable_end), core.history.begin_of(core.term)
    assert begin is not None, f"{me} has accepted an announcement of term {core.term}, which its history lacks"
    end = standing.commit_end(
        core.memberships,
        {leader: end, me: end},
        begin,
        disks_are_named=is_named,
        committed=log.commit_end,
        term=core.term,
    )
    if end > log.commit_end and log.is_boundary(end):
        core.ahead_end = end
        take_commit(core, end)


def _answer_append(core: Core, *, rejected: bool) -> None:
    """Answer the leader, once a turn, because a later answer of the same turn includes the earlier one."""
    assert core.leader is not None
    before = core.output.messages[-1] if core.output.messages else None
    if isinstance(before, AppendResponse):
        rejected = rejected or before.rejected
        core.output.messages.pop()
    core.output.messages.append(
        AppendResponse(
            source=core.me,
            target=core.leader,
            term=core.term,
            number=core.announced_number,
            end=core.log.durable_end,
            received_end=core.log.end,
            rejected=rejected,
            is_recovering=core.recovering_until is not None,
        )
    )


def _report_history(core: Core, message: Message, *, number: int) -> None:
    if not core.is_synced:
        core.stash_until_synced(message)
        return
    core.send_after_durable(
        HistoryResponse(
            source=core.me,
            target=message.source,
            term=core.term,
            number=number,
            history=core.advertised,
            end=core.log.durable_end,
            life=core.life,
        )
    )


def take_commit(core: Core, commit_end: Index) -> None:
    """Adopt the leader's commit end, durable here or not; never backwards, never beyond the log (rule 8)."""
    core.log.commit_end = max(core.log.commit_end, min(commit_end, core.log.end))
    if len(core.memberships) > 1:
        core.forget_committed_memberships()
