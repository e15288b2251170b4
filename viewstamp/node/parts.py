"""The parts of a running member, and the order in which they are created.

| part | needs |
| --- | --- |
| ``raft``, ``wal``, ``log_store``, ``applier`` | the recovered content of the directory |
| ``inbox`` | nothing; the parts below write to the replica through it before the replica exists |
| ``log_clock``, ``headroom`` | the core, the log |
| ``log_reader``, ``log_fetches`` | the log; the inbox |
| ``snapshotter`` | the stored snapshots, the applier, the log; the inbox |
| ``peers`` | the core; the inbox |
| ``fetcher`` | the stored snapshots, the peers; the inbox |
| ``replica`` | all of the above |
| ``digests`` | the applier, the clock, the peers |
| ``reading`` | the replica, the log reader, the reader of archived records |
| ``scrubber`` | the log, the snapshots |
| ``joiner`` | the peers; only while this member joins under another id |

A part is complete when it is created: nothing is assigned to it afterwards. :meth:`Parts.start` starts the log and the
actors. Nothing is written before that, so the log can be abandoned if another part cannot be created.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from viewstamp.actors import Failure, Ref, System
from viewstamp.consensus.raft import Raft
from viewstamp.host.interfaces import Host
from viewstamp.host.logger import Logger
from viewstamp.ids import NodeId
from viewstamp.node.applier import Applier
from viewstamp.node.archived import ArchivedReads
from viewstamp.node.beats import Beats
from viewstamp.node.health.digests import Digests, clock_report
from viewstamp.node.health.headroom import Headroom
from viewstamp.node.inbox import Inbox, Item
from viewstamp.node.log_clock import LogClock
from viewstamp.node.log_reader import LogFetches, LogReader
from viewstamp.node.log_space import LogSpace
from viewstamp.node.log_store import LogStore
from viewstamp.node.options import NodeOptions
from viewstamp.node.peers.identity import Joiner
from viewstamp.node.peers.pool import PeerPool
from viewstamp.node.ports import GroupControl
from viewstamp.node.reading import Reading
from viewstamp.node.repair.repair import Repairer
from viewstamp.node.repair.scrubber import Scrubber
from viewstamp.node.replay import Recovered
from viewstamp.node.replica import Replica
from viewstamp.node.snapshots.policy import Snapshotter
from viewstamp.node.snapshots.transfer import SnapshotFetcher
from viewstamp.wal.log import Wal

__all__ = ["CurrentTerm", "Parts", "assemble"]


@dataclass(slots=True, kw_only=True)
class Parts:
    """The parts of one member. Code outside this package only reads them."""

    system: System
    raft: Raft
    wal: Wal
    log_store: LogStore
    applier: Applier
    inbox: Inbox
    headroom: Headroom
    log_reader: LogReader
    log_fetches: LogFetches
    snapshotter: Snapshotter
    peers: PeerPool
    fetcher: SnapshotFetcher
    replica: Replica
    ref: Ref[Item]
    """The replica's address."""
    reading: Reading
    digests: Digests
    scrubber: Scrubber
    joiner: Joiner | None

    def start(self, now: Callable[[], float]) -> None:
        """Start the log, connect to the other members, and start the actors that do not run yet.

        Args:
          now: the monotonic clock of the machine, in seconds.
        """
        self.wal.start(self.system.fail, now=now, store_hint=self.log_store.keep_hint)
        self.peers.connect_all()
        spawn = self.system.spawn
        spawn(self.snapshotter, name="snapshotter")
        spawn(self.fetcher, name="snapshot-fetcher")
        spawn(self.digests, name="digests")
        spawn(self.scrubber, name="scrubber")
        if self.joiner is not None:
            spawn(self.joiner, name="joiner")

    async def stop(self) -> None:
        """Stop the actors and the readers of the log. Writes that were handed to the log go on."""
        self.inbox.close()
        await self.system.stop()

    @property
    def status(self) -> dict[str, object]:
        """Return the fields of ``viewstamp status`` about the parts."""
        core, wal = self.raft.core, self.wal
        return {
            **self.replica.status,
            "member_id": core.me,
            "members": dict(core.membership.addresses),
            "membership": core.membership.shown(),
            "connected": self.peers.connected,
            "refused_by": self.peers.refusals,
            "log_bytes": wal.bytes_used,
            "log_bytes_max": wal.bytes_max,
            "log_bytes_left": wal.bytes_left,
            "first_index": wal.first_index,
            "groups": wal.groups,
            "state": self.applier.machine.status(),
            **self.snapshotter.status,
            "fetching_snapshot": self.fetcher.progress,
            "scrub": self.scrubber.status,
        }


def assemble(
    options: NodeOptions,
    host: Host,
    recovered: Recovered,
    *,
    group: GroupControl,
    on_failed: Callable[[Failure], None],
    repairer: Repairer,
    hello: dict[str, object],
    beats: Beats,
    archived: ArchivedReads,
    log: Logger,
) -> Parts:
    """Create the parts, in the order of the table above. The replica has its address; nothing else is started.

    Args:
      options: of the node.
      host: the machine.
      recovered: the content of the directory.
      group: receives the reports of the parts.
      on_failed: called once, with the first failure, after all parts have begun to stop.
      repairer: fetches a lost beginning of the log from other members.
      hello: returns the HELLO of this member when it connects.
      beats: sends the heartbeats of other groups than 0.
      archived: reads archived records, for all groups of the node.
      log: the node's logger.
    """
    me, wal, applier, log_store = recovered.member_id, recovered.wal, recovered.applier, recovered.log_store
    is_hinted = recovered.is_new and options.leader_hint == options.node
    raft_options = replace(options.core, campaign_at_once=is_hinted, may_lose_acknowledged=options.is_interval)
    raft = Raft(me, raft_options, recovered.stored, host.entropy)
    for member, incarnation in [(me, recovered.incarnation), *log_store.state.peers]:
        raft.note_incarnation(NodeId(member), incarnation)
    system = System(str(options.node), on_failed=on_failed)
    inbox = Inbox()
    log_clock = LogClock(host.clock, raft.core, bound_seconds=options.clock_bound_seconds, log=log)
    headroom = Headroom(raft, lambda: wal.bytes_left if wal.bytes_max else None)
    log_reader = LogReader(host.disk, wal, raft.core.log, str(options.node), on_rot=group.on_rot)
    log_fetches = LogFetches(log_reader, me, inbox, system.fail)
    snapshotter = Snapshotter(
        recovered.snapshots,
        raft,
        applier,
        wal,
        log_store,
        cluster=options.cluster,
        options=options.snapshots,
        archived=archived,
        clock=host.clock,
        inbox=inbox,
        load_bytes=recovered.load_bytes,
        load_seconds=recovered.load_seconds,
        log=log,
    )
    peers = PeerPool(
        raft,
        system,
        hello=hello,
        greeting=partial(clock_report, applier, host.clock),
        beats=beats,
        inbox=inbox,
        group=group,
        network=host.network,
        entropy=host.entropy,
        unsent_bytes_max=options.peer_unsent_bytes_max,
        log=log,
    )
    fetcher = SnapshotFetcher(
        recovered.snapshots,
        applier.machine,
        hello=hello,
        peers=peers,
        network=host.network,
        log_store=log_store,
        inbox=inbox,
        log=log,
    )
    replica = Replica(
        raft,
        log_store,
        wal,
        applier,
        group=group,
        peers=peers,
        snapshots=snapshotter,
        offers=fetcher,
        log_fetches=log_fetches,
        space=LogSpace(raft, wal, headroom, snapshotter, tick_seconds=options.tick_seconds, log=log),
        log_clock=log_clock,
        clock=host.clock,
        alarms=beats.alarms,
        tick_seconds=options.tick_seconds,
        log=log,
    )
    scrubber = Scrubber(
        host.disk,
        wal,
        recovered.snapshots,
        options=options.scrub,
        clock=host.clock,
        group=group,
        snapshots=snapshotter,
        find_lost_beginning=lambda: repairer.find_lost_beginning(recovered, raft.core.membership, wal.first_index),
        log=log,
    )
    digests = Digests(
        raft,
        applier,
        headroom,
        host.clock,
        log_clock,
        group=options.group,
        send=peers.send_digest,
        fail=system.fail,
    )
    joiner = Joiner(raft, peers) if me != options.node else None
    ref = system.spawn(replica, name="replica")
    inbox.open(ref)
    return Parts(
        system=system,
        raft=raft,
        wal=wal,
        log_store=log_store,
        applier=applier,
        inbox=inbox,
        headroom=headroom,
        log_reader=log_reader,
        log_fetches=log_fetches,
        snapshotter=snapshotter,
        peers=peers,
        fetcher=fetcher,
        replica=replica,
        ref=ref,
        reading=Reading(replica, ref, log_reader, archived, wal, host.clock, request_seconds=options.request_seconds),
        digests=digests,
        scrubber=scrubber,
        joiner=joiner,
    )


class CurrentTerm:
    """A value to bind to a logger: each log line shows the term that the node has when the line is written."""

    def __init__(self, parts: Callable[[], Parts | None]) -> None:
        """Read the term of ``parts``; None = the log has not been replayed, and the term is 0."""
        self._parts = parts

    def __structlog__(self) -> int:
        """Return the value for JSON."""
        parts = self._parts()
        return parts.raft.core.term if parts is not None else 0

    def __repr__(self) -> str:
        return str(self.__structlog__())
