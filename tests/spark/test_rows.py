"""Rows to records: for every Arrow layout of the rows, the batches hold the same rows, in order."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, CharType, DataType, MapType, StringType, StructType, VarcharType

from viewstamp.errors import RecordTooLargeError, RequestError
from viewstamp.spark import rows as module
from viewstamp.spark.rows import Rows, check_schema, value_columns
from viewstamp.spark.typed_rows import check_written
from viewstamp.wire.batch import Batch, Columns, build_columns
from viewstamp.wire.row_schema import RowSchema

MIB = 1024 * 1024
TEXT = st.text(max_size=12)
BYTES = TEXT.map(str.encode)


class Row(NamedTuple):
    value: bytes
    key: bytes | None
    topic: str
    headers: dict[str, bytes] | None


ROWS = st.builds(
    Row,
    value=BYTES,
    key=st.none() | BYTES,
    topic=st.sampled_from(["a", "b", "c-3.x_"]),
    headers=st.none() | st.dictionaries(TEXT, BYTES, max_size=3),
)
BINARY = st.sampled_from([pa.binary(), pa.large_binary()])
STRING = st.sampled_from([pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
ALL = {"value": "binary", "key": "binary", "topic": "string", "headers": MapType(StringType(), StringType())}


def schema(**columns: str | DataType) -> StructType:
    found = StructType()
    for name, kind in columns.items():
        found.add(name, kind)
    return found


def column(draw: st.DrawFn, items: list[Any], kind: pa.DataType, filler: Any) -> pa.Array:
    """An array of ``items`` that may be a slice out of a longer one."""
    before, after = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    items = [filler] * before + items + [filler] * after
    if kind == pa.large_string():
        items = [None if item is None else item.decode() for item in items]
    array = pa.array(items, pa.string() if pa.types.is_dictionary(kind) else kind)
    if pa.types.is_dictionary(kind):
        array = array.dictionary_encode()
    return array.slice(before, len(items) - before - after)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Row], list[pa.RecordBatch]]:
    """Rows, and the batches in which Spark passes them."""
    kinds = draw(st.tuples(BINARY | STRING, BINARY | STRING, STRING, st.sampled_from([pa.string(), pa.binary()])))
    chunks = draw(st.lists(st.lists(ROWS, max_size=20), max_size=5))
    found = []
    for chunk in chunks:
        headers = [None if row.headers is None else list(row.headers.items()) for row in chunk]
        arrays = {
            "value": column(draw, [row.value for row in chunk], kinds[0], b"filler"),
            "key": column(draw, [row.key for row in chunk], kinds[1], None),
            "topic": column(draw, [row.topic.encode() for row in chunk], kinds[2], b"\xc3\xa4 no topic"),
            "headers": column(draw, headers, pa.map_(pa.string(), kinds[3]), [("filler", b"")]),
        }
        found.append(pa.RecordBatch.from_pydict(arrays))
    return [row for chunk in chunks for row in chunk], found


def decoded(blocks: list[tuple[str, Columns]]) -> list[Row]:
    """The records that a reader of the topics would see."""
    found = []
    for topic, columns in blocks:
        batch = Batch.decode(bytes(build_columns(columns).buffer))
        assert batch.size == columns.size
        found += [Row(record.value, record.key, topic, record.headers) for record in batch.records()]  # type: ignore[arg-type]
    return found


def push_all(rows: Rows, pushed: list[pa.RecordBatch]) -> list[tuple[str, Columns]]:
    return [block for batch in pushed for block in rows.push(batch)] + rows.flush()


@pytest.mark.slow
@settings(deadline=None)
@given(batches(), st.integers(160, 1000))
def test_every_row_is_a_record_of_its_topic_in_order(
    pushed: tuple[list[Row], list[pa.RecordBatch]], block_bytes: int
) -> None:
    expected, spark = pushed
    rows = Rows(schema(**ALL), record_bytes_max=MIB, block_bytes=block_bytes)
    blocks = push_all(rows, spark)
    found = decoded(blocks)
    for topic in {row.topic for row in expected}:
        assert [row for row in found if row.topic == topic] == [
            row._replace(headers=row.headers or None) for row in expected if row.topic == topic
        ]
    assert len(found) == len(expected) == rows.count
    assert all(columns.size <= block_bytes or columns.count == 1 for _, columns in blocks)
    assert rows.flush() == []


@pytest.mark.slow
@settings(deadline=None)
@given(batches())
def test_rows_of_one_topic_keep_their_order_altogether(pushed: tuple[list[Row], list[pa.RecordBatch]]) -> None:
    expected, spark = pushed
    rows = Rows(schema(value="binary", key="string"), "all", record_bytes_max=MIB)
    blocks = push_all(rows, [batch.select(["value", "key"]) for batch in spark])
    assert len(blocks) <= 1
    assert decoded(blocks) == [Row(row.value, row.key, "all", None) for row in expected]


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=3), min_size=1, max_size=70), st.data())
def test_the_bitmap_of_keys_begins_at_the_first_row_and_ends_in_zeros(
    keys: list[bytes | None], data: st.DataObject
) -> None:
    """A slice of Arrow's bitmap begins inside a byte, and is followed by bits of other rows."""
    start = data.draw(st.integers(0, len(keys) - 1))
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"v"] * len(keys)), "key": pa.array(keys, pa.binary())})
    rows = Rows(schema(value="binary", key="binary"), "t", record_bytes_max=MIB)
    ((_, columns),) = push_all(rows, [batch.slice(start)])
    bits = [key is not None for key in keys[start:]]
    if not any(bits):
        assert (columns.validity, columns.keys) == (None, None)
    else:
        assert columns.validity is not None
        assert len(columns.validity) % 8 == 0
        assert int.from_bytes(columns.validity, "little") == sum(bit << i for i, bit in enumerate(bits))


def test_blocks_are_as_full_as_they_may_be() -> None:
    """Many small batches of Spark, and a few large ones, both give blocks of full size."""
    for count in (7, 10_000):
        batch = pa.RecordBatch.from_pydict({"value": pa.array([b"x" * 256] * count)})
        blocks = push_all(Rows(schema(value="binary"), "t", record_bytes_max=MIB), [batch] * (10_000 // count))
        assert {columns.count for _, columns in blocks[:-1]} == {(MIB - 152) // (256 + 13)}


def test_a_block_out_of_one_batch_is_a_view_of_it() -> None:
    value = pa.array([b"x" * 256] * 10_000)
    (_, columns), *_ = push_all(
        Rows(schema(value="binary"), "t", record_bytes_max=MIB), [pa.RecordBatch.from_pydict({"value": value})]
    )
    assert pa.py_buffer(columns.values.data).address == value.buffers()[2].address
    assert pa.py_buffer(columns.values.offsets).address == value.buffers()[1].address


def test_what_waits_is_bounded_however_many_topics_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PENDING_BYTES_MAX", 10_000)
    rows = Rows(schema(value="binary", topic="string"), record_bytes_max=MIB)
    for _ in range(10):
        batch = pa.RecordBatch.from_pydict({"value": [b"x" * 100] * 20, "topic": [f"t{i}" for i in range(20)]})
        blocks = rows.push(batch)
        assert rows._pending_bytes == sum(pending.bytes for pending in rows._pending.values()) < 10_000
        if blocks:
            break
    assert [topic for topic, _ in blocks] == [f"t{i}" for i in range(20)]
    assert {columns.count for _, columns in blocks} == {5}


def test_a_batch_too_long_for_offsets_is_taken_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_BYTES_MAX", 500)
    values = [b"%d" % i * 9 for i in range(200)]
    rows = Rows(schema(value="binary"), "t", record_bytes_max=300)
    blocks = push_all(rows, [pa.RecordBatch.from_pydict({"value": pa.array(values, pa.large_binary())})])
    assert [row.value for row in decoded(blocks)] == values
    assert rows.count == 200


GOOD = {"value": b"value", "key": b"key", "topic": "t", "headers": [("name", "text")]}
ARROW = {
    "value": pa.binary(),
    "key": pa.binary(),
    "topic": pa.string(),
    "headers": pa.map_(pa.string(), pa.string()),
}


def arrow(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array([row[name] for row in rows], ARROW[name]) for name in ARROW})


@pytest.mark.parametrize("row", [0, 1, 6, 9])
@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        ({"value": None}, RequestError, "column 'value' is null"),
        ({"topic": None}, RequestError, "column 'topic' is null"),
        ({"topic": ""}, RequestError, "column 'topic': a topic cannot be named ''"),
        ({"topic": "a b"}, RequestError, "column 'topic': a topic cannot be named 'a b'"),
        ({"headers": [("name", None)]}, RequestError, "column 'headers': 'name' is null"),
        (
            {"value": b"x" * 101},
            RecordTooLargeError,
            "a record of 116 bytes (value 101, key 3, headers 12) is over the limit of 100",
        ),
        (
            {"key": b"x" * 90},
            RecordTooLargeError,
            "a record of 107 bytes (value 5, key 90, headers 12) is over the limit of 100",
        ),
        (
            {"headers": [("a", "x" * 95)]},
            RecordTooLargeError,
            "a record of 108 bytes (value 5, key 3, headers 100) is over the limit of 100",
        ),
    ],
)
def test_a_row_that_is_no_record_is_named(
    row: int, bad: dict[str, Any], error: type[RequestError], message: str
) -> None:
    """The first row is named, by its partition and its number there, also if others follow."""
    rows = Rows(schema(**ALL), record_bytes_max=100, partition=3)
    rows.push(arrow([GOOD] * 5))
    batch = [{**GOOD, **bad} if i in (row, row + 2) else GOOD for i in range(10)]
    with pytest.raises(error) as caught:
        rows.push(arrow(batch))
    assert caught.value.message == f"partition 3, row {5 + row} (from 0), topic {bad.get('topic', 't')!r}: {message}"
    assert caught.value.remedy


def test_a_name_of_a_header_or_a_topic_that_is_no_utf8_is_refused() -> None:
    """Spark's strings may hold any bytes, because a cast from binary does not check them."""
    broken = pa.array([b"good", b"b\xffd"]).view(pa.string())
    rows = Rows(schema(value="binary", topic="string"), record_bytes_max=MIB)
    with pytest.raises(
        RequestError, match=r"partition 0, row 1 \(from 0\), topic 'b\\\\xffd': column 'topic': .*b\\\\xffd"
    ):
        rows.push(pa.RecordBatch.from_pydict({"value": [b"", b""], "topic": broken}))
    headers = pa.MapArray.from_arrays([0, 1, 2], broken, pa.array([b"", b""]))
    rows = Rows(schema(value="binary", headers=ALL["headers"]), "t", record_bytes_max=MIB)
    with pytest.raises(RequestError, match=r"partition 0, row 1 \(from 0\), topic 't': column 'headers': .* UTF-8"):
        rows.push(pa.RecordBatch.from_pydict({"value": [b"", b""], "headers": headers}))


def test_a_value_that_is_text_goes_as_it_stands_even_if_it_is_no_utf8() -> None:
    broken = pa.array([b"b\xffd"]).view(pa.string())
    rows = Rows(schema(value="string"), "t", record_bytes_max=MIB)
    assert decoded(push_all(rows, [pa.RecordBatch.from_pydict({"value": broken})])) == [Row(b"b\xffd", None, "t", None)]


def test_arrow_that_is_not_as_the_schema_said_is_refused() -> None:
    rows = Rows(schema(value="binary"), "t", record_bytes_max=MIB)
    with pytest.raises(RequestError, match="column 'value' is int64; it must be binary or string"):
        rows.push(pa.RecordBatch.from_pydict({"value": [1]}))


@pytest.mark.parametrize(
    ("columns", "topic", "form", "message"),
    [
        ({"key": "binary"}, "t", "", "no column for the value, only key"),
        ({}, "t", "", "no column for the value, only none at all"),
        ({"key": "binary", "headers": ALL["headers"]}, "t", "json", "no column for the value, only key, headers"),
        ({"value": "integer"}, "t", "", "column 'value' is int; it must be binary or string"),
        ({"value": "binary", "key": "long"}, "t", "", "column 'key' is bigint; it must be binary or string"),
        ({"value": "binary", "key": "long"}, "t", "json", "column 'key' is bigint; it must be binary or string"),
        ({"value": "binary", "topic": "binary"}, "", "", "column 'topic' is binary; it must be string"),
        (
            {"value": "binary", "headers": "string"},
            "t",
            "",
            "column 'headers' is string; it must be map<string,binary>",
        ),
        (
            {"value": "binary", "headers": MapType(StringType(), ArrayType(StringType()))},
            "t",
            "",
            "column 'headers' is map<string,array<string>>; it must be map<string,binary> or map<string,string>",
        ),
        ({"value": "binary", "flight": "string"}, "t", "", "no place for column 'flight'"),
        ({"value": "binary", "topic": "string"}, "t", "", "column 'topic', and option topic is 't'"),
        ({"value": "binary"}, "", "", "the rows have no topic"),
        ({"at": "interval day to second"}, "t", "msgpack", "interval day to second, which has no single form"),
    ],
)
def test_a_schema_that_cannot_be_records_is_refused_before_any_row(
    columns: dict[str, str | DataType], topic: str, form: str, message: str
) -> None:
    with pytest.raises(RequestError) as caught:
        check_schema(schema(**columns), topic, form)
    assert message in caught.value.message
    assert caught.value.remedy
    with pytest.raises(RequestError):
        Rows(schema(**columns), topic, format=form, record_bytes_max=MIB)


def test_a_column_that_is_there_twice_is_refused() -> None:
    twice = schema(value="binary").add("value", "string")
    with pytest.raises(RequestError, match="the rows have 2 columns 'value'"):
        check_schema(twice, "t")


def test_text_of_limited_length_is_text() -> None:
    check_schema(schema(value=VarcharType(3), key=CharType(2)), "t")


def test_whole_rows_are_values_without_what_says_where_they_go() -> None:
    """``key``, ``topic`` and ``headers`` have their usual meaning; ``value`` is like any other column."""
    columns = {"value": "long", **{name: ALL[name] for name in ("key", "topic", "headers")}, "flight": "string"}
    batch = pa.RecordBatch.from_pydict(
        {
            "value": [1, None],
            "key": [b"k", None],
            "topic": ["a", "b"],
            "headers": pa.array([[("n", b"h")], None], pa.map_(pa.string(), pa.binary())),
            "flight": ["UA 1", "UA 2"],
        }
    )
    for form, decode in (("json", bytes.decode), ("msgpack", msgpack.unpackb)):
        rows = Rows(schema(**columns), format=form, record_bytes_max=MIB)
        expected: list[Any] = [{"value": 1, "flight": "UA 1"}, {"value": None, "flight": "UA 2"}]
        if form == "json":
            expected = ['{"value":1,"flight":"UA 1"}', '{"value":null,"flight":"UA 2"}']
        found = [row._replace(value=decode(row.value)) for row in decoded(push_all(rows, [batch]))]
        assert found == [Row(expected[0], b"k", "a", {"n": b"h"}), Row(expected[1], None, "b", None)]


FILLED_IN = ("position", "timestamp")


def test_rows_for_a_table_leave_out_what_the_cluster_fills_in() -> None:
    of_table = schema(position="long", value="binary", timestamp="timestamp")
    with pytest.raises(RequestError, match="a record has no place for column 'position'"):
        check_schema(of_table, "t")
    check_schema(of_table, "t", filled_in=FILLED_IN)
    nothing = pa.nulls(2, pa.int64())
    batch = pa.RecordBatch.from_pydict({"position": nothing, "value": [b"a", b"b"], "timestamp": nothing})
    rows = Rows(of_table, "t", record_bytes_max=MIB, filled_in=FILLED_IN)
    assert [row.value for row in decoded(push_all(rows, [batch]))] == [b"a", b"b"]


def test_a_row_for_a_table_with_a_position_of_its_own_is_named() -> None:
    of_table = schema(position="long", value="binary")
    batch = pa.RecordBatch.from_pydict({"position": pa.array([None, 7], pa.int64()), "value": [b"a", b"b"]})
    rows = Rows(of_table, "t", record_bytes_max=MIB, filled_in=FILLED_IN)
    with pytest.raises(RequestError, match=r"row 1 .*column 'position' of a table is filled in by the cluster"):
        rows.push(batch)


FIELDS = "id: int32, name: string?, at: timestamp"


@pytest.mark.parametrize(
    ("columns", "fields", "message"),
    [
        ({"id": "integer", "name": "string", "at": "timestamp", "key": "binary"}, FIELDS, ""),
        ({"at": "timestamp", "id": "integer"}, FIELDS, ""),
        ({"id": "integer", "name": VarcharType(9), "at": "timestamp"}, FIELDS, ""),
        ({"value": "binary"}, "value: binary", ""),
        (
            {"id": "long", "at": "timestamp"},
            FIELDS,
            "column 'id' is bigint, and the field of .* is int32",
        ),
        ({"id": "integer", "at": "timestamp_ntz"}, FIELDS, "column 'at' is timestamp_ntz"),
        (
            {"id": "integer", "at": "timestamp", "x": "integer"},
            FIELDS,
            "column 'x' is no field of the .*: id: int32",
        ),
        ({"ID": "integer", "at": "timestamp"}, FIELDS, "column 'ID' is no field"),
        ({"id": "integer", "name": "string"}, FIELDS, "the rows have no column 'at', which is timestamp and not null"),
        ({"id": "integer", "key": "string"}, "id: int32, key: string?", "the topic's rows have a field 'key'"),
    ],
)
def test_columns_are_compared_with_the_schema_of_the_topic(
    columns: dict[str, str | DataType], fields: str, message: str
) -> None:
    found = value_columns(schema(**columns), "rows")
    if not message:
        check_written(found, RowSchema.parse(fields))
        return
    with pytest.raises(RequestError, match=message):
        check_written(found, RowSchema.parse(fields))


def test_rows_of_a_schema_have_one_topic_and_no_null_where_the_schema_has_none() -> None:
    kinds = schema(id="integer", name="string")
    with pytest.raises(RequestError, match="rows of a schema have one topic"):
        check_schema(schema(id="integer", topic="string"), "", "rows")
    found = Rows(kinds, "t", format="rows", record_bytes_max=MIB, required=["id"])
    batch = pa.record_batch({"id": pa.array([1, 2], pa.int32()), "name": ["a", None]})
    [(_, block)] = [*found.push(batch), *found.flush()]
    assert block.count == 2
    with pytest.raises(RequestError, match="column 'id' is null"):
        list(found.push(pa.record_batch({"id": pa.array([1, None], pa.int32()), "name": ["a", "b"]})))
