"""The remains of real files after a power cut, rebuilt from a recording by the rules of the simulated disk."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path

import pytest

from viewstamp.host.conformance import DISK_BEHAVIOURS
from viewstamp.host.disk import RealDisk
from viewstamp.host.interfaces import Disk
from viewstamp.sim.recording import OperationKind, Playback, Recording, rebuild

_LINE = 100


def _append_lines(disk: Disk, recording: Recording, directory: str, count: int, *, careless: str = "") -> None:
    """Write a log correctly, or without the sync that ``careless`` names. Marks the promises that it would give."""
    disk.make_directory(directory)
    file = disk.open(f"{directory}/temporary", create=True)
    file.write(0, [bytes(count * _LINE)])
    if careless != "file":
        file.sync()
    disk.rename(f"{directory}/temporary", f"{directory}/log")
    if careless != "directory":
        disk.sync_directory(directory)
    for number in range(count):
        file.write(number * _LINE, [_line(number)])
        if careless != "data":
            file.sync_data()
        recording.mark((directory, number))
    file.close()


def _line(number: int) -> bytes:
    return f"{number:>{_LINE - 1}}\n".encode()


def _is_kept(root: str, after: Path, mark: tuple[str, int]) -> bool:
    directory, number = mark
    path = after / Path(directory).relative_to(root) / "log"
    return path.exists() and path.read_bytes()[number * _LINE : (number + 1) * _LINE] == _line(number)


def _losses(root: Path, after: Path, careless: str) -> int:
    """Cut the power at every operation; count the promises that are then broken."""
    recording = Recording(str(root))
    _append_lines(recording.disk(RealDisk()), recording, str(root / "n1"), 10, careless=careless)
    replay = Playback(recording)
    lost = 0
    for cut_at in range(len(recording) + 1):
        replay.advance(cut_at)
        for seed in range(3):
            target = after / f"{cut_at}-{seed}"
            marks = replay.write(random.Random(seed), str(target))
            lost += sum(not _is_kept(str(root), target, mark) for mark in marks)  # type: ignore[arg-type]
    return lost


def test_a_log_that_syncs_keeps_every_promise_at_every_cut(tmp_path: Path) -> None:
    assert _losses(tmp_path / "live", tmp_path / "after", "") == 0


@pytest.mark.parametrize("careless", ["data", "file", "directory"])
def test_a_log_that_omits_one_sync_is_detected(tmp_path: Path, careless: str) -> None:
    assert _losses(tmp_path / "live", tmp_path / "after", careless) > 0


def test_the_whole_recording_without_a_cut_page_equals_the_disk(tmp_path: Path) -> None:
    root = tmp_path / "live"
    recording = Recording(str(root))
    disk = recording.disk(RealDisk())
    disk.make_directory(str(root / "a/b"))
    file = disk.open(str(root / "a/b/one"), create=True)
    file.write(0, [b"x" * 10, bytearray(200_000), memoryview(b"yy")])
    file.truncate(200_011)
    file.sync()
    file.close()
    file = disk.open(str(root / "a/b/one"))
    file.write(5, [b"again"])
    file.sync_data()
    disk.open(str(root / "a/two"), create=True).sync()
    disk.open(str(root / "a/three"), create=True).sync()
    disk.remove(str(root / "a/two"))
    disk.rename(str(root / "a/three"), str(root / "a/four"))
    disk.sync_directory(str(root / "a"))
    disk.sync_directory(str(root / "a/b"))
    rebuild(recording, len(recording), random.Random(1), str(tmp_path / "after"))
    assert _tree(tmp_path / "after") == _tree(root)
    assert sorted(_tree(root)) == ["a/b/one", "a/four"]


def _tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_files_from_before_the_recording_are_durable(tmp_path: Path) -> None:
    root = tmp_path / "live"
    root.mkdir()
    (root / "old").write_bytes(b"old")
    recording = Recording(str(root))
    file = recording.disk(RealDisk()).open(str(root / "old"))
    file.write(0, [b"new"])
    rebuild(recording, 1, random.Random(1), str(tmp_path / "before"))
    assert _tree(tmp_path / "before") == {"old": b"old"}
    found = set()
    for seed in range(20):
        rebuild(recording, 2, random.Random(seed), str(tmp_path / f"after-{seed}"))
        found.add((tmp_path / f"after-{seed}" / "old").read_bytes())
    assert found == {b"old", b"new"}


def test_marks_before_the_cut_are_returned_in_order(tmp_path: Path) -> None:
    recording = Recording(str(tmp_path))
    first, second = recording.mark("first"), recording.mark("second")
    assert rebuild(recording, second, random.Random(1), str(tmp_path / "a")) == ["first"]
    assert rebuild(recording, first, random.Random(1), str(tmp_path / "b")) == []
    assert recording.marks() == ["first", "second"]


@pytest.mark.parametrize("data_file", [False, True])
def test_many_threads_share_one_order(tmp_path: Path, data_file: bool) -> None:
    """Each thread's own operations keep their order, and every file is complete."""
    root = tmp_path / "live"
    recording = Recording(str(root), data_file=data_file)
    disk = recording.disk(RealDisk())
    threads = [
        threading.Thread(target=_append_lines, args=(disk, recording, str(root / f"n{number}"), 30))
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rebuild(recording, len(recording), random.Random(1), str(tmp_path / "after"))
    assert _tree(tmp_path / "after") == _tree(root)
    marks = [mark for mark in recording.marks() if isinstance(mark, tuple) and mark[0].endswith("n2")]
    assert [number for _, number in marks] == list(range(30))
    recording.close()


def test_a_write_during_a_sync_is_not_covered_by_it(tmp_path: Path) -> None:
    recording = Recording(str(tmp_path / "live"))
    disk = recording.disk(RealDisk())
    disk.make_directory(str(tmp_path / "live"))
    file = disk.open(str(tmp_path / "live/file"), create=True)
    file.write(0, [b"-----"])
    file.sync()
    disk.sync_directory(str(tmp_path / "live"))
    began = recording.note(OperationKind.SYNC_BEGINS, str(tmp_path / "live/file"), 1)
    file.write(0, [b"later"])
    recording.note(OperationKind.SYNC, str(tmp_path / "live/file"), 1, began)
    replay = Playback(recording)
    replay.advance(len(recording))
    found = {next(iter(replay.image(random.Random(seed)).files.values())) for seed in range(40)}
    assert {b"-----", b"later"} <= found


def test_synced_bytes_of_an_asynchronous_file_survive_every_later_cut(tmp_path: Path) -> None:
    recording = Recording(str(tmp_path / "live"))
    disk = recording.disk(RealDisk())
    root = str(tmp_path / "live")

    async def work() -> None:
        file = await disk.open_async(f"{root}/temporary", create=True)
        await file.write(0, b"a" * 10_000)
        await file.write(10_000, memoryview(b"b" * 10_000))
        await file.sync()
        await file.close()
        writing = asyncio.ensure_future(disk.open_async(f"{root}/cancelled", create=True))
        await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait([writing])
        disk.rename(f"{root}/temporary", f"{root}/file")
        disk.remove(f"{root}/cancelled")
        disk.sync_directory(root)
        recording.mark("done")

    disk.make_directory(root)
    asyncio.run(work())
    replay = Playback(recording)
    survived = set()
    for cut_at in range(len(recording) + 1):
        replay.advance(cut_at)
        for seed in range(5):
            files = replay.image(random.Random(seed)).files
            content = files.get(f"{root}/file")
            assert content is None or content == b"a" * 10_000 + b"b" * 10_000, "the bytes are durable before the name"
            survived.add(content is not None)
            assert content is not None or not recording.marks(cut_at)
    assert survived == {False, True}


def test_zeros_are_recorded_as_a_count(tmp_path: Path) -> None:
    recording = Recording(str(tmp_path))
    file = recording.disk(RealDisk()).open(str(tmp_path / "file"), create=True)
    file.write(0, [bytes(3_000_000)])
    file.write(0, [b"\0x\0"])
    assert [each.data for each in recording.operations if each.kind == OperationKind.WRITE] == [3_000_000, b"\0x\0"]


@pytest.mark.parametrize("behaviour", DISK_BEHAVIOURS, ids=lambda each: each.__name__)
def test_a_recording_disk_conforms(behaviour, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    asyncio.run(behaviour(Recording(str(tmp_path)).disk(RealDisk()), str(tmp_path)))
