"""A client's calls about spread topics: topics whose records are spread over streams of several groups."""

from __future__ import annotations

from collections.abc import Sequence

from viewstamp.client.admin import Admin
from viewstamp.client.checks import as_whole
from viewstamp.client.results import SpreadTopicInfo, spread_topic_info
from viewstamp.client.router import Router
from viewstamp.wire.names import check_topic
from viewstamp.wire.spread_requests import CreateSpreadTopic, DescribeSpreadTopic, ListSpreadTopics

__all__ = ["SpreadTopicCalls"]


class SpreadTopicCalls:
    """Creates and describes spread topics, in group 0."""

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
          RequestError: no group is established, a named group is not, a stream of this name exists, access control is
            on, or a member runs a release without spread topics or acknowledges before it syncs.
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
