"""A question to another node on a connection of its own: the HELLO of a client, answered by a WELCOME.

It changes nothing at the other node. A WELCOME has the id of the node, its members, its durability and its release.
"""

from __future__ import annotations

import asyncio

from viewstamp.errors import FrameError, ViewstampError
from viewstamp.host.interfaces import Connection, Network
from viewstamp.wire.answers import error_from
from viewstamp.wire.frame import FrameDecoder
from viewstamp.wire.handshake import Hello, Opening, Welcome

__all__ = ["answer_to"]


async def answer_to(network: Network, address: str, hello: Hello) -> Welcome | Exception:
    """Return the WELCOME of the node at ``address`` to a HELLO, or the reason why there is none; cancellable.

    It has no time limit: the caller sets one. The connection is ended in each case.
    """
    opener = _Opener(hello, address)
    try:
        await network.connect(address, opener.accept)
        return await opener.answer
    except (OSError, ViewstampError) as error:
        return error
    finally:
        opener.close()


class _Opener:
    """A connection that sends one HELLO."""

    def __init__(self, hello: Hello, address: str) -> None:
        self.answer: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self._opening = Opening(hello.to_map(), address, refused=error_from)
        self._decoder = FrameDecoder()
        self._connection: Connection | None = None

    def accept(self, connection: Connection) -> _Opener:
        """Take the connection, and send the HELLO."""
        self._connection = connection
        connection.send(self._opening.frame)
        return self

    def close(self) -> None:
        """End the connection. Idempotent."""
        if self._connection is not None:
            self._connection.abort()
        self.answer.cancel()

    def on_bytes(self, data: bytes) -> None:
        """Decode the bytes. Raises the error that a REFUSED names, which ends the connection."""
        for frame in self._decoder.feed(data):
            certificate = self._connection.identity if self._connection is not None else None
            is_part = self._opening.receive(frame, certificate)
            if is_part and self._opening.welcome is not None and not self.answer.done():
                self.answer.set_result(self._opening.welcome)

    def on_closed(self, error: BaseException | None) -> None:
        """Fail ``answer``, if it is not done."""
        if not self.answer.done():
            self.answer.set_exception(error or FrameError("the connection was closed"))
            self.answer.exception()  # Marks it as retrieved, because the caller may have been cancelled.
