"""The archive in simulated clusters: whatever fails, each acknowledged record is in the log or in a whole run."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO

import pytest

from tests.mutants.aims import AIMS
from tests.mutants.catalogue import CATALOGUE
from viewstamp.archive.run_file import NewRun
from viewstamp.errors import CorruptionError
from viewstamp.ids import ClusterId, Index, Position, RunId, Term, TopicId
from viewstamp.sim.archives import Archives
from viewstamp.sim.loop import SimulatedLoop
from viewstamp.sim.run import run_seed
from viewstamp.sim.run_format import SimpleRuns
from viewstamp.sim.store import read_run
from viewstamp.sim.swarm import STORE_FAULTS, Swarm, draw_swarm, with_archives
from viewstamp.sim.workload import Workload
from viewstamp.sim.world import World
from viewstamp.wire.batch import build_batch

SMALL = Swarm(
    nodes=1,
    clients=1,
    callers=2,
    seconds=6.0,
    faults={},
    pause_seconds=0.1,
    segment_bytes=4 * 1024,
    snapshot_bytes=4 * 1024,
    value_bytes_max=2000,
    archives=True,
)
FAILING = AIMS["failing stores"].swarm
assert FAILING is not None


def test_records_are_archived_and_deleted_from_the_log_and_read_again() -> None:
    """Without faults, so that the invariants alone find a mistake in a step: most are named in ``sim/archives.py``."""
    verdict = run_seed(4, swarm=SMALL)
    assert verdict.invariant == "", verdict.detail
    assert verdict.archived_runs >= 5
    assert verdict.archive_drops >= 1


def test_topics_with_settings_archive_themselves_and_delete_only_what_is_archived() -> None:
    swarm = replace(SMALL, archive_settings=True)
    verdict = run_seed(2, swarm=swarm)
    assert verdict.invariant == "", verdict.detail
    assert verdict.archived_runs >= 5
    with CATALOGUE["delete-unarchived"].plant():
        assert run_seed(2, swarm=swarm).invariant == "DeletedWasArchived"


@pytest.mark.parametrize("seed", [8, 11])
def test_a_reader_gets_each_record_once_where_the_log_divides_them_otherwise_than_a_run(seed: int) -> None:
    """Of seed 8 a reader got records twice. Of seed 11 a replay failed, because the log lacked archived records."""
    swarm = replace(SMALL, sinks=1, actors=3, value_bytes_max=200, driver_seconds=1000.0, seconds=8.0)
    verdict = run_seed(seed, swarm=replace(swarm, pause_seconds=0.15))
    assert verdict.invariant == "", verdict.detail
    assert verdict.archive_drops >= 1


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "is_bucket"), [(4, False), (6, True)])
def test_no_fault_of_the_store_or_of_a_node_loses_an_archived_record(seed: int, is_bucket: bool) -> None:
    assert FAILING is not None
    swarm = replace(FAILING, archive_bucket=is_bucket, archive_settings=is_bucket, seconds=6.0)
    verdict = run_seed(seed, swarm=swarm)
    assert verdict.invariant == "", verdict.detail
    assert verdict.archived_runs
    assert sum(count for kind, count in verdict.faults.items() if kind.startswith("store ")) >= 3


@pytest.mark.parametrize("has_settings", [False, True])
def test_nothing_is_written_or_concluded_while_the_directory_of_the_store_is_gone(has_settings: bool) -> None:
    swarm = replace(SMALL, archive_settings=has_settings, archive_faults=("gone",), fault_seconds=1.0, down_seconds=0.7)
    verdict = run_seed(4, swarm=swarm)
    assert verdict.invariant == "", verdict.detail
    assert verdict.faults["store gone"] >= 3
    assert verdict.archived_runs >= 5
    with CATALOGUE["take-any-store"].plant():
        assert run_seed(4, swarm=swarm).invariant == "CommittedIsWhole"


def test_an_object_that_is_damaged_behind_its_reader_was_read_as_a_whole() -> None:
    """A fault changes a part of the object of run 54 that n2 has read already; then n2 deletes its log."""
    verdict = run_seed(2871808683)
    assert verdict.invariant == "", verdict.detail


def test_a_member_that_dies_in_the_event_in_which_it_deletes_its_log_is_judged() -> None:
    world = World(4, SMALL)
    try:
        workload = Workload(world, world.loop.entropy("workload"))
        archives = Archives(world, workload.topics)
        [member] = world.members
        world.bring_up(member)
        workload.start()
        check_all = world.loop.after_event
        assert check_all is not None

        def die_after_a_trim() -> None:
            check_all()
            wal = member.node.group.wal if member.node is not None else None
            if member.is_up and wal is not None and wal.first_index > 1 and archives.runs:
                assert member.process is not None
                member.process.kill()

        world.loop.after_event = die_after_a_trim
        archives.start()
        world.loop.run_until(lambda: not member.is_up, seconds=60.0)
        assert member.process is not None
        assert member.process.is_dead
        assert archives.drops
    finally:
        world.close()


@pytest.mark.parametrize(
    ("mutant", "invariant"),
    [
        ("commit-unsynced", "CommittedIsWhole"),
        ("run-id-reused", "RunIdsStay"),
        ("log-dropped-unread", "NothingDroppedBefore"),
        ("look-at-a-part", "NothingDroppedBefore"),
    ],
)
def test_a_mistake_in_a_step_is_found_without_any_fault(mutant: str, invariant: str) -> None:
    with CATALOGUE[mutant].plant():
        assert run_seed(4, swarm=SMALL).invariant == invariant  # The test before shows that the real code passes it.


def test_about_one_of_seven_fresh_seeds_archives() -> None:
    swarms = []
    for seed in range(400):
        loop = SimulatedLoop(seed)
        swarm, entropy = draw_swarm(loop.entropy("swarm")), loop.entropy("archives of the swarm")
        if entropy.random() < 0.25:
            swarms.append(with_archives(swarm, entropy))
    archiving = [swarm for swarm in swarms if swarm.archives]
    assert 40 <= len(archiving) <= 90
    assert {swarm.archive_bucket for swarm in archiving} == {False, True}
    assert {swarm.archive_settings for swarm in archiving} == {False, True}
    assert {kind for swarm in archiving for kind in swarm.archive_faults} == {*STORE_FAULTS, "gone"}


def written_run() -> bytes:
    sink = BytesIO()
    run = SimpleRuns().begin(sink, NewRun(ClusterId("c1"), RunId(99), TopicId(1), Position(5)))
    for number in range(12):
        values = [b"%d %d" % (number, at) for at in range(3)]
        run.add(Term(2), Index(10 + 3 * number), 1000 + number, build_batch(values).columns())
    run.finish()
    return sink.getvalue()


def test_the_simple_run_gives_back_its_records() -> None:
    run = read_run(written_run(), "r")
    assert (run.footer.first, run.footer.end, run.footer.first_index, run.footer.end_index) == (5, 41, 10, 46)
    assert sum(run.verify()) > 0
    records = run.load(Position(20))
    assert records.first <= 20 < records.end
    [data] = records.batches(Position(20), 1)
    assert b"5 0" in bytes(data)


def test_a_flipped_byte_anywhere_in_a_simple_run_is_found() -> None:
    whole = written_run()
    for at in range(len(whole)):
        data = whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]
        with pytest.raises(CorruptionError):
            list(read_run(data, "r").verify())
    for end in range(0, len(whole), 7):
        with pytest.raises(CorruptionError):
            list(read_run(whole[:end], "r").verify())
