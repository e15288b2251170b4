"""How much slower are appends during a backup of a gigabyte?

Three members run in processes of their own, with a topic of 1 GB. 64 callers append records of 256 bytes, each awaiting
one before the next. They are measured alone, and while ``viewstamp backup create``, in a process of its own, copies the
whole log from a follower into a directory on the same device. Each is measured in turn, in several rounds, and each
backup is a full one into a new directory.

The figure is the p99 of these appends.

Expected: a request of the backup is 512 KiB. Reading, checking and sending them takes the follower 1 to 3 ms of its
processor, and the command about as long. The backup works for at most a quarter of the time, so that a machine of two
busy cores loses a tenth of its processor time to it. A sync of the log waits for at most 4 MiB of the backup's
unfinished writes, which takes 4 to 13 ms. So the p99 should grow by 5 to 15 ms; at most 20 ms are wanted.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.beside import Figures, append_beside, in_turns, medians, p99_alone, print_appends, print_conditions
from benchmarks.report import print_json, print_table
from viewstamp.bench.cluster import own_cluster, own_directory
from viewstamp.bench.conditions import conditions
from viewstamp.client import Client
from viewstamp.host.event_loop import new_event_loop

_TOPIC = "raw"
_OLD = "old"
_WANTED_MS = 20
_FILL_BYTES = 65536


async def fill(client: Client, size: int) -> None:
    """Append ``size`` bytes to a topic of their own."""
    await client.create_topic(_OLD)
    numbers = iter(range(size // _FILL_BYTES))
    value = bytes(range(256)) * (_FILL_BYTES // 256)

    async def filler() -> None:
        for _ in numbers:
            await client.append(_OLD, value, timeout=120.0)

    await asyncio.gather(*(filler() for _ in range(64)))


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

        async def measured(work: Callable[[], Awaitable[object]]) -> Figures:
            try:
                return await append_beside(lambda: client.append(_TOPIC, value), work, options.callers)
            finally:
                shutil.rmtree(target, ignore_errors=True)

        rounds = await in_turns(measured, works, options.rounds)
        found = medians(rounds)
        return {
            "durability": receipt.durability,
            **found,
            "added_ms": found["during a backup"]["p99_ms"] - p99_alone(rounds),
        }


def show(result: Figures) -> None:
    """Print the result as tables."""
    print(__doc__)
    print_appends(result)
    print_table(
        "",
        ["added to the p99, ms", "found", "expected", "at most"],
        [["during a backup", result["added_ms"], "5 to 15", _WANTED_MS]],
    )
    print_conditions(result, "log_bytes", "rate")


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
