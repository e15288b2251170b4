"""Waits until records of streams have global positions: the second half of an ordered append.

The first half is a durable append, which gives a record its position in its stream. Group 0 gives it the global one
afterwards, and the leader of the group of the stream is asked for it (``WaitOrdered``). It is asked while the append is
on its way, from the end of the last ordered append to the stream on, so that no round trip follows the receipt.

| event | effect |
| --- | --- |
| many callers wait for records of one stream | one request for the first of them is out; its answer has all positions \
that the node knows, so it serves the others too |
| the answer has no record of an append that is on its way, because others append too | the next request begins behind \
the answer. All runs are kept until no caller waits |
| the request or its answer is lost, the leader changes | it is sent again. It reads, so nothing is done twice |
| the positions are not known in time | OutcomeUnknownError with a token, which says that the record is durable |
| the node is of a release that does not know the request | the same, at once, with the upgrade as the remedy |
| the record is trimmed, and its position with it | its callers get TrimmedError; the others of the stream go on |
| the caller is cancelled | it gets no position; the record stays |
| the client is closed | the callers get OutcomeUnknownError |
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from typing import Any

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
    TrimmedError,
    UnavailableError,
    ViewstampError,
)
from viewstamp.ids import GlobalPosition, GroupId, Stream
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.ordered_requests import WaitOrdered

__all__ = ["LEAST_SECONDS", "GlobalPositions", "Sought"]

_HOLD_SECONDS = 1.0
"""Time for which a node may hold a request. It bounds the wait at a node that has ceased to lead."""
LEAST_SECONDS = 0.001
"""The least time for which the position of a durable record is awaited."""
_KEPT_RUNS = 4096
"""The most runs of a stream that are kept while somebody waits, and those of one more answer."""
_Run = tuple[int, int, int]
"""Global position of the first record, its position in the stream, number of records."""


class Sought:
    """The global positions of records ``first`` to ``last`` of a stream, for which a caller waits.

    ``first`` is 0 while the records are on their way, so that their positions are not known.
    """

    __slots__ = ("deadline", "first", "found", "last", "seconds", "stream")

    def __init__(self, stream: Stream, found: Future[Any]) -> None:
        self.stream = stream
        self.first = self.last = 0
        self.found = found
        """Gets the position of the record, or a list of positions if ``last`` is another one. Fails with TimeoutError,
        or with an error that is final."""
        self.deadline = math.inf
        self.seconds = math.inf
        """The time until the deadline, when the records became durable."""


class _Known:
    """The runs of a stream that were answered while somebody waits; they tile its positions."""

    __slots__ = ("runs", "starts")

    def __init__(self) -> None:
        self.runs: list[_Run] = []
        self.starts: list[int] = []

    @property
    def end(self) -> int:
        """The position behind the last record in a run; 0 = there is none."""
        return self.runs[-1][1] + self.runs[-1][2] if self.runs else 0

    def add(self, runs: list[_Run]) -> None:
        """Add the runs of an answer; those that they do not continue are forgotten."""
        if not runs:
            return
        if len(self.runs) > _KEPT_RUNS or runs[0][1] > self.end or not self.runs[0][1] <= runs[0][1]:
            self.runs, self.starts = [], []
        else:
            keep = bisect_right(self.starts, runs[0][1] - 1)
            del self.runs[keep:], self.starts[keep:]
            if self.end > runs[0][1]:  # The first run of the answer begins within the last one that is kept.
                position, local, _ = self.runs[-1]
                self.runs[-1] = (position, local, runs[0][1] - local)
        self.runs += runs
        self.starts += [run[1] for run in runs]

    def find(self, each: Sought) -> GlobalPosition | list[GlobalPosition] | None:
        """Return what a caller waits for; None = not known."""
        first, last = each.first, each.last
        if not (self.runs and first and self.starts[0] <= first and last < self.end):
            return None
        if first == last:
            return _find(self.runs, self.starts, first)
        return [_find(self.runs, self.starts, local) for local in range(first, last + 1)]


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
        self._waiting: dict[Stream, dict[Sought, None]] = {}
        """A task asks for each of these streams."""
        self._known: dict[Stream, _Known] = {}
        """What was answered about each of these streams."""
        self._ends: dict[Stream, int] = {}
        """The position behind the last ordered record of this client in a stream; the next ones are not before it."""
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
          TrimmedError: the record is deleted, and its global position with it.
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
        sought = self.seek(stream, receipt.position, receipt.position, seconds)
        try:
            position = await sought.found
        except TimeoutError:
            raise UnavailableError(
                f"position {receipt.position} of {stream.name!r} has no global position after {seconds:g} s"
                f"{self._reason(stream)}",
                remedy="ask again; see whether group 0 has a majority: `viewstamp status`",
            ) from None
        finally:
            self.forget(sought)
        return receipt._replace(global_position=position)

    def expect(self, stream: Stream) -> Sought | None:
        """Begin to ask for the positions of records that are being appended, for :meth:`seek`; then :meth:`forget` it.

        None: no ordered append to the stream has ended before, so it is not known from where on to ask.
        """
        if stream not in self._ends:
            return None
        waiting = Sought(stream, self._runtime.create_future())
        self._add(waiting)
        return waiting

    def forget(self, waiting: Sought | None) -> None:
        """End what :meth:`expect` has begun. Idempotent."""
        if waiting is not None and (others := self._waiting.get(waiting.stream)) is not None:
            others.pop(waiting, None)

    def seek(self, stream: Stream, first: int, last: int, seconds: float, sought: Sought | None = None) -> Sought:
        """Ask for the positions of durable records; the caller awaits ``found`` of the result, then :meth:`forget` it.

        ``sought`` is the result of :meth:`expect`, if that was called for the append of the records.
        """
        others = self._waiting.get(stream)
        if sought is None or sought.stream != stream or others is None or sought not in others:
            sought = Sought(stream, self._runtime.create_future())
            self._add(sought)
        sought.first, sought.last, sought.seconds = first, last, seconds
        sought.deadline = deadline = self._runtime.time() + seconds
        known = self._known[stream]
        if (found := known.find(sought)) is not None:
            self._serve(sought, found)
            self.forget(sought)
        elif deadline < self._timer_due:
            self._set_timer(deadline)
        return sought

    def unknown(self, sought: Sought, error: ViewstampError | TimeoutError, token: OutcomeToken) -> OutcomeUnknownError:
        """Return the error for the caller of a durable append whose positions are not found; ``error`` says why."""
        if isinstance(error, TimeoutError):
            why = f"not known after {sought.seconds:g} s{self._reason(sought.stream)}"
            remedy = "ask outcome(error.token) for the receipt, and find_global_position for its global position"
        else:
            why, remedy = f"not known: {error}", error.remedy or "ask outcome(error.token) for the receipt"
        stream, first, last = sought.stream, sought.first, sought.last
        where = f"position {first}" if first == last else f"positions {first} to {last}"
        return OutcomeUnknownError(
            f"the append is durable at {where} of {stream.name!r}, and its global position is {why}",
            token=token,
            remedy=f"do not append again; {remedy}",
        )

    def _add(self, waiting: Sought) -> None:
        """Have the leader of the group asked for a caller, by the task of the stream."""
        stream = waiting.stream
        others = self._waiting.get(stream)
        if others is None:
            others = self._waiting[stream] = {}
            self._known[stream] = _Known()
            # A task that is cancelled before it has begun does nothing, so its callers are failed here too.
            end = partial(self._end, stream, others, closed_error())
            self._runtime.spawn(self._ask(stream, others)).add_done_callback(lambda _: end())
        others[waiting] = None

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

    async def _ask(self, stream: Stream, waiting: dict[Sought, None]) -> None:
        """Ask the leader of the group of a stream, until no caller waits."""
        reason: ViewstampError = closed_error()
        try:
            with self._groups.call(stream.group) as parts:
                parts.router.start()
                known = self._known[stream]
                while waiting:
                    first = min((each.first for each in waiting if each.first), default=0)
                    expects = not first
                    first = first or max(self._ends[stream], known.end)
                    request = WaitOrdered(stream=stream.name, position=first, wait=_HOLD_SECONDS, expects=expects)
                    try:
                        deadline = self._runtime.time() + _HOLD_SECONDS + self._silence
                        frame = await parts.router.ask_leader(request, deadline=deadline, wait=_HOLD_SECONDS)
                        known.add(read_runs(stream, first, frame.body["runs"]))
                        self._answer(waiting, known)
                    except (ViewstampError, TimeoutError) as error:
                        if parts.router.is_closed:
                            return
                        if isinstance(error, TrimmedError) and not expects:
                            _fail_trimmed(waiting, first, error)
                        elif isinstance(error, ViewstampError):
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

    def _end(self, stream: Stream, waiting: dict[Sought, None], reason: ViewstampError) -> None:
        """Fail the callers that are left when nobody asks for them any more."""
        if self._waiting.get(stream) is waiting:
            del self._waiting[stream], self._known[stream]
            self._reasons.pop(stream, None)
            if not self._waiting:
                self._set_timer(math.inf)
        make = copies(reason)
        for each in waiting:
            if each.first and not each.found.done():  # One without a position has an append that has not ended.
                each.found.set_exception(make())

    def _answer(self, waiting: dict[Sought, None], known: _Known) -> None:
        """Give the callers their positions as far as they are known; drop those that are served or gone."""
        for each in list(waiting):
            if not each.found.done():
                if (found := known.find(each)) is None:
                    continue
                self._serve(each, found)
            del waiting[each]

    def _serve(self, sought: Sought, found: GlobalPosition | list[GlobalPosition]) -> None:
        sought.found.set_result(found)
        if sought.last >= self._ends.get(sought.stream, 0):
            self._ends[sought.stream] = sought.last + 1

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


def _fail_trimmed(waiting: dict[Sought, None], asked: int, error: TrimmedError) -> None:
    """Fail the callers whose record is the trimmed one that was ``asked`` for; the others go on.

    ``first`` of the error does not count, because a record before it may still get its position.
    """
    found = [each for each in waiting if each.first == asked]
    make = copies(error)
    for each in found:
        del waiting[each]
        if not each.found.done():
            each.found.set_exception(make())


def _unsupported(error: ViewstampError) -> ViewstampError:
    """Return the error for the callers; a release that does not know the request gets the upgrade as its remedy."""
    if error.message.startswith("unknown request"):
        return RequestError("no ordered appends: the nodes are of an earlier release", remedy="upgrade all nodes")
    return error
