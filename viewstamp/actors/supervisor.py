"""The policy for failed actors: the decision only. ``cell`` and ``system`` carry it out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from viewstamp.enums import fast_members

__all__ = ["RESTARTS_KEPT", "Decision", "Directive", "Failure", "Restart", "RestartIn", "Supervisor"]

RESTARTS_KEPT = 100
"""The number of an actor's latest restarts that its supervisor can see."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that left an actor's handler, was escalated to it, or was reported from outside."""

    actor: str
    """The actor's name; "" = reported by ``System.fail``."""
    error: BaseException
    restarts: tuple[float, ...] = ()
    """The age of each restart of the actor in seconds, oldest first: the latest ``RESTARTS_KEPT``."""
    child: Failure | None = None
    """The child's failure that was escalated; None = the actor's own failure."""


@fast_members
class Directive(Enum):
    """A decision about a failed actor other than a restart.

    A directive can be used as a supervisor that always decides so.
    """

    STOP = "stop"
    """End this actor and its children only."""
    ESCALATE = "escalate"
    """Treat it as a failure of the parent: the parent's supervisor decides. Without a parent, stop all."""
    STOP_ALL = "stop all"
    """End every actor of the system (fail-stop)."""

    def decide(self, failure: Failure) -> Decision:
        """Return this directive."""
        return self


@dataclass(frozen=True, slots=True)
class RestartIn:
    """The decision to replace the failed actor by a new one, ``delay`` seconds after its end."""

    delay: float


Decision = Directive | RestartIn


class Supervisor(Protocol):
    """Decides about failures. Called on the event loop for each failure while the system runs."""

    def decide(self, failure: Failure) -> Decision:
        """Return the decision. Raising an error has the effect of STOP_ALL."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Restart, with twice the delay each time; escalate if that does not help. No jitter is added.

    Example::

        system.spawn(Link, name="link", supervisor=Restart(delay_first=0.1, restarts_max=5, window=60.0))

    Restarts older than ``window`` seconds count neither for the delay nor for the limit.
    """

    delay_first: float = 0.1
    """Seconds before the first restart."""
    delay_max: float = 30.0
    """The upper limit of the delay, in seconds."""
    restarts_max: int = 5
    """The most restarts within ``window`` seconds; the next failure gets ``otherwise``."""
    window: float = 60.0
    """The period in which restarts are counted, in seconds."""
    otherwise: Directive = Directive.ESCALATE
    """The decision when restarting has not helped."""

    def __post_init__(self) -> None:
        assert 0 < self.delay_first <= self.delay_max, f"delay_first must be above 0 and at most delay_max: {self}"
        assert 0 <= self.restarts_max <= RESTARTS_KEPT, f"restarts_max must be 0 to {RESTARTS_KEPT}: {self}"
        longest = sum(self._delay(count) for count in range(self.restarts_max))
        assert longest < self.window, f"the delays alone take {longest} s, so the limit would never be reached: {self}"

    def decide(self, failure: Failure) -> Decision:
        """Restart after a delay, or give up after ``restarts_max`` restarts."""
        count = sum(age < self.window for age in failure.restarts)
        return RestartIn(self._delay(count)) if count < self.restarts_max else self.otherwise

    def _delay(self, count: int) -> float:
        return min(self.delay_first * 2.0**count, self.delay_max)
