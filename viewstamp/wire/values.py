"""Values as canonical msgpack: arguments, results and states of replicated actors.

Unpacking returns an equal value of the same types, and equal values of equal types give equal bytes in every process,
with any hash seed, because members compare checksums of these bytes.

| value                              | bytes                                                                       |
| ---------------------------------- | --------------------------------------------------------------------------- |
| None, bool, float, str, bytes      | msgpack's own                                                               |
| int                                | msgpack's own, the shortest; beyond 64 bits ext 4: two's complement, big-endian |
| list                               | array                                                                       |
| dict                               | map, in the dict's order, which is part of the value                        |
| tuple                              | ext 1: an array                                                             |
| set, frozenset                     | ext 2, 3: an array of the elements, ordered by their packed bytes           |
| datetime with a fixed offset, date | ext 5, 6: ISO 8601 (``fold`` means nothing at a fixed offset and is dropped) |
| timedelta                          | ext 7: [days, seconds, microseconds]                                        |
| Decimal                            | ext 8: its digits as text, so 1.0 and 1.00 are two values                   |
| UUID                               | ext 9: its 16 bytes                                                         |

Everything else is refused, with its name, and so are subclasses (``IntEnum``, ``defaultdict``, a named tuple): they
would be unpacked as another type, and a member that was restored from a snapshot would then differ from the others. So
would a ``ZoneInfo``, whose rules differ from machine to machine. Two differences are too slow to check: ``bytearray``
and ``memoryview`` are unpacked as ``bytes``, and one list in two places as two lists.

The texts of these refusals can become the result of a command, which members compare. So they must stay the same in
every release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any
from uuid import UUID

import msgpack
from msgpack import ExtType, Packer, Unpacker

from viewstamp.errors import RequestError
from viewstamp.wire.batch import Buffer

__all__ = [
    "CONTAINER_CODES",
    "DEPTH_MAX",
    "PACK_ERRORS",
    "UNPACK_ERRORS",
    "count_containers",
    "find_unsupported",
    "make_packer",
    "pack",
    "unpack",
    "unpack_all",
]

PACK_ERRORS = (RequestError, ValueError, TypeError, OverflowError)
"""The errors of the packers of :func:`make_packer` for a value that cannot be packed."""
UNPACK_ERRORS = (ValueError, TypeError, ArithmeticError, msgpack.UnpackException)
"""The errors of unpacking bytes that are not packed values."""

DEPTH_MAX = 32
"""The largest nesting of tuples and sets (for lists and dicts it is msgpack's 511). It is a constant, so that all
members refuse the same values; Python's own limit depends on the depth of the caller's stack."""

_BUFFER_SIZE = 512
_LIST_DEPTH_MAX = 511
_UNCHECKED_BYTES = 4096
"""Shorter bytes are not checked for lengths beyond their end, because they cannot claim much memory."""
_PATH_MAX = 120


def pack(value: object, path: str = "value") -> bytes:
    """Return the canonical bytes of ``value``.

    Args:
      value: of the types above, which may be nested.
      path: the name of ``value`` in errors.

    Raises:
      RequestError: something in it is of another type, or too deep: the message names the type and the path to it.
    """
    try:
        return _pack(value, 0)
    except PACK_ERRORS as error:
        found = find_unsupported(value, path)
        raise RequestError(
            found or f"{path} can not be packed: {error}",
            remedy="values are made of None, bool, int, float, str, bytes, list, tuple, dict, set, frozenset, datetime,"
            " date, timedelta, Decimal and UUID",
        ) from None


def make_packer() -> Callable[[object], bytes]:
    """Return a quicker :func:`pack`, for one thread and for small values: it keeps its buffer.

    It raises ``PACK_ERRORS``; call :func:`pack` with the same value for an error that gives the reason.
    """
    packer: Callable[[object], bytes] = Packer(default=_DEFAULTS[0], strict_types=True, buf_size=_BUFFER_SIZE).pack
    return packer


def unpack(data: Buffer) -> Any:
    """Return the value of packed bytes. Every call returns a new object.

    Raises:
      RequestError: the bytes are not a packed value.
    """
    try:
        return msgpack.unpackb(data, ext_hook=_HOOKS[0], strict_map_key=False)
    except UNPACK_ERRORS as error:
        raise RequestError(f"{len(data)} bytes are no packed value: {error!r}") from error


def unpack_all(data: Buffer) -> Unpacker:
    """Return an iterator over consecutive packed values; its ``tell()`` returns the end of the last one.

    It ends before a value that is cut off, and raises ``UNPACK_ERRORS``.
    """
    values = Unpacker(ext_hook=_HOOKS[0], strict_map_key=False, max_buffer_size=len(data))
    values.feed(data)
    return values


def count_containers(data: Buffer, most: int) -> int:
    """Return the number of lists, maps, tuples and sets in consecutive packed values.

    It stops at ``most``, and so takes memory for no more than that, and for a list with an item a byte.

    Raises:
      RequestError: there are more than ``most``, or the bytes are no packed values.
    """
    counted = 0

    def count(value: Any) -> None:
        nonlocal counted
        counted += 1
        if counted > most:
            raise RequestError(
                f"more than {most:,} lists and maps in a batch of commands", remedy="divide the batch, or pass text"
            )

    def walk(packed: Buffer, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise ValueError(f"tuples and sets more than {DEPTH_MAX} deep")

        def extended(code: int, inner: bytes) -> None:
            if code in _NESTING:
                walk(inner, depth + 1)

        values = Unpacker(
            list_hook=count,
            object_pairs_hook=count,
            ext_hook=extended,
            strict_map_key=False,
            max_buffer_size=len(packed),
        )
        values.feed(packed)
        for _ in values:
            pass

    try:
        walk(data, 0)
    except UNPACK_ERRORS as error:
        raise RequestError(f"{len(data)} bytes are no packed values: {error!r}") from error
    return counted


def find_unsupported(value: object, path: str = "value") -> str | None:
    """Return a sentence about the first thing in ``value`` that :func:`pack` refuses; None where there is none."""
    waiting: list[tuple[object, str, int, int]] = [(value, path, 0, 0)]
    while waiting:
        each, at, depth, extended = waiting.pop()
        extended += type(each) in (tuple, set, frozenset)
        too_deep = depth >= _LIST_DEPTH_MAX or extended > DEPTH_MAX
        reason = "is nested too deep, or holds itself" if too_deep else _reason(each)
        if reason:
            return f"{at if len(at) <= _PATH_MAX else at[:_PATH_MAX] + '...'} {reason}"
        waiting.extend(reversed([(child, at + step, depth + 1, extended) for child, step in _children(each)]))
    return None


def _pack(value: object, depth: int) -> bytes:
    # A packer of its own for each call costs 0.1 us and is safe in threads and inside `default`; a shared one is not.
    packed: bytes = Packer(default=_DEFAULTS[depth], strict_types=True, buf_size=_BUFFER_SIZE).pack(value)
    return packed


def _extend(depth: int, value: object) -> ExtType:
    """Convert a value that msgpack does not support into one of our extensions; msgpack calls this."""
    entry = _ENCODERS.get(type(value))
    if entry is None or depth == DEPTH_MAX:
        raise RequestError("unsupported")  # pack() looks for the path
    code, encode = entry
    return ExtType(code, encode(value, depth + 1))


def _pack_datetime(value: datetime, depth: int) -> bytes:
    if _reason_of_datetime(value):
        raise RequestError("unsupported")
    return value.isoformat().encode()


def _pack_set(value: Iterable[object], depth: int) -> bytes:
    elements = sorted(_pack(each, depth) for each in value)
    return b"".join([Packer(buf_size=_BUFFER_SIZE).pack_array_header(len(elements)), *elements])


_ENCODERS: dict[type, tuple[int, Callable[[Any, int], bytes]]] = {
    tuple: (1, lambda value, depth: _pack(list(value), depth)),
    set: (2, _pack_set),
    frozenset: (3, _pack_set),
    int: (4, lambda value, depth: value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)),
    datetime: (5, _pack_datetime),
    date: (6, lambda value, depth: value.isoformat().encode()),
    timedelta: (7, lambda value, depth: _pack([value.days, value.seconds, value.microseconds], depth)),
    Decimal: (8, lambda value, depth: str(value).encode()),
    UUID: (9, lambda value, depth: value.bytes),
}


def _restore(depth: int, code: int, data: bytes) -> Any:
    if depth == DEPTH_MAX:
        raise ValueError(f"tuples and sets more than {DEPTH_MAX} deep")
    if len(data) > _UNCHECKED_BYTES and code in _NESTING:
        _check_whole(data)
    decode = _DECODERS.get(code)
    if decode is None:
        raise ValueError(f"unknown extension {code}; this version knows {sorted(_DECODERS)}")
    return decode(data, depth + 1)


def _check_whole(data: bytes) -> None:
    """Raise one of ``UNPACK_ERRORS`` if ``data`` ends before the elements of its lists.

    msgpack allocates memory for a list when it reads its length, before its elements. A thousand lists without their
    elements take 80 MB until the end of the bytes is found. Nested tuples and sets are unpacked level by level, so each
    level would take that much at the same time.
    """
    values = Unpacker(max_buffer_size=len(data), strict_map_key=False)
    values.feed(data)
    values.skip()


def _unpack(data: bytes, depth: int) -> Any:
    return msgpack.unpackb(data, ext_hook=_HOOKS[depth], strict_map_key=False)


_DECODERS: dict[int, Callable[[bytes, int], Any]] = {
    1: lambda data, depth: tuple(_unpack(data, depth)),
    2: lambda data, depth: set(_unpack(data, depth)),
    3: lambda data, depth: frozenset(_unpack(data, depth)),
    4: lambda data, depth: int.from_bytes(data, "big", signed=True),
    5: lambda data, depth: datetime.fromisoformat(data.decode()),
    6: lambda data, depth: date.fromisoformat(data.decode()),
    7: lambda data, depth: timedelta(*_unpack(data, depth)),
    8: lambda data, depth: Decimal(data.decode()),
    9: lambda data, depth: UUID(bytes=data),
}

_NESTING = frozenset({1, 2, 3, 7})
"""The extensions that hold packed values."""

CONTAINER_CODES = frozenset((*range(0x80, 0xA0), *range(0xC7, 0xCA), *range(0xD4, 0xD9), *range(0xDC, 0xE0)))
"""The first bytes of lists, maps and extensions in msgpack."""

# One callback a level: the depth needs no variable that a thread or an exception could leave wrong.
_DEFAULTS = tuple(partial(_extend, depth) for depth in range(DEPTH_MAX + 1))
_HOOKS = tuple(partial(_restore, depth) for depth in range(DEPTH_MAX + 1))

_PLAIN = frozenset({type(None), bool, int, float, bytes, bytearray, memoryview})
_CONTAINERS = frozenset({list, tuple, dict, set, frozenset})


def _reason(value: object) -> str:
    """Return why ``value`` itself, independent of its elements, is refused; "" = it is not."""
    kind = type(value)
    if kind in _PLAIN or kind in _CONTAINERS:
        return ""
    if kind is str:
        try:
            value.encode()  # type: ignore[attr-defined]
        except UnicodeEncodeError as error:
            return f"is no Unicode text: {error}"
        return ""
    if kind is datetime:
        return _reason_of_datetime(value)  # type: ignore[arg-type]
    if kind in _ENCODERS:
        return ""
    if isinstance(value, Enum):
        return f"is {_article(kind)} {kind.__name__}: pass its .value"
    for plain in (bool, int, float, str, bytes, list, tuple, dict, set, frozenset, datetime, date):
        if isinstance(value, plain):
            return f"is {_article(kind)} {kind.__name__}: make it a plain {plain.__name__}"
    return f"is {_article(kind)} {kind.__name__}"


def _article(kind: type) -> str:
    return "an" if kind.__name__[0].lower() in "aeiou" else "a"


def _reason_of_datetime(value: datetime) -> str:
    zone = value.tzinfo
    if zone is UTC:
        return ""
    if zone is None:
        return "is a datetime without a time zone: make it aware, datetime.now(timezone.utc)"
    # Only the offset is packed, so the name and the rules of any other zone would be lost.
    if type(zone) is not timezone or str(zone) != str(timezone(zone.utcoffset(None))):
        return f"is a datetime in the zone {zone}: only fixed offsets are kept, use .astimezone(timezone.utc)"
    return ""


def _children(value: object) -> Iterator[tuple[object, str]]:
    match value:
        case dict():
            for key, each in value.items():
                yield key, f" key {key!r}"
                yield each, f"[{key!r}]"
        case list() | tuple():
            yield from ((each, f"[{position}]") for position, each in enumerate(value))
        case set() | frozenset():
            yield from ((each, " element") for each in value)
        case _:
            return
