"""The answers of nodes: errors as bytes, and the required content of an OK.

The docstrings of ``wire/requests.py`` describe the fields of each OK. This module lists the fields that a client needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from viewstamp.errors import (
    AccessDeniedError,
    ClosedError,
    CommandError,
    ConfigError,
    CorruptionError,
    DirectoryInUseError,
    DivergedError,
    FencedError,
    FrameError,
    NoQuorumError,
    NotLeaderError,
    OutcomeUnknownError,
    OutdatedCodeError,
    OverloadedError,
    PeerError,
    PositionMismatchError,
    RecordTooLargeError,
    RequestError,
    StagingError,
    StaleSessionError,
    StorageError,
    StorageFullError,
    StreamSealedError,
    TlsError,
    TopicExistsError,
    TrimmedError,
    UnavailableError,
    UnknownActorError,
    UnknownTopicError,
    ViewstampError,
    WrongClusterError,
)
from viewstamp.wire.frame import FrameKind

__all__ = ["ERRORS", "error_fields", "error_from", "is_answer"]

_FIVE_NUMBERS = [int] * 5
_SEALED = "is_sealed"
"""The field that makes a RequestError a StreamSealedError."""
_MESSAGE_MAX = 2000
"""The most characters of an error's text that are sent, because a text can contain a request's own megabytes."""


ERRORS: dict[str, type[ViewstampError]] = {
    error.__name__: error
    for error in (
        AccessDeniedError,
        ClosedError,
        ConfigError,
        CorruptionError,
        DirectoryInUseError,
        FencedError,
        FrameError,
        NoQuorumError,
        OutdatedCodeError,
        OverloadedError,
        PeerError,
        RecordTooLargeError,
        RequestError,
        StagingError,
        StaleSessionError,
        StorageError,
        StorageFullError,
        TlsError,
        TopicExistsError,
        UnavailableError,
        UnknownTopicError,
        ViewstampError,
        WrongClusterError,
    )
}
"""The classes that a node may name in ERROR and REFUSED; those with more fields are in ``_DETAILS``."""


def _number(value: Any) -> int:
    return int(value or 0)


def _text_or_none(value: Any) -> str | None:
    return str(value) if value else None


_DETAILS: dict[type[ViewstampError], dict[str, Callable[[Any], Any]]] = {
    NotLeaderError: {"leader": _text_or_none, "address": _text_or_none},
    TrimmedError: {"first": _number},
    PositionMismatchError: {"actual": _number},
    DivergedError: {"index": _number},
    UnknownActorError: {"is_spread": bool},
    CommandError: {"kind": lambda value: str(value or "")},
}
"""The fields that a class has beside its text, as they are sent, and how each is read."""
_DETAILED: dict[str, tuple[Callable[..., ViewstampError], dict[str, Callable[[Any], Any]]]] = {
    kind.__name__: (kind, details) for kind, details in _DETAILS.items()
}


def error_fields(error: ViewstampError) -> dict[str, object]:
    """Return the fields of ERROR and REFUSED: the class, the text, and the attributes of the class."""
    fields: dict[str, object] = {
        "error": type(error).__name__,
        "message": error.message[:_MESSAGE_MAX],
        "remedy": error.remedy,
    }
    for kind, details in _DETAILS.items():
        if isinstance(error, kind):
            fields |= {name: getattr(error, name) for name in details}
    if isinstance(error, StreamSealedError):
        # A release before reads a class that it knows, whose meaning is "nothing was written". It sends an append with
        # an unknown error again and again.
        fields |= {"error": RequestError.__name__, _SEALED: True}
    return fields


def error_from(body: Mapping[str, Any]) -> ViewstampError:
    """Return the exception for the body of an ERROR or REFUSED.

    A class that this version does not know becomes a plain ViewstampError with its name, because it must never be
    mistaken for an error that means "nothing was written".
    """
    name, remedy = str(body.get("error", "")), str(body.get("remedy") or "")
    message = str(body.get("message") or f"refused with {name or 'an error'}, and no message")
    if name == OutcomeUnknownError.__name__:
        return OutcomeUnknownError(message, token=None, remedy=remedy)
    if name in _DETAILED:
        make, details = _DETAILED[name]
        return make(message, remedy=remedy, **{each: read(body.get(each)) for each, read in details.items()})
    error = ERRORS.get(name) if not body.get(_SEALED) else StreamSealedError
    return error(message, remedy=remedy) if error is not None else ViewstampError(f"{name}: {message}", remedy=remedy)


def is_answer(kind: FrameKind, body: dict[str, Any]) -> bool:
    """Return whether ``body`` has the fields that an OK to a request of this kind must have."""
    for key, check in _ANSWERS[kind].items():  # noqa: SIM110  # A generator would take twice as long.
        if not check(body.get(key)):
            return False
    return True


def _is_int(value: object) -> bool:
    return type(value) is int


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _is_text(value: object) -> bool:
    return type(value) is str


def _is_bool(value: object) -> bool:
    return type(value) is bool


def _is_bytes(value: object) -> bool:
    return type(value) is bytes


def _is_list_of(value: object, check: Callable[[object], bool]) -> bool:
    return isinstance(value, list) and all(map(check, value))


def _has(value: object, checks: Mapping[str, Callable[[object], bool]]) -> bool:
    return isinstance(value, dict) and all(check(value.get(key)) for key, check in checks.items())


def _is_receipt(value: object) -> bool:
    return type(value) is list and list(map(type, value)) == _FIVE_NUMBERS


def _is_topic(value: object) -> bool:
    checks = {"name": _is_text, **dict.fromkeys(("id", "first_position", "last_position", "bytes"), _is_int)}
    if not (isinstance(value, dict) and _has(value, checks)):
        return False
    if not _is_text(value.get("schema", "")):
        return False
    parts = ("archive", _ARCHIVE), ("archived", _ARCHIVED)
    return all(part not in value or _has(value[part], part_checks) for part, part_checks in parts)


def _is_actor(value: object) -> bool:
    checks = {"name": _is_text, "class": _is_text, "version": _is_int, "instances": _is_int}
    return _has(value, checks) and _is_list_of(value.get("groups", []), _is_int)  # type: ignore[attr-defined]


def _is_snapshot(value: object) -> bool:
    return _has(value, {"index": _is_int, "term": _is_int, "bytes": _is_int})


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and [*map(type, value)] == [int, int]


def _is_log(value: object) -> bool:
    numbers = ("first_index", "end", "term", "log_time", "chain", "lineage")
    lists = {
        "history": _is_pair,
        "topics": _is_topic,
        "sinks": _is_sink,
        "actors": _is_actor,
        "snapshots": _is_snapshot,
    }
    return (
        isinstance(value, dict)
        and _has(value, {"cluster": _is_text, "node": _is_text, **dict.fromkeys(numbers, _is_int)})
        and all(_is_list_of(value.get(key), check) for key, check in lists.items())
        and all(_is_list_of(value.get(key, []), _is_int) for key in ("groups", "open_attempts", "pending_attempts"))
        and _is_int(value.get("version", 0))
        and ("version" in value) == ("open_attempts" in value) == ("pending_attempts" in value)
    )


def _is_ranges(value: object) -> bool:
    return value is None or _is_list_of(
        value,
        lambda each: isinstance(each, list) and len(each) == 3 and _is_text(each[0]) and all(map(_is_int, each[1:])),
    )


def _is_commit(value: object) -> bool:
    checks = {"sink": _is_text, "batch": _is_int, "duplicate": _is_bool, "ranges": _is_ranges}
    return _has(value, {**checks, "index": _is_int, "log_time": _is_int})


def _is_sink(value: object) -> bool:
    numbers = ("batch", "index", "log_time", "attempts", "sealed", "bytes")
    checks = {"name": _is_text, "owner": _is_text, "run": _is_text, "ranges": _is_ranges, "keep_seconds": _is_number}
    return (
        isinstance(value, dict)
        and _has(value, {**checks, **dict.fromkeys(numbers, _is_int)})
        and _is_number(value.get("forget_seconds", 0))
    )


def _is_membership(value: object) -> bool:
    return (
        isinstance(value, dict)
        and _has(value, {"voters": _is_addresses, "learners": _is_addresses, "generation": _is_int})
        and all(_is_addresses(value.get(key, {})) for key in ("outgoing", "joining"))
    )


def _is_addresses(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_text, [*value.keys(), *value.values()]))


def _is_group(value: object) -> bool:
    checks = {"id": _is_int, "members": _is_addresses, "is_established": _is_bool}
    if not _has(value, {**checks, **dict.fromkeys(("streams", "hosted"), lambda names: _is_list_of(names, _is_text))}):
        return False
    assert isinstance(value, dict)
    lists = (value.get(name, []) for name in ("leaving", "left"))
    return _is_addresses(value.get("hosts", {})) and all(_is_list_of(each, _is_text) for each in lists)


def _is_spread(value: object) -> bool:
    """Return whether a value is a spread topic, of whose slots each belongs to one of its streams."""
    numbers = dict.fromkeys(("id", "retain_bytes", "slots"), _is_int)
    lists = {"groups": lambda each: _is_list_of(each, _is_int), "ranges": lambda each: _is_list_of(each, _is_range)}
    if not _has(value, {"name": _is_text, "retain_seconds": _is_number, **numbers, **lists}):
        return False
    assert isinstance(value, dict)
    if not _is_text(value.get("schema", "")):
        return False
    ranges, streams = value["ranges"], len(value["groups"])
    starts = [first for first, _ in ranges]
    is_whole = starts[:1] == [0] and starts == sorted(set(starts)) and starts[-1] < value["slots"]
    closed = value.get("closed", [])
    return (
        is_whole
        and _is_range(value.get("lost_positions", [0, 0]))
        and all(1 <= stream <= streams for _, stream in ranges)
        and _is_list_of(closed, lambda each: type(each) is list and list(map(type, each)) == [int] * 3)
        and all(1 <= stream <= streams and 1 <= into <= streams and end >= 0 for stream, into, end in closed)
        and all(
            _is_list_of(ended, _is_range)
            and {stream for stream, position in ended if position > 0} <= {stream for stream, _, end in closed if end}
            for ended in (value.get("lost", []), value.get("gone", []))
        )
    )


def _is_spread_actor(value: object) -> bool:
    """Return whether a value is a spread actor, of whose slots each belongs to one group."""
    lists = {"ranges": lambda each: _is_list_of(each, _is_range)}
    if not _has(value, {"name": _is_text, **dict.fromkeys(("id", "slots"), _is_int), **lists}):
        return False
    assert isinstance(value, dict)
    starts = [first for first, _ in value["ranges"]]
    is_whole = starts[:1] == [0] and starts == sorted(set(starts)) and starts[-1] < value["slots"]
    return is_whole and all(group > 0 for _, group in value["ranges"])


def _is_described_actor(value: object) -> bool:
    return isinstance(value, dict) and ("spread" not in value or _is_spread_actor(value["spread"]))


def _is_run_of_records(value: object) -> bool:
    """Return whether a value is a global position, a local position and a number of records, each from 1 on."""
    return _is_list_of(value, _is_int) and len(value) == 3 and min(value) >= 1  # type: ignore[arg-type,call-overload]


def _is_range(value: object) -> bool:
    return _is_list_of(value, _is_int) and len(value) == 2  # type: ignore[arg-type]


def _is_run(value: object) -> bool:
    numbers = dict.fromkeys(("id", "first", "last", "changed_at"), _is_int)
    if not _has(value, {**numbers, **dict.fromkeys(("topic", "state", "origin"), _is_text)}):
        return False
    assert isinstance(value, dict)
    return _is_int(value.get("delay", 0))


def _is_orphan(value: object) -> bool:
    return _is_list_of(value, _is_int) and len(value) == 2  # type: ignore[arg-type]


def _is_token(value: object) -> bool:
    numbers = ("created", "expires", "ended", "old_until", "rotation")
    checks = {"id": _is_text, "name": _is_text, "roles": lambda roles: _is_list_of(roles, _is_text), "is_on": _is_bool}
    return _has(value, {**checks, **dict.fromkeys(numbers, _is_int)})


def _is_entry(value: object) -> bool:
    return isinstance(value, list) and list(map(type, value)) == [int, int, str, str, str]


_ARCHIVE = dict.fromkeys(("after_seconds", "delay_seconds", "delete_seconds"), _is_number)
_ARCHIVED = dict.fromkeys(("first", "end", "runs", "bytes", "first_time", "last_time", "waiting_since"), _is_int)
_CHANGE = (_is_int, _is_int, _is_text, _is_text, _is_text, _is_bytes, _is_bytes)


def _is_change(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == len(_CHANGE)
        and all(check(each) for check, each in zip(_CHANGE, value, strict=True))
    )


def _is_found(value: object) -> bool:
    if not (isinstance(value, list) and len(value) == 6):
        return False
    *numbers, content, headers = value
    return all(map(_is_int, numbers)) and _is_bytes(content) and (headers is None or _is_bytes(headers))


_ANSWERS: dict[FrameKind, dict[str, Callable[[object], bool]]] = {
    FrameKind.OPEN_SESSION: {"session": _is_int},
    FrameKind.OUTCOME: {
        "receipt": lambda value: value is None or _is_receipt(value),
        "results": lambda value: value is None or _is_list_of(value, _is_bytes),
    },
    FrameKind.CREATE_TOPIC: {"topic": _is_topic},
    FrameKind.TRIM_TOPIC: {"topic": _is_topic},
    FrameKind.CONFIGURE_TOPIC: {"topic": _is_topic},
    FrameKind.CONFIGURE_ARCHIVE: {"topic": _is_topic},
    FrameKind.CONFIGURE_SCHEMA: {"topic": _is_topic},
    FrameKind.CONFIGURE_KEYED: {"topic": _is_topic},
    FrameKind.GET_KEY: {"record": lambda value: value is None or _is_found(value)},
    FrameKind.SCAN_KEYS: {
        "records": lambda value: _is_list_of(value, lambda each: isinstance(each, list) and _is_found(each[1:])),
        "next": lambda value: value is None or _is_bytes(value),
    },
    FrameKind.DESCRIBE_TOPIC: {"topic": _is_topic, "applied_index": _is_int, "age": _is_number},
    FrameKind.LIST_TOPICS: {"topics": lambda value: _is_list_of(value, _is_topic), "age": _is_number},
    FrameKind.READ: {"applied_index": _is_int},
    FrameKind.STATUS: {"status": lambda value: isinstance(value, dict)},
    FrameKind.QUERY: {"result": _is_bytes, "applied_index": _is_int, "age": _is_number},
    FrameKind.WATCH: {"changes": lambda value: _is_list_of(value, _is_change), "index": _is_int},
    FrameKind.LIST_ACTORS: {"actors": lambda value: _is_list_of(value, _is_actor)},
    FrameKind.DESCRIBE_ACTOR: {"actor": _is_described_actor},
    FrameKind.SPREAD_ACTOR: {"actor": _is_spread_actor},
    FrameKind.LIST_SPREAD_ACTORS: {"actors": lambda value: _is_list_of(value, _is_spread_actor), "age": _is_number},
    FrameKind.CREATE_SNAPSHOT: {"snapshot": _is_snapshot},
    FrameKind.LIST_SNAPSHOTS: {"snapshots": lambda value: _is_list_of(value, _is_snapshot)},
    FrameKind.BEGIN_ATTEMPT: {"attempt": _is_int, "commit": lambda value: value is None or _is_commit(value)},
    FrameKind.SEAL_ATTEMPT: {},
    FrameKind.ABORT_ATTEMPTS: {},
    FrameKind.COMMIT: {"commit": _is_commit},
    FrameKind.BEGIN_PART: {"attempt": _is_int},
    FrameKind.COMMIT_PARTS: {"commit": _is_commit},
    FrameKind.LIST_SINKS: {"sinks": lambda value: _is_list_of(value, _is_sink)},
    FrameKind.DESCRIBE_SINK: {"sink": _is_sink},
    FrameKind.FORGET_SINK: {},
    FrameKind.SPLIT_TOPIC: {"positions": lambda value: _is_list_of(value, _is_int)},
    FrameKind.FIND_TIME: {"position": _is_int},
    FrameKind.CHANGE_MEMBERS: {"membership": _is_membership},
    FrameKind.TRANSFER_LEADERSHIP: {"leader": _is_text},
    FrameKind.NOTE_TRANSFER: {"index": _is_int},
    FrameKind.PLACE_GROUP: {"group": _is_group},
    FrameKind.CANCEL_GROUP: {},
    FrameKind.HOST_GROUP: {"group": _is_group},
    FrameKind.UNHOST_GROUP: {"group": _is_group},
    FrameKind.REMOVE_GROUP: {},
    FrameKind.LIST_GROUPS: {"groups": lambda value: _is_list_of(value, _is_group), "applied_index": _is_int},
    FrameKind.SPREAD_TOPIC: {"topic": _is_spread},
    FrameKind.CONFIGURE_SPREAD: {"topic": _is_spread},
    FrameKind.TRIM_SPREAD: {"topic": _is_spread},
    FrameKind.CONFIGURE_SPREAD_SCHEMA: {"topic": _is_spread},
    FrameKind.CONFIGURE_SPREAD_ARCHIVE: {"topic": _is_spread},
    FrameKind.ADD_STREAM: {"topic": _is_spread},
    FrameKind.GONE_STREAM: {"topic": _is_spread},
    FrameKind.SEAL_STREAM: {"topic": _is_spread},
    FrameKind.LOSE_STREAM: {"topic": _is_spread},
    FrameKind.DESCRIBE_SPREAD: {
        "topic": _is_spread,
        "applied_index": _is_int,
        "age": _is_number,
        "next_position": lambda value: value is None or _is_int(value),
        "ordered_ends": lambda value: value is None or _is_list_of(value, _is_int),
    },
    FrameKind.WAIT_ORDERED: {"runs": lambda value: _is_list_of(value, _is_run_of_records)},
    FrameKind.LIST_SPREADS: {"topics": lambda value: _is_list_of(value, _is_spread), "age": _is_number},
    FrameKind.READ_ORDERED: {
        "runs": lambda value: _is_list_of(value, _is_run_of_records),
        "known_to": _is_int,
        "kept_from": _is_int,
        "more": _is_bool,
    },
    FrameKind.ARCHIVE_TOPIC: {"archived_end": _is_int, "is_running": _is_bool},
    FrameKind.CHECK_RUN: {"is_running": _is_bool, "damage": _is_text},
    FrameKind.FIND_ORPHANS: {"is_running": _is_bool, "orphans": lambda value: _is_list_of(value, _is_orphan)},
    FrameKind.LIST_RUNS: {"runs": lambda value: _is_list_of(value, _is_run)},
    FrameKind.CREATE_TOKEN: {"token": _is_token},
    FrameKind.ROTATE_TOKEN: {"token": _is_token},
    FrameKind.REVOKE_TOKEN: {"token": _is_token},
    FrameKind.LIST_TOKENS: {"tokens": lambda value: _is_list_of(value, _is_token), "is_on": _is_bool},
    FrameKind.LIST_AUDIT: {"entries": lambda value: _is_list_of(value, _is_entry)},
    FrameKind.DESCRIBE_LOG: {"log": _is_log},
    FrameKind.COPY_LOG: {},
    FrameKind.COPY_SNAPSHOT: {"size": _is_int, "identity": _is_int},
}
"""The fields that a client needs in each OK. Those of APPEND and CALL are missing: the session reads these itself."""
