"""``viewstamp audit``: shows who asked for which administrative action."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption, age
from viewstamp.local.find import find_cluster
from viewstamp.terminal.output import Output, print_json, print_table

__all__ = ["audit"]


def audit(
    since: Annotated[
        float | None,
        typer.Option("--since", metavar="AGE", parser=age, help="Only actions of this time, e.g. 7d or 12h."),
    ] = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the administrative actions since the first token was created: when, who and what. 10,000 are kept."""
    first = 0 if since is None else max(0, int((time.time() - since) * 1e6))
    entries = find_cluster(directory, cluster).ask(lambda client: client.list_audit(since=first, timeout=timeout))
    if output is Output.JSON:
        print_json({"entries": [entry._asdict() for entry in entries]})
        return
    rows = [
        (f"{datetime.fromtimestamp(entry.log_time / 1e6, UTC):%Y-%m-%d %H:%M:%S}", *_words(entry)) for entry in entries
    ]
    print_table(["time (UTC)", "action", "on", "by"], rows, empty="no actions are recorded")


def _words(entry: tuple[int, int, str, str, str]) -> tuple[str, str, str]:
    _, _, by, action, subject = entry
    return action, subject, by or "anyone (access control was off)"
