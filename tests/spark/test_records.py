"""Records to rows: Arrow uses the bytes of the batch, and no layout makes it read beyond them."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Mapping
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from viewstamp.errors import FrameError
from viewstamp.ids import Index, Position, Term, TopicId
from viewstamp.spark.options import COLUMNS
from viewstamp.spark.records import arrow_schema, join, spark_schema, to_record_batch
from viewstamp.wire.batch import HEADER_SIZE, Batch, build_batch, pad

Headers = Mapping[str, bytes] | None
HEADERS = st.none() | st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=3)
RECORDS = st.lists(st.tuples(st.binary(max_size=40), st.none() | st.binary(max_size=10), HEADERS), min_size=1)
LOG_TIME = 1_700_000_000_123_456
FIRST = 40


def batch_of(records: list[tuple[bytes, bytes | None, Headers]], *, shift: int = 0) -> Batch:
    """A batch as it is received: a read-only view, at any byte of a larger buffer."""
    values, keys, headers = (list(column) for column in zip(*records, strict=True))
    batch = build_batch(values, topic=TopicId(3), keys=keys, headers=headers)
    batch.stamp(
        term=Term(7),
        first_index=Index(100),
        previous_term=Term(6),
        log_time=LOG_TIME,
        first_position=Position(FIRST),
    )
    return Batch.decode(memoryview(bytes(shift) + bytes(batch.buffer))[shift:])


def expected(batch: Batch, start: int, end: int) -> list[dict[str, Any]]:
    """The records that the batch's own reader returns."""
    time = datetime.datetime.fromtimestamp(LOG_TIME // 1_000_000, datetime.UTC)
    return [
        {
            "topic": "flights",
            **record._asdict(),
            "timestamp": time.replace(microsecond=LOG_TIME % 1_000_000),
            "headers": None if record.headers is None else list(record.headers.items()),
        }
        for record in batch.records()
        if start <= record.position < end
    ]


@pytest.mark.slow
@settings(deadline=None)
@given(RECORDS, st.integers(0, 8), st.integers(FIRST - 5, FIRST + 60), st.integers(FIRST - 5, FIRST + 60))
def test_rows_are_the_records_of_the_range(
    records: list[tuple[bytes, bytes | None, Headers]], shift: int, start: int, end: int
) -> None:
    batch = batch_of(records, shift=shift)
    found = to_record_batch(batch, start, end, "flights")
    found.validate(full=True)
    assert found.schema == arrow_schema()
    assert [{name: row[name] for name in COLUMNS} for row in found.to_pylist()] == [
        {name: row[name] for name in COLUMNS} for row in expected(batch, start, end)
    ]
    # Spark serializes a record batch. Bytes outside of the range must not be in it.
    assert pa.ipc.read_record_batch(found.serialize(), found.schema).equals(found)


@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS[::-1], ("value",), ("headers", "position"), ()])
def test_columns_come_as_they_are_named(columns: tuple[str, ...]) -> None:
    batch = batch_of([(b"v", b"k", {"a": b"1"}), (b"", None, None)])
    found = to_record_batch(batch, 0, 1000, "flights", columns)
    assert found.schema.names == list(columns)
    assert found.schema == arrow_schema(columns)
    rows = [{name: row[name] for name in columns} for row in expected(batch, 0, 1000)]
    assert found.to_pylist() == (rows if columns else [])


def test_the_schemas_are_what_spark_compares_them_with() -> None:
    """Spark rejects a batch with another Arrow schema, down to the type of a map's values."""
    assert arrow_schema() == to_arrow_schema(spark_schema(), timezone="UTC")
    assert spark_schema().simpleString() == (
        "struct<topic:string,position:bigint,term:bigint,index:bigint,timestamp:timestamp,"
        "key:binary,value:binary,headers:map<string,binary>>"
    )
    assert spark_schema(("value", "topic")).simpleString() == "struct<value:binary,topic:string>"


@pytest.mark.parametrize("shift", [0, 1, 4])
def test_values_and_keys_are_the_bytes_that_were_received(shift: int) -> None:
    batch = batch_of([(b"value", b"key", None)] * 10, shift=shift)
    received = pa.py_buffer(batch.buffer)
    found = to_record_batch(batch, FIRST + 3, FIRST + 9, "flights")
    for name, sample in (("value", b"value" * 10), ("key", b"key" * 10)):
        data = found.column(name).buffers()[2]
        assert data.to_pybytes() == sample
        assert received.address <= data.address < received.address + received.size


def test_headers_that_nobody_asks_for_are_not_looked_at() -> None:
    batch = resealed(batch_of([(b"v", b"k", {"a": b"1"})]), b"\x81\xa1a\xc4\x011", b"\xff" * 6)
    assert to_record_batch(batch, 0, 1000, "flights", ("value", "key")).to_pylist() == [{"value": b"v", "key": b"k"}]
    with pytest.raises(FrameError, match=r"headers of a record of <Batch RECORDS .* are not a msgpack"):
        to_record_batch(batch, 0, 1000, "flights", ("headers",))


@pytest.mark.parametrize(
    "packed",
    [b"\x81\xa1a\xa2tt", b"\x81\xc4\0\xc4\x01t", b"\x95\1\2\3\4\5", b"\x81\xa1a\1\2\3", b"\x81\x90\xc4\2aa"],
    ids=["text", "bytes as a name", "a list", "more behind it", "a list as a name"],
)
def test_headers_that_are_no_map_of_text_to_bytes_are_refused(packed: bytes) -> None:
    batch = resealed(batch_of([(b"v", None, {"a": b"1"})]), msgpack.packb({"a": b"1"}), packed)
    with pytest.raises(FrameError, match="headers of a record of <Batch RECORDS"):
        to_record_batch(batch, 0, 1000, "flights")


def resealed(batch: Batch, old: bytes, new: bytes) -> Batch:
    """The batch with other bytes in its body and correct checksums: as a faulty or hostile client may send it."""
    buffer = bytes(batch.buffer)
    assert buffer.count(old, HEADER_SIZE) == 1
    return reseal(bytearray(buffer.replace(old, new)))


def reseal(buffer: bytearray) -> Batch:
    struct.pack_into("<I", buffer, 48, crc32c(bytes(buffer[52:])))
    struct.pack_into("<I", buffer, 4, crc32c(bytes(buffer[8:HEADER_SIZE])))
    return Batch.decode(bytes(buffer))


@pytest.mark.parametrize(
    ("at", "offset"),
    [(0, 1), (0, -1), (4, 7), (4, -1), (8, 2**31 - 1), (12, -8), (12, 2**31 - 1), (12, 4)],
)
@pytest.mark.parametrize("column", ["value", "key"])
def test_offsets_that_do_not_rise_inside_the_column_are_refused(at: int, offset: int, column: str) -> None:
    """Arrow does not check them, and would read bytes beside the batch."""
    buffer = bytearray(batch_of([(b"aa", b"aa", None), (b"bbbb", b"bbbb", None), (b"", b"", None)]).buffer)
    start = HEADER_SIZE if column == "value" else HEADER_SIZE + pad(16) + pad(6) + 8
    assert struct.unpack_from("<4i", buffer, start) == (0, 2, 6, 6)
    struct.pack_into("<i", buffer, start + at, offset)
    with pytest.raises(FrameError):
        to_record_batch(reseal(buffer), 0, 1000, "flights", (column,))


@pytest.mark.slow
@settings(deadline=None)
@given(RECORDS, st.data())
def test_no_body_makes_arrow_read_beyond_it(
    records: list[tuple[bytes, bytes | None, Headers]], data: st.DataObject
) -> None:
    """A batch that is cut short, or has wrong bytes or a wrong count, gives a FrameError, or rows inside its body."""
    buffer = bytearray(batch_of(records).buffer)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(HEADER_SIZE, len(buffer) - 1))
        buffer[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del buffer[data.draw(st.integers(HEADER_SIZE, len(buffer))) :]
        struct.pack_into("<I", buffer, 80, len(buffer) - HEADER_SIZE)
    count = data.draw(st.just(len(records)) | st.integers(1, 100) | st.just(2**32 - 1))
    struct.pack_into("<I", buffer, 60, count)
    try:
        found = to_record_batch(reseal(buffer), 0, 1000, "flights")
    except FrameError:
        return
    found.validate(full=True)
    assert found.num_rows == count


def test_small_batches_are_joined_and_large_ones_pass() -> None:
    small = to_record_batch(batch_of([(b"v" * 10, None, None)]), 0, 1000, "flights")
    large = to_record_batch(batch_of([(b"v" * 1000, None, None)] * 10), 0, 1000, "flights")
    empty = small.slice(0, 0)
    assert list(join([])) == list(join([empty, empty])) == []
    joined = list(join([small, empty, small, small, large, small], rows=4, bytes=5000))
    assert [each.num_rows for each in joined] == [13, 1]
    assert pa.Table.from_batches(joined).equals(pa.Table.from_batches([small, small, small, large, small]))
    assert list(join([large, empty, large], rows=10))[1] is large
    assert [each.num_rows for each in join([small] * 9, rows=4)] == [4, 4, 1]
