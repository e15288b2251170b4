"""What comes from outside, checked before it is believed: values of callers, answers of nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from viewstamp.client.draft import Receipt
from viewstamp.errors import RequestError
from viewstamp.wire.requests import FrameKind

__all__ = ["as_bytes", "as_headers", "as_seconds", "is_answer", "read_receipt"]


def as_bytes(value: object, what: str) -> bytes:
    """Return ``value`` as bytes that nobody else can change.

    Raises:
      RequestError: it is not made of bytes.
    """
    if type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise RequestError(f"{what} must be bytes, not {type(value).__name__}", remedy="encode text: text.encode()")


def as_headers(headers: object) -> dict[str, bytes] | None:
    """Return a copy of a record's headers, or None where there are none.

    Raises:
      RequestError: they do not map names to bytes.
    """
    if not headers:
        return None
    if not isinstance(headers, Mapping) or not all(isinstance(name, str) for name in headers):
        raise RequestError(f"headers must map names to bytes, not {headers!r}", remedy='write {"name": b"..."}')
    return {name: as_bytes(value, f"header {name!r}") for name, value in headers.items()}


def as_seconds(timeout: float | None, default: float) -> float:
    """Return a caller's timeout in seconds, ``default`` where it named none.

    Raises:
      RequestError: it is not above 0.
    """
    if timeout is None:
        return default
    if not timeout > 0:
        raise RequestError(f"a timeout of {timeout} s", remedy="give a number of seconds above 0, or math.inf")
    return timeout


def read_receipt(packed: object) -> Receipt | None:
    """Read a receipt as it came over the wire; None = the sequence was fenced.

    Raises:
      ValueError: it is none; the connection must end.
    """
    if packed is None:
        return None
    if not _is_receipt(packed):
        raise ValueError(f"{packed!r} is no receipt")
    return Receipt(*packed)  # type: ignore[misc]  # _is_receipt has looked


def is_answer(kind: FrameKind, body: dict[str, Any]) -> bool:
    """Say whether ``body`` is what the answer OK to a request of this kind must hold."""
    return all(check(body.get(key)) for key, check in _ANSWERS[kind].items())


def _is_int(value: object) -> bool:
    return type(value) is int


def _is_receipt(value: object) -> bool:
    return isinstance(value, list) and len(value) == 5 and all(map(_is_int, value))


def _is_topic(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and all(_is_int(value.get(key)) for key in ("id", "first_position", "last_position", "bytes"))
    )


_ANSWERS: dict[FrameKind, dict[str, Callable[[object], bool]]] = {
    FrameKind.OPEN_SESSION: {"session": _is_int},
    FrameKind.OUTCOME: {"receipt": lambda value: value is None or _is_receipt(value)},
    FrameKind.CREATE_TOPIC: {"topic": _is_topic},
    FrameKind.DESCRIBE_TOPIC: {"topic": _is_topic, "applied_index": _is_int},
    FrameKind.LIST_TOPICS: {"topics": lambda value: isinstance(value, list) and all(map(_is_topic, value))},
    FrameKind.READ: {"applied_index": _is_int},
    FrameKind.STATUS: {"status": lambda value: isinstance(value, dict)},
}
"""What the answers hold that somebody waits for; APPEND's go to the session, which reads them itself."""
