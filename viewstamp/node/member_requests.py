"""The handlers of changes of members and leaders."""

from __future__ import annotations

from viewstamp.errors import RequestError
from viewstamp.node.audit_notes import note_before
from viewstamp.node.service import Caller, in_a_task, note_action
from viewstamp.wire.requests import ChangeMembership, TransferLeadership
from viewstamp.wire.token_requests import TRANSFER

__all__: list[str] = []


@in_a_task(TransferLeadership)
async def _transfer_leadership(caller: Caller, request: int, asked: TransferLeadership) -> None:
    detail = f"to {asked.node or 'the member with the longest log'}"
    await note_before(caller, TRANSFER, asked.node, noted=asked.noted, detail=detail)
    caller.check(asked)
    caller.ok(request, await caller.group.transfer_leadership(asked.node))


@in_a_task(ChangeMembership)
async def _change_members(caller: Caller, request: int, asked: ChangeMembership) -> None:
    if caller.group is not caller.service.group and caller.gate.access.is_on:
        raise RequestError(
            f"the members of group {caller.group.id} cannot be changed by a request while access control is on; nothing"
            " was changed",
            remedy="change the members of the cluster with `viewstamp members`; groups follow the placement",
        )
    detail = " ".join(filter(None, (asked.action, asked.node, asked.address, asked.replaces)))
    await note_action(caller, "members change", detail)
    caller.check(asked)
    changed = caller.group.change_members(asked.action, asked.node, asked.address, asked.replaces)
    caller.ok(request, await changed)
