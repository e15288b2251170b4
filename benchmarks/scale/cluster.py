"""A cluster of real nodes and clients on simulated machines, with one stream in each of some groups."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.scale.costs import Costs
from benchmarks.scale.machines import Machine, MachineLoop, Seat
from benchmarks.scale.parts import MachineDisk, MachineNetwork
from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.config.model import MIB, ClusterSection, NodeSection, NodeSettings, WalSection
from viewstamp.embed.compose import compose_node
from viewstamp.host.interfaces import Host
from viewstamp.ids import ClusterId, NodeId
from viewstamp.local.node_process import logger
from viewstamp.node.node import Node
from viewstamp.sim.loop import SimulatedClock, SimulatedProcess

__all__ = ["Load", "Simulated", "simulate"]

_TOPIC = "orders"
_RECORD = bytes(100)
_WAIT_SECONDS = 120.0
_REPLICAS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is simulated. Each stream has a group of its own, with three members."""

    nodes: int
    streams: int
    callers: int
    """Of each client, each of which awaits its append."""
    clients: int
    """Processes with callers. One has the records of all streams; else each has those of one stream."""
    is_ordered: bool
    seconds: float = 0.3
    warm_up: float = 0.1
    machines: int = 0
    """Machines that all nodes and clients share; 0 = each node has one, and clients take no time."""
    cores: int = 2
    delay_seconds: float = 50e-6
    bytes_per_second: float = 1.25e9


@dataclass(slots=True)
class Simulated:
    """The figures of a simulation."""

    per_second: float
    p50_ms: float
    leader_0: float
    """Cores that the Python thread of the leader of group 0 used: 1.0 = it is the limit."""
    other_nodes: float
    """The same of the other nodes, their mean."""
    busiest_node: float
    machines: float
    """Cores that a machine used, the mean."""
    orders_per_second: float
    """Commits of group 0 a second."""
    syncs_per_append: float
    megabytes_per_second: float
    """That a node sends, the mean."""
    clients: float
    """Cores of the clients' threads, if they are on a machine."""


class _World:
    def __init__(self, load: Load, costs: Costs, seed: int) -> None:
        self.load = load
        self.loop = MachineLoop(costs, seed)
        self.network = MachineNetwork(
            self.loop, delay_seconds=load.delay_seconds, bytes_per_second=load.bytes_per_second
        )
        shared = [Machine(load.cores) for _ in range(load.machines)]
        self.machines = shared or [Machine(load.cores) for _ in range(load.nodes)]
        self.disks: list[MachineDisk] = []
        self.nodes: list[Node] = []
        self.seats: list[Seat] = []
        self.names = [NodeId(f"n{number}") for number in range(1, load.nodes + 1)]
        self.addresses = {name: f"{name}:7000" for name in self.names}
        self.client_seats: list[Seat] = []
        self._shared_disk = MachineDisk("disk", self.loop) if load.machines else None

    def bring_up(self, number: int) -> None:
        """Start a node on its machine."""
        name = self.names[number]
        process = self.loop.process(name)
        machine = self.machines[number % len(self.machines)]
        self.seats.append(self.loop.seat(process, machine))
        disk = self._shared_disk or MachineDisk(f"{name}-disk", self.loop)
        self.disks.append(disk)
        host = Host(
            SimulatedClock(self.loop),
            disk,
            self.network.view(name),
            self.loop.entropy(name),
            boot_id=lambda: name,
        )
        settings = NodeSettings(
            node=NodeSection(id=name, listen=self.addresses[name], data_dir=f"/{name}"),
            cluster=ClusterSection(id=ClusterId("scale"), members=self.addresses, leader_hint=self.names[0]),
            wal=WalSection(segment_bytes=4 * MIB),
        )

        async def live() -> None:
            node = compose_node(settings, host, logger("error"))
            self.nodes.append(node)
            await node.start()
            raise await node.failed

        process.spawn(live())

    def client(self, name: str) -> tuple[Client, SimulatedProcess]:
        """Return a client and its process."""
        process = self.loop.process(name)
        if self.load.machines:
            self.client_seats.append(self.loop.seat(process, self.machines[0]))
        client = process.call(
            lambda: Client(
                list(self.addresses.values()),
                network=self.network.view(name),
                entropy=self.loop.entropy(name),
                options=ClientOptions(timeout=_WAIT_SECONDS),
            )
        )
        return client, process

    def ask(self, process: SimulatedProcess, work: Coroutine[Any, Any, Any]) -> Any:
        """Run something of a client to its end."""
        task = process.spawn(work)
        assert self.loop.run_until(task.done, seconds=_WAIT_SECONDS), "the cluster does not answer"
        return task.result()

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Run until a condition holds."""
        assert self.loop.run_until(holds, seconds=_WAIT_SECONDS), what


def simulate(load: Load, costs: Costs, *, seed: int = 1) -> Simulated:
    """Run real nodes and clients in simulated time; return their figures."""
    world = _World(load, costs, seed)
    try:
        for number in range(load.nodes):
            world.bring_up(number)
        admin, process = world.client("admin")
        world.until(lambda: len(world.nodes) == load.nodes, "nodes do not start")
        groups = []
        for number in range(load.streams):
            founders = [world.names[(number + each) % load.nodes] for each in range(min(_REPLICAS, load.nodes))]
            placed = world.ask(process, admin.place_group(f"stream-{number}", founders=founders))
            groups.append(placed.id)
        world.until(lambda: _are_led(world, groups), "groups have no leader")
        world.ask(process, admin.create_spread_topic(_TOPIC, load.streams, groups=groups))
        world.until(lambda: _are_led(world, groups), "groups have lost their leader")
        world.ask(process, admin.balance_leaders())
        return _measure(world)
    finally:
        world.loop.close()


def _are_led(world: _World, groups: list[int]) -> bool:
    return all(any(_leads(node, group) for node in world.nodes) for group in (0, *groups))


def _leads(node: Node, group: int) -> bool:
    hosted = node.groups.get(group)  # type: ignore[call-overload]
    return hosted is not None and hosted.replica is not None and hosted.replica.is_leading


def _measure(world: _World) -> Simulated:
    load, loop = world.load, world.loop
    took: list[float] = []
    is_counted = False

    async def call(client: Client, stream: int | None) -> None:
        while True:
            began = loop.time()
            await client.append(_TOPIC, _RECORD, stream=stream, ordered=load.is_ordered)
            if is_counted:
                took.append(loop.time() - began)

    clients = []
    for number in range(load.clients):
        client, process = world.client(f"client-{number}")
        stream = None if load.clients == 1 else number % load.streams + 1
        for each in range(load.streams) if stream is None else [stream - 1]:
            world.ask(process, client.append(_TOPIC, _RECORD, stream=each + 1, ordered=True))
        clients.append((client, process, stream))
    # All callers begin when time is charged. Before that appends take no processor time, so that a few milliseconds
    # of them while other clients connect would be more work than all that is measured.
    loop.is_charging = True
    for client, process, stream in clients:
        for _ in range(load.callers):
            process.spawn(call(client, stream))
    loop.run_for(load.warm_up)
    is_counted = True
    leader_0 = next(number for number, node in enumerate(world.nodes) if _leads(node, 0))
    before = _counters(world, leader_0)
    loop.run_for(load.seconds)
    after = _counters(world, leader_0)
    used = {name: [(b - a) / load.seconds for a, b in zip(before[name], after[name], strict=True)] for name in before}
    others = [each for number, each in enumerate(used["seats"]) if number != leader_0]
    return Simulated(
        per_second=len(took) / load.seconds,
        p50_ms=1e3 * median(took) if took else 0.0,
        leader_0=used["seats"][leader_0],
        other_nodes=sum(others) / len(others),
        busiest_node=max(used["seats"]),
        machines=sum(used["machines"]) / len(used["machines"]),
        orders_per_second=used["orders"][0],
        syncs_per_append=sum(used["syncs"]) * load.seconds / max(1, len(took)),
        megabytes_per_second=sum(used["sent"]) / len(used["sent"]) / 1e6,
        clients=sum(used["clients"]) if world.client_seats else 0.0,
    )


def _counters(world: _World, leader_0: int) -> dict[str, list[float]]:
    return {
        "seats": [seat.busy for seat in world.seats],
        "clients": [seat.busy for seat in world.client_seats],
        "machines": [machine.busy for machine in world.machines],
        "orders": [float(world.nodes[leader_0].group.applied_index)],
        "syncs": [float(disk.syncs) for disk in dict.fromkeys(world.disks)],
        "sent": [float(world.network.sent.get(name, 0)) for name in world.names],
    }
