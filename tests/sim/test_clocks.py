"""Wall clocks that jump: recent records are not deleted because of their age, and ages continue to grow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.sim.loop import SimulatedClock
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.world import World

YEARS_US = 73 * 365 * 24 * 3_600_000_000


class Cluster:
    """An idle world without faults, in which a client makes occasional requests."""

    def __init__(self, nodes: int) -> None:
        self.world = World(1, Swarm(nodes=nodes, faults={}))
        for member in self.world.members:
            self.world.bring_up(member)
        assert self.world.loop.run_until(lambda: self.world.has_settled, seconds=10)
        self._client = self.world.loop.process("client")

    def ask(self, question: Callable[[Client], Awaitable[None]]) -> None:
        """Let a client make a request, and wait for its answer."""
        done: list[None] = []

        async def run() -> None:
            network = self.world.network.view("client")
            entropy = self.world.loop.entropy("client")
            async with Client(
                self.world.addresses, network=network, entropy=entropy, options=ClientOptions(timeout=5.0)
            ) as client:
                await question(client)
            done.append(None)

        self._client.spawn(run())
        assert self.world.loop.run_until(lambda: bool(done), seconds=10)

    def append(self, value: bytes) -> float:
        """Append a record; return how far its time stamp is ahead of the true time, in seconds."""
        times: list[int] = []

        async def append(client: Client) -> None:
            times.append((await client.append("orders", value)).timestamp)

        self.ask(append)
        return (times[0] - self.world.true_us) / 1e6

    def kept(self) -> tuple[int, int]:
        """Return the first and the last position of the topic."""
        found: list[tuple[int, int]] = []

        async def describe(client: Client) -> None:
            topic = await client.describe_topic("orders")
            found.append((topic.first_position, topic.last_position))

        self.ask(describe)
        return found[0]

    def create(self, retain_seconds: float) -> None:
        async def create(client: Client) -> None:
            await client.create_topic("orders", retain_seconds=retain_seconds)

        self.ask(create)

    def jump(self, offset_us: int, *, leader: bool = True, others: int = 0) -> None:
        """Set the clocks of the leader, and of some others, wrong by ``offset_us``."""
        members = [member for member in self.world.members if (member is self.world.leader) == leader][:1]
        members += [member for member in self.world.members if member is not self.world.leader][:others]
        for member in members:
            member.clock.wall_offset_us = max(offset_us, -SimulatedClock.WALL_START_US)


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("offset_us", [7_200_000_000, YEARS_US])
def test_a_leader_with_a_jumping_clock_does_not_delete_recent_records(nodes: int, offset_us: int) -> None:
    cluster = Cluster(nodes)
    cluster.create(retain_seconds=60)
    cluster.append(b"1")
    cluster.jump(offset_us)
    cluster.world.loop.run_for(3)
    assert cluster.append(b"2") <= 10.1
    assert cluster.kept() == (1, 2)
    cluster.world.loop.run_for(3)
    assert cluster.append(b"3") <= 10.1
    assert cluster.kept() == (1, 3)


def test_ages_count_on_after_a_majority_was_wrong() -> None:
    """Log time is 73 years ahead, and every clock is right again: log time advances at half the rate of real time."""
    cluster = Cluster(3)
    cluster.create(retain_seconds=5)
    cluster.jump(YEARS_US, others=1)
    cluster.world.loop.run_for(3)
    assert cluster.append(b"1") > 1e9
    cluster.jump(0, others=1)
    cluster.world.loop.run_for(8)
    cluster.append(b"2")
    assert cluster.kept() == (1, 2), "four seconds old in log time"
    cluster.world.loop.run_for(14)
    cluster.append(b"3")
    assert cluster.kept()[0] > 1


def test_ages_count_on_where_nothing_is_written_and_the_leader_changes() -> None:
    cluster = Cluster(3)
    cluster.create(retain_seconds=3600)
    cluster.jump(7_200_000_000, others=1)
    cluster.world.loop.run_for(3)
    before = cluster.append(b"1")
    cluster.jump(0, others=1)
    leader = cluster.world.leader
    assert leader is not None
    cluster.world.take_down(leader, power=False)
    cluster.world.loop.run_for(2)
    cluster.world.bring_up(leader)
    assert cluster.world.loop.run_until(lambda: cluster.world.has_settled, seconds=10)
    cluster.world.loop.run_for(20)
    assert before - 25 <= cluster.append(b"2") <= before - 8, "log time approaches the true time, and never goes back"
