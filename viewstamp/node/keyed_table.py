"""The table of a keyed topic: the last row of each key of the records that are in no run yet, read from the log.

It is a cache: it is built by the first read of the topic, from the log behind the dumped end, and goes on with each
later read. Nothing of it is durable, so a restart, another leader or a lack of memory only costs building it again.

It is made of *generations*, each of the records of neighbouring positions. The generations that a dump has covered are
dropped as a whole. A reader takes the list of generations before it waits for a run, so that a dump which is committed
meanwhile takes nothing away from it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from viewstamp.node.keyed_rows import KeyRow

__all__ = ["Generation", "KeyTable", "find_row", "overlay"]

_GENERATION_BYTES = 2 * 1024 * 1024
_ROW_BYTES = 300
"""About the memory of a row beside its bytes."""


class Generation:
    """The last rows of the keys of the records at the positions ``[first, end)``."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.end = first
        self.bytes = 0
        self.rows: dict[bytes, KeyRow] = {}
        self._sorted: list[bytes] = []
        """Keys in order, as of the last scan; those of ``_unsorted`` are missing."""
        self._unsorted: list[bytes] = []

    def add(self, row: KeyRow) -> None:
        """Add the next row."""
        before = self.rows.get(row.key)
        if before is None:
            self._unsorted.append(row.key)
            self.bytes += _ROW_BYTES
        else:
            self.bytes -= before.size
        self.bytes += row.size
        self.rows[row.key] = row

    def keys(self) -> Sequence[bytes]:
        """Return the keys in their order."""
        if self._unsorted:
            self._sorted += self._unsorted
            self._sorted.sort()  # Two sorted runs, of which the second is short: few comparisons.
            self._unsorted = []
        return self._sorted


class KeyTable:
    """The generations of one topic, at the positions ``[first, end)``.

    Invariants:
      * the generations follow one another without a gap
    """

    def __init__(self, first: int) -> None:
        self.generations: list[Generation] = [Generation(first)]

    @property
    def first(self) -> int:
        """The first position that counts."""
        return self.generations[0].first

    @property
    def end(self) -> int:
        """The position after the last one that was read."""
        return self.generations[-1].end

    @property
    def bytes(self) -> int:
        """About the bytes of memory."""
        return sum(each.bytes for each in self.generations)

    def add(self, rows: Iterable[KeyRow], end: int) -> None:
        """Add the rows of the records at the positions ``[self.end, end)``."""
        newest = self.generations[-1]
        for row in rows:
            newest.add(row)
        newest.end = end
        if newest.bytes >= _GENERATION_BYTES:
            self.generations.append(Generation(end))

    def discard(self, below: int) -> None:
        """Drop the generations whose positions are all below ``below``."""
        kept = [each for each in self.generations if each.end > below]
        self.generations = kept or [Generation(max(below, self.end))]


def find_row(generations: Sequence[Generation], key: bytes) -> KeyRow | None:
    """Return the newest row of a key; None = there is none."""
    return next((each.rows[key] for each in reversed(generations) if key in each.rows), None)


def overlay(generations: Sequence[Generation], rows: Sequence[KeyRow], start: bytes, end: bytes | None) -> list[KeyRow]:
    """Return older rows with keys in ``[start, end)`` as the newer ones of a table make them, without deleted keys."""
    newest = {row.key: row for row in rows}
    is_changed = False
    for each in generations:
        keys = each.keys()
        low = bisect_left(keys, start)
        high = len(keys) if end is None else bisect_left(keys, end)
        for key in keys[low:high]:
            newest[key] = each.rows[key]
            is_changed = True
    if not is_changed:
        return list(rows)
    return [newest[key] for key in sorted(newest) if newest[key].value is not None]
