"""The log time that a leader stamps on records: its wall clock, kept near a majority's clocks, and always advancing.

Log time decides when leases, sessions and timers end and which records ``--retain-age`` deletes. It never goes back.
So a leader whose clock is years ahead would move it there for ever. Two rules prevent that:

1. *Bounded.* Every member reports its wall clock to every other one, when a connection is made and once a second, or
   every four seconds in an idle group other than 0 (``health.digests``). A report is extrapolated with this machine's
   uptime. The *reference* is the largest time that a majority of the voters has reached, in both halves of a joint
   membership. So at least one right clock has reached it, if a majority of the clocks is right. A record is stamped at
   most ``bound_seconds`` away from the reference, in either direction.
2. *Always advancing.* While the last record is later than the bounded clock, log time advances at half the rate of
   real time. So leases and retention go on, and the lead shrinks.

``docs/design/0006`` lists the cases, such as lost reports and clocks that jump.
"""

from __future__ import annotations

from typing import Final

from viewstamp.consensus import standing
from viewstamp.consensus.membership import Membership
from viewstamp.consensus.state import Core
from viewstamp.host.interfaces import Clock
from viewstamp.host.logger import Logger
from viewstamp.ids import Index, NodeId

__all__ = ["BOUND_SECONDS", "SLEWED", "LogClock"]

BOUND_SECONDS: Final = 10.0
"""Default of the largest difference between a stamp and the reference."""
SLEWED: Final = 0.5
"""Rate of log time while it is ahead, relative to real time."""
_ALONE_SECONDS: Final = 5.0
"""A leader uses its own clock if no majority has reported one within this time."""
_COUNT_AGAIN_US: Final = 1000
"""Change of this machine's wall clock against its uptime after which the reference is computed again."""
_JUMP_SECONDS: Final = 600.0
"""Delay before a jump of a single voter's clock counts, so that it can be corrected before data expires."""


class LogClock:
    """One member's estimate of log time; it is used only while the member leads.

    Invariants:
      * while this member leads, :meth:`tick` never returns less than before, and returns more if real time has passed
      * with a reference, :meth:`tick` returns more than reference + bound only if the log had that time already
    """

    def __init__(self, clock: Clock, core: Core, *, bound_seconds: float, log: Logger) -> None:
        """Begin without reports.

        Args:
          clock: this machine's.
          core: only read: the voters, the leader, and the time of the last record.
          bound_seconds: the largest difference between a stamp and the reference.
          log: for a line each time this machine's clock becomes wrong.
        """
        self._clock = clock
        self._core = core
        self._bound_us = round(bound_seconds * 1e6)
        self._logger = log
        self._reports: dict[NodeId, tuple[int, float]] = {}
        """Each member's wall clock when its last report arrived, and this machine's uptime then."""
        self._counted: tuple[Membership, int] | None = None
        """The membership, and the difference of wall clock and uptime here, for which ``_ahead_us`` was computed."""
        self._ahead_us: int | None = None
        """The reference less this machine's uptime; None = too few members have reported."""
        self._time_us = 0
        self._at = clock.uptime()
        self._leading_since: float | None = None
        self._known: tuple[int, float] | None = None
        """Wall clock and uptime of a single voter when they last agreed."""
        self._jumped_at: float | None = None
        self._is_off = False

    def heard(self, member: NodeId, wall_us: int) -> None:
        """Take a report of a member's wall clock. Reports of other nodes are dropped, to limit memory."""
        if member in self._core.membership.addresses:
            self._reports[member] = wall_us, self._clock.uptime()
            self._counted = None
            for each in [each for each in self._reports if each not in self._core.membership.addresses]:
                del self._reports[each]

    def tick(self) -> int:
        """Return the log time for records from now on, in microseconds since 1970. Called once each tick."""
        core, now, wall_us = self._core, self._clock.uptime(), self._clock.wall_us()
        elapsed_us = max(0, int((now - self._at) * 1e6))
        self._at = now
        reference_us = self._reference(wall_us, now)
        if core.leader != core.me:
            self._leading_since, self._time_us = None, 0  # A time that no record was stamped with is not log time.
        elif self._leading_since is None:
            self._leading_since = now
        floor_us = max(self._time_us, core.log_time)
        if reference_us is not None:
            bounded_us = min(max(wall_us, reference_us - self._bound_us), reference_us + self._bound_us)
            self._report(wall_us - reference_us)
        elif core.log_time == 0 or (self._leading_since is not None and now - self._leading_since > _ALONE_SECONDS):
            bounded_us = wall_us
        else:
            bounded_us = min(wall_us, floor_us + elapsed_us)
        self._time_us = max(bounded_us, floor_us + int(elapsed_us * SLEWED))
        return self._time_us

    @property
    def status(self) -> dict[str, object]:
        """Return the fields of ``viewstamp status``, in seconds; ``offset`` None = no majority has reported a clock."""
        now, wall_us = self._clock.uptime(), self._clock.wall_us()
        reference_us = self._reference(wall_us, now)
        ahead_us = self._core.log_time - (wall_us if reference_us is None else reference_us)
        return {
            "offset_seconds": None if reference_us is None else round((wall_us - reference_us) / 1e6, 3),
            "bound_seconds": self._bound_us / 1e6,
            "log_time_us": self._core.log_time,
            "ahead_seconds": round(max(0, ahead_us) / 1e6, 3),
            "is_alone": standing.decides_alone(self._core.membership, self._core.me),
        }

    def _reference(self, wall_us: int, now: float) -> int | None:
        """Return the largest time that a majority of the voters has reached; None = too few have reported.

        All reports advance with this machine's uptime, and so does its own clock unless it is set. So the majority is
        computed only for each report, and when the membership or this machine's clock changes, not in every tick.
        """
        core = self._core
        membership = core.membership
        own_us, counted = wall_us - int(now * 1e6), self._counted
        if counted is None or counted[0] is not membership or abs(own_us - counted[1]) > _COUNT_AGAIN_US:
            if standing.decides_alone(membership, core.me):
                return self._alone(wall_us, now)
            self._known = self._jumped_at = None
            self._counted = membership, own_us
            times = {member: Index(at + int((now - since) * 1e6)) for member, (at, since) in self._reports.items()}
            # Computed by the rule for the commit index, in which a missing voter counts as 0 too.
            reference_us = standing.majority_end(membership, {**times, core.me: Index(wall_us)}) or None
            self._ahead_us = None if reference_us is None else reference_us - int(now * 1e6)
        return None if self._ahead_us is None else self._ahead_us + int(now * 1e6)

    def _alone(self, wall_us: int, now: float) -> int:
        """Return the time of a single voter: its clock, but for ten minutes after a jump the time by its uptime."""
        known_us, known_at = self._known or (wall_us, now)
        expected_us = known_us + int((now - known_at) * 1e6)
        if abs(wall_us - expected_us) > self._bound_us:
            self._jumped_at = now if self._jumped_at is None else self._jumped_at
            if now - self._jumped_at < _JUMP_SECONDS:
                return expected_us
        self._known, self._jumped_at = (wall_us, now), None
        return wall_us

    def _report(self, offset_us: int) -> None:
        """Log once when this machine's clock becomes wrong, and once when it is right again."""
        if not self._is_off and abs(offset_us) > self._bound_us:
            self._is_off = True
            self._logger.warning(
                "! clock off", offset_seconds=round(offset_us / 1e6, 1), bound_seconds=self._bound_us / 1e6
            )
        elif self._is_off and 2 * abs(offset_us) <= self._bound_us:
            self._is_off = False
            self._logger.info("= clock right", offset_seconds=round(offset_us / 1e6, 1))
