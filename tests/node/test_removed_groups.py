"""A group that is removed by a record of group 0: each node closes it, and removes its directory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.mutants import patched
from tests.node.caller import call
from tests.node.group import PATIENCE_SECONDS, wait_for
from tests.node.test_hosting import Placing
from viewstamp.client import group_removal
from viewstamp.client.group_removal import GroupRemovalCalls
from viewstamp.errors import RequestError, UnavailableError
from viewstamp.ids import GroupId, NodeId
from viewstamp.node import server
from viewstamp.node.archive_rounds import ArchiveRounds
from viewstamp.node.group import Group
from viewstamp.node.hosting import Hosting
from viewstamp.node.placement_queries import PlacedGroup
from viewstamp.wire.batch import Kind
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


async def test_a_node_that_leaves_a_group_while_it_stops_stops_cleanly(tmp_path: Path) -> None:
    async with Removing(tmp_path, 1) as group:
        await group.run()
        placed, node = await group.place("s1"), group.nodes[NodeId("n1")]
        await wait_for(lambda: group.leader_of(placed) is not None, group.journal.tail)
        original = ArchiveRounds.stop

        async def stop(self: ArchiveRounds) -> None:
            node.archives._parts.pop(placed, None)
            await original(self)

        with patched(ArchiveRounds, stop=stop):
            await group.stop("n1")
        assert node.groups[placed].failed.done() is False
        await group.run()
        await group.remove(placed)
        await group.stop("n1")
        await group.run()
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


async def test_a_client_removes_a_group_when_its_streams_are_moved_and_deleted(tmp_path: Path) -> None:
    async with Removing(tmp_path) as group:
        await group.run()
        client = group.client()
        old, new = await group.place("s1"), await group.place("s2")
        await wait_for(lambda: group.leader_of(old) and group.leader_of(new), group.journal.tail)
        await client.create_spread_topic("orders", 1, groups=[old])
        await client.append("orders", b"a", ordered=True)
        with pytest.raises(RequestError, match=f"group {old} keeps 'orders.1'; it was not removed"):
            await client.remove_group(old)
        await client.move_stream("orders", 1, new)
        await client.trim_spread_topic("orders", 2)
        original = GroupRemovalCalls._is_empty

        async def is_empty(self: GroupRemovalCalls, *asked: Any) -> bool:
            """The stream is removed, and deleted, between the index and the look at the group."""
            await until(lambda: client.remove_stream("orders", 1))
            await until(lambda: original(self, *asked))
            return True

        with (
            patched(GroupRemovalCalls, _is_empty=is_empty),
            pytest.raises(RequestError, match="was removed after this command had looked at the group"),
        ):
            await client.remove_group(old)
        with (
            patched(server, Kind=[Kind.LOSE_SEALED_STREAM]),
            pytest.raises(RequestError, match=r"n[123]: runs a release that cannot read records of kind 75"),
        ):
            await client.remove_group(old)
        await client.remove_group(old)
        await client.remove_group(old)
        await group.is_left(old)
        # This client has not heard of the move. Its first append gets no answer; then it reads the route.
        with pytest.raises(UnavailableError):
            await client.append("orders", b"x", timeout=0.3)
        receipt = await client.append("orders", b"b", ordered=True)
        assert receipt.global_position == 2
        assert [each.id for each in await client.list_groups()] == [new]
        with pytest.raises(RequestError, match=f"there is no group {old + new}"):
            await client.remove_group(old + new)


async def until(call: Callable[[], Awaitable[object]]) -> None:
    """Repeat a call that is refused until the leader of the group has deleted what was removed."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with suppress(RequestError):
                await call()
                return
            await asyncio.sleep(0.02)


async def test_a_group_that_keeps_a_topic_or_does_not_answer_stays_unless_its_nodes_are_lost(tmp_path: Path) -> None:
    async with Removing(tmp_path) as group:
        await group.run()
        client = group.client()
        placed = await group.place("s1", nodes=("n3",))
        await group.create(placed, "one")
        for lost in (False, True):
            with pytest.raises(RequestError, match=f"group {placed} keeps 'one'; it was not removed"):
                await client.remove_group(placed, lost=lost)
        await group.stop("n3")
        with pytest.raises(UnavailableError, match="does not say whether it keeps anything") as refused:
            await client.remove_group(placed, timeout=0.3)
        assert f"viewstamp group remove {placed} --lost" in refused.value.remedy
        with patched(group_removal, _LOOK_SECONDS=0.2):
            await client.remove_group(placed, lost=True)
        assert await client.list_groups() == []
        await group.run("n3")
        await group.is_left(placed)
