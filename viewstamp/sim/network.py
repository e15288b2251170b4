"""The simulated network: all byte streams between the nodes, with their delays and faults, from one seed.

The behaviour of a connection, in the terms of :mod:`viewstamp.host.interfaces`:

* One ``send`` is one **chunk**. It arrives whole, in one ``on_bytes`` (or in two, with ``split``), after a delay drawn
  from the link's options.
* A chunk that begins with a frame between consensus peers (a datagram) may be dropped, doubled or reordered, because
  the protocol must tolerate that. Every other chunk keeps its place in the stream, and arrives unless the connection
  breaks before.
* A **partition** is one-way and by node name. Datagrams sent into it are lost. Chunks, and the end of a connection,
  wait for ``heal`` like TCP's retransmissions, for at most ``give_up_seconds``. Then the sender's end breaks with
  TimeoutError, and the other end closes once the partition has healed.
* ``close`` sends the queued data and then the end: the other side receives everything, then ``on_closed(None)``.
  ``abort``, a break and the death of a process end the other side with ConnectionResetError after a delay that may
  overtake data in flight: the received bytes are a prefix of the sent ones.
* Connecting takes a round trip; without a listener, it ends with ConnectionRefusedError. Into a partition, in either
  direction, it is retried after 1, 2, 4, ... seconds, and ends with TimeoutError after ``give_up_seconds``.
* To let a node disappear without a reset (as in a power cut), ``isolate`` it before its process is killed, and
  ``heal`` it when it is back.

A dead process is disconnected: nothing is sent from it or delivered to it.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import random
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from viewstamp.errors import ConfigError
from viewstamp.host.interfaces import Buffer, Connection, ConnectionHandler, Listener, Network
from viewstamp.host.network import format_address, parse_address
from viewstamp.sim.loop import SimulatedCrash, SimulatedLoop, SimulatedProcess, current_process
from viewstamp.wire.frame import FRAME_HEADER_SIZE, FrameKind

__all__ = ["LinkOptions", "NodeNetwork", "SimulatedNetwork", "is_peer_frame"]

Accept = Callable[[Connection], ConnectionHandler]

_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
_FIRST_FREE_PORT = 40_000
_KIND_AT = 8
"""The offset of the kind in a frame."""
_OS_BUFFER_BYTES = 256 * 1024
"""Bytes that the operating system buffers before ``unsent_bytes`` rises."""
_UNSENT_BYTES_LOW = 64 * 1024
_OUTSIDE = contextvars.Context()
"""The context of code that belongs to no process."""


def is_peer_frame(chunk: bytes) -> bool:
    """Return whether a chunk begins with a frame between consensus peers, which may be lost, doubled or late."""
    return len(chunk) >= FRAME_HEADER_SIZE and chunk[_KIND_AT] in (FrameKind.PEER, FrameKind.BEATS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """The behaviour of one direction between two nodes. Chances are from 0 to 1, times are in seconds."""

    delay_min: float = 0.0002
    delay_mean: float = 0.0003
    """The mean of the exponentially distributed delay in addition to ``delay_min``."""
    drop: float = 0.0
    double: float = 0.0
    reorder: float = 0.0
    """The chance that a datagram takes up to ``reorder_seconds`` longer, and does not keep its place."""
    reorder_seconds: float = 0.05
    stall: float = 0.0
    """The chance that a chunk, with all that follows it, is held up for 1/8 to all of ``stall_seconds``."""
    stall_seconds: float = 1.6
    """TCP retransmits a lost segment after 0.2 s, and doubles that timeout with each loss."""
    split: float = 0.0
    """The chance that a chunk other than a datagram arrives in two pieces."""
    break_connection: float = 0.0
    """The chance, per chunk other than a datagram, that the connection breaks instead of delivering it."""
    bytes_per_second: float = 0.0
    """0 = no limit."""


class SimulatedNetwork:
    """All links of a simulated world. Each node has its own ``view``.

    Invariants:
      * all randomness comes from ``entropy``, in the order of events
      * chunks other than datagrams arrive in the order in which they were sent
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        *,
        entropy: random.Random | None = None,
        options: LinkOptions | None = None,
        give_up_seconds: float = 60.0,
    ) -> None:
        self.options = options if options is not None else LinkOptions()
        """The options of links that have none of their own; may be replaced at any time."""
        self.give_up_seconds = give_up_seconds
        self.loop = loop
        self.entropy = entropy if entropy is not None else loop.entropy("network")
        self.listeners: dict[str, _Listener] = {}
        self.connections: dict[int, _End] = {}
        """Open ends by number, in the order of their creation."""
        self.holding: dict[int, _End] = {}
        """Ends, including closed ones, with items that wait until a partition heals."""
        self._links: dict[tuple[str, str], LinkOptions] = {}
        self._cut: dict[tuple[str, str], None] = {}
        self._numbers = 0
        self._port = _FIRST_FREE_PORT

    def view(self, node: str) -> NodeNetwork:
        """Return the network as ``node`` sees it. It may listen on its name and on loopback."""
        return NodeNetwork(self, node, (node, *_LOOPBACK_HOSTS))

    def set_link(self, source: str, target: str, options: LinkOptions | None) -> None:
        """Give the direction from ``source`` to ``target`` its own options; None removes them."""
        if options is None:
            self._links.pop((source, target), None)
        else:
            self._links[source, target] = options

    def clear_links(self) -> None:
        """Remove the options of all directions."""
        self._links.clear()

    def link(self, source: str, target: str) -> LinkOptions:
        """Return the options in force from ``source`` to ``target``."""
        return self._links.get((source, target), self.options)

    def partition(self, source: str, target: str) -> None:
        """Block the direction from ``source`` to ``target``; the opposite one is another partition. Idempotent."""
        if source != target and (source, target) not in self._cut:
            self._cut[source, target] = None
            self.note(source, target, "!", "partition")

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """End the partitions from ``source`` to ``target``; None = every node. Waiting items are sent."""
        healed = [pair for pair in self._cut if source in (None, pair[0]) and target in (None, pair[1])]
        for pair in healed:
            del self._cut[pair]
            self.note(*pair, "!", "heal")
        for end in list(self.holding.values()):
            if (end.node, end.other_node) in healed:
                end.flush()

    def isolate(self, node: str, others: Sequence[str]) -> None:
        """Partition ``node`` from each of ``others``, both ways."""
        for other in others:
            self.partition(node, other)
            self.partition(other, node)

    def mute(self, target: Connection) -> None:
        """Lose all that the other side of ``target`` sends on this connection, which stays open.

        This is what happens when a firewall or a router between the two has forgotten the connection.
        """
        assert isinstance(target, _End), "it is one of this network"
        target.other.is_mute = True

    def is_cut(self, source: str, target: str) -> bool:
        """Return whether there is a partition from ``source`` to ``target``."""
        return (source, target) in self._cut

    def break_connections(self, source: str | None = None, target: str | None = None) -> None:
        """Break every connection between ``source`` and ``target``, in either direction; None = every node."""
        for end in list(self.connections.values()):
            ends = (end.node, end.other_node)
            if any(source in (None, one) and target in (None, other) for one, other in (ends, ends[::-1])):
                end.break_off("a connection broke")

    def number(self) -> int:
        """Return the next number; it names a connection in the trace."""
        self._numbers += 1
        return self._numbers

    def free_port(self) -> int:
        """Return a port that has not been used before."""
        self._port += 1
        return self._port

    def delay(self, source: str, target: str) -> float:
        """Draw the delay from ``source`` to ``target``."""
        options = self.link(source, target)
        seconds = options.delay_min
        if options.delay_mean > 0:
            seconds += self.entropy.expovariate(1 / options.delay_mean)
        return seconds

    def note(self, source: str, target: str, glyph: str, text: str) -> None:
        """Add a line to the trace."""
        self.loop.trace.note(self.loop.time(), f"{source}>{target}", glyph, text)


class NodeNetwork(Network):
    """The network as one node sees it. The calling process owns the connections and their handlers."""

    def __init__(self, network: SimulatedNetwork, node: str, hosts: Sequence[str]) -> None:
        self.node = node
        self._network = network
        self._hosts = hosts

    async def listen(self, address: str, accept: Accept) -> Listener:
        """Listen; see :class:`Network`."""
        host, port = parse_address(address)
        if host not in self._hosts:
            raise ConfigError(
                f"cannot listen on {address}: it is no address of {self.node}",
                remedy=f"set [node] listen to one of {', '.join(self._hosts)}",
            )
        bound = format_address(host, port or self._network.free_port())
        if bound in self._network.listeners:
            raise ConfigError(
                f"cannot listen on {address}: {self._network.listeners[bound].node} listens there",
                remedy="stop the process that listens there, or set another port in [node] listen",
            )
        return _Listener(self._network, self.node, bound, accept)

    async def connect(self, address: str, accept: Accept) -> Connection:
        """Connect; see :class:`Network`. Cancelled: the connection is aborted if it was established."""
        parse_address(address)
        network, loop = self._network, self._network.loop
        deadline = loop.time() + network.give_up_seconds
        pause = 1.0
        while True:
            await asyncio.sleep(network.delay(self.node, address))
            listener = network.listeners.get(address)
            there = self.node if listener is None else listener.node
            if not (network.is_cut(self.node, there) or network.is_cut(there, self.node)):
                break
            if loop.time() + pause >= deadline:
                await asyncio.sleep(deadline - loop.time())
                raise TimeoutError(errno.ETIMEDOUT, f"no answer from {address}")
            await asyncio.sleep(pause)
            pause *= 2
        if listener is None:
            await asyncio.sleep(network.delay(self.node, address))
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"there is no listener on {address}")
        mine, theirs = _pair(network, self.node, listener)
        theirs.begin_soon(listener.accept)
        done: asyncio.Future[None] = loop.create_future()

        def answer() -> None:
            error: Exception | None = None
            try:
                mine.begin(accept)
            except Exception as raised:
                error = raised
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        loop.call_later(network.delay(there, self.node), answer)
        try:
            await done
        except asyncio.CancelledError:
            mine.abort()
            raise
        return mine


def _pair(network: SimulatedNetwork, node: str, listener: _Listener) -> tuple[_End, _End]:
    """Make the two ends of a new connection: the caller's, then the listener's."""
    number = network.number()
    mine = _End(network, number, node, listener.node, listener.address, current_process())
    name = format_address(node, network.free_port())
    theirs = _End(network, -number, listener.node, node, name, listener.process)
    mine.other, theirs.other = theirs, mine
    network.note(node, listener.node, "=", f"#{number} opens")
    return mine, theirs


class _Listener(Listener):
    def __init__(self, network: SimulatedNetwork, node: str, address: str, accept: Accept) -> None:
        self.address = address
        self.node = node
        self.accept = accept
        self.process = current_process()
        if self.process is not None and self.process.is_dead:
            raise SimulatedCrash(f"{node} is dead")
        self._network = network
        network.listeners[address] = self
        self._call_off = self.process.on_death(self._stop) if self.process is not None else None

    async def close(self) -> None:
        """Stop listening. Accepted connections stay open."""
        if self._call_off is not None:
            self._call_off()
        self._stop()
        await asyncio.sleep(0)

    def _stop(self) -> None:
        if self._network.listeners.get(self.address) is self:
            del self._network.listeners[self.address]


@dataclass(slots=True)
class _Item:
    """An item of a stream: a chunk, or its end (``chunk`` is None) with ``error``."""

    chunk: bytes | None
    size: int
    error: BaseException | None = None
    is_begun: bool = False
    """The rest of the chunk follows in another item."""
    is_rest: bool = False


class _End(Connection):
    """One end of a connection, and the direction that leads away from it.

    Invariants:
      * ``on_closed`` comes exactly once, and only if ``accept`` had returned a handler; nothing follows it
      * ``_held`` holds items only while the direction is cut
      * ``_under_way`` counts the bytes in flight
      * once the owner's process is dead, ``_is_over`` is true
    """

    def __init__(
        self,
        network: SimulatedNetwork,
        number: int,
        node: str,
        other_node: str,
        peer: str,
        process: SimulatedProcess | None,
    ) -> None:
        self.peer = peer
        self.node = node
        self.other_node = other_node
        self.other: _End
        self._network = network
        self._number = number
        self._process = process
        self._handler: ConnectionHandler | None = None
        self._early: list[bytes] = []
        self._is_closing = False
        """This side ended the connection: nothing is received or sent any more."""
        self._is_over = False
        """``on_closed`` was called, or will be at once."""
        self._arrives_at = 0.0
        self._held: deque[_Item] = deque()
        self._under_way = 0
        self._between: list[bytes] | None = None
        """Late datagrams that arrived inside a split chunk; they are delivered after it."""
        self.is_mute = False
        """Whether all that is sent is lost, and the connection stays open."""
        self._drained: list[asyncio.Future[None]] = []
        network.connections[number] = self
        self._call_off = process.on_death(self._die) if process is not None else None

    # called by its user

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Send one chunk."""
        if self._is_closing or self._is_over:
            return
        chunk = b"".join(buffers)
        if not chunk or self.is_mute:
            return
        if is_peer_frame(chunk):
            self._send_datagram(chunk)
        else:
            self._put(_Item(chunk, len(chunk)))

    @property
    def unsent_bytes(self) -> int:
        """The bytes in flight beyond the buffers of the operating system."""
        held = sum(item.size for item in self._held)
        return max(0, self._under_way + held - _OS_BUFFER_BYTES)

    async def drain(self) -> None:
        """Wait until few bytes are unsent. Safe to cancel."""
        while self.unsent_bytes > _UNSENT_BYTES_LOW and not (self._is_closing or self._is_over):
            waiter = self._network.loop.create_future()
            self._drained.append(waiter)
            await waiter

    def close(self) -> None:
        """Send the queued data, then close."""
        if self._is_closing or self._is_over or self._is_dead():
            return
        self._is_closing = True
        self._put(_Item(None, 0))
        self._wake()
        if self.unsent_bytes == 0:
            self._finish_soon(None)

    def abort(self) -> None:
        """Close at once."""
        self._abort(None)

    # called by the network

    def begin_soon(self, accept: Accept) -> None:
        """Begin in an event of this end's own process."""

        def begin() -> None:
            if not self._is_over:
                self.begin(accept)

        self._network.loop.call_soon(begin, context=self._context())

    def begin(self, accept: Accept) -> None:
        """Hand this end to ``accept``, and then the data that arrived before there was a handler.

        Raises:
          ConnectionResetError: the other side has ended the connection already.
        """
        if self._is_over:
            raise ConnectionResetError(errno.ECONNRESET, f"{self.other_node} closed the connection at once")
        try:
            self._handler = accept(self)
        except BaseException:
            self.abort()
            raise
        early, self._early = self._early, []
        for chunk in early:
            self._hear(chunk)

    def flush(self) -> None:
        """Send the items that waited for a partition to heal."""
        held, self._held = self._held, deque()
        self._network.holding.pop(self._number, None)
        for item in held:
            self._put(item)

    def break_off(self, reason: str) -> None:
        """End both sides with ConnectionResetError."""
        self._network.note(self.node, self.other_node, "!", f"#{self._number} breaks: {reason}")
        error = ConnectionResetError(errno.ECONNRESET, reason)
        self._finish_soon(error)
        self._reset_other(error)

    def _is_dead(self) -> bool:
        return self._process is not None and self._process.is_dead

    def _send_datagram(self, chunk: bytes) -> None:
        network, entropy = self._network, self._network.entropy
        link = network.link(self.node, self.other_node)
        if network.is_cut(self.node, self.other_node) or entropy.random() < link.drop:
            network.note(self.node, self.other_node, "!", f"#{self._number} drops {len(chunk)}")
            return
        copies = 2 if entropy.random() < link.double else 1
        for _ in range(copies):
            item = _Item(chunk, len(chunk))
            if copies == 2 or entropy.random() < link.reorder:
                late = entropy.random() * link.reorder_seconds
                self._travel(item, network.loop.time() + network.delay(self.node, self.other_node) + late)
            else:
                self._travel_in_order(item)

    def _put(self, item: _Item) -> None:
        """Send an item of the stream, in order."""
        network = self._network
        if network.is_cut(self.node, self.other_node):
            if not self._held:
                network.loop.call_later(network.give_up_seconds, self._give_up, item, context=_OUTSIDE)
            self._hold(item)
            return
        link = network.link(self.node, self.other_node)
        if item.chunk is not None and link.break_connection and network.entropy.random() < link.break_connection:
            self.break_off("a chunk was lost")
            return
        if item.size > 1 and link.split and network.entropy.random() < link.split and item.chunk is not None:
            at = network.entropy.randrange(1, item.size)
            self._travel_in_order(_Item(item.chunk[:at], at, is_begun=True))
            item = _Item(item.chunk[at:], item.size - at, is_rest=True)
        self._travel_in_order(item)

    def _hold(self, item: _Item) -> None:
        self._held.append(item)
        self._network.holding[self._number] = self

    def _travel_in_order(self, item: _Item) -> None:
        network = self._network
        arrives_at = network.loop.time() + network.delay(self.node, self.other_node)
        link = network.link(self.node, self.other_node)
        rate = link.bytes_per_second
        if link.stall and network.entropy.random() < link.stall:
            arrives_at += link.stall_seconds * network.entropy.choice((0.125, 0.25, 0.5, 1.0))
        self._arrives_at = max(arrives_at, self._arrives_at) + (item.size / rate if rate else 0.0)
        self._travel(item, self._arrives_at)

    def _travel(self, item: _Item, arrives_at: float) -> None:
        self._under_way += item.size
        self._network.loop.call_at(arrives_at, self._arrive, item, context=self.other._context())

    def _context(self) -> contextvars.Context:
        return _OUTSIDE if self._process is None else self._process.context

    def _arrive(self, item: _Item) -> None:
        """Deliver an item at the other end. Runs in the process of the other end."""
        self._under_way -= item.size
        if self._drained and self.unsent_bytes <= _UNSENT_BYTES_LOW:
            self._wake()
        if self._is_closing and not self._is_over and self.unsent_bytes == 0:
            self._finish_soon(None)
        if item.chunk is None:
            self.other._hear_end(item.error)
        elif self._between is not None and not item.is_rest:
            self._between.append(item.chunk)
        else:
            between, self._between = self._between, [] if item.is_begun else None
            for chunk in (item.chunk, *(between or ())):
                self.other._hear(chunk)

    def _hear(self, chunk: bytes) -> None:
        if self._is_closing or self._is_over:
            return
        if self._handler is None:
            self._early.append(chunk)
            return
        self._network.note(
            self.other_node, self.node, "<", f"#{-self._number} {len(chunk)} bytes {zlib.crc32(chunk):08x}"
        )
        try:
            self._handler.on_bytes(chunk)
        except Exception as error:
            self._abort(error)

    def _hear_end(self, error: BaseException | None) -> None:
        if not self._is_over:
            self._finish(error)

    def _abort(self, error: BaseException | None) -> None:
        if self._is_over or self._is_dead():
            return
        self._finish_soon(error)
        self._reset_other(ConnectionResetError(errno.ECONNRESET, f"reset by {self.node}"))

    def _reset_other(self, error: BaseException) -> None:
        """Break the other end as soon as the reset can reach it; until then its connection seems to be open."""
        network = self._network
        self._held.clear()
        item = _Item(None, 0, error)
        if network.is_cut(self.node, self.other_node):
            self._hold(item)
        else:
            self._travel(item, network.loop.time() + network.delay(self.node, self.other_node))

    def _give_up(self, item: _Item) -> None:
        if self._held and self._held[0] is item and not self._is_dead():
            self._network.note(self.node, self.other_node, "!", f"#{self._number} gives up")
            error = TimeoutError(errno.ETIMEDOUT, f"no answer from {self.peer}")
            if not self._is_over:
                self._finish_soon(error)
            self._reset_other(ConnectionResetError(errno.ECONNRESET, f"given up by {self.node}"))

    def _die(self) -> None:
        """React to the death of the process: no callback here, and a reset of the other end."""
        if not self._is_over:
            self._leave()
            self._reset_other(ConnectionResetError(errno.ECONNRESET, f"{self.node} died"))

    def _finish_soon(self, error: BaseException | None) -> None:
        """End this side in an event of its own, because handlers are never called from inside their own calls."""
        if not self._is_over:
            self._leave()
            self._network.loop.call_soon(self._tell, error, context=self._context())

    def _finish(self, error: BaseException | None) -> None:
        self._leave()
        self._tell(error)

    def _leave(self) -> None:
        self._is_over = True
        self._is_closing = True
        self._network.connections.pop(self._number, None)
        if self._call_off is not None:
            self._call_off()
        self._wake()

    def _tell(self, error: BaseException | None) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.on_closed(error)

    def _wake(self) -> None:
        waiters, self._drained = self._drained, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
