"""The hosting of placed groups: brings the groups of a node into line with the placement in the state of group 0.

It looks at the placement after each change of it, and repeats what is not complete. It remembers nothing that decides:
the next start of the process goes on from the state of group 0 and the directories.

| the state of group 0 has | the directory ``groups/<g>`` | this node |
| --- | --- | --- |
| no incarnation of this founder | missing, or without a control file | completes it, then reports its incarnation |
| no incarnation of this founder | complete | reports its incarnation again, until it is recorded |
| its incarnation; the group is not established | any | waits |
| an established group | of the recorded incarnation | opens it as the founder |
| an established group | missing, or without a control file: the disk was lost | completes it under a new id, and \
joins the group |
| an established group | of another incarnation, and never voted | gives it a new id, and joins the group |
| an established group | of another incarnation, and has voted | refuses it, because people must decide |
| an established group | has a new id already | opens it under that id |
| an established group, to which this node was added | as for a lost disk | joins the group under a new id |
| an established group, which this node has left | any | as for a removed group |
| the group as cancelled | any | removes it if it holds nothing (``cancelled.py``) |
| the group as removed | any | closes the group, and removes the directory with its records (``removed.py``) |
| no group of this id, or one of other nodes | any | leaves it as it is, and reports it |

The control file is written last when a directory is created, so a directory without one holds nothing. A directory with
one never gets another incarnation here. So a founder's name belongs to one disk for ever (``EstablishedIsNeverNew``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from viewstamp.errors import ConfigError, StorageFullError, ViewstampError
from viewstamp.host.blocking import in_thread, to_the_end
from viewstamp.host.interfaces import Disk, Host
from viewstamp.host.logger import Logger
from viewstamp.ids import GroupId
from viewstamp.node.cancelled import remove_cancelled
from viewstamp.node.data_dir import DataDir, directories_of_groups
from viewstamp.node.group import Group
from viewstamp.node.options import NodeOptions
from viewstamp.node.peers.identity import reborn
from viewstamp.node.placement_queries import CancelledGroupsQuery, GroupsQuery, PlacedGroup, RemovedGroupsQuery
from viewstamp.node.removed import remove_removed
from viewstamp.node.state_machine import AnswerT, Query, StateMachine
from viewstamp.wal.control_file import ControlState
from viewstamp.wal.log import Wal
from viewstamp.wire.batch import Batch
from viewstamp.wire.identity_proof import fingerprint

__all__ = ["Hosting", "MachineFactory", "complete_directory", "options_of"]

MachineFactory = Callable[[GroupId], StateMachine]
"""Returns the state machine of a group that was placed on this node, to which nothing has been applied."""

_REPEAT_SECONDS = 0.5


class Hosting:
    """Hosts the groups that were placed on this node, each in a task of its own, so that none waits for another.

    Invariants:
      * a group is opened only if the applied state of group 0 has it as established
      * a group that could not be opened is not tried again by this process, unless the disk was full
    """

    def __init__(
        self,
        group: Group,
        host: Host,
        *,
        hosted: Mapping[GroupId, Group],
        open_group: Callable[[NodeOptions, StateMachine], Awaitable[Group]],
        close_group: Callable[[GroupId], Coroutine[Any, Any, None]],
        machine_of: MachineFactory,
        on_failed: Callable[[BaseException], None],
        log: Logger,
    ) -> None:
        """Prepare; nothing runs before :meth:`on_placement`.

        Args:
          group: group 0 of this node.
          host: the machine.
          hosted: the groups that are open already.
          open_group: opens a group: ``Node.host_group``.
          close_group: closes a group that is open: ``Node.end_group``.
          machine_of: returns the state machine of a group.
          on_failed: called if the hosting itself has failed, which ends the node.
          log: the logger of the node.
        """
        self.failures: dict[GroupId, str] = {}
        """The groups that could not be opened, each with the reason."""
        self._group = group
        self._host = host
        self._hosted = hosted
        self._open_group = open_group
        self._close_group = close_group
        self._machine_of = machine_of
        self._on_failed = on_failed
        self._logger = log
        self._tasks: dict[GroupId, asyncio.Task[None]] = {}
        """The groups that are not open yet."""
        self._changes: dict[GroupId, asyncio.Event] = {}
        """Wakes each of the tasks after a change of the placement."""
        self._incarnations: dict[GroupId, str] = {}
        """The disks of the directories that this process has completed for groups that were not established."""
        self.kept: dict[GroupId, str] = {}
        """The directories of groups that have ended here and were not removed, each with the reason."""
        self._found: list[GroupId] = []
        """The groups of which this node had a directory when it started, and those that it has closed since."""
        self._swept: set[GroupId] = set()
        """The groups that have ended here of which this process has no directory any more, or has it in ``kept``."""
        self._sweep: asyncio.Task[None] | None = None
        """Removes directories of groups that have ended here; None = there is nothing to remove."""
        self._is_stopping = False

    def look(self) -> None:
        """Note which directories of groups there are. Call it before the groups are opened. Blocks."""
        options = self._group.options
        self._found = [
            GroupId(int(name))
            for name in directories_of_groups(self._host.disk, options.data_dir)
            if name.isascii() and name.isdecimal()
        ]

    @property
    def unused(self) -> dict[GroupId, str]:
        """Return the groups whose directories this node has and does not use, each with the reason."""
        if self._group.parts is None:
            return {}
        placed = {each.id: each for each in self._group.machine.query(GroupsQuery())}
        ended = {*self._queried(CancelledGroupsQuery()), *self._ended, *self._swept}
        found = {group: self._why_unused(placed.get(group)) for group in self._found if group not in ended}
        return {group: reason for group, reason in found.items() if reason} | self.kept

    def _why_unused(self, placed: PlacedGroup | None) -> str:
        if placed is None:
            end = self._group.applied_index
            return f"no group of this id is placed, by the log of group 0 up to index {end}"
        if self._group.options.node not in placed.hosts:
            return f"the group is placed on {', '.join(placed.hosts)}"
        return ""

    def on_placement(self) -> None:
        """Look at the placement, because it may have changed. Never awaits."""
        for change in self._changes.values():
            change.set()
        if self._is_stopping:
            return
        for placed in self.placed:
            if placed.id not in self._hosted and placed.id not in self.failures and placed.id not in self._tasks:
                self._swept.discard(placed.id)  # Group 0 starts again, and has not applied the end of this group yet.
                self._changes[placed.id] = asyncio.Event()
                self._tasks[placed.id] = asyncio.get_running_loop().create_task(self._bring_up(placed.id))
        if self._sweep is None and (self._unswept or self._cancelled):
            self._sweep = asyncio.get_running_loop().create_task(self._remove_ended())

    @property
    def _cancelled(self) -> list[GroupId]:
        """Return the cancelled groups that nothing here uses any more, and whose directories may be left."""
        in_use = {*self._tasks, *self._hosted, *self._swept}
        return [group for group in self._queried(CancelledGroupsQuery()) if group not in in_use]

    @property
    def _unswept(self) -> list[GroupId]:
        """Return the removed groups, and those that this node has left, that are open or may have a directory here."""
        return [group for group in self._ended if group not in self._swept]

    @property
    def _ended(self) -> list[GroupId]:
        """Return the removed groups, and those that this node has left."""
        left = [each.id for each in self._queried(GroupsQuery()) if self._group.options.node in each.left]
        return [*self._queried(RemovedGroupsQuery()), *left]

    def _queried(self, query: Query[list[AnswerT]]) -> list[AnswerT]:
        """Return the answer by the applied state; [] until the log is replayed."""
        return self._group.machine.query(query) if self._group.parts is not None else []

    @property
    def placed(self) -> list[PlacedGroup]:
        """Return the groups of which this node is a host, by the applied state; [] until the log is replayed."""
        return [each for each in self._queried(GroupsQuery()) if self._group.options.node in each.hosts]

    @property
    def unserved(self) -> dict[GroupId, str]:
        """Return the established groups of this node that it cannot serve now, each with the reason."""
        established = [placed.id for placed in self.placed if placed.is_established]
        return {group: reason for group in established if (reason := self._why_unserved(group))}

    def _why_unserved(self, group: GroupId) -> str:
        if group in self.failures:
            return self.failures[group]
        hosted = self._hosted.get(group)
        if hosted is not None and hosted.failed.done():
            return hosted.failure
        if hosted is None or hosted.parts is None:
            return "it is being opened"
        core = hosted.parts.raft.core
        if core.me not in core.membership.addresses:
            return f"{core.me} is not a member yet"
        return "" if core.leader is not None else f"no leader is known in term {core.term}"

    async def stop(self) -> None:
        """Stop looking, and wait for the end of steps on the disk. Idempotent."""
        self._is_stopping = True
        tasks = [*self._tasks.values(), *([self._sweep] if self._sweep is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _bring_up(self, group: GroupId) -> None:
        """Take the steps with one group; the root of its task."""
        try:
            await self._take_steps(group, self._changes[group])
        except ViewstampError as error:
            self._note_failure(group, error)
        except Exception as error:
            self._on_failed(error)
            return
        finally:
            del self._tasks[group], self._changes[group]
        self.on_placement()  # A group that was cancelled meanwhile is not in use any more.

    async def _take_steps(self, group: GroupId, change: asyncio.Event) -> None:
        """Return when the group is open, or is not placed any more."""
        while True:
            change.clear()
            placed = next((each for each in self.placed if each.id == group), None)
            if placed is None:
                return  # Cancelled; or group 0 starts again, and then reports the placement again.
            try:
                if placed.is_established:
                    await self._open(placed)
                    return
                is_recorded = self._group.options.node in placed.incarnations
                if not is_recorded:
                    await self._report(placed)
            except StorageFullError as error:
                is_recorded = False  # Try again, because an operator frees space without a restart.
                if self.failures.get(group) != str(error):
                    self._note_failure(group, error)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if is_recorded else _REPEAT_SECONDS):
                    await change.wait()

    async def _remove_ended(self) -> None:
        """Close groups that have ended here, and remove their directories and those of cancelled groups.

        The root of its task.
        """
        try:
            while True:
                if (removed := next(iter(self._unswept), None)) is not None:
                    await self._leave(removed)
                    await self._remove_directory(removed, remove_removed, "removed or left")
                elif (cancelled := next(iter(self._cancelled), None)) is not None:
                    await self._remove_directory(cancelled, remove_cancelled, "cancelled")
                else:
                    return
        except Exception as error:
            self._on_failed(error)
        finally:
            self._sweep = None

    async def _leave(self, group: GroupId) -> None:
        """Close a group, or end its opening, which may wait for other members without a limit."""
        if (task := self._tasks.get(group)) is not None:
            task.cancel()
            await asyncio.wait([task])
        if group in self._hosted:
            await to_the_end(self._close_group(group))
            self._logger.info("= group closed, because it was removed, or this node has left it", group=group)

    async def _remove_directory(self, group: GroupId, remove: Callable[[Disk, NodeOptions], bool], what: str) -> None:
        self.failures.pop(group, None)
        options = self._group.options.of_group(group, {}, learners={})
        try:
            if await in_thread(remove, self._host.disk, options):
                self._logger.info(f"= directory of a {what} group removed", group=group)
        except ViewstampError as error:
            self.kept[group] = str(error)
            self._logger.warning(f"! directory of a {what} group stays", group=group, reason=str(error))
        self._swept.add(group)

    def _note_failure(self, group: GroupId, error: ViewstampError) -> None:
        self.failures[group] = str(error)
        self._logger.error("! group not opened", group=group, error=str(error))

    async def _report(self, placed: PlacedGroup) -> None:
        """Create the directory of a group once in this process, and report its disk."""
        if placed.id not in self._incarnations:
            options = options_of(self._group.options, placed)
            self._incarnations[placed.id] = await in_thread(complete_directory, self._host, options)
            self.failures.pop(placed.id, None)
        self._group.report_hosted(placed.id, self._incarnations[placed.id])

    async def _open(self, placed: PlacedGroup) -> None:
        options = options_of(self._group.options, placed)
        await in_thread(complete_directory, self._host, options)
        await self._open_group(options, self._machine_of(placed.id))
        self.failures.pop(placed.id, None)
        self._logger.info("= group opened", group=placed.id)


def options_of(node: NodeOptions, placed: PlacedGroup) -> NodeOptions:
    """Return the options of a placed group. Its id decides which founder campaigns first, so that leaders spread."""
    founders = list(placed.members)
    others = placed.hosts.keys() - {node.node, *founders} if node.node in placed.added else set()
    return node.of_group(
        placed.id,
        placed.members,
        # An added node asks them to add it, because no founder may be left. A founder must not begin with them.
        learners={each: address for each, address in placed.hosts.items() if each in others},
        leader_hint=founders[placed.id % len(founders)],
        incarnations=placed.incarnations if placed.is_established else {},
    )


def complete_directory(host: Host, options: NodeOptions) -> str:
    """Create the directory of a founder if it is not complete; return its incarnation, which is durable. Blocks.

    ``options.incarnations`` has the recorded disks if the group is established, {} if it is not. A directory with
    another disk than the recorded one, or of a node that is no founder, gets a new id, under which it joins.

    Raises:
      ConfigError: the directory is another group's, node's or cluster's, or has voted with another disk.
      CorruptionError: it has records but no control file. StorageError: the disk failed.
    """
    disk, node, recorded = host.disk, options.node, options.incarnations.get(options.node)
    is_established = bool(options.incarnations)
    disk.make_directory(options.data_dir)
    directory = DataDir.open(host, options.data_dir, node=node, cluster=options.cluster, group=options.group)
    state = directory.state
    if state is None:

        def on_batch(batch: Batch, _: int) -> None:
            raise directory.orphan(f"a log from index {batch.first_index} on")

        Wal.open(disk, directory.wal_path, options.wal, on_batch=on_batch, log_id=directory.log_id).abandon()
        incarnation = f"{host.entropy.getrandbits(64):016x}"
        directory.write(
            ControlState(
                cluster_id=options.cluster,
                node_id=node,
                incarnation=incarnation,
                log_id=directory.log_id,
                group=options.group,
                member_id=reborn(node, incarnation) if is_established else "",
            )
        )
        return incarnation
    if is_established and recorded != state.incarnation and not state.member_id:
        if state.term:
            raise ConfigError(
                f"{options.data_dir} has another disk of {node} (fingerprint {fingerprint(state.incarnation)}) than"
                f" group 0 has on record ({fingerprint(recorded) if recorded else 'none'}), and has voted with it",
                remedy="put the directory of this node back; or remove this one, and the node joins the group anew",
            )
        directory.write(replace(state, member_id=reborn(node, state.incarnation)))
    return state.incarnation
