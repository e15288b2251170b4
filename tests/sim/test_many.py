"""Seeds in many processes: no worker process outlives its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from viewstamp.local.process import command_line, start_mark

PROC = Path("/proc")


def workers_of(process: int) -> dict[int, str]:
    """Return the live children of ``process``, with their marks."""
    found = {}
    for path in PROC.glob("[0-9]*/stat"):
        try:
            parent = path.read_text().rpartition(")")[2].split()[1]
        except (FileNotFoundError, ProcessLookupError):
            continue
        worker = int(path.parent.name)
        if int(parent) == process and (mark := start_mark(worker)) is not None:
            found[worker] = mark
    return found


@pytest.mark.skipif(not PROC.exists(), reason="looks for processes in /proc")
def test_workers_end_when_their_parent_is_killed() -> None:
    command = [sys.executable, "-m", "viewstamp", "sim", "run", "--seeds", "1000", "--jobs", "2"]
    parent = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 100
    while len(workers := workers_of(parent.pid)) < 3:  # The resource tracker is one of them.
        assert time.monotonic() < deadline, f"only {workers} have started"
        time.sleep(0.1)
    parent.kill()
    parent.wait()
    while left := [worker for worker, mark in workers.items() if start_mark(worker) == mark]:
        assert time.monotonic() < deadline, f"{left} still run"
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.skipif(not PROC.exists(), reason="looks for processes in /proc")
def test_a_worker_that_dies_costs_no_verdict_that_was_given_and_is_named() -> None:
    command = [sys.executable, "-m", "viewstamp", "sim", "run", "--seeds", "100000", "--jobs", "2", "--output", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        while not (workers := [each for each in workers_of(parent.pid) if "spawn_main" in str(command_line(each))]):
            assert parent.poll() is None
            time.sleep(0.05)
        os.kill(workers[0], signal.SIGKILL)
        printed, told = parent.communicate()
    assert parent.returncode == 1
    assert json.loads(printed).keys() == {"seeds", "events", "failures", "interrupted"}
    assert "a process of the simulator has died" in told
