"""A command that starts processes ends them, also when it is interrupted or killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.signals import default_signals
from viewstamp.cli import main
from viewstamp.demo.directory import MARKER, DemoDirectory, adopt
from viewstamp.errors import ConfigError
from viewstamp.local.process import start_mark
from viewstamp.terminal.loop import run_async

pytestmark = pytest.mark.slow


def interrupt_once_started(arguments: list[str], cwd: Path, pattern: str, number: signal.Signals) -> tuple[int, str]:
    """Run a command until its third node has a process, send it a signal; return its exit code and its stderr.

    All its nodes have ended then.
    """
    command = [sys.executable, "-m", "viewstamp", *arguments]
    with default_signals():
        started = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with started as process:
        while not (files := sorted(cwd.glob(f"{pattern}/n3/pid"))):
            assert process.poll() is None
            time.sleep(0.01)
        pids = [int(file.read_text().split()[0]) for file in files[0].parents[1].glob("n*/pid")]
        assert len(pids) == 3
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
    deadline = time.monotonic() + 60  # After SIGKILL the system ends the nodes a moment later.
    while number is signal.SIGKILL and any(map(start_mark, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [pid for pid in pids if start_mark(pid) is not None] == []
    return process.returncode, said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_cluster_start_stops_the_nodes_that_it_started(tmp_path: Path, number: signal.Signals) -> None:
    arguments = ["cluster", "start", "--dir", "it", "--output", "json"]
    code, said = interrupt_once_started(arguments, tmp_path, "it", number)
    assert code == 130
    assert json.loads(said)["error"] == "Interrupted"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
@pytest.mark.parametrize("arguments", [["bench", "append"], ["demo", "--input", "lines", "--dir", "it"]])
def test_nodes_of_a_killed_bench_or_demo_end(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "lines").write_bytes(b"one\ntwo\n")
    code, _ = interrupt_once_started(arguments, tmp_path, "*", signal.SIGKILL)
    assert code == -signal.SIGKILL


@pytest.mark.parametrize(("command", "number"), [("append", signal.SIGTERM), ("failover", signal.SIGINT)])
def test_interrupted_bench_leaves_neither_nodes_nor_files(tmp_path: Path, command: str, number: signal.Signals) -> None:
    code, said = interrupt_once_started(["bench", command], tmp_path, "viewstamp-bench-*", number)
    assert (code, said.splitlines()[-1]) == (130, "viewstamp: interrupted")
    assert list(tmp_path.iterdir()) == []


def test_terminated_demo_leaves_no_node_and_the_next_demo_starts_anew(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"one\ntwo\n")
    arguments = ["demo", "--input", "lines", "--dir", "it"]
    code, _ = interrupt_once_started(arguments, tmp_path, "it", signal.SIGTERM)
    assert code == 130
    assert (tmp_path / "it" / MARKER).exists()


def test_no_later_demo_removes_files_that_were_adopted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (MARKER, "n1.toml", "lines"):
        (tmp_path / name).write_text("left behind\n")
    adopt(str(tmp_path))
    assert main.run(["demo", "--input", str(tmp_path / "lines"), "--dir", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert (tmp_path / "n1.toml").read_text() == "left behind\n"


def test_directory_of_a_running_demo_is_not_taken(tmp_path: Path) -> None:
    with DemoDirectory.taken(str(tmp_path / "it")), pytest.raises(ConfigError, match="a demo is running"):
        adopt(str(tmp_path / "it"))


def test_ctrl_c_ends_the_simulator_and_its_workers() -> None:
    """A terminal sends SIGINT to the whole process group, so the workers get it too. All end, without a stack."""
    command = [sys.executable, "-u", "-m", "viewstamp", "sim", "run", "--fresh", "--seconds", "600", "--jobs", "2"]
    pipe = subprocess.PIPE
    with default_signals():
        started = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    with started as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("seeds from ")
        while len(group_of(process.pid)) < 4:  # The command, multiprocessing's helper, and two workers that import.
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        told, said = process.communicate(timeout=120)
        assert process.returncode == 130, said
        assert "before the interruption" in told
        assert "Traceback" not in said
        deadline = time.monotonic() + 60  # multiprocessing's own helper ends when it reads the end of a pipe.
        while group_of(process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert group_of(process.pid) == []


def group_of(pgid: int) -> list[int]:
    """Return the processes of a process group that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == pgid and start_mark(int(path.name)) is not None:
                found.append(int(path.name))
    return found


def test_run_async_restores_the_handler_of_sigterm() -> None:
    """Otherwise the calling program would ignore SIGTERM from then on."""
    before = signal.getsignal(signal.SIGTERM)
    with default_signals():
        run_async(asyncio.sleep(0))
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is before
