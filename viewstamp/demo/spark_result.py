"""The result of the Spark demo, as JSON and as tables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from viewstamp.demo.result import next_commands, print_facts

if TYPE_CHECKING:
    from viewstamp.demo.proof import Proof
    from viewstamp.demo.spark_delays import Delays

__all__ = ["SparkDemoResult"]


@dataclass(slots=True)
class SparkDemoResult:
    """The result of a run; ``delays`` and ``proof`` are None until they are computed."""

    nodes: int
    rows: int = 0
    """Lines of the input."""
    digest: str = ""
    proof: Proof | None = None
    looks: int = 0
    partial: int = 0
    staged: int = 0
    """Attempts that were still staged or sealed after the last file was written."""
    driver_kills: list[str] = field(default_factory=list)
    """For each kill, the state that it hit, in words."""
    leader_kills: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """From the first command to the first driver until all was written, including kills and restarts."""
    starting_seconds: float = 0.0
    """The part of ``seconds`` in which a killed Spark was started again."""
    delays: Delays | None = None
    plot: str = ""

    @property
    def read_back(self) -> int:
        """Number of flights that Spark's own source counted."""
        return 0 if self.delays is None else self.delays.flights

    @property
    def holds(self) -> bool:
        """The proof: every line once and no other, no part of a micro-batch seen, Spark and a leader killed."""
        return (
            self.proof is not None
            and self.proof.holds
            and self.proof.digest == self.digest
            and self.proof.rows == self.read_back == self.rows
            and self.partial == 0
            and bool(self.driver_kills and self.leader_kills)
        )

    def as_json(self) -> dict[str, object]:
        """Return the object that ``--output json`` prints."""
        assert self.proof is not None
        return {
            "rows": self.proof.rows,
            "lost": self.proof.lost,
            "duplicated": self.proof.duplicated,
            "partial_batches_seen": self.partial,
            "driver_kills": len(self.driver_kills),
            "leader_kills": len(self.leader_kills),
            "rows_per_second": round(self.rows / self.seconds, 1),
            "seconds": round(self.seconds, 3),
            "plot": self.plot,
        }

    def print(self, path: str, *, keep: bool) -> None:
        """Print the proof, the delays, and commands to try next in ``path``."""
        console = print_facts("every flight once" if self.holds else "THE PROOF FAILED", self._rows())
        if self.delays is not None:
            console.print(self.delays.table())
        plot = os.path.relpath(self.plot)
        shown = self.plot if plot.startswith(os.pardir) else plot
        console.print(f"the same as a picture: {shown}", markup=False, soft_wrap=True)
        console.print(self._next(path, keep=keep), markup=False, soft_wrap=True)

    def _rows(self) -> Iterator[tuple[str, str]]:
        assert self.proof is not None
        proof = self.proof
        yield "rows", f"{proof.rows:,} of {self.rows:,}, {proof.distinct:,} of them different"
        yield "lost, doubled, invented", f"{proof.lost:,}, {proof.duplicated:,}, {proof.invented:,}"
        yield "digest", f"{proof.digest}, {'as' if proof.digest == self.digest else 'not'} the input's"
        yield "partial batches seen", f"{self.partial:,} in {self.looks:,} looks at {self.nodes} nodes"
        yield "left behind, staged", f"{self.staged:,}"
        for hit in self.driver_kills or ["no"]:
            yield "Spark killed", hit
        for hit in self.leader_kills or ["no"]:
            yield "leader killed", hit
        yield "read back by Spark", f"{self.read_back:,}"
        yield "seconds", f"{self.seconds:,.1f}, of them {self.starting_seconds:,.1f} to start Spark again"
        yield "rows/s", f"{self.rows / self.seconds:,.0f}"

    def _next(self, path: str, *, keep: bool) -> str:
        if keep:
            return next_commands(path, ["cluster start", "read flights --to 3"], keep=True)
        commands = next_commands(path, ["cluster start", "topic create flights"], keep=False)
        return f"{commands}\nand a job of your own: docs/spark.md"
