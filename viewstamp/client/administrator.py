"""What a client asks of the cluster about itself: its topics, sinks, snapshots and nodes."""

from __future__ import annotations

from typing import Any

from viewstamp.client.checks import as_seconds, as_whole
from viewstamp.client.results import SnapshotInfo, TopicInfo, snapshot_info, topic_info
from viewstamp.client.sender import Sender
from viewstamp.client.sink import SinkInfo, sink_info
from viewstamp.errors import UnavailableError
from viewstamp.wire.frame import Frame
from viewstamp.wire.requests import FrameKind

__all__ = ["Administrator"]


class Administrator(Sender):
    """The part of a client that looks at a cluster and changes what it keeps; appends nothing."""

    # Sinks.

    async def describe_sink(self, name: str, *, stale: bool = False, timeout: float | None = None) -> SinkInfo:
        """Describe a sink: what was committed last, and what is staged. As :meth:`describe_topic` otherwise.

        Raises:
          RequestError: no sink has this name.
          UnavailableError: nobody answered in time.
        """
        frame = await self._ask_any(FrameKind.DESCRIBE_SINK, {"name": name, "stale": stale}, timeout)
        return sink_info(frame.body["sink"])

    async def list_sinks(self, *, stale: bool = False, timeout: float | None = None) -> list[SinkInfo]:
        """List all sinks. As :meth:`describe_sink` otherwise."""
        frame = await self._ask_any(FrameKind.LIST_SINKS, {"stale": stale}, timeout)
        return [sink_info(sink) for sink in frame.body["sinks"]]

    async def forget_sink(self, name: str, *, timeout: float | None = None) -> None:
        """Forget which batches were committed to a sink, and drop what is staged for it. Records stay where they are.

        A batch that is committed again after this is written again: only for sinks that nobody writes to any more.

        Raises:
          RequestError: no sink has this name.
          UnavailableError: not forgotten; try again.
          OutcomeUnknownError: perhaps forgotten (its ``token`` is None).
        """
        await self.ask_leader(FrameKind.FORGET_SINK, {"name": name}, timeout)

    # Snapshots.

    async def create_snapshot(self, node: str | None = None, *, timeout: float | None = None) -> SnapshotInfo:
        """Have a member take a snapshot; return when it is durable. Writes go on meanwhile.

        Args:
          node: the member; None = the leader.
          timeout: seconds from now; None = the client's default. A large state takes longer.

        Raises:
          UnavailableError: not done in time; it may still be.
          RequestError: no such node.
        """
        self._start()
        end = self._shell.time() + as_seconds(timeout, self._options.timeout)
        node = node or await self._leader(end)
        seconds = max(0.0, end - self._shell.time())
        _, frame = await self._links.ask_any(FrameKind.CREATE_SNAPSHOT, {}, seconds=seconds, wait=seconds, node=node)
        return snapshot_info(frame.body["snapshot"])

    async def list_snapshots(self, node: str | None = None, *, timeout: float | None = None) -> list[SnapshotInfo]:
        """List the snapshots on a member's disk, the newest first. As :meth:`create_snapshot` otherwise."""
        self._start()
        end = self._shell.time() + as_seconds(timeout, self._options.timeout)
        node = node or await self._leader(end)
        seconds = max(0.0, end - self._shell.time())
        _, frame = await self._links.ask_any(FrameKind.LIST_SNAPSHOTS, {}, seconds=seconds, node=node)
        return [snapshot_info(snapshot) for snapshot in frame.body["snapshots"]]

    async def _leader(self, deadline: float) -> str:
        """Return the id of the member that leads, as a node says."""
        while True:
            seconds = max(0.0, deadline - self._shell.time())
            _, frame = await self._links.ask_any(FrameKind.STATUS, {}, seconds=seconds)
            leader = frame.body["status"].get("leader")
            if leader:
                return str(leader)
            if self._shell.time() + self._options.back_off_max >= deadline:
                raise UnavailableError("nobody leads", remedy="check that a majority of the nodes runs")
            await self._shell.sleep(self._options.back_off_max)

    async def _members(self) -> list[str]:
        return [str(status["id"]) for status in await self.status() if status["reachable"]]

    # Topics.

    async def create_topic(
        self, name: str, *, retain_bytes: int = 0, retain_seconds: float = 0.0, timeout: float | None = None
    ) -> TopicInfo:
        """Create a topic; one that is there already is fine, and is returned as it is.

        Args:
          name: 1 to 128 letters, digits, dots, underscores or hyphens.
          retain_bytes: beyond so many bytes the oldest records are trimmed by themselves; 0 = never.
          retain_seconds: records older than this are trimmed by themselves; 0 = never.
          timeout: seconds from now; None = the client's default.

        Raises:
          RequestError: the name, or the retention, is not allowed.
          TopicExistsError: it exists and keeps something else than is asked for here; see :meth:`configure_topic`.
          UnavailableError: not created; try again.
          OutcomeUnknownError: perhaps created (its ``token`` is None); create it again, which is harmless.
        """
        as_whole(retain_bytes, "retain_bytes")
        retention: dict[str, object] = {"retain_bytes": retain_bytes, "retain_seconds": retain_seconds}
        return await self._change_topic(FrameKind.CREATE_TOPIC, {"name": name, **retention}, timeout)

    async def configure_topic(
        self,
        name: str,
        *,
        retain_bytes: int | None = None,
        retain_seconds: float | None = None,
        timeout: float | None = None,
    ) -> TopicInfo:
        """Say what a topic keeps from now on; None = as it is. What is beyond that is trimmed at once.

        Raises:
          UnknownTopicError: no topic has this name.
          RequestError: the retention is not allowed.
          UnavailableError, OutcomeUnknownError: as :meth:`create_topic`; again is harmless.
        """
        if retain_bytes is not None:
            as_whole(retain_bytes, "retain_bytes")
        body: dict[str, object] = {"name": name, "retain_bytes": retain_bytes, "retain_seconds": retain_seconds}
        return await self._change_topic(FrameKind.CONFIGURE_TOPIC, body, timeout)

    async def trim_topic(self, name: str, position: int, *, timeout: float | None = None) -> TopicInfo:
        """Drop all records of a topic before ``position``, for good. Where they are gone already, nothing happens.

        Raises:
          UnknownTopicError: no topic has this name.
          RequestError: the position is beyond the end of the topic.
          UnavailableError, OutcomeUnknownError: as :meth:`create_topic`; again is harmless.
        """
        body: dict[str, object] = {"name": name, "position": as_whole(position, "the position to trim to")}
        return await self._change_topic(FrameKind.TRIM_TOPIC, body, timeout)

    async def _change_topic(self, kind: FrameKind, body: dict[str, object], timeout: float | None) -> TopicInfo:
        frame = await self.ask_leader(kind, body, timeout)
        return topic_info(frame.body["topic"])

    async def describe_topic(self, name: str, *, stale: bool = False, timeout: float | None = None) -> TopicInfo:
        """Describe a topic: linearizably, or ``stale``: as the node that is asked has it.

        Raises:
          UnknownTopicError: no topic has this name.
          UnavailableError: nobody answered in time.
        """
        frame = await self._ask_any(FrameKind.DESCRIBE_TOPIC, {"name": name, "stale": stale}, timeout)
        return topic_info(frame.body["topic"])

    async def list_topics(self, *, stale: bool = False, timeout: float | None = None) -> list[TopicInfo]:
        """List all topics in the order of their creation. As :meth:`describe_topic` otherwise."""
        frame = await self._ask_any(FrameKind.LIST_TOPICS, {"stale": stale}, timeout)
        return [topic_info(topic) for topic in frame.body["topics"]]

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
          topic: its name.
          start: the first position.
          end: the position after the last one.
          bytes: the size of a part.
          timeout: seconds from now; None = the client's default.

        Returns:
          Rising positions, the first is ``start`` and the last ``end``; each part is from one up to the next.

        Raises:
          UnknownTopicError, RequestError: no such topic, or no such range in it.
          UnavailableError: nobody answered in time.
        """
        body: dict[str, object] = {"name": topic, "start": start, "end": end, "bytes": bytes}
        frame = await self._ask_any(FrameKind.SPLIT_TOPIC, body, timeout)
        return [int(position) for position in frame.body["positions"]]

    async def find_time(self, topic: str, timestamp: int, *, timeout: float | None = None) -> int:
        """Return a position that is at or before the first record of a log time or later.

        Args:
          topic: its name.
          timestamp: microseconds since 1970.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnknownTopicError: no topic has this name.
          UnavailableError: nobody answered in time.
        """
        body: dict[str, object] = {"name": topic, "timestamp": as_whole(timestamp, "the time to look for")}
        frame = await self._ask_any(FrameKind.FIND_TIME, body, timeout)
        return int(frame.body["position"])

    # Nodes.

    async def _ask_any(self, kind: FrameKind, body: dict[str, object], timeout: float | None) -> Frame:
        """Ask any node, until one answers."""
        self._start()
        _, frame = await self._links.ask_any(kind, body, seconds=as_seconds(timeout, self._options.timeout))
        return frame

    async def status(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return each known node's own status map, with ``reachable`` True; of the others ``address`` and the reason.

        Members that are named by a node that answers are asked too. Never raises for nodes that are away.
        """
        self._start()
        return await self._links.status(
            min(as_seconds(timeout, self._options.timeout), self._options.connect_timeout + self._options.silence)
        )
