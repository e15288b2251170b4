"""Reads of one member's state, with the required freshness of the answer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from viewstamp.actors import Ref
from viewstamp.errors import NoQuorumError, TrimmedError, UnavailableError, ViewstampError
from viewstamp.host.interfaces import Clock
from viewstamp.ids import Index, Position, TopicId
from viewstamp.node.applier import resolve
from viewstamp.node.archive_queries import RunAtQuery
from viewstamp.node.archived import ArchivedReads
from viewstamp.node.inbox import Item, WaitForIndex
from viewstamp.node.log_reader import LogReader
from viewstamp.node.read_index import Barrier, Reader
from viewstamp.node.replica import Replica
from viewstamp.node.state_machine import (
    ActorChangesQuery,
    AnswerT,
    CommitEffectQuery,
    LastPositionQuery,
    LocationQuery,
    Query,
    StateMachine,
)
from viewstamp.wal.log import Wal
from viewstamp.wire.batch import Buffer

__all__ = ["Reading"]


_QUIET_SECONDS = 1.0
"""If a stale answer would be older than this, the member first requests an index from the leader."""
_GLANCE_SECONDS = 0.05
"""Limit of the wait for that index, once in ``_QUIET_SECONDS``, because callers want stale answers quickly."""
_CONFIRM_SECONDS = 1.0
"""Time in which a member tries to become as fresh as requested; shorter than the timeout of clients."""


class Reading:
    """Answers from the applied state: linearizably, after an index, or stale, with the age of the answer.

    A member's *age* is the time since it requested an index that a leader then confirmed with a majority, and that the
    member has applied by now. So an answer of age a includes everything that was committed a seconds ago. Messages
    from a leader are not sufficient, because they may have been delayed, and the leader may have been deposed since.
    """

    def __init__(
        self,
        replica: Replica,
        ref: Ref[Item],
        log_reader: LogReader,
        archived: ArchivedReads,
        wal: Wal,
        clock: Clock,
        *,
        request_seconds: float,
    ) -> None:
        self._replica = replica
        self._applier = replica.applier
        self._machine = replica.applier.machine
        self._me = replica.raft.core.me
        self._ref = ref
        self._log_reader = log_reader
        self._archived = archived
        self._wal = wal
        self._clock = clock
        self._request_seconds = request_seconds
        self._confirmed_at = -math.inf
        """The time of the newest request whose confirmed index has been applied here."""
        self._glanced_at = -math.inf
        self._open: Barrier | None = None
        """The newest barrier, which reads join while it is open."""

    def join(self, reader: Reader) -> Barrier:
        """Call ``reader`` once everything that was committed before this call has been applied here (read-index).

        The reads of a turn share a barrier, and so one request to the leader and one timer. Returns the barrier, which
        the reader may leave.

        Raises:
          OverloadedError, ClosedError: the replica takes no messages; the reader is not called.
        """
        barrier = self._open
        if barrier is None or not barrier.is_open:
            barrier = Barrier(self._clock.monotonic(), self._request_seconds, self._note_current, self._unconfirmed)
            try:
                self._ref.tell(WaitForIndex(barrier))
            except BaseException:
                barrier.leave(reader)
                raise
            self._open = barrier
        barrier.readers[reader] = None
        return barrier

    def query_now(self, query: Query[AnswerT]) -> AnswerT:
        """Query the present state; linearizable if :meth:`join` has called the reader. Never awaits."""
        return self._machine.query(query)

    async def query(
        self, query: Query[AnswerT], *, stale: bool, max_staleness: float | None = None, applied_index: int = 0
    ) -> tuple[AnswerT, float]:
        """Query the state machine. Returns its answer and the age of the answer, in seconds.

        If not ``stale``, the answer includes everything that was committed before the call, and the age is 0. A stale
        answer is from the present state, at most ``max_staleness`` old: if the member may be older, it requests an
        index from the leader first. Age ``math.inf`` = no index was confirmed since the start. A stale answer is given
        after ``applied_index`` has been applied here.

        Raises:
          NoQuorumError: no leader confirmed an index in time.
        """
        if stale and applied_index:
            await self._wait_applied(Index(applied_index))
        age = await self._freshen(stale, max_staleness)
        return self._machine.query(query), age

    async def wait_further(self) -> None:
        """Wait until a further batch has been applied here. Raises TimeoutError if none is for a long time."""
        await self._wait_applied(self._applier.applied_end)

    async def wait_readable(self, topic: TopicId, position: Position, *, applied_index: Index, wait: float) -> None:
        """Wait until ``applied_index`` has been applied here, and up to ``wait`` seconds for ``position`` to exist."""
        await self._wait_applied(applied_index)
        if wait > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    while self._last_position(topic) < position:
                        await self.wait_further()

    def call_further(self, call: Callable[[], None]) -> Callable[[], None]:
        """Call ``call`` when a further batch has been applied here. Returns a function that gives it up."""
        return self._applier.call_when_applied(self._applier.applied_end, call)

    async def read(self, topic: TopicId, position: Position, *, bytes_max: int) -> tuple[list[Buffer], Position]:
        """Return applied batches of a topic from ``position`` on, and the last position.

        The batches are bytes to be sent one after the other.

        Args:
          topic: the topic.
          position: of the first record; the first batch contains it; no batches if it does not exist yet.
          bytes_max: stop before this number of bytes; at least one batch is returned.
        """
        last_position = self._last_position(topic)
        if last_position < position:
            return [], last_position
        topic_map = _Map(self._machine, topic)
        if topic_map.locate(position)[0] >= self._wal.first_index:
            end = self._applier.applied_end
            with suppress(TrimmedError):
                return await self._log_reader.read_topic(topic, topic_map, position, end, bytes_max), last_position
            topic_map.locate(position)  # Raises TrimmedError with the positions that are left.
        run = self._machine.query(RunAtQuery(topic, position))
        if run is not None:
            batches = await self._archived.read(run, position, bytes_max)
            topic_map.locate(position)  # The topic may have been trimmed meanwhile.
            return batches, last_position
        raise UnavailableError(
            f"{self._me} has no longer these records in its log: it began from a snapshot and has not applied the trim"
            " of the topic, or the commit of the archived run, yet",
            remedy="try again in a moment, or ask another node",
        )

    async def watch(self, actor: str, key: str | None, index: int, *, wait: float) -> tuple[list[list[object]], int]:
        """Return the changes of an actor from ``index`` on (0 = from now), and the next index; empty after ``wait``."""
        following = index or int(self._applier.applied_end)
        found: list[list[object]] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                while not found:
                    before = following
                    found, following = self._machine.query(ActorChangesQuery(actor, key, following))
                    if not found and following == before:
                        await self.wait_further()
                    elif not found:
                        await asyncio.sleep(0)  # Lets other tasks run: the search skips other actors' changes.
        return found, following

    async def _freshen(self, stale: bool, max_staleness: float | None) -> float:
        """Wait until this member is as fresh as required; return the age of its state."""
        if not stale:
            await self._barrier(self._request_seconds)
            return 0.0
        if max_staleness is not None:
            age = self._age
            if age > max_staleness:
                try:
                    await self._barrier(min(self._request_seconds, _CONFIRM_SECONDS))
                except NoQuorumError as error:
                    known = "has not known since its start" if age == math.inf else f"last knew {age:.1f} s ago"
                    raise NoQuorumError(
                        f"{self._me} {known} that it is up to date, {max_staleness:g} s are allowed: {error}",
                        remedy="start a majority of the members, or allow more",
                    ) from error
                return 0.0
        elif self._age > _QUIET_SECONDS and self._clock.monotonic() - self._glanced_at > _QUIET_SECONDS:
            self._glanced_at = self._clock.monotonic()
            with suppress(NoQuorumError):
                await self._barrier(_GLANCE_SECONDS)
        return self._age

    @property
    def _age(self) -> float:
        return self._clock.monotonic() - self._confirmed_at

    async def confirm(self) -> None:
        """Wait until everything that was committed before this call has been applied here. Raises NoQuorumError."""
        await self._barrier(self._request_seconds)

    async def _barrier(self, seconds: float) -> None:
        """Wait until everything that was committed before this call has been applied here (read-index)."""
        future: asyncio.Future[ViewstampError | None] = asyncio.get_running_loop().create_future()
        reader = partial(_settle, future)
        barrier = self.join(reader)
        try:
            async with asyncio.timeout(seconds):
                error = await future
        except TimeoutError:
            raise self._unconfirmed() from None
        finally:
            barrier.leave(reader)
        if error is not None:
            raise error

    def _note_current(self, began_at: float) -> None:
        """Note that everything that was committed at ``began_at`` has been applied here."""
        self._confirmed_at = max(self._confirmed_at, began_at)

    def _unconfirmed(self) -> NoQuorumError:
        return NoQuorumError(
            f"{self._me} could not confirm a leader",
            remedy="start a majority of the members, or read stale from one node",
        )

    async def _wait_applied(self, index: Index) -> None:
        if index < self._applier.applied_end:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        give_up = self._applier.call_when_applied(index, lambda: resolve(future))
        try:
            async with asyncio.timeout(self._request_seconds):
                await future
        finally:
            give_up()

    def _last_position(self, topic: TopicId) -> Position:
        return self._machine.query(LastPositionQuery(topic))


def _settle(future: asyncio.Future[ViewstampError | None], error: ViewstampError | None) -> None:
    """Resolve a future with a barrier's result, unless its waiter has been cancelled or has timed out."""
    if not future.done():
        future.set_result(error)


class _Map:
    """The present map of one topic, from the state machine."""

    def __init__(self, machine: StateMachine, topic: TopicId) -> None:
        self._machine = machine
        self._topic = topic

    def locate(self, position: Position) -> tuple[Index, Position]:
        """Return the location of ``position``. Raises TrimmedError if it was trimmed."""
        return self._machine.query(LocationQuery(self._topic, position))

    def has_effect(self, index: Index) -> bool:
        return self._machine.query(CommitEffectQuery(index))
