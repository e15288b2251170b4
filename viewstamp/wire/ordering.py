"""The records that give the records of streams their global positions: one msgpack map each. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack

from viewstamp.errors import FrameError
from viewstamp.ids import GlobalPosition, GroupId, Position, Stream
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.names import NAME_BYTES_MAX

__all__ = [
    "ENTRIES_MAX",
    "GlobalRun",
    "PlacedPart",
    "StreamReport",
    "encode_context",
    "encode_order",
    "read_parts_report",
    "read_reports",
]

ENTRIES_MAX = 1024
"""The most streams in one ORDER, and in one message with reports."""
_NUMBER_MAX = 1 << 63


class StreamReport(NamedTuple):
    """What a leader of a stream knows to be committed. It is true for ever, so it may be late, doubled or lost.

    Attributes:
      stream: the stream.
      end: the local position after its last committed record.
      mapped: the local position after the last record whose run is in a committed CONTEXT.
      is_sealed: whether a committed SEAL_STREAM follows the last record, so that ``end`` never moves again.
    """

    stream: Stream
    end: Position
    mapped: Position
    is_sealed: bool = False


class PlacedPart(NamedTuple):
    """Where the records of a batch of a sink end in a stream. It is true for ever, as a report.

    Attributes:
      stream: the stream.
      commit: the index of the COMMIT_PARTS.
      end: the local position after the last of these records.
    """

    stream: Stream
    commit: int
    end: Position


class GlobalRun(NamedTuple):
    """Records of one stream with consecutive positions in it, and consecutive global positions.

    Attributes:
      version: the number of the ORDER that gave the positions, counted over those that gave any.
      position: the global position of the first record.
      local: the position of the first record in its stream.
      length: the number of records.
    """

    version: int
    position: GlobalPosition
    local: Position
    length: int

    @property
    def end(self) -> Position:
        """The local position after the last record."""
        return Position(self.local + self.length)


def encode_order(reports: Sequence[StreamReport], commits: Sequence[int] = ()) -> Batch:
    """Return the record of group 0 that moves the ordered ends of streams.

    Args:
      reports: the ends, rising by stream.
      commits: the commits of sinks that it releases, rising.
    """
    ends = [[each.stream.group, each.stream.name, each.end, each.mapped] for each in reports]
    fields: dict[str, object] = {"ends": ends}
    return build_batch([msgpack.packb({**fields, "commits": [*commits]} if commits else fields)], kind=Kind.ORDER)


def encode_context(stream: str, runs: Sequence[GlobalRun]) -> Batch:
    """Return the record with ``runs`` for the log of the stream to which they belong. ``stream``: its name there."""
    return build_batch([msgpack.packb({"stream": stream, "runs": [list(run) for run in runs]})], kind=Kind.CONTEXT)


def read_parts_report(group: GroupId, parts: Sequence[Any]) -> list[PlacedPart]:
    """Return the placed parts in a message about ``group``: [name, commit, end] of each.

    Raises:
      FrameError: an entry is none, or there are more than ``ENTRIES_MAX``.
    """
    if len(parts) > ENTRIES_MAX:
        raise FrameError(f"a peer reports {len(parts)} parts at once")
    found: list[PlacedPart] = []
    for entry in parts:
        if type(entry) is not list or list(map(type, entry)) != [str, int, int]:
            raise FrameError(f"a peer sent a part of a batch that is none: {brief_repr(entry)}")
        name, commit, end = entry
        if not (0 < len(name) <= NAME_BYTES_MAX and 0 < commit < _NUMBER_MAX and 1 < end < _NUMBER_MAX):
            raise FrameError(f"a peer sent a part of a batch that is none: {brief_repr(entry)}")
        found.append(PlacedPart(Stream(group, name), commit, Position(end)))
    return found


def read_reports(group: GroupId, ends: Sequence[Any]) -> list[StreamReport]:
    """Return the reports in a message about the streams of ``group``: [name, end, mapped] of each.

    That of a sealed stream has a fourth value, True, which a release before refuses.

    Raises:
      FrameError: an entry is no report, or there are more than ``ENTRIES_MAX``.
    """
    if len(ends) > ENTRIES_MAX:
        raise FrameError(f"a peer reports the ends of {len(ends)} streams at once")
    reports: list[StreamReport] = []
    for entry in ends:
        types = list(map(type, entry)) if type(entry) is list else []
        if types[:3] != [str, int, int] or types[3:] not in ([], [bool]) or entry[3:] == [False]:
            raise FrameError(f"a peer sent a report of a stream that is none: {brief_repr(entry)}")
        name, end, mapped = entry[:3]
        if not (0 < len(name) <= NAME_BYTES_MAX and 1 <= mapped <= end < _NUMBER_MAX):
            raise FrameError(f"a peer sent a report of a stream that is none: {brief_repr(entry)}")
        reports.append(StreamReport(Stream(group, name), Position(end), Position(mapped), len(entry) > 3))
    return reports
