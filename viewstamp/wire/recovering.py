"""The records behind those of a fork with which a recovery brings several groups in step: one msgpack map each. Pure.

``viewstamp.fork.recovery`` writes them; no leader ever does. ``streams/recovering.py`` has their rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack

from viewstamp.errors import RequestError
from viewstamp.ids import GlobalPosition, GroupId, Position, Stream
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.ordering import GlobalRun
from viewstamp.wire.staged import decode_known

__all__ = [
    "RecoveredOrder",
    "RecoveredStream",
    "RecoveredTopic",
    "decode_recovered",
    "decode_set_aside",
    "encode_recovered",
    "encode_set_aside",
]

_FIELDS = {
    Kind.RECOVER_ORDER: frozenset({"version", "topics", "streams", "commits", "batches"}),
    Kind.SET_ASIDE: frozenset({"streams"}),
}


class RecoveredTopic(NamedTuple):
    """The order of one spread topic, as a recovery leaves it.

    Attributes:
      name: its name.
      next_position: the next global position.
      lost_from, lost_to: positions in [lost_from, lost_to) may belong to no record any more; 0, 0 = none is lost.
    """

    name: str
    next_position: GlobalPosition
    lost_from: int
    lost_to: int


class RecoveredStream(NamedTuple):
    """The order of one stream, as a recovery leaves it: its map ends at ``forgotten``, and ``runs`` follow."""

    stream: Stream
    forgotten: Position
    runs: tuple[GlobalRun, ...]

    @property
    def end(self) -> Position:
        """The ordered end."""
        return self.runs[-1].end if self.runs else self.forgotten


class RecoveredOrder(NamedTuple):
    """The content of a RECOVER_ORDER.

    Attributes:
      version: the number of ORDERs that gave positions.
      topics, streams: those whose order changes.
      commits: the indices of the pending commits that are not pending any more.
      batches: for each sink whose last batch was dropped, its name and the number of the batch before.
    """

    version: int
    topics: tuple[RecoveredTopic, ...]
    streams: tuple[RecoveredStream, ...]
    commits: tuple[int, ...] = ()
    batches: tuple[tuple[str, int], ...] = ()


def encode_recovered(found: RecoveredOrder) -> Batch:
    """Return the record of group 0."""
    fields = {
        "version": found.version,
        "topics": [list(each) for each in found.topics],
        "streams": [[*each.stream, each.forgotten, [list(run) for run in each.runs]] for each in found.streams],
        "commits": list(found.commits),
        "batches": [list(each) for each in found.batches],
    }
    return build_batch([msgpack.packb(fields)], kind=Kind.RECOVER_ORDER)


def decode_recovered(batch: Batch) -> RecoveredOrder:
    """Return the content of a RECOVER_ORDER; its numbers are not checked. Raises RequestError, OutdatedCodeError."""
    version, topics, streams, commits, batches = decode_known(
        batch, _FIELDS, version=int, topics=list, streams=list, commits=list, batches=list
    )
    try:
        return RecoveredOrder(
            version,
            tuple(RecoveredTopic(*each) for each in topics),
            tuple(
                RecoveredStream(
                    Stream(GroupId(group), name), Position(forgotten), tuple(GlobalRun(*run) for run in runs)
                )
                for group, name, forgotten, runs in streams
            ),
            tuple(commits),
            tuple((sink, number) for sink, number in batches),
        )
    except (TypeError, ValueError) as error:
        raise RequestError(f"a RECOVER_ORDER with {brief_repr(batch.values()[0])}") from error


def encode_set_aside(streams: Sequence[str]) -> Batch:
    """Return the record of a group that sets streams aside which group 0 does not know."""
    return build_batch([msgpack.packb({"streams": list(streams)})], kind=Kind.SET_ASIDE)


def decode_set_aside(batch: Batch) -> list[Any]:
    """Return the names of the streams in a SET_ASIDE. Raises RequestError, OutdatedCodeError."""
    (streams,) = decode_known(batch, _FIELDS, streams=list)
    return list(streams)
