"""Batches of a sink over several groups: each is visible at one moment, and once, whoever dies at whichever step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.sim.leaders import leader_of
from tests.sim.test_groups import CALM, PLACED, PlacedWorld, die
from tests.sim.test_sealing import begin, described, has_sealed, pass_time
from tests.sim.test_spread_appends import Writer
from viewstamp.client import Attempt, SinkCommit, SpreadTopicInfo
from viewstamp.client.results import SpreadRecord
from viewstamp.errors import ViewstampError
from viewstamp.ids import GROUP_0, GroupId
from viewstamp.node.sink_part_queries import GroupPart, GroupPartsQuery, HasPartsCommitsQuery
from viewstamp.sim.faults import Faults

ROWS = 9


class Driver(Writer):
    """Drivers of one sink, one after the other, each in a process of its own; and a reader by position."""

    def __init__(self, world: PlacedWorld) -> None:
        super().__init__(world, timeout=1.0)
        self.world = world
        self.runs = 0
        self.committed: list[int] = []
        """The batches of which a driver knows that they are committed."""
        self.returned: set[int] = set()
        """Those of which commit has returned, so that they are visible."""

    async def write(self, batch: int) -> None:
        """Write a batch, as a driver that was started again would."""
        self.runs += 1
        sink = self.client.sink("lake", owner="query", run=f"run {self.runs}")
        while True:
            try:
                attempts = [await sink.begin(batch) for _ in range(2)]
                parts = []
                for number, attempt in enumerate(attempts):
                    if isinstance(attempt, SinkCommit):
                        self.committed.append(batch)
                        return
                    values = [b"%d/%d" % (batch, row) for row in range(number, ROWS, 2)]
                    await attempt.stage_records("spread", values, keys=values)
                    parts.append(await attempt.seal())
                await sink.commit(batch, parts)
            except ViewstampError:
                await asyncio.sleep(0.05)
            else:
                self.committed.append(batch)
                self.returned.add(batch)
                return

    async def write_keys(self) -> None:
        """Append records beside the batches until ``is_over``."""
        while not self.is_over:
            value = b"%06d" % next(self.numbers)
            with suppress(ViewstampError):
                await self.client.append("spread", value, key=value)
            await asyncio.sleep(0.1)

    async def all_records(self) -> list[SpreadRecord]:
        return [record async for record in self.client.read("spread")]

    async def watch(self) -> None:
        """Read the topic again and again, and check what is seen."""
        while not self.is_over:
            returned = set(self.returned)
            with suppress(ViewstampError):
                self.check(await self.all_records(), returned)
            await asyncio.sleep(0.2)

    def check(self, records: list[SpreadRecord], returned: set[int]) -> None:
        assert [each.position for each in records] == list(range(1, len(records) + 1))
        values = [bytes(each.value) for each in records]
        assert len(set(values)) == len(values), "a record is there twice"
        batches: dict[int, int] = {}
        for value in values:
            if b"/" in value:
                batch = int(value.partition(b"/")[0])
                batches[batch] = batches.get(batch, 0) + 1
        assert set(batches.values()) <= {ROWS}, f"a part of a batch is visible: {batches}"
        assert returned <= batches.keys(), f"of {returned} only {sorted(batches)} are visible"


class Steps:
    """Conditions on the applied states of a world: how far a batch has come."""

    def __init__(self, world: PlacedWorld, topic: SpreadTopicInfo) -> None:
        self.world = world
        self.groups = sorted(set(topic.groups))

    def parts(self, group: GroupId) -> list[GroupPart]:
        leader = leader_of(self.world, group)
        hosted = leader.group(group) if leader is not None else None
        return hosted.machine.query(GroupPartsQuery()) if hosted is not None else []

    @property
    def is_pending(self) -> bool:
        leader = leader_of(self.world, GROUP_0)
        hosted = leader.group(GROUP_0) if leader is not None else None
        return hosted is not None and hosted.machine.query(HasPartsCommitsQuery())

    def all(self) -> list[Callable[[], bool]]:
        """Return the steps of a batch: a part is begun, all are; it is decided; a part is placed, all are; released."""

        def each_is_placed() -> bool:
            found = [part for each in self.groups for part in self.parts(each)]
            return all(map(self.parts, self.groups)) and all(part.is_placed for part in found)

        return [
            lambda: any(map(self.parts, self.groups)),
            lambda: all(map(self.parts, self.groups)),
            lambda: self.is_pending,
            lambda: any(part.is_placed for each in self.groups for part in self.parts(each)),
            each_is_placed,
            lambda: not self.is_pending and any(map(self.parts, self.groups)),
        ]


def dies_at(world: PlacedWorld, driver: Driver, steps: Steps, batch: int, victim: str) -> bool:
    """Write a batch; kill the victim at the step of the same number. Return whether the step was seen."""
    condition = steps.all()[batch]
    task = driver.process.spawn(driver.write(batch))
    is_seen = world.loop.run_until(lambda: condition() or task.done(), seconds=30.0) and not task.done()
    if victim == "driver":
        task.cancel()
        task = driver.process.spawn(driver.write(batch))
    else:
        member = leader_of(world, GROUP_0 if victim == "group 0" else steps.groups[0])
        if member is not None:
            die(world, member)
    assert world.loop.run_until(task.done, seconds=60.0), world.describe()
    task.result()
    return is_seen


@pytest.mark.parametrize("victim", ["driver", "group 0", "first group"])
def test_a_batch_is_visible_at_one_moment_and_once_whoever_dies_at_each_step(victim: str) -> None:
    world = PlacedWorld(4, CALM, number=0)
    try:
        topic = begin(world, groups=2)
        world.writers.stop()
        driver = Driver(world)
        watching = driver.process.spawn(driver.watch())
        appending = driver.process.spawn(driver.write_keys())
        steps = Steps(world, topic)
        reached = 0
        for batch in range(len(steps.all())):
            reached += dies_at(world, driver, steps, batch, victim)
        assert reached >= 3, "the steps are not seen"
        finish(world, driver, [watching, appending], len(steps.all()))
        assert not any(map(steps.parts, steps.groups)), "parts are left"
    finally:
        world.close()


@pytest.mark.parametrize("seed", [7])
def test_batches_survive_faults_and_lost_disks(seed: int) -> None:
    world = PlacedWorld(seed, replace(PLACED, seconds=2.0), number=0)
    try:
        begin(world, groups=2)
        world.writers.stop()
        driver = Driver(world)
        watching = driver.process.spawn(driver.watch())
        faults = Faults(world, world.loop.entropy("faults"))
        faults.start()
        batch = 0
        for batch in range(4):
            task = driver.process.spawn(driver.write(batch))
            pass_time(world, 0.6)
            if not task.done():
                task.cancel()
        faults.stop()
        world.calm()
        last = driver.process.spawn(driver.write(batch))
        assert world.loop.run_until(last.done, seconds=60.0), world.describe()
        finish(world, driver, [watching], 1)
    finally:
        world.close()


def test_a_commit_and_the_appends_behind_it_wait_for_no_round() -> None:
    """The simulated network takes milliseconds, and a round 0.25 s. The first commit of a cluster waits for a probe."""
    world = PlacedWorld(1, replace(CALM, seconds=0.0), number=0)
    try:
        begin(world, groups=2)
        world.writers.stop()
        driver = Driver(world)
        commits: list[float] = []
        appends: list[float] = []

        async def append(number: int) -> None:
            await asyncio.sleep(number * 1e-3)
            began = world.loop.time()
            await driver.client.append("spread", b"x", key=b"%d" % number, ordered=True)
            appends.append(world.loop.time() - began)

        async def write() -> None:
            sink = driver.client.sink("lake", owner="query", run="one")
            for batch in range(9):
                attempt = await sink.begin(batch)
                assert isinstance(attempt, Attempt)
                values = [b"%d/%d" % (batch, row) for row in range(ROWS)]
                await attempt.stage_records("spread", values, keys=values)
                sealed = await attempt.seal()
                beside = [driver.process.spawn(append(number)) for number in range(4 if batch % 2 else 0)]
                began = world.loop.time()
                await sink.commit(batch, [sealed])
                commits.append(world.loop.time() - began)
                for task in beside:
                    await task
                await asyncio.sleep(0.3)

        driver.run(write())
        assert max(commits[1:]) < 0.05
        assert max(appends) < 0.05
        driver.client._close()
    finally:
        world.close()


def test_a_stream_is_sealed_behind_the_batches_that_have_records_for_it() -> None:
    world = PlacedWorld(3, CALM, number=0)
    try:
        topic = begin(world, groups=2)
        world.writers.stop()
        driver = Driver(world)
        sink = driver.client.sink("lake", owner="query", run="one")

        async def stage() -> list[object]:
            attempt = await sink.begin(0)
            assert isinstance(attempt, Attempt)
            await attempt.stage_records(
                "spread", [b"0/%d" % row for row in range(ROWS)], keys=[b"%d" % row for row in range(ROWS)]
            )
            return [await attempt.seal()]

        parts = driver.run(stage())
        world.ask(lambda client: client.seal_stream("spread", 1, into=2))
        pass_time(world, 1.0)
        assert described(world).phase_of(1) == "closing", "a sealed part may still get records of the stream"
        driver.run(sink.commit(0, parts))
        has_sealed(world, 1)
        driver.returned.add(0)
        driver.run(driver.write(1))
        assert driver.returned == {0, 1}
        assert topic.streams == 4
        finish(world, driver, [], 2)
    finally:
        world.close()


def has_released(world: PlacedWorld) -> bool:
    """Return whether no batch is decided and not visible. The first ORDER waits for a probe of all members."""
    leader = leader_of(world, GROUP_0)
    hosted = leader.group(GROUP_0) if leader is not None else None
    return hosted is not None and not hosted.machine.query(HasPartsCommitsQuery())


def finish(world: PlacedWorld, driver: Driver, tasks: list[asyncio.Task[None]], batches: int) -> None:
    world.calm()
    assert world.loop.run_until(lambda: has_released(world), seconds=60.0), world.describe()
    pass_time(world, 1.0)
    driver.is_over = True
    assert world.loop.run_until(lambda: all(task.done() for task in tasks), seconds=60.0)
    for task in tasks:
        task.result()
    records = driver.run(driver.all_records())
    driver.check(records, driver.returned)
    assert sum(b"/" in bytes(each.value) for each in records) >= batches * ROWS
    assert set(driver.committed) <= {
        int(bytes(each.value).partition(b"/")[0]) for each in records if b"/" in each.value
    }
    world.finish(names_min=1)
    driver.client._close()
