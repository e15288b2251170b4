"""A disk and files that forward every call to others: base classes for wrappers that change a few calls of a disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from viewstamp.host.interfaces import AsyncFile, Buffer, Disk, File, Lock, SerialExecutor

__all__ = ["ForwardingAsyncFile", "ForwardingDisk", "ForwardingFile"]

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class ForwardingFile(File):
    """Forwards every call to a file; see :class:`File`."""

    def __init__(self, file: File) -> None:
        self.path = file.path
        self._file = file

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset``."""
        return self._file.read(offset, size)

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write the buffers, one after the other."""
        self._file.write(offset, buffers)

    def sync_data(self) -> None:
        """Make the bytes durable."""
        self._file.sync_data()

    def sync(self) -> None:
        """Make bytes and length durable."""
        self._file.sync()

    def truncate(self, size: int) -> None:
        """Set the length."""
        self._file.truncate(size)

    def size(self) -> int:
        """Return the length in bytes."""
        return self._file.size()

    def close(self) -> None:
        """Close without syncing."""
        self._file.close()


class ForwardingAsyncFile(AsyncFile):
    """Forwards every call to a file for bulk work; see :class:`AsyncFile`."""

    def __init__(self, file: AsyncFile) -> None:
        self.path = file.path
        self._file = file

    async def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset``."""
        return await self._file.read(offset, size)

    async def write(self, offset: int, data: Buffer) -> None:
        """Write ``data``."""
        await self._file.write(offset, data)

    async def sync(self) -> None:
        """Make bytes and length durable."""
        await self._file.sync()

    async def size(self) -> int:
        """Return the length in bytes."""
        return await self._file.size()

    async def close(self) -> None:
        """Close without syncing."""
        await self._file.close()


class ForwardingDisk(Disk):
    """Forwards every call to a disk; see :class:`Disk`. It returns the files of that disk, not wrapped."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing."""
        return self._disk.open(path, create=create)

    def open_read(self, path: str) -> File:
        """Open for reading only."""
        return self._disk.open_read(path)

    async def open_async(self, path: str, *, create: bool = False) -> AsyncFile:
        """Open for bulk reading and writing."""
        return await self._disk.open_async(path, create=create)

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents if they are missing."""
        self._disk.make_directory(path)

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return self._disk.list_directory(path)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory has this name."""
        return self._disk.exists(path)

    def rename(self, source: str, target: str) -> None:
        """Replace ``target`` atomically."""
        self._disk.rename(source, target)

    def remove(self, path: str) -> None:
        """Remove a file's name."""
        self._disk.remove(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        self._disk.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        self._disk.sync_directory(path)

    def free_bytes(self, path: str) -> int:
        """Return the number of bytes that may still be written."""
        return self._disk.free_bytes(path)

    def uncache(self, path: str) -> None:
        """Give up the memory that caches a file."""
        self._disk.uncache(path)

    def filesystem(self, path: str) -> str:
        """Return the file system's type."""
        return self._disk.filesystem(path)

    def lock(self, directory: str) -> Lock:
        """Take the exclusive lock of a data directory."""
        return self._disk.lock(directory)

    def lock_holder(self, directory: str) -> str:
        """Return the holder of the lock of a data directory, as text."""
        return self._disk.lock_holder(directory)

    def executor(
        self,
        name: str,
        work: Callable[[list[ItemT]], ResultT],
        done: Callable[[list[ItemT], ResultT | BaseException], None],
    ) -> SerialExecutor[ItemT]:
        """Start an executor of the wrapped disk, whose work uses the files of this one."""
        return self._disk.executor(name, work, done)
