"""Columns of byte strings, cut and joined without decoding the records. Pure."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

from viewstamp.wire.batch import Buffer, Column, Columns

__all__ = ["join_columns", "offsets_of", "slice_columns"]


def offsets_of(column: Column) -> array[int]:
    """Return a column's offsets, one more than it has items, in this machine's byte order."""
    offsets = array("i")
    offsets.frombytes(column.offsets)
    if sys.byteorder == "big":
        offsets.byteswap()
    return offsets


def slice_columns(columns: Columns, start: int, end: int) -> Columns:
    """Return the records ``[start, end)``. If these are all records, nothing is copied."""
    if (start, end) == (0, columns.count):
        return columns
    validity: bytes | None = None
    if columns.validity is not None:
        bits = int.from_bytes(columns.validity, "little") >> start & ((1 << end - start) - 1)
        validity = bits.to_bytes((end - start + 7) // 8, "little")
    return Columns(
        end - start,
        _slice(columns.values, start, end),
        validity,
        None if columns.keys is None else _slice(columns.keys, start, end),
        None if columns.headers is None else _slice(columns.headers, start, end),
    )


def join_columns(parts: Sequence[Columns]) -> Columns:
    """Return the records of all ``parts`` (at least one) in order. Parts without keys or headers get empty ones."""
    if len(parts) == 1:
        return parts[0]
    count = sum(part.count for part in parts)
    validity: bytes | None = None
    keys: Column | None = None
    headers: Column | None = None
    if any(part.keys is not None for part in parts):
        keys = _join([part.keys or _empty(part.count) for part in parts])
        bits = at = 0
        for part in parts:
            if part.validity is not None:
                bits |= (int.from_bytes(part.validity, "little") & ((1 << part.count) - 1)) << at
            at += part.count
        validity = bits.to_bytes((count + 7) // 8, "little")
    if any(part.headers is not None for part in parts):
        headers = _join([part.headers or _empty(part.count) for part in parts])
    return Columns(count, _join([part.values for part in parts]), validity, keys, headers)


def _empty(count: int) -> Column:
    return Column(bytes(4 * (count + 1)), b"")


def _slice(column: Column, start: int, end: int) -> Column:
    offsets = offsets_of(column)
    first = offsets[start]
    data = memoryview(column.data)[first : offsets[end]]
    return Column(_pack(array("i", [offset - first for offset in offsets[start : end + 1]])), data)


def _join(columns: Sequence[Column]) -> Column:
    joined = array("i", [0])
    data: list[Buffer] = []
    for column in columns:
        shift = joined[-1]
        offsets = offsets_of(column)
        joined.extend(offsets[1:] if shift == 0 else [offset + shift for offset in offsets[1:]])
        data.append(column.data)
    return Column(_pack(joined), b"".join(data))


def _pack(offsets: array[int]) -> bytes:
    if sys.byteorder == "big":
        offsets.byteswap()
    return offsets.tobytes()
