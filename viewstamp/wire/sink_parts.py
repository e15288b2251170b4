"""The records of a batch of a sink whose topics have streams: one msgpack map each. Pure.

An attempt is begun in group 0. What it stages for the streams of another group is a *part* of it, which BEGIN_PART
begins there. COMMIT_PARTS in group 0 commits the parts of all groups. The leader of each group then places its parts,
by a COMMIT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack

from viewstamp.errors import RequestError
from viewstamp.ids import GroupId, Stream
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.staged import ENTRY_SIZE, CommitRequest, decode_known, entries_of

__all__ = [
    "STREAMS_MAX",
    "AttemptPart",
    "PartsCommit",
    "attempt_of",
    "decode_begin_part",
    "decode_commit_parts",
    "encode_begin_part",
    "encode_drop",
    "encode_place",
    "is_part",
    "part_name",
    "read_parts",
]

_FIELDS = {
    Kind.BEGIN_PART: frozenset({"attempt", "sink"}),
    Kind.COMMIT_PARTS: frozenset({"sink", "owner", "run", "batch", "parts"}),
}
STREAMS_MAX = 512
"""The most streams of one batch of a sink, which one ORDER makes visible."""
_PREFIX = "-attempt "
"""No sink of a user has a name with this prefix."""
_NUMBER_MAX = 1 << 63


class AttemptPart(NamedTuple):
    """What an attempt has staged for the streams of one group.

    Attributes:
      attempt: the id of the attempt, in group 0.
      group: the group.
      part: the id of the part, in its group.
      entries: its staged batches, packed as those of a COMMIT.
      counts: the number of its records for each stream, by the name of the stream.
    """

    attempt: int
    group: GroupId
    part: int
    entries: bytes
    counts: tuple[tuple[str, int], ...]

    def pack(self) -> list[object]:
        """Return the part as plain values."""
        return [self.attempt, self.group, self.part, self.entries, [list(each) for each in self.counts]]


class PartsCommit(NamedTuple):
    """The content of a COMMIT_PARTS: these parts, in this order, become batch ``batch`` of ``sink``."""

    sink: str
    owner: str
    run: str
    batch: int
    parts: tuple[AttemptPart, ...]

    @property
    def attempts(self) -> CommitRequest:
        """The attempts of the parts, as a COMMIT names attempts that have staged nothing in group 0."""
        attempts = dict.fromkeys(part.attempt for part in self.parts)
        return CommitRequest(self.sink, self.owner, self.run, self.batch, [(attempt, b"") for attempt in attempts])

    @property
    def counts(self) -> dict[Stream, int]:
        """The number of records for each stream."""
        counts: dict[Stream, int] = {}
        for part in self.parts:
            for name, count in part.counts:
                stream = Stream(part.group, name)
                counts[stream] = counts.get(stream, 0) + count
        return counts


def part_name(attempt: int) -> str:
    """Return the name of the sink that a part is in the state of its group; ``attempt``: its id in group 0."""
    return f"{_PREFIX}{attempt}"


def is_part(sink: str) -> bool:
    """Return whether a sink of a group is the part of an attempt."""
    return sink.startswith(_PREFIX)


def attempt_of(sink: str) -> int:
    """Return the attempt of a part; ``sink`` as of :func:`part_name`."""
    return int(sink.removeprefix(_PREFIX))


def decode_begin_part(batch: Batch) -> tuple[int, str]:
    """Return the attempt of a BEGIN_PART, and the name of its sink. Raises RequestError, OutdatedCodeError."""
    attempt, sink = decode_known(batch, _FIELDS, attempt=int, sink=str)
    if not attempt:
        raise RequestError("a BEGIN_PART of attempt 0, which is none", remedy="begin an attempt in group 0 first")
    return attempt, sink


def decode_commit_parts(batch: Batch) -> PartsCommit:
    """Read the record of a COMMIT_PARTS. Raises RequestError, OutdatedCodeError."""
    sink, owner, run, number, packed = decode_known(batch, _FIELDS, sink=str, owner=str, run=str, batch=int, parts=list)
    try:
        commit = PartsCommit(sink, owner, run, number, read_parts(packed))
    except (ValueError, TypeError) as error:
        raise RequestError(f"a COMMIT_PARTS with parts that are none: {error}; nothing was committed") from error
    if len(commit.counts) > STREAMS_MAX:
        raise RequestError(
            f"batch {number} of sink {sink!r} has records for {len(commit.counts)} streams; the limit is {STREAMS_MAX},"
            " because they become visible by one record; nothing was committed",
            remedy="write to fewer topics at once",
        )
    return commit


def read_parts(packed: Sequence[Any]) -> tuple[AttemptPart, ...]:
    """Return the parts of :meth:`AttemptPart.pack`. Raises ValueError or TypeError if these are none."""
    parts: list[AttemptPart] = []
    for each in packed:
        attempt, group, part, entries, counts = each
        are_ids = all(type(number) is int and 0 < number < _NUMBER_MAX for number in (attempt, group, part))
        if not are_ids or type(entries) is not bytes:
            raise ValueError(f"{brief_repr(each)} is no part")
        names = [name for name, _ in counts]
        if not names or len(set(names)) < len(names) or not all(type(name) is str and name for name in names):
            raise ValueError(f"the streams {brief_repr(names)} of a part")
        if not entries or len(entries) % ENTRY_SIZE or not all(type(count) is int and count > 0 for _, count in counts):
            raise ValueError(f"{len(entries)} bytes of entries with the counts {brief_repr(counts)}")
        if sum(count for _, count in counts) != sum(entry.count for entry in entries_of(entries)):
            raise ValueError(f"entries that do not have the records {brief_repr(counts)}")
        parts.append(
            AttemptPart(attempt, GroupId(group), part, entries, tuple((name, count) for name, count in counts))
        )
    if not parts or len({(part.attempt, part.group) for part in parts}) < len(parts):
        raise ValueError("there is none, or an attempt has two in one group")
    return tuple(parts)


def encode_begin_part(attempt: int, sink: str) -> Batch:
    """Return the record of a group that begins the part of an attempt of group 0, which is of the sink ``sink``."""
    return build_batch([msgpack.packb({"attempt": attempt, "sink": sink})], kind=Kind.BEGIN_PART)


def encode_place(part: AttemptPart, sink: str) -> Batch:
    """Return the record of a group that gives the records of a committed part their local positions."""
    fields = {
        "sink": part_name(part.attempt),
        "owner": sink,
        "run": "",
        "batch": 0,
        "parts": [[part.part, part.entries]],
    }
    return build_batch([msgpack.packb(fields)], kind=Kind.COMMIT)


def encode_drop(attempt: int) -> Batch:
    """Return the record of a group that drops the part of an attempt, or forgets where it has placed it."""
    return build_batch([msgpack.packb({"name": part_name(attempt)})], kind=Kind.FORGET_SINK)
