"""Backups of a running cluster: their content, the records that a later one sends, and the change to another member."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.backup.cases import FAST, SMALL, back_up, cluster_of, fill, store_in
from tests.processes import eventually, leader_of
from tests.replay import members
from viewstamp.backup.catalogue import BackupCatalogue
from viewstamp.backup.files_source import FilesSource
from viewstamp.backup.options import BackupOptions
from viewstamp.backup.verify import BackupReader
from viewstamp.consensus.membership import Membership
from viewstamp.errors import CorruptionError, DirectoryInUseError, UnavailableError, WrongClusterError
from viewstamp.wire.batch import Kind

pytestmark = pytest.mark.slow


async def test_a_backup_has_the_whole_log_and_is_whole(tmp_path: Path) -> None:
    store = store_in(tmp_path / "target")
    async with cluster_of(tmp_path / "cluster") as cluster:
        client = cluster.client()
        await fill(client)
        acknowledged = await client.append("orders", b"last")
        manifest = await back_up(store, client)
        assert manifest.begin == 1
        assert manifest.end > acknowledged.index
        assert manifest.chain is not None
        assert {each["name"] for each in manifest.topics} == {"orders"}
    found = BackupReader(store).verify(manifest)
    assert (found.errors, found.records) == ([], manifest.end - 1)
    assert BackupCatalogue.load(store).manifests == [manifest]


async def test_a_backup_has_no_incarnation(tmp_path: Path) -> None:
    """With an incarnation from a backup, a process could pose as a member."""
    store = store_in(tmp_path / "target")
    async with cluster_of(tmp_path / "cluster") as cluster:
        client = cluster.client()
        await fill(client)
        for node in cluster.ids:
            await client.create_snapshot(node)
        manifest = await back_up(store, client)
    secrets: set[str] = set()
    from viewstamp.host.disk import RealDisk
    from viewstamp.wal.control_file import read_control_state

    for node in cluster.ids:
        state = read_control_state(RealDisk(), str(tmp_path / "cluster" / node))
        assert state is not None
        secrets.add(state.incarnation)
    memberships = [
        Membership.decode(batch.values()[0])
        for piece in manifest.log
        for batch in BackupReader(store).read_piece(piece)
        if batch.kind is Kind.MEMBERSHIP
    ]
    assert any(membership.incarnations for membership in memberships)
    for stored in manifest.objects:
        data = store.read(stored.name)
        assert not [secret for secret in secrets if secret.encode() in data], stored.name
    assert BackupReader(store).verify(manifest).errors == []


async def test_a_later_backup_sends_only_what_is_new_from_any_member(tmp_path: Path) -> None:
    store = store_in(tmp_path / "target")
    async with cluster_of(tmp_path / "cluster") as cluster:
        client = cluster.client()
        await fill(client, count=300, size=8000)
        first = await back_up(store, client, node="n1")
        await client.append("orders", b"more")
        second = await back_up(store, client, node="n2")
        again = await back_up(store, client, node="n3")
    assert first.sent_bytes > 2_000_000
    assert second.sent_bytes < 100_000
    assert again.sent_bytes < 100_000
    assert second.log[0] == first.log[0]
    assert (second.previous, again.previous) == (first.id, second.id)
    for manifest in (first, second, again):
        assert BackupReader(store).verify(manifest).errors == []


async def test_a_trimmed_log_is_backed_up_with_the_snapshot_that_it_needs(tmp_path: Path) -> None:
    store = store_in(tmp_path / "target")
    async with cluster_of(tmp_path / "cluster", settings=SMALL) as cluster:
        client = cluster.client()
        manifests = []
        for _ in range(3):
            await fill(client, count=100, size=3000)
            orders = await client.describe_topic("orders")
            await client.trim_topic("orders", orders.last_position - 5)
            for node in cluster.ids:
                await client.create_snapshot(node)
                await client.create_snapshot(node)
            manifests.append(await back_up(store, client))
        fresh = await back_up(store_in(tmp_path / "fresh"), client)
    assert fresh.begin > 1
    assert BackupReader(store_in(tmp_path / "fresh")).verify(fresh).errors == []
    for manifest in manifests:
        assert BackupReader(store).verify(manifest).errors == []
        if manifest.begin > 1:
            assert manifest.snapshot is not None
            assert manifest.begin <= manifest.snapshot.end <= manifest.end


async def test_writes_go_on_during_a_slow_backup_that_holds_all_that_was_acknowledged_before(tmp_path: Path) -> None:
    store = store_in(tmp_path / "target")
    slow = BackupOptions(bytes_per_second=1 << 20, share=0.5, request_bytes=65536)
    async with cluster_of(tmp_path / "cluster") as cluster:
        client = cluster.client()
        await fill(client, count=100, size=5000)
        before = await client.append("orders", b"before")
        backup = asyncio.create_task(back_up(store, client, options=slow))
        appended = 0
        while not backup.done():
            await client.append("orders", b"while %d" % appended)
            appended += 1
        manifest = await backup
    assert appended > 10
    assert manifest.end > before.index


async def test_a_target_belongs_to_one_cluster(tmp_path: Path) -> None:
    store = store_in(tmp_path / "target")
    async with cluster_of(tmp_path / "one", nodes=1) as cluster:
        await back_up(store, cluster.client())
    before = sorted((tmp_path / "target").rglob("*"))
    async with cluster_of(tmp_path / "two", nodes=1) as cluster:
        with pytest.raises(WrongClusterError, match="has backups of cluster"):
            await back_up(store, cluster.client())
    assert sorted((tmp_path / "target").rglob("*")) == before


async def test_two_backups_into_one_target_do_not_mix(tmp_path: Path) -> None:
    store = store_in(tmp_path / "target")
    async with cluster_of(tmp_path / "one", nodes=1) as cluster:
        with store.held(), pytest.raises(DirectoryInUseError):
            await back_up(store_in(tmp_path / "target"), cluster.client())


async def test_a_backup_goes_on_with_another_member_if_one_stops(tmp_path: Path) -> None:
    store = store_in(tmp_path / "target")
    slow = BackupOptions(bytes_per_second=1 << 20, share=1.0, request_bytes=65536)
    async with cluster_of(tmp_path / "cluster") as cluster:
        client = cluster.client()
        await fill(client, count=300, size=5000)
        leader = await eventually(lambda: leader_of(client))
        first = min(name for name in cluster.ids if name != leader)
        backup = asyncio.create_task(back_up(store, client, options=slow))
        while not list((tmp_path / "target").glob("log/*")) and not backup.done():
            await asyncio.sleep(0.05)
            if (tmp_path / "target").exists():
                break
        await cluster.stop(first)
        manifest = await backup
        assert manifest.node != first
    assert BackupReader(store).verify(manifest).errors == []


async def test_a_cluster_that_lost_committed_records_does_not_add_to_the_target(tmp_path: Path) -> None:
    """The backup fails before it writes, because the target may have the only copy of the lost records."""
    store = store_in(tmp_path / "target")
    async with cluster_of(tmp_path / "cluster", nodes=1) as cluster:
        client = cluster.client()
        await fill(client)
        manifest = await back_up(store, client)

        class Other:
            """The cluster, with a term history in which the target's last record has another term."""

            def __init__(self) -> None:
                from viewstamp.backup.source import ClusterSource

                self._source = ClusterSource(client)

            async def describe(self):  # type: ignore[no-untyped-def]
                from dataclasses import replace

                from viewstamp.consensus.term_history import TermHistory

                point = await self._source.describe()
                return replace(point, history=TermHistory([(0, 1), (9, 2)]))

            def __getattr__(self, name: str) -> object:
                return getattr(self._source, name)

        before = sorted((tmp_path / "target").rglob("*"))
        with pytest.raises(CorruptionError, match="the cluster has lost committed records"):
            await back_up(store, Other())  # type: ignore[arg-type]
        assert sorted((tmp_path / "target").rglob("*")) == before
        assert manifest.term < 9


async def test_no_node_answers(tmp_path: Path) -> None:
    async with cluster_of(tmp_path / "cluster", nodes=1) as cluster:
        client = cluster.client()
        await cluster.stop("n1")
        with pytest.raises(UnavailableError, match="no member of the cluster is running"):
            await back_up(store_in(tmp_path / "target"), client, options=BackupOptions(attempts=1))
    assert FAST.attempts > 1


async def test_a_backup_of_files_says_what_is_archived() -> None:
    """The files of the archive are not in a backup, so whoever restores it has to keep them."""
    log = members.orders(3)
    log.topic("others")
    prepared = log.command(Kind.PREPARE_RUN, topic=1, first=1, end=5)
    run: dict[str, object] = {"run": prepared.first_index, "records": 4, "size": 7, "digest": bytes(32)}
    log.command(Kind.COMMIT_RUN, **run, first_index=3, end_index=7, first_time=3, last_time=4)
    disk = members.cluster(log)
    point = await FilesSource.open(disk, ["/n1", "/n2"]).describe()
    assert [(each["name"], each["last_position"], each.get("archived_last")) for each in point.topics] == [
        ("orders", 6, 4),
        ("others", 0, None),
    ]
    assert (await FilesSource.open(disk, ["/n1"]).describe()).topics == (), "without a majority they are not known"
