"""What a client asks of the cluster about itself: its topics, snapshots and members."""

from __future__ import annotations

from viewstamp.client.checks import as_staleness, as_text, as_whole
from viewstamp.client.results import Members, SnapshotInfo, TopicInfo, members_of, snapshot_info, topic_info
from viewstamp.client.router import Router
from viewstamp.errors import NoQuorumError, RequestError, UnavailableError
from viewstamp.host.address import parse_address
from viewstamp.wire.frame import Frame
from viewstamp.wire.names import check_topic
from viewstamp.wire.requests import (
    ChangeMembership,
    ConfigureTopic,
    CreateSnapshot,
    CreateTopic,
    DescribeTopic,
    FindTime,
    ListSnapshots,
    ListTopics,
    SplitTopic,
    TransferLeadership,
    TrimTopic,
)
from viewstamp.wire.schema import RequestBody

__all__ = ["Admin"]


class Admin:
    """Looks at a cluster, and changes what it keeps and who belongs to it. Appends nothing."""

    def __init__(self, router: Router) -> None:
        self._router = router

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
        frame = await self._ask_member(CreateSnapshot(), node, timeout, is_slow=True)
        return snapshot_info(frame.body["snapshot"])

    async def list_snapshots(self, node: str | None = None, *, timeout: float | None = None) -> list[SnapshotInfo]:
        """List the snapshots on a member's disk, the newest first. As :meth:`create_snapshot` otherwise."""
        frame = await self._ask_member(ListSnapshots(), node, timeout)
        return [snapshot_info(snapshot) for snapshot in frame.body["snapshots"]]

    async def _ask_member(
        self, request: RequestBody, node: str | None, timeout: float | None, *, is_slow: bool = False
    ) -> Frame:
        """Ask a member, or the leader for None."""
        router = self._router
        deadline = router.deadline(timeout)
        if node is None:
            node, _ = await router.leader_status(deadline)
        seconds = router.left(deadline)
        _, frame = await router.ask_any(request, seconds=seconds, wait=seconds if is_slow else 0.0, node=node)
        return frame

    # Members.

    async def list_members(self, *, timeout: float | None = None) -> Members:
        """Return who belongs to the cluster, as its leader has it; a change that it began may not be committed yet.

        Raises:
          UnavailableError: nobody leads, or nobody answered in time.
        """
        _, status = await self._router.leader_status(self._router.deadline(timeout))
        return members_of(status["membership"])

    async def add_member(
        self, node: str, address: str, *, voter: bool = True, replaces: str = "", timeout: float | None = None
    ) -> Members:
        """Add a node as a learner; return when that is committed. A member already: it has moved to ``address``.

        The node is promoted by itself when it has caught up: :meth:`list_members` says when it is no longer
        ``joining``. Asking again for the same is harmless.

        Args:
          node: the name in its settings.
          address: where it listens, ``host:port``.
          voter: whether it becomes a voter; False = it stays a learner, which follows and has no vote.
          replaces: the voter whose place it takes when it is promoted; "" = beside the others.
          timeout: seconds from now; None = the client's default.

        Raises:
          RequestError: ``replaces`` is no voter, or ``node`` is one already.
          UnavailableError: not changed: nobody leads, or another change is under way.
          OutcomeUnknownError: perhaps changed (its ``token`` is None); ask again.
        """
        parse_address(as_text(address, "the address of a member"))
        action = "replace" if replaces else "add" if voter else "learn"
        return await self._change_members(action, node, address, replaces, timeout)

    async def remove_member(self, node: str, *, timeout: float | None = None) -> Members:
        """Remove a voter or a learner; return when that is committed. A leader that is removed hands over first.

        The node goes on running, and has no part in anything any more: stop it.

        Raises:
          RequestError: it is no member, or the last voter.
          UnavailableError, OutcomeUnknownError: as :meth:`add_member`.
        """
        before = await self.list_members(timeout=timeout)
        try:
            return await self._change_members("remove", node, "", "", timeout)
        except RequestError:
            try:
                now = await self.list_members(timeout=timeout)
            except UnavailableError as error:
                # An earlier copy of the request may have removed it: only the members could say.
                raise self._router.pool.unanswered("no node leads", is_unknown=True) from error
            if node in before.addresses and node not in now.addresses:
                return now  # It was asked for twice, because the first answer was lost.
            raise

    async def transfer_leadership(self, node: str | None = None, *, timeout: float | None = None) -> str:
        """Have the leader hand over to ``node``; return who leads. None = the voter that is closest to it.

        Raises:
          RequestError: it is no voter.
          UnavailableError: nobody leads, or the node did not take over; the old leader goes on.
          OutcomeUnknownError: the leader was lost meanwhile: ask who leads.
        """
        name = "" if node is None else as_text(node, "the name of a member")
        frame = await self._router.ask_leader(TransferLeadership(node=name), timeout)
        return str(frame.body["leader"])

    async def _change_members(
        self, action: str, node: str, address: str, replaces: str, timeout: float | None
    ) -> Members:
        request = ChangeMembership(
            action=action,
            node=as_text(node, "the name of a member"),
            address=address,
            replaces=as_text(replaces, "the name of a member"),
        )
        try:
            frame = await self._router.ask_leader(request, timeout)
        except UnavailableError as error:
            refusal = error.__cause__
            is_answered = not isinstance(error, NoQuorumError)
            if is_answered and isinstance(refusal, UnavailableError) and refusal.remedy:
                # The leader answered, each time: it knows what stands in the way.
                raise UnavailableError(f"the members are not changed: {refusal}", remedy=refusal.remedy) from error
            raise
        return members_of(frame.body["membership"])

    # Topics.

    async def create_topic(
        self, name: str, *, retain_bytes: int = 0, retain_seconds: float = 0.0, timeout: float | None = None
    ) -> TopicInfo:
        """Create a topic; one that is there already is fine, and is returned as it is.

        Args:
          name: 1 to 128 letters, digits, dots, underscores or hyphens, the first one no dot or hyphen.
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
        request = CreateTopic(name=check_topic(name), retain_bytes=retain_bytes, retain_seconds=retain_seconds)
        return await self._change_topic(request, timeout)

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
        request = ConfigureTopic(name=check_topic(name), retain_bytes=retain_bytes, retain_seconds=retain_seconds)
        return await self._change_topic(request, timeout)

    async def trim_topic(self, name: str, position: int, *, timeout: float | None = None) -> TopicInfo:
        """Drop all records of a topic before ``position``, for good. Where they are gone already, nothing happens.

        Raises:
          UnknownTopicError: no topic has this name.
          RequestError: the position is beyond the end of the topic.
          UnavailableError, OutcomeUnknownError: as :meth:`create_topic`; again is harmless.
        """
        request = TrimTopic(name=check_topic(name), position=as_whole(position, "the position to trim to"))
        return await self._change_topic(request, timeout)

    async def _change_topic(self, request: RequestBody, timeout: float | None) -> TopicInfo:
        frame = await self._router.ask_leader(request, timeout)
        return topic_info(frame.body["topic"])

    async def describe_topic(
        self, name: str, *, stale: bool = False, max_staleness: float | None = None, timeout: float | None = None
    ) -> TopicInfo:
        """Describe a topic: linearizably, or ``stale``: as the node that is asked has it, with its ``age_seconds``.

        Args:
          name: of the topic.
          stale: see above.
          max_staleness: stale, and at most so many seconds; a node that is not that fresh asks the leader, or is left
            for another one. None = however stale it is.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnknownTopicError: no topic has this name.
          UnavailableError: nobody answered in time, or nobody who is that fresh.
        """
        request = DescribeTopic(name=check_topic(name), **as_staleness(stale, max_staleness))
        frame = await self._router.ask(request, timeout)
        return topic_info(frame.body["topic"], frame.body["age"])

    async def list_topics(
        self, *, stale: bool = False, max_staleness: float | None = None, timeout: float | None = None
    ) -> list[TopicInfo]:
        """List all topics in the order of their creation. As :meth:`describe_topic` otherwise."""
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
        frame = await self._router.ask(SplitTopic(name=topic, start=start, end=end, bytes=bytes), timeout)
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
        request = FindTime(name=topic, timestamp=as_whole(timestamp, "the time to look for"))
        frame = await self._router.ask(request, timeout)
        return int(frame.body["position"])
