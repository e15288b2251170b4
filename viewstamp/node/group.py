"""One replica of one group: its recovery, its parts, its restarts, and the requests that it answers.

A group is a set of replicas with one log. A :class:`~viewstamp.node.node.Node` hosts the replica and has what all
groups of a machine share: the lock of the directory, the port with its connections, and the health checks.

The first part of a group that fails stops the other parts of it, and its files are left as they are. Acknowledged
records are on a majority's disks by then; all other callers get an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from viewstamp.actors import Failure
from viewstamp.consensus import standing
from viewstamp.consensus.membership import Membership
from viewstamp.consensus.messages import AppendResponse, HeartbeatRequest, HeartbeatResponse
from viewstamp.consensus.raft import share_of
from viewstamp.consensus.roles import Lifecycle
from viewstamp.errors import (
    ClosedError,
    CorruptionError,
    LostDiskError,
    TrimmedError,
    UnavailableError,
    ViewstampError,
    unanswered,
)
from viewstamp.host.blocking import in_thread, to_the_end
from viewstamp.host.interfaces import Host
from viewstamp.host.logger import Logger
from viewstamp.ids import GROUP_0, GroupId, Index, NodeId, name_of
from viewstamp.node.access import Credentials, Gate
from viewstamp.node.address_check import check_address
from viewstamp.node.applier import Answer
from viewstamp.node.changes import ChangeMembers, Transfer, answered, check_hosts_none, parse_change
from viewstamp.node.copying import conceal_batch, copy_snapshot, describe_log
from viewstamp.node.health.watchdog import Watchdog
from viewstamp.node.inbox import FromPeer, Join, Proposal
from viewstamp.node.options import NodeOptions
from viewstamp.node.parts import Parts, assemble
from viewstamp.node.peers.peer_client import LostError
from viewstamp.node.placement_queries import GroupsQuery
from viewstamp.node.ports import NodeControl
from viewstamp.node.reading import Reading
from viewstamp.node.repair.recovery import NodeRecovery
from viewstamp.node.replica import Replica
from viewstamp.node.state_machine import Result, StateMachine
from viewstamp.wal.log import Wal
from viewstamp.wire.batch import Batch
from viewstamp.wire.handshake import Hello
from viewstamp.wire.ordering import PlacedPart, StreamReport, read_parts_report, read_reports
from viewstamp.wire.peer_requests import PeerReport, ReportHosted, ReportLeft
from viewstamp.wire.placing import encode_hosted, encode_left

__all__ = ["Group"]


class Group:
    """The replica of one group on one machine: :meth:`start` it, then :meth:`stop` and :meth:`close` it.

    Invariants:
      * the lifecycle is BOOTSTRAPPING until the log has been replayed, and every request is refused until then
      * ``parts`` use ``wal``; a restart replaces both
    """

    def __init__(
        self, options: NodeOptions, host: Host, machine: StateMachine, *, node: NodeControl, log: Logger
    ) -> None:
        """Prepare the replica; nothing is read yet.

        Args:
          options: of the group on this node.
          host: the machine.
          machine: the state machine of the group, to which nothing has been applied.
          node: receives the reports about events that concern the whole node.
          log: the logger of the group.
        """
        self.id = options.group
        self.options = options
        self.machine = machine
        self.wal: Wal | None = None
        """The log, once it is open."""
        self.parts: Parts | None = None
        """The running parts; None until the log has been replayed. Other code only reads them."""
        self.me = options.node
        """The id of this member: the name of the node, or another id after its disk was lost."""
        self.incarnation = ""
        """The random id of this disk, from when its directory was new; "" until the log has been replayed."""
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        """Resolved with the cause when a part of the group has failed."""
        self._host = host
        self._node = node
        self._logger = log
        self._membership = Membership(
            dict(options.members), dict(options.learners), incarnations=dict(options.incarnations)
        )
        self._recovery = NodeRecovery(
            host, machine, options, members=self._membership, hello=self._hello, address_of=self.address_of, log=log
        )
        self.repairer = self._recovery.repairer
        self._restarting: asyncio.Task[None] | None = None
        self._is_stopping = False
        self.in_flight_bytes = 0
        """Bytes of the clients' batches that are not answered; only the server changes it."""
        self._watchdog = Watchdog(self._has_lost_replica, self._on_lost_replica)

    # -- Start and stop -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Replay the log, and join the group. Returns before the group is RUNNING; raises as :meth:`Node.start`."""
        recovered = await self._recovery.run()
        self.wal = recovered.wal
        if self.id == GROUP_0:  # Its membership decides about the addresses of all groups.
            await check_address(self.options, recovered, self._host, self._recovery.run_blocking, self._logger)
        if recovered.member_id != self.me:
            self.me = recovered.member_id
            self._node.end_connections(self.id)  # Their other ends have the old id.
        self.incarnation = recovered.incarnation
        self.parts = assemble(
            self.options,
            self._host,
            recovered,
            group=self,
            on_failed=self._on_failed,
            repairer=self.repairer,
            hello=self._hello(),
            beats=self._node.beats,
            archived=self._node.archived,
            log=self._logger,
        )
        self.take_share(self._node.group_count)
        self.parts.start(self._host.clock.monotonic)
        self.on_change()
        self._watchdog.start()

    def take_share(self, groups: int) -> None:
        """Use an equal share of the node's memory and of its scrub rate, because it hosts this number of groups.

        The shares are fixed, so that a group that uses all of its own, for example because a member of it does not
        acknowledge, takes nothing from the others.
        """
        parts, options = self.parts, self.options
        if parts is not None:
            parts.raft.share(groups)
            parts.peers.limit_unsent(share_of(options.peer_unsent_bytes_max, groups, 2 * options.core.append_bytes_max))
            parts.scrubber.groups = groups

    def refuse(self) -> None:
        """Refuse restarts from now on, because the node is stopping."""
        self._is_stopping = True
        self._watchdog.stop()

    async def stop(self) -> None:
        """Cancel a start or a restart, and stop the parts; callers that wait get an error. Idempotent.

        Writes that were handed to the log go on until :meth:`close`.
        """
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.wait([self._restarting])
        await self._recovery.close()
        if self.parts is not None:
            await self.parts.stop()

    async def close(self) -> None:
        """Close the log, with all its writes durable. Raises StorageError if that failed. Idempotent."""
        await self._close_files(self.parts)

    def restart(self, why: str, prepare: Callable[[], None] | None = None) -> None:
        """Restart in this process: stop the parts, end the connections, replay the log, join the group.

        ``prepare`` is called in between, off the event loop, while the files are closed; it may block.
        """
        if self._restarting is None and not self._is_stopping and not self.failed.done():
            self._restarting = asyncio.get_running_loop().create_task(self._restart(why, prepare))

    async def _restart(self, why: str, prepare: Callable[[], None] | None) -> None:
        try:
            self._logger.warning("! starts again", reason=why)
            await self.hand_over()
            await to_the_end(self._stop_parts())
            if self.failed.done():
                return
            if prepare is not None:
                await self._recovery.run_blocking(prepare)
            await self.start()
        except Exception as error:
            if not self._is_stopping:
                self._on_failed(Failure(str(self.me), error))
        finally:
            self._restarting = None

    async def _stop_parts(self) -> None:
        """Stop the parts. Raises StorageError if writes of the log may not be on the disk."""
        # From here on the group refuses requests, because a change that they made in the old parts would be lost.
        parts, self.parts = self.parts, None
        assert parts is not None, "only a running group starts again"
        await parts.stop()
        self._node.end_connections(self.id)
        await self._close_files(parts)

    async def hand_over(self) -> None:
        """If this member leads, transfer the leadership, within an election timeout."""
        core = self.parts.raft.core if self.parts is not None else None
        if core is None or core.leader != core.me or self.failed.done() or not self._node.hands_over:
            return
        with suppress(ViewstampError, TimeoutError):
            async with asyncio.timeout(core.patience.ticks * self.options.tick_seconds):
                await self.transfer_leadership("")

    async def _close_files(self, parts: Parts | None) -> None:
        """Close the readers and the writer of the log; abandon the log if the parts never ran.

        Raises StorageError if a write or a sync has failed. The log must not be read again in this process then,
        because reads would return bytes of the page cache that are not on the disk.
        """
        if parts is not None:
            parts.log_fetches.cancel()
            await parts.log_reader.close()
        wal, self.wal = self.wal, None
        if wal is not None and parts is None:
            wal.abandon()
        elif wal is not None and parts is not None:
            await wal.close()
            if wal.failure is not None:
                raise wal.failure
            await self._recovery.run_blocking(parts.log_store.mark_stopped)

    def _hello(self) -> dict[str, object]:
        """Return the HELLO of this node for a connection to another member."""
        return Hello(
            cluster=self.options.cluster,
            group=self.options.group,
            node=self.me,
            incarnation=self.incarnation,
            address=self._node.address,
        ).to_map()

    # -- Reports of the parts (``ports.GroupControl``) -------------------------------------------------------

    def address_of(self, member: NodeId) -> str | None:
        """Return the address that group 0 has for the node of a member; None = unknown, or this is group 0.

        A node that moves changes the membership of group 0 only, and its records in other groups keep the old address.
        """
        return self._node.address_of(member) if self.id != GROUP_0 else None

    def on_lost_disk(self, error: LostDiskError) -> None:
        """Join again under a new id if the log is empty, because this disk is new (protocol rule 18)."""
        assert self.parts is not None, "its links live with it"
        core = self.parts.raft.core
        if core.log.end > 1 or core.leader == core.me:
            return  # This log has records too, so people must decide which of the two directories is the right one.

        self.restart(str(error), self.repairer.take_new_id)

    def on_superseded(self, reason: str) -> None:
        """Restart without the log, because the group has lost records that are committed here."""
        self.restart(reason, partial(self.repairer.set_log_aside, self.membership))

    def on_rot(self, error: CorruptionError) -> None:
        """Restart with a repair, because bytes of the log or of a snapshot are damaged."""
        if self.parts is None or standing.decides_alone(self.membership, self.me):
            self._logger.error("! rot, and no other voter to repair it from", reason=error.message)
            return
        self._recovery.suspicion = error
        self.restart(error.message)

    def on_change(self) -> None:
        """Update the links, and report to the node, after a change of role, term or members."""
        if self.parts is not None:
            self.parts.peers.connect_all()
        self._node.on_change(self.id)

    def on_placement(self) -> None:
        """Report to the node that the placement of groups may have changed; only group 0 has one."""
        if self.id == GROUP_0:
            self._node.on_placement()

    def on_join(self, join: Join) -> None:
        """Report to the node that a node without an id in the membership asks this leader to be added."""
        self._node.on_join(self.id, join)

    def on_order(self) -> None:
        """Report to the node that more global positions may be known."""
        self._node.on_order(self.id)

    def on_decision(self) -> None:
        """Report to the node that group 0 may have decided about a batch over several groups."""
        if self.id == GROUP_0:
            self._node.on_decision()

    def on_found(self) -> None:
        """Report to the node that records were found committed before their leader said so."""
        self._node.on_found(self.id)

    def _on_failed(self, failure: Failure) -> None:
        if not self.failed.done():
            self.failed.set_result(failure.error)
        self._node.on_failed(self.id, failure)

    def _has_lost_replica(self) -> bool:
        parts = self.parts
        return self._restarting is None and not self.failed.done() and parts is not None and not parts.ref.is_alive

    def _on_lost_replica(self) -> None:
        self._on_failed(Failure("replica", AssertionError("the replica has ended, and no failure was reported")))

    # -- Requests (``service.GroupService``) ----------------------------------------------------------------

    @property
    def gate(self) -> Gate:
        """Decides by the applied state about the rights of callers."""
        return self.machine.gate

    def propose(self, batch: Batch, answer: Answer, caller: Credentials | None = None) -> None:
        """Propose a client's batch; ``answer`` is called once with the outcome. ``caller`` None = this node itself.

        Raises:
          UnavailableError: nothing was written; the group is starting, overloaded or stopping.
        """
        parts = self.parts
        if parts is None:
            raise self.not_ready()
        parts.ref.tell(Proposal(batch, answer, caller))

    @property
    def reading(self) -> Reading:
        """Return the reader of this member's state. Raises UnavailableError until the log has been replayed."""
        return self._running.reading

    def check_replayed(self) -> None:
        """Raise UnavailableError until the log has been replayed; before that the state is empty."""
        if self.parts is None:
            raise self.not_ready()

    async def create_snapshot(self) -> dict[str, object]:
        """Take a snapshot of this member's state; see ``Snapshotter.create``."""
        snapshotter, started = self._running.snapshotter, self._host.clock.monotonic()
        stored = await snapshotter.create()
        seconds = self._host.clock.monotonic() - started
        return {"index": stored.end - 1, "term": stored.term, "bytes": stored.size, "seconds": seconds}

    def list_snapshots(self, *, to_peer: bool = False) -> list[dict[str, object]]:
        """Return this member's snapshots, the newest first."""
        if self.parts is None and to_peer and self.repairer.salvaged:
            raise LostError("it repairs its log as well")
        return [each.as_dict() for each in self._running.snapshotter.store.stored]

    async def read_snapshot(self, end: int, term: int, offset: int, bytes_max: int) -> tuple[int, int, bytes]:
        """Return size and identity of a snapshot's file, and bytes of it from ``offset`` on."""
        snapshotter = self._running.snapshotter
        stored = snapshotter.store.find(end, term)
        if stored is None:
            raise TrimmedError(
                f"{self.options.node} keeps no snapshot up to index {end - 1}", remedy="take a newer one"
            )
        return stored.size, stored.identity, await snapshotter.read(stored, offset, bytes_max)

    async def read_log(self, start: int, end: int, bytes_max: int) -> list[Batch]:
        """Return committed batches for a member that repairs its log; raises as ``LogReader.read_committed``."""
        if self.parts is not None:
            return await self.parts.log_reader.read_committed(start, end, bytes_max)
        if self.repairer.salvaged is None:
            raise self.not_ready()
        return await in_thread(self.repairer.salvaged.read, start, end, bytes_max)

    def describe_log(self, *, with_groups: bool = False) -> dict[str, object]:
        """Describe the applied log and the state there, for a backup. Raises UnavailableError until it is replayed."""
        return describe_log(self.options, self._running, with_groups=with_groups)

    async def copy_log(self, start: int, end: int, bytes_max: int) -> list[Batch]:
        """Return committed batches without incarnations; raises as ``LogReader.read_committed``."""
        batches = await self._running.log_reader.read_committed(start, end, bytes_max)
        return [conceal_batch(batch) for batch in batches]

    async def copy_snapshot(self, end: int, term: int, offset: int, bytes_max: int) -> tuple[int, int, bytes]:
        """Return size and identity of the copy of a snapshot, and bytes of it; raises as :func:`copy_snapshot`."""
        return await copy_snapshot(self._host.disk, self._running, end, term, offset, bytes_max)

    def digest(self, source: NodeId, incarnation: str, body: object) -> None:
        """Take a member's report on its state; it may be dropped. Raises LostDiskError, FrameError."""
        if self.parts is not None and self.parts.peers.takes_reports(source, incarnation):
            self.parts.digests.on_frame(source, body)

    def step(self, message: FromPeer, incarnation: str) -> None:
        """Take a consensus message, which may be dropped. Raises as ``PeerPool.check_source``."""
        parts = self.parts
        if parts is not None:
            received = message.message
            if parts.peers.trusted.get(received.source) != incarnation:
                parts.peers.check_source(received.source, incarnation)
            if isinstance(received, AppendResponse):
                parts.replica.on_response(message, received)
            elif message.is_beat and isinstance(received, HeartbeatRequest | HeartbeatResponse):
                parts.replica.on_beat(message, received)
            else:
                parts.ref.maybe_tell(message)

    def check_source(self, peer: NodeId, incarnation: str) -> None:
        """Check that messages of a peer with this disk are accepted. Raises as ``PeerPool.check_source``."""
        parts = self.parts
        if parts is not None and parts.peers.trusted.get(peer) != incarnation:
            parts.peers.check_source(peer, incarnation)

    def meet(self, peer: NodeId, hello: Hello) -> bool:
        """Check the opener of a peer connection; as ``PeerPool.meet``. Raises UnavailableError while starting."""
        if self.parts is not None:
            return self.parts.peers.meet(peer, hello)
        if hello.address or self.repairer.salvaged is None:  # Without an address it is being repaired, and only reads.
            raise self.not_ready()
        return True

    def incarnations_of(self, name: str) -> list[str]:
        """Return the known incarnations of the members of this name, this member's own among them."""
        own = [self.incarnation] if name == name_of(self.me) and self.incarnation else []
        return own + [each for member, each in self.membership.incarnations.items() if name_of(member) == name]

    def join(self, join: Join) -> None:
        """Take the request of a node that lost its disk to be added."""
        if self.parts is not None:
            self.parts.ref.maybe_tell(join)

    def report_hosted(self, group: GroupId, incarnation: str) -> None:
        """Send the disk of this node in another group to the leader of this one; it may be lost, so it is repeated."""
        parts = self.parts
        core = parts.raft.core if parts is not None else None
        if parts is None or core is None or core.leader is None:
            return
        if core.leader == core.me:
            parts.ref.maybe_tell(Proposal(encode_hosted(group, name_of(core.me), incarnation), _ignore))
        else:
            parts.peers.report_hosted(core.leader, group, incarnation)

    def report_left(self, group: GroupId, node: NodeId) -> None:
        """Send to the leader of this group that ``node`` has left another one; it may be lost, so it is repeated."""
        parts = self.parts
        core = parts.raft.core if parts is not None else None
        if parts is None or core is None or core.leader is None:
            return
        if core.leader == core.me:
            parts.ref.maybe_tell(Proposal(encode_left(group, node), _ignore))
        else:
            parts.peers.report_left(core.leader, group, node)

    def report_streams(
        self,
        group: GroupId,
        reports: Sequence[StreamReport],
        parts: Sequence[PlacedPart] = (),
        *,
        is_awaited: bool,
    ) -> None:
        """Send the ends of streams of another group to the leader of this one; it may be lost, so it is repeated."""
        core = self.parts.raft.core if self.parts is not None else None
        if self.parts is None or core is None or core.leader is None:
            return
        if core.leader == core.me:
            self._node.take_streams(name_of(core.me), reports, parts, is_awaited=is_awaited)
        else:
            self.parts.peers.report_streams(core.leader, group, reports, parts, is_awaited=is_awaited)

    def take_report(self, source: NodeId, incarnation: str, asked: PeerReport) -> None:
        """Take a member's report about another group; it may be dropped. Raises LostDiskError, FrameError."""
        parts = self.parts
        if parts is None or not parts.peers.takes_reports(source, incarnation):
            return
        if isinstance(asked, ReportHosted):
            batch = encode_hosted(GroupId(asked.group), name_of(source), asked.incarnation)
            parts.ref.maybe_tell(Proposal(batch, _ignore))
        elif isinstance(asked, ReportLeft):
            placed = self.machine.query(GroupsQuery()) if self.id == GROUP_0 else []
            if any(each.id == asked.group and name_of(source) in each.hosts for each in placed):
                batch = encode_left(GroupId(asked.group), NodeId(asked.node))
                parts.ref.maybe_tell(Proposal(batch, _ignore))
        elif self.id == GROUP_0:
            reports = read_reports(GroupId(asked.group), asked.ends)
            parts_of = read_parts_report(GroupId(asked.group), asked.parts or [])
            self._node.take_streams(name_of(source), reports, parts_of, is_awaited=asked.is_awaited)

    async def change_members(self, action: str, node: str, address: str, replaces: str) -> dict[str, object]:
        """Change the membership; return it when the change is committed. If cancelled, the change goes on.

        Raises:
          RequestError: no such change, or a node that hosts a group would be removed.
          NotLeaderError, UnavailableError: nothing was changed.
          OutcomeUnknownError: this node does not lead any more.
        """
        change = parse_change(action, node, address, replaces)
        if self.id == GROUP_0 and self.parts is not None:
            check_hosts_none(change, self.membership.addresses, self.machine.query(GroupsQuery()))
        return await answered(lambda told: self._running.ref.tell(ChangeMembers(change, told)))

    async def transfer_leadership(self, node: str) -> dict[str, object]:
        """Hand the leadership to ``node`` ("" = the most up to date); return {"leader": ...}. Raises as above."""
        target = NodeId(node) if node else None
        return await answered(lambda told: self._running.ref.tell(Transfer(target, told)))

    # -- State ----------------------------------------------------------------------------------------------

    @property
    def membership(self) -> Membership:
        """Return the newest membership in this log, committed or not; before the replay, that of the settings."""
        return self.parts.raft.core.membership if self.parts is not None else self._membership

    @property
    def addresses(self) -> dict[NodeId, str]:
        """Return the members, with the addresses that count; see :meth:`address_of`."""
        return {member: self.address_of(member) or at for member, at in self.membership.addresses.items()}

    @property
    def applied_index(self) -> Index:
        """Return the last index that has been applied here; 0 = none."""
        return Index(self.parts.applier.applied_end - 1) if self.parts is not None else Index(0)

    @property
    def lifecycle(self) -> Lifecycle:
        """Return the lifecycle state of this member."""
        return self.parts.raft.core.lifecycle if self.parts is not None else Lifecycle.BOOTSTRAPPING

    @property
    def replica(self) -> Replica | None:
        """Return the replica; None until the log has been replayed. Other code only reads it."""
        return self.parts.replica if self.parts is not None else None

    @property
    def status(self) -> dict[str, object]:
        """Return the fields of ``viewstamp status`` about this member of the group."""
        parts = self.parts.status if self.parts is not None else {}
        return {"lifecycle": self.lifecycle.value, "failure": self.failure, **parts}

    @property
    def failure(self) -> str:
        """Return why this member has stopped; "" = it has not. Foreign exceptions are shown with their class."""
        if not self.failed.done():
            return ""
        error = self.failed.result()
        return str(error) if isinstance(error, ViewstampError) else repr(error)

    @property
    def _running(self) -> Parts:
        if self.parts is None:
            raise self.not_ready()
        return self.parts

    def not_ready(self) -> UnavailableError:
        """Return the error for a request that comes before the log has been replayed, or after :meth:`refuse`."""
        if self._is_stopping:
            return ClosedError(f"{self.options.node} is stopping", remedy="ask another node")
        doing = "replaying" if self.repairer.progress is None else "repairing"
        return UnavailableError(f"{self.options.node} is {doing} its log", remedy="try again in a moment")

    def not_running(self, state: str) -> ViewstampError:
        """Return the error that explains why this member does not have the group as RUNNING; ``state`` is its own."""
        if self.parts is None:
            reason = self.repairer.progress.sentence if self.repairer.progress else self.not_ready().message
            return unanswered([], [], reason, detail=state)
        away, reason = self.parts.peers.missing
        lacking = standing.lacking(self.membership, self.membership.electors.keys() - away)
        voters = lacking[0] if lacking else []
        return unanswered(voters, away.intersection(voters), reason or "no leader was elected", detail=state)


def _ignore(_: Result | ViewstampError) -> None:
    """Do nothing, because the report is repeated until it is recorded."""
