"""The archivist: runs are written, read back and committed; whatever fails, no run is damaged and nothing is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.mutants import patched
from tests.node.group import CALM, PATIENCE_SECONDS, Group, not_on_the_loop
from tests.node.hooked_disk import HookedDisk
from viewstamp.archive.run_store import RunObjects
from viewstamp.archive.store import DirectoryObjects
from viewstamp.client import Attempt
from viewstamp.client.aio import Client
from viewstamp.errors import (
    AccessDeniedError,
    ConfigError,
    RequestError,
    StorageError,
    StorageFullError,
    UnavailableError,
    ViewstampError,
)
from viewstamp.host.disk import RealDisk
from viewstamp.ids import ClusterId, NodeId, Position, RunId, TopicId
from viewstamp.node import archive_pauses, archivist, server
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.node.archivist import Archivist
from viewstamp.node.peers import probe
from viewstamp.node.run_objects import RunObject, WrittenRun
from viewstamp.wal.budget import WalOptions
from viewstamp.wire.archiving import encode_drop_run
from viewstamp.wire.batch import Batch, Buffer, Kind

pytestmark = pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")

CLUSTER = ClusterId("c1")
DAY = 86_400_000_000


class Store(RunObjects):
    """The store of a test, in a directory. ``before`` is called with the name of each call before it is made."""

    def __init__(self, directory: Path, before: Callable[[str], None] = lambda _: None) -> None:
        disk = HookedDisk(RealDisk(), not_on_the_loop)
        super().__init__(DirectoryObjects(disk, str(directory / "store")), CLUSTER)
        self.directory = directory / "store" / CLUSTER
        self.before = before

    def begin(self, run: RunId, topic: TopicId, first: Position, schema: str = "") -> Any:
        self.before("begin")
        return Writing(self, super().begin(run, topic, first, schema))

    def check(self, run: ArchivedRun) -> Generator[int, None, None]:
        self.before("check")
        yield from super().check(run)

    def remove(self, run: RunId) -> None:
        self.before("remove")
        super().remove(run)

    def list_sizes(self) -> dict[int, int]:
        self.before("list_sizes")
        return super().list_sizes()

    def file(self, run: int) -> Path:
        return self.directory / f"{run:020d}.parquet"

    def files(self) -> list[str]:
        return sorted(each.name for each in self.directory.iterdir()) if self.directory.exists() else []


class Writing:
    """The object of a run that is being written in a test."""

    def __init__(self, store: Store, written: RunObject) -> None:
        self._store = store
        self._written = written

    def add(self, end: Position, buffers: Sequence[Buffer]) -> Position:
        self._store.before("add")
        return self._written.add(end, buffers)

    def finish(self) -> WrittenRun:
        self._store.before("finish")
        return self._written.finish()

    def abandon(self) -> None:
        self._store.before("abandon")
        self._written.abandon()


def one_node(path: Path, store: Store | None) -> Group:
    return Group(path, 1, run_stores=lambda _: store)


async def filled(client: Client, count: int = 10, topic: str = "orders") -> None:
    """Append records in batches of one."""
    await client.create_topic(topic)
    for number in range(count):
        key = f"key {number}".encode() if number % 3 else None
        await client.append(topic, f"record {number}".encode(), key=key)


async def archived(group: Group, topic: str, end: int, node: str = "n1") -> int:
    """Archive on a node itself, without the repetitions of a client."""
    while True:
        archived_end, is_running = await group.nodes[NodeId(node)].archivist.archive(topic, end, DAY)
        if not is_running:
            return archived_end


def rows(file: Path) -> list[dict[str, Any]]:
    from pyarrow import parquet

    found: list[dict[str, Any]] = parquet.read_table(file).to_pylist()
    return found


async def ranges(client: Client) -> list[tuple[int, int, str]]:
    return [(run.first_position, run.last_position, run.state) for run in await client.list_runs()]


async def test_archived_records_are_those_of_the_topic(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await filled(client)
        await client.append_many("orders", [b"a", b"b", b"c"])
        assert await client.archive_topic("orders", 12) == 12, "within a batch"
        assert await client.archive_topic("orders", 12) == 12
        assert await client.archive_topic("orders", 5) == 12
        assert await client.archive_topic("orders") == 14
        assert await client.archive_topic("orders", 999) == 14
        assert await ranges(client) == [(1, 11, "committed"), (12, 13, "committed")]
        records = [record async for record in client.read("orders", 1, end=14)]
        runs = await client.list_runs()
        found = [row for run in runs for row in rows(store.file(run.id))]
        assert [(row["position"], row["value"], row["key"], row["index"]) for row in found] == [
            (record.position, record.value, record.key, record.index) for record in records
        ]
        for run in runs:
            assert await client.check_run(run.id) == ""
        assert store.files() == [store.file(run.id).name for run in runs]
        assert await client.find_orphans() == {}


async def test_a_long_topic_becomes_several_runs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with patched(archivist, RUN_BYTES=100_000, _STEP_BYTES=10_000):
        async with one_node(tmp_path, store) as group:
            await group.run()
            client = group.client()
            await client.create_topic("orders")
            for _ in range(10):
                await client.append_many("orders", [b"x" * 1000] * 50)
            assert await client.archive_topic("orders") == 501
            found = await ranges(client)
            assert len(found) >= 4
            assert [last + 1 for _, last, _ in found[:-1]] == [first for first, _, _ in found[1:]], "they tile"


async def test_a_request_without_a_delay_has_that_of_the_topic(tmp_path: Path) -> None:
    async with one_node(tmp_path, Store(tmp_path)) as group:
        await group.run()
        client = group.client()
        await filled(client)
        await client.archive_topic("orders", 2)
        await client.configure_topic("orders", archive=True, archive_after_seconds=1e6, archive_delay_seconds=0.0)
        await client.archive_topic("orders", 4)
        await client.archive_topic("orders", 6, delay=86_400)
        await client.configure_topic("orders", archive_delay_seconds=7.5)
        await client.archive_topic("orders")
        delays = [run.delay_seconds for run in await client.list_runs()]
        assert delays == [86_400, 0, 86_400, 7.5], "a day without settings; and what the request asks for"


STEPS = ("begin", "add", "finish", "check")


class OnceAt:
    """Calls ``act`` once, before the first call of the store with this name."""

    def __init__(self, step: str, act: Callable[[], None]) -> None:
        self.step = step
        self.act = act
        self.is_done = False

    def __call__(self, step: str) -> None:
        if step == self.step and not self.is_done:
            self.is_done = True
            self.act()


def failing(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


async def test_a_store_that_fails_at_any_step_leaves_no_run_and_the_next_attempt_works(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await filled(client)
        for step in STEPS:
            store.before = OnceAt(step, failing(StorageError(f"no {step}")))
            with pytest.raises(RequestError, match=f"n1 leads, and cannot go on with the archive: no {step}"):
                await archived(group, "orders", 11)
            assert await ranges(client) == [], "dropped, removed and forgotten"
            assert store.files() == []
        assert await client.archive_topic("orders") == 11
        assert await ranges(client) == [(1, 10, "committed")]
        assert len([record async for record in client.read("orders", 1, end=11)]) == 10


@pytest.mark.parametrize("error", [StorageError("read-only"), StorageFullError("full")])
async def test_a_store_that_refuses_ends_each_request_at_once(tmp_path: Path, error: StorageError) -> None:
    """The same call would have the same answer: the client must not repeat it until its timeout."""
    store, calls = Store(tmp_path), []

    def refuse(call: str) -> None:
        if call in ("add", "check", "remove", "list_sizes"):
            calls.append(call)
            raise error

    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await filled(client)
        assert await client.archive_topic("orders", 2) == 2
        [run] = await client.list_runs()
        store.before = refuse
        for call, step in (
            (client.check_run(run.id, timeout=PATIENCE_SECONDS), "check"),
            (client.find_orphans(timeout=PATIENCE_SECONDS), "list_sizes"),
            (client.archive_topic("orders", timeout=PATIENCE_SECONDS), "add"),
        ):
            calls.clear()
            with pytest.raises(RequestError, match=f"n1 leads, .* archive: {error.message}"):
                await call
            assert calls.count(step) == 1
        store.before = lambda _: None
        assert await client.archive_topic("orders") == 11


async def test_a_store_that_is_away_is_tried_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await filled(client)
        store.before = OnceAt("add", failing(UnavailableError("away")))
        assert await client.archive_topic("orders", timeout=PATIENCE_SECONDS) == 11


async def test_a_request_in_the_pause_behind_a_failure_writes_no_record(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with one_node(tmp_path, store) as group:
        await group.run()
        client, node = group.client(), group.nodes[NodeId("n1")]
        await filled(client)
        store.before = OnceAt("add", failing(UnavailableError("away")))
        with patched(archive_pauses, _SECONDS=1e6, _SECONDS_MAX=1e6):
            with pytest.raises(UnavailableError, match="away"):
                await archived(group, "orders", 11)
            assert node.replica is not None
            end = node.replica.applier.applied_end
            for asked in (11, 5):
                with pytest.raises(UnavailableError, match="away"):
                    await archived(group, "orders", asked)
        assert node.replica.applier.applied_end == end
        await group.stop("n1")
        await group.run("n1")
        assert await client.archive_topic("orders") == 11, "a leader begins without a pause"


@pytest.mark.parametrize("damage", ["shorter", "flipped", "gone"])
async def test_a_store_that_lies_gets_no_commit(tmp_path: Path, damage: str) -> None:
    store = Store(tmp_path)

    def lie() -> None:
        [name] = store.files()
        file = store.directory / name
        data = bytearray(file.read_bytes())
        if damage == "gone":
            file.unlink()
        elif damage == "shorter":
            file.write_bytes(data[:-1])
        else:
            data[40] ^= 1
            file.write_bytes(data)

    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await filled(client)
        store.before = OnceAt("check", lie)
        with pytest.raises(UnavailableError, match="damaged"):
            await archived(group, "orders", 11)
        assert await ranges(client) == []
        assert await client.archive_topic("orders") == 11
        [run] = await client.list_runs()
        assert await client.check_run(run.id) == ""
        await client.append("orders", b"more")
        await client.archive_topic("orders")  # So that the store is recognised by another file.
        other = store.file((await client.list_runs())[1].id)
        aside = other.rename(store.directory.parent / other.name)
        lie()
        aside.rename(other)
        assert "damaged" in await client.check_run(run.id)


async def test_the_object_of_other_records_is_not_taken_for_the_run(tmp_path: Path) -> None:
    """An intact file with another content, such as one that another leader has written under this name."""
    store = Store(tmp_path)
    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await filled(client)
        await filled(client, topic="trades")
        await client.archive_topic("orders")
        await client.archive_topic("trades")
        orders, trades = await client.list_runs()
        data = store.file(trades.id).read_bytes()
        assert await client.check_run(orders.id) == ""
        store.file(orders.id).write_bytes(data)
        assert await client.check_run(orders.id) != ""


async def test_a_node_that_dies_at_any_step_leaves_a_run_that_the_next_request_removes(tmp_path: Path) -> None:
    """The process dies while the run is PREPARED: its job is never continued, and its object is left as it is."""
    store = Store(tmp_path)
    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await filled(client)
        for step in STEPS:
            # As if killed: neither the object nor the state is cleaned up by this job.
            store.before = OnceAt(step, failing(SystemError()))
            with (
                patched(Archivist, _clean=_do_nothing),
                patched(Writing, abandon=lambda _: None),
                pytest.raises(SystemError),
            ):
                await archived(group, "orders", 99)
            [run] = [each for each in await client.list_runs() if each.state == "prepared"]
            assert store.files() == ([] if step == "begin" else _left(store, run.id, is_whole=step == "check"))
            with pytest.raises(RequestError, match="no committed run"):
                await client.check_run(run.id)
            await group.stop("n1")
            await group.run("n1")
            store.before = lambda _: None
            assert await client.archive_topic("orders", 2 + STEPS.index(step)) == 2 + STEPS.index(step)
            assert {state for *_, state in await ranges(client)} == {"committed"}
            assert len(store.files()) == STEPS.index(step) + 1


def _left(store: Store, run: int, *, is_whole: bool) -> list[str]:
    name = store.file(run).name
    before = [each for each in store.files() if not each.startswith(name)]
    return sorted([*before, name] if is_whole else [*before, name, f"{name}.temporary"])


async def _do_nothing(*_: object) -> None:
    pass


async def test_a_deposed_leader_leaves_an_orphan_and_never_changes_the_run_of_the_next_one(tmp_path: Path) -> None:
    """Two leaders write at once: the first is stopped between its steps until the second has committed its run."""
    stores = {NodeId(name): Store(tmp_path) for name in ("n1", "n2", "n3")}
    with patched(probe, _SECONDS=PATIENCE_SECONDS):
        await _two_leaders(tmp_path, stores)


async def _two_leaders(path: Path, stores: dict[NodeId, Store]) -> None:
    async with Group(path, run_stores=lambda node: stores[node], core=CALM) as group:
        await group.run()
        await group.caught_up()
        client = group.client()
        await filled(client)
        old = str((await group.leader()).options.node)
        entered, go_on = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def wait() -> None:
            loop.call_soon_threadsafe(entered.set)
            assert go_on.wait(PATIENCE_SECONDS)

        store = stores[NodeId(old)]
        store.before = OnceAt("begin", wait)
        first = asyncio.create_task(archived(group, "orders", 11, old))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await entered.wait()
            while str((new := await group.leader()).options.node) == old:
                with suppress(ViewstampError):  # A busy machine may need another attempt.
                    await client.transfer_leadership()
            assert await archived(group, "orders", 11, str(new.options.node)) == 11
            [run] = await client.list_runs()
            committed = store.file(run.id).read_bytes()
            with patched(Writing, abandon=lambda _: None):  # The process dies before it removes its object.
                go_on.set()
                with pytest.raises(ViewstampError):
                    await first
        finally:
            go_on.set()
            await asyncio.wait([first])
        assert await client.list_runs() == [run]
        assert store.file(run.id).read_bytes() == committed
        [orphan] = await client.find_orphans()
        assert orphan < run.id
        assert await client.find_orphans(remove=True) == {orphan: 0}
        assert store.files() == [store.file(run.id).name]
        assert await client.check_run(run.id) == ""


async def test_a_late_copy_of_the_commit_of_a_deposed_leader_is_refused(tmp_path: Path) -> None:
    """The run was dropped by the next leader, so the file that the first one has completed is never read."""
    store = Store(tmp_path)
    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await filled(client)
        node = group.nodes[NodeId("n1")]
        entered, go_on = asyncio.Event(), asyncio.Event()
        propose = Archivist._propose

        async def late(self: Archivist, batch: Batch) -> dict[str, object]:
            if batch.kind is Kind.COMMIT_RUN and not entered.is_set():
                entered.set()
                await go_on.wait()
            return await propose(self, batch)

        with patched(Archivist, _propose=late):
            first = asyncio.create_task(archived(group, "orders", 11))
            async with asyncio.timeout(PATIENCE_SECONDS):
                await entered.wait()
            [run] = await client.list_runs()
            await propose(node.archivist, encode_drop_run(RunId(run.id)))
            go_on.set()
            with pytest.raises(UnavailableError, match="commit after drop"):
                await first
        assert await client.list_runs() == []
        assert store.files() == []


async def test_runs_of_deleted_records_are_dropped_and_their_objects_removed(tmp_path: Path) -> None:
    store, fail = Store(tmp_path), failing(StorageError("not now"))
    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await filled(client)
        await client.archive_topic("orders", 5)
        await client.archive_topic("orders", 8)
        await client.trim_topic("orders", 6)
        store.before = lambda call: fail() if call == "remove" else None
        assert await client.archive_topic("orders", 9) == 9
        assert await ranges(client) == [(1, 4, "dropped"), (5, 7, "committed"), (8, 8, "committed")]
        store.before = lambda _: None
        await client.trim_topic("orders", 11)
        assert await client.archive_topic("orders") == 11
        assert await ranges(client) == []
        assert store.files() == []


async def test_an_object_that_is_there_already_is_not_changed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await filled(client)
        following = group.nodes[NodeId("n1")].group.applied_index + 1
        store.directory.mkdir(parents=True)
        store.file(following).write_bytes(b"of records that a recovery has lost")
        store.before = OnceAt("remove", failing(StorageError("kept")))
        with pytest.raises(UnavailableError, match="already; it was not changed"):
            await archived(group, "orders", 11)
        assert store.file(following).read_bytes() == b"of records that a recovery has lost"
        assert await client.archive_topic("orders") == 11
        assert [state for *_, state in await ranges(client)] == ["committed"]


async def test_a_leader_without_a_store_or_pyarrow_leads_and_says_so(tmp_path: Path) -> None:
    def no_pyarrow() -> None:
        raise ConfigError("runs of archived records need pyarrow", remedy="pip install 'viewstamp[archive]'")

    store = Store(tmp_path)
    store.check_usable = no_pyarrow  # type: ignore[method-assign]
    for each, reason in ((None, "has no directory for the archive"), (store, "need pyarrow")):
        async with one_node(tmp_path / reason, each) as group:
            await group.run()
            client = group.client()
            await filled(client, 2)
            for call in (client.archive_topic("orders"), client.check_run(1), client.find_orphans()):
                with pytest.raises(RequestError, match=f"n1 leads, and .*{reason}"):
                    await call
            assert await client.list_runs() == []
            assert len([record async for record in client.read("orders", 1, end=3)]) == 2


async def test_nothing_is_archived_in_interval_mode(tmp_path: Path) -> None:
    interval = WalOptions(segment_bytes=64 * 1024, reserve_bytes=0, margin_bytes=8 * 1024, sync_seconds=0.01)
    async with Group(tmp_path, 1, run_stores=lambda _: Store(tmp_path), wal=interval) as group:
        await group.run()
        client = group.client()
        await filled(client, 2)
        with pytest.raises(RequestError, match="acknowledges before it syncs"):
            await client.archive_topic("orders")
        assert await client.list_runs() == []


async def test_the_first_run_waits_for_an_answer_of_each_member(tmp_path: Path) -> None:
    """Later ones do not, because a member that cannot read the records has stopped at the first one."""
    store = Store(tmp_path)
    async with Group(tmp_path, run_stores=lambda _: store, core=CALM) as group:
        await group.run()
        await group.caught_up()
        await group.stop("n3")
        client = group.client()
        await filled(client)
        leader = str((await group.leader()).options.node)
        with pytest.raises(UnavailableError, match=r"nothing was archived: .*n3: no answer from"):
            await archived(group, "orders", 5, leader)
        assert await client.list_runs() == []
        await group.run("n3")
        assert await client.archive_topic("orders", 5) == 5
        await group.stop("n3")
        assert await client.archive_topic("orders", 8) == 8


async def test_a_member_of_an_older_release_gets_no_record_about_runs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with patched(server, Kind=[Kind.CANCEL_GROUP]):  # The highest kind in its WELCOME.
        async with Group(tmp_path, run_stores=lambda _: store) as group:
            await group.run()
            client = group.client()
            await filled(client, 2)
            with pytest.raises(RequestError, match=r"n[123]: runs a release that cannot read records of kind 27"):
                await client.archive_topic("orders")
            assert await client.list_runs() == []


async def test_only_an_administrator_archives_and_the_audit_log_has_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await filled(client)
        _, token = await client.create_token("owner", ["administer"])
        owner = group.client(token=token)
        for call in (client.archive_topic("orders"), client.list_runs(), client.check_run(1), client.find_orphans()):
            with pytest.raises(AccessDeniedError):
                await call
        assert await owner.archive_topic("orders") == 11
        assert ("archive run", "orders to 11") in [(each.action, each.subject) for each in await owner.list_audit()]


async def test_appends_go_on_while_a_store_does_not_answer(tmp_path: Path) -> None:
    store = Store(tmp_path)
    go_on = threading.Event()
    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await filled(client)
        entered, loop = asyncio.Event(), asyncio.get_running_loop()

        def wait() -> None:
            loop.call_soon_threadsafe(entered.set)
            assert go_on.wait(PATIENCE_SECONDS)

        store.before = OnceAt("add", wait)
        job = asyncio.create_task(client.archive_topic("orders", timeout=PATIENCE_SECONDS))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await entered.wait()
            await client.append("orders", b"more")
            await client.create_topic("trades")
        finally:
            go_on.set()
        assert await job == 11


async def test_records_of_a_sink_are_archived_with_the_positions_of_their_commit(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await filled(client, 2)
        sink = client.sink("lake", owner="query", run="r1")
        attempt = await sink.begin(0, "part-1")
        assert isinstance(attempt, Attempt)
        await attempt.stage_records("orders", [b"x", b"y"])
        await client.append("orders", b"between")
        await sink.commit(0, [await attempt.seal()])
        assert await client.archive_topic("orders", 5) == 5
        assert await client.archive_topic("orders") == 6
        runs = await client.list_runs()
        found = [row for run in runs for row in rows(store.file(run.id))]
        assert [row["value"] for row in found[2:]] == [b"between", b"x", b"y"]
        records = [record async for record in client.read("orders", 1, end=6)]
        assert [(row["position"], row["index"]) for row in found] == [(each.position, each.index) for each in records]
        assert [await client.check_run(run.id) for run in runs] == ["", ""]
