"""Shows the progress of long work on stderr: a bar in a terminal, a line every two seconds elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, Final

from viewstamp.terminal.output import Output, say

__all__ = ["WorkProgress"]

_LOOK_SECONDS: Final = 0.2


class WorkProgress:
    """The progress of work in parts, each with a number of bytes; nothing is shown with JSON."""

    def __init__(self, output: Output) -> None:
        self._is_silent = output is Output.JSON
        self._bar: Any = None
        self._task: Any = None
        self._text = ""
        self._done = 0
        self._total = 0
        self._shown_at = 0.0
        self._began_at = 0.0

    def __enter__(self) -> WorkProgress:
        if not self._is_silent and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

            columns: list[Any] = [
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
            ]
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=None)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, text: str, total: int) -> None:
        """Begin a part that reads ``total`` bytes."""
        self._text, self._done, self._total = text, 0, total
        self._began_at = self._shown_at = time.monotonic()
        if self._bar is not None:
            self._bar.reset(self._task, description=text, total=total)

    def add(self, count: int) -> None:
        """Add bytes that were read."""
        self._done += count
        now = time.monotonic()
        if self._bar is not None:
            if now - self._shown_at > _LOOK_SECONDS:
                self._shown_at = now
                self._bar.update(self._task, completed=self._done)
        elif not self._is_silent and now - self._shown_at > 2:
            self._shown_at = now
            rate = self._done / (now - self._began_at) / 1e6
            say(f"{self._text}: {self._done / 1e6:,.0f} of {self._total / 1e6:,.0f} MB, {rate:,.0f} MB/s")

    def note(self, text: str) -> None:
        """Print a message that stays on the screen."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        elif not self._is_silent:
            say(text)
