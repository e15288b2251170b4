"""The options that several commands have in common, and the shape of what they print."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from viewstamp.wire.commands import Stale

__all__ = [
    "ClusterOption",
    "DirOption",
    "LocalDirOption",
    "MaxStalenessOption",
    "Output",
    "OutputOption",
    "TimeoutOption",
    "cluster_flag",
    "dir_flag",
    "print_json",
    "print_staleness",
    "print_table",
    "program",
    "say",
]


class Output(StrEnum):
    """How a result is printed: for people, or for programs."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("--output", help="For people, or for programs.")]
DirOption = Annotated[
    Path | None, typer.Option("--dir", metavar="DIR", help="A local cluster. [default: ./viewstamp-data]")
]
LocalDirOption = Annotated[Path, typer.Option("--dir", metavar="DIR", help="The local cluster's directory.")]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", metavar="HOST:PORT,...", help="Any cluster, by addresses. [env: VIEWSTAMP_CLUSTER]"),
]
TimeoutOption = Annotated[float, typer.Option("--timeout", metavar="S", min=0.1, help="Seconds to wait at most.")]
MaxStalenessOption = Annotated[
    float | None,
    typer.Option("--max-staleness", metavar="S", min=0, help="As --stale, and at most so many seconds stale."),
]


def print_staleness(answer: Stale[Any], *, as_json: bool = False) -> None:
    """Print how stale an answer is to stderr, because the result on stdout may be piped on.

    ``as_json``: as one object with ``age_seconds`` (null = not known) and ``applied_index``.
    """
    if as_json:
        age = answer.age_seconds if math.isfinite(answer.age_seconds) else None
        say(json.dumps({"age_seconds": age, "applied_index": answer.applied_index}))
    elif math.isinf(answer.age_seconds):
        say(f"nobody can say how stale: the node has not heard since its start; index {answer.applied_index}")
    else:
        say(f"as of {answer.age_seconds:.3f} s ago, index {answer.applied_index}")


def print_json(value: object) -> None:
    """Print one JSON object on one line of stdout."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print aligned columns, numbers to the right, as plain text.

    On a terminal that is too narrow, the columns that do not fit follow in further tables, each of which begins with
    the first column again. In a pipe there is always one table, because other programs cut it.
    """
    texts = [list(columns), *([_text(cell) for cell in row] for row in rows)]
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
    """Return which columns stand in which table, so that each table fits into ``room`` characters; None = one table."""
    parts: list[list[int]] = [[0]]
    for at in range(1, len(widths)):
        taken = sum(widths[each] + 2 for each in parts[-1])
        if room is not None and len(parts[-1]) > 1 and taken + widths[at] > room:
            parts.append([0])
        parts[-1].append(at)
    return parts


def program() -> str:
    """Return what to type to run this command again: its path, where the shell would not find it by its name."""
    installed = os.path.join(sys.prefix, "bin", "viewstamp")
    found = shutil.which("viewstamp")
    if not os.path.exists(installed) or (found is not None and os.path.samefile(found, installed)):
        return "viewstamp"
    path = os.path.relpath(installed)
    return shlex.quote(path if not path.startswith(os.pardir) else installed)


def dir_flag(directory: str | os.PathLike[str], default: str) -> str:
    """Return `` --dir DIR`` as it has to be typed for another directory than the default one, else nothing."""
    path = os.path.relpath(directory)
    if path == default:
        return ""
    return f" --dir {shlex.quote(path if not path.startswith(os.pardir) else os.path.abspath(directory))}"


def cluster_flag(directory: Path | None, cluster: str | None) -> str:
    """Return the flag that names the cluster that these two name, as it has to be typed again; or nothing."""
    if directory is not None:
        return dir_flag(directory, "viewstamp-data")
    return f" --cluster {shlex.quote(cluster)}" if cluster else ""


def say(message: str) -> None:
    """Tell a person something that is not the result: to stderr."""
    print(message, file=sys.stderr, flush=True)


def _text(cell: object) -> str:
    return "-" if cell is None else f"{cell:,}" if type(cell) is int else str(cell)


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "", 1).isdecimal() or text == "-"
