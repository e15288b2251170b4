"""The process of a node, without the parser of all the other commands.

A node holds for as long as it runs what it imports: the parser, and what the commands import, would be a quarter of its
memory, and of the time until it listens. So what starts nodes every day is understood here; anything else, a mistake
above all, is left to the parser and its messages.
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
"""How long a failed node may take to stop, until its process exits without that."""


def plain_config(arguments: Sequence[str]) -> str | None:
    """Return FILE where ``arguments`` are ``node run --config FILE``, with or without an ``--output``; else None."""
    match list(arguments):
        case ["node", "run", "--config", file] | ["node", "run", "--config", file, "--output", "table" | "json"]:
            return file
    return None


def run_process(config: str | os.PathLike[str], overrides: Mapping[str, str]) -> None:
    """Run the node of a settings file until SIGTERM or Ctrl-C. ``overrides``: ``section.key`` to text, from flags.

    A node that has failed exits, always: if it has not stopped within 10 s, for example because a call of the disk does
    not return, the process ends at once, with the exit code of the failure. Nothing is lost by that, because a node
    has to survive ``kill -9`` at every moment.

    Raises:
      ViewstampError: as :func:`viewstamp.embed.run_node.run_node`; ConfigError also for the file.
    """
    from viewstamp.local.process import end_with_parent

    end_with_parent()

    from viewstamp.config import load_settings
    from viewstamp.embed import import_actors, run_node, run_on_fast_loop
    from viewstamp.host.descriptors import raise_descriptor_limit
    from viewstamp.host.logger import SafeLogger
    from viewstamp.host.private import readable_by_others

    _open_standard_streams()
    raise_descriptor_limit()
    loaded = load_settings(config, overrides=overrides)
    # The process is the node's own: like `python -m`, it looks for the actors' modules first where it was started.
    sys.path.insert(0, os.getcwd())
    actors = import_actors(loaded.settings.actors, loaded.directory)
    data_dir, logging = loaded.settings.node.data_dir, loaded.settings.logging
    log = SafeLogger(logger(logging.level, os.path.join(data_dir, "log.jsonl"), logging.bytes_max))
    deadlines = list[threading.Timer]()
    if mode := readable_by_others(data_dir):
        log.warning("! other users may look into the data directory", path=data_dir, mode=f"{mode:o}")

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
    """Open stdin, stdout and stderr where the process was started without them.

    Otherwise the next file to be opened, which may be a segment of the log, gets number 2, and whatever a library
    writes to stderr is written into it.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # The lowest number that is free, so this one.


def logger(level: str = "info", path: str = "", bytes_max: int = 0) -> JsonLogger:
    """Return what a node logs with: one JSON object a line, to stderr. For the arguments see :class:`JsonLogger`."""
    from viewstamp.host.logger import JsonLogger

    return JsonLogger(sys.stderr, level, path=path, bytes_max=bytes_max)
