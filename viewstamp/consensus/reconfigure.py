"""Changes of the membership and of the leader: changes, promotions, transfers, and leaders that hand over.

A change of voters takes two records (``membership``): the leader appends the joint membership, and leaves it when it is
committed. After the first record the leader takes the further steps by itself, one step a tick.
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

This delays the joining of a node with an empty disk (1.5 s by default). In return, a member that is stopped for a
second, or has lost its network, cannot be replaced meanwhile by a node that asks under its name. The timeouts are
those in force (``Patience``), because on a slow network a member that is alive answers more slowly.
"""
_DEPARTED_TIMEOUTS = 2
"""Election timeouts without a response after which a removed member is no longer sent the record of its removal."""


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
            f"of the voters {', '.join(sorted(membership.voters))} only {', '.join(there) or 'none'} can agree now",
            remedy="bring the others back first: `viewstamp doctor` lists the reasons",
        )
    return leader.append_membership(core, leading, membership)


def transfer(core: Core, target: NodeId | None) -> NodeId:
    """Begin to hand the leadership over; see :meth:`Raft.transfer`."""
    leading = core.state
    if not isinstance(leading, Leading):
        raise leader.not_leader(core)
    voters = [voter for voter in core.membership.voters if voter != core.me]
    if not voters:
        raise RequestError(
            f"{core.me} is the only voter, so no other member can lead", remedy="add another member first"
        )
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
            f"{f'{target} does not follow' if target else 'no other voter follows'} {core.me} closely enough to lead",
            remedy="try again in a moment; `viewstamp status` shows the members that lag",
        )
    leading.transferee, leading.transfer_ticks = target, 0
    leader.continue_transfer(core, leading, is_due=True)
    return target


def on_tick(core: Core, leading: Leading) -> None:
    """Take the next step of a transfer or a change, or hand over if another member can lead better."""
    if leading.transferee is not None:
        leading.transfer_ticks += 1
        leader.continue_transfer(core, leading, is_due=leading.heartbeat_elapsed == 0)
    elif not core.has_room:
        # The leader hands over each time its disk was full for this long, because another disk may have room.
        if leading.full_ticks % (STUCK_TIMEOUTS * core.options.election_timeout_ticks) == 0:
            _hand_over(core, leading)
    elif core.lifecycle is Lifecycle.RUNNING and not core.options.sync_only:
        _advance_membership(core, leading)
        if core.state is leading:
            _help_recovering(core, leading)


def is_responding(core: Core, member: NodeId) -> bool:
    """Return whether ``member`` answered within ``GONE_TIMEOUTS``; also True for that time after an election."""
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
        leader.append_membership(core, leading, membership)  # Names the disk of a member that was met meanwhile.
        return
    timeout = core.patience.ticks
    for learner in sorted(membership.joining):
        replaced = NodeId(membership.joining[learner])
        if name_of(replaced) == name_of(learner) and is_responding(core, replaced):
            continue  # The disk that the learner reported as lost still answers.
        if leading.progress[learner].has_caught_up(core.log.end, timeout):
            leader.append_membership(core, leading, membership.promoted(learner))
            return


def _forget_departed(core: Core, leading: Leading, index: Index) -> None:
    """Drop removed members that have received the record of their removal and its commit, or do not answer."""
    addresses = core.membership.addresses
    if leading.progress.keys() <= addresses.keys():
        return
    patience = _DEPARTED_TIMEOUTS * core.options.election_timeout_ticks
    for member in [member for member in leading.progress if member not in addresses]:
        progress = leading.progress[member]
        has_record = progress.durable_end > index and progress.sent_commit_end > index
        if has_record or progress.ticks_since_response > patience:
            del leading.progress[member]


def _depart(core: Core, leading: Leading) -> None:
    """Send the commit end and step down, because this leader's removal is committed; let the best voter campaign."""
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
    """Hand over if a recovering voter lacks no committed record, because the end that it lost may be unknown.

    This includes learners that are to become voters. If the end is unknown, only a higher term shows that no record of
    the old one is missing (rule 17).
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
    """Hand over to the closest voter, if one works."""
    if any(voter in leading.progress and _works(core, leading.progress[voter]) for voter in core.membership.voters):
        transfer(core, None)


def _works(core: Core, progress: Progress) -> bool:
    """Return whether a member follows, its ends count, and it has answered within an election timeout."""
    is_recent = progress.ticks_since_response <= core.patience.ticks
    return progress.state is ProgressState.REPLICATING and progress.counted_end > 0 and is_recent
