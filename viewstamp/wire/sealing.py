"""The records that end or remove a stream of a spread topic: one msgpack map each. Pure.

Their rules are in ``streams/sealing.py``.
"""

from __future__ import annotations

import msgpack

from viewstamp.wire.batch import Batch, Kind, build_batch

__all__ = [
    "encode_close",
    "encode_drop",
    "encode_gone",
    "encode_lose",
    "encode_lose_sealed",
    "encode_seal",
    "encode_sealed",
]


def encode_close(name: str, stream: int, into: int, *, is_named: bool = False, by: str = "") -> Batch:
    """Return the record of group 0 with which a stream of a spread topic begins to end.

    Args:
      name: the name of the topic.
      stream: the number of the stream.
      into: the number of the stream that gets its slots.
      is_named: whether the caller has named ``into``, so that another one is not what it wants.
      by: the caller for the audit log; "" = none is known.
    """
    return _encode(Kind.CLOSE_STREAM, name, stream, into, is_named=is_named, by=by)


def encode_lose(name: str, stream: int, into: int, *, is_named: bool = False, by: str = "") -> Batch:
    """Return the record of group 0 that ends a stream whose group is lost. Arguments: as :func:`encode_close`."""
    return _encode(Kind.LOSE_STREAM, name, stream, into, is_named=is_named, by=by)


def encode_lose_sealed(name: str, stream: int, *, by: str = "") -> Batch:
    """Return the record of group 0 that notes of a sealed stream that its group is lost.

    Args:
      name: the name of the topic.
      stream: the number of the stream.
      by: the caller for the audit log; "" = none is known.
    """
    fields: dict[str, object] = {"name": name, "stream": stream}
    return build_batch([msgpack.packb({**fields, "by": by} if by else fields)], kind=Kind.LOSE_SEALED_STREAM)


def _encode(kind: Kind, name: str, stream: int, into: int, *, is_named: bool, by: str) -> Batch:
    fields: dict[str, object] = {"name": name, "stream": stream, "into": into, "is_named": is_named}
    return build_batch([msgpack.packb({**fields, "by": by} if by else fields)], kind=kind)


def encode_sealed(name: str, stream: int, end: int) -> Batch:
    """Return the record of group 0 that gives the slots of a stream away; ``end`` is the end of the whole stream."""
    return build_batch([msgpack.packb({"name": name, "stream": stream, "end": end})], kind=Kind.SEALED_STREAM)


def encode_seal(stream: str) -> Batch:
    """Return the record of a group behind which its stream of this name gets no record."""
    return build_batch([msgpack.packb({"stream": stream})], kind=Kind.SEAL_STREAM)


def encode_gone(name: str, stream: int, behind: int, *, by: str = "") -> Batch:
    """Return the record of group 0 that removes a sealed stream of a spread topic.

    Args:
      name: the name of the topic.
      stream: the number of the stream.
      behind: the global position behind its last record, or 1 if it never had any. Of a lost stream it has no effect.
      by: the caller for the audit log; "" = none is known.
    """
    fields: dict[str, object] = {"name": name, "stream": stream, "behind": behind}
    return build_batch([msgpack.packb({**fields, "by": by} if by else fields)], kind=Kind.GONE_STREAM)


def encode_drop(stream: str, end: int, gone: int) -> Batch:
    """Return the record of a group that deletes its stream of this name.

    Args:
      stream: the name of the stream.
      end: the local position behind its last record with a global one.
      gone: the index in group 0 of the GONE_STREAM that removed it.
    """
    return build_batch([msgpack.packb({"stream": stream, "end": end, "gone": gone})], kind=Kind.DROP_STREAM)
