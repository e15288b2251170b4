"""Checks of values from callers and of answers from nodes, before they are used."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import pairwise
from typing import NotRequired, TypedDict

from viewstamp.client.results import BatchReceipt, new_tuple
from viewstamp.errors import OutcomeToken, RecordTooLargeError, RequestError, UnknownTopicError
from viewstamp.wire.batch import Columns
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.names import check_encodable

__all__ = [
    "Staleness",
    "as_bytes",
    "as_headers",
    "as_seconds",
    "as_staleness",
    "as_text",
    "as_token",
    "as_whole",
    "check_columns",
    "check_topic",
    "read_receipt",
    "read_results",
]

_WHOLE_MAX = (1 << 63) - 1
_FIVE_NUMBERS = [int] * 5


class Staleness(TypedDict):
    """The fields of a request that bound the staleness of its answer."""

    stale: bool
    max_staleness: NotRequired[float]


def as_bytes(value: object, what: str) -> bytes:
    """Return ``value`` as bytes that other code cannot change.

    Raises:
      RequestError: it is not made of bytes.
    """
    if type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise RequestError(f"{what} must be bytes, not {type(value).__name__}", remedy="encode text: text.encode()")


def as_headers(headers: object) -> dict[str, bytes] | None:
    """Return a copy of a record's headers, or None if there are none.

    Raises:
      RequestError: they do not map names to bytes.
    """
    if not headers:
        return None
    if not isinstance(headers, Mapping) or not all(isinstance(name, str) for name in headers):
        raise RequestError(f"headers must map names to bytes, not {headers!r}", remedy='write {"name": b"..."}')
    what = "the name of a header"
    return {as_text(name, what): as_bytes(value, f"header {name!r}") for name, value in headers.items()}


def as_seconds(timeout: float | None, default: float) -> float:
    """Return a caller's timeout in seconds, or ``default`` if it named none.

    Raises:
      RequestError: it is not above 0.
    """
    if timeout is None:
        return default
    if not timeout > 0:
        raise RequestError(
            f"a timeout of {timeout} s is not possible", remedy="give a number of seconds above 0, or math.inf"
        )
    return timeout


def as_staleness(stale: bool, max_staleness: float | None) -> Staleness:
    """Return the fields of a request that bound the staleness of its answer. A bound implies a stale answer.

    Raises:
      RequestError: the bound is no number of seconds.
    """
    if max_staleness is None:
        return {"stale": stale}
    if type(max_staleness) not in (int, float) or not max_staleness >= 0:
        raise RequestError(
            f"max_staleness={max_staleness!r} is not possible", remedy="give a number of seconds, 0 or more"
        )
    return {"stale": True, "max_staleness": float(max_staleness)}


def as_text(value: object, what: str) -> str:
    """Return ``value``, which must be text that can be encoded.

    Raises:
      RequestError: it is something else.
    """
    if not isinstance(value, str):
        raise RequestError(f"{what} must be text, not {value!r}", remedy=f"write {str(value)!r}")
    return check_encodable(value, what)


def as_whole(value: object, what: str) -> int:
    """Return ``value``, which must be a whole number from 0 on that a node can store.

    Raises:
      RequestError: it is something else.
    """
    if type(value) is not int or not 0 <= value <= _WHOLE_MAX:
        raise RequestError(f"{what} must be a whole number, not {value!r}", remedy=f"take one from 0 to {_WHOLE_MAX}")
    return value


def as_token(value: object) -> OutcomeToken:
    """Return ``value``, which must be the token of an OutcomeUnknownError.

    Raises:
      RequestError: it is something else; None means that the call that failed can be repeated.
    """
    if not isinstance(value, OutcomeToken):
        remedy = "repeat the call that failed" if value is None else "pass the `token` of an OutcomeUnknownError"
        raise RequestError(f"{brief_repr(value)} is not the token of an append or a command", remedy=remedy)
    as_whole(value.group, "the group of a token")
    return value


def check_topic(name: str) -> str:
    """Return the name of a topic, which must not look like an actor's name in the send queue.

    Raises:
      UnknownTopicError: it is.
    """
    if "\0" in name:
        raise UnknownTopicError(f"no topic is named {name!r}")
    return name


def check_columns(columns: Columns, *, record_bytes_max: int, batch_bytes_max: int) -> None:
    """Check a block of records, because no node examines its records.

    Raises:
      RequestError: the columns do not have the layout of ``Columns``.
      RecordTooLargeError: a record, or all together, are over the limits.
    """
    count = columns.count
    if (columns.keys is None) != (columns.validity is None):
        raise RequestError("keys and their validity bitmap belong together", remedy="give both or none")
    if columns.validity is not None and len(columns.validity) * 8 < count:
        raise RequestError(
            f"the validity bitmap of {count} keys has {len(columns.validity)} bytes", remedy="give one bit for each key"
        )
    names = ("values", "keys", "headers")
    given = [(name, column) for name in names if (column := getattr(columns, name)) is not None]
    for name, column in given:
        ends = column.offsets[:4], column.offsets[-4:]
        wanted = struct.pack("<i", 0), struct.pack("<i", len(column.data))
        if len(column.offsets) != 4 * (count + 1) or ends != wanted:
            raise RequestError(
                f"the {name} of {count} records have {len(column.offsets)} bytes of offsets, from"
                f" {bytes(ends[0]).hex()} to {bytes(ends[1]).hex()}, and {len(column.data)} of data",
                remedy="give count + 1 little-endian int32 offsets, from 0 to the length of the data",
            )
    if columns.size > batch_bytes_max:
        raise RecordTooLargeError(
            f"a block of {columns.size} bytes is over the limit of {batch_bytes_max}",
            remedy="stage smaller blocks, or raise [limits] batch_bytes_max on every node",
        )
    if sum(len(column.data) for _, column in given) > record_bytes_max:
        sizes = [0] * count
        for _, column in given:
            offsets = struct.unpack(f"<{count + 1}i", column.offsets)
            sizes = [size + end - start for size, (start, end) in zip(sizes, pairwise(offsets), strict=True)]
        if max(sizes) > record_bytes_max:
            raise RecordTooLargeError(
                f"record {sizes.index(max(sizes))} of a block has {max(sizes)} bytes, over the limit of"
                f" {record_bytes_max}",
                remedy="write smaller records, or raise [limits] record_bytes_max on every node",
            )


def read_receipt(packed: object) -> BatchReceipt | None:
    """Decode the receipt in an answer; None = the sequence was fenced.

    Raises:
      ValueError: it is none; the connection must end.
    """
    if packed is None:
        return None
    if type(packed) is not list or list(map(type, packed)) != _FIVE_NUMBERS:
        raise ValueError(f"{brief_repr(packed)} is no receipt")
    return new_tuple(BatchReceipt, packed)


def read_results(packed: object) -> list[bytes] | None:
    """Decode the results of commands in an answer; None = the batch has no commands, or the results are not kept.

    Raises:
      ValueError: they are none; the connection must end.
    """
    if packed is None:
        return None
    if not isinstance(packed, list) or not all(type(each) is bytes for each in packed):
        raise ValueError(f"{brief_repr(packed)} are no results")
    return packed
