"""The process of a node, without the parser of all the other commands.

A node keeps every imported module in memory as long as it runs. The parser, and the imports of the commands, would add
a quarter to its memory and to its start time. So the usual command line of a node is parsed here; any other one, for
example one with a mistake, is left to the parser and its messages.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from viewstamp.errors import ViewstampError

if TYPE_CHECKING:
    from viewstamp.host.logger import JsonLogger, SafeLogger

__all__ = ["logger", "plain_config", "run_process"]

_STOP_SECONDS_MAX = 10.0
"""Seconds that a failed node has to stop by itself before its process is ended."""


def plain_config(arguments: Sequence[str]) -> str | None:
    """Return FILE if ``arguments`` are ``node run --config FILE``, with or without an ``--output``; else None."""
    match list(arguments):
        case ["node", "run", "--config", file] | ["node", "run", "--config", file, "--output", "table" | "json"]:
            return file
    return None


def run_process(config: str | os.PathLike[str], overrides: Mapping[str, str]) -> None:
    """Run the node of a settings file until SIGTERM or Ctrl-C. ``overrides``: ``section.key`` to text, from options.

    A node that has failed always exits. If it has not stopped within 10 s, for example because a call of the disk does
    not return, the process ends at once with the exit code of the failure. That loses nothing, because a node has to
    survive ``kill -9`` at every moment.

    Raises:
      ViewstampError: as :func:`viewstamp.embed.run_node.run_node`; ConfigError also for the file.
    """
    from viewstamp.local.process import end_with_parent

    end_with_parent()

    from viewstamp.config import load_settings
    from viewstamp.embed.actor_classes import import_actors
    from viewstamp.embed.run_node import run_node, run_on_fast_loop
    from viewstamp.host.descriptors import raise_descriptor_limit
    from viewstamp.host.freed_memory import keep_freed_memory
    from viewstamp.host.logger import SafeLogger
    from viewstamp.host.private import readable_by_others

    _open_standard_streams()
    raise_descriptor_limit()
    keep_freed_memory()
    loaded = load_settings(config, overrides=overrides)
    # Like `python -m`: modules of actors are looked up in the current directory first.
    sys.path.insert(0, os.getcwd())
    actors = import_actors(loaded.settings.actors, loaded.directory)
    data_dir, logging = loaded.settings.node.data_dir, loaded.settings.logging
    log = SafeLogger(logger(logging.level, os.path.join(data_dir, "log.jsonl"), logging.bytes_max))
    deadlines = list[threading.Timer]()
    if mode := readable_by_others(data_dir):
        log.warning("! other users can read the data directory", path=data_dir, mode=f"{mode:o}")

    def on_failed(failure: BaseException) -> None:
        deadlines.append(threading.Timer(_STOP_SECONDS_MAX, _exit_at_once, (failure, log)))
        deadlines[-1].daemon = True
        deadlines[-1].start()

    try:
        run_on_fast_loop(lambda: run_node(loaded.settings, log, actors, on_failed=on_failed))
    finally:
        for deadline in deadlines:
            deadline.cancel()


def _exit_at_once(failure: BaseException, log: SafeLogger) -> None:
    log.error("! exits without having stopped", seconds=_STOP_SECONDS_MAX, error=repr(failure))
    os._exit(failure.exit_code if isinstance(failure, ViewstampError) else 1)


def _open_standard_streams() -> None:
    """Open stdin, stdout and stderr if the process was started without them.

    Otherwise the next opened file, which may be a segment of the log, gets number 2, and any output of a library to
    stderr is written into that segment.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # It gets the lowest free number, which is this one.


def logger(level: str = "info", path: str = "", bytes_max: int = 0) -> JsonLogger:
    """Return the logger of a node: one JSON object a line, to stderr. For the arguments see :class:`JsonLogger`."""
    from viewstamp.host.logger import JsonLogger

    return JsonLogger(sys.stderr, level, path=path, bytes_max=bytes_max)
