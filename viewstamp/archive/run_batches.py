"""The records of a row group as batches, for readers. Needs pyarrow.

Consecutive records with one term, one log time and rising indices become one batch, as long as it is small. So a batch
here may hold the records of several batches of the log, or a part of one. Readers see no difference, because each
record has its own position, term, index and log time, and the batches of an answer follow one another by position.
"""

from __future__ import annotations

from array import array
from typing import Any, Final

from viewstamp.errors import CorruptionError
from viewstamp.ids import Index, Position, Term, TopicId
from viewstamp.node.archived import LoadedRecords
from viewstamp.wire.batch import Column, Columns, build_columns

__all__ = ["encode_records"]

_BATCH_BYTES: Final = 64 * 1024
"""A batch ends with the record that reaches this number of bytes: a reader that asks for less gets more than that."""
_BATCH_RECORDS: Final = 1024


def encode_records(table: Any, first: int, topic: TopicId) -> LoadedRecords:
    """Return the records of a verified row group, whose first position is ``first``, as batches of a topic.

    Raises:
      CorruptionError: its positions do not rise by one, so the file was written by another program.
    """
    count = table.num_rows
    positions, terms, indices, times = (
        _numbers(table[name], count) for name in ("position", "term", "index", "timestamp")
    )
    if positions[0] != first or positions[-1] != first + count - 1:
        raise CorruptionError(
            f"a row group of topic {topic} has positions {positions[0]} to {positions[-1]},"
            f" expected are {first} to {first + count - 1}",
            expected=f"positions {first} to {first + count - 1}",
            found=f"positions {positions[0]} to {positions[-1]}",
            remedy="keep the object, and put an intact copy in its place",
        )
    values, keys, headers = (_Strings(table[name]) for name in ("value", "key", "headers"))
    data = bytearray()
    firsts, starts = array("Q"), array("Q")
    start = 0
    while start < count:
        end = _end_of_batch(start, count, terms, indices, times, values.offsets)
        validity = keys.validity(start, end)
        batch = build_columns(
            Columns(
                end - start,
                values.slice(start, end),
                validity,
                None if validity is None else keys.slice(start, end),
                headers.slice(start, end) if headers.has_bytes(start, end) else None,
            ),
            topic=topic,
        )
        batch.stamp(
            term=Term(terms[start]),
            first_index=Index(indices[start]),
            previous_term=Term(0),
            log_time=times[start],
            first_position=Position(first + start),
        )
        firsts.append(first + start)
        starts.append(len(data))
        data += batch.buffer
        start = end
    return LoadedRecords(Position(first), Position(first + count), bytes(data), firsts, starts)


def _end_of_batch(
    start: int, count: int, terms: array[int], indices: array[int], times: array[int], offsets: memoryview
) -> int:
    term, time, index, full = terms[start], times[start], indices[start] - start, offsets[start] + _BATCH_BYTES
    end = start + 1
    last = min(count, start + _BATCH_RECORDS)
    while (
        end < last and offsets[end] < full and indices[end] == index + end and times[end] == time and terms[end] == term
    ):
        end += 1
    return end


class _Strings:
    """A column of byte strings: its offsets, of which there is one more than it has items, and its bytes."""

    def __init__(self, column: Any) -> None:
        joined = column.combine_chunks()
        bits, offsets, data = joined.buffers()
        at = joined.offset
        self.offsets = memoryview(offsets).cast("B").cast("i")[at : at + len(joined) + 1]
        self._data = memoryview(b"" if data is None else data).cast("B")
        self._count = len(joined)
        self._is_valid = _valid(joined) if joined.null_count else None
        self._are_all_valid = (joined.null_count == 0 and bits is None) or not joined.null_count

    def slice(self, start: int, end: int) -> Column:
        """Return items as a column whose offsets begin at 0."""
        offsets = self.offsets[start : end + 1]
        low = offsets[0]
        moved = array("i", offsets if low == 0 else [offset - low for offset in offsets])
        return Column(moved.tobytes(), self._data[low : offsets[-1]])

    def has_bytes(self, start: int, end: int) -> bool:
        """Return whether an item is not empty."""
        return self.offsets[start] != self.offsets[end]

    def validity(self, start: int, end: int) -> bytes | None:
        """Return a bit for each item, least significant first, 1 = it is not null; None = all are null."""
        count = end - start
        if self._is_valid is None:
            return ((1 << count) - 1).to_bytes((count + 7) // 8, "little")
        bits = sum(1 << i for i in range(count) if self._is_valid[start + i])
        return bits.to_bytes((count + 7) // 8, "little") if bits else None


def _valid(joined: Any) -> bytes:
    """Return a byte for each item of an array, 1 = it is not null."""
    return bytes(map(int, joined.is_valid().to_pylist()))


def _numbers(column: Any, count: int) -> array[int]:
    """Return a column of 64-bit numbers."""
    numbers = array("q")
    for chunk in column.chunks:
        view = memoryview(chunk.buffers()[1]).cast("B")[chunk.offset * 8 : (chunk.offset + len(chunk)) * 8]
        numbers.frombytes(view)
    assert len(numbers) == count, "the schema has no null numbers"
    return numbers
