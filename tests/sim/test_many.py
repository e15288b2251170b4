"""Seeds in many processes: no worker process outlives its parent."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

PROC = Path("/proc")


def workers_of(process: int) -> list[int]:
    """Return the live children of ``process``."""
    found = []
    for path in PROC.glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parent) == process and state != "Z":
            found.append(int(path.parent.name))
    return found


@pytest.mark.skipif(not PROC.exists(), reason="looks for processes in /proc")
def test_workers_end_when_their_parent_is_killed() -> None:
    command = [sys.executable, "-m", "viewstamp", "sim", "run", "--seeds", "1000", "--jobs", "2"]
    parent = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(workers := workers_of(parent.pid)) < 3:  # The resource tracker is one of them.
        assert time.monotonic() < deadline, f"only {workers} have started"
        time.sleep(0.1)
    parent.kill()
    parent.wait()
    while left := [worker for worker in workers if is_alive(worker)]:
        assert time.monotonic() < deadline, f"{left} still run"
        time.sleep(0.1)


def is_alive(process: int) -> bool:
    try:
        stat = (PROC / str(process) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
