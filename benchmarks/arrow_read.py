"""How fast does a Python program read archived records, compared with the nodes and with plain scans of the files?

Three nodes run in processes of their own. A topic is archived as a whole into a directory; records have 256 bytes that
cannot be compressed, and the logs of the nodes still have them. Each figure is the median of the rounds, in turns:

  * open_arrow, archive: all columns from the files of the runs, verified
  * open_arrow, nodes: the same batches without the option ``archive``
  * read_batches, nodes: what a client reads, without Arrow
  * pyarrow.dataset: a scan of the same files with all threads of pyarrow, without verification

The processor time is that of this process and of the nodes. Goals: ``open_arrow`` reads an archive at 0.7 of the rate
of ``pyarrow.dataset``, and at three times the rate of the nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

from pyarrow import dataset

from benchmarks.report import print_json, print_table
from viewstamp.archive.arrow_reader import open_arrow
from viewstamp.bench.cluster import own_directory
from viewstamp.bench.conditions import conditions
from viewstamp.client import Client
from viewstamp.errors import RequestError
from viewstamp.local.cluster import LocalCluster

__all__ = ["BATCH", "BYTES", "TOPIC", "fill"]

BYTES = 256
TOPIC = "bench"
BATCH = 2000
_WAIT_SECONDS = 60.0
_RUN_RECORDS = 500_000
_TICKS = os.sysconf("SC_CLK_TCK")


async def fill(cluster: LocalCluster, records: int) -> int:
    """Start the nodes, append and archive; return the number of runs."""
    cluster.spawn_missing()
    await cluster.wait_running(cluster.nodes.values(), _WAIT_SECONDS)
    async with cluster.target.connect() as client:
        await client.create_topic(TOPIC)
        done = 0
        while done < records:
            data = os.urandom(BATCH * BYTES)
            await client.append_many(TOPIC, [data[at : at + BYTES] for at in range(0, len(data), BYTES)])
            done += BATCH
            if done % _RUN_RECORDS == 0 or done >= records:
                await client.archive_topic(TOPIC, timeout=600)
        return len(await client.list_runs())


def _processor_seconds(processes: list[int]) -> float:
    """Return the processor time of this process and of others, in seconds."""
    own = os.times()
    total = own.user + own.system
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / _TICKS
    return total


async def _arrow(client: Client, archive: str | None) -> int:
    reader = await open_arrow(client, TOPIC, archive=archive)
    return sum([batch.num_rows async for batch in reader.batches()])


async def _plain(client: Client, records: int) -> int:
    return sum([batch.count async for batch in client.read_batches(TOPIC, 1, end=records + 1)])


def _scan(files: list[str]) -> int:
    return sum(batch.num_rows for batch in dataset.dataset(files, format="parquet").to_batches())


async def measure(records: int, rounds: int, directory: Path) -> dict[str, Any]:
    """Return MB of values a second and seconds of processor time for each, and the conditions."""
    store = directory / "archive"
    settings = {"archive.directory": str(store)}
    cluster = await asyncio.to_thread(LocalCluster.open_or_create, str(directory / "cluster"), 3, settings)
    try:
        runs = await fill(cluster, records)
        files = [str(path) for path in sorted(store.glob("*/*.parquet"))]
        processes = [process for node in cluster.nodes.values() if (process := node.pid()) is not None]
        async with cluster.target.connect() as client:
            works: dict[str, Callable[[], Awaitable[int]]] = {
                "open_arrow, archive": lambda: _arrow(client, str(store)),
                "open_arrow, nodes": lambda: _arrow(client, None),
                "read_batches, nodes": lambda: _plain(client, records),
                "pyarrow.dataset": lambda: asyncio.to_thread(_scan, files),
            }
            seconds: dict[str, list[float]] = {name: [] for name in works}
            used: dict[str, list[float]] = {name: [] for name in works}
            for turn in range(rounds + 1):  # The first round warms up.
                for name, work in works.items():
                    began, spent = time.perf_counter(), _processor_seconds(processes)
                    found = await work()
                    assert found == records, f"{name} has read {found} records of {records}"
                    if turn:
                        seconds[name].append(time.perf_counter() - began)
                        used[name].append(_processor_seconds(processes) - spent)
        total = records * BYTES / 1e6
        rates = {name: total / median(each) for name, each in seconds.items()}
        archive = rates["open_arrow, archive"]
        return {
            "rates": rates,
            "processor_seconds": {name: median(each) for name, each in used.items()},
            "of_a_scan": archive / rates["pyarrow.dataset"],
            "times_the_nodes": archive / rates["read_batches, nodes"],
            "times_the_nodes_as_arrow": archive / rates["open_arrow, nodes"],
            "megabytes": total,
            "runs": runs,
            "load": os.getloadavg()[0],
        }
    finally:
        for node in cluster.nodes.values():
            await node.kill()


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(prog="benchmarks.arrow_read", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5, help="number of times that each is measured")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    if options.records < BATCH or options.records % BATCH or options.rounds < 1:
        raise RequestError("too few records or rounds to measure", remedy=f"use a multiple of {BATCH} records")
    with own_directory(Path("viewstamp-data")) as directory:
        found = asyncio.run(measure(options.records, options.rounds, Path(directory)))
        result = {"conditions": conditions(directory), **found}
    if options.output == "json":
        print_json(result)
        return
    print(__doc__)
    rows = [
        [name, f"{rate:.0f}", f"{rate * 1e6 / BYTES:,.0f}", f"{result['processor_seconds'][name]:.2f}"]
        for name, rate in result["rates"].items()
    ]
    print_table("Reading archived records", ["", "MB/s", "records/s", "processor s"], rows)
    print({key: value for key, value in result.items() if key not in ("rates", "processor_seconds")})


if __name__ == "__main__":
    main()
