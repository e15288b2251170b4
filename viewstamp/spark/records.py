"""Records to rows: a batch from the wire becomes an Arrow batch; values and keys are not copied.

| column | Spark | content |
| --- | --- | --- |
| topic | string | the name of the record's topic |
| position | long | its place there, from 1 |
| term, index | long | its viewstamp: its place in the log |
| timestamp | timestamp | the log time of its batch, in microseconds |
| key | binary | its key, null = none |
| value | binary | never null |
| headers | map<string, binary> | its headers, null = none |
| stream | integer | the number of its stream, null = the topic has none; only if the option ``columns`` names it |

The records of a topic with streams have the position in the topic, and the term and the index of the stream's group.

This module does not use a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from viewstamp.archive.columns import header_maps, scalar
from viewstamp.errors import FrameError
from viewstamp.spark.options import COLUMNS
from viewstamp.wire.batch import Batch, Buffer, Column

__all__ = ["arrow_schema", "join", "spark_schema", "table_options", "to_record_batch", "without_metadata"]

_TABLE = "viewstamp"
"""The key of the options in the metadata of a column of a table."""
_RUN_BATCH_BYTES = 2 * 1024 * 1024
"""Most bytes of one batch for Spark. A row group of a run has 16 MiB, which would be three times in memory."""
_HEADERS = pa.map_(pa.string(), pa.binary())
_TYPES = {
    "topic": (StringType(), pa.string()),
    "position": (LongType(), pa.int64()),
    "term": (LongType(), pa.int64()),
    "index": (LongType(), pa.int64()),
    "timestamp": (TimestampType(), pa.timestamp("us", tz="UTC")),
    "key": (BinaryType(), pa.binary()),
    "value": (BinaryType(), pa.binary()),
    "headers": (MapType(StringType(), BinaryType()), _HEADERS),
    "stream": (IntegerType(), pa.int32()),
}
"""Spark compares the Arrow schema with its own exactly. Its timestamps are in UTC for every session time zone."""


def spark_schema(columns: Sequence[str] = COLUMNS, table: Mapping[str, str] | None = None) -> StructType:
    """Return Spark's schema of these columns, in this order.

    ``table`` has the options of the table that is created; None = the schema is not for a table.

    Spark keeps the options of a table in its catalogue and passes them to no source in Python. It does pass the columns
    with their metadata, so each column carries the options.
    """
    metadata = None if table is None else {_TABLE: dict(table)}
    return StructType([StructField(name, _TYPES[name][0], metadata=metadata) for name in columns])


def table_options(schema: StructType) -> dict[str, str] | None:
    """Return the options that :func:`spark_schema` stored in the columns; None = this is not a table of this source."""
    for field in schema.fields:
        if field.metadata and _TABLE in field.metadata:
            return dict(field.metadata[_TABLE])
    return None


def without_metadata(schema: StructType) -> StructType:
    """Return the schema with names and types only."""
    return StructType([StructField(field.name, field.dataType, field.nullable) for field in schema.fields])


def arrow_schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """Return the schema that Spark requires of Arrow batches with these columns, in this order."""
    return pa.schema([(name, _TYPES[name][1]) for name in columns])


def to_record_batch(
    batch: Batch,
    start: int,
    end: int,
    topic: str,
    columns: Sequence[str] = COLUMNS,
    *,
    shift: int = 0,
    stream: int | None = None,
) -> pa.RecordBatch:
    """Return the records of ``batch`` with positions in ``[start, end)``; there may be none.

    Args:
      batch: as a reader gets it. Its buffer lives as long as the result, whose values and keys are views of it.
      topic: the name of its topic.
      start: the first position.
      end: the position after the last.
      columns: the columns to return, in this order.
      shift: the position in the topic of a record of a stream, minus that in the stream.
      stream: the number of the stream; None = the topic has none.

    Raises:
      FrameError: the layout of the body is invalid although its checksum is correct, so its writer is faulty.
    """
    first = min(max(start - batch.first_position, 0), batch.count)
    count = max(0, min(end - batch.first_position, batch.count) - first)
    position, index = batch.first_position + first, batch.first_index + first
    parts = batch.columns()

    def bytes_of(column: Column | None, validity: Buffer | None = None) -> pa.Array:
        if column is None:
            return pa.nulls(count, pa.binary())
        return _binary(batch, column, validity).slice(first, count)

    def column(name: str) -> pa.Array:
        match name:
            case "value":
                return bytes_of(parts.values)
            case "key":
                return bytes_of(parts.keys, parts.validity)
            case "headers":
                return header_maps(batch, bytes_of(parts.headers))
            case "position":
                return pa.arange(position + shift, position + shift + count)
            case "index":
                return pa.arange(index, index + count)
        constants = {"topic": topic, "stream": stream, "term": batch.term, "timestamp": batch.log_time}
        return pa.repeat(scalar(_TYPES[name][1], constants[name]), count)

    return pa.RecordBatch.from_arrays([column(name) for name in columns], schema=arrow_schema(columns))


def from_run(
    table: pa.Table,
    topic: str,
    columns: Sequence[str] = COLUMNS,
    schema: pa.Schema | None = None,
    *,
    stream: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a table that a run file returned, in batches for Spark; keys and values are not copied.

    ``schema``: that of the batches, if the table has typed columns too; None = that of ``columns``. ``stream``: the
    number of the stream; None = the topic has none.

    Raises:
      FrameError: the headers of a record are not a map, so its writer is faulty.
    """
    rows = max(1, min(table.num_rows, _RUN_BATCH_BYTES * table.num_rows // max(1, table.nbytes)))
    for batch in table.to_batches(max_chunksize=rows):

        def column(name: str, batch: pa.RecordBatch = batch) -> pa.Array:
            if name == "topic":
                return pa.repeat(scalar(pa.string(), topic), batch.num_rows)
            if name == "stream":
                return pa.repeat(scalar(pa.int32(), stream), batch.num_rows)
            if name == "headers":
                return header_maps(f"run of topic {topic}", batch.column(name))
            return batch.column(name)

        wanted = arrow_schema(columns) if schema is None else schema
        arrays = [column(name) for name in columns]
        arrays += [batch.column(name) for name in wanted.names[len(columns) :]]
        yield pa.RecordBatch.from_arrays(arrays, schema=wanted)


def join(batches: Iterable[pa.RecordBatch], *, rows: int = 1024, bytes: int = 1024 * 1024) -> Iterator[pa.RecordBatch]:  # noqa: A002
    """Yield ``batches`` with small ones joined until they have ``rows`` or ``bytes``, because each has a fixed cost.

    Larger ones pass unchanged, without a copy. Empty ones are left out.
    """
    waiting: list[pa.RecordBatch] = []
    waiting_rows = waiting_bytes = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        waiting.append(batch)
        waiting_rows += batch.num_rows
        waiting_bytes += batch.nbytes
        if waiting_rows >= rows or waiting_bytes >= bytes:
            yield _joined(waiting)
            waiting, waiting_rows, waiting_bytes = [], 0, 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _binary(batch: Batch, column: Column, validity: Buffer | None) -> pa.Array:
    """Return a column as an array over its bytes, after a check that its offsets stay inside."""
    buffers = [
        None if validity is None else pa.py_buffer(validity),
        # Copied, four bytes for each record, because Arrow requires alignment and a frame has none.
        pa.py_buffer(bytes(column.offsets)),
        pa.py_buffer(column.data),
    ]
    array = pa.Array.from_buffers(pa.binary(), batch.count, buffers)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise FrameError(f"a column of {batch!r} has an invalid layout: {error}") from None
    return array
