"""How many commands a second does a replicated counter take?

256 callers in the leader's process each await a call before the next. The two other members run in processes of their
own on the same machine and disk, and everything is synced on a majority before it is acknowledged. In turns with the
commands, the same callers append records as large as the packed commands. Then PySyncObj's counter is measured, with
its unchanged journal and with a journal that is patched to sync.

Expected: a command is an append with more work. The caller packs it; the leader decodes, checks and applies it, packs
result and state for the digest, and returns the result. This is some 5 us of Python beside an append's 8 or 9, so the
ratio should be near 0.6. The followers decode and apply for 4 us each in their processes. With fewer than three cores
this slows the leader down. The disk matters little, because with 256 callers one sync carries many commands.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import selectors
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import IO, Any

from benchmarks.report import print_json, print_table
from viewstamp.bench.cluster import EmbeddedLeader, embedded_leader, own_directory
from viewstamp.bench.conditions import conditions
from viewstamp.bench.load import repeat
from viewstamp.config.create import free_addresses
from viewstamp.host.event_loop import new_event_loop
from viewstamp.local.process import cpu_seconds
from viewstamp.wire.commands import encode_command

_TOPIC = "raw"
_WARM_UP_SECONDS = 0.3
_PERIODS = (0.1, 0.01)
"""Seconds between two sends of PySyncObj's leader: its default, and a shorter period, which may be faster."""
_EXPECTED_RATIO = 0.6
_WANTED_RATIO = 0.5
_WANTED_TIMES = 20

Call = Callable[[], Awaitable[object]]
Figures = dict[str, Any]


async def drive(members: EmbeddedLeader, call: Call, callers: int, seconds: float) -> Figures:
    """Keep ``callers`` calls unanswered for ``seconds`` after a warm-up; return the figures."""

    async def watch_cpu() -> list[float]:
        await asyncio.sleep(_WARM_UP_SECONDS)
        before = [sum(cpu_seconds(pid)) for pid in members.others]
        await asyncio.sleep(seconds)
        return [sum(cpu_seconds(pid)) - earlier for pid, earlier in zip(members.others, before, strict=True)]

    watching = asyncio.create_task(watch_cpu())
    figures = await repeat([call], callers, seconds, warm_up=_WARM_UP_SECONDS)
    others, count = await watching, max(1, figures.count)
    return {
        "per_second": figures.per_second,
        "p50_ms": figures.percentile_ms(50),
        "p99_ms": figures.percentile_ms(99),
        "leader_us": figures.client_cpu_seconds / count * 1e6,
        "others_us": sum(others) / max(1, len(others)) / count * 1e6,
    }


async def measure(options: argparse.Namespace, directory: Path) -> Figures:
    """Measure appends and commands in turns; return the figures."""
    settings = {"actors.counter": "benchmarks.actors:Counter"}
    async with embedded_leader(directory, settings, thread=options.thread) as members:
        node = members.node
        counter = node.actor("counter")
        value = encode_command("counter", "", 0, "add", [1], {})
        await node.create_topic(_TOPIC)
        receipt = await node.append(_TOPIC, value)
        await counter.add(1)
        kinds: dict[str, Call] = {"append": lambda: node.append(_TOPIC, value), "command": lambda: counter.add(1)}
        rounds: dict[str, list[Figures]] = {name: [] for name in kinds}
        for _ in range(options.rounds):
            for name, call in kinds.items():
                rounds[name].append(await drive(members, call, options.callers, options.seconds))
                members.check_leading()
        total = await counter.read()
        counted = sum(round(each["per_second"] * options.seconds) for each in rounds["command"])
        assert total > counted, f"{counted} commands were acknowledged, the counter is at {total}"
        ratios = [c["per_second"] / a["per_second"] for a, c in zip(rounds["append"], rounds["command"], strict=True)]
        return {
            "durability": receipt.durability,
            "record_bytes": len(value),
            **{name: {key: median(each[key] for each in found) for key in found[0]} for name, found in rounds.items()},
            "ratio": median(ratios),
            "ratios": [round(each, 3) for each in ratios],
        }


def measure_rival(options: argparse.Namespace, directory: Path, *, period: float, sync: bool) -> Figures:
    """Measure PySyncObj in three processes, with the callers in the leader's process; return the figures."""
    addresses = free_addresses(3)
    processes: list[subprocess.Popen[str]] = []
    try:
        for number, address in enumerate(addresses):
            others = [other for other in addresses if other != address]
            journal = directory / f"rival-{period}-{sync}-{number}"
            command = [sys.executable, "-m", "benchmarks.rival", address, *others, "--journal", str(journal)]
            command += ["--callers", str(options.callers), "--seconds", str(options.seconds), "--period", str(period)]
            command += ["--sync"] if sync else []
            processes.append(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
            )
        line = _first_line([process.stdout for process in processes if process.stdout], 60 + options.seconds)
        return dict(json.loads(line))
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _first_line(streams: list[IO[str]], seconds: float) -> str:
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for key, _ in selector.select(1.0):
                line = str(key.fileobj.readline())  # type: ignore[union-attr]
                if line:
                    return line
                selector.unregister(key.fileobj)
    raise SystemExit("PySyncObj elected no leader, or its processes ended")


def show(result: Figures) -> None:
    """Print the result as tables."""
    print(__doc__)
    rows = [["raw append", *_row(result["append"])], ["command", *_row(result["command"])]]
    rows += [[f"PySyncObj, {name}", *_row(each)] for name, each in result["rivals"].items()]
    columns = ["", "per second", "p50 ms", "p99 ms", "leader us/op", "each other us/op"]
    print_table(f"{result['callers']} callers in the leader's process", columns, rows)
    goals = [["command / append", result["ratio"], _EXPECTED_RATIO, _WANTED_RATIO]]
    goals += [[f"command / PySyncObj, {name}", times, "", _WANTED_TIMES] for name, times in result["times"].items()]
    print_table("", ["ratio", "found", "expected", "at least"], goals)
    shown = ("durability", "filesystem", "sync_ms_p50", "machine", "python", "commit", "load_average", "ratios")
    print_table("", ["", "conditions"], [[name.replace("_", " "), str(result[name])] for name in shown])


def _row(figures: Figures) -> list[object]:
    return [figures.get(name, "") for name in ("per_second", "p50_ms", "p99_ms", "leader_us", "others_us")]


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--callers", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=7, help="turns of appends and commands; the results are medians")
    parser.add_argument("--thread", action="store_true", help="run the leader on a thread and a loop of its own")
    parser.add_argument("--no-rival", action="store_true", help="leave out PySyncObj")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    if not options.no_rival and find_spec("pysyncobj") is None:
        parser.error("pysyncobj is not installed: run `make bench WHAT=commands`, or leave it out with --no-rival")
    with own_directory(Path("viewstamp-data")) as directory:
        result: Figures = {**conditions(directory), "callers": options.callers, "thread": options.thread}
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            result |= runner.run(measure(options, directory))
        rivals = {}
        for sync in (False, True) if not options.no_rival else ():
            for period in _PERIODS:
                name = f"{'synced' if sync else 'not synced'}, every {period * 1000:.0f} ms"
                rivals[name] = measure_rival(options, directory, period=period, sync=sync)
    result["rivals"] = rivals
    result["times"] = {name: result["command"]["per_second"] / each["per_second"] for name, each in rivals.items()}
    if options.output == "json":
        print_json(result)
    else:
        show(result)


if __name__ == "__main__":
    main()
