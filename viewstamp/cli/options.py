"""The options that several commands share, and how they print a stale answer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from viewstamp.quantities import DURATION_UNITS, parse_duration, parse_size, show_size
from viewstamp.terminal.output import Output, say

if TYPE_CHECKING:
    from viewstamp.wire.commands import Stale

__all__ = [
    "ClusterOption",
    "DirOption",
    "LocalDirOption",
    "MaxStalenessOption",
    "OutputOption",
    "PlotOption",
    "TimeoutOption",
    "age",
    "duration",
    "listed_ids",
    "parse_ids",
    "parse_names",
    "print_staleness",
    "size",
]


def duration(*, minimum: float = 0.0, maximum: float = math.inf, bare: str = "s") -> Callable[[str | float], float]:
    """Return a parser of an option that is a duration, for example ``10s``, ``250ms``, or a number without a unit.

    Args:
      minimum: the smallest allowed value, in the unit ``bare``.
      maximum: the largest one.
      bare: the unit of a plain number, and of the result.
    """

    def parse(value: str | float) -> float:
        if not isinstance(value, str):
            return value  # The default.
        try:
            found = float(value)
        except ValueError:
            found = _parsed(lambda: parse_duration(value, bare=bare)) / DURATION_UNITS[bare]
        if not minimum <= found <= maximum:
            first, last = (f"{each:g}{bare}" for each in (minimum, maximum))
            allowed = f"at least {first}" if maximum == math.inf else f"from {first} to {last}"
            raise typer.BadParameter(f"{value} is not allowed; allowed: {allowed}")
        return found

    return parse


def age(text: str) -> float:
    """Return the seconds of an option such as ``7d``. A number without a unit is an error, except 0."""
    return _parsed(lambda: parse_duration(text)) / 1000


def size(*, minimum: int = 0) -> Callable[[str | int], int]:
    """Return a parser of an option that is a size: a number of bytes, or for example ``64MiB`` or ``4kB``."""

    def parse(value: str | int) -> int:
        found = _parsed(lambda: parse_size(value)) if isinstance(value, str) else value
        if found < minimum:
            raise typer.BadParameter(f"{value} is not allowed; allowed: at least {show_size(minimum)}")
        return found

    return parse


def _parsed(parse: Callable[[], int]) -> int:
    try:
        return parse()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


OutputOption = Annotated[Output, typer.Option("--output", help="A table for people, JSON for programs.")]
_DIRECTORY_HELP: Final = "Directory of a local cluster. [default: ./viewstamp-data]"
DirOption = Annotated[Path | None, typer.Option("--dir", metavar="DIR", help=_DIRECTORY_HELP)]
LocalDirOption = Annotated[Path, typer.Option("--dir", metavar="DIR", help=_DIRECTORY_HELP, show_default=False)]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", metavar="HOST:PORT,...", help="Addresses of a cluster. [env: VIEWSTAMP_CLUSTER]"),
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="TIME",
        parser=duration(minimum=0.1),
        help="Fail after this time, e.g. 500ms, 10s or 2m; a plain number is in seconds.",
    ),
]
MaxStalenessOption = Annotated[
    float | None,
    typer.Option(
        "--max-staleness",
        metavar="TIME",
        parser=duration(),
        help="Like --stale; fails if the answer is older, e.g. 500ms.",
    ),
]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw how long calls took, by percentile.")
]


def print_staleness(answer: Stale[Any], *, as_json: bool = False) -> None:
    """Print the age of an answer to stderr, because the result on stdout may go into a pipe.

    ``as_json``: as one object with ``age_seconds`` (null = unknown) and ``applied_index``.
    """
    if as_json:
        age = answer.age_seconds if math.isfinite(answer.age_seconds) else None
        say(json.dumps({"age_seconds": age, "applied_index": answer.applied_index}))
    elif math.isinf(answer.age_seconds):
        say(f"age unknown: this node has not reached a leader since it started; applied index {answer.applied_index}")
    else:
        say(f"as of {answer.age_seconds:.3f} s ago, applied index {answer.applied_index}")


def parse_names(text: str | None) -> list[str]:
    """Return the names in an option with commas; [] = it is not given, None.

    An option that is given without a name is refused, because a script whose variable is empty means other names than
    the default, which is often "all", and cannot be undone.
    """
    names = [each.strip() for each in (text or "").split(",") if each.strip()]
    if text is not None and not names:
        raise typer.BadParameter(f"{text!r} names nothing; give names with commas between, or leave the option out")
    return names


def parse_ids(text: str | None) -> list[int]:
    """Return the ids in the value of ``--groups``; [] = it is not given, None."""
    try:
        return [int(each) for each in parse_names(text)]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r}: no such group; give ids or names, with commas between them, as `viewstamp group list` has them"
        ) from None


def listed_ids(groups: Iterable[int]) -> str:
    """Return the ids of groups for a table, each once."""
    return ",".join(map(str, dict.fromkeys(groups)))
