"""What the parts of a node log with, and the logger of a node that is a process: one JSON object a line.

A loggers' library would do, and any of structlog's is a :class:`Log`; but a node holds for as long as it runs what it
imports, and a library's consoles, tracebacks and colours take a sixth of its memory and of the time until it listens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TextIO

__all__ = ["JsonLog", "Log"]

_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class Log(Protocol):
    """Says what happened: an event, and values by name. Never awaits, and never raises for what a value is."""

    def bind(self, **values: Any) -> Log:
        """Return a logger that adds ``values`` to whatever it says."""
        ...

    def info(self, event: str, **values: Any) -> object:
        """Say what is normal."""
        ...

    def warning(self, event: str, **values: Any) -> object:
        """Say what is not normal, and is being dealt with."""
        ...

    def error(self, event: str, **values: Any) -> object:
        """Say what a person has to look at."""
        ...


class JsonLog:
    """Writes a line for each event: ``timestamp`` (ISO 8601, UTC), ``level``, ``event``, ``node``, ``term``, the rest.

    A value that is no JSON is asked for ``__structlog__()``, as structlog does, and else written as its repr.
    """

    def __init__(self, stream: TextIO, level: str = "info", values: Mapping[str, object] | None = None) -> None:
        """Write to ``stream`` what is of ``level`` (debug, info, warning, error) or worse, with ``values``."""
        self._stream = stream
        self._level = level
        self._values = dict(values or {})

    def bind(self, **values: Any) -> JsonLog:
        """Return a logger that adds ``values`` to whatever it says."""
        return JsonLog(self._stream, self._level, self._values | values)

    def info(self, event: str, **values: Any) -> None:
        """Say what is normal."""
        self._write("info", event, values)

    def warning(self, event: str, **values: Any) -> None:
        """Say what is not normal, and is being dealt with."""
        self._write("warning", event, values)

    def error(self, event: str, **values: Any) -> None:
        """Say what a person has to look at."""
        self._write("error", event, values)

    def _write(self, level: str, event: str, values: Mapping[str, object]) -> None:
        if _LEVELS[level] < _LEVELS[self._level]:
            return
        said = {**self._values, **values}
        # What every line has stands first, so that a log can be read with the eyes.
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        line: dict[str, object] = {"timestamp": now, "level": level, "event": event}
        line |= {name: said.pop(name) for name in ("node", "term") if name in said}
        # One write a line: other threads, and the children of a test, may write to the same file.
        self._stream.write(json.dumps(line | said, default=_shown) + "\n")
        self._stream.flush()


def _shown(value: object) -> object:
    show = getattr(value, "__structlog__", None)
    return show() if show is not None else repr(value)
