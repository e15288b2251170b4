"""What a person sees while the demo works: a bar in a terminal, now and then a line elsewhere. All on stderr."""

from __future__ import annotations

import sys
import time
from typing import Any, Final

from viewstamp.terminal.output import Output, say

__all__ = ["Show"]

MEMORY_FILESYSTEMS: Final = frozenset({"tmpfs", "ramfs"})


class Show:
    """What a person sees while it works, on stderr: a bar in a terminal, now and then a line elsewhere."""

    def __init__(self, output: Output) -> None:
        self._is_silent = output is Output.JSON
        self._bar: Any = None
        self._task: Any = None
        self._line_at = 0.0
        if not self._is_silent and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
            from rich.table import Column

            # Where there is little room, the bar becomes shorter, and the words stay on its line.
            words = TextColumn("{task.description}", table_column=Column(no_wrap=True))
            columns: list[Any] = [SpinnerColumn(), BarColumn(), words]
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=None)
            self._bar.start()

    def phase(self, text: str) -> None:
        """Say what is being done now."""
        if self._bar is not None:
            self._update(0, 0, text)
        elif not self._is_silent:
            say(text)

    def note(self, text: str) -> None:
        """Say what has happened; it stays on the screen."""
        if self._bar is not None:
            self._bar.console.print(text)
        elif not self._is_silent:
            say(text)

    def progress(self, done: int, total: int, leader: str | None, rate: float) -> None:
        """Say how far the appends are, who leads, and how many records a second come through."""
        self.count(done, total, f"{done:>9,} of {total:,}   leader {leader or '-'}   {rate:,.0f} records/s")

    def count(self, done: int, total: int, text: str) -> None:
        """Say how far it has come, in words; ``total`` 0 = nobody knows how far it is."""
        if self._bar is not None:
            self._update(done, total, text)
        elif not self._is_silent and time.monotonic() - self._line_at > 2:
            self._line_at = time.monotonic()
            say(text)

    def _update(self, done: int, total: int, text: str) -> None:
        self._bar.update(self._task, completed=done, description=text)
        self._bar.tasks[0].total = total or None  # update() takes None for "as it is".

    def warn_of_memory(self, path: str) -> None:
        """Warn loudly where the data would not lie on a disk at all."""
        from viewstamp.host.disk import RealDisk

        filesystem = RealDisk().filesystem(path)
        if filesystem in MEMORY_FILESYSTEMS:
            self.note(
                f"WARNING: {path} is on {filesystem}: MEMORY, NOT A DISK. Nothing there survives a power cut, and its "
                "speed is no disk's. Name a directory on a disk with --dir."
            )

    def close(self) -> None:
        """Take the bar away. Idempotent."""
        if self._bar is not None:
            self._bar.stop()
