"""The real disk: files, names, locks and writer threads of the operating system.

Bulk work without a deadline (snapshots) uses aiofiles, on the threads of the event loop's executor; the log never does.

Only Linux is tested. The alternatives for macOS (``F_FULLFSYNC``, no ``fdatasync``, ``pwritev``, ``posix_fallocate``)
are here too, and are **untested**.

Every OSError is raised as StorageError, or as StorageFullError if the space or the quota is used up. Only
FileNotFoundError and FileExistsError of :meth:`RealDisk.open` are raised unchanged, because they are ordinary answers.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, TypeVar

import aiofiles
from aiofiles.threadpool.binary import AsyncFileIO

from viewstamp.errors import DirectoryInUseError, StorageError, StorageFullError
from viewstamp.host.blocking import in_thread, to_the_end
from viewstamp.host.executor import ThreadExecutor
from viewstamp.host.interfaces import REMOVED_REMEDY, AsyncFile, Buffer, File, Lock, SerialExecutor
from viewstamp.host.private import DIRECTORY_MODE, open_private

__all__ = ["RealAsyncFile", "RealDisk", "RealFile", "RealLock", "directory_id", "disk_bytes"]

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

_BUFFERS_MAX = 1000
"""Buffers in one ``pwritev``: a little under the kernel's limit of 1,024 (IOV_MAX)."""

_SWITCH_INTERVAL = 0.0005
"""Seconds after which a running thread must release the interpreter. The default, 5 ms, is longer than many syncs, and
the writer thread would wait that long for a busy loop each time."""

_LOCK_NAME = "lock"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_DESCRIPTOR = {errno.EMFILE: "this process", errno.ENFILE: "this machine"}
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_HAS_PWRITEV = hasattr(os, "pwritev")
_HAS_ALLOCATE = hasattr(os, "posix_fallocate")
_HAS_ADVICE = hasattr(os, "posix_fadvise")


@contextmanager
def _storage(action: str, path: str) -> Iterator[None]:
    """Raise an OSError as viewstamp's error, with a remedy."""
    try:
        yield
    except OSError as error:
        raise _storage_error(action, path, error) from error


def _storage_error(action: str, path: str, error: OSError) -> StorageError:
    text = f"cannot {action} {path}: {error.strerror or error}"
    if error.errno in _FULL:
        return StorageFullError(
            text, remedy="free space, or raise the quota of the data directory; start the node again if it has stopped"
        )
    if error.errno in _NO_DESCRIPTOR:
        text = f"cannot {action} {path}: {_NO_DESCRIPTOR[error.errno]} has no file descriptor left"
        return StorageError(text, remedy="raise the limit (ulimit -n, LimitNOFILE=, fs.file-max), then start it again")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(text, remedy="give this user the right to write there, or set another [node] data_dir")
    if error.errno == errno.ENOENT:
        return StorageError(text, remedy=REMOVED_REMEDY)
    return StorageError(text, remedy="check the device (kernel log, SMART) before this node is started again")


def _sync(descriptor: int) -> None:
    if _FULL_SYNC is not None:
        fcntl.fcntl(descriptor, _FULL_SYNC)  # fsync on macOS does not empty the device's cache
    else:
        os.fsync(descriptor)


class RealFile:
    """A file descriptor. See :class:`viewstamp.host.interfaces.File` for the contract."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset``; fewer only at the end of the file."""
        with _storage("read", self.path):
            data = os.pread(self._descriptor, size, offset)
            if len(data) == size or not data:
                return data
            parts = [data]
            held = len(data)
            while held < size and (data := os.pread(self._descriptor, size - held, offset + held)):
                parts.append(data)
                held += len(data)
            return b"".join(parts)

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all of ``buffers`` from ``offset`` on, unjoined."""
        try:
            for start in range(0, len(buffers), _BUFFERS_MAX):
                part = buffers[start : start + _BUFFERS_MAX]
                wanted = sum(map(len, part))
                written = _write(self._descriptor, part, offset)
                while written < wanted:
                    # A short write: on a full disk the next write raises the error; after a signal it continues.
                    written += _write(self._descriptor, _after(part, written), offset + written)
                offset += wanted
        except OSError as error:
            raise _storage_error("write", self.path, error) from error

    def sync_data(self) -> None:
        """Make written bytes durable (fdatasync)."""
        try:
            if sys.platform == "linux":
                os.fdatasync(self._descriptor)
            else:
                _sync(self._descriptor)
        except OSError as error:
            raise _storage_error("sync", self.path, error) from error

    def sync(self) -> None:
        """Make bytes, length and block map durable (fsync)."""
        with _storage("sync", self.path):
            _sync(self._descriptor)

    def truncate(self, size: int) -> None:
        """Cut to ``size`` bytes, or lengthen with a hole."""
        with _storage("truncate", self.path):
            os.ftruncate(self._descriptor, size)

    def allocate(self, size: int) -> None:
        """Lengthen to ``size`` bytes by allocated blocks, which read as zeros, or else by writing zeros."""
        if not _HAS_ALLOCATE:
            File.allocate(self, size)
            return
        with _storage("allocate", self.path):
            os.posix_fallocate(self._descriptor, 0, size)

    def size(self) -> int:
        """Return the length in bytes."""
        with _storage("measure", self.path):
            return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close without syncing. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            # An error of close() does not matter, because the bytes that had to be durable were synced before.
            with suppress(OSError):
                os.close(descriptor)


class RealAsyncFile:
    """A file of aiofiles, unbuffered. See :class:`viewstamp.host.interfaces.AsyncFile` for the contract.

    Calls take turns, and each runs to its end even if it is cancelled, because a thread that still writes while
    another one closes the file could write into the next file that gets the same descriptor.
    """

    __slots__ = ("_file", "_is_open", "_offset", "_turn", "path")

    def __init__(self, path: str, file: AsyncFileIO) -> None:
        self.path = path
        self._file = file
        self._is_open = True
        self._offset = 0
        """The file's own offset; -1 = unknown."""
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, path: str, *, create: bool) -> RealAsyncFile:
        """Open for reading and writing. If cancelled, no file stays open, but a created file is not removed."""
        opened: list[AsyncFileIO] = []

        async def work() -> None:
            mode: Literal["x+b", "r+b"] = "x+b" if create else "r+b"
            opened.append(await aiofiles.open(path, mode, buffering=0, opener=open_private))

        try:
            await to_the_end(work())
        except asyncio.CancelledError:
            for file in opened:
                await file.close()
            raise
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            raise _storage_error("open", path, error) from error
        return cls(path, opened[0])

    async def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset``; fewer only at the end of the file."""
        return await self._do("read", self._read(offset, size))

    async def write(self, offset: int, data: Buffer) -> None:
        """Write all of ``data`` from ``offset`` on. Not durable before a sync."""
        await self._do("write", self._write(offset, data))

    async def sync(self) -> None:
        """Make bytes and length durable (fsync)."""
        await self._do("sync", self._sync())

    async def size(self) -> int:
        """Return the length in bytes."""
        return await self._do("measure", self._size())

    async def close(self) -> None:
        """Close without syncing. Idempotent."""

        async def work() -> None:
            async with self._turn:
                if self._is_open:
                    self._is_open = False
                    with suppress(OSError):
                        await self._file.close()

        await to_the_end(work())

    async def _do(self, action: str, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        async def in_turn() -> ResultT:
            async with self._turn:
                if not self._is_open:
                    work.close()
                    raise StorageError(f"cannot {action} {self.path}: the file is closed")
                with _storage(action, self.path):
                    return await work

        return await to_the_end(in_turn())

    async def _seek(self, offset: int) -> None:
        if self._offset != offset:
            self._offset = -1
            await self._file.seek(offset)

    async def _read(self, offset: int, size: int) -> bytes:
        parts: list[bytes] = []
        await self._seek(offset)
        self._offset = -1
        while size and (data := await self._file.read(size)):
            parts.append(data)
            offset, size = offset + len(data), size - len(data)
        self._offset = offset
        return b"".join(parts)

    async def _write(self, offset: int, data: Buffer) -> None:
        view = memoryview(data)
        await self._seek(offset)
        self._offset = -1
        while view:
            written = await self._file.write(view)  # May be short on a full disk: then the next write raises the error.
            offset, view = offset + written, view[written:]
        self._offset = offset

    async def _sync(self) -> None:
        await in_thread(_sync, self._file.fileno())

    async def _size(self) -> int:
        return (await in_thread(os.fstat, self._file.fileno())).st_size


def _write(descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
    if _HAS_PWRITEV:
        return os.pwritev(descriptor, buffers, offset)
    return os.pwrite(descriptor, b"".join(buffers), offset)


def _after(buffers: Sequence[Buffer], skip: int) -> list[Buffer]:
    """Return the rest of ``buffers`` after the first ``skip`` bytes."""
    rest: list[Buffer] = []
    for buffer in buffers:
        if skip >= len(buffer):
            skip -= len(buffer)
        else:
            rest.append(memoryview(buffer)[skip:])
            skip = 0
    return rest


def _holder(descriptor: int) -> str:
    return f"process {os.pread(descriptor, 32, 0).decode('ascii', 'replace').strip() or 'unknown'}"


def disk_bytes(path: str) -> int:
    """Return the size of the file system that holds ``path``, or will hold it if it does not exist yet. Blocks."""
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    with _storage("ask for the size of", path):
        answer = os.statvfs(path)
        return answer.f_blocks * answer.f_frsize


def directory_id(path: str) -> str:
    """Return a directory's device and inode numbers: no copy has the same, and moving the directory keeps them.

    Raises:
      OSError: it does not exist.
    """
    found = os.stat(path)
    return f"{found.st_dev}:{found.st_ino}"


class RealLock:
    """A ``flock`` on the file ``lock`` of a data directory, with the holder's process id in it."""

    def __init__(self, descriptor: int, directory: str) -> None:
        self._descriptor = descriptor
        self.directory = os.path.abspath(directory)
        self.directory_id = directory_id(directory)

    def release(self) -> None:
        """Release the lock. Idempotent; the end of the process releases it too."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class RealDisk:
    """The file system of this machine. See :class:`viewstamp.host.interfaces.Disk` for the contract."""

    def __init__(self, *, executor_threads: int = 2) -> None:
        """Use the file systems of this machine.

        ``executor_threads`` threads take turns in each executor; docs/design/0001-sync-threads.md gives the reason.
        """
        assert executor_threads >= 1, f"{executor_threads} threads for an executor"
        self._executor_threads = executor_threads

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; ``create`` makes a new file and fails if one exists."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        return self._open(path, flags)

    def open_read(self, path: str) -> File:
        """Open for reading only."""
        return self._open(path, os.O_RDONLY | os.O_CLOEXEC)

    async def open_async(self, path: str, *, create: bool = False) -> AsyncFile:
        """Open for bulk reading and writing; ``create`` makes a new file and fails if one exists."""
        return await RealAsyncFile.open(path, create=create)

    @staticmethod
    def _open(path: str, flags: int) -> File:
        try:
            return RealFile(path, open_private(path, flags))
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            raise _storage_error("open", path, error) from error

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents if they are missing; the names are durable on return.

        The name of a directory that is there already is synced, too, because a process that died behind ``mkdir`` has
        not synced it. Those of its parents were synced before, if this method created them.
        """
        parent = os.path.dirname(path)
        if os.path.isdir(path):
            if os.access(parent or ".", os.R_OK):  # Where it is not, this user has created no directory either.
                self.sync_directory(parent or ".")
            return
        if parent and parent != path:
            self.make_directory(parent)
        try:
            with suppress(FileExistsError):
                os.mkdir(path, DIRECTORY_MODE)
            if not os.path.isdir(path):
                raise StorageError(f"{path} is a file and not a directory", remedy="set another [node] data_dir")
        except OSError as error:
            raise _storage_error("create the directory", path, error) from error
        self.sync_directory(parent or ".")

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; [] if it does not exist."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _storage_error("list", path, error) from error

    def exists(self, path: str) -> bool:
        """Return whether a file or directory has this name."""
        return os.path.exists(path)

    def rename(self, source: str, target: str) -> None:
        """Replace ``target`` atomically. Durable only after ``sync_directory``."""
        with _storage("rename", source):
            os.rename(source, target)

    def remove(self, path: str) -> None:
        """Remove a file's name. Durable only after ``sync_directory``."""
        with _storage("remove", path):
            os.remove(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; durable on return."""
        with _storage("remove the directory", path):
            os.rmdir(path)
        self.sync_directory(os.path.dirname(path) or ".")

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        with _storage("sync the directory", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _sync(descriptor)
            finally:
                os.close(descriptor)

    def free_bytes(self, path: str) -> int:
        """Return the number of bytes that an ordinary user may still write to the file system of ``path``."""
        with _storage("ask for the free space of", path):
            answer = os.statvfs(path)
            return answer.f_bavail * answer.f_frsize

    def uncache(self, path: str) -> None:
        """Advise the operating system to give up the memory that caches a file, where there is such advice."""
        if not _HAS_ADVICE:
            return
        with suppress(OSError):  # It is only advice.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # Length 0 = up to the end.
            finally:
                os.close(descriptor)

    def filesystem(self, path: str) -> str:
        """Return the file system's type by ``/proc/mounts``; "unknown" if it cannot be found."""
        path = os.path.realpath(path)
        best, found = "", "unknown"
        with suppress(OSError), open("/proc/mounts", encoding="utf-8", errors="surrogateescape") as mounts:
            for line in mounts:
                _, mount, kind, *_ = line.split(" ")
                mount = mount.replace("\\040", " ")
                inside = path == mount or path.startswith(mount.rstrip("/") + "/")
                if inside and len(mount) >= len(best):  # A later mount at the same directory hides the earlier one.
                    best, found = mount, kind
        return found

    def lock(self, directory: str) -> Lock:
        """Take the exclusive lock of a data directory.

        Raises:
          DirectoryInUseError: another process holds it; the message names the process.
        """
        path = os.path.join(directory, _LOCK_NAME)
        with _storage("open", path):
            descriptor = open_private(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _holder(descriptor)
            os.close(descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise _storage_error("lock", path, error) from error
            raise DirectoryInUseError(
                f"{directory} is in use by {holder}",
                remedy="stop that node first, or give this one another [node] data_dir",
            ) from error
        with _storage("write", path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        return RealLock(descriptor, directory)

    def lock_holder(self, directory: str) -> str:
        """Return the process that holds the lock of a data directory; "" = none, or it is unknown.

        This takes the lock in shared mode and releases it immediately. Two callers do not disturb each other, but a
        node that starts in this moment is refused.
        """
        try:
            descriptor = os.open(os.path.join(directory, _LOCK_NAME), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            is_held = error.errno in (errno.EWOULDBLOCK, errno.EACCES)
            return _holder(descriptor) if is_held else ""
        finally:
            os.close(descriptor)
        return ""

    def executor(
        self,
        name: str,
        work: Callable[[list[ItemT]], ResultT],
        done: Callable[[list[ItemT], ResultT | BaseException], None],
    ) -> SerialExecutor[ItemT]:
        """Start a writer thread, or a pool of them, that reports to the running event loop.

        Shortens the interpreter's switch interval for the whole process, because measurements show that a writer
        thread otherwise waits up to 5 ms for a busy loop each time.
        """
        if sys.getswitchinterval() > _SWITCH_INTERVAL:
            sys.setswitchinterval(_SWITCH_INTERVAL)
        return ThreadExecutor(name, work, done, threads=self._executor_threads)
