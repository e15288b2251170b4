"""A client's calls about the archives of topics with streams: each stream is archived by the leader of its group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from viewstamp.client.admin import Admin
from viewstamp.client.archive_calls import ANSWER_SECONDS, done_part
from viewstamp.client.audit_notes import note_in_group
from viewstamp.client.checks import as_whole
from viewstamp.client.groups import Groups
from viewstamp.client.results import SpreadTopicInfo
from viewstamp.client.runs import RunInfo, run_info
from viewstamp.client.runtime import Runtime
from viewstamp.client.spread_topics import SpreadTopicCalls
from viewstamp.client.streams import StreamCalls
from viewstamp.errors import UnavailableError
from viewstamp.ids import GroupId
from viewstamp.wire.archive_requests import ArchiveTopic, CheckRun, FindOrphans, ListRuns
from viewstamp.wire.schema import RequestBody
from viewstamp.wire.token_requests import ARCHIVE_RUN, REMOVE_ORPHANS

__all__ = ["StreamArchiveCalls", "StreamRunInfo"]

_PAUSE_SECONDS = 0.2
"""Time between two requests while the group does not know all global positions yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRunInfo(RunInfo):
    """A run of archived records of a stream; ``topic`` is the topic with streams, positions are those of the stream.

    Attributes:
      stream: the number of the stream.
      group: the id of its group. Ids of runs are unique within one group only.
      first_global: the position in the topic of its first record; 0 until it is committed.
      last_global: that of its last record. Records of other streams are in between.
    """

    stream: int
    group: int
    first_global: int = 0
    last_global: int = 0


class StreamArchiveCalls:
    """Archives topics with streams on request, and describes the runs of their streams, in their groups."""

    def __init__(self, runtime: Runtime, groups: Groups, topics: SpreadTopicCalls, streams: StreamCalls) -> None:
        self._runtime = runtime
        self._groups = groups
        self._topics = topics
        self._streams = streams

    async def archive_spread_topic(
        self, name: str, before: int | None = None, *, delay: float | None = None, timeout: float | None = None
    ) -> dict[int, int]:
        """Write the records of a topic with streams into the archive, each stream by the leader of its group.

        Returns for each stream that was not removed, by its number, the position in it up to which, exclusive, its kept
        records are in committed runs. Only records with a position in the topic are archived. The same call again goes
        on where the last one ended. Cancelled or timed out: the leaders go on.

        Example::

            ends = await client.archive_spread_topic("parcels", timeout=600)

        Args:
          name: the topic.
          before: archive the records before this position in the topic; None = all that have a position now.
          delay: as for :meth:`archive_topic`.
          timeout: seconds from now; None = the client's default.

        Raises: as :meth:`archive_topic`.
        """
        deadline = self._groups.group_0.router.deadline(timeout)
        if before is not None:
            as_whole(before, "a position")
        topic = await self._topics.describe_spread_topic(name, timeout=self._left(deadline))
        streams = topic.kept_streams
        return {each: await self._archive(topic, each, before or 0, delay, deadline) for each in streams}

    async def _archive(
        self, topic: SpreadTopicInfo, stream: int, before: int, delay: float | None, deadline: float
    ) -> int:
        """Archive one stream, and return its archived end."""
        name, end, group = topic.topic_of(stream), topic.ordered_ends[stream - 1], topic.group_of(stream)
        if end <= 1:
            return 1
        noted = await note_in_group(self._groups.group_0.router, group, ARCHIVE_RUN, name, self._left(deadline))
        kept = None if delay is None else float(delay)
        request = ArchiveTopic(name=name, end=end, delay=kept, before=before, noted=noted)
        late = f"stream {stream} of topic {topic.name!r} is not archived yet"
        while True:
            body = await self._await_job(group, request, deadline, late)
            if body["mapped_end"] >= end:
                return int(body["archived_end"])
            if self._left(deadline) <= 0:
                raise UnavailableError(
                    f"{late}: its group does not know the positions of all records in the topic",
                    remedy="call again; see whether group 0 has a majority",
                )
            await self._runtime.sleep(_PAUSE_SECONDS)

    async def list_stream_runs(self, topic: str = "", *, timeout: float | None = None) -> list[StreamRunInfo]:
        """List the known runs of the streams of a topic with streams, or of all such topics, by topic and stream.

        If access control is on, these are the runs of the topics that the client may read.

        Example::

            for run in await client.list_stream_runs("parcels"):
                print(run.stream, run.first_position, run.last_position, run.first_global)

        Raises:
          UnknownTopicError: no spread topic has this name.
          UnavailableError: no node of a group that has a leader answered in time.
        """
        deadline = self._groups.group_0.router.deadline(timeout)
        if topic:
            topics = [await self._topics.describe_spread_topic(topic, timeout=self._left(deadline))]
        else:
            topics = await self._topics.list_spread_topics(timeout=self._left(deadline))
        names = {
            (each.group_of(stream), each.topic_of(stream)): (each.name, stream)
            for each in topics
            for stream in each.kept_streams
        }
        found: list[StreamRunInfo] = []
        for group in sorted({group for group, _ in names}):
            with self._groups.call(group) as parts:
                parts.router.start()
                frame = await parts.router.ask(ListRuns(), deadline=deadline)
            for run in frame.body["runs"]:
                if (group, run["topic"]) in names:
                    found.append(_stream_run(run, group, *names[group, run["topic"]]))
        return sorted(found, key=lambda run: (run.topic, run.stream, run.first_position, run.id))

    async def check_stream_run(self, group: int, run: int, *, timeout: float | None = None) -> str:
        """Read the file of a committed run of a stream; as :meth:`check_run`. ``group`` is that of the run.

        Raises: as :meth:`check_run`.
        """
        deadline = self._groups.group_0.router.deadline(timeout)
        request = CheckRun(run=as_whole(run, "the id of a run"))
        return str(
            (await self._await_job(GroupId(group), request, deadline, f"run {run} is not checked yet"))["damage"]
        )

    async def find_stream_orphans(
        self, group: int, *, remove: bool = False, timeout: float | None = None
    ) -> dict[int, int]:
        """Return the files of a group in the archive that belong to no run; as :meth:`find_orphans`.

        Raises: as :meth:`find_orphans`.
        """
        deadline = self._groups.group_0.router.deadline(timeout)
        noted = 0
        if remove:
            router, seconds = self._groups.group_0.router, self._left(deadline)
            noted = await note_in_group(router, GroupId(group), REMOVE_ORPHANS, "remove", seconds)
        request = FindOrphans(remove=remove, noted=noted)
        return dict(
            (await self._await_job(GroupId(group), request, deadline, "the archive is not listed yet"))["orphans"]
        )

    def _left(self, deadline: float) -> float:
        return self._groups.group_0.router.left(deadline)

    async def _await_job(self, group: GroupId, request: RequestBody, deadline: float, late: str) -> Mapping[str, Any]:
        """Send a request again until the leader of a group has done its work. Raises UnavailableError ``late``."""
        while True:
            with self._groups.call(group) as parts:
                parts.router.start()
                frame = await Admin(parts.router).ask_leader(request, late, deadline=deadline)
            body: Mapping[str, Any] = frame.body
            if not body["is_running"]:
                return body
            if self._left(deadline) <= ANSWER_SECONDS:
                raise UnavailableError(
                    f"{late}{done_part(body)}; the leader goes on", remedy="call again, with a longer timeout"
                )


def _stream_run(run: Mapping[str, Any], group: GroupId, topic: str, stream: int) -> StreamRunInfo:
    plain = run_info(run)
    values = {name: getattr(plain, name) for name in RunInfo.__dataclass_fields__}
    first, end = run.get("first_global", 0), run.get("end_global", 1)
    return StreamRunInfo(
        **{**values, "topic": topic}, stream=stream, group=group, first_global=first, last_global=end - 1
    )
