"""Damages the files of a node, for ``viewstamp chaos``: chooses a place, changes real bytes, and reports them.

It damages acknowledged bytes, but never the last group of a log, because damage there cannot be distinguished from a
write that a power cut has torn, and is cut off as a torn tail.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from viewstamp.errors import ConfigError, StorageError
from viewstamp.host.disk import RealDisk
from viewstamp.wal.format import parse_segment_name, segment_name
from viewstamp.wal.offline import InspectedItem, inspect

__all__ = ["Damage", "drop_segment", "flip_bit", "tear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A damage that was done: ``sentence`` for people, the rest for programs. It begins at ``byte`` of ``path``.

    ``is_newest``: the file is the segment that is still written; a running node does not check it again.
    """

    sentence: str
    path: str
    byte: int
    bytes: int
    is_newest: bool


@dataclass(frozen=True, slots=True)
class _Span:
    """The bytes ``start`` to ``end`` of a segment, with the records ``first_index`` to ``last_index``."""

    start: int
    end: int
    first_index: int
    last_index: int

    @property
    def records(self) -> str:
        """The records in the span, in words."""
        if self.first_index == self.last_index:
            return f"the record of index {self.first_index}"
        return f"the records of index {self.first_index} to {self.last_index}"


def flip_bit(directory: str, *, segment: int | None = None, byte: int | None = None) -> Damage:
    """Flip one bit in the log of a node's data directory: of ``byte`` in ``segment``, or in any record.

    Raises:
      ConfigError: there is no such byte, or the log holds too few records.
      StorageError: the file cannot be written.
    """
    path, is_newest = _segment(directory, segment)
    inside = ""
    if byte is None:
        span = random.SystemRandom().choice(_spans(path, "batch"))
        byte = random.SystemRandom().randrange(span.start, span.end)
        inside = f", in {span.records}"
    elif not 0 <= byte < os.path.getsize(path):
        raise ConfigError(f"{path} has no byte {byte}", remedy=f"name one from 0 to {os.path.getsize(path) - 1}")
    (before,) = _read(path, byte, 1)
    after = before ^ 1 << random.SystemRandom().randrange(8)
    _write(path, byte, bytes([after]))
    return Damage(
        sentence=f"flipped a bit of byte {byte} of {os.path.relpath(path)} from {before:#04x} to {after:#04x}{inside}",
        path=path,
        byte=byte,
        bytes=1,
        is_newest=is_newest,
    )


def tear(directory: str, *, segment: int | None = None) -> Damage:
    """Replace the second half of a group by zeros, as a disk leaves it that lost part of a write.

    Raises:
      ConfigError, StorageError: as :func:`flip_bit`.
    """
    path, is_newest = _segment(directory, segment)
    span = random.SystemRandom().choice(_spans(path, "group"))
    start = (span.start + span.end) // 2
    _write(path, start, bytes(span.end - start))
    return Damage(
        sentence=f"tore a write of {span.end - span.start} bytes with {span.records}: the bytes {start} to "
        f"{span.end - 1} of {os.path.relpath(path)} are now zeros",
        path=path,
        byte=start,
        bytes=span.end - start,
        is_newest=is_newest,
    )


def drop_segment(directory: str, *, segment: int | None = None) -> Damage:
    """Delete a segment file of the log: not the newest, if there are several.

    Raises:
      ConfigError, StorageError: as :func:`flip_bit`.
    """
    path, is_newest = _segment(directory, segment)
    size = os.path.getsize(path)
    try:
        os.remove(path)
    except OSError as error:
        raise StorageError(f"cannot delete {path}: {error.strerror}", remedy="let this user write there") from error
    return Damage(
        sentence=f"deleted {os.path.relpath(path)}, {size} bytes", path=path, byte=0, bytes=size, is_newest=is_newest
    )


def _segment(directory: str, number: int | None) -> tuple[str, bool]:
    """Return the path of segment ``number``, and whether it is the newest; None = any but the newest, if possible."""
    wal = os.path.join(directory, "wal")
    numbers = sorted(found for name in _names(wal) if (found := parse_segment_name(name)) is not None)
    if number is None and numbers:
        number = random.SystemRandom().choice(numbers[:-1] or numbers)
    if number is None or number not in numbers:
        there = f"there are {', '.join(map(str, numbers))}" if numbers else "there is none"
        raise ConfigError(
            f"{wal} has no segment {'' if number is None else number}".rstrip() + f"; {there}",
            remedy="name one of these with --segment, or leave --segment out" if numbers else "append a record first",
        )
    return os.path.join(wal, segment_name(number)), number == numbers[-1]


def _names(directory: str) -> Sequence[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return ()


def _spans(path: str, kind: str) -> list[_Span]:
    """Return the bytes of the groups, or the batches, of a segment, without those of its last group.

    Raises:
      ConfigError: there are none.
    """
    spans: list[list[_Span]] = []  # by group
    for group in _groups(path):
        batches = [_span(entry) for entry in group[1:]]
        if batches:
            whole = _Span(group[0].location, _end(group[0]), batches[0].first_index, batches[-1].last_index)
            spans.append(batches if kind == "batch" else [whole])
        else:
            spans.append([])  # An empty group, which only marks the one before as durable.
    found = [span for group_spans in spans[:-1] for span in group_spans]
    if not found:
        raise ConfigError(
            f"{path} has only one write: damage to the last write cannot be distinguished from a power cut",
            remedy="append a record and try again, or name another segment with --segment",
        )
    return found


def _groups(path: str) -> Iterator[list[InspectedItem]]:
    """Yield each group of a segment, followed by its batches."""
    group: list[InspectedItem] = []
    for entry in inspect(RealDisk(), path):
        if entry.kind == "group" or entry.kind == "end":
            if group:
                yield group
            group = [entry]
        elif entry.kind == "batch":
            group.append(entry)


def _span(batch: InspectedItem) -> _Span:
    first_index, count = int(str(batch.fields["first_index"])), int(str(batch.fields["count"]))
    return _Span(batch.location, _end(batch), first_index, first_index + count - 1)


def _end(entry: InspectedItem) -> int:
    return entry.location + int(str(entry.fields["bytes"]))


def _read(path: str, offset: int, size: int) -> bytes:
    file = RealDisk().open_read(path)
    try:
        return file.read(offset, size)
    finally:
        file.close()


def _write(path: str, offset: int, data: bytes) -> None:
    file = RealDisk().open(path)
    try:
        file.write(offset, [data])
        file.sync()
    finally:
        file.close()
