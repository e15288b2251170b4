"""The fields in the bodies of answers: the members of the group, the outcome of a batch. Pure."""

from __future__ import annotations

from viewstamp.consensus.membership import Membership
from viewstamp.node.state_machine import CommandResults, Placement, Result

__all__ = ["member_fields", "outcome_fields", "result_fields"]


def member_fields(membership: Membership) -> dict[str, object]:
    """Return the members of the group, for MEMBERS, WELCOME and the errors that name a leader."""
    return {"members": dict(membership.addresses), "generation": membership.generation}


def outcome_fields(result: Result) -> dict[str, object]:
    """Return the fields of an answer to a batch: its receipt, None = fenced, and the results of its commands."""
    if isinstance(result, CommandResults):
        return {**outcome_fields(result.receipt), "results": result.results}
    if not isinstance(result, Placement):
        return {"receipt": None}
    return {"receipt": [result.first_position, result.count, result.term, result.first_index, result.log_time]}


def result_fields(result: Result) -> dict[str, object]:
    """Return the fields of an answer to a command of the streams, which are its result."""
    assert isinstance(result, dict)
    return result
