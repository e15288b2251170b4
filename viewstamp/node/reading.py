"""Reading: what is asked of one member's state, and how up to date an answer has to be."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress

from viewstamp.actors import Ref
from viewstamp.errors import NoQuorumError, TrimmedError, UnavailableError
from viewstamp.host.interfaces import Clock
from viewstamp.ids import Index, Position, TopicId
from viewstamp.node.applier import resolve
from viewstamp.node.inbox import Item, WaitForIndex
from viewstamp.node.log_reader import LogReader
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
"""A stale answer whose age would be more than this has the member ask first how late it is ..."""
_GLANCE_SECONDS = 0.05
"""... and wait so long for the answer, once in ``_QUIET_SECONDS``: who wants a stale answer wants it now."""
_CONFIRM_SECONDS = 1.0
"""How long a member that is not as fresh as asked tries to become so: less than a client waits before it leaves."""


class Reading:
    """Answers from what this member has applied: linearizably, after an index, or as it stands, and says how stale.

    A member's *age* is the time since it asked a leader, with the answer that a majority stood behind that leader, for
    an index that it has applied by now. So an answer of age a holds all that was committed a seconds ago. Having heard
    from a leader says nothing of that kind: what it sent may have been on its way for long, and it may have been
    deposed meanwhile.
    """

    def __init__(
        self, replica: Replica, ref: Ref[Item], log_reader: LogReader, wal: Wal, clock: Clock, *, request_seconds: float
    ) -> None:
        self._replica = replica
        self._applier = replica.applier
        self._machine = replica.applier.machine
        self._me = replica.raft.core.me
        self._ref = ref
        self._log_reader = log_reader
        self._wal = wal
        self._clock = clock
        self._request_seconds = request_seconds
        self._confirmed_at = -math.inf
        """When the newest of the questions was asked by which this member knows that it is up to date."""
        self._glanced_at = -math.inf

    async def query(
        self, query: Query[AnswerT], *, stale: bool, max_staleness: float | None = None, applied_index: int = 0
    ) -> tuple[AnswerT, float]:
        """Ask the state machine; return its answer and the age of that, in seconds.

        Unless ``stale`` after all that was committed when the question came, and then the age is 0. Stale: as the
        member stands, but at most ``max_staleness`` old: where it is not that fresh it asks the leader, as for a
        question that is not stale. Age ``math.inf``: it has not known since its start. A stale answer is given after
        ``applied_index`` has been applied here.

        Raises:
          NoQuorumError: nobody confirms a leader, or that this member is as fresh as it should be.
        """
        if stale and applied_index:
            await self._wait_applied(Index(applied_index))
        age = await self._freshen(stale, max_staleness)
        return self._machine.query(query), age

    async def wait_readable(self, topic: TopicId, position: Position, *, applied_index: Index, wait: float) -> None:
        """Wait until ``applied_index`` has been applied here, and up to ``wait`` seconds for ``position`` to exist."""
        await self._wait_applied(applied_index)
        if wait > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    while self._last_position(topic) < position:
                        await self._wait_applied(self._applier.applied_end)

    async def read(self, topic: TopicId, position: Position, *, bytes_max: int) -> tuple[list[Buffer], Position]:
        """Return batches of a topic from ``position`` on, as far as this node has applied, and the last position.

        The batches are bytes to be sent one behind the other.

        Args:
          topic: which topic.
          position: the first wanted; the first batch returned holds it; nothing comes where it does not exist yet.
          bytes_max: stop before this many bytes; at least one batch comes.
        """
        last_position = self._last_position(topic)
        if last_position < position:
            return [], last_position
        topic_map = _Map(self._machine, topic)
        if topic_map.locate(position)[0] < self._wal.first_index:
            raise UnavailableError(
                f"{self._me} began from a snapshot and has not applied yet what trimmed the topic",
                remedy="try again in a moment, or ask another node",
            )
        end = self._applier.applied_end
        try:
            return await self._log_reader.read_topic(topic, topic_map, position, end, bytes_max), last_position
        except TrimmedError:
            topic_map.locate(position)  # Says which positions are left.
            raise UnavailableError(f"{self._me} dropped that part of its log meanwhile", remedy="try again") from None

    async def watch(self, actor: str, key: str | None, index: int, *, wait: float) -> tuple[list[list[object]], int]:
        """Return the changes of an actor from ``index`` on (0 = from now), and where to go on; empty after ``wait``."""
        following = index or int(self._applier.applied_end)
        found: list[list[object]] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                while not found:
                    before = following
                    found, following = self._machine.query(ActorChangesQuery(actor, key, following))
                    if not found and following == before:
                        await self._wait_applied(self._applier.applied_end)
                    elif not found:
                        await asyncio.sleep(0)  # A piece of what others' actors did was passed over.
        return found, following

    async def _freshen(self, stale: bool, max_staleness: float | None) -> float:
        """Become as fresh as an answer has to be; return its age."""
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

    async def _barrier(self, seconds: float) -> None:
        """Wait until all that was committed when this was called has been applied here (read-index)."""
        asked_at = self._clock.monotonic()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ref.tell(WaitForIndex(future))
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            raise NoQuorumError(
                f"{self._me} could not confirm a leader",
                remedy="start a majority of the members, or read stale from one node",
            ) from None
        self._confirmed_at = max(self._confirmed_at, asked_at)

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


class _Map:
    """One topic's map, as the state machine has it now."""

    def __init__(self, machine: StateMachine, topic: TopicId) -> None:
        self._machine = machine
        self._topic = topic

    def locate(self, position: Position) -> tuple[Index, Position]:
        """Raise TrimmedError where the position is gone."""
        return self._machine.query(LocationQuery(self._topic, position))

    def has_effect(self, index: Index) -> bool:
        return self._machine.query(CommitEffectQuery(index))
