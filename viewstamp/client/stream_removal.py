"""A client's call that removes a stream which is sealed, and of which nothing is kept."""

from __future__ import annotations

from viewstamp.client.admin import Admin
from viewstamp.client.checks import as_whole
from viewstamp.client.global_positions import GlobalPositions
from viewstamp.client.results import Receipt, SpreadTopicInfo, spread_topic_info
from viewstamp.client.router import Router
from viewstamp.client.spread_topics import SpreadTopicCalls
from viewstamp.client.streams import StreamCalls
from viewstamp.errors import RequestError, StreamSealedError, UnavailableError
from viewstamp.ids import Index, Position, Term
from viewstamp.wire.names import check_topic
from viewstamp.wire.spread_requests import RemoveStream

__all__ = ["RemovalCalls"]


class RemovalCalls:
    """Removes streams."""

    def __init__(
        self, router: Router, admin: Admin, topics: SpreadTopicCalls, streams: StreamCalls, positions: GlobalPositions
    ) -> None:
        self._router = router
        self._admin = admin
        self._topics = topics
        self._streams = streams
        self._positions = positions

    async def remove_stream(self, name: str, stream: int, *, timeout: float | None = None) -> SpreadTopicInfo:
        """Remove a stream that is sealed, and of which all records were trimmed. Returns when the record is committed.

        Group 0 then keeps no positions of the stream, and the limit of streams of a topic counts it no more. The leader
        of its group deletes what the group has of it. Its number is never used again. There is no way back. The same
        call again is harmless. Cancelled: the stream may be removed all the same.

        A lost stream is removed without its group, when the topic is trimmed to the position at which it was given up.
        A sealed one whose group is lost has to be given up first, by :meth:`lose_stream`.
        If the group is found again, its leader deletes the stream, also the records that never got a position.

        Example::

            topic = await client.describe_spread_topic("parcels")
            for ended in topic.closed:
                if ended.phase == "lost" and ended.lost_at <= topic.first_position:
                    await client.remove_stream("parcels", ended.stream)

        Args:
          name: the topic.
          stream: the number of the stream.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnknownTopicError: no spread topic has this name.
          RequestError: there is no such stream, it is open or closing, records of it are kept, or a member runs a
            release without such changes. Nothing was changed.
          UnavailableError: not removed; group 0, or the group of a stream that is not lost, has no leader, or a member
            does not answer before the first removal.
          OutcomeUnknownError: as for :meth:`configure_spread_topic`; the same call again is harmless.
        """
        deadline = self._router.deadline(timeout)
        found = await self._topics.describe_spread_topic(check_topic(name), timeout=self._router.left(deadline))
        end = found.closed_at(as_whole(stream, "a stream"))
        behind = 1
        if end > 1 and not found.lost_at(stream) and not found.gone_at(stream):
            behind = await self._find_end(found, stream, end, deadline)
        request = RemoveStream(name=name, stream=stream, behind=behind)
        frame = await self._admin.ask_leader(request, "the stream is not removed", deadline=deadline)
        return spread_topic_info(frame.body["topic"])

    async def _find_end(self, found: SpreadTopicInfo, stream: int, end: int, deadline: float) -> int:
        """Return the position of the topic behind the last record of a sealed stream that keeps none.

        The newest run of a stream is never trimmed, so its group knows this position. A sealed stream that keeps no
        record never gets one, so the answer stays true. If another call removes the stream meanwhile, any later
        position will do.

        Raises RequestError if the stream keeps a record.
        """
        last = Receipt(Position(end - 1), Term(0), Index(0), 0, stream=stream)
        try:
            receipt = await self._positions.find_global_position(found.name, last, timeout=self._router.left(deadline))
            info = await self._streams.describe_stream(found.name, stream, timeout=self._router.left(deadline))
        except StreamSealedError:
            return found.next_position
        except UnavailableError as error:
            raise UnavailableError(
                f"stream {stream} of topic {found.name!r} was not removed, because its group does not say which records"
                f" it keeps: {error}",
                remedy=f"start the nodes of group {found.group_of(stream)}; if it never has a majority again, give the"
                f" stream up: viewstamp stream seal {found.name} {stream} --lost",
            ) from error
        assert receipt.global_position is not None, "it was found"
        behind = receipt.global_position + 1
        if info.first_position < end:
            raise RequestError(
                f"stream {stream} of topic {found.name!r} keeps {end - info.first_position} records, up to position"
                f" {behind - 1} of the topic; it was not removed",
                remedy=f"delete them first: viewstamp topic trim {found.name} --before {behind}; its group follows"
                " within a second or two",
            )
        return behind
