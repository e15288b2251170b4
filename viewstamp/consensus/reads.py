"""Linearizable reads by read-index: any member may ask, the leader gives the index, and a quorum confirms the leader.

The reads of one turn get one index and one round of heartbeats. They are released once a quorum has answered that round
or a later one in this term, because then no other leader can have committed anything before they came.
"""

from __future__ import annotations

from viewstamp.consensus import follower, leader, lease, standing
from viewstamp.consensus.messages import HeartbeatResponse, ReadIndexRequest, ReadIndexResponse
from viewstamp.consensus.progress import ProgressState
from viewstamp.consensus.state import Core, Leading, PendingRead
from viewstamp.ids import Index, NodeId

__all__ = [
    "ask",
    "confirm",
    "on_heartbeat_response",
    "on_read_index_request",
    "on_read_index_response",
    "start_round",
]


def ask(core: Core, token: int) -> None:
    """Begin a read on this member; see :meth:`Raft.read`."""
    if isinstance(core.state, Leading):
        core.state.reads_waiting.append((token, None))
    elif core.leader is not None:
        core.output.messages.append(ReadIndexRequest(source=core.me, target=core.leader, term=core.term, token=token))


def on_read_index_request(core: Core, message: ReadIndexRequest) -> None:
    """Queue a read that another member received, until the next round of heartbeats."""
    core.leading.reads_waiting.append((message.token, message.source))


def on_read_index_response(core: Core, message: ReadIndexResponse) -> None:
    """Release a read and adopt its index as committed, because a quorum confirmed the leader that sent it."""
    if message.source != core.leader:
        return
    if core.announced_number > 0:
        follower.check_commit(core, message.source, Index(message.index + 1))
        follower.take_commit(core, Index(message.index + 1))
    core.output.reads.append((message.token, message.index))


def start_round(core: Core, leading: Leading) -> None:
    """Start one round of heartbeats for all waiting reads, which share one index. With a lease, release them at once.

    The caller has checked that a quorum has reached the term start. The index is at least the last one before the term
    start, because all records that earlier leaders committed are below it. It is at least the last one before the
    durable end that a member was told, because that member may have applied it, and a client may have seen the effect.
    """
    index = Index(max(core.log.commit_end, leading.term_start, leading.told_end) - 1)
    if core.options.lease_us and index < core.log.commit_end and lease.is_held(core, leading):
        for token, source in leading.reads_waiting:
            _release(core, token, source, index)
        leading.reads_waiting = []
        return
    lease.begin_round(core, leading)
    leading.reads.extend(PendingRead(token, source, leading.round, index) for token, source in leading.reads_waiting)
    leading.reads_waiting = []
    for member, progress in leading.progress.items():
        if progress.state is ProgressState.REPLICATING:
            leader.send_heartbeat(core, leading, member, progress)
    confirm(core, leading)


def on_heartbeat_response(core: Core, message: HeartbeatResponse) -> None:
    """Count the member for the reads of this round and earlier ones, unless it is recovering or its disk is unknown.

    Its durable end is noted in any case.
    """
    leading = core.state
    assert isinstance(leading, Leading)
    progress = leader.replicating(leading, message.source, message.number)
    if progress is None:
        return
    if message.round > leading.round:
        complaint = f"{message.source} answers round {message.round}, the newest round is {leading.round}"
        core.refuse(message.source, "round", complaint)
    leader.acknowledge(core, leading, message.source, progress, message.end, is_recovering=message.is_recovering)
    ends = {message.source: message.end}
    is_known = not core.incarnations or standing.counting_ends(core.memberships, ends)
    if not message.is_recovering and is_known:
        if message.round >= progress.confirmed_round:
            progress.confirmed_round, progress.promise_us = message.round, message.promise_us
        if leading.round_starts:
            lease.extend(core, leading)
        if leading.reads:
            confirm(core, leading)


def confirm(core: Core, leading: Leading) -> None:
    """Release the reads with a round that a quorum has confirmed in this term, after the reads came.

    Their index must be committed, because the member that asked takes it as committed.
    """
    while leading.reads and leading.reads[0].index < core.log.commit_end:
        read = leading.reads[0]
        confirming = [member for member, each in leading.progress.items() if each.confirmed_round >= read.round]
        if not standing.is_majority(core.membership, [core.me, *confirming]):
            return
        del leading.reads[0]
        _release(core, read.token, read.source, read.index)


def _release(core: Core, token: int, source: NodeId | None, index: Index) -> None:
    """Return the index of a read to this node, or to the member that asked for it."""
    if source is None:
        core.output.reads.append((token, index))
    else:
        core.output.messages.append(
            ReadIndexResponse(source=core.me, target=source, term=core.term, token=token, index=index)
        )
