"""A disk that passes each call to a test's hook first; the hook can skip the call, fail it or only observe it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from viewstamp.host.forwarding import ForwardingAsyncFile, ForwardingDisk, ForwardingFile
from viewstamp.host.interfaces import AsyncFile, Buffer, Disk, File

Hook = Callable[[str, str, str], bool]
"""Called before each disk call with its name, the path and the calling function.

The names of awaited calls begin with "async ". If it returns False, the call is skipped; only a skipped sync goes
unnoticed by the caller. The caller gets any error that the hook raises.
"""


class HookedDisk(ForwardingDisk):
    """Forwards every call for which the hook returns True."""

    def __init__(self, disk: Disk, hook: Hook, *, free_bytes: Callable[[int], int] = lambda free: free) -> None:
        """Wrap ``disk``; ``free_bytes`` maps the disk's free space to the value that is reported."""
        super().__init__(disk)
        self._hook = hook
        self._free_bytes = free_bytes

    def open(self, path: str, *, create: bool = False) -> File:
        self._hook("create" if create else "open", path, _caller())
        return _HookedFile(self._disk.open(path, create=create), self._hook)

    def open_read(self, path: str) -> File:
        self._hook("open_read", path, _caller())
        return _HookedFile(self._disk.open_read(path), self._hook)

    async def open_async(self, path: str, *, create: bool = False) -> AsyncFile:
        self._hook("async create" if create else "async open", path, _caller())
        return _HookedAsyncFile(await self._disk.open_async(path, create=create), self._hook)

    def make_directory(self, path: str) -> None:
        self._hook("make_directory", path, _caller())
        self._disk.make_directory(path)

    def rename(self, source: str, target: str) -> None:
        self._hook("rename", target, _caller())
        self._disk.rename(source, target)

    def remove(self, path: str) -> None:
        self._hook("remove", path, _caller())
        self._disk.remove(path)

    def sync_directory(self, path: str) -> None:
        if self._hook("sync_directory", path, _caller()):
            self._disk.sync_directory(path)

    def free_bytes(self, path: str) -> int:
        return self._free_bytes(self._disk.free_bytes(path))


class _HookedFile(ForwardingFile):
    def __init__(self, file: File, hook: Hook) -> None:
        super().__init__(file)
        self._hook = hook

    def read(self, offset: int, size: int) -> bytes:
        self._hook("read", self.path, _caller())
        return self._file.read(offset, size)

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        self._hook("write", self.path, _caller())
        self._file.write(offset, buffers)

    def sync_data(self) -> None:
        if self._hook("sync_data", self.path, _caller()):
            self._file.sync_data()

    def sync(self) -> None:
        if self._hook("sync", self.path, _caller()):
            self._file.sync()

    def truncate(self, size: int) -> None:
        self._hook("truncate", self.path, _caller())
        self._file.truncate(size)


class _HookedAsyncFile(ForwardingAsyncFile):
    def __init__(self, file: AsyncFile, hook: Hook) -> None:
        super().__init__(file)
        self._hook = hook

    async def read(self, offset: int, size: int) -> bytes:
        self._hook("async read", self.path, _caller())
        return await self._file.read(offset, size)

    async def write(self, offset: int, data: Buffer) -> None:
        self._hook("async write", self.path, _caller())
        await self._file.write(offset, data)

    async def sync(self) -> None:
        if self._hook("async sync", self.path, _caller()):
            await self._file.sync()


def _caller() -> str:
    """Return the name of the function that called the disk."""
    return sys._getframe(2).f_code.co_qualname
