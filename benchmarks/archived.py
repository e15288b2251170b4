"""How fast are archived records read, beside reads from the log, and beside pyarrow alone?

A node in a process of its own gets records of a topic, in batches of 100 and then one by one, and archives them. A
client in this process reads all of them from the log, then from the runs after the log was deleted: the first time each
row group is loaded, verified and made into batches again (cold), the second time it is in the node's cache (warm). The
figure is MB of values a second. pyarrow reads all columns of the same files in this process, without a checksum and
without a node. ``open_arrow`` takes the same records from the files in this process, verified, in threads.

Expected: warm reads are as fast as reads from the log, because both send bytes that are in memory. Cold reads take the
time of pyarrow, of the checksums, and of the batches, one after the other: about half of the rate from the log with
batches of 100, and less with batches of one, whose headers are built one by one in Python.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from pathlib import Path

from benchmarks.report import print_json, print_table
from viewstamp.archive.arrow_reader import open_arrow
from viewstamp.bench.cluster import own_directory
from viewstamp.bench.conditions import conditions
from viewstamp.client import Client
from viewstamp.local.cluster import LocalCluster

_SETTINGS = {"archive.cache_bytes": "4GiB", "snapshots.log_bytes": "16MiB", "wal.segment_bytes": "1MiB"}


async def read(client: Client, topic: str, end: int) -> float:
    """Read a topic up to position ``end``; return MB of values a second."""
    began, size, position = time.perf_counter(), 0, 1
    async for batch in client.read_batches(topic, 1, end=end):
        size += len(batch.columns().values.data)
        position = batch.first_position + batch.count
    assert position == end, f"the reader ended at {position}"
    return size / (time.perf_counter() - began) / 1e6


async def read_arrow(client: Client, topic: str, store: Path, end: int) -> float:
    """Read a topic up to position ``end`` from the files of its runs; return MB of values a second."""
    from pyarrow import compute

    began, size = time.perf_counter(), 0
    found = await open_arrow(client, topic, archive=str(store), end=end)
    async for batch in found.batches():
        size += compute.sum(compute.binary_length(batch.column("value"))).as_py()
    assert (found.start, found.end) == (1, end), f"the reader had {found.start} to {found.end - 1}"
    return size / (time.perf_counter() - began) / 1e6


def scan(files: list[Path]) -> float:
    """Read all columns of the files with pyarrow, in one thread; return MB of values a second."""
    from pyarrow import compute, parquet

    began, size = time.perf_counter(), 0
    for path in files:
        file = parquet.ParquetFile(path)
        for number in range(file.num_row_groups):
            table = file.read_row_group(number, use_threads=False)
            size += compute.sum(compute.binary_length(table["value"])).as_py()
    return size / (time.perf_counter() - began) / 1e6


async def measure(root: Path, records: int, size: int, batch: int) -> dict[str, float]:
    """Return the figures for batches of ``batch`` records."""
    settings = {**_SETTINGS, "archive.directory": str(root / "store")}
    cluster = await asyncio.to_thread(LocalCluster.open_or_create, root / "cluster", 1, settings)
    await asyncio.to_thread(cluster.spawn, cluster.node("n1"))
    await cluster.wait_running([cluster.node("n1")], 30.0)
    try:
        async with cluster.target.connect() as client:
            await client.create_topic("orders")
            await client.create_topic("filler", retain_bytes=1)
            entropy = random.Random(1)
            values = [entropy.randbytes(size) for _ in range(1000)]
            for _ in range(records // 1000):
                if batch == 1:
                    await asyncio.gather(*(client.append("orders", value) for value in values))
                else:
                    for at in range(0, 1000, batch):
                        await client.append_many("orders", values[at : at + batch])
            end = records + 1
            figures = {"from the log": max([await read(client, "orders", end) for _ in range(2)])}
            await client.archive_topic("orders", delay=0.0, timeout=600.0)
            while True:
                await client.append("filler", bytes(1000))
                await client.create_snapshot(timeout=60.0)
                [node] = await client.status()
                if node["first_index"] >= records * 0.95:  # The log is deleted in whole segments.
                    break
                await asyncio.sleep(0.3)
            figures["from runs, cold"] = await read(client, "orders", end)
            figures["from runs, warm"] = await read(client, "orders", end)
            figures["from files, open_arrow"] = max(
                [await read_arrow(client, "orders", root / "store", end) for _ in range(2)]
            )
            files = sorted((root / "store").rglob("*.parquet"))
            figures["pyarrow alone"] = max([await asyncio.to_thread(scan, files) for _ in range(2)])
            return figures
    finally:
        await cluster.stop(30.0, [cluster.node("n1")])


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.archived", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="a multiple of 1,000")
    parser.add_argument("--size", type=int, default=1000, help="bytes of a value")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for batch in (100, 1):
        with own_directory() as root:
            found[f"batches of {batch}"] = asyncio.run(measure(Path(root), arguments.records, arguments.size, batch))
    if arguments.output == "json":
        print_json({"conditions": conditions(Path()), "megabytes_per_second": found})
        return
    names = next(iter(found.values()))
    rows = [[name, *(round(figures[name]) for figures in found.values())] for name in names]
    print_table("reads, in MB of values a second", ["", *found], rows)


if __name__ == "__main__":
    main()
