"""Consensus messages as frames: a msgpack list, and the batches as payload. Pure."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any

from viewstamp.consensus.messages import (
    MESSAGES,
    NUMBER_END,
    Announcement,
    AppendRequest,
    BatchesRead,
    HeartbeatRequest,
    HeartbeatResponse,
    HistoryResponse,
    Message,
    PreVoteResponse,
    VoteResponse,
)
from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import FrameError, PeerError
from viewstamp.wire.batch import Batch, Buffer
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.frame import Frame, FrameKind, encode_frame

__all__ = ["decode_message", "encode_heartbeat", "encode_message"]

_NUMBERS = {kind: number for number, kind in enumerate(MESSAGES)}
_PEER_KINDS = [kind for kind in MESSAGES if kind is not BatchesRead]
_TYPES: dict[str, type] = {"NodeId": str, "bool": bool, "TermHistory": list}
"""The wire types of fields; all others are numbers."""
_NAMES = {kind: [field.name for field in fields(kind) if field.name != "batches"] for kind in MESSAGES}
_WANTED = {
    kind: [_TYPES.get(str(field.type), int) for field in fields(kind) if field.name != "batches"] for kind in MESSAGES
}
_OPTIONAL = {
    kind: [field.default for field in fields(kind) if field.name in names]
    for kind, names in (
        (PreVoteResponse, ("is_recovering",)),
        (VoteResponse, ("is_recovering",)),
        (HistoryResponse, ("life",)),
        (Announcement, ("life", "leader_end")),
        (HeartbeatResponse, ("promise_us",)),
    )
}
"""Defaults of fields at the end of a message. If all have their default they are left out, because older releases
refuse a longer message. Only members in interval mode, or with leases, send other values."""
_BUFFER_OF = attrgetter("buffer")
_VALUES = {kind: attrgetter(*names) for kind, names in _NAMES.items()}


def encode_message(message: Message) -> list[Buffer]:
    """Return the buffers of a PEER frame: ``[number of the message type, its fields ...]`` and the batches."""
    kind = type(message)
    body = [_NUMBERS[kind], *_VALUES[kind](message)]
    if kind in _OPTIONAL and body[-len(_OPTIONAL[kind]) :] == _OPTIONAL[kind]:
        del body[-len(_OPTIONAL[kind]) :]
    if "history" in _NAMES[kind]:
        body = [value.starts if isinstance(value, TermHistory) else value for value in body]
    payload = list(map(_BUFFER_OF, message.batches)) if isinstance(message, AppendRequest) else []
    return encode_frame(FrameKind.PEER, body, payload)


def encode_heartbeat(message: HeartbeatRequest | HeartbeatResponse) -> list[object]:
    """Return the body that a PEER frame of a heartbeat has, for frames with several of them. No field is left out."""
    kind = type(message)
    return [_NUMBERS[kind], *_VALUES[kind](message)]


def decode_message(frame: Frame) -> Message:
    """Read a PEER frame; the batches of an AppendRequest are checked, and are views of the frame's bytes.

    Raises:
      PeerError: an unknown message, or fields that do not fit it. The connection must end.
    """
    try:
        number, *values = frame.body
        if type(number) is not int or number < 0:
            raise ValueError(f"{brief_repr(number)} is no number of a message")
        kind = _PEER_KINDS[number]
        if kind in _OPTIONAL and len(values) == len(_WANTED[kind]) - len(_OPTIONAL[kind]):
            values += _OPTIONAL[kind]
        for value, wanted in zip(values, _WANTED[kind], strict=True):
            if type(value) is not wanted or (type(value) is int and not 0 <= value < NUMBER_END):
                raise TypeError(f"{brief_repr(value)} stands for a {wanted.__name__}")
        arguments: dict[str, Any] = dict(zip(_NAMES[kind], values, strict=True))
        if "history" in arguments:
            arguments["history"] = TermHistory((_number(term), _number(begin)) for term, begin in arguments["history"])
        if kind is AppendRequest:
            arguments["batches"] = tuple(Batch.decode_all(frame.payload))
        message: Message = kind(**arguments)
        return message
    except (TypeError, ValueError, IndexError) as error:
        raise FrameError(f"no consensus message: {brief_repr(frame.body)}") from error
    except PeerError as error:
        raise FrameError(f"a damaged consensus message: {error.message}") from error


def _number(value: object) -> int:
    """Return ``value`` if it can be a term, an index or a count; else raise ValueError."""
    if type(value) is not int or not 0 <= value < NUMBER_END:
        raise ValueError(f"{brief_repr(value)} is no term, index or count")
    return value
