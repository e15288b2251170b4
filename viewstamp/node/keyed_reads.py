"""Reads of keyed topics by key: from the table of the newest records, then from the runs.

A get answers with the last record of its key among the records up to some position, which is at least that of each
record that was acknowledged before the get began. So does each answer of a scan, for its keys.

| step | if the process dies, or the caller is cancelled |
| --- | --- |
| 1. wait until everything that was committed before the request is applied here (read index) | the client asks again |
| 2. read the log from the end of the table to the end of the topic, into the table | the table is a cache |
| 3. take the view of the applied state, and the generations of the table; both without a wait in between | the same |
| 4. look into the table; if it has the key, answer | the same |
| 5. look into the runs of the view, the newest one first, in the thread that reads runs | the load goes on |

| event | effect |
| --- | --- |
| a dump or a merge is committed in step 5, and the objects of the view are removed | the read begins again with the \
new view. If the run is still committed, its object is missing: CorruptionError |
| the node finds its log damaged in step 2 | UnavailableError, and never CorruptionError, whose remedy is to put back \
an object. The node starts again and repairs its log from the others; the client asks the next leader |
| the topic is trimmed in step 2 | only below its dumped end, so the read begins again |
| this node lags behind, or leads no more | step 1 waits for a leader of now, so the answer is right all the same |
| the store does not answer within a second | UnavailableError; the load goes on, and the next request finds it |
| the records that are in no run need more memory than the table may have | UnavailableError; a dump frees it |
| a record has no valid layout | RequestError: the topic cannot be read by key |
| the clock jumps | nothing here has a clock |

Any member can answer. The client asks the leader, so that one member has a table of the topic, and not all.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from viewstamp.errors import (
    ConfigError,
    CorruptionError,
    FrameError,
    RequestError,
    StorageError,
    TrimmedError,
    UnavailableError,
)
from viewstamp.ids import Position, TopicId
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.node.archived import ArchivedReads, RunSource
from viewstamp.node.group import Group
from viewstamp.node.keyed_queries import KeyedView, KeyedViewQuery
from viewstamp.node.keyed_rows import KeyRow, Lookup, ScannedRows, rows_of
from viewstamp.node.keyed_table import Generation, KeyTable, find_row, overlay
from viewstamp.wire.batch import Batch

__all__ = ["TABLE_BYTES", "KeySource", "KeyedReads", "KeyedSource", "RangeSlices"]

TABLE_BYTES = 128 * 1024 * 1024
"""The memory of the tables of all topics of a node."""
_STEP_BYTES = 128 * 1024
"""Bytes of the log that are decoded at once, about a millisecond."""
_ANSWER_SECONDS = 1.0
"""Longest wait for a run. Shorter than the silence after which a client takes the node for dead."""
_ATTEMPTS = 5

ResultT = TypeVar("ResultT")


class RangeSlices(NamedTuple):
    """The runs with slices of the keys in ``[start, end)``, the oldest one first; ``end`` None = up to the last key."""

    start: bytes
    end: bytes | None
    runs: Sequence[ArchivedRun]


class KeySource(Protocol):
    """The runs of keys as readers use them. Calls block, and raise as those of ``node.archived.RunSource``."""

    def lookup(self, runs: Sequence[ArchivedRun], key: bytes) -> Lookup:
        """Return the newest row of a key; ``runs``: the oldest one first."""
        ...

    def scan(self, ranges: Sequence[RangeSlices], bytes_max: int) -> ScannedRows:
        """Return the newest rows of keys, up to about ``bytes_max`` bytes; ``ranges`` rise."""
        ...


class KeyedSource(RunSource, Protocol):
    """The store of a node as readers use it, with both sorts of runs."""

    @property
    def keys(self) -> KeySource:
        """The runs of keys."""
        ...


class KeyedReads:
    """Reads the keyed topics of group 0. It belongs to the event loop of its node.

    Invariants:
      * the tables have at most ``table_bytes`` and one step of the log
    """

    def __init__(
        self, group: Group, archived: ArchivedReads, source: KeySource | None, *, table_bytes: int = TABLE_BYTES
    ) -> None:
        """Read topics of ``group``; ``source`` None = no archive is configured on this node."""
        self._group = group
        self._archived = archived
        self._source = source
        self._table_bytes = table_bytes
        self._tables: OrderedDict[TopicId, KeyTable] = OrderedDict()
        """The least recently used one first."""
        self._locks: dict[TopicId, asyncio.Lock] = {}

    @property
    def status(self) -> dict[str, object]:
        """Return the fields of ``viewstamp status``: the bytes of the tables of keyed topics, and the most of them."""
        return {
            "key_table_bytes": sum(table.bytes for table in self._tables.values()),
            "key_table_bytes_max": self._table_bytes,
        }

    async def get(self, name: str, key: bytes) -> Lookup:
        """Return the last record of a key, and what was read for it.

        Raises:
          UnknownTopicError: there is no such topic. RequestError: it is not keyed, or holds a batch that no program can
            read. UnavailableError: ask again. CorruptionError: the object of a run of keys is damaged.
        """
        for attempt in range(_ATTEMPTS):
            view, generations = await self._begin(name)
            row = find_row(generations, key)
            if row is not None:
                return Lookup(row if row.value is not None else None, 0, 0)
            runs = view.ranges[bisect_right(view.ranges, key, key=lambda each: each.start) - 1].runs
            if not runs:
                return Lookup(None, 0, 0)
            found = await self._read(view, partial(self._usable().lookup, runs, key), attempt)
            if found is not None:
                return found if found.row is None or found.row.value is not None else found._replace(row=None)
        raise _changing(name)

    async def scan(self, name: str, start: bytes, end: bytes | None, bytes_max: int) -> ScannedRows:
        """Return the last records of keys in ``[start, end)``, in the order of the keys. Raises as :meth:`get`."""
        for attempt in range(_ATTEMPTS):
            view, generations = await self._begin(name)
            ranges = _cut(view, start, end)
            found: ScannedRows | None = ScannedRows([], None)
            if any(each.runs for each in ranges):
                found = await self._read(view, partial(self._usable().scan, ranges, bytes_max), attempt)
            if found is not None:
                stop = found.next if found.next is not None else end
                rows = overlay(generations, found.rows, start, stop)
                return _bounded(rows, found.next, 2 * bytes_max)
        raise _changing(name)

    def _usable(self) -> KeySource:
        if self._source is None:
            raise UnavailableError(
                f"the keys are in runs, and {self._group.options.node} has no archive",
                remedy="set [archive] directory or url on every node, to the store that all of them reach; restart it",
            )
        return self._source

    async def _begin(self, name: str) -> tuple[KeyedView, list[Generation]]:
        """Do the steps 1 to 3."""
        view, _ = await self._group.reading.query(KeyedViewQuery(name), stale=False)
        async with self._locks.setdefault(view.topic, asyncio.Lock()):
            await self._catch_up(view)
            view = self._group.reading.query_now(KeyedViewQuery(name))
            table = self._table(view)
            if table.end < view.dumped_end:  # A dump of further records was committed meanwhile.
                table = self._tables[view.topic] = KeyTable(view.dumped_end)
            table.discard(view.dumped_end)
            return view, list(table.generations)

    def _table(self, view: KeyedView) -> KeyTable:
        """Return the table of a topic, from its dumped end on at least."""
        table = self._tables.get(view.topic)
        # A table of an earlier view of the topic may have records that this view does not have.
        if table is None or not view.first <= table.first <= view.dumped_end <= table.end:
            table = self._tables[view.topic] = KeyTable(view.dumped_end)
        self._tables.move_to_end(view.topic)
        return table

    async def _catch_up(self, view: KeyedView) -> None:
        """Read the log up to the end of a view into the table."""
        table = self._table(view)
        while table.end < view.next_position:
            self._check_room(view)
            try:
                buffers, _ = await self._group.reading.read(view.topic, Position(table.end), bytes_max=_STEP_BYTES)
            except TrimmedError as error:
                raise UnavailableError(
                    f"keys of topic {view.name!r} were dumped while they were being read", remedy="try again"
                ) from error
            except CorruptionError as error:
                raise UnavailableError(
                    f"the newest records of topic {view.name!r} cannot be read on {self._group.options.node}:"
                    f" {error.message}",
                    remedy="try again: the node repairs its log from the other members, if there are any",
                ) from error
            batches = Batch.decode_all(b"".join(buffers))
            end = min(batches[-1].first_position + batches[-1].count, view.next_position)
            try:
                table.add(rows_of(batches, table.end, end), end)
            except FrameError as error:
                raise RequestError(
                    f"topic {view.name!r} cannot be read by key, because a client has appended a batch that no program"
                    f" can read: {error.message}",
                    remedy="read the records behind it by position, into another topic",
                ) from error
            await asyncio.sleep(0)  # Lets other tasks run between two steps.

    def _check_room(self, view: KeyedView) -> None:
        """Make room for a step in the table of a topic, and drop the tables of others. Raises UnavailableError."""
        while sum(table.bytes for table in self._tables.values()) >= self._table_bytes:
            if len(self._tables) == 1:
                raise UnavailableError(
                    f"the records of topic {view.name!r} from position {view.dumped_end} on are in no run, and need"
                    f" more than the {self._table_bytes:,} bytes of memory for them",
                    remedy="wait until the leader has dumped them; `viewstamp topic describe` says why it has not yet",
                )
            other = next(each for each in self._tables if each != view.topic)
            del self._tables[other]

    async def _read(self, view: KeyedView, work: Callable[[], ResultT], attempt: int) -> ResultT | None:
        """Read runs in the thread. Returns None if the view has changed and objects of it are gone."""
        load = self._archived.call(work)
        await asyncio.wait([load], timeout=_ANSWER_SECONDS)
        if not load.done():
            raise UnavailableError(
                f"the runs of topic {view.name!r} have not arrived on {self._group.options.node} yet",
                remedy="try again in a moment; if it stays so, check that the store answers",
            )
        try:
            return load.result()
        except ConfigError as error:
            raise UnavailableError(
                f"{self._group.options.node} cannot read runs of keys: {error.message}", remedy=error.remedy
            ) from error
        except (CorruptionError, StorageError):
            # An object is removed only after its run was dropped by a committed record. This node may not have had that
            # record, so it has to look again as of now.
            now, _ = await self._group.reading.query(KeyedViewQuery(view.name), stale=False)
            if attempt + 1 < _ATTEMPTS and now.ranges != view.ranges:
                return None
            raise


def _cut(view: KeyedView, start: bytes, end: bytes | None) -> list[RangeSlices]:
    """Return the slices of the ranges of a view, cut to the keys in ``[start, end)``."""
    limits = [*(each.start for each in view.ranges[1:]), None]
    found = []
    for each, limit in zip(view.ranges, limits, strict=True):
        if (limit is None or limit > start) and (end is None or each.start < end):
            stop = end if limit is None else limit if end is None else min(limit, end)
            found.append(RangeSlices(max(each.start, start), stop, each.runs))
    return found


def _bounded(rows: list[KeyRow], following: bytes | None, bytes_max: int) -> ScannedRows:
    """Return rows up to about ``bytes_max`` bytes, at least one, because a table may add many."""
    size = 0
    for number, row in enumerate(rows):
        if size >= bytes_max:
            return ScannedRows(rows[:number], row.key)
        size += row.size
    return ScannedRows(rows, following)


def _changing(name: str) -> UnavailableError:
    return UnavailableError(f"the runs of topic {name!r} have changed during the read", remedy="try again")
