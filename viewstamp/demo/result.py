"""The result of a demo, as JSON and as a table."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from viewstamp.demo.source import Source
from viewstamp.terminal.flags import DEFAULT_DIRECTORY, dir_flag, program

if TYPE_CHECKING:
    from rich.console import Console

    from viewstamp.demo.proof import Comparison

__all__ = ["DemoResult", "Kill", "next_commands", "print_facts"]


@dataclass(slots=True)
class Kill:
    """One kill: the nodes, the leader's term, the time of the kill, and that of the next acknowledged append."""

    nodes: list[str]
    term: int
    at: float
    next_at: float | None = None

    @property
    def milliseconds(self) -> float | None:
        """Milliseconds from the kill to the next acknowledged append; None = there was none."""
        return None if self.next_at is None else round((self.next_at - self.at) * 1000, 1)


@dataclass(slots=True)
class DemoResult:
    """The result of a run."""

    source: Source
    nodes: int
    acknowledged: int = 0
    seconds: float = 0.0
    kills: list[Kill] = field(default_factory=list)
    led: Counter[str] = field(default_factory=Counter)
    retried: int = 0
    syncs: float | None = None
    disk_bytes: int = 0
    filesystem: str = "unknown"
    readers: dict[str, Comparison] = field(default_factory=dict)

    @property
    def replicas_equal(self) -> bool:
        """Whether all readers returned the same (position, value) sequence."""
        return len({comparison.digest for comparison in self.readers.values()}) == 1

    @property
    def holds(self) -> bool:
        """The proof: two readers for each node return the input, and every line of it was acknowledged."""
        return (
            len(self.readers) == 2 * self.nodes
            and self.acknowledged == self.source.lines
            and all(comparison.is_equal for comparison in self.readers.values())
            and self.replicas_equal
        )

    def worst(self, name: str) -> int:
        """Return the largest count of one kind of difference among the readers."""
        return max((getattr(comparison, name) for comparison in self.readers.values()), default=0)

    def as_json(self) -> dict[str, object]:
        """Return the object that ``--output json`` prints."""
        failovers = [kill.milliseconds for kill in self.kills]
        return {
            "records": self.source.lines,
            "acknowledged": self.acknowledged,
            "lost": self.worst("lost"),
            "duplicated": self.worst("duplicated"),
            "out_of_order": self.worst("out_of_order"),
            "replicas_equal": self.replicas_equal,
            "records_per_second": round(self.acknowledged / self.seconds, 1),
            "failover_ms": failovers[0] if failovers else None,
            "failovers_ms": failovers,
            "nodes": self.nodes,
            "megabytes": round(self.source.bytes / 1e6, 3),
            "seconds": round(self.seconds, 3),
            "syncs_per_record": self.syncs,
            "batches_retried": self.retried,
            "led": dict(sorted(self.led.items())),
            "disk_bytes": self.disk_bytes,
            "filesystem": self.filesystem,
            "readers": {
                name: {"records": comparison.records, "equal": comparison.is_equal, "difference": comparison.difference}
                for name, comparison in self.readers.items()
            },
        }

    def print(self, path: str, *, keep: bool) -> None:
        """Print the table, the result of each reader, and commands to try next in ``path``."""
        console = print_facts("the proof holds" if self.holds else "THE PROOF FAILED", self._rows())
        for name, comparison in self.readers.items():
            verdict = "equal to the input, line for line" if comparison.is_equal else comparison.difference
            console.print(f"  {name:<22} {comparison.records:>9,} records   {verdict}", markup=False)
        console.print(self._next(path, keep=keep), markup=False, soft_wrap=True)

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "records", f"{self.source.lines:,}, {self.acknowledged:,} acknowledged"
        yield (
            "lost, duplicated, out of order",
            ", ".join(f"{self.worst(name):,}" for name in ("lost", "duplicated", "out_of_order")),
        )
        yield "MB", f"{self.source.bytes / 1e6:,.1f}"
        yield "seconds", f"{self.seconds:,.1f}"
        yield "records/s", f"{self.acknowledged / self.seconds:,.0f}"
        for kill in self.kills:
            failover = "no append was acknowledged" if kill.milliseconds is None else f"{kill.milliseconds:,.0f} ms"
            yield f"failover, {' and '.join(kill.nodes)} killed", failover
        yield "syncs per record", "unknown" if self.syncs is None else f"{self.syncs:.4f} on each node"
        yield "batches retried", f"{self.retried:,}"
        yield "led", ", ".join(f"{name} {times}x" for name, times in sorted(self.led.items()))
        yield "disk used", f"{self.disk_bytes / 1e6:,.1f} MB on {self.filesystem}, all nodes"

    def _next(self, path: str, *, keep: bool) -> str:
        if keep:
            commands = ["cluster start", f"read {self.source.topic} --to 3", "cluster kill n1", "status"]
            verify = f"wal verify {shlex.quote(os.path.join(path, 'n1'))}"
            return f"{next_commands(path, commands, keep=True)}\n  {program()} {verify}"
        return next_commands(path, ["cluster start", "topic create orders", "append orders", "read orders"], keep=False)


def print_facts(title: str, rows: Iterable[tuple[str, str]]) -> Console:
    """Print a table of names and values to stdout; return the console for further output."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(title=title, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in rows:
        table.add_row(name, value)
    console.print(table)
    return console


def next_commands(path: str, commands: Iterable[str], *, keep: bool) -> str:
    """Return ``commands`` as lines to copy: for the kept data in ``path``, or for a new cluster there."""
    head = "Try next, with the data that was kept:" if keep else "The data was deleted (--keep keeps it). Try next:"
    program_, where = program(), dir_flag(path, DEFAULT_DIRECTORY)
    lines = [f"  {'echo hello | ' * each.startswith('append')}{program_} {each}{where}" for each in commands]
    return "\n".join(["", head, *lines])
