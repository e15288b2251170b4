"""``TlsNetwork``: TLS around another network of asyncio; see ``tls.py`` for its checks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from viewstamp.errors import TlsError
from viewstamp.host.interfaces import Buffer, Connection, ConnectionHandler, Listener, Network
from viewstamp.host.network import RealNetwork
from viewstamp.host.tls import LoadedTls, Tls, TlsFiles
from viewstamp.host.tls_stream import TlsStream

__all__ = ["TlsNetwork", "client_network"]

Accept = Callable[[Connection], ConnectionHandler]


def client_network(files: TlsFiles | None) -> RealNetwork | TlsNetwork:
    """Return the network of a client; ``files`` None = without TLS. Blocks for the files.

    Raises:
      ConfigError: a file cannot be read or is wrong.
    """
    return RealNetwork() if files is None else TlsNetwork(RealNetwork(), Tls(files))


class TlsNetwork(Network):
    """TLS around every connection of another network.

    A listening side calls ``accept`` before the handshake, so that the limits of its connections hold for handshakes.
    A connecting side calls it after the handshake, and only for a member of the cluster of its own certificate.
    """

    def __init__(self, inner: Network, tls: Tls, *, plain_refusal: Sequence[Buffer] = ()) -> None:
        """Use ``inner`` for the bytes. ``plain_refusal`` answers a connection that does not speak TLS."""
        self._inner = inner
        self._tls = tls
        self._plain_refusal = plain_refusal

    def __eq__(self, other: object) -> bool:
        return type(other) is TlsNetwork and (other._inner, other._tls.files) == (self._inner, self._tls.files)

    def __hash__(self) -> int:
        return hash((self._inner, self._tls.files))

    async def listen(self, address: str, accept: Accept) -> Listener:
        """Listen; see :class:`Network`."""

        def accept_inner(inner: Connection) -> ConnectionHandler:
            connection = _TlsConnection(
                inner, self._tls.current(), is_server=True, peer=inner.peer, plain_refusal=self._plain_refusal
            )
            connection.handler = accept(connection)
            return connection

        return await self._inner.listen(address, accept_inner)

    async def connect(self, address: str, accept: Accept) -> Connection:
        """Connect, and return after the handshake; see :class:`Network`.

        If the own certificate has expired, or the handshake fails, the files are looked at, and the connection is made
        with what they hold now. Otherwise a process whose connections outlived its certificate would fail once,
        although the certificate was renewed in time.

        Raises:
          TlsError: the handshake failed, or the other side is no member of the cluster of the own certificate.
        """
        used = self._tls.current()
        if used.validity.ends <= time.time():
            await asyncio.to_thread(self._tls.look)
            used = self._tls.loaded
        try:
            return await self._open(address, accept, used)
        except TlsError:
            await asyncio.to_thread(self._tls.look)
            if self._tls.loaded is used:
                raise
        return await self._open(address, accept, self._tls.loaded)

    async def _open(self, address: str, accept: Accept, loaded: LoadedTls) -> Connection:
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_open(error: BaseException | None) -> None:
            if error is None:
                made[0].handler = accept(made[0])
            if opened.done():
                return
            if error is None:
                opened.set_result(None)
            else:
                opened.set_exception(error)
                opened.exception()  # Marks it as retrieved, because the caller may have been cancelled.

        def accept_inner(inner: Connection) -> ConnectionHandler:
            connection = _TlsConnection(inner, loaded, is_server=False, peer=address, on_open=on_open)
            made.append(connection)
            connection.begin()
            return connection

        made: list[_TlsConnection] = []
        await self._inner.connect(address, accept_inner)
        connection = made[0]
        try:
            await asyncio.shield(opened)
        except BaseException:
            connection.abort()
            raise
        return connection


class _TlsConnection(TlsStream, Connection):
    """A connection of a ``TlsNetwork``."""

    _inner: Connection

    def pause_reading(self) -> None:
        """Deliver no more bytes, except those of the chunk that is being decrypted."""
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        """Deliver bytes again."""
        self._inner.resume_reading()

    async def drain(self) -> None:
        """Wait until few bytes are unsent. Returns immediately before the handshake, when few bytes can be."""
        await self._inner.drain()
