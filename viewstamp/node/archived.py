"""Reads of archived records, for all groups of a node: from the runs in the store, through a cache of bounded size.

A read comes here if the node's log has deleted its copy of the records (``reading.py``). The blocking calls are made
in one thread, which does nothing else, so neither the event loop nor the archivist waits for the store.

| event | effect |
| --- | --- |
| the row group is in the cache | the answer is immediate |
| it is not | it is loaded in the thread; concurrent reads of it wait for the same load |
| the load takes longer than ``_ANSWER_SECONDS`` | UnavailableError; it goes on, and a later request finds the result |
| the store never answers | the same for each read; only reads of archived records fail, and a stop does not wait |
| the object is missing, truncated, changed, or of another run or cluster | CorruptionError that names it; the next \
read opens it anew, so an intact copy in its place is found |
| the node has no archive, or no pyarrow | UnavailableError with the remedy; other nodes are asked |
| the caller is cancelled | the load goes on |
| a reader is in the second half of a row group | the next one of the run is loaded meanwhile |

The key of the cache has the group, the id and the digest of the run, so records of one run are never taken for those of
another.

Before a member deletes its log's copy of archived records, it reads the whole object (:meth:`ArchivedReads.held`).
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from viewstamp.errors import (
    ClosedError,
    ConfigError,
    OverloadedError,
    UnavailableError,
    ViewstampError,
)
from viewstamp.host.interfaces import Clock, Disk, SerialExecutor
from viewstamp.host.logger import Logger
from viewstamp.ids import GROUP_0, GroupId, Index, Position
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.wire.batch import Buffer

__all__ = ["CACHE_BYTES", "ArchivedReads", "LoadedRecords", "RunSource"]

ResultT = TypeVar("ResultT")

CACHE_BYTES = 128 * 1024 * 1024
_ANSWER_SECONDS = 1.0
"""Longest wait of a read. Shorter than the silence after which a client takes the node for dead."""
_LOADS_MAX = 64
"""The most loads that wait for the thread."""
_RETRY_SECONDS = 30.0
"""Time after which an object that could not be verified is read again."""


class LoadedRecords(NamedTuple):
    """The verified records of a row group at the positions ``[first, end)``: in ``data`` batches one after the other.

    ``firsts`` and ``starts``: the first position of each batch, and the byte at which it begins.
    """

    first: Position
    end: Position
    data: bytes
    firsts: array[int]
    starts: array[int]

    @property
    def size(self) -> int:
        """The bytes in memory."""
        return len(self.data) + 16 * len(self.firsts)

    def batches(self, position: Position, bytes_max: int) -> list[Buffer]:
        """Return the batches from the one that holds ``position`` on, up to ``bytes_max``, at least one.

        They are a copy, because an answer that waits for a slow client would otherwise keep the whole row group in
        memory, outside the bound of the cache: 16 MiB for an answer of 64 KiB, on each connection.
        """
        at = bisect_right(self.firsts, position) - 1
        start = self.starts[at]
        following = bisect_right(self.starts, start + bytes_max, at + 1)
        # A batch that begins within the limit may end behind it.
        is_whole = following == len(self.starts) and len(self.data) - start <= bytes_max
        last = following if is_whole else max(following - 1, at + 1)
        end = self.starts[last] if last < len(self.starts) else len(self.data)
        return [self.data[start:end]]


class RunSource(Protocol):
    """The store of runs as readers use it. All calls block.

    Calls raise CorruptionError if the object is not there, or is not that run, OutdatedCodeError if its format is
    newer, ConfigError if a package is missing, StorageError and UnavailableError as the store.
    """

    where: str

    @property
    def problem(self) -> str:
        """Return why this process cannot read runs; "" = it can."""
        ...

    def check(self, run: ArchivedRun) -> Generator[int, None, None]:
        """Read the object of a run and compare it with the catalogue; yields the bytes of each step."""
        ...

    def load(self, run: ArchivedRun, position: Position) -> LoadedRecords:
        """Read and verify the row group of a run that holds a position."""
        ...


_Key = tuple[str, GroupId, int, bytes]
"""Origin, group, id and digest of a run."""


@dataclass(slots=True, eq=False)
class _Step:
    """A step of the thread: ``work`` is called there, and ``done`` resolved with its result."""

    work: Callable[[], Any]
    done: asyncio.Future[Any]


class ArchivedReads:
    """Reads archived records, and verifies runs. One for a node; it belongs to its event loop.

    Invariants:
      * the cache has at most ``cache_bytes`` bytes, or one row group
      * only records that were verified are in the cache
    """

    def __init__(
        self, store: RunSource | None, name: str, disk: Disk, clock: Clock, log: Logger, *, cache_bytes: int
    ) -> None:
        """Read from ``store``; None = no archive is configured. ``name`` is that of the node."""
        self._store = store
        self._me = name
        self._disk = disk
        self._clock = clock
        self._logger = log
        self._cache_bytes = cache_bytes
        self._problem = store.problem if store is not None else "it has no [archive] directory or url"
        self._cached: OrderedDict[tuple[_Key, int], LoadedRecords] = OrderedDict()
        """By run and first position, the least recently used one first."""
        self._bytes = 0
        self._loading: dict[tuple[_Key, int], asyncio.Future[LoadedRecords]] = {}
        """By run and requested position."""
        self._executor: SerialExecutor[_Step] | None = None
        """It gets one step at a time, because it reports only when it has done all steps that it has."""
        self._steps: deque[_Step] = deque()
        """The steps that wait for the thread."""
        self._step: _Step | None = None
        """The step that the thread has."""
        self._verified: set[_Key] = set()
        self._verifying: asyncio.Task[None] | None = None
        self._failed: dict[_Key, tuple[float, ViewstampError]] = {}
        """The runs that could not be verified: when, and why."""
        self._is_stopping = False

    # Reads.

    async def read(self, run: ArchivedRun, position: Position, bytes_max: int) -> list[Buffer]:
        """Return batches of a committed run from the one that holds ``position`` on, up to ``bytes_max``, at least one.

        Raises:
          UnavailableError: this node has no archive, or the store has not answered yet; ask again, or another node.
          CorruptionError: the object is damaged. OutdatedCodeError, StorageError: as the store's calls.
        """
        key = _key(run)
        found = self._find(key, position)
        if found is None:
            load = self._loading.get((key, position)) or self._begin_load(run, position)
            await asyncio.wait([load], timeout=_ANSWER_SECONDS)
            if not load.done():
                raise UnavailableError(
                    f"{_named(run)} has not arrived from {self._where} on {self._me} yet",
                    remedy="try again in a moment; if it stays so, check that the store answers",
                )
            try:
                found = load.result()
            except ConfigError as error:
                raise UnavailableError(
                    f"{self._me} cannot read {_named(run)}: {error.message}", remedy=error.remedy
                ) from error
        self._load_ahead(run, found, position)
        return found.batches(position, bytes_max)

    def _load_ahead(self, run: ArchivedRun, found: LoadedRecords, position: Position) -> None:
        """Begin to load the next row group of the run, if a reader is in the second half of this one.

        Only if nothing else is being loaded, and both have room in the cache.
        """
        is_wanted = 2 * position > found.first + found.end and found.end < run.end
        is_possible = 2 * found.size <= self._cache_bytes and not self._loading and not self._is_stopping
        if is_wanted and is_possible and self._find(_key(run), found.end) is None:
            self._begin_load(run, found.end)

    def _find(self, key: _Key, position: Position) -> LoadedRecords | None:
        for at, records in self._cached.items():
            if at[0] == key and records.first <= position < records.end:
                self._cached.move_to_end(at)
                return records
        return None

    def _begin_load(self, run: ArchivedRun, position: Position) -> asyncio.Future[LoadedRecords]:
        """Load the row group that holds a position. Raises UnavailableError."""
        store = self._usable(run)
        if len(self._loading) >= _LOADS_MAX:
            raise OverloadedError(
                f"{_LOADS_MAX} reads wait for {self._where} on {self._me}; {_named(run)} was not read",
                remedy="try again later; if it stays so, check that the store answers",
            )
        key = _key(run)

        def work() -> LoadedRecords:
            # Another load may have brought it meanwhile. The dictionary is only read here, and copied at once.
            for (cached, _), records in list(self._cached.items()):
                if cached == key and records.first <= position < records.end:
                    return records
            return store.load(run, position)

        load = self._call(work)
        self._loading[key, position] = load

        def on_done(done: asyncio.Future[LoadedRecords]) -> None:
            del self._loading[key, position]
            if not done.cancelled() and done.exception() is None and not self._is_stopping:
                self._keep(key, done.result())

        load.add_done_callback(on_done)
        return load

    def _keep(self, key: _Key, records: LoadedRecords) -> None:
        at = key, int(records.first)
        if at not in self._cached:
            self._bytes += records.size
        self._cached[at] = records
        self._cached.move_to_end(at)
        while self._bytes > self._cache_bytes and len(self._cached) > 1:
            _, dropped = self._cached.popitem(last=False)
            self._bytes -= dropped.size

    def _usable(self, run: ArchivedRun) -> RunSource:
        if self._is_stopping:
            raise ClosedError(f"{self._me} is stopping", remedy="ask another node")
        if self._store is None:
            raise UnavailableError(
                f"the records are in {_named(run)}, and {self._me} has no archive",
                remedy="set [archive] directory or url on every node, to the store that all of them reach; restart it",
            )
        return self._store

    @property
    def _where(self) -> str:
        return self._store.where if self._store is not None else "the archive"

    # Verification.

    def held(self, runs: Sequence[ArchivedRun]) -> Index | None:
        """Return the lowest index at which the log must keep records of these runs; None = it may delete all of them.

        A run releases the log when this node has read its whole object since its start, and found every record that
        the catalogue describes. The runs that were not read yet are read in the background, so call it again.
        Never awaits. All runs are of one group, of which it forgets the other ones.
        """
        keys, groups = {_key(run) for run in runs}, {run.group for run in runs}
        self._verified = {key for key in self._verified if key in keys or key[1] not in groups}
        self._failed = {key: each for key, each in self._failed.items() if key in keys or key[1] not in groups}
        missing = [run for run in runs if _key(run) not in self._verified]
        if missing and self._verifying is None and not self._is_stopping:
            now = self._clock.monotonic()
            due = [run for run in missing if now - self._failed.get(_key(run), (-_RETRY_SECONDS,))[0] >= _RETRY_SECONDS]
            if due:
                self._verifying = asyncio.get_running_loop().create_task(self._verify(due))
        return min((Index(run.first_index) for run in missing), default=None)

    def explain_held(self) -> str:
        """Explain which run keeps the log, because this node could not read it; "" = none does."""
        for (_, _, run, _), (_, error) in self._failed.items():
            return f"archived run {run} cannot be read, so the log keeps its records: {error.message}; {error.remedy}"
        return ""

    async def _verify(self, runs: list[ArchivedRun]) -> None:
        """Read the objects of runs, a row group a step, so that reads of clients come in between."""
        try:
            for run in runs:
                key = _key(run)
                try:
                    store = self._usable(run)
                    steps = store.check(run)
                    while await self._call(lambda steps=steps: next(steps, None)) is not None:  # type: ignore[misc]
                        pass
                except ViewstampError as error:
                    if self._is_stopping:
                        return
                    if key not in self._failed:
                        self._logger.error(
                            "! a run cannot be read, so the log keeps its records",
                            run=run.id,
                            reason=error.message,
                            remedy=error.remedy,
                        )
                    self._failed[key] = self._clock.monotonic(), error
                else:
                    self._verified.add(key)
                    self._failed.pop(key, None)
        finally:
            self._verifying = None

    # The thread.

    def call(self, work: Callable[[], ResultT]) -> asyncio.Future[ResultT]:
        """Call ``work``, which reads runs, in the thread. Raises ClosedError, OverloadedError."""
        if self._is_stopping:
            raise ClosedError(f"{self._me} is stopping", remedy="ask another node")
        if len(self._steps) >= _LOADS_MAX:
            raise OverloadedError(
                f"{_LOADS_MAX} reads wait for {self._where} on {self._me}; nothing was read",
                remedy="try again later; if it stays so, check that the store answers",
            )
        return self._call(work)

    def _call(self, work: Callable[[], ResultT]) -> asyncio.Future[ResultT]:
        """Call ``work`` in the thread, after the calls that wait for it."""
        done: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        self._steps.append(_Step(work, done))
        self._begin_step()
        return done

    def _begin_step(self) -> None:
        if self._step is None and self._steps:
            if self._executor is None:
                self._executor = self._disk.executor(f"{self._me}-archive", _run, self._on_step)
            self._step = self._steps.popleft()
            self._executor.put(self._step)

    def _on_step(self, steps: list[_Step], outcome: object) -> None:
        """Report a step, and begin the next one."""
        self._step = None
        for step in steps:
            if step.done.done():
                continue
            if isinstance(outcome, BaseException):
                step.done.set_exception(outcome)
                step.done.exception()  # Marks it as retrieved, because all its readers may have given up.
            else:
                step.done.set_result(outcome)
        # After the callbacks of the futures, which put a loaded row group into the cache: the next step may need it.
        asyncio.get_running_loop().call_soon(self._begin_step)

    @property
    def status(self) -> dict[str, object]:
        """Return the fields of ``viewstamp status``.

        ``archive_problem``: why this node can read no run; "" = it can. ``unreadable_runs``: by id, why a run could not
        be read before the log would have been deleted.
        """
        return {
            "archive_problem": self._problem,
            "archive_cached_bytes": self._bytes,
            "unreadable_runs": {_shown(key): error.message for key, (_, error) in self._failed.items()},
        }

    async def stop(self) -> None:
        """Take no more reads; the waiting ones fail with ClosedError.

        A call of the store that has begun is waited for one second only, because a store may never answer. Its thread
        is a daemon.
        """
        self._is_stopping = True
        if self._verifying is not None:
            self._verifying.cancel()
        waiting, self._steps = self._steps, deque()
        for step in waiting:
            if not step.done.done():
                step.done.set_exception(ClosedError(f"{self._me} is stopping", remedy="ask another node"))
                step.done.exception()
        if self._step is not None:
            await asyncio.wait([self._step.done], timeout=_ANSWER_SECONDS)
        if self._step is None and self._executor is not None:
            await self._executor.close()
        self._cached.clear()
        self._bytes = 0


def _run(steps: list[_Step]) -> object:
    """Make the calls of the steps; there is one. Returns its result, or its error, which ends no other step."""
    [step] = steps
    try:
        return step.work()
    except Exception as error:
        return error


def _key(run: ArchivedRun) -> _Key:
    return run.origin, run.group, int(run.id), run.digest


def _shown(key: _Key) -> str:
    _, group, run, _ = key
    return str(run) if group == GROUP_0 else f"{run} of group {group}"


def _named(run: ArchivedRun) -> str:
    of_group = "" if run.group == GROUP_0 else f" of group {run.group}"
    return f"run {run.id}{of_group}, positions {run.first} to {run.end - 1} of topic {run.topic}"
