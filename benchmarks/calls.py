"""How many Python calls does one append make: ``python -m benchmarks.calls [--functions N] [--role ROLE] [--json]``.

The number of Python calls determines most of the cost of a round, and unlike a time it does not depend on other work
of the machine. The cluster runs in the simulator without faults, and one client appends one record after the other.
For each append, from the previous response to its own, the program counts every start and every resumption of

* a function of the product,
* a method that the standard library generates for the product's classes, for example ``__init__`` of a dataclass,
* ``typing.NewType``.

Each call is counted for the process that makes it: the leader, a follower or the client. A node's writer thread is
part of the node. The tables show medians, so that a heartbeat during an append adds nothing.

The simulator is not counted, nor are the things that it replaces: the event loop, sockets, threads and files.

``tests/benchmarks/test_calls.py`` fails when the counts grow. Python 3.12 and later make fewer calls than 3.11, because
they run a comprehension without a call of its own.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from types import FrameType
from typing import Any

from benchmarks.report import print_json
from viewstamp.client.aio import Client
from viewstamp.sim.loop import current_process
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.world import World

__all__ = ["ROLES", "Counts", "calls_of_appends", "per_package", "per_role"]

Counts = Counter[tuple[str, str, str]]
"""Calls by role, module and function."""

ROLES = ("leader", "follower", "client")
"""The processes that make calls. ``follower`` is the follower with the larger count."""

_PRODUCT = "viewstamp."
_SIMULATED = "viewstamp.sim."
_GENERATED = "namedtuple_"
"""Prefix of the name of the module of a named tuple's generated ``__new__``."""
_TYPING = "typing"
_UNKNOWN = "world"
"""The role of calls that the simulated world makes outside of all processes."""


def calls_of_appends(nodes: int = 3, appends: int = 100, warm_up: int = 20) -> list[Counts]:
    """Return the calls of each append, by role; those of the warm-up are left out.

    The roles of the followers are ``follower-1``, ``follower-2`` and so on.
    """
    modules: dict[str, str] = {}
    counts: Counts = Counter()
    roles: dict[str, str] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        name = frame.f_globals.get("__name__", "")
        module = modules.get(name)
        if module is None:
            module = modules[name] = _shown(name)
        if module:
            process = current_process()
            role = "client" if process is None else roles.get(process.name, _UNKNOWN)
            counts[role, module, frame.f_code.co_qualname] += 1

    world = World(1, Swarm(nodes=nodes, faults={}))
    world.loop.after_event = None  # Because the calls of the checkers must not count.
    for member in world.members:
        world.bring_up(member)

    async def measure() -> list[Counts]:
        network = world.network.view("client")
        measured: list[Counts] = []
        async with Client(world.addresses, network=network, entropy=world.loop.entropy("client")) as client:
            await client.create_topic("orders")
            roles.update(_roles(world))
            sys.setprofile(note)
            try:
                for _ in range(warm_up + appends):
                    counts.clear()
                    await client.append("orders", b"a small record")
                    measured.append(counts.copy())
            finally:
                sys.setprofile(None)
        assert roles == _roles(world), "another member leads now"
        return measured[warm_up:]

    measured: list[Counts] = world.loop.run_until_complete(measure())
    world.close()
    return measured


def _roles(world: World) -> dict[str, str]:
    """Return the role of each process by its name."""
    roles: dict[str, str] = {}
    for member in world.members:
        assert member.node is not None, "every member runs"
        assert member.node.replica is not None, "every member has replayed its log"
        assert member.process is not None, "every member has a process"
        followers = len(roles) - ("leader" in roles.values())
        roles[member.process.name] = "leader" if member.node.replica.is_leading else f"follower-{followers + 1}"
    return roles


def _shown(name: str) -> str:
    """Return a module's name for the tables, without its first part; "" if its calls are not counted."""
    if name.startswith(_PRODUCT):
        return "" if name.startswith(_SIMULATED) else name.removeprefix(_PRODUCT)
    return name if name.startswith(_GENERATED) or name == _TYPING else ""


def _medians(measured: list[Counts], part: int) -> dict[str, int]:
    """Return the median of an append's calls by one part of their keys: 0 = the role, 1 = the package."""
    sums: list[Counter[str]] = []
    for counts in measured:
        sums.append(Counter())
        for key, calls in counts.items():
            if key[0] != _UNKNOWN:
                sums[-1][key[part].split(".", maxsplit=1)[0]] += calls
    names = {name for each in sums for name in each}
    medians = {name: int(statistics.median(each[name] for each in sums)) for name in names}
    return dict(sorted(medians.items(), key=lambda item: (-item[1], item[0])))


def per_package(measured: list[Counts]) -> dict[str, int]:
    """Return the median number of calls for each package, the most expensive first."""
    return _medians(measured, 1)


def per_role(measured: list[Counts]) -> dict[str, int]:
    """Return the median number of calls for each of ``ROLES``."""
    medians = _medians(measured, 0)
    followers = [calls for role, calls in medians.items() if role.startswith("follower")]
    return {"leader": medians["leader"], "follower": max(followers, default=0), "client": medians["client"]}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--functions", type=int, default=0, metavar="N", help="print also the N most called functions")
    parser.add_argument("--role", default="", help="print functions of this role only: leader, follower-1, client")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    measured = calls_of_appends(options.nodes)
    packages, roles = per_package(measured), per_role(measured)
    total = sum(packages.values())
    if options.json:
        print_json({"packages": packages, "roles": roles, "sum": total})
        return
    for name, calls in [*packages.items(), ("sum", total), *roles.items()]:
        print(f"{name:<24}{calls:>6}")
    functions = {
        name: int(statistics.median(counts[name] for counts in measured)) for counts in measured for name in counts
    }
    chosen = [(calls, *name) for name, calls in functions.items() if calls and name[0].startswith(options.role)]
    for calls, role, module, function in sorted(chosen, key=lambda item: (-item[0], item[1:]))[: options.functions]:
        print(f"{calls:>6}  {role:<12}{module}.{function}")


if __name__ == "__main__":
    main()
