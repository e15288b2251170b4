"""New files and directories of a node are private to its user under any umask; existing ones keep their modes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from viewstamp.config import create_cluster
from viewstamp.host.disk import RealDisk
from viewstamp.host.private import make_private_directory, open_private, readable_by_others


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: str | Path) -> int:
    return os.stat(path).st_mode & 0o777


async def test_new_files_and_directories_are_private(tmp_path: Path) -> None:
    disk, directory = RealDisk(), f"{tmp_path}/data/wal"
    disk.make_directory(directory)
    disk.open(f"{directory}/segment", create=True).close()
    await (await disk.open_async(f"{directory}/snapshot", create=True)).close()
    disk.lock(directory).release()
    assert [mode(each) for each in (f"{tmp_path}/data", directory)] == [0o700, 0o700]
    assert {mode(f"{directory}/{name}") for name in ("segment", "snapshot", "lock")} == {0o600}


async def test_existing_files_keep_their_modes(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    (shared / "file").touch(mode=0o644)
    RealDisk().make_directory(str(shared))
    make_private_directory(str(shared))
    RealDisk().open(f"{shared}/file").close()
    assert (mode(shared), mode(shared / "file")) == (0o755, 0o644)
    assert readable_by_others(str(shared)) == 0o755


def test_the_settings_and_logs_of_a_local_cluster_are_private(tmp_path: Path) -> None:
    directory = f"{tmp_path}/shop"
    create_cluster(directory, nodes=3)
    with open(f"{directory}/log.jsonl", "ab", opener=open_private):
        pass
    assert mode(directory) == 0o700
    assert {mode(each) for each in Path(directory).iterdir()} == {0o600}
    assert readable_by_others(directory) == readable_by_others(f"{directory}/missing") == 0
