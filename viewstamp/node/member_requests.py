"""The handlers of changes of members and leaders, and the audit log for those of other groups than 0.

The audit log is in the state of group 0, to which only its leader adds. So a client first asks that leader to note a
transfer of leadership in another group (``NoteTransfer``), and then names the index of the entry to the leader of the
group, which begins only when its own state of group 0 has this entry of this caller.

| event | effect |
| --- | --- |
| the client dies after the entry | the audit log has an action that did not happen, as after a failed one |
| NOTE_TRANSFER is lost, doubled or late | asked again: one more entry |
| the node of the group lags behind group 0 | it waits for the entry, and refuses when its time \
for requests is over; nothing was done |
| the index is forged, or is that of another action or another caller | refused |
| the request to transfer is doubled or late | the same transfer once more, under the same entry, as without groups |
| a node of the release before | refuses NOTE_TRANSFER as unknown, or the request because access control is on |
"""

from __future__ import annotations

from viewstamp.errors import RequestError
from viewstamp.node.group_0 import check_group_0
from viewstamp.node.service import Caller, in_a_task, name_of_caller, note_action, proposes
from viewstamp.node.state_machine import AuditQuery
from viewstamp.wire.access import audit_record
from viewstamp.wire.batch import Kind, build_batch
from viewstamp.wire.frame import Frame
from viewstamp.wire.requests import ChangeMembership, TransferLeadership
from viewstamp.wire.token_requests import NoteTransfer

__all__: list[str] = []

_TRANSFER = "leader transfer"
_DIRECTORY = "directory of "


def _transfer_in(group: int, node: str) -> str:
    """Return the entry of the audit log for a transfer in another group than 0."""
    return f"of group {group} to {node or 'the member with the longest log'}"


@proposes(NoteTransfer)
def _note_transfer(caller: Caller, request: int, asked: NoteTransfer, frame: Frame) -> None:
    check_group_0(caller, "transfers are noted")
    record = audit_record(_TRANSFER, _transfer_in(asked.group, asked.node), name_of_caller(caller))
    batch = build_batch([record], kind=Kind.AUDIT)
    caller.propose(request, batch, lambda _: {"index": batch.first_index})


@in_a_task(TransferLeadership)
async def _transfer_leadership(caller: Caller, request: int, asked: TransferLeadership) -> None:
    if caller.group is caller.service.group:
        await note_action(caller, _TRANSFER, f"to {asked.node or 'the member with the longest log'}")
    elif caller.gate.access.is_on:
        await _check_noted(caller, asked)
    caller.check(asked)
    caller.ok(request, await caller.group.transfer_leadership(asked.node))


async def _check_noted(caller: Caller, asked: TransferLeadership) -> None:
    """Raise RequestError unless the audit log has the transfer at the named index."""
    entries, _ = await caller.service.group.reading.query(AuditQuery(0), stale=True, applied_index=asked.noted)
    who, detail = name_of_caller(caller), _transfer_in(caller.group.id, asked.node)
    if not any(
        (index, action, noted) == (asked.noted, _TRANSFER, detail) and _is_same(str(by), who)
        for _, index, by, action, noted in reversed(entries)
    ):
        raise RequestError(
            f"the audit log has no entry {asked.noted} for this transfer in group {caller.group.id}; nothing was done",
            remedy="move leaders with `viewstamp stream balance` of this release, which notes each transfer first",
        )


def _is_same(one: str, other: str) -> bool:
    """Return whether two callers are the same one, which may have proved other directories to other nodes."""
    return one.partition(_DIRECTORY)[:2] == other.partition(_DIRECTORY)[:2]


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
