"""Seeds in many processes: no worker process outlives its parent."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from viewstamp.local.process import start_mark

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
