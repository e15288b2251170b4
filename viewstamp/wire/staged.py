"""The records of BEGIN_ATTEMPT, SEAL_ATTEMPT, ABORT_ATTEMPTS, COMMIT and FORGET_SINK: one msgpack map each. Pure.

A COMMIT lists the entries of the staged batches to which it assigns positions. So a reader of the log finds them from
the COMMIT alone, and the state of a sink stays small however much was staged.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import msgpack

from viewstamp.errors import OutdatedCodeError, RequestError
from viewstamp.wire.batch import Batch, Buffer, Kind
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.names import NAME_BYTES_MAX

__all__ = [
    "ENTRY_SIZE",
    "CommitRequest",
    "StagedBatch",
    "decode_commit",
    "decode_fields",
    "decode_known",
    "decode_optional",
    "entries_of",
    "pack_entry",
]

_ENTRY = struct.Struct("<QIII")
ENTRY_SIZE = _ENTRY.size
assert ENTRY_SIZE == 20


class StagedBatch(NamedTuple):
    """One staged batch: its first index, its topic's id, its records, and its bytes with the header."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which no caller uses
    topic: int
    count: int  # type: ignore[assignment]
    size: int


class CommitRequest(NamedTuple):
    """The content of a COMMIT: these attempts, in this order, become batch ``batch`` of ``sink``."""

    sink: str
    owner: str
    run: str
    batch: int
    parts: list[tuple[int, bytes]]
    """(attempt, its entries packed) in the order in which their records shall stand."""


def pack_entry(index: int, topic: int, count: int, size: int) -> bytes:
    """Return the ``ENTRY_SIZE`` bytes of one staged batch."""
    return _ENTRY.pack(index, topic, count, size)


def entries_of(packed: Buffer) -> Iterator[StagedBatch]:
    """Yield the entries of a part. Raises ``struct.error`` where it is no whole number of them."""
    return map(StagedBatch._make, _ENTRY.iter_unpack(packed))


def decode_fields(batch: Batch, /, **wanted: type) -> list[Any]:
    """Return the values of a command's map that are named, in that order; numbers are in [0, 2^63).

    Raises:
      RequestError: it is no map, or a value is missing, of another type or too large.
    """
    return _values_of(batch, _fields_of(batch), wanted)


def _fields_of(batch: Batch) -> dict[Any, Any]:
    """Return a command's map. Raises RequestError."""
    fields: Any
    try:
        fields = msgpack.unpackb(batch.values()[0])
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise RequestError(f"the fields of a {batch.kind.name} are not valid MessagePack: {error!r}") from error
    if type(fields) is not dict:
        raise RequestError(f"a {batch.kind.name} that is no map: {brief_repr(fields)}")
    return fields


def _values_of(batch: Batch, fields: dict[Any, Any], wanted: Mapping[str, type]) -> list[Any]:
    """Return the values of a command's map that are named, as :func:`decode_fields`."""
    for name, kind in wanted.items():
        value: Any = fields.get(name)
        if type(value) is not kind:
            raise RequestError(
                f"a {batch.kind.name} whose {name} is {brief_repr(value)}", remedy="run the same release on both sides"
            )
        if isinstance(value, int) and not 0 <= value < 1 << 63:
            raise RequestError(f"a {batch.kind.name} whose {name} is {value}", remedy="give a number in [0, 2^63)")
        if isinstance(value, str) and len(value.encode(errors="replace")) > NAME_BYTES_MAX:
            raise RequestError(
                f"a {batch.kind.name} whose {name} is {len(value)} characters long: {value[:40]!r}...",
                remedy=f"take a name of at most {NAME_BYTES_MAX} bytes",
            )
    return [fields[name] for name in wanted]


def decode_known(batch: Batch, known: Mapping[Kind, Collection[str]], /, **wanted: type) -> list[Any]:
    """Return the named values of a command's map, as :func:`decode_fields`, of a record that has no other fields.

    ``known`` has the names of all fields of each kind, also of those that need not be there.

    Raises:
      RequestError: as :func:`decode_fields`.
      OutdatedCodeError: it has a field of a newer release, or is not one record. This member can neither apply nor skip
        it without a state that differs from the others'.
    """
    fields = _fields_of(batch)
    values = _values_of(batch, fields, wanted)
    unknown = fields.keys() - known[batch.kind]
    if unknown or batch.count != 1:
        found = ", ".join(sorted(map(brief_repr, unknown))) or f"{batch.count} records"
        raise OutdatedCodeError(
            f"a {batch.kind.name} has {found}, which this release does not know",
            remedy="upgrade this node and start it again",
        )
    return values


def decode_optional(batch: Batch, name: str, default: int) -> int:
    """Return a number of a command's map that older releases do not write, or ``default``.

    Raises:
      RequestError: it is there and is no number in [0, 2^63).
    """
    fields: Any = msgpack.unpackb(batch.values()[0])
    return decode_fields(batch, **{name: int})[0] if name in fields else default


def decode_commit(batch: Batch) -> CommitRequest:
    """Read the record of a COMMIT.

    Raises:
      RequestError: it is none; always raised for the same bytes, so on every member.
    """
    sink, owner, run, number, parts = decode_fields(batch, sink=str, owner=str, run=str, batch=int, parts=list)
    for part in parts:
        is_part = type(part) is list and len(part) == 2 and type(part[0]) is int and type(part[1]) is bytes
        if not is_part or len(part[1]) % ENTRY_SIZE or not 0 < part[0] < 1 << 63:
            raise RequestError(f"a COMMIT with a part that is none: {brief_repr(part)}")
    return CommitRequest(sink, owner, run, number, [(attempt, entries) for attempt, entries in parts])
