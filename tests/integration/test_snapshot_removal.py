"""An obsolete file that cannot be removed costs space, and nothing else."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.integration.actor_group import ActorGroup, Callers
from tests.integration.test_snapshot_steps import N1, ONLY_WHEN_ASKED, VALUE, WAL
from tests.node.group import wait_for
from tests.node.hooked_disk import HookedDisk
from viewstamp.errors import StorageError
from viewstamp.host.disk import RealDisk
from viewstamp.node.snapshots import policy

pytestmark = pytest.mark.slow


async def test_a_snapshot_that_cannot_be_removed_is_reported_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "_REMOVE_SECONDS", 0.0)
    is_busy = True

    def hook(call: str, path: str, _: str) -> bool:
        if is_busy and call == "remove" and path.endswith(".snapshot"):
            raise StorageError(f"cannot remove {path}: Device or resource busy")
        return True

    options = dataclasses.replace(ONLY_WHEN_ASKED, kept_max=2)
    disk = HookedDisk(RealDisk(), hook)
    async with ActorGroup(tmp_path, 1, disks=lambda _: disk, wal=WAL, snapshots=options) as group:
        await group.run()
        callers = Callers(group.client(), ["one"], padding=VALUE)
        for _ in range(4):
            await callers.send(5)
            await group.client().create_snapshot()
        node = group.nodes[N1]
        await wait_for(lambda: len(node.status["stuck_files"]) > 0, group.journal.tail)
        assert not node.failed.done()
        (first, *_) = node.status["stuck_files"]
        lines = group.journal.of("! cannot remove a file that is not needed", path=first)
        assert len(lines) == 1, "each file is logged once, however often its removal fails"
        is_busy = False
        await wait_for(lambda: node.status["stuck_files"] == {}, group.journal.tail)
        await callers.send(5)
        assert not disk.exists(first)
