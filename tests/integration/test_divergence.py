"""Members with different states or code, or a failing state machine: which one stops, and with which message."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import viewstamp as vs
from tests.integration.actor_group import ActorGroup
from tests.node.group import CALM, PATIENCE_SECONDS
from viewstamp.client import Client
from viewstamp.errors import DivergedError, OutcomeUnknownError, OutdatedCodeError
from viewstamp.ids import NodeId
from viewstamp.node.node import Node

pytestmark = pytest.mark.slow

Class = type[vs.ReplicatedActor]


class Moods:
    """Differences between the members of a test that are not in the log: each member's class consults them."""

    def __init__(self) -> None:
        self.odd: set[str] = set()
        self.failing: dict[str, type[BaseException]] = {}


class Till(vs.ReplicatedActor):
    """The actor as a client declares it."""

    def __init__(self) -> None:
        self.cents = 0

    @vs.command
    def pay(self, cents: int) -> int:
        """Accept money; return the new total."""
        self.cents += cents
        return self.cents

    @vs.query
    def total(self) -> int:
        """Return the total."""
        return self.cents


def moody(node: NodeId, moods: Moods) -> Class:
    """Return the class as a member runs it, which depends on more than its state and its arguments."""

    class MoodyTill(Till):
        @vs.command
        def pay(self, cents: int) -> int:
            if node in moods.failing:
                raise moods.failing[node]("this machine fails")
            self.cents += cents + (node in moods.odd)
            return self.cents

    return MoodyTill


def make_group(directory: Path, moods: Moods, size: int = 3) -> ActorGroup:
    return ActorGroup(directory, size, core=CALM, classes=lambda node: {"till": moody(node, moods)})


async def pay(client: Client, count: int) -> int:
    result = 0
    for _ in range(count):
        result = await client.actor("till", Till).pay(100)
    return result


async def failure_of(node: Node) -> BaseException:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await asyncio.shield(node.failed)


@pytest.mark.parametrize("is_leader", [False, True], ids=["a follower", "the leader"])
async def test_a_diverged_member_stops_and_names_the_first_command_that_differed(
    tmp_path: Path, is_leader: bool
) -> None:
    """It may be any member: a majority of the members decides, and continues."""
    moods = Moods()
    async with make_group(tmp_path, moods) as group:
        await group.run()
        client = group.client()
        assert await pay(client, 20) == 2000
        leader = (await group.leader()).options.node
        odd = leader if is_leader else next(name for name in group.members if name != leader)
        await group.caught_up()
        first = group.nodes[odd].group.applied_index + 1
        moods.odd.add(odd)
        await pay(client, 1)
        await group.caught_up()
        moods.odd.clear()
        error = await failure_of(group.nodes[odd])
        assert isinstance(error, DivergedError)
        assert error.index == first
        assert f"index {first}" in error.message
        assert "till" in error.message
        assert "pay" in error.message
        assert "100" in error.message
        await group.stop(odd)
        paid = await pay(client, 5)
        assert paid in (2600, 2601), "the others elect a new leader if it led"
        assert await client.actor("till", Till).total() == 2600
        assert all(not node.failed.done() for node in group.nodes.values())
        assert len(set(group.digests().values())) == 1


async def test_a_repaired_diverged_member_comes_back_by_a_replay(tmp_path: Path) -> None:
    """The operator follows the message: the class is repaired, and no snapshot of the member holds the wrong state."""
    moods = Moods()
    async with make_group(tmp_path, moods) as group:
        await group.run()
        client = group.client()
        moods.odd.add("n3")
        await pay(client, 3)
        assert isinstance(await failure_of(group.nodes[NodeId("n3")]), DivergedError)
        await group.stop("n3")
        moods.odd.clear()
        await group.start("n3")
        await pay(client, 3)
        await group.caught_up()
        assert len(set(group.digests().values())) == 1
        await asyncio.sleep(1.0)  # Long enough for a comparison of states.
        assert all(not node.failed.done() for node in group.nodes.values())


async def test_of_two_members_the_one_that_does_not_lead_stops(tmp_path: Path) -> None:
    """Neither has a majority; but the clients were given the leader's answers."""
    moods = Moods()
    async with make_group(tmp_path, moods, size=2) as group:
        await group.run()
        client = group.client()
        leader = (await group.leader()).options.node
        follower = next(name for name in group.members if name != leader)
        moods.odd.add(leader)
        await pay(client, 2)
        assert isinstance(await failure_of(group.nodes[follower]), DivergedError)
        assert not group.nodes[leader].failed.done()


@pytest.mark.parametrize("error", [OSError, MemoryError])
async def test_a_failure_of_the_machine_stops_the_node_and_is_no_result(
    tmp_path: Path, error: type[BaseException]
) -> None:
    """An actor's method raises OSError or MemoryError on one member only.

    If this counted as the result of the command, the member's state would differ from the other members'. So the node
    stops, and runs the command again after its restart.
    """
    moods = Moods()
    async with make_group(tmp_path, moods) as group:
        await group.run()
        client = group.client()
        await pay(client, 1)
        moods.failing["n3"] = error
        assert await pay(client, 1) == 200
        assert isinstance(await failure_of(group.nodes[NodeId("n3")]), error)
        assert await pay(client, 1) == 300
        await group.stop("n3")
        moods.failing.clear()
        await group.run("n3")
        await group.caught_up()
        assert len(set(group.digests().values())) == 1


async def paid_once(client: Client) -> int | None:
    """Pay once; return the till's answer, or None if it is only known that the command was applied."""
    try:
        return await pay(client, 1)
    except OutcomeUnknownError as error:
        token = error.token
    assert token is not None
    assert (await client.outcome(token)).applied
    return None


async def test_a_failure_of_the_leaders_machine_is_no_callers_result(tmp_path: Path) -> None:
    moods = Moods()
    async with make_group(tmp_path, moods) as group:
        await group.run()
        client = group.client()
        await pay(client, 1)
        leader = (await group.leader()).options.node
        moods.failing[leader] = OSError
        assert await paid_once(client) in (200, None)
        assert isinstance(await failure_of(group.nodes[leader]), OSError)
        await group.stop(leader)
        assert await client.actor("till", Till).total() == 200


# Code of another version.


class NewTill(Till):
    """The next version of the actor."""

    version = 2

    @vs.command
    def refund(self, cents: int) -> int:
        """Return money."""
        self.cents -= cents
        return self.cents


async def failure_of_start(group: ActorGroup, name: NodeId) -> BaseException:
    """Start a member that cannot run for long; return the error, and leave the member stopped."""
    try:
        await group.start(name)
    except OutdatedCodeError as error:
        return error  # The replay already met the committed command, so the start failed.
    failure = await failure_of(group.nodes[name])
    await group.stop(name)
    return failure


async def test_a_member_with_older_code_stops_at_the_first_command_it_does_not_know(tmp_path: Path) -> None:
    """A member never skips a command; with newer code it continues from where it stopped."""
    code: dict[str, Mapping[str, Class]] = {}
    async with ActorGroup(tmp_path, classes=lambda node: code.get(node, {"till": NewTill})) as group:
        code["n3"] = {"till": Till}
        await group.run()
        client = group.client()
        till: Any = client.actor("till", NewTill)
        assert await till.pay(500) == 500
        assert await till.refund(200) == 300
        error = await failure_of(group.nodes[NodeId("n3")])
        assert isinstance(error, OutdatedCodeError)
        assert "till" in error.message
        assert await till.refund(100) == 200, "the others go on"
        stopped_at = group.nodes[NodeId("n3")].group.applied_index
        await group.stop("n3")
        assert isinstance(await failure_of_start(group, NodeId("n3")), OutdatedCodeError)
        code.clear()
        await group.run("n3")
        await group.caught_up()
        assert group.nodes[NodeId("n3")].group.applied_index > stopped_at
        assert len(set(group.digests().values())) == 1


async def test_an_actor_that_a_member_does_not_have_stops_it(tmp_path: Path) -> None:
    code: dict[str, Mapping[str, Class]] = {"n3": {}}
    async with ActorGroup(tmp_path, classes=lambda node: code.get(node, {"till": Till})) as group:
        await group.run()
        await pay(group.client(), 1)
        assert isinstance(await failure_of(group.nodes[NodeId("n3")]), OutdatedCodeError)
        assert await pay(group.client(), 1) == 200
