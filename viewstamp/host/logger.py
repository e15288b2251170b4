"""The logger interface of a node's parts, the logger that never raises, and the JSON logger of a node process.

Any structlog logger is a :class:`Logger` too. ``JsonLogger`` exists because a node process keeps in memory what it
imports: structlog's consoles, tracebacks and colours are a sixth of its memory and of its start-up time.
"""

from __future__ import annotations

import errno
import io
import json
import os
import select
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TextIO

__all__ = ["JsonLogger", "Logger", "SafeLogger"]

_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}

_TEXT_MAX: Final = 1000
"""Characters of one text value in a log line: a peer's name of 10 MB must not become a line of 10 MB."""

_PIPE_BYTES: Final = 4096
"""Bytes that a pipe takes without blocking when ``poll`` reports it writable (``PIPE_BUF`` on Linux)."""


class Logger(Protocol):
    """Writes an event and values by name. Never awaits. An implementation may raise: a node wraps it in SafeLogger."""

    def bind(self, **values: Any) -> Logger:
        """Return a logger that adds ``values`` to every line."""
        ...

    def info(self, event: str, **values: Any) -> object:
        """Log a normal event."""
        ...

    def warning(self, event: str, **values: Any) -> object:
        """Log an event that is not normal, and is being dealt with."""
        ...

    def error(self, event: str, **values: Any) -> object:
        """Log an event that a person has to look at."""
        ...


class SafeLogger:
    """A logger in front of another one. It never raises, because a failed log line must not fail the caller.

    For example, the replica logs inside its turn, and the error handler of a node logs before the node stops: an
    exception there would leave a node that neither works nor exits. A line that cannot be written is dropped and
    counted. The first line that can be written again is followed by ``! log lines lost``, with the number.

    Text values are cut to 1,000 characters.
    """

    def __init__(self, log: Logger, losses: _Losses | None = None) -> None:
        """Write to ``log``; ``losses`` is shared by all loggers that are bound from one."""
        self._log = log
        self._losses = losses or _Losses()

    @classmethod
    def of(cls, log: Logger) -> SafeLogger:
        """Return ``log`` itself if it is a SafeLogger, because a second one around it would not count lost lines."""
        return log if isinstance(log, cls) else cls(log)

    @property
    def lines_lost(self) -> int:
        """Lines dropped since the process started."""
        return self._losses.total

    @property
    def status(self) -> dict[str, object]:
        """Return "log_lines_lost", and the reason why the last line could not be written; "" = it was written."""
        failure = self._losses.reason if self._losses.unreported else ""
        return {"log_lines_lost": self._losses.total, "log_stream_failure": failure}

    def bind(self, **values: Any) -> SafeLogger:
        """Return a logger that adds ``values`` to every line."""
        return SafeLogger(self._log.bind(**values), self._losses)

    def info(self, event: str, **values: Any) -> None:
        """Log a normal event."""
        self._write(self._log.info, event, values)

    def warning(self, event: str, **values: Any) -> None:
        """Log an event that is not normal, and is being dealt with."""
        self._write(self._log.warning, event, values)

    def error(self, event: str, **values: Any) -> None:
        """Log an event that a person has to look at."""
        self._write(self._log.error, event, values)

    def _write(self, write: Callable[..., object], event: str, values: Mapping[str, object]) -> None:
        losses = self._losses
        try:
            write(event, **{name: _shortened(value) for name, value in values.items()})
            if losses.unreported:
                self._log.warning("! log lines lost", lines=losses.unreported, reason=losses.reason)
                losses.unreported = 0
        except Exception as error:
            losses.total += 1
            losses.unreported += 1
            losses.reason = f"{type(error).__name__}: {error}"[:_TEXT_MAX]


class _Losses:
    """Counts the lines that could not be written, of one logger and of all that are bound from it."""

    def __init__(self) -> None:
        self.total = 0
        self.unreported = 0
        """Lines lost since ``! log lines lost`` was last written."""
        self.reason = ""


def _shortened(value: object) -> object:
    if isinstance(value, str) and len(value) > _TEXT_MAX:
        return f"{value[:_TEXT_MAX]}... ({len(value)} characters)"
    return value


class JsonLogger:
    """Writes a line for each event: ``timestamp`` (ISO 8601, UTC), ``level``, ``event``, ``node``, ``term``, the rest.

    A value that JSON does not have is written by its ``__structlog__()``, as structlog does, or else as its repr.

    It raises OSError if the stream cannot be written, and BlockingIOError instead of waiting for the reader of a
    full pipe, because a write that blocks would stop the event loop. Use it behind :class:`SafeLogger`.
    """

    def __init__(
        self,
        stream: TextIO | None,
        level: str = "info",
        values: Mapping[str, object] | None = None,
        *,
        path: str = "",
        bytes_max: int = 0,
    ) -> None:
        """Write lines to a stream.

        Args:
          stream: None = lines are dropped, for example because the process was started without a ``sys.stderr``.
          level: debug, info, warning or error; lines below it are not written.
          values: added to each line.
          path: of the file that ``stream`` appends to. When the file has more than ``bytes_max`` bytes, it is renamed
            to ``path``.1, and a new file is begun. Ignored if ``stream`` is another file.
          bytes_max: 0 = the file grows without a limit.
        """
        self._out = _Stream(stream)
        if bytes_max:
            self._out.rotate(path, bytes_max)
        self._level = level
        self._values = dict(values or {})

    def bind(self, **values: Any) -> JsonLogger:
        """Return a logger that adds ``values`` to every line."""
        bound = JsonLogger(None, self._level, self._values | values)
        bound._out = self._out
        return bound

    def info(self, event: str, **values: Any) -> None:
        """Log a normal event."""
        self._write("info", event, values)

    def warning(self, event: str, **values: Any) -> None:
        """Log an event that is not normal, and is being dealt with."""
        self._write("warning", event, values)

    def error(self, event: str, **values: Any) -> None:
        """Log an event that a person has to look at."""
        self._write("error", event, values)

    def _write(self, level: str, event: str, values: Mapping[str, object]) -> None:
        if _LEVELS[level] < _LEVELS[self._level]:
            return
        said = {**self._values, **values}
        # The common values come first in each line, so that people can read the log.
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        line: dict[str, object] = {"timestamp": now, "level": level, "event": event}
        line |= {name: said.pop(name) for name in ("node", "term") if name in said}
        # One write for each line, because other threads and processes may write to the same file.
        self._out.write(json.dumps(line | said, default=_shown) + "\n")


class _Stream:
    """The output of lines. Writes to the file descriptor itself if there is one.

    A buffered stream keeps bytes that it could not write. So it would fail again with each later line, and at the exit
    of the process, whose exit code would then be the interpreter's 120.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._descriptor: int | None = None
        self._room: select.poll | None = None
        """Polled before each write if the descriptor may block; else None."""
        self._is_torn = False
        """Whether the last write wrote only a part of a line."""
        self._path = ""
        """Of the file that is renamed when it is full; "" = no file is."""
        self._bytes_max = self._left = 0
        """The limit of such a file, and the bytes that are left of it."""
        try:
            self._descriptor = stream.fileno() if stream is not None else None
        except (io.UnsupportedOperation, OSError, ValueError):
            return  # A stream in memory.
        if self._descriptor is not None and not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            self._room = select.poll()
            self._room.register(self._descriptor, select.POLLOUT)

    def rotate(self, path: str, bytes_max: int) -> None:
        """Rename the file at ``path`` when it has more than ``bytes_max`` bytes, if this stream writes to that file."""
        with suppress(OSError):
            if self._descriptor is not None and os.path.samestat(os.fstat(self._descriptor), os.stat(path)):
                self._path, self._bytes_max = path, bytes_max
                self._left = bytes_max - os.fstat(self._descriptor).st_size

    def _set_aside(self) -> None:
        """Begin a new file. If that fails, for example because the disk is full, the old one is used further."""
        self._left = self._bytes_max  # Also after a failure, so that not every line tries it again.
        with suppress(OSError):
            old = os.fstat(self._descriptor or 0)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
            fresh = os.open(f"{self._path}.new", flags, 0o600)
            try:
                with suppress(FileNotFoundError):  # An administrator may have removed it.
                    os.replace(self._path, f"{self._path}.1")
                os.replace(f"{self._path}.new", self._path)
                for descriptor in (1, 2, self._descriptor):  # So that stdout and stderr stay the same file.
                    if descriptor is not None and os.path.samestat(os.fstat(descriptor), old):
                        os.dup2(fresh, descriptor, inheritable=descriptor <= 2)
            finally:
                os.close(fresh)

    def write(self, line: str) -> None:
        """Write a line. Raises OSError if it was not written, or only in part."""
        if self._descriptor is None:
            if self._stream is not None:
                self._stream.write(line)
                self._stream.flush()
            return
        left = memoryview(("\n" + line if self._is_torn else line).encode("utf-8", "backslashreplace"))
        self._is_torn = False
        size = len(left)
        if self._path:
            self._left -= size
            if self._left < 0:
                self._set_aside()
        try:
            while left:
                if self._room is not None and not self._room.poll(0):
                    raise BlockingIOError(errno.EAGAIN, "the pipe of the log is full, because its reader does not read")
                left = left[os.write(self._descriptor, left[:_PIPE_BYTES] if self._room is not None else left) :]
        except OSError:
            self._is_torn = len(left) < size
            raise


def _shown(value: object) -> object:
    show = getattr(value, "__structlog__", None)
    return show() if show is not None else repr(value)
