"""The rows of the table of requests about tokens, the audit log and the proof of an administrator.

``requests.py`` has the others.
"""

from __future__ import annotations

from typing import Annotated

from viewstamp.wire.access import ANYONE, Need, Right
from viewstamp.wire.batch import Kind
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.schema import Range, RequestBody, request

__all__ = [
    "ARCHIVE_RUN",
    "REMOVE_ORPHANS",
    "TRANSFER",
    "CreateToken",
    "ListAudit",
    "ListTokens",
    "NoteTransfer",
    "ProveDirectory",
    "RevokeToken",
    "RotateToken",
]

TRANSFER = "leader transfer"
ARCHIVE_RUN = "archive run"
REMOVE_ORPHANS = "archive orphans"

_ADMINISTER = Need(Right.ADMINISTER)
_HASH = Range(32, 32, remedy="send the hash of a token: 32 bytes")


@request(FrameKind.CREATE_TOKEN, needs=_ADMINISTER, record=Kind.CREATE_TOKEN)
class CreateToken(RequestBody):
    """Create a token. The same request again changes nothing.

    The first token with the role administer turns access control on, for good.

    OK: ``token`` = {id, name, roles, created, expires, ended, old_until, rotation, is_on}: log times in microseconds, 0
    = never; ``is_on``: whether access control is on.
    """

    token: str
    """Its public id, chosen by the client."""
    name: str
    roles: list[str]
    hash: Annotated[bytes, _HASH]
    expire_seconds: int
    """Seconds of log time until it ends; 0 = never."""


@request(FrameKind.ROTATE_TOKEN, needs=_ADMINISTER, record=Kind.ROTATE_TOKEN)
class RotateToken(RequestBody):
    """Give a token a new secret. The secret before it stays valid for ``keep_seconds`` of log time. OK: as CreateToken.

    ``rotation``: one more than the token's present number, so that a late copy of an older request changes nothing.
    """

    token: str
    rotation: int
    hash: Annotated[bytes, _HASH]
    keep_seconds: int


@request(FrameKind.REVOKE_TOKEN, needs=_ADMINISTER, record=Kind.REVOKE_TOKEN)
class RevokeToken(RequestBody):
    """End a token for good, or only the secrets before its newest one. OK: as CreateToken."""

    token: str
    only_old: bool


@request(FrameKind.LIST_TOKENS, needs=_ADMINISTER)
class ListTokens(RequestBody):
    """List all tokens. OK: ``tokens``, a list of the maps that CreateToken returns; ``is_on``."""


@request(FrameKind.LIST_AUDIT, needs=_ADMINISTER)
class ListAudit(RequestBody):
    """List the newest administrative actions.

    OK: ``entries``, a list of [log time, index, caller, action, subject], the oldest first.
    """

    since: int
    """Log time in microseconds; entries before it are left out."""


@request(FrameKind.NOTE_TRANSFER, needs=_ADMINISTER, record=Kind.AUDIT)
class NoteTransfer(RequestBody):
    """Note in the audit log that an action in another group than 0 is about to begin.

    Sent to the leader of group 0, before a request to the leader of the group that names the index: TransferLeadership,
    ArchiveTopic, or FindOrphans. A second copy adds an entry.

    OK: ``index`` of the record.
    """

    group: int
    node: str
    """What the action is about: the node that shall lead, "" = any; the stream; or "remove"."""
    action: str = TRANSFER

    @property
    def detail(self) -> str:
        """What the entry says about the action."""
        if self.action != TRANSFER:
            return f"of group {self.group}: {self.node}"
        return f"of group {self.group} to {self.node or 'the member with the longest log'}"


@request(FrameKind.PROVE_DIRECTORY, needs=ANYONE)
class ProveDirectory(RequestBody):
    """Prove that the client can read the data directory of a member; it is an administrator on this connection then.

    ``proof``: ``administrator_proof`` of the incarnation in the directory of ``node`` and of the challenge in WELCOME.
    Has no id and no answer, so that the next request need not wait.
    """

    node: str
    proof: bytes
