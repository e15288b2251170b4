"""What the body of a request must hold, checked once at the port so that nothing behind it has to. Pure."""

from __future__ import annotations

from typing import Any

from viewstamp.errors import RequestError
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.identity_proof import CHALLENGE_BYTES

__all__ = ["check_challenge", "check_fields", "max_staleness"]

_FIELDS: dict[int, dict[str, type]] = {
    FrameKind.APPEND_AT: {"position": int},
    FrameKind.OUTCOME: {"session": int, "sequence": int},
    FrameKind.CREATE_TOPIC: {"name": str},
    FrameKind.CONFIGURE_TOPIC: {"name": str},
    FrameKind.TRIM_TOPIC: {"name": str, "position": int},
    FrameKind.LIST_TOPICS: {"stale": bool},
    FrameKind.DESCRIBE_TOPIC: {"name": str, "stale": bool},
    FrameKind.READ: {"topic": int, "position": int, "bytes_max": int, "applied_index": int, "wait": float},
    FrameKind.QUERY: {
        "actor": str,
        "key": str,
        "method": str,
        "arguments": bytes,
        "stale": bool,
        "applied_index": int,
    },
    FrameKind.WATCH: {"actor": str, "index": int, "wait": float},
    FrameKind.LIST_ACTORS: {"stale": bool},
    FrameKind.DESCRIBE_ACTOR: {"name": str},
    FrameKind.LIST_SINKS: {"stale": bool},
    FrameKind.DESCRIBE_SINK: {"name": str, "stale": bool},
    FrameKind.SPLIT_TOPIC: {"name": str, "start": int, "end": int, "bytes": int},
    FrameKind.FIND_TIME: {"name": str, "timestamp": int},
    FrameKind.CHANGE_MEMBERS: {"action": str, "node": str, "address": str, "replaces": str},
    FrameKind.TRANSFER_LEADERSHIP: {"node": str},
    FrameKind.READ_LOG: {"start": int, "end": int, "bytes_max": int},
    FrameKind.READ_SNAPSHOT: {"end": int, "term": int, "offset": int, "bytes_max": int},
}
"""What the body of a request must hold beside its id; numbers are never negative."""

_NUMBER_END = 1 << 63


def check_fields(kind: int, body: dict[str, Any]) -> None:
    """Check what came from outside, so that nothing behind has to.

    Raises:
      RequestError: a field is missing, or holds something else than it should.
    """
    for name, wanted in _FIELDS.get(kind, {}).items():
        value = body.get(name)
        is_fit = type(value) is wanted or (wanted is float and type(value) is int)
        if not is_fit or (wanted in (int, float) and not 0 <= value < _NUMBER_END):  # type: ignore[operator]
            raise RequestError(
                f"a request of kind {kind} whose {name} is {brief_repr(value)}",
                remedy="run the same release on both sides",
            )


def check_challenge(body: dict[str, Any]) -> None:
    """Raise RequestError where a challenge is not 16 bytes."""
    challenge = body.get("challenge", bytes(CHALLENGE_BYTES))
    if type(challenge) is not bytes or len(challenge) != CHALLENGE_BYTES:
        raise RequestError(
            f"a challenge of {CHALLENGE_BYTES} random bytes is answered, not {brief_repr(challenge)}",
            remedy="run the same release on both sides",
        )


def max_staleness(body: dict[str, Any]) -> float | None:
    """Return how old a stale answer may be, in seconds; None = as old as it is. Raises RequestError."""
    seconds = body.get("max_staleness")
    if seconds is None:
        return None
    if type(seconds) not in (int, float) or not seconds >= 0:
        raise RequestError(
            f"an answer cannot be at most {str(seconds)[:50]} s old", remedy="give seconds, from 0 on, or none at all"
        )
    return float(seconds)
