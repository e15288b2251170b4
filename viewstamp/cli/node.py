"""``viewstamp node``: be one node of a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from viewstamp.cli.config import SetOption, overrides_of
from viewstamp.cli.options import Output, OutputOption

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

__all__ = ["app", "logger"]

app = typer.Typer(help="Be one node of a cluster.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    # With a callback `run` stays a command of its own although it is the only one.
    pass


@app.command()
def run(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="The node's settings file.")],
    settings: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run one node in this process until SIGTERM or Ctrl-C. Logs go to stderr, one JSON object a line."""
    from viewstamp.config import load_settings
    from viewstamp.embed import import_actors, run_node, run_on_fast_loop

    loaded = load_settings(config, overrides=overrides_of(settings))
    # The process is the node's own: like `python -m`, it looks for the actors' modules first where it was started.
    sys.path.insert(0, os.getcwd())
    actors = import_actors(loaded.settings.actors, loaded.directory)
    run_on_fast_loop(lambda: run_node(loaded.settings, logger(), actors))


def logger(level: str = "info") -> FilteringBoundLogger:
    """Return what a node logs with: one JSON object a line, to stderr, of ``level`` or worse."""
    import structlog

    bound: FilteringBoundLogger = structlog.wrap_logger(
        structlog.WriteLogger(sys.stderr),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _in_order,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    return bound


def _in_order(_logger: object, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Put what every line has first, so that a log can be read with the eyes."""
    first = ("timestamp", "level", "event", "node", "term")
    return {name: event[name] for name in first if name in event} | dict(event)
