"""Reshards of a simulated cluster with faults: its disks of one instant begin a cluster with other groups."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from tests.sim.test_client_of_groups import Caller, change_leaders
from tests.sim.test_forks import Forked, images_of
from tests.sim.test_groups import CALM, PlacedWorld
from viewstamp.actors.replicated import ReplicatedActor, command, query
from viewstamp.client.aio import Client
from viewstamp.errors import OutcomeUnknownError, UnavailableError
from viewstamp.fork import NewMember, fork, judge_source, plan_reshard
from viewstamp.ids import GROUP_0, GroupId, NodeId
from viewstamp.node.actor_owners import SpreadActorsQuery
from viewstamp.node.state_machine import StateMachine
from viewstamp.sim.checkers.liveness import check_liveness
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.volume import Volume, VolumeImage
from viewstamp.streams import Streams
from viewstamp.wire.spread_actors import SpreadActor

pytestmark = pytest.mark.slow

AnswerT = TypeVar("AnswerT")

KEYS = [f"key {number}" for number in range(8)]


class Drawer(ReplicatedActor):
    """An actor whose commands use all that comes from the place in the log."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.drawn: list[list[str]] = []
        self.times: list[float] = []

    @command
    def draw(self, entry: str) -> list[str]:
        self.entries.append(entry)
        self.drawn.append([str(self.new_id()), str(self.random.getrandbits(64))])
        self.times.append(self.now.timestamp())
        return self.drawn[-1]

    @query
    def read(self) -> list[list[object]]:
        return [list(self.entries), list(self.drawn), list(self.times)]


CLASSES: dict[str, type[ReplicatedActor]] = {"drawer": Drawer, "other": Drawer}


def machine(_: NodeId) -> StateMachine:
    return Streams(CLASSES)


@dataclass
class Old:
    """The disks of a cluster of three groups at one instant, and what had been acknowledged by then."""

    image: VolumeImage
    directories: list[str]
    acknowledged: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """By key: the numbers that were drawn for each entry."""


class Calls(Caller):
    """A client that calls all instances until it is over, and notes the answers."""

    def __init__(self, world: PlacedWorld) -> None:
        super().__init__(world, timeout=0.3)
        self.answers: dict[str, dict[str, list[str]]] = {}

    async def draw(self, key: str) -> None:
        actor = "other" if key.startswith("other") else "drawer"
        while not self.is_over:
            entry = f"{next(self.numbers):06}"
            try:
                drawn = await self.client.call(actor, "draw", entry, key=key)
                self.answers.setdefault(key, {})[entry] = drawn
            except (UnavailableError, OutcomeUnknownError):
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def old() -> Old:
    """The power of all machines fails while clients call, after leaders have changed."""
    world = PlacedWorld(5, CALM, number=0, machine=machine)
    try:
        groups = [world.place(f"group-{number}") for number in (1, 2, 3)]
        world.ask(lambda client: client.spread_actor("drawer", groups=groups))
        caller = Calls(world)
        tasks = [caller.process.spawn(caller.draw(key)) for key in (*KEYS, "other 1", "other 2")]
        assert change_leaders(world, groups) > 2
        world.loop.run_until(lambda: False, seconds=0.3)
        answers = {key: dict(each) for key, each in caller.answers.items()}
        image, directories = images_of(world)
        caller.is_over = True
        assert world.loop.run_until(lambda: all(task.done() for task in tasks), seconds=60.0)
        assert len(answers) == len(KEYS) + 2
        caller.client._close()
        return Old(image, directories, answers)
    finally:
        world.close()


class Resharded(Forked):
    """The new cluster, on the directories that a reshard has made."""

    def __init__(self, old: Old, groups: int, spread: list[str]) -> None:
        super().__init__(3, CALM, machine=machine)
        disk = SimulatedDisk("copy")
        disk.volume = Volume.from_image(old.image)
        source = judge_source(disk, old.directories, with_groups=True)
        members = [
            NewMember(node=each.name, address=each.address, directory=f"/new{each.data_dir}") for each in self.members
        ]
        self.plan = plan_reshard(disk, source, groups=groups, members=members, classes=CLASSES, spread=spread)
        made = fork(
            disk,
            self.plan.source,
            cluster="forked",
            members=members,
            entropy=random.Random(1),
            check=self.plan.check,
        )
        self.new_groups = [GROUP_0, *map(GroupId, made.groups)]
        for member in self.members:
            member.data_dir = f"/new{member.data_dir}"
            member.disk.volume = disk.volume
        for member in self.members:
            self.bring_up(member)
        check_liveness(self, lambda: all(each.settled_end(group) for each in self.members for group in self.new_groups))

    def run(self, work: Callable[[Client], Coroutine[Any, Any, AnswerT]]) -> AnswerT:
        """Return the answer of work with a new client."""

        async def ask() -> AnswerT:
            network, entropy = self.network.view("caller"), self.loop.entropy("caller")
            async with Client(self.addresses, network=network, entropy=entropy) as client:
                return await work(client)

        task = self.loop.process("caller").spawn(ask())
        assert self.loop.run_until(task.done, seconds=120.0), self.describe()
        return task.result()

    def machines(self, group: GroupId) -> list[Streams]:
        found = [hosted.machine for each in self.members if (hosted := each.group(group)) is not None]
        assert len(found) == len(self.members)
        assert all(isinstance(each, Streams) for each in found)
        return found  # type: ignore[return-value]

    def owners(self) -> dict[str, SpreadActor]:
        return {each.name: each for each in self.machines(GROUP_0)[0].query(SpreadActorsQuery())}

    def has_settled(self) -> bool:
        """Return whether the members of each group have applied the same log."""
        return all(len({each.chain for each in self.machines(group)}) == 1 for group in self.new_groups)


async def draw_again(client: Client, keys: list[str]) -> dict[str, list[list[Any]]]:
    """Call each instance twice; return what each has then: its entries, what they drew, and their times."""
    found = {}
    for turn in range(2):
        for key in keys:
            actor = "other" if key.startswith("other") else "drawer"
            await client.call(actor, "draw", f"new {turn}", key=key)
            found[key] = await client.query(actor, "read", key=key)
    return found


@pytest.mark.parametrize(("groups", "spread"), [(5, ["other"]), (2, [])])
def test_a_reshard_keeps_what_was_acknowledged_and_draws_nothing_again(
    old: Old, groups: int, spread: list[str]
) -> None:
    new = Resharded(old, groups, spread)
    try:
        assert len(new.plan.new_groups) == max(groups - 3, 0)
        owners = new.owners()
        assert {name: len(each.groups) for name, each in owners.items()} == dict.fromkeys(["drawer", *spread], groups)
        found = new.run(lambda client: draw_again(client, list(old.acknowledged)))
        for key, answers in old.acknowledged.items():
            entries, drawn, times = found[key]
            assert len(entries) == len(set(entries)), f"an entry of {key} is there twice"
            assert entries[-2:] == ["new 0", "new 1"]
            for entry, numbers in answers.items():
                assert drawn[entries.index(entry)] == numbers, f"{entry} of {key} was acknowledged"
            assert times == sorted(times), f"the time of {key} went back"
        everything = [number for _, drawn, _ in found.values() for pair in drawn for number in pair]
        assert len(everything) == len(set(everything)), "an id or a random number was drawn twice"
        assert new.loop.run_until(new.has_settled, seconds=60.0)
        for actor, names in (("drawer", KEYS), ("other", ["other 1", "other 2"])):
            for key in names:
                owner = owners[actor].group_of(key) if actor in owners else GROUP_0
                for group in new.new_groups:
                    assert {each._actors.has_instance(actor, key) for each in new.machines(group)} == {group == owner}
    finally:
        new.close()
