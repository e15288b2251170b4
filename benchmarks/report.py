"""What stands beside every figure: the machine, the commit, the disk; tables and JSON."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from viewstamp.host.disk import RealDisk

__all__ = ["conditions", "percentile", "print_json", "print_table"]

_PROBES = 100
_WIDTH = 120


def conditions(directory: Path) -> dict[str, object]:
    """Return where and with what was measured, and how long this disk takes to sync 4 KiB at the moment."""
    filesystem = RealDisk().filesystem(str(directory))
    if filesystem in ("tmpfs", "ramfs"):
        sys.exit(f"{directory} is on {filesystem}: memory, not a disk. Run this in a directory on a real disk.")
    return {
        "commit": _commit(),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "filesystem": filesystem,
        "load_average": round(os.getloadavg()[0], 2),
        "sync_ms_p50": round(_sync_seconds(directory) * 1000, 3),
    }


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the ``percent``-th percentile; 0.0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0


def print_json(result: object) -> None:
    """Print a result for programs."""
    print(json.dumps(result, indent=2))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows for people; numbers get thousands separators."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*map(_shown, row))
    # Into a file or a pipe as wide as the tables need it.
    Console(width=None if sys.stdout.isatty() else _WIDTH).print(table)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}"
    return f"{value:,}" if type(value) is int else str(value)


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
