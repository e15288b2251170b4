"""The streams of spread topics: the leader of a group creates those that group 0 has and the group lacks.

A stream is a topic in the state of its group. Only the leader of the group creates it, by a CREATE_TOPIC that it
proposes itself, from the applied state of group 0 on its node. Clients must not, because a forged or old request would
create a stream that group 0 does not have.

| event | effect |
| --- | --- |
| the leader of a group changes, or dies before its record is committed | the next leader finds the stream missing |
| the record is lost because the leader stops leading | the next leader proposes it, or this one when it leads again |
| two records for one stream | the second one finds the topic |
| the leader's node lags behind group 0, or replays its log | it creates the stream when it has applied the record |
| the log of the group is full, or the leader is overloaded | it tries again after 0.5 s |
| a snapshot of group 0 is adopted | as if its records were applied |
| the clock jumps | nothing depends on it |

So nothing here is remembered: each look compares the two states again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

import msgpack

from viewstamp.errors import UnknownTopicError, ViewstampError
from viewstamp.host.logger import Logger
from viewstamp.ids import GROUP_0, GroupId
from viewstamp.node.group import Group
from viewstamp.node.state_machine import Result, SpreadTopicsQuery, TopicQuery
from viewstamp.wire.batch import Batch, Kind, build_batch

__all__ = ["StreamTopics"]

_REPEAT_SECONDS = 0.5


class StreamTopics:
    """Creates the streams that are missing in the groups which this node leads.

    Invariants:
      * a stream is proposed only while it is in the applied state of group 0, and missing in that of its group
    """

    def __init__(self, group: Group, hosted: Mapping[GroupId, Group], log: Logger) -> None:
        """Prepare; nothing is proposed before :meth:`look`.

        Args:
          group: group 0 of this node.
          hosted: all groups of this node.
          log: the logger of the node.
        """
        self._group = group
        self._hosted = hosted
        self._logger = log
        self._proposed: set[tuple[GroupId, str]] = set()
        """The streams whose record is not answered yet."""
        self._again: asyncio.TimerHandle | None = None
        self._is_stopping = False

    def look(self) -> None:
        """Propose what is missing. Called after each change of a role and of the state of group 0. Never awaits."""
        if self._is_stopping or self._group.parts is None:
            return
        topics = self._group.machine.query(SpreadTopicsQuery())
        for group in self._hosted.values() if topics else ():
            if group.id == GROUP_0 or group.replica is None or not group.replica.is_leading:
                continue
            for topic in topics:
                for stream in topic.streams_of(group.id):
                    if (group.id, stream) not in self._proposed and _is_missing(group, stream):
                        self._propose(group, stream, _record(stream, topic.retain_bytes, topic.retain_seconds))

    def stop(self) -> None:
        """Propose nothing more. Idempotent."""
        self._is_stopping = True
        if self._again is not None:
            self._again.cancel()

    def _propose(self, group: Group, stream: str, record: Batch) -> None:
        self._proposed.add((group.id, stream))
        try:
            group.propose(record, partial(self._on_answer, group.id, stream))
        except ViewstampError as error:
            self._on_answer(group.id, stream, error)

    def _on_answer(self, group: GroupId, stream: str, answer: Result | ViewstampError) -> None:
        self._proposed.discard((group, stream))
        if not isinstance(answer, ViewstampError):
            self._logger.info("= stream created", group=group, stream=stream)
            return
        self._logger.warning("! stream not created", group=group, stream=stream, error=str(answer))
        if self._again is None and not self._is_stopping:
            self._again = asyncio.get_running_loop().call_later(_REPEAT_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._again = None
        self.look()


def _is_missing(group: Group, stream: str) -> bool:
    """Return whether the applied state of a group lacks a topic."""
    try:
        group.machine.query(TopicQuery(stream))
    except UnknownTopicError:
        return True
    return False


def _record(stream: str, retain_bytes: int, retain_seconds: float) -> Batch:
    settings = {"name": stream, "retain_bytes": retain_bytes, "retain_seconds": retain_seconds}
    return build_batch([msgpack.packb(settings)], kind=Kind.CREATE_TOPIC)
