"""The trace of a simulated run: one line per event, and one digest of all lines."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable

__all__ = ["Trace"]


class Trace:
    """The record of a run. Columns: seconds (6 places), node, glyph, text.

    Glyphs: ``<`` in, ``>`` out, ``=`` state, ``!`` fault. The digest covers every line, including those that are no
    longer held, so two runs with the same digest had the same events at the same simulated times.

    Invariants:
      * at most ``lines_max`` lines are held, the latest
    """

    def __init__(self, *, lines_max: int = 2000, sink: Callable[[str], None] | None = None) -> None:
        self.lines: deque[str] = deque(maxlen=lines_max)
        self.count = 0
        self._sink = sink
        self._hash = hashlib.blake2b(digest_size=16)

    def note(self, seconds: float, who: str, glyph: str, text: str) -> None:
        """Add a line. ``text`` must be the same in every run of the seed: no ids of objects, no set order."""
        line = f"{seconds:.6f} {who} {glyph} {text}"
        self.count += 1
        self.lines.append(line)
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        if self._sink is not None:
            self._sink(line)

    def digest(self) -> str:
        """Return the digest over all lines so far, hexadecimal."""
        return self._hash.hexdigest()
