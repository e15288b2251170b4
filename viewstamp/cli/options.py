"""The options that several commands share, and how they print a stale answer."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

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
    "print_staleness",
]


OutputOption = Annotated[Output, typer.Option("--output", help="A table for people, JSON for programs.")]
_DIRECTORY_HELP: Final = "Directory of a local cluster. [default: ./viewstamp-data]"
DirOption = Annotated[Path | None, typer.Option("--dir", metavar="DIR", help=_DIRECTORY_HELP)]
LocalDirOption = Annotated[Path, typer.Option("--dir", metavar="DIR", help=_DIRECTORY_HELP, show_default=False)]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", metavar="HOST:PORT,...", help="Addresses of a cluster. [env: VIEWSTAMP_CLUSTER]"),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="S", min=0.1, help="Fail when this many seconds have passed.")
]
MaxStalenessOption = Annotated[
    float | None,
    typer.Option(
        "--max-staleness", metavar="S", min=0, help="Like --stale; fails if the answer is over S seconds old."
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
