"""How long does a node take to restart with many archived records, beside one with an empty topic?

Two clusters of one node, each in a process of its own. One has a topic of 10 GB, archived gigabyte by gigabyte, after
which the log was deleted; the other has an empty topic. Each node is killed and started in turns. The time is from the
start of the process to the first acknowledged record of another topic, with all files in the page cache that fit.

Expected: no difference. A start reads the snapshot and the log behind it. The catalogue has one entry for each 256 MiB,
and no file of a run is opened before a reader needs it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from pathlib import Path
from statistics import median

from benchmarks.report import print_json, print_table
from viewstamp.bench.cluster import WAIT_SECONDS, own_directory
from viewstamp.bench.conditions import conditions
from viewstamp.client import Client
from viewstamp.local.cluster import LocalCluster

_SETTINGS = {"snapshots.log_bytes": "64MiB"}
_PIECE_BYTES = 1_000_000_000
"""Bytes of values that are appended before each round of the archive."""
_BATCH_BYTES = 1024 * 1024
_IN_FLIGHT = 8
_ARCHIVE_SECONDS = 900.0


async def open_cluster(root: Path, name: str) -> LocalCluster:
    """Create a cluster of one node with an archive, and start it."""
    settings = {**_SETTINGS, "archive.directory": str(root / f"{name}-store")}
    cluster = await asyncio.to_thread(LocalCluster.open_or_create, root / name, 1, settings)
    await start(cluster)
    return cluster


async def start(cluster: LocalCluster) -> None:
    """Start the node of a cluster, and wait until it runs."""
    node = cluster.node("n1")
    await asyncio.to_thread(cluster.spawn, node)
    await cluster.wait_running([node], WAIT_SECONDS)


async def fill(client: Client, size: int, value_size: int) -> None:
    """Append ``size`` bytes of values to the topic "orders"."""
    entropy = random.Random(size)
    pool = entropy.randbytes(4 * _BATCH_BYTES)
    count = max(1, _BATCH_BYTES // value_size)
    left = iter(range(size // (count * value_size)))

    async def append() -> None:
        for _ in left:
            at = [entropy.randrange(len(pool) - value_size) for _ in range(count)]
            await client.append_many("orders", [pool[each : each + value_size] for each in at])

    await asyncio.gather(*(append() for _ in range(_IN_FLIGHT)))


async def archive(client: Client) -> None:
    """Archive all records of the topic, and wait until the log has deleted them."""
    await client.archive_topic("orders", delay=0.0, timeout=_ARCHIVE_SECONDS)
    while True:
        await client.append("filler", bytes(1000))
        await client.create_snapshot(timeout=WAIT_SECONDS)
        [node] = await client.status()
        if node["log_bytes"] < _PIECE_BYTES // 4:
            return
        await asyncio.sleep(0.3)


async def restart(cluster: LocalCluster) -> float:
    """Kill the node and start it; return the seconds until it acknowledges a record."""
    await cluster.node("n1").kill()
    began = time.perf_counter()
    await start(cluster)
    async with cluster.target.connect() as client:
        await client.append("filler", b"x")
    return time.perf_counter() - began


async def measure(root: Path, gigabytes: float, value_size: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each restart, by name of the cluster."""
    archived, empty = await open_cluster(root, "archived"), await open_cluster(root, "empty")
    clusters = {"archived": archived, "empty": empty}
    try:
        for cluster in clusters.values():
            async with cluster.target.connect() as client:
                await client.create_topic("orders")
                await client.create_topic("filler", retain_bytes=1)
                await client.append("filler", b"x")
        async with archived.target.connect() as client:
            left = round(gigabytes * 1e9)
            while left > 0:
                await fill(client, min(left, _PIECE_BYTES), value_size)
                await archive(client)
                left -= _PIECE_BYTES
        found: dict[str, list[float]] = {name: [] for name in clusters}
        for _ in range(rounds):
            for name, cluster in clusters.items():
                found[name].append(await restart(cluster))
        return found
    finally:
        for cluster in clusters.values():
            await cluster.stop(WAIT_SECONDS, [cluster.node("n1")])


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=10.0, help="of archived values")
    parser.add_argument("--size", type=int, default=4096, help="bytes of a value")
    parser.add_argument("--rounds", type=int, default=5, help="restarts of each node")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    with own_directory() as directory:
        found = conditions(directory)
        seconds = asyncio.run(measure(directory, options.gigabytes, options.size, options.rounds))
    if options.output == "json":
        print_json({**found, "seconds": seconds})
        return
    rows = [[name, *(f"{function(each):.2f}" for function in (median, min, max))] for name, each in seconds.items()]
    print_table("restarts, in seconds", ["node", "median", "least", "most"], rows)


if __name__ == "__main__":
    main()
