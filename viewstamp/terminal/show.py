"""Shows the progress of a command on stderr: a bar in a terminal, a line every two seconds elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, Final

from viewstamp.terminal.output import Output, say

__all__ = ["Show"]

MEMORY_FILESYSTEMS: Final = frozenset({"tmpfs", "ramfs"})


class Show:
    """The progress of a command on stderr: a bar in a terminal, a line every two seconds elsewhere."""

    def __init__(self, output: Output) -> None:
        self._is_silent = output is Output.JSON
        self._bar: Any = None
        self._task: Any = None
        self._line_at = 0.0
        if not self._is_silent and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
            from rich.table import Column

            # On a narrow terminal the bar becomes shorter, and the words stay on its line.
            words = TextColumn("{task.description}", table_column=Column(no_wrap=True))
            columns: list[Any] = [SpinnerColumn(), BarColumn(), words]
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=None)
            self._bar.start()

    def phase(self, text: str) -> None:
        """Show the present step."""
        if self._bar is not None:
            self._update(0, 0, text)
        elif not self._is_silent:
            say(text)

    def note(self, text: str) -> None:
        """Print an event; it stays on the screen."""
        if self._bar is not None:
            self._bar.console.print(text)
        elif not self._is_silent:
            say(text)

    def progress(self, done: int, total: int, leader: str | None, rate: float) -> None:
        """Show the appended records, the leader, and the records acknowledged in each second."""
        self.count(done, total, f"{done:>9,} of {total:,}   leader {leader or '-'}   {rate:,.0f} records/s")

    def count(self, done: int, total: int, text: str) -> None:
        """Show the progress, in words; ``total`` 0 = unknown."""
        if self._bar is not None:
            self._update(done, total, text)
        elif not self._is_silent and time.monotonic() - self._line_at > 2:
            self._line_at = time.monotonic()
            say(text)

    def _update(self, done: int, total: int, text: str) -> None:
        self._bar.update(self._task, completed=done, description=text)
        self._bar.tasks[0].total = total or None  # update() would keep the old total for None.

    def warn_of_memory(self, path: str) -> None:
        """Warn if the data would be in memory and not on a disk."""
        from viewstamp.host.disk import RealDisk

        filesystem = RealDisk().filesystem(path)
        if filesystem in MEMORY_FILESYSTEMS:
            self.note(
                f"WARNING: {path} is on {filesystem}: MEMORY, NOT A DISK. A power cut deletes the data, and the "
                "measured speed is not that of a disk. Name a directory on a disk with --dir."
            )

    def close(self) -> None:
        """Remove the bar. Safe to repeat."""
        if self._bar is not None:
            self._bar.stop()
