"""Damaged targets: each kind is named, and nothing that is whole is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.backup.cases import FAST, back_up, cluster_of, fill, store_in
from viewstamp.backup.catalogue import BackupCatalogue
from viewstamp.backup.manifest import Manifest
from viewstamp.backup.options import BackupOptions
from viewstamp.backup.prune import prune
from viewstamp.backup.restore import choose
from viewstamp.backup.store import DirectoryStore
from viewstamp.backup.verify import BackupReader
from viewstamp.embed.local_cluster import ClusterHandle
from viewstamp.errors import ConfigError, CorruptionError, RequestError

pytestmark = pytest.mark.slow


@pytest.fixture
async def cluster(tmp_path: Path):  # type: ignore[no-untyped-def]  # an async generator
    async with cluster_of(tmp_path / "cluster", nodes=1) as cluster:
        client = cluster.client()
        await fill(client, count=200, size=8000)
        await client.create_snapshot("n1")
        yield cluster


@pytest.fixture
async def backups(cluster: ClusterHandle, tmp_path: Path) -> tuple[DirectoryStore, Manifest, Manifest]:
    """Return a target with two backups, of which the second shares a piece with the first."""
    store, client = store_in(tmp_path / "target"), cluster.client()
    first = await back_up(store, client)
    await client.append("orders", b"more")
    return store, first, await back_up(store, client)


Backups = tuple[DirectoryStore, Manifest, Manifest]


@pytest.mark.parametrize("kind", ["flipped", "shortened", "missing"])
@pytest.mark.parametrize("which", ["log", "snapshot"])
async def test_a_damaged_object_is_named_and_a_full_backup_does_without_it(
    backups: Backups, cluster: ClusterHandle, tmp_path: Path, kind: str, which: str
) -> None:
    store, _, second = backups
    assert second.snapshot is not None
    damaged = second.log[0] if which == "log" else second.snapshot.parts[0]
    path = tmp_path / "target" / damaged.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if kind == "missing":
        path.unlink()
    else:
        path.write_bytes(data if kind == "flipped" else data[:-10])
    errors = BackupReader(store).verify(second).errors
    assert [damaged.name in str(error) for error in errors] == [True]
    third = await back_up(store, cluster.client(), options=BackupOptions(bytes_per_second=1 << 40, is_full=True))
    assert BackupReader(store).verify(third).errors == []


async def test_an_object_that_is_missing_or_short_is_sent_again(backups: Backups, cluster: ClusterHandle) -> None:
    store, _, second = backups
    store.remove(second.log[0].name)
    third = await back_up(store, cluster.client())
    assert BackupReader(store).verify(third).errors == []


@pytest.mark.parametrize("damage", ["half", "changed", "empty", "no json"])
async def test_a_half_written_manifest_is_no_backup_and_the_others_remain(
    backups: Backups, tmp_path: Path, damage: str
) -> None:
    store, first, second = backups
    path = tmp_path / "target" / "manifests" / f"{second.id}.json"
    text = path.read_bytes()
    changed = {"half": text[: len(text) // 2], "empty": b"", "no json": b"[1]"}
    path.write_bytes(
        changed.get(damage) or (text.replace(b'"node": "n1"', b'"node": "n2"') if damage == "changed" else b"")
    )
    catalogue = BackupCatalogue.load(store)
    assert catalogue.manifests == [first]
    assert "is no whole manifest" in str(catalogue.problems[f"manifests/{second.id}.json"])
    assert choose(catalogue).manifest == first
    with pytest.raises(CorruptionError, match="is no whole manifest"):
        catalogue.find(second.id)
    with pytest.raises(ConfigError, match="nothing was removed"):
        prune(store, 1)


async def test_a_backup_of_a_newer_version_is_named_and_kept(backups: Backups, tmp_path: Path) -> None:
    from viewstamp.backup.manifest import _digest

    store, first, second = backups
    path = tmp_path / "target" / "manifests" / f"{second.id}.json"
    fields = json.loads(path.read_bytes())
    del fields["sha256"]
    fields |= {"format": 4, "compression": "new"}
    path.write_text(json.dumps({**fields, "sha256": _digest(fields)}))
    catalogue = BackupCatalogue.load(store)
    assert catalogue.manifests == [first]
    with pytest.raises(ConfigError, match="has format 4, this version of viewstamp reads up to 3"):
        catalogue.find(second.id)
    with pytest.raises(ConfigError, match="nothing was removed"):
        prune(store, 1)


async def test_pruning_keeps_what_the_newest_need(backups: Backups, cluster: ClusterHandle, tmp_path: Path) -> None:
    store, first, second = backups
    (tmp_path / "target" / "log" / "left.batches").write_bytes(b"of a backup that was killed")
    pruned = prune(store, 1)
    assert pruned.backups == [first.id]
    assert "log/left.batches" not in store.list_sizes("log/")
    assert BackupCatalogue.load(store).manifests == [second]
    assert BackupReader(store).verify(second).errors == []
    assert prune(store, 1).objects == 0
    again = await back_up(store, cluster.client(), options=FAST)
    assert BackupReader(store).verify(again).errors == []


async def test_a_cut_before_the_oldest_or_after_the_newest_backup_is_refused(backups: Backups) -> None:
    store, first, second = backups
    catalogue = BackupCatalogue.load(store)
    with pytest.raises(RequestError, match="the cut is after that"):
        choose(catalogue, until=second.end)
    with pytest.raises(RequestError, match="the cut is after that"):
        choose(catalogue, until_time=second.created_us + 10_000_000)
    assert choose(catalogue, until=first.end - 1).manifest == first
    assert choose(catalogue, until=first.end).manifest == second
    assert choose(catalogue, until_time=first.log_time - 1).manifest == first
    assert choose(catalogue, until_time=first.log_time).manifest == second, "later records may have the same log time"
    with pytest.raises(ConfigError, match="has no backup nothing"):
        catalogue.find("nothing")


def test_a_target_without_backups_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no backup"):
        choose(BackupCatalogue.load(store_in(tmp_path / "empty")))
