"""What refusals mean for a batch, and what its callers are told. No state."""

from __future__ import annotations

import copy
from collections.abc import Callable

from viewstamp.client.draft import COMMANDS, Draft, WaiterT
from viewstamp.errors import (
    ClosedError,
    NoQuorumError,
    NotLeaderError,
    PeerError,
    StaleSessionError,
    UnavailableError,
    ViewstampError,
)

__all__ = ["ELSEWHERE", "check_results", "copies", "fenced", "is_later", "not_kept"]

ELSEWHERE = (NotLeaderError, ClosedError, NoQuorumError)
"""Refusals that another node may not share."""


def is_later(error: ViewstampError) -> bool:
    """Whether a refusal says that the same node may take the request later, and has not taken it now."""
    return isinstance(error, UnavailableError) and not isinstance(error, ELSEWHERE)


def check_results(draft: Draft[WaiterT], results: list[bytes] | None) -> None:
    """Compare the results of commands with the batch that they answer. Raises PeerError."""
    if results is not None and (draft.topic != COMMANDS or len(results) != draft.count):
        raise PeerError(f"{len(results)} results answer a batch of {draft.count} for topic {draft.topic}")


def fenced(offset: int, count: int) -> ViewstampError:
    """Return what is told of records that somebody else has fenced."""
    return UnavailableError(
        "somebody asked for the outcome of this before it was applied, so it was fenced: nothing was written",
        remedy="append or call again",
    )


def not_kept(offset: int, count: int) -> ViewstampError:
    """Return what is told of a command that was applied, and whose result is gone."""
    return StaleSessionError(
        "the command was applied, but so long ago that its result is not kept any more, or the results of its batch are"
        " too large for one answer",
        remedy="do not call again: ask the actor by a query what the command has done",
    )


def copies(error: ViewstampError) -> Callable[[int, int], ViewstampError]:
    """Return a maker of equal errors: one object raised in many tasks would gather all their tracebacks."""
    return lambda offset, count: copy.copy(error)
