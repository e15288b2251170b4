"""Rows of topics with a schema as JSON objects, for the commands ``append`` and ``read``.

A timestamp is text in ISO 8601, and a binary one in base64; the other types are those of JSON.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from viewstamp.errors import FrameError, RequestError
from viewstamp.wire.brief_repr import brief_repr

if TYPE_CHECKING:
    from viewstamp.wire.batch import Record
    from viewstamp.wire.row_schema import RowSchema

__all__ = ["as_json_row", "encoded_rows"]

_encode = json.JSONEncoder(ensure_ascii=False).encode


async def encoded_rows(schema: RowSchema, chunks: AsyncIterator[list[bytes]]) -> AsyncIterator[list[bytes]]:
    """Yield lines, each a row as a JSON object, as the values of records. Raises RequestError with the line."""
    number = 0
    async for chunk in chunks:
        values: list[bytes] = []
        for line in chunk:
            number += 1
            try:
                values.append(schema.encode(_from_json(schema, line)))
            except RequestError as error:
                error.message = f"line {number}: {error.message}"
                raise
        yield values


def as_json_row(schema: RowSchema, record: Record) -> Any:
    """Return a record with its row as a JSON object instead of its value. Raises RequestError with its position."""
    try:
        row = schema.decode(record.value)
    except FrameError as error:
        raise RequestError(f"position {record.position}: {error.message}", remedy="read it without --rows") from None
    for name, value in row.items():
        if isinstance(value, datetime):
            row[name] = value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        elif isinstance(value, bytes):
            row[name] = base64.b64encode(value).decode()
    return record._replace(value=_encode(row).encode())


def _from_json(schema: RowSchema, line: bytes) -> dict[str, Any]:
    """Return the row of a line. Raises RequestError."""
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise RequestError(f"{brief_repr(line)} is no JSON object", remedy='write one in each line: {"id": 7}')
    for name, kind, _ in schema.fields:
        value = row.get(name)
        if isinstance(value, str) and kind in ("binary", "timestamp"):
            try:
                row[name] = base64.b64decode(value, validate=True) if kind == "binary" else _time(value)
            except ValueError:
                form = "base64" if kind == "binary" else "ISO 8601 with a time zone: 2013-07-01T12:00:00Z"
                raise RequestError(
                    f"field {name} of a row is {brief_repr(value)}, which is no {kind}", remedy=f"write {form}"
                ) from None
    return row


def _time(text: str) -> datetime:
    """Return a time with its zone. Raises ValueError."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return time
