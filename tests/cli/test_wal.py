"""`viewstamp wal` on a log that is clean, torn, damaged, or of a newer format."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import none_left
from viewstamp.cli import main
from viewstamp.config import create_cluster
from viewstamp.wal.format import SegmentHeader

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a stopped cluster of one node. The log has several segments."""
    directory = tmp_path_factory.mktemp("wal") / "one"
    create_cluster(str(directory), 1)
    with (directory / "n1.toml").open("a") as stream:
        stream.write("[wal]\nsegment_bytes = 65536\n")
    lines = directory / "lines"
    lines.write_bytes(b"".join(b"%0100d\n" % number for number in range(20_000)))
    with none_left(directory):
        for command in (["cluster", "start"], ["topic", "create", "t"], ["append", "t", str(lines)]):
            assert main.run([*command, "--dir", str(directory)]) == 0
        assert main.run(["cluster", "stop", "--dir", str(directory)]) == 0
    return directory


@pytest.fixture
def directory(stopped: Path, tmp_path: Path) -> Path:
    """Return a copy that the test may damage."""
    subprocess.run(["cp", "-r", str(stopped), str(tmp_path / "copy")], check=True)
    return tmp_path / "copy"


def segments(directory: Path) -> list[Path]:
    return sorted((directory / "n1" / "wal").glob("*.segment"))


def flip(file: Path, location: int) -> None:
    data = bytearray(file.read_bytes())
    data[location] ^= 1
    file.write_bytes(data)


def verify(directory: Path, capfd: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    capfd.readouterr()
    code = main.run(["wal", "verify", str(directory / "n1"), "--output", "json"])
    return code, json.loads(capfd.readouterr().out)


def groups(file: Path, capfd: pytest.CaptureFixture[str]) -> list[int]:
    """Return the locations of the groups of a segment."""
    capfd.readouterr()
    assert main.run(["wal", "inspect", str(file), "--output", "json"]) == 0
    entries = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    return [entry["location"] for entry in entries if entry["kind"] == "group"]


def run_node(directory: Path) -> tuple[int, str]:
    """Start the node, which is expected to exit; return its exit code and its stderr."""
    command = [sys.executable, "-m", "viewstamp", "node", "run", "--config", str(directory / "n1.toml")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return ended.returncode, ended.stderr


def contents(directory: Path) -> list[bytes]:
    return [file.read_bytes() for file in segments(directory)]


def test_undamaged_log_is_clean(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, found = verify(directory, capfd)
    assert code == 0
    assert set(found) >= {
        *("path", "verdict", "segments", "batches", "records", "first_index", "last_index", "torn_bytes", "damage"),
    }
    assert (found["verdict"], found["damage"], found["segments"]) == ("clean", [], len(segments(directory)))
    assert found["segments"] > 2


@pytest.mark.parametrize("where", ["sealed", "open"])
def test_flipped_byte_is_corruption_and_the_node_exits_without_a_change(
    directory: Path, capfd: pytest.CaptureFixture[str], where: str
) -> None:
    file = segments(directory)[0 if where == "sealed" else -1]
    flip(file, groups(file, capfd)[0] + 90)
    before = contents(directory)
    code, found = verify(directory, capfd)
    assert (code, found["verdict"], found["torn_bytes"]) == (7, "corruption", 0)
    assert [sorted(damage) for damage in found["damage"]] == [["expected", "found", "location", "segment"]]
    assert found["damage"][0]["segment"] == file.name
    code, message = run_node(directory)
    assert code == 7
    assert str(file) in message
    assert "nothing was changed" in message
    assert contents(directory) == before
    assert main.run(["wal", "verify", str(directory / "n1")]) == 7
    assert "\n  found batch" in capfd.readouterr().out
    assert main.run(["wal", "inspect", str(directory / "n1")]) == 7
    assert "verdict=corruption" in capfd.readouterr().out


def test_torn_tail_is_reported_and_cut_by_the_node(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = segments(directory)[-1]
    location = groups(file, capfd)[-1]
    with file.open("r+b") as stream:
        stream.seek(location + 40)
        stream.write(b"torn" * 4)
    code, found = verify(directory, capfd)
    assert (code, found["verdict"], found["damage"]) == (0, "torn-tail", [])
    assert found["torn_bytes"] > 0
    records = found["records"]
    with none_left(directory):
        assert main.run(["cluster", "start", "--dir", str(directory)]) == 0
        assert main.run(["cluster", "stop", "--dir", str(directory)]) == 0
    code, found = verify(directory, capfd)
    assert (code, found["verdict"]) == (0, "clean")
    assert found["records"] >= records


def test_newer_format_is_rejected(
    directory: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = segments(directory)[-1]
    header = SegmentHeader.decode(file.read_bytes(), str(file))
    with monkeypatch.context() as newer:
        newer.setattr("viewstamp.wal.format._SEGMENT_MAGIC_NOW", b"VSS\x09")
        encoded = bytes(header.encode())
    with file.open("r+b") as stream:
        stream.write(encoded)
    capfd.readouterr()
    assert main.run(["wal", "verify", str(directory / "n1"), "--output", "json"]) == 2
    assert "has WAL format 9" in json.loads(capfd.readouterr().err)["message"]
    code, message = run_node(directory)
    assert (code, "has WAL format 9" in message) == (2, True)


def test_closed_stdout_is_no_failure(stopped: Path) -> None:
    command = [sys.executable, "-m", "viewstamp", "wal", "read", str(stopped / "n1"), "t"]
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False, timeout=120)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")


def chaos(capfd: pytest.CaptureFixture[str], directory: Path, *arguments: str) -> Any:
    """Run a chaos command on the stopped node; return its JSON output, or its error message."""
    capfd.readouterr()
    code = main.run(["chaos", *arguments, "--dir", str(directory), "--output", "json"])
    captured = capfd.readouterr()
    return json.loads(captured.err)["message"] if code else json.loads(captured.out)


def test_chaos_flips_one_bit_and_verify_finds_it(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(4):
        before = {file: file.read_bytes() for file in segments(directory)}
        done = chaos(capfd, directory, "flip-bit", "n1")
        after = Path(done["path"]).read_bytes()
        old = before.pop(Path(done["path"]))
        assert [at for at in range(len(old)) if old[at] != after[at]] == [done["byte"]]
        assert (old[done["byte"]] ^ after[done["byte"]]).bit_count() == 1
        assert all(file.read_bytes() == data for file, data in before.items())
        code, found = verify(directory, capfd)
        assert (code, found["verdict"], found["damage"][0]["segment"]) == (
            7,
            "corruption",
            os.path.basename(done["path"]),
        )
        Path(done["path"]).write_bytes(old)
    chosen = chaos(capfd, directory, "flip-bit", "n1", "--segment", "2", "--byte", "99")
    assert (Path(chosen["path"]), chosen["byte"]) == (segments(directory)[1], 99)


def test_write_torn_by_chaos_is_corruption_and_not_a_torn_tail(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    size = segments(directory)[2].stat().st_size
    done = chaos(capfd, directory, "tear", "n1", "--segment", "3")
    data = segments(directory)[2].read_bytes()
    assert len(data) == size
    assert data[done["byte"] : done["byte"] + done["bytes"]] == bytes(done["bytes"])
    assert done["bytes"] > 1000
    assert verify(directory, capfd)[1]["verdict"] == "corruption"


def test_logs_of_other_groups_are_named_because_they_are_not_read(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (directory / "n1" / "groups" / "7").mkdir(parents=True)
    capfd.readouterr()
    assert main.run(["wal", "verify", str(directory / "n1")]) == 0
    assert f"name them one by one: {directory}/n1/groups/7" in " ".join(capfd.readouterr().err.split())


def test_segment_dropped_by_chaos_was_complete_and_verify_misses_it(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = segments(directory)
    done = chaos(capfd, directory, "drop-segment", "n1")
    assert set(before) - set(segments(directory)) == {Path(done["path"])} != {before[-1]}
    assert verify(directory, capfd)[1]["verdict"] == "corruption"


def test_chaos_rejects_a_place_that_does_not_exist(
    directory: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    count = len(segments(directory))
    assert "has no segment 999; there are 1, 2, 3" in chaos(capfd, directory, "tear", "n1", "--segment", "999")
    beyond = chaos(capfd, directory, "flip-bit", "n1", "--segment", "1", "--byte", "70000000")
    assert "has no byte 70000000" in beyond
    assert "there is no node n7" in chaos(capfd, directory, "flip-bit", "n7")
    assert "n1 is not running" in chaos(capfd, directory, "pause", "n1")
    assert "n1 is not running" in chaos(capfd, directory, "slow-disk", "n1")
    assert len(segments(directory)) == count
    create_cluster(str(tmp_path / "new"), 1)
    assert "has no segment; there is none" in chaos(capfd, tmp_path / "new", "flip-bit", "n1")
