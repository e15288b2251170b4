"""Draws latencies by percentile, and figures over a parameter, into picture files; needs no screen."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from viewstamp.errors import ConfigError

if TYPE_CHECKING:
    from viewstamp.bench.load import Figures

__all__ = ["check_installed", "check_plot", "curve", "draw", "draw_lines"]

POINTS_A_NINE: Final = 50
MARKERS: Final = "osD^vPX*<>"
"""Shapes of the points, one for each name, so that a print without colours can be read."""


def check_installed(flag: str) -> None:
    """Raise ConfigError if matplotlib is not installed; ``flag`` is the option that requests the picture."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(f"{flag} needs matplotlib, not installed here", remedy="run `pip install 'viewstamp[plot]'`")


def check_plot(path: Path | None) -> None:
    """Check, before the measurement starts, that the picture can be drawn; None = no picture is requested.

    Raises:
      ConfigError: matplotlib is not installed, or the file cannot be written.
    """
    if path is None:
        return
    check_installed("--plot")
    if path.is_dir() or not os.access(path.absolute().parent, os.W_OK):
        raise ConfigError(f"--plot {path} cannot be written", remedy="name a file in a folder that this user may write")


def curve(figures: Figures) -> tuple[list[float], list[float]]:
    """Return the points of a curve: shares of the calls in nines, and the milliseconds that each share did not exceed.

    For example 0 nines are none of the calls, 1 nine is 90 % and 2 nines are 99 %. The last point is the longest call.
    """
    count = figures.count
    nines = [step / POINTS_A_NINE for step in range(int(math.log10(count) * POINTS_A_NINE) + 1)] if count else []
    return nines, [figures.latencies.at(100 * (1 - 10**-nine)) for nine in nines]


def draw(path: Path | None, title: str, measured: Mapping[str, Figures]) -> None:
    """Write a PNG with a curve for each of ``measured``; does nothing if ``path`` is None.

    Raises:
      OSError: the file cannot be written.
    """
    if path is None:
        return
    from matplotlib.figure import Figure  # Not pyplot, because it needs a screen and keeps all figures.

    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    longest = 1.0
    for name, figures in measured.items():
        nines, milliseconds = curve(figures)
        longest = max([longest, *nines])
        axes.plot(nines, milliseconds, label=f"{name}: {figures.per_second:,.0f}/s")
    ticks = range(math.ceil(longest) + 1)
    axes.set_xticks(list(ticks), [f"{100 - 100 * 10.0**-tick:.{max(0, tick - 2)}f} %" for tick in ticks])
    axes.set_xlabel("percentile of the calls")
    axes.set_ylabel("ms")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.set_title(title, loc="left")
    axes.legend(loc="upper left")
    figure.savefig(path, format="png")


def draw_lines(path: Path, panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], *, x: str) -> None:
    """Draw panels beside each other, by title, with a line of (x, y) points for each name; both axes logarithmic.

    A name has the same colour and shape in all panels.

    Args:
      path: the file to write; its suffix is its format, ``.png`` or ``.svg``.
      panels: lines without a point are left out.
      x: label of the axis below.

    Raises:
      OSError: the file cannot be written.
    """
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "viewstamp"  # So that the same figures make the same file.
    figure = Figure(figsize=(4.2 * len(panels), 4), dpi=110, layout="constrained")
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    drawn: dict[str, Any] = {}
    for number, (title, lines) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(1, len(panels), number)
        for name, points in lines.items():
            if points:
                place = names.index(name)
                style: dict[str, Any] = {
                    "marker": MARKERS[place % len(MARKERS)],
                    "color": f"C{place % 10}",
                    "markersize": 4,
                }
                drawn[name] = axes.plot(*zip(*points, strict=True), **style)[0]
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_minor_formatter("")
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel(x)
        axes.grid(alpha=0.3, which="both")
    figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=min(len(drawn), 8), fontsize=8)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
