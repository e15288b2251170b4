"""A client's calls about tokens and the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from viewstamp.client.checks import as_text, as_whole
from viewstamp.client.results import (
    AuditEntry,
    TokenInfo,
    token_info,
)
from viewstamp.client.router import Router
from viewstamp.errors import RequestError
from viewstamp.wire.access import Token, check_roles
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.token_requests import CreateToken, ListAudit, ListTokens, RevokeToken, RotateToken

__all__ = ["TokenCalls"]


class TokenCalls:
    """Creates, lists and ends tokens, in group 0."""

    def __init__(self, router: Router, entropy: Random) -> None:
        """``entropy`` draws the secrets of tokens, so a real client passes the operating system's entropy."""
        self._router = router
        self._entropy = entropy

    async def create_token(
        self,
        name: str,
        roles: Sequence[str],
        *,
        expire_seconds: int = 0,
        timeout: float | None = None,
    ) -> tuple[TokenInfo, str]:
        """Create a token. Returns its description and its text, which is secret and is stored nowhere else.

        The first token with the role ``administer`` turns access control on, for good: from then on each request needs
        a token with the right for it. Cancelled: the token may exist all the same; revoke it by its name.

        Example::

            token, text = await client.create_token("orders-writer", ["append:orders*"])

        Args:
          name: for people; no two valid tokens have the same name.
          roles: ``read:NAME``, ``append:NAME``, ``call:NAME`` (a NAME that ends with ``*`` is the beginning of names;
            without ``:NAME`` the role is for all names), or ``administer``.
          expire_seconds: seconds of log time until the token ends; 0 = never.
          timeout: seconds from now; None = the client's default.

        Raises:
          RequestError: a role or the name is not allowed, or a valid token has this name.
          AccessDeniedError: access control is on, and the client is no administrator.
          UnavailableError: not created; try again.
          OutcomeUnknownError: it may have been created (``token`` is None): revoke it by its name, and create another.
        """
        token = Token.new(self._entropy.randbytes)
        request = CreateToken(
            token=token.id,
            name=as_text(name, "the name of a token"),
            roles=[str(role) for role in check_roles(list(roles))],
            hash=token.hash,
            expire_seconds=as_whole(expire_seconds, "the seconds until a token ends"),
        )
        frame = await self._router.ask_leader(request, timeout)
        return token_info(frame.body["token"]), token.text

    async def list_tokens(self, *, timeout: float | None = None) -> list[TokenInfo]:
        """List all tokens, those that have ended too. Raises AccessDeniedError, UnavailableError."""
        return await self._tokens(self._router.deadline(timeout))

    async def _tokens(self, deadline: float) -> list[TokenInfo]:
        frame = await self._router.ask(ListTokens(), deadline=deadline)
        return [token_info(each) for each in frame.body["tokens"]]

    async def rotate_token(
        self, token: str, *, keep_seconds: int = 0, timeout: float | None = None
    ) -> tuple[TokenInfo, str]:
        """Give a token a new secret. Returns its description and its new text. Cancelled: it may be rotated.

        Args:
          token: the id or the name of a valid token.
          keep_seconds: seconds of log time for which the secret before it stays valid; 0 = it ends at once.
          timeout: seconds from now; None = the client's default.

        Raises:
          RequestError: no valid token has this id or name.
          AccessDeniedError, UnavailableError, OutcomeUnknownError: as for :meth:`create_token`; rotate it again.
        """
        deadline = self._router.deadline(timeout)
        found = await self._find_token(token, deadline)
        new = Token.new(self._entropy.randbytes, id=found.id)
        request = RotateToken(
            token=found.id,
            rotation=found.rotation + 1,
            hash=new.hash,
            keep_seconds=as_whole(keep_seconds, "the seconds for which the older secret stays valid"),
        )
        frame = await self._router.ask_leader(request, deadline=deadline)
        return token_info(frame.body["token"]), new.text

    async def revoke_token(self, token: str, *, only_old: bool = False, timeout: float | None = None) -> TokenInfo:
        """End a token for good. After it has returned, no write and no linearizable read of the token takes effect.

        In other groups than 0 this holds 5 s later. Stale reads of a node that has not applied the revocation may still
        be answered. Cancelled: the token may end.

        Args:
          token: the id or the name of a valid token.
          only_old: end only the secret before the newest one, after a rotation.
          timeout: seconds from now; None = the client's default.

        Raises:
          RequestError: no valid token has this id or name.
          AccessDeniedError, UnavailableError, OutcomeUnknownError: as for :meth:`create_token`; revoke it again.
        """
        deadline = self._router.deadline(timeout)
        found = await self._find_token(token, deadline)
        request = RevokeToken(token=found.id, only_old=only_old)
        frame = await self._router.ask_leader(request, deadline=deadline)
        return token_info(frame.body["token"])

    async def _find_token(self, token: str, deadline: float) -> TokenInfo:
        """Return the valid token with this id or name; an ended one only by its id."""
        tokens = await self._tokens(deadline)
        found = [each for each in tokens if each.id == token or (each.name == token and not each.ended)]
        if not found:
            raise RequestError(
                f"no token has the id or the name {brief_repr(token)}", remedy="look with `viewstamp token list`"
            )
        return found[0]

    async def list_audit(self, *, since: int = 0, timeout: float | None = None) -> list[AuditEntry]:
        """Return the newest administrative actions, the oldest first; at most 10,000 are kept.

        Args:
          since: log time in microseconds since 1970; entries before it are left out.
          timeout: seconds from now; None = the client's default.

        Raises:
          AccessDeniedError: the client is no administrator.
          UnavailableError: no node answered in time.
        """
        frame = await self._router.ask(ListAudit(since=as_whole(since, "the time of the first entry")), timeout)
        return [AuditEntry(*entry) for entry in frame.body["entries"]]
