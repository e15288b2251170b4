"""Whoever starts processes ends them, whatever ends it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from viewstamp.cli import main
from viewstamp.cli.claim import MARKER, adopt, claimed
from viewstamp.cli.process import start_mark
from viewstamp.errors import ConfigError

pytestmark = pytest.mark.slow


def interrupt_once_started(arguments: list[str], cwd: Path, pattern: str, number: signal.Signals) -> tuple[int, str]:
    """Run a command until its third node has a process, send it a signal; return its exit code and what it said.

    All its nodes are gone then.
    """
    command = [sys.executable, "-m", "viewstamp", *arguments]
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not (files := sorted(cwd.glob(f"{pattern}/n3/pid"))):
            assert process.poll() is None
            time.sleep(0.01)
        pids = [int(file.read_text().split()[0]) for file in files[0].parents[1].glob("n*/pid")]
        assert len(pids) == 3
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    assert [pid for pid in pids if start_mark(pid) is not None] == []
    return process.returncode, said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_starting_a_cluster_stops_what_it_started_when_it_is_interrupted(
    tmp_path: Path, number: signal.Signals
) -> None:
    arguments = ["cluster", "start", "--dir", "it", "--output", "json"]
    code, said = interrupt_once_started(arguments, tmp_path, "it", number)
    assert code == 130
    assert json.loads(said)["error"] == "Interrupted"


@pytest.mark.parametrize(("command", "number"), [("append", signal.SIGTERM), ("failover", signal.SIGINT)])
def test_a_bench_that_is_interrupted_leaves_neither_nodes_nor_files(
    tmp_path: Path, command: str, number: signal.Signals
) -> None:
    code, said = interrupt_once_started(["bench", command], tmp_path, "viewstamp-bench-*", number)
    assert (code, said.splitlines()[-1]) == (130, "viewstamp: interrupted")
    assert list(tmp_path.iterdir()) == []


def test_a_demo_that_is_terminated_leaves_no_node_and_the_next_one_starts_anew(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"one\ntwo\n")
    arguments = ["demo", "--input", "lines", "--dir", "it"]
    code, _ = interrupt_once_started(arguments, tmp_path, "it", signal.SIGTERM)
    assert code == 130
    assert (tmp_path / "it" / MARKER).exists()


def test_what_a_demo_left_is_the_users_once_started_and_no_later_demo_removes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (MARKER, "n1.toml", "lines"):
        (tmp_path / name).write_text("left behind\n")
    adopt(str(tmp_path))
    assert main.run(["demo", "--input", str(tmp_path / "lines"), "--dir", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert (tmp_path / "n1.toml").read_text() == "left behind\n"


def test_a_demo_at_work_is_not_taken_over(tmp_path: Path) -> None:
    with claimed(str(tmp_path / "it")), pytest.raises(ConfigError, match="a demo is at work"):
        adopt(str(tmp_path / "it"))
