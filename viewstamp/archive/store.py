"""The store of runs: a flat set of named, immutable objects. Here its interface, and the store in a directory.

All calls block, and belong in a thread. Names have the form ``folder/file``. An object is created once under its name,
and never replaced. It appears whole or not at all.

| the process dies in ``create`` while it | the directory then has |
| --- | --- |
| reserves the name | nothing, or an empty file of this name |
| writes | an empty file of this name, and a ``.temporary`` file that nothing reads |
| renames | the same, or the object |

An empty file is listed with size 0, so that a list finds it; no second ``create`` may use its name, and ``remove``
removes it with its ``.temporary`` file. The ids in the names of runs are not used twice, so no name is needed again.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from viewstamp.errors import ConfigError, CorruptionError, StorageError, StorageFullError
from viewstamp.host.garbage import create_anew
from viewstamp.host.interfaces import Buffer, Disk

__all__ = ["DirectoryObjects", "ObjectCreation", "ObjectFile", "ObjectStore"]

_SYNC_BYTES = 4 * 1024 * 1024
"""Limit of unsynced bytes: the syncs of a log on the same device wait for all bytes that the device got before."""
_WRITE_BYTES = 1024 * 1024
_TEMPORARY = ".temporary"


class ObjectCreation(Protocol):
    """An object that is being created. It appears by :meth:`finish`, or not at all; the calls raise as the store's."""

    def write(self, piece: Buffer) -> None:
        """Add bytes."""
        ...

    def finish(self) -> None:
        """Make the object durable, and give it its name. If it fails, the object is absent, or appears whole.

        Raises:
          FileNotFoundError: another process has removed the name and what was written.
          FileExistsError: another process has used the name meanwhile. Its object was not changed.
        """
        ...

    def abandon(self) -> None:
        """Remove what was written, and the name if it is reserved. Never raises a ViewstampError."""
        ...


class ObjectStore(Protocol):
    """Named, immutable objects. ``where`` is the store as its user wrote it.

    Every call raises StorageError if the store refuses it (rights, a full store: StorageFullError), and
    UnavailableError if the store does not answer after a bounded number of attempts.
    """

    where: str

    def check_usable(self) -> None:
        """Check that objects can be created here, and are never replaced. Returns within a second.

        Raises:
          StorageError: they cannot be created, or would be replaced.
          UnavailableError: the store does not answer, or has not answered yet.
        """
        ...

    def status(self) -> dict[str, object]:
        """Return ``where``, and what is wrong with the store, as :meth:`StoreWatch.status`. Never blocks."""
        ...

    def prepare(self, folder: str) -> None:
        """Let objects be created in a folder such as ``log/``, of which none was created before."""
        ...

    def begin(self, name: str) -> ObjectCreation:
        """Begin to create an object in pieces, if its name is not in use.

        Raises:
          FileExistsError: the name is in use. The object of this name was not changed.
          StorageError: also if its folder is not there.
        """
        ...

    def create(self, name: str, pieces: Iterable[Buffer]) -> None:
        """Store an object, durably, if its name is not in use.

        If it fails or the process dies, the object is not there, unless the failure was behind its last piece. An
        exception of ``pieces`` is passed on, and the object is not there.

        Raises:
          FileExistsError: the name is in use. The object of this name was not changed.
        """
        ...

    def read_part(self, name: str, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes of an object from ``offset`` on; fewer only at its end.

        Raises:
          FileNotFoundError: there is none of this name.
        """
        ...

    def list_sizes(self, folder: str) -> dict[str, int]:
        """Return the size in bytes of each object in a folder such as ``log/``; {} if there is none.

        A size of 0 is that of an object whose creation was not completed.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove an object; one that is not there is no error."""
        ...


class DirectoryObjects:
    """A directory of a disk. Its files are readable for their owner only, because they hold the cluster's records.

    It has the calls of :class:`ObjectStore`.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        """Use ``path``, which :meth:`prepare` creates, and so does the first :meth:`create`."""
        self.where = path
        self._disk = disk

    def check_usable(self) -> None:
        """Do nothing, because file systems never replace a reserved name; the first object finds other trouble."""

    def status(self) -> dict[str, object]:
        """Return the path; a directory is not looked at before it is used."""
        return {"where": self.where, "trouble": "", "remedy": "", "is_current": True}

    def prepare(self, folder: str) -> None:
        """Create a folder, and the directory too; as :class:`ObjectStore`."""
        with self._errors():
            self._disk.make_directory(f"{self.where}/{folder.rstrip('/')}")

    def begin(self, name: str) -> ObjectCreation:
        """Reserve a name, and begin to create its object; as :class:`ObjectStore`.

        The folder is not created here: if it is missing because a mount is away, objects would get into the disk below.
        """
        path = f"{self.where}/{name}"
        folder = path.rpartition("/")[0]
        try:
            with self._errors():
                self._disk.open(path, create=True).close()
                self._disk.sync_directory(folder)
            try:
                return _DirectoryCreation(self, path)
            except BaseException:
                with suppress(StorageError, FileNotFoundError):
                    self._disk.remove(path)
                raise
        except FileNotFoundError as error:
            raise StorageError(
                f"the store of archived records cannot be used: there is no directory {folder}",
                remedy="mount it, or restore it",
            ) from error

    def create(self, name: str, pieces: Iterable[Buffer]) -> None:
        """Store an object if its name is not in use; as :class:`ObjectStore`."""
        self.prepare(name.rpartition("/")[0])
        creation = self.begin(name)
        try:
            for piece in pieces:
                creation.write(piece)
        except BaseException:
            creation.abandon()
            raise
        creation.finish()

    def list_sizes(self, folder: str) -> dict[str, int]:
        """Return the size of each object in a folder; as :class:`ObjectStore`."""
        sizes: dict[str, int] = {}
        with self._errors():
            for name in self._disk.list_directory(f"{self.where}/{folder.rstrip('/')}"):
                if not name.endswith(_TEMPORARY):
                    file = self._disk.open_read(f"{self.where}/{folder}{name}")
                    try:
                        sizes[f"{folder}{name}"] = file.size()
                    finally:
                        file.close()
        return sizes

    def read_part(self, name: str, offset: int, size: int) -> bytes:
        """Return bytes of an object; as :class:`ObjectStore`."""
        with self._errors():
            file = self._disk.open_read(f"{self.where}/{name}")
            try:
                return file.read(offset, min(size, max(file.size() - offset, 0)))
            finally:
                file.close()

    def remove(self, name: str) -> None:
        """Remove an object; as :class:`ObjectStore`. Its name goes last, so that a list finds it until then."""
        path = f"{self.where}/{name}"
        with self._errors():
            found = [each for each in (path + _TEMPORARY, path) if self._disk.exists(each)]
            for each in found:
                self._disk.remove(each)
            if found:
                self._disk.sync_directory(path.rpartition("/")[0])

    def _write(self, path: str, pieces: Iterable[Buffer]) -> None:
        """Write and sync the temporary file of an object; if that fails, it is removed."""
        file = _TemporaryFile(self, path)
        try:
            for piece in pieces:
                file.write(piece)
        except BaseException:
            file.abandon()
            raise
        file.complete()

    def _rename(self, path: str) -> None:
        """Give the temporary file of an object its name."""
        with self._errors():
            self._disk.rename(path + _TEMPORARY, path)
            self._disk.sync_directory(path.rpartition("/")[0])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Give errors of the disk a remedy for this store, because their own remedies are about a node's directory."""
        try:
            yield
        except ConfigError:
            raise
        except StorageFullError as error:
            raise StorageFullError(
                f"the store of archived records is full: {error.message}",
                remedy="free space there; until then the log keeps the records",
            ) from error
        except StorageError as error:
            if type(error) is not StorageError:
                raise
            raise StorageError(
                f"the store of archived records cannot be used: {error.message}",
                remedy="let this user read and write there, or name another directory",
            ) from error


class _TemporaryFile:
    """The temporary file of an object; if a call fails, it is removed."""

    def __init__(self, objects: DirectoryObjects, path: str) -> None:
        self._objects = objects
        self._path = path + _TEMPORARY
        self._at = self._unsynced = 0
        with objects._errors():
            self._file = create_anew(objects._disk, self._path)

    def write(self, piece: Buffer) -> None:
        view = memoryview(piece).cast("B")
        for start in range(0, len(view), _WRITE_BYTES):
            part = view[start : start + _WRITE_BYTES]
            with self._objects._errors():
                self._file.write(self._at, [part])
                self._at += len(part)
                self._unsynced += len(part)
                if self._unsynced >= _SYNC_BYTES:
                    self._file.sync()
                    self._unsynced = 0

    def complete(self) -> None:
        """Sync and close the file; if that fails, it is removed."""
        try:
            with self._objects._errors():
                self._file.sync()
        except BaseException:
            self.abandon()
            raise
        self._file.close()

    def abandon(self) -> None:
        self._file.close()
        with suppress(StorageError, FileNotFoundError):  # A full disk gets its room back.
            self._objects._disk.remove(self._path)


class _DirectoryCreation:
    """An object of a directory that is being created; as :class:`ObjectCreation`."""

    def __init__(self, objects: DirectoryObjects, path: str) -> None:
        self._objects = objects
        self._path = path
        self._temporary = _TemporaryFile(objects, path)

    def write(self, piece: Buffer) -> None:
        self._temporary.write(piece)

    def finish(self) -> None:
        try:
            self._temporary.complete()
        except BaseException:
            self._remove_name()
            raise
        self._objects._rename(self._path)

    def abandon(self) -> None:
        self._temporary.abandon()
        self._remove_name()

    def _remove_name(self) -> None:
        with suppress(StorageError, FileNotFoundError):
            self._objects._disk.remove(self._path)


class ObjectFile(io.RawIOBase):
    """An object as a file for reading, with random access. Each read is one request to the store; for one thread."""

    def __init__(self, store: ObjectStore, name: str, size: int) -> None:
        """Read the object ``name``, which has ``size`` bytes according to the catalogue or a list."""
        self._store = store
        self._name = name
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the place of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place, and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Return up to ``size`` bytes; -1 = all that follow.

        Raises:
          CorruptionError: the object is not there, or is shorter than it should be.
          StorageError, UnavailableError: as the calls of the store.
        """
        left = max(self._size - self._at, 0)
        size = left if size is None or size < 0 else min(size, left)
        try:
            data = self._store.read_part(self._name, self._at, size) if size else b""
        except FileNotFoundError as error:
            raise self._damaged("it is not there") from error
        if len(data) != size:
            raise self._damaged(f"it ends at byte {self._at + len(data)} instead of {self._size}")
        self._at += len(data)
        return data

    def _damaged(self, why: str) -> CorruptionError:
        return CorruptionError(
            f"object {self._name} of {self._store.where} is damaged: {why}",
            path=self._name,
            location=self._at,
            expected=f"{self._size} bytes",
            found=why,
            remedy="keep what is there, and put an intact copy in its place",
        )
