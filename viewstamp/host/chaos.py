"""Faults on purpose, in a node that runs: a network and a disk that obey a small file in the node's data directory.

A door for trying things out, which only nodes have that were started with it (``[node] chaos = true``, as
``viewstamp cluster start`` writes it): real processes, real sockets, real files. Nothing outside is touched: no
firewall, no other process, and a disk that is "full" has as much room as before.

The file, ``chaos.json`` beside the node's log, is JSON: a list of faults. It is looked at four times a second,
by the event loop, and whenever somebody asks for the node's status; where there is none, nothing is done.

| fault       | fields                   | while it lasts                                                           |
| ----------- | ------------------------ | ------------------------------------------------------------------------ |
| `partition` | peers: node to address   | connections to the peers are cut, and none comes about                   |
| `slow-disk` | milliseconds             | every sync takes so much longer                                          |
| `fill-disk` |                          | 16 MiB are free, less what files have become longer since; then none     |

``until``, seconds since 1970, ends a fault by itself; 0 = only when it is taken out of the file.

A member's messages to a peer go over a connection that the member opens. So one file cuts one direction; the other
one is cut by the peer's own file.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
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
"""What a full disk has: disks fill by and by, and who leaves a reserve alone is to notice before the last byte."""
_NAP_SECONDS: Final = 0.02
"""A sync that is held looks this often whether it still has to be."""


@fast_members
class FaultKind(StrEnum):
    """The names of faults, as they stand in the file."""

    PARTITION = "partition"
    SLOW_DISK = "slow-disk"
    FILL_DISK = "fill-disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is done to a node; the module's table says what."""

    kind: str
    peers: Mapping[str, str] = field(default_factory=dict)
    """Node to address: who is not reached."""
    milliseconds: int = 0
    until: float = 0.0
    """Seconds since 1970; 0 = without an end."""


def _path(directory: str) -> str:
    return os.path.join(directory, "chaos.json")


def read_faults(directory: str) -> list[Fault]:
    """Return the faults of a node's data directory that have not ended; [] where there is no file. Blocks.

    Raises:
      ConfigError: the file is none of ours.
    """
    path = _path(directory)
    try:
        with open(path, encoding="utf-8") as stream:
            faults = [Fault(**each) for each in json.load(stream)]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{path} holds no list of faults: {error}", remedy="remove it") from error
    return _lasting(faults)


def write_faults(directory: str, faults: Sequence[Fault]) -> None:
    """Put ``faults`` in the place of those in a node's data directory; none = remove the file. Blocks.

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
        raise StorageError(f"cannot write {path}: {error.strerror}", remedy="let this user write there") from error


def _lasting(faults: Iterable[Fault]) -> list[Fault]:
    now = time.time()
    return [fault for fault in faults if not fault.until or fault.until > now]


class Chaos:
    """What is done to one node at present, and the host that does it. Belongs to the running event loop.

    Invariants:
      * ``faults`` is replaced as a whole: threads of the disk read it without a lock
      * a file that cannot be read counts as none
    """

    def __init__(self, directory: str, host: Host) -> None:
        """Stand before ``host``, for the node whose data is in ``directory``. Reads the file once, at once."""
        self.faults: tuple[Fault, ...] = ()
        self._directory = directory
        self._network = ChaosNetwork(host.network, self)
        disk = ChaosDisk(host.disk, self)
        self.host = replace(host, disk=disk, network=self._network, chaos=self.describe)
        self._seen: tuple[int, ...] = ()
        self._growing = threading.Lock()
        self._grown = 0
        """By how much files have become longer since the disk is full."""
        self._timer: asyncio.TimerHandle | None = None
        self._on_time()

    def stop(self) -> None:
        """Look at the file no more; what is done goes on being done. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()

    def describe(self) -> list[dict[str, object]]:
        """Return what is done, for people who look at the node's status: they see what they have just asked for."""
        self._look()
        return [
            {"fault": fault.kind, "peers": sorted(fault.peers), "ms": fault.milliseconds, "until": fault.until}
            for fault in self.faults
        ]

    @property
    def blocked(self) -> set[str]:
        """The addresses that are not reached."""
        return {address for fault in self.faults for address in fault.peers.values()}

    @property
    def sync_seconds(self) -> float:
        """How much longer a sync takes."""
        return sum(fault.milliseconds for fault in self.faults) / 1000

    @property
    def is_full(self) -> bool:
        """Whether the disk has no room."""
        return any(fault.kind == FaultKind.FILL_DISK for fault in self.faults)

    @property
    def free_bytes(self) -> int:
        """What a full disk has left."""
        return _FULL_BYTES - self._grown

    def grow(self, path: str, size: int) -> None:
        """Make a file ``size`` bytes longer, as far as this goes. Raises StorageFullError where there is no room."""
        with self._growing:  # The disk's threads come here, several at once.
            if size > self.free_bytes:
                raise StorageFullError(
                    f"cannot write {path}: {os.strerror(errno.ENOSPC)} (viewstamp chaos fill-disk)",
                    remedy="viewstamp chaos heal, and start the node again",
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
    """A network that does not reach some addresses. Who connects *to* this node is not its business."""

    def __init__(self, network: Network, chaos: Chaos) -> None:
        self._network = network
        self._chaos = chaos
        self._opened: dict[Connection, str] = {}
        """The open connections that this node has opened, and to where."""

    async def listen(self, address: str, accept: Accept) -> Listener:
        """Listen; see :class:`Network`."""
        return await self._network.listen(address, accept)

    async def connect(self, address: str, accept: Accept) -> Connection:
        """Connect; see :class:`Network`."""
        self._check(address)

        def watched(connection: Connection) -> ConnectionHandler:
            handler = accept(connection)
            self._opened[connection] = address
            return _Watched(handler, lambda: self._opened.pop(connection, None))

        connection = await self._network.connect(address, watched)
        if address in self._chaos.blocked:
            connection.abort()
            self._check(address)
        return connection

    def cut(self) -> None:
        """End the connections to where this node does not reach any more."""
        blocked = self._chaos.blocked
        for connection, address in list(self._opened.items()):
            if address in blocked:
                connection.abort()

    def _check(self, address: str) -> None:
        if address in self._chaos.blocked:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{address} is cut off (viewstamp chaos partition)")


class _Watched:
    """A handler whose connection's end somebody else wants to hear of, too."""

    def __init__(self, handler: ConnectionHandler, on_end: Callable[[], object]) -> None:
        self.on_bytes = handler.on_bytes
        self._handler = handler
        self._on_end = on_end

    def on_closed(self, error: BaseException | None) -> None:
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
    """Let a sync take as long as it shall. In a thread of the disk's."""
    end = time.monotonic() + chaos.sync_seconds
    while chaos.sync_seconds and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _NAP_SECONDS))


class ChaosDisk(ForwardingDisk):
    """A disk whose syncs may take long, and that may have no room. Reads, names and locks are as they are."""

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
        """Return how many bytes may still be written."""
        return self._chaos.free_bytes if self._chaos.is_full else super().free_bytes(path)
