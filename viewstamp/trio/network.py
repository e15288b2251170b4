"""TCP for the clients of a trio program: one task that reads and one that writes for each connection.

The tasks are system tasks of trio, because a connection may outlive the client that opened it: other clients share it.
``abort`` closes the socket at once, so a client that leaves its context as the last user leaves no open socket.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence

import trio

from viewstamp.client.runtime import Wire
from viewstamp.host.address import parse_address
from viewstamp.host.interfaces import Buffer, ConnectionHandler

__all__ = ["TrioNetwork"]

_CHUNK = 256 * 1024
"""Bytes that one read asks for."""


class TrioNetwork:
    """Connects by trio's sockets; a :class:`viewstamp.client.runtime.Dialer`. Its connections end with ``trio.run``."""

    async def connect(self, address: str, accept: Callable[[Wire], ConnectionHandler]) -> Wire:
        """Connect; ``accept`` returns the handler before any byte arrives. Cancelled, it leaves nothing open.

        Raises:
          OSError: no server answers there.
        """
        host, port = parse_address(address)
        try:
            stream = await trio.open_tcp_stream(host, port)
        except UnicodeError as error:
            raise socket.gaierror(socket.EAI_NONAME, f"{host!r} is no host name") from error
        except OSError as error:
            if isinstance(error.__cause__, ExceptionGroup):
                # One error for each address of the host. The last one is more specific than "all attempts failed".
                raise error.__cause__.exceptions[-1] from None
            raise
        connection = _Connection(stream)
        try:
            if stream.socket.getpeername() == stream.socket.getsockname():
                # A connection to a free port of this machine can connect to itself, although no server listens there.
                raise ConnectionRefusedError(errno.ECONNREFUSED, "the other end is this very socket")
            handler = accept(connection)
        except BaseException:
            stream.socket.close()
            raise
        trio.lowlevel.spawn_system_task(connection.run, handler)
        return connection


class _Connection:
    """One TCP connection.

    Invariants:
      * the handler gets no byte after ``abort`` or its own exception, and ``on_closed`` once, last
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._scope = trio.CancelScope()
        self._unsent: list[Buffer] = []
        self._unsent_bytes = 0
        """Also those that ``send_all`` is sending."""
        self._has_unsent = trio.Event()
        self._error: BaseException | None = None

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Queue ``buffers``. Never awaits; dropped silently once closed."""
        if not self._scope.cancel_called:
            self._unsent += buffers
            self._unsent_bytes += sum(map(len, buffers))
            self._has_unsent.set()

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the operating system has not taken."""
        return self._unsent_bytes

    def abort(self) -> None:
        """Close at once; queued bytes are lost."""
        self._scope.cancel()
        self._stream.socket.close()

    async def run(self, handler: ConnectionHandler) -> None:
        """Read and write until the connection ends."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    await self._read(handler)
        finally:
            self.abort()
            handler.on_closed(self._error)

    async def _read(self, handler: ConnectionHandler) -> None:
        try:
            while data := await self._stream.receive_some(_CHUNK):
                if self._scope.cancel_called:
                    return
                handler.on_bytes(data)
        except Exception as error:
            self._error = error.__cause__ if isinstance(error, trio.BrokenResourceError) else error
        self._scope.cancel()

    async def _write(self) -> None:
        try:
            while True:
                await self._has_unsent.wait()
                self._has_unsent = trio.Event()
                buffers, self._unsent = self._unsent, []
                data = b"".join(buffers)
                await self._stream.send_all(data)
                self._unsent_bytes -= len(data)
        except trio.ClosedResourceError:
            pass  # By ``abort``.
        except trio.BrokenResourceError as error:
            self._error = error.__cause__
        self._scope.cancel()
