"""The options of readers and writers: parsed once, on the driver, and rejected there if one is wrong.

This is the list of all options and their allowed values; it imports no Spark. An option that is unknown, or has no
effect in its place, is an error, because the user expects an effect.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self, TypeAlias

from viewstamp.errors import ConfigError
from viewstamp.host.address import parse_address
from viewstamp.host.tls import TlsFiles
from viewstamp.spark import option_values
from viewstamp.spark.option_values import Bound

__all__ = [
    "COLUMNS",
    "COLUMNS_ON_REQUEST",
    "SinkOptions",
    "SourceOptions",
    "WalSourceOptions",
    "is_table",
    "options_of",
]

COLUMNS: Final = ("topic", "position", "term", "index", "timestamp", "key", "value", "headers")
"""The columns that a read gives, in order."""

COLUMNS_ON_REQUEST: Final = ("stream",)
"""Columns that a read gives only if the option ``columns`` names them, because earlier releases did not have them."""

_FILLED_IN: Final = ("position", "term", "index", "timestamp", "stream")
_POSITIONS: Final = ("startingPosition", "endingPosition")
_TLS: Final = ("tlsAuthority", "tlsCertificate", "tlsKey")
"""Files on the driver and on every executor. All three are given, or none."""
_FILES: Final = ("tokenFile", *_TLS)
"""Options that name files with secrets."""
_ADDRESS: Final = ("cluster", "topic", *_FILES)
"""Options that reading and writing share."""

MAX_TRIGGER_DELAY: Final = 15 * 60.0
"""Seconds for which a micro-batch waits for records, as that of Spark's Kafka connector."""

CONNECT_SECONDS: Final = 10
"""Seconds: enough for a cluster that restarts, and not too long for a user who mistyped a port."""

VARIABLE: Final = "VIEWSTAMP_CLUSTER"
"""The environment variable that names the cluster if no option does, as for the command line."""

TLS_VARIABLES: Final = ("VIEWSTAMP_TLS_AUTHORITY", "VIEWSTAMP_TLS_CERTIFICATE", "VIEWSTAMP_TLS_KEY")
"""The variables that name the files of TLS if no option does. Read on the driver, like the one above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The target of a write, and its form."""

    cluster: str
    """``host:port`` of its nodes, separated by commas."""
    token_file: str = ""
    """A file with the token to use, on each machine; "" = the environment variable VIEWSTAMP_TOKEN.

    The token itself is no option, because Spark stores the options of tables and shows those of queries.
    """
    topic: str = ""
    """"" = every row names its own, in a column ``topic``."""
    sink_id: str = ""
    """The name under which the log records the committed batches; "" = Spark's query id."""
    sink_reset: bool = False
    """With ``sink_id``: take the sink over from another query, and accept any batch number as its next."""
    txn_id: str = ""
    """Batch writes only: of two writes with the same id one takes effect; "" = every write does."""
    batch_id: int | None = None
    """Batch writes only: the number of the batch within ``sink_id``, as ``foreachBatch`` passes it."""
    format: Literal["", "json", "msgpack", "rows"] = ""
    """The encoding of a whole row as one value; "" = the column ``value`` is the value.

    ``rows`` is msgpack, and the columns are checked by the schema of the topic.
    """
    txn_keep_days: int = 30
    """Days for which the cluster remembers ``txn_id``; 0 = until a user forgets it."""
    connect_seconds: int = CONNECT_SECONDS
    """Seconds for which the driver waits for a cluster if all of its addresses refuse connections."""
    filled_in: tuple[str, ...] = ()
    """Columns of a table that the cluster fills in on a write: they have to be null."""
    tls: TlsFiles | None = None
    """The client's certificate, in files on every executor; None = a cluster without TLS."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool, table: Mapping[str, str] | None = None) -> Self:
        """Check the options of a write.

        Args:
          options: those that the user gave.
          streaming: whether it is a streaming write.
          table: for a write to a table, the result of :meth:`SourceOptions.table_of`. Its cluster is used, and its
            topic if it has only one; ``options`` override them.

        Raises:
          ConfigError: an option is unknown, has no effect here, or has a value that is not allowed.
        """
        given = _read(options, _SINK, "sink", table and {name: table[name] for name in _ADDRESS if name in table})
        if table is not None:
            if "," in given.get("topic", ""):
                del given["topic"]
            given["filledIn"] = (*_FILLED_IN, "topic") if "topic" in given else _FILLED_IN
        if "sinkReset" in given and "sinkId" not in given:
            raise ConfigError("sinkReset is given without sinkId", remedy="name the sink to reset: sinkId")
        if "txnKeepDays" in given and "txnId" not in given:
            raise ConfigError("txnKeepDays is given without txnId", remedy="give txnId too: it names the write")
        if streaming:
            _refuse(
                given,
                ("txnId", "txnKeepDays", "batchId"),
                "a streaming sink",
                "leave it out: a stream numbers its own batches",
            )
        elif "txnId" in given and ("sinkId" in given or "batchId" in given):
            raise ConfigError(
                "txnId is given with sinkId or batchId", remedy="name a write by txnId, or by the other two"
            )
        elif ("sinkId" in given) != ("batchId" in given):
            raise ConfigError(
                "a batch write has only one of sinkId and batchId", remedy="give both, or txnId, or none of them"
            )
        return cls(**_fields(given))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The records to read, and their division into batches and tasks.

    Invariants:
      * ``starting_position`` and ``ending_position`` have a bound for each topic
    """

    cluster: str
    token_file: str = ""
    """As of ``SinkOptions``."""
    topics: tuple[str, ...]
    """() = those whose names match ``topic_pattern``, until :meth:`naming` has named them."""
    topic_pattern: str = ""
    """A regular expression for whole names; "" = the topics are named."""
    pattern_bounds: tuple[Bound, Bound] = ("earliest", "latest")
    """With ``topic_pattern``: the starting and the ending position of each topic."""
    columns: tuple[str, ...] = COLUMNS
    starting_position: Mapping[str, Bound]
    """The first position to read. A stream that continues from a checkpoint does not use it."""
    starting_timestamp: int | None = None
    """Microseconds since 1970: begin at the first record with this log time or later, instead of at a position."""
    ending_position: Mapping[str, Bound]
    """Batch only: the first position that is not read."""
    ending_timestamp: int | None = None
    """Batch only: microseconds since 1970: read only records with a log time before it; None = all."""
    max_records_per_trigger: int | None = None
    """Streaming only, like the next one: the limit of one micro-batch, over all topics; None = no limit."""
    max_bytes_per_trigger: int | None = None
    min_records_per_trigger: int | None = None
    """Streaming only: a micro-batch waits for this many records over all topics; None = for one."""
    max_trigger_delay: float = MAX_TRIGGER_DELAY
    """With ``min_records_per_trigger``: seconds for which it waits at most."""
    fail_on_data_loss: bool = True
    """True: trimmed positions are an error. False: reading continues with the first retained position."""
    push_filters: bool = False
    """Batch only: conditions on positions reduce the range; needs ``spark.sql.python.filterPushdown.enabled``."""
    min_partitions: int = 1
    """The least number of tasks of a batch query or a micro-batch, if there are that many records."""
    max_records_per_partition: int | None = None
    """The most records of one task; None = only bytes decide."""
    archive: str = ""
    """The directory or the URL of the archive, from which tasks read archived records; "" = from nodes."""
    rows: bool = False
    """The fields of the topic's rows are columns, behind ``columns``."""
    fields: tuple[str, ...] = ()
    """With ``rows``: the fields to read, in this order; () = all."""
    row_schema: str = ""
    """With ``rows``: the schema of the rows, as the driver has asked for it."""
    connect_seconds: int = CONNECT_SECONDS
    """Seconds for which the driver waits for a cluster if all of its addresses refuse connections."""
    tls: TlsFiles | None = None
    """The client's certificate, in files on every executor; None = a cluster without TLS."""

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns that a task has to read: with ``rows`` also those of which rows and messages are made."""
        return (*dict.fromkeys((*self.columns, "position", "value")),) if self.rows else self.columns

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool, table: Mapping[str, str] | None = None) -> Self:
        """Check the options of a query.

        Args:
          options: those that the user gave.
          streaming: whether it is a streaming query.
          table: for a read of a table, the result of :meth:`table_of`; ``options`` override it.

        Raises:
          ConfigError: an option is unknown, has no effect here, or has a value that is not allowed.
        """
        given = _read(options, _SOURCE, "source", table)
        if streaming:
            batches = ("endingPosition", "endingTimestamp", "pushFilters")
            _refuse(given, batches, "a streaming source", "leave it out, or use spark.read")
        else:
            triggers = ("maxRecordsPerTrigger", "maxBytesPerTrigger", "minRecordsPerTrigger", "maxTriggerDelay")
            _refuse(given, triggers, "a batch source", "leave it out, or use spark.readStream")
        if "startingPosition" in given and "startingTimestamp" in given:
            raise ConfigError("startingPosition and startingTimestamp are both given", remedy="give one of them")
        if "maxTriggerDelay" in given and "minRecordsPerTrigger" not in given:
            raise ConfigError(
                "maxTriggerDelay is given without minRecordsPerTrigger",
                remedy="give it too; the time between micro-batches is .trigger(processingTime=...)",
            )
        if given.get("minRecordsPerTrigger", 0) > given.get("maxRecordsPerTrigger", 1 << 63):
            raise ConfigError(
                f"minRecordsPerTrigger is {given['minRecordsPerTrigger']}, and maxRecordsPerTrigger"
                f" {given['maxRecordsPerTrigger']}",
                remedy="write a minimum that is not above the maximum",
            )
        if "topicPattern" in given:
            return cls._matching(given)
        if "topic" not in given:
            raise ConfigError(
                "no topic is named",
                remedy='write .option("topic", "NAME"), or several: "NAME,NAME"; Spark keeps the options of'
                " a table only if CREATE TABLE made it without columns, not if saveAsTable or AS SELECT made it",
            )
        _check_rows(given)
        topics = given.pop("topic")
        starts = _for_each(topics, "startingPosition", given.pop("startingPosition", "earliest"))
        ends = _for_each(topics, "endingPosition", given.pop("endingPosition", "latest"))
        for topic in topics:
            start, end = starts[topic], ends[topic]
            if isinstance(start, int) and isinstance(end, int) and start > end:
                raise ConfigError(
                    f"topic {topic}: startingPosition {start} is after endingPosition {end}",
                    remedy="startingPosition is the first position to read, endingPosition the first not to read",
                )
        return cls(topics=topics, starting_position=starts, ending_position=ends, **_fields(given))

    @classmethod
    def _matching(cls, given: dict[str, Any]) -> Self:
        """Return the options of a query with a pattern. Raises ConfigError: another option needs the names."""
        for option in ("topic", "rows"):
            if given.get(option):
                raise ConfigError(f"topicPattern and {option} are both given", remedy="give one of them")
        found = [given.pop(option, bound) for option, bound in zip(_POSITIONS, ("earliest", "latest"), strict=True)]
        for option, bound in zip(_POSITIONS, found, strict=True):
            if isinstance(bound, dict):
                raise ConfigError(
                    f"{option} names topics, but topicPattern finds them",
                    remedy="write one bound for all, or name the topics in option topic",
                )
        start, end = found
        return cls(
            topics=(),
            pattern_bounds=(start, end),
            starting_position={},
            ending_position={},
            **_fields(given),
        )

    def naming(self, topics: Iterable[str]) -> Self:
        """Return the options with the topics that the pattern has found."""
        names = tuple(topics)
        start, end = self.pattern_bounds
        starts, ends = dict.fromkeys(names, start), dict.fromkeys(names, end)
        return replace(self, topics=names, starting_position=starts, ending_position=ends)

    @classmethod
    def table_of(cls, options: Mapping[str, str]) -> dict[str, str]:
        """Return the checked options of ``CREATE TABLE ... OPTIONS (...)``, with their names in our spelling.

        Raises:
          ConfigError: an option is unknown, has a value that is not allowed, or has no effect in a batch query.
        """
        cls.parse(options, streaming=False)
        return {_find(name, value, _SOURCE, "source"): value for name, value in options_of(options).items()}

    @classmethod
    def rows_of(cls, options: Mapping[str, str]) -> Self | None:
        """Return what is needed to ask for the schema of a topic; None = the option ``rows`` is not given.

        Spark asks for the columns before it knows the kind of query, so the options are checked in part.

        Raises:
          ConfigError: an option is unknown or has a wrong value, or these are the options of a table.
        """
        if not _read(options, _SOURCE, "source").get("rows"):
            return None
        if is_table(options):
            raise ConfigError("a table cannot have the option rows", remedy="make a view: df.createTempView(...)")
        kept = {*_ADDRESS, "topicPattern", "columns", "rows", "fields", "connectSeconds"}
        given = options_of(options).items()
        shared = {name: value for name, value in given if _find(name, value, _SOURCE, "source") in kept}
        return cls.parse(shared, streaming=False)

    @staticmethod
    def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
        """Return only the columns, because Spark asks for the schema before it knows the kind of query.

        Raises:
          ConfigError: an option is unknown or has a wrong value.
        """
        columns: tuple[str, ...] = _read(options, _SOURCE, "source").get("columns", COLUMNS)
        return columns


@dataclass(frozen=True, slots=True, kw_only=True)
class WalSourceOptions:
    """The segment files to read, and the part of them to return."""

    paths: tuple[str, ...]
    """The data directories of stopped nodes."""
    topics: tuple[str, ...] = ()
    """() = all topics."""
    columns: tuple[str, ...] = COLUMNS
    unsafe: bool = False
    """Continue with fewer than a majority of the members, or with running nodes: committed records may be missing, and
    records that were never committed may be present."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Check the options of a query. Spark puts the arguments of ``load(...)`` into ``path`` or ``paths``.

        Raises:
          ConfigError: an option is unknown, or has a value that is not allowed.
        """
        given = _read(options, _WAL, "offline source")
        paths = (*given.pop("path", ()), *given.pop("paths", ()))
        if not paths:
            raise ConfigError(
                "no data directory is named", remedy='write .load("DIR"), or several: .load(["DIR", ...])'
            )
        return cls(paths=paths, topics=given.pop("topic", ()), **_fields(given))


def _cluster(value: str) -> str:
    addresses = option_values.names(value)
    for address in addresses:
        parse_address(address)
    return ",".join(addresses)


def _check_no_secret(option: str, value: str) -> None:
    """Refuse a secret where the name of its file is expected, without showing a part of it."""
    kind = "a token" if _has_token(value) else "a private key" if "PRIVATE KEY-----" in value else ""
    if kind and option in _FILES:
        raise ConfigError(
            f"option {option} holds {kind} itself, where the name of a file is expected",
            remedy=f"write {kind} into a file that only the user of the job can read, and give its name; Spark stores"
            " and shows options. Replace this one, because it may have been shown",
        )


def _has_token(value: str) -> bool:
    from viewstamp.wire.access import has_token  # Spark imports this module for every job, so it imports little.

    return has_token(value)


def _columns(value: str) -> tuple[str, ...]:
    names = option_values.names(value)
    for name in names:
        if name not in (known := (*COLUMNS, *COLUMNS_ON_REQUEST)):
            raise ValueError(f"there is no column {name}; {_nearest(name, known)}")
    return names


def _format(value: str) -> str:
    if value not in ("json", "msgpack", "rows"):
        raise ValueError("write json, msgpack or rows, or leave it out: then the column value is the value")
    return value


def _for_each(topics: tuple[str, ...], option: str, bounds: Bound | dict[str, Bound]) -> dict[str, Bound]:
    """Return the bound of each topic."""
    if not isinstance(bounds, dict):
        return dict.fromkeys(topics, bounds)
    if bounds.keys() != set(topics):
        raise ConfigError(
            f"{option} names {', '.join(bounds) or 'no topic'}, but topic names {', '.join(topics)}",
            remedy=f"name the same topics in both; {option} may also be one bound for all",
        )
    return bounds


_Check: TypeAlias = Callable[[str], object]

_SINK: Final[Mapping[str, _Check]] = {
    "cluster": _cluster,
    "tokenFile": option_values.text,
    "topic": option_values.text,
    "sinkId": option_values.text,
    "sinkReset": option_values.flag,
    "txnId": option_values.text,
    "txnKeepDays": option_values.days,
    "batchId": option_values.whole,
    "format": _format,
    "connectSeconds": option_values.whole,
    **dict.fromkeys(_TLS, option_values.text),
}
_SOURCE: Final[Mapping[str, _Check]] = {
    "cluster": _cluster,
    "tokenFile": option_values.text,
    "topic": option_values.names,
    "topicPattern": option_values.pattern,
    "columns": _columns,
    "startingPosition": option_values.bounds,
    "startingTimestamp": option_values.timestamp,
    "endingPosition": option_values.bounds,
    "endingTimestamp": option_values.timestamp,
    "maxRecordsPerTrigger": option_values.count,
    "maxBytesPerTrigger": option_values.count,
    "minRecordsPerTrigger": option_values.count,
    "maxTriggerDelay": option_values.duration,
    "failOnDataLoss": option_values.flag,
    "pushFilters": option_values.flag,
    "minPartitions": option_values.partitions,
    "maxRecordsPerPartition": option_values.count,
    "archive": option_values.archive,
    "rows": option_values.flag,
    "fields": option_values.names,
    "connectSeconds": option_values.whole,
    **dict.fromkeys(_TLS, option_values.text),
}
_WAL: Final[Mapping[str, _Check]] = {
    "path": option_values.path,
    "paths": option_values.paths,
    "topic": option_values.names,
    "columns": _columns,
    "unsafe": option_values.flag,
}
_KAFKAS: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "cluster",
    "subscribe": "topic",
    "subscribePattern": "topicPattern",
    "startingOffsets": "startingPosition",
    "endingOffsets": "endingPosition",
    "maxOffsetsPerTrigger": "maxRecordsPerTrigger",
    "minOffsetsPerTrigger": "minRecordsPerTrigger",
}
"""Options of Spark's Kafka connector with the meaning of one of ours; they are accepted as its alias.
``startingOffsets`` and ``endingOffsets`` are accepted only as ``earliest`` and ``latest``, because Kafka's numbers are
offsets of partitions and count from 0."""
_KAFKAS_HINTS: Final[Mapping[str, str]] = {
    "startingOffsetsByTimestamp": "write startingTimestamp: a log time in ISO 8601 for all topics",
    "endingOffsetsByTimestamp": "write endingTimestamp: a log time in ISO 8601 for all topics",
    "assign": "name the topics in option topic, with commas: a topic is one sequence of positions, without partitions",
    "includeHeaders": "leave it out: headers are always in the column headers",
    "groupIdPrefix": "leave it out: there are no consumer groups, the checkpoint holds the positions",
    "kafka.group.id": "leave it out: there are no consumer groups, the checkpoint holds the positions",
}
"""Options of Spark's Kafka connector that have no meaning here, and what to write instead."""

_SECRETS_HINTS: Final[Mapping[str, str]] = {
    "token": "write the token into a file, and give its name in tokenFile; Spark stores and shows options",
    "password": "write a token into a file, and give its name in tokenFile; Spark stores and shows options",
}
"""Names under which a user may expect to give a secret. No message shows the value of an option that is unknown."""

_SPARKS: Final = frozenset({"checkpointlocation", "queryname"})
"""Names that Spark itself adds to the options; in lower case, because Spark ignores capitals."""
_TABLES: Final = "option."
"""The prefix that Spark adds to each option of ``CREATE TABLE`` when it asks for the columns of the table."""


def is_table(options: Mapping[str, str]) -> bool:
    """Return whether these are the properties of a table that is being created, not the options of a query."""
    return any(name.lower() == "provider" or name.lower().startswith(_TABLES) for name in options)


def options_of(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that the user gave, without those that Spark adds.

    For ``CREATE TABLE ... OPTIONS (topic 'a')`` Spark passes ``option.topic`` and ``topic``, and in addition
    ``provider``, ``owner``, ``location``, ``path``, ``serialization.format`` and the table's other properties. Only
    names that begin with ``option.`` are certainly options.
    """
    if is_table(options):
        return {
            name[len(_TABLES) :]: value
            for name, value in options.items()
            if name.lower().startswith(_TABLES) and name.lower() != f"{_TABLES}serialization.format"
        }
    return {name: value for name, value in options.items() if name.lower() not in _SPARKS}


def _read(
    options: Mapping[str, str], known: Mapping[str, _Check], where: str, table: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the checked values by our spelling of the options. Values of ``table`` are used for those not given."""
    given: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name, value in options_of(options).items():
        option = _find(name, value, known, where)
        _check_no_secret(option, value)
        try:
            checked = known[option](value)
        except ValueError as error:
            shown = option if option.lower() == name.lower() else name
            raise ConfigError(f"option {shown} is {value!r}", remedy=str(error)) from None
        if option in given and given[option] != checked:
            raise ConfigError(
                f"options {names[option]} and {name} mean the same here, but differ: {name} is {value!r}",
                remedy=f"give only {option}",
            )
        given[option], names[option] = checked, name
    for option, value in (table or {}).items():
        if option not in given:
            given[option] = known[option](value)
    if "cluster" in known and "cluster" not in given:
        if not os.environ.get(VARIABLE):
            raise ConfigError(
                "no cluster is named",
                remedy=f'write .option("cluster", "HOST:PORT,HOST:PORT"), or set {VARIABLE}; Spark keeps the options'
                " of a table only if CREATE TABLE made it without columns, not if saveAsTable or AS SELECT made it",
            )
        given["cluster"] = _cluster(os.environ[VARIABLE])
    if "cluster" in known and (tls := _tls_files(given)) is not None:
        given["tls"] = tls
    return given


def _tls_files(given: dict[str, Any]) -> TlsFiles | None:
    """Take the files of TLS out of the options; None = neither options nor variables name them."""
    files = [given.pop(option, "") for option in _TLS]
    if not any(files):
        files = [os.environ.get(name, "") for name in TLS_VARIABLES]
    if not any(files):
        return None
    if not all(files):
        missing = ", ".join(option for option, file in zip(_TLS, files, strict=True) if not file)
        raise ConfigError(
            f"of the three files of TLS these are missing: {missing}",
            remedy=f"give {', '.join(_TLS)}, or the variables {', '.join(TLS_VARIABLES)}",
        )
    return TlsFiles(authority=files[0], certificate=files[1], key=files[2])


def _find(name: str, value: str, known: Mapping[str, _Check], where: str) -> str:
    """Return our spelling of an option's name. Raises ConfigError for an unknown option."""
    spelling = {each.lower(): each for each in known}
    if name.lower() in spelling:
        return spelling[name.lower()]
    if name.lower() == "path":
        shown = "a token" if _has_token(value) else repr(value)
        raise ConfigError(f"the {where} has no path, but {shown} is given", remedy='write .option("topic", "NAME")')
    for kafkas, ours in _KAFKAS.items():
        if name.lower() == kafkas.lower() and ours in known:
            if ours.endswith("Position") and value not in ("earliest", "latest"):
                raise ConfigError(
                    f"the {where} takes {kafkas} only as earliest or latest, not {value!r}",
                    remedy=f'write {ours}: a position from 1 on, or for each topic {{"NAME": 1, "NAME": "latest"}}',
                )
            return ours
    hints = {hinted.lower(): hint for hinted, hint in (*_KAFKAS_HINTS.items(), *_SECRETS_HINTS.items())}
    hint = hints.get(name.lower())
    if hint is None and name.lower().startswith(("kafka.security.", "kafka.ssl.", "kafka.sasl.")):
        hint = f"name the files of the certificate in {', '.join(_TLS)}, and the one of the token in tokenFile"
    elif hint is None and name.lower().startswith("kafka."):
        hint = "leave it out, because there is no Kafka client that reads it"
    raise ConfigError(f"the {where} has no option {name}", remedy=hint or _nearest(name, known))


def _check_rows(given: dict[str, Any]) -> None:
    """With ``rows`` there is one topic, and no other column unless ``columns`` names it."""
    if given.get("rows"):
        given.setdefault("columns", ())
        if len(given["topic"]) > 1:
            raise ConfigError("rows is given for several topics", remedy="read each, and union(...) them")
    elif "fields" in given:
        raise ConfigError("fields is given without rows", remedy='write .option("rows", True) too')


def _refuse(given: Mapping[str, object], names: Iterable[str], where: str, remedy: str) -> None:
    for name in names:
        if name in given:
            raise ConfigError(f"option {name} has no effect on {where}", remedy=remedy)


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return the option that the user may have meant, and the list of all options."""
    spelling = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), spelling, n=1, cutoff=0.4)
    guess = f"did you mean {spelling[near[0]]}? " if near else ""
    return f"{guess}there are {', '.join(spelling.values())}"


def _fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by their field names: ``sink_id`` for ``sinkId``."""
    return {re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name): value for name, value in given.items()}
