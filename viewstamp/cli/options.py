"""The options that several commands have in common, and the shape of what they print."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
PlotOption = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw how long calls took, by percentile.")
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
