"""Planted mistakes in the schemas of topics, and in appends of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.archive import run_rows
from viewstamp.archive.iceberg import TableOfTopic
from viewstamp.archive.run_rows import TypedColumn, TypedGroup
from viewstamp.client.row_calls import RowCalls
from viewstamp.node import stream_topics
from viewstamp.node.placement_queries import SpreadTopic
from viewstamp.streams import cut, spread
from viewstamp.streams.spread import SpreadTopics
from viewstamp.streams.state import State
from viewstamp.wire.batch import Kind
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


def spread_schema_in_no_snapshot() -> AbstractContextManager[None]:
    """A snapshot lacks the schemas of topics with streams."""
    original = spread._changes_of

    def changes_of(topic: SpreadTopic) -> dict[str, object]:
        return original(replace(topic, schema=""))

    return patched(spread, _changes_of=changes_of)


def spread_schema_in_an_old_snapshot() -> AbstractContextManager[None]:
    """A state in which a topic with streams has a schema has the version of one without."""
    return patched(SpreadTopics, has_schema=property(lambda self: False))


def spread_schema_unprobed() -> AbstractContextManager[None]:
    """The schema of a topic with streams is proposed without a probe of the members."""
    original = SpreadTopic.has_change

    def has_change(self: SpreadTopic, kind: Kind) -> bool:
        return kind is Kind.CONFIGURE_SPREAD_SCHEMA or original(self, kind)

    return patched(SpreadTopic, has_change=has_change)


def spread_schema_of_a_lagging_leader() -> AbstractContextManager[None]:
    """A stream gets the schema of its leader's state of group 0, although it has a wider one."""
    return patched(stream_topics, is_successor=lambda before, after: before != after)


def spread_schema_stays_in_group_0() -> AbstractContextManager[None]:
    """The streams of a topic never get its schema."""
    return patched(stream_topics, is_successor=lambda before, after: False)


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
        Mutant(
            "spread-schema-in-no-snapshot",
            "a snapshot lacks the schema of a topic with streams",
            spread_schema_in_no_snapshot,
            rule="§5a",
        ),
        Mutant(
            "spread-schema-in-an-old-snapshot",
            "an older release reads the schema of a topic with streams",
            spread_schema_in_an_old_snapshot,
            rule="§5a",
        ),
        Mutant(
            "spread-schema-unprobed",
            "a member gets a schema of a topic with streams that it cannot read",
            spread_schema_unprobed,
            rule="§5a",
        ),
        Mutant(
            "spread-schema-of-a-lagging-leader",
            "a leader proposes an earlier schema again and again",
            spread_schema_of_a_lagging_leader,
            rule="§5a",
        ),
        Mutant(
            "spread-schema-stays-in-group-0",
            "streams never get the schema of their topic",
            spread_schema_stays_in_group_0,
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
