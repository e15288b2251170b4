"""TCP for the clients of a trio program: one task that reads and one that writes for each connection.

The tasks are system tasks of trio, because a connection may outlive the client that opened it: other clients share it.
``abort`` closes the socket at once, so a client that leaves its context as the last user leaves no open socket.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence

import trio

from viewstamp.client.runtime import Dialer, Wire
from viewstamp.host.address import parse_address
from viewstamp.host.interfaces import Buffer, ConnectionHandler
from viewstamp.host.tls import Tls
from viewstamp.host.tls_stream import TlsStream
from viewstamp.ids import CertificateName

__all__ = ["TrioNetwork", "TrioTlsNetwork"]

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


class TrioTlsNetwork:
    """TLS around every connection of another network; a :class:`viewstamp.client.runtime.Dialer`."""

    def __init__(self, inner: Dialer, tls: Tls) -> None:
        """Use ``inner`` for the bytes."""
        self._inner = inner
        self._tls = tls

    def __eq__(self, other: object) -> bool:
        return type(other) is TrioTlsNetwork and (other._inner, other._tls.files) == (self._inner, self._tls.files)

    def __hash__(self) -> int:
        return hash((self._inner, self._tls.files))

    async def connect(self, address: str, accept: Callable[[Wire], ConnectionHandler]) -> Wire:
        """Connect, and return after the handshake. Cancelled, it leaves nothing open.

        Raises:
          OSError: no server answers there.
          TlsError: the handshake failed, or the other side is no member of the cluster of the own certificate.
        """
        is_over = trio.Event()
        failure: BaseException | None = None

        def on_open(error: BaseException | None) -> None:
            nonlocal failure
            failure = error
            is_over.set()
            if error is None:
                streams[0].handler = accept(streams[0])

        def accept_inner(inner: Wire) -> ConnectionHandler:
            stream = TlsStream(inner, self._tls.current(), is_server=False, peer=address, on_open=on_open)
            streams.append(stream)
            stream.begin()
            return stream

        streams: list[TlsStream] = []
        await self._inner.connect(address, accept_inner)
        stream = streams[0]
        try:
            await is_over.wait()
            if failure is not None:
                raise failure
        except BaseException:
            stream.abort()
            raise
        return stream


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
        self._is_closing = False
        self.identity: CertificateName | None = None

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Queue ``buffers``. Never awaits; dropped silently once closed."""
        if not self._scope.cancel_called and not self._is_closing:
            self._unsent += buffers
            self._unsent_bytes += sum(map(len, buffers))
            self._has_unsent.set()

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the operating system has not taken."""
        return self._unsent_bytes

    def close(self) -> None:
        """Send the queued bytes, then close."""
        self._is_closing = True
        self._has_unsent.set()

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
                if self._is_closing and not self._unsent:
                    break
        except trio.ClosedResourceError:
            pass  # By ``abort``.
        except trio.BrokenResourceError as error:
            self._error = error.__cause__
        self._scope.cancel()
