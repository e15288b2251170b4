"""Recovery checks the files before a core may run on them."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.damage import segments
from tests.node.group import CLUSTER, SMALL, Group
from viewstamp.errors import CorruptionError
from viewstamp.host.disk import RealDisk
from viewstamp.ids import Index, NodeId
from viewstamp.node.snapshots.store import SnapshotStore
from viewstamp.wal.control_file import ControlFile, read_control_state
from viewstamp.wal.log import Wal
from viewstamp.wal.offline import verify


@pytest.mark.slow
async def test_a_history_that_contradicts_the_log_is_corruption_and_nothing_is_guessed(tmp_path: Path) -> None:
    """Rule 20: the headers in the log and the term history both give the term of each record, so they must agree."""
    async with Group(tmp_path, 1) as group:
        await group.run()
        await group.client().create_topic("t")
        await group.stop("n1")
        control = ControlFile.open(RealDisk(), str(tmp_path / "n1"))
        assert control.state is not None
        (base, (term, begin)) = control.state.history
        control.write(replace(control.state, history=(base, (term, begin + 1))))
        with pytest.raises(CorruptionError, match=r"the log in .* holds terms from .* the control file has"):
            await group.start("n1")


@pytest.mark.slow
@pytest.mark.parametrize("is_marked", [True, False])
async def test_an_empty_log_behind_a_snapshot_is_accepted_only_with_the_snapshots_history(
    tmp_path: Path, is_marked: bool
) -> None:
    """A crash between the last two writes of an installation leaves the history of the old log beside the new one."""
    directory = str(tmp_path / "n1")
    async with Group(tmp_path, 1) as group:
        await group.run()
        await group.client().create_topic("t")
        await group.nodes[NodeId("n1")].group.create_snapshot()
        await group.stop("n1")
        disk = RealDisk()
        snapshot = SnapshotStore.open(disk, f"{directory}/snapshots", CLUSTER).stored[0]
        wal = Wal.open(disk, f"{directory}/wal", SMALL, on_batch=lambda *_: None)
        wal.reset_now(snapshot.end, snapshot.term)
        wal.abandon()
        control = ControlFile.open(disk, directory)
        assert control.state is not None
        mark = (snapshot.term, snapshot.end) if is_marked else None
        control.write(replace(control.state, history=((0, 1),), installing=mark, commit_hint=0))
        if not is_marked:
            with pytest.raises(CorruptionError, match=r"contradicts the snapshot .* was not being installed"):
                await group.start("n1")
            return
        await group.run("n1")
        assert read_control_state(disk, directory).installing is None  # type: ignore[union-attr]
        replica = group.nodes[NodeId("n1")].replica
        assert replica is not None
        assert replica.raft.core.history.term_at(Index(snapshot.end - 1)) == snapshot.term


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 6_000])
async def test_an_only_voter_that_lost_the_end_of_its_log_below_its_snapshot_changes_nothing(
    tmp_path: Path, at: int
) -> None:
    """A former bug: the log was reset to the snapshot, so intact records were dropped."""
    async with Group(tmp_path, 1) as group:
        await group.run()
        client = group.client()
        await client.create_topic("t")
        for number in range(20):
            await client.append("t", b"%d" % number + b"." * 1000)
        await group.nodes[NodeId("n1")].group.create_snapshot()
        await group.stop("n1")
        (path,) = segments(tmp_path / "n1")
        os.truncate(path, at)
        before = files_of(tmp_path / "n1")
        assert verify(RealDisk(), str(tmp_path / "n1")).verdict == "corruption"
        with pytest.raises(CorruptionError, match="n1 is the only voter"):
            await group.start("n1")
        assert {**files_of(tmp_path / "n1"), "lock": b""} == {**before, "lock": b""}


@pytest.mark.slow
async def test_an_only_voter_whose_only_segment_is_emptied_after_a_clean_stop_refuses_to_start(tmp_path: Path) -> None:
    """A former bug: the voter started with an empty log and reported no error."""
    async with Group(tmp_path, 1) as group:
        await group.run()
        await group.client().create_topic("t")
        await group.stop("n1")
        (path,) = segments(tmp_path / "n1")
        os.truncate(path, 0)
        assert verify(RealDisk(), str(tmp_path / "n1")).verdict == "corruption"
        with pytest.raises(CorruptionError, match="n1 is the only voter"):
            await group.start("n1")


def files_of(directory: Path) -> dict[str, bytes]:
    """Return the contents of all files except the two control files, because opening those rewrites them."""
    paths = [path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("control-")]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}
