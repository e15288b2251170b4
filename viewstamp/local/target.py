"""Which cluster a command sends its requests to."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from viewstamp.terminal.flags import program
from viewstamp.terminal.loop import run_async

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.options import ClientOptions
    from viewstamp.client.routing import ExpectedNode

__all__ = ["ClusterTarget"]


ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """The addresses of a cluster. ``cluster_id`` "" = whichever cluster answers there.

    ``names`` says who should be at which address, so that a node that does not answer has a name too. ``expected`` says
    by the files of a directory who has to answer at which address: no request is sent to another node. None = no files.
    ``where`` is what a command needs to find the cluster, as it is typed.
    """

    addresses: list[str]
    cluster_id: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    expected: dict[str, ExpectedNode] | None = None
    where: str = ""

    def connect(self, timeout: float | None = None, options: ClientOptions | None = None) -> Client:
        """Return a client of the cluster; use it as ``async with``. ``timeout`` is for calls that name none."""
        from viewstamp.client.aio import Client
        from viewstamp.client.options import ClientOptions
        from viewstamp.host.network import RealNetwork

        return Client(
            self.addresses,
            network=RealNetwork(),
            entropy=random.Random(),
            cluster_id=self.cluster_id,
            options=replace(
                options or (ClientOptions() if timeout is None else ClientOptions(timeout=timeout)),
                expected=self.expected,
                doctor=f"{program()} doctor{self.where}",
            ),
        )

    def ask(self, question: Callable[[Client], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """Ask one question on a loop of its own, and return its answer; see :func:`run_async`."""

        async def ask() -> ResultT:
            async with self.connect() as client:
                return await question(client)

        return run_async(ask())
