"""The disk and the network of simulated machines: nothing fails, and each system call takes its measured time."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.scale.machines import OUTSIDE, MachineLoop
from viewstamp.host.interfaces import Buffer, Connection, ConnectionHandler, File, Listener, Network, SerialExecutor
from viewstamp.sim.disk import SimulatedDisk

__all__ = ["MachineDisk", "MachineNetwork"]

Accept = Callable[[Connection], ConnectionHandler]

_OS_BUFFER_BYTES = 256 * 1024
_UNSENT_BYTES_LOW = 64 * 1024
_READ_BYTES_MAX = 256 * 1024
"""The most bytes that one read of a socket returns."""


class MachineDisk(SimulatedDisk):
    """The simulator's disk, with syncs that take as long as the measured ones."""

    def __init__(self, name: str, loop: MachineLoop) -> None:
        super().__init__(name, loop=loop)
        self.loop = loop
        self.under_way = 0
        """Number of syncs in progress."""
        self.syncs = 0
        self.kernel_until = 0.0

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file; see :class:`Disk`."""
        self.loop.pause()
        try:
            return _MeteredFile(self, super().open(path, create=create))
        finally:
            self.loop.resume()

    def end_sync(self) -> None:
        """Note that a sync is done."""
        self.under_way -= 1

    def draw_delay(self) -> float:
        """Return the duration of a call of an asynchronous file, which is no part of an append."""
        return self.loop.costs.draw_sync(1, self.entropy)

    def executor(
        self, name: str, work: Callable[[list[Any]], Any], done: Callable[[list[Any], Any], None]
    ) -> SerialExecutor[Any]:
        """Start an executor on the running loop."""
        return _Thread(self, work, done)


class _MeteredFile(File):
    """A simulated file whose calls take the processor time of the measured ones; a sync takes another core."""

    def __init__(self, disk: MachineDisk, file: File) -> None:
        self.path = file.path
        self._disk, self._file = disk, file

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes."""
        return self._file.read(offset, size)

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all of ``buffers``; the time of the system call is part of that of the sync."""
        loop = self._disk.loop
        loop.pause()
        try:
            self._file.write(offset, buffers)
        finally:
            loop.resume()

    def sync_data(self) -> None:
        """Make written bytes durable."""
        self._sync(self._file.sync_data)

    def sync(self) -> None:
        """Make bytes and length durable."""
        self._sync(self._file.sync)

    def truncate(self, size: int) -> None:
        """Cut the file, or lengthen it."""
        self._file.truncate(size)

    def size(self) -> int:
        """Return the length."""
        return self._file.size()

    def close(self) -> None:
        """Close."""
        self._file.close()

    def _sync(self, how: Callable[[], None]) -> None:
        disk, loop = self._disk, self._disk.loop
        loop.pause()
        try:
            how()
        finally:
            loop.resume()
        disk.syncs += 1
        disk.under_way += 1
        seconds = loop.costs.draw_sync(disk.under_way, disk.entropy)
        begun = max(loop.time(), disk.kernel_until)
        disk.kernel_until = max(begun + seconds, loop.run_in_kernel(loop.costs.sync_cpu_seconds))
        loop.call_at(disk.kernel_until, disk.end_sync, context=OUTSIDE)


class _Thread(SerialExecutor[Any]):
    """The thread of an executor. Its Python runs in turns with the loop of the process, which share the GIL."""

    def __init__(
        self, disk: MachineDisk, work: Callable[[list[Any]], Any], done: Callable[[list[Any], Any], None]
    ) -> None:
        self._disk, self._work, self._done = disk, work, done
        self._loop = disk.loop
        self._context = contextvars.copy_context()
        self._queued: deque[Any] = deque()
        self._is_busy = self._is_closed = False
        self._error: BaseException | None = None
        self._idle: asyncio.Future[None] | None = None

    def put(self, item: Any) -> None:
        """Queue ``item``."""
        if not self._is_closed:
            self._queued.append(item)
            if not self._is_busy:
                self._is_busy = True
                self._loop.call_soon(self._turn, context=self._context)

    async def close(self) -> None:
        """Finish the queued items, then stop."""
        self._is_closed = True
        if self._is_busy:
            self._idle = self._idle or self._loop.create_future()
            await asyncio.shield(self._idle)

    def _turn(self) -> None:
        items = list(self._queued)
        self._queued.clear()
        result: Any = self._error
        self._disk.kernel_until = 0.0
        if self._error is None:
            try:
                result = self._work(items)
            except Exception as error:  # As a thread does: it is the answer of all later items.
                result = self._error = error
        until = max(self._loop.time(), self._disk.kernel_until)
        self._loop.call_at(until, self._report, items, result, context=self._context)

    def _report(self, items: list[Any], result: Any) -> None:
        self._done(items, result)
        if self._queued:
            self._loop.call_soon(self._turn, context=self._context)
            return
        self._is_busy = False
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)


class MachineNetwork:
    """All links; a message takes ``delay_seconds``, and its bytes the time of the sender's link."""

    def __init__(self, loop: MachineLoop, *, delay_seconds: float, bytes_per_second: float) -> None:
        self.loop = loop
        self.delay_seconds, self.bytes_per_second = delay_seconds, bytes_per_second
        self.listeners: dict[str, _Listener] = {}
        self.sent: dict[str, int] = {}
        """Bytes that each machine has sent."""
        self.link_free_at: dict[str, float] = {}
        self._ports = 40_000

    def view(self, name: str) -> _View:
        """Return the network as a machine sees it."""
        return _View(self, name)

    def port(self) -> int:
        """Return a port that was not used."""
        self._ports += 1
        return self._ports

    def arrival(self, name: str, size: int, at: float) -> float:
        """Return when ``size`` bytes that ``name`` sends from ``at`` on have arrived."""
        self.sent[name] = self.sent.get(name, 0) + size
        begin = max(at, self.link_free_at.get(name, 0.0))
        self.link_free_at[name] = begin + size / self.bytes_per_second
        return self.link_free_at[name] + self.delay_seconds


class _View(Network):
    def __init__(self, network: MachineNetwork, name: str) -> None:
        self._network, self._name = network, name

    async def listen(self, address: str, accept: Accept) -> Listener:
        """Listen."""
        return _Listener(self._network, self._name, address, accept)

    async def connect(self, address: str, accept: Accept) -> Connection:
        """Connect, which takes a round trip."""
        network = self._network
        await asyncio.sleep(2 * network.delay_seconds)
        listener = network.listeners.get(address)
        if listener is None:
            raise ConnectionRefusedError(f"there is no listener on {address}")
        mine = _End(network, self._name, address, contextvars.copy_context())
        theirs = _End(network, listener.name, f"{self._name}:{network.port()}", listener.context)
        mine.other, theirs.other = theirs, mine
        network.loop.call_soon(theirs.begin, listener.accept, context=listener.context)
        mine.begin(accept)
        return mine


class _Listener(Listener):
    def __init__(self, network: MachineNetwork, name: str, address: str, accept: Accept) -> None:
        self.address, self.name, self.accept = address, name, accept
        self.context = contextvars.copy_context()
        self._network = network
        network.listeners[address] = self

    async def close(self) -> None:
        """Stop listening."""
        self._network.listeners.pop(self.address, None)


class _End(Connection):
    """One end of a connection. It sends the data of a turn in one call, and reads all that has arrived in one."""

    def __init__(self, network: MachineNetwork, name: str, peer: str, context: contextvars.Context) -> None:
        self.peer = peer
        self.other: _End
        self._network, self._loop, self._name = network, network.loop, name
        self._context = context
        self._handler: ConnectionHandler | None = None
        self._out: list[bytes] = []
        self._arrived: deque[bytes] = deque()
        self._is_read_due = self._is_over = False
        self._under_way = 0
        self._drained: list[asyncio.Future[None]] = []
        self._arrives_at = 0.0

    def begin(self, accept: Accept) -> None:
        """Take the handler, and pass on what has arrived already."""
        if not self._is_over:
            self._handler = accept(self)
            if self._arrived:
                self._read()

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Queue ``buffers`` until the end of the turn."""
        if self._is_over:
            return
        self._loop.pause()
        chunk = b"".join(buffers)
        self._loop.resume()
        self._under_way += len(chunk)
        self._out.append(chunk)
        if len(self._out) == 1 and not self._loop.at_end_of_turn(self._flush):
            self._flush()

    def _flush(self) -> None:
        loop, costs = self._loop, self._loop.costs
        loop.pause()
        data = b"".join(self._out)
        self._out.clear()
        loop.resume(costs.send_seconds + len(data) * costs.send_byte_seconds)
        now = loop.time()
        loop.pause()
        self._arrives_at = max(self._arrives_at, self._network.arrival(self._name, len(data), now))
        loop.call_at(self._arrives_at, self.other._arrive, data, context=OUTSIDE)
        loop.resume()

    def _arrive(self, data: bytes) -> None:
        if not self._is_over:
            self._arrived.append(data)
            if not self._is_read_due and self._handler is not None:
                self._is_read_due = True
                self._loop.call_soon(self._read, context=self._context)

    def _read(self) -> None:
        loop, costs = self._loop, self._loop.costs
        self._is_read_due = False
        if self._is_over or self._handler is None:
            return
        loop.pause()
        chunks = [self._arrived.popleft()]
        size = len(chunks[0])
        while self._arrived and size + len(self._arrived[0]) <= _READ_BYTES_MAX:
            chunks.append(self._arrived.popleft())
            size += len(chunks[-1])
        if self._arrived:
            self._is_read_due = True
            loop.call_soon(self._read, context=self._context)
        self.other._is_taken(size)
        data = b"".join(chunks)
        loop.resume(costs.receive_seconds + size * costs.receive_byte_seconds)
        try:
            self._handler.on_bytes(data)
        except Exception as error:
            self._end(error)

    def _is_taken(self, size: int) -> None:
        self._under_way -= size
        if self._drained and self.unsent_bytes <= _UNSENT_BYTES_LOW:
            waiting, self._drained = self._drained, []
            for each in waiting:
                if not each.done():
                    each.set_result(None)

    @property
    def unsent_bytes(self) -> int:
        """Bytes beyond the buffers of the operating system."""
        return max(0, self._under_way - _OS_BUFFER_BYTES)

    async def drain(self) -> None:
        """Wait until few bytes are unsent."""
        while self.unsent_bytes > _UNSENT_BYTES_LOW and not self._is_over:
            waiter = self._loop.create_future()
            self._drained.append(waiter)
            await waiter

    def close(self) -> None:
        """Send what is queued, and close."""
        if self._out:
            self._flush()
        self._end(None)

    def abort(self) -> None:
        """Close at once."""
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        if not self._is_over:
            self._leave(error)
            at = max(self._arrives_at, self._loop.time()) + self._network.delay_seconds
            self._loop.call_at(at, self.other._leave, None, context=self.other._context)

    def _leave(self, error: BaseException | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._is_taken(self._under_way)
        if self._handler is not None:
            self._loop.call_soon(self._handler.on_closed, error, context=self._context)
