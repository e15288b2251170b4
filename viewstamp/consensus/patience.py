"""How long a member waits for another before it takes it to have failed: timeouts that adapt to a slow network.

Shorter than a round trip, a timeout makes every election fail and deposes every leader. Pre-vote does not help there:
each pre-vote is granted, because nobody has a leader, then the vote of the new term expires before its answers come,
and so the term climbs. Therefore a member remembers, of each peer, the longest delay of the last moments, and its
timeout is twice the longest of these, within bounds:

* at least ``election_timeout_ticks``, the setting: no delay below half of it is even noted, so on a good network
  nothing of this is ever called
* at most ``election_stretch_max`` times the setting; a delay of more than twice that is taken for an outage

Delays are measured in messages that flow anyway:

| on | delay |
| --- | --- |
| a follower | ticks between two messages of the same leader, also where it was given up in between |
| a candidate | ticks from asking for votes to a vote; for the missing ones, its timeout, when that is over |
| a leader | ticks between two answers of a follower; for how long no majority answered, when it steps down for that |

A delay is forgotten after one to two windows. All of this is in the memory of one member: it is lost with the process,
and safety does not need it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from viewstamp.ids import NodeId

__all__ = ["Patience"]

_WINDOW_TIMEOUTS: Final = 50
"""A window, in least timeouts: 15 s with the default settings."""


@dataclass(slots=True)
class Patience:
    """The election timeout in force, and the delays that it follows from.

    Invariants:
      * ``least <= ticks <= most``
      * ``ticks == least`` while ``delays`` is empty
    """

    least: int
    most: int
    ticks: int = 0
    """The election timeout in force: a follower waits from this to twice this, a leader this for its quorum."""
    slow: int = 0
    """A delay above this is worth a call of :meth:`note`."""
    delays: dict[NodeId, tuple[int, int]] = field(default_factory=dict)
    """The longest delay of each peer, in the present window and in the one before, in ticks."""
    age: int = 0
    """Ticks since the present window began."""

    def __post_init__(self) -> None:
        self.ticks = self.least
        self.slow = self.least // 2

    def note(self, peer: NodeId, delay: int) -> None:
        """Take a delay of ``delay`` ticks in what a peer sends."""
        if not self.slow < delay <= 2 * self.most:
            return
        worst, before = self.delays.get(peer, (0, 0))
        if delay > worst:
            self.delays[peer] = (delay, before)
            self._adapt()

    @property
    def window_left(self) -> int:
        """Ticks until the present window ends; it moves only while there are delays."""
        return _WINDOW_TIMEOUTS * self.least - self.age

    def tick(self, ticks: int = 1) -> bool:
        """Let ticks pass; return whether the timeout has changed. Called only while there are delays."""
        self.age += ticks
        if self.age < _WINDOW_TIMEOUTS * self.least:
            return False
        before = self.ticks
        self.age = 0
        self.delays = {peer: (0, worst) for peer, (worst, _) in self.delays.items() if worst}
        self._adapt()
        return self.ticks != before

    def forget(self) -> None:
        """Drop all delays: the timeout is the setting again."""
        self.delays.clear()
        self.age = 0
        self._adapt()

    def scaled(self, ticks: int) -> int:
        """Return a wait of ``ticks`` on a good network, stretched by as much as the election timeout is."""
        return ticks * self.ticks // self.least

    def _adapt(self) -> None:
        longest = max((max(delay) for delay in self.delays.values()), default=0)
        self.ticks = min(max(self.least, 2 * longest), self.most)
