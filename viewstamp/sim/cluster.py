"""A cluster of real nodes on simulated clocks, networks and disks, with its machines.

The product itself runs in it: the core, the WAL and its recovery, the node with its server and links, and the client.
Only the host underneath is simulated, and one seed decides everything. Checks are added in ``world.py``.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import random
from collections.abc import Callable, Sequence
from typing import Any

from viewstamp.archive.run_store import RunObjects
from viewstamp.consensus.roles import Lifecycle
from viewstamp.consensus.state import RaftOptions
from viewstamp.errors import ClosedError, ConfigError, CorruptionError, StorageError, ViewstampError
from viewstamp.host.interfaces import Host
from viewstamp.ids import GROUP_0, ClusterId, GroupId, Index, NodeId
from viewstamp.node.crowd import CrowdLimits
from viewstamp.node.data_dir import GROUPS_NAME
from viewstamp.node.group import Group
from viewstamp.node.node import Node
from viewstamp.node.options import ArchiveRoundOptions, NodeOptions
from viewstamp.node.repair.scrubber import ScrubOptions
from viewstamp.node.service import Limits
from viewstamp.node.snapshots.policy import SnapshotOptions
from viewstamp.node.state_machine import StateMachine
from viewstamp.sim.disk import UNLIMITED_BYTES, DiskOptions, SimulatedDisk
from viewstamp.sim.journal import Journal
from viewstamp.sim.loop import SimulatedClock, SimulatedLoop, SimulatedProcess
from viewstamp.sim.network import LinkOptions, SimulatedNetwork
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.trace import Trace
from viewstamp.sim.violation import Violation
from viewstamp.streams.machine import Streams
from viewstamp.wal.budget import WalOptions

__all__ = ["Cluster", "Member"]

_TICK_SECONDS = 0.02
_ELECTION_TICKS = 15
_RESTART_SECONDS = 0.3
_GROUP_DOWN_SECONDS = 1.0
"""Time for which a node goes on after one of its groups has failed, before its process is started again."""
_MACHINES_TO_COME = 4
_RESULT_BYTES_MIN = 4096


class Member:
    """One machine of the cluster, and the node that currently runs on it."""

    def __init__(self, cluster: Cluster, name: NodeId, address: str) -> None:
        self.cluster = cluster
        self.name = name
        self.id = name
        """Its id in group 0: its name, or another id since its disk was lost."""
        self.ids_in_groups: dict[GroupId, NodeId] = {}
        """Its ids in the other groups that it has opened."""
        self.address = address
        self.data_dir = f"/{name}"
        self.disk = SimulatedDisk(f"{name}-disk", loop=cluster.loop)
        self.clock = SimulatedClock(cluster.loop, offset=cluster.entropy.uniform(0, 1000))
        self.boots = 1
        """Number of starts of the machine: a power cut ends such a life, the death of a process does not."""
        self.host = Host(
            self.clock,
            self.disk,
            cluster.network.view(name),
            cluster.loop.entropy(f"node {name}"),
            boot_id=lambda: f"{name}-boot-{self.boots}",
        )
        self.process: SimulatedProcess | None = None
        self.node: Node | None = None
        self.starts = 0
        self.is_sync_only = False
        """Whether it proposes nothing in its present life."""
        self.incarnation = ""
        """The incarnation of its disk when it was retired; "" = unknown at that time."""
        self.is_retired = False
        """Whether it was removed, and is never started again."""
        self.is_stopping = False
        """Whether its present process was asked to stop cleanly."""
        self.foreign: tuple[str, bytes, bytes, bytes] | None = None
        """Path, own bytes, header and log id of another member's segment that was put there; None = there is none."""

    @property
    def foreign_path(self) -> str | None:
        """The path of a foreign segment in this member's log; None = there is none, or it has been set aside."""
        if self.foreign is not None:
            path, _, header, _ = self.foreign
            volume = self.disk.volume
            if not volume.exists(path) or bytes(volume.find(path).data[: len(header)]) != header:
                self.foreign = None  # The node set its whole directory aside, because it lost its control file too.
        return self.foreign[0] if self.foreign is not None else None

    def complains_of_foreign(self, error: ConfigError) -> bool:
        """Return whether an error is about the foreign segment: it contains the id of its log, as found or as expected.

        A node that lost its control file cannot determine which of two logs in its directory is its own, so it may
        report one of its own segments as foreign.
        """
        if self.foreign_path is None or self.foreign is None:
            return False
        return self.data_dir in error.message and self.foreign[3].hex() in error.message

    def put_own_file_back(self) -> None:
        """Restore the node's own segment in the place of the foreign one."""
        assert self.foreign is not None, "there is none"
        (path, data, *_), self.foreign = self.foreign, None
        self.disk.volume.find(path).become(data)

    @property
    def is_up(self) -> bool:
        """Whether it has a living process."""
        return self.process is not None and not self.process.is_dead

    @property
    def machine(self) -> StateMachine:
        """The state of the node, which must run."""
        assert self.is_up, f"{self.id} is down"
        assert self.node is not None, f"{self.id} starts"
        return self.node.machine

    def id_in(self, group: GroupId) -> NodeId:
        """Return its newest id in a group."""
        return self.id if group == GROUP_0 else self.ids_in_groups.get(group, self.name)

    def note_id(self, group: GroupId, member: NodeId) -> None:
        """Note the id under which it takes part in a group."""
        if group == GROUP_0:
            self.id = member
        else:
            self.ids_in_groups[group] = member

    def directory_of(self, group: GroupId) -> str:
        """Return the directory of a group on its disk."""
        return self.data_dir if group == GROUP_0 else f"{self.data_dir}/{GROUPS_NAME}/{group}"

    def group(self, group: GroupId) -> Group | None:
        """Return the replica of a group on the node; None = it does not run."""
        return self.node.groups.get(group) if self.is_up and self.node is not None else None

    def settled_end(self, group: GroupId = GROUP_0) -> Index | None:
        """Return the end of the log of a RUNNING group if all is durable, committed and applied; else None."""
        replica = hosted.replica if (hosted := self.group(group)) is not None else None
        if replica is None or replica.raft.core.lifecycle is not Lifecycle.RUNNING:
            return None
        log, applied_end = replica.raft.core.log, replica.applier.applied_end
        return log.end if log.end == log.durable_end == log.commit_end == applied_end else None


class Cluster:
    """Machines, and the actions on them.

    Invariants:
      * the same seed and swarm give the same trace
      * a member that went down for any reason is started again, unless the run ends before
    """

    def __init__(
        self,
        seed: int | str,
        swarm: Swarm,
        *,
        machine: Callable[[NodeId], StateMachine] | None = None,
        trace: Trace | None = None,
    ) -> None:
        """Make a cluster in which nothing runs yet; ``machine`` returns a member's state machine at each start."""
        self.loop = SimulatedLoop(seed, trace=trace)
        self.swarm = swarm
        self._make_machine = machine or self._make_journals
        self.groups = [GroupId(number) for number in range(swarm.groups)]
        self.entropy: random.Random = self.loop.entropy("world")
        self.network = SimulatedNetwork(self.loop, options=swarm.links, give_up_seconds=5.0)
        self.members = [Member(self, NodeId(f"n{number}"), _address(number)) for number in range(1, swarm.nodes + 1)]
        self._first_members = list(self.members)
        self.full_logs: dict[str, None] = {}
        """The members with a currently unwritable log stream: each line that they log raises OSError."""
        self.retired: list[Member] = []
        self._joined = 0
        self.off_clocks: dict[str, None] = {}
        """The machines with wall clocks that have jumped."""
        self.is_calm = False
        self.runs_of: Callable[[Member], RunObjects | None] = lambda _: None
        """Returns the store of archived records, as a member uses it that starts now; None = it has none."""
        for member in self.members:
            self.calm_disk(member)

    def touched(self) -> list[Member]:
        """Return the members that the last event can have changed: one, if it was of its process; none, if of a client.

        Processes do not share objects, so an event changes another member only by a message, whose arrival is an event
        of that member.
        """
        ran = self.loop.ran
        return self.members if ran is None or ran.touched is None else ran.touched

    # -- Starts and ends ---------------------------------------------------------------------------------------

    def bring_up(self, member: Member) -> None:
        """Start the member's node in a new process; does nothing if one runs already or the member is retired."""
        if member.is_up or member.is_retired:
            return
        member.starts += 1
        member.is_stopping = False
        self.note(member.id, "=", f"start {member.starts}")
        member.is_sync_only = self._draw_sync_only(member)
        process = self.loop.process(f"{member.name}.{member.starts}")
        process.rate = member.clock.rate
        process.touched = [member]
        member.process = process
        member.node = None
        process.spawn(self._live(member, process))

    def take_down(self, member: Member, *, power: bool) -> None:
        """End the member's process at once; with ``power``, the disk keeps only what a power cut leaves."""
        member.node = None
        if power:
            self.isolate(member)
        if member.process is not None:
            member.process.kill()
        if power:
            member.disk.crash()
            member.boots += 1
            self.heal(member.name)
        else:
            member.disk.kill()

    def isolate(self, member: Member) -> None:
        """Cut the links between this member and all others, in both directions."""
        self.network.isolate(member.name, [other.name for other in self.members if other is not member])

    def join(self) -> Member | None:
        """Make one more machine; its node has yet to be started and added; None = there are no more."""
        if self._joined == _MACHINES_TO_COME:
            return None
        self._joined += 1
        number = len(self._first_members) + self._joined
        member = Member(self, NodeId(f"n{number}"), _address(number))
        self.members.append(member)
        self.calm_disk(member)
        return member

    def retire(self, member: Member) -> None:
        """Remove a machine for good, because it is no longer a member."""
        member.is_retired = True
        member.incarnation = member.node.group.incarnation if member.node is not None else ""
        self.take_down(member, power=False)
        self.members.remove(member)
        self.retired.append(member)
        self.heal(member.name)

    def heal(self, node: str) -> None:
        """End the partitions of one node."""
        self.network.heal(source=node)
        self.network.heal(target=node)

    def calm_disk(self, member: Member) -> None:
        """Reset the speed of the member's disk to the swarm's setting."""
        if self.is_calm:
            member.disk.options = DiskOptions()
        else:
            swarm = self.swarm
            member.disk.options = DiskOptions(delay_mean=swarm.disk_mean, stall=swarm.disk_stall, stall_seconds=0.3)

    def calm_capacity(self, member: Member) -> None:
        """Restore free space on the member's disk."""
        member.disk.capacity_bytes = UNLIMITED_BYTES

    def calm(self) -> None:
        """End all faults: heal, resume and restart. From here on the cluster has to recover by itself."""
        self.is_calm = True
        self.full_logs.clear()
        self.network.options = LinkOptions()
        self.network.clear_links()
        self.network.heal()
        for member in self.members:
            self.calm_disk(member)
            self.calm_capacity(member)
            member.disk.crash_at(None)
            if member.is_sync_only:
                self.take_down(member, power=False)  # It restarts as a member that proposes.
            if member.process is not None:
                member.process.resume()
            self.bring_up(member)

    def _draw_sync_only(self, member: Member) -> bool:
        swarm = self.swarm
        if self.is_calm:
            return False
        if member in self.members[1 : 1 + swarm.sync_only]:
            return True
        return swarm.sync_only_chance > 0 and self.entropy.random() < swarm.sync_only_chance

    def close(self) -> None:
        """End the world."""
        self.loop.close()

    async def _live(self, member: Member, process: SimulatedProcess) -> None:
        """Run one node until it fails; after a failure of its disk it is started again, like any service."""
        runs = self.runs_of(member)
        node = Node(
            self._options(member),
            member.host,
            self._make_machine(member.name),
            _NodeLog(self, member.name, {}),
            machine_of=lambda _: self._make_machine(member.name),
            run_store=runs,
            run_source=runs,
        )
        member.node = node
        try:
            await node.start()
            if member.foreign_path is not None:
                self.fail(Violation("ForeignRefused", f"{member.id} starts with another log's {member.foreign_path}"))
                return
            if len(self.groups) > 1 and member in self._first_members:
                failure: BaseException = await self._live_with_groups(member, node)
            else:
                failure = await node.failed
        except ViewstampError as error:
            failure = error
        if isinstance(failure, ClosedError) and member.is_stopping:
            return
        if isinstance(failure, ConfigError) and member.complains_of_foreign(failure):
            member.put_own_file_back()
        elif not isinstance(failure, StorageError) and not (
            isinstance(failure, CorruptionError) and self.may_refuse(member)
        ):
            if not isinstance(failure, Violation):
                violation = Violation("a node fails only when its disk does", f"{member.id}: {failure!r}")
                violation.__cause__ = failure
                failure = violation
            self.fail(failure)
            return
        self.note(member.id, "!", f"stops: {failure}")
        # Outside the context of any process, because this one is about to die together with its callbacks.
        self.loop.call_soon(self.restart, member, process, context=contextvars.Context())

    async def _live_with_groups(self, member: Member, node: Node) -> BaseException:
        """Host the other groups; return the first failure. After that of another group the node goes on for a while."""
        members = {other.name: other.address for other in self._first_members}
        for group in self.groups[1:]:
            options = node.options.of_group(group, members, learners={}, leader_hint=self._first_members[-1].name)
            await node.host_group(options, self._make_machine(member.name))
        ends = [group.failed for group in node.groups.values()]
        await asyncio.wait([node.failed, *ends], return_when=asyncio.FIRST_COMPLETED)
        if not node.failed.done():
            await asyncio.wait([node.failed], timeout=_GROUP_DOWN_SECONDS)
        return next(end.result() for end in (node.failed, *ends) if end.done())

    def may_refuse(self, member: Member) -> bool:
        """Return whether a machine may refuse to start for good."""
        return False

    async def look_often(self, look: Callable[[], object], seconds: float) -> None:
        """Look now, and again after each of these times, until a look raises Violation, which ends the run."""
        while True:
            try:
                look()
            except Violation as violation:
                self.fail(violation)
                return
            await asyncio.sleep(seconds)

    def fail(self, error: BaseException) -> None:
        """End the run with ``error``.

        A callback outside all processes raises it, because an error in a task is raised only where the task is awaited.
        """

        def end() -> None:
            raise error

        self.loop.call_soon(end, context=contextvars.Context())

    def restart(self, member: Member, process: SimulatedProcess) -> None:
        """End a process, and start the node again a little later; does nothing if another process runs by now."""
        if member.process is process:
            self.take_down(member, power=False)
            self.loop.call_later(_RESTART_SECONDS, self.bring_up, member)

    def _options(self, member: Member) -> NodeOptions:
        return NodeOptions(
            node=member.name,
            cluster=ClusterId("simulated"),
            data_dir=member.data_dir,
            listen=member.address,
            members={other.name: other.address for other in self._first_members},
            learners={} if member in self._first_members else {member.name: member.address},
            leader_hint=self._first_members[0].name,
            core=RaftOptions(
                election_timeout_ticks=_ELECTION_TICKS,
                heartbeat_ticks=2,
                append_bytes_max=16 * 1024,
                in_flight_bytes_max=64 * 1024,
                cache_bytes_max=32 * 1024,
                sync_only=member.is_sync_only,
                wait_all_ticks=round(self.swarm.wait_all_seconds / _TICK_SECONDS),
                lease_us=round(_ELECTION_TICKS * _TICK_SECONDS * 1e6) if self.swarm.leases else 0,
            ),
            wal=WalOptions(
                segment_bytes=self.swarm.segment_bytes,
                bytes_max=self.swarm.bytes_max,
                reserve_bytes=0,
                sync_seconds=self.swarm.sync_seconds,
            ),
            snapshots=SnapshotOptions(log_bytes=self.swarm.snapshot_bytes, restart_seconds_max=0, kept_max=3),
            limits=Limits(
                staged_keep_bytes=self.swarm.bytes_max // 4,
                crowd=CrowdLimits(
                    clients_max=64,
                    handshakes_max=self.swarm.handshakes_max,
                    buffered_bytes_max=self.swarm.buffered_bytes_max,
                ),
            ),
            archive_rounds=ArchiveRoundOptions(
                seconds=0.3, wait_seconds=0.5, pause_seconds_max=1.0, dump_bytes=1500, range_bytes=400
            ),
            scrub=ScrubOptions(first_seconds=1.0, period_seconds=3.0),
            tick_seconds=_TICK_SECONDS,
            request_seconds=5.0,
        )

    def _make_journals(self, _: NodeId) -> StateMachine:
        # Members have different limits; the leader's limit has to hold for all of them, at every replay.
        limit = self.entropy.choice((_RESULT_BYTES_MIN, 1 << 20))
        swarm = self.swarm
        return Streams({"journal": Journal}, staged_bytes_max=swarm.staged_bytes_max, call_result_bytes_max=limit)

    # -- Inspection ---------------------------------------------------------------------------------------------

    def note(self, who: str, glyph: str, text: str) -> None:
        """Add a line to the trace."""
        self.loop.trace.note(self.loop.time(), who, glyph, text)

    @property
    def true_us(self) -> int:
        """The time that a correct clock shows, in microseconds since 1970."""
        return SimulatedClock.WALL_START_US + int(self.loop.time() * 1e6)

    @property
    def leader(self) -> Member | None:
        """The leader of the highest term that has one."""
        leaders = {
            member.node.replica.raft.core.term: member
            for member in self.members
            if member.node is not None and member.node.replica is not None
            if member.node.replica.raft.core.leader == member.id
        }
        return leaders[max(leaders)] if leaders else None

    @property
    def has_settled(self) -> bool:
        """Whether every member is RUNNING with the same log, all of it durable, committed and applied."""
        return is_settled(self.members) and all(is_settled(self._first_members, each) for each in self.groups[1:])

    def describe(self) -> str:
        """Describe the state of each member, for people."""
        return "; ".join(_describe(member) for member in self.members)

    @property
    def addresses(self) -> list[str]:
        """Addresses for new clients: the present machines; clients have to learn about later ones."""
        return [member.address for member in self.members]


def is_settled(members: Sequence[Member], group: GroupId = GROUP_0) -> bool:
    """Return whether every member has the group as RUNNING with the same log, all of it applied."""
    end = members[0].settled_end(group)
    return end is not None and all(member.settled_end(group) == end for member in members)


def _address(number: int) -> str:
    return f"127.0.0.1:{7000 + number}"


def _describe(member: Member) -> str:
    node = member.node
    if not member.is_up or node is None:
        return f"{member.id}: down"
    if node.replica is None:
        return f"{member.id}: starts, {node.group.repairer.progress}"
    core = node.replica.raft.core
    log = core.log
    return (
        f"{member.id}: {node.lifecycle.value} {core.role.value} of {core.leader} in {core.term}, log to {log.end},"
        f" durable {log.durable_end}, committed {log.commit_end}, applied {node.replica.applier.applied_end},"
        f" recovering until {core.recovering_until}, {core.membership}"
    )


class _NodeLog:
    """Writes a node's log lines to the trace."""

    def __init__(self, cluster: Cluster, who: str, bound: dict[str, Any]) -> None:
        self._cluster = cluster
        self._who = who
        self._bound = bound

    def bind(self, **values: Any) -> _NodeLog:
        return _NodeLog(self._cluster, self._who, {**self._bound, **values})

    def info(self, event: str, **values: Any) -> None:
        if self._who in self._cluster.full_logs:
            raise OSError(errno.ENOSPC, "the disk of the log stream is full")
        glyph, _, text = event.partition(" ")
        shown = " ".join(f"{key}={value}" for key, value in {**self._bound, **values}.items())
        self._cluster.note(self._who, glyph, f"{text} {shown}")

    debug = error = info

    def warning(self, event: str, **values: Any) -> None:
        self.info(event, **values)
        if event == "! message refused":  # A stranger's messages are refused earlier: see ``stranger.py``.
            self._cluster.fail(Violation("members keep the rules", f"{self._who}: {values['reason']}"))
