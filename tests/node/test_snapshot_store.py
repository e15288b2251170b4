"""The snapshot directory lists only whole snapshots, after any crash, full disk, damage or repeated transfer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.snapshots import DIRECTORY, make_meta, make_pieces, open_store, send, write
from viewstamp.errors import ConfigError, CorruptionError, StorageError, StorageFullError, TrimmedError
from viewstamp.host.disk import RealDisk
from viewstamp.node.snapshots.file import TRAILER_SIZE, adapt_trailer, encode_header
from viewstamp.node.snapshots.store import SnapshotStore, StoredSnapshot
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedLoop


@pytest.fixture(name="loop")
def _loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop(seed=1)
    yield loop
    loop.close()


@pytest.fixture(name="disk")
def _disk(loop: SimulatedLoop) -> SimulatedDisk:
    return SimulatedDisk("n1", loop=loop)


Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(name="run")
def _run(loop: SimulatedLoop) -> Run:
    return loop.run_until_complete


def ends(store: SnapshotStore) -> list[int]:
    return [each.end for each in store.stored]


# writing and opening


def test_finished_snapshots_are_found_after_a_restart_newest_first(disk: SimulatedDisk, run: Run) -> None:
    store = open_store(disk)
    assert store.stored == []
    written = [run(write(store, end)) for end in (10, 30, 20)]
    assert ends(store) == [30, 20, 10]
    again = open_store(disk)
    assert again.stored == store.stored == [written[1], written[2], written[0]]
    for stored in again.stored:
        assert list(again.load(stored)) == make_pieces(stored.end)
        assert stored.meta == make_meta(stored.end)
        assert stored.size == disk.open_read(stored.path).size()
    assert disk.list_directory(DIRECTORY)[0] == "00000000000000000010-1.snapshot"
    assert again.find(20, 1) == written[2]
    assert again.find(20, 2) is None


def test_an_abandoned_or_cancelled_snapshot_leaves_no_file(disk: SimulatedDisk, run: Run, loop: SimulatedLoop) -> None:
    store = open_store(disk)

    async def abandon() -> None:
        new = await store.create(make_meta(10))
        await new.add(b"x" * 1_000_000)
        await new.abandon()
        await new.abandon()

    run(abandon())
    assert disk.list_directory(DIRECTORY) == []
    for steps in range(1, 400):
        task = loop.create_task(write(store, 10, pieces=[b"x" * 600_000]))
        for _ in range(steps):
            loop.step()
        if task.done():
            break
        task.cancel()
        run(asyncio.wait([task]))
        loop.run_for(1)
        for path in disk.list_directory(DIRECTORY):
            # A cancellation during creation may leave the temporary file; one during the rename leaves a listed
            # snapshot.
            assert path.endswith(".temporary") or ends(store) == [10]
        open_store(disk)
        assert all(path.endswith(".snapshot") for path in disk.list_directory(DIRECTORY))
    assert steps > 20
    assert task.done()


def test_leftovers_are_removed_and_foreign_files_are_left_alone(disk: SimulatedDisk) -> None:
    disk.make_directory(DIRECTORY)
    for name in ("00000000000000000010-1.temporary", "00000000000000000010-1.incoming", "notes.txt", "1-1.snapshot"):
        disk.open(f"{DIRECTORY}/{name}", create=True).write(0, [b"half"])
    store = open_store(disk)
    assert (store.stored, store.damaged) == ([], [])
    assert disk.list_directory(DIRECTORY) == ["00000000000000000010-1.incoming", "1-1.snapshot", "notes.txt"]


def test_a_damaged_one_is_listed_as_such_and_goes_when_a_newer_one_is_there(disk: SimulatedDisk, run: Run) -> None:
    store = open_store(disk)
    header, trailer, middle = (run(write(store, end)) for end in (10, 20, 30))
    disk.flip(header.path, 20)
    disk.flip(trailer.path, trailer.size - 3)
    disk.flip(middle.path, middle.size // 2)
    again = open_store(disk)
    assert ends(again) == [30], "the header and the trailer are checked"
    assert [(each.path, each.end) for each in again.damaged] == [(header.path, 10), (trailer.path, 20)]
    with pytest.raises(CorruptionError) as caught:
        list(again.load(again.stored[0]))
    assert caught.value.path == middle.path
    assert 0 < caught.value.location <= middle.size // 2
    again.set_aside(again.stored[0], caught.value)
    assert again.stored == []
    assert run(again.prune(None, 6)) == []
    assert len(disk.list_directory(DIRECTORY)) == 3, "damaged snapshots stay while there are no others"
    run(write(again, 40))
    assert sorted(run(again.prune(None, 6))) == [header.path, trailer.path, middle.path]
    assert again.damaged == []
    assert disk.list_directory(DIRECTORY) == ["00000000000000000040-1.snapshot"]


def test_one_that_is_gone_or_renamed_is_damage(disk: SimulatedDisk, run: Run) -> None:
    store = open_store(disk)
    gone, renamed = run(write(store, 10)), run(write(store, 20))
    disk.remove(gone.path)
    with pytest.raises(CorruptionError, match="is gone"):
        list(store.load(gone))
    disk.rename(renamed.path, f"{DIRECTORY}/00000000000000000021-1.snapshot")
    again = open_store(disk)
    assert again.stored == []
    assert "holds the snapshot 1.20" in again.damaged[0].error.message


def test_a_snapshot_of_another_cluster_is_refused(disk: SimulatedDisk, run: Run) -> None:
    stored = run(write(open_store(disk), 10))
    with pytest.raises(ConfigError, match=f"{stored.path} is of cluster c1, this node is of c2") as caught:
        open_store(disk, "c2")
    assert "data_dir" in caught.value.remedy


@pytest.mark.parametrize(("own", "other"), [(0, 7), (7, 0), (7, 8), (2**32 + 6, 8)])
def test_a_snapshot_of_another_group_is_refused(disk: SimulatedDisk, run: Run, own: int, other: int) -> None:
    stored = run(write(open_store(disk, group=own), 10))
    assert ends(open_store(disk, group=own)) == [10]
    with pytest.raises(
        ConfigError, match=rf"{stored.path} is of group \d+, and its .* that of group {other}"
    ) as caught:
        open_store(disk, group=other)
    assert "nothing was changed" in caught.value.remedy
    assert ends(open_store(disk, group=own)) == [10]


def test_a_snapshot_of_a_release_that_did_not_write_the_group_is_read_in_each(disk: SimulatedDisk, run: Run) -> None:
    stored = run(write(open_store(disk), 10))
    header = encode_header(make_meta(10, group=None))
    file = disk.open(stored.path)
    trailer, _ = adapt_trailer(file.read(stored.size - TRAILER_SIZE, TRAILER_SIZE), header)
    file.write(0, [header])
    file.write(stored.size - TRAILER_SIZE, [trailer])
    for group in (0, 7):
        store = open_store(disk, group=group)
        assert b"".join(store.load(store.stored[0])) == b"".join(make_pieces(10))


def test_the_same_viewstamp_again_replaces_the_file(disk: SimulatedDisk, run: Run) -> None:
    store = open_store(disk)
    first = run(write(store, 10))
    second = run(write(store, 10, created_us=5))
    assert first.identity != second.identity
    assert store.stored == [second]
    assert open_store(disk).stored == [second]


# retention


def test_pruning_removes_snapshots_below_the_base_except_those_in_use(disk: SimulatedDisk, run: Run) -> None:
    store = open_store(disk)
    for end in (10, 20, 30, 40):
        run(write(store, end))
    base = store.base(None)
    assert base is not None
    assert base.end == 30
    held = store.stored[-1]
    assert run(store.prune(base, 6, held=[held])) == [f"{DIRECTORY}/00000000000000000020-1.snapshot"]
    assert ends(store) == ends(open_store(disk)) == [40, 30, 10]
    run(store.prune(base, 6))
    assert ends(store) == ends(open_store(disk)) == [40, 30]
    assert store.base(None, pressed=True) == store.stored[0]
    nothing = store.base(make_meta(5).end)
    assert nothing is None
    run(store.remove(store.stored[0]))
    assert ends(store) == ends(open_store(disk)) == [30]


# a full disk, a failing disk


def test_a_full_disk_leaves_nothing_and_a_later_attempt_works(disk: SimulatedDisk, run: Run) -> None:
    store = open_store(disk)
    run(write(store, 10))
    used = disk.volume.bytes_used()
    for room in (0, 100, 300_000, 600_010):
        disk.capacity_bytes = used + room
        with pytest.raises(StorageFullError):
            run(write(store, 20, pieces=[b"x" * 300_000, b"y" * 300_000]))
        assert disk.list_directory(DIRECTORY) == ["00000000000000000010-1.snapshot"]
        assert ends(store) == [10]
    disk.capacity_bytes = used + 700_000
    run(write(store, 20, pieces=[b"x" * 300_000, b"y" * 300_000]))
    assert ends(store) == ends(open_store(disk)) == [20, 10]


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "open"])
def test_a_failing_disk_leaves_nothing_that_is_listed(disk: SimulatedDisk, run: Run, operation: str) -> None:
    store = open_store(disk)
    run(write(store, 10))
    for after in range(2):
        disk.fail(operation, after)
        try:
            run(write(store, 20))
        except StorageError:
            assert ends(store) == [10]
            assert not [name for name in disk.list_directory(DIRECTORY) if name.endswith(".temporary")]
        for stored in open_store(disk).stored:
            assert list(store.load(stored)) == make_pieces(stored.end)
        disk.fail(operation, 1000)
        store = open_store(disk)
        if ends(store) == [20, 10]:
            run(store.remove(store.stored[0]))


# receiving


@pytest.fixture(name="source")
def _source(loop: SimulatedLoop) -> SnapshotStore:
    return open_store(SimulatedDisk("n2", loop=loop))


def test_a_snapshot_received_in_parts_over_restarts_is_the_same_snapshot(
    disk: SimulatedDisk, run: Run, source: SnapshotStore
) -> None:
    stored = run(write(source, 10, pieces=make_pieces(10, count=30, size=50_000)))
    store = open_store(disk)
    offsets = [0]
    while not store.stored:

        async def transfer(store: SnapshotStore, held: int) -> None:
            incoming = await store.receive(10, 1)
            assert held - 50_000 <= incoming.offset <= held, "at most the unfinished piece is lost"
            await send(source, stored, incoming, chunks_max=60)
            offsets.append(incoming.offset)
            if incoming.is_complete:
                await incoming.finish()
                await incoming.discard()
            await incoming.close()

        run(transfer(store, offsets[-1]))
        store = open_store(disk)
    assert offsets == sorted(offsets)
    assert len(offsets) > 3
    assert list(store.load(store.stored[0])) == list(source.load(stored))
    assert disk.list_directory(DIRECTORY) == ["00000000000000000010-1.snapshot"]


def test_bytes_that_come_twice_late_or_beyond_the_end_change_nothing(
    disk: SimulatedDisk, run: Run, source: SnapshotStore
) -> None:
    stored = run(write(source, 10))
    store = open_store(disk)

    async def transfer() -> None:
        data = await source.read_chunk(stored, 0, stored.size)
        incoming = await store.receive(10, 1)

        async def add(start: int, end: int, junk: bytes = b"") -> None:
            await incoming.add(data[start:end] + junk, offset=start, size=stored.size, identity=stored.identity)

        await add(0, 700)
        await add(0, 700)
        await add(900, 1000)
        await add(200, 900)
        assert incoming.offset == 700
        assert not incoming.is_complete
        await add(700, stored.size, b"junk")
        assert incoming.is_complete
        await add(100, 200)
        assert (await incoming.finish()).identity == stored.identity

    run(transfer())
    assert list(store.load(store.stored[0])) == make_pieces(10)


@pytest.mark.parametrize("restarts", [False, True])
def test_another_members_snapshot_of_the_same_viewstamp_is_noticed_at_once(
    disk: SimulatedDisk, run: Run, source: SnapshotStore, loop: SimulatedLoop, restarts: bool
) -> None:
    """The leader changed during the transfer, and the bytes of the new one's snapshot differ."""
    other = open_store(SimulatedDisk("n3", loop=loop))
    theirs = run(write(source, 10))
    others = run(write(other, 10, created_us=7))
    assert theirs.size != others.size or theirs.identity != others.identity
    store = open_store(disk)

    async def transfer() -> None:
        incoming = await store.receive(10, 1)
        await send(source, theirs, incoming, chunks_max=2)
        if restarts:
            await incoming.close()
            incoming = await store.receive(10, 1)
        before = incoming.offset
        assert before > 0
        data = await other.read_chunk(others, before, 500)
        await incoming.add(data, offset=before, size=others.size, identity=others.identity)
        assert incoming.offset == 0
        await send(other, others, incoming)
        assert (await incoming.finish()).identity == others.identity

    run(transfer())
    assert list(store.load(store.stored[0])) == make_pieces(10)


def test_a_wrong_bit_on_the_way_is_found_before_anything_is_listed(
    disk: SimulatedDisk, run: Run, source: SnapshotStore
) -> None:
    stored = run(write(source, 10))
    store = open_store(disk)
    for at in range(0, stored.size, 97):
        source._disk.flip(stored.path, at, at % 8)  # type: ignore[attr-defined]

        async def transfer() -> None:
            incoming = await store.receive(10, 1)
            await send(source, stored, incoming)
            await incoming.finish()

        with pytest.raises(CorruptionError):
            run(transfer())
        assert store.stored == []
        assert disk.list_directory(DIRECTORY) == []
        source._disk.flip(stored.path, at, at % 8)  # type: ignore[attr-defined]


def test_a_snapshot_of_another_cluster_group_or_viewstamp_is_not_taken_in(
    disk: SimulatedDisk, run: Run, loop: SimulatedLoop
) -> None:
    store = open_store(disk)
    foreign = open_store(SimulatedDisk("n3", loop=loop), "c2")
    stored = run(write(foreign, 10))

    async def transfer(source: SnapshotStore, stored: StoredSnapshot, end: int) -> None:
        incoming = await store.receive(end, 1)
        await send(source, stored, incoming)
        await incoming.finish()

    with pytest.raises(ConfigError, match="of cluster c2, this node is of c1"):
        run(transfer(foreign, stored, 10))
    other = open_store(SimulatedDisk("n5", loop=loop), group=7)
    with pytest.raises(ConfigError, match="is of group 7, and its directory is that of group 0"):
        run(transfer(other, run(write(other, 10)), 10))
    mine = open_store(SimulatedDisk("n4", loop=loop))
    with pytest.raises(CorruptionError, match=r"received the snapshot 1\.10 in place of 1\.11"):
        run(transfer(mine, run(write(mine, 10)), 11))
    assert (store.stored, disk.list_directory(DIRECTORY)) == ([], [])


def test_there_is_one_incoming_at_a_time_and_none_where_there_is_no_room(
    disk: SimulatedDisk, run: Run, source: SnapshotStore
) -> None:
    first, second = run(write(source, 10)), run(write(source, 20))
    store = open_store(disk)

    async def transfer() -> None:
        incoming = await store.receive(10, 1)
        await send(source, first, incoming, chunks_max=3)
        await incoming.close()
        incoming = await store.receive(20, 1)
        await send(source, second, incoming, chunks_max=3)
        assert disk.list_directory(DIRECTORY) == ["00000000000000000020-1.incoming"]
        await incoming.close()
        disk.capacity_bytes = disk.volume.bytes_used() + 100
        incoming = await store.receive(20, 1)
        with pytest.raises(StorageFullError, match="bytes free, the snapshot that is offered needs"):
            await send(source, second, incoming)
        assert disk.list_directory(DIRECTORY) == []

    run(transfer())


def test_one_that_was_removed_cannot_be_sent_on(disk: SimulatedDisk, run: Run) -> None:
    store = open_store(disk)
    stored, newest = run(write(store, 10)), run(write(store, 20))
    run(store.remove(stored))
    with pytest.raises(TrimmedError, match=r"1\.10 is not kept") as caught:
        run(store.read_chunk(stored, 0, 100))
    assert caught.value.first == newest.end
    assert run(store.read_chunk(newest, newest.size - 10, 100)).endswith(b"VSNEND\0\0")


# crashes at every disk call


LARGE = [b"x" * 150_000] * 4
Script = Callable[[SnapshotStore, SnapshotStore, list[int]], Coroutine[Any, Any, None]]


async def write_one(store: SnapshotStore, source: SnapshotStore, promised: list[int]) -> None:
    """Write one snapshot that takes several writes."""
    await write(store, 40, pieces=LARGE)
    promised.append(40)


async def receive_one(store: SnapshotStore, source: SnapshotStore, promised: list[int]) -> None:
    """Receive a snapshot, interrupted in the middle as by a lost connection."""
    stored = source.stored[0]
    for chunks in (2, -1):
        incoming = await store.receive(stored.end, stored.term)
        await send(source, stored, incoming, chunk=1500, chunks_max=chunks)
        if incoming.is_complete:
            await incoming.finish()
            promised.append(stored.end)
        else:
            await incoming.close()


async def write_and_prune(store: SnapshotStore, source: SnapshotStore, promised: list[int]) -> None:
    """Write a new snapshot and prune, as in normal operation."""
    await write(store, 40)
    promised.append(40)
    promised.remove(10)
    promised.remove(20)
    await store.prune(store.base(None), 6)
    assert ends(store) == [40, 30]


SCRIPTS: list[Script] = [write_one, receive_one, write_and_prune]


def run_until_dead(
    loop: SimulatedLoop, disk: SimulatedDisk, script: Script, call: int | None, *, cut: random.Random | None
) -> tuple[list[int], bool]:
    """Run ``script`` on a store of three snapshots; crash at disk call number ``call``.

    Return the snapshots that must be present, and whether the crash happened.
    """
    source = open_store(SimulatedDisk("n2", loop=loop))
    loop.run_until_complete(write(source, 40))
    store = open_store(disk)
    for end in (10, 20, 30):
        loop.run_until_complete(write(store, end))
    promised = [10, 20, 30]
    died: list[bool] = []
    disk.crash_at(None if call is None else disk.calls + call, lambda: died.append(True))
    process = loop.process("node")
    task = process.spawn(script(store, source, promised))
    assert loop.run_until(lambda: bool(died) or task.done(), seconds=60)
    loop.run_for(0)
    if not died:
        task.result()
        process.kill()
    if cut is None:
        disk.kill()
    else:
        disk.crash(cut)
    return promised, bool(died)


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda each: each.__name__)
def test_after_death_at_any_call_the_store_holds_whole_snapshots_and_all_that_it_held(
    script: Script, power: bool
) -> None:
    call = 0
    died = True
    while died:
        call += 1
        for seed in range(3 if power else 1):
            loop = SimulatedLoop(seed)
            disk = SimulatedDisk("n1", loop=loop)
            cut = random.Random(f"{call} {seed}") if power else None
            promised, died = run_until_dead(loop, disk, script, call, cut=cut)
            store = open_store(disk)
            names = disk.list_directory(DIRECTORY)
            assert set(promised) <= set(ends(store)) <= {10, 20, 30, 40}, f"call {call}, seed {seed}: {names}"
            assert store.damaged == []
            for stored in store.stored:
                assert list(store.load(stored)) in (make_pieces(stored.end), LARGE)
            assert not [name for name in names if name.endswith(".temporary")]
            # The remains of a transfer are usable or rejected; in both cases the next attempt succeeds.
            source = open_store(SimulatedDisk("n2", loop=loop))
            fresh = loop.run_until_complete(write(source, 40, created_us=seed))

            async def again(store: SnapshotStore, source: SnapshotStore, fresh: StoredSnapshot) -> None:
                incoming = await store.receive(40, 1)
                await send(source, fresh, incoming)
                await incoming.finish()

            loop.run_until_complete(again(store, source, fresh))
            assert list(store.load(store.stored[0])) == make_pieces(40)
            loop.close()
    assert call > 5


def test_a_snapshot_listed_after_a_crash_is_there_after_a_power_cut(loop: SimulatedLoop) -> None:
    """The process dies between the rename and its sync.

    Later work relies on the new name, so it must survive a power cut.
    """
    for call in range(1, 12):
        for seed in range(5):
            disk = SimulatedDisk("n1", loop=loop)
            run_until_dead(loop, disk, write_one, call, cut=None)
            listed = ends(open_store(disk))
            disk.crash(random.Random(seed))
            assert ends(open_store(disk)) == listed


# on the real disk


def test_all_of_it_on_a_real_disk(tmp_path: Path) -> None:
    pieces = [bytes([number]) * 100_000 for number in range(20)]

    def store(name: str) -> SnapshotStore:
        return SnapshotStore.open(RealDisk(), str(tmp_path / name), "c1")

    async def begin(source: SnapshotStore) -> StoredSnapshot:
        stored = await write(source, 10, pieces=pieces)
        incoming = await store("target").receive(10, 1)
        await send(source, stored, incoming, chunk=150_000, chunks_max=7)
        await incoming.close()
        return stored

    async def go_on(source: SnapshotStore, target: SnapshotStore, stored: StoredSnapshot) -> StoredSnapshot:
        incoming = await target.receive(10, 1)
        assert incoming.offset > 900_000
        await send(source, stored, incoming, chunk=150_000)
        return await incoming.finish()

    stored = asyncio.run(begin(store("source")))
    received = asyncio.run(go_on(store("source"), store("target"), stored))
    assert list(store("target").load(received)) == pieces
    assert Path(stored.path).read_bytes() == Path(received.path).read_bytes()
    assert [each.name for each in (tmp_path / "target").iterdir()] == ["00000000000000000010-1.snapshot"]
