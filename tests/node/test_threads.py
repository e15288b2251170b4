"""The threads of a node with many groups: a group has threads only while its log has work, and shares none."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path

import msgpack
import pytest

from tests.node.group import PATIENCE_SECONDS, not_on_the_loop, wait_for
from tests.node.hooked_disk import HookedDisk
from tests.node.test_hosting import Placing
from viewstamp.host import disk as disk_module
from viewstamp.host.disk import RealDisk
from viewstamp.host.executor import ThreadExecutor
from viewstamp.ids import GroupId, NodeId
from viewstamp.wire.batch import Kind, build_batch

GROUPS = 8
THREADS = 2
"""The threads of one executor that has work (``docs/design/0001-sync-threads.md``)."""


def is_executor(thread: str) -> bool:
    """Return whether a thread is one that writes, prepares or reads the log of a group."""
    return thread.startswith("wal-") or "-reader-" in thread


class Crowded(Placing):
    """One node with many groups; tests can make the log of one of them hang."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 1, disks=lambda _: HookedDisk(RealDisk(), self._hook))
        self.before = set(threading.enumerate())
        self.hanging = ""
        """The directory of the group whose syncs hang until ``goes_on``."""
        self.hangs, self.goes_on = threading.Event(), threading.Event()

    def _hook(self, call: str, path: str, caller: str) -> bool:
        if self.hanging and call == "sync_data" and f"/{self.hanging}/" in path:
            self.hangs.set()
            self.goes_on.wait(PATIENCE_SECONDS)
        return not_on_the_loop(call, path, caller)

    def threads(self) -> list[str]:
        """Return the names of the node's threads, without those of the event loop, which all nodes share."""
        own = set(threading.enumerate()) - self.before
        return sorted(each.name for each in own if not each.name.startswith("asyncio_"))

    async def rest(self) -> list[str]:
        """Wait until no executor has had work for a moment, and return the threads that are left."""
        await wait_for(lambda: not any(map(is_executor, self.threads())), lambda: f"{self.threads()}")
        return self.threads()

    def propose(self, group: GroupId, name: str) -> asyncio.Future[object]:
        """Create a topic in a group; the result is there when it is applied."""
        answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        record = msgpack.packb({"name": name, "retain_bytes": 0, "retain_seconds": 0.0})
        self.nodes[NodeId("n1")].groups[group].propose(
            build_batch([record], kind=Kind.CREATE_TOPIC), answered.set_result
        )
        return answered


async def test_a_node_with_many_groups_has_as_many_threads_as_a_node_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "ThreadExecutor", partial(ThreadExecutor, idle_seconds=0.02))
    async with Crowded(tmp_path) as group:
        await group.run()
        alone = await group.rest()
        groups = [await group.place(f"s{number}") for number in range(GROUPS)]
        for each in groups:
            await wait_for(lambda each=each: group.leader_of(each) is not None, group.journal.tail)
        assert await group.rest() == alone
        for name in ("one", "two"):
            results = await asyncio.gather(*(group.propose(each, name) for each in groups))
            assert not [each for each in results if isinstance(each, Exception)]
        assert len(group.threads()) <= len(alone) + 3 * THREADS * (GROUPS + 1)
        assert await group.rest() == alone


async def test_a_log_that_hangs_keeps_its_own_threads_only_and_the_other_groups_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "ThreadExecutor", partial(ThreadExecutor, idle_seconds=0.02))
    async with Crowded(tmp_path) as group:
        await group.run()
        groups = [await group.place(f"s{number}") for number in range(3)]
        for each in groups:
            await wait_for(lambda each=each: group.leader_of(each) is not None, group.journal.tail)
        alone = await group.rest()
        stuck, *others = groups
        group.hanging = str(stuck)
        try:
            waiting = group.propose(stuck, "one")
            for name in ("one", "two", "three"):
                await asyncio.wait_for(
                    asyncio.gather(*(group.propose(each, name) for each in others)), PATIENCE_SECONDS
                )
            await wait_for(group.hangs.is_set, group.journal.tail)
            assert not waiting.done()
            await wait_for(lambda: len(group.threads()) <= len(alone) + THREADS, lambda: f"{group.threads()}")
        finally:
            group.goes_on.set()
        assert not isinstance(await asyncio.wait_for(waiting, PATIENCE_SECONDS), Exception)
        assert await group.rest() == alone
