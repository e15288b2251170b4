"""The seams to the outside world: clock, disk, network, entropy, boot id. Protocols only.

A node is handed one :class:`Host` and reaches the world through nothing else. There is a real
implementation (``host/disk.py``, ``host/network.py``, ``host/clock.py``) and a simulated one
(``viewstamp.sim``); ``host/conformance.py`` is the suite that both must pass.

Timers are the event loop's (``loop.call_later``): the simulator brings a loop whose time is simulated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

__all__ = [
    "AsyncFile",
    "Buffer",
    "Clock",
    "Connection",
    "ConnectionHandler",
    "Disk",
    "File",
    "Host",
    "Listener",
    "Lock",
    "Network",
    "SerialExecutor",
]

Buffer = bytes | bytearray | memoryview
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
ItemT_contra = TypeVar("ItemT_contra", contravariant=True)


class Clock(Protocol):
    """Clocks for durations, which never jump, and one that people read."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment; never goes back."""
        ...

    def uptime(self) -> float:
        """Return seconds since some fixed moment, those included for which the machine was suspended."""
        return self.monotonic()

    def wall_us(self) -> int:
        """Return microseconds since 1970, UTC; may jump."""
        ...


_ZEROS = memoryview(bytes(1024 * 1024))


class File(Protocol):
    """An open file. Every call blocks and belongs off the event loop, except in recovery at start.

    Raises everywhere: StorageError (from the OSError), StorageFullError when space or quota ran out.
    """

    path: str

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset``; fewer only at the end of the file."""
        ...

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all of ``buffers`` from ``offset`` on, in order, without joining them. To the OS, not to the device."""
        ...

    def sync_data(self) -> None:
        """Make written bytes durable; enough only inside the file's length and allocated blocks (fdatasync)."""
        ...

    def sync(self) -> None:
        """Make bytes, length and block map durable (fsync). The *name* needs ``Disk.sync_directory`` too."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes, or lengthen it with a hole. Durable only after ``sync``."""
        ...

    def allocate(self, size: int) -> None:
        """Lengthen the file to ``size`` bytes that read as zeros and have their place. Durable only after ``sync``.

        Where a file has no quicker way, by writing them.
        """
        end = self.size()
        while end < size:
            piece = _ZEROS[: size - end]
            self.write(end, [piece])
            end += len(piece)

    def size(self) -> int:
        """Return the length in bytes."""
        ...

    def close(self) -> None:
        """Close without syncing. Idempotent."""
        ...


class AsyncFile(Protocol):
    """An open file for bulk work that nobody waits for, such as snapshots: never for the log.

    Every call awaits without blocking the event loop. Cancelled, a call may have been carried out.
    Raises as :class:`File`.
    """

    path: str

    async def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset``; fewer only at the end of the file."""
        ...

    async def write(self, offset: int, data: Buffer) -> None:
        """Write all of ``data`` from ``offset`` on: to the OS, not to the device."""
        ...

    async def sync(self) -> None:
        """Make bytes and length durable (fsync). The *name* needs ``Disk.sync_directory`` too."""
        ...

    async def size(self) -> int:
        """Return the length in bytes."""
        ...

    async def close(self) -> None:
        """Close without syncing. Idempotent."""
        ...


class Lock(Protocol):
    """An exclusive hold on a data directory.

    ``directory`` is its path. ``directory_id`` tells it from every copy of it, and stays when it is moved; "" = the
    disk has no such thing.
    """

    directory: str
    directory_id: str

    def release(self) -> None:
        """Let go. Idempotent; the end of the process releases too."""
        ...


class SerialExecutor(Protocol[ItemT_contra]):
    """Work that happens off the event loop, in the order in which it was put."""

    def put(self, item: ItemT_contra) -> None:
        """Queue ``item``. Never awaits, never blocks. After ``close`` the item is dropped."""
        ...

    async def close(self) -> None:
        """Finish what is queued, report it, and stop. Idempotent."""
        ...


class Disk(Protocol):
    """Files and names. Paths are absolute strings. Calls block; see :class:`File` for what is raised."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. ``create`` makes a new empty file and fails where one exists.

        Raises:
          FileNotFoundError / FileExistsError: as the names say (these two are ordinary answers).
        """
        ...

    def open_read(self, path: str) -> File:
        """Open for reading only."""
        ...

    async def open_async(self, path: str, *, create: bool = False) -> AsyncFile:
        """Open for bulk reading and writing; ``create`` makes a new empty file and fails where one exists.

        Raises:
          FileNotFoundError / FileExistsError: as the names say.
        """
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents where missing; the names are durable on return."""
        ...

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; [] where there is none."""
        ...

    def exists(self, path: str) -> bool:
        """Say whether a file or directory has this name."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Replace ``target`` atomically. Durable only after ``sync_directory``."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file's name. Durable only after ``sync_directory``."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        ...

    def free_bytes(self, path: str) -> int:
        """Return how many bytes may still be written where ``path`` is."""
        ...

    def filesystem(self, path: str) -> str:
        """Return the file system's type, such as ``ext4`` or ``tmpfs``; "unknown" where it cannot be told."""
        ...

    def lock(self, directory: str) -> Lock:
        """Take the exclusive lock of a data directory.

        Raises:
          DirectoryInUseError: somebody holds it; the message says which process.
        """
        ...

    def lock_holder(self, directory: str) -> str:
        """Return who holds the lock of a data directory, for people; "" = nobody, or it cannot be told. Takes nothing.

        A caller that reads the directory learns by it that what it reads may change.
        """
        ...

    def executor(
        self,
        name: str,
        work: Callable[[list[ItemT]], ResultT],
        done: Callable[[list[ItemT], ResultT | BaseException], None],
    ) -> SerialExecutor[ItemT]:
        """Start an executor on the running event loop.

        ``work`` is called off the loop with *everything* that is queued, at least one item; then ``done``
        on the loop with the same items and what ``work`` returned or raised. Calls to ``work`` never
        overlap; ``done`` comes in the order of ``work``. After ``work`` raised it is not called again:
        ``done`` is called with the same error for all that follows (a failed sync is final).
        """
        ...


class Connection(Protocol):
    """One end of a byte stream. Owned by the event loop; no call blocks."""

    peer: str
    """The address of the other end, for people."""

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Queue ``buffers`` (they must not change afterwards). Never awaits; dropped silently once closed."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """Bytes queued here and not yet taken by the OS: what back-pressure looks at."""
        ...

    async def drain(self) -> None:
        """Wait until little is unsent. Returns at once when closed."""
        ...

    def close(self) -> None:
        """Send what is queued, then close. ``on_closed`` follows. Idempotent."""
        ...

    def abort(self) -> None:
        """Close at once; what is queued is lost. ``on_closed`` follows. Idempotent."""
        ...


class ConnectionHandler(Protocol):
    """What hears a connection; called on the event loop."""

    def on_bytes(self, data: bytes) -> None:
        """Take the next bytes. An exception aborts the connection and comes back in ``on_closed``."""
        ...

    def on_closed(self, error: BaseException | None) -> None:
        """The connection has ended, for ``error`` if it was no orderly close. Called exactly once, last."""
        ...


class Listener(Protocol):
    """A listening socket."""

    address: str
    """``host:port`` as bound; the real port where 0 was asked for."""

    async def close(self) -> None:
        """Stop listening. Accepted connections live on."""
        ...


class Network(Protocol):
    """Byte streams by address ``host:port``."""

    async def listen(self, address: str, accept: Callable[[Connection], ConnectionHandler]) -> Listener:
        """Listen; ``accept`` is called for each connection and returns its handler.

        Raises:
          ConfigError: the address is in use or is not ours; the message says which and what to do.
        """
        ...

    async def connect(self, address: str, accept: Callable[[Connection], ConnectionHandler]) -> Connection:
        """Connect; ``accept`` returns the handler before any byte arrives. Safe to cancel.

        Raises:
          OSError: nobody answers there.
        """
        ...


@dataclass(frozen=True, slots=True)
class Host:
    """Everything that a node stands on.

    ``entropy`` is the only source of randomness: the operating system's in a process, the seed's in the simulator.
    """

    clock: Clock
    disk: Disk
    network: Network
    entropy: random.Random
    chaos: Callable[[], list[dict[str, object]]] | None = None
    """Says which faults are made on purpose (``host.chaos``), for the node's status; None = none can be."""
    boot_id: Callable[[], str] = str
    """Returns which life of the machine this is, because unsynced bytes survive its processes and not the machine.

    "" = unknown (``host.boot``): then the machine may have lost power since any earlier moment."""
