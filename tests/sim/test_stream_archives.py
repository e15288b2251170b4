"""Archives of a topic with streams in simulated clusters: whatever fails, each record is in a log or a whole run."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.mutants.catalogue import CATALOGUE
from tests.sim.test_groups import CALM, PLACED, PlacedWorld
from tests.sim.test_sealing import KEYS, Keeper, begin, described, finish, pass_time, seal
from viewstamp.archive.run_store import RunObjects
from viewstamp.archive.store import DirectoryObjects
from viewstamp.client.stream_archives import StreamRunInfo
from viewstamp.errors import StorageError, UnavailableError
from viewstamp.ids import GROUP_0, ClusterId, GroupId, Position, RunId, TopicId
from viewstamp.node.archive_queries import ArchivableTopic, ArchivedRun, ArchiveQuery
from viewstamp.node.archived import LoadedRecords
from viewstamp.node.state_machine import TopicsQuery
from viewstamp.sim.cluster import Member
from viewstamp.sim.disk import SimulatedDisk, Volume
from viewstamp.sim.faults import Faults
from viewstamp.sim.run import run_seed
from viewstamp.sim.run_format import SimpleKeys, SimpleRuns
from viewstamp.sim.swarm import Swarm

SMALL = {"segment_bytes": 4 * 1024, "snapshot_bytes": 4 * 1024}
_ROOT = "/store"


class Store:
    """The store of all members. ``is_away``: its calls fail now. ``failures`` counts those."""

    def __init__(self, world: PlacedWorld) -> None:
        self.world = world
        self.volume = Volume()
        self.is_away = False
        self.failures = 0
        self.entropy = world.loop.entropy("stream-store")
        self.loads = 0

    def runs_of(self, member: Member) -> RunObjects:
        disk = SimulatedDisk(f"{member.name}-store", loop=self.world.loop)
        disk.volume = self.volume
        return _Runs(self, DirectoryObjects(disk, _ROOT), GROUP_0)

    def call(self) -> None:
        """Fail if the store is away, sometimes also otherwise while faults go on."""
        if self.is_away:
            self.failures += 1
            raise UnavailableError("the store is away", remedy="wait")

    def names(self, group: int) -> set[int]:
        """Return the ids of the objects of a group, complete or not."""
        folder = f"{_ROOT}/simulated@{group}"
        return {int(name.partition(".")[0]) for name in self.volume.names(folder)}


class _Runs(RunObjects):
    """The runs of a group as the process of a member uses them."""

    def __init__(self, store: Store, objects: DirectoryObjects, group: GroupId) -> None:
        super().__init__(objects, ClusterId("simulated"), SimpleRuns(), SimpleKeys(), group)
        self._seen = store
        self._objects = objects

    def of_group(self, group: GroupId) -> RunObjects:
        return _Runs(self._seen, self._objects, group)

    def begin(self, run: RunId, topic: TopicId, first: Position, schema: str = "") -> object:  # type: ignore[override]
        self._seen.call()
        return super().begin(run, topic, first, schema)

    def check(self, run: ArchivedRun) -> Generator[int, None, None]:
        self._seen.call()
        yield from super().check(run)

    def load(self, run: ArchivedRun, position: Position) -> LoadedRecords:
        self._seen.call()
        self._seen.loads += 1
        return super().load(run, position)

    def remove(self, run: RunId) -> None:
        self._seen.call()
        super().remove(run)

    def list_sizes(self) -> dict[int, int]:
        self._seen.call()
        return super().list_sizes()


def archived_world(seed: int, swarm: Swarm) -> tuple[PlacedWorld, Store]:
    world = PlacedWorld(seed, replace(swarm, **SMALL), number=0)  # type: ignore[arg-type]
    store = Store(world)
    world.runs_of = store.runs_of  # Before the loop starts the first member.
    return world, store


def streams_of(world: PlacedWorld, member: Member) -> list[tuple[GroupId, str, ArchivableTopic]]:
    """Return the streams of a member with their runs, as it has applied them."""
    found = []
    for group in world.placer.placed:
        hosted = member.group(group)
        if hosted is not None and hosted.parts is not None:
            for topic in hosted.machine.query(TopicsQuery()):
                found.append((group, topic["name"], hosted.machine.query(ArchiveQuery(topic["name"]))))
    return found


def look(world: PlacedWorld) -> int:
    """Check the runs of each member, and return the number of committed ones."""
    committed = 0
    for member in world.members:
        if not member.is_up or member.node is None:
            continue
        for group, name, topic in streams_of(world, member):
            runs = [run for run in topic.runs if run.state == "committed"]
            committed += len(runs)
            for one, following in pairwise(runs):
                assert one.end == following.first, f"the runs of {name} do not tile: {one}, {following}"
                assert one.end_global <= following.first_global, f"the runs of {name} go back in the order"
            for run in runs:
                assert run.group == group
                assert run.end <= topic.archivable_end, f"{run} of {name} is beyond the map"
                assert run.end - run.first <= run.end_global - run.first_global
    return committed


def turn_on(world: PlacedWorld, **ages: float) -> None:
    world.ask(lambda client: client.configure_spread_topic("spread", archive=True, **ages))


def check_clean(world: PlacedWorld, store: Store) -> list[StreamRunInfo]:
    """Wait until the store has the objects of the committed runs, and nothing else; return these."""
    for _ in range(50):
        for group in world.placer.placed:
            world.ask(lambda client, group=group: client.find_stream_orphans(group, remove=True))  # type: ignore[misc]
        runs = world.ask(lambda client: client.list_stream_runs("spread"))
        if all(run.state == "committed" for run in runs) and all(
            store.names(group) == {run.id for run in runs if run.group == group} for group in world.placer.placed
        ):
            break
        pass_time(world, 0.5)
    else:
        raise AssertionError(f"{runs} {[store.names(group) for group in world.placer.placed]}")
    for run in runs:
        assert world.ask(lambda client, run=run: client.check_stream_run(run.group, run.id)) == ""  # type: ignore[misc]
    return runs


def first_indices(world: PlacedWorld) -> list[int]:
    """Return the first index of the log of each group on each member."""
    found = []
    for member in world.members:
        for group in world.placer.placed:
            hosted = member.group(group)
            found.append(int(hosted.parts.wal.first_index) if hosted is not None and hosted.parts is not None else 0)
    return found


@pytest.mark.slow
def test_streams_archive_themselves_and_a_reader_by_position_gets_what_the_logs_have_deleted() -> None:
    world, store = archived_world(1, CALM)
    try:
        begin(world)
        turn_on(world, archive_delay_seconds=0.2)
        writer = Keeper(world, timeout=20.0)
        tasks = [writer.process.spawn(writer.keep(key)) for key in KEYS]
        for _ in range(6):
            pass_time(world, 0.5)
            look(world)
        records = finish(world, writer, tasks)
        assert max(first_indices(world)) > 1, "no log was deleted"
        reader = Keeper(world, timeout=20.0)
        assert reader.run(reader.all_records()) == records
        reader.client._close()
        assert store.loads, "nothing came from a run"
        assert look(world) > 5
        assert {run.stream for run in check_clean(world, store)} == {record.stream for record in records}
    finally:
        world.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_leaders_die_and_the_store_is_away_while_streams_are_archived_and_one_ends(seed: int) -> None:
    world, store = archived_world(seed, replace(PLACED, seconds=2.0))
    try:
        begin(world)
        turn_on(world, archive_delay_seconds=0.2)
        writer = Keeper(world, timeout=[0.3, 1.0, 20.0][seed % 3])
        tasks = [writer.process.spawn(writer.keep(key)) for key in KEYS]
        pass_time(world, 0.3)
        faults = Faults(world, world.loop.entropy("faults"))
        faults.start()
        for number in range(6):
            store.is_away = number % 3 == 1
            pass_time(world, 0.4)
            with suppress(StorageError):
                look(world)
            if number == 3:
                seal(world, 1, 2)
        store.is_away = False
        faults.stop()
        records = finish(world, writer, tasks, 1)
        assert store.failures, "the store was never needed while it was away"
        world.ask(lambda client: client.archive_spread_topic("spread", delay=0.0))
        reader = Keeper(world, timeout=20.0)
        assert reader.run(reader.all_records()) == records
        reader.client._close()
        runs = check_clean(world, store)
        ends = described(world).ordered_ends
        for stream in {record.stream for record in records}:
            of_stream = [run for run in runs if run.stream == stream]
            assert of_stream[0].first_position == 1
            assert of_stream[-1].last_position == ends[stream - 1] - 1
        by_place = {(record.stream, record.stream_position): record.position for record in records}
        for run in runs:
            assert by_place[run.stream, run.first_position] == run.first_global
            assert by_place[run.stream, run.last_position] == run.last_global
    finally:
        world.close()


WORLD = Swarm(
    nodes=1,
    clients=1,
    callers=1,
    seconds=2.0,
    faults={},
    pause_seconds=0.3,
    segment_bytes=4 * 1024,
    snapshot_bytes=4 * 1024,
    archives=True,
    placed=2,
)


def test_a_run_of_a_seed_archives_its_topic_with_streams_too() -> None:
    verdict = run_seed(2, swarm=WORLD)
    assert verdict.invariant == "", verdict.detail
    assert verdict.stream_runs >= 8
    assert verdict.archived_runs


def test_a_mistake_in_the_runs_of_streams_is_found() -> None:
    with CATALOGUE["commit-unsynced"].plant():
        verdict = run_seed(2, swarm=replace(WORLD, callers=0))
    assert verdict.invariant == "CommittedIsWhole"
    assert verdict.detail.startswith("simulated@"), "group 0 has no records"
