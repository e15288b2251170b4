"""The commands as processes: killed in the middle, and repeated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import none_left
from viewstamp.backup.catalogue import BackupCatalogue
from viewstamp.backup.store import DirectoryStore
from viewstamp.backup.verify import BackupReader
from viewstamp.cli import main
from viewstamp.host.disk import RealDisk

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the directory of a running cluster of three processes with 48 MB of records."""
    directory = tmp_path_factory.mktemp("killed") / "cluster"
    lines = directory.parent / "lines"
    lines.write_bytes(b"".join(b"%08d" % number + b"x" * 3992 + b"\n" for number in range(12_000)))
    with none_left(directory):
        for command in (["cluster", "start"], ["topic", "create", "t"], ["append", "t", str(lines)]):
            assert main.run([*command, "--dir", str(directory)]) == 0
        yield directory


def start(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "viewstamp", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def kill_when(process: subprocess.Popen[bytes], holds: Callable[[], bool]) -> bool:
    """Kill a process as soon as a condition holds; return whether it still ran."""
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline and not holds():
        time.sleep(0.002)
    is_killed = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return is_killed


def run(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    capfd.readouterr()
    found = main.run([*arguments, "--output", "json"])
    captured = capfd.readouterr()
    assert found == code, captured.err
    return json.loads((captured.err if code > 1 else captured.out).splitlines()[-1])


def count(path: Path, pattern: str) -> int:
    return len(list(path.glob(pattern)))


def test_a_killed_backup_leaves_none_and_the_next_one_goes_on(
    cluster: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "target"
    create = ("backup", "create", str(target), "--dir", str(cluster))
    killed = 0
    for pieces in (1, 2):
        process = start(*create, "--rate", "20MB")
        killed += kill_when(process, lambda: count(target, "log/*.batches") >= pieces)  # noqa: B023
        assert run(capfd, "backup", "list", str(target))["backups"] == []
        with pytest.MonkeyPatch.context():
            assert run(capfd, "backup", "restore", str(target), "--dir", str(tmp_path / "none"), code=2)
    assert killed
    found = run(capfd, *create, "--rate", "1GB")
    assert found["sent_bytes"] < found["bytes"], "the pieces that were there are used"
    whole = run(capfd, "backup", "verify", str(target), "--all")
    assert whole["whole"]
    assert whole["backups"][0]["records"] > 12_000


def test_a_killed_restore_is_no_cluster_and_goes_on(
    cluster: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target, restored = tmp_path / "target", tmp_path / "restored"
    run(capfd, "backup", "create", str(target), "--dir", str(cluster), "--rate", "1GB")
    restore = ("backup", "restore", str(target), "--dir", str(restored), "--nodes", "3")
    moments: list[Callable[[], bool]] = [
        lambda: (restored / ".restore" / "source" / "wal").exists(),
        lambda: (restored / "n1" / "fork.mark").exists(),
        lambda: (restored / "n3" / "new-cluster" / "control-a").exists(),
        lambda: count(restored, "n*/control-a") > 0,
    ]
    killed = 0
    for moment in moments:
        if kill_when(start(*restore), moment):
            killed += 1
            assert not (restored / "n1.toml").exists()
            run(capfd, "status", "--dir", str(restored), code=2)
            other = ("backup", "restore", str(target), "--dir", str(restored), "--nodes", "1")
            assert "another restore was interrupted" in run(capfd, *other, code=2)["message"]
    assert killed >= 2
    if not (restored / "n1.toml").exists():
        found = run(capfd, *restore)
        assert found["nodes"] == ["n1", "n2", "n3"]
    assert not (restored / ".restore").exists()
    with none_left(restored):
        assert main.run(["cluster", "start", "--dir", str(restored)]) == 0
        topics = run(capfd, "topic", "list", "--dir", str(restored))
        [topic] = topics if isinstance(topics, list) else topics["topics"]
        assert (topic["first_position"], topic["last_position"]) == (1, 12_000)


def test_a_drill_is_one_command(cluster: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "target"
    run(capfd, "backup", "create", str(target), "--dir", str(cluster), "--rate", "1GB")
    found = run(capfd, "backup", "verify", str(target), "--start")
    assert found["drill"]["is_state_compared"]
    assert found["drill"]["records"] == {"t": 12_000}
    assert found["drill"]["differences"] == []
    assert (
        BackupReader(DirectoryStore(RealDisk(), str(target)))
        .verify(BackupCatalogue.load(DirectoryStore(RealDisk(), str(target))).manifests[0])
        .errors
        == []
    )
    assert os.path.isdir(cluster)


def test_a_stopped_cluster_with_groups_is_restored_with_its_records_at_the_same_positions(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The backup is killed, repeated, verified by a drill, and restored for another number of nodes."""
    old, target, new = tmp_path / "old", tmp_path / "target", tmp_path / "new"
    lines = tmp_path / "lines"
    lines.write_bytes(b"".join(b"%05d" % number + b"x" * 994 + b"\n" for number in range(3000)))

    def shown(directory: Path, last: int) -> list[tuple[object, ...]]:
        """Read the topic, as soon as it has records up to a position."""
        deadline = time.monotonic() + 120
        while True:
            capfd.readouterr()
            assert main.run(["read", "orders", "--dir", str(directory), "--output", "json"]) == 0
            records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
            if len(records) >= last or time.monotonic() > deadline:
                assert [each["position"] for each in records] == list(range(1, last + 1))
                return [
                    tuple(each[key] for key in ("position", "stream", "stream_position", "value")) for each in records
                ]

    with none_left(old):
        for command in (
            ["cluster", "start"],
            ["group", "place", "s1"],
            ["group", "place", "s2"],
            ["topic", "create", "orders", "--streams", "3"],
            ["append", "orders", str(lines)],
        ):
            assert main.run([*command, "--dir", str(old)]) == 0
        before = shown(old, 3000)
        create = ("backup", "create", str(target), "--dir", str(old))
        assert "would lack their records" in run(capfd, *create, "--stale", code=5)["message"]
        assert kill_when(start(*create, "--rate", "1MB"), lambda: count(target, "log/*.batches") >= 1)
        assert run(capfd, "backup", "list", str(target))["backups"] == []
        online = run(capfd, *create, "--rate", "1GB")
        assert len(online["groups"]) == 2
        assert main.run(["cluster", "stop", "--dir", str(old)]) == 0
    directories = [part for name in ("n1", "n2", "n3") for part in ("--from", str(old / name))]
    found = run(capfd, "backup", "create", str(target), *directories, "--rate", "1GB")
    assert found["previous"] == online["backup"]
    assert found["groups"].keys() == online["groups"].keys()
    drilled = run(capfd, "backup", "verify", str(target), "--start")["drill"]
    assert (drilled["differences"], drilled["records"]) == ([], {"orders": 3000})
    cut = run(capfd, "backup", "restore", str(target), "--dir", str(new), "--until", "9", code=5)
    assert "cuts group 0 only" in cut["message"]
    restore = ("backup", "restore", str(target), "--dir", str(new), "--nodes", "2", "--backup", online["backup"])
    assert run(capfd, *restore)["backup"] == online["backup"]
    with none_left(new):
        assert main.run(["cluster", "start", "--dir", str(new)]) == 0
        assert shown(new, 3000) == before
        assert main.run(["append", "orders", str(lines), "--dir", str(new)]) == 0
        assert shown(new, 6000)[:3000] == before
