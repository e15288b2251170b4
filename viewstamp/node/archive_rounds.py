"""The rounds in which the leader of a group archives the topics with archive settings, without a request.

``streams/archive_plan.py`` decides from the applied state which run is due, and which records the delete age has
deleted. A round compares that with the runs that exist, so nothing has to be remembered between two rounds:

| event | effect |
| --- | --- |
| the leader dies or is deposed at any step | the rounds of the next one see the same state, and go on |
| a deposed leader still writes | an orphan, as for a request: each step checks the term |
| an operator archives the same topic | jobs take turns, and a round looks again when it has its turn |
| the settings change during a round | a run that was begun is completed; its records are archived as if asked for |
| the store fails, or loses what was written | the run is dropped; the topic is tried again after 10 s, then after \
twice the pause, up to 10 min. Other topics go on. The log keeps all records |
| this node has no store, or no pyarrow | it leads all the same, and its status says so; the log keeps all records |
| the clock jumps | a run is written early or late. Nothing is deleted by this node's clock, but by log time |
| the node stops | the job under way is ended, and so are the rounds |
| records are deleted while they are archived | the run is dropped, and the next round sees what is left |

A run is written with pauses, at half the speed, unless the log is nearly full.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from viewstamp.errors import NotLeaderError, RequestError, UnavailableError, ViewstampError
from viewstamp.host.interfaces import Clock
from viewstamp.host.logger import Logger
from viewstamp.ids import Term
from viewstamp.node.archive_queries import DueRun, DueRunsQuery, IsArchivingQuery, UnneededRunsQuery
from viewstamp.node.archivist import RUN_BYTES, Archivist
from viewstamp.node.group import Group
from viewstamp.node.keyed_archivist import KeyArchivist
from viewstamp.node.keyed_queries import DueKeys, DueKeysQuery, IsKeyedUsedQuery, UnneededKeysQuery

__all__ = ["ArchiveRounds", "ArchivingState"]

_PRESSED_PART = 1 / 3
"""The log is nearly full if less than this part of it is free: a little before snapshots are taken for that reason."""
_PRESSED_RUNS = 64
"""In a log that is nearly full a run is due for this part of the log, so that its runs do not become too many."""
_PRESSED_SEGMENTS = 8
"""Without [wal] bytes_max the log is nearly full if the disk has room for fewer segments than this."""


class ArchivingState(StrEnum):
    """The activity of the rounds of one node, as ``viewstamp status`` shows it."""

    OFF = "off"
    """This node does not lead, or no topic has the archive."""
    IDLE = "idle"
    """No run is due."""
    WRITING = "writing"
    """A run is being written."""
    REMOVING = "removing"
    """The files of deleted records are being removed."""
    FAILING = "failing"
    """The last attempt for a topic has failed, and is repeated."""
    UNABLE = "unable"
    """This node cannot use the store until somebody changes its settings or its machine."""


@dataclass(slots=True)
class _Failure:
    """The last failure of a topic: how many there were in a row, when the next attempt is due, and why."""

    count: int
    due: float
    error: ViewstampError


class ArchiveRounds:
    """Archives topics by their settings, one after the other, if this node leads their group.

    Invariants:
      * at most one job of the archivist is under way
      * a topic whose last attempt has failed is not tried before its pause is over
    """

    def __init__(
        self, group: Group, archivist: Archivist, keys: KeyArchivist | None, clock: Clock, log: Logger
    ) -> None:
        """Archive the topics of ``group`` of this node; ``keys`` = None in another group than 0. ``start`` begins."""
        self._keys = keys
        self._group = group
        self._options = group.options.archive_rounds
        self._archivist = archivist
        self._clock = clock
        self._logger = log
        self._state = ArchivingState.OFF
        self._topic = ""
        self._term = Term(0)
        self._unable: ViewstampError | None = None
        self._failures: dict[str, _Failure] = {}
        """By topic, in this term."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin the rounds, if this node has a store. Idempotent."""
        with suppress(RequestError):
            self._archivist.check_store()
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End the rounds. Call it before ``Archivist.stop``, which ends the job under way. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    @property
    def status(self) -> dict[str, object]:
        """Return the fields of ``viewstamp status`` about the rounds.

        ``state``: see :class:`ArchivingState`. ``topic``: the one that is being worked on, or whose attempt has failed.
        ``failed_topic``: the one to which the failure belongs. ``failures``: attempts in a row that have failed.
        ``next_seconds``: until the next one. ``reason``, ``remedy``.
        A run of records is due at ``run_bytes`` of log, or after ``wait_seconds``; a dump of keys at ``dump_bytes``.
        """
        if self._task is None:
            self._look_without_store()
        name, failed = next(iter(self._failures.items()), ("", None))
        error = self._unable or (failed.error if failed is not None else None)
        state = self._state
        if self._task is not None and state in (ArchivingState.OFF, ArchivingState.IDLE):
            # The settings or the leader may have changed since the last round.
            state = ArchivingState.IDLE if self._is_wanted else ArchivingState.OFF
        if state is ArchivingState.IDLE and failed is not None:
            state = ArchivingState.FAILING
        return {
            "state": str(state),
            "topic": self._topic or name,
            "failed_topic": name,
            "failures": failed.count if failed is not None else 0,
            "next_seconds": round(max(failed.due - self._clock.monotonic(), 0.0), 1) if failed is not None else 0.0,
            "reason": error.message if error is not None else "",
            "remedy": error.remedy if error is not None else "",
            "run_bytes": RUN_BYTES,
            "wait_seconds": self._options.wait_seconds,
            "dump_bytes": self._options.dump_bytes,
        }

    def _look_without_store(self) -> None:
        try:
            self._archivist.check_store()
        except RequestError as error:
            self._rest(*((ArchivingState.UNABLE, error) if self._is_wanted else (ArchivingState.OFF, None)))

    @property
    def _is_wanted(self) -> bool:
        """Whether this node leads, and a topic has the archive or is keyed."""
        replica, machine = self._group.replica, self._group.machine
        is_used = machine.query(IsArchivingQuery()) or machine.query(IsKeyedUsedQuery())
        return replica is not None and replica.is_leading and is_used

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._options.seconds)
            try:
                await self._make_round()
            except NotLeaderError:
                self._rest(ArchivingState.OFF)
            except Exception as error:  # The next round begins anew, with the state as it is then.
                self._logger.error("! archive round failed", error=repr(error))

    def _rest(self, state: ArchivingState, error: ViewstampError | None = None) -> None:
        self._state, self._topic, self._unable = state, "", error
        if state is not ArchivingState.IDLE:
            self._failures.clear()

    async def _make_round(self) -> None:
        """Remove the files of deleted records, then write the runs that are due, at most one of each topic."""
        replica, machine = self._group.replica, self._group.machine
        if replica is None or not self._is_wanted:
            self._rest(ArchivingState.OFF)
            return
        if replica.raft.core.term != self._term:
            self._term = replica.raft.core.term
            self._failures.clear()
        unneeded, due = machine.query(UnneededRunsQuery()), self._due()
        unneeded_keys, due_keys = list(machine.query(UnneededKeysQuery())), self._due_keys()
        if not (unneeded or due or unneeded_keys or due_keys):
            self._rest(ArchivingState.IDLE)
            self._failures.clear()
            return
        try:
            await self._archivist.check_usable()
        except RequestError as error:
            self._rest(ArchivingState.UNABLE, error)
            return
        except NotLeaderError:
            raise
        except ViewstampError as error:
            self._rest(ArchivingState.FAILING, error)
            return
        self._unable = None
        for name in unneeded:
            await self._attempt(ArchivingState.REMOVING, name, lambda name=name: self._archivist.remove_unneeded(name))  # type: ignore[misc]
        for each in due:
            await self._attempt(ArchivingState.WRITING, each.topic, lambda name=each.topic: self._archive(name))  # type: ignore[misc]
        for name in unneeded_keys:
            await self._attempt(ArchivingState.REMOVING, name, lambda name=name: self._tidy_keys(name))  # type: ignore[misc]
        for keys in due_keys:
            await self._attempt(ArchivingState.WRITING, keys.topic, lambda name=keys.topic: self._write_keys(name))  # type: ignore[misc]
        self._state, self._topic = ArchivingState.IDLE, ""

    async def _archive(self, topic: str) -> None:
        await self._archivist.archive_due(topic, lambda: self._find(topic))

    async def _tidy_keys(self, topic: str) -> None:
        assert self._keys is not None, "only group 0 has keyed topics"
        await self._keys.tidy(topic)

    async def _write_keys(self, topic: str) -> None:
        assert self._keys is not None, "only group 0 has keyed topics"
        await self._keys.write_due(topic, lambda: next((due for due in self._due_keys() if due.topic == topic), None))

    async def _attempt(self, state: ArchivingState, topic: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work of one topic, unless its pause is not over. Raises NotLeaderError."""
        failed = self._failures.get(topic)
        if failed is not None and failed.due > self._clock.monotonic():
            return
        self._state, self._topic = state, topic
        try:
            await work()
        except NotLeaderError:
            raise
        except Exception as error:
            # Also an error of a package that writes files: it must not stop the other topics.
            known = error if isinstance(error, ViewstampError) else UnavailableError(f"unexpected: {error!r}")
            count = failed.count + 1 if failed is not None else 1
            pause = min(self._options.seconds * 2 ** min(count - 1, 60), self._options.pause_seconds_max)
            self._failures[topic] = _Failure(count, self._clock.monotonic() + pause, known)
        else:
            self._failures.pop(topic, None)

    def _find(self, topic: str) -> DueRun | None:
        return next((due for due in self._due() if due.topic == topic), None)

    def _due(self) -> list[DueRun]:
        """Return the runs that are due by the applied state and this node's clock."""
        replica, parts = self._group.replica, self._group.parts
        if replica is None or parts is None:
            return []
        core, wal, is_pressed = replica.raft.core, parts.wal, self._is_pressed
        run_bytes = min(RUN_BYTES, wal.bytes_used // _PRESSED_RUNS + 1) if is_pressed else RUN_BYTES
        wait = round(self._options.wait_seconds * 1e6)
        query = DueRunsQuery(max(core.log_time, core.wall_us), is_pressed, run_bytes, wait)
        return self._group.machine.query(query)

    def _due_keys(self) -> list[DueKeys]:
        """Return the runs of keys that are due by the applied state."""
        replica = self._group.replica
        if replica is None:
            return []
        core = replica.raft.core
        now = max(core.log_time, core.wall_us)
        return self._group.machine.query(DueKeysQuery(now, self._options.dump_bytes, self._is_pressed))

    @property
    def _is_pressed(self) -> bool:
        """Whether the log is nearly full."""
        if self._group.parts is None:
            return False
        wal = self._group.parts.wal
        return wal.bytes_left < (
            _PRESSED_PART * wal.bytes_max or _PRESSED_SEGMENTS * self._group.options.wal.segment_bytes
        )
