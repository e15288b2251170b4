"""A row of the table: a kind of work, its contenders, the goals, and the results."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["CLIENT_LIMIT_CORES", "Goal", "Options", "Ratio", "Row", "RowResult", "Subject", "as_json"]

CLIENT_LIMIT_CORES = 0.9
"""Share of its core above which the client, and not the servers, limits the figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A bound for the figure of a subject: a multiple of the figure of a peer, or without a peer in the subject's unit.

    Exactly one of ``at_least`` and ``at_most`` is given.
    """

    subject: str
    peer: str = ""
    at_least: float | None = None
    at_most: float | None = None

    def __post_init__(self) -> None:
        assert (self.at_least is None) != (self.at_most is None), "a goal is a bound on one side"

    @property
    def bound(self) -> float:
        """The number of the goal, a lower or an upper limit."""
        found = self.at_least if self.at_least is not None else self.at_most
        assert found is not None
        return found

    def is_reached(self, found: float) -> bool:
        """Return whether ``found`` reaches the goal; the bound itself does."""
        return found >= self.bound if self.at_least is not None else found <= self.bound


@dataclass(slots=True, kw_only=True)
class Subject:
    """The figures of one contender."""

    name: str
    """The name that goals use, for example "viewstamp, 8 sessions" or "NATS JetStream"."""
    turns: list[float]
    """The figure of each turn, in ``unit``, or in the row's unit if that is empty. The result is their median."""
    unit: str = ""
    p50_ms: float | None = None
    p99_ms: float | None = None
    client_cores: float | None = None
    """Processor seconds of the callers' process for each second; None = there is no such process."""
    cpu_us: float | None = None
    """Microseconds of processor for each record, in callers and servers together. Varies less than the rate."""
    durability: str = ""
    """The settings that were in force before an answer, as the servers report them."""
    client: str = ""
    """Description of the client."""
    note: str = ""

    @property
    def value(self) -> float:
        """The median of the turns."""
        return median(self.turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A goal and its figure ``found``; None = not measured, because the subject or its peer was left out."""

    goal: Goal
    found: float | None
    turns: tuple[float, ...] = ()
    """The figure of each turn; their spread shows how reliable ``found`` is."""

    @property
    def is_reached(self) -> bool | None:
        """Whether the goal is reached; None = not measured."""
        return None if self.found is None else self.goal.is_reached(self.found)


@dataclass(slots=True, kw_only=True)
class RowResult:
    """The result of a row, with our subjects first."""

    subjects: list[Subject]
    left_out: list[str] = field(default_factory=list)
    """A line for each peer that cannot run here, with the reason."""
    failed: list[str] = field(default_factory=list)
    """A line for each subject whose measurement failed."""
    notes: list[str] = field(default_factory=list)

    def subject(self, name: str) -> Subject | None:
        """Return the subject of this name; None = it was not measured."""
        return next((each for each in self.subjects if each.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of a run."""

    seconds: float
    """Length of each turn."""
    rounds: int
    """Turns of each subject."""
    minutes: float | None = None
    """Length of the load in the row about memory; None = its short form."""
    say: Callable[[str], None] = field(default=lambda text: print(text, file=sys.stderr, flush=True))
    """Prints one line about the progress."""


Measure = Callable[[Options, Path], Awaitable[RowResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of work.

    ``measure`` is given a directory of its own on a real disk, which is removed later. It ends every process that it
    starts before it returns or raises.
    """

    name: str
    """Short, with hyphens: ``--rows append-64``."""
    title: str
    """The work in words: "64 callers, 256 B"."""
    unit: str
    """Unit of the subjects' figures: "/s", "MB/s", "ms", "s", "MB"."""
    goals: Sequence[Goal]
    measure: Measure
    compares: str
    """One sentence for readers of the table: the figure, and the conditions that are equal for all contenders."""
    seconds: float = 2.0
    rounds: int = 3

    def compare(self, result: RowResult) -> list[Ratio]:
        """Return each goal with its figure: the median of the turns' ratios, or of the figures if it has no peer.

        Turns without a partner are left out. If a peer was measured fewer times, the first turns are the pairs.
        """
        return [_ratio(goal, result) for goal in self.goals]


def _ratio(goal: Goal, result: RowResult) -> Ratio:
    ours, peer = result.subject(goal.subject), result.subject(goal.peer)
    if ours is None or (goal.peer and peer is None):
        return Ratio(goal=goal, found=None)
    turns = tuple(ours.turns)
    if peer is not None:
        turns = tuple(mine / its for mine, its in zip(ours.turns, peer.turns, strict=False) if its)
    return Ratio(goal=goal, found=median(turns) if turns else None, turns=turns)


def as_json(row: Row, result: RowResult) -> dict[str, Any]:
    """Return the record of a row for JSON and for ``results.py``."""
    return {
        "row": row.name,
        "title": row.title,
        "unit": row.unit,
        "compares": row.compares,
        "subjects": [{**asdict(each), "value": each.value} for each in result.subjects],
        "ratios": [
            {
                "name": f"{each.goal.subject} / {each.goal.peer}" if each.goal.peer else each.goal.subject,
                **{name: value for name, value in asdict(each.goal).items() if value is not None},
                "found": each.found,
                "turns": list(each.turns),
                "reached": each.is_reached,
            }
            for each in row.compare(result)
        ],
        "left_out": result.left_out,
        "failed": result.failed,
        "notes": result.notes,
    }
