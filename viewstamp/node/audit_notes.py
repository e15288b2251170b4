"""The audit log for actions in other groups than 0: a client has them noted in group 0 first.

The audit log is in the state of group 0, to which only its leader adds. So a client first asks that leader to note an
action in another group (``NoteTransfer``), and then names the index of the entry to the leader of the group, which
begins only when its own state of group 0 has this entry of this caller.

| event | effect |
| --- | --- |
| the client dies after the entry | the audit log has an action that did not happen, as after a failed one |
| NOTE_TRANSFER is lost, doubled or late | asked again: one more entry |
| the node of the group lags behind group 0 | it waits for the entry, and refuses when its time \
for requests is over; nothing was done |
| the index is forged, or is that of another action or another caller | refused |
| the request for the action is doubled or late | the same action once more, under the same entry, as without groups |
| a node of the release before | refuses NOTE_TRANSFER as unknown, or notes an archiving as a transfer, so that the \
group refuses it; or archives without an entry |
"""

from __future__ import annotations

from viewstamp.errors import RequestError
from viewstamp.node.group_0 import check_group_0
from viewstamp.node.service import Caller, name_of_caller, note_action, proposes
from viewstamp.node.state_machine import AuditQuery
from viewstamp.wire.access import audit_record
from viewstamp.wire.batch import Kind, build_batch
from viewstamp.wire.frame import Frame
from viewstamp.wire.token_requests import ARCHIVE_RUN, REMOVE_ORPHANS, TRANSFER, NoteTransfer

__all__ = ["note_before"]

_DIRECTORY = "directory of "
_REMEDIES = {
    TRANSFER: "use a client of the release of the nodes, whose `viewstamp stream balance` notes each transfer first",
    ARCHIVE_RUN: "use a client of the release of the nodes, whose `viewstamp archive run` notes each stream first",
    REMOVE_ORPHANS: "use a client of the release of the nodes, whose `viewstamp archive orphans` notes it first",
}


@proposes(NoteTransfer)
def _note_transfer(caller: Caller, request: int, asked: NoteTransfer, frame: Frame) -> None:
    check_group_0(caller, "actions in groups are noted")
    caller.check(asked)
    if asked.action not in _REMEDIES:
        raise RequestError(
            f"{asked.action!r} is no action that is noted for a group; nothing was noted",
            remedy="upgrade all nodes",
        )
    record = audit_record(asked.action, asked.detail, name_of_caller(caller))
    batch = build_batch([record], kind=Kind.AUDIT)
    caller.propose(request, batch, lambda _: {"index": batch.first_index})


async def note_before(caller: Caller, action: str, subject: str, *, noted: int, detail: str = "") -> None:
    """Write an action into the audit log before it is begun; in another group than 0, check that it was noted.

    Args:
      caller: who asks for the action.
      action: one of those of ``wire/token_requests.py``.
      subject: what it is about.
      noted: in another group than 0, the index of its entry.
      detail: in group 0, what the entry says instead of the subject.

    Raises:
      RequestError: the audit log has no such entry.
      UnavailableError: it was not written, or not read, so the action must not begin.
    """
    if caller.group is caller.service.group:
        await note_action(caller, action, detail or subject)
    elif caller.gate.access.is_on:
        wanted = NoteTransfer(group=caller.group.id, node=subject, action=action).detail
        entries, _ = await caller.service.group.reading.query(AuditQuery(0), stale=True, applied_index=noted)
        who = name_of_caller(caller)
        if not any(
            (index, did, said) == (noted, action, wanted) and _is_same(str(by), who)
            for _, index, by, did, said in reversed(entries)
        ):
            raise RequestError(
                f"the audit log has no entry {noted} for this {action} in group {caller.group.id}; nothing was done",
                remedy=_REMEDIES[action],
            )


def _is_same(one: str, other: str) -> bool:
    """Return whether two callers are the same one, which may have proved other directories to other nodes."""
    return one.partition(_DIRECTORY)[:2] == other.partition(_DIRECTORY)[:2]
