"""Schemas of topics as text, rows as the values of records, and which schema may follow on which."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewstamp.errors import FrameError, RequestError
from viewstamp.wire.row_schema import SCHEMA_BYTES_MAX, RowField, RowSchema

NOW = datetime(2026, 11, 23, 12, 30, 15, 123456, tzinfo=UTC)
ALL = RowSchema.parse("a: bool, b: int32, c: int64, d: float32, e: float64, f: string, g: binary, h: timestamp")
ROW = {"a": True, "b": -(2**31), "c": 2**63 - 1, "d": 0.5, "e": 0.1, "f": "é", "g": b"\xff", "h": NOW}

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float32": st.floats(width=32, allow_nan=False),
    "float64": st.floats(allow_nan=False),
    "string": st.text(max_size=5),
    "binary": st.binary(max_size=5),
    "timestamp": st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),
}
NAMES = st.from_regex("[a-z][a-z0-9_]{0,5}", fullmatch=True)
FIELDS = st.builds(RowField, NAMES, st.sampled_from([*VALUES]), st.booleans())
SCHEMAS = st.lists(FIELDS, min_size=1, max_size=6, unique_by=lambda field: field.name).map(
    lambda fields: RowSchema(tuple(fields))
)


def rows_of(schema: RowSchema) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {name: VALUES[kind] | st.none() if is_nullable else VALUES[kind] for name, kind, is_nullable in schema.fields}
    )


@given(SCHEMAS)
def test_the_text_of_a_schema_is_read_as_the_same_schema(schema: RowSchema) -> None:
    assert RowSchema.parse(schema.text) == schema


def test_blanks_lines_and_comments_have_no_meaning() -> None:
    text = "id:int64 ,  # the order\n  name : string ?,\n\n  # nothing\n"
    assert RowSchema.parse(text).text == "id: int64, name: string?"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the field ''"),
        ("id", "the field 'id'"),
        ("id: int64, , b: bool", "the field ''"),
        ("id: int64 name: string", "the field 'id: int64 name: string'"),
        ("1d: int64", "a field named '1d'"),
        ("é: int64", "a field named"),
        ("id: long", "field id of a schema has the type 'long'"),
        ("id: int64, ID: int32", "two fields named ID"),
        (", ".join(f"field_{number}: int64?" for number in range(1000)), "a schema of"),
    ],
)
def test_text_that_is_no_schema_is_refused(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        RowSchema.parse(text)
    assert caught.value.remedy
    assert SCHEMA_BYTES_MAX == 16 * 1024


@given(SCHEMAS.flatmap(lambda schema: st.tuples(st.just(schema), rows_of(schema))))
def test_a_row_is_read_as_it_was_written(case: tuple[RowSchema, dict[str, Any]]) -> None:
    schema, row = case
    assert schema.decode(schema.encode(row)) == row


def test_a_row_is_a_msgpack_map_without_its_nulls() -> None:
    schema = RowSchema.parse("id: int64, name: string?, at: timestamp?")
    assert msgpack.unpackb(schema.encode({"name": None, "id": 7})) == {"id": 7}
    assert msgpack.unpackb(schema.encode({"id": 7, "at": NOW}), timestamp=3) == {"id": 7, "at": NOW}
    assert schema.decode(msgpack.packb({"id": 7})) == {"id": 7, "name": None, "at": None}
    there = NOW.astimezone(timezone(timedelta(hours=5)))
    assert schema.decode(schema.encode({"id": 7, "at": there}))["at"] == NOW


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a", 1),
        ("b", 2**31),
        ("b", True),
        ("c", 2**63),
        ("c", 1.0),
        ("d", 1e39),
        ("d", True),
        ("e", "1"),
        ("e", 2**53 + 1),
        ("f", b"text"),
        ("g", "bytes"),
        ("h", NOW.replace(tzinfo=None)),
        ("h", 7),
    ],
)
def test_a_value_of_another_type_is_refused_when_written_and_when_read(name: str, value: object) -> None:
    with pytest.raises(RequestError, match=f"field {name} of a row is"):
        ALL.encode({**ROW, name: value})
    if name != "h":  # A time without a zone cannot be written at all.
        with pytest.raises(FrameError, match=f"field {name} of a row is"):
            ALL.decode(msgpack.packb({**ROW, name: value}, datetime=True))


def test_a_float_is_stored_with_the_precision_of_its_type() -> None:
    schema = RowSchema.parse("narrow: float32, wide: float64")
    row = schema.decode(schema.encode({"narrow": 0.1, "wide": 3}))
    assert row == {"narrow": pytest.approx(0.1, rel=1e-6), "wide": 3.0}
    assert row["narrow"] != 0.1
    assert type(row["wide"]) is float


def test_a_row_without_a_field_or_with_an_unknown_one_is_refused() -> None:
    schema = RowSchema.parse("id: int64, name: string?")
    with pytest.raises(RequestError, match="a row without id"):
        schema.encode({"name": "Ada"})
    with pytest.raises(RequestError, match="a row with 'nmae'"):
        schema.encode({"id": 7, "nmae": "Ada"})
    with pytest.raises(FrameError, match="field id of a row is null"):
        schema.decode(msgpack.packb({}))


@pytest.mark.parametrize("value", [b"", b"\xc1", b"plain text", msgpack.packb([1]), msgpack.packb(7) + b"x"])
def test_a_record_that_is_no_row_is_an_error(value: bytes) -> None:
    with pytest.raises(FrameError, match="no row"):
        RowSchema.parse("id: int64").decode(value)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("id: int64", "id: int64"),
        ("id: int64", "id: int64, name: string?"),
        ("id: int64", "name: string?, id: int64"),
        ("id: int32", "id: int64"),
        ("id: int32?", "id: int64?"),
        ("x: float32", "x: float64"),
        ("id: int64", "id: int64?"),
    ],
)
def test_a_schema_may_become_wider(before: str, after: str) -> None:
    RowSchema.parse(before).check_successor(RowSchema.parse(after))


@pytest.mark.parametrize(
    ("before", "after", "message", "remedy"),
    [
        ("id: int64, name: string?", "id: int64", "field name would be gone", "keep it"),
        ("id: int64", "ID: int64", "field id would be gone", "keep it"),
        ("id: int64", "id: int64, name: string", "the new field name is not nullable", "name: string?"),
        ("id: int64", "id: int32", "would be int32 instead of int64", "keep int64"),
        ("id: int32", "id: string", "would be string instead of int32", "int32 may become int64 only"),
        ("x: float64", "x: float32", "would be float32 instead of float64", "keep float64"),
        ("x: int64", "x: float64", "would be float64 instead of int64", "keep int64"),
        ("id: int64?", "id: int64", "would not be nullable any more", "id: int64?"),
    ],
)
def test_a_schema_never_becomes_narrower(before: str, after: str, message: str, remedy: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        RowSchema.parse(before).check_successor(RowSchema.parse(after))
    assert remedy in caught.value.remedy


@given(st.data())
def test_the_rows_of_a_schema_are_rows_of_each_schema_that_may_follow(data: st.DataObject) -> None:
    before, after = data.draw(SCHEMAS), data.draw(SCHEMAS)
    if data.draw(st.booleans()):
        wider = {"int32": "int64", "float32": "float64"}
        after = RowSchema(
            tuple(
                RowField(name, wider.get(kind, kind), is_nullable or data.draw(st.booleans()))
                for name, kind, is_nullable in before.fields
            )
            + tuple(field for field in after.fields if field.name not in {each.name for each in before.fields})
        )
    row = data.draw(rows_of(before))
    try:
        before.check_successor(after)
    except RequestError:
        return
    names = {field.name for field in after.fields}
    assert after.decode(before.encode(row)) == {**dict.fromkeys(names), **row}
    assert before.decode(before.encode(row)) == row
