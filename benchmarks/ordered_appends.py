"""How long does an ordered append take, beside a durable one, and how many are there each second?

Three nodes, each a process, host a topic with a stream in each of some groups. One client in this process appends
records of 100 bytes, first with one caller and then with many. Durable and ordered appends take turns, so that both
meet the same load of the machine.

Expected: an ordered append is a durable one, then a commit of group 0 between two messages of nodes. So it takes twice
as long with one caller, and longer where processes wait for a processor. With many callers all that wait share the
commit of group 0.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from viewstamp.bench.cluster import WAIT_SECONDS, own_cluster
from viewstamp.client.aio import Client
from viewstamp.embed.connect import connect

__all__ = ["measure_ordered"]

_RECORD = bytes(100)
_TOPIC = "orders"
_TURNS = 5
_TURN_APPENDS = 100


async def measure_ordered(
    directory: Path, groups: int, callers: int, seconds: float, serves: Callable[[dict[str, Any], int], bool]
) -> dict[str, Any]:
    """Return median seconds with one caller, and appends a second with many, of durable and of ordered appends.

    ``directory`` has a cluster in which the groups are placed; ``serves`` returns whether a node serves so many, by
    its status.
    """
    async with own_cluster(directory) as local:
        await local.wait_until(
            lambda found: all(serves(node, groups) for node in found["nodes"]), WAIT_SECONDS, "groups have no leader"
        )
        async with connect(",".join(node.address for node in local.nodes.values())) as client:
            await client.create_spread_topic(_TOPIC, groups)
            await client.balance_leaders()
            await _one_after_the_other(client, is_ordered=True)
            took: dict[bool, list[float]] = {False: [], True: []}
            rates: dict[bool, list[float]] = {False: [], True: []}
            for _ in range(_TURNS):
                for is_ordered, times in took.items():
                    times += await _one_after_the_other(client, is_ordered=is_ordered)
            for _ in range(_TURNS):
                for is_ordered, each in rates.items():
                    each.append(await _together(client, callers, seconds / _TURNS, is_ordered=is_ordered))
    return {
        "groups": groups,
        "durable_ms": round(1e3 * median(took[False]), 2),
        "ordered_ms": round(1e3 * median(took[True]), 2),
        "ratio": round(median(took[True]) / median(took[False]), 2),
        "durable_per_second": round(median(rates[False])),
        "ordered_per_second": round(median(rates[True])),
    }


async def _one_after_the_other(client: Client, *, is_ordered: bool) -> list[float]:
    """Return the seconds of each append of one caller."""
    took = []
    for _ in range(_TURN_APPENDS):
        began = time.perf_counter()
        await client.append(_TOPIC, _RECORD, ordered=is_ordered)
        took.append(time.perf_counter() - began)
    return took


async def _together(client: Client, callers: int, seconds: float, *, is_ordered: bool) -> float:
    """Return the appends a second of many callers."""
    end, count = time.perf_counter() + seconds, 0

    async def call() -> None:
        nonlocal count
        while time.perf_counter() < end:
            await client.append(_TOPIC, _RECORD, ordered=is_ordered)
            count += 1

    began = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(callers)))
    return count / (time.perf_counter() - began)
