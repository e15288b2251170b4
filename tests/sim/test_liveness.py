"""A cluster keeps a useful leader, and replaces it only by another one: scenarios in simulated time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator

import pytest

from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.errors import OutcomeUnknownError, UnavailableError
from viewstamp.ids import NodeId
from viewstamp.sim.cluster import Member
from viewstamp.sim.disk import DiskOptions
from viewstamp.sim.network import LinkOptions
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.world import World

TIMEOUT = 0.3
"""The shortest election timeout of the simulated nodes, in seconds."""


class Cluster:
    """A world without faults in which a client appends all the time."""

    def __init__(self, nodes: int, seed: int = 1) -> None:
        self.world = World(seed, Swarm(nodes=nodes, faults={}))
        self.appended = 0
        for member in self.world.members:
            self.world.bring_up(member)
        assert self.world.loop.run_until(lambda: self.world.has_settled, seconds=10)
        process = self.world.loop.process("client")
        process.spawn(self._append())
        self.run(1.0)
        assert self.appended > 10

    async def _append(self) -> None:
        network = self.world.network.view("client")
        options = ClientOptions(timeout=30.0, connect_timeout=10.0, silence=10.0)
        async with Client(
            self.world.addresses, network=network, entropy=self.world.loop.entropy("client"), options=options
        ) as client:
            await client.create_topic("orders")
            while True:
                with contextlib.suppress(UnavailableError, OutcomeUnknownError):
                    await client.append("orders", b"one")
                    self.appended += 1
                await asyncio.sleep(0.04)

    def run(self, seconds: float) -> int:
        """Let time pass; return how many appends were acknowledged meanwhile."""
        before = self.appended
        self.world.loop.run_for(seconds)
        return self.appended - before

    @property
    def leader(self) -> Member:
        leader = self.world.leader
        assert leader is not None
        return leader

    @property
    def term(self) -> int:
        assert self.leader.node is not None
        assert self.leader.node.replica is not None
        return self.leader.node.replica.raft.core.term

    @property
    def highest_term(self) -> int:
        """The highest term of any member."""
        nodes = [member.node for member in self.world.members if member.node is not None]
        return max(node.replica.raft.core.term for node in nodes if node.replica is not None)

    @property
    def followers(self) -> list[Member]:
        return [member for member in self.world.members if member is not self.leader]

    def hand_over(self, member: Member) -> None:
        """Transfer the leadership to ``member``."""
        if self.leader is not member:
            assert self.leader.node is not None
            assert self.leader.node.replica is not None
            self.leader.node.replica.raft.transfer(NodeId(member.id))
            assert self.world.loop.run_until(lambda: self.world.leader is member, seconds=5)
            self.run(0.5)


@pytest.fixture
def three() -> Iterator[Cluster]:
    cluster = Cluster(3)
    yield cluster
    cluster.world.close()


@pytest.mark.slow
@pytest.mark.parametrize("hears", [True, False], ids=["only receives", "only sends"])
def test_a_leader_with_links_in_one_direction_only_is_replaced(three: Cluster, hears: bool) -> None:
    """Its heartbeats alone would keep the others from campaigning.

    The received messages alone would let it lead for ever.
    """
    useless = three.leader
    for other in three.followers:
        pair = (useless.name, other.name) if hears else (other.name, useless.name)
        three.world.network.partition(*pair)
    three.run(6 * TIMEOUT)
    assert three.leader is not useless
    term = three.term
    assert three.run(3.0) > 40
    assert three.term == term, "the useless leader does not campaign again, either"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("links", "acknowledged_min"),
    [
        (LinkOptions(delay_min=0.1), 40),
        (LinkOptions(stall=0.3), 4),
        (LinkOptions(delay_min=1.0), 4),
        (LinkOptions(delay_min=0.05, stall=0.1, break_connection=0.01), 10),
    ],
    ids=["RTT 200 ms", "stalls", "RTT 2 s", "RTT 100 ms, stalls, resets"],
)
def test_slow_links_cost_a_few_terms_and_then_a_leader_stays(links: LinkOptions, acknowledged_min: int) -> None:
    """Timeouts shorter than a round trip fail every election and depose every leader, in spite of pre-vote."""
    cluster = Cluster(3)
    term = cluster.highest_term
    cluster.world.network.options = links
    cluster.run(20)
    learnt = cluster.highest_term
    assert learnt <= term + 4
    assert cluster.run(30) >= acknowledged_min
    assert cluster.highest_term <= learnt + 1
    cluster.world.close()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["both", "in", "out"])
def test_a_member_that_was_away_and_comes_back_deposes_no_leader(three: Cluster, way: str) -> None:
    """It was alone for a long time and campaigned, but the others follow their leader, and its term has not risen."""
    leader, term = three.leader, three.term
    away = three.followers[0]
    for other in three.world.members:
        if way != "out":
            three.world.network.partition(other.name, away.name)
        if way != "in":
            three.world.network.partition(away.name, other.name)
    assert three.run(4.0) > 60
    three.world.heal(away.name)
    assert three.run(4.0) > 60
    assert (three.leader, three.term) == (leader, term)


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 1, 3], ids=["n1 led", "n2 led", "n4 led"])
def test_five_members_of_which_two_reach_only_one_other_keep_a_leader_and_go_on(first: int) -> None:
    """1, 2 and 3 are connected, 4 only to 2, 5 only to 3: one of the three leads, after any earlier leader."""
    cluster = Cluster(5)
    cluster.hand_over(cluster.world.members[first])
    n1, n2, n3, n4, n5 = (member.name for member in cluster.world.members)
    for lonely, friend in ((n4, n2), (n5, n3)):
        cluster.world.network.isolate(
            lonely, [other for other in (n1, n2, n3, n4, n5) if other not in (lonely, friend)]
        )
    cluster.run(10 * TIMEOUT)
    assert cluster.leader.name in (n1, n2, n3)
    term = cluster.term
    assert cluster.run(5.0) > 60
    assert cluster.term == term, "the members at the edge cause no election"
    cluster.world.close()


@pytest.mark.slow
def test_no_leader_is_elected_while_an_event_loop_stands_still_for_less_than_the_timeout(three: Cluster) -> None:
    leader, term = three.leader, three.term
    for member in three.world.members * 3:
        assert member.process is not None
        member.process.stall()
        three.world.loop.run_for(0.8 * TIMEOUT)
        member.process.resume()
        three.run(0.1)
    assert (three.leader, three.term) == (leader, term)
    assert three.run(1.0) > 10


@pytest.mark.slow
def test_no_leader_is_elected_while_disks_are_slow(three: Cluster) -> None:
    """A sync of a second, on any disk or on all, delays the work that waits for it, but no heartbeat."""
    leader, term = three.leader, three.term
    for slow in ([leader], three.followers, three.world.members):
        for member in slow:
            member.disk.options = DiskOptions(delay_min=1.0, delay_mean=0.0)
        three.run(3.0)
        for member in slow:
            member.disk.options = DiskOptions()
        three.run(1.0)
        assert (three.leader, three.term) == (leader, term)
    assert three.run(1.0) > 10


@pytest.mark.slow
def test_a_leader_whose_clock_is_slow_is_followed_all_the_same(three: Cluster) -> None:
    leader, term = three.leader, three.term
    for member, rate in zip(three.world.members, (0.9, 1.1, 1.0), strict=True):
        member.clock.set_rate(rate)
        assert member.process is not None
        member.process.rate = rate
    assert three.run(5.0) > 60
    assert (three.leader, three.term) == (leader, term)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [3, 5])
def test_a_leader_that_dies_is_replaced_before_any_timeout_is_over(nodes: int) -> None:
    """Its connections end and its port refuses new ones, so the others need not wait for a timeout."""
    cluster = Cluster(nodes)
    world = cluster.world
    dead, term = cluster.leader, cluster.term
    world.take_down(dead, power=False)
    assert world.loop.run_until(lambda: world.leader not in (None, dead), seconds=TIMEOUT / 2)
    assert cluster.term == term + 1, "one election without split votes"
    assert cluster.run(0.5) > 5
    world.close()


@pytest.mark.slow
def test_reads_in_flight_to_a_dead_leader_are_sent_to_the_next_one_at_once(three: Cluster) -> None:
    """The request was in flight to the dead leader, or there was no leader."""
    world = three.world
    answered: list[float] = []

    async def read() -> None:
        async with Client(
            three.followers[0].address, network=world.network.view("reader"), entropy=world.loop.entropy("reader")
        ) as client:
            while True:
                reads = [client.describe_topic("orders", timeout=5.0) for _ in range(3)]
                await asyncio.gather(*reads)
                answered.append(world.loop.time())

    world.loop.process("reader").spawn(read())
    three.run(1.0)
    before = len(answered)
    world.take_down(three.leader, power=False)
    three.run(1.0)
    gaps = [later - earlier for earlier, later in itertools.pairwise(answered[before - 1 :])]
    assert len(gaps) > 100
    assert max(gaps) < TIMEOUT / 2


@pytest.mark.slow
def test_a_leader_whose_connections_all_break_leads_on(three: Cluster) -> None:
    """They are re-established at once, which distinguishes this leader from a dead one."""
    leader, term = three.leader, three.term
    for _ in range(10):
        for end in list(three.world.network.connections.values()):
            if leader.name in (end.node, end.other_node):
                end.break_off("a test")
        assert three.run(0.5) > 5
        assert (three.leader, three.term) == (leader, term)
