"""Leases: a leader answers reads without asking a quorum, as long as a quorum has promised not to elect another one.

Off by default (``RaftOptions.lease_us`` = 0). ``docs/design/0018`` has the rules, the proof and the dangers.
"""

from __future__ import annotations

from typing import Final

from viewstamp.consensus import standing
from viewstamp.consensus.state import Core, Leading

__all__ = ["CLOCK_ERROR_MAX", "begin_round", "extend", "is_held", "is_promised", "promise", "promised_ticks"]

CLOCK_ERROR_MAX: Final = 0.1
"""The bound: in any interval, the uptime of a machine advances by at most this share less or more than real time."""
_ROUNDS_MAX: Final = 256
"""Rounds without a quorum of answers whose begin is kept; a lease is extended by newer rounds anyway."""


def promise(core: Core) -> None:
    """Promise to elect no other leader for ``lease_us``, because a message of the leader has arrived."""
    core.promised_until_us = max(core.promised_until_us, core.now_us + core.options.lease_us)


def is_promised(core: Core) -> bool:
    """Return whether this member must not help to elect another leader yet, unless the leader itself asks for it."""
    return core.held_back_us > 0 or core.now_us < core.promised_until_us


def promised_ticks(core: Core) -> int:
    """Return the ticks until the promise ends, if clock and ticks are equally fast; 0 = there is none."""
    left_us = core.promised_until_us - core.now_us
    if left_us <= 0 or not core.options.lease_us:
        return 0
    return left_us * core.options.election_timeout_ticks // core.options.lease_us + 1


def begin_round(core: Core, leading: Leading) -> None:
    """Begin a round of heartbeats, which the caller sends in this turn."""
    leading.round += 1
    if core.options.lease_us:
        if len(leading.round_starts) == _ROUNDS_MAX:
            del leading.round_starts[next(iter(leading.round_starts))]
        leading.round_starts[leading.round] = core.now_us


def extend(core: Core, leading: Leading) -> None:
    """Extend the lease after a member has answered a round: to the newest round that a quorum has answered."""
    lease_us = core.options.lease_us
    for number in reversed(leading.round_starts):
        promising = [
            member
            for member, each in leading.progress.items()
            if each.confirmed_round >= number and each.promise_us >= lease_us
        ]
        if standing.is_majority(core.membership, [core.me, *promising]):
            length_us = int(lease_us * (1 - CLOCK_ERROR_MAX) / (1 + CLOCK_ERROR_MAX))
            leading.lease_until_us = max(leading.lease_until_us, leading.round_starts[number] + length_us)
            for each in [each for each in leading.round_starts if each <= number]:
                del leading.round_starts[each]
            return


def is_held(core: Core, leading: Leading) -> bool:
    """Return whether no other member can have been elected when ``now_us`` was read."""
    if core.now_us >= leading.lease_until_us or leading.has_released:
        return False
    return len(core.memberships) == 1 and not core.membership.is_joint
