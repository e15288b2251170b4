"""What recovery demands of the files before a core may run on them."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.group import CLUSTER, SMALL, Group
from viewstamp.errors import CorruptionError
from viewstamp.host.disk import RealDisk
from viewstamp.ids import Index, NodeId
from viewstamp.node.snapshot_store import SnapshotStore
from viewstamp.wal.control_file import ControlFile
from viewstamp.wal.wal import Wal


@pytest.mark.slow
async def test_a_history_that_does_not_describe_the_log_is_damage_and_nothing_is_guessed(tmp_path: Path) -> None:
    """Rule 20: the log's headers say in which term each record was written, and so does the history."""
    async with Group(tmp_path, 1) as group:
        await group.run()
        await group.client().create_topic("t")
        await group.stop("n1")
        control = ControlFile.open(RealDisk(), str(tmp_path / "n1"))
        assert control.state is not None
        (base, (term, begin)) = control.state.history
        control.write(replace(control.state, history=(base, (term, begin + 1))))
        with pytest.raises(CorruptionError, match=r"the log in .* holds terms from .* the control file says"):
            await group.start("n1")


@pytest.mark.slow
async def test_an_empty_log_that_continues_a_snapshot_is_believed_only_with_its_history(tmp_path: Path) -> None:
    """A death between the two last writes of an installation leaves it with the history of the log of before."""
    directory = str(tmp_path / "n1")
    async with Group(tmp_path, 1) as group:
        await group.run()
        await group.client().create_topic("t")
        await group.nodes[NodeId("n1")].create_snapshot()
        await group.stop("n1")
        disk = RealDisk()
        snapshot = SnapshotStore.open(disk, f"{directory}/snapshots", CLUSTER).stored[0]
        wal = Wal.open(disk, f"{directory}/wal", SMALL, on_batch=lambda *_: None)
        wal.reset_now(snapshot.end, snapshot.term)
        wal.abandon()
        control = ControlFile.open(disk, directory)
        assert control.state is not None
        control.write(replace(control.state, history=((0, 1),)))
        await group.run("n1")
        replica = group.nodes[NodeId("n1")].replica
        assert replica is not None
        assert replica.raft.core.history.term_at(Index(snapshot.end - 1)) == snapshot.term
