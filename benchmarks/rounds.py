"""How much processor time does a commit take in each process, and how much of it depends on the number of records?

Callers whose records share batches proceed in rounds. A round is a batch from each session, one write and one sync on
each disk, and a response. Its cost comes from the counters of the operating system: the processor time of each process
in its own code and in the kernel, and the switches of its threads, each divided by the syncs of the leader's log.

Expected: a round wakes the leader's loop four times (the batch, its own sync, two acknowledgements), of which two run a
turn of the consensus, a follower's loop twice, and one thread for each sync. The rest is some 150 us of warm Python and
100 us of system calls in each node.
The caches are cold at each wake-up, because four processes share two cores. So the cost of a round should hardly depend
on the number of its records.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.report import print_json, print_table
from benchmarks.rows.appends import VALUE
from viewstamp.bench.cluster import TOPIC, connected_to, own_cluster, own_directory
from viewstamp.bench.conditions import conditions
from viewstamp.bench.load import Figures, drive
from viewstamp.client.aio import Client
from viewstamp.host.event_loop import new_event_loop
from viewstamp.local.cluster import LocalCluster
from viewstamp.local.process import cpu_seconds

_SHAPES = ((1, 1), (64, 1), (64, 8), (64, 64), (256, 1), (256, 8), (256, 64))
"""Callers and sessions."""
_PROCESSES = ("callers", "leader", "follower")
_WARM_UP_SECONDS = 0.5


@dataclass(slots=True)
class Usage:
    """The resources that a process has used so far."""

    user: float
    """Processor seconds in its own code."""
    kernel: float
    switches: int
    """Context switches of its threads, voluntary and involuntary."""

    def since(self, before: Usage) -> Usage:
        """Return the use between ``before`` and this one."""
        return Usage(self.user - before.user, self.kernel - before.kernel, self.switches - before.switches)


def usage(pid: int) -> Usage:
    """Return the resources that a process has used, from the counters of the operating system."""
    threads = [(each / "status").read_text(encoding="utf-8") for each in Path(f"/proc/{pid}/task").iterdir()]
    switches = sum(int(found) for text in threads for found in re.findall(r"ctxt_switches:\s+(\d+)", text))
    return Usage(*cpu_seconds(pid), switches)


async def groups(client: Client) -> tuple[str, dict[str, int]]:
    """Return the leader, and the number of groups that each node has synced."""
    nodes = await client.status()
    leader = next(str(node["id"]) for node in nodes if node.get("role") == "leader")
    return leader, {str(node["id"]): int(node["groups"]) for node in nodes}


async def measure(local: LocalCluster, callers: int, sessions: int, seconds: float) -> dict[str, Any]:
    """Return the cost of a round with this number of callers and sessions."""
    pids = {str(name): pid for name, node in local.nodes.items() if (pid := node.pid()) is not None}
    pids["callers"] = os.getpid()
    async with connected_to(local.target, sessions) as clients:

        async def look() -> tuple[str, dict[str, int], dict[str, Usage]]:
            leader, syncs = await groups(clients[0])
            return leader, syncs, {name: usage(pid) for name, pid in pids.items()}

        async def watch() -> tuple[str, int, dict[str, Usage]]:
            await asyncio.sleep(_WARM_UP_SECONDS)
            leader, syncs, before = await look()
            await asyncio.sleep(seconds)
            _, later, after = await look()
            return leader, later[leader] - syncs[leader], {name: after[name].since(before[name]) for name in pids}

        watching = asyncio.create_task(watch())
        appends = [partial(client.append, TOPIC) for client in clients]
        figures: Figures = await drive(appends, VALUE, callers=callers, seconds=seconds, warm_up=_WARM_UP_SECONDS)
        leader, rounds, used = await watching
    followers = [name for name in local.nodes if name != leader]
    result: dict[str, Any] = {
        "callers": callers,
        "sessions": sessions,
        "per_second": round(figures.per_second, 1),
        "p50_ms": figures.percentile_ms(50),
        "rounds_per_second": round(rounds / seconds, 1),
        "records_per_round": round(figures.count / rounds, 1),
    }
    members: list[list[str]] = [["callers"], [leader], [str(name) for name in followers]]
    for name, processes in zip(_PROCESSES, members, strict=True):
        count = rounds * len(processes) / 1e6
        result[f"{name}_user_us"] = round(sum(used[each].user for each in processes) / count)
        result[f"{name}_kernel_us"] = round(sum(used[each].kernel for each in processes) / count)
        result[f"{name}_switches"] = round(sum(used[each].switches for each in processes) / rounds / len(processes), 1)
    return result


async def measure_all(options: argparse.Namespace, directory: Path) -> list[dict[str, Any]]:
    """Return the costs of a round for all of ``_SHAPES``, measured with one cluster."""
    async with own_cluster(directory / "nodes") as local:
        return [await measure(local, *shape, options.seconds) for shape in _SHAPES]


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each measurement")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    with own_directory(Path("viewstamp-data")) as directory, asyncio.Runner(loop_factory=new_event_loop) as runner:
        found, shapes = conditions(directory), runner.run(measure_all(options, directory))
    if options.output == "json":
        print_json({**found, "shapes": shapes})
        return
    print(__doc__)
    rows = [
        [
            f"{each['callers']}/{each['sessions']}",
            *(each[name] for name in ("per_second", "p50_ms", "rounds_per_second", "records_per_round")),
            *(f"{each[f'{name}_user_us']}+{each[f'{name}_kernel_us']}" for name in _PROCESSES),
            "/".join(f"{each[f'{name}_switches']:.0f}" for name in _PROCESSES),
        ]
        for each in shapes
    ]
    print_table(
        "a round: us in the code of callers, leader, each follower + us in the kernel; switches of their threads",
        ["callers", "records/s", "p50 ms", "rounds/s", "records", "callers", "leader", "follower", "switches"],
        rows,
    )
    print_table("", ["", "conditions"], [[name.replace("_", " "), str(value)] for name, value in found.items()])


if __name__ == "__main__":
    main()
