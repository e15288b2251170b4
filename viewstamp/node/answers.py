"""The fields in the bodies of answers: the members of the group, the outcome of a batch. Pure."""

from __future__ import annotations

from typing import Protocol

from viewstamp.consensus.membership import Membership
from viewstamp.errors import NotLeaderError, ViewstampError
from viewstamp.ids import NodeId
from viewstamp.node.state_machine import CommandResults, Placement, Result
from viewstamp.wire.answers import error_fields

__all__ = ["Membered", "error_of_group", "member_fields", "outcome_fields", "result_fields"]


class Membered(Protocol):
    """A group, as far as its members are named."""

    @property
    def membership(self) -> Membership:
        """Return the newest membership in this node's log."""
        ...

    @property
    def addresses(self) -> dict[NodeId, str]:
        """Return the members of the group, with the addresses that count."""
        ...


def member_fields(group: Membered) -> dict[str, object]:
    """Return the members of a group, for MEMBERS, WELCOME and the errors that name a leader."""
    return {"members": group.addresses, "generation": group.membership.generation}


def error_of_group(error: ViewstampError, group: Membered) -> dict[str, object]:
    """Return the fields of an error; one that names a leader names the members of the group too."""
    if not isinstance(error, NotLeaderError):
        return error_fields(error)
    address = group.addresses.get(error.leader) if error.leader is not None else None
    if address is not None and address != error.address:  # The leader has moved, which only group 0 has on record.
        error.address, error.remedy = address, f"ask {address}"
    return {**error_fields(error), **member_fields(group)}


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
