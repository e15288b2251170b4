"""Prints the results of the benchmark commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from viewstamp.terminal.output import Output, print_json, print_table, say

if TYPE_CHECKING:
    from viewstamp.bench.load import Figures

__all__ = ["latencies", "print_result"]

PERCENTS: Final = {"p50_ms": 50, "p95_ms": 95, "p99_ms": 99, "p999_ms": 99.9, "max_ms": 100}
BUSY_CORES: Final = 0.9
"""Share of a processor above which the callers limit the figure, because their event loop is one thread."""


def latencies(figures: Figures) -> dict[str, float | None]:
    """Return the processors that the callers used, and the percentiles of their latencies in ms."""
    times = {name: figures.percentile_ms(percent) for name, percent in PERCENTS.items()}
    return {"client_cores": round(figures.client_cores, 2), **times}


def print_result(result: Mapping[str, Any], output: Output, *, is_apart: bool = True) -> None:
    """Print a result. In a table, each nested result has a block of its own.

    A warning follows if the callers limit the figure. ``is_apart`` is whether the callers run in another process than
    the nodes; if not, their processor time includes that of a node, and there is no such warning.
    """
    if output is Output.JSON:
        print_json(result)
    else:
        print_table(["", ""], _rows(result))
    for name, part in {"": result, **_parts(result)}.items():
        if (part.get("client_cores") or 0) > BUSY_CORES and is_apart:
            of = f" of {name.replace('_', ' ')}" if name else ""
            say(f"the callers{of} used {part['client_cores']} cores and limit the figure: the cluster can do more")
    if result.get("filesystem") in ("tmpfs", "ramfs"):
        say(f"WARNING: the data was on {result['filesystem']}: MEMORY, NOT A DISK. Measure in a directory on a disk.")


def _parts(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {name: value for name, value in result.items() if isinstance(value, Mapping)}


def _rows(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [(name.replace("_", " "), str(value)) for name, value in result.items() if not isinstance(value, Mapping)]
    for name, part in _parts(result).items():
        rows += [("", ""), (name.replace("_", " ").upper(), ""), *_rows(part)]
    return rows
