"""Backups of a cluster with groups: of the files of stopped nodes, and what is restored from them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.backup.cases import back_up
from tests.fork.test_fork import APART, new_members
from tests.fork.test_groups import Old, check_new, state_of
from tests.replay import members
from viewstamp.backup import restore
from viewstamp.backup.catalogue import BackupCatalogue
from viewstamp.backup.files_source import FilesSource
from viewstamp.backup.manifest import Manifest, _digest, manifest_name
from viewstamp.backup.prune import prune
from viewstamp.backup.restore import choose, write_directories
from viewstamp.backup.store import DirectoryStore
from viewstamp.backup.verify import BackupReader
from viewstamp.cli import main
from viewstamp.errors import ConfigError, CorruptionError, NoQuorumError, RequestError
from viewstamp.fork import Basis, ForkResult, fork, judge_source
from viewstamp.fork.build import remove_files
from viewstamp.host.disk import RealDisk
from viewstamp.ids import NodeId, Position
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash
from viewstamp.streams.joint_cut import contradictions
from viewstamp.wal.control_file import read_control_state
from viewstamp.wire.batch import Kind
from viewstamp.wire.ordering import StreamReport, encode_context, encode_order
from viewstamp.wire.placing import encode_hosted

SOURCES = ("/n1", "/n2", "/n3")


def target() -> DirectoryStore:
    return DirectoryStore(SimulatedDisk("target"), "/target")


def taken(old: Old, store: DirectoryStore, sources: Sequence[str] = SOURCES) -> Manifest:
    return asyncio.run(back_up(store, FilesSource.open(old.disk, sources)))


def restored(store: DirectoryStore, old: Old, backup: str | None = None) -> ForkResult:
    """Restore into new directories of the disk of the old cluster, as the command does."""
    choice = choose(BackupCatalogue.load(store), backup)
    write_directories(old.disk, "/source", BackupReader(store), choice, random.Random(1))
    source = judge_source(old.disk, ["/source"], basis=Basis.COMMITTED, with_groups=True)
    return fork(
        old.disk,
        source,
        cluster="d",
        members=new_members(APART),
        entropy=random.Random(7),
        segment_bytes=members.SMALL.segment_bytes,
    )


def grow(old: Old) -> None:
    """Append two records to the first stream, order them, and write the files of all nodes again."""
    stream, log = old.streams[0], old.logs[0]
    log.records(b"later")
    log.records(b"newest")
    end = log.state().names[stream.name].next_position
    old.home.add(encode_order([StreamReport(stream, end, Position(3))]))
    version = old.home.state().order.version
    log.add(encode_context(stream.name, [run for at, run in old.home.state().order.runs() if at == stream]))
    assert version == 3
    rewrite(old)


def rewrite(old: Old) -> None:
    """Write the files of all nodes again, with what was added to the logs."""
    old.disk = SimulatedDisk()
    for node in members.NAMES:
        members.write_member(old.disk, node, old.home)
        for group, each in zip(old.groups, old.logs, strict=True):
            members.write_member(old.disk, f"{node}/groups/{group}", each, node=node)
            members.change_control(old.disk, f"{node}/groups/{group}", group=group)


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_all_groups_of_stopped_nodes_are_restored_with_one_order(is_trimmed: bool) -> None:
    old, store = Old(), target()
    if is_trimmed:
        old.trim()
    manifest = taken(old, store)
    assert [log.group for log in manifest.logs] == [0, *old.groups]
    assert [log.begin > 1 for log in manifest.logs] == [is_trimmed] * 3
    assert [log.snapshot is not None for log in manifest.logs] == [is_trimmed] * 3
    found = BackupReader(store).verify(manifest)
    assert (found.errors, found.objects) == ([], len(manifest.objects))
    result = restored(store, old)
    assert result.groups == tuple(old.groups)
    assert {group: log.end - 2 for group, log in judge_source(old.disk, APART, with_groups=True).logs.items()} == {
        log.group: log.end for log in manifest.logs
    }
    if is_trimmed:
        return
    check_new(old, APART)
    home = state_of(old.disk, *APART)
    states = {group: state_of(old.disk, *(f"{each}/groups/{group}" for each in APART)) for group in old.groups}
    assert contradictions(home, states) == []
    before = old.home.state()
    assert [*home.order.streams()] == [*before.order.streams()]
    for group, log in zip(old.groups, old.logs, strict=True):
        assert [topic.describe() for topic in states[group].names.values()] == [
            topic.describe() for topic in log.state().names.values()
        ]


def test_a_later_backup_has_the_pieces_of_each_group_and_pruning_keeps_them() -> None:
    old, store = Old(), target()
    first = taken(old, store)
    second = taken(old, store)
    assert second.sent_bytes == 0, "each group goes on behind its own pieces"
    assert [log.log for log in second.logs] == [log.log for log in first.logs]
    grow(old)
    third = taken(old, store)
    assert third.groups[1].log == first.groups[1].log
    assert third.groups[0].end > first.groups[0].end
    assert BackupCatalogue.load(store).manifests == [first, second, third]
    prune(store, 1)
    assert BackupReader(store).verify(third).errors == []
    restored(store, old)
    check_new(old, APART)


def test_a_release_before_refuses_the_manifest_and_those_without_groups_keep_the_old_format() -> None:
    old, store = Old(), target()
    manifest = taken(old, store)
    fields = json.loads(store.read(manifest_name(manifest.id)))
    assert (fields["format"], len(fields["groups"])) == (2, 2)
    alone = replace(manifest, groups=())
    fields = json.loads(alone.encode())
    assert fields["format"] == 1
    assert "groups" not in fields
    assert Manifest.decode(alone.encode(), "m") == alone
    assert Manifest.decode(manifest.encode(), "m") == manifest


def test_a_backup_says_which_records_of_streams_are_archived(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files of the archive are not in a backup, so whoever restores it has to keep them."""
    old, store = Old(), DirectoryStore(RealDisk(), str(tmp_path))
    prepared = old.logs[0].command(Kind.PREPARE_RUN, topic=1, first=1, end=3)
    run: dict[str, object] = {"run": prepared.first_index, "records": 2, "size": 7, "digest": bytes(32)}
    start = int(next(each for each in old.logs[0].batches if each.kind is Kind.RECORDS).first_index)
    run |= {"first_index": start, "end_index": start + 2, "first_time": 3, "last_time": 4}
    old.logs[0].command(Kind.COMMIT_RUN, **run, first_global=1, end_global=3)
    rewrite(old)
    manifest = taken(old, store)
    assert manifest.archived == {"spread.1": 2}
    fields = json.loads(store.read(manifest_name(manifest.id)))
    assert fields["format"] == 3, "a release before would take the field for damage"
    assert [log.get("archived") for log in fields["groups"]] == [{"spread.1": 2}, None]
    assert Manifest.decode(manifest.encode(), "m") == manifest
    assert main.run(["backup", "verify", str(tmp_path)]) == 0
    assert "its files, and a restored cluster reads these records there\n  spread, stream 1: up to position 2\n" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("ids", [[], [0, 2], [9, 2], [2, 2]])
def test_a_manifest_whose_groups_are_none_is_damage(ids: list[int]) -> None:
    old, store = Old(), target()
    fields = json.loads(taken(old, store).encode())
    del fields["sha256"]
    fields["groups"] = [{**fields["groups"][0], "group": each} for each in ids]
    with pytest.raises(CorruptionError, match="is no whole manifest"):
        Manifest.decode(json.dumps({**fields, "sha256": _digest(fields)}).encode(), "m")


def test_no_incarnation_of_a_group_is_in_a_backup() -> None:
    """With one, a process could pose as a member of the group."""
    for is_trimmed in (False, True):
        old, store = Old(), target()
        if is_trimmed:
            old.trim()
        manifest = taken(old, store)
        disks = old.home.state().placements.founders
        assert len(disks) == 6
        for stored in manifest.objects:
            assert not [disk for disk in disks if disk.encode() in store.read(stored.name)], stored.name
        assert BackupReader(store).verify(manifest).errors == []
        restored(store, old)
        again = target()
        for stored in taken(old, again, APART).objects:
            data = again.read(stored.name)
            assert not [
                state.incarnation
                for directory in APART
                for group in old.groups
                if (state := read_control_state(old.disk, f"{directory}/groups/{group}")) is not None
                and state.incarnation.encode() in data
            ], stored.name


def test_a_refused_second_disk_of_a_founder_is_still_refused_in_the_restored_log() -> None:
    """The state compares incarnations, so two different ones are different in the backup, too."""
    old, store = Old(), target()
    before = old.home.state()
    old.home.add(encode_hosted(old.groups[0], NodeId("n1"), "f" * 16))
    for node in members.NAMES:
        for name in old.disk.list_directory(f"/{node}/wal"):
            old.disk.remove(f"/{node}/wal/{name}")
        members.write_member(old.disk, node, old.home)
    manifest = taken(old, store)
    restored(store, old)
    log = members.Log()
    log.batches = [
        batch for piece in manifest.log for batch in BackupReader(store).read_piece(piece) if batch.end <= manifest.end
    ]
    assert log.state().chain == before.chain == old.home.state().chain


def test_a_group_without_a_majority_is_refused_and_nothing_is_written() -> None:
    old, store = Old(), target()
    for node in ("n1", "n2"):
        remove_files(old.disk, f"/{node}/groups/{old.groups[1]}")
    with pytest.raises(NoQuorumError, match=f"group {old.groups[1]}: no majority"):
        taken(old, store)
    with pytest.raises(NoQuorumError, match="no majority"):
        taken(old, store, ["/n3"])
    assert BackupCatalogue.load(store).manifests == []


def test_a_cut_at_an_index_or_a_time_is_refused_with_groups() -> None:
    old, store = Old(), target()
    taken(old, store)
    grow(old)
    manifest = taken(old, store)
    catalogue = BackupCatalogue.load(store)
    for cut in ({"until": manifest.end - 2}, {"until_time": manifest.log_time - 1}):
        with pytest.raises(RequestError, match=f"has the groups {old.groups[0]}, {old.groups[1]}, and an index or"):
            choose(catalogue, **cut)  # type: ignore[arg-type]


def test_a_damaged_or_missing_piece_of_a_group_is_named() -> None:
    old, store = Old(), target()
    manifest = taken(old, store)
    piece = manifest.groups[1].log[0]
    data = store.read(piece.name)
    store.write(piece.name, data[:-1] + bytes([data[-1] ^ 1]))
    found = BackupReader(store).verify(manifest)
    assert [piece.name in error.message for error in found.errors] == [True]
    with pytest.raises(CorruptionError, match="is damaged"):
        restored(store, old)
    store.remove(piece.name)
    assert len(BackupReader(store).verify(manifest).errors) == 1
    again = taken(old, store)
    assert BackupReader(store).verify(again).errors == []


def test_groups_that_were_moved_aside_are_named() -> None:
    old, store = Old(), target()
    for node in members.NAMES:
        for group in old.groups:
            remove_files(old.disk, f"/{node}/groups/{group}")
            old.disk.remove_directory(f"/{node}/groups/{group}/wal")
            old.disk.remove_directory(f"/{node}/groups/{group}")
    source = FilesSource.open(old.disk, SOURCES)
    assert [each.id for each in source.left_out] == old.groups
    assert asyncio.run(back_up(store, source)).groups == ()
    assert restored(store, old).groups == ()


def test_a_death_while_a_restore_writes_leaves_a_directory_that_a_repetition_writes_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restore, "_SEGMENT_BYTES", members.SMALL.segment_bytes)
    old, store = Old(2), target()
    manifest = taken(old, store)
    choice = choose(BackupCatalogue.load(store))
    deaths, call = 0, 0
    while True:
        disk = SimulatedDisk()
        disk.crash_at(disk.calls + call)
        try:
            write_directories(disk, "/source", BackupReader(store), choice, random.Random(1))
        except SimulatedCrash:
            disk.crash(random.Random(call))
            deaths += 1
        else:
            break
        write_directories(disk, "/source", BackupReader(store), choice, random.Random(2))
        source = judge_source(disk, ["/source"], basis=Basis.COMMITTED, with_groups=True)
        assert {group: log.end for group, log in source.logs.items()} == {log.group: log.end for log in manifest.logs}
        call += 5
    assert deaths > 10


def test_a_restored_group_without_its_directory_is_refused() -> None:
    """It would be dropped from the new cluster without a word."""
    old = Old()
    disk = SimulatedDisk()
    members.write_member(disk, "source", old.home, node="backup", hint=old.home.end)
    members.write_member(disk, f"source/groups/{old.groups[0]}", old.logs[0], node="backup", hint=old.logs[0].end)
    members.change_control(disk, f"source/groups/{old.groups[0]}", group=old.groups[0])
    with pytest.raises(NoQuorumError, match=f"no directory of group {old.groups[1]} was found"):
        judge_source(disk, ["/source"], basis=Basis.COMMITTED, with_groups=True)
    with pytest.raises(ConfigError, match="also holds the groups"):
        judge_source(disk, ["/source"], basis=Basis.COMMITTED)
