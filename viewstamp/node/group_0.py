"""The refusal of requests that only group 0 answers, on a connection of another group."""

from __future__ import annotations

from viewstamp.errors import RequestError
from viewstamp.ids import GROUP_0
from viewstamp.node.service import Caller

__all__ = ["check_group_0"]


def check_group_0(caller: Caller, subject: str = "groups are placed") -> None:
    """Raise RequestError on the connection of another group, because only group 0 has the state of the ``subject``."""
    if caller.group is not caller.service.group:
        raise RequestError(
            f"{subject} in group {GROUP_0}, and this connection belongs to another one; nothing was changed",
            remedy="send the request on a connection whose HELLO names no group",
        )
