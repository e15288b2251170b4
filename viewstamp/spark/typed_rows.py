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
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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

from viewstamp.errors import ConfigError, FrameError, RequestError
from viewstamp.spark.blocking_client import blocking_client
from viewstamp.spark.options import SourceOptions
from viewstamp.spark.records import arrow_schema, spark_schema
from viewstamp.spark.rows import RECORD_COLUMNS
from viewstamp.wire.row_schema import RowField, RowSchema

__all__ = ["as_rows", "check_written", "row_columns", "with_rows"]

_FIELD: Final = "viewstamp.field"
"""The key of a field's text in the metadata of its column."""
_TYPES: Final[dict[str, tuple[DataType, pa.DataType]]] = {
    "bool": (BooleanType(), pa.bool_()),
    "int32": (IntegerType(), pa.int32()),
    "int64": (LongType(), pa.int64()),
    "float32": (FloatType(), pa.float32()),
    "float64": (DoubleType(), pa.float64()),
    "string": (StringType(), pa.string()),
    "binary": (BinaryType(), pa.binary()),
    "timestamp": (TimestampType(), pa.timestamp("us", tz="UTC")),
}


def row_columns(options: SourceOptions) -> StructType:
    """Ask for the schema of the topic, and return the columns of a read: those of the option, then the fields.

    Raises:
      RequestError: the topic has no schema. ConfigError: a field has the name of one of the option's columns.
      UnknownTopicError, UnavailableError: as for a read.
    """
    link = blocking_client(options.cluster, options.tls, options.token_file)
    link.reach(options.connect_seconds)
    (topic,) = options.topics
    schema = link.run(link.client.get_schema, topic)
    for field in schema.fields:
        if field.name.lower() in options.columns:
            raise ConfigError(
                f"field {field.name} of topic {topic} has the name of a column",
                remedy=f"leave {field.name.lower()} out of the option columns",
            )
    fields = [StructField(each.name, _TYPES[each.type][0], metadata={_FIELD: each.text}) for each in schema.fields]
    return StructType([*spark_schema(options.columns).fields, *fields])


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
        wanted = _TYPES[field.type][0]
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
    types = pa.schema([*arrow_schema(options.columns), *((each.name, _TYPES[each.type][1]) for each in schema.fields)])
    for batch in batches:
        rows = []
        for at, value in enumerate(batch.column("value").to_pylist()):
            try:
                rows.append(schema.decode(value))
            except FrameError as error:
                raise FrameError(
                    f"position {batch.column('position')[at]} of topic {options.topics[0]}: {error.message}",
                    remedy="read the topic without the option rows, or from a later position on",
                ) from error
        arrays = [batch.column(name) for name in options.columns]
        arrays += [_array(field, [row[field.name] for row in rows]) for field in schema.fields]
        yield pa.RecordBatch.from_arrays(arrays, schema=types)


def _array(field: RowField, values: list[object]) -> pa.Array:
    return pa.array(values, _TYPES[field.type][1])
