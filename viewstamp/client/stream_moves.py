"""Moves the appends of a client from a stream that is sealed to the stream that has its slots now.

A group answers "sealed" to an append when its stream gets no record any more. The records of each key have to keep
their order, so the appends of this client to the stream go on in four steps:

1. The session decides its batches of this stream one after the other, in the order in which they were sent: it fences
   each one, unless its outcome is a receipt (``session.py``). The appends of a fenced batch are handed over here.
2. Appends to the stream that begin from the first of these on are held behind them.
3. The route is read, from any node, until it has the stream as sealed. So all its records have their global positions.
4. When no batch of the stream is left in the session, the client takes the route. The appends that were handed over
   begin again, in their order, and behind them those that were held, in one turn.

The new route may have other streams as sealed too, of which this client has batches without an outcome. It takes the
route only when these are decided as well, because a new append of such a key would overtake them. From the first look
at that route on, appends to these streams are held.

A stream that is *lost* ends without its group, which answers nothing. So the client looks at the route whenever an
append to a stream of the topic was not answered; if its caller was cancelled, at the next one. If it finds a lost
stream, the appends to it that were never sent are handed over, and go on as above. Batches that were sent have an
unknown outcome at their timeouts: they are never sent to another stream, because the stream may have them. No append
waits for them, because they have a position below those of the next stream, or never get one. A removed stream whose
group was removed too is treated in the same way: nobody answers "sealed" for it any more.

| event | effect |
| --- | --- |
| a batch was applied before the seal, and its answer was lost | its fence has the receipt, so it is not moved |
| a caller is cancelled, or its timeout ends | its append is dropped here: nothing was written. Before step 1 has \
decided it, the outcome is unknown, as always |
| a node lags, and names an old route | it is asked again; a route with fewer sealed streams than the known one is \
ignored |
| the group of the stream, or group 0, has no majority | the appends wait until their timeouts. Those to open streams \
go on. Those to another sealed stream of the topic wait too, if it was sealed at the same time |
| the next stream is sealed too | the appends are moved again, in the same way |
| the append names the stream, or expects a position in it | StreamSealedError: its caller has to decide |
| the lost group lives, and a client that has not looked yet appends to it | the record is durable, and gets no \
position; the leader of the group seals the stream when it reads the state of group 0 |
| the client is closed | ClosedError, or an unknown outcome before step 1 has decided it |
| the client dies | as today: batches that were sent may be committed |
"""

from __future__ import annotations

from collections.abc import Callable

from viewstamp.client.append import Held, TopicAppend
from viewstamp.client.groups import Groups
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import SpreadTopicInfo, spread_topic_info
from viewstamp.client.routing import closed_error
from viewstamp.client.runtime import Runtime
from viewstamp.client.stream_routes import StreamRoutes
from viewstamp.errors import StreamSealedError, UnavailableError, ViewstampError
from viewstamp.wire.group_requests import ListGroups
from viewstamp.wire.spread_requests import DescribeSpreadTopic

__all__ = ["StreamMoves"]

_PAUSE_SECONDS = 0.02
"""The first pause before the route is read again, or the session is looked at again."""
_PAUSE_SECONDS_MAX = 0.2
_LOOK_SECONDS = 1.0
"""The least time between two looks for lost streams of a topic."""


class _Move:
    """The appends to the sealed streams of one topic, until they go on."""

    __slots__ = ("held", "moved", "silent", "streams")

    def __init__(self) -> None:
        self.streams: set[int] = set()
        """The streams to which appends are held."""
        self.silent: set[int] = set()
        """Those of them whose group never answers again, so that no outcome of a batch is waited for."""
        self.moved: dict[Held, int] = {}
        """The appends that were handed over, in the order of their batches, each with its stream."""
        self.held: dict[Held, int] = {}
        """Those that have begun since, in the order of their calls."""


class StreamMoves:
    """The streams that are sealed and whose appends have not gone on yet.

    Invariants:
      * appends that were handed over precede those that are held, and both keep their order
      * a route is taken only when no batch of a stream that is sealed in it, and was not before, is undecided, unless
        the stream is lost
      * for each topic at most one task asks the nodes
    """

    def __init__(self, runtime: Runtime, options: ClientOptions, groups: Groups, routes: StreamRoutes) -> None:
        """Begin without moves."""
        self._runtime = runtime
        self._seconds = options.silence
        self._groups = groups
        self._routes = routes
        self._moves: dict[str, _Move] = {}
        """By topic. A task works for each."""
        self.doubted: set[str] = set()
        """The topics with an append whose caller has gone. The next append to one of them looks for lost streams; no
        task is begun for a caller that is cancelled, because its event loop may be ending."""
        self._looked: dict[str, float] = {}
        """When a topic was last looked at because an append had failed."""

    def is_moving(self, topic: str, stream: int) -> bool:
        """Return whether appends to a stream have to be held."""
        move = self._moves.get(topic)
        return move is not None and stream in move.streams

    def hold(self, topic: str, stream: int, begin: Callable[[], TopicAppend | Held]) -> Held:
        """Hold a new append to a stream that is moving. ``begin`` begins it, by the route of that time."""
        return Held(self._runtime.create_future(), begin, self._moves[topic].held, stream)

    def look(self, topic: str) -> None:
        """Look whether streams of a topic never answer again, because an append has failed: at most once a second."""
        now = self._runtime.time()
        self.doubted.discard(topic)
        if topic in self._routes.spread and now - self._looked.get(topic, -_LOOK_SECONDS) >= _LOOK_SECONDS:
            self._looked[topic] = now
            self._runtime.spawn(self._look(topic))

    async def _look(self, topic: str) -> None:
        """Give back what was not sent to lost streams and in removed groups, and begin to move it."""
        choice = self._routes.spread[topic]
        found = await self._read(topic)
        if found is None:
            return
        silent = found.lost_streams | await self._left(found, found.removed_streams - choice.topic.sealed_streams)
        silent -= choice.topic.sealed_streams
        if not silent:
            return
        move = self._begin(topic)
        move.silent |= silent
        self._stop(topic, move, silent)
        for stream in silent:
            parts = self._groups.at_hand(found.group_of(stream))
            if parts is not None:
                error = StreamSealedError(
                    f"stream {stream} of topic {topic!r} is lost or removed; nothing was written",
                    remedy="leave out the stream, or name an open one: `viewstamp topic describe`",
                )
                parts.sender.give_back(found.topic_of(stream), error)

    async def _left(self, found: SpreadTopicInfo, streams: set[int]) -> set[int]:
        """Return those of the removed streams whose group was removed. Linearizable, so none of them lives."""
        if not streams:
            return set()
        try:
            _, frame = await self._groups.group_0.router.ask_any(ListGroups(), seconds=self._seconds)
        except ViewstampError:
            return set()
        placed = {group["id"] for group in frame.body["groups"]}
        return {stream for stream in streams if found.group_of(stream) not in placed}

    def _begin(self, topic: str) -> _Move:
        move = self._moves.get(topic)
        if move is None:
            move = self._moves[topic] = _Move()
            self._runtime.spawn(self._work(topic, move))
        return move

    def hand_over(self, topic: str, stream: int, begin: Callable[[], TopicAppend | Held]) -> Held:
        """Take over an append that was fenced because its stream is sealed."""
        move = self._begin(topic)
        self._stop(topic, move, {stream})
        return Held(self._runtime.create_future(), begin, move.moved, stream)

    async def wait(self, held: Held, seconds: float) -> TopicAppend | Held:
        """Wait until an append has begun again; return or raise what that does.

        Cancelled: the append is given up; if it was not sent, it never is.

        Raises:
          UnavailableError: it has not begun within ``seconds``; nothing was written.
        """
        try:
            return await self._runtime.within(seconds, held.begun)
        except BaseException as error:
            held.abandon()
            if isinstance(error, TimeoutError):
                raise UnavailableError(
                    "the stream of the record is sealed, and the stream that gets its key is not known yet; nothing was"
                    " written",
                    remedy="append again; look with `viewstamp topic describe`",
                ) from None
            raise

    def close(self) -> None:
        """Fail the appends that wait, with ClosedError."""
        for move in self._moves.values():
            for held in (*move.moved, *move.held):
                if not held.begun.done():
                    held.begun.set_exception(closed_error())
        self._moves.clear()

    def _stop(self, topic: str, move: _Move, streams: set[int]) -> None:
        """Hold further appends to these streams."""
        for stream in streams - move.streams:
            move.streams.add(stream)
            self._routes.spread[topic].leave(stream)

    async def _work(self, topic: str, move: _Move) -> None:
        """Read the route until it has streams as sealed that are decided here, and begin the appends to them."""
        choice = self._routes.spread[topic]
        pause = _PAUSE_SECONDS
        while self._moves.get(topic) is move and move.streams:
            found = await self._read(topic) or choice.topic
            ended = (found.sealed_streams - choice.topic.sealed_streams) | (found.sealed_streams & move.streams)
            if ended:
                self._stop(topic, move, ended)
                if not self._undecided(found, ended - found.lost_streams - move.silent):
                    choice.update(found)
                    self._release(move, ended)
                    continue
            is_left = not move.moved and not move.held
            if is_left and not self._undecided(choice.topic, move.streams - found.lost_streams - move.silent):
                break  # The callers have gone. The next append finds the seal again.
            await self._runtime.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)
        if self._moves.get(topic) is move:
            del self._moves[topic]

    async def _read(self, topic: str) -> SpreadTopicInfo | None:
        """Return the topic as any node has it; None = no node answers, and the callers have timeouts of their own."""
        try:
            request = DescribeSpreadTopic(name=topic, stale=True)
            _, frame = await self._groups.group_0.router.ask_any(request, seconds=self._seconds)
        except ViewstampError:
            return None
        return spread_topic_info(frame.body["topic"])

    def _undecided(self, topic: SpreadTopicInfo, streams: set[int]) -> bool:
        """Return whether an append to one of these streams waits in a session, or has no outcome."""
        for stream in streams:
            parts = self._groups.at_hand(topic.group_of(stream))
            if parts is not None and parts.sender.has_batches_of(topic.topic_of(stream)):
                return True
        return False

    def _release(self, move: _Move, streams: set[int]) -> None:
        """Begin all appends to these streams, in their order."""
        move.streams -= streams
        for among in (move.moved, move.held):
            for held in [held for held, stream in among.items() if stream in streams]:
                del among[held]
                if held.begun.done():
                    continue
                try:
                    held.begun.set_result(held.begin())
                except ViewstampError as error:
                    held.begun.set_exception(error)
