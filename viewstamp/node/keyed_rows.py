"""The row of a key: the last record of the key, as the view of a keyed topic has it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgpack

from viewstamp.wire.batch import Batch

__all__ = ["KeyRow", "Lookup", "ScannedRows", "rows_of"]


class KeyRow(NamedTuple):
    """The last record of a key. ``value`` None = the key was deleted; ``headers``: one msgpack map, None = none."""

    key: bytes
    position: int
    term: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which no caller uses
    time: int
    value: bytes | None
    headers: bytes | None

    @property
    def size(self) -> int:
        """The bytes of key, value and headers, and about those of the numbers in a file."""
        return len(self.key) + len(self.value or b"") + len(self.headers or b"") + 32


class Lookup(NamedTuple):
    """The newest row of a key in runs, None = none has it; the runs that were asked, and the groups that were read."""

    row: KeyRow | None
    runs: int
    groups: int


class ScannedRows(NamedTuple):
    """Rows in the order of their keys, without deleted ones. ``next``: the key to go on from; None = that is all."""

    rows: list[KeyRow]
    next: bytes | None


def rows_of(batches: Iterable[Batch], first: int, end: int) -> Iterator[KeyRow]:
    """Yield a row for each record with a key at the positions in ``[first, end)``, in the order of the positions.

    Raises:
      FrameError: the body of a batch has no valid layout; servers never look into bodies, so a client can send one.
    """
    for batch in batches:
        for record in batch.records():
            if record.key is not None and first <= record.position < end:
                headers = msgpack.packb(dict(record.headers)) if record.headers else None
                yield KeyRow(
                    record.key,
                    record.position,
                    record.term,
                    record.index,
                    record.timestamp,
                    record.value or None,
                    headers,
                )
