"""How much slower are appends during a backup of a gigabyte?

Three members run in processes of their own, with a topic of 1 GB. 64 callers append records of 256 bytes, each awaiting
one before the next. They are measured alone, and while ``viewstamp backup create``, in a process of its own, copies the
whole log from a follower into a directory on the same device. Each is measured in turn, in several rounds, and each
backup is a full one into a new directory.

The figure is the p99 of these appends.

Expected: a request of the backup is 512 KiB. Reading, checking and sending them takes the follower 1 to 3 ms of its
processor, and the command about as long. With at most a quarter of the time spent so, a machine of two cores that is
busy with appends loses a tenth of its processor to a backup. A sync of the log waits for at most 4 MiB of the backup's
unfinished writes, which takes 4 to 13 ms. So the p99 should grow by 5 to 15 ms; at most 20 ms are wanted.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from array import array
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import print_json, print_table
from viewstamp.bench.cluster import own_cluster, own_directory
from viewstamp.bench.conditions import conditions
from viewstamp.bench.load import percentile
from viewstamp.client import Client
from viewstamp.host.event_loop import new_event_loop

_TOPIC = "raw"
_OLD = "old"
_WANTED_MS = 20
_FILL_BYTES = 65536

Figures = dict[str, Any]


async def fill(client: Client, size: int) -> None:
    """Append ``size`` bytes to a topic of their own."""
    await client.create_topic(_OLD)
    numbers = iter(range(size // _FILL_BYTES))
    value = bytes(range(256)) * (_FILL_BYTES // 256)

    async def filler() -> None:
        for _ in numbers:
            await client.append(_OLD, value, timeout=120.0)

    await asyncio.gather(*(filler() for _ in range(64)))


async def append_beside(client: Client, work: Callable[[], Awaitable[object]], callers: int, value: bytes) -> Figures:
    """Keep ``callers`` appends unanswered until ``work`` is done; appends that began meanwhile count."""
    clock = time.perf_counter
    latencies = array("d")
    is_done = False

    async def caller() -> None:
        while not is_done:
            began = clock()
            await client.append(_TOPIC, value)
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


async def back_up(target: Path, directory: Path, rate: str) -> None:
    """Run the command, and remove its backup. Raises RuntimeError if it fails."""
    command = ("backup", "create", str(target), "--dir", str(directory), "--rate", rate, "--full", "--output", "json")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "viewstamp", *command, stdout=asyncio.subprocess.DEVNULL
    )
    if await process.wait():
        raise RuntimeError(f"the backup failed with exit code {process.returncode}")


async def measure(options: argparse.Namespace, directory: Path) -> Figures:
    """Fill the log, then measure without and with a backup in turns; return the figures."""
    async with own_cluster(directory / "cluster") as cluster, cluster.target.connect() as client:
        value = bytes(options.bytes)
        await client.create_topic(_TOPIC)
        receipt = await client.append(_TOPIC, value)
        await fill(client, options.log_bytes)
        target = directory / "target"
        works: dict[str, Callable[[], Awaitable[object]]] = {
            "alone": lambda: asyncio.sleep(options.seconds),
            "during a backup": lambda: back_up(target, directory / "cluster", options.rate),
            "alone, later": lambda: asyncio.sleep(options.seconds),
        }
        await append_beside(client, lambda: asyncio.sleep(1.0), options.callers, value)
        rounds: dict[str, list[Figures]] = {name: [] for name in works}
        for _ in range(options.rounds):
            for name, work in works.items():
                rounds[name].append(await append_beside(client, work, options.callers, value))
                shutil.rmtree(target, ignore_errors=True)
        found = {name: {key: median(each[key] for each in all_) for key in all_[0]} for name, all_ in rounds.items()}
        alone = median(each["p99_ms"] for name in ("alone", "alone, later") for each in rounds[name])
        return {
            "durability": receipt.durability,
            **found,
            "added_ms": found["during a backup"]["p99_ms"] - alone,
        }


def show(result: Figures) -> None:
    """Print the result as tables."""
    print(__doc__)
    keys = ["per_second", "p50_ms", "p99_ms", "longest_ms", "seconds"]
    rows = [
        [name, *(each[key] for key in keys)] for name, each in result.items() if type(each) is dict and keys[0] in each
    ]
    columns = ["appends", "per second", "p50 ms", "p99 ms", "longest ms", "seconds"]
    print_table(f"{result['callers']} callers; medians of {result['rounds']} rounds", columns, rows)
    print_table(
        "",
        ["added to the p99, ms", "found", "expected", "at most"],
        [["during a backup", result["added_ms"], "5 to 15", _WANTED_MS]],
    )
    names = ("log_bytes", "rate", "durability", "filesystem", "sync_ms_p50", "machine", "python", "commit")
    print_table("", ["", "conditions"], [[name.replace("_", " "), result[name]] for name in (*names, "load_average")])


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--bytes", type=int, default=256, help="size of a record")
    parser.add_argument("--log-bytes", type=int, default=10**9, help="bytes of the log to back up")
    parser.add_argument("--rate", default="32MiB", help="of the backup")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each measurement without a backup")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    with own_directory(Path("viewstamp-data")) as directory, asyncio.Runner(loop_factory=new_event_loop) as runner:
        result: Figures = {**conditions(directory), "callers": options.callers, "rounds": options.rounds}
        result |= {"log_bytes": options.log_bytes, "rate": options.rate}
        result |= runner.run(measure(options, directory))
    if options.output == "json":
        print_json(result)
    else:
        show(result)


if __name__ == "__main__":
    main()
