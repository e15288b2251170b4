"""Spread topics: the names of their streams, the slots of their records, and the records about them. Pure.

A record falls into a slot by its key, and the *ranges* of the topic assign each slot to a stream. Members and clients
use the same functions, because a record that is sent to another stream is out of the order of its key.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgpack

from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.checksum import crc32c

__all__ = [
    "SLOTS",
    "STREAM_NUMBERS_MAX",
    "encode_add_stream",
    "encode_configure_spread",
    "encode_spread",
    "encode_spread_archive",
    "encode_spread_schema",
    "encode_trim_spread",
    "slot_of",
    "slot_ranges",
    "stream_name",
    "topic_of",
]

SLOTS = 4093
"""The number of slots of a new spread topic or actor. A prime, because a CRC is linear: modulo 4,096 the keys 0-0 to
7-7 have only two streams of four. What an earlier release has spread keeps its own number, 4,096."""
STREAM_NUMBERS_MAX = 1024
"""The highest number of a stream. A topic has at most 256 streams at a time; the numbers of removed ones stay used."""


def stream_name(topic: str, stream: int) -> str:
    """Return the name of the stream of this number, from 1 on: that of its topic in the state of its group."""
    return f"{topic}.{stream}"


def topic_of(stream: str) -> str:
    """Return the spread topic of a stream by the name of the stream; of another name a text that is of no use."""
    return stream.rpartition(".")[0]


def slot_of(key: bytes, slots: int) -> int:
    """Return the slot of a key, from 0 on: its CRC-32C modulo the number of slots, the same in each language."""
    return int(crc32c(key)) % slots


def slot_ranges(slots: int, streams: int) -> list[tuple[int, int]]:
    """Divide the slots from 0 to ``slots - 1`` among the streams: (first slot, stream), by the first slot.

    A range ends before the next one, and the last one at ``slots``. Their lengths differ by one at most.
    """
    return [(slots * (stream - 1) // streams, stream) for stream in range(1, streams + 1)]


def encode_spread(
    name: str,
    groups: Sequence[int],
    *,
    slots: int = SLOTS,
    retain_bytes: int = 0,
    retain_seconds: float = 0.0,
    are_named: bool = False,
    by: str = "",
) -> Batch:
    """Return the record that creates a spread topic.

    Args:
      name: its name.
      groups: the group of each stream, by its number.
      slots: the number of its slots.
      retain_bytes: the retention of each stream; 0 = everything.
      retain_seconds: the same in seconds of log time.
      are_named: whether the caller has named the groups, so that a topic with other groups is not the one it wants.
      by: the caller for the audit log; "" = none is known.
    """
    fields: dict[str, object] = {
        "name": name,
        "retain_bytes": retain_bytes,
        "retain_seconds": float(retain_seconds),
        "slots": slots,
        "groups": list(groups),
        "are_named": are_named,
    }
    return build_batch([msgpack.packb({**fields, "by": by} if by else fields)], kind=Kind.SPREAD_TOPIC)


def encode_configure_spread(
    name: str, *, since: int, retain_bytes: int | None = None, retain_seconds: float | None = None, by: str = ""
) -> Batch:
    """Return the record that changes the retention of a spread topic.

    Args:
      name: its name.
      since: ``configured`` of the topic as the caller read it before it sent the request.
      retain_bytes: the retention of each stream; 0 = everything, None = unchanged.
      retain_seconds: the same in seconds of log time.
      by: the caller for the audit log; "" = none is known.
    """
    fields = {"name": name, "retain_bytes": retain_bytes, "retain_seconds": retain_seconds, "since": since}
    return build_batch([msgpack.packb({**fields, "by": by} if by else fields)], kind=Kind.CONFIGURE_SPREAD)


def encode_spread_archive(
    name: str,
    *,
    since: int,
    retain_bytes: int | None = None,
    retain_seconds: float | None = None,
    is_on: bool | None = None,
    after_seconds: float | None = None,
    delay_seconds: float | None = None,
    delete_seconds: float | None = None,
    by: str = "",
) -> Batch:
    """Return the record that changes the archive settings of a spread topic; None = unchanged.

    ``since`` and ``by`` as above; the ages are seconds of log time.
    """
    fields = {
        "retain_bytes": retain_bytes,
        "retain_seconds": retain_seconds,
        "is_on": is_on,
        "after_seconds": after_seconds,
        "delay_seconds": delay_seconds,
        "delete_seconds": delete_seconds,
    }
    given = {"name": name, "since": since, **{each: value for each, value in fields.items() if value is not None}}
    return build_batch([msgpack.packb({**given, "by": by} if by else given)], kind=Kind.CONFIGURE_SPREAD_ARCHIVE)


def encode_trim_spread(name: str, position: int, *, by: str = "") -> Batch:
    """Return the record that trims a spread topic to the first global position to keep; ``by`` as above."""
    fields: dict[str, object] = {"name": name, "position": position}
    return build_batch([msgpack.packb({**fields, "by": by} if by else fields)], kind=Kind.TRIM_SPREAD)


def encode_spread_schema(name: str, schema: str, *, by: str = "") -> Batch:
    """Return the record that sets the schema of a spread topic, or replaces it by a wider one; ``by`` as above."""
    fields: dict[str, object] = {"name": name, "schema": schema}
    return build_batch([msgpack.packb({**fields, "by": by} if by else fields)], kind=Kind.CONFIGURE_SPREAD_SCHEMA)


def encode_add_stream(name: str, stream: int, group: int, *, is_named: bool = False, by: str = "") -> Batch:
    """Return the record that adds a stream without slots to a spread topic.

    Args:
      name: the name of the topic.
      stream: the number of the new stream.
      group: the id of its group.
      is_named: whether the caller has named the group, so that a stream in another one is not what it wants.
      by: the caller for the audit log; "" = none is known.
    """
    fields: dict[str, object] = {"name": name, "stream": stream, "group": group, "is_named": is_named}
    return build_batch([msgpack.packb({**fields, "by": by} if by else fields)], kind=Kind.ADD_STREAM)
