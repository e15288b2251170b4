"""One member of a cluster, assembled from its parts; the only class that combines consensus, WAL and actors.

The first part that fails stops all the others, and the node's files are left as they are. Acknowledged records are on
a majority's disks by then; all other callers get an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from viewstamp.actors import Failure
from viewstamp.consensus import standing
from viewstamp.consensus.membership import Membership
from viewstamp.consensus.roles import Lifecycle
from viewstamp.errors import (
    ClosedError,
    CorruptionError,
    LostDiskError,
    NoQuorumError,
    StorageError,
    TrimmedError,
    UnavailableError,
    ViewstampError,
    unanswered,
)
from viewstamp.host.blocking import in_thread, to_the_end
from viewstamp.host.interfaces import Host, Listener, Lock
from viewstamp.host.logger import Logger, SafeLogger
from viewstamp.ids import Index, NodeId, name_of
from viewstamp.node.access import Credentials, Gate
from viewstamp.node.address_check import check_address
from viewstamp.node.applier import Answer
from viewstamp.node.changes import ChangeMembers, Transfer, answered, parse_change
from viewstamp.node.copying import conceal_batch, copy_snapshot, describe_log
from viewstamp.node.health.checks import Check, liveness, readiness
from viewstamp.node.health.disk_probe import DiskProbe
from viewstamp.node.health.port import HealthPort
from viewstamp.node.health.watchdog import Watchdog
from viewstamp.node.inbox import FromPeer, Join, Proposal
from viewstamp.node.options import NodeOptions
from viewstamp.node.parts import CurrentTerm, Parts, assemble
from viewstamp.node.peers.peer_client import LostError
from viewstamp.node.reading import Reading
from viewstamp.node.repair.recovery import NodeRecovery
from viewstamp.node.replay import Recovered
from viewstamp.node.replica import Replica
from viewstamp.node.server import Server
from viewstamp.node.state_machine import StateMachine
from viewstamp.wal.log import Wal
from viewstamp.wire.batch import Batch
from viewstamp.wire.handshake import Hello

__all__ = ["Node"]

ResultT = TypeVar("ResultT")


class Node:
    """A member: open it with :meth:`start`, close it with :meth:`stop`, watch ``failed`` in between.

    Invariants:
      * between ``start`` and ``stop`` the data directory is locked by this process
      * the lifecycle is BOOTSTRAPPING until the log has been replayed, and every request is refused until then
    """

    def __init__(self, options: NodeOptions, host: Host, machine: StateMachine, log: Logger) -> None:
        self.options = options
        self.host = host
        self.machine = machine
        self.address = options.advertise or options.listen
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        """Resolved with the cause when a part of the node has failed; cancelled by a clean stop."""
        self._logger = SafeLogger.of(log).bind(node=options.node, term=CurrentTerm(lambda: self.parts))
        self.lock: Lock | None = None
        self._listener: Listener | None = None
        self.server: Server | None = None
        self.wal: Wal | None = None
        """The log, once it is open."""
        self.parts: Parts | None = None
        """The running parts; None until the log has been replayed. Other code only reads them."""
        self.me = options.node
        """The id of this node in its group: its name, or another id after its disk was lost."""
        self.incarnation = ""
        """The random id of this disk, from when its directory was new; "" until the log has been replayed."""
        self._restarting: asyncio.Task[None] | None = None
        self._membership = Membership(dict(options.members), dict(options.learners))
        self._recovery = NodeRecovery(
            host, machine, options, members=self._membership, hello=self._hello, log=self._logger
        )
        self.repairer = self._recovery.repairer
        self._changed: dict[asyncio.Future[None], None] = {}
        self._stopping = False
        self.hands_over = True
        """Whether a leader hands over before a clean stop; False if all members stop together."""
        self._closing: asyncio.Task[None] | None = None
        """Closes the port of a node that has failed."""
        self._watchdog = Watchdog(self._has_lost_replica, self._on_lost_replica)
        self._disk_probe = DiskProbe(host.clock)
        self._health = HealthPort({"/livez": self.check_alive, "/readyz": self.check_ready})

    # -- Start and stop -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Lock the directory, listen, replay the log, join the group. Returns before the group is RUNNING.

        If it is cancelled or fails, it leaves nothing running.

        Raises:
          DirectoryInUseError: another process has the directory open.
          ConfigError: the address is in use, the directory belongs to another cluster or node, or its files are of
            a newer format. MovedError: the membership has this node at another address; see ``address_check.py``.
          CorruptionError: durable bytes are wrong or missing, and the other members cannot help; nothing was changed.
            If they can, ``start`` waits for them without a limit.
          StorageError: the disk failed.
        """
        options = self.options
        try:
            self.host.disk.make_directory(options.data_dir)
            self.lock = self.host.disk.lock(options.data_dir)
            self.server = Server(
                self,
                cluster=options.cluster,
                node=options.node,
                limits=options.limits,
                entropy=self.host.entropy,
                log=self._logger,
                requires_certificates=self.host.tls is not None,
            )
            self._listener = await self.host.network.listen(options.listen, self.server.accept)
            if not options.advertise:
                self.address = self._listener.address
            if options.health:
                await self._health.open(options.health, self.host.plain_network or self.host.network)
            await self._recover_and_assemble()
        except BaseException:
            await self.stop()
            raise

    async def wait_running(self, timeout: float | None = None) -> None:
        """Wait until this member has the group as RUNNING.

        Raises:
          NoQuorumError: not within ``timeout`` seconds; the message names the missing members.
          StorageError, CorruptionError, ...: the node has failed.
        """
        try:
            async with asyncio.timeout(timeout):
                while self._is_failed or self.lifecycle is not Lifecycle.RUNNING:
                    await self._next_change()
        except TimeoutError:
            error = self._not_running(f"{self.options.node} is {self.lifecycle.value} after {timeout:g} s")
            raise NoQuorumError(error.message, remedy=error.remedy) from None

    async def stop(self) -> None:
        """Stop cleanly: close connections, make all writes durable, release the directory. Idempotent.

        A leader hands over first, within an election timeout. If cancelled, parts may still run; call it again.
        """
        if not self._stopping:
            await self._hand_over()
        self._stopping = True
        self._watchdog.stop()
        await self._close_listener()
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.wait([self._restarting])
        await self._recovery.close()
        if self._closing is not None:
            await self._closing
        if self.parts is not None:
            await self.parts.stop()
        if self.server is not None:
            await self.server.close()
        with suppress(StorageError):
            await self._close_files(self.parts)
        await self._health.close()
        if self.lock is not None:
            self.lock.release()
        for waiter in list(self._changed):
            waiter.cancel()
        if not self.failed.done():
            self.failed.cancel()

    def restart(self, why: str, prepare: Callable[[], None] | None = None) -> None:
        """Restart in this process: stop the parts, end the connections, replay the log, join the group.

        ``prepare`` is called in between, off the event loop, while the files are closed; it may block.
        """
        if self._restarting is None and not self._stopping and not self._is_failed:
            self._restarting = asyncio.get_running_loop().create_task(self._restart(why, prepare))

    async def _restart(self, why: str, prepare: Callable[[], None] | None) -> None:
        try:
            self._logger.warning("! starts again", reason=why)
            await self._hand_over()
            await to_the_end(self._stop_parts())
            if self._is_failed:
                return
            if prepare is not None:
                await self._recovery.run_blocking(prepare)
            await self._recover_and_assemble()
        except Exception as error:
            if not self._stopping:
                self._on_failed(Failure(str(self.me), error))
        finally:
            self._restarting = None

    async def _stop_parts(self) -> None:
        """Stop the parts. Raises StorageError if writes of the log may not be on the disk."""
        # From here on the node refuses requests, because a change that they made in the old parts would be lost.
        parts, self.parts = self.parts, None
        assert parts is not None, "only a running node starts again"
        assert self.server is not None, "and it listens"
        await parts.stop()
        await self.server.close()
        await self._close_files(parts)

    async def _hand_over(self) -> None:
        """If this member leads, transfer the leadership, within an election timeout."""
        core = self.parts.raft.core if self.parts is not None else None
        if core is None or core.leader != core.me or self._is_failed or not self.hands_over:
            return
        with suppress(ViewstampError, TimeoutError):
            async with asyncio.timeout(core.patience.ticks * self.options.tick_seconds):
                await self.transfer_leadership("")

    async def _close_files(self, parts: Parts | None) -> None:
        """Close the readers and the writer of the log; abandon the log if the node never ran.

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

    # -- Reports of the parts (``ports.NodeControl``) --------------------------------------------------------

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
        """Update the links, notify clients and wake ``wait_running`` after a change of role, term or members."""
        if self.parts is not None and self.server is not None:
            self.parts.peers.connect_all()
            self.server.tell_members()
        for waiter in list(self._changed):
            if not waiter.done():
                waiter.set_result(None)

    # -- Starting -------------------------------------------------------------------------------------------

    async def _recover_and_assemble(self) -> None:
        recovered = await self._recovery.run()
        self.wal = recovered.wal
        await check_address(self.options, recovered, self.host.network)
        self._assemble(recovered)

    def _assemble(self, recovered: Recovered) -> None:
        assert self.server is not None, "it listens"
        self.me = self.server.node = recovered.member_id
        self.incarnation = recovered.incarnation
        self.parts = assemble(
            self.options,
            self.host,
            recovered,
            node=self,
            on_failed=self._on_failed,
            repairer=self.repairer,
            hello=self._hello(),
            log=self._logger,
        )
        self.parts.start(self.host.clock.monotonic)
        self.on_change()
        self._watchdog.start()

    def _hello(self) -> dict[str, object]:
        """Return the HELLO of this node for a connection to another member."""
        return Hello(
            cluster=self.options.cluster, node=self.me, incarnation=self.incarnation, address=self.address
        ).to_map()

    def _on_failed(self, failure: Failure) -> None:
        """Stop serving for good: set ``failed``, close the port, and fail the calls that wait for a change of status.

        ``failed`` is set before the rest, because the process waits for it and then exits.
        """
        if not self.failed.done():
            self.failed.set_result(failure.error)
            self._closing = asyncio.get_running_loop().create_task(self._close_port())
        for waiter in list(self._changed):
            if not waiter.done():
                waiter.set_exception(failure.error)
        self._logger.error("! node failed", part=failure.actor, error=repr(failure.error))

    def _has_lost_replica(self) -> bool:
        parts = self.parts
        return self._restarting is None and not self._is_failed and parts is not None and not parts.ref.is_alive

    def _on_lost_replica(self) -> None:
        self._on_failed(Failure("replica", AssertionError("the replica has ended, and no failure was reported")))

    @property
    def _is_failed(self) -> bool:
        return self.failed.done() and not self.failed.cancelled()

    async def _close_listener(self) -> None:
        if self._listener is not None:
            await self._listener.close()

    async def _close_port(self) -> None:
        """Close all connections, so that clients go to other nodes, and none treats this node as the leader."""
        await self._close_listener()
        if self.server is not None:
            await self.server.close()

    async def _next_change(self) -> None:
        if self._is_failed:
            raise self.failed.result()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed[waiter] = None
        try:
            await waiter
        finally:
            del self._changed[waiter]

    # -- Calls of the server (``server.Service``) ----------------------------------------------------------------

    @property
    def gate(self) -> Gate:
        """Decides by the applied state about the rights of callers."""
        return self.machine.gate

    def propose(self, batch: Batch, answer: Answer, caller: Credentials | None = None) -> None:
        """Propose a client's batch; ``answer`` is called once with the outcome. ``caller`` None = this node itself.

        Raises:
          UnavailableError: nothing was written; the node is starting, overloaded or stopping.
        """
        parts = self.parts
        if parts is None:
            raise self._not_ready()
        parts.ref.tell(Proposal(batch, answer, caller))

    @property
    def reading(self) -> Reading:
        """Return the reader of this member's state. Raises UnavailableError until the log has been replayed."""
        return self._running.reading

    async def create_snapshot(self) -> dict[str, object]:
        """Take a snapshot of this node's state; see ``Snapshotter.create``."""
        snapshotter, started = self._running.snapshotter, self.host.clock.monotonic()
        stored = await snapshotter.create()
        seconds = self.host.clock.monotonic() - started
        return {"index": stored.end - 1, "term": stored.term, "bytes": stored.size, "seconds": seconds}

    def list_snapshots(self, *, to_peer: bool = False) -> list[dict[str, object]]:
        """Return this node's snapshots, the newest first."""
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
            raise self._not_ready()
        return await in_thread(self.repairer.salvaged.read, start, end, bytes_max)

    def describe_log(self) -> dict[str, object]:
        """Describe the applied log and the state there, for a backup. Raises UnavailableError until it is replayed."""
        return describe_log(self.options, self._running)

    async def copy_log(self, start: int, end: int, bytes_max: int) -> list[Batch]:
        """Return committed batches without incarnations; raises as ``LogReader.read_committed``."""
        batches = await self._running.log_reader.read_committed(start, end, bytes_max)
        return [conceal_batch(batch) for batch in batches]

    async def copy_snapshot(self, end: int, term: int, offset: int, bytes_max: int) -> tuple[int, int, bytes]:
        """Return size and identity of the copy of a snapshot, and bytes of it; raises as :func:`copy_snapshot`."""
        return await copy_snapshot(self.host.disk, self._running, end, term, offset, bytes_max)

    def digest(self, source: NodeId, incarnation: str, body: object) -> None:
        """Take a member's report on its state; it may be dropped. Raises LostDiskError, FrameError."""
        if self.parts is not None and self.parts.peers.takes_reports(source, incarnation):
            self.parts.digests.on_frame(source, body)

    @property
    def durability(self) -> str:
        """Return the durability that an acknowledgement of this node stands for."""
        return self.options.durability

    def step(self, message: FromPeer, incarnation: str) -> None:
        """Take a consensus message, which may be dropped. Raises as ``PeerPool.check_source``."""
        parts = self.parts
        if parts is not None:
            source = message.message.source
            if parts.peers.trusted.get(source) != incarnation:
                parts.peers.check_source(source, incarnation)
            parts.ref.maybe_tell(message)

    def meet(self, peer: NodeId, hello: Hello) -> bool:
        """Check the opener of a peer connection; as ``PeerPool.meet``. Raises UnavailableError while starting."""
        if self.parts is not None:
            return self.parts.peers.meet(peer, hello)
        if hello.address or self.repairer.salvaged is None:  # Without an address it is being repaired, and only reads.
            raise self._not_ready()
        return True

    def incarnations_of(self, name: str) -> list[str]:
        """Return the known incarnations of the members of this name, this node's own among them."""
        own = [self.incarnation] if name == name_of(self.me) and self.incarnation else []
        return own + [each for member, each in self.membership.incarnations.items() if name_of(member) == name]

    def join(self, join: Join) -> None:
        """Take the request of a node that lost its disk to be added."""
        if self.parts is not None:
            self.parts.ref.maybe_tell(join)

    async def change_members(self, action: str, node: str, address: str, replaces: str) -> dict[str, object]:
        """Change the membership; return it when the change is committed. If cancelled, the change goes on.

        Raises:
          RequestError: no such change. NotLeaderError, UnavailableError: nothing was changed.
          OutcomeUnknownError: this node does not lead any more.
        """
        change = parse_change(action, node, address, replaces)
        return await answered(lambda told: self._running.ref.tell(ChangeMembers(change, told)))

    async def transfer_leadership(self, node: str) -> dict[str, object]:
        """Hand the leadership to ``node`` ("" = the most up to date); return {"leader": ...}. Raises as above."""
        target = NodeId(node) if node else None
        return await answered(lambda told: self._running.ref.tell(Transfer(target, told)))

    @property
    def membership(self) -> Membership:
        """Return the newest membership in this log, committed or not; before the replay, that of the settings."""
        return self.parts.raft.core.membership if self.parts is not None else self._membership

    @property
    def applied_index(self) -> Index:
        """Return the last index that has been applied here; 0 = none."""
        return Index(self.parts.applier.applied_end - 1) if self.parts is not None else Index(0)

    @property
    def lifecycle(self) -> Lifecycle:
        """Return the lifecycle state of this member."""
        return self.parts.raft.core.lifecycle if self.parts is not None else Lifecycle.BOOTSTRAPPING

    def check_alive(self) -> list[Check]:
        """Return the checks of ``/livez``."""
        self._disk_probe.queue(self.parts.wal if self.parts is not None else None)
        return liveness(self._vital_signs)

    def check_ready(self) -> list[Check]:
        """Return the checks of ``/readyz``."""
        self._disk_probe.queue(self.parts.wal if self.parts is not None else None)
        return readiness(self._vital_signs)

    @property
    def _vital_signs(self) -> dict[str, object]:
        """Return the fields of the status on which the checks depend, and those that only the checks use."""
        progress, parts = self.repairer.progress, self.parts
        signs: dict[str, object] = {
            "failure": repr(self.failed.result()) if self._is_failed else "",
            "stopping": self._stopping,
            "lifecycle": self.lifecycle.value,
            "repair": progress.as_dict() if progress is not None else None,
            "disk_seconds": self._disk_probe.seconds,
        }
        if parts is not None:
            pending = parts.replica.latency.pending(self.host.clock.monotonic())
            signs |= parts.replica.status | {"disk_seconds": max(self._disk_probe.seconds, pending)}
            signs |= {"member_id": self.me, "members": self.membership.addresses}
        return signs

    @property
    def status(self) -> dict[str, object]:
        """Return the fields of ``viewstamp status`` of this node."""
        status: dict[str, object] = {
            **self.options.as_status(),
            "address": self.address,
            "lifecycle": self.lifecycle.value,
            "clock_us": self.host.clock.wall_us(),
            "repair": self.repairer.progress.as_dict() if self.repairer.progress is not None else None,
            "chaos": self.host.chaos() if self.host.chaos is not None else None,
            "connections": self.server.crowd.status if self.server is not None else {},
            "tls": self.host.tls.status if self.host.tls is not None else None,
            "not_ready": {check.name: check.reason for check in readiness(self._vital_signs) if not check.is_ok},
            **self._logger.status,
        }
        if self.parts is not None:
            status |= self.parts.status
            status |= {"segment_bytes": self.options.wal.segment_bytes, "durability": self.durability}
        return status

    # -- Inside ---------------------------------------------------------------------------------------------

    @property
    def replica(self) -> Replica | None:
        """Return the replica; None until the log has been replayed. Other code only reads it."""
        return self.parts.replica if self.parts is not None else None

    @property
    def _running(self) -> Parts:
        if self.parts is None:
            raise self._not_ready()
        return self.parts

    def _not_ready(self) -> UnavailableError:
        if self._stopping:
            return ClosedError(f"{self.options.node} is stopping", remedy="ask another node")
        doing = "replaying" if self.repairer.progress is None else "repairing"
        return UnavailableError(f"{self.options.node} is {doing} its log", remedy="try again in a moment")

    def _not_running(self, state: str) -> ViewstampError:
        """Return the error that explains why this member does not have the group as RUNNING; ``state`` is its own."""
        if self.parts is None:
            reason = self.repairer.progress.sentence if self.repairer.progress else self._not_ready().message
            return unanswered([], [], reason, detail=state)
        away, reason = self.parts.peers.missing
        lacking = standing.lacking(self.membership, self.membership.electors.keys() - away)
        voters = lacking[0] if lacking else []
        return unanswered(voters, away.intersection(voters), reason or "no leader was elected", detail=state)
