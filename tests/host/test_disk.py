"""Behaviour of the real disk only: short writes, the system's errors, locks between processes, threads."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from viewstamp.errors import DirectoryInUseError, StorageError, StorageFullError
from viewstamp.host import disk as disk_module
from viewstamp.host.disk import RealDisk


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk()


def test_many_buffers_are_written_without_joining_them(disk: RealDisk, tmp_path: Path) -> None:
    """More buffers than the kernel takes in one call, of all types, some of them empty."""
    kinds = (bytes, bytearray, memoryview)
    buffers = [kinds[i % 3](b"%d," % i if i % 7 else b"") for i in range(2500)]
    file = disk.open(str(tmp_path / "a"), create=True)
    file.write(3, buffers)
    assert file.read(0, 1 << 20) == b"\0\0\0" + b"".join(buffers)
    assert file.size() == 3 + sum(map(len, buffers))
    file.close()
    file.close()


def test_a_short_write_goes_on_where_it_stopped(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may write less than requested, on a nearly full disk or after a signal."""
    real = os.pwritev

    def few(descriptor: int, buffers: list[bytes], offset: int) -> int:
        return real(descriptor, [memoryview(b"".join(buffers))[:5]], offset)

    monkeypatch.setattr(os, "pwritev", few)
    file = disk.open(str(tmp_path / "a"), create=True)
    file.write(2, [b"abc", b"", b"defgh", b"ij", b"klmnopq"])
    assert file.read(0, 100) == b"\0\0abcdefghijklmnopq"
    file.close()


def test_a_full_disk_is_distinguished_from_a_failing_one(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open(str(tmp_path / "a"), create=True)
    for number, kind in ((errno.ENOSPC, StorageFullError), (errno.EDQUOT, StorageFullError), (errno.EIO, StorageError)):

        def fail(*_: object, number: int = number) -> int:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", fail)
            patch.setattr(os, "fdatasync", fail)
            patch.setattr(os, "fsync", fail)
            for call in (lambda: file.write(0, [b"a"]), file.sync_data, file.sync):
                with pytest.raises(StorageError, match=os.strerror(number)) as caught:
                    call()
                assert type(caught.value) is kind
                assert caught.value.remedy
                assert str(tmp_path) in caught.value.message
                assert isinstance(caught.value.__cause__, OSError)
    file.close()


def test_a_limit_of_the_system_on_the_file_size_reads_as_full(disk: RealDisk, tmp_path: Path) -> None:
    """A real refusal by the kernel, in another process, because limits cannot be raised again."""
    code = (
        "import resource, signal, sys\n"
        "from viewstamp.errors import StorageFullError\n"
        "from viewstamp.host.disk import RealDisk\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "file = RealDisk().open(sys.argv[1], create=True)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "try:\n"
        "    file.write(0, [bytes(6000), bytes(6000)])\n"
        "except StorageFullError as error:\n"
        "    print(error.message)\n"
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 10_000
    path = str(tmp_path / "a")
    answer = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert answer.stdout == f"cannot write {path}: File too large\n"


def test_allocated_bytes_have_their_blocks(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "file"), create=True)
    file.allocate(1024 * 1024)
    file.sync()
    assert os.stat(tmp_path / "file").st_blocks * 512 >= 1024 * 1024
    file.close()


def test_a_file_whose_memory_is_given_up_keeps_its_bytes(disk: RealDisk, tmp_path: Path) -> None:
    """Also bytes that are not synced; and there is no error if the file does not exist."""
    path, synced, later = str(tmp_path / "a"), os.urandom(1 << 20), os.urandom(1 << 20)
    file = disk.open(path, create=True)
    file.write(0, [synced])
    file.sync()
    file.write(len(synced), [later])
    disk.uncache(path)
    if hasattr(os, "RWF_NOWAIT") and disk.filesystem(path) == "ext4":
        assert _cached_bytes(path, len(synced)) < len(synced)
    assert file.read(0, 1 << 22) == synced + later
    file.close()
    disk.uncache(str(tmp_path / "missing"))
    assert not disk.exists(str(tmp_path / "missing"))


def _cached_bytes(path: str, size: int) -> int:
    """Return how many of the first bytes can be read without the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.preadv(descriptor, [bytearray(size)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return 0
    finally:
        os.close(descriptor)


def test_a_missing_and_an_existing_file_are_ordinary_answers(disk: RealDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        disk.open(path)
    with pytest.raises(FileNotFoundError):
        disk.open_read(path)
    disk.open(path, create=True).close()
    with pytest.raises(FileExistsError):
        disk.open(path, create=True)


def test_a_directory_that_cannot_be_made_raises_the_reason(disk: RealDisk, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StorageError, match="file") as caught:
            disk.make_directory(str(path))
        assert caught.value.remedy


def test_a_directory_whose_name_a_dead_process_did_not_sync_is_synced_by_the_next_one(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies behind mkdir; the next one finds the directory, and must not take its name for durable."""
    fsync, synced = os.fsync, set[int]()
    data, made = tmp_path / "data", tmp_path / "data" / "n1"

    def die_behind(directory: Path) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            if directory.exists():
                raise KeyboardInterrupt
            fsync(descriptor)

        return sync

    def note(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)

    for path, last in ((data, data), (made / "log", made)):
        monkeypatch.setattr(os, "fsync", die_behind(last))
        with pytest.raises(KeyboardInterrupt):
            disk.make_directory(str(path))
        monkeypatch.setattr(os, "fsync", note)
        disk.make_directory(str(path))
        assert {last.parent.stat().st_ino, path.parent.stat().st_ino} <= synced


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read all directories")
def test_a_directory_in_one_that_this_user_cannot_read_is_used_as_it_is(disk: RealDisk, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    tmp_path.chmod(0o111)
    try:
        disk.make_directory(str(tmp_path / "data"))
    finally:
        tmp_path.chmod(0o755)


def test_a_missing_permission_is_reported_with_its_remedy(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StorageError, match="Permission denied") as caught:
        disk.open(str(tmp_path / "a"), create=True)
    assert "data_dir" in caught.value.remedy


def test_a_directory_held_by_another_process_is_refused_with_its_number(disk: RealDisk, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from viewstamp.host.disk import RealDisk\n"
        "lock = RealDisk().lock(sys.argv[1])\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdin is not None
    with other, other.stdin:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DirectoryInUseError, match=f"in use by process {other.pid}"):
            disk.lock(str(tmp_path))
        other.kill()
        other.wait()
        disk.lock(str(tmp_path)).release()  # the end of a process releases the lock in any case


def test_the_lock_holds_within_a_process_too_and_is_released_once(disk: RealDisk, tmp_path: Path) -> None:
    lock = disk.lock(str(tmp_path))
    with pytest.raises(DirectoryInUseError, match=f"process {os.getpid()}"):
        disk.lock(str(tmp_path))
    lock.release()
    lock.release()
    disk.lock(str(tmp_path)).release()


def test_the_kind_of_file_system_comes_from_the_longest_mount(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "dev / ext4 rw 0 0\ndev /data xfs rw 0 0\ndev /data/my\\040disk btrfs rw 0 0\nnone /tmp tmpfs rw 0 0\n"
    )
    real = open
    monkeypatch.setattr("builtins.open", lambda path, **options: real(mounts, **options))
    assert disk.filesystem("/data/n1") == "xfs"
    assert disk.filesystem("/database") == "ext4"
    assert disk.filesystem("/data/my disk/n1") == "btrfs"
    assert disk.filesystem("/") == "ext4"


def test_where_nothing_lists_the_mounts_the_kind_is_unknown(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", refuse)
    assert disk.filesystem("/data") == "unknown"


async def test_an_executor_works_on_threads_of_its_own_and_reports_on_the_loop(disk: RealDisk) -> None:
    threads: list[tuple[str, int]] = []
    loop_thread = threading.get_ident()
    reports: list[list[int]] = []

    def work(items: list[int]) -> int:
        threads.append((threading.current_thread().name, threading.get_ident()))
        return sum(items)

    def done(items: list[int], outcome: int | BaseException) -> None:
        assert threading.get_ident() == loop_thread
        assert outcome == sum(items)
        reports.append(items)

    executor = disk.executor("adder", work, done)
    for number in range(100):
        executor.put(number)
    await executor.close()
    executor.put(100)
    await executor.close()
    assert [number for items in reports for number in items] == list(range(100))
    assert {name for name, _ in threads} <= {"adder-0", "adder-1"}
    assert loop_thread not in {ident for _, ident in threads}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("adder")]


async def test_an_executor_that_is_closed_twice_at_once_finishes_once(disk: RealDisk) -> None:
    executor = disk.executor("idle", lambda items: None, lambda items, outcome: None)
    first = asyncio.create_task(executor.close())
    await asyncio.sleep(0)
    first.cancel()
    await executor.close()


def test_an_executor_whose_loop_has_gone_ends_quietly(disk: RealDisk) -> None:
    """The loop was closed without closing the executor, so there is no caller left."""
    release = threading.Event()
    worked = threading.Event()

    def work(items: list[int]) -> None:
        worked.set()
        release.wait(10)

    async def leave() -> None:
        disk.executor("orphan", work, lambda items, outcome: None).put(1)

    asyncio.run(leave())
    assert worked.wait(10)
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("orphan")]
    release.set()
    assert threads
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


async def test_an_executor_lets_the_writer_have_the_interpreter_soon(disk: RealDisk) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    try:
        executor = disk.executor("switch", lambda items: None, lambda items, outcome: None)
        assert sys.getswitchinterval() == pytest.approx(disk_module._SWITCH_INTERVAL)
        await executor.close()
    finally:
        sys.setswitchinterval(before)


async def test_bulk_work_distinguishes_a_full_disk_from_a_failing_one(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "a")
    file = await disk.open_async(path, create=True)
    for number, kind in ((errno.ENOSPC, StorageFullError), (errno.EDQUOT, StorageFullError), (errno.EIO, StorageError)):

        def fail(*_: object, number: int = number) -> int:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises(StorageError, match=f"cannot sync {path}: {os.strerror(number)}") as caught:
                await file.sync()
            assert type(caught.value) is kind
            assert caught.value.remedy
    await file.close()
    with pytest.raises(StorageError, match="closed"):
        await file.sync()


def test_partial_bulk_writes_continue_and_then_raise_the_reason(tmp_path: Path) -> None:
    """A real refusal by the kernel, in another process, because limits cannot be raised again."""
    code = (
        "import asyncio, resource, signal, sys\n"
        "from viewstamp.errors import StorageFullError\n"
        "from viewstamp.host.disk import RealDisk\n"
        "async def main():\n"
        "    file = await RealDisk().open_async(sys.argv[1], create=True)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "    try:\n"
        "        await file.write(0, bytes(12_000))\n"
        "    except StorageFullError as error:\n"
        "        print(error.message, await file.size())\n"
        "    await file.close()\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "asyncio.run(main())\n"
    )
    path = str(tmp_path / "a")
    answer = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert answer.stdout == f"cannot write {path}: File too large 10000\n"


async def test_a_cancelled_sync_is_over_before_the_file_is_closed(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its descriptor may be another file's a moment later."""
    began, release, synced = threading.Event(), threading.Event(), threading.Event()

    def slow(descriptor: int) -> None:
        began.set()
        release.wait(10)
        os.fstat(descriptor)  # raises if it was closed meanwhile
        synced.set()

    file = await disk.open_async(str(tmp_path / "a"), create=True)
    monkeypatch.setattr(os, "fsync", slow)
    syncing = asyncio.create_task(file.sync())
    await asyncio.to_thread(began.wait, 10)
    syncing.cancel()
    closing = asyncio.create_task(file.close())
    await asyncio.sleep(0)
    assert not syncing.done()
    assert not closing.done()
    release.set()
    await closing
    assert synced.is_set()
    assert (await asyncio.gather(syncing, return_exceptions=True))[0].__class__ is asyncio.CancelledError


async def test_opening_that_is_cancelled_leaves_no_file_open(disk: RealDisk, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for turns in range(6):
        opening = asyncio.create_task(disk.open_async(str(tmp_path / f"{turns}"), create=True))
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        for file in await asyncio.gather(opening, return_exceptions=True):
            if not isinstance(file, asyncio.CancelledError):
                await file.close()
    assert len(os.listdir("/proc/self/fd")) == before
