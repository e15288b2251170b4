"""The result of the archive demo, as JSON and as a table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from viewstamp.demo.archive_sizes import Sizes, text_plot
from viewstamp.demo.result import DemoResult, next_commands, print_facts

__all__ = ["ArchiveDemoResult"]


@dataclass(slots=True, kw_only=True)
class ArchiveDemoResult(DemoResult):
    """The result of a run."""

    sizes: Sizes
    archived: int = 0
    """The records in committed runs."""
    runs: int = 0
    damaged_runs: int = 0
    """Runs that are not committed, or whose file differs from the catalogue."""
    orphans: int = 0
    """Files that belong to no run, after they were removed."""
    killed_while_writing: str = ""
    """The file that the leader wrote when it was killed; "" = none."""
    first_indices: dict[str, int] = field(default_factory=dict)
    """By node, the first index in its log at the end."""
    last_index: int = 0
    plot: str = ""

    @property
    def is_dropped(self) -> bool:
        """Whether every node has deleted the first half of the records from its log."""
        return len(self.first_indices) == self.nodes and min(self.first_indices.values()) > self.last_index // 2

    @property
    def holds(self) -> bool:
        """The proof: each node returns the input, all of it is archived, and the logs have deleted it."""
        return (
            len(self.readers) == self.nodes
            and self.acknowledged == self.archived == self.source.lines
            and all(comparison.is_equal for comparison in self.readers.values())
            and self.replicas_equal
            and self.is_dropped
            and not self.damaged_runs
            and not self.orphans
            and bool(self.kills)
        )

    def as_json(self) -> dict[str, object]:
        """Return the object that ``--output json`` prints."""
        base = DemoResult.as_json(self)
        return {
            **base,
            "archived": self.archived,
            "runs": self.runs,
            "damaged_runs": self.damaged_runs,
            "orphans": self.orphans,
            "killed_while_writing": self.killed_while_writing,
            "first_indices": self.first_indices,
            "log_bytes_peak": self.sizes.log_peak,
            "log_bytes": self.sizes.log_end,
            "archive_bytes": self.sizes.archive_end,
            "plot": self.plot,
        }

    def print(self, path: str, *, keep: bool) -> None:
        """Print the table, the sizes over time, and commands to try next in ``path``."""
        console = print_facts("the proof holds" if self.holds else "THE PROOF FAILED", self._rows())
        for name, comparison in self.readers.items():
            verdict = "equal to the input, line for line" if comparison.is_equal else comparison.difference
            console.print(f"  {name:<22} {comparison.records:>9,} records   {verdict}", markup=False)
        console.print(text_plot(self.sizes), markup=False, soft_wrap=True)
        if self.plot:
            shown = os.path.relpath(self.plot)
            console.print(
                f"the same as a picture: {self.plot if shown.startswith(os.pardir) else shown}",
                markup=False,
                soft_wrap=True,
            )
        commands = ["cluster start", "archive log", f"read {self.source.topic} --to 3"]
        console.print(next_commands(path, commands if keep else commands[:1], keep=keep), markup=False, soft_wrap=True)

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "records", f"{self.source.lines:,}, {self.acknowledged:,} acknowledged, {self.archived:,} archived"
        yield (
            "lost, duplicated, out of order",
            ", ".join(f"{self.worst(name):,}" for name in ("lost", "duplicated", "out_of_order")),
        )
        yield "digest of each node's records", f"{'equal' if self.replicas_equal else 'NOT EQUAL'}"
        yield "MB appended", f"{self.source.bytes / 1e6:,.1f}"
        yield "log of a node, peak and end, MB", f"{self.sizes.log_peak / 1e6:,.1f}, {self.sizes.log_end / 1e6:,.1f}"
        yield "archive, MB", f"{self.sizes.archive_end / 1e6:,.1f} in {self.runs} files, {self.damaged_runs} damaged"
        yield "files that belong to no run", f"{self.orphans}"
        for kill in self.kills:
            failover = "no append was acknowledged" if kill.milliseconds is None else f"{kill.milliseconds:,.0f} ms"
            writing = f", while it wrote {self.killed_while_writing}" if self.killed_while_writing else ""
            yield f"failover, {' and '.join(kill.nodes)} killed", f"{failover}{writing}"
        yield "seconds of appends", f"{self.seconds:,.1f}, {self.acknowledged / max(self.seconds, 1e-9):,.0f} records/s"
