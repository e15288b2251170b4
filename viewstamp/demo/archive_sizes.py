"""The sizes of logs and archive over time: as text for a terminal, and as a picture."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from viewstamp.errors import StorageError

__all__ = ["Size", "Sizes", "draw", "text_plot"]

WIDTH: Final = 64
HEIGHT: Final = 12
MARKS: Final = {"appended": ".", "log of a node": "#", "archive": "o"}
"""The character of each line; where two lines meet, the later one is shown."""


class Size(NamedTuple):
    """The sizes at one moment: seconds since the start, and bytes."""

    seconds: float
    appended: int
    log: int
    archive: int


class Sizes:
    """The sizes over time, and events."""

    def __init__(self) -> None:
        self.measured: list[Size] = []
        self.events: list[tuple[float, str]] = []
        self._started = time.monotonic()

    def add(self, appended: int, log: int, archive: int) -> None:
        """Note the sizes of now."""
        self.measured.append(Size(time.monotonic() - self._started, appended, log, archive))

    def note(self, event: str) -> None:
        """Note what happens now."""
        self.events.append((time.monotonic() - self._started, event))

    @property
    def log_peak(self) -> int:
        """The largest log, in bytes."""
        return max((size.log for size in self.measured), default=0)

    @property
    def log_end(self) -> int:
        """The last log, in bytes."""
        return self.measured[-1].log if self.measured else 0

    @property
    def archive_end(self) -> int:
        """The last size of the archive, in bytes."""
        return self.measured[-1].archive if self.measured else 0


def text_plot(sizes: Sizes, *, width: int = WIDTH, height: int = HEIGHT) -> str:
    """Return the sizes as lines of text: MB upwards, seconds to the right, and the events below."""
    measured = sizes.measured
    if not measured:
        return ""
    last = max(measured[-1].seconds, 1e-9)
    top = max(max(size[1:]) for size in measured) or 1
    cells = [[" "] * width for _ in range(height)]
    for column in range(width):
        at = last * column / max(width - 1, 1)
        size = min(measured, key=lambda each: abs(each.seconds - at))
        for mark, value in zip(MARKS.values(), size[1:], strict=True):
            cells[round(value / top * (height - 1))][column] = mark
    rows = []
    for number in reversed(range(height)):
        label = f"{top * number / max(height - 1, 1) / 1e6:8,.1f}" if number in (0, height // 2, height - 1) else ""
        rows.append(f"{label:>8} |{''.join(cells[number]).rstrip()}")
    axis = [" "] * width
    for number, (seconds, _) in enumerate(sizes.events, 1):
        axis[min(round(seconds / last * (width - 1)), width - 1)] = str(number % 10)
    rows.append(f"{'MB':>8} +{'-' * width}")
    rows.append(f"{'':>8}  {''.join(axis).rstrip()}")
    rows.append(f"{'':>8}  0 s{f'{last:,.0f} s':>{width - 3}}")
    rows.append(f"{'':>8}  " + "   ".join(f"{mark} {name}" for name, mark in MARKS.items()))
    rows += [f"{'':>8}  {number} {seconds:5.1f} s  {event}" for number, (seconds, event) in enumerate(sizes.events, 1)]
    return "\n".join(rows)


def draw(path: str, sizes: Sizes) -> None:
    """Write a PNG with a line for each size, and the events.

    Raises:
      StorageError: the file cannot be written.
    """
    from matplotlib.figure import Figure  # Not pyplot, because it needs a screen and keeps its figures.

    figure = Figure(figsize=(10, 5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    seconds = [size.seconds for size in sizes.measured]
    for column, name in enumerate(MARKS, 1):
        axes.plot(seconds, [size[column] / 1e6 for size in sizes.measured], label=name)
    for number, (at, event) in enumerate(sizes.events, 1):
        axes.axvline(at, color="grey", linewidth=0.8, linestyle="--")
        axes.text(
            at, 0.98 - 0.06 * (number % 4), f" {event}", transform=axes.get_xaxis_transform(), fontsize=8, va="top"
        )
    axes.set_xlabel("seconds")
    axes.set_ylabel("MB")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.set_title("Records move from the logs into the archive", loc="left")
    axes.legend(loc="center right")
    try:
        figure.savefig(path, format="png")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}", remedy="name another file with --plot") from error
