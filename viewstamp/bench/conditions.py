"""Collects the conditions that are recorded beside each figure: machine, commit, interpreter, disk."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from viewstamp.bench.interpreter import loop_ns
from viewstamp.host.disk import RealDisk

__all__ = ["conditions"]

_PROBES = 100


def conditions(directory: Path) -> dict[str, object]:
    """Return the conditions of a measurement in ``directory``, for a record in JSON.

    ``loop_ns`` is the speed of this interpreter, see ``interpreter.py``. ``sync_ms_p50`` is the median of 100 syncs of
    4 KiB.

    Raises:
      SystemExit: the directory is in memory, so the measurement would not include a disk.
    """
    filesystem = RealDisk().filesystem(str(directory))
    if filesystem in ("tmpfs", "ramfs"):
        sys.exit(f"{directory} is on {filesystem}: memory, not a disk. Run this in a directory on a real disk.")
    return {
        "commit": _commit(),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "python": f"{platform.python_version()} ({platform.python_compiler()})",
        "loop_ns": loop_ns(),
        "filesystem": filesystem,
        "load_average": round(os.getloadavg()[0], 2),
        "sync_ms_p50": round(_sync_seconds(directory) * 1000, 3),
    }


def _sync_seconds(directory: Path) -> float:
    path = directory / "probe"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(descriptor, 0, _PROBES * 4096)
        os.fsync(descriptor)
        seconds = []
        for number in range(_PROBES):
            started = time.perf_counter()
            os.pwrite(descriptor, bytes(4096), number * 4096)
            os.fdatasync(descriptor)
            seconds.append(time.perf_counter() - started)
    finally:
        os.close(descriptor)
        path.unlink()
    return median(seconds)


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "viewstamp", "benchmarks")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + (" and changes" if changed else "")


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as stream:
            return next(line.partition(":")[2].strip() for line in stream if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
