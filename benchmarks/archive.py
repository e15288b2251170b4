"""How much slower are appends while the leader archives a topic, and how fast is it?

One node runs in a process of its own, with a topic of 100 MB of records of 1 kB, in batches of 100. 16 callers append
records of 256 bytes, each awaiting one before the next. They are measured alone, and while ``viewstamp archive run``
of the whole topic goes on; each in turn, in several rounds. Every round has a topic of its own.

The figures are the p99 of these appends, and the bytes of records that are archived in a second, with the reading back.

Expected: a process of its own writes the file, so the node only reads its log and sends it: about 1 ms of its
processor for 1 MiB. So the p99 should grow by less than 5 ms if a core is free; at most 20 ms are wanted. Writing takes
5 ms of a core for 1 MB, and reading back 3 ms, so 100 MB a second are wanted.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.beside import Figures, append_beside, in_turns, medians, p99_alone, print_appends, print_conditions
from benchmarks.report import print_json, print_table
from viewstamp.bench.cluster import WAIT_SECONDS, own_directory
from viewstamp.bench.conditions import conditions
from viewstamp.client.aio import Client
from viewstamp.embed.open_node import open_node
from viewstamp.host.event_loop import new_event_loop
from viewstamp.local.cluster import LocalCluster
from viewstamp.local.node_process import logger
from viewstamp.local.process import nodes_end_with_this_process

_TOPIC = "raw"
_RECORD_BYTES = 1000
_WANTED_MS = 20
_WANTED_MB = 100


async def fill(client: Client, topic: str, size: int, batch: int) -> None:
    """Append ``size`` bytes of records that a compressor cannot shrink to nothing, in batches of ``batch``."""
    await client.create_topic(topic)
    text = b"".join(b"%08d order of customer %06d, " % (number * 7919 % 10**8, number) for number in range(200_000))
    starts = itertools.cycle(range(0, len(text) - _RECORD_BYTES, 377))
    batches = iter(range(size // _RECORD_BYTES // batch))

    async def filler() -> None:
        for _ in batches:
            records = [text[start : start + _RECORD_BYTES] for start in itertools.islice(starts, batch)]
            await client.append_many(topic, records, timeout=120.0)

    await asyncio.gather(*(filler() for _ in range(16)))


async def measure(options: argparse.Namespace, directory: Path) -> Figures:
    """Fill topics, then measure without and with archiving in turns; return the figures."""
    settings = {"archive.directory": str(directory / "archive")}
    local = LocalCluster.open_or_create(directory / "cluster", 1, settings, chaos=False)
    [node] = local.nodes.values()
    async with AsyncExitStack() as stack:
        client: Client
        if options.embedded:
            client = await stack.enter_async_context(open_node(node.file, thread=False, log=logger("error")))
        else:
            stack.enter_context(nodes_end_with_this_process())
            local.spawn(node)
            stack.push_async_callback(node.kill)
            await local.wait_running([node], WAIT_SECONDS)
            client = await stack.enter_async_context(local.target.connect())
        value = bytes(256)
        await client.create_topic(_TOPIC)
        receipt = await client.append(_TOPIC, value)
        topics = iter([f"old-{number}" for number in range(options.rounds)])
        for number in range(options.rounds):
            await fill(client, f"old-{number}", options.log_bytes, options.batch)
        works: dict[str, Callable[[], Awaitable[object]]] = {
            "alone": lambda: asyncio.sleep(options.seconds),
            "while archiving": lambda: client.archive_topic(next(topics), timeout=600.0),
            "alone, later": lambda: asyncio.sleep(options.seconds),
        }

        async def measured(work: Callable[[], Awaitable[object]]) -> Figures:
            return await append_beside(lambda: client.append(_TOPIC, value), work, options.callers)

        rounds = await in_turns(measured, works, options.rounds)
        found = medians(rounds)
        return {
            "durability": receipt.durability,
            **found,
            "added_ms": found["while archiving"]["p99_ms"] - p99_alone(rounds),
            "mb_per_second": options.log_bytes / 1e6 / found["while archiving"]["seconds"],
        }


def show(result: Figures) -> None:
    """Print the result as tables."""
    print(__doc__)
    print_appends(result)
    print_table(
        "",
        ["", "found", "wanted"],
        [
            ["added to the p99, ms", result["added_ms"], f"at most {_WANTED_MS}"],
            ["archived, MB a second", result["mb_per_second"], f"at least {_WANTED_MB}"],
        ],
    )
    print_conditions(result, "log_bytes", "batch")


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--log-bytes", type=int, default=10**8, help="bytes of records in each topic")
    parser.add_argument("--batch", type=int, default=100, help="records in a batch")
    parser.add_argument("--embedded", action="store_true", help="node and callers in this process, on one loop")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each measurement without archiving")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    with own_directory(Path("viewstamp-data")) as directory, asyncio.Runner(loop_factory=new_event_loop) as runner:
        result: Figures = {**conditions(directory), "callers": options.callers, "rounds": options.rounds}
        result |= {"log_bytes": options.log_bytes, "batch": options.batch}
        result |= runner.run(measure(options, directory))
    if options.output == "json":
        print_json(result)
    else:
        show(result)


if __name__ == "__main__":
    main()
