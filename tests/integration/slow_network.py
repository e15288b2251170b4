"""A switchboard that limits the rate at which a member receives data over the connections that it opened.

A member opens connections to send, and answers on them are short; only a fetched snapshot is long.
"""

from __future__ import annotations

import asyncio
from collections import deque

from tests.node.switchboard import Switchboard
from viewstamp.host.interfaces import Connection, ConnectionHandler, Listener, Network
from viewstamp.host.network import Accept
from viewstamp.ids import NodeId

__all__ = ["slow_down"]


def slow_down(board: Switchboard, bytes_per_second: dict[NodeId, float]) -> None:
    """Limit the receive rate of each member in ``bytes_per_second``, which may change at any time."""
    network = board.network
    board.network = lambda source: _SlowNetwork(network(source), NodeId(source), bytes_per_second)  # type: ignore[method-assign]


class _SlowNetwork(Network):
    def __init__(self, network: Network, who: NodeId, rates: dict[NodeId, float]) -> None:
        self._network = network
        self._who = who
        self._rates = rates

    async def listen(self, address: str, accept: Accept) -> Listener:
        return await self._network.listen(address, accept)

    async def connect(self, address: str, accept: Accept) -> Connection:
        return await self._network.connect(address, lambda it: _Trickle(it, accept(it), self._who, self._rates))


class _Trickle(ConnectionHandler):
    """Forwards the received data in order, each piece when it is due."""

    def __init__(
        self, connection: Connection, handler: ConnectionHandler, who: NodeId, rates: dict[NodeId, float]
    ) -> None:
        self._connection = connection
        self._handler = handler
        self._who = who
        self._rates = rates
        self._waiting: deque[bytes] = deque()
        self._error: BaseException | None = None
        self._is_closed = False

    def on_bytes(self, data: bytes) -> None:
        if self._rates.get(self._who) is None and not self._waiting:
            self._handler.on_bytes(data)
            return
        self._waiting.append(bytes(data))
        if len(self._waiting) == 1:
            self._wait()

    def on_closed(self, error: BaseException | None) -> None:
        self._is_closed = True
        self._handler.on_closed(self._error or error)

    def _wait(self) -> None:
        rate = self._rates.get(self._who)
        seconds = len(self._waiting[0]) / rate if rate else 0.0
        asyncio.get_running_loop().call_later(seconds, self._deliver)

    def _deliver(self) -> None:
        if self._is_closed:
            return
        try:
            self._handler.on_bytes(self._waiting[0])
        except Exception as error:
            self._error = error
            self._connection.abort()
            return
        self._waiting.popleft()
        if self._waiting:
            self._wait()
