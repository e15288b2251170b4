"""The schema of a topic, and rows as the values of records. Pure.

A schema is text: fields with commas between them, each ``name: type``, with ``?`` behind the type if it may be null.

    id: int64, name: string?, paid: bool, at: timestamp?

| type | Python | msgpack |
| --- | --- | --- |
| bool | bool | bool |
| int32, int64 | int in the range of the type | int |
| float32, float64 | float, or int | float 64 |
| string | str | str |
| binary | bytes | bin |
| timestamp | datetime with a time zone | timestamp extension (-1); microseconds |

A row is a map from names to values, and the value of its record is this map in msgpack, in the order of the schema,
without the fields that are null. The Spark sink writes the same with ``format=msgpack``, and any program can read a
record without the schema. A reader takes a field that is not there for null, and leaves out fields that its schema does
not have. So the order of fields has no meaning, and a schema can grow (:meth:`RowSchema.check_successor`).

A schema is replicated as its text, and not as bytes of Arrow, because these depend on the release of Arrow, and the
nodes have none.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, Self

import msgpack

from viewstamp.errors import FrameError, RequestError
from viewstamp.wire.brief_repr import brief_repr

__all__ = ["SCHEMA_BYTES_MAX", "RowField", "RowSchema", "is_successor", "is_wider", "unpack_row"]

SCHEMA_BYTES_MAX: Final = 16 * 1024
"""The most bytes of the text of a schema; it is in the state of each member."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_FIELD: Final = re.compile(r"\s*(?P<name>[^:\s]+)\s*:\s*(?P<type>[^\s?]+)\s*(?P<null>\??)\s*")


def _float32(value: float) -> float:
    """Return the nearest number of 32 bits. Raises OverflowError."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _of(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: type(value) in kinds


def _whole(bits: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def _is_float32(value: Any) -> bool:
    if type(value) not in (float, int):
        return False
    try:
        _float32(value)
    except (OverflowError, struct.error):
        return False
    return True


def _is_float64(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) <= 1 << 53)


_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "bool": _of(bool),
    "int32": _whole(32),
    "int64": _whole(64),
    "float32": _is_float32,
    "float64": _is_float64,
    "string": _of(str),
    "binary": _of(bytes),
    "timestamp": lambda value: isinstance(value, datetime) and value.tzinfo is not None,
}
"""Whether a value of Python is one of the type."""
_FLOATS: Final[dict[str, Callable[[Any], float]]] = {"float32": _float32, "float64": float}
_WIDER: Final = frozenset({("int32", "int64"), ("float32", "float64")})


class RowField(NamedTuple):
    """One field of a schema."""

    name: str
    type: str
    is_nullable: bool

    @property
    def text(self) -> str:
        """The field in the form of the module's docstring."""
        return f"{self.name}: {self.type}{'?' if self.is_nullable else ''}"


class RowSchema(NamedTuple):
    """The fields of the rows of a topic.

    Example::

        schema = RowSchema.parse("id: int64, name: string?")
        value = schema.encode({"id": 7})
        row = schema.decode(value)  # {"id": 7, "name": None}
    """

    fields: tuple[RowField, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a schema. Line breaks are blanks, and ``#`` begins a comment. Raises RequestError."""
        fields: list[RowField] = []
        lines = " ".join(line.partition("#")[0] for line in text.splitlines())
        for part in lines.rstrip().removesuffix(",").split(","):
            found = _FIELD.fullmatch(part)
            if found is None:
                raise RequestError(
                    f"a schema with the field {brief_repr(part.strip())}",
                    remedy="write NAME: TYPE, with ? behind the type if it may be null: id: int64, name: string?",
                )
            field = RowField(found["name"], found["type"], bool(found["null"]))
            if not _NAME.fullmatch(field.name):
                raise RequestError(
                    f"a schema with a field named {brief_repr(field.name)}",
                    remedy="use letters, digits and underscores, at most 128, and no digit first",
                )
            if field.type not in _TYPES:
                raise RequestError(
                    f"field {field.name} of a schema has the type {brief_repr(field.type)}",
                    remedy=f"there are {', '.join(_TYPES)}",
                )
            if any(field.name.lower() == each.name.lower() for each in fields):
                raise RequestError(
                    f"a schema with two fields named {field.name}",
                    remedy="name each field once; capitals do not distinguish names, because Spark ignores them",
                )
            fields.append(field)
        schema = cls(tuple(fields))
        if len(schema.text) > SCHEMA_BYTES_MAX:
            raise RequestError(
                f"a schema of {len(schema.text)} bytes", remedy=f"at most {SCHEMA_BYTES_MAX} bytes are allowed"
            )
        return schema

    @property
    def text(self) -> str:
        """The schema in its one canonical form, which :meth:`parse` reads."""
        return ", ".join(field.text for field in self.fields)

    def encode(self, row: Mapping[str, object]) -> bytes:
        """Return a row as the value of a record. Raises RequestError: it is not one of this schema."""
        packed: dict[str, object] = {}
        for name, kind, is_nullable in self.fields:
            value = row.get(name)
            if value is None:
                if not is_nullable:
                    raise RequestError(
                        f"a row without {name}, which is {kind} and not null", remedy="give it a value in each row"
                    )
            elif _TYPES[kind](value):
                packed[name] = _FLOATS[kind](value) if kind in _FLOATS else value
            else:
                raise RequestError(
                    f"field {name} of a row is {brief_repr(value)}, which is no {kind}",
                    remedy="give it a time zone: tzinfo=datetime.UTC"
                    if kind == "timestamp" and isinstance(value, datetime)
                    else f"give a value of type {kind}, or change the schema: viewstamp topic configure",
                )
        if unknown := row.keys() - {field.name for field in self.fields}:
            raise RequestError(
                f"a row with {', '.join(sorted(map(brief_repr, unknown)))}, which the schema of the topic has not",
                remedy="leave it out, or add it to the schema: viewstamp topic configure",
            )
        return bytes(msgpack.packb(packed, datetime=True))

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return the row of a record, with each field of this schema. Raises FrameError: the value is no such row."""
        row = unpack_row(value)
        return {field.name: _checked(field, row.get(field.name)) for field in self.fields}

    def check_successor(self, schema: RowSchema) -> None:
        """Check that the rows of this schema are rows of ``schema`` too.

        A field may be added if it is nullable. One may become nullable, int32 may become int64, and float32 float64.

        Raises RequestError: they are not.
        """
        after = {field.name: field for field in schema.fields}
        for old in self.fields:
            new = after.pop(old.name, None)
            if new is None:
                raise _unfit(f"field {old.name} would be gone", "keep it; a nullable one may stay empty")
            if new.type != old.type and not is_wider(old.type, new.type):
                wider = next((wide for narrow, wide in sorted(_WIDER) if narrow == old.type), "")
                remedy = f"{old.type} may become {wider} only" if wider else f"keep {old.type}, and add another field"
                raise _unfit(f"field {old.name} would be {new.type} instead of {old.type}", remedy)
            if old.is_nullable and not new.is_nullable:
                raise _unfit(f"field {old.name} would not be nullable any more", f"write {old.name}: {new.type}?")
        for new in after.values():
            if not new.is_nullable:
                raise _unfit(f"the new field {new.name} is not nullable", f"write {new.name}: {new.type}?")


def is_successor(before: str, after: str) -> bool:
    """Return whether the text of a schema may replace another one; ``before`` "" = none. The same text may not."""
    if before == after:
        return False
    try:
        if before:
            RowSchema.parse(before).check_successor(RowSchema.parse(after))
    except RequestError:
        return False
    return True


def is_wider(before: str, after: str) -> bool:
    """Return whether each value of a type is one of another, so that a field may get that type."""
    return (before, after) in _WIDER


def unpack_row(value: bytes) -> dict[Any, Any]:
    """Return the map that the value of a record is, with all its fields unchecked. Raises FrameError: it is no map."""
    try:
        row = msgpack.unpackb(value, timestamp=3)
    except (ValueError, TypeError, OverflowError, msgpack.exceptions.UnpackException) as error:
        raise FrameError(f"a record that is no row: {error or type(error).__name__}") from error
    if not isinstance(row, dict):
        raise FrameError(f"a record that is no row, but {brief_repr(row)}")
    return row


def _checked(field: RowField, value: Any) -> Any:
    """Return a value that was read. Raises FrameError."""
    if value is None and field.is_nullable:
        return None
    if not _TYPES[field.type](value):
        found = "null" if value is None else brief_repr(value)
        raise FrameError(f"field {field.name} of a row is {found}, which is no {field.type}")
    return _FLOATS[field.type](value) if field.type in _FLOATS else value


def _unfit(why: str, remedy: str) -> RequestError:
    return RequestError(f"the schema of the topic cannot change like this: {why}; nothing was changed", remedy=remedy)
