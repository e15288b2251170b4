"""Planted mistakes in the catalogue of runs, and in the steps of the archivist."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import islice
from typing import Any

from tests.mutants.mutants import Mutant, both, patched
from viewstamp.archive import run_file, run_process, run_store, store
from viewstamp.archive.opened import OpenedFile
from viewstamp.archive.run_file import RunReader
from viewstamp.archive.run_process import RunProcess
from viewstamp.archive.run_store import ReadableRun, RunObjects
from viewstamp.archive.store import DirectoryObjects, ObjectFile
from viewstamp.client import reader
from viewstamp.errors import UnavailableError
from viewstamp.ids import Position, RunId, TopicId
from viewstamp.node import archive_pauses, archived, archivist, fitness, log_space
from viewstamp.node.archive_pauses import ArchivePauses
from viewstamp.node.archive_queries import ArchivableTopic, ArchivedRun, DueRun, DueRunsQuery
from viewstamp.node.archive_rounds import ArchiveRounds
from viewstamp.node.archived import ArchivedReads, LoadedRecords
from viewstamp.node.archivist import Archivist
from viewstamp.streams import archive_plan, runs, state
from viewstamp.streams.runs import RunCatalogue, RunRule, RunState, TopicRun
from viewstamp.streams.state import State
from viewstamp.streams.topic import Topic
from viewstamp.wire.batch import Batch, Buffer, Kind

__all__ = ["ARCHIVE_MUTANTS"]


def without(rule: RunRule) -> Callable[[], AbstractContextManager[None]]:
    """Accept what one rule forbids."""
    original: Any = runs._refuse

    def refuse(found: RunRule, why: str, *remedy: str) -> None:
        if found is not rule:
            original(found, why, *remedy)

    return lambda: patched(runs, _refuse=refuse)


def read_while_prepared() -> AbstractContextManager[None]:
    """A run is read from its PREPARE_RUN on."""
    original = RunCatalogue.committed

    def committed(self: RunCatalogue, topic: Any) -> list[TopicRun]:
        prepared = self.prepared(topic)
        return [*original(self, topic), *([] if prepared is None else [prepared])]

    def find(self: RunCatalogue, topic: Any, position: int) -> TopicRun | None:
        return next((run for run in committed(self, topic) if run.first <= position < run.end), None)

    return patched(RunCatalogue, committed=committed, find=find)


def end_by_prepare() -> AbstractContextManager[None]:
    """The archived end moves before the object is durable."""
    original = RunCatalogue.apply

    def apply(self: RunCatalogue, batch: Batch, topics: Any, maps: Any) -> TopicRun:
        run = original(self, batch, topics, maps)
        if batch.kind is Kind.PREPARE_RUN:
            self.ends[run.topic] = run.end
        return run

    return patched(RunCatalogue, apply=apply)


def end_falls_with_drop() -> AbstractContextManager[None]:
    """The archived end moves back when a run is dropped."""
    original = RunCatalogue.apply

    def apply(self: RunCatalogue, batch: Batch, topics: Any, maps: Any) -> TopicRun:
        run = original(self, batch, topics, maps)
        if batch.kind is Kind.DROP_RUN and run.content is not None:
            self.ends[run.topic] = Position(run.first)
        return run

    return patched(RunCatalogue, apply=apply)


def remove_what_is_known() -> AbstractContextManager[None]:
    """Objects of runs that are not committed are taken for orphans, also those that are being written."""

    def orphans(self: RunCatalogue, ids: Collection[int], applied_end: int) -> list[int]:
        own = {int(run.id) for run in self.runs.values() if run.state is RunState.COMMITTED and not run.origin}
        return sorted(each for each in ids if each < applied_end and each not in own)

    return patched(RunCatalogue, orphans=orphans)


def remove_what_comes() -> AbstractContextManager[None]:
    """A leader that lags takes the object of a run for an orphan whose PREPARE_RUN it has not applied."""
    original = RunCatalogue.orphans
    return patched(RunCatalogue, orphans=lambda self, ids, applied_end: original(self, ids, 1 << 62))


def snapshot_without_runs() -> AbstractContextManager[None]:
    return patched(RunCatalogue, image=lambda self: [[], list(map(list, self.ends.items()))])


def runs_ahead_of_topics() -> AbstractContextManager[None]:
    return patched(RunCatalogue, check_topics=lambda self, topics: None)


def fork_owns_the_objects() -> AbstractContextManager[None]:
    """A new cluster takes the objects of the old one for its own, so it may remove them."""
    return patched(RunCatalogue, fork=lambda self, source, log_time, *, log_begin: None)


def commit_unread() -> AbstractContextManager[None]:
    async def pass_over(self: Archivist, pieces: Any) -> None:
        pieces.close()

    return patched(Archivist, _go_through=pass_over)


def archive_unprobed() -> AbstractContextManager[None]:
    async def probe(self: Archivist, kind: Kind = Kind.FORGET_RUN, consequence: str = "") -> None:
        pass

    return patched(Archivist, _probe=probe)


def probe_for_groups_only() -> AbstractContextManager[None]:
    """Releases with groups and without runs pass the probe."""
    original = fitness.find_unfit
    return patched(fitness, find_unfit=lambda network, cluster, members, kind=None: original(network, cluster, members))


def keep_prepared_runs() -> AbstractContextManager[None]:
    """The run of an earlier leader stays PREPARED, so the topic cannot be archived any more."""
    original = Archivist._clean

    async def clean(self: Archivist, topic: ArchivableTopic) -> None:
        runs = tuple(run for run in topic.runs if run.state != "prepared")
        await original(self, replace(topic, runs=runs))

    return patched(Archivist, _clean=clean)


def forget_before_removal() -> AbstractContextManager[None]:
    """A run is forgotten although its object could not be removed."""
    original = Archivist._remove

    async def remove(self: Archivist, run: RunId) -> bool:
        await original(self, run)
        return True

    return patched(Archivist, _remove=remove)


def write_when_deposed() -> AbstractContextManager[None]:
    return patched(Archivist, _check_leads=lambda self, term: None)


def replace_objects() -> AbstractContextManager[None]:
    """An object of the same name is replaced."""
    original = RunObjects.begin

    def begin(self: RunObjects, run: RunId, topic: TopicId, first: Position, schema: str = "") -> Any:
        RunObjects.remove(self, run)
        return original(self, run, topic, first, schema)

    return patched(RunObjects, begin=begin)


def run_with_a_gap() -> AbstractContextManager[None]:
    """Batches are written as they come, so the positions in the file are not those of the records."""

    def add(self: Any, batch: Batch, end: int) -> None:
        self._writer.add(batch.term, batch.first_index, batch.log_time, batch.columns())

    def take(self: Any, end: Position, buffers: Any, order: Any = ()) -> Position:
        batches = Batch.decode_all(b"".join(buffers))
        self._taken += [(batch, end) for batch in batches]
        return Position(self._writer.end + sum(batch.count for batch in batches))

    return patched(run_store.RunCreation, _add=add, take=take)


def log_dropped_at_once() -> AbstractContextManager[None]:
    """The log's copy goes as soon as the run is committed."""
    return patched(TopicRun, is_over=lambda self, log_time: self.state is RunState.COMMITTED)


def log_dropped_before_commit() -> AbstractContextManager[None]:
    """The log's copy goes as soon as the run is prepared."""

    def of_first(self: RunCatalogue, topic: Any) -> Iterator[TopicRun]:
        prepared = self.prepared(topic.id)
        return iter([*self.committed(topic.id), *([] if prepared is None else [prepared])])

    def is_over(self: TopicRun, log_time: int) -> bool:
        return self.changed_at + (self.delay or 0) <= log_time

    return both(patched(RunCatalogue, kept=of_first), patched(TopicRun, is_over=is_over))


def released_behind_a_gap() -> AbstractContextManager[None]:
    """Records in front of the first run are taken for archived."""
    return patched(RunCatalogue, kept=lambda self, topic: iter(self.committed(topic.id)))


def read_while_dropped() -> AbstractContextManager[None]:
    """A run is read although its object may be removed."""

    def find(self: RunCatalogue, topic: Any, position: int) -> TopicRun | None:
        runs = (run for run in self.runs.values() if run.state is not RunState.PREPARED)
        return next((run for run in runs if run.topic == topic and run.first <= position < run.end), None)

    return patched(RunCatalogue, find=find)


def fork_drops_what_is_not_its_own() -> AbstractContextManager[None]:
    """The log of a fork deletes records whose objects the old cluster may remove."""

    def fork(self: RunCatalogue, source: str, log_time: int, *, log_begin: int) -> None:
        for run in list(self.runs.values()):
            self._take_out(run.id)
            del self.runs[run.id]
            if run.state is RunState.COMMITTED:
                self._put(run._replace(origin=run.origin or source))

    return patched(RunCatalogue, fork=fork)


def read_without_checksum() -> AbstractContextManager[None]:
    def verified(self: RunReader, file: Any, number: int, group: Any) -> Any:
        with run_file.reading_parquet(self._arrow, self._name):
            return file.read_row_group(number, columns=[*run_file.BASE_COLUMNS], use_threads=False)

    return patched(RunReader, _verified=verified)


def keep_what_was_opened() -> AbstractContextManager[None]:
    """A reader goes on with the places of the columns in the file as it was opened."""
    return patched(OpenedFile, read=lambda self, work: work(self._file))


def trust_a_replaced_object() -> AbstractContextManager[None]:
    """Whatever has the name of the run is read as the run."""

    def open_object(self: RunObjects, run: ArchivedRun) -> ReadableRun:
        name = run_file.run_name(self.cluster, run.id)
        return self._runs.open(ObjectFile(self._store, name, self.list_sizes().get(run.id, run.size)), name)

    return patched(RunObjects, _open=open_object)


def cache_by_topic() -> AbstractContextManager[None]:
    return patched(archived, _key=lambda run: (run.origin, int(run.topic), b""))


def log_dropped_unread() -> AbstractContextManager[None]:
    """A member relies on an object because the catalogue says that it was committed once."""
    return patched(ArchivedReads, held=lambda self, runs: None)


def repeat_a_refusal() -> AbstractContextManager[None]:
    """A store that refuses a call is treated as one that is away."""

    async def in_store(self: Archivist, call: Callable[..., Any], *arguments: object) -> Any:
        return await archivist.in_thread(call, *arguments)

    return patched(Archivist, _in_store=in_store)


def cache_without_bound() -> AbstractContextManager[None]:
    original = ArchivedReads._keep

    def keep(self: ArchivedReads, key: Any, records: Any) -> None:
        self._cache_bytes = 1 << 60
        original(self, key, records)

    return patched(ArchivedReads, _keep=keep)


def replay_excuses_every_loss() -> AbstractContextManager[None]:
    """Lost records are called archived."""
    return patched(RunCatalogue, archived_end=lambda self, topic: topic.next_position)


def restore_by_the_delay() -> AbstractContextManager[None]:
    """Records count as missing if the log needed them at the cut, although their run is committed."""
    return patched(State, unarchived_from=State.keep_from)


def answers_hold_row_groups() -> AbstractContextManager[None]:
    """An answer is a view of the row group."""
    original = LoadedRecords.batches

    def batches(self: LoadedRecords, position: Position, bytes_max: int) -> list[Buffer]:
        (copy,) = original(self, position, bytes_max)
        return [memoryview(self.data)[: len(copy)]]

    return patched(LoadedRecords, batches=batches)


def wait_for_ever() -> AbstractContextManager[None]:
    """A call of the archive process has no time limit."""
    original = run_process._Process.__init__

    def init(self: Any, where: str, seconds: float) -> None:
        original(self, where, seconds)
        self._pipe = _Patient(self._pipe)

    return patched(run_process._Process, __init__=init)


class _Patient:
    """A socket whose time limit has no effect."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        pipe.settimeout(None)

    def settimeout(self, seconds: float) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipe, name)


def stop_waits() -> AbstractContextManager[None]:
    """A stop of the node waits for the store."""
    return patched(RunProcess, close=lambda self: None)


def use_the_dead() -> AbstractContextManager[None]:
    """The node goes on with an archive process that has ended."""
    original = run_process._Process.end

    def end(self: Any) -> None:
        original(self)
        self.is_usable = True

    return patched(run_process._Process, end=end)


def outlive_the_node() -> AbstractContextManager[None]:
    """The archive process does not look at the end of its socket, nor for its parent."""
    start = run_process._START.replace(
        "main(int(sys.argv[2]))",
        "import os\nfrom viewstamp.archive import worker\n"
        "def receive_all(pipe, requests, parent):\n"
        "    while (found := worker.receive(pipe)) is not None:\n"
        "        requests.put(found)\n"
        "worker._receive_all = receive_all\n"
        "main(int(sys.argv[2]))",
    )
    return patched(run_process, _START=start)


def finish_over_a_failure() -> AbstractContextManager[None]:
    """The archive process forgets the error of a piece that it wrote after its answer."""
    start = run_process._START.replace(
        "main(int(sys.argv[2]))",
        "from viewstamp.archive import worker\n"
        "worker._Requests._intact = property(lambda self: self._object)\n"
        "main(int(sys.argv[2]))",
    )
    return patched(run_process, _START=start)


def start_without_bound() -> AbstractContextManager[None]:
    return patched(run_process, _ENDING_MAX=1 << 30)


def prepare_before_the_process() -> AbstractContextManager[None]:
    """A run is prepared on a machine that cannot write it."""
    return patched(RunProcess, _recognise=lambda self, group, runs: True)


def tidy_out_of_turn() -> AbstractContextManager[None]:
    """The leader drops a run that its own job is writing."""
    original = Archivist._tidy

    async def tidy(self: Archivist) -> None:
        turn, self._turn = self._turn, asyncio.Lock()
        try:
            await original(self)
        finally:
            self._turn = turn

    return patched(Archivist, _tidy=tidy)


def archive_for_a_day() -> AbstractContextManager[None]:
    """A request without a delay has that of a topic without settings."""
    original = Archivist._archive_next

    async def archive_next(self: Archivist, name: str, end: int, delay: int | None, *, is_slow: bool = False) -> bool:
        return await original(self, name, end, 86_400_000_000 if delay is None else delay, is_slow=is_slow)

    return patched(Archivist, _archive_next=archive_next)


def attempt_at_once() -> AbstractContextManager[None]:
    """Each copy of a request begins a job, which writes records and fails."""
    return patched(ArchivePauses, check=lambda self, topic: None)


def pause_for_ever() -> AbstractContextManager[None]:
    """The pauses go on growing behind a success."""
    return patched(ArchivePauses, succeeded=lambda self, topic: None)


def pause_without_majority() -> AbstractContextManager[None]:
    """A leader without a majority makes a pause, although the store has not failed."""

    def failed(self: ArchivePauses, topic: str, error: UnavailableError) -> None:
        due = self._clock.monotonic() + 10.0
        self._failures[topic] = archive_pauses._Failure(1, due, UnavailableError("away", remedy="look"))

    return patched(ArchivePauses, failed=failed)


def tidy_never() -> AbstractContextManager[None]:
    return patched(Archivist, start=lambda self: None)


def tidy_as_follower() -> AbstractContextManager[None]:
    """A node tidies up although another one leads."""
    original = Archivist._tidy

    async def tidy(self: Archivist) -> None:
        with patched(Archivist, _check_leads=lambda self, term: None):
            await original(self)

    return patched(Archivist, _tidy=tidy)


def commit_unsynced() -> AbstractContextManager[None]:
    """The object of a run is read back from the page cache, and committed, before it is on the disk."""
    return patched(store._TemporaryFile, complete=lambda self: self._file.close())


def commit_unnamed() -> AbstractContextManager[None]:
    """The name of the object is not synced, so a power cut of the store takes the whole object."""

    def rename(self: DirectoryObjects, path: str) -> None:
        with self._errors():
            self._disk.rename(path + ".temporary", path)

    return patched(DirectoryObjects, _rename=rename)


def reuse_ids() -> AbstractContextManager[None]:
    """A run gets the id of an earlier one."""
    original = RunCatalogue._check_prepare

    def check_prepare(self: RunCatalogue, batch: Batch, topics: Any, maps: Any) -> TopicRun:
        run = original(self, batch, topics, maps)
        return run._replace(id=RunId(run.id | 0x7F))

    return patched(RunCatalogue, _check_prepare=check_prepare)


def look_at_a_part() -> AbstractContextManager[None]:
    """A member deletes its log's copy of a run after it has read the first row group of it."""
    original = ArchivedReads._usable
    return patched(ArchivedReads, _usable=lambda self, run: _FirstStep(original(self, run)))


class _FirstStep:
    """A store that reads the first row group of a run, and calls the run verified."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def check(self, run: ArchivedRun) -> Iterator[int]:
        return islice(self._store.check(run), 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def delete_unarchived() -> AbstractContextManager[None]:
    """The delete age deletes records that are in no run."""

    def trimmed_to(self: State, topic: Topic, log_time: int) -> Position:
        return Position(topic.find_time(log_time - topic.archive.delete_us))

    return patched(State, trimmed_to=trimmed_to)


def retention_deletes_runs() -> AbstractContextManager[None]:
    """The retention of a topic with an archive deletes records, archived or not."""
    return patched(State, trimmed_to=lambda self, topic, log_time: topic.retained_from(log_time))


def archive_too_young() -> AbstractContextManager[None]:
    """Records are archived before the archive age."""
    original = archive_plan.due_run

    def due(topic: Topic, runs: RunCatalogue, maps: Any, query: DueRunsQuery) -> DueRun | None:
        return original(topic, runs, maps, replace(query, is_pressed=True))

    return patched(state, due_run=due)


def settings_unprobed() -> AbstractContextManager[None]:
    async def probe(self: Archivist, kind: Kind = Kind.CONFIGURE_ARCHIVE) -> None:
        pass

    return patched(Archivist, probe_settings=probe)


def keep_deleted_files() -> AbstractContextManager[None]:
    """The leader looks for new runs only."""
    return patched(state, unneeded=lambda topic, runs: False)


def stall_at_one_topic() -> AbstractContextManager[None]:
    """A topic that fails ends the round, so that the topics behind it are never archived."""
    original = ArchiveRounds._attempt

    async def attempt(self: ArchiveRounds, state: Any, topic: str, work: Any) -> None:
        await original(self, state, topic, work)
        if self._failures:
            raise UnavailableError("one topic has failed")

    return patched(ArchiveRounds, _attempt=attempt)


def idle_for_ever() -> AbstractContextManager[None]:
    """Log time stands still in an idle log, so no age and no delay ends."""
    return patched(State, has_ended=lambda self, log_time, now: False)


def archive_needs_room() -> AbstractContextManager[None]:
    """Records about runs are refused by a full log, which could delete what is archived."""
    return patched(log_space, _URGENT=log_space._URGENT - log_space._RUNS)


def read_from_the_batch() -> AbstractContextManager[None]:
    """A reader that goes from a run to the log gets the whole batch of the log, whose beginning it has read."""
    return patched(reader, _from=lambda batch, position: batch)


def look_below_the_log() -> AbstractContextManager[None]:
    """The records behind an archived topic are looked for where the log has the last archived ones, or had them."""
    return patched(Topic, begin_entry=lambda self: None)


ARCHIVE_MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "commit-after-drop",
            "a deposed leader commits a run whose object is being removed",
            without(RunRule.COMMIT_AFTER_DROP),
            rule="B4 2",
        ),
        Mutant(
            "forget-before-drop",
            "a run is forgotten while its object is there",
            without(RunRule.FORGET_BEFORE_DROP),
            rule="B4 3",
        ),
        Mutant(
            "drop-a-needed-run",
            "a run is dropped whose records the topic keeps",
            without(RunRule.STILL_NEEDED),
            rule="B4 3",
        ),
        Mutant(
            "two-runs-at-once",
            "two leaders prepare runs of the same records",
            without(RunRule.PREPARED_TWICE),
            rule="B4 6",
        ),
        Mutant("run-behind-a-gap", "a run begins behind a gap", without(RunRule.GAP), rule="B4 9"),
        Mutant("run-over-a-run", "two runs hold one position", without(RunRule.OVERLAP), rule="B4 9"),
        Mutant(
            "archive-what-is-deleted", "deleted records get into a run", without(RunRule.DELETED_RECORDS), rule="§5a"
        ),
        Mutant(
            "commit-a-part",
            "a run is committed with other contents",
            without(RunRule.WRONG_CONTENT),
            rule="B4 8",
        ),
        Mutant("read-while-prepared", "a run is read before it is committed", read_while_prepared, rule="B4 2"),
        Mutant("end-by-prepare", "the archived end moves before the object is durable", end_by_prepare, rule="§5a"),
        Mutant("repeat-a-refusal", "a request goes on although the store refuses it", repeat_a_refusal, rule="§5a"),
        Mutant("commit-unread", "a run is committed that was not read back", commit_unread, rule="§5a"),
        Mutant("archive-unprobed", "a record is proposed that a member cannot read", archive_unprobed, rule="§5a"),
        Mutant("probe-for-groups", "the probe does not look for runs", probe_for_groups_only, rule="§5a"),
        Mutant("keep-prepared-runs", "the run of an earlier leader stays prepared", keep_prepared_runs, rule="B4 2"),
        Mutant("forget-before-removal", "a run is forgotten whose object is there", forget_before_removal, rule="B4 3"),
        Mutant("write-when-deposed", "a deposed leader goes on writing", write_when_deposed, rule="B4 2"),
        Mutant("replace-objects", "the object of another run is replaced", replace_objects, rule="B4 6"),
        Mutant("run-with-a-gap", "records of a run have other positions", run_with_a_gap, rule="B4 9"),
        Mutant("end-falls-with-drop", "the archived end moves back", end_falls_with_drop, rule="§5a"),
        Mutant("remove-what-is-known", "the object of a known run is an orphan", remove_what_is_known, rule="B4 11"),
        Mutant("remove-what-comes", "the object of a later run is an orphan", remove_what_comes, rule="B4 11"),
        Mutant("snapshot-without-runs", "a snapshot holds no runs", snapshot_without_runs, rule="B4 5"),
        Mutant(
            "fork-owns-the-objects",
            "a new cluster removes objects of the old one",
            fork_owns_the_objects,
            rule="B4 11",
        ),
        Mutant("log-dropped-at-once", "the archive delay has no effect", log_dropped_at_once, rule="§5a"),
        Mutant("log-dropped-before-commit", "a prepared run releases the log", log_dropped_before_commit, rule="§5a"),
        Mutant("released-behind-a-gap", "records in no run release the log", released_behind_a_gap, rule="B4 9"),
        Mutant("read-while-dropped", "a dropped run is read", read_while_dropped, rule="B4 3"),
        Mutant(
            "fork-drops-its-log",
            "a fork relies on objects that the old cluster may remove",
            fork_drops_what_is_not_its_own,
            rule="B4 11",
        ),
        Mutant("run-read-unchecked", "the checksum of a row group is not compared", read_without_checksum, rule="§5a"),
        Mutant("keep-what-was-opened", "a file that is intact again stays damaged", keep_what_was_opened, rule="§5a"),
        Mutant("trust-a-replaced-object", "the object of another run is read", trust_a_replaced_object, rule="B4 6"),
        Mutant("cache-by-topic", "a cached row group is that of a topic, not of a run", cache_by_topic, rule="B4 6"),
        Mutant("log-dropped-unread", "the log goes for a run that the store has lost", log_dropped_unread, rule="§5a"),
        Mutant("cache-without-bound", "the cache of archived records grows", cache_without_bound, rule="§5a"),
        Mutant("replay-excuses-loss", "a replay calls lost records archived", replay_excuses_every_loss, rule="§5a"),
        Mutant(
            "restore-by-the-delay",
            "a restore misses records whose run was committed at the cut",
            restore_by_the_delay,
            rule="§5a",
        ),
        Mutant("answers-hold-row-groups", "a slow reader keeps a whole row group", answers_hold_row_groups, rule="§10"),
        Mutant("wait-for-ever", "a store that hangs holds the archivist for ever", wait_for_ever, rule="§5a"),
        Mutant("stop-waits", "a stop waits for a store that hangs", stop_waits, rule="§5a"),
        Mutant("use-the-dead", "an archive process that has ended is used again", use_the_dead, rule="§5a"),
        Mutant("outlive-the-node", "the archive process works on without its node", outlive_the_node, rule="§5a"),
        Mutant("start-without-bound", "processes that cannot be killed add up", start_without_bound, rule="§5a"),
        Mutant("finish-over-a-failure", "a run is completed without a piece", finish_over_a_failure, rule="§5a"),
        Mutant("archive-for-a-day", "a request ignores the topic's archive delay", archive_for_a_day, rule="§5a"),
        Mutant("attempt-at-once", "a store that is away costs records with each copy", attempt_at_once, rule="§5a"),
        Mutant("pause-for-ever", "a request waits although the store is back", pause_for_ever, rule="§5a"),
        Mutant("pause-without-majority", "a new majority is not used at once", pause_without_majority, rule="§5a"),
        Mutant("tidy-out-of-turn", "the leader drops the run that it is writing", tidy_out_of_turn, rule="B4 2"),
        Mutant("tidy-never", "the leader tidies on request only", tidy_never, rule="B4 11"),
        Mutant("tidy-as-follower", "a node that does not lead removes objects", tidy_as_follower, rule="B4 11"),
        Mutant("commit-unsynced", "a run is committed whose object is not synced", commit_unsynced, rule="B4 2"),
        Mutant("commit-unnamed", "a run is committed whose name is not synced", commit_unnamed, rule="B4 2"),
        Mutant("run-id-reused", "a run gets the id of an earlier one", reuse_ids, rule="B4 1"),
        Mutant("runs-ahead-of-topics", "a run has records that its topic lacks", runs_ahead_of_topics, rule="B4 10"),
        Mutant("look-at-a-part", "the log goes for a run that was read in part", look_at_a_part, rule="§5a"),
        Mutant("prepare-unable", "a run is prepared that cannot be written", prepare_before_the_process, rule="B4 2"),
        Mutant("delete-unarchived", "the delete age deletes records in no run", delete_unarchived, rule="§5a"),
        Mutant("retention-deletes-runs", "retention deletes archived records", retention_deletes_runs, rule="§5a"),
        Mutant("archive-too-young", "records are archived before their age", archive_too_young, rule="§5a"),
        Mutant("settings-unprobed", "settings are written that a member cannot read", settings_unprobed, rule="§5a"),
        Mutant("keep-deleted-files", "files of deleted records stay", keep_deleted_files, rule="B4 3"),
        Mutant("stall-at-one-topic", "a topic that fails holds up the others", stall_at_one_topic, rule="§5a"),
        Mutant("idle-for-ever", "no age ends in an idle log", idle_for_ever, rule="§5a"),
        Mutant("archive-needs-room", "a full log cannot be archived", archive_needs_room, rule="§5a"),
        Mutant("read-from-the-batch", "a reader gets records of a run again", read_from_the_batch, rule="§5a"),
        Mutant("look-below-the-log", "records behind a run are not found", look_below_the_log, rule="§5a"),
    )
}
"""The mutants by name."""
