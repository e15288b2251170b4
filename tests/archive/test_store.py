"""The store of runs in a directory: objects that appear whole and once, whatever fails."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from viewstamp.archive.store import DirectoryObjects, ObjectFile
from viewstamp.errors import CorruptionError, StorageError, StorageFullError
from viewstamp.host.disk import RealDisk
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash, SimulatedLoop

PIECES = [b"one", b"", b"two" * 500_000, b"three"]
WHOLE = b"".join(PIECES)
NAME = "runs/a"


@pytest.fixture
def store(tmp_path: Path) -> DirectoryObjects:
    return DirectoryObjects(RealDisk(), str(tmp_path / "store"))


@pytest.fixture(name="loop")
def _loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop(seed=1)
    yield loop
    loop.close()


def test_an_object_is_created_once_and_read_in_parts(store: DirectoryObjects) -> None:
    assert store.list_sizes("runs/") == {}
    with pytest.raises(FileNotFoundError):
        store.read_part(NAME, 0, 1)
    store.create(NAME, PIECES)
    assert store.list_sizes("runs/") == {NAME: len(WHOLE)}
    assert store.read_part(NAME, 0, 1 << 30) == WHOLE
    assert store.read_part(NAME, 2, 3) == WHOLE[2:5]
    assert store.read_part(NAME, len(WHOLE) - 2, 9) == WHOLE[-2:]
    assert store.read_part(NAME, len(WHOLE) + 5, 9) == b""
    with pytest.raises(FileExistsError):
        store.create(NAME, [b"other"])
    assert store.read_part(NAME, 0, 1 << 30) == WHOLE
    store.remove(NAME)
    store.remove(NAME)
    assert store.list_sizes("runs/") == {}


def test_files_are_private(store: DirectoryObjects) -> None:
    store.create(NAME, PIECES)
    assert os.stat(f"{store.where}/{NAME}").st_mode & 0o077 == 0


def test_an_error_of_the_pieces_leaves_nothing(store: DirectoryObjects) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"one"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.create(NAME, pieces())
    assert os.listdir(f"{store.where}/runs") == []
    store.create(NAME, PIECES)


def test_two_writers_of_one_name_do_not_mix(store: DirectoryObjects) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"one"
        with pytest.raises(FileExistsError):
            store.create(NAME, [b"other"])
        yield b"two"

    store.create(NAME, pieces())
    assert store.read_part(NAME, 0, 100) == b"onetwo"


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_after_death_at_each_disk_call_the_object_is_whole_or_absent(loop: SimulatedLoop, is_power_cut: bool) -> None:
    outcomes = set()
    for call in range(1, 100):
        disk = SimulatedDisk(loop=loop)
        DirectoryObjects(disk, "/s").create("runs/other", [b"kept"])
        disk.crash_at(call)
        try:
            DirectoryObjects(disk, "/s").create(NAME, PIECES)
            is_done = True
        except SimulatedCrash:
            is_done = False
        if is_power_cut:
            disk.crash(random.Random(call))
        else:
            disk.kill()
        disk.crash_at(None)
        store = DirectoryObjects(disk, "/s")
        found = store.list_sizes("runs/")
        assert found.pop("runs/other") == 4
        size = found.pop(NAME, None)
        assert found == {}
        assert size in ((len(WHOLE),) if is_done else (None, 0, len(WHOLE)))
        if size:
            assert store.read_part(NAME, 0, 1 << 30) == WHOLE
        outcomes.add(size)
        if size is not None:
            with pytest.raises(FileExistsError):
                store.create(NAME, [b"other"])
        store.remove(NAME)
        assert disk.list_directory("/s/runs") == ["other"]
        if is_done:
            break
    assert outcomes == {None, 0, len(WHOLE)}


@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename"])
def test_a_disk_that_fails_is_named_and_a_list_finds_what_is_left(loop: SimulatedLoop, operation: str) -> None:
    disk = SimulatedDisk(loop=loop)
    store = DirectoryObjects(disk, "/s")
    store.create("runs/other", [b"kept"])
    disk.fail(operation)
    with pytest.raises(StorageError, match="the store of archived records cannot be used"):
        store.create(NAME, PIECES)
    assert set(disk.list_directory("/s/runs")) <= {"other", "a", "a.temporary"}
    assert store.list_sizes("runs/").get(NAME, 0) == 0
    store.remove(NAME)
    assert disk.list_directory("/s/runs") == ["other"]


def test_a_full_store_gets_its_room_back(loop: SimulatedLoop) -> None:
    disk = SimulatedDisk(loop=loop)
    disk.capacity_bytes = 600_000
    store = DirectoryObjects(disk, "/s")
    with pytest.raises(StorageFullError, match="the store of archived records is full") as raised:
        store.create(NAME, PIECES)
    assert "the log keeps the records" in raised.value.remedy
    assert disk.list_directory("/s/runs") == []


def test_an_error_of_the_source_is_not_blamed_on_the_store(store: DirectoryObjects) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"one"
        raise StorageFullError("the log cannot be read")

    with pytest.raises(StorageFullError, match=r"^the log cannot be read"):
        store.create(NAME, pieces())


def test_an_object_is_a_file_with_random_access(store: DirectoryObjects) -> None:
    store.create(NAME, PIECES)
    file, model = ObjectFile(store, NAME, len(WHOLE)), io.BytesIO(WHOLE)
    for offset, whence, size in [(0, 0, 3), (2, 1, 10), (-4, 2, 9), (0, 2, 1), (7, 0, -1), (9, 0, 0)]:
        assert file.seek(offset, whence) == model.seek(offset, whence)
        assert file.read(size) == model.read(size)
        assert file.tell() == model.tell()
    assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)


def test_a_missing_or_short_object_is_damage(store: DirectoryObjects) -> None:
    with pytest.raises(CorruptionError, match=r"object runs/a of .* is damaged: it is not there"):
        ObjectFile(store, NAME, 5).read(1)
    store.create(NAME, [b"abc"])
    with pytest.raises(CorruptionError, match="it ends at byte 3 instead of 5"):
        ObjectFile(store, NAME, 5).read()
