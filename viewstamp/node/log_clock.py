"""The time that a leader gives to its records: its own wall clock, within a bound of a majority's, and never at rest.

Logger time decides when leases, sessions and timers end and which records ``--retain-age`` deletes. It never goes back,
so one leader whose clock is years ahead would move it there for good. Two rules prevent that:

1. *Bounded.* Every member reports its wall clock to every other one, when a connection is made and once a second
   (``health.digests``). A report is extrapolated with this machine's uptime. The *reference* is the largest time that a
   majority of the voters has reached, in both halves of a joint membership. So at least one right clock has reached it,
   as long as a majority of the clocks is right. A record is stamped at most ``bound_seconds`` away from the reference,
   in either direction.
2. *Never at rest.* While the last record is later than the bounded clock, log time advances at half the rate of real
   time. So leases and retention go on, and the lead shrinks.

| case | what happens |
| --- | --- |
| a report is lost or late | the earlier one is extrapolated; a late one seems to come from a clock that is behind |
| a voter reports no clock: it is down, or of an older version | it counts as time 0: the reference is earlier |
| a learner reports its clock | it does not count |
| fewer than a majority have reported | real time goes on from the last record, and after five seconds of leading the |
| | own clock counts: the others are of an older version |
| the log is empty and nobody has reported | the own clock counts: there is no record that could be followed by a leap |
| one voter | nothing to compare with, but its clock must agree with its uptime; a jump counts after ten minutes |
| this member restarts | all of this is memory; the last record's time comes from the log |
| a member lies | a majority has to, before the reference moves ahead of all right clocks |
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
"""The default of how far a stamp may be from the reference."""
SLEWED: Final = 0.5
"""How fast log time goes while it is ahead, as a part of real time."""
_ALONE_SECONDS: Final = 5.0
"""A leader of which no majority has reported a clock within this takes its own."""
_COUNT_AGAIN_US: Final = 1000
"""How far this machine's wall clock may move against its uptime before the reference is counted again."""
_JUMP_SECONDS: Final = 600.0
"""A jump of an only voter's clock is taken after this: time for a person to set the clock right before data expires."""


class LogClock:
    """One member's view of the time; only the stamps of a leader come from it.

    Invariants:
      * while this member leads, :meth:`tick` never returns less than before, and more whenever real time has passed
      * with a reference, :meth:`tick` returns more than reference + bound only where the log was there already
    """

    def __init__(self, clock: Clock, core: Core, *, bound_seconds: float, log: Logger) -> None:
        """Begin without any report.

        Args:
          clock: this machine's.
          core: only looked at: who votes and leads, and the time of the last record.
          bound_seconds: how far a stamp may be from the reference.
          log: where a clock that is off is reported, once each time.
        """
        self._clock = clock
        self._core = core
        self._bound_us = round(bound_seconds * 1e6)
        self._logger = log
        self._reports: dict[NodeId, tuple[int, float]] = {}
        """Each member's wall clock when its last report arrived, and this machine's uptime then."""
        self._counted: tuple[Membership, int] | None = None
        """For which membership, and for which difference of wall clock and uptime here, ``_ahead_us`` was counted."""
        self._ahead_us: int | None = None
        """The reference less this machine's uptime; None = too few members have reported."""
        self._time_us = 0
        self._at = clock.uptime()
        self._leading_since: float | None = None
        self._known: tuple[int, float] | None = None
        """Wall clock and uptime of an only voter when they last agreed."""
        self._jumped_at: float | None = None
        self._is_off = False

    def heard(self, member: NodeId, wall_us: int) -> None:
        """Take a report of a member's wall clock. Those of others are dropped, so this is bounded."""
        if member in self._core.membership.addresses:
            self._reports[member] = wall_us, self._clock.uptime()
            self._counted = None
            for each in [each for each in self._reports if each not in self._core.membership.addresses]:
                del self._reports[each]

    def tick(self) -> int:
        """Return the time of records that are stamped from now on, microseconds since 1970. Called once a tick."""
        core, now, wall_us = self._core, self._clock.uptime(), self._clock.wall_us()
        elapsed_us = max(0, int((now - self._at) * 1e6))
        self._at = now
        reference_us = self._reference(wall_us, now)
        if core.leader != core.me:
            self._leading_since, self._time_us = None, 0  # What it did not stamp is no log time.
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
        """What ``viewstamp status`` shows: seconds, ``offset`` None where no majority has reported a clock."""
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

        All reports go on with this machine's uptime, and so does its own clock unless it is set. So the majority is
        counted once for each report, and when the membership or this machine's clock changes: not in every tick.
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
            # Counted as it is for the log; a missing voter counts as 0 there, too.
            reference_us = standing.majority_end(membership, {**times, core.me: Index(wall_us)}) or None
            self._ahead_us = None if reference_us is None else reference_us - int(now * 1e6)
        return None if self._ahead_us is None else self._ahead_us + int(now * 1e6)

    def _alone(self, wall_us: int, now: float) -> int:
        """Return the time of an only voter: its clock, but after a jump what its uptime says, for a while."""
        known_us, known_at = self._known or (wall_us, now)
        expected_us = known_us + int((now - known_at) * 1e6)
        if abs(wall_us - expected_us) > self._bound_us:
            self._jumped_at = now if self._jumped_at is None else self._jumped_at
            if now - self._jumped_at < _JUMP_SECONDS:
                return expected_us
        self._known, self._jumped_at = (wall_us, now), None
        return wall_us

    def _report(self, offset_us: int) -> None:
        """Log once that this machine's clock is off, and once that it is right again."""
        if not self._is_off and abs(offset_us) > self._bound_us:
            self._is_off = True
            self._logger.warning(
                "! clock off", offset_seconds=round(offset_us / 1e6, 1), bound_seconds=self._bound_us / 1e6
            )
        elif self._is_off and 2 * abs(offset_us) <= self._bound_us:
            self._is_off = False
            self._logger.info("= clock right", offset_seconds=round(offset_us / 1e6, 1))
