"""Prints results to stdout, as a table or as JSON, and messages to stderr."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TextIO

__all__ = ["Output", "fitted", "print_json", "print_table", "say"]


class Output(StrEnum):
    """The format of a printed result: for people, or for programs."""

    TABLE = "table"
    JSON = "json"


def print_json(value: object) -> None:
    """Print one JSON object on one line of stdout."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str = "") -> None:
    """Print aligned columns, numbers to the right, as plain text. Without rows, print ``empty`` to stderr.

    On a terminal that is too narrow, the columns that do not fit follow in further tables, each of which begins with
    the first column again. In a pipe there is always one table, because other programs cut it.
    """
    texts = [list(columns), *([_text(cell) for cell in row] for row in rows)]
    if len(texts) == 1 and empty:
        say(empty)
        return
    widths = [max(len(row[at]) for row in texts) for at in range(len(columns))]
    numeric = [len(texts) > 1 and all(_is_number(row[at]) for row in texts[1:]) for at in range(len(columns))]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for number, part in enumerate(_parts(widths, room)):
        if number:
            print()
        for row in texts:
            cells = [row[at].rjust(widths[at]) if numeric[at] else row[at].ljust(widths[at]) for at in part]
            print("  ".join(cells).rstrip())


def _parts(widths: Sequence[int], room: int | None) -> list[list[int]]:
    """Return the columns of each table, so that every table fits into ``room`` characters; None = one table."""
    parts: list[list[int]] = [[0]]
    for at in range(1, len(widths)):
        taken = sum(widths[each] + 2 for each in parts[-1])
        if room is not None and len(parts[-1]) > 1 and taken + widths[at] > room:
            parts.append([0])
        parts[-1].append(at)
    return parts


def fitted(text: str, stream: TextIO, *, indent: str = "") -> str:
    """Return ``text`` wrapped to the width of the terminal; unchanged if ``stream`` is not a terminal.

    Lines after the first begin with ``indent``. A command in backticks is not split, so that it can be copied.
    """
    if not stream.isatty():
        return text
    margin = " " * (len(text) - len(text.lstrip()))
    solid = re.sub(r"`[^`]*`", lambda found: found[0].replace(" ", "\0"), text.strip())
    width = shutil.get_terminal_size().columns
    wrapped = textwrap.fill(
        solid, width, initial_indent=margin, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
    return wrapped.replace("\0", " ")


def say(message: str) -> None:
    """Print a message that is not the result: to stderr, where a terminal gets it wrapped to its width."""
    if sys.stderr is not None:
        message = "\n".join(fitted(line, sys.stderr) for line in message.split("\n"))
    print(message, file=sys.stderr, flush=True)


def _text(cell: object) -> str:
    return "-" if cell is None else f"{cell:,}" if type(cell) is int else str(cell)


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "", 1).isdecimal() or text == "-"
