"""A client's calls about spread topics: topics whose records are spread over streams of several groups."""

from __future__ import annotations

from collections.abc import Sequence

from viewstamp.client.admin import Admin
from viewstamp.client.checks import as_whole
from viewstamp.client.results import SpreadTopicInfo, spread_topic_info
from viewstamp.client.router import Router
from viewstamp.wire.names import check_topic
from viewstamp.wire.schema import RequestBody
from viewstamp.wire.spread_requests import (
    AddStream,
    ConfigureSpreadArchive,
    ConfigureSpreadTopic,
    CreateSpreadTopic,
    DescribeSpreadTopic,
    ListSpreadTopics,
    SealStream,
    TrimSpreadTopic,
)

__all__ = ["SpreadTopicCalls"]


class SpreadTopicCalls:
    """Creates, configures, trims and describes spread topics, in group 0."""

    def __init__(self, router: Router, admin: Admin) -> None:
        self._router = router
        self._admin = admin

    async def create_spread_topic(
        self,
        name: str,
        streams: int,
        *,
        groups: Sequence[int] = (),
        retain_bytes: int = 0,
        retain_seconds: float = 0.0,
        timeout: float | None = None,
    ) -> SpreadTopicInfo:
        """Create a topic whose records are spread over streams. Returns when its record is committed.

        The leader of each group then creates its streams. A topic cannot be removed, and its streams stay in their
        groups. The same call again finds the topic, by its name. Cancelled: it may be created all the same.

        Example::

            topic = await client.create_spread_topic("parcels", 4)

        Args:
          name: as for :meth:`create_topic`, and shorter by the number of the last stream, for example ``.4``. No topic
            of the cluster has the name.
          streams: 1 to 256 streams; about as many as there are groups.
          groups: the ids of the groups of the streams, in turns, at most one for each stream; () = each stream goes to
            the established group with the fewest streams.
          retain_bytes: the oldest records of a stream are trimmed when it is larger than this; 0 = never.
          retain_seconds: records older than this are trimmed; 0 = never.
          timeout: seconds from now; None = the client's default.

        Raises:
          TopicExistsError: the topic exists with other settings, or a topic without streams has the name.
          RequestError: no group is established, a named group is not, a stream of this name exists, or a
            member runs a release without spread topics or acknowledges before it syncs.
          UnavailableError: not created; there is no leader, or a member does not answer.
          OutcomeUnknownError: it may have been created (``token`` is None); call again, which is harmless.
        """
        request = CreateSpreadTopic(
            name=check_topic(name),
            streams=as_whole(streams, "a number of streams"),
            groups=[as_whole(group, "the id of a group") for group in groups],
            retain_bytes=as_whole(retain_bytes, "retain_bytes"),
            retain_seconds=retain_seconds,
        )
        frame = await self._admin.ask_leader(request, "the topic is not created", timeout=timeout)
        return spread_topic_info(frame.body["topic"])

    async def configure_spread_topic(
        self,
        name: str,
        *,
        retain_bytes: int | None = None,
        retain_seconds: float | None = None,
        archive: bool | None = None,
        archive_after_seconds: float | None = None,
        archive_delay_seconds: float | None = None,
        delete_after_seconds: float | None = None,
        timeout: float | None = None,
    ) -> SpreadTopicInfo:
        """Change the retention and the archive of each stream of a spread topic; None = unchanged.

        Returns when the record of it is committed. The leader of each group then configures its streams, which trims
        the records beyond the new limits: see :meth:`describe_stream`. The limits are those of each stream, so the
        topic keeps up to ``retain_bytes`` times the number of its streams. The same call again is harmless.
        Cancelled: the retention may be changed all the same.

        Example::

            topic = await client.configure_spread_topic("parcels", retain_bytes=64 * 2**20)

        Args:
          name: the topic's name.
          retain_bytes: as for :meth:`create_spread_topic`.
          retain_seconds: the same.
          archive: whether the leader of each group archives its streams by itself. The retention deletes nothing then.
          archive_after_seconds: as for :meth:`configure_topic`.
          archive_delay_seconds: the same.
          delete_after_seconds: the same; each stream deletes whole runs of its own.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnknownTopicError: no spread topic has this name.
          RequestError: the retention is not allowed, another call has changed it meanwhile, or a member runs a release
            without such changes.
          UnavailableError: not changed; there is no leader, or a member does not answer before the first such change.
          OutcomeUnknownError: it may have been changed (``token`` is None); call again.
        """
        if retain_bytes is not None:
            as_whole(retain_bytes, "retain_bytes")
        deadline = self._router.deadline(timeout)
        before = await self.describe_spread_topic(name, timeout=self._router.left(deadline))
        request: RequestBody = ConfigureSpreadTopic(
            name=name, retain_bytes=retain_bytes, retain_seconds=retain_seconds, since=before.configured
        )
        ages = (archive_after_seconds, archive_delay_seconds, delete_after_seconds)
        if (archive, *ages) != (None, None, None, None):
            request = ConfigureSpreadArchive(
                name=name,
                since=before.configured,
                retain_bytes=retain_bytes,
                retain_seconds=retain_seconds,
                is_on=archive,
                after_seconds=archive_after_seconds,
                delay_seconds=archive_delay_seconds,
                delete_seconds=delete_after_seconds,
            )
        frame = await self._admin.ask_leader(request, "the topic is not changed", deadline=deadline)
        return spread_topic_info(frame.body["topic"])

    async def trim_spread_topic(self, name: str, before: int, *, timeout: float | None = None) -> SpreadTopicInfo:
        """Delete all records of a spread topic below the global position ``before``, for good.

        Returns when the record of it is committed. The leader of each group then trims its streams, as soon as they
        know the global positions of their records. It does nothing if these records are deleted already, so the same
        call again is harmless. Cancelled: the records may be deleted all the same.

        Raises:
          UnknownTopicError: no spread topic has this name.
          RequestError: the position is beyond the ordered records of the topic, or a member runs a release without
            such changes.
          UnavailableError, OutcomeUnknownError: as for :meth:`configure_spread_topic`; the same call again is harmless.
        """
        request = TrimSpreadTopic(name=check_topic(name), position=as_whole(before, "the global position to trim to"))
        frame = await self._admin.ask_leader(request, "the topic is not trimmed", timeout=timeout)
        return spread_topic_info(frame.body["topic"])

    async def seal_stream(
        self, name: str, stream: int, *, into: int | None = None, timeout: float | None = None
    ) -> SpreadTopicInfo:
        """End a stream of a spread topic: later records of its keys go to another stream of the topic.

        Returns when the beginning of the end is committed; the stream is closing then, and sealed within about a second
        if its group and group 0 have a majority: see ``closed`` of :meth:`describe_spread_topic`. Appends to the stream
        wait for this, and go to the other one. The records of each key keep their order, in the order of the topic's
        positions. The records of the stream stay where they are, and can be read as before. There is no way back.
        The same call again is harmless. Cancelled: the stream may be ended all the same.

        Args:
          name: the topic.
          stream: the number of the stream.
          into: the stream that gets its keys; None = the open one with the fewest slots.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnknownTopicError: no spread topic has this name.
          RequestError: there is no such stream, it is the last open one, ``into`` is not open, the stream ends into
            another one already, or a member runs a release without such changes.
          UnavailableError, OutcomeUnknownError: as for :meth:`configure_spread_topic`; the same call again is harmless.
        """
        request = SealStream(
            name=check_topic(name), stream=as_whole(stream, "a stream"), into=as_whole(into or 0, "a stream")
        )
        frame = await self._admin.ask_leader(request, "the stream is not ended", timeout=timeout)
        return spread_topic_info(frame.body["topic"])

    async def add_stream(
        self, name: str, *, stream: int | None = None, group: int | None = None, timeout: float | None = None
    ) -> SpreadTopicInfo:
        """Add a stream to a spread topic. Returns when the record of it is committed.

        The leader of the group then creates the stream. It has no slots, so the keys of all records stay in their
        streams: it gets records without a key, those of appends that name it, and the slots of a stream that ends into
        it (:meth:`seal_stream`). Readers that run go on, and read it too. Cancelled: it may be added all the same.

        Example::

            topic = await client.add_stream("parcels")
            await client.seal_stream("parcels", 2, into=topic.streams)

        Args:
          name: the topic.
          stream: the number of the new stream, one more than the topic has, so that the same call again finds it;
            None = the next one, so that the same call again may add another one.
          group: the id of its group; None = the established one with the fewest streams.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnknownTopicError: no spread topic has this name.
          RequestError: the group is not established, the number is not the next one, the stream is in another group
            than ``group``, there are too many streams, or a member runs a release without such changes.
          UnavailableError, OutcomeUnknownError: as for :meth:`configure_spread_topic`.
        """
        deadline = self._router.deadline(timeout)
        if stream is None:
            stream = (await self.describe_spread_topic(name, timeout=self._router.left(deadline))).streams + 1
        request = AddStream(name=check_topic(name), stream=as_whole(stream, "a stream"), group=group or 0)
        frame = await self._admin.ask_leader(request, "no stream is added", deadline=deadline)
        return spread_topic_info(frame.body["topic"])

    async def describe_spread_topic(
        self, name: str, *, stale: bool = False, timeout: float | None = None
    ) -> SpreadTopicInfo:
        """Describe a spread topic, by default linearizably; ``stale`` = as any one node has it.

        A node that lags does not know a new topic yet. If it knows the topic, its groups are those of all nodes.

        Raises:
          UnknownTopicError: no spread topic has this name.
          UnavailableError: no node answered in time.
        """
        frame = await self._router.ask(DescribeSpreadTopic(name=check_topic(name), stale=stale), timeout)
        return spread_topic_info(frame.body["topic"], frame.body["age"], order=frame.body)

    async def list_spread_topics(self, *, stale: bool = False, timeout: float | None = None) -> list[SpreadTopicInfo]:
        """List the spread topics, in the order of their creation. Otherwise as :meth:`describe_spread_topic`."""
        frame = await self._router.ask(ListSpreadTopics(stale=stale), timeout)
        return [spread_topic_info(topic, frame.body["age"]) for topic in frame.body["topics"]]
