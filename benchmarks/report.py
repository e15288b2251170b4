"""Prints the results of a benchmark as tables or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

__all__ = ["print_json", "print_table"]

_WIDTH = 120


def print_json(result: object) -> None:
    """Print a result as JSON."""
    print(json.dumps(result, indent=2))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; numbers get thousands separators."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*map(_shown, row))
    # A file or a pipe has no width, so the tables are as wide as they need.
    Console(width=None if sys.stdout.isatty() else _WIDTH).print(table)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}"
    return f"{value:,}" if type(value) is int else str(value)
