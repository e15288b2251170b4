"""Changing who is a member and who leads: membership changes, promotions, transfers, and leaders that give way.

A change of voters takes two records (``membership``): the leader appends the joint membership, and leaves it when it is
committed. Everything after the first record follows by itself, one step a tick.
"""

from __future__ import annotations

from viewstamp.consensus import follower, leader, standing
from viewstamp.consensus.membership import Change
from viewstamp.consensus.messages import TimeoutNow
from viewstamp.consensus.progress import Progress, ProgressState
from viewstamp.consensus.roles import Lifecycle
from viewstamp.consensus.state import Core, Leading
from viewstamp.errors import RequestError, UnavailableError
from viewstamp.ids import Index, NodeId, Viewstamp, name_of

__all__ = ["GONE_TIMEOUTS", "STUCK_TIMEOUTS", "change", "is_responding", "on_tick", "transfer"]

STUCK_TIMEOUTS = 5
"""Election timeouts after which a leader hands over for a recovering voter that lacks nothing, or for its full disk."""
GONE_TIMEOUTS = 5
"""Election timeouts without a response after which a member may have lost its disk, and another may take its place.

A node with an empty disk joins so much later than it could (1.5 s by default). In return, a member that stands still
for a second, or has lost its network, cannot be replaced meanwhile by a node that asks under its name. The timeouts are
those in force (``Patience``), because on a slow network a member that is alive answers more slowly.
"""
_DEPARTED_TIMEOUTS = 2
"""Election timeouts without a response after which a removed member is not sent the record of that any more."""


def change(core: Core, wanted: Change) -> Viewstamp:
    """Begin a change of the membership; see :meth:`Raft.change`."""
    leading = leader.check_propose(core, 0)
    entry = core.memberships[-1]
    if entry.index >= core.log.commit_end or entry.membership.is_joint:
        raise UnavailableError("another change of the membership is under way", remedy="try again in a moment")
    membership = entry.membership.changed(wanted)
    if membership is entry.membership:
        return Viewstamp(entry.term, entry.index)
    working = [core.me, *(member for member, progress in leading.progress.items() if _works(core, progress))]
    if membership.is_joint and not standing.is_majority(membership, working):
        there = sorted(membership.voters.keys() & set(working))
        raise UnavailableError(
            f"of {', '.join(sorted(membership.voters))} only {', '.join(there) or 'none'} would be there to agree",
            remedy="bring the others back first: `viewstamp doctor` says what they lack",
        )
    return leader.append_membership(core, leading, membership)


def transfer(core: Core, target: NodeId | None) -> NodeId:
    """Begin to hand the leadership over; see :meth:`Raft.transfer`."""
    leading = core.state
    if not isinstance(leading, Leading):
        raise leader.not_leader(core)
    voters = [voter for voter in core.membership.voters if voter != core.me]
    if not voters:
        raise RequestError(f"{core.me} is the only voter: nobody else can lead", remedy="add another member first")
    if target is not None and target not in voters:
        raise RequestError(
            f"{target} cannot take the leadership over from {core.me}",
            remedy=f"name one of {', '.join(sorted(voters))}",
        )
    ready = [voter for voter in sorted(voters) if _works(core, leading.progress[voter])]
    if target is None and ready:
        target = max(ready, key=lambda voter: leading.progress[voter].counted_end)
    if target is None or target not in ready or core.installing:
        raise UnavailableError(
            f"{target or 'no other voter'} follows {core.me} closely enough to take over at present",
            remedy="try again in a moment; `viewstamp status` shows who is behind",
        )
    leading.transferee, leading.transfer_ticks = target, 0
    leader.continue_transfer(core, leading, is_due=True)
    return target


def on_tick(core: Core, leading: Leading) -> None:
    """Take the next step of a transfer or a change, or give way to a member that can do more."""
    if leading.transferee is not None:
        leading.transfer_ticks += 1
        leader.continue_transfer(core, leading, is_due=leading.heartbeat_elapsed == 0)
    elif not core.has_room:
        # Each time the disk was full for this long: another member's may have room.
        if leading.full_ticks % (STUCK_TIMEOUTS * core.options.election_timeout_ticks) == 0:
            _hand_over(core, leading)
    elif core.lifecycle is Lifecycle.RUNNING and not core.options.sync_only:
        _advance_membership(core, leading)
        if core.state is leading:
            _help_recovering(core, leading)


def is_responding(core: Core, member: NodeId) -> bool:
    """Return whether ``member`` answered this leader recently; for a while after an election, True in any case."""
    if member == core.me:
        return True
    progress = core.state.progress.get(member) if isinstance(core.state, Leading) else None
    return progress is not None and progress.ticks_since_response <= GONE_TIMEOUTS * core.patience.ticks


def _advance_membership(core: Core, leading: Leading) -> None:
    """Take the next step of a change, if the one before is committed; one step a tick."""
    entry = core.memberships[-1]
    _forget_departed(core, leading, entry.index)
    if entry.index >= core.log.commit_end:
        return
    membership = entry.membership
    if membership.is_joint:
        leader.append_membership(core, leading, membership.left())
        return
    if core.me not in membership.voters:
        _depart(core, leading)
        return
    if membership.naming(core.incarnations) is not membership:
        leader.append_membership(core, leading, membership)  # One has been met that no record names yet.
        return
    timeout = core.patience.ticks
    for learner in sorted(membership.joining):
        replaced = NodeId(membership.joining[learner])
        if name_of(replaced) == name_of(learner) and is_responding(core, replaced):
            continue  # The disk that the learner says was lost still answers.
        if leading.progress[learner].has_caught_up(core.log.end, timeout):
            leader.append_membership(core, leading, membership.promoted(learner))
            return


def _forget_departed(core: Core, leading: Leading, index: Index) -> None:
    """Drop removed members that have received the record of that, or do not answer."""
    addresses = core.membership.addresses
    patience = _DEPARTED_TIMEOUTS * core.options.election_timeout_ticks
    for member in [member for member in leading.progress if member not in addresses]:
        progress = leading.progress[member]
        has_record = progress.durable_end > index and progress.sent_commit_end > index
        if has_record or progress.ticks_since_response > patience:
            del leading.progress[member]


def _depart(core: Core, leading: Leading) -> None:
    """Step down: the removal of this leader is committed. Send that end, and let the best voter stand at once."""
    replicating = {
        member: progress
        for member, progress in leading.progress.items()
        if progress.state is ProgressState.REPLICATING and member in core.membership.addresses
    }
    for member, progress in replicating.items():
        leader.send_heartbeat(core, leading, member, progress)
    voters = [member for member in sorted(replicating) if member in core.membership.voters]
    if voters:
        best = max(voters, key=lambda voter: replicating[voter].counted_end)
        core.output.messages.append(TimeoutNow(source=core.me, target=best, term=core.term))
    follower.step_down(core, core.term)


def _help_recovering(core: Core, leading: Leading) -> None:
    """Hand over for the sake of a recovering member that lacks nothing, because the end that it lost is not known.

    It is a voter, or is to become one. Only a higher term shows that nothing of the old one is missing (rule 17).
    """
    patience = STUCK_TIMEOUTS * core.options.election_timeout_ticks
    for voter in (*core.membership.voters, *core.membership.joining):
        progress = leading.progress.get(voter)
        if progress is None:
            continue
        is_stuck = progress.is_recovering and progress.durable_end >= core.log.commit_end
        progress.stuck_ticks = progress.stuck_ticks + 1 if is_stuck else 0
        if progress.stuck_ticks >= patience:
            progress.stuck_ticks = 0
            _hand_over(core, leading)
            return


def _hand_over(core: Core, leading: Leading) -> None:
    """Hand over to the voter that is closest, if one works."""
    if any(voter in leading.progress and _works(core, leading.progress[voter]) for voter in core.membership.voters):
        transfer(core, None)


def _works(core: Core, progress: Progress) -> bool:
    """Return whether a member follows, counts and has answered within an election timeout."""
    is_recent = progress.ticks_since_response <= core.patience.ticks
    return progress.state is ProgressState.REPLICATING and progress.counted_end > 0 and is_recent
