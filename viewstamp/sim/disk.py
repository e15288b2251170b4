"""The simulated disk of one machine: the rules of :mod:`viewstamp.sim.volume`, executors in simulated time, and faults.

The disk outlives the processes that use it. Its contents after their end depend on its kind:

* ``kill`` (kill -9): all writes are kept; locks are released, open files and executors are dead.
* ``crash`` (power cut): synced data is kept, and any subset of the rest, as ``volume`` describes.

After either, every call through an old file, executor or lock, and every call of a dead process, raises
:class:`SimulatedCrash`. So does every call between the moment of ``crash_at`` and the ``kill`` or ``crash`` that the
world then does.

An executor calls ``work`` on the loop, in an event of its own, at a time drawn from ``options``, with all items that
were queued by then; ``done`` follows later. A process may die between any two of put, ``work`` and ``done``, and, with
``crash_at``, between any two disk calls inside ``work``.

A call of an asynchronous file takes as long as a turn of an executor. It does the blocking call, including its faults,
at one moment of that time; the caller may die or be cancelled before that moment or after it.
"""

from __future__ import annotations

import asyncio
import contextvars
import posixpath
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from viewstamp.errors import DirectoryInUseError, StorageError, StorageFullError
from viewstamp.host.interfaces import AsyncFile, Buffer, Disk, File, Lock, SerialExecutor
from viewstamp.sim.loop import SimulatedCrash, SimulatedLoop, current_process
from viewstamp.sim.volume import Inode, Volume

__all__ = ["UNLIMITED_BYTES", "DiskOptions", "SimulatedDisk"]

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

UNLIMITED_BYTES = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskOptions:
    """The speed of executors and asynchronous files; times are in seconds.

    A turn of an executor, and a call of a file, takes ``delay_min`` plus an exponentially distributed time.
    """

    delay_min: float = 0.0002
    delay_mean: float = 0.0003
    stall: float = 0.0
    """The chance that it takes ``stall_seconds`` longer."""
    stall_seconds: float = 0.2


class SimulatedDisk(Disk):
    """One machine's disk.

    ``crash_at``, ``fail``, ``capacity_bytes`` and ``flip`` are the faults. Each is deterministic; the world draws them.

    Invariants:
      * ``calls`` counts every call that may change or sync something, in order; reading calls are not counted
      * a call that raises StorageFullError has changed nothing
    """

    def __init__(
        self,
        name: str = "disk",
        *,
        loop: SimulatedLoop | None = None,
        entropy: random.Random | None = None,
        options: DiskOptions | None = None,
        capacity_bytes: int = UNLIMITED_BYTES,
    ) -> None:
        self.name = name
        self.options = options if options is not None else DiskOptions()
        self.capacity_bytes = capacity_bytes
        self.calls = 0
        self.damages = 0
        """Number of changes to its contents that no call made."""
        self.volume = Volume()
        self._loop = loop
        """None for tests of blocking code without a loop.

        There is no trace then, and executors run on any running loop.
        """
        if entropy is None:
            entropy = random.Random(name) if loop is None else loop.entropy(f"disk {name}")
        self.entropy = entropy
        self._life = 0
        self._is_frozen = False
        self._crash_at: int | None = None
        self._on_crash: Callable[[], None] | None = None
        self._failing: dict[str, int] = {}
        self._locks: dict[str, _Lock] = {}

    # faults

    def kill(self) -> None:
        """End every use of this disk; no write is lost."""
        self._end_life()

    def crash(self, entropy: random.Random | None = None) -> None:
        """Cut the power: end every use of this disk, and keep only what a power cut leaves, drawn from ``entropy``."""
        self._end_life()
        self.volume = Volume.from_image(self.volume.after_cut(self.entropy if entropy is None else entropy))

    def crash_at(self, call: int | None, then: Callable[[], None] | None = None) -> None:
        """Let the process die inside the call with this number, before the call has its full effect.

        The number is compared with ``calls``.

        A write does a prefix of its bytes, drawn from the entropy. The calling process is killed, and ``then`` is
        called in an event of its own, in which the world calls ``kill`` or ``crash``. None cancels an earlier
        ``crash_at``.
        """
        self._crash_at = call
        self._on_crash = then

    def fail(self, operation: str, after: int = 0) -> None:
        """Let an operation raise StorageError once: "write", "sync" (either kind), "truncate", "rename", "open", ....

        ``after`` calls of it succeed first. Data that a failed sync should have made durable never becomes durable.
        """
        self._failing[operation] = after

    def flip(self, path: str, offset: int, bit: int = 0) -> None:
        """Change one bit of a file, on the device and for every reader, as rot does."""
        self.volume.find(posixpath.normpath(path)).flip(offset, bit)
        self.damages += 1

    def replace(self) -> None:
        """Replace the disk by an empty one; all its users are dead."""
        self._end_life()
        self.volume = Volume()

    # Disk

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; see :class:`Disk`."""
        path = posixpath.normpath(path)
        if create:
            self.enter("open", path, self._life)
            inode = self.volume.create(path)
            self.note("create", path)
        else:
            self.check(self._life)
            inode = self.volume.find(path)
        return _SimulatedFile(self, path, inode, self._life, is_writable=True)

    def open_read(self, path: str) -> File:
        """Open for reading."""
        self.check(self._life)
        path = posixpath.normpath(path)
        return _SimulatedFile(self, path, self.volume.find(path), self._life, is_writable=False)

    async def open_async(self, path: str, *, create: bool = False) -> AsyncFile:
        """Open for bulk work, in simulated time."""
        return _SimulatedAsyncFile(self, await self.take_time(lambda: self.open(path, create=create)))

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents, durably."""
        self.enter("make_directory", path, self._life)
        with _storage("create the directory", path):
            self.volume.make_directory(posixpath.normpath(path))

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        self.check(self._life)
        return self.volume.list_directory(posixpath.normpath(path))

    def exists(self, path: str) -> bool:
        """Return whether a file or directory has this name."""
        self.check(self._life)
        return self.volume.exists(posixpath.normpath(path))

    def rename(self, source: str, target: str) -> None:
        """Rename ``source`` to ``target``, replacing it."""
        self.enter("rename", source, self._life)
        with _storage("rename", source):
            self.volume.rename(posixpath.normpath(source), posixpath.normpath(target))
        self.note("rename", f"{source} {target}")

    def remove(self, path: str) -> None:
        """Remove a file's name."""
        self.enter("remove", path, self._life)
        with _storage("remove", path):
            self.volume.remove(posixpath.normpath(path))
        self.note("remove", path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory, durably."""
        self.enter("remove_directory", path, self._life)
        with _storage("remove the directory", path):
            self.volume.remove_directory(posixpath.normpath(path))
        self.note("remove_directory", path)

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        self.enter("sync", path, self._life)
        if posixpath.normpath(path) not in self.volume.directories:
            raise StorageError(f"cannot sync the directory {path}: there is none")
        self.volume.sync_directory(posixpath.normpath(path))
        self.note("sync_directory", path)

    def free_bytes(self, path: str) -> int:
        """Return the free part of ``capacity_bytes``."""
        self.check(self._life)
        if self.capacity_bytes >= UNLIMITED_BYTES:  # Each write asks, and the sum over all files takes a while.
            return self.capacity_bytes
        return max(0, self.capacity_bytes - self.volume.bytes_used())

    def filesystem(self, path: str) -> str:
        """Return "simulated"."""
        return "simulated"

    def lock(self, directory: str) -> Lock:
        """Take the exclusive lock of a data directory."""
        self.check(self._life)
        directory = posixpath.normpath(directory)
        if directory not in self.volume.directories:
            raise StorageError(f"cannot lock {directory}: there is no such directory")
        holder = self._locks.get(directory)
        if holder is not None:
            raise DirectoryInUseError(
                f"{directory} is in use by {holder.holder}",
                remedy="stop that process, or give this node another data directory",
            )
        process = current_process()
        lock = self._locks[directory] = _Lock(self._locks, directory, process.name if process else "the world")
        return lock

    def lock_holder(self, directory: str) -> str:
        """Return the holder of a data directory's lock."""
        self.check(self._life)
        lock = self._locks.get(posixpath.normpath(directory))
        return "" if lock is None else lock.holder

    def executor(
        self,
        name: str,
        work: Callable[[list[ItemT]], ResultT],
        done: Callable[[list[ItemT], ResultT | BaseException], None],
    ) -> SerialExecutor[ItemT]:
        """Start an executor on the running loop."""
        self.check(self._life)
        return _SimulatedExecutor(self, work, done)

    # for files and executors

    async def take_time(self, call: Callable[[], ResultT]) -> ResultT:
        """Run ``call`` at some moment of the time that a call of an asynchronous file takes."""
        whole = self.draw_delay()
        before = whole * self.entropy.random()
        await asyncio.sleep(before)
        result = call()
        await asyncio.sleep(whole - before)
        return result

    def draw_delay(self) -> float:
        """Draw the duration of one turn of an executor, or of one call of an asynchronous file."""
        options, entropy = self.options, self.entropy
        seconds = options.delay_min
        if options.delay_mean > 0:
            seconds += entropy.expovariate(1 / options.delay_mean)
        if options.stall and entropy.random() < options.stall:
            seconds += options.stall_seconds
        return seconds

    @property
    def changes(self) -> int:
        """A number that rises whenever the contents of the disk may have changed."""
        return self.calls + self._life + self.damages

    @property
    def life(self) -> int:
        """Number of kills and crashes so far; files and executors belong to one of these lives."""
        return self._life

    def enter(self, operation: str, path: str, life: int, dying: Callable[[], None] | None = None) -> None:
        """Begin a counted call: it may fail, or be the last one, in which case ``dying`` runs first."""
        self.check(life)
        self.calls += 1
        if self._crash_at is not None and self.calls >= self._crash_at:
            if dying is not None:
                dying()
            self._die(operation, path)
        after = self._failing.get(operation)
        if after is None:
            return
        if after > 0:
            self._failing[operation] = after - 1
            return
        del self._failing[operation]
        self.note(operation, f"{path} fails", "!")
        raise StorageError(f"cannot {operation} {path}: input/output error (simulated)")

    def is_over(self, life: int) -> bool:
        """Return whether every use of the disk that began in ``life`` is dead."""
        return self._is_frozen or life != self._life

    def check(self, life: int) -> None:
        """Raise SimulatedCrash if the caller, or the use of the disk that began in ``life``, is dead."""
        process = current_process()
        if self.is_over(life) or (process is not None and process.is_dead):
            raise SimulatedCrash(f"{self.name}: the process that calls is dead")

    def _die(self, operation: str, path: str) -> None:
        self.note(operation, f"{path} is where the process dies", "!")
        self._crash_at = None
        self._is_frozen = True
        then, self._on_crash = self._on_crash, None
        process = current_process()
        if process is not None:
            process.kill()
        if then is not None and self._loop is not None:
            self._loop.call_soon(then, context=contextvars.Context())
        raise SimulatedCrash(f"{self.name}: dies in {operation} {path}")

    def _end_life(self) -> None:
        self._life += 1
        self._is_frozen = False
        self._crash_at = None
        self._on_crash = None
        self._failing.clear()
        self._locks.clear()

    def note(self, operation: str, text: str, glyph: str = "=") -> None:
        """Add a line to the trace, if there is a loop."""
        if self._loop is not None:
            self._loop.trace.note(self._loop.time(), self.name, glyph, f"{operation} {text}")


@contextmanager
def _storage(action: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot {action} {path}: {error.strerror}") from error


class _Lock(Lock):
    def __init__(self, locks: dict[str, _Lock], directory: str, holder: str) -> None:
        self.holder = holder
        self.directory_id = ""
        self._locks = locks
        self.directory = directory

    def release(self) -> None:
        """Release the lock, unless it has another holder by now."""
        if self._locks.get(self.directory) is self:
            del self._locks[self.directory]


class _SimulatedFile(File):
    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode, life: int, *, is_writable: bool) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._life = life
        self._is_writable = is_writable
        self._is_open = True

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset``."""
        self._check_open()
        return bytes(self._inode.data[offset : offset + size])

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all of ``buffers``; a write without enough space changes nothing."""
        disk = self._disk
        size = sum(map(len, buffers))
        growth = offset + size - len(self._inode.data)
        self._enter("write", lambda: self._write_prefix(offset, buffers))
        if growth > 0 and growth > disk.free_bytes(self.path):
            raise StorageFullError(
                f"cannot write {self.path}: no space left on device",
                remedy="free space where the data directory is; start the node again if it has stopped",
            )
        self._inode.write(offset, buffers)
        disk.note("write", f"{self.path} {offset}+{size}")

    def sync_data(self) -> None:
        """Make written bytes durable, up to the durable length."""
        self._sync(self._inode.sync_data)
        self._disk.note("sync_data", self.path)

    def sync(self) -> None:
        """Make bytes and length durable."""
        self._sync(self._inode.sync)
        self._disk.note("sync", self.path)

    def truncate(self, size: int) -> None:
        """Cut the file, or lengthen it with a hole."""
        self._enter("truncate")
        self._inode.truncate(size)
        self._disk.note("truncate", f"{self.path} {size}")

    def size(self) -> int:
        """Return the length in bytes."""
        self._check_open()
        return len(self._inode.data)

    def close(self) -> None:
        """Close without syncing."""
        self._is_open = False

    def _sync(self, how: Callable[[], None]) -> None:
        try:
            self._enter("sync")
        except StorageError:
            self._inode.fail_sync()
            raise
        how()

    def _check_open(self) -> None:
        self._disk.check(self._life)
        if not self._is_open:
            raise StorageError(f"cannot use {self.path}: the file is closed")

    def _enter(self, operation: str, dying: Callable[[], None] | None = None) -> None:
        self._check_open()
        if not self._is_writable and operation != "sync":
            raise StorageError(f"cannot {operation} {self.path}: it was opened for reading")
        self._disk.enter(operation, self.path, self._life, dying)

    def _write_prefix(self, offset: int, buffers: Sequence[Buffer]) -> None:
        data = b"".join(buffers)
        self._inode.write(offset, [data[: self._disk.entropy.randint(0, len(data))]])


class _SimulatedAsyncFile(AsyncFile):
    """The blocking file, in simulated time."""

    def __init__(self, disk: SimulatedDisk, file: File) -> None:
        self.path = file.path
        self._disk = disk
        self._file = file

    async def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset``."""
        return await self._disk.take_time(lambda: self._file.read(offset, size))

    async def write(self, offset: int, data: Buffer) -> None:
        """Write all of ``data``; a write without enough space changes nothing."""
        await self._disk.take_time(lambda: self._file.write(offset, [data]))

    async def sync(self) -> None:
        """Make bytes and length durable."""
        await self._disk.take_time(self._file.sync)

    async def size(self) -> int:
        """Return the length in bytes."""
        return await self._disk.take_time(self._file.size)

    async def close(self) -> None:
        """Close without syncing."""
        self._file.close()


class _SimulatedExecutor(SerialExecutor[ItemT], Generic[ItemT]):
    """An executor in simulated time.

    Invariants:
      * at most one turn is in progress: from the first item that finds the executor idle to its ``done``
      * after an error no work is done; items still get an answer, which is that error
    """

    def __init__(
        self,
        disk: SimulatedDisk,
        work: Callable[[list[ItemT]], object],
        done: Callable[[list[ItemT], Any], None],
    ) -> None:
        self._disk = disk
        self._work = work
        self._done = done
        self._life = disk.life
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._process = current_process()
        self._queued: deque[ItemT] = deque()
        self._is_busy = False
        self._is_closed = False
        self._error: BaseException | None = None
        self._idle: asyncio.Future[None] | None = None

    def put(self, item: ItemT) -> None:
        """Queue ``item``."""
        if self._is_closed:
            return
        self._queued.append(item)
        if not self._is_busy:
            self._begin_turn()

    async def close(self) -> None:
        """Finish the queued items, then stop. If it is cancelled, the executor stops all the same."""
        self._is_closed = True
        if self._is_busy:
            if self._idle is None:
                self._idle = self._loop.create_future()
            await asyncio.shield(self._idle)

    def _begin_turn(self) -> None:
        self._is_busy = True
        whole = self._disk.draw_delay()
        before = whole * self._disk.entropy.random()
        self._loop.call_later(before, self._due, whole - before, context=contextvars.Context())

    def _due(self, rest: float) -> None:
        """Work as a thread does: also while the event loop of its process stalls.

        But not while the process is paused.
        """
        process = self._process
        if process is not None and process.is_paused:
            self._loop.call_soon(self._turn, rest, context=self._context)
        elif process is None or not process.is_dead:
            with suppress(SimulatedCrash):
                self._context.run(self._turn, rest)

    def _turn(self, rest: float) -> None:
        """Process all queued items in one event; report after ``rest`` seconds."""
        if self._disk.is_over(self._life):
            return
        items = list(self._queued)
        self._queued.clear()
        result: object = self._error
        if self._error is None:
            try:
                result = self._work(items)
            except SimulatedCrash:
                raise
            except BaseException as error:
                result = self._error = error
        self._loop.call_later(rest, self._report, items, result, context=self._context)

    def _report(self, items: list[ItemT], result: object) -> None:
        if self._disk.is_over(self._life):
            return
        self._done(items, result)
        if self._queued:
            self._begin_turn()
            return
        self._is_busy = False
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
