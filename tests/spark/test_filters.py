"""The records that conditions leave to read, and the conditions that Spark still has to apply."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from viewstamp.archive.run_rows import FieldCondition
from viewstamp.spark.filters import EVERYTHING, push

POSITION, TIMESTAMP, TOPIC = ("position",), ("timestamp",), ("topic",)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOON_US = 1_772_366_400_000_000
END = EVERYTHING.positions[1]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (EqualTo(POSITION, 7), (7, 8)),
        (EqualNullSafe(POSITION, 7), (7, 8)),
        (GreaterThan(POSITION, 7), (8, END)),
        (GreaterThanOrEqual(POSITION, 7), (7, END)),
        (LessThan(POSITION, 7), (0, 7)),
        (LessThanOrEqual(POSITION, 7), (0, 8)),
        (LessThan(POSITION, -7), (0, 0)),
    ],
)
def test_a_comparison_of_the_position_is_a_range_of_it(condition: Filter, expected: tuple[int, int]) -> None:
    """Ranges are half-open and exact, so that Spark need not compare again."""
    cut, rest = push([condition])
    assert cut.positions == expected
    assert rest == []


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (EqualTo(TIMESTAMP, NOON), (NOON_US, NOON_US + 1)),
        (GreaterThan(TIMESTAMP, NOON), (NOON_US + 1, END)),
        (GreaterThanOrEqual(TIMESTAMP, NOON), (NOON_US, END)),
        (LessThan(TIMESTAMP, NOON), (0, NOON_US)),
        (LessThanOrEqual(TIMESTAMP, NOON), (0, NOON_US + 1)),
    ],
)
def test_a_comparison_of_the_timestamp_is_a_range_of_microseconds(condition: Filter, expected: tuple[int, int]) -> None:
    """Log times and Spark's timestamps are both whole microseconds, so no value is rounded."""
    cut, rest = push([condition])
    assert cut.times == expected
    assert rest == []


def test_conditions_together_leave_what_all_of_them_leave() -> None:
    """Spark's list of conditions is joined by "and"."""
    cut, rest = push(
        [
            IsNotNull(POSITION),
            GreaterThan(POSITION, 10),
            LessThan(POSITION, 100),
            LessThanOrEqual(POSITION, 50),
            In(TOPIC, ("a", "b", None)),
            EqualTo(TOPIC, "b"),
        ]
    )
    assert cut.positions == (11, 51)
    assert cut.topics == {"b"}
    assert rest == []


def test_conditions_that_exclude_each_other_leave_nothing() -> None:
    """An empty range, not an error: the query is valid, and has no rows."""
    cut, _ = push([GreaterThan(POSITION, 10), LessThan(POSITION, 5), EqualTo(TOPIC, "a"), EqualTo(TOPIC, "b")])
    assert cut.positions[0] >= cut.positions[1]
    assert cut.topics == frozenset()


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(("key",), b"k"),
        EqualTo(("index",), 7),
        GreaterThan(POSITION, 7.5),
        EqualTo(POSITION, None),
        In(POSITION, (1, 2)),
        Not(EqualTo(POSITION, 7)),
        IsNull(POSITION),
        IsNotNull(("key",)),
        IsNotNull(("headers",)),
        GreaterThan(TIMESTAMP, NOON.replace(tzinfo=None)),
        GreaterThan(TOPIC, "a"),
        StringStartsWith(TOPIC, "a"),
        GreaterThan(("position", "x"), 7),
    ],
)
def test_what_is_no_range_stays_with_spark(condition: Filter) -> None:
    """The same object is returned, as Spark requires, and no range is reduced."""
    cut, rest = push([condition])
    assert cut == EVERYTHING
    assert [id(left) for left in rest] == [id(condition)]


def test_a_field_with_the_name_of_a_column_is_not_the_column() -> None:
    conditions: list[Filter] = [GreaterThan(POSITION, 5), EqualTo(TOPIC, "a"), LessThan(TIMESTAMP, 3)]
    cut, rest = push(conditions, EVERYTHING, ("position",), ("topic", "timestamp"))
    assert cut.positions == (6, END)
    assert (cut.topics, cut.times) == (None, EVERYTHING.times)
    assert cut.fields == (FieldCondition("topic", "=", "a"), FieldCondition("timestamp", "<", 3))
    assert rest == conditions[1:]
