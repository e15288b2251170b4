"""Who belongs to a cluster, as its newest committed membership says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Members", "members_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The members of a cluster: node to the address where it listens.

    ``outgoing`` are the voters of before while a change is half-way: then both sets need a majority; {} otherwise.
    ``joining`` are the learners that become voters by themselves when they have caught up, each with the voter whose
    place it takes ("" = beside the others). ``generation`` counts the changes.
    """

    voters: Mapping[str, str]
    learners: Mapping[str, str] = field(default_factory=dict)
    outgoing: Mapping[str, str] = field(default_factory=dict)
    joining: Mapping[str, str] = field(default_factory=dict)
    generation: int = 0

    @property
    def addresses(self) -> dict[str, str]:
        """Every member's address."""
        return {**self.outgoing, **self.voters, **self.learners}

    @property
    def is_changing(self) -> bool:
        """Whether a change is not over yet: half-way, or with learners that are going to be voters."""
        return bool(self.outgoing or self.joining)


def members_of(told: Mapping[str, Any]) -> Members:
    """Read what a node says of the membership."""
    sets = {name: dict(told.get(name) or {}) for name in ("voters", "learners", "outgoing", "joining")}
    return Members(generation=int(told["generation"]), **sets)
