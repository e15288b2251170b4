"""How many appends does a topic with streams take on 3 to 300 nodes, and when is group 0 the limit?

The real code of nodes and clients runs in simulated time, on machines of two cores. The processor time of each event is
measured while it runs, and the event takes this time on its machine. So the cost of each round, of its leader and its
followers, is that of the code. Measured beforehand are the system calls that the simulation replaces: a send and a
receive, a wake-up, a poll, and write and fdatasync with several under way (``costs.py``). A message between two
machines takes 50 us, and its bytes 10 Gbit/s.

Each node leads one stream, whose group has three members; a cluster has at most 256 groups. All nodes vote in group 0,
because a group can be placed on its voters only. Each stream has a client of its own, whose callers each await their
append of 100 bytes. The clients take no time and have no machine, so the nodes and group 0 are the limit. Each
simulation is repeated, and the fastest counts, because other work on this machine only adds processor time.

Checked: the same simulation, with three nodes and one client on one machine of two cores, against appends that were
measured with real processes. Nothing is fitted to them. For more nodes than `--simulate` a model is fitted
to the simulations of at most 30 nodes (``model.py``). With fewer the leader of group 0 is not at its limit yet.

Not simulated: caches that other processes have used, several switches of a network, packet loss, collections of
garbage, snapshots, archives, readers.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.groups import measure_appends
from benchmarks.report import print_json, print_table
from benchmarks.scale.cluster import Load, Simulated, simulate
from benchmarks.scale.costs import Costs, measure_costs
from benchmarks.scale.model import Model, Point, fit
from viewstamp.bench.cluster import own_directory
from viewstamp.bench.conditions import conditions
from viewstamp.bench.plot import check_plot, draw_lines
from viewstamp.host.event_loop import new_event_loop

_NODES = (3, 6, 9, 30, 300)
_FITTED_MAX = 30
_CALLERS = 256
_LOOPBACK_SECONDS = 15e-6
_CHECK_SECONDS = 0.3
_MEASURED = {(1, False): 57_387, (3, False): 53_289}
"""Appends a second by groups and whether they are ordered, measured at commit 9e6be9d on two quiet cores by
``make bench WHAT=groups ARGS="--appends --seconds 10"``. Ordered appends have changed since, so they are checked only
with ``--measure``."""

Row = dict[str, Any]


def say(text: str) -> None:
    """Report progress."""
    print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


def best(load: Load, costs: Costs, repeats: int) -> Simulated:
    """Return the fastest of some simulations, because other work on this machine only adds processor time."""
    found = [simulate(load, costs, seed=seed) for seed in range(1, repeats + 1)]
    return max(found, key=lambda each: (each.per_second, -each.leader_0))


def check(costs: Costs, measured: dict[tuple[int, bool], int], repeats: int) -> list[Row]:
    """Simulate what was measured with real processes; return both."""
    found = []
    for (groups, is_ordered), real in measured.items():
        load = Load(
            nodes=3,
            streams=groups,
            callers=_CALLERS,
            clients=1,
            is_ordered=is_ordered,
            seconds=_CHECK_SECONDS,
            machines=1,
            delay_seconds=_LOOPBACK_SECONDS,
        )
        got = best(load, costs, repeats)
        found.append(
            {
                "groups": groups,
                "appends": "ordered" if is_ordered else "durable",
                "measured": real,
                "simulated": round(got.per_second),
                "off_percent": round(100 * (got.per_second / real - 1), 1),
                "client_cores": round(got.clients, 2),
            }
        )
        of = f"{groups} groups, {found[-1]['appends']} appends"
        say(f"{of}: {real:,}/s measured, {found[-1]['simulated']:,}/s simulated")
    return found


def points_of(counts: Sequence[int], options: argparse.Namespace, costs: Costs) -> list[Point]:
    """Simulate each number of nodes: durable and ordered appends, and none."""
    points = []
    for nodes in counts:

        def load(callers: int, *, is_ordered: bool, seconds: float, nodes: int = nodes) -> Load:
            return Load(
                nodes=nodes,
                streams=nodes,
                callers=callers,
                clients=nodes,
                is_ordered=is_ordered,
                seconds=seconds,
                warm_up=options.seconds / 2,
            )

        point = Point(
            nodes,
            durable=best(load(options.callers, is_ordered=False, seconds=options.seconds), costs, options.repeats),
            ordered=best(load(options.callers, is_ordered=True, seconds=options.seconds), costs, options.repeats),
            idle=best(load(0, is_ordered=False, seconds=1.0), costs, options.repeats),
        )
        points.append(point)
        per_second = round(point.durable.per_second), round(point.ordered.per_second)
        say(f"{nodes} nodes: {per_second[0]:,} durable and {per_second[1]:,} ordered appends/s")
    return points


def rows_of(points: Sequence[Point], model: Model, nodes: Sequence[int]) -> list[Row]:
    """Return a row for each number of nodes: as it was simulated, and as the model says."""
    known = {each.nodes: each for each in points}
    rows = []
    for count in nodes:
        point = known.get(count)
        rows.append(
            {
                "nodes": count,
                "durable_per_second": round(point.durable.per_second) if point else None,
                "durable_model": round(model.durable_per_second(count)),
                "ordered_per_second": round(point.ordered.per_second) if point else None,
                "ordered_model": round(model.ordered_per_second(count)),
                "ordered_ms": round(point.ordered.p50_ms if point else 1e3 * model.ordered_seconds(count), 1),
                "orders_per_second": round(
                    point.ordered.orders_per_second if point else 1 / model.order_seconds.at(count)
                ),
                "leader_0_ordered": round(point.ordered.leader_0, 2) if point else None,
                "leader_0_durable": round(model.durable_cores(count), 2),
                "other_nodes": round(point.ordered.other_nodes, 2) if point else None,
            }
        )
    return rows


def limits_of(model: Model) -> Row:
    """Return where group 0 is the limit."""
    return {
        "ordered_ceiling_per_second": round(model.ordered_ceiling),
        "half_of_the_ceiling_at_nodes": round(model.half_of_ceiling),
        "one_core_without_waiting_callers_at_nodes": round(model.durable_nodes_max),
    }


def show(result: Row) -> None:
    """Print the tables, 80 columns wide."""
    print(__doc__)
    print_table(
        "three nodes and a client on one machine of two cores",
        ["groups", "appends", "measured", "simulated", "off %", "client, cores"],
        [list(each.values()) for each in result["check"]],
    )
    print_table(
        f"a stream for each node, {result['callers']} callers for each stream: appends a second",
        ["nodes", "durable", "model", "ordered", "model", "p50 ms", "ORDERs/s"],
        [["" if each is None else each for each in list(row.values())[:7]] for row in result["rows"]],
    )
    print_table(
        "cores of one Python thread, 1.00 is its limit: the leader of group 0 (leader 0), others",
        ["nodes", "leader 0, ordered", "others, ordered", "leader 0, durable"],
        [
            [
                row["nodes"],
                *("" if row[name] is None else row[name] for name in ("leader_0_ordered", "other_nodes")),
                row["leader_0_durable"],
            ]
            for row in result["rows"]
        ],
    )
    limits = result["limits"]
    print(f"Ordered appends reach at most {limits['ordered_ceiling_per_second']:,}/s, half of it with")
    print(f"{limits['half_of_the_ceiling_at_nodes']} nodes, because each ORDER goes to each node.")
    print("Without ordered appends group 0 takes a whole core of its leader with")
    print(f"{limits['one_core_without_waiting_callers_at_nodes']} nodes.")


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw appends and ORDERs a second over the nodes."""

    def line(name: str) -> list[tuple[float, float]]:
        return [(row["nodes"], row[name]) for row in rows if row[name]]

    names = {"durable, simulated": "durable_per_second", "durable, model": "durable_model"}
    names |= {"ordered, simulated": "ordered_per_second", "ordered, model": "ordered_model"}
    panels = {
        "appends a second": {name: line(key) for name, key in names.items()},
        "ORDERs a second, p50 of an ordered append; with the most nodes by the model": {
            "ORDERs a second": line("orders_per_second"),
            "p50, ms": line("ordered_ms"),
        },
    }
    draw_lines(path, panels, x="nodes")


def _shown(costs: Costs) -> Row:
    """Return the costs in microseconds; of a sync the medians, by the number under way."""
    shown: Row = {
        name: round(1e6 * each, 4)
        for name, each in asdict(costs).items()
        if name.endswith("_seconds") and name != "sync_seconds"
    }
    syncs = {threads: round(1e6 * median(each)) for threads, each in costs.sync_seconds.items()}
    return {**shown, "sync": syncs}


def costs_of(options: argparse.Namespace, directory: Path) -> Costs:
    """Return recorded costs, or measure them."""
    if options.costs is not None:
        return Costs.of_json(options.costs.read_text(encoding="utf-8"))
    costs = measure_costs(directory)
    if options.record is not None:
        options.record.write_text(costs.as_json() + "\n", encoding="utf-8")
    return costs


def measured_of(options: argparse.Namespace, directory: Path) -> dict[tuple[int, bool], int]:
    """Measure the real appends to compare with, or return the recorded ones."""
    if not options.measure:
        return _MEASURED
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        found = runner.run(measure_appends([1, 3], _CALLERS, 10.0, directory / "real"))
    names = {False: "durable_per_second", True: "ordered_per_second"}
    return {(each["groups"], is_ordered): each[name] for is_ordered, name in names.items() for each in found}


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate and print the figures; return the exit code."""
    numbers = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=numbers, default=list(_NODES), help="numbers of nodes of the table")
    parser.add_argument("--simulate", type=int, default=30, help="most nodes to simulate; the model has more")
    parser.add_argument("--callers", type=int, default=64, help="callers for each stream")
    parser.add_argument("--seconds", type=float, default=0.1, help="simulated seconds of each simulation")
    parser.add_argument("--repeats", type=int, default=3, help="simulations of each; the fastest counts")
    parser.add_argument("--measure", action="store_true", help="measure the real appends, too: a minute")
    parser.add_argument("--costs", type=Path, help="take the costs of system calls from this file")
    parser.add_argument("--record", type=Path, help="write the measured costs to this file")
    parser.add_argument("--plot", type=Path, help="the PNG or SVG to draw")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    options = parser.parse_args(arguments)
    simulated = sorted(each for each in options.nodes if each <= options.simulate)
    if min(options.nodes) < 3 or len([each for each in simulated if each <= _FITTED_MAX]) < 2:
        parser.error(f"--nodes needs two numbers from 3 to {_FITTED_MAX} that are simulated, and none below 3")
    check_plot(options.plot)
    with own_directory(Path("viewstamp-data")) as directory:
        found = conditions(directory)
        costs = costs_of(options, directory)
        measured = measured_of(options, directory)
    checked = check(costs, measured, options.repeats)
    points = points_of(simulated, options, costs)
    model = fit([each for each in points if each.nodes <= _FITTED_MAX], options.callers)
    result: Row = {
        **found,
        "callers": options.callers,
        "costs_us": _shown(costs),
        "check": checked,
        "rows": rows_of(points, model, sorted(options.nodes)),
        "limits": limits_of(model),
        "model": asdict(model),
        "simulations": [asdict(each) for each in points],
    }
    if options.plot is not None:
        draw(options.plot, result["rows"])
    if options.output == "json":
        print_json(result)
        return 0
    show(result)
    print_table("", ["", "conditions"], [[name.replace("_", " "), str(value)] for name, value in found.items()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
