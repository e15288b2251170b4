"""Planted mistakes in the schemas of topics, and in appends of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.client.row_calls import RowCalls
from viewstamp.streams import cut
from viewstamp.streams.state import State
from viewstamp.wire.row_schema import RowSchema

__all__ = ["SCHEMA_MUTANTS"]


def schema_becomes_narrower() -> AbstractContextManager[None]:
    return patched(RowSchema, check_successor=lambda self, schema: None)


def schema_in_an_old_snapshot() -> AbstractContextManager[None]:
    """A state with schemas has the version of one without, so a release that knows none reads it."""
    original = cut._version_of

    def version_of(state: State) -> int:
        version = original(state)
        return cut._VERSION_WITHOUT_SCHEMAS if version == cut._VERSION else version

    return patched(cut, _version_of=version_of)


def append_the_rows_that_fit() -> AbstractContextManager[None]:
    """Rows are checked one after the other, and those before a wrong one are in the topic."""

    async def append_rows(self: RowCalls, topic: str, rows: Sequence[Mapping[str, Any]], **options: Any) -> list[Any]:
        schema = await self.get_schema(topic)
        return [await self._appends.append(topic, schema.encode(row)) for row in rows]

    return patched(RowCalls, append_rows=append_rows)


def write_any_columns() -> AbstractContextManager[None]:
    """The sink of Spark writes the columns of the rows, whatever the schema of the topic is."""
    from viewstamp.spark import typed_rows  # Needs Spark, as the tests that find the mistake.

    return everywhere(typed_rows.check_written, lambda columns, schema: None)


def write_null_values() -> AbstractContextManager[None]:
    """A task of the sink writes null where the schema has a value in each row."""
    from viewstamp.spark.rows import Rows

    original = Rows.__init__

    def init(self: Rows, *positional: Any, required: Sequence[str] = (), **named: Any) -> None:
        original(self, *positional, **named)

    return patched(Rows, __init__=init)


SCHEMA_MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant("schema-becomes-narrower", "rows of before have no reader", schema_becomes_narrower, rule="§5a"),
        Mutant(
            "schema-in-an-old-snapshot",
            "an older release reads a state with schemas",
            schema_in_an_old_snapshot,
            rule="§5a",
        ),
        Mutant("append-the-rows-that-fit", "a refused call appends rows", append_the_rows_that_fit, rule="§5a"),
        Mutant("write-any-columns", "the sink writes rows that no reader takes", write_any_columns, rule="§5a"),
        Mutant("write-null-values", "the sink writes null into a field without it", write_null_values, rule="§5a"),
    )
}
"""The mutants by name."""
