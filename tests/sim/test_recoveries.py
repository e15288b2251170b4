"""Recoveries of a cluster with groups from a minority of the disks of a simulated run with faults.

Clients append to a topic with streams, and one reads it in its order. Now and then a node is cut off for some time, so
that it lags. Then all machines lose power at one moment, and some of their disks are recovered.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tests.sim.kept_records import kept_records
from tests.sim.test_forks import images_of
from tests.sim.test_groups import CALM, PlacedWorld
from tests.sim.test_lost_streams import Loser
from tests.sim.test_sealing import KEYS, pass_time
from tests.sim.test_spread_appends import spread
from viewstamp.client import Receipt, SpreadTopicInfo
from viewstamp.client.results import SpreadRecord
from viewstamp.errors import UnavailableError
from viewstamp.fork import Basis, ForkSource, GroupsRecovery, NewMember, fork, judge_source, plan_groups, possible_loss
from viewstamp.fork.build import remove_files
from viewstamp.ids import NodeId, Stream
from viewstamp.node.data_dir import directories_of_groups
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.volume import Volume, VolumeImage
from viewstamp.wire.batch import Record

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Copied:
    """The disks of all machines at one moment, and what was acknowledged and read before it."""

    image: VolumeImage
    directories: list[str]
    acknowledged: dict[bytes, Receipt]
    seen: list[SpreadRecord]

    def disk(self) -> SimulatedDisk:
        disk = SimulatedDisk("copy")
        disk.volume = Volume.from_image(self.image)
        return disk


def run(seed: int, copies: int) -> tuple[list[Copied], SpreadTopicInfo, dict[bytes, list[bytes]]]:
    """Run a world, and copy its disks; return the copies, the topic, and the values of each key in their order."""
    world = PlacedWorld(seed, CALM, number=0)
    try:
        groups = [world.place(f"s{number}") for number in range(3)]
        assert world.loop.run_until(lambda: all(world.writers.acknowledged[each] for each in groups), seconds=60.0)
        topic = spread(world, groups, 3)
        world.writers.stop()
        writer, reader = Loser(world, timeout=2.0), Loser(world, timeout=2.0)
        seen: list[SpreadRecord] = []

        async def read() -> None:
            while not writer.is_over:
                try:
                    async for record in reader.client.read("spread", int(seen[-1].position) + 1 if seen else 1):
                        seen.append(record)
                except UnavailableError:
                    pass
                await asyncio.sleep(0.02)

        tasks = [writer.process.spawn(writer.keep(key)) for key in KEYS]
        tasks.append(reader.process.spawn(read()))
        entropy = world.loop.entropy("copies")
        taken: list[Copied] = []
        for _ in range(copies):
            pass_time(world, entropy.uniform(0.3, 1.5))
            cut_off = entropy.choice(world.members).name
            world.network.isolate(cut_off, [each.name for each in world.members if each.name != cut_off])
            pass_time(world, entropy.choice((0.05, 0.3, 1.5)))
            if entropy.random() < 0.5:
                world.network.heal()
                pass_time(world, entropy.choice((0.0, 0.02, 0.5)))
            image, directories = images_of(world)
            world.network.heal()
            taken.append(Copied(image, directories, dict(writer.receipts), list(seen)))
        writer.is_over = True
        assert world.loop.run_until(lambda: all(task.done() for task in tasks), seconds=120.0), world.describe()
        for task in tasks:
            task.result()
        world.finish(names_min=1)
        return taken, topic, writer.sent
    finally:
        world.close()


def recovered(disk: SimulatedDisk, sources: Sequence[str]) -> tuple[ForkSource, GroupsRecovery, ForkSource]:
    """Recover these disks; return what they had, the plan, and what the new cluster has."""
    source = judge_source(disk, sources, basis=Basis.SURVIVORS, with_groups=True)
    plan = plan_groups(disk, source)
    members = [NewMember(node=NodeId("n1"), address="n1:1", directory="/new")]
    fork(disk, source, cluster="recovered", members=members, entropy=random.Random(2), segment_bytes=1 << 16)
    return source, plan, judge_source(disk, ["/new"], with_groups=True)


def check(
    copied: Copied, disk: SimulatedDisk, sources: Sequence[str], topic: SpreadTopicInfo, sent: dict[bytes, list[bytes]]
) -> tuple[int, int, int]:
    """Recover, and check what is there.

    Returns:
      The numbers of lost positions, of streams that are given up, and of acknowledged records that are lost.
    """
    source, found, new = recovered(disk, sources)
    home, groups, records = kept_records(disk, new)
    positions: dict[int, Record] = {}
    rests = {each.number: each for each in found.plan.streams}
    lost = {at for hole in found.plan.lost_positions for at in range(hole.first, hole.end)}
    known = {
        (each.placed.id, loss.name): loss.known
        for each in source.groups
        if not each.is_lost
        for loss in possible_loss(each.source).topics
    }
    at_stream: dict[tuple[int, int], int] = {}
    for number in range(1, topic.streams + 1):
        stream = Stream(topic.group_of(number), topic.topic_of(number))
        for local in range(1, home.order.ordered_end(stream)):
            at = home.order.find_global(stream, local) or groups[stream.group].maps.find_global(stream.name, local)
            assert at is not None
            assert at not in positions, "two records have one position"
            positions[at] = records[stream][local]
            at_stream[number, local] = at
    end = home.order.next_position("spread")
    doubtful = min([end, *(each.first for each in found.plan.doubtful)])
    assert set(positions) | lost == set(range(1, end)), "the positions do not tile"
    assert not lost & set(positions)
    missing = 0
    for value, receipt in copied.acknowledged.items():
        assert receipt.stream is not None
        stream = Stream(topic.group_of(receipt.stream), topic.topic_of(receipt.stream))
        record = records.get(stream, {}).get(receipt.position)
        missing += record is None or record.value != value
        is_named = receipt.position > known.get((stream.group, stream.name), 0)
        assert is_named or (record is not None and record.value == value), f"{receipt} is lost, and not named"
    for read in copied.seen:
        at = at_stream.get((read.stream, int(read.stream_position)), 0)
        is_same = at == read.position and positions[at].value == read.value
        rest, local = rests[read.stream], int(read.stream_position)
        is_behind = local >= rest.kept_end or local > known.get((rest.group, topic.topic_of(read.stream)), 0)
        is_named = read.position in lost or read.position >= doubtful or is_behind
        assert is_same or is_named, f"a reader saw {read}, and it is at {at} now"
        assert positions.get(int(read.position), read).value == read.value or is_named, "given again"
    for key, values in sent.items():
        of_key = [bytes(each.value) for _, each in sorted(positions.items()) if each.key == key]
        assert of_key == [value for value in values if value in set(of_key)], f"{key!r} has lost its order"
    return len(lost), sum(each.is_given_up for each in found.plan.streams), missing


@pytest.mark.parametrize("seed", [3])
def test_one_disk_of_three_goes_on_with_one_order_and_names_what_it_lacks(seed: int) -> None:
    copies, topic, sent = run(seed, 4)
    lost = [
        check(copied, copied.disk(), [directory], topic, sent) for copied in copies for directory in copied.directories
    ]
    assert len(copies[-1].acknowledged) > 200
    assert copies[-1].seen
    assert any(missing for _, _, missing in lost), "no survivor lacked an acknowledged record"


@pytest.mark.parametrize("seed", [5])
def test_groups_that_are_left_on_different_disks_go_on_together(seed: int) -> None:
    copies, topic, sent = run(seed, 4)
    entropy = random.Random(seed)
    losses = given_up = 0
    for copied in copies:
        for _ in range(4):
            disk, names = copied.disk(), entropy.sample(copied.directories, 2)
            for name in names:
                for path in directories_of_groups(disk, name).values():
                    if entropy.random() < 0.6:
                        remove_files(disk, path)
            counts = check(copied, disk, names, topic, sent)
            losses += bool(counts[0])
            given_up += bool(counts[1])
    assert losses
    assert given_up
