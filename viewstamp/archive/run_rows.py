"""The typed columns of a run: the fields of the rows of a topic with a schema, beside their records. Needs pyarrow.

A run of such a topic has one more column, ``row``: a struct with a column for each field of the schema that the topic
had when the run was begun. The values of the records stay, so reads by clients and the digest do not depend on it.
Parquet readers load ``row.id`` without the other columns.

The description of the run has the schema, and for each row group its :class:`TypedGroup`: a checksum of each column,
and the bounds and the number of nulls of each field, by which readers leave out row groups. Bounds are not taken from
the statistics of Parquet, because these have no checksum. A group with a record that is no row of the schema has null
in ``row``, and no :class:`TypedGroup`: readers take its values, and get the error at the position of that record.

| the reader's field | the column is used if |
| --- | --- |
| the same type | no value is null, or the reader's field is nullable |
| int64 of int32, float64 of float32 | the same, and the group is exact |
| not in the run | the group is exact, and the field is nullable: all values are null |
| any other | never; the values of the group are read |

A group is *exact* if its columns have all that its rows have. Otherwise a reader with a later schema would miss a field
that a row had before the schema had it, or the digits of a number that was rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from viewstamp.archive.columns import scalar
from viewstamp.archive.row_columns import Stray, arrow_type, row_arrays
from viewstamp.errors import FrameError
from viewstamp.wire.checksum import crc32c
from viewstamp.wire.row_schema import RowField, RowSchema, is_wider

__all__ = [
    "ROW",
    "FieldCondition",
    "RunRows",
    "TypedColumn",
    "TypedGroup",
    "column_bytes",
    "column_checksum",
    "is_needed",
    "row_column",
    "row_encodings",
    "row_structs",
    "row_type",
    "usable_column",
]

ROW: Final = "row"
"""The name of the struct."""
_ROWS: Final = 8192
"""Rows that are converted at once: maps of Python need much more memory than columns."""
_BOUND_CHARACTERS: Final = 64
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Bound = int | float | str | None


class TypedColumn(NamedTuple):
    """A field in a row group. ``low`` and ``high`` bound its values, timestamps in microseconds; None = unknown."""

    checksum: int
    nulls: int
    low: Bound
    high: Bound

    @property
    def is_absent(self) -> bool:
        """Whether the run has no column for the field, so that all values are null. Never so in a description."""
        return self.nulls < 0


class TypedGroup(NamedTuple):
    """The typed columns of a row group.

    Attributes:
      is_exact: whether the columns have all that the rows have.
      base: the checksums of the other columns of the run, so that a reader can load some of them.
      columns: in the order of the schema.
    """

    is_exact: bool
    base: list[int]
    columns: list[TypedColumn]


class RunRows(NamedTuple):
    """The schema of the typed columns of a run, and each of its row groups; None = the values of a group are read."""

    schema: str
    groups: list[TypedGroup | None]

    @classmethod
    def of(cls, found: Any) -> RunRows:
        """Return what is described by lists, as JSON has it. Raises TypeError, ValueError."""
        schema, groups = found
        RowSchema.parse(schema)
        return cls(schema, [None if each is None else _typed_group(*each) for each in groups])


def _typed_group(is_exact: bool, base: list[int], columns: list[Any]) -> TypedGroup:
    return TypedGroup(is_exact, base, [TypedColumn(*each) for each in columns])


def row_type(schema: RowSchema) -> Any:
    """Return the Arrow type of the struct."""
    import pyarrow as arrow

    return arrow.struct([(field.name, arrow_type(field.type)) for field in schema.fields])


def row_encodings(schema: RowSchema) -> tuple[list[str], list[str]]:
    """Return the paths of the columns that have a dictionary, and of those that have differences of numbers."""
    texts = [f"{ROW}.{field.name}" for field in schema.fields if field.type in ("string", "binary")]
    numbers = [f"{ROW}.{field.name}" for field in schema.fields if field.type in ("int32", "int64", "timestamp")]
    return texts, numbers


def row_column(schema: RowSchema, table: Any, names: Sequence[str]) -> tuple[Any, TypedGroup | None]:
    """Return the struct of the records of ``table``, whose columns are ``names``, and its description."""
    import pyarrow as arrow

    kind = row_type(schema)
    parts = []
    is_exact = True
    for start in range(0, table.num_rows, _ROWS):
        found = row_arrays(schema, table["value"].slice(start, _ROWS).to_pylist())
        if isinstance(found, Stray):
            return arrow.chunked_array([arrow.nulls(table.num_rows, kind)]), None
        is_exact = is_exact and found.is_exact
        parts.append(arrow.StructArray.from_arrays(found.arrays, fields=list(kind)))
    column = arrow.chunked_array(parts, kind)
    base = [column_checksum(table[name]) for name in names]
    typed = [_typed_column(field, child) for field, child in zip(schema.fields, column.flatten(), strict=True)]
    return column, TypedGroup(is_exact, base, typed)


def row_structs(schema: RowSchema, values: Any) -> Any:
    """Return the struct of each value of a column; null for one that is no row of the schema."""
    import pyarrow as arrow

    kind = row_type(schema)
    parts = []
    for start in range(0, len(values), _ROWS):
        some = values.slice(start, _ROWS).to_pylist()
        found = row_arrays(schema, some)
        if isinstance(found, Stray):
            parts.append(arrow.array([_row_or_none(schema, value) for value in some], kind))
        else:
            parts.append(arrow.StructArray.from_arrays(found.arrays, fields=list(kind)))
    return arrow.chunked_array(parts, kind)


def _row_or_none(schema: RowSchema, value: bytes) -> dict[str, Any] | None:
    try:
        return schema.decode(value)
    except FrameError:
        return None


def column_bytes(column: Any) -> Iterator[tuple[int, memoryview]]:
    """Yield the content of a column in parts, each with the number of its stream: 0 or 1.

    Numbers without nulls have one stream, their bytes. Byte strings have two: the lengths (4 bytes, -1 = null), and the
    strings one behind the other.
    """
    import pyarrow as arrow

    is_binary = arrow.types.is_binary(column.type) or arrow.types.is_string(column.type)
    for chunk in column.chunks:
        if not is_binary:
            width = chunk.type.bit_width // 8
            yield 0, _bytes_of(chunk.buffers()[1], chunk.offset * width, len(chunk) * width)
            continue
        if chunk.null_count == len(chunk):
            yield 0, memoryview(b"\xff" * (4 * len(chunk)))
            continue
        lengths = arrow.compute.binary_length(chunk)
        if chunk.null_count:
            lengths = arrow.compute.fill_null(lengths, scalar(lengths.type, -1))
        yield 0, _bytes_of(lengths.buffers()[1], lengths.offset * 4, len(lengths) * 4)
        # A null may have bytes in a body that a client has built; they are no part of the record.
        values = chunk.drop_null() if chunk.null_count else chunk
        _, offsets, data = values.buffers()
        if len(values):
            ends = _bytes_of(offsets, values.offset * 4, len(values) * 4 + 4).cast("i")
            yield 1, _bytes_of(data, ends[0], ends[-1] - ends[0])


def _bytes_of(buffer: Any, start: int, size: int) -> memoryview:
    return memoryview(b"" if buffer is None else buffer).cast("B")[start : start + size]


def column_checksum(column: Any) -> int:
    """Return the checksum of a column: the crc32c of its streams, and of which values are null."""
    import pyarrow as arrow

    compute = arrow.compute
    valid = compute.is_valid(column)
    if arrow.types.is_timestamp(column.type):
        column = column.cast(arrow.int64())
    if arrow.types.is_boolean(column.type):
        column = column.cast(arrow.int8())
    if column.null_count and not (arrow.types.is_binary(column.type) or arrow.types.is_string(column.type)):
        column = compute.fill_null(column, arrow.scalar(0, column.type))
    checksums = [0, 0, 0]
    for stream, part in column_bytes(column):
        checksums[stream] = crc32c(part, checksums[stream])
    for _, part in column_bytes(valid.cast(arrow.int8())):
        checksums[2] = crc32c(part, checksums[2])
    return int(crc32c(b"".join(each.to_bytes(4, "little") for each in checksums)))


def _typed_column(field: RowField, column: Any) -> TypedColumn:
    import pyarrow as arrow

    low: Any = None
    high: Any = None
    if field.type not in ("bool", "binary") and column.null_count < len(column):
        ordered = column.cast(arrow.int64()) if field.type == "timestamp" else column
        found = arrow.compute.min_max(ordered).as_py()
        low, high = found["min"], found["max"]
        if field.type == "string":
            # A prefix is not above the text, but may be below others with this prefix.
            low, high = low[:_BOUND_CHARACTERS], high if len(high) <= _BOUND_CHARACTERS else None
        elif field.type in ("float32", "float64"):
            # Spark orders NaN after each other number. JSON has no form for infinite ones.
            has_nan = arrow.compute.any(arrow.compute.is_nan(column)).as_py()
            low = low if math.isfinite(low) else None
            high = high if math.isfinite(high) and not has_nan else None
    return TypedColumn(column_checksum(column), column.null_count, low, high)


class FieldCondition(NamedTuple):
    """A condition of a query on a field: ``name operator value``.

    ``operator`` is ``=``, ``<``, ``<=``, ``>``, ``>=``, ``in`` (``value`` is a tuple), ``null`` or ``not null``.
    """

    name: str
    operator: str
    value: Any = None


def usable_column(schema: RowSchema, group: TypedGroup, wanted: RowField) -> TypedColumn | None:
    """Return the column from which a reader takes a field; None = it has to read the values of the group."""
    for field, column in zip(schema.fields, group.columns, strict=True):
        if field.name == wanted.name:
            fits = field.type == wanted.type or (group.is_exact and is_wider(field.type, wanted.type))
            return column if fits and (wanted.is_nullable or not column.nulls) else None
    return TypedColumn(0, -1, None, None) if group.is_exact and wanted.is_nullable else None


def is_needed(wanted: RowField, column: TypedColumn, count: int, condition: FieldCondition) -> bool:
    """Return whether a row of a group of ``count`` may meet a condition. A comparison with null is never met."""
    is_all_null = column.is_absent or column.nulls == count
    match condition.operator:
        case "null":
            return column.is_absent or column.nulls > 0
        case "not null":
            return not is_all_null
        case "in":
            values = condition.value
        case _:
            values = (condition.value,)
    if is_all_null:
        return False
    found = [_comparable(wanted, value) for value in values]
    return any(value is None or _may_be(column, condition.operator, value) for value in found)


def _may_be(column: TypedColumn, operator: str, value: Any) -> bool:
    low, high = column.low, column.high
    above = high is None or high >= value
    below = low is None or low <= value
    match operator:
        case "<":
            return low is None or low < value
        case "<=":
            return below
        case ">":
            return high is None or high > value
        case ">=":
            return above
    return above and below


def _comparable(wanted: RowField, value: Any) -> Any:
    """Return a value of a condition in the form of bounds; None = it cannot be compared with them."""
    match wanted.type:
        case "int32" | "int64":
            return value if type(value) is int else None
        case "float32" | "float64":
            return value if type(value) in (int, float) and not math.isnan(value) else None
        case "string":
            return value if type(value) is str else None
        case "timestamp":
            is_moment = isinstance(value, datetime) and value.tzinfo is not None
            return (value - _EPOCH) // timedelta(microseconds=1) if is_moment else None
    return None
