"""How many Python calls does one append make: ``python -m benchmarks.calls [--functions N] [--only PACKAGE] [--json]``.

A round costs what its distinct Python calls cost, and unlike a time their count depends on no other work. The cluster
runs in the simulator without faults, and one client appends one record after the other. What is counted of each
append, from its predecessor's answer to its own, is every start and every resumption of a function of the product, by
package. Shown is the median, so that a heartbeat which falls into an append adds nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import viewstamp
from benchmarks.report import print_json
from viewstamp.client.aio import Client
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.world import World

__all__ = ["Counts", "calls_of_appends", "per_package"]

Counts = Counter[tuple[str, str]]
"""Calls by module, a dotted name, and function."""

_ROOT = Path(viewstamp.__file__).parent
_SIMULATED = "sim"


def calls_of_appends(nodes: int = 3, appends: int = 100, warm_up: int = 20) -> list[Counts]:
    """Return the calls of each append; those of the warm-up are left out."""
    modules: dict[str, str] = {}
    counts: Counts = Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        module = modules.get(code.co_filename)
        if module is None:
            module = modules[code.co_filename] = _module_of(code.co_filename)
        if module:
            counts[module, code.co_qualname] += 1

    world = World(1, Swarm(nodes=nodes, faults={}))
    world.loop.after_event = None  # The checkers' calls are no append's.
    for member in world.members:
        world.bring_up(member)

    async def measure() -> list[Counts]:
        network = world.network.view("client")
        measured: list[Counts] = []
        async with Client(world.addresses, network=network, entropy=world.loop.entropy("client")) as client:
            await client.create_topic("orders")
            sys.setprofile(note)
            try:
                for _ in range(warm_up + appends):
                    counts.clear()
                    await client.append("orders", b"a small record")
                    measured.append(counts.copy())
            finally:
                sys.setprofile(None)
        return measured[warm_up:]

    measured: list[Counts] = world.loop.run_until_complete(measure())
    world.close()
    return measured


def _module_of(path: str) -> str:
    """Return the dotted name of a module of the product, without the first part; "" for all other code."""
    try:
        return ".".join(Path(path).relative_to(_ROOT).with_suffix("").parts)
    except ValueError:
        return ""


def per_package(measured: list[Counts]) -> dict[str, int]:
    """Return the median number of calls for each package, the most expensive first; the simulator is left out."""
    sums: list[Counter[str]] = []
    for counts in measured:
        sums.append(Counter())
        for (module, _), calls in counts.items():
            sums[-1][module.split(".", maxsplit=1)[0]] += calls
    packages = {package for each in sums for package in each} - {_SIMULATED}
    medians = {package: int(statistics.median(each[package] for each in sums)) for package in packages}
    return dict(sorted(medians.items(), key=lambda item: (-item[1], item[0])))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--functions", type=int, default=0, metavar="N", help="print also the N most called functions")
    parser.add_argument("--only", default="", metavar="PACKAGE", help="print functions of this package alone")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    measured = calls_of_appends(options.nodes)
    table = per_package(measured)
    if options.json:
        print_json({**table, "sum": sum(table.values())})
        return
    for package, calls in [*table.items(), ("sum", sum(table.values()))]:
        print(f"{package:<12}{calls:>6}")
    functions = {
        name: int(statistics.median(counts[name] for counts in measured)) for counts in measured for name in counts
    }
    chosen = [(calls, *name) for name, calls in functions.items() if calls and name[0].startswith(options.only)]
    for calls, module, function in sorted(chosen, key=lambda item: (-item[0], item[1:]))[: options.functions]:
        if not module.startswith(_SIMULATED):
            print(f"{calls:>6}  {module}.{function}")


if __name__ == "__main__":
    main()
