"""The cluster to which a command sends its requests."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from viewstamp.local.token import TOKEN_FILE
from viewstamp.terminal.flags import program
from viewstamp.terminal.loop import run_async
from viewstamp.terminal.output import say

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.options import ClientOptions
    from viewstamp.client.routing import ExpectedNode
    from viewstamp.host.tls import TlsFiles

__all__ = ["ClusterTarget"]


ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """The addresses of a cluster. ``cluster_id`` "" = accept any cluster that answers there.

    ``names`` has the node of each address, so that an unreachable node has a name too. ``expected`` has the identity of
    the node at each address, from the files of a directory: no request is sent to another node. None = no files.
    ``where`` is the option that names the cluster on a command line. ``tls``: None = a cluster without TLS.
    """

    addresses: list[str]
    cluster_id: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    expected: dict[str, ExpectedNode] | None = None
    where: str = ""
    tls: TlsFiles | None = None

    def at(self, address: str, expected: ExpectedNode) -> ClusterTarget:
        """Return the same cluster, at one address only, where this node has to answer."""
        return replace(self, addresses=[address], names={}, expected={address: expected})

    def connect(self, timeout: float | None = None, options: ClientOptions | None = None) -> Client:
        """Return a client of the cluster, for ``async with``. ``timeout`` is the default of its calls, in seconds."""
        from viewstamp.client.aio import Client
        from viewstamp.client.options import ClientOptions
        from viewstamp.client.token_file import find_token
        from viewstamp.config.model import is_loopback
        from viewstamp.host.tls_network import client_network

        options = options or (ClientOptions() if timeout is None else ClientOptions(timeout=timeout))
        token = options.token or find_token(TOKEN_FILE.get())
        if token and self.tls is None and not all(map(is_loopback, self.addresses)):
            say("the token is sent without TLS: other processes on the network can read it")
        return Client(
            self.addresses,
            network=client_network(self.tls),
            entropy=random.SystemRandom(),
            cluster_id=self.cluster_id,
            options=replace(
                options,
                token=token,
                expected=self.expected,
                doctor=f"{program()} doctor{self.where}",
            ),
        )

    def ask(self, question: Callable[[Client], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """Run one question with a client on a new event loop, and return its answer; see :func:`run_async`."""

        async def ask() -> ResultT:
            async with self.connect() as client:
                return await question(client)

        return run_async(ask())
