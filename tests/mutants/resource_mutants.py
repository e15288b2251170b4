"""Planted mistakes in the protection of a node against its surroundings: log streams, results, connections."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from tests.mutants.mutants import Mutant, patched
from viewstamp.actors import Failure
from viewstamp.actors.replicated import ActorHost
from viewstamp.errors import OverloadedError
from viewstamp.host.disk import RealDisk
from viewstamp.host.interfaces import Connection, ConnectionHandler
from viewstamp.host.logger import SafeLogger
from viewstamp.ids import GroupId, Position
from viewstamp.local import process
from viewstamp.node.budget import AppendBudget
from viewstamp.node.crowd import Crowd
from viewstamp.node.group import Group
from viewstamp.node.health.checks import Check
from viewstamp.node.health.port import HealthPort
from viewstamp.node.node import Node
from viewstamp.node.repair.refetch import Refetcher
from viewstamp.node.snapshots.policy import Snapshotter
from viewstamp.wal.writer import Writer
from viewstamp.wire.batch import Batch
from viewstamp.wire.commands import Command
from viewstamp.wire.frame import FrameDecoder

__all__ = ["RESOURCE_MUTANTS"]


def uncache_the_newest() -> AbstractContextManager[None]:
    """The memory of the segment is given up that readers most likely read next."""

    def uncache(self: Writer) -> None:
        if self.cached_segments is not None:
            self._disk.uncache(self.catalogue.segments()[-2].path)

    return patched(Writer, _uncache=uncache)


def log_that_raises() -> AbstractContextManager[None]:
    def write(self: SafeLogger, write: Callable[..., object], event: str, values: Mapping[str, Any]) -> None:
        write(event, **values)

    return patched(SafeLogger, _write=write)


def log_before_failed() -> AbstractContextManager[None]:
    original = Node.on_failed

    def on_failed(self: Node, group: GroupId, failure: Failure) -> None:
        self._logger.error("! node failed", part=failure.actor, error=repr(failure.error))
        original(self, group, failure)

    return patched(Node, on_failed=on_failed)


def limit_by_oneself() -> AbstractContextManager[None]:
    """A member decides by its own setting instead of the one that the leader wrote into the batch."""
    original = ActorHost.apply

    def apply(self: ActorHost, batch: Batch, commands: list[Command]) -> list[bytes]:
        written, batch.first_position = batch.first_position, Position(self._result_bytes_max)
        try:
            return original(self, batch, commands)
        finally:
            batch.first_position = written

    return patched(ActorHost, apply=apply)


def read_anything_first() -> AbstractContextManager[None]:
    original = FrameDecoder.__init__

    def init(self: FrameDecoder, *arguments: Any, first_bytes_max: int = 0, **named: Any) -> None:
        original(self, *arguments, **named)

    return patched(FrameDecoder, __init__=init)


def ask_removed_members() -> AbstractContextManager[None]:
    """A repair keeps asking the members that it knew when its log was damaged."""
    return patched(Refetcher, _close_after_refusal=Refetcher.close)


def grow_without_snapshot() -> AbstractContextManager[None]:
    """A bounded log grows to its bound while no snapshot can be taken."""
    original = Snapshotter.__dict__["is_behind"].fget

    def is_behind(self: Snapshotter) -> bool:
        return original(self) and self._clock.monotonic() >= self._not_before

    return patched(Snapshotter, is_behind=property(is_behind))


def dead_without_leader() -> AbstractContextManager[None]:
    original = Node.check_alive

    def check_alive(self: Node) -> list[Check]:
        return [*original(self), *(check for check in self.check_ready() if check.name == "leader")]

    return patched(Node, check_alive=check_alive)


def hold_every_probe() -> AbstractContextManager[None]:
    original = HealthPort.accept

    def accept(self: HealthPort, connection: Connection) -> ConnectionHandler:
        kept, self.requests = self.requests, {}
        try:
            return original(self, connection)
        finally:
            self.requests |= kept

    return patched(HealthPort, accept=accept)


def refuse_because_of_others() -> AbstractContextManager[None]:
    """All groups together have one limit, so one group whose appends are not answered keeps out those of the others."""

    def divide(self: AppendBudget) -> None:
        self.share_bytes = 0

    return patched(AppendBudget, divide=divide)


def take_the_shares_of_others() -> AbstractContextManager[None]:
    return patched(AppendBudget, check=lambda self, group, size: None)


def crowd_out_a_group() -> AbstractContextManager[None]:
    """Several connections of one peer in one group keep the only link of a peer out of another group."""

    def make_room_for(self: Crowd, side: tuple[str, int]) -> None:
        raise OverloadedError(f"{len(self._peers)} connections of peers are open")

    return patched(Crowd, _make_room_for=make_room_for)


def share_nothing() -> AbstractContextManager[None]:
    """Each group uses the whole memory of the node."""
    return patched(Group, take_share=lambda self, groups: None)


def trust_found_directories() -> AbstractContextManager[None]:
    """The name of a directory that is there counts as durable, although its maker died before the sync of the name."""
    original = RealDisk.make_directory

    def make_directory(self: RealDisk, path: str) -> None:
        if not os.path.isdir(path):
            original(self, path)

    return patched(RealDisk, make_directory=make_directory)


def end_with_the_first_thread() -> AbstractContextManager[None]:
    """A killed node counts as ended while another of its threads waits for the disk, and keeps the directory locked."""
    return patched(process, _has_ended=lambda fields: fields[0] in "ZX")


def lose_sight_of_a_dying_node() -> AbstractContextManager[None]:
    """A killed node that was started by hand cannot be found any more while another of its threads goes on."""
    return patched(process, _threads=lambda pid: [f"/proc/{pid}"])


def a_thread_for_each_group() -> AbstractContextManager[None]:
    """A group has a thread of its own from its start to its end, whether it has work or not."""
    start, stop = Group.start, Group.stop

    async def start_with_thread(self: Group) -> None:
        ended = self.__dict__["ended"] = threading.Event()
        threading.Thread(target=ended.wait, name=f"group-{self.id}", daemon=True).start()
        await start(self)

    async def stop_with_thread(self: Group) -> None:
        await stop(self)
        self.__dict__["ended"].set()

    return patched(Group, start=start_with_thread, stop=stop_with_thread)


RESOURCE_MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant("log-that-raises", "a log message that cannot be written raises an error", log_that_raises, rule="§10"),
        Mutant(
            "uncache-the-newest",
            "the memory of the newest full segment is given up, and not that of an old one",
            uncache_the_newest,
            rule="§5",
        ),
        Mutant("limit-by-oneself", "a member limits results by its own setting", limit_by_oneself, rule="§6"),
        Mutant(
            "read-anything-first",
            "a node reads as many bytes before a HELLO as after it",
            read_anything_first,
            rule="§10",
        ),
        Mutant(
            "ask-removed-members",
            "a repair waits for a member that was removed",
            ask_removed_members,
            rule="§8",
        ),
        Mutant(
            "grow-without-snapshot",
            "a bounded log grows to its bound while no snapshot can be taken",
            grow_without_snapshot,
            rule="§8",
        ),
        Mutant("log-before-failed", "a failure is logged before it is final", log_before_failed, rule="§10"),
        Mutant("dead-without-leader", "/livez fails while there is no leader", dead_without_leader, rule="§10"),
        Mutant(
            "refuse-because-of-others",
            "appends of a group are refused because those of another one wait",
            refuse_because_of_others,
            rule="§7",
        ),
        Mutant(
            "take-the-shares-of-others",
            "waiting appends of a group take more than the limit",
            take_the_shares_of_others,
            rule="§7",
        ),
        Mutant(
            "crowd-out-a-group",
            "surplus connections of a peer keep the link of a peer out of another group",
            crowd_out_a_group,
            rule="§7",
        ),
        Mutant("share-nothing", "each group uses the whole memory of the node", share_nothing, rule="§7"),
        Mutant("a-thread-for-each-group", "each group of a node has a thread", a_thread_for_each_group, rule="§7"),
        Mutant("hold-every-probe", "the health port holds any number of connections", hold_every_probe, rule="§10"),
        Mutant(
            "trust-found-directories",
            "the name of a directory that a dead process made is never synced",
            trust_found_directories,
            rule="§8",
        ),
        Mutant(
            "end-with-the-first-thread",
            "a process counts as ended when its first thread has ended",
            end_with_the_first_thread,
            rule="§8",
        ),
        Mutant(
            "lose-sight-of-a-dying-node",
            "the arguments of a process are those of its first thread only",
            lose_sight_of_a_dying_node,
            rule="§8",
        ),
    )
}
"""The mutants by name."""
