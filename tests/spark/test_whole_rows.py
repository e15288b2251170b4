"""Whole rows as values: JSON and msgpack from which other programs read the values that Spark had."""

from __future__ import annotations

import datetime
import json
import math
from base64 import b64encode
from decimal import Decimal
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as spark

from viewstamp.errors import RequestError
from viewstamp.spark.whole_rows import check_type, encode

UTC = datetime.UTC
ROW = pa.struct(
    {
        "flag": pa.bool_(),
        "byte": pa.int8(),
        "long": pa.int64(),
        "single": pa.float32(),
        "double": pa.float64(),
        "decimal": pa.decimal128(38, 18),
        "text": pa.string(),
        "bytes": pa.binary(),
        "date": pa.date32(),
        "at": pa.timestamp("us", tz="UTC"),
        "local": pa.timestamp("us"),
        "nothing": pa.null(),
        "list": pa.list_(pa.list_(pa.string())),
        "map": pa.map_(pa.string(), pa.struct({'a "quoted" name': pa.int32()})),
        "struct": pa.struct({"x": pa.binary(), "y": pa.list_(pa.timestamp("us"))}),
    }
)
"""Every type that can be written, as Arrow has it."""


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type as Python has them, with a null among them."""
    return st.none() | _values(kind)


def _values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    types = pa.types
    if types.is_null(kind):
        return st.none()
    if types.is_boolean(kind):
        return st.booleans()
    if types.is_integer(kind):
        bits = kind.bit_width - 1
        return st.integers(-(1 << bits), (1 << bits) - 1)
    if types.is_floating(kind):
        return st.floats(width=kind.bit_width)
    if types.is_decimal(kind):
        return st.decimals(-(10**9), 10**9, places=kind.scale)
    if types.is_string(kind):
        return st.text(max_size=5) | st.sampled_from(['a "quote"', "back\\slash", "\n\0", "\u2028\x7fä€😀"])
    if types.is_binary(kind):
        return st.binary(max_size=4)
    if types.is_date(kind):
        return st.dates()
    if types.is_timestamp(kind):
        return st.datetimes(timezones=st.just(UTC)) if kind.tz else st.datetimes()
    if types.is_map(kind):
        return st.dictionaries(st.text(max_size=3), values(kind.item_type), max_size=3)
    if types.is_list(kind):
        return st.lists(values(kind.value_type), max_size=3)
    return st.tuples(*(values(field.type) for field in kind)).map(lambda each: dict(zip(kind.names, each, strict=True)))


def array(kind: pa.DataType, items: list[Any]) -> pa.Array:
    def to_arrow(kind: pa.DataType, value: Any) -> Any:
        if value is None:
            return None
        if pa.types.is_map(kind):
            return [(key, to_arrow(kind.item_type, each)) for key, each in value.items()]
        if pa.types.is_list(kind):
            return [to_arrow(kind.value_type, each) for each in value]
        if pa.types.is_struct(kind):
            return {field.name: to_arrow(field.type, value[field.name]) for field in kind}
        return value

    return pa.array([to_arrow(kind, item) for item in items], kind)


def plain(value: Any, form: str) -> Any:
    """Return the value that a reader of ``form`` should get, computed without the code that is tested."""
    match value:
        case dict():
            return {key: plain(each, form) for key, each in value.items()}
        case list():
            return [plain(each, form) for each in value]
        case bytes() if form == "json":
            return b64encode(value).decode()
        case float() if form == "json" and not math.isfinite(value):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        case Decimal() if form == "msgpack":
            return f"{value:f}"
        case datetime.datetime() if form == "msgpack" and value.tzinfo:
            return value
        case datetime.datetime():
            return value.replace(tzinfo=None).isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")
        case datetime.date():
            return value.isoformat()
    return value


def is_same(found: Any, expected: Any) -> bool:
    """Whether they are equal, including the order of keys; NaN equals NaN."""
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(is_same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(is_same, found, expected))
    if isinstance(expected, Decimal):
        return bool(Decimal(str(found)) == expected)
    if isinstance(expected, float):
        if not isinstance(found, float | Decimal):
            return False
        number = float(found)
        return number == expected or (math.isnan(number) and math.isnan(expected))
    return type(found) is type(expected) and bool(found == expected)


def rows_of(items: list[dict[str, Any]], start: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(array(ROW, items)).slice(start)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(_values(ROW), min_size=1, max_size=4), st.data())
def test_json_has_the_values_of_the_row(items: list[dict[str, Any]], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(items) - 1))
    texts = encode(rows_of(items, start), "json").to_pylist()
    assert len(texts) == len(items) - start
    for text, item in zip(texts, items[start:], strict=True):
        found = json.loads(text, parse_float=Decimal, parse_constant=pytest.fail)
        single = item["single"]
        if single is not None and math.isfinite(single):
            # The shortest text that gives this number in 32 bits gives another number in 64 bits.
            assert isinstance(found["single"], Decimal)
            assert pa.scalar(float(found["single"]), pa.float32()).as_py() == single
            found["single"] = single
        assert is_same(found, plain(item, "json")), (found, plain(item, "json"))


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(_values(ROW), min_size=1, max_size=4), st.data())
def test_msgpack_has_the_values_of_the_row(items: list[dict[str, Any]], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(items) - 1))
    packed = encode(rows_of(items, start), "msgpack").to_pylist()
    assert len(packed) == len(items) - start
    for each, item in zip(packed, items[start:], strict=True):
        found, expected = msgpack.unpackb(each, timestamp=3), plain(item, "msgpack")
        assert is_same(found, expected), (found, expected)


def test_json_reads_like_this() -> None:
    row = {
        "flag": True,
        "byte": -128,
        "long": 2**63 - 1,
        "single": 0.1,
        "double": -2.0,
        "decimal": Decimal("0.000000000000000001"),
        "text": 'Zoë "Zoe"\n',
        "bytes": b"\x00\xff",
        "date": datetime.date(2013, 1, 31),
        "at": datetime.datetime(2013, 1, 31, 5, 15, tzinfo=UTC),
        "local": datetime.datetime(2013, 1, 31, 5, 15, 0, 1),
        "nothing": None,
        "list": [["a", None], [], None],
        "map": {"k": {'a "quoted" name': 1}, "": None},
        "struct": {"x": b"", "y": [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)]},
    }
    lines = [
        '{"flag":true,"byte":-128,"long":9223372036854775807,"single":0.1,"double":-2.0,"decimal":1E-18',
        r'"text":"Zoë \"Zoe\"\n","bytes":"AP8=","date":"2013-01-31","at":"2013-01-31T05:15:00.000000Z"',
        '"local":"2013-01-31T05:15:00.000001","nothing":null,"list":[["a",null],[],null]',
        r'"map":{"k":{"a \"quoted\" name":1},"":null}',
        '"struct":{"x":"","y":["0001-01-01T00:00:00.000000","9999-12-31T23:59:59.999999"]}}',
    ]
    assert encode(rows_of([row]), "json").to_pylist() == [",".join(lines).encode()]


@pytest.mark.parametrize("form", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (pa.array([b"b\xffd"]).view(pa.string()), "(?i)utf.?8"),
        (pa.array([datetime.date.max.toordinal() - 719163 + 1], pa.int32()).view(pa.date32()), "out of range|9999"),
        (pa.array([-(2**62)], pa.int64()).view(pa.timestamp("us")), "out of range|9999"),
    ],
)
def test_value_that_cannot_be_written_is_rejected(form: str, bad: pa.Array, message: str) -> None:
    """The value is in a column, in a list, or in the part of a list that a slice leaves out, where it is no error."""
    with pytest.raises(RequestError, match=message) as caught:
        encode(pa.RecordBatch.from_arrays([bad], ["a"]), form)
    assert f"cannot be written as {form}" in caught.value.message
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 1], pa.int32()), bad)
    with pytest.raises(RequestError, match=message):
        encode(pa.RecordBatch.from_arrays([lists], ["a"]), form)
    assert len(encode(pa.RecordBatch.from_arrays([lists.slice(1)], ["a"]), form)) == 1


@pytest.mark.parametrize(
    "kind",
    [
        spark.DayTimeIntervalType(),
        spark.VariantType(),
        spark.MapType(spark.IntegerType(), spark.StringType()),
        spark.StructType(),
        spark.ArrayType(spark.StructType().add("a", spark.YearMonthIntervalType())),
        spark.MapType(spark.StringType(), spark.CalendarIntervalType()),
    ],
    ids=lambda kind: kind.simpleString(),
)
def test_type_without_a_single_form_is_rejected(kind: spark.DataType) -> None:
    with pytest.raises(RequestError, match=r"^column 'flights") as caught:
        check_type(kind, "flights")
    assert "cast" in caught.value.remedy
