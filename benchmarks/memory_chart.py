"""Draws the memory of each node over time into docs/memory.svg, as stacked areas."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CHART", "Look", "draw"]

CHART = Path(__file__).parents[1] / "docs" / "memory.svg"
_POINTS_MAX = 200
"""Points that are drawn at most, because the picture must stay small after a long measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The memory of the nodes at one time."""

    seconds: float
    """Seconds since the beginning."""
    megabytes: Sequence[float]
    """PSS of each node, in MB of 1,000,000 bytes."""


def draw(looks: Sequence[Look], per_second: float, callers: int, path: Path) -> None:
    """Write the picture, an SVG of some ten kilobytes.

    Raises:
      OSError: the file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure  # Not pyplot, because it needs a screen and keeps all figures.

    shown = looks[:: -(-len(looks) // _POINTS_MAX)]
    minutes = [look.seconds / 60 for look in shown]
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "viewstamp", "font.family": "sans-serif"}):
        figure = Figure(figsize=(8, 3), layout="constrained")
        axes = figure.add_subplot()
        nodes = list(zip(*(look.megabytes for look in shown), strict=True))
        axes.stackplot(minutes, *nodes, labels=[f"node {number}" for number in range(1, len(nodes) + 1)], alpha=0.6)
        axes.axhline(180, color="black", linewidth=0.8, linestyle="--", label="goal")
        axes.set_xlim(minutes[0], minutes[-1])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("minutes")
        axes.set_ylabel("MB (PSS)")
        axes.set_title(f"{callers} callers, {per_second:,.0f} records a second", loc="left", fontsize=9)
        axes.legend(fontsize=7, frameon=False, loc="lower left", ncols=4)
        picture = io.StringIO()
        figure.savefig(picture, format="svg", metadata={"Date": None})
    path.write_text(picture.getvalue(), encoding="utf-8")
