"""How much slower are appends while the leader dumps and merges keys? ``python -m benchmarks.keyed_beside``.

One node runs in a process of its own. Each round has a topic of 100 MB of records of 1 kB with random keys, in batches
of 100, which becomes keyed: so the leader dumps it in runs of 16 MiB, and merges four of them. 16 callers append
records of 256 bytes to another topic, each awaiting one before the next. They are measured alone, and from the begin of
the first dump to the end of the last dump and merge; each in turn, in several rounds.

Expected: as beside the archive (``benchmarks.archive``), because the same process does the work. Its rows are held in
memory until the dump ends, and are sorted then, so most of a dump is its work and little is that of the node.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.beside import Figures, append_beside, in_turns, medians, p99_alone, print_appends, print_conditions
from benchmarks.report import print_json, print_table
from viewstamp.bench.cluster import WAIT_SECONDS, own_directory
from viewstamp.bench.conditions import conditions
from viewstamp.client.aio import Client
from viewstamp.host.event_loop import new_event_loop
from viewstamp.local.cluster import LocalCluster
from viewstamp.local.process import nodes_end_with_this_process

_TOPIC = "raw"
_RECORD_BYTES = 1000
_BATCH = 100
_DUMP_BYTES = 16 * 1024 * 1024
_POLL_SECONDS = 0.05


async def fill(client: Client, topic: str, size: int) -> None:
    """Append ``size`` bytes of records with random keys, a tenth of them different ones."""
    entropy = random.Random(topic)
    await client.create_topic(topic)
    keys_max = size // _RECORD_BYTES // 10
    for _ in range(size // _RECORD_BYTES // _BATCH):
        keys = [b"%012d" % entropy.randrange(keys_max) for _ in range(_BATCH)]
        await client.append_many(topic, [entropy.randbytes(_RECORD_BYTES)] * _BATCH, keys=keys, timeout=120.0)


async def runs_of(client: Client, topic: str) -> list[tuple[str, bool]]:
    """Return the state of each run of keys of a topic, and whether it is a merge."""
    return [(run.state, run.is_merge) for run in await client.list_key_runs() if run.topic == topic]


async def begin(client: Client, topic: str) -> None:
    """Make a topic keyed, and wait until its first dump has begun."""
    await client.configure_keyed(topic)
    while True:
        if await runs_of(client, topic):
            return
        await asyncio.sleep(_POLL_SECONDS)


async def complete(client: Client, topic: str) -> None:
    """Wait until no dump and no merge of a topic is due."""
    while True:
        info = await client.describe_topic(topic)
        assert info.keyed is not None, "it was made keyed"
        runs = await runs_of(client, topic)
        is_merged = any(is_merge and state == "committed" for state, is_merge in runs)
        if info.keyed["undumped_bytes"] < _DUMP_BYTES and is_merged and all(state == "committed" for state, _ in runs):
            return
        await asyncio.sleep(_POLL_SECONDS)


async def measure(options: argparse.Namespace, directory: Path) -> Figures:
    """Fill topics, then measure without and with dumps and merges in turns; return the figures."""
    settings = {"archive.directory": str(directory / "archive")}
    local = LocalCluster.open_or_create(directory / "cluster", 1, settings, chaos=False)
    [node] = local.nodes.values()
    async with AsyncExitStack() as stack:
        stack.enter_context(nodes_end_with_this_process())
        local.spawn(node)
        stack.push_async_callback(node.kill)
        await local.wait_running([node], WAIT_SECONDS)
        client = await stack.enter_async_context(local.target.connect())
        value = bytes(256)
        await client.create_topic(_TOPIC)
        receipt = await client.append(_TOPIC, value)
        topics = iter([f"keys-{number}" for number in range(options.rounds)])
        for number in range(options.rounds):
            await fill(client, f"keys-{number}", options.log_bytes)
        names = ["alone", "while dumping", "alone, later"]

        async def measured(work: Callable[[], Awaitable[object]]) -> Figures:
            return await append_beside(lambda: client.append(_TOPIC, value), work, options.callers)

        async def beside(work: Callable[[], Awaitable[object]]) -> Figures:
            if work is not dumping:
                return await measured(work)
            topic = next(topics)
            await begin(client, topic)
            return await measured(lambda: complete(client, topic))

        async def alone() -> None:
            await asyncio.sleep(options.seconds)

        async def dumping() -> None:
            raise AssertionError("beside() has its own work for it")

        rounds = await in_turns(beside, dict(zip(names, (alone, dumping, alone), strict=True)), options.rounds)
        found = medians(rounds)
        return {
            "durability": receipt.durability,
            **found,
            "added_ms": found["while dumping"]["p99_ms"] - p99_alone(rounds),
            "mb_per_second": options.log_bytes / 1e6 / found["while dumping"]["seconds"],
        }


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--log-bytes", type=int, default=10**8, help="bytes of records in each topic")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each measurement without dumps")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    with own_directory(Path("viewstamp-data")) as directory, asyncio.Runner(loop_factory=new_event_loop) as runner:
        result: Figures = {**conditions(directory), "callers": options.callers, "rounds": options.rounds}
        result |= {"log_bytes": options.log_bytes}
        result |= runner.run(measure(options, directory))
    if options.output == "json":
        print_json(result)
        return
    print_appends(result)
    rows = [["added to the p99, ms", result["added_ms"]], ["dumped and merged, MB a second", result["mb_per_second"]]]
    print_table("", ["", "found"], rows)
    print_conditions(result, "log_bytes")


if __name__ == "__main__":
    main()
