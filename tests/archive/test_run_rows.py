"""The typed columns of runs: a reader gets from them what it would get from the values, or an error."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Any

import msgpack
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from viewstamp.archive.row_columns import Stray, row_arrays
from viewstamp.archive.run_file import BASE_COLUMNS, NewRun, RunReader, RunWriter
from viewstamp.archive.run_rows import FieldCondition, is_needed, usable_column
from viewstamp.errors import CorruptionError, FrameError
from viewstamp.ids import ClusterId, Index, Position, RunId, Term, TopicId
from viewstamp.wire.batch import build_batch
from viewstamp.wire.row_schema import RowField, RowSchema

pytestmark = pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TYPES = ("bool", "int32", "int64", "float32", "float64", "string", "binary", "timestamp")
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "float32": st.floats(width=32) | st.integers(-9, 9),
    "float64": st.floats() | st.integers(-9, 9),
    "string": st.text(max_size=80),
    "binary": st.binary(max_size=9),
    "timestamp": st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)).map(lambda at: at.replace(tzinfo=UTC)),
}
NAMES = ("a", "b", "value", "position")
SCHEMAS = st.dictionaries(st.sampled_from(NAMES), st.tuples(st.sampled_from(TYPES), st.booleans()), min_size=1).map(
    lambda found: RowSchema(tuple(RowField(name, *rest) for name, rest in found.items()))
)
SCHEMA = RowSchema.parse("id: int64, name: string?, paid: float64")


def rows_of(schema: RowSchema, *, strays: bool) -> st.SearchStrategy[list[bytes]]:
    """Values of records: rows, also with nulls and with fields of later schemas, and with ``strays`` what is no row."""
    anything = st.one_of(st.none(), *VALUES.values())
    fields = {
        field.name: VALUES[field.type] | (st.none() if field.is_nullable else st.nothing()) for field in schema.fields
    }
    others = {name: anything for name in NAMES if name not in fields}
    wrong = dict.fromkeys(fields, anything)
    row = st.fixed_dictionaries(fields, optional=others)
    if strays:
        row |= st.fixed_dictionaries({}, optional=wrong)
    packed = row.map(lambda found: msgpack.packb(found, datetime=True))
    return st.lists(packed | st.sampled_from([b"", b"\xc1", b"\x01"]) if strays else packed, min_size=1, max_size=7)


def same(one: Any, other: Any) -> bool:
    both_nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    return both_nan or (type(one) is type(other) and one == other)


def written(schema: RowSchema | None, values: list[bytes], *, group_bytes: int = 1 << 20) -> bytes:
    sink = io.BytesIO()
    text = "" if schema is None else schema.text
    new = NewRun(ClusterId("c1"), RunId(900), TopicId(3), Position(1), text)
    writer = RunWriter(sink, new, group_bytes=group_bytes)
    for at, value in enumerate(values):
        writer.add(Term(2), Index(10 + at), 1_000_000 + at, build_batch([value]).columns())
    writer.finish()
    return sink.getvalue()


def reader_of(file: bytes) -> RunReader:
    return RunReader(io.BytesIO(file), "f")


@settings(max_examples=150, deadline=None)
@given(st.data(), SCHEMAS)
def test_columns_have_what_the_schema_reads_row_by_row(data: st.DataObject, schema: RowSchema) -> None:
    values = data.draw(rows_of(schema, strays=True))
    expected: list[dict[str, Any]] = []
    why = ""
    for value in values:
        try:
            expected.append(schema.decode(value))
        except FrameError as error:
            why = error.message
            break
    found = row_arrays(schema, values)
    if why:
        assert found == Stray(len(expected), why)
        return
    assert not isinstance(found, Stray)
    for field, array in zip(schema.fields, found.arrays, strict=True):
        for value, row in zip(array.to_pylist(), expected, strict=True):
            assert same(value, row[field.name])


@settings(max_examples=60, deadline=None)
@given(st.data(), SCHEMAS, st.sampled_from([1, 1 << 20]))
def test_each_later_schema_reads_the_same_from_columns_as_from_values(
    data: st.DataObject, schema: RowSchema, group_bytes: int
) -> None:
    later = data.draw(successors(schema))
    values = data.draw(rows_of(schema, strays=False))
    reader = reader_of(written(schema, values, group_bytes=group_bytes))
    list(reader.verify())
    assert reader.footer.rows is not None
    for number, (group, typed) in enumerate(zip(reader.footer.groups, reader.footer.rows.groups, strict=True)):
        assert typed is not None
        part = values[group.first - 1 : group.first - 1 + group.count]
        for field in later.fields:
            column = usable_column(schema, typed, field)
            if column is None:
                continue
            found: list[Any] = [None] * group.count
            if not column.is_absent:
                found = reader.read_typed(number, (), [field.name])[1][0].to_pylist()
            for value, packed in zip(found, part, strict=True):
                only = RowSchema((field,))
                assert same(value, only.decode(packed)[field.name])


@pytest.mark.parametrize(
    ("row", "field", "is_used"),
    [
        ({"id": 1, "paid": 0.5}, "later: string?", True),
        ({"id": 1, "paid": 0.5, "later": "x"}, "later: string?", False),
        ({"id": 1, "paid": 0.5}, "id: int64", True),
        ({"id": 1, "paid": 0.5, "later": "x"}, "id: int32", True),
        ({"id": 1, "paid": 0.5, "later": "x"}, "id: int64", False),
        ({"id": 1, "paid": 0.5}, "paid: float64", True),
        ({"id": 1, "paid": 0.1}, "paid: float64", False),
        ({"id": 1, "paid": 0.1}, "paid: float32", True),
        ({"id": 1, "paid": 0.5}, "name: string?", True),
        ({"id": 1, "paid": 0.5}, "name: string", False),
        ({"id": 1, "paid": 0.5}, "id: string", False),
    ],
)
def test_a_column_is_used_only_if_the_rows_have_the_same_for_that_field(
    row: dict[str, Any], field: str, is_used: bool
) -> None:
    schema = RowSchema.parse("id: int32, paid: float32, name: string?")
    reader = reader_of(written(schema, [msgpack.packb(row)]))
    assert reader.footer.rows is not None
    [typed] = reader.footer.rows.groups
    assert typed is not None
    [wanted] = RowSchema.parse(field).fields
    assert (usable_column(schema, typed, wanted) is not None) == is_used


def successors(schema: RowSchema) -> st.SearchStrategy[RowSchema]:
    """Schemas that may follow."""
    wider = {"int32": ("int32", "int64"), "float32": ("float32", "float64")}
    fields = [
        st.tuples(
            st.just(field.name),
            st.sampled_from(wider.get(field.type, (field.type,))),
            st.sampled_from([field.is_nullable, True]),
        )
        for field in schema.fields
    ]
    left = [name for name in NAMES if name not in {field.name for field in schema.fields}]
    new = [st.none() | st.tuples(st.just(name), st.sampled_from(TYPES), st.just(True)) for name in left]
    return st.tuples(*fields, *new).map(lambda found: RowSchema(tuple(RowField(*each) for each in found if each)))


def test_records_are_as_without_typed_columns_and_an_earlier_release_refuses_the_run() -> None:
    values = [SCHEMA.encode({"id": number, "paid": 0.5}) for number in range(9)]
    plain, typed = (reader_of(written(schema, values)) for schema in (None, SCHEMA))
    assert plain.footer.digest == typed.footer.digest
    [one], [other] = list(plain.read(0, 99)), list(typed.read(0, 99))
    assert one.equals(other)
    assert plain.footer.pack()[8:].startswith(b'{"format": 1, ')
    assert b'"rows"' not in plain.footer.pack()
    assert typed.footer.pack()[8:].startswith(b'{"format": 2, ')


def test_only_a_group_with_a_stray_record_lacks_typed_columns() -> None:
    values = [SCHEMA.encode({"id": 1, "paid": 0.5}), b"plain text", SCHEMA.encode({"id": 2, "paid": 0.5})]
    reader = reader_of(written(SCHEMA, values, group_bytes=1))
    list(reader.verify())
    assert reader.footer.rows is not None
    assert [each is None for each in reader.footer.rows.groups] == [False, True, False]
    assert [value for table in reader.read(0, 9) for value in table["value"].to_pylist()] == values
    assert reader.read_typed(2, ["position"], ["id"])[1][0].to_pylist() == [2]


def test_a_changed_byte_is_an_error_or_changes_nothing_that_is_read() -> None:
    rows = [{"id": number * number, "name": f"n{number % 3}", "paid": number / 7} for number in range(40)]
    file = written(SCHEMA, [SCHEMA.encode(row) for row in rows])
    errors = 0
    for at in range(0, len(file), 3):
        changed = bytearray(file)
        changed[at] ^= 0x10
        try:
            table, arrays = reader_of(bytes(changed)).read_typed(0, ["position"], list(rows[0]))
        except CorruptionError:
            errors += 1
            continue
        assert table["position"].to_pylist() == list(range(1, 41))
        found = zip(*(array.to_pylist() for array in arrays), strict=True)
        assert list(found) == [tuple(row.values()) for row in rows]
    assert errors


CHECKS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda value, other: value == other,
    "<": lambda value, other: value < other,
    "<=": lambda value, other: value <= other,
    ">": lambda value, other: value > other,
    ">=": lambda value, other: value >= other,
    "in": lambda value, other: value in other,
}


def meets(value: Any, condition: FieldCondition) -> bool:
    """Whether Spark leaves a row with this value. It orders NaN after each other number."""
    if condition.operator in ("null", "not null"):
        return (value is None) == (condition.operator == "null")
    if value is None:
        return False
    if isinstance(value, float) and math.isnan(value):
        return condition.operator in (">", ">=")
    return CHECKS[condition.operator](value, condition.value)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(TYPES))
def test_no_group_is_left_out_that_has_a_row_for_the_condition(data: st.DataObject, kind: str) -> None:
    schema = RowSchema((RowField("a", kind, True),))
    small = {
        "int32": st.integers(-3, 3),
        "int64": st.integers(-3, 3),
        "string": st.sampled_from(["", "a", "ab" * 40, "b"]),
    }
    some = small.get(kind, VALUES[kind])
    rows = data.draw(st.lists(st.none() | some, min_size=1, max_size=4))
    condition = FieldCondition("a", operator := data.draw(st.sampled_from([*CHECKS, "null", "not null"])))
    if operator in CHECKS:
        value = data.draw(st.lists(some, max_size=2).map(tuple) if operator == "in" else some)
        compared = value if operator == "in" else (value,)
        assume(not any(isinstance(each, float) and math.isnan(each) for each in compared))
        condition = condition._replace(value=value)
    reader = reader_of(written(schema, [msgpack.packb({"a": row}, datetime=True) for row in rows]))
    assert reader.footer.rows is not None
    typed = reader.footer.rows.groups[0]
    assert typed is not None
    column = usable_column(schema, typed, schema.fields[0])
    assert column is not None
    if not is_needed(schema.fields[0], column, len(rows), condition):
        decoded = [schema.decode(msgpack.packb({"a": row}, datetime=True))["a"] for row in rows]
        assert not any(meets(value, condition) for value in decoded)


@pytest.mark.parametrize(
    ("condition", "is_read"),
    [
        (FieldCondition("id", "=", 9), False),
        (FieldCondition("id", "=", 7), True),
        (FieldCondition("id", ">", 8), False),
        (FieldCondition("id", ">=", 8), True),
        (FieldCondition("id", "<", 5), False),
        (FieldCondition("id", "<=", 5), True),
        (FieldCondition("id", "in", (1, 9)), False),
        (FieldCondition("name", "=", "n"), False),
        (FieldCondition("name", "not null"), False),
        (FieldCondition("name", "null"), True),
        (FieldCondition("at", "<", EPOCH + timedelta(seconds=5)), False),
        (FieldCondition("at", "<", (EPOCH + timedelta(seconds=5)).replace(tzinfo=None)), True),
        (FieldCondition("text", "<", "b"), False),
        (FieldCondition("text", "=", "b" * 80), True),
        (FieldCondition("text", ">", "c"), True),
        (FieldCondition("later", "=", 1), False),
        (FieldCondition("later", "null"), True),
    ],
)
def test_a_group_is_left_out_if_its_bounds_exclude_the_condition(condition: FieldCondition, is_read: bool) -> None:
    schema = RowSchema.parse("id: int64, name: string?, at: timestamp, text: string")
    rows = [{"id": number, "at": EPOCH + timedelta(seconds=number), "text": "b" * 80} for number in range(5, 9)]
    reader = reader_of(written(schema, [schema.encode(row) for row in rows]))
    assert reader.footer.rows is not None
    [typed] = reader.footer.rows.groups
    assert typed is not None
    fields = {field.name: field for field in (*schema.fields, RowField("later", "int32", True))}
    column = usable_column(schema, typed, fields[condition.name])
    assert column is not None
    assert is_needed(fields[condition.name], column, 4, condition) == is_read
    assert set(BASE_COLUMNS) == set(reader.read_typed(0, BASE_COLUMNS, ())[0].column_names)
