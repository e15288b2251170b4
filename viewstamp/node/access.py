"""The caller of a connection, and the interface of the part that decides about its requests.

The state machine holds the tokens (``streams/access.py``) and decides (``streams/gate.py``). The rules:

* **A request is permitted by the applied state of the node that handles it.** An append, a command or another write is
  checked by the leader when it is admitted. A read is checked before it begins and again before its answer is sent: a
  linearizable one by then on a state that contains everything acknowledged before it, a stale one on the state that it
  reads.
* **A denial rests on a confirmed state.** A node that does not find the right in its own state first asks the leader
  for an index (read index) and applies the log up to it, because a follower may not have the token yet.
* **A revocation is complete when its command has returned.** The leader has applied it then, and every later leader
  applies it before it admits anything. A former leader may still admit appends of the token, but its records are never
  committed. A stale read of a follower that has not applied the revocation is still answered.
* **In another group than 0** the tokens are those of group 0 as this node has applied it, and they are never older than
  ``TOKENS_SECONDS`` (``token_age.py``). So a revocation is complete there within this time, and a node that cannot
  confirm its state of group 0 refuses all requests with UnavailableError.
* **A denied write is not in the log**, also not by an earlier attempt: a retry of a batch that is there gets its
  receipt (without results of commands), even if the token has ended meanwhile. So no denial leaves an outcome unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from viewstamp.ids import GroupId
from viewstamp.wire.access import Token, TokenRole
from viewstamp.wire.batch import Batch
from viewstamp.wire.schema import RequestBody

__all__ = ["ANONYMOUS", "Credentials", "Gate", "Switch"]

ANONYMOUS = "anyone"
"""The name of a caller without a token, a certificate or a proof."""


class Credentials:
    """The evidence for the identity of a connection's other side, and the rights that the gate has derived from it.

    Invariants:
      * ``owner``, ``roles``, ``is_alive``, ``is_administrator`` and ``granted`` belong to the state of ``version``
    """

    __slots__ = (
        "certificate",
        "directory",
        "granted",
        "hash",
        "is_administrator",
        "is_alive",
        "is_confirmed",
        "owner",
        "roles",
        "token",
        "version",
    )

    def __init__(self, token: str = "", certificate: str = "") -> None:
        """Take the text of a token, which is not kept, and the name in a certificate; "" = none.

        Raises:
          RequestError: the text is no token.
        """
        read = Token.read(token) if token else None
        self.token = read.id if read is not None else ""
        self.hash = read.hash if read is not None else b""
        self.certificate = certificate
        self.directory = ""
        """The member whose data directory the other side can read, as it has proved; "" = none."""
        self.is_confirmed = False
        """Whether the tokens were confirmed for this connection (``token_age.py``)."""
        self.version = -1
        self.owner = ""
        """The owner of the sessions that it opens: the token's id, also if the token has ended; "" = unknown."""
        self.roles: tuple[TokenRole, ...] = ()
        self.is_alive = self.is_administrator = False
        self.granted: set[int] = set()
        """Ids of topics to which it may append."""

    def prove_directory(self, node: str) -> None:
        """Note that the other side has proved that it can read the data directory of ``node``."""
        self.directory = node
        self.version = -1


class Switch(Protocol):
    """Whether access control is on."""

    @property
    def is_on(self) -> bool:
        """Whether requests need rights."""
        ...


class Gate(Protocol):
    """Decides by the applied state whether a caller may send a request."""

    @property
    def access(self) -> Switch:
        """Whether access control is on. Read for every request, so it must be an attribute."""
        ...

    def follow(self, group: GroupId, group_0: Gate, check_known: Callable[[], None]) -> None:
        """Become the gate of another group than 0, which decides by the tokens of ``group_0``.

        ``check_known`` raises UnavailableError while the state of group 0 may be too old on this node.
        """
        ...

    def check(self, credentials: Credentials, asked: RequestBody) -> None:
        """Check a request that is no batch for the log.

        Raises:
          AccessDeniedError: the caller lacks the right.
          UnavailableError: the tokens may be too old here; only in another group than 0.
        """
        ...

    def check_sender(self, credentials: Credentials, batch: Batch) -> None:
        """Check the sender of a batch for which the leader has no room, before it gets any answer about the batch.

        The right on the topic or the actor is not checked: an earlier copy may be in the log, and the token may have
        ended since.

        Raises:
          StaleSessionError: the session is another caller's, or has ended.
          AccessDeniedError: the batch needs no session, and the caller lacks the right for it.
          RequestError: the batch cannot be read.
        """
        ...

    def sees(self, credentials: Credentials, asked: type[RequestBody], name: str | None) -> bool:
        """Return whether the answer to such a request shows the caller a name; None = any name."""
        ...

    def owner(self, credentials: Credentials) -> str:
        """Return the owner of the sessions that the caller opens."""
        ...

    def who(self, credentials: Credentials) -> str:
        """Return the caller's name for the audit log; ``ANONYMOUS`` = none is known."""
        ...
