"""A new leader admits no command before it has applied the records of earlier terms."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.actor_group import ActorGroup
from tests.node.group import SMALL, wait_for
from viewstamp.actors.replicated import ReplicatedActor, command
from viewstamp.ids import Index, NodeId
from viewstamp.streams import Streams


class Slow(ReplicatedActor):
    """An actor that takes longer to apply a command than the disk takes to sync it."""

    @command
    def write(self, line: str) -> int:
        return sum(range(1_000_000)) + len(line)


class Watched(Streams):
    """Records the applied index at each moment at which admission begins."""

    def __init__(self) -> None:
        super().__init__({"slow": Slow})
        self.began_at: list[Index] = []

    def begin_leading(self) -> None:
        self.began_at.append(self._state.end)
        super().begin_leading()


class WatchedGroup(ActorGroup):
    def machine(self, node: NodeId) -> Watched:
        return Watched()


@pytest.mark.slow
async def test_no_command_is_admitted_while_records_of_earlier_terms_are_being_applied(tmp_path: Path) -> None:
    """Otherwise a retry would be checked against an older state and enter the log a second time."""
    async with WatchedGroup(tmp_path / "before", 1, wal=replace(SMALL, idle_seconds=60.0)) as group:
        await group.run()
        actors = [group.client(seed=seed).actor("slow", Slow) for seed in range(1, 9)]
        await asyncio.gather(*(actor.write("first") for actor in actors))
        await asyncio.gather(*(actor.write("." * 30_000) for actor in actors for _ in range(4)))
        node = group.nodes[NodeId("n1")]
        assert node.replica is not None
        end = node.replica.raft.core.log.end
        shutil.copytree(tmp_path / "before" / "n1", tmp_path / "after" / "n1")  # As after a kill at this moment.
    async with WatchedGroup(tmp_path / "after", 1) as group:
        await group.run()
        machine = group.nodes[NodeId("n1")].machine
        assert isinstance(machine, Watched)
        await wait_for(lambda: bool(machine.began_at), group.journal.tail)
        assert machine.began_at[0] >= end
