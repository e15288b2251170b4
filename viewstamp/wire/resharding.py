"""The records that a reshard writes: the new groups of an actor, and instances that come from other groups. Pure.

``streams/resharding.py`` applies them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgpack

from viewstamp.errors import RequestError
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.staged import decode_known

__all__ = ["PackedInstance", "decode_instances", "encode_instances", "encode_reshard"]

_PIECE_BYTES = 1024 * 1024
_FIELDS = {Kind.INSTANCES: frozenset({"name", "version", "instances"})}
_TYPES = [str, int, bytes]


class PackedInstance(NamedTuple):
    """An instance, asleep: its key, the version of the class that packed its state, and the state."""

    key: str
    version: int
    state: bytes


def encode_reshard(name: str, slots: int, groups: Sequence[int]) -> Batch:
    """Return the record that gives the slots of an actor to ``groups``, in runs of equal length. All logs get it."""
    fields = {"name": name, "slots": slots, "groups": list(groups)}
    return build_batch([msgpack.packb(fields)], kind=Kind.RESHARD_ACTOR)


def encode_instances(
    name: str, version: int, instances: Iterable[PackedInstance], *, bytes_max: int = _PIECE_BYTES
) -> Iterator[Batch]:
    """Yield the records of the instances of an actor that come to a group, each of about ``bytes_max`` bytes.

    A record holds at least one instance, so a large state makes a large record. ``version`` is the highest version of a
    command that any of the old groups has carried out; a group begins no new era before a higher one.
    """
    rows: list[list[object]] = []
    size = 0
    for each in instances:
        rows.append(list(each))
        size += len(each.key) + len(each.state)
        if size >= bytes_max:
            yield _record(name, version, rows)
            rows, size = [], 0
    if rows:
        yield _record(name, version, rows)


def _record(name: str, version: int, rows: list[list[object]]) -> Batch:
    fields = {"name": name, "version": version, "instances": rows}
    return build_batch([msgpack.packb(fields)], kind=Kind.INSTANCES)


def decode_instances(batch: Batch) -> tuple[str, int, list[PackedInstance]]:
    """Return the actor, the version of its commands, and the instances.

    Raises:
      RequestError: it is none.
      OutdatedCodeError: it has a field of a newer release.
    """
    rows: list[Any]
    name, version, rows = decode_known(batch, _FIELDS, name=str, version=int, instances=list)
    for row in rows:
        if type(row) is not list or list(map(type, row)) != _TYPES or row[1] < 0:
            raise RequestError(f"a row of an INSTANCES is {brief_repr(row)}, not [key, version, packed state]")
    return name, version, [PackedInstance(*row) for row in rows]
