"""The processor time of nodes, Spark's Python workers and the JVM, from Linux' ``/proc``."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["GROUPS", "processor_seconds"]

GROUPS: Final = ("nodes", "workers", "JVM")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def processor_seconds(nodes: Collection[int]) -> dict[str, float]:
    """Return the processor seconds that each group has used so far; {} = there is no ``/proc``.

    The JVM is the Java below this process, and the workers are all processes below it, so also those that plan. Time of
    ended processes counts for the parent that waited for them. This process itself is in no group.

    Args:
      nodes: the process ids of the nodes.
    """
    processes = _processes()
    if not processes:
        return {}
    parents = {pid: parent for pid, (_, parent, _, _) in processes.items()}
    found = dict.fromkeys(GROUPS, 0.0)
    for pid, (name, _, own, waited) in processes.items():
        above = _above(pid, parents)
        if pid in nodes:
            found["nodes"] += own + waited
        elif os.getpid() in above and any(processes[each][0] == "java" for each in above if each in processes):
            found["workers"] += own + waited
        elif os.getpid() in above and name == "java":
            found["JVM"] += own
            found["workers"] += waited  # Of daemons of workers that it ended because they were idle.
    return found


def _above(pid: int, parents: dict[int, int]) -> list[int]:
    above = []
    while pid := parents.get(pid, 0):
        above.append(pid)
    return above


def _processes() -> dict[int, tuple[str, int, float, float]]:
    """Return name, parent, own seconds and seconds of waited-for children of each process, by its id."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # The process has ended.
            name, _, rest = path.read_text(encoding="utf-8", errors="replace").partition("(")[2].rpartition(")")
            fields = rest.split()
            own, waited = (sum(map(int, fields[start : start + 2])) / _TICKS for start in (11, 13))
            found[int(path.parent.name)] = (name, int(fields[1]), own, waited)
    return found
