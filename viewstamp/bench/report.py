"""Output that the benchmark commands share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from viewstamp.terminal.output import Output, print_json, print_table, say

if TYPE_CHECKING:
    from viewstamp.bench.load import Figures

__all__ = ["latencies", "print_result"]

PERCENTS: Final = {"p50_ms": 50, "p95_ms": 95, "p99_ms": 99, "p999_ms": 99.9, "max_ms": 100}
BUSY_CORES: Final = 0.9
"""From this share of a processor on, the event loop of the callers limits them."""


def latencies(figures: Figures) -> dict[str, float | None]:
    """Return the processor use of the callers, and the percentiles of their latencies."""
    times = {name: figures.percentile_ms(percent) for name, percent in PERCENTS.items()}
    return {"client_cores": round(figures.client_cores, 2), **times}


def print_result(result: Mapping[str, Any], output: Output, *, is_apart: bool = True) -> None:
    """Print a result; the parts that are themselves results have a block each in the table.

    Print a warning where the callers limit the figure. ``is_apart``: they are in another process than the nodes.
    """
    if output is Output.JSON:
        print_json(result)
    else:
        print_table(["", ""], _rows(result))
    for name, part in {"": result, **_parts(result)}.items():
        if (part.get("client_cores") or 0) > BUSY_CORES and is_apart:
            of = f" of {name.replace('_', ' ')}" if name else ""
            say(f"the callers{of} used {part['client_cores']} cores: with faster callers the cluster would do more")
    if result.get("filesystem") in ("tmpfs", "ramfs"):
        say(
            f"WARNING: the data was on {result['filesystem']}: MEMORY, NOT A DISK. These are not the figures of a disk."
        )


def _parts(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {name: value for name, value in result.items() if isinstance(value, Mapping)}


def _rows(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [(name.replace("_", " "), str(value)) for name, value in result.items() if not isinstance(value, Mapping)]
    for name, part in _parts(result).items():
        rows += [("", ""), (name.replace("_", " ").upper(), ""), *_rows(part)]
    return rows
