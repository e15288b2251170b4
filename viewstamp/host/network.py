"""The real network: TCP through asyncio's transports, so it runs on uvloop and on the standard loop alike.

It handles bytes only; frames, handshakes and retries are the task of the owner of a connection.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence
from typing import cast

from viewstamp.errors import ConfigError
from viewstamp.host.address import format_address, parse_address
from viewstamp.host.interfaces import Buffer, Connection, ConnectionHandler, Listener, Network

__all__ = ["RealNetwork", "format_address", "parse_address"]

Accept = Callable[[Connection], ConnectionHandler]

_UNSENT_BYTES_HIGH = 256 * 1024
"""``drain`` waits while more bytes than this are unsent: about one full batch."""
_UNSENT_BYTES_LOW = 64 * 1024
"""A ``drain`` that waits returns when fewer bytes than this are unsent."""

_BACKLOG = 1024
_ACCEPTS_MAX = 8
"""Connections accepted in one turn of the event loop, so that the turn stays short."""
_ACCEPT_PAUSE_SECONDS = 0.1
"""Pause after a failed accept, for example because no file descriptor was left."""


class RealNetwork(Network):
    """TCP on the running event loop, without delaying small writes. Has no state, so all of them are equal."""

    def __eq__(self, other: object) -> bool:
        return type(other) is RealNetwork

    def __hash__(self) -> int:
        return hash(RealNetwork)

    async def listen(self, address: str, accept: Accept) -> Listener:
        """Listen; see :class:`Network`. If cancelled, no socket listens."""
        host, port = parse_address(address)
        try:
            sockets = await _bind(host, port)
        except (OSError, UnicodeError) as error:
            raise _listen_error(address, error) from error
        bound = sockets[0].getsockname()
        return _TcpListener(sockets, format_address(host, bound[1]), accept)

    async def connect(self, address: str, accept: Accept) -> Connection:
        """Connect; see :class:`Network`. If cancelled, the connection is closed again."""
        host, port = parse_address(address)
        loop = asyncio.get_running_loop()
        connection = _TcpConnection(accept)
        try:
            await loop.create_connection(lambda: connection, host, port)
        except asyncio.CancelledError:
            # uvloop drops a connection of the same turn without a call of connection_lost().
            connection.abort()
            loop.call_soon(connection.connection_lost, None)
            raise
        except UnicodeError as error:
            raise socket.gaierror(socket.EAI_NONAME, f"{host!r} is no host name") from error
        if connection.refused is not None:
            raise connection.refused
        return connection


def _listen_error(address: str, error: OSError | UnicodeError) -> ConfigError:
    number = error.errno if isinstance(error, OSError) else None
    remedy = {
        errno.EADDRINUSE: "stop the process that listens there, or set another port in [node] listen",
        errno.EADDRNOTAVAIL: "set [node] listen to an address of this machine",
        errno.EACCES: "set a port above 1023 in [node] listen, or give the process the right to use this one",
    }.get(number or 0, "check [node] listen: host:port, with an address of this machine")
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return ConfigError(f"cannot listen on {address}: {reason}", remedy=remedy)


async def _bind(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen at all addresses of a name. If it is cancelled or fails, none is left open."""
    loop = asyncio.get_running_loop()
    try:  # A numeric address needs no resolver, which would need a thread.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, at in dict.fromkeys(found):
            listening = socket.socket(family, kind, protocol)
            sockets.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.setblocking(False)
            listening.bind(at)
            listening.listen(_BACKLOG)
    except BaseException:
        for listening in sockets:
            listening.close()
        raise
    return sockets


class _TcpListener(Listener):
    """Accepts connections, a few at a time.

    An event loop's own server accepts all that wait, up to a thousand, before it calls a handler. That may use up the
    file descriptors, of which the log needs some too.
    """

    def __init__(self, sockets: list[socket.socket], address: str, accept: Accept) -> None:
        self.address = address
        self._sockets = sockets
        self._accept = accept
        self._loop = asyncio.get_running_loop()
        self._attaching: dict[asyncio.Task[None], None] = {}
        self._paused: asyncio.TimerHandle | None = None
        self._resume()

    async def close(self) -> None:
        """Stop listening; accepted connections stay open."""
        self._pause()
        sockets, self._sockets = self._sockets, []
        for listening in sockets:
            listening.close()
        if self._attaching:
            await asyncio.wait(list(self._attaching))

    def _resume(self) -> None:
        self._paused = None
        for listening in self._sockets:
            self._loop.add_reader(listening.fileno(), self._on_ready, listening)

    def _pause(self) -> None:
        if self._paused is not None:
            self._paused.cancel()
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())

    def _on_ready(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_MAX):
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # No descriptor or no memory is left. Callers wait in the kernel's queue until there may be one again.
                self._pause()
                self._paused = self._loop.call_later(_ACCEPT_PAUSE_SECONDS, self._resume)
                return
            connection.setblocking(False)
            task = self._loop.create_task(self._attach(connection))
            self._attaching[task] = None
            task.add_done_callback(self._attaching.pop)

    async def _attach(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: _TcpConnection(self._accept), connection)
        except OSError:
            connection.close()  # The other side has closed it again.


class _TcpConnection(asyncio.Protocol, Connection):
    """One TCP connection: asyncio's protocol for the loop, :class:`Connection` for its user.

    Invariants:
      * the handler gets no byte after ``close``, ``abort`` or its own exception, and ``on_closed`` exactly once
      * ``_drained`` is set, and not done, only while more than ``_UNSENT_BYTES_HIGH`` bytes had gathered
    """

    def __init__(self, accept: Accept) -> None:
        self.peer = ""
        self.refused: BaseException | None = None
        """The error of ``connect`` although the socket connected: ``accept`` raised, or it connected to itself."""
        self._accept: Accept | None = accept
        self._transport: asyncio.Transport | None = None
        self._is_asyncio = False
        self._handler: ConnectionHandler | None = None
        self._closing = False
        self._error: BaseException | None = None
        self._drained: asyncio.Future[None] | None = None

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass the new connection to ``accept``."""
        self._transport = cast(asyncio.Transport, transport)
        self._is_asyncio = type(transport).__module__.startswith("asyncio.")
        if self._closing:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=_UNSENT_BYTES_HIGH, low=_UNSENT_BYTES_LOW)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peername = transport.get_extra_info("peername")
        accept, self._accept = self._accept, None
        assert accept is not None, "connection_made comes once"
        if peername is None or peername == transport.get_extra_info("sockname"):
            # A socket that connects to a free ephemeral port of this machine can connect to itself (TCP's simultaneous
            # open). No process listens there, and the socket would take the port of a dead node that starts again.
            self.refused = ConnectionRefusedError(errno.ECONNREFUSED, "the other end is gone, or is this very socket")
            self.abort()
            return
        self.peer = format_address(peername[0], peername[1])
        try:
            self._handler = accept(self)
        except BaseException as error:
            self.refused = error
            self.abort()
            raise

    def data_received(self, data: bytes) -> None:
        """Pass bytes on; an exception of the handler ends the connection."""
        if self._closing or self._handler is None:
            return
        try:
            self._handler.on_bytes(data)
        except Exception as error:
            # The frames of the traceback hold this object and the bytes, until the next collection of garbage.
            self._error = error.with_traceback(None)
            self.abort()

    def pause_writing(self) -> None:
        """Note that too much is unsent."""
        if not self._closing:
            self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Let all callers of ``drain`` go on."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Report the end, and only once, because uvloop may call this twice."""
        self._closing = True
        self.resume_writing()
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.on_closed(self._error or error)

    # called by its user

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Queue ``buffers`` together, so that the transport passes them to the OS in one call."""
        if self._closing or self._transport is None:
            return
        if self._is_asyncio:
            # The standard library's writelines() does not pause the protocol in some 3.12 and 3.13 releases, so that
            # ``drain`` would not wait; before 3.12 it joined the buffers in the same way.
            self._transport.write(b"".join(buffers))
        else:
            self._transport.writelines(buffers)

    @property
    def unsent_bytes(self) -> int:
        """Bytes not yet passed to the OS."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    async def drain(self) -> None:
        """Wait until few bytes are unsent; returns immediately if closed. If cancelled, other callers still wait."""
        if self._drained is not None:
            await asyncio.shield(self._drained)

    def pause_reading(self) -> None:
        """Read no more from the socket, so that the other side is slowed down by TCP."""
        if not self._closing and self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the socket again."""
        if not self._closing and self._transport is not None:
            self._transport.resume_reading()

    def close(self) -> None:
        """Send the queued bytes, then close. A peer that does not read delays this for ever; ``abort`` ends it."""
        self._end(lambda transport: transport.close())

    def abort(self) -> None:
        """Close immediately, also after ``close``."""
        self._end(lambda transport: transport.abort())

    def _end(self, how: Callable[[asyncio.Transport], None]) -> None:
        self._closing = True
        self.resume_writing()
        if self._transport is not None:
            how(self._transport)
