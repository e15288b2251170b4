"""A new leader admits nothing before it has applied what earlier terms left in its log."""

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
    """Takes longer to apply than a disk does to sync."""

    @command
    def write(self, line: str) -> int:
        return sum(range(1_000_000)) + len(line)


class Watched(Streams):
    """Notes up to where it had applied whenever it began to admit."""

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
async def test_nothing_is_admitted_while_what_was_found_is_being_applied(tmp_path: Path) -> None:
    """Admitted by an older state, the retry of a command that is being applied would enter the log again."""
    async with WatchedGroup(tmp_path / "before", 1, wal=replace(SMALL, idle_seconds=60.0)) as group:
        await group.run()
        actors = [group.client(seed=seed).actor("slow", Slow) for seed in range(1, 9)]
        await asyncio.gather(*(actor.write("first") for actor in actors))
        await asyncio.gather(*(actor.write("." * 30_000) for actor in actors for _ in range(4)))
        node = group.nodes[NodeId("n1")]
        assert node.replica is not None
        end = node.replica.raft.core.log.end
        shutil.copytree(tmp_path / "before" / "n1", tmp_path / "after" / "n1")  # As after a kill, now.
    async with WatchedGroup(tmp_path / "after", 1) as group:
        await group.run()
        machine = group.nodes[NodeId("n1")].machine
        assert isinstance(machine, Watched)
        await wait_for(lambda: bool(machine.began_at), group.journal.tail)
        assert machine.began_at[0] >= end
