"""Quiet members: the number of ticks that may pass as one, and the heartbeats of an idle leader.

If every tick woke an idle member, it would spend most of its time on ticks that change only counters. So the owner
of a core asks after each turn how long the core is quiet, sleeps until then, and lets the ticks of its sleep pass as
one (``Raft.tick``). ``tick(ticks=n)`` leaves the core in the same state as n single ticks, for every n up to the
answer.

A heartbeat brings the commit end, finds lost appends and confirms reads. While none of that is needed, it only shows
that the leader is alive. An idle leader therefore leaves out every other heartbeat, if three of the remaining ones fit
into an election timeout, because then three have to be lost or late before a member campaigns.

Under load a leader needs no turn for news that commits nothing by itself: the completion of its own write before
another member has acknowledged, and the response of the slowest member. They are stepped in the next turn, which comes
with the next message or tick.
"""

from __future__ import annotations

from typing import Final

from viewstamp.consensus import standing
from viewstamp.consensus.membership import Membership
from viewstamp.consensus.messages import AppendResponse, HeartbeatRequest, HeartbeatResponse
from viewstamp.consensus.progress import ProgressState
from viewstamp.consensus.roles import Lifecycle
from viewstamp.consensus.state import Core, Leading, RaftOptions

__all__ = [
    "LAST_TICKS",
    "beat_ticks",
    "completion_may_wait",
    "heartbeat_ticks",
    "is_idle",
    "is_in_step",
    "is_quiet_longest",
    "only_counts",
    "probe_patience",
    "quiet_ticks",
    "response_may_wait",
]

LAST_TICKS: Final = 3
"""The last ticks before an election timeout pass one by one.

A process that was stopped finds its timer due and the leader's messages unread. Between two single ticks it reads the
messages that have arrived, so it does not campaign against a leader with messages that it has not read yet.
"""
_PATIENCE_HEARTBEATS: Final = 4
_HEARTBEATS_A_TIMEOUT: Final = 3
"""Least number of heartbeats of an idle leader in the shortest election timeout."""


def quiet_ticks(core: Core) -> int:
    """Return the number of ticks of which all but the last only count: from 1 to half of an election timeout.

    The answer holds until the next input. It is bounded because a process may be stopped while it sleeps: the whole
    sleep then counts as waiting for the leader, although no message was read in it.
    """
    leading = core.state
    if core.log.commit_end != core.log.end:
        return 1  # Under load every tick is taken, because computing a longer rest costs calls in each turn.
    if isinstance(leading, Leading):
        ticks = _leaders_ticks(core, leading)
    else:
        ticks = core.election_ticks - core.ticks_since_leader - LAST_TICKS
    if core.patience.delays:
        ticks = min(ticks, core.patience.window_left)
    return max(1, min(ticks, core.options.election_timeout_ticks // 2))


def is_quiet_longest(core: Core) -> bool:
    """Return whether a follower is quiet for the maximum of :func:`quiet_ticks`, for example after each append."""
    if isinstance(core.state, Leading) or core.patience.delays:
        return False
    return core.election_ticks - core.ticks_since_leader - LAST_TICKS >= core.options.election_timeout_ticks // 2 >= 1


def response_may_wait(core: Core, message: AppendResponse) -> bool:
    """Return whether a leader may step a response together with its next input, because it changes nothing by itself.

    This is so if a quorum held its records before, and nothing waits to be sent to the member.
    """
    leading, log = core.state, core.log
    if not isinstance(leading, Leading) or message.end > log.commit_end or message.term != core.term:
        return False
    if message.rejected or message.is_recovering or leading.transferee is not None:
        return False
    progress = leading.progress.get(message.source)
    return progress is not None and progress.next_end == log.end and not progress.probed_from


def completion_may_wait(core: Core) -> bool:
    """Return whether a leader may step the completion of a write together with its next input.

    This is so if a quorum takes another member, and no other member holds more than what is committed.
    """
    leading, commit_end = core.state, core.log.commit_end
    if not isinstance(leading, Leading) or core.installing or core.stash or core.recovery_completions_left:
        return False
    if len(core.memberships) > 1 or standing.decides_alone(core.memberships[0].membership, core.me):
        return False
    for progress in leading.progress.values():
        if progress.counted_end > commit_end:
            return False
    return leading.is_reached and leading.transferee is None and not leading.notices


def heartbeat_ticks(core: Core, leading: Leading) -> int:
    """Return the ticks from one heartbeat to the next: the setting, or twice the setting while this leader is idle."""
    options = core.options
    return _idle_ticks(options) if _may_double(options) and is_idle(core, leading) else options.heartbeat_ticks


def beat_ticks(options: RaftOptions) -> int:
    """Return the ticks from one call of ``Raft.beat`` to the next, with which no heartbeat of an idle leader is due.

    One tick less than :func:`heartbeat_ticks` of an idle leader, because the timers of the groups differ by a tick.
    """
    return max(1, _idle_ticks(options) - 1)


def _idle_ticks(options: RaftOptions) -> int:
    return 2 * options.heartbeat_ticks if _may_double(options) else options.heartbeat_ticks


def _may_double(options: RaftOptions) -> bool:
    return 2 * options.heartbeat_ticks * _HEARTBEATS_A_TIMEOUT <= options.election_timeout_ticks


def probe_patience(core: Core) -> int:
    """Return the ticks without an answer to an announcement, or to a probe, before the leader asks or probes again."""
    return core.patience.scaled(_PATIENCE_HEARTBEATS * core.options.heartbeat_ticks)


def is_idle(core: Core, leading: Leading) -> bool:
    """Return whether every member has acknowledged the whole log and was sent its commit end, and no read waits."""
    end = core.log.end
    if core.log.commit_end != end or leading.reads or leading.reads_waiting or leading.transferee is not None:
        return False
    for progress in leading.progress.values():
        is_up_to_date = progress.counted_end == progress.sent_commit_end == end
        if not is_up_to_date or progress.state is not ProgressState.REPLICATING:
            return False
    return True


def is_in_step(core: Core, message: HeartbeatRequest | HeartbeatResponse) -> bool:
    """Return whether sender and receiver of a heartbeat have the same committed log by what its sender knows.

    Only such a heartbeat may travel on the connection of another group. While a group has work, a leader whose
    connections lose everything must lose its heartbeats as well, because its followers would otherwise wait for it for
    ever. The same holds for a follower whose acknowledgements are lost, because its leader has to step down.
    """
    leading, end = core.state, core.log.end
    if core.log.commit_end != end:
        return False
    if not isinstance(leading, Leading):
        return isinstance(message, HeartbeatResponse) and message.end == end and not core.ahead_end
    progress = leading.progress.get(message.target)
    return progress is not None and progress.counted_end == end and not (leading.reads or leading.reads_waiting)


def only_counts(core: Core, message: HeartbeatRequest | HeartbeatResponse) -> bool:
    """Return whether stepping a heartbeat, or its response, changes nothing but counts of ticks and answers.

    A follower then answers it, and a leader has nothing to do. No later input becomes due earlier because of it.
    """
    end = core.log.end
    if message.term != core.term or message.target != core.me or core.log.commit_end != end or core.installing:
        return False
    if isinstance(message, HeartbeatRequest):
        is_announced = core.leader == message.source and 0 < core.announced_number == message.number
        return is_announced and message.commit_end == end and message.sent_end <= end and not core.ahead_end
    leading = core.state
    progress = leading.progress.get(message.source) if isinstance(leading, Leading) else None
    if progress is None or not isinstance(leading, Leading) or leading.reads or leading.transferee is not None:
        return False
    is_following = progress.state is ProgressState.REPLICATING and progress.number == message.number
    return is_following and message.end == end == progress.counted_end and message.round == leading.round


def _leaders_ticks(core: Core, leading: Leading) -> int:
    """Return the ticks until the next heartbeat or check for a quorum; 1 while a tick may do anything else."""
    log, membership = core.log, core.memberships[-1].membership
    is_settled = core.has_room and not core.installing and leading.transferee is None and log.commit_end == log.end
    if not is_settled or not _is_complete(core, leading, membership) or core.lifecycle is not Lifecycle.RUNNING:
        return 1
    ticks = heartbeat_ticks(core, leading) - leading.heartbeat_elapsed
    ticks = min(ticks, core.patience.ticks - leading.ticks_since_check)
    for progress in leading.progress.values():
        if progress.state is ProgressState.ASKING:
            continue  # The leader asks it when a heartbeat is due.
        if progress.state is ProgressState.ANNOUNCING or progress.counted_end == 0:
            return 1
        if progress.sent_commit_end < log.commit_end and progress.next_end == log.end:
            return 1
        if progress.probed_from and progress.in_flight:
            ticks = min(ticks, probe_patience(core) - progress.ticks_in_state + 1)
    return ticks


def _is_complete(core: Core, leading: Leading, membership: Membership) -> bool:
    """Return whether the membership needs no further step (``reconfigure.on_tick``)."""
    addresses = membership.addresses
    return (
        len(core.memberships) == 1
        and core.me in membership.voters
        and not (membership.joining or membership.outgoing)
        and len(leading.progress) < len(addresses)  # Otherwise a removed member is still sent its removal.
        and (len(membership.incarnations) == len(addresses) or membership.naming(core.incarnations) is membership)
    )
