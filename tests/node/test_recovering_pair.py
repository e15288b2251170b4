"""Before a damaged log is touched, the viewstamp that the member may have advertised is stored (protocol rule 17)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.damage import segments
from tests.node.group import Group
from tests.node.hooked_disk import HookedDisk
from tests.node.test_repair import fill
from viewstamp.host.disk import RealDisk
from viewstamp.ids import NodeId
from viewstamp.wal.control_file import ControlFile


@pytest.mark.slow
async def test_the_pair_is_stored_before_any_log_file_changes(tmp_path: Path) -> None:
    """Otherwise a crash could leave a shorter log without a trace of the loss, by which the member would vote."""
    pairs: list[object] = []

    def look(call: str, path: str, _: str) -> bool:
        if call in ("rename", "remove", "truncate", "write", "create") and is_of_the_log(path):
            state = ControlFile.open(RealDisk(), str(tmp_path / "n3")).state
            assert state is not None
            pairs.append(state.recovering_until)
        return True

    def is_of_the_log(path: str) -> bool:
        return path.startswith((str(tmp_path / "n3" / "wal"), str(tmp_path / "n3" / "damaged-1")))

    is_watched = False
    async with Group(
        tmp_path, 3, disks=lambda node: HookedDisk(RealDisk(), look if is_watched and node == "n3" else look_away)
    ) as group:
        await group.run()
        await fill(group)
        await group.caught_up()
        await group.stop("n3")
        last, before = segments(tmp_path / "n3")[-1], segments(tmp_path / "n3")[-2]
        last.unlink()
        assert before.exists()
        is_watched = True
        await group.start("n3")
        assert group.journal.of("= recovering until the lost records are replaced", node="n3")
        assert group.nodes[NodeId("n3")].status["silent_until"] is not None
    assert pairs
    assert None not in pairs


def look_away(*_: str) -> bool:
    return True
