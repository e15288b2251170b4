"""``viewstamp node``: runs one node of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from viewstamp.cli.config import SetOption, overrides_of
from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import OutputOption
from viewstamp.local.node_process import logger, run_process
from viewstamp.terminal.output import Output

__all__ = ["app", "logger"]

app = typer.Typer(cls=CommandGroup, help="Run one node of a cluster.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    # Without a callback, the parser would make the only command of a group the group itself.
    pass


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
