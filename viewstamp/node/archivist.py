"""The archivist: the steps of the leader of a group that move old records of its topics into the store of runs.

The rules of the records are in ``streams/runs.py``, and the table of failures in design note 0022. An administrator
asks for the records before a position, and the leader writes one run after another up to it:

| step | if the process dies here, or the leader is deposed |
| --- | --- |
| 1. a linearizable read of the topic and its runs; the store is asked for one of the newest committed runs of the \
group | nothing was changed |
| 2. runs that an earlier leader or attempt left are dropped, removed and forgotten | the next request goes on with it |
| 3. before the first run of a cluster, each member is probed (``peers/probe.py``) | nothing was changed |
| 4. PREPARE_RUN is proposed, and applied here | the next request does step 2 for this run |
| 5. the object is written, piece by piece, and synced | the same; the object may appear later, as an orphan |
| 6. the store is asked again, and the object is read back, and compared with what was written | the same |
| 7. COMMIT_RUN is proposed, and applied here | it is committed, or refused because the next leader dropped the run |

In another group than 0 the topics are the streams of topics with streams. Their runs end where the map of the stream
ends, so that each record in a run has a global position, which the file of the run holds too.

Topics with archive settings are archived without a request, by the same steps (``archive_rounds.py``). Once an hour the
leader tidies up by itself, in the same order of jobs. It does step 2 for each topic that needs it, and then removes
orphans. If it dies in between, the next leader finds the rest an hour later.

A store directory whose mount is away looks like an empty store. So each job first asks the store for the newest
committed runs (``store_identity.py``), and changes nothing if it has none of them.

So a leader that was deposed leaves an orphan, and never damages a run: no two runs have one id, and so one name. Each
member deletes its log's copy later, by its own state (``snapshots/policy.py``).

Each call of the store is made in a thread, with one piece of about 1 MiB of log at a time. In a node the thread only
waits for the archive process (``archive/run_process.py``), which does the work, because a store that hangs would hold
a thread for ever, and because writing Parquet would hold the interpreter's lock. Records are read by the reader of the
log, which has a thread of its own, so that appends never wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from viewstamp.consensus.leader import not_leader
from viewstamp.errors import (
    ClosedError,
    ConfigError,
    CorruptionError,
    FrameError,
    OverloadedError,
    RequestError,
    StorageError,
    TrimmedError,
    UnavailableError,
    ViewstampError,
)
from viewstamp.host.blocking import in_thread
from viewstamp.host.interfaces import Clock, Network
from viewstamp.host.logger import Logger
from viewstamp.ids import GROUP_0, Position, RunId, Stream, Term
from viewstamp.node.archive_pauses import ArchivePauses
from viewstamp.node.archive_queries import (
    ArchivableTopic,
    ArchivedRun,
    ArchiveQuery,
    DueRun,
    OrphansQuery,
    RunQuery,
    RunsQuery,
)
from viewstamp.node.archive_turns import ArchiveTurns
from viewstamp.node.changes import answered
from viewstamp.node.fitness import check_durable, when_fit
from viewstamp.node.group import Group
from viewstamp.node.keyed_queries import KeyRunQuery
from viewstamp.node.order_queries import OrderedRunsQuery
from viewstamp.node.replica import Replica
from viewstamp.node.run_objects import WrittenRun
from viewstamp.node.state_machine import Result, SplitQuery
from viewstamp.node.store_identity import StoreIdentity
from viewstamp.wire.archiving import encode_commit_run, encode_drop_run, encode_forget_run, encode_prepare_run
from viewstamp.wire.batch import Batch, Buffer, Kind
from viewstamp.wire.ordering import GlobalRun

__all__ = ["RUN_BYTES", "Archivist"]

RUN_BYTES = 256 * 1024 * 1024
"""About the bytes of log that a run has, before compression."""
_STEP_BYTES = 1024 * 1024
"""Bytes of the log that are written in one step."""
_ANSWER_SECONDS = 1.0
"""Longest time until a request is answered. Shorter than the silence after which a client asks another node."""
_KEPT_SECONDS = 30.0
"""Time for which the result of a job is kept for the next request, because its caller was between two requests."""
_TIDY_SECONDS = 3600.0
"""Pause between two times at which the leader removes by itself what no run needs."""
_IDLE_SECONDS = 10.0
"""Time without a job after which the store frees what its calls need."""
_JOBS_MAX = 32
_NOTHING = "nothing was archived"
_UNPREPARED = "until then the log keeps the records"

ResultT = TypeVar("ResultT")


class Archivist:
    """Archives the topics of a group, if this node leads it. One topic at a time; ``stop`` ends it.

    Invariants:
      * at most one job of all groups of the node uses the store at a time
      * an object is written only for a run that this leader has prepared in this term
    """

    def __init__(
        self, group: Group, home: Group, network: Network, turns: ArchiveTurns, clock: Clock, log: Logger
    ) -> None:
        """Archive topics of ``group`` of this node, into the store of ``turns``; ``home`` is group 0 of the node."""
        self._group = group
        self._home = home
        self._network = network
        self._turns = turns
        store = turns.store
        self._store = store if store is None or group.id == GROUP_0 else store.of_group(group.id)
        self._clock = clock
        self._logger = log
        self._jobs: dict[tuple[object, ...], asyncio.Task[Any]] = {}
        self._ended: dict[tuple[object, ...], float] = {}
        """The time at which each job ended whose result was not requested yet."""
        self._turn = turns.lock
        self._tidying: asyncio.Task[None] | None = None
        self._is_stopping = False
        self.identity = StoreIdentity(group, turns.hosted)
        self._pauses = ArchivePauses(clock)

    def start(self) -> None:
        """Begin to tidy up from time to time while this node leads, if it has a store. Idempotent."""
        if self._store is not None and self._tidying is None:
            self._tidying = asyncio.get_running_loop().create_task(self._tidy_for_ever())

    # Requests.

    async def archive(self, name: str, end: int, delay: int | None) -> tuple[Position, bool]:
        """Archive the records of a topic before ``end``, in a job. Returns the archived end, and whether it goes on.

        ``delay`` is the archive delay of the new runs, in microseconds; None = that of the topic.

        Raises:
          RequestError: no store is configured, or it refuses the work; a package is missing, a member runs an older
            release, or a client has appended a batch that has no valid layout. UnknownTopicError: there is no such
            topic.
          NotLeaderError: ask the leader. UnavailableError: the job has failed; the next request begins it again.
        """
        await self.check_usable()
        self.is_begun(name, end, delay)
        archived_end = await self._result(("archive", name, end, delay), lambda: self._archive(name, end, delay))
        if archived_end is None:
            return self._group.machine.query(ArchiveQuery(name)).next_first, True
        return archived_end, False

    def is_begun(self, name: str, end: int, delay: int | None) -> bool:
        """Return whether the job of :meth:`archive` exists.

        Raises:
          UnavailableError: it does not, and the pause behind its last failure is not over.
        """
        is_begun = ("archive", name, end, delay) in self._jobs
        if not is_begun:
            self._pauses.check(name)
        return is_begun

    async def check(self, run: int) -> str | None:
        """Check the object of a committed run, also one of keys, in a job.

        Returns the damage; "" = none, None = it is being read.

        Raises: as :meth:`archive`.
        """
        await self.check_usable()
        return await self._result(("check", run), lambda: self._check(run))

    async def find_orphans(self, *, remove: bool) -> dict[int, int] | None:
        """Return the sizes of objects that belong to no run, by id; None = not done yet. Raises as :meth:`archive`."""
        await self.check_usable()
        return await self._result(("orphans", remove), lambda: self._find_orphans(remove))

    async def archive_due(self, topic: str, find: Callable[[], DueRun | None]) -> None:
        """Write the one run of a topic that is due, in a job. ``find`` returns it when the job has its turn.

        Raises: as :meth:`archive`.
        """
        await self.check_usable()
        await self._completed(("due", topic), lambda: self._archive_due(find))

    async def remove_unneeded(self, topic: str) -> None:
        """Drop, remove and forget the runs of a topic that are not needed, in a job.

        Raises: as :meth:`archive`; UnavailableError: an object could not be removed.
        """
        await self.check_usable()
        await self._completed(("remove", topic), lambda: self._remove_unneeded(topic))

    async def probe_settings(self, kind: Kind = Kind.CONFIGURE_ARCHIVE) -> None:
        """Check that all members can read the settings of a kind of record, before a cluster's first one is proposed.

        Raises:
          NotLeaderError: ask the leader. RequestError: a member runs an older release, or acknowledges before it syncs.
          UnavailableError: a member does not answer.
        """
        self._check_leading("nothing was changed")
        await self._probe(kind, "nothing was changed")

    # For the steps about runs of keys (``keyed_archivist.py``).

    async def in_turn(self, key: tuple[object, ...], work: Callable[[Term], Coroutine[Any, Any, None]]) -> None:
        """Do ``work`` in a job, when it has its turn, if this node leads then; it gets the term. Raises its error."""

        async def begin() -> bool:
            async with self._turn:
                term = self._replica.raft.core.term
                self._check_leads(term)
                await self._recognise()
                await work(term)
                return True

        await self.check_usable()
        await self._completed(key, begin)

    async def propose(self, batch: Batch) -> dict[str, object]:
        """Propose a record, and return its result once it is applied here. Raises UnavailableError."""
        return await self._propose(batch)

    async def remove(self, run: RunId) -> bool:
        """Remove the object of a run; return False if that failed."""
        return await self._remove(run)

    async def read_back(self, pieces: Generator[int, None, None]) -> None:
        """Read an object that was just written, a piece in each step, when the store is still the one with the runs.

        Without the question, both the object and its reading could be of another store, which is seen only in between.
        Raises as ``pieces``, and as :meth:`StoreIdentity.check`.
        """
        await self._recognise()
        await self._go_through(pieces)

    def check_leads(self, term: Term) -> None:
        """Raise NotLeaderError unless this node leads in this term."""
        self._check_leads(term)

    async def stop(self) -> None:
        """Stop all jobs. Their calls of the store are ended, also if it hangs. Idempotent."""
        self._is_stopping = True
        self._turns.stop()
        tasks = list(self._jobs.values())
        if self._tidying is not None:
            tasks.append(cast("asyncio.Task[Any]", self._tidying))
        for task in tasks:
            task.cancel()
        if self._store is not None:
            self._store.close()
        if tasks:
            await asyncio.wait(tasks)

    async def _completed(self, key: tuple[object, ...], begin: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        """Return when a job has ended. Raises its error."""
        while await self._result(key, begin) is None:
            pass

    async def _result(
        self, key: tuple[object, ...], begin: Callable[[], Coroutine[Any, Any, ResultT]]
    ) -> ResultT | None:
        """Return the result of a job, which is begun if it does not exist; None = it goes on. Raises its error."""
        self._forget_old()
        if key not in self._jobs:
            if self._is_stopping:
                raise ClosedError("the node is stopping", remedy="ask another node")
            if len(self._jobs) >= _JOBS_MAX:
                raise OverloadedError(
                    f"{_JOBS_MAX} requests about the archive are being worked on", remedy="try again later"
                )
            self._turns.begin()
            self._jobs[key] = asyncio.get_running_loop().create_task(begin())
            self._jobs[key].add_done_callback(lambda ended: self._on_ended(key, ended))
        task: asyncio.Task[ResultT] = self._jobs[key]
        await asyncio.wait([task], timeout=_ANSWER_SECONDS)
        if not task.done():
            return None
        if self._jobs.get(key) is task:
            del self._jobs[key]
            self._ended.pop(key, None)
        if task.cancelled():
            raise ClosedError("the node is stopping", remedy="ask another node")
        try:
            return task.result()
        except ConfigError as error:
            raise self._unusable(error) from error

    def _on_ended(self, key: tuple[object, ...], task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._logger.warning("! archive", job=" ".join(map(str, key)), error=repr(task.exception()))
        self._ended[key] = self._clock.monotonic()
        self._turns.end(_IDLE_SECONDS)

    def _forget_old(self) -> None:
        now = self._clock.monotonic()
        for key in [key for key, ended in self._ended.items() if now - ended > _KEPT_SECONDS]:
            self._jobs.pop(key, None)
            del self._ended[key]

    # Conditions.

    @property
    def _replica(self) -> Replica:
        self._group.check_replayed()
        replica = self._group.replica
        assert replica is not None, "a replayed group has one"
        return replica

    def _check_leading(self, consequence: str = _NOTHING) -> None:
        """Check that this node leads, and acknowledges only what is synced."""
        replica = self._replica
        if not replica.is_leading:
            raise not_leader(replica.raft.core)
        check_durable(self._group, consequence)

    def check_store(self) -> None:
        """Raise RequestError if no store is configured on this node."""
        if self._store is None:
            raise RequestError(
                f"{self._group.options.node} leads, and has no directory for the archive; nothing was archived",
                remedy="set [archive] directory or url on every node, to the store that all of them reach",
            )

    async def check_usable(self) -> None:
        """Check that this node leads, and can use the store. Raises as :meth:`archive`."""
        self._check_leading()
        self.check_store()
        assert self._store is not None, "just checked"
        try:
            await in_thread(self._store.check_usable)
        except ConfigError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: ConfigError) -> RequestError:
        return RequestError(
            f"{self._group.options.node} leads, and cannot use the archive: {error.message}; nothing was archived",
            remedy=error.remedy,
        )

    async def _recognise(self) -> None:
        """Check that the store is the one that has the runs. Raises as :meth:`StoreIdentity.check`."""
        store = self._store
        assert store is not None, "checked with the request"
        await self.identity.check(store.where, lambda runs: self._in_store(store.recognise, runs))

    async def _in_store(self, call: Callable[..., ResultT], *arguments: object) -> ResultT:
        """Make a call of the store. Its StorageError is final for a request, because a repetition has the same answer.

        Raises:
          RequestError: the store is read-only, full, or refuses the credentials. Others: as the call.
        """
        try:
            return await in_thread(call, *arguments)
        except StorageError as error:
            raise RequestError(
                f"{self._group.options.node} leads, and cannot go on with the archive: {error.message}",
                remedy=error.remedy,
            ) from error

    def _leads(self, term: Term) -> bool:
        replica = self._group.replica
        return replica is not None and replica.is_leading and replica.raft.core.term == term

    def _check_leads(self, term: Term) -> None:
        if not self._leads(term):
            raise not_leader(self._replica.raft.core)

    async def _probe(self, kind: Kind = Kind.FORGET_RUN, consequence: str = _NOTHING) -> None:
        """Check that all other members can read records about the archive, up to ``kind``, before the first one."""
        await when_fit(self._network, self._home, lambda _: (None, kind), consequence)

    # Jobs.

    async def _archive(self, name: str, end: int, delay: int | None) -> Position:
        """Write runs until the records of a topic before ``end`` are archived; return the archived end."""
        async with self._turn:
            try:
                while await self._archive_next(name, end, delay):
                    self._pauses.succeeded(name)
            except UnavailableError as error:
                self._pauses.failed(name, error)
                raise
            self._pauses.succeeded(name)
            return self._group.machine.query(ArchiveQuery(name)).next_first

    async def _archive_due(self, find: Callable[[], DueRun | None]) -> bool:
        async with self._turn:
            due = find()
            if due is not None:
                await self._archive_next(due.topic, due.end, due.delay, is_slow=not due.is_urgent)
            return True

    async def _archive_next(self, name: str, end: int, delay: int | None, *, is_slow: bool = False) -> bool:
        """Write one run; return False if there was nothing to archive. ``is_slow``: with pauses between its pieces."""
        replica = self._replica
        term = replica.raft.core.term
        self._check_leads(term)
        topic, _ = await self._group.reading.query(ArchiveQuery(name), stale=False)
        self._check_leads(term)
        is_clean = not any(_is_unneeded(run, topic) for run in topic.runs)
        if is_clean and topic.next_first >= min(end, topic.archivable_end):
            return False
        await self._recognise()
        await self._clean(topic)
        topic = self._group.machine.query(ArchiveQuery(name))
        first, end = topic.next_first, min(end, topic.archivable_end)
        kept = topic.delay if delay is None else delay
        if first >= end:
            return False
        if not topic.is_archive_used:
            await self._probe(Kind.FORGET_RUN if self._group.id == GROUP_0 else Kind.CONFIGURE_SPREAD_ARCHIVE)
        end = self._group.machine.query(SplitQuery(name, first, end, RUN_BYTES))[1]
        self._check_leads(term)
        prepared = await self._propose(encode_prepare_run(topic.id, first, Position(end)))
        run = RunId(cast("dict[str, int]", prepared["run"])["id"])
        try:
            written = await self._write(run, name, topic, first, Position(end), term, is_slow=is_slow)
            self._check_leads(term)
            await self._propose(encode_commit_run(run, records=end - first, delay=kept, **written._asdict()))
        except Exception as error:
            if self._leads(term):
                with suppress(ViewstampError):
                    await self._clean(self._group.machine.query(ArchiveQuery(name)))
            if isinstance(error, FrameError):
                raise RequestError(
                    f"topic {name!r} cannot be archived: {error.message}", remedy="keep these records in the log"
                ) from error
            if isinstance(error, StorageError | CorruptionError):
                raise UnavailableError(f"run {run} is not committed: {error.message}", remedy=error.remedy) from error
            raise
        self._logger.info("= run archived", run=run, topic=name, first=first, last=end - 1, bytes=written.size)
        return True

    async def _write(
        self,
        run: RunId,
        name: str,
        topic: ArchivableTopic,
        first: Position,
        end: Position,
        term: Term,
        *,
        is_slow: bool,
    ) -> WrittenRun:
        """Write the object of a run, read it back, and return its description."""
        store = self._store
        assert store is not None, "checked with the request"
        written = await self._in_store(store.begin, run, topic.id, first, topic.schema)
        try:
            position = first
            while position < end:
                self._check_leads(term)
                began = self._clock.monotonic()
                try:
                    buffers, _ = await self._group.reading.read(topic.id, position, bytes_max=_STEP_BYTES)
                except TrimmedError as error:
                    raise UnavailableError(
                        f"records were deleted while they were being archived: {error.message}", remedy="try again"
                    ) from error
                order = self._order_of(name, position, end, buffers)
                position = await self._in_store(written.add, end, buffers, *order)
                if is_slow:  # A pause as long as the step, so that it takes at most half of the disk's time.
                    await asyncio.sleep(self._clock.monotonic() - began)
            described = await self._in_store(written.finish)
        except BaseException:
            await in_thread(written.abandon)
            raise
        found = ArchivedRun(
            *(run, topic.id, first, end, "prepared", "", described.size, described.digest), group=self._group.id
        )
        await self.read_back(store.check(found))
        return described

    def _order_of(
        self, name: str, position: Position, end: Position, buffers: Sequence[Buffer]
    ) -> list[list[GlobalRun]]:
        """Return the runs that hold the records of a piece, from ``position`` up to ``end``; [] in group 0.

        There are at most as many runs as records.
        """
        if self._group.id == GROUP_0:
            return []
        view, at, following = memoryview(b"".join(buffers)), 0, position
        while at < len(view) and following < end:
            batch = Batch.decode_header(view[at:])
            at, following = at + batch.size, Position(batch.first_position + batch.count)
        stream = Stream(self._group.id, name)
        runs = self._group.machine.query(OrderedRunsQuery(stream, position, min(following, end) - position))
        if not runs:
            raise UnavailableError("records were deleted while they were being archived", remedy="try again")
        return [runs]

    async def _remove_unneeded(self, name: str) -> bool:
        async with self._turn:
            store, term = self._store, self._replica.raft.core.term
            assert store is not None, "checked before"
            self._check_leads(term)
            topic, _ = await self._group.reading.query(ArchiveQuery(name), stale=False)
            self._check_leads(term)
            await self._recognise()
            await self._clean(topic)
            if left := [run.id for run in self._group.machine.query(ArchiveQuery(name)).runs if run.state == "dropped"]:
                raise UnavailableError(
                    f"the files of {len(left)} deleted runs of topic {name!r} cannot be removed, run {left[0]} first",
                    remedy=f"the log of the node has the reason; check that {store.where} lets the node delete",
                )
            return True

    async def _clean(self, topic: ArchivableTopic) -> None:
        """Drop, remove and forget the runs of a topic that are not needed.

        None of them is being written by this node, because jobs take turns. Removing the object of a run that was
        dropped is right at any time, and by any node, because no record makes the run readable again.
        """
        for run in topic.runs:
            if not _is_unneeded(run, topic):
                continue
            if run.state != "dropped":
                await self._propose(encode_drop_run(run.id))
            if run.origin or await self._remove(run.id):
                await self._propose(encode_forget_run(run.id))

    async def _remove(self, run: RunId) -> bool:
        """Remove the object of a run; return False if that failed: the run stays DROPPED, and the next job tries it."""
        store = self._store
        assert store is not None, "checked with the request"
        try:
            await in_thread(store.remove, run)
        except (ViewstampError, OSError) as error:
            self._logger.warning("! object of a run not removed", run=run, error=repr(error))
            return False
        return True

    async def _check(self, number: int) -> str:
        async with self._turn:
            store = self._store
            assert store is not None, "checked with the request"
            run, _ = await self._group.reading.query(RunQuery(number), stale=False)
            pieces = store.check
            if run is None:
                run, pieces = self._group.machine.query(KeyRunQuery(number)), store.keys.check_keys
            if run is None or run.state != "committed":
                raise RequestError(
                    f"there is no committed run {number}", remedy="take the id of a run from `viewstamp archive log`"
                )
            try:
                await self._go_through(pieces(run))
            except CorruptionError as error:
                await self._recognise()
                return error.message
            return ""

    async def _tidy_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_TIDY_SECONDS)
            # An error of the job is logged by it, and the next attempt begins anew.
            with suppress(ViewstampError):
                await self.check_usable()
                await self._result(("tidy",), self._tidy)

    async def _tidy(self) -> None:
        """Drop, remove and forget the runs that nobody needs, and remove orphans."""
        async with self._turn:
            term = self._replica.raft.core.term
            self._check_leads(term)
            runs, _ = await self._group.reading.query(RunsQuery(), stale=False)
            self._check_leads(term)
            await self._recognise()
            for name in sorted({str(run["topic"]) for run in runs}):
                self._check_leads(term)
                await self._clean(self._group.machine.query(ArchiveQuery(name)))
            self._check_leads(term)
            orphans = await self._list_orphans()
            for run, size in orphans.items():
                self._check_leads(term)
                if await self._remove(RunId(run)):
                    self._logger.info("= orphan of the archive removed", run=run, bytes=size)

    async def _find_orphans(self, remove: bool) -> dict[int, int]:
        """Return the orphans, and remove them if ``remove``."""
        async with self._turn:
            store = self._store
            assert store is not None, "checked with the request"
            await self._recognise()
            orphans = await self._list_orphans()
            if remove:
                for run in orphans:
                    await self._in_store(store.remove, RunId(run))
            return orphans

    async def _list_orphans(self) -> dict[int, int]:
        """Return the sizes of the orphans by their ids.

        The list is read before the state: an object that is in the list was prepared before, so the state has its run,
        or the run was forgotten.
        """
        assert self._store is not None, "checked with the request"
        sizes = await self._in_store(self._store.list_sizes)
        orphans, _ = await self._group.reading.query(OrphansQuery(tuple(sizes)), stale=False)
        return {run: sizes[run] for run in orphans}

    # Steps.

    async def _propose(self, batch: Batch) -> dict[str, object]:
        """Propose a record, and return its result once it is applied here. Raises as ``Group.propose``.

        A refusal becomes UnavailableError: the state has changed meanwhile, and the next attempt decides by it.
        """

        def begin(told: Callable[[dict[str, object] | ViewstampError], None]) -> None:
            def answer(result: Result | ViewstampError) -> None:
                assert isinstance(result, dict | ViewstampError), "the result of a record about runs is a map"
                told(result)

            self._group.propose(batch, answer)

        try:
            return await answered(begin)
        except RequestError as error:
            raise UnavailableError(
                f"the runs have changed meanwhile: {error.message}", remedy=f"try again; {_UNPREPARED}"
            ) from error

    async def _go_through(self, pieces: Generator[int, None, None]) -> None:
        """Run a generator that reads a piece in each step."""
        try:
            while await self._in_store(next, pieces, None) is not None:
                pass
        finally:
            await in_thread(pieces.close)


def _is_unneeded(run: ArchivedRun, topic: ArchivableTopic) -> bool:
    """Return whether a run, which is not being written, has to be dropped, or removed and forgotten."""
    return run.state != "committed" or run.end <= topic.first_position
