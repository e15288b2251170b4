"""What a failed actor means for itself and the others: the policy, apart from the machinery that carries it out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from viewstamp.enums import fast_members

__all__ = ["RESTARTS_KEPT", "Decision", "Directive", "Failure", "Restart", "RestartIn", "Supervisor"]

RESTARTS_KEPT = 100
"""How many of an actor's latest restarts are remembered for its supervisor."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that left an actor's handler, was escalated to it, or was reported from outside."""

    actor: str
    """The actor's name; "" where ``System.fail`` was called."""
    error: BaseException
    restarts: tuple[float, ...] = ()
    """How many seconds ago the actor was restarted, each time, oldest first: the latest ``RESTARTS_KEPT``."""
    child: Failure | None = None
    """The child's failure whose escalation this is; None = the actor's own."""


@fast_members
class Directive(Enum):
    """What to do about a failed actor, other than to restart it.

    A directive may stand for a supervisor: the one who always decides so.
    """

    STOP = "stop"
    """End this actor, with its children, and nobody else."""
    ESCALATE = "escalate"
    """Take it for a failure of the parent, whose supervisor decides; without a parent, stop all."""
    STOP_ALL = "stop all"
    """End every actor of the system (fail-stop)."""

    def decide(self, failure: Failure) -> Decision:
        """Decide what this directive says."""
        return self


@dataclass(frozen=True, slots=True)
class RestartIn:
    """The decision to put a fresh actor in the failed one's place, ``delay`` seconds after its end."""

    delay: float


Decision = Directive | RestartIn


class Supervisor(Protocol):
    """Decides. Called on the event loop for each failure that comes while the system runs."""

    def decide(self, failure: Failure) -> Decision:
        """Return what to do; to raise is to decide STOP_ALL."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Restart, each time after a delay twice as long; escalate where that does not help. No jitter is added.

    A restart is forgotten, for the delay and for the limit, once it lies ``window`` seconds back.
    """

    delay_first: float = 0.1
    """Seconds before the first restart."""
    delay_max: float = 30.0
    """Seconds that the delay stops growing at."""
    restarts_max: int = 5
    """How many restarts there may be within ``window`` seconds; the next failure gets ``otherwise``."""
    window: float = 60.0
    """In seconds."""
    otherwise: Directive = Directive.ESCALATE

    def __post_init__(self) -> None:
        assert 0 < self.delay_first <= self.delay_max, f"the delay would not grow: {self}"
        assert 0 <= self.restarts_max <= RESTARTS_KEPT, f"more restarts than are remembered, {RESTARTS_KEPT}: {self}"
        longest = sum(self._delay(count) for count in range(self.restarts_max))
        assert longest < self.window, f"the delays alone take {longest} s, so that the limit is never reached: {self}"

    def decide(self, failure: Failure) -> Decision:
        """Restart, or give up."""
        count = sum(age < self.window for age in failure.restarts)
        return RestartIn(self._delay(count)) if count < self.restarts_max else self.otherwise

    def _delay(self, count: int) -> float:
        return min(self.delay_first * 2.0**count, self.delay_max)
