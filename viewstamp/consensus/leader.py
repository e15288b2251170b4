"""Leading: announcing, replicating, committing, confirming reads."""

from __future__ import annotations

from viewstamp.consensus import follower, standing
from viewstamp.consensus.membership import Change, Membership
from viewstamp.consensus.messages import (
    Announcement,
    AnnouncementResponse,
    AppendRequest,
    AppendResponse,
    BatchesRead,
    HeartbeatRequest,
    HeartbeatResponse,
    HistoryRequest,
    HistoryResponse,
    ReadIndexRequest,
    ReadIndexResponse,
    SnapshotOffer,
    TimeoutNow,
    VoteResponse,
)
from viewstamp.consensus.progress import Progress, ProgressState
from viewstamp.consensus.ready import Fetch
from viewstamp.consensus.roles import Lifecycle
from viewstamp.consensus.state import Core, PendingRead
from viewstamp.consensus.term_history import common_point
from viewstamp.errors import (
    BrokenRuleError,
    NotLeaderError,
    OverloadedError,
    PeerError,
    RequestError,
    UnavailableError,
)
from viewstamp.ids import Index, NodeId, Position, Viewstamp, name_of
from viewstamp.wire.batch import Batch, Kind, build_batch

__all__ = [
    "GONE_TIMEOUTS",
    "become_leader",
    "change",
    "check_propose",
    "hears",
    "not_leader",
    "on_announcement_response",
    "on_append_response",
    "on_batches_read",
    "on_durable",
    "on_heartbeat_response",
    "on_history_response",
    "on_read_index_request",
    "on_tick",
    "on_vote_response",
    "propose",
    "send_appends",
    "start_read_round",
    "transfer",
]

_STUCK_TIMEOUTS = 5
"""After so many election timeouts a silent voter that lacks nothing is helped by a new term."""
_DEPARTED_TIMEOUTS = 2
"""A member that was removed, and does not answer for so many election timeouts, is not told of it any more."""
GONE_TIMEOUTS = 5
"""A member that has not answered for this many election timeouts may have lost its disk: another may take its place.

A node with an empty disk joins so much later than it could (1.5 s by default); in return, one that stands still for a
second, or has lost its network, cannot be replaced meanwhile by whoever asks under its name.
"""
_PATIENCE_HEARTBEATS = 4
"""So many heartbeats without an answer to an announcement, or to a probe, and the leader asks or probes anew."""


def become_leader(core: Core) -> None:
    """Win the election: extend the *advertised* history by the own term, durably, before anybody hears of it.

    What ran ahead of the log is dropped: extended as stored, the history could go backwards (rule 3). Announced
    before it is durable, a crash would leave records of a term that the own history does not know.
    """
    assert core.is_synced, "votes were asked for with a synced log, and nothing was accepted since"
    core.campaign = None  # The vote responses stay: they hold the histories that the announcements start from.
    core.forget_leading()
    core.leader = core.me
    core.term_start = core.log.end
    core.accept_term = core.term
    core.begin_installing()
    core.progress = {member: Progress() for member in core.membership.addresses if member != core.me}
    core.ticks_since_leader = 0
    # What no record kept here belongs to leaves the history once an election, so that it stays short.
    core.store_history(core.advertised.trimmed(core.first_index).extended(core.term, core.term_start))


def on_durable(core: Core, *, was_installing: bool) -> None:
    """The own log, or the own history, is durable further than before."""
    if was_installing:
        for member, progress in core.progress.items():
            response = core.vote_responses.get(member)
            try:
                if response is not None:
                    _announce(core, member, progress, _point(core, response))
                    continue
            except BrokenRuleError:
                pass  # The vote counted; for the history in it the member answers when it is asked again.
            _ask(core, member, progress)
        core.maybe_end_recovery()
        if not core.options.sync_only:
            # The one in force, as a record of the own term: it gates RUNNING, never the commit index.
            _append_membership(core, core.membership)
    _maybe_commit(core)


def on_vote_response(core: Core, message: VoteResponse) -> None:
    """A vote that came after the majority: as good as a history that was asked for."""
    core.note_vote_delay(message)
    progress = core.progress.get(message.source)
    if progress is not None and progress.state is ProgressState.ASKING:
        _announce(core, message.source, progress, _point(core, message))


def on_history_response(core: Core, message: HistoryResponse) -> None:
    """A member reports its state: it was asked, it refused an announcement, or it has started anew (number 0)."""
    progress = core.progress.get(message.source)
    if progress is None:
        return
    start = _point(core, message)
    progress.heard()
    is_wanted = {
        ProgressState.ASKING: True,
        ProgressState.ANNOUNCING: message.number == progress.number,
        ProgressState.REPLICATING: message.number == 0,
    }[progress.state]
    if is_wanted:
        _announce(core, message.source, progress, start, life=message.life)


def on_announcement_response(core: Core, message: AnnouncementResponse) -> None:
    """The member has taken the announcement durably: from now on its ends count (rule 7).

    Also when it took so long that the leader has asked it anew meanwhile: as long as no newer announcement has been
    sent, this is the state that the member is in. Dropped, a member with a slow disk would be asked for ever.
    """
    progress = core.progress.get(message.source)
    if progress is None or progress.state is ProgressState.REPLICATING or message.number != progress.number:
        return
    _check_end(core, message.source, message.end)
    progress.heard()
    progress.become_replicating(message.end, is_recovering=message.is_recovering)
    _maybe_commit(core)


def on_append_response(core: Core, message: AppendResponse) -> None:
    """The member is durable up to ``end``, or asks to be sent from ``received_end`` on."""
    progress = _replicating(core, message.source, message.number)
    if progress is None:
        return
    _check_end(core, message.source, message.received_end)
    if message.end > message.received_end:
        core.refuse(message.source, "end", f"{message.source} synced {message.end} of {message.received_end}")
    _acknowledge(core, message.source, progress, message.end, is_recovering=message.is_recovering)
    if message.rejected:
        progress.rejected(message.received_end)


def on_heartbeat_response(core: Core, message: HeartbeatResponse) -> None:
    """The member still follows; reads of this round and earlier ones have one more voice."""
    progress = _replicating(core, message.source, message.number)
    if progress is None:
        return
    if message.round > core.round:
        core.refuse(message.source, "round", f"{message.source} answers round {message.round}, {core.round} was asked")
    _acknowledge(core, message.source, progress, message.end, is_recovering=message.is_recovering)
    is_known = not core.incarnations or standing.end_counts(core.memberships, message.source, message.end)
    if not message.is_recovering and is_known:
        progress.heard_round = max(progress.heard_round, message.round)
        _confirm_reads(core)


def on_read_index_request(core: Core, message: ReadIndexRequest) -> None:
    """A member wants to answer linearizable reads."""
    core.reads_waiting.append((message.token, message.source))


def on_batches_read(core: Core, message: BatchesRead) -> None:
    """Batches came from disk for a member that is far behind."""
    progress = _replicating(core, message.member, message.number)
    if progress is None:
        return
    progress.is_fetching = False
    if message.batches and message.batches[0].first_index != message.start:
        _ask(core, message.member, progress)  # It had named an end inside a batch that is not in memory here.
    elif message.start == progress.next_end and message.batches:
        _send_batches(core, message.member, progress, message.batches)


def on_tick(core: Core) -> None:
    """Check that a quorum still listens; say that one still leads; ask those whose state is not known."""
    if core.ticks_since_leader >= core.patience.ticks:
        heard = [member for member, progress in core.progress.items() if progress.is_heard]
        has_majority = standing.is_majority(core.membership, [core.me, *heard])
        for member, progress in core.progress.items():
            if standing.is_voter(core.membership, member) and (progress.is_heard or not has_majority):
                core.patience.note(
                    member, progress.slowest_response_ticks if progress.is_heard else core.ticks_since_leader
                )
            progress.slowest_response_ticks = 0
        if not has_majority:
            follower.step_down(core, core.term)  # Check-quorum: a leader that nobody hears makes room.
            return
        core.ticks_since_leader = 0
        for progress in core.progress.values():
            progress.is_heard = False
    # Counted without a break: a disk that has room again begins anew, or every later full tick would cost the office.
    core.full_ticks = 0 if core.has_room else core.full_ticks + 1
    if core.installing:
        return
    core.heartbeat_elapsed += 1
    is_due = core.heartbeat_elapsed >= core.options.heartbeat_ticks
    if is_due:
        core.heartbeat_elapsed = 0
    patience = core.patience.scaled(_PATIENCE_HEARTBEATS * core.options.heartbeat_ticks)
    for member, progress in core.progress.items():
        progress.ticks_in_state += 1
        progress.ticks_since_response += 1
        if progress.state is ProgressState.REPLICATING:
            if progress.probed_from and progress.in_flight and progress.ticks_in_state > patience:
                progress.probe(progress.probed_from)
            # A commit that no append will carry is told at the next tick, not at the next heartbeat.
            if is_due or (progress.sent_commit_end < core.log.commit_end and progress.next_end == core.log.end):
                _send_heartbeat(core, member, progress)
        elif progress.state is ProgressState.ASKING:
            if is_due:
                _ask(core, member, progress)
        elif progress.ticks_in_state > patience:
            _ask(core, member, progress)
    if core.transferee is not None:
        _go_on_transferring(core, is_due=is_due)
    elif not core.has_room:
        _give_way(core)
    elif core.lifecycle is Lifecycle.RUNNING and not core.options.sync_only:
        _advance_membership(core)
        _help_recovering(core)


def check_propose(core: Core, size: int) -> None:
    """Refuse what :meth:`Raft.propose` would refuse, before anything is done for it."""
    if core.leader != core.me:
        raise not_leader(core)
    if core.lifecycle is not Lifecycle.RUNNING:
        raise UnavailableError(
            f"{core.me} leads term {core.term} but the group is still configuring",
            remedy="try again in a moment",
        )
    if core.transferee is not None:
        raise UnavailableError(
            f"{core.me} is handing its leadership over to {core.transferee}", remedy="try again in a moment"
        )
    if core.uncommitted_bytes + size > core.options.uncommitted_bytes_max and core.uncommitted_bytes:
        raise OverloadedError(
            f"{core.uncommitted_bytes} bytes wait to be committed, the limit is {core.options.uncommitted_bytes_max}",
            remedy="try again a little later",
        )


def propose(core: Core, batch: Batch) -> Viewstamp:
    """Stamp ``batch`` and append it to the log; see :meth:`Raft.propose`."""
    check_propose(core, batch.size)
    return _append_own(core, batch)


def change(core: Core, wanted: Change) -> Viewstamp:
    """Begin a change of the membership; see :meth:`Raft.change`."""
    check_propose(core, 0)
    entry = core.memberships[-1]
    if entry.index >= core.log.commit_end or entry.membership.is_joint:
        raise UnavailableError("another change of the membership is under way", remedy="try again in a moment")
    membership = entry.membership.changed(wanted)
    if membership is entry.membership:
        return Viewstamp(entry.term, entry.index)
    working = [core.me, *(member for member, progress in core.progress.items() if _works(core, progress))]
    if membership.is_joint and not standing.is_majority(membership, working):
        there = sorted(membership.voters.keys() & set(working))
        raise UnavailableError(
            f"of {', '.join(sorted(membership.voters))} only {', '.join(there) or 'none'} would be there to agree",
            remedy="bring the others back first: `viewstamp doctor` says what they lack",
        )
    return _append_membership(core, membership)


def transfer(core: Core, target: NodeId | None) -> NodeId:
    """Begin to hand the leadership over; see :meth:`Raft.transfer`."""
    if core.leader != core.me:
        raise not_leader(core)
    voters = [voter for voter in core.membership.voters if voter != core.me]
    if not voters:
        raise RequestError(f"{core.me} is the only voter: nobody else can lead", remedy="add another member first")
    if target is not None and target not in voters:
        raise RequestError(
            f"{target} cannot take the leadership over from {core.me}",
            remedy=f"name one of {', '.join(sorted(voters))}",
        )
    ready = [voter for voter in voters if _works(core, core.progress[voter])]
    if target is None and ready:
        target = max(sorted(ready), key=lambda voter: core.progress[voter].counted_end)
    if target is None or target not in ready or core.installing:
        raise UnavailableError(
            f"{target or 'no other voter'} follows {core.me} closely enough to take over at present",
            remedy="try again in a moment; `viewstamp status` shows who is behind",
        )
    core.transferee, core.transfer_ticks = target, 0
    _go_on_transferring(core, is_due=True)
    return target


def hears(core: Core, member: NodeId) -> bool:
    """Return whether ``member`` lives, as far as this leader can tell; of a new leader for a while in any case."""
    progress = core.progress.get(member)
    patience = GONE_TIMEOUTS * core.options.election_timeout_ticks
    return member == core.me or (progress is not None and progress.ticks_since_response <= patience)


def not_leader(core: Core) -> NotLeaderError:
    """Say who leads, as far as this member knows."""
    address = core.membership.addresses.get(core.leader) if core.leader else None
    if core.leader is None or core.leader == core.me:
        return NotLeaderError(
            f"{core.me} does not lead, and knows no leader at present", remedy="try again in a moment"
        )
    return NotLeaderError(
        f"{core.me} does not lead, {core.leader} does", leader=core.leader, address=address, remedy=f"ask {address}"
    )


def send_appends(core: Core) -> None:
    """Send every member what it lacks, as far as its window allows. Called once a turn: that is the batching."""
    log = core.log
    for member, progress in core.progress.items():
        if progress.state is not ProgressState.REPLICATING:
            continue
        if progress.next_end < core.first_index:
            _ask(core, member, progress)  # Trimmed meanwhile: what it lacks is in a snapshot only.
            continue
        while progress.next_end < log.end and progress.has_room(core.options.in_flight_bytes_max):
            batches = log.slice(progress.next_end, core.options.append_bytes_max)
            if batches is None:
                progress.is_fetching = True
                core.fetches.append(
                    Fetch(member, core.term, progress.number, progress.next_end, core.options.append_bytes_max)
                )
            else:
                _send_batches(core, member, progress, tuple(batches))


def start_read_round(core: Core) -> None:
    """Give the reads of this turn one index and one round of heartbeats; before the term start is reached they wait."""
    if not core.reads_waiting or not core.is_reached:
        return
    index = Index(max(core.log.commit_end, core.term_start) - 1)
    core.round += 1
    core.reads.extend(PendingRead(token, source, core.round, index) for token, source in core.reads_waiting)
    core.reads_waiting = []
    for member, progress in core.progress.items():
        if progress.state is ProgressState.REPLICATING:
            _send_heartbeat(core, member, progress)
    _confirm_reads(core)


def _point(core: Core, message: VoteResponse | HistoryResponse) -> Index | None:
    """Compute where a member's log parts from this leader's, by what it reports; None = only a snapshot helps it.

    Raises:
      BrokenRuleError: the report denies this leader's log. Nothing is sent to that member, and nothing is committed
        with its help.
    """
    try:
        start = common_point(core.history, core.log.end, message.history, message.end)
    except PeerError as error:
        core.refuse(message.source, "history", f"{message.source} reports a history that this log denies: {error}")
    if start is not None and not core.log.is_boundary(start):
        core.refuse(message.source, "boundary", f"{message.source} reports a log that parts at {start}, in a batch")
    return start


def _announce(core: Core, member: NodeId, progress: Progress, start: Index | None, *, life: int = 0) -> None:
    if start is None or start < core.first_index:
        progress.become_asking()  # Only a snapshot helps; it is asked again at each heartbeat, until it has one.
        if core.base is not None:
            snapshot_end, last_term = core.base
            core.send(
                SnapshotOffer(source=core.me, target=member, term=core.term, end=snapshot_end, last_term=last_term)
            )
        return
    core.send(
        Announcement(
            source=core.me,
            target=member,
            term=core.term,
            number=progress.become_announcing(),
            history=core.history,
            start=start,
            life=life,
            leader_end=core.log.end if life else Index(0),
        )
    )


def _ask(core: Core, member: NodeId, progress: Progress) -> None:
    progress.become_asking()
    core.send(HistoryRequest(source=core.me, target=member, term=core.term, number=progress.number))


def _send_heartbeat(core: Core, member: NodeId, progress: Progress) -> None:
    progress.sent_commit_end = core.log.commit_end
    core.send(
        HeartbeatRequest(
            source=core.me,
            target=member,
            term=core.term,
            number=progress.number,
            commit_end=core.log.commit_end,
            sent_end=progress.next_end,
            round=core.round,
        )
    )


def _send_batches(core: Core, member: NodeId, progress: Progress, batches: tuple[Batch, ...]) -> None:
    start = progress.next_end
    assert batches[0].first_index == start, f"{batches[0]!r} does not start at {start}"
    progress.sent_commit_end = core.log.commit_end
    core.send(
        AppendRequest(
            source=core.me,
            target=member,
            term=core.term,
            number=progress.number,
            start=start,
            previous_term=core.history.term_at(Index(start - 1)),
            commit_end=core.log.commit_end,
            batches=batches,
        )
    )
    progress.sent(batches[-1].end, sum(batch.size for batch in batches))


def _replicating(core: Core, member: NodeId, number: int) -> Progress | None:
    """Return the member's progress if ``number`` is the announcement that it replicates under."""
    progress = core.progress.get(member)
    if progress is None or progress.state is not ProgressState.REPLICATING or progress.number != number:
        return None
    return progress


def _acknowledge(core: Core, member: NodeId, progress: Progress, end: Index, *, is_recovering: bool) -> None:
    _check_end(core, member, end)
    progress.heard_again()
    if progress.acknowledged(end, is_recovering=is_recovering):
        if end > core.log.commit_end or not core.is_reached:  # Else it has come to a quorum without this one.
            _maybe_commit(core)
        if member == core.transferee:
            _go_on_transferring(core, is_due=True)


def _check_end(core: Core, member: NodeId, end: Index) -> None:
    log = core.log
    if end > log.end:
        core.refuse(member, "end", f"{member} says it holds {end}, the leader holds {log.end}")
    if end != log.end and not log.is_boundary(end):
        core.refuse(member, "boundary", f"{member} says it holds {end}, which is inside a batch")


def _maybe_commit(core: Core) -> None:
    """Move the commit end to the quorum-th largest durable end of those that have reached the term start (rule 7).

    From the moment a quorum has reached it, records of old terms are committed by that end too: the announcement
    works like a record of the own term without length. Counting before it is figure 8 of the Raft paper.
    """
    ends = {core.me: core.log.durable_end} if core.recovering_until is None else {}
    for member, progress in core.progress.items():
        ends[member] = progress.counted_end
    end = standing.commit_end(core.memberships, ends, core.term_start, disks_are_named=bool(core.incarnations))
    if end < core.term_start or core.installing:
        return
    core.is_reached = True
    if end > core.log.commit_end:
        core.log.commit_end = end
        core.forget_committed_memberships()


def _append_own(core: Core, batch: Batch) -> Viewstamp:
    first_index = core.log.end
    batch.stamp(
        term=core.term,
        first_index=first_index,
        previous_term=core.history.term_at(Index(first_index - 1)),
        log_time=max(core.log_time, core.wall_us),
        first_position=Position(batch.first_position),
    )
    core.uncommitted_bytes += batch.size
    core.append(batch)
    return Viewstamp(core.term, first_index)


def _append_membership(core: Core, membership: Membership) -> Viewstamp:
    """Replicate ``membership``, which is in force from here on; who leaves is told until it has the record."""
    membership = membership.naming(core.incarnations)
    viewstamp = _append_own(core, build_batch([membership.encode()], kind=Kind.MEMBERSHIP))
    for member in membership.addresses:
        if member != core.me and member not in core.progress:
            core.progress[member] = Progress()
            _ask(core, member, core.progress[member])
    return viewstamp


def _advance_membership(core: Core) -> None:
    """Take the next step of a change, if the one before is committed; one step a tick."""
    entry = core.memberships[-1]
    _forget_departed(core, entry.index)
    if entry.index >= core.log.commit_end:
        return
    membership = entry.membership
    if membership.is_joint:
        _append_membership(core, membership.left())
        return
    if core.me not in membership.voters:
        _depart(core)
        return
    if membership.naming(core.incarnations) is not membership:
        _append_membership(core, membership)  # One has been met that no record names yet.
        return
    timeout = core.patience.ticks
    for learner in sorted(membership.joining):
        replaced = NodeId(membership.joining[learner])
        if name_of(replaced) == name_of(learner) and hears(core, replaced):
            continue  # The disk that the learner says was lost still answers.
        if core.progress[learner].has_caught_up(core.log.end, timeout):
            _append_membership(core, membership.promoted(learner))
            return


def _works(core: Core, progress: Progress) -> bool:
    """Say whether a member follows, counts and was heard a moment ago."""
    is_heard = progress.ticks_since_response <= core.patience.ticks
    return progress.state is ProgressState.REPLICATING and progress.counted_end > 0 and is_heard


def _help_recovering(core: Core) -> None:
    """Hand over for the sake of a voter that lacks nothing and is silent: the end of what it had lost is not known.

    Or of one that is to become a voter. Only a higher term tells it that nothing of the old one is missing (rule 17).
    """
    if core.leader != core.me:
        return
    patience = _STUCK_TIMEOUTS * core.options.election_timeout_ticks
    for voter in (*core.membership.voters, *core.membership.joining):
        progress = core.progress.get(voter)
        if progress is None:
            continue
        is_mute = progress.is_recovering and progress.durable_end >= core.log.commit_end
        progress.recovering_ticks = progress.recovering_ticks + 1 if is_mute else 0
        if progress.recovering_ticks >= patience:
            progress.recovering_ticks = 0
            _hand_over(core)
            return


def _give_way(core: Core) -> None:
    """Hand over, each time the disk was full for ``_STUCK_TIMEOUTS`` election timeouts: another one's may not be."""
    if core.full_ticks % (_STUCK_TIMEOUTS * core.options.election_timeout_ticks) == 0:
        _hand_over(core)


def _hand_over(core: Core) -> None:
    """Hand over to the voter that is closest, if one works."""
    others = [other for other in sorted(core.membership.voters) if other in core.progress]
    working = [other for other in others if _works(core, core.progress[other])]
    if working:
        transfer(core, max(working, key=lambda other: core.progress[other].counted_end))


def _forget_departed(core: Core, index: Index) -> None:
    """Drop those who are no members any more, and know it, or do not answer."""
    addresses = core.membership.addresses
    patience = _DEPARTED_TIMEOUTS * core.options.election_timeout_ticks
    for member in [member for member in core.progress if member not in addresses]:
        progress = core.progress[member]
        knows = progress.durable_end > index and progress.sent_commit_end > index
        if knows or progress.ticks_since_response > patience:
            del core.progress[member]


def _depart(core: Core) -> None:
    """Step down: the removal of this leader is committed. Its followers hear of that, and the best stands at once."""
    replicating = {
        member: progress
        for member, progress in core.progress.items()
        if progress.state is ProgressState.REPLICATING and member in core.membership.addresses
    }
    for member, progress in replicating.items():
        _send_heartbeat(core, member, progress)
    voters = [member for member in sorted(replicating) if member in core.membership.voters]
    if voters:
        best = max(voters, key=lambda voter: replicating[voter].counted_end)
        core.send(TimeoutNow(source=core.me, target=best, term=core.term))
    follower.step_down(core, core.term)


def _go_on_transferring(core: Core, *, is_due: bool) -> None:
    """Say "now" to the one who shall lead, once it has everything; give up after an election timeout."""
    target = core.transferee
    assert target is not None
    core.transfer_ticks += 1
    progress = core.progress.get(target)
    if progress is None or core.transfer_ticks > core.patience.ticks:
        core.transferee = None  # It could not: this member leads on, and takes proposals again.
    elif is_due and progress.counted_end == core.log.end:
        core.send(TimeoutNow(source=core.me, target=target, term=core.term))


def _confirm_reads(core: Core) -> None:
    """Release the reads whose round a quorum has confirmed in this term, after the read came."""
    while core.reads:
        read = core.reads[0]
        confirming = [member for member, progress in core.progress.items() if progress.heard_round >= read.round]
        if not standing.is_majority(core.membership, [core.me, *confirming]):
            return
        del core.reads[0]
        if read.source is None:
            core.reads_ready.append((read.token, read.index))
        else:
            core.send(
                ReadIndexResponse(
                    source=core.me, target=read.source, term=core.term, token=read.token, index=read.index
                )
            )
