"""How much slower are appends during a snapshot of a gigabyte of state?

10,000 instances of an actor hold 100 KB each, on three members: the leader in this process, on the loop of its callers,
the others in processes of their own. 64 callers append records of 256 bytes, each awaiting one before the next. They
are measured alone, while the leader takes a snapshot, and while all three members take one at once, the worst case.

The figure is the p99 of these appends. The table also has the duration of the snapshot and the longest stall of the
loop: the lateness of a task that runs every millisecond, and the processor time of the loop during it. If the loop was
late but used little processor time, it waited for other processes.

Expected: an instance is packed and checksummed on the loop, a quarter of a megabyte at a time. This takes 0.1 to 0.2 ms
between two turns, much less than a sync. The device costs more, because every sync of the log waits for the snapshot's
unfinished writes, 4 MiB at most: 4 ms at 1 GB/s, 13 ms at 300 MB/s. So the p99 should grow by 4 to 15 ms, and the
snapshot should take one and a half times as long as the device needs for 1 GB.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from array import array
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from benchmarks.beside import Figures, append_beside, in_turns, medians, p99_alone, print_appends, print_conditions
from benchmarks.report import print_json, print_table
from viewstamp.bench.cluster import EmbeddedLeader, embedded_leader, own_directory
from viewstamp.bench.conditions import conditions
from viewstamp.embed.open_node import EmbeddedNode
from viewstamp.host.event_loop import new_event_loop

_TOPIC = "raw"
_TICK_SECONDS = 0.001
_FILLING = 64
_WANTED_MS = 20
_SETTINGS = {
    "actors.block": "benchmarks.actors:Block",
    # So that nodes take only the snapshots that the benchmark requests.
    "snapshots.log_bytes": str(1 << 40),
    "snapshots.restart_seconds_max": "0",
}


async def fill(node: EmbeddedNode, instances: int, size: int) -> None:
    """Fill ``instances`` instances with ``size`` bytes each."""
    keys = iter(range(instances))

    async def filler() -> None:
        for key in keys:
            await node.call("block", "fill", size, key=f"{key:08}")

    await asyncio.gather(*(filler() for _ in range(_FILLING)))


async def measure_loop(
    members: EmbeddedLeader, work: Callable[[], Awaitable[object]], callers: int, value: bytes
) -> Figures:
    """Measure appends beside ``work`` (``append_beside``), and the longest stall of the leader's event loop."""
    node, clock = members.node, time.perf_counter
    stalls = array("d")
    busy = array("d")

    async def ticker() -> None:
        while True:
            began, worked = clock(), time.thread_time()
            await asyncio.sleep(_TICK_SECONDS)
            stalls.append((clock() - began - _TICK_SECONDS) * 1000)
            busy.append((time.thread_time() - worked) * 1000)

    ticking = asyncio.ensure_future(ticker())
    try:
        figures = await append_beside(lambda: node.append(_TOPIC, value), work, callers)
    finally:
        ticking.cancel()
    members.check_leading()
    return {**figures, "stall_ms": max(stalls), "busy_ms": max(busy)}


async def measure(options: argparse.Namespace, directory: Path) -> Figures:
    """Fill the state, then measure without and with snapshots in turns; return the figures."""
    async with embedded_leader(directory, _SETTINGS, thread=False) as members:
        node = members.node
        value = bytes(options.bytes)
        await node.create_topic(_TOPIC)
        receipt = await node.append(_TOPIC, value)
        started = time.perf_counter()
        await fill(node, options.instances, options.instance_bytes)
        filled = time.perf_counter() - started
        names = sorted(each["id"] for each in await node.status())
        sizes: list[int] = []

        async def snapshots(of: list[str]) -> None:
            taken = await asyncio.gather(*(node.create_snapshot(name) for name in of))
            sizes.extend(each.bytes for each in taken)

        works: dict[str, Callable[[], Awaitable[object]]] = {
            "alone": lambda: asyncio.sleep(options.seconds),
            "leader's snapshot": lambda: snapshots([node.id]),
            "alone, later": lambda: asyncio.sleep(options.seconds),
            "all members' snapshots": lambda: snapshots(names),
        }

        async def measured(work: Callable[[], Awaitable[object]]) -> Figures:
            return await measure_loop(members, work, options.callers, value)

        rounds = await in_turns(measured, works, options.rounds)
        found, alone = medians(rounds), p99_alone(rounds)
        return {
            "durability": receipt.durability,
            "snapshot_bytes": median(sizes),
            "fill_seconds": filled,
            **found,
            "added_ms": {name: each["p99_ms"] - alone for name, each in found.items() if "snapshot" in name},
        }


def show(result: Figures) -> None:
    """Print the result as tables."""
    print(__doc__)
    print_appends(result)
    goals = [[name, added, "4 to 15", _WANTED_MS] for name, added in result["added_ms"].items()]
    print_table("", ["added to the p99, ms", "found", "expected", "at most"], goals)
    print_conditions(result, "snapshot_bytes", "fill_seconds")


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--bytes", type=int, default=256, help="size of a record")
    parser.add_argument("--instances", type=int, default=10_000)
    parser.add_argument("--instance-bytes", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each measurement without a snapshot")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    with own_directory(Path("viewstamp-data")) as directory, asyncio.Runner(loop_factory=new_event_loop) as runner:
        result: Figures = {**conditions(directory), "callers": options.callers, "rounds": options.rounds}
        result |= runner.run(measure(options, directory))
    if options.output == "json":
        print_json(result)
    else:
        show(result)


if __name__ == "__main__":
    main()
