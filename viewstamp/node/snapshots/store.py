"""The snapshots of one node: the directory ``<data_dir>/snapshots``.

| name | content |
| --- | --- |
| ``<end, 20 digits>-<term>.snapshot`` | a whole one, durable: all records below ``end``, the last of them in ``term`` |
| ``<the same>.temporary`` | one that is being written; after a crash a leftover, removed at the next start |
| ``<the same>.incoming`` | one that is being received; its intact part stays between transfers and after a crash |

A file gets its final name after its bytes are durable, and is listed after its name is. So after every crash the store
has only whole snapshots, and earlier ones are unchanged.

A snapshot that is found damaged is moved to the list ``damaged``. Its file stays, so that it can be examined, until
:meth:`SnapshotStore.prune` finds a newer one that is not damaged.

``open`` and ``load`` block: they are for the time before the loop has work, and for threads. All other calls await and
never block the loop. A call that is cancelled while it changes names completes the change first.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress

from viewstamp.errors import ConfigError, CorruptionError, StorageError, StorageFullError, TrimmedError
from viewstamp.host.blocking import in_thread, to_the_end
from viewstamp.host.garbage import Garbage, create_anew
from viewstamp.host.interfaces import AsyncFile, Disk
from viewstamp.ids import GROUP_0, GroupId, Index, Term
from viewstamp.node.snapshots.choice import choose_base, choose_dropped
from viewstamp.node.snapshots.file import (
    SYNC_BYTES,
    SnapshotHeader,
    SnapshotMeta,
    SnapshotWriter,
    intact_bytes,
    read_header,
    read_pieces,
    read_trailer,
)
from viewstamp.value_class import value_class

__all__ = [
    "DamagedSnapshot",
    "IncomingSnapshot",
    "NewSnapshot",
    "SnapshotStore",
    "StoredSnapshot",
]

_NAME = re.compile(r"(\d{20})-(\d+)\.(snapshot|temporary|incoming)")


@value_class(kw_only=False)
class StoredSnapshot:
    """A whole snapshot. Another member's at the same viewstamp has another ``identity``. ``size`` is in bytes."""

    meta: SnapshotMeta
    path: str
    size: int
    identity: int

    @property
    def end(self) -> Index:
        """The first index that it does not cover."""
        return self.meta.end

    @property
    def term(self) -> Term:
        """The term of the last record that it covers."""
        return self.meta.term

    def as_dict(self) -> dict[str, object]:
        """Return its fields for clients and other members."""
        return {"index": self.end - 1, "term": self.term, "bytes": self.size, "created": self.meta.created_us / 1e6}


@value_class(kw_only=False)
class DamagedSnapshot:
    """A damaged file with the name of a snapshot."""

    path: str
    end: Index
    error: CorruptionError


class SnapshotStore:
    """Made by :meth:`open`; one process at a time has a directory open.

    Invariants:
      * ``stored`` is newest first; every file in it was whole, and durable with its name, when it was listed
      * all are of one cluster, and of one group, as far as their files name it
    """

    def __init__(self, disk: Disk, directory: str, cluster: str, group: GroupId) -> None:
        self.directory = directory
        self.cluster = cluster
        self.group = group
        self.stored: list[StoredSnapshot] = []
        self.damaged: list[DamagedSnapshot] = []
        """Damaged snapshots that are not removed yet; for the log, and for ``status``."""
        self.suspects: asyncio.Queue[StoredSnapshot] = asyncio.Queue()
        """Snapshots that may be damaged here; the scrubber takes and verifies them."""
        self._disk = disk
        self._garbage = Garbage(disk)

    @classmethod
    def open(cls, disk: Disk, directory: str, cluster: str, group: GroupId = GROUP_0) -> SnapshotStore:
        """Read header and trailer of each snapshot, and remove leftovers. Blocks.

        Raises:
          ConfigError: a snapshot is of another cluster or group, or of a newer format.
          StorageError: the disk failed.
        """
        store = cls(disk, directory, cluster, group)
        disk.make_directory(directory)
        for name in disk.list_directory(directory):
            match = _NAME.fullmatch(name)
            if match is None or match[3] == "incoming":
                continue
            path = f"{directory}/{name}"
            if match[3] == "temporary":
                store._garbage.remove(path)
            else:
                store._find(path, Index(int(match[1])), Term(int(match[2])))
        # A name may be in the page cache only. It must be durable before the node relies on the file.
        disk.sync_directory(directory)
        return store

    @property
    def stuck(self) -> dict[str, str]:
        """Files that are not needed and could not be removed, with the reason."""
        return dict(self._garbage.stuck)

    async def retry_removals(self) -> None:
        """Try again to remove files that could not be removed.

        Raises:
          StorageError: a sync failed; final.
        """
        if self._garbage.stuck:
            await in_thread(self._remove_names, list(self._garbage.stuck))

    def find(self, end: int, term: int) -> StoredSnapshot | None:
        """Return the snapshot of this viewstamp."""
        return next((each for each in self.stored if (each.end, each.term) == (end, term)), None)

    def base(
        self, keep_from: Index | None, *, log_begin: Index = Index(1), pressed: bool = False
    ) -> StoredSnapshot | None:
        """Return the snapshot up to which the log may be deleted; see :func:`choose_base`."""
        end = choose_base([each.end for each in self.stored], keep_from, log_begin=log_begin, pressed=pressed)
        return next((each for each in self.stored if each.end == end), None)

    def load(self, stored: StoredSnapshot) -> Iterator[bytes]:
        """Yield the verified pieces. Blocks. They are complete only if the iteration ends without an error.

        Raises:
          CorruptionError: a byte is wrong; call :meth:`set_aside` and take the next one.
        """
        try:
            file = self._disk.open_read(stored.path)
        except FileNotFoundError as error:
            raise CorruptionError(
                f"the snapshot {stored.path} is gone",
                path=stored.path,
                expected="a snapshot",
                found="no file",
                remedy="put it back; an older one is taken, if the log reaches back to it",
            ) from error
        try:
            yield from read_pieces(file, read_header(file))
        finally:
            file.close()

    def set_aside(self, stored: StoredSnapshot, error: CorruptionError) -> None:
        """Move a damaged snapshot from ``stored`` to ``damaged``; its file stays for now."""
        self.stored.remove(stored)
        self.damaged.append(DamagedSnapshot(stored.path, stored.end, error))

    async def create(self, meta: SnapshotMeta) -> NewSnapshot:
        """Begin to write a snapshot. If cancelled, it may leave a leftover, which the next one removes.

        Raises:
          StorageFullError: there is no room; nothing is left.
        """
        assert (meta.cluster, meta.group) == (self.cluster, self.group), f"{meta} in {self.directory}"
        path = self._path(meta.end, meta.term, "temporary")
        return NewSnapshot(self, await self._begin_anew(path), meta)

    async def receive(self, end: int, term: int) -> IncomingSnapshot:
        """Begin to receive the snapshot of this viewstamp (``term``, ``end``), or continue after its intact bytes.

        Incomplete files of other received snapshots are removed, so only one snapshot can be received at a time.

        Raises:
          StorageError: the disk failed.
        """
        path = self._path(end, term, "incoming")
        offset, header = await in_thread(self._resume, path)
        file = await (self._disk.open_async(path) if offset else self._begin_anew(path))
        return IncomingSnapshot(self, file, end, term, offset, None if header is None else header.identity)

    async def read_chunk(self, stored: StoredSnapshot, offset: int, bytes_max: int) -> bytes:
        """Return bytes of the file, not verified, because the receiver verifies them, and requests wrong ones again.

        Raises:
          TrimmedError: it is not kept any more; ``first`` is the end of the newest one.
        """
        try:
            file = await self._disk.open_async(stored.path)
        except FileNotFoundError:
            newest = self.stored[0].end if self.stored else 0
            raise TrimmedError(
                f"the snapshot {stored.term}.{stored.end} is not kept any more",
                first=newest,
                remedy="take the newest one",
            ) from None
        try:
            return await file.read(offset, bytes_max)
        finally:
            await file.close()

    async def remove(self, stored: StoredSnapshot) -> None:
        """Remove a snapshot, durably."""
        self.stored.remove(stored)
        await in_thread(self._remove_names, [stored.path])

    async def prune(
        self,
        base: StoredSnapshot | None,
        kept_max: int,
        held: Collection[StoredSnapshot] = (),
        are_near: Callable[[Index, Index], bool] = lambda _before, _after: True,
    ) -> list[str]:
        """Remove the result of :func:`choose_dropped`, and damaged files with a newer snapshot. Returns the paths.

        A file that cannot be removed is off the list all the same, and in ``stuck``: see :meth:`retry_removals`.
        To be called when a snapshot was finished, and the log dropped up to ``base``.
        """
        ends = [each.end for each in self.stored]
        base_end = None if base is None else base.end
        held_ends = [each.end for each in held]
        chosen = choose_dropped(ends, base=base_end, kept_max=kept_max, held=held_ends, are_near=are_near)
        newest = max(ends, default=0)
        dropped = [each.path for each in self.stored if each.end in chosen]
        dropped += [each.path for each in self.damaged if each.end < newest]
        self.stored = [each for each in self.stored if each.path not in dropped]
        self.damaged = [each for each in self.damaged if each.path not in dropped]
        if dropped:
            await in_thread(self._remove_names, dropped)
        return [path for path in dropped if path not in self._garbage.stuck]

    def _path(self, end: int, term: int, kind: str) -> str:
        return f"{self.directory}/{end:020d}-{term}.{kind}"

    def _find(self, path: str, end: Index, term: Term) -> None:
        file = self._disk.open_read(path)
        try:
            header = read_header(file)
            self._check_home(header.meta, path)
            meta = header.meta
            if (meta.end, meta.term) != (end, term):
                raise CorruptionError(
                    f"{path} holds the snapshot {meta.term}.{meta.end}: it was renamed",
                    path=path,
                    expected=f"{term}.{end}",
                    found=f"{meta.term}.{meta.end}",
                    remedy="give it back the name that it was made with",
                )
            read_trailer(file, header)
            self._list(StoredSnapshot(meta, path, file.size(), header.identity))
        except CorruptionError as error:
            self.damaged.append(DamagedSnapshot(path, end, error))
        finally:
            file.close()

    def _check_home(self, meta: SnapshotMeta, path: str) -> None:
        if meta.cluster != self.cluster:
            raise ConfigError(
                f"the snapshot {path} is of cluster {meta.cluster}, this node is of {self.cluster}",
                remedy="move it out of the way, or give this node its own [node] data_dir",
            )
        if not meta.is_of(self.group):
            raise ConfigError(
                f"the snapshot {path} is of group {meta.group}, and its directory is that of group {self.group}",
                remedy="move it out of the way, because it has the state of other topics; nothing was changed",
            )

    def _resume(self, path: str) -> tuple[int, SnapshotHeader | None]:
        """Return the intact bytes of a file, and its header; remove leftovers of other transfers."""
        for name in self._disk.list_directory(self.directory):
            other = f"{self.directory}/{name}"
            if name.endswith(".incoming") and other != path:
                with suppress(StorageError):  # The next transfer tries again.
                    self._disk.remove(other)
        try:
            file = self._disk.open_read(path)
        except FileNotFoundError:
            return 0, None
        try:
            offset = intact_bytes(file)
            if offset:
                return offset, read_header(file)
        except ConfigError:
            pass  # A newer release, which ran here before, wrote it.
        finally:
            file.close()
        return 0, None

    def _list(self, stored: StoredSnapshot) -> None:
        self._garbage.stuck.pop(stored.path, None)  # A new file has replaced the one that could not be removed.
        others = [each for each in self.stored if each.path != stored.path]
        self.damaged = [each for each in self.damaged if each.path != stored.path]
        self.stored = sorted([*others, stored], key=lambda each: (each.end, each.term), reverse=True)

    async def _take_in(self, path: str, header: SnapshotHeader, size: int) -> StoredSnapshot:
        """Rename a file with durable bytes to its final name, sync the name, and list it."""
        meta = header.meta
        target = self._path(meta.end, meta.term, "snapshot")
        await in_thread(self._rename, path, target)
        stored = StoredSnapshot(meta, target, size, header.identity)
        self._list(stored)
        return stored

    def _rename(self, source: str, target: str) -> None:
        self._disk.rename(source, target)
        self._disk.sync_directory(self.directory)

    async def _begin_anew(self, path: str) -> AsyncFile:
        """Open an empty file; see :func:`create_anew` about leftovers."""
        await in_thread(_make_empty, self._disk, path)
        return await self._disk.open_async(path)

    async def _discard(self, path: str) -> None:
        """Remove a file that is not in ``stored``. If that fails, the file stays until a transfer uses its name again.

        It is not added to ``stuck``, because the removal of stuck files is tried again later, and a transfer may be
        writing to this file then.
        """
        with suppress(StorageError):
            await in_thread(_remove_if_there, self._disk, path)

    async def _check_room(self, size: int) -> None:
        free = await in_thread(self._disk.free_bytes, self.directory)
        if size > free:
            raise StorageFullError(
                f"{self.directory} has {free} bytes free, the snapshot that is offered needs {size} more",
                remedy="free space where the data directory is; the snapshot is fetched then",
            )

    def _verify(self, path: str) -> tuple[SnapshotHeader, int]:
        """Read all of a file; return its header and size."""
        file = self._disk.open_read(path)
        try:
            header = read_header(file)
            self._check_home(header.meta, path)
            for _ in read_pieces(file, header):
                pass
            return header, file.size()
        finally:
            file.close()

    def _remove_names(self, paths: Sequence[str]) -> None:
        removed = [path for path in paths if self._garbage.remove(path)]
        if removed:
            self._disk.sync_directory(self.directory)


class NewSnapshot:
    """A snapshot that is being written: :meth:`add` the pieces, then :meth:`finish`; or :meth:`abandon` it.

    After an error or a cancellation its file is removed, and it must not be used any more.
    """

    def __init__(self, store: SnapshotStore, file: AsyncFile, meta: SnapshotMeta) -> None:
        self.meta = meta
        self._store = store
        self._file = file
        self._writer = SnapshotWriter(file, meta)
        self._is_over = False

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._writer.size

    async def add(self, piece: bytes) -> None:
        """Append a piece, which is not empty; up to a megabyte or so is best.

        Raises:
          StorageFullError: there is no room for it. The old snapshots are as they were; later ones may fit.
          StorageError: the disk failed.
        """
        try:
            await self._writer.add(piece)
        except BaseException:
            await self.abandon()
            raise

    async def finish(self) -> StoredSnapshot:
        """Make it durable and list it in the store.

        Raises:
          StorageFullError, StorageError: as :meth:`add`.
        """
        writer = self._writer
        try:
            await writer.finish()
            await self._file.close()
            stored = await to_the_end(self._store._take_in(self._file.path, writer.header, writer.size))
        except BaseException:
            await self.abandon()
            raise
        self._is_over = True
        return stored

    async def abandon(self) -> None:
        """Remove the file. Idempotent; after ``finish`` it does nothing."""
        if not self._is_over:
            self._is_over = True
            await self._file.close()
            await self._store._discard(self._file.path)


class IncomingSnapshot:
    """A snapshot that is being received: ask for bytes from ``offset`` on and :meth:`add` them until ``is_complete``.

    Keep it while connections are lost, so that no bytes are fetched twice. Received bytes also stay on the disk after
    :meth:`close` and a restart; ``receive`` continues after the last intact piece.

    Invariants:
      * the file holds ``offset`` bytes of the snapshot whose identity is ``identity``
    """

    def __init__(
        self, store: SnapshotStore, file: AsyncFile, end: int, term: int, offset: int, identity: int | None
    ) -> None:
        self.end = end
        self.term = term
        self.offset = offset
        """The next byte to request."""
        self.size: int | None = None
        """Size of the file in bytes; None before the first bytes have arrived."""
        self.identity = identity
        """The identity of the received file; None = nothing yet."""
        self._store = store
        self._file = file
        self._synced = offset
        self._is_over = False

    @property
    def is_complete(self) -> bool:
        """Return whether all bytes have arrived, so that :meth:`finish` is due."""
        return self.offset == self.size

    async def add(self, data: bytes, *, offset: int, size: int, identity: int) -> None:
        """Take bytes that another member sent, from ``offset`` on, of its file of ``size`` bytes and ``identity``.

        Bytes that do not continue the received ones are dropped, so that they may arrive twice or late. If another file
        is sent than before, all received bytes are dropped, and ``offset`` is 0 again.

        Raises:
          StorageFullError: there is no room for all of it. Nothing of it is left.
          StorageError: the disk failed.
        """
        try:
            if (identity, size) != (self.identity, self.size):
                await self._begin(size, identity)
            data = data[: size - self.offset]
            if offset == self.offset and data:
                await self._file.write(offset, data)
                self.offset += len(data)
                if self.offset - self._synced >= SYNC_BYTES:
                    await self._file.sync()
                    self._synced = self.offset
        except StorageError:
            await self.discard()
            raise

    async def finish(self) -> StoredSnapshot:
        """Verify all of it, make it durable, and list it in the store.

        Raises:
          CorruptionError: its bytes are wrong. The damage may be here, on the way, or at the sender. Nothing is left.
          ConfigError: it is of another cluster or group, or of a newer format. Nothing is left.
          StorageError: the disk failed. Nothing is left.
        """
        path = self._file.path
        try:
            await self._file.sync()
            header, size = await in_thread(self._store._verify, path)
            meta = header.meta
            if (meta.end, meta.term) != (self.end, self.term):
                raise CorruptionError(
                    f"received the snapshot {meta.term}.{meta.end} in place of {self.term}.{self.end}",
                    path=path,
                    expected=f"{self.term}.{self.end}",
                    found=f"{meta.term}.{meta.end}",
                    remedy="wait: the node fetches it again",
                )
            await self._file.close()
            stored = await to_the_end(self._store._take_in(path, header, size))
        except (CorruptionError, ConfigError, StorageError):
            await self.discard()
            raise
        self._is_over = True
        return stored

    async def close(self) -> None:
        """Stop for now; the received bytes stay. Idempotent."""
        await self._file.close()

    async def discard(self) -> None:
        """Stop, and remove the file. Idempotent; after ``finish`` it does nothing."""
        if not self._is_over:
            self._is_over = True
            await self._file.close()
            await self._store._discard(self._file.path)

    async def _begin(self, size: int, identity: int) -> None:
        """Note size and identity of the sent file; begin again if the received bytes are of another one."""
        if self.offset and (identity != self.identity or self.offset > size):
            await self._file.close()
            self._file = await self._store._begin_anew(self._file.path)
            self.offset = self._synced = 0
        await self._store._check_room(size - self.offset)
        self.identity, self.size = identity, size


def _remove_if_there(disk: Disk, path: str) -> None:
    if disk.exists(path):
        disk.remove(path)


def _make_empty(disk: Disk, path: str) -> None:
    create_anew(disk, path).close()
