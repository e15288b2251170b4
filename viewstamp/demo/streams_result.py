"""The result of a demo with streams, as JSON and as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from viewstamp.demo.result import next_commands, print_facts
from viewstamp.demo.source import Source

if TYPE_CHECKING:
    from viewstamp.demo.proof import Comparison

__all__ = ["StreamsKill", "StreamsResult"]


@dataclass(slots=True)
class StreamsKill:
    """The kill of a run.

    Attributes:
      nodes: the killed nodes.
      terms: the newest term of each stream whose leader was killed.
      at: the time of the kill.
      resumed: the time of the first append that such a stream acknowledged in a later term.
    """

    nodes: list[str]
    terms: dict[int, int]
    at: float
    resumed: dict[int, float] = field(default_factory=dict)

    @property
    def milliseconds(self) -> float | None:
        """Milliseconds until all these streams acknowledged again; None = one never did, or none had a leader there."""
        if not self.terms or self.resumed.keys() != self.terms.keys():
            return None
        return round((max(self.resumed.values()) - self.at) * 1000, 1)


@dataclass(slots=True)
class StreamsResult:
    """The result of a run. ``ordered``: the records that have a position in the topic."""

    source: Source
    nodes: int
    streams: int
    leaders: dict[int, str] = field(default_factory=dict)
    """The leader of each stream at the beginning."""
    acknowledged: int = 0
    ordered: int = 0
    seconds: float = 0.0
    kill: StreamsKill | None = None
    readers: dict[str, Comparison] = field(default_factory=dict)

    @property
    def is_one_order(self) -> bool:
        """Whether all readers returned the same records at the same positions."""
        return len({comparison.digest for comparison in self.readers.values()}) == 1

    @property
    def holds(self) -> bool:
        """The proof: a reader of each node returns each line of the input once, and all return the same order."""
        return (
            len(self.readers) == self.nodes
            and self.acknowledged == self.ordered == self.source.lines
            and all(each.is_equal and each.records == self.source.lines for each in self.readers.values())
            and self.is_one_order
        )

    def worst(self, name: str) -> int:
        """Return the largest count of one kind of difference among the readers."""
        return max((getattr(comparison, name) for comparison in self.readers.values()), default=0)

    def as_json(self) -> dict[str, object]:
        """Return the object that ``--output json`` prints."""
        return {
            "records": self.source.lines,
            "acknowledged": self.acknowledged,
            "ordered": self.ordered,
            "lost": self.worst("lost"),
            "duplicated": self.worst("duplicated"),
            "out_of_order": self.worst("out_of_order"),
            "one_order": self.is_one_order,
            "records_per_second": round(self.acknowledged / max(self.seconds, 1e-6), 1),
            "failover_ms": self.kill.milliseconds if self.kill is not None else None,
            "killed": self.kill.nodes if self.kill is not None else [],
            "nodes": self.nodes,
            "streams": self.streams,
            "leaders": {str(stream): leader for stream, leader in self.leaders.items()},
            "megabytes": round(self.source.bytes / 1e6, 3),
            "seconds": round(self.seconds, 3),
            "readers": {
                name: {"records": each.records, "equal": each.is_equal, "difference": each.difference}
                for name, each in self.readers.items()
            },
        }

    def print(self, path: str, *, keep: bool) -> None:
        """Print the table, the result of each reader, and commands to try next in ``path``."""
        console = print_facts("the proof holds" if self.holds else "THE PROOF FAILED", self._rows())
        for name, each in self.readers.items():
            verdict = "each line once, in the one order" if each.is_equal else each.difference
            console.print(f"  read --node {name:<10} {each.records:>9,} records   {verdict}", markup=False)
        kept = ["cluster start", f"topic describe {self.source.topic}", f"read {self.source.topic} --to 3"]
        new = ["cluster start", "group place east", "topic create orders --streams 2", "append orders", "read orders"]
        text = next_commands(path, kept if keep else new, keep=keep)
        console.print(text, markup=False, soft_wrap=True)

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "records", f"{self.source.lines:,}, {self.acknowledged:,} acknowledged, {self.ordered:,} ordered"
        yield (
            "lost, duplicated, out of order",
            ", ".join(f"{self.worst(name):,}" for name in ("lost", "duplicated", "out_of_order")),
        )
        order = "the same on" if self.is_one_order else "DIFFERENT on"
        yield "order of the records", f"{order} {', '.join(self.readers)}"
        yield "streams", ", ".join(f"{stream} on {leader}" for stream, leader in self.leaders.items())
        yield "MB", f"{self.source.bytes / 1e6:,.1f}"
        yield "seconds", f"{self.seconds:,.1f}"
        yield "records/s", f"{self.acknowledged / max(self.seconds, 1e-6):,.0f}"
        if self.kill is not None:
            failover = (
                "not every stream went on" if self.kill.milliseconds is None else f"{self.kill.milliseconds:,.0f} ms"
            )
            yield f"failover, {' and '.join(self.kill.nodes)} killed", failover
