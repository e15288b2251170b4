"""Restoring: everything is there, at the end of a backup and at an earlier moment, in a cluster of any size."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.backup.cases import SMALL, Counter, back_up, cluster_of, fill, records_of, store_in
from viewstamp.backup.files_source import FilesSource
from viewstamp.backup.manifest import Manifest
from viewstamp.backup.source import ClusterSource, LogPoint
from viewstamp.backup.store import DirectoryStore
from viewstamp.backup.verify import BackupReader
from viewstamp.client import Client, Receipt, SinkCommit
from viewstamp.config import free_addresses, make_certificates, node_file
from viewstamp.embed.connect import connect
from viewstamp.embed.open_node import open_node
from viewstamp.errors import ConfigError, RequestError, ViewstampError
from viewstamp.host.disk import RealDisk
from viewstamp.host.network import RealNetwork
from viewstamp.local.cluster import LocalCluster
from viewstamp.local.drill import drill
from viewstamp.local.restore import Restored, RestorePlan, restore_cluster
from viewstamp.wire.batch import Batch, Record

pytestmark = pytest.mark.slow

Contents = dict[str, list[Record]]


async def restored(store: DirectoryStore, directory: Path, **plan: object) -> Restored:
    return await asyncio.to_thread(
        restore_cluster,
        store,
        str(directory),
        RestorePlan(target=store.where, **plan),  # type: ignore[arg-type]  # one of its fields
    )


async def commit(client: Client, batch: int) -> None:
    sink = client.sink("etl")
    attempt = await sink.begin(batch, "one")
    assert not isinstance(attempt, SinkCommit)
    await attempt.stage_records("orders", [b"staged %d" % batch])
    await sink.commit(batch, [await attempt.seal()])


async def contents_of(directory: Path) -> tuple[Contents, int, dict[str, int]]:
    """Start the nodes of a directory; return the records, the sum of a counter, and the last batch of each sink."""
    cluster = LocalCluster.open(directory)
    nodes = [open_node(node_file(str(directory), name), actors={"counter": Counter}) for name in cluster.nodes]
    entered = await asyncio.gather(*(node.__aenter__() for node in nodes))
    try:
        async with cluster.target.connect() as client:
            total = await client.actor("counter", Counter, key="orders").value()
            sinks = {each.name: each.batch for each in await client.list_sinks()}
            await client.append("orders", b"the new cluster takes appends")
            found = await records_of(client)
            assert found["orders"].pop().value == b"the new cluster takes appends"
            return found, total, sinks
    finally:
        assert entered
        await asyncio.gather(*(node.__aexit__(None, None, None) for node in nodes))


@pytest.mark.parametrize("nodes", [1, 2, 3])
async def test_all_topics_sinks_and_actors_are_in_a_new_cluster_of_any_size(tmp_path: Path, nodes: int) -> None:
    store = store_in(tmp_path / "target")
    async with cluster_of(tmp_path / "cluster") as cluster:
        client = cluster.client()
        await fill(client)
        await fill(client, topic="bills")
        for batch in range(3):
            await commit(client, batch)
        manifest = await back_up(store, client)
        live = await records_of(client)
        result = await restored(store, tmp_path / "new", nodes=nodes)
    assert (result.old, result.backup) == (manifest.cluster, manifest.id)
    assert result.cluster != manifest.cluster
    found, total, sinks = await contents_of(tmp_path / "new")
    assert found == live
    assert (total, sinks) == (45, {"etl": 2})


async def test_a_client_of_the_old_cluster_reaches_nothing_of_the_new_one(tmp_path: Path) -> None:
    store = store_in(tmp_path / "target")
    async with cluster_of(tmp_path / "cluster", nodes=1) as cluster:
        client = cluster.client()
        await fill(client)
        manifest = await back_up(store, client)
    await restored(store, tmp_path / "new", nodes=1)
    addresses = LocalCluster.open(tmp_path / "new").target.addresses
    async with open_node(node_file(str(tmp_path / "new"), "n1"), actors={"counter": Counter}):
        async with Client(
            addresses, network=RealNetwork(), entropy=random.Random(1), cluster_id=manifest.cluster
        ) as old:
            with pytest.raises(ViewstampError, match=manifest.cluster):
                await old.append("orders", b"of the old cluster", timeout=60.0)
        async with LocalCluster.open(tmp_path / "new").target.connect() as new:
            assert b"of the old cluster" not in [record.value async for record in new.read("orders")]


async def test_every_moment_since_the_first_backup_can_be_restored(tmp_path: Path) -> None:
    """That includes moments between two backups, although the log was trimmed meanwhile."""
    store = store_in(tmp_path / "target")
    moments: list[tuple[int, int, list[bytes]]] = []
    async with cluster_of(tmp_path / "cluster", nodes=1, settings=SMALL) as cluster:
        client = cluster.client()
        await client.create_topic("orders")
        manifests: list[Manifest] = []
        kept: list[bytes] = []
        for step in range(6):
            for number in range(5):
                value = b"%d %d " % (step, number) + bytes(20_000)
                receipt = await client.append("orders", value)
                kept.append(value)
                moments.append((receipt.index, receipt.timestamp, list(kept)))
                await asyncio.sleep(0.03)  # Mostly another log time for each, which has the resolution of a tick.
            if step == 2:
                orders = await client.describe_topic("orders")
                await client.trim_topic("orders", orders.last_position - 1)
                kept = kept[-2:]
                for _ in range(2):
                    await client.create_snapshot("n1")
            manifests.append(await back_up(store, client))
    for number, (index, time, values) in enumerate(moments):
        if number % 4:
            continue
        same = [each for _, other, each in moments if other == time]  # More than one if the loop was slow.
        for cut, expected in (({"until": index}, values), ({"until_time": time}, same[-1])):
            target = tmp_path / f"at {number} {next(iter(cut))}"
            await restored(store, target, nodes=1, **cut)
            async with open_node(node_file(str(target), "n1")), LocalCluster.open(target).target.connect() as client:
                found = await records_of(client)
                assert [record.value for record in found["orders"]] == expected, (number, cut)


async def test_a_cut_in_records_that_were_deleted_before_any_backup_is_refused(tmp_path: Path) -> None:
    store = store_in(tmp_path / "target")
    async with cluster_of(tmp_path / "cluster", nodes=1, settings=SMALL) as cluster:
        client = cluster.client()
        await client.create_topic("orders")
        receipts = [await client.append("orders", bytes(20_000)) for _ in range(20)]
        await client.create_snapshot("n1")
        await client.trim_topic("orders", 18)
        for _ in range(3):
            await client.append("orders", bytes(20_000))
            await client.create_snapshot("n1")
        manifest = await back_up(store, client)
    assert manifest.begin > 1
    with pytest.raises(RequestError, match="do not reach back to the cut"):
        await restored(store, tmp_path / "new", until=receipts[2].index)
    assert not (tmp_path / "new" / "n1.toml").exists()


def archived_in(directory: Path, cluster: Path) -> str:
    """Set the directory of the archive in the settings of the first node; return their path."""
    file = Path(node_file(str(cluster), "n1"))
    file.write_text(f'{file.read_text()}\n[archive]\ndirectory = "{directory}"\n')
    return str(file)


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")
async def test_a_cut_before_the_end_of_an_archive_delay_is_restored(tmp_path: Path) -> None:
    """The snapshot still counts them as needed, and the node has deleted them since."""
    store = store_in(tmp_path / "target")
    settings = {**SMALL, "archive.directory": str(tmp_path / "archive"), "snapshots.log_bytes": 1 << 30}
    async with cluster_of(tmp_path / "cluster", nodes=1, settings=settings) as cluster:
        client = cluster.client()
        await client.create_topic("orders")
        for _ in range(20):
            await client.append("orders", bytes(20_000))
        for _ in range(3):
            await client.create_snapshot("n1")
            await client.create_topic("others")
        await client.archive_topic("orders", delay=1.0)
        for _ in range(3):
            receipt = await client.append("others", b"before the cut")
            await client.create_snapshot("n1")
        async with asyncio.timeout(120):
            while (await client.status())[0]["first_index"] == 1:
                await client.append("others", b"behind the cut")
                await asyncio.sleep(0.1)
        before = await records_of(client)
        manifest = await back_up(store, client)
    assert manifest.begin > 1
    new = await restored(store, tmp_path / "new", nodes=1, until=receipt.index)
    assert new.archived == {"orders": 20}
    path = archived_in(tmp_path / "archive", tmp_path / "new")
    async with open_node(path), LocalCluster.open(tmp_path / "new").target.connect() as client:
        after = await records_of(client)
    assert after["orders"] == before["orders"]
    assert [record.value for record in after["others"]] == [b"before the cut"] * 3
    async with open_node(path), LocalCluster.open(tmp_path / "new").target.connect() as client:
        async with asyncio.timeout(120):
            while (await client.status())[0]["first_index"] <= receipt.index:  # Nothing keeps the log for ever.
                await client.append("others", bytes(20_000))
                await client.trim_topic("others", (await client.append("others", b"")).position)
                await client.create_snapshot("n1")
        assert (await records_of(client))["orders"] == before["orders"]


def test_a_drill_finds_a_state_that_differs(tmp_path: Path) -> None:
    store = store_in(tmp_path / "target")

    async def prepare() -> Manifest:
        async with cluster_of(tmp_path / "cluster", nodes=1) as cluster:
            client = cluster.client()
            await fill(client)
            await commit(client, 0)
            return await back_up(store, client)

    manifest = asyncio.run(prepare())
    actors = {"counter": Counter}
    assert manifest.chain is not None
    found = drill(store, manifest, actors, temporary=str(tmp_path))
    assert (found.differences, found.is_state_compared) == ([], True)
    assert (found.records, found.actors, found.sinks) == ({"orders": 51}, {"counter": 1}, 1)
    wrong = replace(
        manifest,
        chain=manifest.chain ^ 1,
        topics=tuple({**each, "last_position": each["last_position"] + 1} for each in manifest.topics),
        sinks=tuple({**each, "batch": 7} for each in manifest.sinks),
        actors=tuple({**each, "digest": "0"} for each in manifest.actors),
    )
    found = drill(store, wrong, actors, temporary=str(tmp_path))
    assert len(found.differences) == 4, found.differences
    with pytest.raises(ConfigError, match="the classes of counter are not known here"):
        drill(store, manifest, {})
    assert list(tmp_path.glob("viewstamp-drill-*")) == []


def test_a_drill_compares_the_actors_of_groups_by_the_states_of_the_groups(tmp_path: Path) -> None:
    store = store_in(tmp_path / "target")

    async def prepare() -> Manifest:
        async with cluster_of(tmp_path / "cluster", nodes=1) as cluster:
            client = cluster.client()
            placed = await client.place_group("s1")
            while not placed.is_established:
                (placed,) = await client.list_groups()
            await client.spread_actor("counter")
            for key in ("a", "b"):
                await client.actor("counter", Counter, key=key).add(7)
            return await back_up(store, client)

    manifest, actors = asyncio.run(prepare()), {"counter": Counter}
    (group,) = manifest.groups
    assert group.chain is not None
    found = drill(store, manifest, actors, temporary=str(tmp_path))
    assert (found.differences, found.is_state_compared, found.actors) == ([], True, {"counter": 2})
    wrong = replace(manifest, groups=(replace(group, chain=group.chain ^ 1),))
    (difference,) = drill(store, wrong, actors, temporary=str(tmp_path)).differences
    assert f"the checksum of the state of group {group.group} at index" in difference


async def test_files_of_stopped_nodes_are_a_source(tmp_path: Path) -> None:
    """Files of a majority give all records; those of one node of three give the part that is known to be committed."""
    async with cluster_of(tmp_path / "cluster") as cluster:
        client = cluster.client()
        await fill(client)
        await client.create_snapshot("n2")
        last = await client.append("orders", b"last")
        live = await records_of(client)
    paths = [str(tmp_path / "cluster" / name) for name in ("n1", "n2", "n3")]
    for chosen, is_majority in ((paths, True), (paths[1:], True), (paths[1:2], False)):
        store = store_in(tmp_path / f"target {len(chosen)}")
        source = await asyncio.to_thread(FilesSource.open, RealDisk(), chosen)
        assert source.is_majority == is_majority
        manifest = await back_up(store, source)
        assert BackupReader(store).verify(manifest).errors == []
        assert manifest.end > last.index or not is_majority
        await restored(store, tmp_path / f"new {len(chosen)}", nodes=1)
        found, total, _ = await contents_of(tmp_path / f"new {len(chosen)}")
        assert total == 45
        assert found == live


async def test_a_directory_with_anything_in_it_is_left_alone(tmp_path: Path) -> None:
    store = store_in(tmp_path / "target")
    async with cluster_of(tmp_path / "cluster", nodes=1) as cluster:
        await back_up(store, cluster.client())
    before = sorted((tmp_path / "cluster").rglob("*"))
    with pytest.raises(ConfigError, match="is not empty; nothing was changed"):
        await restored(store, tmp_path / "cluster")
    assert sorted((tmp_path / "cluster").rglob("*")) == before


async def test_a_restore_of_a_cluster_with_tokens_keeps_them_and_is_in_the_audit_log(tmp_path: Path) -> None:
    store = store_in(tmp_path / "target")
    async with cluster_of(tmp_path / "cluster", nodes=1) as cluster:
        client = cluster.client()
        await client.create_topic("orders")
        await client.create_token("root", ["administer"])
        with pytest.raises(RequestError, match="token"):
            await back_up(store_in(tmp_path / "other"), client)
        async with LocalCluster.open(tmp_path / "cluster").target.connect() as administrator:
            manifest = await back_up(store, administrator)
    await restored(store, tmp_path / "new", nodes=1)
    node = open_node(node_file(str(tmp_path / "new"), "n1"), actors={"counter": Counter})
    async with node, LocalCluster.open(tmp_path / "new").target.connect() as administrator:
        assert [token.name for token in await administrator.list_tokens()] == ["root"]
        last = (await administrator.list_audit())[-1]
    assert last.action == "fork"
    assert last.subject == (
        f"up to index {manifest.end - 1} of cluster {manifest.cluster}, restored from backup {manifest.id}"
    )


async def test_a_moment_during_a_copy_is_restored_from_a_later_backup(tmp_path: Path) -> None:
    """Records that are appended while a backup is copied are behind its end, so only the next backup has them."""
    store = store_in(tmp_path / "target")
    async with cluster_of(tmp_path / "cluster", nodes=1) as cluster:
        client = cluster.client()
        await fill(client)
        during: list[Receipt] = []

        class Slow(ClusterSource):
            async def read_log(self, point: LogPoint, start: int, bytes_max: int) -> list[Batch]:
                while len(during) < 5:
                    during.append(await client.append("orders", b"during %d" % len(during)))
                    await asyncio.sleep(0.05)
                return await super().read_log(point, start, bytes_max)

        first = await back_up(store, Slow(client))
        await client.append("orders", b"later")
        live = await records_of(client)
        moment = during[-1].timestamp
        assert first.end <= during[0].index
        with pytest.raises(RequestError, match="the cut is after that"):
            await restored(store, tmp_path / "early", nodes=1, until_time=moment)
        second = await back_up(store, client)
    result = await restored(store, tmp_path / "new", nodes=1, until_time=moment)
    assert result.backup == second.id
    found, _, _ = await contents_of(tmp_path / "new")
    expected = [record.value for record in live["orders"] if record.timestamp <= moment]
    assert [record.value for record in found["orders"]] == expected


async def test_the_rest_of_a_finished_restore_is_not_taken_for_another_one(tmp_path: Path) -> None:
    store = store_in(tmp_path / "target")
    async with cluster_of(tmp_path / "cluster", nodes=1) as cluster:
        client = cluster.client()
        await fill(client)
        first = await back_up(store, client)
        await client.append("orders", b"more")
        second = await back_up(store, client)
    await restored(store, tmp_path / "new", nodes=1, backup=first.id)
    (tmp_path / "new" / ".restore").mkdir()  # As if it had died after the removal of plan.json.
    with pytest.raises(ConfigError, match="has the cluster of another restore"):
        await restored(store, tmp_path / "new", nodes=1, backup=second.id)


@pytest.mark.parametrize("missing", ["members", "chosen"])
def test_an_unfinished_restore_of_another_release_is_refused_as_such(tmp_path: Path, missing: str) -> None:
    plan = RestorePlan(target="t")
    stored = {**plan.as_json(), "chosen": "b"}
    del stored[missing]
    work = tmp_path / "new" / ".restore"
    work.mkdir(parents=True)
    (work / "plan.json").write_text(json.dumps(stored))
    with pytest.raises(ConfigError, match="another release began a restore in") as caught:
        restore_cluster(store_in(tmp_path / "target"), str(tmp_path / "new"), plan)
    assert caught.value.remedy == f"remove {tmp_path / 'new'} and restore again"
    assert json.loads((work / "plan.json").read_text()) == stored


async def test_refused_arguments_leave_nothing_and_a_restore_for_machines_with_tls_starts(tmp_path: Path) -> None:
    store = store_in(tmp_path / "target")
    async with cluster_of(tmp_path / "cluster", nodes=1) as cluster:
        client = cluster.client()
        await client.create_topic("orders")
        await client.append("orders", b"one")
        await back_up(store, client)
    new = tmp_path / "new"
    with pytest.raises(ConfigError, match="without TLS"):
        await restored(store, new, members=(("db1", "db1.example.net:7001"),))
    for name in ("tls", "ca"):
        with pytest.raises(ConfigError, match=r"cannot be called tls|a node called ca"):
            await restored(store, new, members=((name, "127.0.0.1:7001"),), tls=True)
    assert not new.exists()
    [address] = free_addresses(1)
    result = await restored(store, new, members=(("db1", address),), tls=True, settings=(("wal.bytes_max", "64MiB"),))
    assert (result.nodes, result.addresses) == (["db1"], {"db1": address})
    assert sorted(path.name for path in new.iterdir()) == ["db1", "db1.toml", "tls"]
    tls = make_certificates(str(new), clients=["alice"])[-1].tls.files
    async with open_node(node_file(str(new), "db1")), connect(address, tls=tls) as client:
        assert [record.value async for record in client.read("orders")] == [b"one"]
        [status] = await client.status()
        assert (status["cluster_id"], status["log_bytes_max"]) == (result.cluster, 64 * 1024 * 1024)
