"""The schema of a topic, which its records CONFIGURE_SCHEMA change. Pure; ``wire/row_schema.py`` has the rules.

| record | fields | refused if |
| --- | --- | --- |
| CONFIGURE_SCHEMA | name, schema; by | there is no such topic; it is no schema; rows of the one \
before are not rows of it |
| CONFIGURE_SPREAD_SCHEMA | the same, of a topic with streams, in group 0 | the same |

It is a kind of its own for the reason in ``archive_settings.py``. A copy that arrives late, after a wider schema, is
refused, because a schema never becomes narrower. The records of a topic are not looked at: a client that appends bytes
may append what is no row, and a reader of rows gets an error at its position.

The schema of a topic with streams is in the state of group 0, and clients check rows by that one. The leader of each
group sets it for the streams too (``node/stream_topics.py``), by a CONFIGURE_SCHEMA of its own, because what a group
does by itself with a stream depends on its own state alone.
"""

from __future__ import annotations

from typing import Any

from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.row_schema import RowSchema
from viewstamp.wire.staged import decode_known

__all__ = ["decode_schema", "successor"]

_FIELDS = dict.fromkeys((Kind.CONFIGURE_SCHEMA, Kind.CONFIGURE_SPREAD_SCHEMA), frozenset({"name", "schema", "by"}))


def decode_schema(batch: Batch) -> tuple[str, RowSchema]:
    """Read a CONFIGURE_SCHEMA or CONFIGURE_SPREAD_SCHEMA: the name of the topic, and the schema.

    Raises:
      RequestError: it is no such map, or no schema.
      OutdatedCodeError: it has a field that this release does not know.
    """
    values: list[Any] = decode_known(batch, _FIELDS, name=str, schema=str)
    return values[0], RowSchema.parse(values[1])


def successor(before: str, schema: RowSchema) -> str:
    """Return the text of a topic's schema after a change; ``before`` "" = it has none. Raises RequestError."""
    if before:
        RowSchema.parse(before).check_successor(schema)
    return schema.text
