"""The contents of a disk, their durable part, and the states that a power cut may leave. Pure: no host, no loop.

The simulated disk and ``recording.rebuild`` both use it, so the same rules hold for both. They are those of a file
system that promises no more than POSIX does, and are harsher than ext4 in several places:

====================  ================================================================================================
bytes                 ``sync`` makes all bytes of a file durable, ``sync_data`` those below the durable length length
the durable length is the one at the last ``sync``; ``sync_data`` never makes a grown (or cut)
                      length durable, so bytes past it may be lost with it, synced or not
unsynced bytes        by pages of 4 KiB, any subset: each page has its durable or any later version; a torn page has
                      such a version in each of its sectors of 512 bytes
unsynced length       any length that the file had since the last ``sync``; bytes cut off by a truncation that survives
                      never come back, those cut off by a lost truncation have their durable version
names                 a name made, moved or removed is durable after ``sync_directory`` of every directory in
                      question, never by ``sync`` of the file: a synced file may be gone, name and all
unsynced names        any subset of the changes, each of them whole (a rename both takes the old name away and gives
                      the new one); a change of a name that an earlier unsynced change made needs that one too
directories           durable when they are made failed sync           the system marks the unsynced pages as clean: a
later ``sync`` that succeeds does not write them,
                      unless they have been written to again; a power cut may take them back
kill -9               loses nothing: the system still has every written byte ====================
================================================================================================
"""

from __future__ import annotations

import posixpath
import random
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from viewstamp.host.interfaces import Buffer

__all__ = ["PAGE_SIZE", "SECTOR_SIZE", "Inode", "Volume", "VolumeImage"]

PAGE_SIZE = 4096
SECTOR_SIZE = 512
_EMPTY_PAGE = bytes(PAGE_SIZE)
_DATA_OF = attrgetter("data")


@dataclass(frozen=True, slots=True)
class _Change:
    """One unsynced change of a file: bytes written at ``offset``, or (``data`` is None) the length set to it."""

    number: int
    offset: int
    data: bytes | None


@dataclass(frozen=True, slots=True)
class _NameChange:
    """One unsynced change of names. ``names`` maps each name to its file afterwards, None = removed.

    ``needs`` are the numbers of the earlier unsynced changes of these names, without which this one cannot have
    happened; ``directories`` are those that are still to be synced.
    """

    number: int
    names: dict[str, Inode | None]
    needs: tuple[int, ...]
    directories: set[str] = field(compare=False)


@dataclass(frozen=True, slots=True)
class VolumeImage:
    """The contents of the disk after a power cut: directories, and the bytes of every file by its path."""

    directories: tuple[str, ...]
    files: dict[str, bytes]


class Inode:
    """A file, independent of its names.

    Invariants:
      * ``data`` is the visible contents; ``_before`` holds the durable version of each page that may differ from it
      * ``_changes`` are the unsynced changes in order; empty if and only if everything is synced
      * ``version`` rises with every change of the visible or the durable contents; ``lowest_change`` is at most the
        first byte changed since a caller last set it
    """

    __slots__ = (
        "_before",
        "_changes",
        "_clean",
        "_durable_size",
        "_number",
        "data",
        "lowest_change",
        "number",
        "version",
    )

    def __init__(self, number: int, data: bytes = b"") -> None:
        self.number = number
        self.data = bytearray(data)
        self._durable_size = len(data)
        self._before: dict[int, bytes] = {}
        self._changes: list[_Change] = []
        self._number = 0
        self._clean: set[int] = set()
        self.version = 0
        self.lowest_change = 0

    @property
    def cursor(self) -> int:
        """The number of the latest change; a sync that begins now covers up to it."""
        return self._number

    @property
    def is_synced(self) -> bool:
        """Whether nothing of this file could be lost."""
        return not self._changes

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write ``buffers`` from ``offset`` on; a gap behind the end reads as zeros."""
        data = buffers[0] if len(buffers) == 1 and isinstance(buffers[0], bytes) else b"".join(buffers)
        if not data:
            return
        end = offset + len(data)
        self._keep(offset, end)
        if self._clean:
            self._clean.difference_update(range(offset // PAGE_SIZE, -(-end // PAGE_SIZE)))
        if len(self.data) < offset:
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset:end] = data
        self._note(offset)
        self._number += 1
        self._changes.append(_Change(self._number, offset, bytes(data)))

    def truncate(self, size: int) -> None:
        """Set the length."""
        self._note(min(size, len(self.data)))
        if size < len(self.data):
            self._keep(size, len(self.data))
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
        self._number += 1
        self._changes.append(_Change(self._number, size, None))

    def sync(self, through: int | None = None) -> None:
        """Make bytes and length durable, for the changes up to number ``through`` (None = all)."""
        covered = self._count(through)
        self.version += 1
        if self._clean:
            self._settle_all_but_clean()
        elif covered == len(self._changes):
            self._settle_everything()
        else:
            durable, size = self._durable_pages(self._changes[:covered], self._durable_size, data_only_below=None)
            self._settle(durable, self._changes[covered:], size)

    def sync_data(self, through: int | None = None) -> None:
        """Make bytes below the durable length durable, for the changes up to number ``through`` (None = all)."""
        if not self._changes:
            return
        self.version += 1
        covered = self._count(through)
        sizes = [change.offset for change in self._changes if change.data is None]
        low = min([self._durable_size, *sizes])
        whole = covered == len(self._changes)
        if whole and not sizes and len(self.data) == self._durable_size:
            if self._clean:
                self._settle_all_but_clean()
            else:
                self._settle_everything()
            return
        if self._clean:
            return  # After a failed sync and a changed length, nothing is promised before the next ``sync``.
        durable, _ = self._durable_pages(self._changes[:covered], self._durable_size, data_only_below=low)
        rest = [kept for change in self._changes[:covered] if (kept := _above(change, low)) is not None]
        self._settle(durable, rest + self._changes[covered:], self._durable_size)

    def fail_sync(self) -> None:
        """Fail a sync: the unsynced pages are marked clean, until they are written to again."""
        self._clean.update(self._before)

    def flip(self, offset: int, bit: int = 0) -> None:
        """Change one bit as rot does, both in the visible and in the durable contents."""
        self.spoil(offset, bytes([self.data[offset] ^ 1 << bit]))

    def spoil(self, offset: int, data: bytes) -> None:
        """Replace bytes, both in the visible and in the durable contents; the length stays."""
        data = data[: max(0, len(self.data) - offset)]
        self.data[offset : offset + len(data)] = data
        self._note(offset)
        for page, content in self._before.items():
            start, end = max(offset, page * PAGE_SIZE), min(offset + len(data), (page + 1) * PAGE_SIZE)
            if start < end:
                changed = bytearray(content)
                changed[start - page * PAGE_SIZE : end - page * PAGE_SIZE] = data[start - offset : end - offset]
                self._before[page] = bytes(changed)

    def cut(self, size: int) -> None:
        """Lose everything from ``size`` on, including the length, both in the visible and in the durable contents."""
        self._settle_everything()
        self._clean.clear()
        self._note(size)
        del self.data[size:]
        self._durable_size = len(self.data)

    def become(self, data: bytes) -> None:
        """Replace the contents, both visible and durable, as if another file had been copied here."""
        self.cut(0)
        self.data[:] = data
        self._durable_size = len(data)

    def certain_size(self) -> int:
        """Return the length of the prefix that any power cut now would leave as it reads."""
        size = min(self._durable_size, len(self.data))
        for change in self._changes:
            if change.offset >= size:
                continue
            if change.data is None:
                size = change.offset
                continue
            for page, content in self._before.items():
                # A rewrite with the same bytes is certain all the same.
                start = max(change.offset, page * PAGE_SIZE)
                end = min(change.offset + len(change.data), (page + 1) * PAGE_SIZE, size)
                if start < end:
                    new = change.data[start - change.offset : end - change.offset]
                    old = content[start - page * PAGE_SIZE : end - page * PAGE_SIZE]
                    if new != old:
                        size = start + next(at for at in range(end - start) if new[at] != old[at])
        return size

    def after_cut(self, entropy: random.Random) -> bytes:
        """Return possible contents of the file after a power cut now. Changes nothing here."""
        if not self._changes:
            return bytes(self.data)
        kept_lengths = self._kept_lengths(entropy)
        size = self._durable_size
        for change in self._changes[:kept_lengths]:
            size = _size_after(change, size)
        versions = self._versions(kept_lengths)
        result = bytearray(self.data[:size])
        result.extend(bytes(size - len(result)))
        survival = entropy.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        torn = entropy.choice((0.0, 0.0, 0.1, 0.5))
        for page in sorted(versions):
            start = page * PAGE_SIZE
            if start < size:
                content = _pick(versions[page], survival, torn, entropy)
                result[start : min(start + PAGE_SIZE, size)] = content[: size - start]
        return bytes(result)

    def _kept_lengths(self, entropy: random.Random) -> int:
        """Draw how many of the changes had their effect on the *length* recorded.

        None, all, or any number in between.
        """
        last = len(self._changes)
        return entropy.choice((0, last, entropy.randint(0, last)))

    def _versions(self, kept_lengths: int) -> dict[int, list[bytes]]:
        """Return the versions of each page, oldest first, if the first ``kept_lengths`` changes' lengths survive."""
        versions = {page: [content] for page, content in self._before.items()}
        lost_from: int | None = None
        for at, change in enumerate(self._changes):
            if change.data is not None:
                for page, content in _pages_after(change, versions):
                    if lost_from is None or page * PAGE_SIZE < lost_from:
                        versions[page].append(content)
            elif at < kept_lengths:
                _cut_versions(versions, change.offset)
            else:
                # Bytes written behind a truncation that was lost go to blocks that are not the file's; only the page of
                # the cut itself may come to the disk with its end zeroed.
                edge = versions.get(change.offset // PAGE_SIZE)
                if edge is not None and change.offset % PAGE_SIZE:
                    kept = change.offset % PAGE_SIZE
                    edge.append(edge[-1][:kept] + _EMPTY_PAGE[kept:])
                lost_from = change.offset if lost_from is None else min(lost_from, change.offset)
        return versions

    def _note(self, offset: int) -> None:
        self.version += 1
        self.lowest_change = min(self.lowest_change, offset)

    def _keep(self, start: int, end: int) -> None:
        """Keep the durable version of the pages from ``start`` to ``end`` before they change."""
        before = self._before
        data = self.data
        for page in range(start // PAGE_SIZE, -(-end // PAGE_SIZE)):
            if page not in before:
                at = page * PAGE_SIZE
                content = bytes(data[at : min(at + PAGE_SIZE, self._durable_size)])
                before[page] = content + _EMPTY_PAGE[len(content) :]

    def _count(self, through: int | None) -> int:
        if through is None or through >= self._number:
            return len(self._changes)
        return sum(1 for change in self._changes if change.number <= through)

    def _durable_pages(
        self, changes: Iterable[_Change], size: int, *, data_only_below: int | None
    ) -> tuple[dict[int, bytes], int]:
        """Return the pages of ``_before`` after ``changes``, and the length."""
        pages = {page: [content] for page, content in self._before.items()}
        for change in changes:
            if data_only_below is None:
                size = _size_after(change, size)
            if change.data is None:
                if data_only_below is None:
                    _cut_versions(pages, change.offset)
            else:
                clipped = change if data_only_below is None else _below(change, data_only_below)
                if clipped is not None:
                    for page, content in _pages_after(clipped, pages):
                        pages[page] = [content]
        return {page: versions[-1] for page, versions in pages.items()}, size

    def _settle_everything(self) -> None:
        self._changes.clear()
        self._before.clear()
        self._durable_size = len(self.data)

    def _settle_all_but_clean(self) -> None:
        """Make everything durable except the pages of a failed sync, which keep both versions."""
        before = {page: self._before[page] for page in sorted(self._clean) if page in self._before}
        self._settle_everything()
        for page, content in before.items():
            data = bytes(self.data[page * PAGE_SIZE : (page + 1) * PAGE_SIZE])
            if data:
                self._before[page] = content
                self._number += 1
                self._changes.append(_Change(self._number, page * PAGE_SIZE, data))

    def _settle(self, durable: dict[int, bytes], changes: list[_Change], size: int) -> None:
        self._changes = changes
        self._durable_size = size
        longest = max([len(self.data), size, *(_size_after(change, 0) for change in changes)])
        touched: set[int] = set()
        for change in changes:
            end = longest if change.data is None else change.offset + len(change.data)
            touched.update(range(change.offset // PAGE_SIZE, -(-end // PAGE_SIZE)))
        self._before = {page: content for page, content in durable.items() if page in touched}


def _size_after(change: _Change, size: int) -> int:
    return change.offset if change.data is None else max(size, change.offset + len(change.data))


def _below(change: _Change, low: int) -> _Change | None:
    """Return the part of a write below ``low``."""
    if change.data is None or change.offset >= low:
        return None
    return _Change(change.number, change.offset, change.data[: low - change.offset])


def _above(change: _Change, low: int) -> _Change | None:
    """Return the part of a change at or above ``low``; a changed length is always above."""
    if change.data is None or change.offset >= low:
        return change
    if change.offset + len(change.data) <= low:
        return None
    return _Change(change.number, low, change.data[low - change.offset :])


def _pages_after(change: _Change, versions: dict[int, list[bytes]]) -> Iterable[tuple[int, bytes]]:
    """Return each page that a write touches with its content after it, given the latest version of each."""
    assert change.data is not None, "a truncation writes no pages"
    offset, data = change.offset, change.data
    end = offset + len(data)
    for page in range(offset // PAGE_SIZE, -(-end // PAGE_SIZE)):
        start = page * PAGE_SIZE
        if offset <= start and end >= start + PAGE_SIZE:
            yield page, data[start - offset : start - offset + PAGE_SIZE]
        else:
            content = bytearray(versions[page][-1])
            first, last = max(offset, start), min(end, start + PAGE_SIZE)
            content[first - start : last - start] = data[first - offset : last - offset]
            yield page, bytes(content)


def _cut_versions(versions: dict[int, list[bytes]], size: int) -> None:
    """Apply a truncation to ``size``: remove everything above it from every version."""
    for page, contents in versions.items():
        kept = size - page * PAGE_SIZE
        if kept <= 0:
            contents[:] = [_EMPTY_PAGE]
        elif kept < PAGE_SIZE:
            contents[:] = [content[:kept] + _EMPTY_PAGE[kept:] for content in contents]


def _pick(versions: list[bytes], survival: float, torn: float, entropy: random.Random) -> bytes:
    """Draw the contents of a page: its durable version, a later version, or sectors of several."""
    if len(versions) > 1 and entropy.random() < torn:
        return b"".join(
            entropy.choice(versions)[start : start + SECTOR_SIZE] for start in range(0, PAGE_SIZE, SECTOR_SIZE)
        )
    if len(versions) == 1 or entropy.random() >= survival:
        return versions[0]
    return versions[-1] if entropy.random() < 0.5 else entropy.choice(versions[1:])


class Volume:
    """Directories, names and files of one machine's disk. Paths are absolute and normal.

    Raises FileNotFoundError and FileExistsError as a file system would; its users translate them.

    Invariants:
      * ``_names`` is the visible state; ``_durable_names`` after all ``_changes``, in order, gives the same
      * ``_made_by`` has exactly the names in ``_changes``, because a change needs the earlier ones of its names
    """

    def __init__(self) -> None:
        self.directories: dict[str, None] = {"/": None}
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._changes: list[_NameChange] = []
        self._made_by: dict[str, _NameChange] = {}
        """The unsynced change that last set each name."""
        self._listed: dict[tuple[str, bool], dict[str, Inode]] = {}
        """The results of ``names`` and ``certain_names``, by (directory, is certain), until a name in it changes."""
        self._number = 0
        self._inodes = 0

    @classmethod
    def from_image(cls, image: VolumeImage) -> Volume:
        """Return a volume with exactly the contents of ``image``, all of it durable."""
        volume = cls()
        for directory in image.directories:
            volume.make_directory(directory)
        for path, data in image.files.items():
            volume.adopt(path, data)
        return volume

    @classmethod
    def joined(cls, volumes: Iterable[Volume]) -> Volume:
        """Return a volume to read from, with the shared files of several volumes that have no path in common."""
        volume = cls()
        for each in volumes:
            volume.directories.update(each.directories)
            volume._names.update(each._names)
        return volume

    @property
    def cursor(self) -> int:
        """The number of the latest change of a name; a ``sync_directory`` that begins now covers up to it."""
        return self._number

    def find(self, path: str) -> Inode:
        """Return the file of this name."""
        try:
            return self._names[path]
        except KeyError:
            raise FileNotFoundError(2, "no such file", path) from None

    def exists(self, path: str) -> bool:
        """Return whether a file or directory has this name."""
        return path in self._names or path in self.directories

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents, durably."""
        if path in self._names:
            raise FileExistsError(17, "a file of this name exists", path)
        while path not in self.directories:
            self.directories[path] = None
            path = posixpath.dirname(path)

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        prefix = "/" if path == "/" else f"{path}/"
        at = len(prefix)
        paths = [each for each in (*self._names, *self.directories) if each.startswith(prefix)]
        return sorted(name for each in paths if (name := each[at:]) and "/" not in name)

    def create(self, path: str) -> Inode:
        """Make a new empty file."""
        if self.exists(path):
            raise FileExistsError(17, "a file of this name exists", path)
        if posixpath.dirname(path) not in self.directories:
            raise FileNotFoundError(2, "no such directory", path)
        self._inodes += 1
        inode = Inode(self._inodes)
        self._change({path: inode})
        return inode

    def adopt(self, path: str, data: bytes) -> Inode:
        """Add a file that is durable already, with its directory."""
        self.make_directory(posixpath.dirname(path))
        self._inodes += 1
        inode = self._names[path] = self._durable_names[path] = Inode(self._inodes, data)
        self._listed.clear()
        return inode

    def rename(self, source: str, target: str) -> None:
        """Move a name, replacing the file of ``target``."""
        inode = self.find(source)
        if posixpath.dirname(target) not in self.directories:
            raise FileNotFoundError(2, "no such directory", target)
        if source != target:
            self._change({source: None, target: inode})

    def remove(self, path: str) -> None:
        """Remove a name."""
        self.find(path)
        self._change({path: None})

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory, durably, with the removals of the names that it had."""
        if path not in self.directories:
            raise FileNotFoundError(2, "no such directory", path)
        if self.list_directory(path):
            raise OSError(39, "the directory is not empty", path)
        self.sync_directory(path)
        del self.directories[path]

    def lose(self, path: str) -> None:
        """Lose a name, both from the visible and from the durable state."""
        self.find(path)
        self._listed.clear()
        del self._names[path]
        self._durable_names.pop(path, None)
        self._made_by.pop(path, None)
        for change in self._changes:
            change.names.pop(path, None)

    def sync_directory(self, path: str, through: int | None = None) -> None:
        """Make the changes of names in ``path`` durable, up to number ``through`` (None = all)."""
        last = self._number if through is None else through
        for change in self._changes:
            if change.number <= last:
                change.directories.discard(path)
        settled: set[int] = set()
        for change in reversed(self._changes):
            if not change.directories or change.number in settled:
                settled.add(change.number)
                settled.update(change.needs)
        if not settled:
            return
        for change in self._changes:
            if change.number in settled:
                _make(self._durable_names, change)
                for directory in set(map(posixpath.dirname, change.names)):
                    self._listed.pop((directory, True), None)
        self._changes = [change for change in self._changes if change.number not in settled]
        self._made_by = {name: by for name, by in self._made_by.items() if by.number not in settled}

    def names(self, directory: str) -> Mapping[str, Inode]:
        """Return the files in a directory, by name, as a reader sees them now."""
        found = self._listed.get((directory, False))
        if found is None:
            found = self._listed[directory, False] = _within(directory, self._names)
        return found

    def certain_names(self, directory: str) -> Mapping[str, Inode]:
        """Return the files in a directory, by name, if any power cut now would leave the name as it is."""
        found = self._listed.get((directory, True))
        if found is None:
            found = self._listed[directory, True] = _within(directory, self._durable_names, self._made_by)
        return found

    def possible(self, path: str) -> list[Inode]:
        """Return every file that may have this name after a power cut now."""
        if path not in self._made_by:
            durable = self._durable_names.get(path)
            return [] if durable is None else [durable]
        changed = [change.names[path] for change in self._changes if path in change.names]
        return [inode for inode in (self._durable_names.get(path), *changed) if inode is not None]

    def bytes_used(self) -> int:
        """Return the total length of all files."""
        return sum(map(len, map(_DATA_OF, self._names.values())))

    def after_cut(self, entropy: random.Random) -> VolumeImage:
        """Return a possible state of the disk after a power cut now. Changes nothing here."""
        survival = entropy.choice((0.0, 0.5, 0.5, 0.9, 1.0))
        kept: set[int] = set()
        for change in reversed(self._changes):
            if change.number in kept or entropy.random() < survival:
                kept.add(change.number)
                kept.update(change.needs)
        names = dict(self._durable_names)
        for change in self._changes:
            if change.number in kept:
                _make(names, change)
        contents: dict[int, bytes] = {}
        for inode in names.values():
            if inode.number not in contents:
                contents[inode.number] = inode.after_cut(entropy)
        return VolumeImage(tuple(self.directories), {path: contents[names[path].number] for path in sorted(names)})

    def _change(self, names: dict[str, Inode | None]) -> None:
        self._number += 1
        needs = tuple(sorted({by.number for name in names if (by := self._made_by.get(name)) is not None}))
        directories = {posixpath.dirname(name) for name in names}
        for directory in directories:
            self._listed.pop((directory, False), None)
            self._listed.pop((directory, True), None)
        change = _NameChange(self._number, dict(names), needs, directories)
        self._changes.append(change)
        for name in names:
            self._made_by[name] = change
        _make(self._names, change)


def _within(directory: str, names: Mapping[str, Inode], but: Container[str] = ()) -> dict[str, Inode]:
    """Return the files in a directory itself, by the last part of their path, without the paths in ``but``."""
    prefix = f"{directory}/"
    at = len(prefix)
    return {
        path[at:]: inode
        for path, inode in names.items()
        if path.startswith(prefix) and path.find("/", at) == -1 and path not in but
    }


def _make(names: dict[str, Inode], change: _NameChange) -> None:
    for name, inode in change.names.items():
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode
