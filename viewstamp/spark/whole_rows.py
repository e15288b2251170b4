"""Whole rows as values: each row is one JSON object or one msgpack map, with its columns in order and nulls kept.

| Spark | JSON | msgpack |
| --- | --- | --- |
| boolean, byte to long | the same | the same |
| float, double | number; "NaN", "Infinity", "-Infinity" | float 64 |
| decimal | number, with all its digits | string |
| string | string | string |
| binary | string, base64 | bin |
| date | string, "2013-01-31" | string, the same |
| timestamp | string, UTC, microseconds: "2013-01-31T05:15:00.000000Z" | timestamp extension (-1) |
| timestamp_ntz | string, "2013-01-31T05:15:00.000000" | string, the same |
| array, struct, map with string keys | array, object, object | array, map, map |

This is the output of Spark's ``to_json``, except that ``to_json`` drops the microseconds of times and leaves out nulls.
Other types (intervals, times of day, variants, user-defined ones) have several possible forms, so they are rejected and
have to be cast. Dates and times are of the years 1 to 9999.

JSON is written column by column, by Arrow. Only strings that need escapes, and binary, cost a Python step for each
value.
"""

from __future__ import annotations

import datetime
import json
import math
from base64 import b64encode
from collections.abc import Sequence
from decimal import Decimal

import msgpack
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from viewstamp.errors import RequestError

__all__ = ["check_type", "encode"]

_PLAIN = (
    spark.NullType,
    spark.BooleanType,
    spark.ByteType,
    spark.ShortType,
    spark.IntegerType,
    spark.LongType,
    spark.FloatType,
    spark.DoubleType,
    spark.DecimalType,
    spark.StringType,
    spark.VarcharType,
    spark.CharType,
    spark.BinaryType,
    spark.DateType,
    spark.TimestampType,
    spark.TimestampNTZType,
)
_ESCAPED = r'["\\\x00-\x1f]'
"""Characters that a JSON string must escape."""
_DAY_US = 86_400_000_000
_YEARS = (datetime.date(1, 1, 1), datetime.date(9999, 12, 31))
_DAYS = [(date - datetime.date(1970, 1, 1)).days for date in _YEARS]
"""The first and the last day that can be written, counted from 1970. Arrow's text for others is not a date."""


def check_type(kind: spark.DataType, name: str) -> None:
    """Check that values of this Spark type can be written; ``name``: that of the column, for the error.

    Raises:
      RequestError: they cannot.
    """
    if isinstance(kind, spark.StructType) and kind.fields:
        for field in kind.fields:
            check_type(field.dataType, f"{name}.{field.name}")
    elif isinstance(kind, spark.ArrayType):
        check_type(kind.elementType, f"{name}[]")
    elif isinstance(kind, spark.MapType) and isinstance(kind.keyType, spark.StringType):
        check_type(kind.valueType, f"{name}{{}}")
    elif not isinstance(kind, _PLAIN):
        raise RequestError(
            f"column {name!r} is {kind.simpleString()}, which has no single form in JSON or msgpack",
            remedy='cast it to the type that you want there: .cast("string"); the keys of maps are strings',
        )


def encode(rows: pa.RecordBatch, format: str) -> pa.Array:  # noqa: A002  # the option's name
    """Return each row as bytes: a binary array without nulls. ``format``: "json" or "msgpack".

    Raises:
      RequestError: a value cannot be written, for example a string that is not UTF-8.
    """
    try:
        if format == "json":
            return _object(rows.schema.names, rows.columns).view(pa.binary())
        return _pack(rows)
    except (ValueError, OverflowError) as error:  # Arrow's errors are ValueErrors too.
        raise RequestError(f"the row cannot be written as {format}: {error}", remedy="cast the column") from error


def _object(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
    """Return the text of one object for each row; there is at least one column."""
    pieces: list[pa.Array | str] = []
    for name, column in zip(names, columns, strict=True):
        pieces += [("," if pieces else "{") + json.dumps(name, ensure_ascii=False) + ":", _text(column)]
    return pc.binary_join_element_wise(*pieces, "}", "")


def _text(column: pa.Array) -> pa.Array:
    """Return the JSON of each value: an array of strings without nulls."""
    kind = column.type
    if pa.types.is_null(kind):
        return pa.repeat("null", len(column))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        text = column.cast(pa.string())
    elif pa.types.is_floating(kind):
        text = _float(column)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text = _string(column)
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        text = _quote(pa.array([None if each is None else b64encode(each) for each in column.to_pylist()], pa.string()))
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        text = _quote(_time(column))
    elif pa.types.is_struct(kind):
        text = _object(kind.names, column.flatten())
    elif pa.types.is_map(kind):
        offsets, keys, items = _inside(column.offsets, column.keys, column.items)
        text = _join("{", offsets, pc.binary_join_element_wise(_text(keys), _text(items), ":"), "}")
    elif pa.types.is_list(kind):
        offsets, values = _inside(column.offsets, column.values)
        text = _join("[", offsets, _text(values), "]")
    else:
        raise ValueError(f"no JSON for {kind}")
    return pc.if_else(column.is_valid(), text, "null") if column.null_count else text


def _float(column: pa.Array) -> pa.Array:
    # Arrow writes 1.0 as 1, which many readers would take for an integer.
    text = pc.replace_substring_regex(column.cast(pa.string()), r"^(-?[0-9]+)$", r"\1.0")
    names = [
        (pc.is_nan(column), "NaN"),
        (pc.equal(column, math.inf), "Infinity"),
        (pc.equal(column, -math.inf), "-Infinity"),
    ]
    for is_so, name in names:
        text = pc.if_else(is_so, f'"{name}"', text)
    return text


def _string(column: pa.Array) -> pa.Array:
    column.validate(full=True)  # Neither Arrow nor Spark has checked that the text is UTF-8.
    if pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
        texts = column.to_pylist()
        return pa.array([None if text is None else json.dumps(text, ensure_ascii=False) for text in texts], pa.string())
    return _quote(column)


def _quote(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")


def _time(column: pa.Array) -> pa.Array:
    """Return dates and timestamps as ISO 8601."""
    day = _DAY_US if pa.types.is_timestamp(column.type) else 1
    count = column.view(pa.int64() if day > 1 else pa.int32())
    first, last = _DAYS[0] * day, (_DAYS[1] + 1) * day
    if pc.any(pc.or_(pc.less(count, first), pc.greater_equal(count, last))).as_py():
        raise ValueError("a date before the year 1, or after 9999")
    return pc.replace_substring(column.cast(pa.string()), " ", "T")


def _inside(offsets: pa.Array, *children: pa.Array) -> tuple[pa.Array, ...]:
    """Return the offsets of lists from 0 on, and their part of the children, because lists may be a slice."""
    start, end = offsets[0], offsets[-1]
    return pc.subtract(offsets, start), *(child.slice(start.as_py(), end.as_py() - start.as_py()) for child in children)


def _join(before: str, offsets: pa.Array, items: pa.Array, after: str) -> pa.Array:
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, items), ",")
    return pc.binary_join_element_wise(before, joined, after, "")


def _pack(rows: pa.RecordBatch) -> pa.Array:
    names = rows.schema.names
    pack = msgpack.Packer(datetime=True, default=_plain).pack
    columns = [column.to_pylist(maps_as_pydicts="strict") for column in rows.columns]
    return pa.array([pack(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)], pa.binary())


def _plain(value: object) -> str:
    """Return values without a type in msgpack as text."""
    match value:
        case datetime.datetime():
            return value.isoformat(timespec="microseconds")
        case datetime.date():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
        case _:
            raise ValueError(f"no msgpack for {type(value).__name__}")
