"""Targets: a directory and object stores, and how each fails."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from viewstamp.backup.fsspec_store import FsspecStore
from viewstamp.backup.store import BackupStore, DirectoryStore
from viewstamp.errors import ConfigError, DirectoryInUseError, StorageError, StorageFullError, UnavailableError
from viewstamp.host.disk import RealDisk

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")


@pytest.fixture
def memory() -> Iterator[FsspecStore]:
    """Return a store in memory, with few and quick attempts."""
    yield FsspecStore("memory://backups/one", attempts=3, timeout=60.0, pause=0.01)
    fsspec.filesystem("memory").store.clear()


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    """Run moto's S3 in this process."""
    server = pytest.importorskip("moto.server", reason="moto is not installed")
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def s3(s3_endpoint: str) -> FsspecStore:
    options = {"endpoint_url": s3_endpoint, "key": "k", "secret": "s"}
    file_system = fsspec.filesystem("s3", **options)
    if not file_system.exists("backups"):
        file_system.mkdir("backups")
    return FsspecStore(f"s3://backups/{os.urandom(4).hex()}", options=options, attempts=2, timeout=10.0, pause=0.01)


@pytest.fixture(params=["directory", "memory", "local files", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BackupStore:
    if request.param == "directory":
        return DirectoryStore(RealDisk(), str(tmp_path / "target"))
    if request.param == "local files":
        return FsspecStore(f"local://{tmp_path}/target", attempts=2, pause=0.01)
    found: BackupStore = request.getfixturevalue(request.param)
    return found


def test_objects_are_whole_and_are_listed_by_folder(store: BackupStore) -> None:
    assert store.list_sizes("log/") == {}
    with pytest.raises(FileNotFoundError):
        store.read("log/a")
    store.write("log/a", b"one")
    store.write("log/b", bytes(9_000_000))
    store.write("manifests/m.json", b"{}")
    assert store.list_sizes("log/") == {"log/a": 3, "log/b": 9_000_000}
    assert store.read("log/a") == b"one"
    store.write("log/a", b"other")
    assert store.read("log/a") == b"other"
    store.remove("log/a")
    store.remove("log/a")
    assert store.list_sizes("log/") == {"log/b": 9_000_000}


def test_one_process_at_a_time_writes(store: BackupStore) -> None:
    store.write("log/a", b"one")
    with store.held():
        store.check_held()
        with pytest.raises(DirectoryInUseError), store.held():
            pass
        store.check_held()
    with store.held():
        pass


def test_files_of_a_directory_are_private(tmp_path: Path) -> None:
    """They have the records of the cluster."""
    store = DirectoryStore(RealDisk(), str(tmp_path / "target"))
    store.write("log/a", b"one")
    assert (tmp_path / "target" / "log" / "a").stat().st_mode & 0o077 == 0


def test_a_lease_of_a_dead_process_can_be_taken_over_after_a_while(
    memory: FsspecStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = FsspecStore(memory.where, attempts=1)
    context = other.held()
    context.__enter__()
    with pytest.raises(DirectoryInUseError, match=r"writes to memory://backups/one"), memory.held():
        pass
    now = time.time()
    monkeypatch.setattr("viewstamp.backup.fsspec_store.time.time", lambda: now + 601)
    with memory.held():
        memory.check_held()
        with pytest.raises(UnavailableError, match="another process has taken over"):
            other.check_held()


def test_a_store_that_fails_for_a_moment_is_asked_again(memory: FsspecStore, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = memory._fs.pipe_file

    def pipe_file(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) < 3:
            raise ConnectionResetError("gone")
        original(*arguments)

    monkeypatch.setattr(memory._fs, "pipe_file", pipe_file, raising=False)
    memory.write("log/a", b"one")
    assert len(calls) == 3
    assert memory.read("log/a") == b"one"


def test_a_store_that_hangs_is_an_error_after_a_bounded_time(
    memory: FsspecStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    monkeypatch.setattr(memory._fs, "ls", lambda *_, **__: release.wait(20), raising=False)
    memory._attempts.timeout = 0.05
    with pytest.raises(UnavailableError, match="did not list log/ in 3 attempts"):
        memory.list_sizes("log/")
    release.set()


@pytest.mark.parametrize(
    ("failure", "expected", "text"),
    [
        (OSError(28, "No space left on device"), StorageFullError, "is full"),
        (PermissionError("Access Denied"), StorageError, "refuses to write"),
        (OSError(30, "Read-only file system"), StorageError, "refuses to write"),
        (ValueError("a package's own error"), StorageError, "refuses to write"),
    ],
)
def test_a_refusal_is_reported_at_once(
    memory: FsspecStore,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
    expected: type[Exception],
    text: str,
) -> None:
    calls = []

    def pipe_file(*_: Any) -> None:
        calls.append(1)
        raise failure

    monkeypatch.setattr(memory._fs, "pipe_file", pipe_file, raising=False)
    with pytest.raises(expected, match=text):
        memory.write("log/a", b"one")
    assert calls == [1]


def test_an_unknown_kind_of_url_names_the_remedy() -> None:
    with pytest.raises(ConfigError, match="cannot be opened") as found:
        FsspecStore("nothing://bucket/path")
    assert "s3fs" in found.value.remedy


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_rights_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="the target of the backup cannot be used") as found:
            DirectoryStore(RealDisk(), str(tmp_path / "target")).write("log/a", b"one")
        assert "name another target" in found.value.remedy
    finally:
        tmp_path.chmod(0o700)
