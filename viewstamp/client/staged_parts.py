"""The parts of an attempt: what it stages for topics with streams, in the groups of the streams.

| step | where | the next step begins when |
| --- | --- | --- |
| the attempt is begun | group 0 | it has an id |
| a part is begun, with the first block for a group | the group | it has an id |
| blocks are staged, each for one stream | the group | all are acknowledged |
| each part is sealed, then the attempt | the groups, then group 0 | all have answered |
| the batch is committed | group 0 | it is visible: the order of its topics has passed over all parts |

A block with keys is divided by the streams of the keys, as appends are. The rows without a key go to one open stream,
another one for each block.
"""

from __future__ import annotations

from collections.abc import Mapping

from viewstamp.client.results import SpreadTopicInfo
from viewstamp.ids import GroupId
from viewstamp.wire.batch import Columns, Kind, build_batch, build_columns
from viewstamp.wire.sink_parts import AttemptPart
from viewstamp.wire.spreading import slot_of
from viewstamp.wire.staged import StagedBatch, pack_entry

__all__ = ["StagedPart", "divide"]


class StagedPart:
    """The part of an attempt in one group, as its writer has it."""

    __slots__ = ("_counts", "_entries", "group", "id")

    def __init__(self, group: GroupId, part: int) -> None:
        self.group = group
        self.id = part
        self._entries: list[StagedBatch] = []
        self._counts: dict[str, int] = {}

    @property
    def batches(self) -> int:
        """The number of acknowledged blocks."""
        return len(self._entries)

    @property
    def size(self) -> int:
        """The bytes of the acknowledged blocks."""
        return sum(entry.size for entry in self._entries)

    @property
    def records(self) -> int:
        """The number of records in the acknowledged blocks."""
        return sum(self._counts.values())

    def add(self, stream: str, entry: StagedBatch) -> None:
        """Add a block that was acknowledged."""
        self._entries.append(entry)
        self._counts[stream] = self._counts.get(stream, 0) + entry.count

    def entries(self) -> bytes:
        """Return the blocks as SEAL_ATTEMPT and COMMIT_PARTS count them: in the order of the log."""
        return b"".join(pack_entry(*entry) for entry in sorted(self._entries))

    def sealed(self, attempt: int) -> AttemptPart:
        """Return the part for COMMIT_PARTS."""
        return AttemptPart(attempt, self.group, self.id, self.entries(), tuple(sorted(self._counts.items())))


def divide(topic: SpreadTopicInfo, columns: Columns, turn: int) -> dict[int, Columns]:
    """Return the rows of a block for each stream, in their order.

    Args:
      topic: the topic.
      columns: the rows, at least one.
      turn: the number of the block; decides about the rows without a key.
    """
    open_streams = topic.open_streams
    without_key = open_streams[turn % len(open_streams)]
    if columns.keys is None:
        return {without_key: columns}
    rows: dict[int, tuple[list[bytes], list[bytes | None], list[Mapping[str, bytes] | None]]] = {}
    for record in build_columns(columns, kind=Kind.STAGED).records():
        key = record.key
        stream = without_key if key is None else topic.stream_of(slot_of(key, topic.slots))
        values, keys, headers = rows.setdefault(stream, ([], [], []))
        values.append(record.value)
        keys.append(key)
        headers.append(record.headers)
    if len(rows) == 1:
        return dict.fromkeys(rows, columns)
    return {
        stream: build_batch(values, kind=Kind.STAGED, keys=keys, headers=headers).columns()
        for stream, (values, keys, headers) in rows.items()
    }
