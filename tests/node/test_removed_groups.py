"""A group that is removed by a record of group 0: each node closes it, and removes its directory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.mutants import patched
from tests.node.caller import call
from tests.node.group import PATIENCE_SECONDS, wait_for
from tests.node.test_hosting import Placing
from viewstamp.errors import UnavailableError
from viewstamp.ids import GroupId, NodeId
from viewstamp.node.archive_rounds import ArchiveRounds
from viewstamp.node.group import Group
from viewstamp.node.hosting import Hosting
from viewstamp.node.placement_queries import PlacedGroup
from viewstamp.wire.frame import GROUPS_VERSION, FrameKind
from viewstamp.wire.placing import encode_remove

N3 = NodeId("n3")


class Removing(Placing):
    """Nodes on which tests remove groups by their record alone."""

    async def remove(self, group: GroupId) -> None:
        leader = await self.leader()
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        leader.group.propose(encode_remove(group, seen=leader.group.applied_index, is_lost=False), answered.set_result)
        assert (await asyncio.wait_for(answered, PATIENCE_SECONDS))["group"]["id"] == group

    async def is_left(self, group: GroupId) -> None:
        """Wait until no node that runs has the group, or its directory."""
        left = [(node, Path(node.options.data_dir, "groups", str(group))) for node in self.nodes.values()]
        await wait_for(
            lambda: all(group not in node.groups and not path.exists() for node, path in left), self.journal.tail
        )


async def test_every_node_leaves_a_removed_group_also_one_that_was_down(tmp_path: Path) -> None:
    async with Removing(tmp_path) as group:
        await group.run()
        placed, other = await group.place("s1"), await group.place("s2")
        await group.create(placed, "one")
        await group.has_topics(placed, "one")
        await group.stop("n3")
        async with call(group, greet=False) as caller:
            assert (await caller.hello(group=placed, version=GROUPS_VERSION)).kind == FrameKind.WELCOME
            await group.remove(placed)
            await group.is_left(placed)
            while not await caller.is_ended():  # It may get notices about the members before.
                pass
        for node in group.nodes.values():
            with pytest.raises(UnavailableError, match=f"does not host group {placed}"):
                node.group_of(placed)
            with pytest.raises(UnavailableError, match=f"group {placed} is not open"):
                node.archivist_of(placed)
        await group.run("n3")
        await group.is_left(placed)
        await group.has_topics(other)
        for node in group.nodes.values():
            assert [each["id"] for each in node.status["placed"]] == [other]  # type: ignore[attr-defined]
            assert node.hosting.unused == {}


async def test_a_group_whose_opening_waits_is_left_too(tmp_path: Path) -> None:
    """An opening waits for other members without a limit if its log is damaged, and they have left the group."""
    opens = asyncio.Event()

    async def wait(self: Hosting, placed: PlacedGroup) -> None:
        opens.set()
        await asyncio.Event().wait()

    async with Removing(tmp_path, 1) as group:
        await group.run()
        with patched(Hosting, _open=wait):
            placed = await group.place("s1")
            await asyncio.wait_for(opens.wait(), PATIENCE_SECONDS)
            await group.remove(placed)
            await group.is_left(placed)


async def test_a_directory_that_cannot_be_removed_is_reported_and_the_others_are(tmp_path: Path) -> None:
    async with Removing(tmp_path, 1) as group:
        await group.run()
        node = group.nodes[NodeId("n1")]
        kept, other = await group.place("s1"), await group.place("s2")
        path = Path(node.options.data_dir, "groups", str(kept))
        await wait_for(lambda: {kept, other} <= node.groups.keys(), group.journal.tail)
        (path / "notes").write_text("mine")
        await group.remove(kept)
        await group.remove(other)
        await group.is_left(other)
        assert kept not in node.groups
        assert "has notes, which no member of that group on this node has" in node.hosting.unused[kept]
        assert (path / "wal").exists()


@pytest.mark.parametrize("is_archiving", [False, True])
async def test_a_node_that_stops_while_it_leaves_a_group_closes_all_of_it(tmp_path: Path, is_archiving: bool) -> None:
    """It leaves the group while its own stop begins, or while that ends the archivists one after the other."""
    is_leaving, may_go_on = asyncio.Event(), asyncio.Event()
    part: type[Any] = ArchiveRounds if is_archiving else Group
    original = part.stop

    async def stop(self: Any) -> None:
        if not is_leaving.is_set():
            is_leaving.set()
            await may_go_on.wait()
        elif is_archiving and not may_go_on.is_set():
            may_go_on.set()
            await wait_for(lambda: not node.archives.status_of(placed), group.journal.tail)
        await original(self)

    async with Removing(tmp_path, 1) as group:
        await group.run()
        placed, other = await group.place("s1"), await group.place("s2")
        node = group.nodes[NodeId("n1")]
        await group.create(placed, "one")
        left = node.groups[placed]
        with patched(part, stop=stop):
            await group.remove(placed)
            await asyncio.wait_for(is_leaving.wait(), PATIENCE_SECONDS)
            stopping = asyncio.create_task(group.stop("n1"))
            if not is_archiving:
                await asyncio.sleep(0)
                may_go_on.set()
            await asyncio.wait_for(stopping, PATIENCE_SECONDS)
        assert placed not in node.groups, "it was closed before the node went on with its stop"
        assert left.wal is None, "its log is closed"
        await group.run("n1")
        await group.is_left(placed)
        await group.has_topics(other)
