"""The leader's record of one member: its ends, its window of appends, and its last answers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from viewstamp.enums import fast_members
from viewstamp.ids import Index

__all__ = ["Progress", "ProgressState"]


@fast_members
class ProgressState(Enum):
    """The step of the protocol that the leader has reached with a member.

    ASKING: the member's history is not known. ANNOUNCING: it has been sent the announcement ``number``.
    REPLICATING: it has accepted that announcement durably, and is sent batches.
    """

    ASKING = "asking"
    ANNOUNCING = "announcing"
    REPLICATING = "replicating"


@dataclass(slots=True)
class Progress:
    """The state of one member, as far as the leader has received it.

    Invariants:
      * ``durable_end <= next_end``; ``in_flight_bytes`` is the sum over ``in_flight`` and is bounded
      * ``counted_end <= durable_end``
      * ``durable_end`` > 0 only in REPLICATING: the member reported it, after it accepted announcement ``number`` of
        this term
    """

    state: ProgressState = ProgressState.ASKING
    number: int = 0
    """The latest announcement to this member in this term, from 1; 0 = none yet."""
    durable_end: Index = Index(0)
    """The acknowledged end: the member holds all before it durably."""
    counted_end: Index = Index(0)
    """The part of ``durable_end`` that counts for commit: 0 while the member is recovering (rule 17)."""
    next_end: Index = Index(0)
    """The end of the last batch that was sent; the next append starts here."""
    sent_commit_end: Index = Index(0)
    """The newest commit end that was sent."""
    in_flight: deque[tuple[Index, int]] = field(default_factory=deque)
    """(end, bytes) of each append that is not acknowledged."""
    in_flight_bytes: int = 0
    probed_from: Index = Index(0)
    """The end of the member's log when it rejected an append; 0 = it has acknowledged an append since.

    While it is not 0, one append at a time is sent, and repeated after ``quiet.probe_patience`` ticks. The window is
    not restarted by each rejection, because all appends behind a lost one are rejected, and a member with a full disk
    rejects every append: the whole window would be sent for each of them.
    """
    is_fetching: bool = False
    """Whether a read from disk is under way for this member. There is at most one."""
    confirmed_round: int = 0
    """The newest round of heartbeats that it answered at a time when its answers counted."""
    promise_us: int = 0
    """The promise in its newest counted answer to a heartbeat; see ``lease``."""
    has_responded: bool = True
    """Whether it answered since the last check for a quorum."""
    ticks_since_response: int = 0
    """Ticks since its last answer."""
    slowest_response_ticks: int = 0
    """The longest time between two answers since the last check for a quorum, in ticks."""
    round_end: Index = Index(0)
    """The end of the leader's log when the present round of catching up began."""
    round_ticks: int = 0
    """Ticks since that round began."""
    stuck_ticks: int = 0
    """Consecutive ticks in which it was recovering although it lacked no committed record."""
    standing_ticks: int = 0
    """Consecutive ticks in which it lacked records and acknowledged none."""
    ticks_in_state: int = 0
    """Ticks since the state was entered; while probing, since the probe."""

    @property
    def is_recovering(self) -> bool:
        """Whether it follows but does not count yet, because its disk has lost data (rule 17)."""
        return self.state is ProgressState.REPLICATING and self.counted_end == 0

    def note_response(self) -> None:
        """Note that the member has answered, so that it counts as active."""
        self.has_responded = True
        self.ticks_since_response = 0

    def become_asking(self) -> None:
        """Forget the member's state, until it reports its history."""
        self._forget()
        self.state = ProgressState.ASKING

    def become_announcing(self) -> int:
        """Count a new announcement and return its number; answers to earlier ones do not count any more (rule 6)."""
        self._forget()
        self.state = ProgressState.ANNOUNCING
        self.number += 1
        return self.number

    def become_replicating(self, end: Index, *, is_recovering: bool) -> None:
        """Note that the member has accepted the announcement and is durable up to ``end``."""
        self._forget()
        self.state = ProgressState.REPLICATING
        self.standing_ticks = 0
        self.durable_end = end
        self.counted_end = Index(0) if is_recovering else end
        self.next_end = end

    def sent(self, end: Index, size: int) -> None:
        """Note that an append up to ``end``, of ``size`` bytes, was sent."""
        self.in_flight.append((end, size))
        self.in_flight_bytes += size
        self.next_end = end

    def acknowledged(self, end: Index, *, is_recovering: bool) -> bool:
        """Note that the member is durable up to ``end``; return whether ``counted_end`` has grown."""
        self.has_responded = True
        if self.ticks_since_response > self.slowest_response_ticks:
            self.slowest_response_ticks = self.ticks_since_response
        self.ticks_since_response = 0
        while self.in_flight and self.in_flight[0][0] <= end:
            self.in_flight_bytes -= self.in_flight.popleft()[1]
            self.probed_from = Index(0)
        if end > self.durable_end:
            self.durable_end = end
            self.standing_ticks = 0
            self.next_end = max(self.next_end, end)
        if is_recovering or end <= self.counted_end:
            return False
        self.counted_end = end
        return True

    def has_caught_up(self, end: Index, ticks_max: int) -> bool:
        """Count a tick; return whether a learner has caught up enough to become a voter (Raft thesis 4.2.1).

        It has if, within ``ticks_max``, it acknowledged everything that the log held when the round began. ``end`` is
        the present end of the log; the next round is measured by it.
        """
        self.round_ticks += 1
        if self.state is not ProgressState.REPLICATING or not self.round_end:
            self.round_end, self.round_ticks = end, 0
            return False
        if self.counted_end < self.round_end:
            return False
        is_fast = self.round_ticks <= ticks_max
        self.round_end, self.round_ticks = end, 0
        return is_fast

    def rejected(self, received_end: Index) -> None:
        """Probe from ``received_end`` on, because the member rejected an append; do nothing if that is under way."""
        is_late = received_end < self.durable_end
        if not (is_late or (self.in_flight and self.probed_from == received_end)):
            self.probe(received_end)

    def probe(self, start: Index) -> None:
        """Send again from ``start``, one append at a time, until one is acknowledged."""
        self.in_flight.clear()
        self.in_flight_bytes = 0
        self.next_end = self.probed_from = max(start, self.durable_end)
        self.ticks_in_state = 0

    def has_room(self, in_flight_bytes_max: int) -> bool:
        """Return whether another append may be sent."""
        if self.is_fetching or (self.probed_from and self.in_flight):
            return False
        return self.in_flight_bytes < in_flight_bytes_max

    def _forget(self) -> None:
        self.durable_end = Index(0)
        self.counted_end = Index(0)
        self.round_end = Index(0)
        self.in_flight.clear()
        self.in_flight_bytes = 0
        self.probed_from = Index(0)
        self.is_fetching = False
        self.ticks_in_state = 0
