"""Callers that wait until a record of a stream has a global position, and the handler of their request.

The record is committed already: its caller has the receipt. The global position is known here when the ORDER that gives
it is applied in group 0 on this node, or a CONTEXT that has it is applied in the group of the stream. Both are
committed, so the answer stays true, and a record that is appended after the answer gets a higher position.

| event | effect |
| --- | --- |
| the request, or its answer, is lost; the node or its leadership ends | the client sends it again, to the leader that \
it finds. It reads, so a second copy changes nothing |
| the report to the leader of group 0 is lost | it is made again in the next round (``ordering.py``), for as long as a \
caller waits |
| group 0 has no majority | the request waits, and is answered with nothing; the client asks again until its timeout |
| the caller goes, or its connection ends | its task is cancelled, and nobody waits any more |
| a client sends many | they count as requests that wait, of its connection and of the node (``crowd.py``) |
| the clock jumps | the wait is longer or shorter; the answer depends on no clock |
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from viewstamp.consensus.leader import not_leader
from viewstamp.errors import UnavailableError
from viewstamp.ids import GroupId, Position, Stream
from viewstamp.node.group import Group
from viewstamp.node.order_queries import OrderedRunsQuery
from viewstamp.node.service import Caller, in_a_task
from viewstamp.node.state_machine import TopicQuery
from viewstamp.wire.ordered_requests import WaitOrdered
from viewstamp.wire.ordering import GlobalRun

__all__ = ["OrderWaits", "is_leading"]

_RUNS_MAX = 256
"""The most runs in one answer."""


class OrderWaits:
    """The callers of a node that wait for global positions.

    Invariants:
      * a group is awaited as long as a caller waits for a record of it
    """

    def __init__(self, group: Group, hosted: Mapping[GroupId, Group]) -> None:
        """Begin without callers; ``group`` is group 0 of this node, ``hosted`` are all groups that are open here."""
        self._group = group
        self._hosted = hosted
        self._awaited: dict[GroupId, int] = {}
        """The number of callers for each group."""
        self._new: dict[GroupId, None] = {}
        """The groups that got a caller since the last :meth:`hurried`."""
        self._hurry = asyncio.Event()

    def is_awaited(self, group: GroupId) -> bool:
        """Return whether a caller waits for a record of a group."""
        return group in self._awaited

    def hurry(self) -> None:
        """Let :meth:`hurried` return."""
        self._hurry.set()

    async def hurried(self) -> list[Group]:
        """Wait for a new caller or a call of :meth:`hurry`; return the groups with new callers."""
        await self._hurry.wait()
        self._hurry.clear()
        new, self._new = self._new, {}
        return [self._hosted[group] for group in new if group in self._hosted]

    async def wait(self, stream: Stream, position: int, seconds: float) -> list[GlobalRun]:
        """Return the known runs with the records of a stream from ``position`` on; [] = not known after ``seconds``.

        Cancelled: nobody waits any more.

        Raises:
          UnavailableError: this node does not lead the group of the stream.
          UnknownTopicError: the group has no such stream.
        """
        hosted = self._hosted.get(stream.group)
        if hosted is None or not is_leading(hosted):
            raise _not_leading(hosted, stream)
        hosted.machine.query(TopicQuery(stream.name))
        found = self._find(hosted, stream, position)
        if found or not seconds:
            return found
        group = stream.group
        self._awaited[group] = self._awaited.get(group, 0) + 1
        self._new[group] = None
        self.hurry()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while not found:
                        await self._group.reading.wait_further()
                        found = self._find(hosted, stream, position)
        finally:
            self._awaited[group] -= 1
            if not self._awaited[group]:
                del self._awaited[group]
        return found

    def _find(self, hosted: Group, stream: Stream, position: int) -> list[GlobalRun]:
        """Return the runs as the applied states have them."""
        query = OrderedRunsQuery(stream, Position(position), _RUNS_MAX)
        return self._group.machine.query(query) or hosted.machine.query(query)


def is_leading(group: Group) -> bool:
    """Return whether this node leads a group, and its applied state has everything of earlier terms."""
    replica = group.replica
    return replica is not None and replica.is_leading and not group.failed.done()


def _not_leading(hosted: Group | None, stream: Stream) -> UnavailableError:
    if hosted is None or hosted.parts is None:
        return UnavailableError(f"group {stream.group} is not open on this node now", remedy="ask another node")
    return not_leader(hosted.parts.raft.core)


@in_a_task(WaitOrdered)
async def _wait_ordered(caller: Caller, request: int, asked: WaitOrdered) -> None:
    stream = Stream(caller.group.id, asked.stream)
    runs = await caller.service.order_waits.wait(stream, asked.position, asked.wait)
    caller.check(asked)
    caller.ok(request, {"runs": [[run.position, run.local, run.length] for run in runs]})
