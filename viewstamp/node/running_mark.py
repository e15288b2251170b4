"""The causes of recovering at the start, and the pair (last term, end) that the log must reach (protocol rule 17).

There are two causes. *Damage*: durable bytes are wrong or missing (``repair``). *A power loss in interval mode*: the
member acknowledged records that were not synced, and the machine has lost its page cache since. The second is
recognised by the **running mark** of the control file, (boot id, durability):

| mark found at start | boot id of the machine | meaning |
| --- | --- | --- |
| none | any | clean stop, or every acknowledged record was synced: nothing is missing |
| interval | the same | the process died and the page cache survived: nothing is missing |
| interval | another, or unknown | unsynced records may be gone: recovering, with an unknown end |

The order of the writes, and the effect if the process dies between them:

1. The log is opened: its torn end is cut and the rest is synced. A death leaves the old mark; the next start finds it
   again, and decides the same.
2. The pair and the new mark are one control write. It precedes the first message of this process, because an
   acknowledgement that leaves earlier would not be covered by a mark. A death leaves both or neither.
3. At a clean stop the log is closed, which syncs it, and then the mark is cleared. A death in between leaves the mark:
   after a power cut the member recovers although nothing is missing, which costs time and no record.

A member in sync mode writes no mark, because it acknowledges nothing before it is synced.
"""

from __future__ import annotations

from dataclasses import replace

from viewstamp.consensus.term_history import TermHistory
from viewstamp.host.clock import UNKNOWN_BOOT
from viewstamp.ids import Index
from viewstamp.wal.control_file import ControlState

__all__ = ["INTERVAL", "SYNCED", "UNKNOWN_END", "lost_power", "mark_started", "mark_stopped", "recovering_pair"]

SYNCED = "majority, synced"
INTERVAL = "interval_may_lose_acknowledged_writes"
"""The two meanings of an acknowledgement: on the disks of a majority; or handed to them, and synced a moment later."""

UNKNOWN_END = 2**62
"""The end of a log of unknown length. No log reaches it, so only a log of a later term is sufficient."""


def recovering_pair(state: ControlState, end: int | None) -> tuple[int, int]:
    """Return the pair that a node may have advertised before its log lost something, which ended at ``end``.

    ``end`` None = unknown. A stored pair stays, because acknowledgements of a recovering node did not count.
    """
    if state.recovering_until is not None:
        return state.recovering_until
    history = TermHistory(state.history)
    if end is None or history.starts[0].begin > end:
        return history.last_term, UNKNOWN_END
    return history.advertised(Index(end)).last_term, end


def lost_power(state: ControlState, boot_id: str) -> bool:
    """Return whether the machine may have lost acknowledged records of this node that were not synced.

    Only records of the stored term can be unsynced: storing a later term syncs the log first, and no record is accepted
    in that term before its history is stored. So if the stored history ends below the stored term, nothing is lost.
    """
    if state.running is None:
        return False
    boot, durability = state.running
    is_same_boot = boot == boot_id != UNKNOWN_BOOT
    return durability == INTERVAL and not is_same_boot and TermHistory(state.history).last_term >= state.term


def mark_started(state: ControlState, boot_id: str, *, is_interval: bool) -> ControlState:
    """Return the state to store before this process sends its first message; see the module."""
    if lost_power(state, boot_id):
        is_damaged = state.recovering_until is not None and not state.lost_power
        state = replace(state, recovering_until=recovering_pair(state, None), lost_power=not is_damaged)
    return replace(state, running=(boot_id, INTERVAL) if is_interval else None)


def mark_stopped(state: ControlState) -> ControlState:
    """Return the state to store at a clean stop, after the log was synced and closed."""
    return replace(state, running=None)
