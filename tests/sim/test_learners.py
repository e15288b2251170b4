"""Learners of group 0 that host groups: three nodes vote in it, and two more lead streams."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.sim.test_groups import CALM, PlacedWorld, die
from viewstamp.errors import UnavailableError
from viewstamp.ids import GROUP_0, GroupId
from viewstamp.sim.checkers.liveness import check_liveness
from viewstamp.sim.cluster import Member, is_settled

TOPIC = "orders"


class LearnersWorld(PlacedWorld):
    """A world in which n1 to n3 vote in group 0, and n4 and n5 are learners of it."""

    def __init__(self) -> None:
        super().__init__(1, CALM, 0)
        assert self.loop.run_until(lambda: self.has_settled, seconds=60.0)
        self.learners = [self._learn(), self._learn()]

    def _learn(self) -> Member:
        member = self.join()
        assert member is not None
        self.bring_up(member)
        self.ask(lambda client: client.add_member(member.name, member.address, voter=False))
        assert self.loop.run_until(lambda: self.records_of(member) == self.records_of(self.members[0]), seconds=60.0)
        return member

    def opened(self, *groups: GroupId) -> bool:
        """Return whether each group is led, and open on each of its founders."""
        return all(self.leader(group) is not None and self.founders_have(group) for group in groups)

    def founders_have(self, group: GroupId) -> bool:
        founders = [member for member in self.members if member.name in self.placer.hosts.get(group, (0, ()))[1]]
        return bool(founders) and all(member.group(group) is not None for member in founders)

    def leader(self, group: GroupId) -> Member | None:
        for member in self.members:
            hosted = member.group(group)
            if hosted is not None and hosted.replica is not None and hosted.replica.is_leading:
                return member
        return None

    def lead(self, group: GroupId, member: Member) -> None:
        """Transfer the leadership of a group, as soon as the member follows closely enough."""

        async def transfer() -> None:
            while (before := self.leader(group)) is not member:
                hosted = before.group(group) if before is not None else None
                if hosted is not None:
                    with suppress(UnavailableError):
                        await hosted.transfer_leadership(member.name)
                await asyncio.sleep(0.05)

        self.loop.process("transfer").spawn(transfer())
        assert self.loop.run_until(lambda: self.leader(group) is member, seconds=60.0), self.describe()

    def positions(self, count: int) -> list[int | None]:
        """Append records to both streams in turns, and return their positions in the order of the topic."""
        found = []
        for number in range(count):
            stream = number % 2 + 1
            receipt = self.ask(lambda client, stream=stream: client.append(TOPIC, b"x", stream=stream, ordered=True))
            found.append(receipt.global_position)
        return found

    def end(self, *groups: GroupId) -> None:
        """Check that the members of each group have the same log at the end, and everything that a world checks."""
        self.calm()
        self.writers.stop()
        check_liveness(self, lambda: self.opened(*groups) and all(self.is_level_in(group) for group in groups))
        self.loop.check()

    def is_level_in(self, group: GroupId) -> bool:
        founders = [member for member in self.members if member.name in self.placer.hosts[group][1]]
        return is_settled(founders, group)


@pytest.fixture
def world() -> Iterator[LearnersWorld]:
    world = LearnersWorld()
    yield world
    world.close()


def test_learners_of_group_0_host_groups_and_lead_streams(world: LearnersWorld) -> None:
    """Their reports order the streams, and the nodes that vote in group 0 are no founders of the one of them."""
    four, five = world.learners
    groups = [world.place("s1", "n4"), world.place("s2", "n4", "n5", "n1")]
    assert world.loop.run_until(lambda: world.opened(*groups), seconds=60.0), world.describe()
    world.lead(groups[1], five)
    assert world.leader(groups[0]) is four
    world.ask(lambda client: client.create_spread_topic(TOPIC, 2, groups=groups))
    assert world.positions(6) == [1, 2, 3, 4, 5, 6]
    membership = world.members[0].node.group.membership  # type: ignore[union-attr]
    assert set(membership.voters) == {"n1", "n2", "n3"}
    assert set(membership.learners) == {"n4", "n5"}
    assert world.group_check(four) == world.group_check(five) == []
    world.end(*groups)


def test_a_learner_that_leads_a_stream_dies_and_comes_back(world: LearnersWorld) -> None:
    """Another founder leads then, whether it votes in group 0 or not; the learner opens its groups again."""
    four, five = world.learners
    groups = [world.place("s1", "n4", "n5", "n1"), world.place("s2", "n4", "n5", "n2")]
    assert world.loop.run_until(lambda: world.opened(*groups), seconds=60.0), world.describe()
    world.ask(lambda client: client.create_spread_topic(TOPIC, 2, groups=groups))
    world.lead(groups[0], four)
    world.lead(groups[1], four)
    assert world.positions(2) == [1, 2]
    die(world, four)
    assert world.positions(2) == [3, 4]
    world.bring_up(four)
    assert world.loop.run_until(lambda: world.opened(*groups), seconds=60.0), world.describe()
    die(world, five)
    assert world.positions(2) == [5, 6]
    world.bring_up(five)
    world.end(*groups)


def test_a_learner_that_hosts_a_group_may_not_be_removed_from_group_0(world: LearnersWorld) -> None:
    """Its group would not learn where its streams belong."""
    groups = [world.place("s1", "n4", "n5", "n1")]
    assert world.loop.run_until(lambda: bool(world.placer.hosts), seconds=60.0)
    with pytest.raises(Exception, match="n4"):
        world.ask(lambda client: client.remove_member("n4"))
    hosted = world.members[0].group(GROUP_0)
    assert hosted is not None
    assert "n4" in hosted.membership.learners
    world.end(*groups)
