"""Access control in a run: an administrator's token for all clients, and tokens that are revoked while they are used.

A holder of a token appends without a pause. The administrator revokes the token, and retries until that is answered.
An append that begins after that answer must not be acknowledged; the final contents are compared as for every append
that was answered as not applied. An append of the administrator's token must never be denied, whatever happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.errors import AccessDeniedError, RequestError
from viewstamp.sim.cluster import Cluster
from viewstamp.sim.topics import PASSING
from viewstamp.sim.violation import Violation
from viewstamp.wire.access import Token
from viewstamp.wire.token_requests import CreateToken

__all__ = ["TokenHolders", "with_token"]

_ADMIN = Token("a" * 12, b"a" * 32)
_RETRY_SECONDS = 0.1
_HOLDER_APPENDS = 3
"""Concurrent appends of a holder of a token."""


def with_token(cluster: Cluster, options: ClientOptions) -> ClientOptions:
    """Return the options of a client with the administrator's token, if the run has access control."""
    return replace(options, token=_ADMIN.text) if cluster.swarm.tokens else options


class TokenHolders:
    """The administrator, and one holder of a token after the other.

    ``append`` makes one append with a client and returns whether it was acknowledged; it raises AccessDeniedError.
    """

    def __init__(self, cluster: Cluster, append: Callable[[Client, str], Awaitable[bool]]) -> None:
        self.is_over = False
        self._cluster = cluster
        self._append = append

    async def begin(self, client: Client) -> None:
        """Turn access control on, however long that takes."""
        asked = CreateToken(token=_ADMIN.id, name="admin", roles=["administer"], hash=_ADMIN.hash, expire_seconds=0)
        while True:
            try:
                await client._router.ask_leader(asked, None)
                return
            except PASSING:
                await asyncio.sleep(_RETRY_SECONDS)

    async def run(self, admin: Client, client_of: Callable[[str, str], Client]) -> None:
        """Create tokens, use them and revoke them until the run is over. ``client_of`` gets a name and a token."""
        entropy = self._cluster.loop.entropy("holders of tokens")
        number = 0
        while not self.is_over:
            number += 1
            name = f"holder-{number}"
            try:
                _, text = await admin.create_token(name, ["append"])
            except PASSING:
                continue
            holder = client_of(name, text)
            revoked = asyncio.Event()
            using = [
                asyncio.ensure_future(self._use(holder, f"{name}.{each}", revoked)) for each in range(_HOLDER_APPENDS)
            ]
            await asyncio.sleep(entropy.expovariate(1 / 0.3))
            await self._revoke(admin, name)
            revoked.set()
            await asyncio.gather(*using)
            await holder.close()

    async def _revoke(self, admin: Client, name: str) -> None:
        while True:
            try:
                await admin.revoke_token(name)
                return
            except PASSING:
                await asyncio.sleep(_RETRY_SECONDS)
            except AccessDeniedError as error:
                raise Violation("AdministratorMay", str(error)) from error
            except RequestError:
                return  # An earlier copy of the request has revoked it, so no valid token has this name any more.

    async def _use(self, holder: Client, caller: str, revoked: asyncio.Event) -> None:
        """Append until the token has been refused after its revocation."""
        while True:
            is_after = revoked.is_set()
            try:
                is_acknowledged = await self._append(holder, caller)
            except AccessDeniedError:
                if is_after:
                    return
                await asyncio.sleep(0.01)
                continue
            if is_acknowledged and is_after:
                raise Violation("RevokedMeansRevoked", f"{caller} appended after its token had been revoked")
            if is_after and self.is_over:
                return
            await asyncio.sleep(0.005)
