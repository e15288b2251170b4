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
| an append says that its caller will ask (``AppendBatch.ordered``) | the report is made when the append is applied, \
and not a round trip later. If nobody asks, an ORDER is early, and nothing else |
| an ORDER or a CONTEXT is applied, or a snapshot that may have some | those that wait look again, in the next turn |
| group 0 has no majority | the request waits, and is answered with nothing; the client asks again until its timeout |
| the caller goes, or its connection ends | its task is cancelled, and nobody waits any more |
| the record is trimmed, and the map of its stream had it | TrimmedError at once. One that was trimmed before it was \
ordered gets a position still, so its caller waits |
| a client sends many | they count as requests that wait, of its connection and of the node (``crowd.py``) |
| the clock jumps | the wait is longer or shorter; the answer depends on no clock |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from viewstamp.consensus.leader import not_leader
from viewstamp.errors import TrimmedError, UnavailableError
from viewstamp.ids import GROUP_0, GroupId, Position, Stream, name_of
from viewstamp.node.applier import resolve
from viewstamp.node.group import Group
from viewstamp.node.order_queries import OrderedRunsQuery, StreamReportsQuery
from viewstamp.node.reading import Reading
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
      * at most one call of ``hasten`` is planned
    """

    def __init__(self, group: Group, hosted: Mapping[GroupId, Group]) -> None:
        """Begin without callers; ``group`` is group 0 of this node, ``hosted`` are all groups that are open here."""
        self._group = group
        self._hosted = hosted
        self._awaited: dict[GroupId, int] = {}
        """The number of callers for each group."""
        self._new: dict[GroupId, None] = {}
        """The groups that got a caller, or a record whose caller will ask, since the last :meth:`take_new`."""
        self._looking: dict[GroupId, dict[asyncio.Future[None], None]] = {GROUP_0: {}}
        """By group, those that look again when its state may know more global positions."""
        self._expected: dict[GroupId, int] = {}
        """The applied index of a group in the last :meth:`expect`."""
        self._is_planned = False
        self.hasten: Callable[[], None] = _nothing
        """Reports and orders what is awaited; the ordering of the node sets it."""

    def is_awaited(self, group: GroupId) -> bool:
        """Return whether a caller waits for a record of a group."""
        return group in self._awaited

    def expect(self, group: GroupId) -> None:
        """Have a group reported at once: it has applied a record whose caller will ask for the global position."""
        if (hosted := self._hosted.get(group)) is not None:
            self._expected[group] = hosted.applied_index
        self._new[group] = None
        self.hurry()

    def expect_commit(self, group: GroupId) -> None:
        """Let the node that leads group 0 find the commit of the records that were just proposed here.

        It can if it is a member of their group. Then it orders them without a report.
        """
        replica, hosted = self._group.replica, self._hosted.get(group)
        core = replica.raft.core if replica is not None else None
        leader = core.leader if core is not None and core.leader != core.me else None
        if leader is not None and hosted is not None and hosted.replica is not None:
            hosted.replica.tell_durable_end(frozenset((name_of(leader),)))

    def hurry(self) -> None:
        """Call ``hasten`` in the next turn of the event loop, once for all that hurry in this one."""
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._hasten)

    def _hasten(self) -> None:
        self._is_planned = False
        self.hasten()

    def take_new(self) -> list[Group]:
        """Return the groups with new callers, once."""
        new, self._new = self._new, {}
        return [self._hosted[group] for group in new if group in self._hosted]

    def on_order(self, group: GroupId) -> None:
        """Let those look again that wait for what the state of a group knows."""
        for future in self._looking.get(group, ()):
            resolve(future)

    async def wait_moved(self, group: GroupId, *, further: Reading | None = None) -> None:
        """Wait until more global positions of a group's streams may be known here: in group 0, or in the group.

        ``further``: also until this reader's group applies any record. Cancelled: nobody waits any more.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        give_up = further.call_further(lambda: resolve(future)) if further is not None else _nothing
        both = [self._looking.setdefault(each, {}) for each in (GROUP_0, group)]
        for looking in both:
            looking[future] = None
        try:
            await future
        finally:
            give_up()
            for looking in both:
                del looking[future]

    async def wait(self, stream: Stream, position: int, seconds: float, *, expects: bool = False) -> list[GlobalRun]:
        """Return the known runs with the records of a stream from ``position`` on; [] = not known after ``seconds``.

        Nothing is hastened for a caller that ``expects`` the records, because their append will do that.
        Cancelled: nobody waits any more.

        Raises:
          UnavailableError: this node does not lead the group of the stream.
          UnknownTopicError: the group has no such stream.
          TrimmedError: the record is deleted, and so is its run. Not raised for a caller that ``expects``.
        """
        hosted = self._hosted.get(stream.group)
        if hosted is None or not is_leading(hosted):
            raise _not_leading(hosted, stream)
        topic = hosted.machine.query(TopicQuery(stream.name))
        found = self._find(hosted, stream, position)
        if not (found or expects) and position < topic["first_position"]:
            _check_mapped(hosted, stream, position, topic["first_position"])
        if found or not seconds:
            return found
        group = stream.group
        if not expects:
            self._awaited[group] = self._awaited.get(group, 0) + 1
            if self._expected.get(group) != hosted.applied_index:  # Otherwise all of it was reported already.
                self._new[group] = None
                self.hurry()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while not found:
                        await self.wait_moved(group)
                        found = self._find(hosted, stream, position)
        finally:
            if not expects:
                self._awaited[group] -= 1
                if not self._awaited[group]:
                    del self._awaited[group]
        return found

    def _find(self, hosted: Group, stream: Stream, position: int) -> list[GlobalRun]:
        """Return the runs as the applied states have them."""
        query = OrderedRunsQuery(stream, Position(position), _RUNS_MAX)
        return self._group.machine.query(query) or hosted.machine.query(query)


def _check_mapped(hosted: Group, stream: Stream, position: int, first: int) -> None:
    """Raise TrimmedError if a trimmed record was ordered, so that its global position is never known again."""
    reports = hosted.machine.query(StreamReportsQuery(stream.group))
    if any(each.stream == stream and position < each.mapped for each in reports):
        raise TrimmedError(
            f"position {position} of {stream.name!r} has been trimmed, and its global position is not kept; the stream"
            f" begins at {first}",
            first=first,
            remedy="nothing needs the position: the record cannot be read any more",
        )


def _nothing() -> None:
    """Do nothing: no part orders, or nothing has to be given up."""


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
    runs = await caller.service.order_waits.wait(stream, asked.position, asked.wait, expects=asked.expects)
    caller.check(asked)
    caller.ok(request, {"runs": [[run.position, run.local, run.length] for run in runs]})
