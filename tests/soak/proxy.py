"""The wires between the members: each is reached through a proxy in this process, which can cut, slow and drop.

A member's advertised address is its proxy's, so all connections to it, from members and clients, pass through here. The
first frame of a connection (HELLO) identifies the opener; all later bytes are only forwarded. A rule applies to one
direction between two names, so a partition can be one-way. Held bytes are delivered late, or never if the connection
ends first, as in a real network.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from viewstamp.errors import FrameError
from viewstamp.host.address import format_address, parse_address
from viewstamp.ids import name_of
from viewstamp.wire.frame import FrameDecoder

__all__ = ["CLIENT", "Loss", "Proxy", "Switchboard"]

CLIENT = "client"
"""The common name of all clients."""

_PIECE_BYTES = 64 * 1024
_STALLS_SECONDS = (0.2, 0.4, 0.8, 1.6)
"""TCP retransmits a lost segment after 0.2 s, and doubles the delay with each further loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The effects of a network with packet loss on a connection. Chances are for each piece that is read."""

    delay: float
    """One way, in seconds."""
    stalls: float
    resets: float
    entropy: random.Random


class Switchboard:
    """Rules for the bytes from one name to another.

    Invariants:
      * a direction without a rule is open and not delayed
    """

    def __init__(self) -> None:
        self.proxies: dict[str, Proxy] = {}
        """The proxies by the names of their members."""
        self._cut: set[tuple[str, str]] = set()
        self._delays: dict[tuple[str, str], float] = {}
        self._lossy: dict[tuple[str, str], Loss] = {}
        self._changed = asyncio.Event()

    async def open(self, name: str, target: str) -> str:
        """Open the proxy of a member that listens at ``target``; return the proxy's address."""
        proxy = Proxy(self, name, target)
        await proxy.open()
        self.proxies[name] = proxy
        return proxy.address

    async def close(self) -> None:
        """Close all proxies and their connections."""
        for proxy in self.proxies.values():
            await proxy.close()

    def cut(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        """Hold all bytes from any of ``sources`` to any of ``targets``."""
        targets = list(targets)
        self._cut |= {(source, target) for source in sources for target in targets if source != target}

    def slow(self, sources: Iterable[str], targets: Iterable[str], seconds: float) -> None:
        """Delay the bytes from any of ``sources`` to any of ``targets``."""
        targets = list(targets)
        self._delays |= {(source, target): seconds for source in sources for target in targets if source != target}

    def lose(self, sources: Iterable[str], targets: Iterable[str], loss: Loss) -> None:
        """Delay some of the bytes from any of ``sources`` to any of ``targets``, and reset some connections."""
        targets = list(targets)
        self._lossy |= {(source, target): loss for source in sources for target in targets if source != target}

    def heal(self) -> None:
        """Deliver all bytes again, immediately."""
        self._cut.clear()
        self._lossy.clear()
        self._delays.clear()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def drop(self, name: str) -> int:
        """End every connection to and from a name; return how many there were."""
        return sum(proxy.drop(None if proxy.name == name else name) for proxy in self.proxies.values())

    async def passage(self, source: str, target: str) -> None:
        """Return when bytes may go from ``source`` to ``target``.

        Raises ConnectionResetError if the connection is reset.
        """
        loss = self._lossy.get((source, target))
        if loss is not None:
            if loss.entropy.random() < loss.resets:
                raise ConnectionResetError("as a lossy network does")
            is_held = loss.entropy.random() < loss.stalls
            await asyncio.sleep(loss.delay + (loss.entropy.choice(_STALLS_SECONDS) if is_held else 0.0))
        delay = self._delays.get((source, target), 0.0)
        if delay:
            await asyncio.sleep(delay)
        while (source, target) in self._cut:
            await self._changed.wait()


class Proxy:
    """Listens for one member, and forwards every connection to it."""

    def __init__(self, board: Switchboard, name: str, target: str) -> None:
        self.name = name
        self.address = ""
        self._board = board
        self._target = parse_address(target)
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], str] = {}
        """The connections, and the name of each one's opener."""

    async def open(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._on_connection, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = format_address(host, port)

    async def close(self) -> None:
        """Stop listening, and end all connections."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._connections)
        self.drop(None)
        await asyncio.gather(*tasks, return_exceptions=True)

    def drop(self, name: str | None) -> int:
        """End the connections that ``name`` opened, None = all; return how many there were."""
        dropped = [task for task, opener in self._connections.items() if name in (None, opener)]
        for task in dropped:
            task.cancel()
        return len(dropped)

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "streams run their callback in a task"
        self._connections[task] = ""
        ends = [writer]
        try:
            opener, said = await _hello(reader)
            self._connections[task] = opener
            await self._board.passage(opener, self.name)
            answers, far = await asyncio.open_connection(*self._target)
            ends.append(far)
            far.write(said)
            there = asyncio.ensure_future(self._pump(reader, far, opener, self.name))
            back = asyncio.ensure_future(self._pump(answers, writer, self.name, opener))
            try:
                await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in (there, back):
                    pump.cancel()
                await asyncio.gather(there, back, return_exceptions=True)
            for end in ends:
                end.close()  # Deliver the last bytes, for example the reason of a refusal.
        except (OSError, FrameError, asyncio.CancelledError):
            for end in ends:
                end.transport.abort()  # The member is down, or the connection is being dropped.
        finally:
            del self._connections[task]

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: str, target: str) -> None:
        with suppress(OSError):
            while data := await reader.read(_PIECE_BYTES):
                await self._board.passage(source, target)
                writer.write(data)
                await writer.drain()
            await self._board.passage(source, target)  # The end of a connection is delayed like bytes.


async def _hello(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Return the opener's name and the bytes read so far. Raises FrameError if this is no HELLO."""
    decoder, said = FrameDecoder(), b""
    while data := await reader.read(_PIECE_BYTES):
        said += data
        for frame in decoder.feed(data):
            name = str(frame.body.get("node", "")) if isinstance(frame.body, dict) else ""
            # A member that lost its disk has a longer name, and is on the same wire.
            return name_of(name) or CLIENT, said
    raise FrameError("the connection ended before its HELLO")
