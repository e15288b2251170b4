"""Planted mistakes in the schemas of topics, and in appends of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.archive import run_rows
from viewstamp.archive.iceberg import TableOfTopic
from viewstamp.archive.run_rows import TypedColumn, TypedGroup
from viewstamp.client.row_calls import RowCalls
from viewstamp.streams import cut
from viewstamp.streams.state import State
from viewstamp.wire.row_schema import RowField, RowSchema

__all__ = ["SCHEMA_MUTANTS"]


def schema_becomes_narrower() -> AbstractContextManager[None]:
    return patched(RowSchema, check_successor=lambda self, schema: None)


def schema_in_an_old_snapshot() -> AbstractContextManager[None]:
    """A state with schemas has the version of one without, so a release that knows none reads it."""
    original = cut._version_of

    def version_of(state: State) -> int:
        return cut._VERSION_WITHOUT_SCHEMAS if state.has_schema else original(state)

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


def columns_for_each_schema() -> AbstractContextManager[None]:
    """A later schema reads the typed columns of a run, although the rows have a field that the columns have not."""
    original = run_rows.usable_column

    def usable_column(schema: RowSchema, group: TypedGroup, wanted: RowField) -> TypedColumn | None:
        return original(schema, group._replace(is_exact=True), wanted)

    return everywhere(original, usable_column)


def columns_unchecked() -> AbstractContextManager[None]:
    """The typed columns of a run are read without their checksums, which verify() alone compares."""
    return everywhere(run_rows.column_checksum, lambda column: 0)


def bounds_of_a_prefix() -> AbstractContextManager[None]:
    """The upper bound of long texts is a prefix, so a group is left out that has a longer one."""
    original = run_rows._typed_column

    def typed_column(field: RowField, column: Any) -> TypedColumn:
        found = original(field, column)
        is_long = isinstance(found.low, str) and found.high is None
        return found._replace(high=found.low) if is_long else found

    return patched(run_rows, _typed_column=typed_column)


def export_from_the_old_end() -> AbstractContextManager[None]:
    """An export that has changed the columns of its table adds the records that another one has added meanwhile."""
    original = TableOfTopic.evolve

    def evolve(self: TableOfTopic, text: str) -> bool:
        end = self.end
        is_changed = original(self, text)
        self.end = end
        return is_changed

    return patched(TableOfTopic, evolve=evolve)


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
        Mutant("columns-for-each-schema", "a read of runs lacks values", columns_for_each_schema, rule="§5a"),
        Mutant("columns-unchecked", "changed bytes of a run are values", columns_unchecked, rule="§5a"),
        Mutant("bounds-of-a-prefix", "a query lacks rows of runs", bounds_of_a_prefix, rule="§5a"),
        Mutant("export-from-the-old-end", "a table has records twice", export_from_the_old_end, rule="§5a"),
    )
}
"""The mutants by name."""
