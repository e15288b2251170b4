"""``viewstamp node``: runs one node of a cluster, and gives it another address."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from viewstamp.cli.config import SetOption, overrides_of
from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import OutputOption, TimeoutOption
from viewstamp.local.node_process import logger, run_process
from viewstamp.terminal.output import Output, print_json, print_table, say

__all__ = ["app", "logger"]

app = typer.Typer(cls=CommandGroup, help="Run one node of a cluster, or give it another address.", no_args_is_help=True)


@app.command()
def run(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="The node's settings file.")],
    settings: SetOption = None,
    log_level: Annotated[
        str | None, typer.Option("--log-level", metavar="LEVEL", help="info, warning or error; overrides --set.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run one node in this process until SIGTERM or Ctrl-C. It logs to stderr, one JSON object a line."""
    level = {} if log_level is None else {"logging.level": log_level}
    run_process(config, overrides_of(settings) | level)


@app.command()
def readdress(
    config: Annotated[
        Path, typer.Option("--config", metavar="FILE", help="The settings file of the node, with its new address.")
    ],
    without_majority: Annotated[
        bool,
        typer.Option("--without-majority", help="All members have moved: take all addresses from [cluster] members."),
    ] = False,
    timeout: TimeoutOption = 3.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Give a stopped member the address in its settings, because its machine or port has changed.

    If a majority of the others runs, they commit the new address. If all members have moved, stop them, write all new
    addresses into the settings of each, and run this with --without-majority on each. For a copy of a cluster beside
    the original, use `viewstamp cluster fork`.
    """
    from viewstamp.local.readdress import readdress as change

    result = change(config, without_majority=without_majority, seconds=timeout)
    if output is Output.JSON:
        moved = {member: {"from": old, "to": new} for member, (old, new) in result.moved.items()}
        print_json({"member": result.member, "moved": moved, "committed": result.is_committed})
        return
    if not result.moved:
        print(f"{result.member} has this address already; nothing was changed")
        return
    print_table(["member", "was at", "is at"], [(member, *addresses) for member, addresses in result.moved.items()])
    if not result.is_committed and len(result.moved) > 1:
        say(
            "NO MAJORITY HAS COMMITTED THIS. Run the same command on every other member before you start any of them."
            " Never do it on a copy while the original exists: use `viewstamp cluster fork` there."
        )
    print(f"Start it: viewstamp node run --config {config}")
