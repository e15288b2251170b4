"""The schema of a topic as the commands about topics read and show it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from viewstamp.errors import ConfigError

__all__ = ["read_schema", "schema_table"]


def read_schema(given: str) -> str:
    """Return the text of a schema, or of the file behind ``@``. Raises ConfigError, RequestError."""
    from viewstamp.wire.row_schema import RowSchema

    if given.startswith("@"):
        try:
            given = Path(given[1:]).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"the schema cannot be read from {given[1:]}: {why}",
                remedy="name a text file, or write the fields: --schema 'id: int64, name: string?'",
            ) from None
    return RowSchema.parse(given).text


def schema_table(text: str) -> tuple[list[str], list[Sequence[object]]]:
    """Return the heads and the rows of the fields of a schema."""
    from viewstamp.wire.row_schema import RowSchema

    fields = RowSchema.parse(text).fields
    return ["field", "type", "null"], [(each.name, each.type, "yes" if each.is_nullable else "no") for each in fields]
