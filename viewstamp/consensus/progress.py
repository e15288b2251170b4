"""What the leader knows of one member."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from viewstamp.enums import fast_members
from viewstamp.ids import Index

__all__ = ["Progress", "ProgressState"]


@fast_members
class ProgressState(Enum):
    """Where the leader stands with a member.

    ASKING: its history is not known. ANNOUNCING: it has been sent the announcement ``number``.
    REPLICATING: it has taken it durably; batches flow.
    """

    ASKING = "asking"
    ANNOUNCING = "announcing"
    REPLICATING = "replicating"


@dataclass(slots=True)
class Progress:
    """One member, seen by the leader.

    Invariants:
      * ``durable_end <= next_end``; ``in_flight_bytes`` is the sum over ``in_flight`` and is bounded
      * ``counted_end <= durable_end``
      * ``durable_end`` > 0 only in REPLICATING: the member said so, after it took announcement ``number`` of this term
    """

    state: ProgressState = ProgressState.ASKING
    number: int = 0
    """The latest announcement to this member in this term, from 1; 0 = none yet."""
    durable_end: Index = Index(0)
    """Acknowledged: durable there up to here."""
    counted_end: Index = Index(0)
    """As far of that as counts for commit: 0 while the member is recovering (rule 17)."""
    next_end: Index = Index(0)
    """Sent up to here; the next append starts here."""
    sent_commit_end: Index = Index(0)
    """The newest commit end that was sent."""
    in_flight: deque[tuple[Index, int]] = field(default_factory=deque)
    """(end, bytes) of each append that is not acknowledged."""
    in_flight_bytes: int = 0
    probed_from: Index = Index(0)
    """Where the member said that its log ends when it rejected an append; 0 = it has acknowledged one since.

    Until then one append at a time is sent, and sent again after a while. The appends behind a lost one are rejected in
    a row, and a member with a full disk rejects all: if each rejection restarted the window, the whole window would be
    sent for each of them.
    """
    is_fetching: bool = False
    """A read from disk is under way for this member: at most one."""
    confirmed_round: int = 0
    """The newest round of heartbeats that it answered while it counted."""
    has_responded: bool = True
    """Whether it answered since the last check for a quorum."""
    ticks_since_response: int = 0
    """Ticks since its last answer."""
    slowest_response_ticks: int = 0
    """The most ticks between two answers since the last check for a quorum."""
    round_end: Index = Index(0)
    """Catching up goes in rounds: where the leader's log ended when this one began ..."""
    round_ticks: int = 0
    """... and how long ago that was, in ticks."""
    stuck_ticks: int = 0
    """Ticks for which it has been recovering although it lacks nothing."""
    ticks_in_state: int = 0
    """Ticks since the state was entered; while probing, since the probe."""

    @property
    def is_recovering(self) -> bool:
        """Whether it follows and does not count yet, because its disk has lost something (rule 17)."""
        return self.state is ProgressState.REPLICATING and self.counted_end == 0

    def note_response(self) -> None:
        """Note that it has answered something."""
        self.has_responded = True
        self.ticks_since_response = 0

    def become_asking(self) -> None:
        """Start again from what the member will report."""
        self._forget()
        self.state = ProgressState.ASKING

    def become_announcing(self) -> int:
        """Count a new announcement and return its number; what the member said before counts no more (rule 6)."""
        self._forget()
        self.state = ProgressState.ANNOUNCING
        self.number += 1
        return self.number

    def become_replicating(self, end: Index, *, is_recovering: bool) -> None:
        """Note that the member has taken the announcement and is durable up to ``end``."""
        self._forget()
        self.state = ProgressState.REPLICATING
        self.durable_end = end
        self.counted_end = Index(0) if is_recovering else end
        self.next_end = end

    def sent(self, end: Index, size: int) -> None:
        """Note that an append up to ``end``, of ``size`` bytes, was sent."""
        self.in_flight.append((end, size))
        self.in_flight_bytes += size
        self.next_end = end

    def acknowledged(self, end: Index, *, is_recovering: bool) -> bool:
        """Note an answer: the member is durable up to ``end``. Return whether more counts for commit now."""
        self.has_responded = True
        if self.ticks_since_response > self.slowest_response_ticks:
            self.slowest_response_ticks = self.ticks_since_response
        self.ticks_since_response = 0
        while self.in_flight and self.in_flight[0][0] <= end:
            self.in_flight_bytes -= self.in_flight.popleft()[1]
            self.probed_from = Index(0)
        if end > self.durable_end:
            self.durable_end = end
            self.next_end = max(self.next_end, end)
        if is_recovering or end <= self.counted_end:
            return False
        self.counted_end = end
        return True

    def has_caught_up(self, end: Index, ticks_max: int) -> bool:
        """Let a tick pass; return whether a learner is as near as a voter (Raft thesis 4.2.1).

        It is if, within ``ticks_max``, it has taken all that the log held when the round began. ``end`` is the end of
        the log now, where the next round begins.
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
        """The member has received only up to ``received_end``: probe from there, unless that is under way."""
        is_late = received_end < self.durable_end
        if not (is_late or (self.in_flight and self.probed_from == received_end)):
            self.probe(received_end)

    def probe(self, start: Index) -> None:
        """Send again from ``start``, one append at a time until one is acknowledged."""
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
