"""The options of a reader or a writer: read once, on the driver, and refused there when one is wrong.

This is the list of all options and of what each may be; it imports no Spark. An option that is unknown, or that does
nothing where it stands, is an error: it would be a wish that silently is not granted.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, Self, TypeAlias

from viewstamp.errors import ConfigError
from viewstamp.host.address import parse_address

__all__ = ["COLUMNS", "Bound", "SinkOptions", "SourceOptions", "WalOptions"]

COLUMNS: Final = ("topic", "position", "term", "index", "timestamp", "key", "value", "headers")
"""The columns that reading gives, in their order."""

Bound: TypeAlias = int | Literal["earliest", "latest"]
"""A place in a topic: a position from 1, the first record that is kept, or behind the last one there is."""

VARIABLE: Final = "VIEWSTAMP_CLUSTER"
"""Names the cluster where no option does, as for the command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Where rows go, and as what."""

    cluster: str
    """``host:port`` of its nodes, separated by commas."""
    topic: str = ""
    """"" = every row names its own, in a column ``topic``."""
    sink_id: str = ""
    """The name under which the log remembers what was committed; "" = Spark's query id."""
    sink_reset: bool = False
    """With ``sink_id``: take the sink over from another query, and begin anew with whatever batch comes."""
    txn_id: str = ""
    """Batch writes only: two writes with the same one land once; "" = each write lands."""
    batch_id: int | None = None
    """Batch writes only: the number of the batch within ``sink_id``, as ``foreachBatch`` tells it."""
    format: Literal["", "json", "msgpack"] = ""
    """How a whole row becomes one value; "" = the column ``value`` is the value."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> Self:
        """Check what a user gave.

        Raises:
          ConfigError: an option is unknown, does nothing here, or has a value that it may not have.
        """
        given = _read(options, _SINK, "sink")
        if "sinkReset" in given and "sinkId" not in given:
            raise ConfigError("sinkReset stands without sinkId", remedy="name the sink that is to be reset: sinkId")
        if streaming:
            _refuse(given, ("txnId", "batchId"), "a streaming sink", "leave it out: a stream numbers its own batches")
        elif "txnId" in given and ("sinkId" in given or "batchId" in given):
            raise ConfigError("txnId stands beside sinkId or batchId", remedy="name a write by txnId alone, or by both")
        elif ("sinkId" in given) != ("batchId" in given):
            raise ConfigError(
                "a batch write has only one of sinkId and batchId", remedy="give both, or txnId, or nothing"
            )
        return cls(**_fields(given))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What is read, and how much of it at once.

    Invariants:
      * ``starting_position`` and ``ending_position`` have a bound for each topic
    """

    cluster: str
    topics: tuple[str, ...]
    columns: tuple[str, ...] = COLUMNS
    starting_position: Mapping[str, Bound]
    """The first position that is read. A stream that goes on from a checkpoint does not ask it."""
    starting_timestamp: int | None = None
    """Microseconds since 1970: from the first record of this log time or later, whatever ``starting_position`` says."""
    ending_position: Mapping[str, Bound]
    """Batch only: the first position that is not read any more."""
    max_records_per_trigger: int | None = None
    """Streaming only, as the next one: at most so much in one micro-batch, over all topics; None = all there is."""
    max_bytes_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    """Positions that are gone (trimmed) are an error; else reading goes on with the first that is kept."""
    push_filters: bool = False
    """Batch only: conditions on positions cut the range; needs ``spark.sql.python.filterPushdown.enabled``."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> Self:
        """Check what a user gave.

        Raises:
          ConfigError: an option is unknown, does nothing here, or has a value that it may not have.
        """
        given = _read(options, _SOURCE, "source")
        if streaming:
            _refuse(given, ("endingPosition", "pushFilters"), "a streaming source", "leave it out, or use spark.read")
        else:
            triggers = ("maxRecordsPerTrigger", "maxBytesPerTrigger")
            _refuse(given, triggers, "a batch source", "leave it out, or use spark.readStream")
        if "startingPosition" in given and "startingTimestamp" in given:
            raise ConfigError("startingPosition and startingTimestamp are both given", remedy="begin at one of them")
        if "topic" not in given:
            raise ConfigError("no topic is named", remedy='write .option("topic", "NAME"), or several: "NAME,NAME"')
        topics = given.pop("topic")
        starts = _for_each(topics, "startingPosition", given.pop("startingPosition", "earliest"))
        ends = _for_each(topics, "endingPosition", given.pop("endingPosition", "latest"))
        for topic in topics:
            start, end = starts[topic], ends[topic]
            if isinstance(start, int) and isinstance(end, int) and start > end:
                raise ConfigError(
                    f"topic {topic}: startingPosition {start} is behind endingPosition {end}",
                    remedy="startingPosition is the first that is read, endingPosition the first that is not",
                )
        return cls(topics=topics, starting_position=starts, ending_position=ends, **_fields(given))

    @staticmethod
    def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
        """Return the columns alone: Spark asks for the schema before it says what is to be done.

        Raises:
          ConfigError: an option is unknown or has a wrong value.
        """
        columns: tuple[str, ...] = _read(options, _SOURCE, "source").get("columns", COLUMNS)
        return columns


@dataclass(frozen=True, slots=True, kw_only=True)
class WalOptions:
    """Which segment files are read, and what of them."""

    paths: tuple[str, ...]
    """The data directories of nodes that do not run."""
    topics: tuple[str, ...] = ()
    """() = all that there are."""
    columns: tuple[str, ...] = COLUMNS
    unsafe: bool = False
    """Go on with fewer than a majority of the members: what was committed may be missing, and what never was be in."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Check what a user gave; what ``load(...)`` names, Spark puts into ``path`` or ``paths``.

        Raises:
          ConfigError: an option is unknown, or has a value that it may not have.
        """
        given = _read(options, _WAL, "offline source")
        paths = (*given.pop("path", ()), *given.pop("paths", ()))
        if not paths:
            raise ConfigError(
                "no data directory is named", remedy='write .load("DIR"), or several: .load(["DIR", ...])'
            )
        return cls(paths=paths, topics=given.pop("topic", ()), **_fields(given))


def _cluster(value: str) -> str:
    addresses = _names(value)
    for address in addresses:
        parse_address(address)
    return ",".join(addresses)


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("write a name")
    return value.strip()


def _names(value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(","))
    if "" in names:
        raise ValueError("write names with a comma between two of them")
    if len(set(names)) < len(names):
        raise ValueError("name each only once")
    return names


def _columns(value: str) -> tuple[str, ...]:
    names = _names(value)
    for name in names:
        if name not in COLUMNS:
            raise ValueError(f"there is no column {name}; {_nearest(name, COLUMNS)}")
    return names


def _flag(value: str) -> bool:
    flags = {"true": True, "false": False}
    if value.lower() not in flags:
        raise ValueError("write true or false")
    return flags[value.lower()]


def _format(value: str) -> str:
    if value not in ("json", "msgpack"):
        raise ValueError("write json or msgpack, or leave it out: then the column value is the value")
    return value


def _whole(value: str, least: int = 0) -> int:
    if not re.fullmatch("[0-9]{1,18}", value) or int(value) < least:
        raise ValueError(f"write a whole number from {least} on")
    return int(value)


def _count(value: str) -> int:
    return _whole(value, 1)


def _timestamp(value: str) -> int:
    if re.fullmatch("[0-9]{1,18}", value):
        return int(value)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError("write ISO 8601 with a time zone, 2013-07-01T12:00:00Z, or microseconds since 1970")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _bound(value: object) -> Bound:
    match value:
        case "earliest" | "latest":
            return value
        case int() if type(value) is int and value >= 1:  # True is an int too
            return value
        case str() if re.fullmatch("[0-9]{1,18}", value) and int(value) >= 1:
            return int(value)
    raise ValueError('write earliest, latest, a position from 1 on, or for each topic {"NAME": 1, "NAME": "latest"}')


def _bounds(value: str) -> Bound | dict[str, Bound]:
    if not value.lstrip().startswith("{"):
        return _bound(value)
    try:
        named = json.loads(value)
    except ValueError:
        raise ValueError("that is no JSON") from None
    return {topic: _bound(bound) for topic, bound in named.items()}


def _for_each(topics: tuple[str, ...], option: str, bounds: Bound | dict[str, Bound]) -> dict[str, Bound]:
    """Return a bound for each topic."""
    if not isinstance(bounds, dict):
        return dict.fromkeys(topics, bounds)
    if bounds.keys() != set(topics):
        raise ConfigError(
            f"{option} names {', '.join(bounds) or 'no topic'}; topic names {', '.join(topics)}",
            remedy=f"name the same topics in both; {option} may also be one bound for all",
        )
    return bounds


def _path(value: str) -> tuple[str, ...]:
    return (_text(value),)


def _paths(value: str) -> tuple[str, ...]:
    return tuple(map(_text, json.loads(value)))


_Check: TypeAlias = Callable[[str], object]

_SINK: Final[Mapping[str, _Check]] = {
    "cluster": _cluster,
    "topic": _text,
    "sinkId": _text,
    "sinkReset": _flag,
    "txnId": _text,
    "batchId": _whole,
    "format": _format,
}
_SOURCE: Final[Mapping[str, _Check]] = {
    "cluster": _cluster,
    "topic": _names,
    "columns": _columns,
    "startingPosition": _bounds,
    "startingTimestamp": _timestamp,
    "endingPosition": _bounds,
    "maxRecordsPerTrigger": _count,
    "maxBytesPerTrigger": _count,
    "failOnDataLoss": _flag,
    "pushFilters": _flag,
}
_WAL: Final[Mapping[str, _Check]] = {
    "path": _path,
    "paths": _paths,
    "topic": _names,
    "columns": _columns,
    "unsafe": _flag,
}
_SPARKS: Final = frozenset({"checkpointlocation", "queryname"})
"""What Spark itself puts among the options; in lower case, as it tells no capitals apart."""


def _read(options: Mapping[str, str], known: Mapping[str, _Check], where: str) -> dict[str, Any]:
    """Return the checked values of what was given, by our spelling of the options."""
    spelling = {name.lower(): name for name in known}
    given = {}
    for name, value in options.items():
        if name.lower() in _SPARKS:
            continue
        if name.lower() == "path" and "path" not in known:
            raise ConfigError(f"the {where} has no path; {value!r} is one", remedy='write .option("topic", "NAME")')
        if name.lower() not in spelling:
            raise ConfigError(f"the {where} has no option {name}", remedy=_nearest(name, known))
        option = spelling[name.lower()]
        try:
            given[option] = known[option](value)
        except ValueError as error:
            raise ConfigError(f"option {option} is {value!r}", remedy=str(error)) from None
    if "cluster" in known and "cluster" not in given:
        if not os.environ.get(VARIABLE):
            raise ConfigError(
                "no cluster is named", remedy=f'write .option("cluster", "HOST:PORT,HOST:PORT"), or set {VARIABLE}'
            )
        given["cluster"] = _cluster(os.environ[VARIABLE])
    return given


def _refuse(given: Mapping[str, object], names: Iterable[str], where: str, remedy: str) -> None:
    for name in names:
        if name in given:
            raise ConfigError(f"{where} has no use for option {name}", remedy=remedy)


def _nearest(name: str, known: Iterable[str]) -> str:
    """Say what somebody may have meant."""
    spelling = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), spelling, n=1, cutoff=0.4)
    guess = f"did you mean {spelling[near[0]]}? " if near else ""
    return f"{guess}there are {', '.join(spelling.values())}"


def _fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by the names that they have as fields: ``sink_id`` for ``sinkId``."""
    return {re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name): value for name, value in given.items()}
