"""What an answer's body holds: an error's fields, who belongs to the group, what became of a batch. Pure."""

from __future__ import annotations

from viewstamp.consensus.membership import Membership
from viewstamp.errors import DivergedError, NotLeaderError, PositionMismatchError, TrimmedError, ViewstampError
from viewstamp.node.state_machine import CommandResults, Placement, Result

__all__ = ["error_fields", "member_fields", "outcome_fields", "result_fields"]

_MESSAGE_MAX = 2000
"""Characters of an error's text that are sent: who asks for a topic with a megabyte as its name need not read it."""


def error_fields(error: ViewstampError) -> dict[str, object]:
    """Return the fields of ERROR and REFUSED: the class, the text, and what the class has more."""
    fields: dict[str, object] = {
        "error": type(error).__name__,
        "message": error.message[:_MESSAGE_MAX],
        "remedy": error.remedy,
    }
    if isinstance(error, TrimmedError):
        fields["first"] = error.first
    if isinstance(error, PositionMismatchError):
        fields["actual"] = error.actual
    if isinstance(error, DivergedError):
        fields["index"] = error.index
    if isinstance(error, NotLeaderError):
        fields |= {"leader": error.leader, "address": error.address}
    return fields


def member_fields(membership: Membership) -> dict[str, object]:
    """Return who belongs to the group, for MEMBERS, WELCOME and the errors that name a leader."""
    return {"members": dict(membership.addresses), "generation": membership.generation}


def outcome_fields(result: Result) -> dict[str, object]:
    """Return the fields of an answer to a batch: its receipt, None = fenced, and what its commands came to."""
    if isinstance(result, CommandResults):
        return {**outcome_fields(result.receipt), "results": result.results}
    if not isinstance(result, Placement):
        return {"receipt": None}
    return {"receipt": [result.first_position, result.count, result.term, result.first_index, result.log_time]}


def result_fields(result: Result) -> dict[str, object]:
    """Return the fields of an answer to a command of the streams, which are its result."""
    assert isinstance(result, dict)
    return result
