"""``SimulatedCluster``: a scenario's access to the cluster that it runs against."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions

if TYPE_CHECKING:
    from viewstamp.sim.cluster import Member
from viewstamp.sim.world import World

__all__ = ["SimulatedCluster"]


class SimulatedCluster:
    """A cluster of simulated nodes, for a scenario. Time is simulated, so ``asyncio.sleep(60)`` takes no real time."""

    def __init__(self, world: World, name: str) -> None:
        self.random: random.Random = world.loop.entropy(f"scenario {name}")
        """The scenario's random generator, decided by the seed. Use no other one, or the run cannot be repeated."""
        self._world = world
        self._name = name
        self._clients: list[Client] = []

    def client(self, *, timeout: float = 30.0) -> Client:
        """Return a client with a session of its own. It is closed when the scenario ends.

        It is the real client, so its calls return and fail as in production. With the default ``timeout``, in seconds
        for each call, calls outlast the faults; with 0.5 seconds some raise ``OutcomeUnknownError``.
        """
        name = f"{self._name}.{len(self._clients) + 1}"
        client = Client(
            self._world.addresses,
            network=self._world.network.view(name),
            entropy=self._world.loop.entropy(f"client {name}"),
            options=ClientOptions(timeout=timeout),
        )
        self._clients.append(client)
        return client

    async def close(self) -> None:
        """Close the clients. Called when the scenario has ended."""
        for client in self._clients:
            await client.close()

    @property
    def is_calm(self) -> bool:
        """Whether the faults have ended: all members are healed and restarted, or about to be."""
        return self._world.is_calm

    @property
    def members(self) -> list[str]:
        """The names of the members."""
        return [member.name for member in self._world.members]

    @property
    def leader(self) -> str | None:
        """The leader's name; None = there is none. A leader that is cut off is not named if there is a newer one."""
        leader = self._world.leader
        return None if leader is None else leader.name

    # The scenario's own faults, in addition to those of the seed.

    def isolate(self, member: str) -> None:
        """Cut a member off from the others, both ways, until :meth:`heal`. Clients still reach it."""
        found = self._member(member)
        self._world.isolate(found)

    def heal(self) -> None:
        """End all partitions."""
        self._world.network.heal()

    def kill(self, member: str, *, power: bool = False) -> None:
        """End a member's process at once; with ``power``, writes that its disk had not synced may be lost too."""
        self._world.take_down(self._member(member), power=power)

    def start(self, member: str) -> None:
        """Start a member that is down. Does nothing if it runs."""
        self._world.bring_up(self._member(member))

    def _member(self, name: str) -> Member:
        if self._world.is_calm:
            raise RuntimeError("the faults have ended: give the simulation more seconds, or check is_calm first")
        for member in self._world.members:
            if member.name == name:
                return member
        raise ValueError(f"the cluster has no member {name!r}; its members are {', '.join(self.members)}")
