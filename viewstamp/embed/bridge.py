"""A network inside one process: programs connect to the node that they embed without a socket.

The node may run on another event loop, in another thread. Each ``send``, so each batch and not each record, is
one hand-off between the loops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from viewstamp.host.interfaces import Buffer, Connection, ConnectionHandler, Listener, Network
from viewstamp.ids import CertificateName

__all__ = ["BridgeNetwork", "Turns", "bridge"]

Accept = Callable[[Connection], ConnectionHandler]

_UNSENT_BYTES_HIGH = 1024 * 1024


class BridgeNetwork(Network):
    """Connects to ``address`` within the process, to everything else through ``outside``."""

    def __init__(
        self,
        address: str,
        accept: Accept,
        loop: asyncio.AbstractEventLoop,
        outside: Network,
        identity: CertificateName | None = None,
    ) -> None:
        """Bridge to a node.

        Args:
          address: the address of the node.
          accept: the node's server takes new connections by it, on its loop.
          loop: the node's loop.
          outside: the network for every other address.
          identity: the name in the node's certificate, which counts for both ends; None = it has no TLS.
        """
        self._address = address
        self._accept = accept
        self._loop = loop
        self._outside = outside
        self._identity = identity

    async def listen(self, address: str, accept: Accept) -> Listener:
        """Listen outside; the bridge itself only connects."""
        return await self._outside.listen(address, accept)

    async def connect(self, address: str, accept: Accept) -> Connection:
        """Connect; see :class:`Network`. Cancelled: the connection, if it came about, is aborted."""
        if address != self._address:
            return await self._outside.connect(address, accept)
        return bridge(asyncio.get_running_loop(), accept, self._loop, self._accept, self._identity)


class Turns(Protocol):
    """The event loop of one end, as far as a bridge needs it."""

    def call_soon(self, callback: Callable[..., object], *args: object) -> object:
        """Call back in the next turn."""
        ...

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> object:
        """Call back in a turn, in the order of asking; from any thread. Raises RuntimeError once the loop is gone."""
        ...


def bridge(
    here: Turns,
    accept: Accept,
    there: asyncio.AbstractEventLoop,
    accept_there: Accept,
    identity: CertificateName | None = None,
) -> Connection:
    """Connect the caller's loop with the node's; never awaits. Returns the caller's end.

    Args:
      here: the caller's loop.
      accept: returns the handler of the caller's end, before any byte arrives.
      there: the node's loop.
      accept_there: the same at the node's end, on its loop.
      identity: of both ends.

    Raises:
      ConnectionRefusedError: the node has stopped.
    """
    if there.is_closed():
        raise ConnectionRefusedError("the embedded node has stopped")
    is_same = here is there  # Then no thread has to be woken, which is a system call.
    mine = _End(here, "the embedded node", here.call_soon if is_same else here.call_soon_threadsafe)
    theirs = _End(there, "its own process", there.call_soon if is_same else there.call_soon_threadsafe)
    mine.other, theirs.other = theirs, mine
    mine.identity = theirs.identity = identity
    theirs.run(lambda: theirs.begin(accept_there))  # Before anything that ``accept`` sends.
    mine.handler = accept(mine)
    return mine


class _End(Connection):
    """One end of a bridge; ``send`` is called on its own loop and delivers on the other's.

    Invariants:
      * ``on_closed`` of the handler is called once, last
      * ``_unsent`` counts the bytes sent from here that the other end's handler has not received
    """

    def __init__(self, loop: Turns, peer: str, call: Callable[..., object]) -> None:
        self.peer = peer
        self._call = call
        self.other: _End
        self.handler: ConnectionHandler | None = None
        self._loop = loop
        self._unsent = 0
        self._is_closed = False
        self._drained: asyncio.Future[None] | None = None

    def begin(self, accept: Accept) -> None:
        """Take the connection, on its own loop."""
        if not self._is_closed:
            self.handler = accept(self)

    def run(self, call: Callable[..., None], *arguments: object) -> None:
        """Have ``call`` called on this end's loop, in order; dropped when that loop is gone."""
        try:
            self._call(call, *arguments)
        except RuntimeError:
            return

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Hand ``buffers`` to the other end's loop."""
        if self._is_closed:
            return
        data = b"".join(buffers)
        self._unsent += len(data)
        self.other.run(self.other.deliver, data)

    def deliver(self, data: bytes) -> None:
        """Pass bytes to the handler, on its loop, and report to the sender that they were taken."""
        if self.handler is not None and not self._is_closed:
            try:
                self.handler.on_bytes(data)
            except Exception as error:
                self._end(error)
        self.other.run(self.other.taken, len(data))

    def taken(self, size: int) -> None:
        """Count ``size`` bytes as taken by the other end."""
        self._unsent -= size
        if self._drained is not None and self._unsent <= _UNSENT_BYTES_HIGH:
            drained, self._drained = self._drained, None
            if not drained.done():
                drained.set_result(None)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the other end has not taken."""
        return self._unsent

    async def drain(self) -> None:
        """Wait until little is unsent. Safe to cancel: other waiters go on waiting."""
        if self._is_closed or self._unsent <= _UNSENT_BYTES_HIGH:
            return
        if self._drained is None:
            self._drained = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._drained)

    def close(self) -> None:
        """Close both ends; bytes that were sent before still arrive."""
        self._end(None)

    def abort(self) -> None:
        """Close both ends."""
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        """End this side at once, and the other one after the bytes that are under way."""
        if self._is_closed:
            return
        self._finish(error)
        self.other.run(lambda: self.other._finish(None))

    def _finish(self, error: BaseException | None) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        if self.handler is not None:
            self._loop.call_soon(self.handler.on_closed, error)
