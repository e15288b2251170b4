"""The steps of the leader of group 0 that dump keys from the log into runs, and merge runs of keys.

``streams/key_runs.py`` has the rules of the records, ``streams/key_plan.py`` decides what is due, and
``archive_rounds.py`` calls this. The jobs take turns with those of the archivist, because one process does the work.

| step | if the process dies here, or the leader is deposed |
| --- | --- |
| 1. runs that an earlier leader or attempt left are dropped, removed and forgotten | the next round goes on with it |
| 2. PREPARE_KEYS is proposed, and applied here | the next round, of any leader, does step 1 for this run |
| 3. the object is written: a dump from the log, a merge from the objects of its slices; then it is synced | the same; \
the object may appear later, as an orphan |
| 4. the object is read back, and compared with what was written | the same |
| 5. COMMIT_KEYS is proposed, and applied here. It drops the runs that a merge has replaced | committed, or refused \
because the next leader dropped the run |
| 6. the objects of dropped runs are removed, each before its FORGET_KEYS | step 1 of the next round |

So an object that is read belongs to a committed run of the applied state, and no object is removed before that state
has it as dropped on a majority. A reader that has an older view begins again (``keyed_reads.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from viewstamp.errors import (
    CorruptionError,
    FrameError,
    RequestError,
    StorageError,
    TrimmedError,
    UnavailableError,
    ViewstampError,
)
from viewstamp.host.blocking import in_thread
from viewstamp.host.logger import Logger
from viewstamp.ids import Position, RunId, Term, TopicId
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.node.archivist import Archivist
from viewstamp.node.group import Group
from viewstamp.node.keyed_queries import DueKeys, KeyedView, KeyedViewQuery, KeyRunQuery, UnneededKeysQuery
from viewstamp.node.run_objects import RunStore
from viewstamp.wire.batch import Buffer
from viewstamp.wire.keying import encode_commit_keys, encode_drop_keys, encode_forget_keys, encode_prepare_keys

__all__ = ["DumpObject", "KeyArchivist", "KeyStore", "KeyedStore", "MergeObject", "WrittenKeys"]

_STEP_BYTES = 1024 * 1024


class WrittenKeys(NamedTuple):
    """The description of the object of a run of keys, as ``COMMIT_KEYS`` has it."""

    size: int
    digest: bytes
    records: int
    splits: list[bytes]


class DumpObject(Protocol):
    """The object of a dump that is being written; its calls are as those of ``node.archivist.RunObject``."""

    def add(self, end: Position, buffers: Sequence[Buffer]) -> Position:
        """Add records of batches that follow the last one, up to position ``end``; return the next position."""
        ...

    def finish(self) -> WrittenKeys:
        """Make the object durable, and return its description."""
        ...

    def abandon(self) -> None:
        """Remove what was written."""
        ...


class MergeObject(Protocol):
    """The object of a merge that is being written. All calls block."""

    def step(self) -> bool:
        """Write further rows; return whether there are more. Raises CorruptionError: a slice is damaged."""
        ...

    def finish(self) -> WrittenKeys:
        """Make the object durable, and return its description."""
        ...

    def abandon(self) -> None:
        """Remove what was written."""
        ...


class KeyStore(Protocol):
    """The store of the runs of keys. All calls block, and raise as those of ``node.archivist.RunStore``."""

    def begin_dump(self, run: RunId, topic: TopicId, first: Position, end: Position) -> DumpObject:
        """Begin to write the object of a dump of the positions ``[first, end)``."""
        ...

    def begin_merge(
        self,
        run: ArchivedRun,
        slices: Sequence[ArchivedRun],
        *,
        start: bytes,
        end: bytes | None,
        is_oldest: bool,
        range_bytes: int,
    ) -> MergeObject:
        """Begin to write the object of ``run``, a merge of the keys in ``[start, end)``.

        Args:
          run: the prepared run.
          slices: the runs that it replaces there, the oldest one first.
          start: the first key of the range.
          end: the first key behind it; None = there is no range behind it.
          is_oldest: whether the range has no older slices, so that deleted keys are left out.
          range_bytes: the range is divided into parts of this number of bytes.
        """
        ...

    def check_keys(self, run: ArchivedRun) -> Generator[int, None, None]:
        """Read the object of a run and compare it with the catalogue; yields the bytes of each step."""
        ...


class KeyedStore(RunStore, Protocol):
    """The store of a node, with both sorts of runs."""

    @property
    def keys(self) -> KeyStore:
        """The runs of keys."""
        ...


class KeyArchivist:
    """Dumps and merges runs of keys, if this node leads group 0."""

    def __init__(
        self, group: Group, archivist: Archivist, store: KeyStore | None, log: Logger, *, range_bytes: int
    ) -> None:
        """Work for ``group``, in turns with ``archivist``; ``store`` None = none is configured here."""
        self._group = group
        self._archivist = archivist
        self._store = store
        self._logger = log
        self._range_bytes = range_bytes

    async def tidy(self, topic: str) -> None:
        """Drop, remove and forget the runs of a topic that are prepared or dropped, in a job.

        Raises:
          UnavailableError: an object could not be removed; RequestError, NotLeaderError: as ``Archivist.archive``.
        """
        await self._archivist.in_turn(("tidy keys", topic), lambda term: self._tidy(topic, strict=True))

    async def write_due(self, topic: str, find: Callable[[], DueKeys | None]) -> None:
        """Write the runs of a topic that are due, one after the other, in jobs. ``find`` returns the next one.

        Raises:
          UnavailableError: the store has failed; RequestError, NotLeaderError: as ``Archivist.archive``.
        """
        while find() is not None:
            await self._archivist.in_turn(("keys", topic), lambda term: self._write(topic, find, term))

    async def _tidy(self, topic: str, *, strict: bool = False) -> None:
        for run in self._group.machine.query(UnneededKeysQuery()).get(topic, []):
            if run.state != "dropped":
                await self._archivist.propose(encode_drop_keys(run.id))
            if await self._archivist.remove(run.id):
                await self._archivist.propose(encode_forget_keys(run.id))
            elif strict:
                raise UnavailableError(
                    f"the file of run {run.id} of keys of topic {topic!r} cannot be removed",
                    remedy="the log of the node has the reason; check that the store lets the node delete",
                )

    async def _write(self, topic: str, find: Callable[[], DueKeys | None], term: Term) -> None:
        """Write the run that is due now."""
        await self._tidy(topic)
        view, _ = await self._group.reading.query(KeyedViewQuery(topic), stale=False)
        self._archivist.check_leads(term)
        due = find()
        if due is None:
            return
        prepared = await self._archivist.propose(encode_prepare_keys(view.topic, due.first, due.end, merged=due.merged))
        run = RunId(int(str(prepared["run"])))
        try:
            written = await (
                self._dump(run, view, due, term) if due.merged is None else self._merge(run, view, due, term)
            )
            await self._read_back(run, written)
            self._archivist.check_leads(term)
            await self._archivist.propose(
                encode_commit_keys(
                    run, records=written.records, size=written.size, digest=written.digest, splits=written.splits
                )
            )
        except Exception as error:
            with suppress(ViewstampError):
                self._archivist.check_leads(term)
                await self._tidy(topic)
            if isinstance(error, FrameError):
                raise RequestError(
                    f"the keys of topic {topic!r} cannot be dumped: {error.message}",
                    remedy="keep these records in the log",
                ) from error
            if isinstance(error, StorageError | CorruptionError):
                raise UnavailableError(f"run {run} is not committed: {error.message}", remedy=error.remedy) from error
            raise
        what = "dumped" if due.merged is None else "merged"
        self._logger.info(f"= keys {what}", run=run, topic=topic, first=due.first, last=due.end - 1, bytes=written.size)
        await self._tidy(topic)

    async def _dump(self, run: RunId, view: KeyedView, due: DueKeys, term: Term) -> WrittenKeys:
        """Write the last rows of the records at the positions of a dump."""
        store = self._usable()
        written = await in_thread(store.begin_dump, run, view.topic, due.first, due.end)
        try:
            position = due.first
            while position < due.end:
                self._archivist.check_leads(term)
                try:
                    buffers, _ = await self._group.reading.read(view.topic, position, bytes_max=_STEP_BYTES)
                except TrimmedError as error:
                    raise UnavailableError(
                        f"records were deleted while they were being dumped: {error.message}", remedy="try again"
                    ) from error
                position = await in_thread(written.add, due.end, buffers)
            return await in_thread(written.finish)
        except BaseException:
            await in_thread(written.abandon)
            raise

    async def _merge(self, run: RunId, view: KeyedView, due: DueKeys, term: Term) -> WrittenKeys:
        """Merge the slices of a range at the positions of a merge; with a pause after each step as long as it took."""
        store = self._usable()
        at = next(number for number, each in enumerate(view.ranges) if each.start == due.merged)
        following = view.ranges[at + 1].start if at + 1 < len(view.ranges) else None
        slices = [each for each in view.ranges[at].runs if due.first <= each.first and each.end <= due.end]
        target = ArchivedRun(run, view.topic, due.first, due.end, "prepared", "", 0, b"")
        written = await in_thread(
            lambda: store.begin_merge(
                target,
                slices,
                start=view.ranges[at].start,
                end=following,
                is_oldest=due.first == view.first,
                range_bytes=self._range_bytes,
            )
        )
        try:
            while True:
                self._archivist.check_leads(term)
                began = asyncio.get_running_loop().time()
                if not await in_thread(written.step):
                    return await in_thread(written.finish)
                await asyncio.sleep(asyncio.get_running_loop().time() - began)
        except BaseException:
            await in_thread(written.abandon)
            raise

    async def _read_back(self, run: RunId, written: WrittenKeys) -> None:
        """Read what was written, and compare it with its description. Raises CorruptionError."""
        prepared = self._group.machine.query(KeyRunQuery(run))
        if prepared is None:
            raise UnavailableError(f"run {run} of keys was dropped meanwhile", remedy="try again")
        found = ArchivedRun(
            run, prepared.topic, prepared.first, prepared.end, "prepared", "", written.size, written.digest
        )
        await self._archivist.read_back(self._usable().check_keys(found))

    def _usable(self) -> KeyStore:
        assert self._store is not None, "the archivist has checked it"
        return self._store
