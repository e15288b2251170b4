"""Rows to records: Arrow batches from Spark become columns of batches, without a Python step for each row.

Columns of rows, without ``format``:

| column | type | meaning |
| --- | --- | --- |
| value | binary or string | the record's value; required, never null |
| key | binary or string | its key; null = none |
| topic | string | its topic, never null; required without the option ``topic``, rejected with it |
| headers | map<string, binary or string> | its headers; null or empty = none; a null value is rejected |

With ``format`` "json", "msgpack" or "rows" the value is a map of the whole row (``whole_rows.py``). ``key``, ``topic``
and ``headers`` have the same meaning and types there, and are not part of the value; to have them in it, rename them. A
column ``value`` is then like any other.

Strings are encoded in UTF-8. A row that cannot be a record fails the task: the error names the partition, the row in
it, the column and the value. Rows keep their order within a topic; the order between topics is not defined.

Rows that are inserted into a table (``CREATE TABLE ... USING viewstamp``) have all columns that a read gives. The
cluster fills in position, term, index and timestamp, and topic if the table names only one; these have to be null.

This module uses no client, and of Spark only the types of a schema.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import msgpack
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, CharType, DataType, MapType, StringType, StructType, VarcharType

from viewstamp.archive.columns import scalar
from viewstamp.errors import RecordTooLargeError, RequestError
from viewstamp.spark.whole_rows import check_type, encode
from viewstamp.wire.batch import HEADER_SIZE, Buffer, Column, Columns, pad
from viewstamp.wire.names import check_topic

__all__ = ["RECORD_COLUMNS", "Rows", "check_schema", "value_columns"]

_MIB = 1024 * 1024
_PENDING_BYTES_MAX = 64 * _MIB
"""Bytes that wait until their blocks are full, over all topics. With thousands of topics, blocks are sent less full."""
_BATCH_BYTES_MAX = 1024 * _MIB
"""A larger batch is split into halves, because the offsets of a column have 31 bits."""
_BLOCK_COST = HEADER_SIZE + 7 * 8
"""Bytes of a block in addition to its records: a header, and the padding of its three columns and the bitmap."""
_ROW_COST = 13
"""Bytes of a row in addition to its data: three offsets, and a bit."""

RECORD_COLUMNS = ("value", "key", "topic", "headers")
_TEXT = (StringType, VarcharType, CharType)
_BYTES = (BinaryType, *_TEXT)
_ARROW_BYTES = {pa.binary(), pa.string(), pa.large_binary(), pa.large_string()}


def check_schema(
    schema: StructType,
    topic: str,
    format: str = "",  # noqa: A002  # the option's name
    filled_in: Sequence[str] = (),
) -> None:
    """Check on the driver that rows of ``schema`` can be records.

    Args:
      schema: the schema of the rows.
      topic: the option, "" = not given.
      format: the option, "" = the column ``value`` is the value.
      filled_in: columns of a table that the rows may have and that have to be null.

    Raises:
      RequestError: they cannot; the error names the column and the correction.
    """
    schema = StructType([field for field in schema.fields if field.name not in filled_in])
    names = schema.fieldNames()
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"the rows have {names.count(name)} columns {name!r}", remedy="rename or drop one")
    for field in schema.fields:
        expected = _expected(field.name, field.dataType, format)
        if expected:
            raise RequestError(
                f"column {field.name!r} is {field.dataType.simpleString()}; it must be {expected}",
                remedy=f"cast it: .withColumn({field.name!r}, col({field.name!r}).cast(...))"
                + (", or rename it, and it becomes a field of the value" if format else ""),
            )
        if not format and field.name not in RECORD_COLUMNS:
            raise RequestError(
                f"a record has no place for column {field.name!r}: it has {', '.join(RECORD_COLUMNS)}",
                remedy='drop the column; or write whole rows as values: .option("format", "json"), or "msgpack"',
            )
        if format and field.name in _value_names(names, format):
            check_type(field.dataType, field.name)
    if not _value_names(names, format):
        raise RequestError(
            f"the rows have no column for the value, only {', '.join(names) or 'none at all'}",
            remedy='name one "value", binary or string; or write whole rows: .option("format", "json"), or "msgpack"',
        )
    if "topic" in names and topic:
        raise RequestError(
            f"the rows have a column 'topic', and option topic is {topic!r}", remedy="drop one of the two"
        )
    if format == "rows" and not topic:
        raise RequestError("rows of a schema have one topic, and option topic is not given", remedy="name it")
    if "topic" not in names and not topic:
        raise RequestError(
            "the rows have no topic: neither option topic nor a column 'topic' is given",
            remedy='name the topic: .option("topic", "..."); or add a column: .withColumn("topic", ...)',
        )


def _expected(name: str, kind: DataType, format: str) -> str:  # noqa: A002
    """Return the required type of a column; "" = its type is correct."""
    if name == "topic":
        return "" if isinstance(kind, _TEXT) else "string"
    if name == "headers":
        is_map = isinstance(kind, MapType) and isinstance(kind.keyType, _TEXT) and isinstance(kind.valueType, _BYTES)
        return "" if is_map else "map<string,binary> or map<string,string>"
    if name == "key" or (name == "value" and not format):
        return "" if isinstance(kind, _BYTES) else "binary or string"
    return ""


def _value_names(names: list[str], format: str) -> list[str]:  # noqa: A002
    """Return the columns that form the value."""
    return [name for name in names if (name not in RECORD_COLUMNS or name == "value") and (format or name == "value")]


def value_columns(schema: StructType, format: str) -> StructType:  # noqa: A002  # the option's name
    """Return the columns that form the value."""
    names = _value_names(schema.fieldNames(), format)
    return StructType([field for field in schema.fields if field.name in names])


class Rows:
    """Collects the rows of one partition into blocks: columns of up to ``block_bytes``, each of one topic.

    Invariants:
      * a block is at most ``block_bytes`` as a batch, or has one record
      * waiting rows have at most 64 MiB, plus the batch that was pushed last
      * after an error nothing more is pushed, because the task has failed
    """

    def __init__(
        self,
        schema: StructType,
        topic: str = "",
        *,
        format: str = "",  # noqa: A002  # the option's name
        record_bytes_max: int,
        block_bytes: int = _MIB,
        partition: int = 0,
        filled_in: Sequence[str] = (),
        required: Sequence[str] = (),
    ) -> None:
        """Take rows of ``schema``; ``topic``: their topic, "" = that of their column.

        ``record_bytes_max``: the cluster's limit for value, key and headers of one record. ``partition``: the number in
        errors. ``filled_in``: as for :func:`check_schema`. ``required``: columns that are never null.

        Raises RequestError as :func:`check_schema`.
        """
        check_schema(schema, topic, format, filled_in)
        self.count = 0
        """The number of pushed rows."""
        self._topic = topic
        self._format = format
        self._required = required
        self._filled_in = [name for name in schema.fieldNames() if name in filled_in]
        names = [name for name in schema.fieldNames() if name not in filled_in]
        self._value_names = _value_names(names, format)
        self._record_bytes_max = record_bytes_max
        self._block_bytes = block_bytes - _BLOCK_COST
        self._partition = partition
        self._pending: dict[str, _Pending] = {}
        self._pending_bytes = 0

    def push(self, batch: pa.RecordBatch) -> list[tuple[str, Columns]]:
        """Add Spark's next rows; return the blocks that are now full. They may contain views of ``batch``.

        Raises:
          RecordTooLargeError: a record is over ``record_bytes_max``.
          RequestError: a row cannot be a record for another reason. Both errors name the row.
        """
        if batch.nbytes > _BATCH_BYTES_MAX and batch.num_rows > 1:
            half = batch.num_rows // 2
            return self.push(batch.slice(0, half)) + self.push(batch.slice(half))
        if batch.num_rows == 0:
            return []
        try:
            records = self._records(batch)
        except RequestError:
            self._fail(batch)
        self.count += batch.num_rows
        blocks = list(self._add(records))
        return blocks if self._pending_bytes < _PENDING_BYTES_MAX else blocks + self.flush()

    def flush(self) -> list[tuple[str, Columns]]:
        """Return the remaining rows, in blocks that are not full."""
        blocks = [(topic, pending.take()) for topic, pending in self._pending.items()]
        self._pending.clear()
        self._pending_bytes = 0
        return blocks

    def _records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return columns value, key, headers and topic as binary, and ``cost``: the bytes of each row in a block.

        Raises RequestError without the number of the row; finding it costs time, so that is left to :meth:`_fail`.
        """
        for name in self._filled_in:
            if batch.column(name).null_count < batch.num_rows:
                raise RequestError(
                    f"column {name!r} of a table is filled in by the cluster, but a row has a value in it",
                    remedy="leave it out: INSERT INTO NAME (key, value, headers) ..., or write NULL",
                )
        if self._filled_in:
            batch = batch.drop_columns(self._filled_in)
        names = batch.schema.names
        for name in self._required:
            if batch.column(name).null_count:
                raise RequestError(
                    f"column {name!r} is null, and the field of the topic's rows is not",
                    remedy=f'fill it, or leave the row out: .where("{name} is not null")',
                )
        if self._format:
            value = encode(batch.select(self._value_names), self._format)
        else:
            value = _binary(batch, "value")
        columns = {"value": value}
        if "key" in names:
            columns["key"] = _binary(batch, "key")
        if "headers" in names:
            columns["headers"] = _pack_headers(batch.column("headers"))
        sizes = {
            name: pc.fill_null(pc.binary_length(column), scalar(pa.int32(), 0)) for name, column in columns.items()
        }
        total = sizes["value"]
        for name in list(sizes)[1:]:
            total = pc.add(total, sizes[name])
        largest = pc.max(total).as_py()
        if largest > self._record_bytes_max:
            parts = ", ".join(f"{name} {size[0].as_py():,}" for name, size in sizes.items())
            raise RecordTooLargeError(
                f"a record of {largest:,} bytes ({parts}) is over the limit of {self._record_bytes_max:,}",
                remedy="write smaller values, or raise [limits] record_bytes_max on every node",
            )
        if "topic" in names:
            columns["topic"] = _topics(batch)
        for name in ("value", "topic"):
            if name in columns and columns[name].null_count:
                raise RequestError(
                    f"column {name!r} is null", remedy=f'leave such rows out: .na.drop(subset=["{name}"])'
                )
        columns["cost"] = pc.add(total, scalar(pa.int64(), _ROW_COST))
        return pa.RecordBatch.from_arrays([*columns.values()], names=[*columns])

    def _fail(self, batch: pa.RecordBatch) -> None:
        """Find the first row of ``batch`` that cannot be a record, and raise its error."""

        def is_wrong(rows: int) -> bool:
            try:
                self._records(batch.slice(0, rows))
            except RequestError:
                return True
            return False

        row = bisect_left(range(1, batch.num_rows), True, key=is_wrong)
        topic = self._topic or _decode(_binary(batch, "topic")[row])
        try:
            self._records(batch.slice(row, 1))
        except RequestError as error:
            where = f"partition {self._partition}, row {self.count + row} (from 0), topic {topic!r}"
            error.message = f"{where}: {error.message}"
            raise

    def _add(self, records: pa.RecordBatch) -> Iterator[tuple[str, Columns]]:
        """Add ``records`` to the waiting rows of their topics; yield each block that has become full."""
        runs = [(self._topic, 0, records.num_rows)]
        if not self._topic:
            records, runs = _by_topic(records)
        costs = memoryview(pc.cumulative_sum(records.column("cost").cast(pa.int64())).buffers()[1]).cast("q")
        records = records.drop_columns("cost")
        for topic, start, stop in runs:
            pending = self._pending.setdefault(topic, _Pending())
            while start < stop:
                before = costs[start - 1] if start else 0
                end = bisect_right(costs, before + self._block_bytes - pending.bytes, start, stop)
                if end == start and not pending.parts:
                    end = start + 1  # One record that is larger than a block.
                if end > start:
                    pending.parts.append(records.slice(start, end - start))
                    pending.bytes += costs[end - 1] - before
                    self._pending_bytes += costs[end - 1] - before
                    start = end
                if start < stop:
                    self._pending_bytes -= pending.bytes
                    yield topic, pending.take()


class _Pending:
    """Records of one topic that wait until a block is full."""

    def __init__(self) -> None:
        self.parts: list[pa.RecordBatch] = []
        self.bytes = 0

    def take(self) -> Columns:
        """Return all of them as one block; copies only if they come from several batches."""
        records = self.parts[0] if len(self.parts) == 1 else pa.concat_batches(self.parts)
        self.parts, self.bytes = [], 0
        return _columns(records)


def _binary(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column of bytes or text as binary: a view if its offsets have 32 bits."""
    column = batch.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type not in _ARROW_BYTES:
        raise RequestError(f"column {name!r} is {column.type}; it must be binary or string", remedy="cast it")
    return column.view(pa.binary()) if column.type == pa.string() else column.cast(pa.binary())


def _topics(batch: pa.RecordBatch) -> pa.Array:
    """Return the column of topics, after a check that each is a valid name."""
    topics = _binary(batch, "topic")
    for name in topics.unique().drop_null():
        try:
            check_topic(_decode(name))
        except RequestError as error:
            error.message = f"column 'topic': {error.message}"
            raise
    return topics


def _decode(name: pa.BinaryScalar) -> str | None:
    """Return a name for an error message, also if it is null or not UTF-8."""
    return name.as_py().decode(errors="backslashreplace") if name.is_valid else None


def _by_topic(records: pa.RecordBatch) -> tuple[pa.RecordBatch, list[tuple[str, int, int]]]:
    """Return the records sorted by topic, each topic's in their order; and the name, start and end of each topic."""
    topics = records.column("topic").dictionary_encode()
    codes, names = topics.indices, topics.dictionary.to_pylist()
    if len(names) > 1:
        order = pc.array_sort_indices(codes)  # Stable: rows of one topic keep their order.
        codes, records = codes.take(order), records.take(order)
    found, counts = pc.value_counts(codes).flatten()
    ends = list(accumulate(counts.to_pylist(), initial=0))
    runs = [(names[code].decode(), *run) for code, run in zip(found.to_pylist(), pairwise(ends), strict=True)]
    return records.drop_columns("topic"), runs


def _pack_headers(column: pa.MapArray) -> pa.Array:
    """Return each row's headers as a msgpack map; empty bytes for rows without headers."""
    packed = [b""] * len(column)
    offsets = column.offsets.to_pylist()
    first, last = offsets[0], offsets[-1]
    if first < last:  # A slice still has the names and values of all rows.
        names = column.keys[first:last].cast(pa.binary())
        values = column.items[first:last].cast(pa.binary())
        for name in names.filter(values.is_null())[:1]:
            raise RequestError(f"column 'headers': {_decode(name)!r} is null", remedy="leave it out, or make it empty")
        try:
            names = names.cast(pa.string()).to_pylist()
        except pa.ArrowInvalid as error:
            raise RequestError(f"column 'headers': a name is not UTF-8: {error}", remedy="name it in UTF-8") from None
        values = values.to_pylist()
        pack = msgpack.Packer().pack
        for row, valid in enumerate(column.is_valid().to_pylist()):
            start, end = offsets[row] - first, offsets[row + 1] - first
            if start < end and valid:
                packed[row] = pack(dict(zip(names[start:end], values[start:end], strict=True)))
    return pa.array(packed, pa.binary())


def _columns(records: pa.RecordBatch) -> Columns:
    """Return records in the layout of a batch: views of their buffers, except for offsets that do not start at 0."""
    names = records.schema.names
    validity, keys, headers = None, None, None
    if "key" in names and records.column("key").null_count < records.num_rows:
        validity, keys = _validity(records.column("key")), _column(records.column("key"))
    if "headers" in names:
        headers = _column(records.column("headers"))
    return Columns(
        records.num_rows,
        _column(records.column("value")),
        validity,
        keys,
        headers if headers is not None and len(headers.data) else None,
    )


def _column(array: pa.Array) -> Column:
    _, table, data = array.buffers()
    offsets = pa.Array.from_buffers(pa.int32(), len(array) + 1, [None, table], offset=array.offset)
    start, end = offsets[0].as_py(), offsets[-1].as_py()
    if start:
        offsets = pc.subtract(offsets, scalar(pa.int32(), start))
    first = 4 * offsets.offset
    return Column(_bytes(offsets.buffers()[1])[first : first + 4 * len(offsets)], _bytes(data)[start:end])


def _validity(array: pa.Array) -> bytes:
    """Return the bitmap from bit 0 on, with zeros behind it."""
    count, bitmap = len(array), array.buffers()[0]
    ones = (1 << count) - 1
    bits = ones if bitmap is None else int.from_bytes(_bytes(bitmap), "little") >> array.offset & ones
    return bits.to_bytes(pad((count + 7) // 8), "little")


def _bytes(buffer: pa.Buffer | None) -> Buffer:
    return memoryview(buffer).cast("B") if buffer is not None else b""
