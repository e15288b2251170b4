"""A topic: its name, how far it reaches, and where in the log its records are."""

from __future__ import annotations

import re
import struct
from array import array
from bisect import bisect_right
from typing import Any

from viewstamp.errors import RequestError
from viewstamp.ids import Index, Position, TopicId
from viewstamp.wire.batch import Batch

__all__ = ["NAME_PATTERN", "Topic", "check_name"]

NAME_PATTERN = "[A-Za-z0-9._-]{1,128}"
_NAME = re.compile(NAME_PATTERN)
_OWN_BYTES = 64 * 1024
"""A new entry of the sparse map is made once this many bytes of the topic lie behind the latest one ..."""
_LOG_BYTES = 1024 * 1024
"""... or this many bytes of the whole log: what a reader scans in vain is bounded in a busy log too."""


class Topic:
    """The applied state of one topic.

    Invariants:
      * ``first_position <= next_position``; equal = empty
      * entries of the sparse map rise strictly in position and in index, and each names the first record of a batch
    """

    __slots__ = (
        "_entry_at_bytes",
        "_entry_at_log_bytes",
        "_indices",
        "_positions",
        "bytes",
        "end",
        "first_position",
        "id",
        "name",
        "next_position",
    )

    def __init__(self, topic_id: TopicId, name: str) -> None:
        self.id = topic_id
        self.name = name
        self.first_position = Position(1)
        self.next_position = Position(1)
        self.bytes = 0
        """Bytes of the topic's batches, headers included."""
        self.end = Index(0)
        """The index after the topic's last record; 0 = it has none."""
        self._positions = array("Q")
        self._indices = array("Q")
        self._entry_at_bytes = 0
        self._entry_at_log_bytes = 0

    def extend(self, batch: Batch, log_bytes: int) -> None:
        """Take the topic's next batch; ``log_bytes`` = bytes of all batches that were applied before it."""
        if (
            not self._positions
            or self.bytes - self._entry_at_bytes >= _OWN_BYTES
            or log_bytes - self._entry_at_log_bytes >= _LOG_BYTES
        ):
            self._positions.append(self.next_position)
            self._indices.append(batch.first_index)
            self._entry_at_bytes = self.bytes
            self._entry_at_log_bytes = log_bytes
        self.bytes += batch.size
        self.next_position = Position(self.next_position + batch.count)
        self.end = batch.end

    def locate(self, position: int) -> Index:
        """Return the index from which a forward scan finds ``position``: at or before its batch.

        For a position that the topic has not reached: the index after its last record, or 1 where it is empty.
        """
        if position >= self.next_position:
            return Index(max(self.end, 1))
        at = bisect_right(self._positions, position) - 1
        return Index(self._indices[max(at, 0)])

    def describe(self) -> dict[str, object]:
        """Return the topic as the wire and people see it; ``last_position`` is inclusive, 0 = empty."""
        return {
            "id": self.id,
            "name": self.name,
            "first_position": self.first_position,
            "last_position": self.next_position - 1,
            "bytes": self.bytes,
        }

    def image(self) -> list[object]:
        """Return the state as plain values."""
        return [
            self.id,
            self.name,
            self.first_position,
            self.next_position,
            self.bytes,
            self.end,
            struct.pack(f"<{len(self._positions)}Q", *self._positions),
            struct.pack(f"<{len(self._indices)}Q", *self._indices),
            self._entry_at_bytes,
            self._entry_at_log_bytes,
        ]

    @classmethod
    def from_image(cls, image: list[Any]) -> Topic:
        """Rebuild what :meth:`image` returned."""
        topic = cls(TopicId(image[0]), image[1])
        topic.first_position = Position(image[2])
        topic.next_position = Position(image[3])
        topic.bytes = image[4]
        topic.end = Index(image[5])
        topic._positions = array("Q", struct.unpack(f"<{len(image[6]) // 8}Q", image[6]))
        topic._indices = array("Q", struct.unpack(f"<{len(image[7]) // 8}Q", image[7]))
        topic._entry_at_bytes = image[8]
        topic._entry_at_log_bytes = image[9]
        return topic


def check_name(name: object) -> str:
    """Return ``name`` if a topic may be called so.

    Raises:
      RequestError: it may not.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestError(
            f"a topic cannot be named {name!r}",
            remedy="take 1 to 128 letters, digits, dots, underscores or hyphens",
        )
    return name
