"""A node that restarts its parts within its process: nothing of the stopped parts may outlive them."""

import asyncio
import threading
from pathlib import Path

import pytest

from tests.loop_errors import left_behind
from tests.node.caller import call
from tests.node.group import CLUSTER, PATIENCE_SECONDS, Group, not_on_the_loop, wait_for
from tests.node.hooked_disk import HookedDisk
from viewstamp.consensus.roles import Lifecycle
from viewstamp.errors import StorageError, UnavailableError
from viewstamp.host.disk import RealDisk
from viewstamp.ids import NodeId
from viewstamp.node import Node
from viewstamp.node import group as groups
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.handshake import Hello

pytestmark = pytest.mark.slow


def has_begun_again(node: Node, before: object) -> bool:
    """Return whether a node runs, with other parts than before."""
    return node.replica not in (None, before) and node.lifecycle is Lifecycle.RUNNING


async def test_a_sync_that_fails_while_a_node_begins_again_stops_it_for_good(tmp_path: Path) -> None:
    """Unsynced bytes may be read back from the system's cache.

    A node that continued would vouch for records that are not on its disk.
    """
    is_broken = False

    def hook(called: str, path: str, caller: str) -> bool:
        nonlocal is_broken
        if is_broken and called in ("sync", "sync_data") and path.endswith(".segment"):
            is_broken = False  # Only once: the next sync would succeed although the bytes are lost.
            raise StorageError(f"cannot {called} {path}: input/output error", remedy="replace the device")
        return not_on_the_loop(called, path, caller)

    async with Group(tmp_path, 1, disks=lambda _: HookedDisk(RealDisk(), hook)) as group:
        await group.run()
        await group.client().create_topic("t")
        node = group.nodes[NodeId("n1")]
        before = node.replica
        is_broken = True
        node.group.restart("a test")
        failure = await asyncio.wait_for(asyncio.shield(node.failed), PATIENCE_SECONDS)
        assert isinstance(failure, StorageError)
        await asyncio.sleep(0.1)
        assert node.replica in (None, before), "no other parts were made"
        assert group.board.ports == {}


async def test_a_peer_that_connects_while_the_parts_stop_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts that are stopping would accept a peer and forget its disk, and the connection would outlive them."""
    stops, may_go_on = asyncio.Event(), asyncio.Event()
    close_files = groups.Group._close_files

    async def close_later(self: groups.Group, *arguments: object) -> None:
        stops.set()
        await may_go_on.wait()
        await close_files(self, *arguments)  # type: ignore[arg-type]

    async with Group(tmp_path, 1) as group:
        await group.run()
        node, before = group.nodes[NodeId("n1")], group.nodes[NodeId("n1")].replica
        monkeypatch.setattr(groups.Group, "_close_files", close_later)
        node.group.restart("a test")
        await asyncio.wait_for(stops.wait(), PATIENCE_SECONDS)
        hello = Hello(cluster=CLUSTER, node=NodeId("n2"), incarnation="disk", address="127.0.0.1:2")
        try:
            with pytest.raises(UnavailableError, match="replaying"):
                node.group.meet(NodeId("n2"), hello)
        finally:
            may_go_on.set()
        await wait_for(lambda: has_begun_again(node, before), group.journal.tail)


async def test_a_node_that_has_failed_does_not_begin_again(tmp_path: Path) -> None:
    async with Group(tmp_path, 1) as group:
        await group.run()
        node = group.nodes[NodeId("n1")]
        assert node.group.parts is not None
        node.group.parts.system.fail(StorageError("the disk is gone"))
        before = node.replica
        node.group.restart("a test")
        await asyncio.sleep(0.1)
        assert node.replica is before


async def test_a_stop_anywhere_in_a_new_beginning_leaves_nothing_behind(tmp_path: Path) -> None:
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    group = Group(tmp_path, 1)
    turns = 0
    while turns < 200:
        await group.run("n1")
        node = group.nodes[NodeId("n1")]
        before = node.replica
        node.group.restart("a test")
        for _ in range(turns):
            await asyncio.sleep(0)
        was_done = has_begun_again(node, before)
        await group.stop("n1")
        assert node.failed.cancelled(), node.failed
        assert await left_behind(tasks, threads) == [], f"after {turns} turns"
        RealDisk().lock(node.options.data_dir).release()
        if was_done:
            break
        turns += 1 if turns < 20 else turns // 2
    assert group.board.ports == {}


async def test_a_caller_that_waits_for_an_answer_gets_an_error(tmp_path: Path) -> None:
    """Its request went to parts that no longer exist."""
    async with Group(tmp_path, 3, request_seconds=PATIENCE_SECONDS) as group:
        await group.run()
        await group.stop("n2", "n3")
        node = group.nodes[NodeId("n1")]
        async with call(group) as caller:
            caller.send(FrameKind.LIST_TOPICS, {"id": 1, "stale": False})
            await wait_for(lambda: node.replica is not None and node.replica.held_readers > 0, group.journal.tail)
            before = node.replica
            node.group.restart("a test")
            assert await caller.is_ended()
        await wait_for(lambda: node.replica not in (None, before), group.journal.tail)


async def test_a_group_goes_on_while_its_members_begin_again_one_by_one(tmp_path: Path) -> None:
    async with Group(tmp_path, 3) as group:
        await group.run()
        client = group.client()
        await client.create_topic("t")
        for number, node in enumerate(group.nodes.values()):
            before = node.replica
            node.group.restart("a test")
            receipt = await client.append("t", b"%d" % number)
            assert receipt.position == number + 1
            await wait_for(lambda node=node, before=before: has_begun_again(node, before), group.journal.tail)  # type: ignore[misc]
        await group.caught_up()
