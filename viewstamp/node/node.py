"""One member of a cluster: what all groups of a machine share, and the group that it hosts.

A node owns the lock of its directory, its port with the connections, the health checks and its failure. The replica
with its log is a :class:`~viewstamp.node.group.Group`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from viewstamp.actors import Failure
from viewstamp.consensus.quiet import beat_ticks
from viewstamp.consensus.roles import Lifecycle
from viewstamp.errors import NoQuorumError, StorageError, UnavailableError
from viewstamp.host.interfaces import Host, Listener, Lock
from viewstamp.host.logger import Logger, SafeLogger
from viewstamp.ids import GROUP_0, GroupId, NodeId, name_of
from viewstamp.node.archived import ArchivedReads
from viewstamp.node.archivist import Archivist
from viewstamp.node.beats import Beats
from viewstamp.node.group import Group
from viewstamp.node.group_archives import GroupArchives
from viewstamp.node.health.checks import Check, liveness, readiness
from viewstamp.node.health.disk_probe import DiskProbe
from viewstamp.node.health.port import HealthPort
from viewstamp.node.host_changes import HostChanges
from viewstamp.node.hosting import Hosting, MachineFactory
from viewstamp.node.inbox import Join
from viewstamp.node.keyed_archivist import KeyedStore
from viewstamp.node.keyed_reads import KeyedReads, KeyedSource
from viewstamp.node.options import NodeOptions
from viewstamp.node.order_waits import OrderWaits
from viewstamp.node.ordering import Ordering
from viewstamp.node.parts import CurrentTerm
from viewstamp.node.placer import Placer
from viewstamp.node.replica import Replica
from viewstamp.node.server import Server
from viewstamp.node.state_machine import StateMachine
from viewstamp.node.stream_topics import StreamTopics
from viewstamp.node.token_age import TokenAge
from viewstamp.wire.ordering import PlacedPart, StreamReport

__all__ = ["Node"]


class Node:
    """A member: open it with :meth:`start`, close it with :meth:`stop`, watch ``failed`` in between.

    Invariants:
      * between ``start`` and ``stop`` the data directory is locked by this process
      * the first failure of the group ends the node: its port closes, and ``failed`` has the cause
    """

    def __init__(
        self,
        options: NodeOptions,
        host: Host,
        machine: StateMachine,
        log: Logger,
        *,
        machine_of: MachineFactory,
        run_store: KeyedStore | None = None,
        run_source: KeyedSource | None = None,
    ) -> None:
        """Prepare the node; nothing is read yet.

        Args:
          options: of the node and its group 0.
          host: the machine.
          machine: the state machine of group 0, to which nothing has been applied.
          log: for the lines of the node.
          machine_of: returns the state machine of another group that is placed on this node.
          run_store: the store of archived records; None = this node has none.
          run_source: the same store, as readers use it.
        """
        self.options = options
        self.host = host
        self.address = options.advertise or options.listen
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        """Resolved with the cause when a part of the node has failed; cancelled by a clean stop."""
        self.beats = Beats(beat_ticks(options.core) * options.tick_seconds, self._leaders)
        """Sends the heartbeats of all groups but group 0."""
        self.group: Group
        self._logger = SafeLogger.of(log).bind(node=options.node, term=CurrentTerm(lambda: self.group.parts))
        self.archived = ArchivedReads(
            run_source,
            str(options.node),
            host.disk,
            host.clock,
            self._logger,
            cache_bytes=options.archive_cache_bytes,
        )
        """Reads archived records, for all groups."""
        self.group = Group(options, host, machine, node=self, log=self._logger)
        """The replica of group 0, and the requests that it answers."""
        self.groups: dict[GroupId, Group] = {GROUP_0: self.group}
        """All hosted groups, by their ids."""
        self.hosting = Hosting(
            self.group,
            host,
            hosted=self.groups,
            open_group=self.host_group,
            close_group=self.end_group,
            machine_of=machine_of,
            on_failed=lambda error: self.on_failed(GROUP_0, Failure("hosting", error)),
            log=self._logger,
        )
        """Opens the groups that are placed on this node."""
        self.host_changes = HostChanges(
            self.group,
            hosted=self.groups,
            on_failed=lambda error: self.on_failed(GROUP_0, Failure("host changes", error)),
            log=self._logger,
        )
        """Changes the members of the groups that this node leads."""
        self.order_waits = OrderWaits(self.group, self.groups)
        """The callers that wait for global positions."""
        self.ordering = Ordering(
            self.group,
            host.network,
            hosted=self.groups,
            on_failed=lambda error: self.on_failed(GROUP_0, Failure("ordering", error)),
            waits=self.order_waits,
            log=self._logger,
        )
        """Reports and orders the records of streams."""
        self.stream_topics = StreamTopics(
            self.group,
            self.groups,
            on_failed=lambda error: self.on_failed(GROUP_0, Failure("stream topics", error)),
            log=self._logger,
        )
        """Creates and configures the streams of the groups which this node leads."""
        self.token_age = TokenAge(self.group, host.clock)
        """Keeps the tokens fresh for the requests of other groups."""
        self.placer = Placer(self.group, host.network)
        """Prepares the records that place groups, if this node leads group 0."""
        self.keyed = KeyedReads(self.group, self.archived, run_source.keys if run_source is not None else None)
        """Reads keyed topics by key."""
        self.archives = GroupArchives(self.groups, host.network, run_store, host.clock, self._logger)
        """Archives topics and streams, if this node leads their group."""
        self.lock: Lock | None = None
        self._listener: Listener | None = None
        self.server: Server | None = None
        self._changed: dict[asyncio.Future[None], None] = {}
        self._stopping = False
        self.hands_over = True
        """Whether a leader hands over before a clean stop; False if all members stop together."""
        self._closing: asyncio.Task[None] | None = None
        """Closes the port of a node that has failed."""
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
            self.hosting.look()
            self.server = Server(
                self,
                cluster=options.cluster,
                limits=options.limits,
                entropy=self.host.entropy,
                log=self._logger,
                monotonic=self.host.clock.monotonic,
                requires_certificates=self.host.tls is not None,
            )
            self._listener = await self.host.network.listen(options.listen, self.server.accept)
            if not options.advertise:
                self.address = self._listener.address
            if options.health:
                await self._health.open(options.health, self.host.plain_network or self.host.network)
            await self.group.start()
            self.archives.start(self.group)
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
            error = self.group.not_running(f"{self.options.node} is {self.lifecycle.value} after {timeout:g} s")
            raise NoQuorumError(error.message, remedy=error.remedy) from None

    async def stop(self) -> None:
        """Stop cleanly: close connections, make all writes durable, release the directory. Idempotent.

        A leader hands over first, within an election timeout. If cancelled, parts may still run; call it again.
        """
        await self.stream_topics.stop()
        await self.archives.stop()
        await self.archived.stop()
        await self.hosting.stop()
        await self.host_changes.stop()
        await self.ordering.stop()
        await self.token_age.stop()
        groups = list(reversed(self.groups.values()))
        if not self._stopping:
            for group in groups:
                await group.hand_over()
        self._stopping = True
        self.beats.stop()
        for group in groups:
            group.refuse()
        await self._close_listener()
        if self._closing is not None:
            await self._closing
        for group in groups:
            await group.stop()
        self._close_connections()
        for group in groups:
            with suppress(StorageError):
                await group.close()
        await self._health.close()
        if self.lock is not None:
            self.lock.release()
        for waiter in list(self._changed):
            waiter.cancel()
        if not self.failed.done():
            self.failed.cancel()

    # -- Other groups ---------------------------------------------------------------------------------------

    async def host_group(self, options: NodeOptions, machine: StateMachine) -> Group:
        """Start the replica of another group, and return it. Group 0 must have been started.

        If it is cancelled or fails, it leaves nothing of the group running, and the other groups go on.

        Args:
          options: those of the group on this node: ``NodeOptions.of_group``.
          machine: the state machine of the group, to which nothing has been applied.

        Raises: as :meth:`start`.
        """
        assert options.group not in self.groups, f"{options.node} hosts group {options.group} already"
        assert self.lock is not None, "the node has been started"
        assert not self._stopping, "and it is not being stopped"
        machine.follow(options.group, self.group.machine)
        machine.gate.follow(options.group, self.group.machine.gate, self.token_age.check)
        log = self._logger.bind(group=options.group, term=CurrentTerm(lambda: group.parts))
        group = self.groups[options.group] = Group(options, self.host, machine, node=self, log=log)
        self._share()
        try:
            await group.start()
        except BaseException:
            group.refuse()
            await group.stop()
            self.end_connections(group.id)
            with suppress(StorageError):
                await group.close()
            del self.groups[group.id]
            self._share()
            raise
        self.beats.start()
        self.archives.start(group)
        return group

    async def end_group(self, group: GroupId) -> None:
        """Stop the replica of a group that was removed or that this node has left, and close its log.

        Calls that wait fail with ClosedError, and connections of the group end. It must not be cancelled.
        """
        ended = self.groups[group]
        ended.refuse()
        await self.archives.end(group)
        await ended.stop()
        with suppress(StorageError):
            await ended.close()
        self.end_connections(group)
        del self.groups[group]
        self._share()

    def _share(self) -> None:
        """Divide the memory of the node among its groups."""
        for group in self.groups.values():
            group.take_share(self.group_count)
        if self.server is not None:
            self.server.budget.divide()

    @property
    def group_count(self) -> int:
        """Return the number of hosted groups."""
        return len(self.groups)

    def _leaders(self) -> list[Callable[[], None]]:
        replicas = [group.replica for group in self.groups.values() if group.id and not group.failed.done()]
        return [replica.beat for replica in replicas if replica is not None and replica.is_leading]

    @property
    def archivist(self) -> Archivist:
        """Return the part that archives the topics of group 0."""
        return self.archives.archivist

    def archivist_of(self, group: GroupId) -> Archivist:
        """Return the part that archives the topics of a hosted group. Raises UnavailableError."""
        return self.archives.of(group)

    def group_of(self, group: GroupId) -> Group:
        """Return a hosted group. Raises UnavailableError if none has this id, or it has failed."""
        hosted = self.groups.get(group)
        if hosted is None:
            raise UnavailableError(f"{self.options.node} does not host group {group}", remedy="ask another node")
        if group and hosted.failed.done():
            raise UnavailableError(
                f"group {group} has failed on {self.options.node}: {hosted.failure}",
                remedy="ask another node; a restart of this node replays the log of the group",
            )
        return hosted

    # -- Reports of the group (``ports.NodeControl``) --------------------------------------------------------

    def address_of(self, member: NodeId) -> str | None:
        """Return the address of the node of ``member`` by the membership of group 0; as ``NodeControl.address_of``."""
        if self.group.parts is None:
            return None
        addresses = self.group.membership.addresses
        return next((addresses[each] for each in reversed(addresses) if name_of(each) == name_of(member)), None)

    def on_change(self, group: GroupId) -> None:
        """Notify clients and wake ``wait_running`` after a change of role, term or members."""
        if self.server is not None:
            # Group 0 has the addresses of the members of all groups.
            changed = list(self.groups.values()) if group == GROUP_0 else [self.groups[group]]
            self.server.tell_members([each for each in changed if each.parts is not None])
        self.stream_topics.look()
        self.host_changes.look()
        for waiter in list(self._changed):
            if not waiter.done():
                waiter.set_result(None)

    def on_placement(self) -> None:
        """Open the groups that are placed on this node, and create streams; as ``NodeControl.on_placement``."""
        self.hosting.on_placement()
        self.ordering.on_placement()
        self.stream_topics.look()
        self.host_changes.look()

    def on_join(self, group: GroupId, join: Join) -> None:
        """Add a host to a group, if it is one; as ``NodeControl.on_join``."""
        self.host_changes.on_join(group, join)

    def on_order(self, group: GroupId) -> None:
        """Wake those that wait for global positions; as ``NodeControl.on_order``."""
        self.order_waits.on_order(group)
        if group == GROUP_0:
            self.ordering.on_order()

    def on_found(self, group: GroupId) -> None:
        """Order the records of a group that its leader has not said to be committed; as ``NodeControl.on_found``."""
        self.ordering.on_found(group)

    def on_decision(self) -> None:
        """Place the parts of a batch; as ``NodeControl.on_decision``."""
        self.ordering.on_decision()

    def take_streams(
        self, source: NodeId, reports: Sequence[StreamReport], parts: Sequence[PlacedPart], *, is_awaited: bool
    ) -> None:
        """Take reports about streams; as ``NodeControl.take_streams``."""
        self.ordering.take(source, reports, parts, is_awaited=is_awaited)

    def on_failed(self, group: GroupId, failure: Failure) -> None:
        """Stop serving for good: set ``failed``, close the port, and fail the calls that wait for a change of status.

        ``failed`` is set before the rest, because the process waits for it and then exits. If another group than 0 has
        failed, only its connections end, and the other groups go on.
        """
        if group:
            self.end_connections(group)
            self._logger.error("! group failed", group=group, part=failure.actor, error=repr(failure.error))
            return
        if not self.failed.done():
            self.failed.set_result(failure.error)
            self._closing = asyncio.get_running_loop().create_task(self._close_port())
        for waiter in list(self._changed):
            if not waiter.done():
                waiter.set_exception(failure.error)
        self._logger.error("! node failed", part=failure.actor, error=repr(failure.error))

    def end_connections(self, group: GroupId) -> None:
        """Close every connection of a group. Pending requests get no answer."""
        if self.server is not None:
            self.server.close(self.groups[group])

    @property
    def _is_failed(self) -> bool:
        return self.failed.done() and not self.failed.cancelled()

    async def _close_listener(self) -> None:
        if self._listener is not None:
            await self._listener.close()

    async def _close_port(self) -> None:
        """Close all connections, so that clients go to other nodes, and none treats this node as the leader."""
        await self._close_listener()
        self._close_connections()

    def _close_connections(self) -> None:
        if self.server is not None:
            self.server.close()

    async def _next_change(self) -> None:
        if self._is_failed:
            raise self.failed.result()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed[waiter] = None
        try:
            await waiter
        finally:
            del self._changed[waiter]

    # -- State ----------------------------------------------------------------------------------------------

    @property
    def me(self) -> NodeId:
        """Return the id of this member in its group; as ``Group.me``."""
        return self.group.me

    @property
    def machine(self) -> StateMachine:
        """Return the replicated state of the group."""
        return self.group.machine

    @property
    def replica(self) -> Replica | None:
        """Return the replica of the group; as ``Group.replica``."""
        return self.group.replica

    @property
    def lifecycle(self) -> Lifecycle:
        """Return the lifecycle state of this member in its group."""
        return self.group.lifecycle

    @property
    def durability(self) -> str:
        """Return the durability that an acknowledgement of this node stands for."""
        return self.options.durability

    def check_alive(self) -> list[Check]:
        """Return the checks of ``/livez``."""
        self._queue_probe()
        return liveness(self._vital_signs)

    def check_ready(self) -> list[Check]:
        """Return the checks of ``/readyz``."""
        self._queue_probe()
        return readiness(self._vital_signs)

    def _queue_probe(self) -> None:
        parts = self.group.parts
        self._disk_probe.queue(parts.wal if parts is not None else None)

    @property
    def _vital_signs(self) -> dict[str, object]:
        """Return the fields of the status on which the checks depend, and those that only the checks use."""
        group = self.group
        progress, parts = group.repairer.progress, group.parts
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
            signs |= {"member_id": self.me, "members": group.membership.addresses}
        if self.hosting.placed:
            signs["unserved"] = self.hosting.unserved
        return signs

    @property
    def status(self) -> dict[str, object]:
        """Return the fields of ``viewstamp status`` of this node."""
        progress, parts = self.group.repairer.progress, self.group.parts
        status: dict[str, object] = {
            **self.options.as_status(),
            "address": self.address,
            "lifecycle": self.lifecycle.value,
            "clock_us": self.host.clock.wall_us(),
            "repair": progress.as_dict() if progress is not None else None,
            "chaos": self.host.chaos() if self.host.chaos is not None else None,
            "connections": self.server.crowd.status if self.server is not None else {},
            "tls": self.host.tls.status if self.host.tls is not None else None,
            "not_ready": {check.name: check.reason for check in readiness(self._vital_signs) if not check.is_ok},
            "archive": self.archives.store_status,
            "archiving": self.archives.rounds.status,
            **self.archived.status,
            **self.keyed.status,
            **self._logger.status,
        }
        if parts is not None:
            status |= parts.status
            status |= {"segment_bytes": self.options.wal.segment_bytes, "durability": self.durability}
        if len(self.groups) > 1:
            status["hosted"] = [
                {"group": group.id, **group.status, "archiving": self.archives.status_of(group.id)}
                for group in self.groups.values()
                if group.id
            ]
        if unused := self.hosting.unused:
            status["kept_directories"] = [{"group": group, "reason": reason} for group, reason in unused.items()]
        if placed := self.hosting.placed:
            failures = self.hosting.failures
            status["placed"] = [{**each.describe(), "failure": failures.get(each.id, "")} for each in placed]
        return status
