"""Does an append cost more in a larger cluster: ``python -m benchmarks.growth [--only topics] [--plot FILE.svg]``.

64 callers append 64 B each and await the receipt. Between two measurements one number grows:

| grows | from, to | the appends meanwhile |
| --- | --- | --- |
| topics | 1 to 9,000, near the limit | over one session, each caller to a topic of its own, evenly chosen among all |
| sessions | 1 to 10,000 | over up to 64 sessions; the others have appended once and are idle |
| members | 1 to 7 | over one session to one topic |
| records | 10,000 to 10,000,000 kept in the log | over one session to one topic |

Expected: the processor time of an append does not depend on the number of records, nor on the number of topics from 64
on. It rises from 1 to 64 topics or sessions, because the records are then in 64 batches instead of one, and further
with the connections over which the 64 sessions are spread: 256 of all sessions share one. Each member adds a constant:
the work of a follower, and one more connection of the leader. Each topic and each session adds a constant to the
memory.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.peers.ours import Ours
from benchmarks.peers.peer import Session
from benchmarks.report import print_json, print_table
from benchmarks.rows.memory import megabytes
from benchmarks.rows.pipeline import fill
from benchmarks.rows.row import Options
from viewstamp.bench.cluster import own_directory
from viewstamp.bench.conditions import conditions
from viewstamp.bench.load import Append, drive, keep_going
from viewstamp.bench.plot import check_plot, draw_lines
from viewstamp.client.aio import Client
from viewstamp.terminal.loop import run_async

__all__ = ["GROWING", "Point", "spread"]

CALLERS = 64
VALUE = bytes(range(64))
IN_FLIGHT = 4096
TOPIC = "bench"
MADE_AT_ONCE = 64

Point = dict[str, float]


def spread(count: int, most: int = CALLERS) -> list[int]:
    """Return up to ``most`` numbers below ``count``, evenly spaced."""
    chosen = min(count, most)
    return [number * count // chosen for number in range(chosen)]


async def measure(ours: Ours, appends: Sequence[Append], options: argparse.Namespace) -> Point:
    """Return processor time, rate and latency of an append as medians of the turns, and the memory of all nodes."""
    turns = [
        await drive(appends, VALUE, callers=CALLERS, seconds=options.seconds, servers=ours.cpu_used)
        for _ in range(options.rounds)
    ]
    return {
        "cpu_us": round(median(each.cpu_us or 0.0 for each in turns), 1),
        "per_second": round(median(each.per_second for each in turns)),
        "p50_ms": median(each.percentile_ms(50) or 0.0 for each in turns),
        "p99_ms": median(each.percentile_ms(99) or 0.0 for each in turns),
        "megabytes": round(megabytes(ours), 1),
    }


async def over_topics(
    counts: Sequence[int], options: argparse.Namespace, directory: Path
) -> AsyncGenerator[Point, None]:
    """Return a point for each number of topics."""
    async with Ours().running(directory) as ours, ours.cluster.target.connect() as client:
        made = 0
        for count in counts:
            made = await _make_topics(client, made, count)
            topics = [f"topic-{number}" for number in spread(count)]
            yield await measure(ours, [partial(client.append, topic) for topic in topics], options)


async def _make_topics(client: Client, made: int, count: int) -> int:
    numbers = iter(range(made, count))

    async def make() -> None:
        if (number := next(numbers, None)) is not None:
            await client.create_topic(f"topic-{number}")

    await keep_going(make, MADE_AT_ONCE, count=count - made)
    return count


async def over_sessions(
    counts: Sequence[int], options: argparse.Namespace, directory: Path
) -> AsyncGenerator[Point, None]:
    """Return a point for each number of sessions."""
    async with Ours().running(directory) as ours, AsyncExitStack() as stack:
        sessions: list[Session] = []
        for count in counts:
            while len(sessions) < count:
                session = await ours.connect()
                stack.push_async_callback(session.close)
                await session.append(VALUE)
                sessions.append(session)
            yield await measure(ours, [sessions[number].append for number in spread(count)], options)


async def over_members(
    counts: Sequence[int], options: argparse.Namespace, directory: Path
) -> AsyncGenerator[Point, None]:
    """Return a point for each number of members; each is a cluster of its own."""
    for count in counts:
        async with Ours(nodes=count).running(directory / str(count)) as ours, AsyncExitStack() as stack:
            session = await ours.connect()
            stack.push_async_callback(session.close)
            yield await measure(ours, [session.append], options)


async def over_records(
    counts: Sequence[int], options: argparse.Namespace, directory: Path
) -> AsyncGenerator[Point, None]:
    """Return a point for each number of records in the log."""
    async with Ours().running(directory) as ours, AsyncExitStack() as stack:
        session = await ours.connect()
        stack.push_async_callback(session.close)
        kept = 0
        for count in counts:
            await fill(ours, VALUE, count - kept, IN_FLIGHT)
            kept = count
            yield await measure(ours, [session.append], options)


GROWING = {
    "topics": (over_topics, (1, 64, 1_000, 9_000)),
    "sessions": (over_sessions, (1, 64, 1_000, 10_000)),
    "members": (over_members, (1, 3, 5, 7)),
    "records": (over_records, (10_000, 100_000, 1_000_000, 10_000_000)),
}


async def measure_all(options: argparse.Namespace, directory: Path) -> dict[str, list[Point]]:
    """Measure everything that ``options`` names; return the points of each."""
    say = Options(seconds=options.seconds, rounds=options.rounds).say
    found: dict[str, list[Point]] = {}
    for name in options.only:
        over, all_counts = GROWING[name]
        counts = [count for count in all_counts if count <= options.most]
        points = found.setdefault(name, [])
        with own_directory(directory) as own:
            measured = over(counts, options, own / "nodes")
            for count in counts:
                points.append({name: count, **await anext(measured)})
                say(f"{points[-1]}")
            await measured.aclose()
    return found


def _draw(path: Path | None, found: Mapping[str, Sequence[Point]]) -> None:
    if path is not None:
        panels = {
            f"over {name}": {
                "CPU of an append, us": [(each[name], each["cpu_us"]) for each in points],
                "memory of the nodes, MB": [(each[name], each["megabytes"]) for each in points],
            }
            for name, points in found.items()
        }
        draw_lines(path, panels, x="number of them")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the figures; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(GROWING), help=", ".join(GROWING))
    parser.add_argument(
        "--most", type=int, default=10_000_000, help="largest number to measure, for example of records"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each point; the result is their median")
    parser.add_argument("--plot", type=Path, help="the PNG or SVG to draw")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    options = parser.parse_args(arguments)
    if unknown := set(options.only) - set(GROWING):
        parser.error(f"--only {','.join(sorted(unknown))}: there is no such measurement, only {', '.join(GROWING)}")
    check_plot(options.plot)
    with own_directory(Path("viewstamp-data")) as directory:
        where: Mapping[str, Any] = conditions(directory)
        found = run_async(measure_all(options, directory))
    _draw(options.plot, found)
    if options.output == "json":
        print_json({**where, "seconds": options.seconds, "rounds": options.rounds, "growth": found})
        return 0
    print(__doc__)
    for name, points in found.items():
        first = points[0]["cpu_us"]
        rows = [[*each.values(), f"{each['cpu_us'] / first:.2f} x"] for each in points]
        print_table(f"over {name}", [name, "CPU us", "per second", "p50 ms", "p99 ms", "MB", "CPU of the first"], rows)
    print_table("", ["", "conditions"], [[name.replace("_", " "), str(value)] for name, value in where.items()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
