"""A store directory whose mount is away: nothing is written or concluded until the same store is back."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.node.group import PATIENCE_SECONDS, Group, wait_for
from tests.node.test_archivist import OnceAt, Store, archived, filled, one_node, ranges
from viewstamp.client.aio import Client
from viewstamp.doctor.archive import archive_trouble
from viewstamp.doctor.report import Report
from viewstamp.doctor.status import summary
from viewstamp.errors import RequestError
from viewstamp.ids import NodeId
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.node.options import ArchiveRoundOptions
from viewstamp.node.store_identity import StoreIdentity

pytestmark = pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")

QUICK = ArchiveRoundOptions(seconds=0.02, wait_seconds=0.0, pause_seconds_max=0.1)
EMPTY = "is empty, or another store, because it has no file of run "


class Mount:
    """The directory of a store, as if it were a mount."""

    def __init__(self, store: Store, *, point: bool = True) -> None:
        """``point``: whether the directory below the mount exists; it is empty then."""
        self.path = store.directory.parent
        self._away = self.path.with_name("away")
        self._has_point = point

    def leave(self) -> None:
        self.path.rename(self._away)
        if self._has_point:
            self.path.mkdir()

    def come_back(self) -> None:
        if self._has_point:
            self.path.rmdir()  # Fails unless it is empty.
        self._away.rename(self.path)


async def records_of(group: Group) -> int:
    """Return the end of the log, without the records that a leader adds by itself."""
    node = group.nodes[NodeId("n1")]
    assert node.replica is not None
    return int(node.replica.applier.applied_end)


@pytest.mark.parametrize("point", [True, False])
async def test_a_store_that_is_away_gets_nothing_and_is_used_again_when_it_is_back(tmp_path: Path, point: bool) -> None:
    store = Store(tmp_path)
    mount = Mount(store, point=point)
    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await filled(client)
        assert await client.archive_topic("orders", 6) == 6
        [run] = await client.list_runs()
        files = store.files()
        mount.leave()
        end = await records_of(group)
        for call in (
            partial(client.archive_topic, "orders", timeout=PATIENCE_SECONDS),
            partial(client.check_run, run.id, timeout=PATIENCE_SECONDS),
            partial(client.find_orphans, remove=True, timeout=PATIENCE_SECONDS),
        ):
            with pytest.raises(RequestError, match=EMPTY + str(run.id)) as caught:
                await call()
            assert "mount it, or restore it" in str(caught.value.remedy)
        assert await records_of(group) == end, "no PREPARE_RUN, DROP_RUN or FORGET_RUN"
        assert store.directory.parent.exists() == point, "and no directory was created"
        assert len([each async for each in client.read("orders", 1, end=11)]) == 10
        mount.come_back()
        assert await client.check_run(run.id) == ""
        assert await client.archive_topic("orders") == 11
        assert await ranges(client) == [(1, 5, "committed"), (6, 10, "committed")]
        assert set(files) < set(store.files())


async def test_a_store_that_leaves_behind_the_question_gets_no_directory(tmp_path: Path) -> None:
    store = Store(tmp_path)
    mount = Mount(store)
    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await filled(client)
        await client.archive_topic("orders", 6)
        store.before = OnceAt("begin", mount.leave)
        with pytest.raises(RequestError, match="there is no directory"):
            await archived(group, "orders", 11)
        assert await ranges(client) == [(1, 5, "committed")]
        mount.come_back()
        assert await client.archive_topic("orders") == 11


async def test_a_store_that_another_one_replaces_behind_the_question_has_the_next_run_all_the_same(
    tmp_path: Path,
) -> None:
    """The other one has a folder for the cluster, or is a bucket, so the object is created and read back there."""
    store = Store(tmp_path)
    mount = Mount(store)

    def replace_store() -> None:
        mount.leave()
        store.directory.mkdir()

    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await filled(client)
        await client.archive_topic("orders", 6)
        store.before = OnceAt("begin", replace_store)
        with pytest.raises(RequestError, match=EMPTY):
            await archived(group, "orders", 11)
        assert await ranges(client) == [(1, 5, "committed")]
        assert store.files() == [], "the object is removed from the other store"
        store.directory.rmdir()
        mount.come_back()
        assert await client.archive_topic("orders") == 11
        assert len(store.files()) == 2


async def test_files_of_deleted_records_are_not_forgotten_while_the_store_is_away(tmp_path: Path) -> None:
    store = Store(tmp_path)
    mount = Mount(store)
    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await filled(client)
        await client.archive_topic("orders", 4)
        await client.archive_topic("orders", 11)
        kept = (await client.list_runs())[1]
        mount.leave()
        await client.trim_topic("orders", 4)
        with pytest.raises(RequestError, match=EMPTY):
            await client.archive_topic("orders", timeout=PATIENCE_SECONDS)
        assert await ranges(client) == [(1, 3, "committed"), (4, 10, "committed")]
        mount.come_back()
        await client.archive_topic("orders")
        assert await ranges(client) == [(4, 10, "committed")]
        assert store.files() == [store.file(kept.id).name]


async def test_one_lost_file_is_not_a_lost_store_and_trimmed_records_need_none(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await filled(client)
        for end in (4, 7):
            await client.archive_topic("orders", end)
        first, second = await client.list_runs()
        store.file(second.id).unlink()
        assert await client.archive_topic("orders", 9) == 9, "the store has the first run"
        store.file(first.id).unlink()
        store.file((await client.list_runs())[2].id).unlink()
        with pytest.raises(RequestError, match=f"{EMPTY}.*, and none of 2 other runs"):
            await client.archive_topic("orders", timeout=PATIENCE_SECONDS)
        await client.trim_topic("orders", 9)  # As the remedy says.
        assert await client.archive_topic("orders") == 11
        assert await ranges(client) == [(9, 10, "committed")]


async def test_a_leader_that_lags_behind_asks_again_for_the_runs_that_are_left(tmp_path: Path) -> None:
    """Another leader has dropped and removed the runs that it asks for first; it applies that behind the question."""
    store = Store(tmp_path)
    async with one_node(tmp_path, store) as group:
        await group.run()
        client, node = group.client(), group.nodes[NodeId("n1")]
        await filled(client)
        await client.archive_topic("orders", 6)
        asked: list[int] = []

        async def recognise(runs: list[ArchivedRun]) -> bool:
            asked.append(len(runs))
            if len(asked) == 1:
                await client.trim_topic("orders", 6)
                await client.archive_topic("orders", 1)
            return await asyncio.to_thread(store.recognise, runs)

        await StoreIdentity(node.group, node.groups).check(store.where, recognise)
        assert asked == [1, 0]


async def test_status_and_doctor_name_the_store_that_is_away_until_it_is_back(tmp_path: Path) -> None:
    store = Store(tmp_path)
    mount = Mount(store)
    async with Group(tmp_path, 1, run_stores=lambda _: store, archive_rounds=QUICK) as group:
        await group.run()
        client = group.client()
        await filled(client)
        await client.archive_topic("orders", 6)
        mount.leave()
        with pytest.raises(RequestError, match=EMPTY):
            await client.archive_topic("orders", timeout=PATIENCE_SECONDS)
        assert (await trouble(client)).startswith(store.where), "also of a topic without settings, and without the name"
        assert await codes(client) == ["archive"]
        await client.configure_topic("orders", archive=True, archive_delay_seconds=0.0)
        status = group.nodes[NodeId("n1")].archives.rounds
        await wait_for(lambda: bool(status.status["failures"]), lambda: repr(status.status))
        assert EMPTY in str(status.status["reason"])
        assert await codes(client) == ["archive"], "one cause, one finding"
        mount.come_back()
        await wait_for(lambda: len(store.files()) == 2, lambda: repr(status.status))
        await wait_for(lambda: not status.status["failures"], lambda: repr(status.status))
        assert not await trouble(client)


async def trouble(client: Client) -> str:
    [node] = await client.status()
    return str(node["archive"]["trouble"])


async def codes(client: Client) -> list[str]:
    nodes = summary(await client.status(), {})["nodes"]
    return [finding.code for finding in archive_trouble(Report(nodes=nodes))]
