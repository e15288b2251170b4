"""Election timeouts that adapt to a slow network: the time a member waits before it considers another as failed.

If the timeout is shorter than a round trip, every election fails and every leader is deposed
(docs/design/0010). So a member remembers the longest recent delay of each peer, and its timeout is twice the longest
of these, within bounds:

* at least ``election_timeout_ticks``, the setting. Delays below half of it are not noted, so that this module costs
  nothing on a good network
* at most ``election_stretch_max`` times the setting; a delay of more than twice that is considered an outage

Delays are measured with messages that are sent anyway:

| on | delay |
| --- | --- |
| a follower | ticks between two messages of the same leader, even if it was given up in between |
| a candidate | ticks from asking for votes to a vote; for a missing vote, the candidate's timeout, once it is over |
| a leader | ticks between two answers of a follower; if it steps down, the ticks without a majority of answers |

A delay is forgotten after one to two windows. Delays are kept only in the memory of one member and lost with its
process, because safety does not depend on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from viewstamp.ids import NodeId

__all__ = ["Patience"]

_WINDOW_TIMEOUTS: Final = 50
"""Length of a window, in timeouts of the setting: 15 s by default."""


@dataclass(slots=True)
class Patience:
    """The election timeout in force, and the delays from which it is computed.

    Invariants:
      * ``least <= ticks <= most``
      * ``ticks == least`` while ``delays`` is empty
    """

    least: int
    most: int
    ticks: int = 0
    """The election timeout in force: a follower waits from this to twice this, a leader this for its quorum."""
    slow: int = 0
    """Only delays above this have an effect, so callers skip :meth:`note` for shorter ones."""
    delays: dict[NodeId, tuple[int, int]] = field(default_factory=dict)
    """The longest delay of each peer, in the present window and in the one before, in ticks."""
    age: int = 0
    """Ticks since the present window began."""

    def __post_init__(self) -> None:
        self.ticks = self.least
        self.slow = self.least // 2

    def note(self, peer: NodeId, delay: int) -> None:
        """Note that a message of ``peer`` came ``delay`` ticks late, and adapt the timeout."""
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
        """Advance the time by ``ticks``; return whether the timeout has changed. Called only while there are delays."""
        self.age += ticks
        if self.age < _WINDOW_TIMEOUTS * self.least:
            return False
        before = self.ticks
        self.age = 0
        self.delays = {peer: (0, worst) for peer, (worst, _) in self.delays.items() if worst}
        self._adapt()
        return self.ticks != before

    def forget(self) -> None:
        """Drop all delays, so that the timeout is the setting again."""
        self.delays.clear()
        self.age = 0
        self._adapt()

    def scaled(self, ticks: int) -> int:
        """Return ``ticks``, stretched by the same factor as the election timeout."""
        return ticks * self.ticks // self.least

    def _adapt(self) -> None:
        longest = max((max(delay) for delay in self.delays.values()), default=0)
        self.ticks = min(max(self.least, 2 * longest), self.most)
