"""Latency over offered load: ``python -m benchmarks.latency [--rates 500,1000,...] [--plot FILE.png]``.

Records of 256 B are appended at a fixed rate, evenly spaced, whether or not earlier ones were acknowledged. Each
latency is measured from the time at which the append was due. So a stall of 100 ms at 10,000 appends a second makes
1,000 slow appends. Callers that await each response would record only one (coordinated omission).

The rate rises until the system does not keep up. Its last rate is the first one of which less than 95 % was
acknowledged within the window. Each system runs alone, over one connection, PostgreSQL over 64.

Expected: p50 stays at the time of a round and falls a little with the load, because a busy processor does not have to
be woken. Near the limit all percentiles rise together. p99.9 is the time of the slowest syncs of the disk.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks.peers.etcd import Etcd
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.nats import Nats
from benchmarks.peers.ours import Ours
from benchmarks.peers.peer import Peer
from benchmarks.peers.postgres import Postgres
from benchmarks.peers.redis import Redis
from benchmarks.peers.rqlite import Rqlite
from benchmarks.report import print_json, print_table
from benchmarks.rows.appends import VALUE
from benchmarks.rows.row import Options, RowResult
from benchmarks.rows.turns import open_sessions, running
from viewstamp.bench.cluster import own_directory
from viewstamp.bench.conditions import conditions
from viewstamp.bench.load import Figures, drive, offer
from viewstamp.bench.plot import check_plot, draw_lines
from viewstamp.errors import ViewstampError
from viewstamp.terminal.loop import run_async

__all__ = ["PERCENTS", "has_kept_up", "measure_peer", "point"]

PEERS = (Ours, Nats, Postgres, Etcd, Redis, Kafka, Rqlite)
RATES = (250, 500, 1000, 2000, 4000, 8000, 16000, 32000, 64000)
CALLERS = 64
"""Number of callers for which PostgreSQL gets its fastest number of connections; the other systems get one."""
PERCENTS = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9}
KEPT_UP = 0.95
"""Share of the offered rate below which a system is overloaded."""

Point = dict[str, float]


def point(rate: float, figures: Figures) -> Point:
    """Return the point of an offered rate: the rate that was reached, and the percentiles in ms."""
    return {
        "offered": rate,
        "per_second": round(figures.per_second, 1),
        **{name: round(figures.latencies.at(percent), 3) for name, percent in PERCENTS.items()},
        "longest": round(figures.latencies.longest, 3),
        "client_cores": round(figures.client_cores, 2),
        "cpu_us": round(figures.cpu_us or 0.0, 1),
    }


def has_kept_up(point: Point) -> bool:
    """Return whether at least 95 % of the offered rate was acknowledged within the window."""
    return point["per_second"] >= KEPT_UP * point["offered"]


async def measure_peer(peer: Peer, rates: Sequence[float], seconds: float) -> list[Point]:
    """Return a point for each rate with which a running peer keeps up, and for the first rate that is too high."""
    points = []
    async with open_sessions(peer, peer.sessions(CALLERS)) as sessions:
        appends = itertools.cycle([each.append for each in sessions])
        await drive([each.append for each in sessions], VALUE, callers=CALLERS, seconds=peer.warm_up_seconds, warm_up=0)
        for rate in rates:
            # A system with two seconds of unanswered calls is overloaded.
            most = max(1000, round(2 * rate))
            figures = await offer(
                lambda: next(appends)(VALUE), rate, seconds, outstanding_max=most, servers=peer.cpu_used
            )
            points.append(point(rate, figures))
            if not has_kept_up(points[-1]):
                break
    return points


async def _measure(options: argparse.Namespace, directory: Path) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    asked = Options(seconds=options.seconds, rounds=1)
    for kind in PEERS:
        result = RowResult(subjects=[])
        async with AsyncExitStack() as stack:
            peer = kind()
            if (options.only and kind.name not in options.only) or not await stack.enter_async_context(
                running(peer, directory, asked, result)
            ):
                continue
            try:
                found[kind.name] = await measure_peer(peer, options.rates, options.seconds)
            except (OSError, ViewstampError) as error:
                asked.say(f"FAILED: {kind.name}: {error}")
            for each in found.get(kind.name, ()):
                asked.say(f"{kind.name}: {each}")
    return found


def _draw(path: Path | None, found: Mapping[str, Sequence[Point]]) -> None:
    if path is None:
        return
    kept = {system: [each for each in points if has_kept_up(each)] for system, points in found.items()}
    panels = {
        f"{name} of an append of 256 B, ms": {
            system: [(each["offered"], each[name]) for each in points] for system, points in kept.items()
        }
        for name in PERCENTS
    }
    draw_lines(path, panels, x="offered appends a second")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the figures; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rates", type=_rates, default=RATES, help="offered appends a second, with commas between them"
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="length of the measurement at each rate")
    parser.add_argument("--only", type=lambda text: text.split(","), help="names of systems, with commas between them")
    parser.add_argument("--plot", type=Path, help="the PNG or SVG to draw")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    options = parser.parse_args(arguments)
    check_plot(options.plot)
    with own_directory(Path("viewstamp-data")) as directory:
        directory.chmod(0o711)
        where: Mapping[str, Any] = conditions(directory)
        found = run_async(_measure(options, directory))
    _draw(options.plot, found)
    if options.output == "json":
        print_json({**where, "seconds": options.seconds, "systems": found})
        return 0
    print(__doc__)
    names = ["per_second", *PERCENTS, "longest", "client_cores", "cpu_us"]
    rows = [[system, each["offered"], *map(each.get, names)] for system, points in found.items() for each in points]
    columns = ["system", "offered/s", "reached/s", *PERCENTS, "longest ms", "client, cores", "CPU us"]
    print_table("latency in ms over offered load", columns, rows)
    print_table("", ["", "conditions"], [[name.replace("_", " "), str(value)] for name, value in where.items()])
    return 0


def _rates(text: str) -> list[float]:
    return sorted(float(each) for each in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
