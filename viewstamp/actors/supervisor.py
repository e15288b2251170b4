"""What a failed actor means for the others: the policy, kept apart from the machinery that carries it out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

__all__ = ["Directive", "Failure", "StopAll", "Supervisor"]


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that left an actor's handler, or that was reported from outside.

    ``actor`` is the actor's name, or "" where ``System.fail`` was called.
    """

    actor: str
    error: BaseException


class Directive(Enum):
    """What the system does about a failure."""

    STOP_ALL = "stop all"


class Supervisor(Protocol):
    """Decides. Called on the event loop for each failure that comes while the system runs."""

    def decide(self, failure: Failure) -> Directive:
        """Return what to do; never raises."""
        ...


class StopAll:
    """Half a node is worse than none: whatever fails, everything stops (fail-stop)."""

    def decide(self, failure: Failure) -> Directive:
        """Stop everything."""
        return Directive.STOP_ALL
