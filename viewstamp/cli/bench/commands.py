"""The group of commands that ``viewstamp bench --help`` lists."""

from __future__ import annotations

import typer

from viewstamp.cli.bench.append import append
from viewstamp.cli.bench.failover import failover
from viewstamp.cli.bench.read import read
from viewstamp.cli.bench.restart import restart
from viewstamp.cli.bench.wal import wal
from viewstamp.cli.group import CommandGroup

__all__ = ["app"]

app = typer.Typer(
    cls=CommandGroup, help="Measure appends, reads, failovers, restarts and the log.", no_args_is_help=True
)


app.command("append")(append)
app.command("read")(read)
app.command("failover")(failover)
app.command("restart")(restart)
app.command("wal")(wal)
