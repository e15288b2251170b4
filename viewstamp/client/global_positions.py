"""Waits until records of streams have global positions: the second half of an ordered append.

The first half is a durable append, which gives a record its position in its stream. Group 0 gives it the global one
afterwards, and the leader of the group of the stream is asked for it (``WaitOrdered``).

| event | effect |
| --- | --- |
| many callers wait for records of one stream | one request for the first of them is out; its answer has all positions \
that the node knows, so it serves the others too |
| the request or its answer is lost, the leader changes | it is sent again. It reads, so nothing is done twice |
| the positions are not known in time | OutcomeUnknownError with a token, which says that the record is durable |
| the node is of a release that does not know the request | the same, at once, with the upgrade as the remedy |
| the caller is cancelled | it gets no position; the record stays |
| the client is closed | the callers get OutcomeUnknownError |
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial

from viewstamp.client.checks import check_topic
from viewstamp.client.groups import Groups
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import Receipt
from viewstamp.client.routing import Reaction, closed_error, copies, reaction
from viewstamp.client.runtime import Future, Runtime, TimerHandle
from viewstamp.client.streams import StreamCalls
from viewstamp.errors import (
    ClosedError,
    OutcomeToken,
    OutcomeUnknownError,
    PeerError,
    RequestError,
    UnavailableError,
    ViewstampError,
)
from viewstamp.ids import GlobalPosition, GroupId, Stream
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.ordered_requests import WaitOrdered

__all__ = ["GlobalPositions"]

_HOLD_SECONDS = 1.0
"""Time for which a node may hold a request. It bounds the wait at a node that has ceased to lead."""
_LEAST_SECONDS = 0.001
_Run = tuple[int, int, int]
"""Global position of the first record, its position in the stream, number of records."""


class _Waiting:
    """A caller that waits for the global positions of records ``first`` to ``last`` of a stream."""

    __slots__ = ("deadline", "first", "found", "last")

    def __init__(self, first: int, last: int, found: Future[list[GlobalPosition]], deadline: float) -> None:
        self.first = first
        self.last = last
        self.found = found
        self.deadline = deadline


class GlobalPositions:
    """Finds the global positions of durable records.

    Invariants:
      * for each stream at most one task asks, and it has one request out at a time
      * the timer is due at the earliest deadline of a caller that waits, or before
    """

    def __init__(self, runtime: Runtime, options: ClientOptions, groups: Groups, streams: StreamCalls) -> None:
        self._runtime = runtime
        self._silence = options.silence
        self._groups = groups
        self._streams = streams
        self._waiting: dict[Stream, dict[_Waiting, None]] = {}
        """A task asks for each of these streams."""
        self._reasons: dict[Stream, ViewstampError] = {}
        """The last error of a stream for which somebody waits."""
        self._timer: TimerHandle | None = None
        self._timer_due = math.inf
        """The time at which ``_timer`` looks for late callers. They share one, because hardly any is late."""

    async def find_global_position(self, topic: str, receipt: Receipt, *, timeout: float | None = None) -> Receipt:
        """Return the receipt with the global position of its record, as soon as the record has one.

        It is for records that were not appended as ordered ones, and for those whose ordered append has timed out:
        ``client.outcome(error.token)`` has their receipt.
        Cancelled: nothing is lost, because the call reads.

        Example::

            receipt = await client.append("parcels", b"one")
            receipt = await client.find_global_position("parcels", receipt)
            stream = await client.describe_stream("parcels", receipt.stream)
            print(receipt.global_position, receipt.position, stream.last_position)

        Args:
          topic: the topic of the record.
          receipt: its receipt.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnavailableError: the record has no global position yet, or no node has answered; ask again.
          UnknownTopicError: no spread topic has this name.
          RequestError: the topic has no such stream.
          StreamSealedError: the stream was removed.
        """
        if not receipt.stream:
            return receipt._replace(global_position=receipt.position)
        router = self._groups.group_0.router
        router.start()
        deadline = router.deadline(timeout)
        found = await self._streams.find(check_topic(topic), router.left(deadline), stream=receipt.stream)
        found.check_kept(receipt.stream)
        stream = Stream(GroupId(found.group_of(receipt.stream)), found.topic_of(receipt.stream))
        seconds = router.left(deadline)
        try:
            (position,) = await self._find(stream, receipt.position, receipt.position, seconds)
        except TimeoutError:
            raise UnavailableError(
                f"position {receipt.position} of {stream.name!r} has no global position after {seconds:g} s"
                f"{self._reason(stream)}",
                remedy="ask again; see whether group 0 has a majority: `viewstamp status`",
            ) from None
        return receipt._replace(global_position=position)

    async def order(
        self, stream: Stream, receipts: Sequence[Receipt], token: Callable[[], OutcomeToken], deadline: float
    ) -> list[Receipt]:
        """Return the receipts of one append with their global positions; ``token`` makes the token for an error.

        Raises:
          OutcomeUnknownError: they are not known at ``deadline``, on the clock of the runtime.
        """
        first, last = receipts[0].position, receipts[-1].position
        started = self._runtime.time()
        seconds = max(_LEAST_SECONDS, deadline - started)
        try:
            positions = await self._find(stream, first, last, seconds)
        except (ViewstampError, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                why = f"not known after {seconds:g} s{self._reason(stream)}"
                remedy = "ask outcome(error.token) for the receipt, and find_global_position for its global position"
            else:
                why, remedy = f"not known: {error}", error.remedy or "ask outcome(error.token) for the receipt"
            where = f"position {first}" if first == last else f"positions {first} to {last}"
            raise OutcomeUnknownError(
                f"the append is durable at {where} of {stream.name!r}, and its global position is {why}",
                token=token(),
                remedy=f"do not append again; {remedy}",
            ) from error
        return [
            receipt._replace(global_position=position) for receipt, position in zip(receipts, positions, strict=True)
        ]

    async def _find(self, stream: Stream, first: int, last: int, seconds: float) -> list[GlobalPosition]:
        """Return the global positions of records of a stream. Raises TimeoutError, and an error that is final."""
        found: Future[list[GlobalPosition]] = self._runtime.create_future()
        deadline = self._runtime.time() + seconds
        waiting = _Waiting(first, last, found, deadline)
        others = self._waiting.get(stream)
        if others is None:
            others = self._waiting[stream] = {}
            # A task that is cancelled before it has begun does nothing, so its callers are failed here too.
            end = partial(self._end, stream, others, closed_error())
            self._runtime.spawn(self._ask(stream, others)).add_done_callback(lambda _: end())
        others[waiting] = None
        if deadline < self._timer_due:
            self._set_timer(deadline)
        try:
            return await found
        finally:
            others.pop(waiting, None)

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_due = None, deadline
        if deadline < math.inf:
            self._timer = self._runtime.call_later(max(0.0, deadline - self._runtime.time()), self._expire)

    def _expire(self) -> None:
        """Fail the callers that are late."""
        now, following = self._runtime.time(), math.inf
        for each in [waiting for others in self._waiting.values() for waiting in others]:
            if each.found.done():
                continue
            if each.deadline <= now:
                each.found.set_exception(TimeoutError())
            else:
                following = min(following, each.deadline)
        self._set_timer(following)

    async def _ask(self, stream: Stream, waiting: dict[_Waiting, None]) -> None:
        """Ask the leader of the group of a stream, until no caller waits."""
        reason: ViewstampError = closed_error()
        try:
            with self._groups.call(stream.group) as parts:
                parts.router.start()
                while waiting:
                    first = min(each.first for each in waiting)
                    request = WaitOrdered(stream=stream.name, position=first, wait=_HOLD_SECONDS)
                    try:
                        deadline = self._runtime.time() + _HOLD_SECONDS + self._silence
                        frame = await parts.router.ask_leader(request, deadline=deadline, wait=_HOLD_SECONDS)
                        self._answer(waiting, read_runs(stream, first, frame.body["runs"]))
                    except (ViewstampError, TimeoutError) as error:
                        if parts.router.is_closed:
                            return
                        if isinstance(error, ViewstampError):
                            if reaction(error) is Reaction.FINAL or isinstance(error, PeerError):
                                reason = _unsupported(error)
                                return
                            self._reasons[stream] = error
                    else:
                        self._reasons.pop(stream, None)
        except ClosedError:
            return
        finally:
            self._end(stream, waiting, reason)

    def _end(self, stream: Stream, waiting: dict[_Waiting, None], reason: ViewstampError) -> None:
        """Fail the callers that are left when nobody asks for them any more."""
        if self._waiting.get(stream) is waiting:
            del self._waiting[stream]
            self._reasons.pop(stream, None)
            if not self._waiting:
                self._set_timer(math.inf)
        make = copies(reason)
        for each in waiting:
            if not each.found.done():
                each.found.set_exception(make())

    @staticmethod
    def _answer(waiting: dict[_Waiting, None], runs: list[_Run]) -> None:
        """Give the callers their positions as far as ``runs`` have them; drop those that are served or gone."""
        starts = [run[1] for run in runs]
        end = runs[-1][1] + runs[-1][2] if runs else 0
        for each in list(waiting):
            if runs and runs[0][1] <= each.first and each.last < end and not each.found.done():
                each.found.set_result([_find(runs, starts, local) for local in range(each.first, each.last + 1)])
            if each.found.done():
                del waiting[each]

    def _reason(self, stream: Stream) -> str:
        """Return why a stream is not ordered yet, for the end of a message."""
        error = self._reasons.get(stream)
        if error is None:
            return ": group 0 has not ordered it, so it may have no majority"
        return f": {error}"


def read_runs(stream: Stream, first: int, packed: Sequence[Sequence[int]]) -> list[_Run]:
    """Return the runs of an answer, which tile the positions of a stream; the first has ``first``. Raises PeerError."""
    runs: list[_Run] = []
    for position, local, length in packed:
        if runs:
            is_next = local == runs[-1][1] + runs[-1][2] and position >= runs[-1][0] + runs[-1][2]
        else:
            is_next = 1 <= local <= first < local + length and position >= 1
        if not is_next or length < 1:
            raise PeerError(f"a node answers {brief_repr(packed)} for position {first} of {stream.name!r}")
        runs.append((position, local, length))
    return runs


def _find(runs: list[_Run], starts: list[int], local: int) -> GlobalPosition:
    """Return the global position of a record in one of the runs, which begin at the local positions ``starts``."""
    position, start, _ = runs[bisect_right(starts, local) - 1]
    return GlobalPosition(position + local - start)


def _unsupported(error: ViewstampError) -> ViewstampError:
    """Return the error for the callers; a release that does not know the request gets the upgrade as its remedy."""
    if error.message.startswith("unknown request"):
        return RequestError("no ordered appends: the nodes are of an earlier release", remedy="upgrade all nodes")
    return error
