"""Following: taking a leader's announcement, its batches and its commit index. Learners do the same."""

from __future__ import annotations

from viewstamp.consensus.core import Core, SnapshotPoint
from viewstamp.consensus.messages import (
    Announcement,
    AnnouncementResponse,
    AppendRequest,
    AppendResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    HistoryRequest,
    HistoryResponse,
    Message,
    ReadIndexResponse,
    SnapshotOffer,
)
from viewstamp.consensus.ready import ResetLog, TruncateLog
from viewstamp.consensus.term_history import common_point
from viewstamp.ids import Index, NodeId, Term

__all__ = [
    "hear_leader",
    "install",
    "is_announced",
    "lose_leader",
    "on_announcement",
    "on_append_request",
    "on_durable",
    "on_heartbeat_request",
    "on_history_request",
    "on_read_index_response",
    "on_snapshot_offer",
    "step_down",
]


_NEWS_TICKS = 2
"""So long it takes at most, and one tick at least, until all that run know that a leader is dead."""


def step_down(core: Core, term: Term, *, vote: str = "") -> None:
    """Follow in ``term``, without a leader so far; a higher term is stored.

    A leader's tail that is not synced stays, in memory and in the queue of the disk: it may be on other disks
    and may win. Only an announcement cuts it (rule 10).
    """
    if core.leader == core.me or core.campaign is not None:
        core.restart_election_timer()
    core.leader = None
    core.forget_campaign()
    core.forget_leading()
    if term > core.term:
        core.announced_number = 0
        core.store_term(term, vote)


def hear_leader(core: Core, message: Message) -> None:
    """Note a sign of life of the leader of this term; its vote is fixed to it (rule 11)."""
    if core.leader is None:
        step_down(core, core.term)
        core.leader = message.source
        if core.vote == "":
            core.store_term(core.term, message.source)
        core.restart_election_timer()
    elif core.leader != message.source:
        core.check_peer(False, f"both {core.leader} and {message.source} lead")
    core.ticks_since_leader = 0


def lose_leader(core: Core, member: NodeId) -> None:
    """Stop waiting for a leader that seems to be dead; see :meth:`Raft.lost_leader`.

    The others have to hear of it too, or they refuse their votes: hence a moment before the first stands. The next one
    stands a heartbeat later, so that votes do not split, and the better log of two follows soon.
    """
    if member != core.leader or member == core.me:
        return
    step_down(core, core.term)
    core.restart_election_timer()
    successors = [voter for voter in sorted(core.membership.electors) if voter != member]
    if core.me in successors:
        core.election_ticks = _NEWS_TICKS + successors.index(core.me) * core.options.heartbeat_ticks


def on_history_request(core: Core, message: HistoryRequest) -> None:
    """Tell the leader where this log stands, once it is synced and the term is durable."""
    hear_leader(core, message)
    _report_history(core, message, number=message.number)


def on_announcement(core: Core, message: Announcement) -> None:
    """Make this log a prefix of the leader's.

    The writes, in this order: term (if it is new), truncation, history. A crash between any two leaves the old
    history on a log that is the same or shorter, which is safe; the history first would describe records of
    an old term as ones of the new, and loses a committed record in 10 steps (model-checked).
    """
    hear_leader(core, message)
    if message.number <= core.announced_number:
        return
    if not core.is_synced:
        core.stash_until_synced(message)
        return
    start = _continue_from(core, message)
    if start != message.start:
        _report_history(core, message, number=message.number)
        return
    core.check_peer(
        start >= core.log.commit_end,
        f"{message.source} says to cut to {start}, but everything before {core.log.commit_end} is committed",
    )
    if start < core.log.end:
        core.truncate(start)
        core.writes.append(TruncateLog(start))
    # Written even if it is the same: its completion is what ends the silence.
    core.store_history(message.history.preceded_by(core.history).trimmed(core.first_index))
    core.accept_term = core.term
    core.announced_number = message.number
    core.begin_installing()


def _continue_from(core: Core, message: Announcement) -> Index | None:
    """Compute, from one's *own present* state, where this log parts from the leader's."""
    end = core.log.durable_end
    return common_point(message.history, end, core.advertised, end)


def on_snapshot_offer(core: Core, message: SnapshotOffer) -> None:
    """Have the leader's snapshot fetched, unless everything in it is known to be committed here."""
    hear_leader(core, message)
    if message.end > core.log.commit_end:
        core.offer = message


def install(core: Core, point: SnapshotPoint) -> bool | None:
    """Put a snapshot in the place of the log; see :meth:`Raft.install`.

    The file is durable; the writes, in this order: the log is reset, then the history is stored. A crash between any
    two leaves the file with a log that does not hold its last record, or whose history says another term for it:
    recovery resets it again. The history first would describe the old tail as records of other terms (rule 19).
    """
    log = core.log
    is_held = point.end <= log.end and core.history.term_at(Index(point.end - 1)) == point.last_term
    if core.leader == core.me or point.end <= log.commit_end or is_held:
        return False
    if core.installing or core.unfinished or core.writes or not core.is_synced:
        return None
    if core.campaign is not None:
        step_down(core, core.term)
    log.reset(point.end)
    core.first_index = point.end
    core.base = (point.end, point.last_term)
    core.memberships = [point.membership]
    core.log_time = max(core.log_time, point.log_time)
    core.writes.append(ResetLog(point.end, point.last_term))
    core.store_history(point.history)
    core.announced_number = 0  # The leader must announce again: what it sent under the old announcement is void.
    core.begin_installing()
    return True


def on_append_request(core: Core, message: AppendRequest) -> None:
    """Append what starts exactly at the end, in the announced term; the answer follows the sync."""
    hear_leader(core, message)
    if not is_announced(core, message):
        return
    log = core.log
    if message.batches and message.start == log.end:
        _append(core, message)
    else:
        # Wholly below the end: doubled or late. Beyond it: one was lost, or the end moved. Neither is an error.
        end = message.batches[-1].end if message.batches else message.start
        _answer_append(core, rejected=end > log.end)
    _take_commit(core, message.commit_end)


def is_announced(core: Core, message: AppendRequest | HeartbeatRequest) -> bool:
    """Say whether ``message`` belongs to the announcement taken; ask for a new one where none was taken."""
    if message.number == core.announced_number:
        return True
    if message.number > core.announced_number:
        _report_history(core, message, number=0)
    return False


def _append(core: Core, message: AppendRequest) -> None:
    own = core.history.term_at(Index(message.start - 1))
    if message.previous_term != own:
        core.check_peer(
            False, f"{message.source} has term {message.previous_term} before index {message.start}, here it is {own}"
        )
    for batch in message.batches:
        expected = core.history.term_at(batch.first_index)
        if batch.term != expected or batch.first_index != core.log.end:
            core.check_peer(
                False, f"{batch!r} from {message.source}: term {expected} and index {core.log.end} were announced"
            )
        core.append(batch)


def on_heartbeat_request(core: Core, message: HeartbeatRequest) -> None:
    """Say at once that the leader was heard; promise nothing."""
    hear_leader(core, message)
    if not is_announced(core, message):
        return
    _take_commit(core, message.commit_end)
    core.send(
        HeartbeatResponse(
            source=core.me,
            target=message.source,
            term=core.term,
            number=message.number,
            end=core.log.durable_end,
            round=message.round,
            is_silent=core.silent_until is not None,
        )
    )
    if message.sent_end > core.log.end:
        _answer_append(core, rejected=True)


def on_read_index_response(core: Core, message: ReadIndexResponse) -> None:
    """A quorum has confirmed the leader: what it had committed is committed here too."""
    if core.announced_number > 0:
        _take_commit(core, Index(message.index + 1))
    core.reads_ready.append((message.token, message.index))


def on_durable(core: Core, *, ended_silence: bool) -> None:
    """The log is durable further than before, or the announcement is: tell the leader, if it still leads."""
    core.maybe_end_silence()
    if core.leader is None or core.announced_number == 0:
        return
    if ended_silence:
        core.send(
            AnnouncementResponse(
                source=core.me,
                target=core.leader,
                term=core.term,
                number=core.announced_number,
                end=core.log.durable_end,
                is_silent=core.silent_until is not None,
            )
        )
    else:
        _answer_append(core, rejected=False)


def _answer_append(core: Core, *, rejected: bool) -> None:
    """Answer the leader, once a turn: an answer says all that an earlier one of the same turn said."""
    assert core.leader is not None
    before = core.messages[-1] if core.messages else None
    if isinstance(before, AppendResponse):
        rejected = rejected or before.rejected
        core.messages.pop()
    core.send(
        AppendResponse(
            source=core.me,
            target=core.leader,
            term=core.term,
            number=core.announced_number,
            end=core.log.durable_end,
            received_end=core.log.end,
            rejected=rejected,
            is_silent=core.silent_until is not None,
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
        )
    )


def _take_commit(core: Core, commit_end: Index) -> None:
    """Take the leader's commit end, whatever is durable here; never backwards, never beyond the log (rule 8)."""
    core.log.commit_end = max(core.log.commit_end, min(commit_end, core.log.end))
    core.forget_committed_memberships()
