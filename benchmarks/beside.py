"""Measures appends while something else is done, in turns with appends alone; shared by the programs that do so."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Awaitable, Callable, Mapping
from statistics import median
from typing import Any

from benchmarks.report import print_table
from viewstamp.bench.load import percentile

__all__ = ["Figures", "append_beside", "in_turns", "medians", "p99_alone", "print_appends", "print_conditions"]

Figures = dict[str, Any]
_COLUMNS = {
    "per_second": "per second",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "longest_ms": "longest ms",
    "stall_ms": "stall ms",
    "busy_ms": "of it busy",
    "seconds": "seconds",
}


async def append_beside(
    append: Callable[[], Awaitable[object]], work: Callable[[], Awaitable[object]], callers: int
) -> Figures:
    """Keep ``callers`` appends unanswered until ``work`` is done; appends that began meanwhile count."""
    clock = time.perf_counter
    latencies = array("d")
    is_done = False

    async def caller() -> None:
        while not is_done:
            began = clock()
            await append()
            latencies.append((clock() - began) * 1000)

    running = asyncio.gather(*(caller() for _ in range(callers)))
    started = clock()
    await work()
    seconds = clock() - started
    is_done = True
    await running
    return {
        "per_second": len(latencies) / seconds,
        "p50_ms": percentile(latencies, 50),
        "p99_ms": percentile(latencies, 99),
        "longest_ms": max(latencies),
        "seconds": seconds,
    }


async def in_turns(
    measure: Callable[[Callable[[], Awaitable[object]]], Awaitable[Figures]],
    works: Mapping[str, Callable[[], Awaitable[object]]],
    rounds: int,
) -> dict[str, list[Figures]]:
    """Warm up for a second, then measure beside each of ``works`` in every round; return the rounds by name."""
    await measure(lambda: asyncio.sleep(1.0))
    found: dict[str, list[Figures]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            found[name].append(await measure(work))
    return found


def p99_alone(rounds: Mapping[str, list[Figures]]) -> float:
    """Return the median p99 of the works "alone" and "alone, later", in ms."""
    return float(median(each["p99_ms"] for name in ("alone", "alone, later") for each in rounds[name]))


def medians(rounds: Mapping[str, list[Figures]]) -> dict[str, Figures]:
    """Return the median of each figure over the rounds, by name of the work."""
    return {name: {key: median(each[key] for each in all_) for key in all_[0]} for name, all_ in rounds.items()}


def print_appends(result: Figures) -> None:
    """Print the figures of each work, as :func:`medians` returns them."""
    works = {name: each for name, each in result.items() if type(each) is dict and "per_second" in each}
    keys = [key for key in _COLUMNS if key in next(iter(works.values()))]
    rows = [[name, *(each[key] for key in keys)] for name, each in works.items()]
    title = f"{result['callers']} callers; medians of {result['rounds']} rounds"
    print_table(title, ["appends", *(_COLUMNS[key] for key in keys)], rows)


def print_conditions(result: Figures, *names: str) -> None:
    """Print these fields of the result, and the conditions that every program has."""
    names += ("durability", "filesystem", "sync_ms_p50", "machine", "python", "commit", "load_average")
    print_table("", ["", "conditions"], [[name.replace("_", " "), result[name]] for name in names])
