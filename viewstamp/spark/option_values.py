"""The values of options as people write them, for readers and writers. Each function raises ValueError with the remedy.

They import no Spark.
"""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias

from viewstamp.host.object_url import is_object_url, parse_object_url

__all__ = [
    "PARTITIONS_MAX",
    "Bound",
    "archive",
    "bounds",
    "count",
    "days",
    "duration",
    "flag",
    "names",
    "partitions",
    "path",
    "paths",
    "pattern",
    "text",
    "timestamp",
    "whole",
]

Bound: TypeAlias = int | Literal["earliest", "latest"]
"""A place in a topic: a position from 1 on, the first retained record, or the end behind the last record."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PLAUSIBLE: Final = (946_684_800_000_000, 4_102_444_800_000_000)
"""The years 2000 to 2099 in microseconds since 1970. The same years in another unit are other numbers."""
_UNITS_IN_NANOSECONDS: Final = {
    "seconds": 1_000_000_000,
    "milliseconds": 1_000_000,
    "microseconds": 1_000,
    "nanoseconds": 1,
}

PARTITIONS_MAX: Final = 100_000
"""More tasks than any Spark cluster runs for one query; listing them would take longer than reading."""


def text(value: str) -> str:
    """Return a name."""
    if not value.strip():
        raise ValueError("write a name")
    return value.strip()


def names(value: str) -> tuple[str, ...]:
    """Return names that have commas between them."""
    found = tuple(name.strip() for name in value.split(","))
    if "" in found:
        raise ValueError("write names with a comma between two of them")
    if len(set(found)) < len(found):
        raise ValueError("name each only once")
    return found


def flag(value: str) -> bool:
    """Return true or false."""
    flags = {"true": True, "false": False}
    if value.lower() not in flags:
        raise ValueError("write true or false")
    return flags[value.lower()]


def whole(value: str, least: int = 0) -> int:
    """Return a whole number of at least ``least``."""
    if not re.fullmatch("[0-9]{1,18}", value) or int(value) < least:
        raise ValueError(f"write a whole number from {least} on")
    return int(value)


def count(value: str) -> int:
    """Return a whole number from 1 on."""
    return whole(value, 1)


def days(value: str) -> int:
    """Return a number of days."""
    if whole(value) > 36_500:
        raise ValueError("write a whole number of days from 0, which means for ever, to 36500")
    return int(value)


def partitions(value: str) -> int:
    """Return a number of tasks."""
    found = whole(value, 1)
    if found > PARTITIONS_MAX:
        raise ValueError(f"write a whole number from 1 to {PARTITIONS_MAX}: each partition is a task of Spark")
    return found


def timestamp(value: str) -> int:
    """Return the microseconds since 1970 of a moment."""
    if re.fullmatch("[0-9]{1,19}", value):
        return _microseconds(int(value))
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError("write ISO 8601 with a time zone, 2013-07-01T12:00:00Z, or microseconds since 1970")
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _microseconds(count: int) -> int:
    """Return ``count`` if it is a plausible number of microseconds since 1970, or 0, which is 1970 in every unit.

    Kafka's option of the same name counts milliseconds. A present date in milliseconds, taken as microseconds, is in
    January 1970, so that all records would be read.
    """
    if count == 0 or _PLAUSIBLE[0] <= count < _PLAUSIBLE[1]:
        return count
    meant = [
        f"as {unit} it is {_iso(count * scale // 1000)}" + (f", so write {count * scale // 1000}" if is_meant else "")
        for unit, scale in _UNITS_IN_NANOSECONDS.items()
        if (is_meant := _PLAUSIBLE[0] <= count * scale // 1000 < _PLAUSIBLE[1]) or unit == "microseconds"
    ]
    raise ValueError(
        "write ISO 8601 with a time zone, 2013-07-01T12:00:00Z, or microseconds since 1970, for the years 2000 to"
        f" 2099: {'; '.join(meant)}"
    )


def _iso(microseconds: int) -> str:
    try:
        return (_EPOCH + timedelta(microseconds=microseconds)).isoformat(timespec="milliseconds")
    except OverflowError:
        return "after the year 9999"


def _bound(value: object) -> Bound:
    match value:
        case "earliest" | "latest":
            return value
        case int() if type(value) is int and value >= 1:  # True is an int too
            return value
        case str() if re.fullmatch("[0-9]{1,18}", value) and int(value) >= 1:
            return int(value)
    raise ValueError('write earliest, latest, a position from 1 on, or for each topic {"NAME": 1, "NAME": "latest"}')


def bounds(value: str) -> Bound | dict[str, Bound]:
    """Return a place in a topic, or one for each topic."""
    if not value.lstrip().startswith("{"):
        return _bound(value)
    try:
        named = json.loads(value)
    except ValueError:
        raise ValueError("that is not JSON") from None
    return {topic: _bound(bound) for topic, bound in named.items()}


def archive(value: str) -> str:
    """Check the place of an archive. Raises ConfigError without the value of a URL, because a secret may be in it."""
    if is_object_url(value):
        return parse_object_url(value).text
    if not os.path.isabs(value):
        raise ValueError("write s3://BUCKET/FOLDER, or the absolute path of a directory that all executors reach")
    return value


def path(value: str) -> tuple[str, ...]:
    """Return a path."""
    return (text(value),)


def paths(value: str) -> tuple[str, ...]:
    """Return the paths of a list in JSON."""
    return tuple(map(text, json.loads(value)))


def duration(value: str) -> float:
    """Return the seconds of a duration with a unit, for example 90s."""
    from viewstamp.quantities import parse_duration  # Spark imports this module for every job, so it imports little.

    return parse_duration(value) / 1000


def pattern(value: str) -> str:
    """Return a regular expression that can be used."""
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"write a regular expression of Python: {error}") from None
    return value
