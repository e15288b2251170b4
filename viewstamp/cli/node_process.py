"""The process of a node, without the parser of all the other commands.

A node holds for as long as it runs what it imports: the parser, and what the commands import, would be a quarter of its
memory, and of the time until it listens. So what starts nodes every day is understood here; anything else, a mistake
above all, is left to the parser and its messages.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from viewstamp.host.log import JsonLog

__all__ = ["logger", "plain_config", "run_process"]


def plain_config(arguments: Sequence[str]) -> str | None:
    """Return FILE where ``arguments`` are ``node run --config FILE``, with or without an ``--output``; else None."""
    match list(arguments):
        case ["node", "run", "--config", file] | ["node", "run", "--config", file, "--output", "table" | "json"]:
            return file
    return None


def run_process(config: str | os.PathLike[str], overrides: Mapping[str, str]) -> None:
    """Run the node of a settings file until SIGTERM or Ctrl-C. ``overrides``: ``section.key`` to text, from flags.

    Raises:
      ViewstampError: as :func:`viewstamp.embed.run_node.run_node`; ConfigError also for the file.
    """
    from viewstamp.cli.process import end_with_parent

    end_with_parent()

    from viewstamp.config import load_settings
    from viewstamp.embed import import_actors, run_node, run_on_fast_loop

    loaded = load_settings(config, overrides=overrides)
    # The process is the node's own: like `python -m`, it looks for the actors' modules first where it was started.
    sys.path.insert(0, os.getcwd())
    actors = import_actors(loaded.settings.actors, loaded.directory)
    run_on_fast_loop(lambda: run_node(loaded.settings, logger(), actors))


def logger(level: str = "info") -> JsonLog:
    """Return what a node logs with: one JSON object a line, to stderr, of ``level`` or worse."""
    from viewstamp.host.log import JsonLog

    return JsonLog(sys.stderr, level)
