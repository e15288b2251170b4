"""Has an action in another group than 0 noted in the audit log, which group 0 has, before a client asks for it."""

from __future__ import annotations

from viewstamp.client.router import Router
from viewstamp.ids import GroupId
from viewstamp.wire.token_requests import ListTokens, NoteTransfer

__all__ = ["note_in_group"]


async def note_in_group(router: Router, group: GroupId, action: str, subject: str, seconds: float) -> int:
    """Note an action in the audit log, if access control is on; return the index of the entry, 0 = none.

    Args:
      router: that of group 0.
      group: the group of the action.
      action: one of those of ``wire/token_requests.py``.
      subject: what it is about.
      seconds: the time for each of two requests.

    Raises:
      AccessDeniedError: the client is no administrator.
      UnavailableError, OutcomeUnknownError: it may be noted, and nothing else was done.
    """
    if not (await router.ask(ListTokens(), seconds)).body["is_on"]:
        return 0
    asked = NoteTransfer(group=group, node=subject, action=action)
    return int((await router.ask_leader(asked, seconds)).body["index"])
