"""The interfaces to the outside world: clock, disk, network, entropy, boot id. Protocols only.

A node gets one :class:`Host` and reaches the outside world only through it. There is a real implementation
(``host/disk.py``, ``host/network.py``, ``host/clock.py``) and a simulated one (``viewstamp.sim``); both must pass the
suite in ``host/conformance.py``.

Timers are those of the event loop (``loop.call_later``), because the simulator has a loop whose time is simulated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from viewstamp.ids import CertificateName

if TYPE_CHECKING:
    from viewstamp.host.tls import Tls

__all__ = [
    "REMOVED_REMEDY",
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
    """Clocks for durations, which never jump, and the wall clock."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment; never goes back."""
        ...

    def uptime(self) -> float:
        """Return seconds since some fixed moment, including the time while the machine was suspended."""
        return self.monotonic()

    def wall_us(self) -> int:
        """Return microseconds since 1970, UTC; may jump."""
        ...


_ZEROS = memoryview(bytes(1024 * 1024))

REMOVED_REMEDY = (
    "stop whatever removes files of the data directory, and start the node again; without its files it joins anew"
)
"""The remedy if a file is missing that only this node should remove."""


class File(Protocol):
    """An open file. Every call blocks, and must not be made on the event loop, except in recovery at start.

    Every call raises StorageError (from the OSError), or StorageFullError if the space or the quota is used up.
    """

    path: str

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset``; fewer only at the end of the file."""
        ...

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all of ``buffers`` from ``offset`` on, in order, without joining them. Not durable before a sync."""
        ...

    def sync_data(self) -> None:
        """Make written bytes durable; sufficient only inside the file's length and allocated blocks (fdatasync)."""
        ...

    def sync(self) -> None:
        """Make bytes, length and block map durable (fsync). The *name* needs ``Disk.sync_directory`` too."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes, or lengthen it with a hole. Durable only after ``sync``."""
        ...

    def allocate(self, size: int) -> None:
        """Lengthen the file to ``size`` bytes, with allocated blocks that read as zeros. Durable only after ``sync``.

        This default writes the zeros; the real file has a quicker way on Linux.
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
    """An open file for bulk work without a deadline, for example snapshots, and never for the log.

    No call blocks the event loop. A cancelled call may have been carried out. Raises the errors of :class:`File`.
    """

    path: str

    async def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset``; fewer only at the end of the file."""
        ...

    async def write(self, offset: int, data: Buffer) -> None:
        """Write all of ``data`` from ``offset`` on. Not durable before a sync."""
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
    """The exclusive lock of a data directory.

    ``directory`` is its path. ``directory_id`` differs between a directory and every copy of it, and does not change
    if the directory is moved; "" = the disk has no such id.
    """

    directory: str
    directory_id: str

    def release(self) -> None:
        """Release the lock. Idempotent; the end of the process releases it too."""
        ...


class SerialExecutor(Protocol[ItemT_contra]):
    """Does work off the event loop, in the order of the calls of ``put``."""

    def put(self, item: ItemT_contra) -> None:
        """Queue ``item``. Never awaits, never blocks. After ``close`` the item is dropped."""
        ...

    async def close(self) -> None:
        """Work on all queued items, report them, and stop. Idempotent."""
        ...


class Disk(Protocol):
    """Files and names. Paths are absolute strings. Calls block, and raise the errors of :class:`File`."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. ``create`` makes a new empty file and fails if one exists.

        Raises:
          FileNotFoundError / FileExistsError: as the names say (these two are ordinary answers).
        """
        ...

    def open_read(self, path: str) -> File:
        """Open for reading only."""
        ...

    async def open_async(self, path: str, *, create: bool = False) -> AsyncFile:
        """Open for bulk reading and writing; ``create`` makes a new empty file and fails if one exists.

        Raises:
          FileNotFoundError / FileExistsError: as the names say.
        """
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents if they are missing; the names are durable on return."""
        ...

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; [] if it does not exist."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file or directory has this name."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Replace ``target`` atomically. Durable only after ``sync_directory``."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file's name. Durable only after ``sync_directory``."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; durable on return. Raises StorageError if it has names, or does not exist."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        ...

    def free_bytes(self, path: str) -> int:
        """Return the number of bytes that may still be written to the file system of ``path``."""
        ...

    def uncache(self, path: str) -> None:
        """Advise the operating system to give up the memory that caches a file. Its bytes stay as they are.

        Only written and synced bytes lose their copy in memory. This default does nothing, and no caller may rely on
        more: there is no error either, also if the file does not exist.
        """
        del path  # A disk without such memory has nothing to give up.

    def filesystem(self, path: str) -> str:
        """Return the file system's type, such as ``ext4`` or ``tmpfs``; "unknown" if it cannot be found."""
        ...

    def lock(self, directory: str) -> Lock:
        """Take the exclusive lock of a data directory.

        Raises:
          DirectoryInUseError: another process holds it; the message names the process.
        """
        ...

    def lock_holder(self, directory: str) -> str:
        """Return the holder of the lock of a data directory, as text; "" = none, or it is unknown. Does not lock.

        For callers that read the directory: while the lock is held, the files may change.
        """
        ...

    def executor(
        self,
        name: str,
        work: Callable[[list[ItemT]], ResultT],
        done: Callable[[list[ItemT], ResultT | BaseException], None],
    ) -> SerialExecutor[ItemT]:
        """Start an executor on the running event loop.

        ``work`` is called off the loop with *all* queued items, at least one; then ``done`` on the loop with
        the same items and the result or the error of ``work``. Calls of ``work`` never overlap; ``done`` is
        called in the order of ``work``. After ``work`` raised it is not called again: ``done`` is called with
        the same error for all later items (a failed sync is final).
        """
        ...


class Connection(Protocol):
    """One end of a byte stream. Owned by the event loop; no call blocks."""

    peer: str
    """The address of the other end, for log lines."""
    identity: CertificateName | None = None
    """The part of a cluster that the certificate of the other end names; set before the first byte arrives.

    None = the connection has no TLS, or the certificate names no part of a cluster, and so gives no right.
    """

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Queue ``buffers``, which must not change afterwards. Never awaits; after the end they are dropped."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """Bytes queued here and not yet passed to the OS. Back-pressure depends on it."""
        ...

    async def drain(self) -> None:
        """Wait until few bytes are unsent. Returns immediately if the connection is closed."""
        ...

    def pause_reading(self) -> None:
        """Deliver no more bytes until ``resume_reading``, except a few that were received already. Idempotent.

        It is a request: a connection inside one process may go on delivering, because the other side can be trusted.
        The end of the connection is reported at the latest after ``resume_reading``.
        """
        return

    def resume_reading(self) -> None:
        """Deliver bytes again. Idempotent."""
        return

    def close(self) -> None:
        """Send the queued bytes, then close. ``on_closed`` follows. Idempotent."""
        ...

    def abort(self) -> None:
        """Close immediately; the queued bytes are lost. ``on_closed`` follows. Idempotent."""
        ...


class ConnectionHandler(Protocol):
    """Receives the bytes and the end of a connection; called on the event loop."""

    def on_bytes(self, data: bytes) -> None:
        """Take the next bytes. An exception aborts the connection and is passed to ``on_closed``."""
        ...

    def on_closed(self, error: BaseException | None) -> None:
        """Take the end of the connection; ``error`` is None after an orderly close. Called exactly once, last."""
        ...


class Listener(Protocol):
    """A listening socket."""

    address: str
    """``host:port`` as bound; the real port if 0 was requested."""

    async def close(self) -> None:
        """Stop listening. Accepted connections stay open."""
        ...


class Network(Protocol):
    """Byte streams by address ``host:port``."""

    async def listen(self, address: str, accept: Callable[[Connection], ConnectionHandler]) -> Listener:
        """Listen; ``accept`` is called for each connection and returns its handler.

        Raises:
          ConfigError: the address is in use or is not of this machine; the message has the address and a remedy.
        """
        ...

    async def connect(self, address: str, accept: Callable[[Connection], ConnectionHandler]) -> Connection:
        """Connect; ``accept`` returns the handler before any byte arrives. Safe to cancel.

        Raises:
          OSError: no process listens there, or it cannot be reached.
        """
        ...


@dataclass(frozen=True, slots=True)
class Host:
    """The outside world of a node.

    ``entropy`` is the only source of randomness: the operating system's in a process, the seed's in the simulator.
    """

    clock: Clock
    disk: Disk
    network: Network
    entropy: random.Random
    chaos: Callable[[], list[dict[str, object]]] | None = None
    """Returns the injected faults (``host.chaos``), for the node's status; None = faults cannot be injected."""
    tls: Tls | None = None
    """The certificate of this process, which its network uses; None = connections have no TLS."""
    plain_network: Network | None = None
    """The network without TLS, for the health port; None = ``network`` has no TLS."""
    boot_id: Callable[[], str] = str
    """Returns an id of this run of the machine, because unsynced bytes survive its processes but not a power cut.

    "" = unknown (``host.clock``): then the machine may have lost power since any earlier moment."""
