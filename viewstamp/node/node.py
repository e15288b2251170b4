"""One member of a cluster, assembled from its parts; the only place where consensus, WAL and actors meet.

Half a node is worse than none: the first part that fails stops all the others, and the node's files are
left as they are. What was acknowledged is on a majority's disks by then; what was not, the callers are told.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from structlog.typing import FilteringBoundLogger

from viewstamp.actors import Failure, Ref, System
from viewstamp.consensus import core as consensus
from viewstamp.consensus.core import MembershipEntry, Stored
from viewstamp.consensus.membership import Membership
from viewstamp.consensus.messages import Message
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.ready import Fetch
from viewstamp.consensus.roles import Lifecycle
from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import (
    ClosedError,
    ConfigError,
    CorruptionError,
    NoQuorumError,
    StorageError,
    UnavailableError,
    ViewstampError,
    WrongClusterError,
)
from viewstamp.host.seam import Host, Lane, Listener, Lock
from viewstamp.ids import ClusterId, Index, NodeId, Position, Term, TopicId
from viewstamp.node.applier import Answer, Applier
from viewstamp.node.log_reader import LogReader
from viewstamp.node.log_store import LogStore, check_history, stored_membership
from viewstamp.node.peers import PeerLink
from viewstamp.node.replica import FromPeer, Item, Proposal, RememberPeer, Replica, WaitForIndex, resolve
from viewstamp.node.server import Limits, Server
from viewstamp.node.state_machine import StateMachine
from viewstamp.wal import wal as wal_module
from viewstamp.wal.control_file import ControlFile, ControlState
from viewstamp.wal.wal import Wal
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.requests import PROTOCOL_VERSION

__all__ = ["Node", "Options"]

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one node is told. ``members`` and ``learners`` count only where the log holds no membership yet."""

    node: NodeId
    cluster: ClusterId
    data_dir: str
    listen: str
    advertise: str = ""
    members: Mapping[NodeId, str]
    learners: Mapping[NodeId, str] = field(default_factory=dict)
    leader_hint: str = ""
    core: consensus.Options = field(default_factory=consensus.Options)
    wal: wal_module.Options = field(default_factory=wal_module.Options)
    limits: Limits = field(default_factory=Limits)
    tick_seconds: float = 0.01
    request_seconds: float = 30.0
    peer_unsent_bytes_max: int = 32 * 1024 * 1024


class Node:
    """A member: open it with :meth:`start`, close it with :meth:`stop`, watch ``failed`` in between.

    Invariants:
      * between ``start`` and ``stop`` the data directory is locked by this process
      * BOOTSTRAPPING until the log has been replayed: until then every request is refused
    """

    def __init__(self, options: Options, host: Host, machine: StateMachine, log: FilteringBoundLogger) -> None:
        self.options = options
        self.host = host
        self.machine = machine
        self.address = options.advertise or options.listen
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        """Resolved with the cause when a part of the node has failed; cancelled by a clean stop."""
        self._log = log.bind(node=options.node, term=_PresentTerm(self))
        self._lock: Lock | None = None
        self._listener: Listener | None = None
        self.server: Server | None = None
        self.wal: Wal | None = None
        """The log, once it is open; owned by the replica."""
        self.replica: Replica | None = None
        """The role state machine, once the log has been replayed; others only look."""
        self._replica_ref: Ref[Item] | None = None
        self._reader: LogReader | None = None
        self.log_store: LogStore | None = None
        """Where the core's writes go; others only look."""
        self._links: dict[NodeId, PeerLink] = {}
        self._membership = Membership(dict(options.members), dict(options.learners))
        self.incarnation = ""
        """Which disk this node has: drawn when its directory was new; "" until the log has been replayed."""
        self._system: System | None = None
        self._changed: dict[asyncio.Future[None], None] = {}
        self._fetching: dict[asyncio.Task[None], None] = {}
        self._stopping = False
        self._recovery: Lane[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        """Closes the port of a node that has failed."""

    # -- Life -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Lock the directory, listen, replay the log, join the group. Returns before the group is RUNNING.

        Cancelled or failed, it leaves nothing running.

        Raises:
          DirectoryInUseError: another process has the directory open.
          ConfigError: the address is in use, the directory belongs to another cluster or node, or its files are of
            a newer format.
          CorruptionError: bytes that were durable are wrong or missing; nothing was changed.
          StorageError: the disk failed.
        """
        options = self.options
        try:
            self.host.disk.make_directory(options.data_dir)
            self._lock = self.host.disk.lock(options.data_dir)
            self.server = Server(self, cluster=options.cluster, node=options.node, limits=options.limits, log=self._log)
            self._listener = await self.host.network.listen(options.listen, self.server.accept)
            if not options.advertise:
                self.address = self._listener.address
            recovered = await self._off_loop(self._recover)
            assert self._recovery is not None, "it has just been used"
            await self._recovery.close()
            self._assemble(recovered)
        except BaseException:
            await self.stop()
            raise

    async def wait_running(self, timeout: float | None = None) -> None:
        """Wait until the group is RUNNING as far as this member knows.

        Raises:
          NoQuorumError: not within ``timeout`` seconds; the message says what is missing.
          StorageError, CorruptionError, ...: the node has failed.
        """
        try:
            async with asyncio.timeout(timeout):
                while self._is_failed or self.lifecycle is not Lifecycle.RUNNING:
                    await self._next_change()
        except TimeoutError:
            raise NoQuorumError(
                f"{self.options.node} is {self.lifecycle.value} after {timeout:g} s: {self._why_not_running()}",
                remedy="start a majority of the members, and check the network between them",
            ) from None

    async def stop(self) -> None:
        """Stop cleanly: close connections, make durable what was handed to the log, release the directory. Idempotent.

        Cancelled, it may leave parts running; call it again.
        """
        self._stopping = True
        await self._close_listener()
        if self._recovery is not None:
            await self._recovery.close()
        for task in list(self._fetching):
            task.cancel()
        if self._closing is not None:
            await self._closing
        if self._system is not None:
            await self._system.stop()
        if self.server is not None:
            await self.server.close()
        if self._reader is not None:
            await self._reader.close()
        if self.wal is not None and self._system is None:
            self.wal.abandon()
        elif self.wal is not None:
            with suppress(StorageError):
                await self.wal.close()
        if self._lock is not None:
            self._lock.release()
        for waiter in list(self._changed):
            waiter.cancel()
        if not self.failed.done():
            self.failed.cancel()

    # -- Starting -------------------------------------------------------------------------------------------

    def _recover(self) -> tuple[Raft, Applier]:
        """Read control file and log, replay what is committed; blocking. Build the core from the rest."""
        options = self.options
        disk = self.host.disk
        control = ControlFile.open(disk, options.data_dir)
        state = control.state
        if state is not None and (state.cluster_id, state.node_id) != (options.cluster, options.node):
            raise ConfigError(
                f"{options.data_dir} holds node {state.node_id} of cluster {state.cluster_id},"
                f" the settings say node {options.node} of cluster {options.cluster}",
                remedy="correct [node] data_dir, [node] id or [cluster] id; nothing was changed",
            )
        replay = _Replay(Applier(self.machine))

        def on_batch(batch: Batch, commit_end: int) -> None:
            if self._stopping:
                raise self._not_ready()
            if state is None:
                raise _orphan(options.data_dir, batch)
            replay.on_batch(batch, commit_end)

        wal = Wal.open(
            disk,
            f"{options.data_dir}/wal",
            options.wal,
            on_batch=on_batch,
            must_exist=state is not None,
            commit_hint=state.commit_hint if state is not None else 0,
        )
        self.wal = wal
        replay.apply(wal.recovery.commit_hint)
        if state is None:
            incarnation = f"{self.host.entropy.getrandbits(64):016x}"
            state = ControlState(cluster_id=options.cluster, node_id=options.node, incarnation=incarnation)
            control.write(state)
        check_history(TermHistory(state.history), wal, options.data_dir)
        self.incarnation = state.incarnation
        self.log_store = LogStore(wal, control, state)
        memberships = [stored_membership(state, self._membership), *replay.memberships]
        is_new = len(memberships) == 1 and not state.membership
        core_options = replace(options.core, campaign_at_once=is_new and options.leader_hint == options.node)
        stored = Stored(
            term=Term(state.term),
            vote=state.vote,
            history=TermHistory(state.history),
            end=wal.recovery.end,
            commit_end=replay.applier.applied_end,
            log_time=replay.log_time,
            tail=replay.tail(),
            memberships=memberships,
        )
        return Raft(options.node, core_options, stored, self.host.entropy), replay.applier

    def _assemble(self, recovered: tuple[Raft, Applier]) -> None:
        raft, applier = recovered
        options = self.options
        assert self.wal is not None
        assert self.log_store is not None
        wal = self.wal
        self._system = System(str(options.node), on_failed=self._on_failed)
        wal.start(self._system.fail)
        self._reader = LogReader(self.host.disk, wal, raft.core.log, str(options.node))
        self.replica = Replica(
            raft,
            self.log_store,
            wal,
            applier,
            send=self._send,
            fetch=self._fetch,
            clock=self.host.clock,
            tick_seconds=options.tick_seconds,
            read_retry_ticks=options.core.election_timeout_ticks,
            log=self._log,
        )
        self.replica.on_change = self._on_change
        self._on_change()
        self._replica_ref = self._system.spawn(self.replica, name="replica")

    def _link(self, peer: NodeId) -> PeerLink:
        """Return the link to ``peer``, spawned when it is first needed."""
        link = self._links.get(peer)
        if link is None:
            assert self._system is not None
            link = PeerLink(
                peer,
                lambda: self._addresses[peer],
                hello={
                    "cluster": self.options.cluster,
                    "node": self.options.node,
                    "incarnation": self.incarnation,
                    "version": PROTOCOL_VERSION,
                },
                network=self.host.network,
                entropy=self.host.entropy,
                unsent_bytes_max=self.options.peer_unsent_bytes_max,
                log=self._log,
            )
            self._links[peer] = link
            self._system.spawn(link, name=f"link-{peer}")
        return link

    def _off_loop(self, work: Callable[[], ResultT]) -> asyncio.Future[ResultT]:
        """Run blocking ``work`` in the recovery's lane, once."""
        future: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()

        def done(_: list[None], result: ResultT | BaseException) -> None:
            if future.done():
                return
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

        self._recovery = self.host.disk.lane("recovery", lambda _: work(), done)
        self._recovery.put(None)
        return future

    # -- What the replica wants --------------------------------------------------------------------------------

    def _send(self, message: Message) -> None:
        self._link(message.target).send(message)

    def _fetch(self, fetch: Fetch) -> None:
        task = asyncio.get_running_loop().create_task(self._do_fetch(fetch))
        self._fetching[task] = None
        task.add_done_callback(self._fetching.pop)

    async def _do_fetch(self, fetch: Fetch) -> None:
        assert self._reader is not None
        assert self.replica is not None
        assert self._system is not None
        try:
            batches = await self._reader.read_log(fetch.start, fetch.bytes_max)
        except ViewstampError as error:
            self._system.fail(error)
            return
        self.replica.on_batches_read(fetch, batches)

    def _on_change(self) -> None:
        """Role, term, leader or lifecycle changed: keep links to all members, wake those who wait for RUNNING."""
        for peer in self._addresses:
            if peer != self.options.node:
                self._link(peer)
        for waiter in list(self._changed):
            if not waiter.done():
                waiter.set_result(None)

    def _on_failed(self, failure: Failure) -> None:
        self._log.error("! node failed", part=failure.actor, error=repr(failure.error))
        if not self.failed.done():
            self.failed.set_result(failure.error)
            self._closing = asyncio.get_running_loop().create_task(self._close_port())
        for waiter in list(self._changed):
            if not waiter.done():
                waiter.set_exception(failure.error)

    @property
    def _is_failed(self) -> bool:
        return self.failed.done() and not self.failed.cancelled()

    async def _close_listener(self) -> None:
        if self._listener is not None:
            await self._listener.close()

    async def _close_port(self) -> None:
        """Say nothing any more: who is connected goes elsewhere at once, and nobody is told that this node leads."""
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

    # -- What the server asks (``server.Service``) ---------------------------------------------------------------

    def propose(self, batch: Batch, answer: Answer) -> None:
        """Propose a client's batch; ``answer`` is told once what became of it.

        Raises:
          UnavailableError: nothing was written; the node is starting, overloaded or stopping.
        """
        self._running_replica().tell(Proposal(batch, answer))

    async def query(self, question: str, /, *, stale: bool, **arguments: object) -> object:
        """Ask the state machine; unless ``stale``, after all that was committed when the question came."""
        if self.replica is None:
            raise self._not_ready()
        if not stale:
            await self._barrier()
        return self.machine.query(question, **arguments)

    async def wait_readable(self, topic: TopicId, position: Position, *, applied_index: Index, wait: float) -> None:
        """Wait until ``applied_index`` has been applied here, and up to ``wait`` seconds for ``position`` to exist."""
        replica = self.replica
        if replica is None:
            raise self._not_ready()
        await self._wait_applied(applied_index)
        if wait > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    while self._last_position(topic) < position:
                        await self._wait_applied(replica.applier.applied_end)

    async def read(self, topic: TopicId, position: Position, *, bytes_max: int) -> tuple[list[Batch], Position]:
        """Return batches of a topic from ``position`` on, as far as this node has applied, and the last position.

        Args:
          topic: which topic.
          position: the first wanted; the first batch returned holds it; nothing comes where it does not exist yet.
          bytes_max: stop before this many bytes; at least one batch comes.
        """
        replica, reader = self.replica, self._reader
        if replica is None or reader is None:
            raise self._not_ready()
        last_position = self._last_position(topic)
        if last_position < position:
            return [], last_position
        scan_from = self.machine.query("locate", topic=topic, position=position)
        assert isinstance(scan_from, int)
        end = replica.applier.applied_end
        return await reader.read_topic(topic, Index(scan_from), position, end, bytes_max), last_position

    def step(self, message: FromPeer) -> None:
        """Take a consensus message; it may be dropped, like any."""
        if self._replica_ref is not None:
            self._replica_ref.maybe_tell(message)

    def meet(self, peer: NodeId, incarnation: str) -> None:
        """Check who opens a peer connection.

        Raises:
          WrongClusterError: no member of the group, or a member whose disk is not the one it had: what it had
            acknowledged and voted may be gone, so it is no member any more (protocol rule 18).
          UnavailableError: this node is still starting.
        """
        if self.log_store is None or self._replica_ref is None:
            raise self._not_ready()
        if peer not in self._addresses:
            raise WrongClusterError(
                f"{peer} is no member of this group: {', '.join(self._addresses)}",
                remedy="correct [node] id, or add the member first",
            )
        if peer == self.options.node:
            raise WrongClusterError(
                f"this is {peer} itself: another node has its id, or an address in [cluster] members is this node's",
                remedy="correct [node] id, or the address of the member that is meant",
            )
        known = dict(self.log_store.state.peers).get(peer)
        if known is None:
            self._replica_ref.put(RememberPeer(peer, incarnation))
        elif known != incarnation:
            raise WrongClusterError(
                f"{peer} came back with another disk (incarnation {incarnation}, known {known}): its votes are lost",
                remedy=f"put the data directory of {peer} back if it was moved; a wiped member must not vote under its"
                " old name, and the others go on without it",
            )

    @property
    def applied_index(self) -> Index:
        """The last index that has been applied here; 0 = none."""
        return Index(self.replica.applier.applied_end - 1) if self.replica is not None else Index(0)

    @property
    def lifecycle(self) -> Lifecycle:
        """How far this member has come."""
        return self.replica.raft.lifecycle if self.replica is not None else Lifecycle.BOOTSTRAPPING

    @property
    def status(self) -> dict[str, object]:
        """What ``viewstamp status`` shows of this node."""
        status: dict[str, object] = {
            "id": self.options.node,
            "cluster_id": self.options.cluster,
            "address": self.address,
            "lifecycle": self.lifecycle.value,
        }
        if self.replica is not None and self.wal is not None:
            status |= self.replica.status
            status |= {
                "members": dict(self._addresses),
                "connected": [peer for peer, link in self._links.items() if link.is_connected],
                "refused_by": {peer: link.refusal for peer, link in self._links.items() if link.refusal},
                "log_bytes": self.wal.bytes_used,
                "groups": self.wal.groups,
            }
        return status

    # -- Inside ---------------------------------------------------------------------------------------------

    @property
    def _addresses(self) -> dict[NodeId, str]:
        membership = self.replica.raft.core.membership if self.replica is not None else self._membership
        return membership.addresses

    def _running_replica(self) -> Ref[Item]:
        if self._replica_ref is None:
            raise self._not_ready()
        return self._replica_ref

    def _not_ready(self) -> UnavailableError:
        if self._stopping:
            return ClosedError(f"{self.options.node} is stopping", remedy="ask another node")
        return UnavailableError(f"{self.options.node} is replaying its log", remedy="try again in a moment")

    async def _barrier(self) -> None:
        """Wait until all that was committed when this was called has been applied here (read-index)."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running_replica().tell(WaitForIndex(future))
        try:
            async with asyncio.timeout(self.options.request_seconds):
                await future
        except TimeoutError:
            raise NoQuorumError(
                f"{self.options.node} could not confirm a leader within {self.options.request_seconds:g} s",
                remedy="start a majority of the members, or read stale from one node",
            ) from None

    async def _wait_applied(self, index: Index) -> None:
        replica = self.replica
        assert replica is not None
        if index < replica.applier.applied_end:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        give_up = replica.applier.call_when_applied(index, lambda: resolve(future))
        try:
            async with asyncio.timeout(self.options.request_seconds):
                await future
        finally:
            give_up()

    def _last_position(self, topic: TopicId) -> Position:
        last = self.machine.query("last_position", topic=topic)
        assert isinstance(last, int)
        return Position(last)

    def _why_not_running(self) -> str:
        if self.replica is None:
            return "it is replaying its log"
        connected = [peer for peer, link in self._links.items() if link.is_connected]
        core = self.replica.raft.core
        refusals = "".join(f"; {peer} says: {link.refusal}" for peer, link in self._links.items() if link.refusal)
        return f"leader {core.leader or 'unknown'}, connected to {', '.join(connected) or 'nobody'}{refusals}"


class _PresentTerm:
    """The node's term, as a value to bind to a logger: whatever is logged says the term of that moment."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def __structlog__(self) -> int:
        """Return what JSON shows."""
        return self._node.replica.raft.term if self._node.replica is not None else 0

    def __repr__(self) -> str:
        return str(self.__structlog__())


class _Replay:
    """What the pass over the log leaves: the applied state, the batches that may not be committed, the memberships."""

    def __init__(self, applier: Applier) -> None:
        self.applier = applier
        self.memberships: list[MembershipEntry] = []
        self.log_time = 0
        self._pending: deque[Batch] = deque()

    def on_batch(self, batch: Batch, commit_end: int) -> None:
        """Take the next batch of the log, and what was known to be committed when it was written."""
        self.log_time = max(self.log_time, batch.log_time)
        if batch.kind is Kind.MEMBERSHIP:
            membership = Membership.decode(batch.values()[0])
            self.memberships.append(MembershipEntry(batch.first_index, batch.term, membership))
        self._pending.append(batch)
        self.apply(commit_end)

    def apply(self, commit_end: int) -> None:
        """Apply what is known to be committed."""
        while self._pending and self._pending[0].end <= commit_end:
            self.applier.apply([self._pending.popleft()])

    def tail(self) -> list[Batch]:
        """Return the rest, in buffers of its own: a batch read from disk keeps the whole piece alive."""
        return [Batch.decode(bytearray(batch.buffer), verify=False) for batch in self._pending]


def _orphan(directory: str, batch: Batch) -> CorruptionError:
    """Say that there is a log and no control file; at the first batch, before anything of the log is changed."""
    return CorruptionError(
        f"{directory} holds a log from index {batch.first_index} on, but no control file",
        path=directory,
        expected="control-a or control-b",
        found="neither",
        remedy="put the file back if it was moved; without its vote and term history this member must not take part,"
        " the others go on without it",
    )
