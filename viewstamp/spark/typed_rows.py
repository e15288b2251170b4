"""The fields of a topic's rows as columns with types: the option ``rows`` of a read, and ``format=rows`` of a write.

| field | Spark |
| --- | --- |
| bool | boolean |
| int32, int64 | int, long |
| float32, float64 | float, double |
| string, binary | string, binary |
| timestamp | timestamp |

The driver asks the nodes for the schema of the topic when Spark asks for the columns. Each column has its field in its
metadata, and Spark passes these to the readers, so a query has one schema from its plan to its last task, although that
of the topic may become wider meanwhile. Rows that were written later are read too, without the new fields.

Spark tells a source in Python not which columns a query uses, so the option ``fields`` names them. Of an archived run
only these columns are loaded, if the run has typed columns (``archive/run_rows.py``), and only the row groups that may
have rows which the pushed conditions leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
)

from viewstamp.archive.row_columns import Stray, arrow_type, row_arrays
from viewstamp.archive.run_file import BASE_COLUMNS, RunReader
from viewstamp.archive.run_rows import FieldCondition, TypedColumn, TypedGroup, is_needed, usable_column
from viewstamp.client.aio import Client
from viewstamp.errors import ConfigError, FrameError, RequestError
from viewstamp.spark.blocking_client import blocking_client
from viewstamp.spark.options import SourceOptions
from viewstamp.spark.records import arrow_schema, from_run, spark_schema
from viewstamp.spark.rows import RECORD_COLUMNS
from viewstamp.wire.row_schema import RowField, RowSchema

__all__ = ["as_rows", "check_written", "row_columns", "rows_of_run", "topic_schema", "with_rows"]

_FIELD: Final = "viewstamp.field"
"""The key of a field's text in the metadata of its column."""
_TYPES: Final[dict[str, DataType]] = {
    "bool": BooleanType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "float32": FloatType(),
    "float64": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
}


def row_columns(options: SourceOptions) -> StructType:
    """Ask for the schema of the topic, and return the columns of a read: those of the option, then the fields.

    Raises:
      RequestError: the topic has no schema.
      ConfigError: a field has the name of one of the option's columns; the topic has not all of the option's fields.
      UnknownTopicError, UnavailableError: as for a read.
    """
    link = blocking_client(options.cluster, options.tls, options.token_file)
    link.reach(options.connect_seconds)
    (topic,) = options.topics
    schema = link.run(topic_schema, link.client, topic)
    for field in (found := _chosen(options, schema)):
        if field.name.lower() in options.columns:
            raise ConfigError(
                f"field {field.name} of topic {topic} has the name of a column",
                remedy=f"leave {field.name.lower()} out of the option columns",
            )
    fields = [StructField(each.name, _TYPES[each.type], metadata={_FIELD: each.text}) for each in found]
    return StructType([*spark_schema(options.columns).fields, *fields])


async def topic_schema(client: Client, topic: str) -> RowSchema:
    """Return the schema of a topic. Raises RequestError: it has none; UnknownTopicError."""
    return await client.get_schema(topic)


def _chosen(options: SourceOptions, schema: RowSchema) -> list[RowField]:
    """Return the fields of the option ``fields``, or all. Raises ConfigError."""
    fields = {field.name: field for field in schema.fields}
    for name in options.fields:
        if name not in fields:
            raise ConfigError(
                f"option fields names {name}, which the rows of topic {options.topics[0]} have not",
                remedy=f"there are {', '.join(fields)}",
            )
    return [fields[name] for name in options.fields or fields]


def with_rows(options: SourceOptions, schema: StructType) -> SourceOptions:
    """Return the options with the schema of the rows, which is in the columns that Spark passes.

    Raises ConfigError: they are not those of :func:`row_columns`, because the user has given others.
    """
    count = len(options.columns)
    fields = schema.fields[count:]
    if schema.names[:count] != list(options.columns) or any(_FIELD not in each.metadata for each in fields):
        raise ConfigError(
            f"the requested schema is {schema.simpleString()}, but the option rows takes that of the topic",
            remedy="leave out .schema(...), and choose columns with select(...)",
        )
    return replace(options, row_schema=", ".join(each.metadata[_FIELD] for each in fields))


def check_written(columns: StructType, schema: RowSchema) -> None:
    """Check on the driver that columns are the fields of rows of a schema. Raises RequestError.

    ``columns`` are those of the value. A field with the name of another column of a record cannot be written, because
    a column of this name is taken for the key, the headers or the topic of the record.
    """
    for name in (field.name for field in schema.fields if field.name in RECORD_COLUMNS and field.name != "value"):
        raise RequestError(
            f"the topic's rows have a field {name!r}, and the sink takes the column {name!r} for that of the record",
            remedy="append such rows with a client: append_rows",
        )
    fields = {field.name: field for field in schema.fields}
    for column in columns.fields:
        field = fields.pop(column.name, None)
        if field is None:
            raise RequestError(
                f"column {column.name!r} is no field of the topic's rows: {schema.text}",
                remedy="drop or rename the column, or add the field: viewstamp topic configure",
            )
        wanted = _TYPES[field.type]
        is_text = isinstance(wanted, StringType) and isinstance(column.dataType, VarcharType | CharType)
        if column.dataType != wanted and not is_text:
            raise RequestError(
                f"column {column.name!r} is {column.dataType.simpleString()}, and the field of the topic's rows is"
                f" {field.type}",
                remedy=f'cast it: .withColumn("{column.name}", col("{column.name}").cast("{wanted.simpleString()}"))',
            )
    for field in fields.values():
        if not field.is_nullable:
            raise RequestError(
                f"the rows have no column {field.name!r}, which is {field.type} and not null in the topic's rows",
                remedy="add the column",
            )


def as_rows(options: SourceOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches with the columns of the option and the fields; unchanged without the option ``rows``.

    Raises FrameError: the value of a record is no row of the schema; the message has its position.
    """
    if not options.row_schema:
        yield from batches
        return
    schema = RowSchema.parse(options.row_schema)
    for batch in batches:
        found = row_arrays(schema, batch.column("value").to_pylist())
        if isinstance(found, Stray):
            raise FrameError(
                f"position {batch.column('position')[found.number]} of topic {options.topics[0]}: {found.why}",
                remedy="read the topic without the option rows, or from a later position on",
            )
        arrays = [*(batch.column(name) for name in options.columns), *found.arrays]
        yield pa.RecordBatch.from_arrays(arrays, schema=_arrow_schema(options, schema))


def rows_of_run(
    options: SourceOptions, reader: RunReader, start: int, end: int, conditions: Sequence[FieldCondition]
) -> Iterator[tuple[int, Iterable[pa.RecordBatch]]]:
    """Yield the records of a run at positions in ``[start, end)``, as :func:`as_rows`, one row group a step.

    Each step has the position after its records. Typed columns are used where they are, and the values otherwise; a row
    group that has no row for the ``conditions`` is left out.

    Raises: as :func:`as_rows`, and as ``RunReader.read``.
    """
    schema, topic, rows = RowSchema.parse(options.row_schema), options.topics[0], reader.footer.rows
    for number, group in enumerate(reader.footer.groups):
        low, high = max(start, group.first), min(end, group.first + group.count)
        if low >= high:
            continue
        typed = None if rows is None else rows.groups[number]
        columns = None if rows is None or typed is None else _usable(RowSchema.parse(rows.schema), typed, schema)
        if columns is None:
            [table] = reader.read(low, high)
            yield high, as_rows(options, from_run(table, topic, options.read_columns))
        elif all(is_needed(*columns[each.name], group.count, each) for each in conditions):
            yield high, _typed(options, schema, reader, number, columns, low, high)
        else:
            yield high, ()


def _usable(run: RowSchema, group: TypedGroup, wanted: RowSchema) -> dict[str, tuple[RowField, TypedColumn]] | None:
    """Return the column of each wanted field; None = the values have to be read."""
    found = [(field, usable_column(run, group, field)) for field in wanted.fields]
    columns = {field.name: (field, column) for field, column in found if column is not None}
    return columns if len(columns) == len(found) else None


def _typed(
    options: SourceOptions,
    schema: RowSchema,
    reader: RunReader,
    number: int,
    columns: Mapping[str, tuple[RowField, TypedColumn]],
    low: int,
    high: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a row group at positions in ``[low, high)`` from its typed columns."""
    group = reader.footer.groups[number]
    names = [name for name in options.columns if name in BASE_COLUMNS]
    stored = [name for name, (_, column) in columns.items() if not column.is_absent]
    table, arrays = reader.read_typed(number, names, stored)
    by_name = dict(zip(stored, arrays, strict=True))
    found = {name: table[name] for name in names}
    for field in schema.fields:
        kind = arrow_type(field.type)
        is_stored = field.name in by_name
        found[field.name] = by_name[field.name].cast(kind) if is_stored else pa.nulls(group.count, kind)
    part = pa.table(found).slice(low - group.first, high - low)
    yield from from_run(part, options.topics[0], options.columns, _arrow_schema(options, schema))


def _arrow_schema(options: SourceOptions, schema: RowSchema) -> pa.Schema:
    return pa.schema([*arrow_schema(options.columns), *((each.name, arrow_type(each.type)) for each in schema.fields)])
