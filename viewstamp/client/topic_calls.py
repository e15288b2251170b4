"""A client's calls about the topics of group 0: their settings, descriptions and positions."""

from __future__ import annotations

from viewstamp.client.admin import Admin
from viewstamp.client.checks import as_staleness, as_whole
from viewstamp.client.results import (
    TopicInfo,
    topic_info,
)
from viewstamp.client.router import Router
from viewstamp.wire.archive_requests import ConfigureArchive
from viewstamp.wire.names import check_topic
from viewstamp.wire.requests import (
    ConfigureTopic,
    CreateTopic,
    DescribeTopic,
    FindTime,
    ListTopics,
    SplitTopic,
    TrimTopic,
)
from viewstamp.wire.schema import RequestBody

__all__ = ["TopicCalls"]


class TopicCalls:
    """Describes and changes topics. Appends no records."""

    def __init__(self, router: Router, admin: Admin) -> None:
        self._router = router
        self._admin = admin

    async def create_topic(
        self,
        name: str,
        *,
        retain_bytes: int = 0,
        retain_seconds: float = 0.0,
        archive: bool = False,
        archive_after_seconds: float | None = None,
        archive_delay_seconds: float | None = None,
        delete_after_seconds: float | None = None,
        timeout: float | None = None,
    ) -> TopicInfo:
        """Create a topic. If it exists with the same settings, return it as it is. Cancelled: it may be created.

        Example::

            topic = await client.create_topic("events", retain_bytes=64 * 2**20)

        Args:
          name: 1 to 128 letters, digits, dots, underscores or hyphens; the first is not a dot or a hyphen.
          retain_bytes: the oldest records are trimmed when the topic is larger than this; 0 = never.
          retain_seconds: records older than this are trimmed; 0 = never.
          archive: as the ages after it, see :meth:`configure_topic`.
          archive_after_seconds: the same.
          archive_delay_seconds: the same.
          delete_after_seconds: the same.
          timeout: seconds from now; None = the client's default.

        Raises:
          RequestError: the name or a setting is not allowed; with ``archive``, a member runs an older release.
          AccessDeniedError: access control is on, and the client lacks the right; ``archive`` needs an administrator.
          TopicExistsError: the topic exists with other settings; see :meth:`configure_topic`.
          UnavailableError: not created; try again.
          OutcomeUnknownError: it may have been created (``token`` is None); create it again, which is harmless.
        """
        as_whole(retain_bytes, "retain_bytes")
        ages = (archive_after_seconds, archive_delay_seconds, delete_after_seconds)
        request: RequestBody
        if archive or ages != (None, None, None):
            request = _archive_request(name, retain_bytes, retain_seconds, archive, ages, is_new=True)
        else:
            request = CreateTopic(name=check_topic(name), retain_bytes=retain_bytes, retain_seconds=retain_seconds)
        return await self._change_topic(request, timeout)

    async def configure_topic(
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
    ) -> TopicInfo:
        """Change the settings of a topic; None = unchanged. Records beyond the new limits are deleted at once.

        With the archive the retention deletes nothing: it says for how long the log keeps its copy of archived records.
        All ages are log time. Cancelled: the settings may be changed all the same.

        Example::

            await client.configure_topic("orders", archive=True, delete_after_seconds=90 * 86_400)

        Args:
          name: the topic's name.
          retain_bytes: as for :meth:`create_topic`.
          retain_seconds: the same.
          archive: whether the leader archives the topic by itself. Without it the three ages have no value.
          archive_after_seconds: records are archived when they are older than this; 0 = at any age.
          archive_delay_seconds: for so long the log keeps its copy too, from the commit of a run on; default one day.
          delete_after_seconds: archived records older than this are deleted, in whole runs; 0 = never.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnknownTopicError: no topic has this name.
          RequestError: a setting is not allowed; about the archive, a member runs an older release, or acknowledges
            before it syncs.
          UnavailableError, OutcomeUnknownError: as for :meth:`create_topic`; the same call again is harmless.
        """
        if retain_bytes is not None:
            as_whole(retain_bytes, "retain_bytes")
        ages = (archive_after_seconds, archive_delay_seconds, delete_after_seconds)
        request: RequestBody
        if (archive, *ages) != (None, None, None, None):
            request = _archive_request(name, retain_bytes, retain_seconds, archive, ages, is_new=False)
        else:
            request = ConfigureTopic(name=check_topic(name), retain_bytes=retain_bytes, retain_seconds=retain_seconds)
        return await self._change_topic(request, timeout)

    async def trim_topic(self, name: str, position: int, *, timeout: float | None = None) -> TopicInfo:
        """Delete all records of a topic before ``position``, for good. Does nothing if they are deleted already.

        Cancelled: the records may be deleted all the same.

        Raises:
          UnknownTopicError: no topic has this name.
          RequestError: the position is beyond the end of the topic.
          UnavailableError, OutcomeUnknownError: as for :meth:`create_topic`; the same call again is harmless.
        """
        request = TrimTopic(name=check_topic(name), position=as_whole(position, "the position to trim to"))
        return await self._change_topic(request, timeout)

    async def _change_topic(self, request: RequestBody, timeout: float | None) -> TopicInfo:
        if isinstance(request, ConfigureArchive):
            frame = await self._admin.ask_leader(request, "the topic was not changed", timeout=timeout)
        else:
            frame = await self._router.ask_leader(request, timeout)
        return topic_info(frame.body["topic"])

    async def describe_topic(
        self, name: str, *, stale: bool = False, max_staleness: float | None = None, timeout: float | None = None
    ) -> TopicInfo:
        """Describe a topic, by default linearizably.

        Args:
          name: the topic's name.
          stale: accept the state of any one node; ``age_seconds`` of the result bounds its age.
          max_staleness: accept the state of any one node that is at most this many seconds old. A node with an older
            state asks the leader, or the client asks another node. None = no limit.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnknownTopicError: no topic has this name.
          UnavailableError: no node, or none that is fresh enough, answered in time.
        """
        request = DescribeTopic(name=check_topic(name), **as_staleness(stale, max_staleness))
        frame = await self._router.ask(request, timeout)
        return topic_info(frame.body["topic"], frame.body["age"])

    async def list_topics(
        self, *, stale: bool = False, max_staleness: float | None = None, timeout: float | None = None
    ) -> list[TopicInfo]:
        """List all topics in the order of their creation. Otherwise as :meth:`describe_topic`."""
        frame = await self._router.ask(ListTopics(**as_staleness(stale, max_staleness)), timeout)
        return [topic_info(topic, frame.body["age"]) for topic in frame.body["topics"]]

    async def split_topic(
        self,
        topic: str,
        start: int,
        end: int,
        bytes: int,  # noqa: A002  # as on the wire
        *,
        timeout: float | None = None,
    ) -> list[int]:
        """Divide a range of positions into parts of about equal size, for readers that share the work.

        Args:
          topic: the topic's name.
          start: the first position.
          end: the position after the last one.
          bytes: the size of a part.
          timeout: seconds from now; None = the client's default.

        Returns:
          Rising positions from ``start`` to ``end``; each part reaches from one position up to the next.

        Raises:
          UnknownTopicError, RequestError: no such topic, or no such range in it.
          UnavailableError: no node answered in time.
        """
        frame = await self._router.ask(SplitTopic(name=topic, start=start, end=end, bytes=bytes), timeout)
        return [int(position) for position in frame.body["positions"]]

    async def find_time(self, topic: str, timestamp: int, *, timeout: float | None = None) -> int:
        """Return a position at or before the first record whose log time is ``timestamp`` or later.

        Args:
          topic: the topic's name.
          timestamp: microseconds since 1970.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnknownTopicError: no topic has this name.
          UnavailableError: no node answered in time.
        """
        request = FindTime(name=topic, timestamp=as_whole(timestamp, "the time to look for"))
        frame = await self._router.ask(request, timeout)
        return int(frame.body["position"])


def _archive_request(
    name: str,
    retain_bytes: int | None,
    retain_seconds: float | None,
    archive: bool | None,
    ages: tuple[float | None, float | None, float | None],
    *,
    is_new: bool,
) -> ConfigureArchive:
    """Return the request for settings of the archive; ``ages``: of archiving, of the log's copy, of deletion."""
    after, delay, delete = ages
    return ConfigureArchive(
        name=check_topic(name),
        retain_bytes=retain_bytes,
        retain_seconds=retain_seconds,
        is_on=archive,
        after_seconds=after,
        delay_seconds=delay,
        delete_seconds=delete,
        is_new=is_new,
    )
