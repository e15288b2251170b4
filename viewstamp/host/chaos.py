"""Injected faults in a running node: a network and a disk that read their faults from a file in the data directory.

They are for experiments with real processes, sockets and files, and exist only in nodes with ``[node] chaos = true``,
as ``viewstamp cluster start`` writes it. Nothing outside the node changes: no firewall, no other process, and the real
free space is not used up.

The file, ``chaos.json`` beside the node's log, is a JSON list of faults. The event loop reads it four times a second
if it has changed, and for each request of the node's status. Without the file there are no faults.

| fault       | fields                   | effect                                                                   |
| ----------- | ------------------------ | ------------------------------------------------------------------------ |
| `partition` | peers: node to address   | connections to the peers are cut, and new ones are refused               |
| `delay`     | peers, milliseconds      | messages to the peers arrive this much later, in their order             |
| `slow-disk` | milliseconds             | every sync takes this much longer                                        |
| `fill-disk` |                          | 16 MiB are free, until files have grown by that; then none               |

``until``, seconds since 1970, is the end of a fault; 0 = the fault lasts until it is removed from the file.

A member sends messages to a peer over a connection that the member opens. So one file cuts one direction, and the
peer's file cuts the other one.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Final

from viewstamp.enums import fast_members
from viewstamp.errors import ConfigError, StorageError, StorageFullError
from viewstamp.host.blocking import in_thread
from viewstamp.host.forwarding import ForwardingAsyncFile, ForwardingDisk, ForwardingFile
from viewstamp.host.interfaces import (
    AsyncFile,
    Buffer,
    Connection,
    ConnectionHandler,
    Disk,
    File,
    Host,
    Listener,
    Network,
)

__all__ = ["Chaos", "ChaosDisk", "ChaosNetwork", "Fault", "FaultKind", "read_faults", "write_faults"]

Accept = Callable[[Connection], ConnectionHandler]

_LOOK_SECONDS: Final = 0.25
_FULL_BYTES: Final = 16 * 1024 * 1024
"""Free bytes at the start of ``fill-disk``. Not 0, because real disks fill slowly, and a node checks its reserve."""
_TIMER_SECONDS: Final = 0.0005
"""Delayed bytes are sent up to this early, because timers of the event loop count in milliseconds."""
_NAP_SECONDS: Final = 0.02
"""Interval in which a delayed sync checks whether the fault has ended."""


@fast_members
class FaultKind(StrEnum):
    """The names of faults in the file."""

    PARTITION = "partition"
    DELAY = "delay"
    SLOW_DISK = "slow-disk"
    FILL_DISK = "fill-disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One injected fault; see the module's table."""

    kind: str
    peers: Mapping[str, str] = field(default_factory=dict)
    """Node to address, of the peers that this node cannot reach, or reaches late."""
    milliseconds: int = 0
    until: float = 0.0
    """Seconds since 1970; 0 = no end."""


def _path(directory: str) -> str:
    return os.path.join(directory, "chaos.json")


def read_faults(directory: str) -> list[Fault]:
    """Return the faults of a node's data directory that have not ended; [] without a file. Blocks.

    Raises:
      ConfigError: the file is not a list of faults.
    """
    path = _path(directory)
    try:
        with open(path, encoding="utf-8") as stream:
            faults = [Fault(**each) for each in json.load(stream)]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{path} is not a list of faults: {error}", remedy="remove the file") from error
    return _lasting(faults)


def write_faults(directory: str, faults: Sequence[Fault]) -> None:
    """Replace the faults in a node's data directory; an empty list removes the file. Blocks.

    Raises:
      StorageError: the directory cannot be written.
    """
    path = _path(directory)
    try:
        if not faults:
            with suppress(FileNotFoundError):
                os.remove(path)
            return
        with open(path + ".new", "w", encoding="utf-8") as stream:
            json.dump([asdict(fault) for fault in faults], stream)
        os.rename(path + ".new", path)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror}", remedy="give this user the right to write there"
        ) from error


def _lasting(faults: Iterable[Fault]) -> list[Fault]:
    now = time.time()
    return [fault for fault in faults if not fault.until or fault.until > now]


class Chaos:
    """The present faults of one node, and the host that causes them. Belongs to the running event loop.

    Invariants:
      * ``faults`` is replaced as a whole, because threads of the disk read it without a lock
      * a file that cannot be read is treated as missing
    """

    def __init__(self, directory: str, host: Host) -> None:
        """Wrap ``host`` for the node whose data is in ``directory``, and read the file."""
        self.faults: tuple[Fault, ...] = ()
        self._directory = directory
        self._network = ChaosNetwork(host.network, self)
        disk = ChaosDisk(host.disk, self)
        self.host = replace(host, disk=disk, network=self._network, chaos=self.describe)
        self._seen: tuple[int, ...] = ()
        self._growing = threading.Lock()
        self._grown = 0
        """Bytes by which files have grown since ``fill-disk`` began."""
        self._timer: asyncio.TimerHandle | None = None
        self._on_time()

    def stop(self) -> None:
        """Stop reading the file; the present faults last. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()

    def describe(self) -> list[dict[str, object]]:
        """Return the faults for the node's status. Reads the file first, so that a change of it is visible."""
        self._look()
        return [
            {"fault": fault.kind, "peers": sorted(fault.peers), "ms": fault.milliseconds, "until": fault.until}
            for fault in self.faults
        ]

    @property
    def blocked(self) -> set[str]:
        """The addresses that this node cannot reach."""
        cuts = (fault for fault in self.faults if fault.kind == FaultKind.PARTITION)
        return {address for fault in cuts for address in fault.peers.values()}

    @property
    def sync_seconds(self) -> float:
        """Seconds by which each sync is delayed."""
        return sum(fault.milliseconds for fault in self.faults if fault.kind == FaultKind.SLOW_DISK) / 1000

    def delay_to(self, address: str) -> float:
        """Return the seconds by which messages to an address are delayed."""
        delays = (fault for fault in self.faults if fault.kind == FaultKind.DELAY)
        return sum(fault.milliseconds for fault in delays if address in fault.peers.values()) / 1000

    @property
    def is_full(self) -> bool:
        """Whether the disk has no room."""
        return any(fault.kind == FaultKind.FILL_DISK for fault in self.faults)

    @property
    def free_bytes(self) -> int:
        """Free bytes while ``fill-disk`` lasts."""
        return _FULL_BYTES - self._grown

    def grow(self, path: str, size: int) -> None:
        """Count ``size`` bytes by which a file grows. Raises StorageFullError if they are not free."""
        with self._growing:  # Several threads of the disk may call this at the same time.
            if size > self.free_bytes:
                raise StorageFullError(
                    f"cannot write {path}: {os.strerror(errno.ENOSPC)} (viewstamp chaos fill-disk)",
                    remedy="run viewstamp chaos heal, and start the node again",
                )
            self._grown += size

    def _on_time(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._on_time)
        self._look()

    def _look(self) -> None:
        try:
            found = os.stat(_path(self._directory))
            seen: tuple[int, ...] = (found.st_ino, found.st_mtime_ns, found.st_size)
        except OSError:
            seen = ()
        faults: Sequence[Fault] = self.faults
        if seen != self._seen:
            self._seen = seen
            faults = []
            with suppress(ConfigError):
                faults = read_faults(self._directory)
        lasting = tuple(_lasting(faults))
        if lasting != self.faults:
            if not self.is_full:
                self._grown = 0
            self.faults = lasting
            self._network.cut()


class ChaosNetwork(Network):
    """A network that cannot reach some addresses, or reaches them late. Connections *to* this node are not affected."""

    def __init__(self, network: Network, chaos: Chaos) -> None:
        self._network = network
        self._chaos = chaos
        self._opened: dict[_LateConnection, str] = {}
        """The open connections that this node has opened, with their addresses."""

    async def listen(self, address: str, accept: Accept) -> Listener:
        """Listen; see :class:`Network`."""
        return await self._network.listen(address, accept)

    async def connect(self, address: str, accept: Accept) -> Connection:
        """Connect; see :class:`Network`."""
        self._check(address)

        made: list[_LateConnection] = []

        def watched(connection: Connection) -> ConnectionHandler:
            late = _LateConnection(connection, partial(self._chaos.delay_to, address))
            made.append(late)
            handler = accept(late)
            self._opened[late] = address
            return _Watched(handler, late, lambda: self._opened.pop(late, None))

        await self._network.connect(address, watched)
        (connection,) = made
        if address in self._chaos.blocked:
            connection.abort()
            self._check(address)
        return connection

    def cut(self) -> None:
        """End the connections to addresses that this node cannot reach any more."""
        blocked = self._chaos.blocked
        for connection, address in list(self._opened.items()):
            if address in blocked:
                connection.abort()

    def _check(self, address: str) -> None:
        if address in self._chaos.blocked:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{address} is cut off (viewstamp chaos partition)")


class _LateConnection(Connection):
    """A connection whose bytes leave late while a delay is in force: all of them, in their order, before it closes.

    Bytes that wait here do not count as unsent, because they stand for bytes on their way to a distant node, which the
    system has taken.
    """

    def __init__(self, connection: Connection, seconds: Callable[[], float]) -> None:
        self.peer = connection.peer
        self._connection = connection
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[float, Sequence[Buffer]]] = deque()
        """The time at which each buffer is due, on the loop's clock, and the buffer."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_closing = False

    def send(self, buffers: Sequence[Buffer]) -> None:
        if self._is_closing:
            return
        seconds = self._seconds()
        if not self._waiting and not seconds:
            self._connection.send(buffers)
            return
        due = self._loop.time() + seconds
        if self._waiting:
            due = max(due, self._waiting[-1][0])
        self._waiting.append((due, buffers))
        if self._timer is None:
            self._timer = self._loop.call_at(due, self._on_due)

    def _on_due(self) -> None:
        self._timer = None
        now = self._loop.time() + _TIMER_SECONDS
        while self._waiting and self._waiting[0][0] <= now:
            self._connection.send(self._waiting.popleft()[1])
        if self._waiting:
            self._timer = self._loop.call_at(self._waiting[0][0], self._on_due)
        elif self._is_closing:
            self._connection.close()

    @property
    def unsent_bytes(self) -> int:
        return self._connection.unsent_bytes

    async def drain(self) -> None:
        await self._connection.drain()

    def close(self) -> None:
        self._is_closing = True
        if not self._waiting:
            self._connection.close()

    def abort(self) -> None:
        self.drop()
        self._connection.abort()

    def drop(self) -> None:
        """Drop the waiting bytes, because the connection has ended."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Watched:
    """A handler that also drops the waiting bytes of its connection at the end, and calls ``on_end``."""

    def __init__(self, handler: ConnectionHandler, late: _LateConnection, on_end: Callable[[], object]) -> None:
        self.on_bytes = handler.on_bytes
        self._handler = handler
        self._late = late
        self._on_end = on_end

    def on_closed(self, error: BaseException | None) -> None:
        self._late.drop()
        self._on_end()
        self._handler.on_closed(error)


class _ChaosFile(ForwardingFile):
    """A file on a disk that may be slow or full."""

    def __init__(self, file: File, chaos: Chaos) -> None:
        super().__init__(file)
        self._chaos = chaos

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        if self._chaos.is_full and (growth := offset + sum(map(len, buffers)) - self._file.size()) > 0:
            self._chaos.grow(self.path, growth)
        super().write(offset, buffers)

    def allocate(self, size: int) -> None:
        if self._chaos.is_full and (growth := size - self._file.size()) > 0:
            self._chaos.grow(self.path, growth)
        self._file.allocate(size)

    def sync_data(self) -> None:
        _hold(self._chaos)
        super().sync_data()

    def sync(self) -> None:
        _hold(self._chaos)
        super().sync()


class _ChaosAsyncFile(ForwardingAsyncFile):
    """A file for bulk work on a disk that may be slow or full."""

    def __init__(self, file: AsyncFile, chaos: Chaos) -> None:
        super().__init__(file)
        self._chaos = chaos

    async def write(self, offset: int, data: Buffer) -> None:
        if self._chaos.is_full and (growth := offset + len(data) - await self._file.size()) > 0:
            self._chaos.grow(self.path, growth)
        await super().write(offset, data)

    async def sync(self) -> None:
        await in_thread(_hold, self._chaos)
        await super().sync()


def _hold(chaos: Chaos) -> None:
    """Delay a sync by ``chaos.sync_seconds``. Called in a thread of the disk."""
    end = time.monotonic() + chaos.sync_seconds
    while chaos.sync_seconds and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _NAP_SECONDS))


class ChaosDisk(ForwardingDisk):
    """A disk whose syncs may be slow, and that may be full. Reads, names and locks are not affected."""

    def __init__(self, disk: Disk, chaos: Chaos) -> None:
        super().__init__(disk)
        self._chaos = chaos

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; see :class:`Disk`."""
        return _ChaosFile(super().open(path, create=create), self._chaos)

    async def open_async(self, path: str, *, create: bool = False) -> AsyncFile:
        """Open for bulk reading and writing."""
        return _ChaosAsyncFile(await super().open_async(path, create=create), self._chaos)

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        _hold(self._chaos)
        super().sync_directory(path)

    def free_bytes(self, path: str) -> int:
        """Return the number of bytes that may still be written."""
        return self._chaos.free_bytes if self._chaos.is_full else super().free_bytes(path)
