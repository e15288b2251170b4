"""How much do idle groups cost a node, in processor time, memory, threads and sockets?

Three nodes, each a process, host some placed groups beside group 0. No client is connected while they are measured.
The groups are placed by the same nodes in this process, because a start of a node opens the groups that are placed on
it. Processor time and wake-ups come from the counters of the operating system, and are means of the three nodes.

Expected: a group of three members sends two heartbeats and gets two responses in each 100 ms. A message takes some 50
us of its sender and its receiver together, so a group takes 0.2 % of a core in three nodes, and 16 groups take 1 % of
a core in each. An idle group needs no thread, and its objects take less than a megabyte.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.ordered_appends import measure_ordered
from benchmarks.report import print_json, print_table
from benchmarks.rounds import Usage, usage
from viewstamp.bench.cluster import WAIT_SECONDS, own_cluster, own_directory
from viewstamp.bench.conditions import conditions
from viewstamp.embed.actor_classes import NO_ACTORS
from viewstamp.embed.connect import connect
from viewstamp.embed.node_thread import make_node
from viewstamp.host.event_loop import new_event_loop
from viewstamp.local.cluster import LocalCluster
from viewstamp.local.node_process import logger

_COUNTS = (0, 1, 4, 16)
_NODES = 3
_CPU_PERCENT_MAX, _MEGABYTES_MAX = 3.0, 12.0
"""Bounds of the cost of 16 idle groups for each node."""
_SETTLE_SECONDS = 8.0
_LOOK_SECONDS = 0.05


async def place(directory: Path, count: int) -> None:
    """Create a cluster in ``directory`` and place ``count`` groups; return when all nodes have opened them."""
    local = LocalCluster.open_or_create(directory, _NODES, chaos=False)
    nodes = [make_node(each.file, NO_ACTORS, logger("error")) for each in local.nodes.values()]
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            for node in nodes:
                await node.start()
            for node in nodes:
                await node.wait_running()
            async with connect(",".join(node.address for node in nodes)) as client:
                for number in range(count):
                    await client.place_group(f"stream-{number}")
            await _until(lambda: all(len(node.groups) > count and not node.hosting.unserved for node in nodes))
    finally:
        for node in nodes:
            await node.stop()


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  # because a node reports no event for it
        await asyncio.sleep(_LOOK_SECONDS)


async def measure(directory: Path, count: int, seconds: float) -> dict[str, Any]:
    """Return the cost of ``count`` idle groups for each node: the means of three processes."""
    await place(directory, count)
    async with own_cluster(directory) as local:
        await local.wait_until(
            lambda found: all(_serves(node, count) for node in found["nodes"]), WAIT_SECONDS, "groups have no leader"
        )
        await asyncio.sleep(_SETTLE_SECONDS)
        pids = [pid for node in local.nodes.values() if (pid := node.pid()) is not None]
        before = [usage(pid) for pid in pids]
        await asyncio.sleep(seconds)
        used = [usage(pid).since(earlier) for pid, earlier in zip(pids, before, strict=True)]
        found = await _wait_served(local, count)
        return {
            "groups": count,
            "cpu_percent": round(100 * mean(map(_processor, used)) / seconds, 2),
            "switches_per_second": round(mean(each.switches for each in used) / seconds),
            "pss_megabytes": round(mean(_field(pid, "smaps_rollup", "Pss") for pid in pids) / 1000, 1),
            "rss_megabytes": round(mean(_field(pid, "smaps_rollup", "Rss") for pid in pids) / 1000, 1),
            "threads": mean(_field(pid, "status", "Threads") for pid in pids),
            "sockets": mean(map(_sockets, pids)),
            "led_by_each_node": sorted(map(_led, found["nodes"]), reverse=True),
        }


async def _wait_served(local: LocalCluster, count: int) -> Mapping[str, Any]:
    return await local.wait_until(
        lambda found: all(_serves(node, count) for node in found["nodes"]), WAIT_SECONDS, "groups have no leader"
    )


def _led(status: dict[str, Any]) -> int:
    """Return how many placed groups the node leads."""
    return sum(each["role"] == "leader" for each in status.get("hosted") or [])


def _serves(status: dict[str, Any], count: int) -> bool:
    return not status.get("not_ready") and len(status.get("hosted") or []) == count


def _processor(used: Usage) -> float:
    return used.user + used.kernel


def _field(pid: int, file: str, name: str) -> int:
    """Return the number in a field of a file of a process; memory is in kB, of 1,024 bytes."""
    text = Path(f"/proc/{pid}/{file}").read_text(encoding="ascii", errors="replace")
    found = re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)
    assert found is not None, f"/proc/{pid}/{file} has no field {name}"
    return int(found[1])


def _sockets(pid: int) -> int:
    return sum(os.readlink(each.path).startswith("socket:") for each in os.scandir(f"/proc/{pid}/fd"))


async def measure_all(counts: list[int], seconds: float, directory: Path) -> list[dict[str, Any]]:
    """Return the cost of each number of groups, each measured with a cluster of its own."""
    return [await measure(directory / str(count), count, seconds) for count in counts]


async def measure_appends(counts: list[int], callers: int, seconds: float, directory: Path) -> list[dict[str, Any]]:
    """Return the figures of ordered appends for each number of groups."""
    found = []
    for count in counts:
        await place(directory / str(count), count)
        found.append(await measure_ordered(directory / str(count), count, callers, seconds, _serves))
    return found


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=lambda text: [int(part) for part in text.split(",")], default=list(_COUNTS))
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each measurement")
    parser.add_argument("--appends", action="store_true", help="ordered appends, in place of idle groups")
    parser.add_argument("--callers", type=int, default=256, help="callers of --appends")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    with own_directory(Path("viewstamp-data")) as directory, asyncio.Runner(loop_factory=new_event_loop) as runner:
        found = conditions(directory)
        if options.appends:
            counts = [count for count in options.counts if count] if options.counts != list(_COUNTS) else [1, 3]
            appends = runner.run(measure_appends(counts, options.callers, options.seconds, directory))
            if options.output == "json":
                print_json({**found, "appends": appends})
                return
            print_table(
                f"milliseconds in the median with one caller, appends a second with {options.callers} callers",
                ["groups", "durable", "ordered", "ratio", "durable/s", "ordered/s"],
                [list(each.values()) for each in appends],
            )
            return
        results = runner.run(measure_all(options.counts, options.seconds, directory))
    if options.output == "json":
        print_json({**found, "groups": results})
        return
    print(__doc__)
    print_table(
        "each of three nodes: % of a core, context switches a second, MB of memory (PSS, RSS), threads, sockets;\n"
        "and how many placed groups each node led at the end",
        ["idle groups", "CPU %", "switches/s", "PSS", "RSS", "threads", "sockets", "led"],
        [[*list(each.values())[:-1], ", ".join(map(str, each["led_by_each_node"]))] for each in results],
    )
    by_count = {each["groups"]: each for each in results}
    if {0, 16} <= by_count.keys():
        cpu, memory = (by_count[16][name] - by_count[0][name] for name in ("cpu_percent", "pss_megabytes"))
        print(f"16 idle groups cost a node {cpu:.2f} % of a core (bound: {_CPU_PERCENT_MAX:g} %)")
        print(f"and {memory:.1f} MB of memory (bound: {_MEGABYTES_MAX:g} MB)")


if __name__ == "__main__":
    main()
