"""A power cut for real nodes: records their operations on a real disk, then rebuilds what a cut may leave.

``kill -9`` of a real process proves little about durability, because the system keeps every written byte. So
:class:`RecordingDisk` stands between real nodes and the real disk and records every change and every sync, of all nodes
of this process, in one order; ``rebuild`` then writes the directory as it may be after a power failure at any of these
operations, by the rules of :mod:`viewstamp.sim.volume`::

    recording = Recording("/tmp/cluster")                       # below it, all nodes' data directories
    disk = recording.disk(RealDisk())                           # one for each node, or one for all
    ...                                                         # run nodes; after each acknowledgement:
    recording.mark(receipt)
    marks = rebuild(recording, cut_at, random.Random(seed), "/tmp/after")    # the receipts given before the cut

The order makes the proof sound: an operation is recorded *after* the disk has done it, and a recorded sync covers only
operations that were recorded before it began. So data that counts as durable here was durable on the disk before its
acknowledgement was sent and ``mark`` called. Operations on names hold the recording's lock while they run, so that no
other thread can use a name before it is in the recording.

Failed operations are not recorded, because nodes stop at an error of the disk, and are no subject for this test.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import threading
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO, NamedTuple

from viewstamp.enums import fast_members
from viewstamp.host.blocking import to_the_end
from viewstamp.host.forwarding import ForwardingAsyncFile, ForwardingDisk, ForwardingFile
from viewstamp.host.interfaces import AsyncFile, Buffer, Disk, File
from viewstamp.sim.volume import Inode, Volume, VolumeImage

__all__ = ["DiskOperation", "OperationKind", "Playback", "Recording", "RecordingDisk", "rebuild"]

_ZEROS = bytes(1024 * 1024)
_HOLE_BYTES = 64 * 1024
"""Runs of zeros of this length are left out of rebuilt files; most of a prepared segment is one."""


@fast_members
class OperationKind(IntEnum):
    """The kind of an operation."""

    OPEN = 1
    CREATE = 2
    WRITE = 3
    TRUNCATE = 4
    SYNC_BEGINS = 5
    """A sync of any kind was requested; it covers the operations that were recorded before this."""
    SYNC = 6
    SYNC_DATA = 7
    SYNC_DIRECTORY = 8
    MAKE_DIRECTORY = 9
    RENAME = 10
    REMOVE = 11
    MARK = 12


class DiskOperation(NamedTuple):
    """One line of a recording."""

    kind: OperationKind
    path: str
    """The file or directory; for RENAME the old name."""
    handle: int = 0
    """The number of the open file, or, for SYNC_DIRECTORY and its SYNC_BEGINS, 0."""
    at: int = 0
    """Depends on the kind. WRITE: the offset in bytes. TRUNCATE: the new size in bytes. MARK: the number of the event.

    SYNC, SYNC_DATA, SYNC_DIRECTORY: the number of the operation SYNC_BEGINS that requested the sync.
    """
    data: bytes | tuple[int, int] | int = 0
    """WRITE: the bytes, or their place in the data file (offset, size), or a number of zeros."""
    target: str = ""
    """RENAME: the new name."""


class Recording:
    """The operations of all disks of one directory tree, in one order. Safe to use from any thread.

    Invariants:
      * operation number n is ``operations[n]``; the list only grows
      * every operation that a sync covers has a smaller number than its SYNC_BEGINS
    """

    def __init__(self, root: str, *, data_file: bool = False) -> None:
        """Begin with the present contents below ``root``, as durable.

        ``data_file``: keep written bytes in an unnamed temporary file, not in memory.
        """
        self.root = os.path.abspath(root)
        self.operations: list[DiskOperation] = []
        self.lock = threading.Lock()
        """Held by operations on names while they run, and by all others only while they are recorded."""
        self.initial = _read_tree(self.root)
        self._events: list[object] = []
        self._handles = 0
        self._file: BinaryIO | None = None
        self._file_size = 0
        if data_file:
            # The file lives as long as the recording; ``close`` ends both.
            self._file = tempfile.TemporaryFile()  # noqa: SIM115

    def __len__(self) -> int:
        return len(self.operations)

    def disk(self, disk: Disk) -> RecordingDisk:
        """Return a disk that forwards to ``disk`` and records."""
        return RecordingDisk(disk, self)

    def mark(self, event: object) -> int:
        """Record an event, such as an acknowledgement; return the number of the operation."""
        with self.lock:
            self._events.append(event)
            return self.add(DiskOperation(OperationKind.MARK, "", at=len(self._events) - 1))

    def marks(self, cut_at: int | None = None) -> list[object]:
        """Return the events that were marked before operation ``cut_at`` (None = all)."""
        operations = self.operations[: len(self.operations) if cut_at is None else cut_at]
        return [self._events[each.at] for each in operations if each.kind == OperationKind.MARK]

    def write(self, path: str, handle: int, offset: int, data: bytes) -> None:
        """Record written bytes."""
        kept: bytes | tuple[int, int] | int = data
        if _is_zeros(data):
            kept = len(data)
        with self.lock:
            if self._file is not None and not isinstance(kept, int):
                self._file.seek(self._file_size)
                self._file.write(data)
                kept = (self._file_size, len(data))
                self._file_size += len(data)
            self.add(DiskOperation(OperationKind.WRITE, path, handle, offset, kept))

    def note(self, kind: OperationKind, path: str, handle: int = 0, at: int = 0) -> int:
        """Record a completed operation; return its number."""
        with self.lock:
            return self.add(DiskOperation(kind, path, handle, at))

    def add(self, operation: DiskOperation) -> int:
        """Record an operation. The caller holds ``lock``."""
        self.operations.append(operation)
        return len(self.operations) - 1

    def new_handle(self) -> int:
        """Return a number for a file that is being opened. The caller holds ``lock``."""
        self._handles += 1
        return self._handles

    def data(self, operation: DiskOperation) -> bytes:
        """Return the bytes of a write."""
        if isinstance(operation.data, int):
            return bytes(operation.data)
        if isinstance(operation.data, bytes):
            return operation.data
        assert self._file is not None, "only a recording with a data file refers to places in it"
        offset, size = operation.data
        with self.lock:
            self._file.seek(offset)
            return self._file.read(size)

    def close(self) -> None:
        """Close the data file. Idempotent."""
        if self._file is not None:
            self._file.close()


class RecordingDisk(ForwardingDisk):
    """A disk that records. Calls that cannot change the durable state are forwarded untouched."""

    def __init__(self, disk: Disk, recording: Recording) -> None:
        super().__init__(disk)
        self._recording = recording

    def open(self, path: str, *, create: bool = False) -> File:
        """Open, and give the file a number."""
        recording = self._recording
        with recording.lock:
            file = self._disk.open(path, create=create)
            handle = recording.new_handle()
            recording.add(DiskOperation(OperationKind.CREATE if create else OperationKind.OPEN, _normal(path), handle))
        return _RecordingFile(file, recording, handle)

    async def open_async(self, path: str, *, create: bool = False) -> AsyncFile:
        """Open, and give the file a number.

        The lock cannot be held meanwhile; the caller waits before it uses the name.
        """
        opened: list[AsyncFile] = []

        async def work() -> None:
            file = await self._disk.open_async(path, create=create)
            kind = OperationKind.CREATE if create else OperationKind.OPEN
            with self._recording.lock:
                handle = self._recording.new_handle()
                self._recording.add(DiskOperation(kind, _normal(path), handle))
            opened.append(_RecordingAsyncFile(file, self._recording, handle))

        try:
            await to_the_end(work())
        except asyncio.CancelledError:
            for file in opened:
                await file.close()
            raise
        return opened[0]

    def make_directory(self, path: str) -> None:
        """Make a directory."""
        with self._recording.lock:
            self._disk.make_directory(path)
            self._recording.add(DiskOperation(OperationKind.MAKE_DIRECTORY, _normal(path)))

    def rename(self, source: str, target: str) -> None:
        """Replace ``target``."""
        with self._recording.lock:
            self._disk.rename(source, target)
            self._recording.add(DiskOperation(OperationKind.RENAME, _normal(source), target=_normal(target)))

    def remove(self, path: str) -> None:
        """Remove a name."""
        with self._recording.lock:
            self._disk.remove(path)
            self._recording.add(DiskOperation(OperationKind.REMOVE, _normal(path)))

    def sync_directory(self, path: str) -> None:
        """Make names durable: those that were recorded before this began."""
        begins = self._recording.note(OperationKind.SYNC_BEGINS, _normal(path))
        self._disk.sync_directory(path)
        self._recording.note(OperationKind.SYNC_DIRECTORY, _normal(path), at=begins)


class _RecordingFile(ForwardingFile):
    def __init__(self, file: File, recording: Recording, handle: int) -> None:
        super().__init__(file)
        self._recording = recording
        self._handle = handle
        self._normal_path = _normal(file.path)

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write, then record a copy of the bytes."""
        self._file.write(offset, buffers)
        self._recording.write(self._normal_path, self._handle, offset, b"".join(buffers))

    def sync_data(self) -> None:
        """Sync, between two records."""
        self._sync(OperationKind.SYNC_DATA, self._file.sync_data)

    def sync(self) -> None:
        """Sync, between two records."""
        self._sync(OperationKind.SYNC, self._file.sync)

    def truncate(self, size: int) -> None:
        """Set the length, then record it."""
        self._file.truncate(size)
        self._recording.note(OperationKind.TRUNCATE, self._normal_path, self._handle, size)

    def _sync(self, kind: OperationKind, sync: Callable[[], None]) -> None:
        begins = self._recording.note(OperationKind.SYNC_BEGINS, self._normal_path, self._handle)
        sync()
        self._recording.note(kind, self._normal_path, self._handle, begins)


class _RecordingAsyncFile(ForwardingAsyncFile):
    """Every call runs to its end and is recorded, even if it is cancelled."""

    def __init__(self, file: AsyncFile, recording: Recording, handle: int) -> None:
        super().__init__(file)
        self._recording = recording
        self._handle = handle
        self._normal_path = _normal(file.path)

    async def write(self, offset: int, data: Buffer) -> None:
        """Write, then record a copy of the bytes."""

        async def work() -> None:
            await self._file.write(offset, data)
            self._recording.write(self._normal_path, self._handle, offset, bytes(data))

        await to_the_end(work())

    async def sync(self) -> None:
        """Sync, between two records."""

        async def work() -> None:
            begins = self._recording.note(OperationKind.SYNC_BEGINS, self._normal_path, self._handle)
            await self._file.sync()
            self._recording.note(OperationKind.SYNC, self._normal_path, self._handle, begins)

        await to_the_end(work())


class Playback:
    """Replays a recording up to the moment of a power failure. Cheaper than ``rebuild`` for many cuts.

    Invariants:
      * every operation before number ``at`` has been done to ``volume``, none after it
    """

    def __init__(self, recording: Recording) -> None:
        self.at = 0
        self.volume = Volume.from_image(recording.initial)
        self._recording = recording
        self._files: dict[int, Inode] = {}
        self._cursors: dict[int, int] = {}
        """The last covered change of a sync, by the number of its SYNC_BEGINS."""

    def advance(self, cut_at: int) -> None:
        """Do every operation before number ``cut_at``, which must not be less than in the last call."""
        operations = self._recording.operations
        assert self.at <= cut_at <= len(operations), f"at {self.at}, cut at {cut_at} of {len(operations)}"
        while self.at < cut_at:
            self._do(self.at, operations[self.at])
            self.at += 1

    def image(self, entropy: random.Random) -> VolumeImage:
        """Return what the power cut may leave; may be called any number of times."""
        return self.volume.after_cut(entropy)

    def write(self, entropy: random.Random, directory: str) -> list[object]:
        """Write what the power cut may leave into ``directory``, in place of the root; return the earlier marks."""
        _write_tree(self.image(entropy), self._recording.root, directory)
        return self._recording.marks(self.at)

    def _do(self, number: int, operation: DiskOperation) -> None:
        kind, path, handle, at, _, target = operation
        volume = self.volume
        match kind:
            case OperationKind.OPEN:
                self._files[handle] = volume.find(path)
            case OperationKind.CREATE:
                # The directory may have been made before there was a disk to record it.
                volume.make_directory(os.path.dirname(path))
                self._files[handle] = volume.create(path)
            case OperationKind.WRITE:
                self._files[handle].write(at, [self._recording.data(operation)])
            case OperationKind.TRUNCATE:
                self._files[handle].truncate(at)
            case OperationKind.SYNC_BEGINS:
                self._cursors[number] = self._files[handle].cursor if handle else volume.cursor
            case OperationKind.SYNC:
                self._files[handle].sync(self._cursors.pop(at))
            case OperationKind.SYNC_DATA:
                self._files[handle].sync_data(self._cursors.pop(at))
            case OperationKind.SYNC_DIRECTORY:
                volume.sync_directory(path, self._cursors.pop(at))
            case OperationKind.MAKE_DIRECTORY:
                volume.make_directory(path)
            case OperationKind.RENAME:
                volume.rename(path, target)
            case OperationKind.REMOVE:
                volume.remove(path)
            case OperationKind.MARK:
                pass


def rebuild(recording: Recording, cut_at: int, entropy: random.Random, directory: str) -> list[object]:
    """Write into ``directory`` what may be left below the root by a power failure before operation ``cut_at``.

    ``directory`` is made, and must be empty if it exists. Returns the events marked before the cut. Blocks.
    """
    replay = Playback(recording)
    replay.advance(cut_at)
    return replay.write(entropy, directory)


def _normal(path: str) -> str:
    return os.path.abspath(path)


def _is_zeros(data: bytes) -> bool:
    if not data or data[0] or data[-1]:
        return False
    return data == (_ZEROS[: len(data)] if len(data) <= len(_ZEROS) else bytes(len(data)))


def _read_tree(root: str) -> VolumeImage:
    directories = [root]
    files: dict[str, bytes] = {}
    for path in sorted(Path(root).rglob("*")):
        if path.is_dir():
            directories.append(str(path))
        else:
            files[str(path)] = path.read_bytes()
    return VolumeImage(tuple(directories), files)


def _write_tree(image: VolumeImage, root: str, directory: str) -> None:
    def moved(path: str) -> Path | None:
        relative = os.path.relpath(path, root)
        return None if relative.split(os.sep)[0] == os.pardir else Path(directory, relative)

    for path in image.directories:
        target = moved(path)
        if target is not None:
            target.mkdir(parents=True, exist_ok=True)
    for path, data in image.files.items():
        target = moved(path)
        if target is not None:
            _write_sparse(target, data)


def _write_sparse(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        for start in range(0, len(data), _HOLE_BYTES):
            chunk = data[start : start + _HOLE_BYTES]
            if not _is_zeros(chunk):
                file.seek(start)
                file.write(chunk)
        file.truncate(len(data))
