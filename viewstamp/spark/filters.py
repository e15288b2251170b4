"""Conditions that reduce the records to read: comparisons of position and timestamp, and names of topics. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

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
)

from viewstamp.archive.run_rows import FieldCondition
from viewstamp.spark.options import COLUMNS

__all__ = ["EVERYTHING", "Cut", "before", "push"]

_END = 1 << 63
"""After every position and every time."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL = frozenset({"topic", "position", "term", "index", "timestamp", "value"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The part of the topics that is left to read. Ranges are half-open; one that ends before its start is empty."""

    topics: frozenset[str] | None = None
    """None = all."""
    positions: tuple[int, int] = (0, _END)
    times: tuple[int, int] = (0, _END)
    """Log times, in microseconds since 1970; never below 0."""
    fields: tuple[FieldCondition, ...] = ()
    """Conditions on fields of rows. Readers of runs leave out row groups by them, and Spark applies them too."""


EVERYTHING = Cut()


def before(time: int | None) -> Cut:
    """Return the records before a log time; None = all."""
    return EVERYTHING if time is None else Cut(times=(0, time))


def push(
    filters: Sequence[Filter], cut: Cut = EVERYTHING, columns: Sequence[str] = COLUMNS, fields: Collection[str] = ()
) -> tuple[Cut, list[Filter]]:
    """Return the records of ``cut`` that all of ``filters`` leave, and the filters that Spark still has to apply.

    ``columns`` are those of records in the query, and ``fields`` those of rows: a field may have the name of a column
    that the query has not, for example ``timestamp``.

    Positions and log times increase along a topic, so a comparison with a constant is exactly a range of positions.
    """
    rest = []
    for condition in filters:
        (name, *_) = getattr(condition, "attribute", ("",))
        pushed = _push(cut, condition) if name in columns else None
        if name in fields and (found := _on_field(condition)) is not None:
            cut = replace(cut, fields=(*cut.fields, found))
        if pushed is None:
            rest.append(condition)
        else:
            cut = pushed
    return cut, rest


def _push(cut: Cut, condition: Filter) -> Cut | None:
    """Return ``cut`` reduced by one more condition; None = the condition cannot be pushed."""
    match condition:
        case IsNotNull(attribute=(name,)) if name in _NEVER_NULL:
            return cut
        case EqualTo(attribute=("topic",), value=name) | EqualNullSafe(attribute=("topic",), value=name):
            return _only(cut, [name])
        case In(attribute=("topic",), value=names):
            return _only(cut, names)
        case _ if (attribute := getattr(condition, "attribute", None)) == ("position",):
            found = _range(condition, lambda value: value if type(value) is int else None)
            return None if found is None else replace(cut, positions=_meet(cut.positions, found))
        case _ if attribute == ("timestamp",):
            found = _range(condition, _microseconds)
            return None if found is None else replace(cut, times=_meet(cut.times, found))
    return None


def _on_field(condition: Filter) -> FieldCondition | None:
    """Return a condition on a field; None = row groups cannot be left out by it."""
    match condition:
        case EqualTo(attribute=(name,), value=value):
            return FieldCondition(name, "=", value)
        case GreaterThan(attribute=(name,), value=value):
            return FieldCondition(name, ">", value)
        case GreaterThanOrEqual(attribute=(name,), value=value):
            return FieldCondition(name, ">=", value)
        case LessThan(attribute=(name,), value=value):
            return FieldCondition(name, "<", value)
        case LessThanOrEqual(attribute=(name,), value=value):
            return FieldCondition(name, "<=", value)
        case In(attribute=(name,), value=values):
            return FieldCondition(name, "in", tuple(values))
        case IsNull(attribute=(name,)):
            return FieldCondition(name, "null")
        case IsNotNull(attribute=(name,)):
            return FieldCondition(name, "not null")
    return None


def _only(cut: Cut, names: Sequence[Any]) -> Cut:
    wanted = frozenset(name for name in names if name is not None)
    return replace(cut, topics=wanted if cut.topics is None else cut.topics & wanted)


def _range(condition: Filter, number: Any) -> tuple[int, int] | None:
    """Return the range of whole numbers that a comparison leaves; None = it is not a comparison with a number."""
    value = number(getattr(condition, "value", None))
    if value is None:
        return None
    match condition:
        case EqualTo() | EqualNullSafe():
            return value, value + 1
        case GreaterThan():
            return value + 1, _END
        case GreaterThanOrEqual():
            return value, _END
        case LessThan():
            return 0, max(value, 0)
        case LessThanOrEqual():
            return 0, max(value + 1, 0)
    return None


def _meet(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), min(one[1], other[1])


def _microseconds(value: Any) -> int | None:
    """Return microseconds since 1970; None for a time without a zone, because only Spark knows the session's zone."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // timedelta(microseconds=1)
    return None
