"""Planted mistakes in the node and its log: identity, repair, scrubbing, syncs, recovery, stale reads, snapshots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.consensus.membership import AddMember, Change, Membership
from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import PeerError, StorageError, UnavailableError
from viewstamp.host.blocking import in_thread
from viewstamp.host.interfaces import Disk, File, Host, Network
from viewstamp.ids import ClusterId, GroupId, Index, NodeId, Term
from viewstamp.node import archivist, cancelled, fitness, group, hosting, log_clock, log_store, placer, replica, service
from viewstamp.node.data_dir import GROUPS_NAME
from viewstamp.node.health import headroom
from viewstamp.node.health.headroom import Headroom
from viewstamp.node.hosting import Hosting
from viewstamp.node.log_clock import LogClock
from viewstamp.node.log_reader import LogReader
from viewstamp.node.log_space import LogSpace
from viewstamp.node.log_store import LogStore
from viewstamp.node.node import Node
from viewstamp.node.options import NodeOptions
from viewstamp.node.peers import identity, moved, probe, question
from viewstamp.node.peers.moved import MovedPeers
from viewstamp.node.peers.pool import PeerPool
from viewstamp.node.peers.probe import Unfit
from viewstamp.node.placement_queries import PlacedGroup
from viewstamp.node.reading import Reading
from viewstamp.node.repair import refetch, repair
from viewstamp.node.repair.refetch import Refetcher
from viewstamp.node.repair.salvage import SalvagedLog
from viewstamp.node.repair.scrubber import Scrubber
from viewstamp.node.snapshots.file import SnapshotMeta, SnapshotWriter
from viewstamp.node.snapshots.policy import Snapshotter
from viewstamp.node.stream_topics import StreamTopics
from viewstamp.node.ticker import Ticker
from viewstamp.wal import budget, scan, verdict
from viewstamp.wal import repair as wal_repair
from viewstamp.wal.catalogue import Segment
from viewstamp.wal.control_file import CONTROL_NAMES, ControlFile, ControlState
from viewstamp.wal.log import Wal
from viewstamp.wal.writer import Writer
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.handshake import Hello, Welcome
from viewstamp.wire.handshake import read_members as moved_read_members

__all__ = ["NODE_MUTANTS"]


# -- Identity -----------------------------------------------------------------------------------------------


def accept_another_disk() -> AbstractContextManager[None]:
    def check_disk(self: PeerPool, peer: NodeId, incarnation: str) -> None:
        pass

    return patched(PeerPool, check_disk=check_disk)


def forget_disks() -> AbstractContextManager[None]:
    original = PeerPool.connect_all

    def connect_all(self: PeerPool) -> None:
        for peer in self._raft.core.membership.addresses:
            self._met.pop(peer, None)
        original(self)

    return patched(PeerPool, connect_all=connect_all)


def reborn_beside_the_old() -> AbstractContextManager[None]:
    original = identity.joining_change

    def joining_change(
        membership: Membership, member: NodeId, address: str, *, is_heard: Callable[[NodeId], bool]
    ) -> Change | None:
        change = original(membership, member, address, is_heard=is_heard)
        return replace(change, replaces=None) if isinstance(change, AddMember) else change

    return everywhere(original, joining_change)


# -- Repair -------------------------------------------------------------------------------------------------


def cut_before_the_pair() -> AbstractContextManager[None]:
    """The viewstamp is stored after the repair, so a crash in between leaves a cut log without a trace of the loss."""
    original, mend = repair.Repairer._begin_recovering, repair.Repairer._mend
    later: list[Callable[[], None]] = []

    async def mend_first(self: repair.Repairer, *arguments: Any) -> None:
        await mend(self, *arguments)
        while later:
            await in_thread(later.pop())

    return patched(
        repair.Repairer,
        _begin_recovering=lambda self, look, cut: later.append(lambda: original(self, look, cut)),
        _mend=mend_first,
    )


def pair_of_what_is_left() -> AbstractContextManager[None]:
    original = repair.recovering_pair

    def recovering_pair(state: ControlState, end: int | None) -> tuple[int, int]:
        return original(replace(state, recovering_until=None), end)

    return everywhere(original, recovering_pair)


def unknown_end_as_known() -> AbstractContextManager[None]:
    """An unknown end is taken to be the first index of the history's last term."""
    original = repair.recovering_pair

    def recovering_pair(state: ControlState, end: int | None) -> tuple[int, int]:
        return original(state, state.history[-1][1] if end is None else end)

    return everywhere(original, recovering_pair)


def take_any_term() -> AbstractContextManager[None]:
    original = refetch.check_batches

    def check_batches(batches: list[Any], start: int, end: int, _: object, peer: NodeId) -> None:
        if batches:
            own = TermHistory([(batches[0].term, batches[-1].end + 1)])
            original(batches, start, end, own, peer)
        else:
            original(batches, start, end, TermHistory(), peer)

    return everywhere(original, check_batches)


def take_any_range() -> AbstractContextManager[None]:
    original = refetch.check_batches

    def check_batches(batches: list[Any], start: int, end: int, history: TermHistory, peer: NodeId) -> None:
        for batch in batches:
            original([batch], batch.first_index, batch.end, history, peer)

    return everywhere(original, check_batches)


def skip_last_sealed() -> AbstractContextManager[None]:
    original = Scrubber._look_at_segment

    async def look_at_segment(self: Scrubber, looked_at: Segment) -> None:
        sealed = [each for each in self._wal.segments() if each.sealed]
        if looked_at is not sealed[-1]:
            await original(self, looked_at)

    return patched(Scrubber, _look_at_segment=look_at_segment)


# -- The log ------------------------------------------------------------------------------------------------


def sync_again() -> AbstractContextManager[None]:
    """A failed sync is retried; the second one succeeds although the pages of the first are lost."""
    original = Writer._sync

    def sync(self: Writer) -> None:
        try:
            original(self)
        except StorageError:
            original(self)

    return patched(Writer, _sync=sync)


def hint_before_entries() -> AbstractContextManager[None]:
    """A group's commit hint exceeds the durable end before the group, so it names records that may be lost."""
    original = Writer._write_group

    def write_group(self: Writer, *arguments: Any, **named: Any) -> int:
        before, self._durable_end = self._durable_end, 1 << 62
        try:
            return original(self, *arguments, **named)
        finally:
            self._durable_end = before

    return patched(Writer, _write_group=write_group)


def hint_not_at_idle() -> AbstractContextManager[None]:
    """The commit hint is stored with other control writes only."""
    return patched(Wal, _store_commit_hint=lambda self: None)


def hint_above_durable() -> AbstractContextManager[None]:
    """The stored commit hint includes records that this disk does not have."""
    return patched(Writer, durable_commit_end=property(lambda self: self.commit_hint))


def verdict_without_hint() -> AbstractContextManager[None]:
    """A lost end of the log reads as a torn tail, or as the end."""
    return patched(verdict._Judge, _lacks_end=property(lambda self: False))


def install_unmarked() -> AbstractContextManager[None]:
    """Every snapshot above the end of the log counts as one that was being installed."""
    return everywhere(verdict.is_being_installed, lambda state, end, term: True)


def accept_foreign() -> AbstractContextManager[None]:
    """A segment of another log is accepted."""
    return patched(scan.ScanState, check_log_id=lambda self, header, path: None)


def name_before_the_mark() -> AbstractContextManager[None]:
    """A leader's snapshot gets its name without a mark in the control file."""

    async def mark_installing(self: LogStore, end: Index, term: Term) -> None:
        pass

    return patched(LogStore, mark_installing=mark_installing)


def reuse_as_it_is() -> AbstractContextManager[None]:
    """A recycled segment is resized, but not overwritten."""
    original = budget.fill_with_zeros

    def fill_with_zeros(file: File, start: int, end: int) -> None:
        original(file, max(start, file.size()), end)

    return patched(budget, fill_with_zeros=fill_with_zeros)


def read_recycled_as_new() -> AbstractContextManager[None]:
    return patched(scan.SegmentScanner, _is_stale=lambda self, group, at: "")


def cut_what_was_durable() -> AbstractContextManager[None]:
    return patched(verdict._Judge, _is_called_durable=lambda self, segment: False)


def torn_is_damage() -> AbstractContextManager[None]:
    """Damage inside the last group counts as corruption, even if no sync followed it."""
    return patched(verdict._Judge, _is_called_durable=lambda self, segment: True)


def truncate_unclosed() -> AbstractContextManager[None]:
    """A truncation leaves no closing group that marks the remaining records as durable."""
    return patched(wal_repair, _closing_group=lambda *arguments: None)


def torn_beside_damage() -> AbstractContextManager[None]:
    """A torn tail is accepted in a log that has other damage."""
    return patched(scan.SegmentScan, has_torn_end=property(lambda self: False))


def believe_the_history() -> AbstractContextManager[None]:
    return everywhere(log_store.check_history, lambda *arguments: None)


# -- Reads ---------------------------------------------------------------------------------------


def age_by_the_last_word() -> AbstractContextManager[None]:
    """The age of a stale answer is the time since the leader's last message."""

    def age(self: Reading) -> float:
        core = self._replica.raft.core
        return math.inf if core.leader is None else 0.01 * core.ticks_since_leader

    return patched(Reading, _age=property(age))


def confirmed_when_answered() -> AbstractContextManager[None]:
    """The age counts from the arrival of the leader's answer, not from the request."""
    original = Reading._barrier

    async def barrier(self: Reading, seconds: float) -> None:
        await original(self, seconds)
        self._confirmed_at = self._clock.monotonic()

    return patched(Reading, _barrier=barrier)


# -- The node -----------------------------------------------------------------------------------------------


def deny_when_deposed() -> AbstractContextManager[None]:
    """Callers of a deposed leader get the answer that nothing was written."""

    def outcome_unknown(message: str, *, token: object, remedy: str) -> UnavailableError:
        return UnavailableError(message, remedy=remedy)

    return patched(replica, OutcomeUnknownError=outcome_unknown)


def give_what_is_not_committed() -> AbstractContextManager[None]:
    """A member that repairs its log gets records that may still be cut."""
    original = LogReader.read_committed

    async def read_committed(self: LogReader, start: int, end: int, bytes_max: int) -> list[Batch]:
        log = self._log
        before, log.commit_end = log.commit_end, Index(1 << 62)
        try:
            return await original(self, start, end, bytes_max)
        finally:
            log.commit_end = before

    return patched(LogReader, read_committed=read_committed)


def remains_not_committed() -> AbstractContextManager[None]:
    """A member that repairs its log gives others records that may still be cut from it."""
    original = SalvagedLog.read

    def read(self: SalvagedLog, start: int, end: int, bytes_max: int) -> list[Batch]:
        self._commit_end = 1 << 62
        return original(self, start, end, bytes_max)

    return patched(SalvagedLog, read=read)


def take_rot() -> AbstractContextManager[None]:
    """The checksums of a repaired range are not checked."""
    original = Refetcher._fetch_from

    async def fetch_from(self: Refetcher, *arguments: Any) -> list[Batch]:
        def decode_all(buffer: bytes) -> list[Batch]:
            return genuine(buffer, verify=False)

        genuine = Batch.decode_all
        with patched(refetch, Batch=SimpleNamespace(decode_all=decode_all)):
            return await original(self, *arguments)

    return patched(Refetcher, _fetch_from=fetch_from)


# -- Syncs --------------------------------------------------------------------------------------------------


def call_it_synced() -> AbstractContextManager[None]:
    """Written bytes count as durable."""
    original = Writer._sync

    def sync(self: Writer) -> None:
        file = self._file
        self._file = SimpleNamespace(sync=lambda: None, sync_data=lambda: None)
        try:
            original(self)
        finally:
            self._file = file

    return patched(Writer, _sync=sync)


def one_copy() -> AbstractContextManager[None]:
    """Only one copy of the control file is written; the other is left as it was."""
    original = ControlFile._write_copy

    def write_copy(self: ControlFile, path: str, packed: bytes) -> None:
        if not path.endswith(CONTROL_NAMES[1]) or not self._disk.exists(path):
            original(self, path, packed)

    return patched(ControlFile, _write_copy=write_copy)


def snapshot_unsynced() -> AbstractContextManager[None]:
    """A snapshot gets its name before its bytes are durable."""
    original = SnapshotWriter.finish

    async def finish(self: SnapshotWriter) -> None:
        file = self._file
        self._file = _Unsynced(file)
        try:
            await original(self)
        finally:
            self._file = file

    return patched(SnapshotWriter, finish=finish)


class _Unsynced:
    """A file on which a sync does nothing."""

    def __init__(self, file: Any) -> None:
        self._file = file

    async def sync(self) -> None:
        """Do nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def full_with_the_others() -> AbstractContextManager[None]:
    """A leader ignores the room in its followers' logs."""
    return patched(Headroom, spared_bytes=0)


def followers_without_headers() -> AbstractContextManager[None]:
    """A leader counts the batches that its followers still have to write without their headers."""
    return patched(headroom, cost_of=lambda size: size)


def append_whole_or_not() -> AbstractContextManager[None]:
    """A member takes none of the batches of an append for which it lacks room."""
    return patched(LogSpace, _first_that_fit=lambda _self, _batches: ())


def snapshot_ahead_of_the_log() -> AbstractContextManager[None]:
    """A snapshot covers records that the node's own log does not hold durably yet."""

    async def wait_durable(self: Snapshotter) -> None:
        pass

    return patched(Snapshotter, _wait_durable=wait_durable)


# -- Time ---------------------------------------------------------------------------------------------------


def stamp_unbounded() -> AbstractContextManager[None]:
    return patched(LogClock, _reference=lambda self, wall_us, now: wall_us)


def stamp_stands_still() -> AbstractContextManager[None]:
    return patched(log_clock, SLEWED=0.0)


def count_the_stop() -> AbstractContextManager[None]:
    """A process that was stopped counts all of that time as ticks in which it waited for others."""

    def catch_up(self: Ticker) -> int:
        ticks = int((self._clock.monotonic() - self.counted_at) / self.tick_seconds)
        self.count += ticks
        return ticks

    return patched(Ticker, catch_up=catch_up)


# -- Groups that are placed ---------------------------------------------------------------------------------


def open_before_established() -> AbstractContextManager[None]:
    """A founder opens a group when its own disk is on record, without the disks of the others."""
    original = hosting.Hosting.__dict__["placed"].fget

    def placed(self: hosting.Hosting) -> list[PlacedGroup]:
        return [
            replace(each, members={node: each.members[node] for node in each.incarnations})
            if self._group.options.node in each.incarnations
            else each
            for each in original(self)
        ]

    return patched(hosting.Hosting, placed=property(placed))


def begin_as_the_founder() -> AbstractContextManager[None]:
    """A founder opens whatever directory it has, also an empty one, although another disk is on record."""
    original = hosting.complete_directory

    def complete_directory(host: Host, options: NodeOptions) -> str:
        return original(host, replace(options, incarnations={}))

    return patched(hosting, complete_directory=complete_directory)


def believe_a_hello() -> AbstractContextManager[None]:
    """The address in the HELLO of a member counts, although its directory may be a copy."""

    def address(self: MovedPeers, peer: NodeId) -> str | None:
        return self._named.get(peer)

    return patched(MovedPeers, address=address)


def believe_an_old_record() -> AbstractContextManager[None]:
    """A member that names its own address is reached there, also if it has no newer record."""

    def read_members(body: Mapping[str, Any]) -> tuple[dict[str, str], int]:
        return moved_read_members(body)[0], 1 << 60

    return patched(moved, read_members=read_members)


def never_look_for_the_moved() -> AbstractContextManager[None]:
    """A member that is not reached at its recorded address is not looked for."""

    async def look(self: MovedPeers, peer: NodeId, tried: str) -> None:
        pass

    return patched(MovedPeers, look=look)


def report_before_durable() -> AbstractContextManager[None]:
    """A founder reports a disk that it has not stored, so each start of its process reports another one."""

    async def report(call: Callable[..., str], *arguments: Any, **named: Any) -> str:
        host, options = arguments[:2]
        if options.incarnations:
            return await in_thread(call, *arguments, **named)
        return f"{host.entropy.getrandbits(64):016x}"

    return patched(hosting, in_thread=report)


def place_without_a_probe() -> AbstractContextManager[None]:
    """The leader places a group without having asked the members for their release."""

    async def find_unfit(
        network: Network, cluster: ClusterId, members: Mapping[NodeId, str], kind: Kind = Kind.PLACE_GROUP
    ) -> Unfit:
        return Unfit({}, {})

    return patched(fitness, find_unfit=find_unfit)


@contextmanager
def forget_who_was_added() -> Iterator[None]:
    """The members are those of the first look, also after the probe."""
    original = fitness.when_fit

    class Unchanging:
        def __init__(self, home: group.Group) -> None:
            self.membership, self.options, self.me = home.membership, home.options, home.me

    async def when_fit(
        network: Network,
        home: group.Group,
        prepare: Callable[[Membership], fitness.Needs[Any]],
        consequence: str,
        *,
        may_be_silent: bool = False,
    ) -> Any:
        unchanging = cast("group.Group", Unchanging(home))
        return await original(network, unchanging, prepare, consequence, may_be_silent=may_be_silent)

    with patched(placer, when_fit=when_fit), patched(archivist, when_fit=when_fit):
        yield


def place_on_voters_only() -> AbstractContextManager[None]:
    """A founder that is named has to vote in group 0."""
    original = placer._founders

    def founders(membership: Membership, names: Sequence[object], failed: str = "") -> dict[NodeId, str]:
        return original(Membership(membership.electors), names, failed)

    return patched(placer, _founders=founders)


def spread_by_the_probe_of_groups() -> AbstractContextManager[None]:
    """A member that knows groups counts as one that knows spread topics."""

    async def find_unfit(
        network: Network, cluster: ClusterId, members: Mapping[NodeId, str], kind: Kind = Kind.PLACE_GROUP
    ) -> Unfit:
        return await probe.find_unfit(network, cluster, members, Kind.PLACE_GROUP)

    return patched(fitness, find_unfit=find_unfit)


def create_a_stream_by_a_client() -> AbstractContextManager[None]:
    return patched(service, check_may_create=lambda caller, topic: None)


def create_streams_at_their_record_only() -> AbstractContextManager[None]:
    """A leader looks for missing streams when a record of group 0 is applied, and not when it begins to lead."""
    on_change = Node.on_change

    def change(self: Node, group: GroupId) -> None:
        with patched(StreamTopics, look=lambda self: None):
            on_change(self, group)

    return patched(Node, on_change=change)


def remove_a_host() -> AbstractContextManager[None]:
    return patched(group, check_hosts_none=lambda change, members, placed: None)


def fit_for_every_answer() -> AbstractContextManager[None]:
    """A member that refuses the version of a HELLO counts as one that knows groups."""

    async def answer_to(network: Network, address: str, hello: Hello) -> Welcome | Exception:
        found = await question.answer_to(network, address, hello)
        return UnavailableError("") if type(found) is PeerError else found

    return patched(probe, answer_to=answer_to)


def snapshot_of_any_group() -> AbstractContextManager[None]:
    return patched(SnapshotMeta, is_of=lambda self, group: True)


def remove_what_has_voted() -> AbstractContextManager[None]:
    """The directory of a cancelled group is removed although its member has voted."""
    original = cancelled.read_control_state

    def read(disk: Disk, path: str) -> ControlState | None:
        state = original(disk, path)
        return None if state is None else replace(state, term=0, vote="")

    return patched(cancelled, read_control_state=read)


def remove_what_holds_records() -> AbstractContextManager[None]:
    return patched(cancelled, _check_log=lambda disk, path, log_id: None)


def remove_what_is_not_placed() -> AbstractContextManager[None]:
    """A node removes directories of groups that are not in the placement, whether they were cancelled or not."""

    def unplaced(self: Hosting) -> list[GroupId]:
        if self._group.parts is None:
            return []
        path = f"{self._group.options.data_dir}/{GROUPS_NAME}"
        in_use = {*self._tasks, *self._hosted, *self._swept}
        return [group for each in self._host.disk.list_directory(path) if (group := GroupId(int(each))) not in in_use]

    return patched(Hosting, _cancelled=property(unplaced))


def name_by_numbers() -> AbstractContextManager[None]:
    """The status has the kept directories as a map by group id, which no client decodes."""
    original: Any = Node.__dict__["status"].fget

    def status(self: Node) -> dict[str, object]:
        found = original(self)
        kept = {each["group"]: each["reason"] for each in found.get("kept_directories", [])}
        return {**found, "kept_directories": kept} if kept else found

    return patched(Node, status=property(status))


NODE_MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "accept-another-disk",
            "a wiped node is accepted under its old name",
            accept_another_disk,
            rule="row 19, rule 18",
        ),
        Mutant("forget-disks", "the disk of a peer is not remembered", forget_disks, rule="rule 18"),
        Mutant(
            "reborn-beside-the-old",
            "a reborn node joins while its old id stays a voter",
            reborn_beside_the_old,
            rule="rule 18",
        ),
        Mutant("cut-before-the-pair", "the log is cut before the pair is stored", cut_before_the_pair, rule="rule 17"),
        Mutant(
            "pair-of-what-is-left",
            "a second damage overwrites the pair that was stored for the first",
            pair_of_what_is_left,
            rule="rule 17",
        ),
        Mutant(
            "unknown-end-as-known",
            "a member that lost the end of its log stores the first index of its last term as that end",
            unknown_end_as_known,
            rule="rule 17",
        ),
        Mutant("take-any-term", "a repaired range is not compared with the history", take_any_term, rule="rule 20"),
        Mutant("take-any-range", "a repair takes records of other indices", take_any_range, rule="rule 20"),
        Mutant("skip-last-sealed", "the scrubber skips the last sealed segment", skip_last_sealed, rule="§5"),
        Mutant("sync-again", "a failed sync is tried again", sync_again, rule="§5"),
        Mutant(
            "hint-before-entries",
            "a commit hint is stored before the records that it covers",
            hint_before_entries,
            rule="§11, rule 8",
        ),
        Mutant("hint-not-at-idle", "an idle log does not store its commit hint", hint_not_at_idle, rule="rule 17"),
        Mutant("hint-above-durable", "the stored hint is above the synced end", hint_above_durable, rule="rule 8"),
        Mutant(
            "verdict-without-hint",
            "a lost end of the log is taken for a torn tail",
            verdict_without_hint,
            rule="rule 17",
        ),
        Mutant(
            "install-unmarked",
            "an unmarked snapshot is taken for one that was being installed",
            install_unmarked,
            rule="rule 19",
        ),
        Mutant("name-before-mark", "a fetched snapshot is not marked", name_before_the_mark, rule="rule 19"),
        Mutant("accept-foreign", "a segment of another log is accepted", accept_foreign, rule="§5"),
        Mutant("reuse-as-it-is", "a recycled segment keeps its old bytes", reuse_as_it_is, rule="§5"),
        Mutant("read-recycled-as-new", "an old group is read as a new one", read_recycled_as_new, rule="§5"),
        Mutant(
            "cut-what-was-durable",
            "damage is cut although a later group shows that the bytes were durable",
            cut_what_was_durable,
            rule="rule 16",
        ),
        Mutant("torn-is-damage", "a torn last group is taken for damage", torn_is_damage, rule="rule 16"),
        Mutant(
            "truncate-unclosed",
            "a repair finishes a truncation without marking the records before it as durable",
            truncate_unclosed,
            rule="rule 16",
        ),
        Mutant(
            "torn-beside-damage",
            "beside other damage the end of a log counts as a torn tail",
            torn_beside_damage,
            rule="rule 17",
        ),
        Mutant(
            "believe-the-history", "the history is not checked against the headers", believe_the_history, rule="rule 20"
        ),
        Mutant(
            "deny-when-deposed", "a deposed leader answers that nothing was written", deny_when_deposed, rule="rule 12"
        ),
        Mutant(
            "give-uncommitted",
            "a repair is given records that are not committed",
            give_what_is_not_committed,
            rule="rule 17",
        ),
        Mutant(
            "remains-not-committed",
            "a repair is given records that are not committed, by another repair",
            remains_not_committed,
            rule="rule 17",
        ),
        Mutant("take-rot", "a repair accepts batches without verifying their checksums", take_rot, rule="§5"),
        Mutant("call-it-synced", "written bytes count as durable", call_it_synced, rule="rule 2, §5"),
        Mutant("one-copy", "the control file is written once, not twice", one_copy, rule="§5"),
        Mutant("snapshot-unsynced", "a snapshot gets its name before it is durable", snapshot_unsynced, rule="rule 19"),
        Mutant(
            "snapshot-ahead-of-log",
            "a snapshot covers records that its own log does not hold durably",
            snapshot_ahead_of_the_log,
            rule="rule 19",
        ),
        Mutant(
            "full-with-the-others",
            "a leader admits records that do not fit into its followers' logs",
            full_with_the_others,
            rule="§5",
        ),
        Mutant(
            "followers-without-headers",
            "a leader counts the batches that its followers still have to write without their headers",
            followers_without_headers,
            rule="§5",
        ),
        Mutant(
            "append-whole-or-not",
            "a member takes all batches of an append or none, so a log with room for a part never goes on",
            append_whole_or_not,
            rule="§5",
        ),
        Mutant(
            "age-by-last-word",
            "the age of a stale answer is counted from the leader's last message",
            age_by_the_last_word,
            rule="reads",
        ),
        Mutant(
            "age-from-the-answer",
            "the age of a stale answer is counted from the leader's response, not from the request",
            confirmed_when_answered,
            rule="reads",
        ),
        Mutant(
            "stamp-unbounded",
            "a leader stamps records with its own clock and ignores those of a majority",
            stamp_unbounded,
            rule="§10a",
        ),
        Mutant(
            "stamp-stands-still",
            "log time stands still while it is ahead of the clock",
            stamp_stands_still,
            rule="§10a",
        ),
        Mutant(
            "stop-counts",
            "a process counts the time for which it was stopped as ticks",
            count_the_stop,
            rule="design §4",
        ),
        Mutant(
            "open-before-established",
            "a founder opens a group that lacks founders",
            open_before_established,
            rule="rule 18",
        ),
        Mutant(
            "begin-as-the-founder",
            "a founder that lost its directory votes with an empty one",
            begin_as_the_founder,
            rule="rule 18",
        ),
        Mutant(
            "believe-a-hello",
            "a copied directory redirects the answers to its original to itself",
            believe_a_hello,
            rule="§10a",
        ),
        Mutant(
            "believe-an-old-record",
            "a copied directory names its own address, and gets the answers to its original",
            believe_an_old_record,
            rule="§10a",
        ),
        Mutant(
            "never-look-for-the-moved",
            "a member that was down during a move sends its votes to the old address for ever",
            never_look_for_the_moved,
            rule="§10a",
        ),
        Mutant(
            "report-before-durable",
            "a founder reports a disk that is not stored yet",
            report_before_durable,
            rule="rule 18",
        ),
        Mutant(
            "place-without-a-probe",
            "a group is placed although a member may run an older release",
            place_without_a_probe,
            rule="§4",
        ),
        Mutant(
            "added-unprobed",
            "a member that is added during a probe is not probed",
            forget_who_was_added,
            rule="§4",
        ),
        Mutant(
            "place-on-voters-only",
            "a node that does not vote in group 0 hosts no group",
            place_on_voters_only,
            rule="§4",
        ),
        Mutant(
            "spread-by-the-probe-of-groups",
            "a topic is spread over streams although a member knows groups only",
            spread_by_the_probe_of_groups,
            rule="§4",
        ),
        Mutant(
            "create-a-stream-by-a-client",
            "a client creates a topic in another group than 0",
            create_a_stream_by_a_client,
            rule="§4",
        ),
        Mutant(
            "create-streams-at-their-record-only",
            "the next leader of a group does not create the streams that the one before has not",
            create_streams_at_their_record_only,
            rule="§4",
        ),
        Mutant("remove-a-host", "a node that hosts a group is removed from group 0", remove_a_host, rule="§4"),
        Mutant(
            "fit-for-every-answer",
            "a member of an older release counts as fit",
            fit_for_every_answer,
            rule="§4",
        ),
        Mutant(
            "snapshot-of-any-group",
            "a snapshot is loaded in the directory of another group",
            snapshot_of_any_group,
            rule="§7",
        ),
        Mutant(
            "remove-what-has-voted",
            "the directory of a member that has voted is removed",
            remove_what_has_voted,
            rule="rule 18",
        ),
        Mutant(
            "remove-what-holds-records",
            "the directory of a cancelled group is removed with a log that holds records",
            remove_what_holds_records,
            rule="rule 18",
        ),
        Mutant(
            "remove-what-is-not-placed",
            "a node removes the directory of a group of which it has no cancellation",
            remove_what_is_not_placed,
            rule="rule 18",
        ),
        Mutant(
            "name-by-numbers",
            "the status of a node that keeps the directory of a cancelled group cannot be decoded",
            name_by_numbers,
            rule="§10",
        ),
    )
}
"""The mutants by name."""
