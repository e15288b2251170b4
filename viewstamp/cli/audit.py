"""``viewstamp audit``: shows the administrative actions, each with its caller."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption, age
from viewstamp.local.find import find_cluster
from viewstamp.terminal.output import Output, print_json, print_table

if TYPE_CHECKING:
    from viewstamp.client.results import AuditEntry

__all__ = ["audit"]

_BY_MAX: Final = 20
_SUBJECT_MAX: Final = 23
"""Beside 16 characters of time, at most 15 of the action, and the gaps."""


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
    rows = [_row(entry) for entry in entries]
    print_table(["time (UTC)", "by", "action", "on"], rows, empty="no actions are recorded")


def _row(entry: AuditEntry) -> tuple[str, str, str, str]:
    """Return an entry within 80 columns: without ids, and with the first name of the caller. JSON has all of it."""
    by = re.sub(r" \([0-9a-f]{12}\)", "", entry.by).split(", ")[0] or "anyone"
    time = f"{datetime.fromtimestamp(entry.log_time / 1e6, UTC):%Y-%m-%d %H:%M}"
    subject = re.sub(r" \([0-9a-f]{12}\)$", "", entry.subject)
    return time, _cut(by, _BY_MAX), entry.action, _cut(subject, _SUBJECT_MAX)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."
