"""Fail-stop: a node works or fails as a whole. No failed write and no exception may leave it half alive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.node.group import Group, not_on_the_loop
from tests.node.hooked_disk import HookedDisk
from viewstamp.actors import Failure, System
from viewstamp.consensus.ready import Fetch
from viewstamp.errors import StorageError, StorageFullError, ViewstampError
from viewstamp.host.disk import RealDisk
from viewstamp.host.logger import Logger
from viewstamp.ids import Index, NodeId, Term
from viewstamp.node import Node


class BrokenLog:
    """A log on the failing disk: each line raises an error."""

    def __init__(self, look: Callable[[], None] = lambda: None) -> None:
        self._look = look

    def bind(self, **_: Any) -> Logger:
        return self

    def info(self, event: str, **values: Any) -> object:
        self._look()
        raise OSError(28, "No space left on device")

    error = warning = info


class Broken(Group):
    """A group with an unwritable log stream; tests can make the disk of n1 fail."""

    def __init__(self, directory: Path, size: int = 3) -> None:
        super().__init__(directory, size, disks=self.disk_of)
        self.refuses: tuple[str, str, type[StorageError]] | None = None
        """The failing call of n1's disk, the paths for which it fails, and the error."""

    def disk_of(self, name: NodeId) -> HookedDisk:
        return HookedDisk(RealDisk(), self.hook if name == "n1" else not_on_the_loop)

    def hook(self, call: str, path: str, caller: str) -> bool:
        if self.refuses is not None and self.refuses[0] in call and self.refuses[1] in path:
            raise self.refuses[2](f"cannot {call} {path}: the disk is broken")
        return not_on_the_loop(call, path, caller)

    def make(self, name: str, **changes: Any) -> Node:
        node = super().make(name, **changes)
        return Node(node.options, node.host, node.machine, BrokenLog(), machine_of=lambda _: self.machine(NodeId(name)))


async def test_a_group_works_with_a_log_stream_that_cannot_be_written(tmp_path: Path) -> None:
    async with Broken(tmp_path) as group:
        await group.run()
        client = group.client()
        await client.create_topic("orders")
        await client.append("orders", b"1")
        leader = await group.leader()
        await leader.group.transfer_leadership("")
        await client.append("orders", b"2")
        assert not any(node.failed.done() for node in group.nodes.values())


@pytest.mark.slow
@pytest.mark.parametrize("error", [StorageError, StorageFullError])
@pytest.mark.parametrize(
    ("call", "path"), [("write", "/wal/"), ("sync", "/wal/"), ("write", "control"), ("rename", "")]
)
async def test_a_node_whose_disk_and_log_stream_fail_fails_as_a_whole(
    tmp_path: Path, call: str, path: str, error: type[StorageError]
) -> None:
    """A failed node releases its port and directory, so that another member can lead and the node can be restarted."""
    async with Broken(tmp_path) as group:
        await group.run()
        client = group.client()
        await client.create_topic("orders")
        node = group.nodes[NodeId("n1")]
        group.refuses = call, path, error
        async with asyncio.timeout(20):
            await load(group, node)
            assert isinstance(await node.failed, StorageError)
            await node.stop()
        del group.nodes[NodeId("n1")]
        assert (await group.leader()).options.node != "n1"
        group.refuses = None
        await group.run("n1")
        await client.append("orders", b"again")


async def load(group: Group, node: Node) -> None:
    """Append and transfer leadership until ``node`` has failed; this writes each of its files."""
    client = group.client(timeout=1.0)
    while not node.failed.done():
        try:
            await client.append("orders", b"." * 20_000)
            leader = await group.leader(not_="n1") if node.failed.done() else await group.leader()
            await leader.group.transfer_leadership("")
        except ViewstampError:
            await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("error", [StorageError, StorageFullError])
async def test_a_snapshot_that_cannot_be_written_does_not_leave_half_a_node(
    tmp_path: Path, error: type[StorageError]
) -> None:
    async with Broken(tmp_path, 1) as group:
        await group.run()
        client = group.client()
        await client.create_topic("orders")
        group.refuses = "async write", "snapshots", error
        node = group.nodes[NodeId("n1")]
        with pytest.raises(ViewstampError):
            await node.group.create_snapshot()
        if not node.failed.done():
            await client.append("orders", b"1")


async def test_failed_is_set_before_anything_is_logged(tmp_path: Path) -> None:
    async with Group(tmp_path, 1) as group:
        seen: list[bool] = []
        made = group.make("n1")
        log = BrokenLog(lambda: seen.append(node.failed.done()))
        node = Node(made.options, made.host, made.machine, log, machine_of=lambda _: made.machine)
        await node.start()
        await node.wait_running(20)
        seen.clear()
        assert node.group.parts is not None
        node.group.parts.system.fail(StorageError("the disk is gone"))
        assert seen == [True]
        await node.stop()


async def test_a_node_fails_when_its_replica_has_ended_without_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewstamp.node.health.watchdog._LOOK_SECONDS", 0.01)
    async with Group(tmp_path, 1) as group:
        await group.run()
        node = group.nodes[NodeId("n1")]
        assert node.group.parts is not None
        node.group.parts.ref.stop()
        async with asyncio.timeout(20):
            assert "the replica has ended" in str(await node.failed)


async def test_a_fetch_that_fails_for_an_unforeseen_reason_fails_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise only the task would end, and the member that needs those batches would wait for ever."""
    async with Group(tmp_path, 1) as group:
        await group.run()
        node = group.nodes[NodeId("n1")]

        async def read_log(*_: object) -> object:
            raise RuntimeError("a defect")

        monkeypatch.setattr(node.group.parts.log_reader, "read_log", read_log)
        node.group.parts.log_fetches.begin(Fetch(NodeId("n2"), Term(1), 1, Index(1), 100))
        async with asyncio.timeout(20):
            assert isinstance(await node.failed, RuntimeError)


async def test_a_system_stops_although_its_on_failed_raises() -> None:
    def on_failed(_: Failure) -> None:
        raise OSError(28, "No space left on device")

    system = System(on_failed=on_failed)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    system.fail(StorageError("the disk is gone"))
    async with asyncio.timeout(5):
        await system.stop()
        failure = await system.failed
    assert failure is not None


@pytest.mark.parametrize("part", ["PeerPool", "Replica", "Scrubber", "Digests"])
async def test_a_node_whose_parts_cannot_be_created_releases_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    async with Group(tmp_path, 1) as group:
        await group.run()
        client = group.client()
        await client.create_topic("orders")
        await group.stop("n1")

        def no_memory(*_: object, **__: object) -> None:
            raise MemoryError(part)

        with monkeypatch.context() as patch:
            patch.setattr(f"viewstamp.node.parts.{part}", no_memory)
            with pytest.raises(MemoryError, match=part):
                await group.make("n1").start()
        await group.run("n1")
        await client.append("orders", b"1")


class NoThread(HookedDisk):
    """The machine has no thread left for one of the executors."""

    def __init__(self, refused: str) -> None:
        super().__init__(RealDisk(), not_on_the_loop)
        self.refused = refused

    def executor(self, name: str, *arguments: Any, **options: Any) -> Any:
        if name == self.refused:
            raise RuntimeError("can't start new thread")
        return super().executor(name, *arguments, **options)


@pytest.mark.parametrize("name", ["wal-writer", "wal-prepare"])
async def test_a_node_that_gets_no_thread_for_its_log_releases_its_directory(tmp_path: Path, name: str) -> None:
    disk = NoThread("")
    async with Group(tmp_path, 1, disks=lambda _: disk) as group:
        await group.run()
        client = group.client()
        await client.create_topic("orders")
        await group.stop("n1")
        disk.refused = name
        with pytest.raises(RuntimeError, match="start new thread"):
            await group.make("n1").start()
        disk.refused = ""
        await group.run("n1")
        await client.append("orders", b"1")
