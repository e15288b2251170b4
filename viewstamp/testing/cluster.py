"""``SimulatedCluster``: what a scenario sees of the cluster that it runs against."""

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
    """A cluster of simulated nodes, as a scenario meets it. Time is simulated: ``asyncio.sleep(60)`` costs nothing."""

    def __init__(self, world: World, name: str) -> None:
        self.random: random.Random = world.loop.entropy(f"scenario {name}")
        """Dice of the scenario's own, which the seed decides; never use others."""
        self._world = world
        self._name = name
        self._clients: list[Client] = []

    def client(self, *, timeout: float = 30.0) -> Client:
        """Return a client of its own session, connected when it is first used and closed when the scenario ends.

        It is the real one: its calls return, and fail, as in production. With the default ``timeout``, in seconds for
        each call, a call outlasts the faults; with one of half a second you see ``OutcomeUnknownError``.
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
        """Whether the faults have ended: everything is healed and restarted, or about to be."""
        return self._world.is_calm

    @property
    def members(self) -> list[str]:
        """The names of the members."""
        return [member.name for member in self._world.members]

    @property
    def leader(self) -> str | None:
        """Who leads; None = nobody. One that was cut off may believe so for a while: the newest is named."""
        leader = self._world.leader
        return None if leader is None else leader.name

    # Faults of your own, beside those that are drawn.

    def isolate(self, member: str) -> None:
        """Cut a member off from the others, both ways, until :meth:`heal`. Clients still reach it."""
        found = self._member(member)
        self._world.isolate(found)

    def heal(self) -> None:
        """End all partitions."""
        self._world.network.heal()

    def kill(self, member: str, *, power: bool = False) -> None:
        """End a member's process at once; with ``power``, what its disk had not synced may be gone too."""
        self._world.take_down(self._member(member), power=power)

    def start(self, member: str) -> None:
        """Start a member that is down; nothing happens where it runs."""
        self._world.bring_up(self._member(member))

    def _member(self, name: str) -> Member:
        if self._world.is_calm:
            raise RuntimeError("the faults have ended: give the simulation more seconds, or ask is_calm first")
        for member in self._world.members:
            if member.name == name:
                return member
        raise ValueError(f"no member is named {name!r}; there are {', '.join(self.members)}")
