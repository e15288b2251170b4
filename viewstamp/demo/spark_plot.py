"""Draws the delays by carrier and month as a picture, without a screen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from viewstamp.demo.spark_delays import Delays

__all__ = ["draw"]

WHITE_FROM: Final = 34
"""Minutes from which the colour is so dark that only white can be read on it."""


def draw(path: str, delays: Delays, airlines: Mapping[str, str]) -> None:
    """Write a PNG: a row for each carrier, the one that is late the most on top, and a column for each month.

    ``airlines`` gives carriers their names.

    Raises:
      OSError: the file cannot be written.
    """
    from matplotlib.figure import Figure  # Not pyplot: that looks for a screen, and keeps what it has drawn.

    months, carriers = [*delays.months, None], [*delays.carriers, None]
    cells = [[delays.mean(carrier, month) for month in months] for carrier in carriers]
    labels = [f"{airlines.get(carrier, carrier)}  {carrier}" if carrier else "all carriers" for carrier in carriers]
    figure = Figure(figsize=(11, 7), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    # Small carriers have months far beyond the others': those share the darkest colour, and the numbers stand there.
    image = axes.imshow(
        [[math.nan if cell is None else cell for cell in row] for row in cells],
        cmap="YlOrRd",
        vmin=-5,
        vmax=45,
        aspect="auto",
    )
    for row, values in enumerate(cells):
        for column, value in enumerate(values):
            if value is not None:
                color = "white" if value > WHITE_FROM else "black"
                weight = "bold" if None in (months[column], carriers[row]) else "normal"
                axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=color, weight=weight, fontsize=9)
    axes.set_xticks(range(len(months)), [f"{month:%b}" if month else "year" for month in months])
    axes.set_yticks(range(len(labels)), labels)
    axes.axvline(len(months) - 1.5, color="white", linewidth=4)
    axes.axhline(len(carriers) - 1.5, color="white", linewidth=4)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(
        f"Mean departure delay from New York City by carrier and month, {delays.months[0]:%Y}\n",
        loc="left",
        fontsize=14,
        weight="bold",
    )
    axes.text(
        0,
        1.015,
        f"minutes, negative is early, blank: none departed; {delays.departed:,} of {delays.flights:,} flights departed",
        transform=axes.transAxes,
        color="#555555",
    )
    bar = figure.colorbar(image, ax=axes, shrink=0.6, extend="max", pad=0.02)
    bar.set_label("mean departure delay, minutes")
    bar.outline.set_visible(False)
    figure.savefig(path, format="png")
