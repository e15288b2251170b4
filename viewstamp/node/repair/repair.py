"""Repairs a damaged log or lost snapshots, from the other members, before the core runs.

A node that finds damage at its start sends no consensus messages, because its core does not run. The cases are:

| found | reaction |
| --- | --- |
| records below an end that is known to be committed are missing | exactly these are fetched, and the segment rebuilt |
| records at that end or above are missing, or their number is unknown | the pair that the node may have advertised is \
stored, then the log is cut there; the core neither votes nor acknowledges until it has reached the pair (rule 17) |
| no whole snapshot, and the log begins above 1 | its beginning is fetched, or else a snapshot that reaches the log |
| no other member keeps the missing records; the whole log is lost | as the second row, and the log begins anew, at 1 |
| intact records that contradict each other, or the history | refused, because the right ones are unknown (rule 20) |
| neither copy of the control file can be read | everything is set aside, and it joins anew (rule 18) |
| a group of one voter | refused: no other member has a copy |

The end that is known to be committed comes from the control file, the headers of intact groups and the newest whole
snapshot. Files that are replaced or cut are set aside in ``<data_dir>/damaged-<n>``. Every step can be repeated
(``wal/repair.py``). A stored pair is not changed by further losses, because a recovering node promises nothing new.

Members damaged at different places give each other what they still have (``salvage.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace

from viewstamp.consensus import standing
from viewstamp.consensus.membership import Membership, MembershipEntry
from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import ClosedError, CorruptionError
from viewstamp.host.blocking import in_thread
from viewstamp.host.interfaces import Host
from viewstamp.host.logger import Logger
from viewstamp.ids import ClusterId, GroupId, Index, NodeId, Term
from viewstamp.node.log_store import readdressing_of
from viewstamp.node.peers.identity import name_of, reborn
from viewstamp.node.repair.refetch import GoneError, Refetcher, RepairProgress
from viewstamp.node.repair.salvage import SalvagedLog
from viewstamp.node.replay import Recovered
from viewstamp.node.running_mark import UNKNOWN_END, lost_power, recovering_pair
from viewstamp.node.snapshots.choice import find_missing_beginnings
from viewstamp.node.snapshots.store import SnapshotStore, StoredSnapshot
from viewstamp.wal.assessment import Assessment, Region, assess
from viewstamp.wal.control_file import CONTROL_NAMES, ControlFile, ControlState, is_control_lost
from viewstamp.wal.repair import (
    Quarantine,
    SegmentRewriter,
    begin_anew,
    cut_behind,
    finish_truncation,
    set_everything_aside,
)
from viewstamp.wal.truncation import MARK_NAME
from viewstamp.wal.verdict import known_end

__all__ = ["UNKNOWN_END", "Repairer", "missing_beginnings", "recovering_pair"]


@dataclass(slots=True, kw_only=True)
class _Look:
    """The content of a directory. ``begin`` is the end of the newest whole snapshot, 1 = there is none."""

    control: ControlFile
    state: ControlState
    store: SnapshotStore
    snapshot: StoredSnapshot | None
    found: Assessment
    membership: Membership

    @property
    def name(self) -> NodeId:
        """The id of this node in its group."""
        return _id_of(self.state)

    @property
    def begin(self) -> int:
        return self.snapshot.end if self.snapshot is not None else 1

    @property
    def committed(self) -> int:
        """An end below which all records are known to be committed."""
        return max(self.state.commit_hint, self.found.commit_hint, self.begin)

    @property
    def history(self) -> TermHistory:
        return TermHistory(self.state.history)


class Repairer:
    """Repairs a node's directory from the other members.

    Nothing else may use the directory meanwhile.
    """

    def __init__(
        self,
        host: Host,
        *,
        node: NodeId,
        cluster: ClusterId,
        group: GroupId,
        data_dir: str,
        members: Membership,
        hello: Callable[[], dict[str, object]],
        address_of: Callable[[NodeId], str | None],
        log: Logger,
    ) -> None:
        """Prepare repairs of the directory; nothing is read yet.

        Args:
          host: the machine.
          node: this node, by its name.
          cluster: of the snapshots.
          group: the group of the directory.
          data_dir: the directory.
          members: the settings' hint, if no membership is left in the directory.
          hello: returns the HELLO of this node, without the fields from the control file.
          address_of: returns the address of a member that counts instead of the recorded one; None = there is none.
          log: for lines about damage and repairs.
        """
        self.progress: RepairProgress | None = None
        """The progress of the running repair; None = no repair runs."""
        self.salvaged: SalvagedLog | None = None
        """The intact records for other members while a repair runs; None = none, or not read yet."""
        self._begins_for_good: Index | None = None
        """The first index of a log to which no earlier records can be added."""
        self._host = host
        self._node = node
        self._cluster = cluster
        self._group = group
        self._data_dir = data_dir
        self._members = members
        self._hello = hello
        self._address_of = address_of
        self._logger = log
        self._task: asyncio.Task[bool] | None = None
        self._is_closed = False

    @property
    def _wal(self) -> str:
        return f"{self._data_dir}/wal"

    async def repair(self, error: CorruptionError) -> bool:
        """Repair the damage of ``error``; return whether the directory has changed.

        Waits for other members without a limit. If cancelled, it leaves the damaged directory, or a repaired one.

        Raises:
          ClosedError: the node was stopped meanwhile.
          StorageError: the disk failed; StorageFullError: there is no space for the files that are set aside.
        """
        return await self._run(self._repair(error))

    async def repair_beginning(self, begin: Index) -> bool:
        """Fetch the records from ``begin`` on to the first one of an intact log; False = no member has them.

        Raises: as :meth:`repair`.
        """
        return await self._run(self._repair_beginning(begin))

    async def find_lost_beginning(
        self, recovered: Recovered, membership: Membership, first_index: Index
    ) -> CorruptionError | None:
        """Return an error if a running node's log, from ``first_index`` on, lacks records that it must hold.

        Records count as missing only if another member still has them. Otherwise they may have been trimmed since.
        """
        begins = missing_beginnings(recovered, first_index)
        if not begins or first_index == self._begins_for_good:
            return None
        state = recovered.log_store.state
        refetcher = self._refetcher(state, membership, RepairProgress(sentence=""))
        try:
            for begin in begins:
                if await refetcher.has(begin, first_index):
                    break
            else:
                return None
        finally:
            refetcher.close()
        return CorruptionError(
            f"the log in {self._wal} begins at index {first_index}, its records from index {begin} on are needed",
            path=self._wal,
            expected=f"a log that begins at index {begin} or below",
            found=f"one that begins at {first_index}",
            remedy="wait: the node fetches them from the other members",
        )

    def take_new_id(self) -> None:
        """Store the id under which this node joins again, because its peers have another disk on record. Blocks.

        For a node that has lost its disk, has no records, and so has promised nothing (protocol rule 18).

        Raises:
          StorageError: the disk failed.
        """
        control = ControlFile.open(self._host.disk, self._data_dir)
        assert control.state is not None, "it has run"
        control.write(replace(control.state, member_id=reborn(self._node, control.state.incarnation), vote=""))

    def set_log_aside(self, membership: Membership) -> None:
        """Set log and snapshots aside, so that this member begins again with the records of the others. Blocks.

        In interval mode a group can continue without records that this member has as committed. The member then calls
        this. Term and vote stay. The control file is written first. If the process dies after that, a part of the log
        remains, or nothing; the member is recovering, and gets the same report again, or a snapshot.

        Args:
          membership: the newest one that the log holds, because the log will not.

        Raises:
          StorageError: the disk failed.
        """
        disk = self._host.disk
        control = ControlFile.open(disk, self._data_dir)
        assert control.state is not None, "it has run"
        state = control.state
        pair = recovering_pair(state, None)
        is_damaged = state.recovering_until is not None and not state.lost_power
        control.write(
            replace(
                state,
                recovering_until=pair,
                lost_power=not is_damaged,
                commit_hint=0,
                membership=membership.encode(),
            )
        )
        aside = Quarantine(disk, self._data_dir)
        for name in disk.list_directory(f"{self._data_dir}/snapshots"):
            aside.move(f"{self._data_dir}/snapshots/{name}")
        begin_anew(disk, self._wal, aside)
        self._logger.error(
            "! the log is set aside: the group lost acknowledged records", aside=aside.directory, pair=pair
        )

    async def close(self) -> None:
        """Cancel the running repair. Idempotent."""
        self._is_closed = True
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self, work: Coroutine[None, None, bool]) -> bool:
        """Run ``work`` as a task that :meth:`close` can cancel."""
        self._task = asyncio.get_running_loop().create_task(work)
        try:
            return await self._task
        except asyncio.CancelledError:
            if self._is_closed:
                raise ClosedError(f"{self._node} is stopping", remedy="ask another node") from None
            raise

    def _refetcher(self, state: ControlState, membership: Membership, progress: RepairProgress) -> Refetcher:
        own = _id_of(state)
        present = readdressing_of(state).entry(MembershipEntry(Index(0), Term(0), membership)).membership
        return Refetcher(
            present.addresses,
            generation=membership.generation,
            me=own,
            node=self._node,
            # Without an address, because the node only reads, also from members that are being repaired too.
            hello={**self._hello(), "node": own, "incarnation": state.incarnation, "address": ""},
            address_of=self._address_of,
            network=self._host.network,
            progress=progress,
            log=self._logger,
        )

    async def _repair(self, error: CorruptionError) -> bool:
        self.progress = RepairProgress(sentence=f"{self._node} is repairing: it reads the rest of its log")
        aside = Quarantine(self._host.disk, self._data_dir)
        try:
            if await in_thread(is_control_lost, self._host.disk, self._data_dir):
                return await in_thread(self._begin_reborn, error, f"{self._host.entropy.getrandbits(64):016x}")
            look = await in_thread(self._look, error)
            if look is None:
                return False
            self._logger.error("! damaged", reason=error.message, gaps=str(look.found.gaps), end=look.found.end)
            self.salvaged = self._salvage(look)
            refetcher = self._refetcher(look.state, look.membership, self.progress)
            try:
                await self._mend(look, refetcher, aside)
            except GoneError:
                self._logger.error("! no member keeps the missing records: the log begins anew")
                await in_thread(self._begin_anew, look, aside)
            finally:
                refetcher.close()
            self._say_repaired(aside)
            return True
        finally:
            self.progress = self.salvaged = None

    def _salvage(self, look: _Look) -> SalvagedLog:
        # The commit end of a snapshot does not count, because a log that it replaces may have other records there.
        commit_end = max(look.state.commit_hint, look.found.commit_hint)
        return SalvagedLog(self._host.disk, look.found.parts, commit_end=commit_end, history=look.history)

    def _say_repaired(self, aside: Quarantine) -> None:
        assert self.progress is not None, "a repair is under way"
        self._logger.warning("= repaired", bytes=self.progress.bytes, peer=self.progress.source, aside=aside.directory)

    async def _repair_beginning(self, begin: Index) -> bool:
        self.progress = RepairProgress(sentence=f"{self._node} looks for the beginning of its log")
        error = CorruptionError(f"{self._wal} lacks its beginning: the records from index {begin} to its first record")
        try:
            look = await in_thread(self._look, error, begin)
            if look is None:
                return False
            region = look.found.regions[0]
            first_index = region.gaps[0].end
            if region.end is None or first_index is None:
                return False  # Its only segment may be torn too, and cannot be rebuilt before another one follows it.
            refetcher = self._refetcher(look.state, look.membership, self.progress)
            aside = Quarantine(self._host.disk, self._data_dir)
            try:
                if not await refetcher.has(region.start, first_index):
                    return False
                self._logger.error("! the beginning of the log is lost", start=region.start, end=first_index)
                self.salvaged = self._salvage(look)
                await self._rebuild(look, region, None, refetcher, aside)
            except GoneError:
                self._begins_for_good = Index(first_index)
                return False
            finally:
                refetcher.close()
            self._say_repaired(aside)
            return True
        finally:
            self.progress = self.salvaged = None

    def _look(self, error: CorruptionError, begin_max: int | None = None) -> _Look | None:
        """Read the whole directory; None = there is no damage, or no other member to repair it from. Blocks."""
        disk = self._host.disk
        control = ControlFile.open(disk, self._data_dir)
        assert control.state is not None, "it is not lost"
        store = SnapshotStore.open(disk, f"{self._data_dir}/snapshots", self._cluster, self._group)
        snapshot = _newest_whole(store)
        begin = snapshot.end if snapshot is not None else 1
        finish_truncation(disk, self._wal, control.state.log_id)
        hint = max(known_end(disk, self._data_dir, control.state), begin)
        found = assess(
            disk,
            self._wal,
            begin_max=begin if begin_max is None else begin_max,
            commit_hint=hint,
            log_id=control.state.log_id,
        )
        look = _Look(
            control=control,
            state=control.state,
            store=store,
            snapshot=snapshot,
            found=found,
            membership=self._membership(control.state.membership, snapshot, found),
        )
        if found.contradiction:
            error.message += f"; not repaired, as what is intact contradicts itself: {found.contradiction}"
            return None
        if found.is_damaged and standing.decides_alone(look.membership, look.name):
            error.message += f"; {look.name} is the only voter, so no other member has a copy of the missing records"
            return None
        return look if found.is_damaged else None

    def _membership(self, stored: bytes, snapshot: StoredSnapshot | None, found: Assessment) -> Membership:
        """Return the newest membership of all sources."""
        packed = found.membership or (snapshot.meta.membership if snapshot is not None else b"") or stored
        return Membership.decode(packed) if packed else self._members

    # -- Repairing ------------------------------------------------------------------------------------------

    async def _mend(self, look: _Look, refetcher: Refetcher, aside: Quarantine) -> None:
        """Fetch the missing records that are known to be committed; cut the log if more are missing."""
        found, progress = look.found, self.progress
        assert progress is not None, "a repair is under way"
        if not found.parts:
            await in_thread(self._begin_anew, look, aside)
            return
        cut = _cut_of(look)
        regions = found.regions
        if cut is not None:
            regions = [region for region in regions if region.start <= cut]
            await in_thread(self._begin_recovering, look, cut)
            regions[-1] = await in_thread(cut_behind, self._host.disk, found.parts, regions[-1], cut, aside)
        for damaged in look.store.damaged:  # After the pair was stored, because their names show the end of the log.
            await in_thread(aside.move, damaged.path)
        if found.mark_is_lost:
            await in_thread(aside.move, f"{self._wal}/{MARK_NAME}")
        progress.bytes_total = sum(region.bytes_lost for region in regions)
        progress.ranges = [(gap.start, gap.end) for region in regions for gap in region.gaps]
        for region in reversed(regions):
            end = cut if region is regions[-1] else None
            try:
                await self._rebuild(look, region, end, refetcher, aside)
            except GoneError:
                begin = _begin_after(region)
                log_end = found.end if cut is None else cut
                if begin is None or log_end is None:
                    raise
                # The others have deleted the beginning, and have a snapshot that replaces it.
                await refetcher.fetch_snapshot(look.store, begin, log_end)

    async def _rebuild(
        self, look: _Look, region: Region, end: int | None, refetcher: Refetcher, aside: Quarantine
    ) -> None:
        """Write a region again, with the missing records from the others."""
        history = look.history
        term = history.term_at(Index(region.start - 1)) if history.starts[0].begin < region.start else 0
        rebuilding = await in_thread(
            SegmentRewriter,
            self._host.disk,
            region,
            commit_end=look.committed,
            previous_term=term,
            end=end,
            log_id=look.state.log_id,
        )
        try:
            while rebuilding.fits and (wanted := rebuilding.wanted) is not None:
                batches = await refetcher.fetch(*wanted, history)
                await in_thread(rebuilding.add, batches)
            if not rebuilding.fits:
                raise GoneError(f"this node never had the records before index {region.end}")
            await in_thread(rebuilding.finish, aside)
        finally:
            rebuilding.abandon()

    def _begin_recovering(self, look: _Look, cut: int) -> None:
        """Store the pair, before the log is touched; the commit hint goes down with the log. Blocking."""
        # After a power loss in interval mode the number of lost records after the found end is unknown.
        is_end_known = not lost_power(look.state, self._host.boot_id())
        pair = recovering_pair(look.state, look.found.end if is_end_known else None)
        look.state = replace(
            look.state,
            recovering_until=pair,
            lost_power=False,
            commit_hint=min(look.state.commit_hint, cut),
            membership=look.membership.encode(),
        )
        look.control.write(look.state)
        self._logger.warning("= recovering until the lost records are replaced", pair=pair, cut=cut)

    def _begin_reborn(self, error: CorruptionError, incarnation: str) -> bool:
        """Set everything aside: without term and vote this is a lost disk (rule 18). Blocking.

        The new id is stored immediately. Under its old id and with an empty log the node would vote until a peer
        refuses it, and if a majority has lost its control files, no peer would.
        """
        disk = self._host.disk
        store = SnapshotStore.open(disk, f"{self._data_dir}/snapshots", self._cluster, self._group)
        found = assess(disk, self._wal)
        has_control = any(disk.exists(f"{self._data_dir}/{name}") for name in CONTROL_NAMES)
        if not has_control and not found.parts and not store.stored and not store.damaged:
            return False
        membership = self._membership(b"", _newest_whole(store), found)
        if {name_of(elector) for elector in membership.electors} <= {self._node}:
            error.message += (
                f"; {self._node} is the only voter, so no other member can replace its votes and acknowledgements"
            )
            return False
        aside = set_everything_aside(disk, self._data_dir)
        member = reborn(self._node, incarnation)
        state = ControlState(
            cluster_id=self._cluster,
            node_id=self._node,
            incarnation=incarnation,
            member_id=member,
            membership=membership.encode(),
            log_id=self._host.entropy.randbytes(16),
            group=self._group,
        )
        ControlFile.open(disk, self._data_dir).write(state)
        begin_anew(disk, self._wal, Quarantine(disk, self._data_dir), state.log_id)
        self._logger.error(
            "! term and vote are lost: the node joins as a new member", reason=error.message, member=member, aside=aside
        )
        return True

    def _begin_anew(self, look: _Look, aside: Quarantine) -> None:
        """Set log and snapshots aside, and keep the node's identity and its promises. Blocks."""
        self._begin_recovering(look, 0)
        store = look.store
        for path in [each.path for each in store.stored] + [each.path for each in store.damaged]:
            aside.move(path)
        begin_anew(self._host.disk, self._wal, aside, look.state.log_id)


def _id_of(state: ControlState) -> NodeId:
    """Return the id of a node in its group."""
    return NodeId(state.member_id or state.node_id)


def missing_beginnings(recovered: Recovered, first_index: Index) -> list[Index]:
    """Return better first indices for a log that begins too late, at ``first_index``; see ``snapshots/choice.py``."""
    ends = [each.end for each in recovered.snapshots.stored]
    return find_missing_beginnings(ends, recovered.applier.machine.keep_from(), log_begin=first_index)


def _newest_whole(store: SnapshotStore) -> StoredSnapshot | None:
    """Return the newest snapshot whose bytes are all intact, and list newer ones as damaged. Blocks."""
    for stored in list(store.stored):
        try:
            for _ in store.load(stored):
                pass
        except CorruptionError as error:
            store.set_aside(stored, error)
        else:
            return stored
    return None


def _begin_after(region: Region) -> int | None:
    """Return the first index after a region that is the lost beginning of a log; None = it is not, or the log ends."""
    first = region.parts[0]
    if region.before is not None:
        return None
    if not first.exists:
        return region.end if region.behind is not None else None
    return first.first_index if first.first_index is not None and first.first_index > region.start else None


def _cut_of(look: _Look) -> int | None:
    """Return the required end of the log: before the first gap that may be uncommitted; None = no such gap."""
    for gap in look.found.gaps:
        if gap.end is None or gap.end > look.committed:
            return max(gap.start, look.begin)
    return None
