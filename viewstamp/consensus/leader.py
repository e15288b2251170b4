"""Leading: announcing the term to each member, replicating the log, committing the records that a quorum holds.

``reads`` confirms reads by this leader's heartbeats, ``reconfigure`` changes the membership and hands over.
"""

from __future__ import annotations

from collections.abc import Collection

from viewstamp.consensus import follower, lease, standing
from viewstamp.consensus.membership import Membership
from viewstamp.consensus.messages import (
    Announcement,
    AnnouncementResponse,
    AppendRequest,
    AppendResponse,
    BatchesRead,
    DurableNotice,
    HeartbeatRequest,
    HistoryRequest,
    HistoryResponse,
    SnapshotOffer,
    TimeoutNow,
    VoteResponse,
)
from viewstamp.consensus.progress import Progress, ProgressState
from viewstamp.consensus.quiet import beat_ticks, heartbeat_ticks, probe_patience
from viewstamp.consensus.ready import Fetch
from viewstamp.consensus.roles import Lifecycle
from viewstamp.consensus.state import Campaign, Core, Leading
from viewstamp.consensus.term_history import common_point
from viewstamp.errors import BrokenRuleError, NotLeaderError, OverloadedError, PeerError, UnavailableError
from viewstamp.ids import Index, NodeId, Viewstamp, name_of
from viewstamp.wire.batch import Batch, Kind, build_batch

__all__ = [
    "acknowledge",
    "append_membership",
    "append_own",
    "become_leader",
    "check_propose",
    "check_with_beat",
    "continue_transfer",
    "not_leader",
    "on_announcement_response",
    "on_append_response",
    "on_batches_read",
    "on_durable",
    "on_history_response",
    "on_tick",
    "on_vote_response",
    "replicating",
    "send_appends",
    "send_heartbeat",
    "send_heartbeats",
    "tell_durable_end",
]


# -- The term ----------------------------------------------------------------------------------------------------------


def become_leader(core: Core, campaign: Campaign, *, elected_without: tuple[NodeId, ...] = ()) -> None:
    """Win the election: extend the *advertised* history by the own term, durably, before anything is announced.

    Entries of the stored history that ran ahead of the log are dropped, because with them the extended history could
    go backwards (rule 3). The announcement waits until the history is durable, because a crash would otherwise leave
    records of a term that the own history does not contain.
    """
    assert core.is_synced, "votes were asked for with a synced log, and nothing was accepted since"
    leading = Leading(
        leader=core.me,
        term_start=core.log.end,
        progress={member: Progress() for member in core.membership.addresses if member != core.me},
        vote_responses=campaign.vote_responses,
        elected_without=elected_without,
    )
    core.become(leading)
    core.accept_term = core.term
    core.begin_installing()
    # Each election drops the terms of which no record is kept here any more, so that the history stays short.
    core.store_history(core.advertised.trimmed(core.first_index).extended(core.term, leading.term_start))


def on_tick(core: Core, leading: Leading, ticks: int) -> None:
    """Check that a quorum still answers, send heartbeats, and ask members in an unknown state for their history."""
    leading.ticks_since_check += ticks
    if leading.ticks_since_check >= core.patience.ticks:
        has_majority = _has_majority(core, leading)
        _end_window(core, leading, has_majority=has_majority)
        if not has_majority:
            follower.step_down(core, core.term)  # Check-quorum, because another candidate may reach a majority.
            return
    # One tick with room resets the count. Otherwise every later full tick would cost the leadership.
    leading.full_ticks = 0 if core.has_room else leading.full_ticks + ticks
    if core.installing:
        return
    leading.heartbeat_elapsed += ticks
    is_due = leading.heartbeat_elapsed >= core.options.heartbeat_ticks
    is_due = is_due and leading.heartbeat_elapsed >= heartbeat_ticks(core, leading)
    if is_due:
        _begin_heartbeats(core, leading)
    patience = probe_patience(core)
    for member, progress in leading.progress.items():
        progress.ticks_in_state += ticks
        progress.ticks_since_response += ticks
        progress.standing_ticks = progress.standing_ticks + ticks if progress.durable_end < core.log.end else 0
        if progress.state is ProgressState.REPLICATING:
            if progress.probed_from and progress.in_flight and progress.ticks_in_state > patience:
                progress.probe(progress.probed_from)
            # If no append will carry the commit end, it is sent at the next tick, because members apply only up to it.
            if is_due or _lacks_commit_end(core, progress):
                send_heartbeat(core, leading, member, progress)
        elif is_due if progress.state is ProgressState.ASKING else progress.ticks_in_state > patience:
            _ask(core, member, progress)


def check_with_beat(core: Core, leading: Leading) -> None:
    """Check for a quorum now if the check would be due before the next beat, and a quorum has answered.

    So the leaders of a node need no timer of their own for it. Without a quorum the check stays where it is, because a
    leader must not step down earlier than after an election timeout.
    """
    is_due = leading.ticks_since_check + beat_ticks(core.options) >= core.patience.ticks - 1
    if is_due and _has_majority(core, leading):
        _end_window(core, leading, has_majority=True)


def _has_majority(core: Core, leading: Leading) -> bool:
    """Return whether a majority, with this leader, has answered since the last check."""
    active = [member for member, progress in leading.progress.items() if progress.has_responded]
    return standing.is_majority(core.membership, [core.me, *active])


def _end_window(core: Core, leading: Leading, *, has_majority: bool) -> None:
    """Note the delays of the voters since the last check for a quorum, and wait for new answers from now on."""
    for member, progress in leading.progress.items():
        if standing.is_voter(core.membership, member) and (progress.has_responded or not has_majority):
            delay = progress.slowest_response_ticks if progress.has_responded else leading.ticks_since_check
            core.patience.note(member, delay)
        progress.slowest_response_ticks = 0
        progress.has_responded = False
    leading.ticks_since_check = 0


def on_durable(core: Core, leading: Leading, *, was_installing: bool) -> None:
    """Commit as far as the own log is durable now; announce the term if its history has just become durable."""
    if was_installing:
        for member, progress in leading.progress.items():
            response = leading.vote_responses.get(member)
            try:
                if response is not None:
                    _announce(core, member, progress, _point(core, response))
                    continue
            except BrokenRuleError:
                pass  # The vote counts. Only its history is refused, so the member is asked for a new one.
            _ask(core, member, progress)
        core.maybe_end_recovery()
        if not core.options.sync_only:
            # The membership in force becomes a record of the own term. RUNNING waits for this record; commits do not.
            append_membership(core, leading, core.membership)
    if leading.notices:
        _send_notices(core, leading)
    _maybe_commit(core, leading)


# -- Announcing --------------------------------------------------------------------------------------------------------


def on_vote_response(core: Core, message: VoteResponse) -> None:
    """Announce to a voter that voted after the election was won, because its vote holds the history asked for."""
    core.note_vote_delay(message)
    progress = core.leading.progress.get(message.source)
    if progress is not None and progress.state is ProgressState.ASKING:
        _announce(core, message.source, progress, _point(core, message))


def on_history_response(core: Core, message: HistoryResponse) -> None:
    """Announce to a member that reports its state.

    It was asked, it refuses an announcement, or it has not accepted the present announcement (number 0), for example
    because it was restarted.
    """
    progress = core.leading.progress.get(message.source)
    if progress is None:
        return
    start = _point(core, message)
    progress.note_response()
    is_wanted = {
        ProgressState.ASKING: True,
        ProgressState.ANNOUNCING: message.number == progress.number,
        ProgressState.REPLICATING: message.number == 0,
    }[progress.state]
    if is_wanted:
        _announce(core, message.source, progress, start, life=message.life)


def on_announcement_response(core: Core, message: AnnouncementResponse) -> None:
    """Replicate to a member that has accepted the announcement durably: from now on its ends count (rule 7).

    The response is also accepted if the leader has asked the member again meanwhile. While no newer announcement has
    been sent, the response still describes the member's state. If it were dropped, a member with a slow disk would be
    asked for ever.
    """
    leading = core.leading
    progress = leading.progress.get(message.source)
    if progress is None or progress.state is ProgressState.REPLICATING or message.number != progress.number:
        return
    _check_end(core, message.source, message.end)
    progress.note_response()
    progress.become_replicating(message.end, is_recovering=message.is_recovering)
    _maybe_commit(core, leading)


def _point(core: Core, message: VoteResponse | HistoryResponse) -> Index | None:
    """Return the common point of this leader's log and the reported one; None = the member needs a snapshot.

    Raises:
      BrokenRuleError: the report contradicts this leader's log. Nothing is sent to that member, and its ends do not
        count towards a commit.
    """
    try:
        start = common_point(core.history, core.log.end, message.history, message.end)
    except PeerError as error:
        core.refuse(message.source, "history", f"{message.source} reports a history that contradicts this log: {error}")
    if start is not None and not core.log.is_boundary(start):
        core.refuse(
            message.source, "boundary", f"{message.source} reports a log that differs from {start} on, inside a batch"
        )
    return start


def _announce(core: Core, member: NodeId, progress: Progress, start: Index | None, *, life: int = 0) -> None:
    if start is None or start < core.first_index:
        progress.become_asking()  # The member needs a snapshot. It is asked again at each heartbeat, until it has one.
        if core.base is not None:
            end, last_term = core.base
            core.output.messages.append(
                SnapshotOffer(source=core.me, target=member, term=core.term, end=end, last_term=last_term)
            )
        return
    core.output.messages.append(
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
    core.output.messages.append(HistoryRequest(source=core.me, target=member, term=core.term, number=progress.number))


# -- Replicating -------------------------------------------------------------------------------------------------------


def send_appends(core: Core, leading: Leading) -> None:
    """Send every member the batches that it lacks, up to its window. Called once a turn, so that appends are joined."""
    log = core.log
    start, batches = Index(0), None
    for member, progress in leading.progress.items():
        if progress.state is not ProgressState.REPLICATING:
            continue
        if progress.next_end < core.first_index:
            _ask(core, member, progress)  # The log was trimmed: the records that it lacks are only in a snapshot.
            continue
        while progress.next_end < log.end and progress.has_room(core.window_bytes):
            if progress.next_end != start:  # The slice is kept, because the members usually lack the same batches.
                start = progress.next_end
                batches = log.slice(start, core.options.append_bytes_max)
            if batches is None:
                progress.is_fetching = True
                core.output.fetches.append(
                    Fetch(member, core.term, progress.number, start, core.options.append_bytes_max)
                )
            else:
                _send_batches(core, member, progress, batches)


def _send_batches(core: Core, member: NodeId, progress: Progress, batches: tuple[Batch, ...]) -> None:
    start = progress.next_end
    assert batches[0].first_index == start, f"{batches[0]!r} does not start at {start}"
    progress.sent_commit_end = core.log.commit_end
    core.output.messages.append(
        AppendRequest(
            source=core.me,
            target=member,
            term=core.term,
            number=progress.number,
            start=start,
            previous_term=batches[0].previous_term,
            commit_end=core.log.commit_end,
            batches=batches,
        )
    )
    size = 0
    for batch in batches:
        size += batch.size
    progress.sent(batches[-1].end, size)


def _begin_heartbeats(core: Core, leading: Leading) -> None:
    leading.heartbeat_elapsed = 0
    if core.options.lease_us:
        lease.begin_round(core, leading)  # So that the lease lasts although no read asks for a round.


def send_heartbeats(core: Core, leading: Leading) -> None:
    """Send a heartbeat to all members, before it is due; all of them are in state REPLICATING."""
    _begin_heartbeats(core, leading)
    for member, progress in leading.progress.items():
        send_heartbeat(core, leading, member, progress)


def send_commit_end(core: Core, leading: Leading, names: Collection[str]) -> None:
    """Send the commit end to the members of these nodes that would have it at the next tick."""
    for member, progress in leading.progress.items():
        is_named = name_of(member) in names
        if is_named and progress.state is ProgressState.REPLICATING and _lacks_commit_end(core, progress):
            send_heartbeat(core, leading, member, progress)


def tell_durable_end(core: Core, leading: Leading, names: Collection[str]) -> None:
    """Tell members of these nodes the own durable end until it has reached the present end of the log.

    Only members that make a majority with this leader can use it. Never in interval mode, where a log is called durable
    before it is synced.
    """
    if core.options.may_lose_acknowledged:
        return
    for member, progress in leading.progress.items():
        is_named = name_of(member) in names and progress.state is ProgressState.REPLICATING
        if is_named and standing.is_majority(core.membership, (core.me, member)):
            leading.notices[member] = core.log.end
    _send_notices(core, leading)


def _send_notices(core: Core, leading: Leading) -> None:
    """Send the durable end, unless this leader does not count itself because it is recovering (rule 17)."""
    end = core.log.durable_end
    for member, wanted in list(leading.notices.items()):
        if wanted <= end:
            del leading.notices[member]
        progress = leading.progress.get(member)
        if progress is None or progress.state is not ProgressState.REPLICATING or core.recovering_until is not None:
            continue
        if end > core.log.commit_end:  # Otherwise the commit end says more.
            leading.told_end = max(leading.told_end, end)
            core.output.messages.append(
                DurableNotice(source=core.me, target=member, term=core.term, number=progress.number, end=end)
            )


def _lacks_commit_end(core: Core, progress: Progress) -> bool:
    """Return whether no append will carry the commit end to a member."""
    return progress.sent_commit_end < core.log.commit_end and progress.next_end == core.log.end


def send_heartbeat(core: Core, leading: Leading, member: NodeId, progress: Progress) -> None:
    """Send the commit end and the round of reads to a member in state REPLICATING."""
    progress.sent_commit_end = core.log.commit_end
    core.output.messages.append(
        HeartbeatRequest(
            source=core.me,
            target=member,
            term=core.term,
            number=progress.number,
            commit_end=core.log.commit_end,
            sent_end=progress.next_end,
            round=leading.round,
        )
    )


def on_append_response(core: Core, message: AppendResponse) -> None:
    """Note that the member is durable up to ``end``; if it rejected an append, probe from ``received_end`` on."""
    leading = core.state
    assert isinstance(leading, Leading)
    progress = replicating(leading, message.source, message.number)
    if progress is None:
        return
    if message.received_end != message.end:
        _check_end(core, message.source, message.received_end)
    if message.end > message.received_end:
        core.refuse(message.source, "end", f"{message.source} synced {message.end} of {message.received_end}")
    acknowledge(core, leading, message.source, progress, message.end, is_recovering=message.is_recovering)
    if message.rejected:
        progress.rejected(message.received_end)


def on_batches_read(core: Core, message: BatchesRead) -> None:
    """Send batches that were read from disk to the member that is far behind."""
    progress = replicating(core.leading, message.member, message.number)
    if progress is None:
        return
    progress.is_fetching = False
    if message.batches and message.batches[0].first_index != message.start:
        # The member had reported an end inside a batch that is not in memory here.
        _ask(core, message.member, progress)
    elif message.start == progress.next_end and message.batches:
        _send_batches(core, message.member, progress, message.batches)


def replicating(leading: Leading, member: NodeId, number: int) -> Progress | None:
    """Return the member's progress if it replicates under the announcement ``number``."""
    progress = leading.progress.get(member)
    if progress is None or progress.state is not ProgressState.REPLICATING or progress.number != number:
        return None
    return progress


def acknowledge(
    core: Core, leading: Leading, member: NodeId, progress: Progress, end: Index, *, is_recovering: bool
) -> None:
    """Note that ``member`` is durable up to ``end``; if that changes anything, commit or continue a transfer."""
    if end != core.log.end:
        _check_end(core, member, end)
    if progress.acknowledged(end, is_recovering=is_recovering):
        if end > core.log.commit_end or not leading.is_reached:  # Otherwise a quorum holds it without this member.
            _maybe_commit(core, leading)
        if member == leading.transferee:
            continue_transfer(core, leading, is_due=True)


def _check_end(core: Core, member: NodeId, end: Index) -> None:
    log = core.log
    if end > log.end:
        core.refuse(member, "end", f"{member} reports the end {end}, the leader's log ends at {log.end}")
    if end != log.end and not log.is_boundary(end):
        core.refuse(member, "boundary", f"{member} reports the end {end}, which is inside a batch")


def continue_transfer(core: Core, leading: Leading, *, is_due: bool) -> None:
    """Ask the transferee to campaign once it holds the whole log; give the transfer up after an election timeout."""
    target = leading.transferee
    assert target is not None
    progress = leading.progress.get(target)
    if progress is None or leading.transfer_ticks > core.patience.ticks:
        leading.transferee = None  # This member stays the leader, and accepts proposals again.
    elif is_due and progress.counted_end == core.log.end:
        leading.has_released = True
        core.output.messages.append(TimeoutNow(source=core.me, target=target, term=core.term))


# -- Committing --------------------------------------------------------------------------------------------------------


def check_propose(core: Core, size: int) -> Leading:
    """Return the leader's state, or raise the error that :meth:`Raft.propose` would raise; nothing is changed."""
    leading = core.state
    if not isinstance(leading, Leading):
        raise not_leader(core)
    if core.lifecycle is not Lifecycle.RUNNING:
        raise UnavailableError(
            f"{core.me} leads term {core.term}, but the membership record of that term is not committed yet",
            remedy="try again in a moment",
        )
    if leading.transferee is not None:
        raise UnavailableError(
            f"{core.me} is handing its leadership over to {leading.transferee}", remedy="try again in a moment"
        )
    if leading.uncommitted_bytes + size > core.options.uncommitted_bytes_max and leading.uncommitted_bytes:
        waiting, limit = leading.uncommitted_bytes, core.options.uncommitted_bytes_max
        raise OverloadedError(
            f"{waiting} bytes wait to be committed, the limit is {limit}", remedy="try again a little later"
        )
    return leading


def not_leader(core: Core) -> NotLeaderError:
    """Return a NotLeaderError, which names the leader and its address if they are known."""
    address = core.membership.addresses.get(core.leader) if core.leader else None
    if core.leader is None or core.leader == core.me:
        return NotLeaderError(
            f"{core.me} does not lead, and there is no known leader at present", remedy="try again in a moment"
        )
    return NotLeaderError(
        f"{core.me} does not lead, {core.leader} does", leader=core.leader, address=address, remedy=f"ask {address}"
    )


def append_own(core: Core, leading: Leading, batch: Batch) -> None:
    """Stamp ``batch`` with term, index and log time, and append it to this leader's log."""
    first_index = core.log.end
    is_first = first_index == leading.term_start
    batch.stamp(
        term=core.term,
        first_index=first_index,
        previous_term=core.history.term_at(Index(first_index - 1)) if is_first else core.term,
        log_time=max(core.log_time, core.wall_us),
        first_position=batch.first_position,
    )
    leading.uncommitted_bytes += batch.size
    core.append(batch)


def append_membership(core: Core, leading: Leading, membership: Membership) -> Viewstamp:
    """Append ``membership``, which is in force from here on; return where. Members that leave get the record too."""
    membership = membership.naming(core.incarnations)
    leading.lease_until_us, leading.round_starts = 0, {}
    batch = build_batch([membership.encode()], kind=Kind.MEMBERSHIP)
    append_own(core, leading, batch)
    for member in membership.addresses:
        if member != core.me and member not in leading.progress:
            leading.progress[member] = Progress()
            _ask(core, member, leading.progress[member])
    return Viewstamp(batch.term, batch.first_index)


def _maybe_commit(core: Core, leading: Leading) -> None:
    """Move the commit end to the largest end that a quorum holds durably, once it is at or above the term start.

    From the moment a quorum has reached the term start, that end commits records of old terms too, because the
    announcement works like a record of the own term without length (rule 7). Counting earlier would lose committed
    records (Raft paper, figure 8).
    """
    own_end = core.log.durable_end if core.recovering_until is None else Index(0)
    entry, progress = core.memberships[-1], leading.progress
    membership = entry.membership
    end = Index(0)
    if (
        len(core.memberships) == 1
        and (membership.names_all_disks if core.incarnations else membership.has_only_voters)
        and len(progress) + 1 == len(membership.addresses)
        and core.me in membership.addresses
    ):
        # The usual case is computed here, because it is cheaper: the one membership has only voters, it names their
        # disks, and they are this member and those in `progress`. Then all ends above that membership's record count
        # alike, and the middle one is the result of `standing.commit_end`.
        ends = [own_end]
        for each in progress.values():
            ends.append(each.counted_end)
        end = standing.end_of_most(ends)
    if end <= entry.index:
        counted = {core.me: own_end, **{member: each.counted_end for member, each in progress.items()}}
        is_named = bool(core.incarnations)
        end = standing.commit_end(
            core.memberships,
            counted,
            leading.term_start,
            disks_are_named=is_named,
            committed=core.log.commit_end,
            term=core.term,
        )
    if end < leading.term_start or core.installing:
        return
    leading.is_reached = True
    if end > core.log.commit_end:
        core.log.commit_end = end
        if len(core.memberships) > 1:
            core.forget_committed_memberships()
