"""The order of streams in simulated clusters: it survives faults, lost disks, and the death of each leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partialmethod
from statistics import median

import pytest

from tests.mutants.catalogue import CATALOGUE
from tests.sim.leaders import leader_of
from tests.sim.test_groups import CALM, PLACED, die
from viewstamp.client.aio import Client
from viewstamp.consensus.messages import DurableNotice, Message
from viewstamp.host.interfaces import Buffer
from viewstamp.ids import GROUP_0, Stream
from viewstamp.node.peers import pool
from viewstamp.node.placement_queries import PlacedGroup
from viewstamp.sim.checkers.liveness import check_liveness
from viewstamp.sim.cluster import is_settled
from viewstamp.sim.faults import Faults
from viewstamp.sim.groups import GroupPlacer
from viewstamp.sim.order_readers import OrderReaders
from viewstamp.sim.ordered import OrderedStreams
from viewstamp.sim.ordered_appends import OrderedAppends
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.violation import Violation
from viewstamp.sim.world import World
from viewstamp.wire.handshake import Welcome


class OrderedWorld(World):
    """A world with groups of one stream each of a topic, and a second topic, which are written to while it runs."""

    def __init__(self, seed: int, swarm: Swarm, number: int = 2, *, readers: int = 4, divided: int = 0) -> None:
        super().__init__(seed, swarm)
        self.placer = GroupPlacer(
            self, number, on_seen=self._on_seen, on_placed=lambda _: None, on_gone=self.forget, streams=number
        )
        self.ordered = OrderedStreams(self, lambda: self.placer.streams)
        self.readers = OrderReaders(self, lambda: self.placer.topics, readers, divided=divided)
        self.appends = OrderedAppends(self, lambda: self.placer.streams if self.placer.is_done else [])
        self.damages.on_disk_loss = self.placer.look
        for member in self.members:
            self.bring_up(member)
        self.placer.start()
        self.ordered.start()
        if readers:
            self.readers.start()
        self.appends.start()

    def _on_seen(self, placed: PlacedGroup) -> None:
        self.watch(placed.id, frozenset(placed.members))

    def has_returned(self, before: Counter[Stream]) -> bool:
        """Return whether ordered appends to each stream have returned since ``before``."""
        return all(self.appends.counts[each] >= before[each] + 4 for each in self.placer.streams)

    def finish(self) -> int:
        """End all faults, wait until everything is ordered, and check it; return the number of ordered records."""
        self.calm()
        assert self.loop.run_until(lambda: self.placer.is_done, seconds=60.0), self.describe()
        before = self.appends.counts
        assert self.loop.run_until(lambda: self.ordered.written >= 10, seconds=60.0), self.describe()
        assert self.loop.run_until(lambda: self.has_returned(before), seconds=60.0), self.describe()
        self.ordered.stop()
        self.appends.stop()
        check_liveness(
            self,
            lambda: (
                self.ordered.is_done
                and self.appends.is_done
                and all(is_settled(self.members, each) for each in self.placer.placed)
                and self.ordered.is_complete
                and self.readers.are_at_the_end
            ),
        )
        self.loop.check()
        records = self.ordered.check()
        self.appends.check()
        if self.readers.seen:
            assert self.readers.check(self.ordered.places()) == records
        return records


def test_the_records_of_all_streams_are_ordered() -> None:
    world = OrderedWorld(1, CALM, number=3)
    try:
        assert world.finish() >= 10
        assert len(world.placer.streams) == 4
    finally:
        world.close()


@pytest.mark.parametrize("seed", [3, 6, 11, 12])
def test_the_order_survives_faults_and_lost_disks(seed: int) -> None:
    world = OrderedWorld(seed, PLACED, divided=2 if seed == 11 else 0)
    try:
        faults = Faults(world, world.loop.entropy("faults"))
        faults.start()
        world.loop.run_until(lambda: False, seconds=2 * PLACED.seconds)
        faults.stop()
        assert world.finish() >= 10
    finally:
        world.close()


def ordered_to_durable(appends: int) -> float:
    """Return how many times as long as a durable append an ordered one takes, by the medians of ``appends``.

    The simulated network decides about the time that each takes, so the medians of a seed are always the same.
    """
    world = World(1, replace(CALM, seconds=0.0))
    placer = GroupPlacer(
        world,
        1,
        on_seen=lambda placed: world.watch(placed.id, frozenset(placed.members)),
        on_placed=lambda _: None,
        on_gone=world.forget,
        streams=1,
    )
    for member in world.members:
        world.bring_up(member)
    placer.start()
    took: dict[bool, list[float]] = {False: [], True: []}

    async def append() -> None:
        network, entropy = world.network.view("caller"), world.loop.entropy("caller")
        async with Client(world.addresses, network=network, entropy=entropy) as client:
            await client.append("spread", b"x", stream=1, ordered=True)
            for number in range(appends):
                began = world.loop.time()
                await client.append("spread", b"x", stream=1, ordered=bool(number % 2))
                took[bool(number % 2)].append(world.loop.time() - began)

    try:
        assert world.loop.run_until(lambda: placer.is_done and placer.streams != [], seconds=60.0)
        world.loop.run_until_complete(append())
        return median(took[True]) / median(took[False])
    finally:
        world.close()


def test_an_ordered_append_takes_an_order_longer_than_a_durable_one() -> None:
    """A durable append takes four messages and a sync. An ordered one takes four messages and two syncs.

    The two leaders are on two nodes. Each member that waits finds the commit itself, and its leader need not tell it.
    """
    assert ordered_to_durable(400) < 1.65


def test_an_ordered_append_costs_an_order_more_than_a_durable_one_and_no_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Among members that do not read notices, ORDER takes four messages more: report, append, response, end."""
    sent: list[Message] = []
    encode = pool.encode_message

    def encode_message(message: Message) -> list[Buffer]:
        sent.append(message)
        return encode(message)

    monkeypatch.setattr(pool, "encode_message", encode_message)
    monkeypatch.setattr(Welcome, "to_map", partialmethod(without_notices, Welcome.to_map))
    assert ordered_to_durable(60) < 2.2
    assert sent
    assert not any(isinstance(message, DurableNotice) for message in sent)


def without_notices(self: Welcome, to_map: Callable[[Welcome], dict[str, object]]) -> dict[str, object]:
    """Return the body of WELCOME of an earlier release."""
    return to_map(replace(self, takes_notices=False))


@pytest.mark.parametrize("is_of_group_0", [True, False])
@pytest.mark.parametrize("death", range(0, 60, 15))
def test_the_order_goes_on_wherever_a_leader_dies(death: int, is_of_group_0: bool) -> None:
    """The process dies at a call of its disk, while reports, ORDERs and CONTEXTs are on their way."""
    world = OrderedWorld(death, replace(CALM, seconds=0.0))
    try:
        assert world.loop.run_until(lambda: world.ordered.written >= 4, seconds=60.0)
        victim = leader_of(world, *([GROUP_0] if is_of_group_0 else world.placer.placed))
        assert victim is not None
        victim.disk.crash_at(victim.disk.calls + death, lambda: die(world, victim))
        world.loop.run_until(lambda: not victim.is_up, seconds=2.0)
        assert world.finish() >= 10
    finally:
        world.close()


@pytest.mark.parametrize(
    "mutant",
    [
        "order-skips-a-position",
        "forget-what-is-ordered",
        "one-space-for-all-topics",
        "ordered-by-a-guess",
    ],
)
def test_a_planted_mistake_is_found(mutant: str) -> None:
    with CATALOGUE[mutant].plant():
        world = OrderedWorld(1, CALM, number=3, readers=0)
        try:
            with pytest.raises((Violation, AssertionError)):
                world.finish()
        finally:
            world.close()


def test_a_caller_that_waits_is_not_kept_until_the_next_round() -> None:
    """The simulated network takes milliseconds, and a round 0.25 s."""
    world = OrderedWorld(1, CALM, number=3)
    try:
        assert world.loop.run_until(lambda: world.ordered.written >= 4, seconds=60.0)
        assert world.loop.run_until(lambda: len(world.appends.returned) >= 40, seconds=60.0), world.describe()
        took = sorted(each.seconds for each in world.appends.returned)
        assert took[len(took) // 2] < 0.1
        assert world.finish() >= 10
    finally:
        world.close()
