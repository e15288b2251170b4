"""The rows of records as Arrow columns, one for each field of a schema. Needs pyarrow.

``wire/row_schema.py`` decides what a row is. Here many rows are converted at once: Arrow converts a column whose values
have just the type of the field. If they have not, each row is read by the schema, which raises the error, or converts a
value, for example an int in a field of floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from types import NoneType
from typing import Any, Final, NamedTuple

from viewstamp.errors import FrameError
from viewstamp.wire.row_schema import RowField, RowSchema, unpack_row

__all__ = ["RowArrays", "Stray", "arrow_type", "row_arrays"]

_EXACTLY: Final[dict[str, type]] = {
    "bool": bool,
    "int32": int,
    "int64": int,
    "float32": float,
    "float64": float,
    "string": str,
    "binary": bytes,
    "timestamp": datetime,
}
"""The type of the values of a column that Arrow converts at once."""


class Stray(NamedTuple):
    """A record that is no row of the schema: its number, which counts from 0, and the reason."""

    number: int
    why: str


class RowArrays(NamedTuple):
    """Rows as columns.

    Attributes:
      arrays: one for each field, in the order of the schema.
      is_exact: whether the columns have all that the rows have: no row has another field, and no number was rounded. So
        each schema that may follow reads the same from the columns as from the rows.
    """

    arrays: list[Any]
    is_exact: bool


def arrow_type(name: str) -> Any:
    """Return the Arrow type of a type of fields."""
    import pyarrow as arrow

    types = {
        "bool": arrow.bool_(),
        "int32": arrow.int32(),
        "int64": arrow.int64(),
        "float32": arrow.float32(),
        "float64": arrow.float64(),
        "string": arrow.string(),
        "binary": arrow.binary(),
        "timestamp": arrow.timestamp("us", tz="UTC"),
    }
    return types[name]


def row_arrays(schema: RowSchema, values: Sequence[bytes]) -> RowArrays | Stray:
    """Return the fields of the rows that ``values`` of records are, or the first value that is no row of the schema."""
    packed: list[dict[Any, Any]] = []
    try:
        packed.extend(map(unpack_row, values))
    except FrameError:
        _, stray = _decode(schema, values)
        assert stray is not None, "the schema unpacks the same values"
        return stray
    names = {field.name for field in schema.fields}
    is_exact = all(row.keys() <= names for row in packed)
    arrays = []
    rows: list[dict[str, Any]] | None = None
    for field in schema.fields:
        found = [row.get(field.name) for row in packed]
        array = _plain(field, found)
        if array is None:
            import pyarrow as arrow

            if rows is None:
                rows, stray = _decode(schema, values)
                if stray is not None:
                    return stray
            decoded = [row[field.name] for row in rows]
            array = arrow.array(decoded, arrow_type(field.type))
            # A column with NaN, which is not equal to itself, counts as inexact: that costs time, and no row.
            is_exact = is_exact and decoded == found
        arrays.append(array)
    return RowArrays(arrays, is_exact)


def _decode(schema: RowSchema, values: Sequence[bytes]) -> tuple[list[dict[str, Any]], Stray | None]:
    """Return the rows, and the first value that is none."""
    rows: list[dict[str, Any]] = []
    for value in values:
        try:
            rows.append(schema.decode(value))
        except FrameError as error:
            return rows, Stray(len(rows), error.message)
    return rows, None


def _plain(field: RowField, values: list[Any]) -> Any:
    """Return a column as an array, or None if its values are not all of the type of Python that the field has."""
    import pyarrow as arrow

    kinds = set(map(type, values))
    if field.is_nullable:
        kinds.discard(NoneType)
    if not kinds <= {_EXACTLY[field.type]}:
        return None
    try:
        if field.type == "float32":
            wide = arrow.array(values, arrow.float64())
            found = wide.cast(arrow.float32())
            return found if found.cast(arrow.float64()).equals(wide) else None
        return arrow.array(values, arrow_type(field.type))
    except (arrow.ArrowException, OverflowError, ValueError):
        return None
