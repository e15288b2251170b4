"""The ordering of streams: the effects of a node that leads a group of streams, or group 0.

The rules are in ``streams/order.py`` and ``streams/stream_map.py``; both are asked as queries. A round is made every
0.25 s. It decides by applied states only, so everything in it is committed, and remembers nothing that is not known
again after a restart.
A caller that waits for a global position (``order_waits.py``) hastens it: the reports of its group are sent, and ORDER
is appended, at once. While an ORDER is on its way the reports gather for the next one.

| this node leads | in a round it |
| --- | --- |
| a group with streams | reports the ends that would change the order in its own state of group 0 to the leader of \
group 0; every second it appends a CONTEXT with the runs that a stream's log lacks |
| group 0 | appends an ORDER with the newest reports, if that would change anything, and none is on its way |

| event | effect |
| --- | --- |
| a report is lost, or its receiver does not lead, or dies | it is made again in the next round, also for callers |
| it is late or doubled | no effect, because a report is true for ever |
| the leader of a group changes | the next one reports, perhaps less: no effect |
| an ORDER or a CONTEXT is cut from a log, or refused because the log is full | the next round makes it again |
| two leaders append the same ORDER or CONTEXT | the second one has no effect |
| the state of group 0 lags on this node | it reports again, and writes CONTEXTs later |
| the process dies, the clock jumps | as a lost report; the clock has no part |

Who may report: a node that is a member of group 0 with its recorded disk (``PeerPool.takes_reports``), and that has
founded the group or is a member of it. Others are dropped. A member that lies can order records that are not committed,
as a voter that lies can lose committed ones.

Before the first ORDER of a cluster its members are probed (``peers/probe.py``), because a release before would stop at
it. A node in interval mode neither reports nor orders, because a committed record could be lost there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from viewstamp.errors import RequestError, ViewstampError
from viewstamp.host.interfaces import Network
from viewstamp.host.logger import Logger
from viewstamp.ids import GroupId, NodeId, Position, Stream, name_of
from viewstamp.node.group import Group
from viewstamp.node.order_queries import MissingRunsQuery, MovedStreamsQuery, OrderStatusQuery, StreamReportsQuery
from viewstamp.node.order_waits import OrderWaits, is_leading
from viewstamp.node.peers.probe import find_unfit
from viewstamp.node.placement_queries import GroupsQuery
from viewstamp.node.state_machine import Result
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.ordering import ENTRIES_MAX, StreamReport, encode_context, encode_order

__all__ = ["Ordering"]

_ROUND_SECONDS = 0.25
_CONTEXT_ROUNDS = 4
"""A CONTEXT is appended in each of so many rounds ..."""
_CONTEXT_RUNS = 256
"""... or when a stream lacks so many runs. The most runs in one."""
_PROBE_ROUNDS = 20
"""The rounds between two probes, if a member was not fit."""
_REPORTS_MAX = 32_768
"""The most streams of which a leader of group 0 keeps a report; more than the placement can have."""


class Ordering:
    """Takes part in the order of all streams. Nothing runs before :meth:`on_placement` finds a placed group.

    Invariants:
      * at most one ORDER of this node, and one CONTEXT for each stream, has no answer yet
    """

    def __init__(
        self,
        group: Group,
        network: Network,
        *,
        hosted: Mapping[GroupId, Group],
        on_failed: Callable[[BaseException], None],
        waits: OrderWaits,
        log: Logger,
    ) -> None:
        """Prepare.

        Args:
          group: group 0 of this node.
          network: for the probe of members.
          hosted: all groups that are open here.
          on_failed: called if the ordering itself has failed, which ends the node.
          waits: the callers that wait here for global positions.
          log: the logger of the node.
        """
        self._group = group
        self._network = network
        self._hosted = hosted
        self._on_failed = on_failed
        self._logger = log
        self._waits = waits
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False
        self._rounds = 0
        self._reports: dict[Stream, StreamReport] = {}
        """The newest reports, while this node leads group 0."""
        self._is_ordering = False
        """Whether an ORDER has no answer yet."""
        self._is_awaited = False
        """Whether a caller waits for what ``_reports`` would order."""
        self._mapping: set[Stream] = set()
        """The streams of which a CONTEXT has no answer yet."""
        self._settled: dict[GroupId, tuple[object, ...]] = {}
        """The applied indices at which nothing was left to do for a group."""
        self._probed: Mapping[NodeId, str] | None = None
        """The members that can read an ORDER; None = not known."""
        self._probe_at = 0
        self._refused: dict[str, str] = {}
        """The refused records that were logged, each with the last error."""
        self._unfit = ""
        """The last reason why nothing was ordered, as it was logged."""

    def on_placement(self) -> None:
        """Begin with the rounds if there is a placed group. Never awaits."""
        if self._tasks or self._is_stopping or self._group.parts is None:
            return
        if self._group.machine.query(GroupsQuery()):
            loop = asyncio.get_running_loop()
            self._tasks = [loop.create_task(self._guard(work)) for work in (self._make_rounds, self._hasten)]

    async def stop(self) -> None:
        """End the rounds, and begin none again. Idempotent."""
        self._is_stopping = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _guard(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Work for ever; the root of a task."""
        try:
            await work()
        except Exception as error:
            self._on_failed(error)

    async def _make_rounds(self) -> None:
        while True:
            await asyncio.sleep(_ROUND_SECONDS)
            self._rounds += 1
            if not self._is_able:
                continue
            for hosted in list(self._hosted.values()):
                if hosted is not self._group and is_leading(hosted):
                    self._look(hosted)
            if is_leading(self._group):
                await self._order()
            else:
                self._reports.clear()
                self._is_awaited = False
                self._probed = None

    async def _hasten(self) -> None:
        """Report and order between the rounds, whenever a caller has begun to wait."""
        while True:
            for hosted in await self._waits.hurried():
                if self._is_able and is_leading(hosted):
                    self._report(hosted)
            if self._is_able and self._is_awaited and is_leading(self._group):
                await self._order()

    @property
    def _is_able(self) -> bool:
        return self._group.parts is not None and not self._group.options.is_interval

    # A leader of streams.

    def _look(self, hosted: Group) -> None:
        """Report what has moved in a group, and propose CONTEXTs for its streams."""
        order = self._group.machine
        place = hosted.applied_index, self._group.applied_index
        if self._settled.get(hosted.id) == place:
            return
        reports = hosted.machine.query(StreamReportsQuery(hosted.id))
        is_settled = not self._report(hosted, reports)
        for report in reports:
            runs = order.query(MissingRunsQuery(report.stream, report.mapped, _CONTEXT_RUNS))
            if runs:
                is_settled = False
                if len(runs) == _CONTEXT_RUNS or self._rounds % _CONTEXT_ROUNDS == 0:
                    self._propose_context(hosted, report.stream, encode_context(report.stream.name, runs))
        if is_settled:
            self._settled[hosted.id] = place

    def _report(self, hosted: Group, reports: Sequence[StreamReport] | None = None) -> bool:
        """Report what has moved in a group; return whether anything has."""
        if reports is None:
            reports = hosted.machine.query(StreamReportsQuery(hosted.id))
        moved = self._group.machine.query(MovedStreamsQuery(reports))
        if moved:
            is_awaited = self._waits.is_awaited(hosted.id)
            self._group.report_streams(hosted.id, moved[:ENTRIES_MAX], is_awaited=is_awaited)
        return bool(moved)

    def _propose_context(self, hosted: Group, stream: Stream, record: Batch) -> None:
        if stream in self._mapping:
            return

        def answer(result: Result | ViewstampError) -> None:
            self._mapping.discard(stream)
            self._note_refusal(f"CONTEXT of {stream.name} in group {stream.group}", result)

        with suppress(ViewstampError):
            self._mapping.add(stream)
            hosted.propose(record, answer)
            return
        self._mapping.discard(stream)

    def _note_refusal(self, what: str, result: Result | ViewstampError) -> None:
        """Log a record that was refused for its content, once, because each round makes it again."""
        if isinstance(result, RequestError) and self._refused.get(what) != result.message:
            self._refused[what] = result.message
            self._logger.warning("! record refused", what=what, error=result.message)

    # The leader of group 0.

    def take(self, source: NodeId, reports: Sequence[StreamReport], *, is_awaited: bool = False) -> None:
        """Take reports of the node ``source`` about streams of one group; dropped if it may not make them."""
        if not reports or not is_leading(self._group) or not self._may_report(source, reports[0].stream.group):
            return
        for report in reports:
            known = self._reports.get(report.stream)
            if known is None and len(self._reports) >= _REPORTS_MAX:
                return
            # Both are true, perhaps of two leaders.
            end = max(report.end, known.end if known is not None else Position(1))
            mapped = max(report.mapped, known.mapped if known is not None else Position(1))
            self._reports[report.stream] = StreamReport(report.stream, end, mapped)
        if is_awaited:
            self._is_awaited = True
            self._waits.hurry()

    def _may_report(self, source: NodeId, group: GroupId) -> bool:
        hosted = self._hosted.get(group)
        members = {name_of(member) for member in hosted.membership.addresses} if hosted is not None else set()
        placed = self._group.machine.query(GroupsQuery())
        return source in members or any(each.id == group and source in each.members for each in placed)

    async def _order(self) -> None:
        """Propose an ORDER for the reports."""
        if self._is_ordering:
            return
        moved = self._group.machine.query(MovedStreamsQuery(self._reports.values()))
        self._reports = {report.stream: report for report in moved}
        if not moved or not await self._is_readable() or self._is_ordering:
            return
        is_awaited, self._is_awaited = self._is_awaited, len(moved) > ENTRIES_MAX

        def answer(result: Result | ViewstampError) -> None:
            self._is_ordering = False
            self._note_refusal("ORDER", result)
            if self._is_awaited:
                self._waits.hurry()
            elif is_awaited and (replica := self._group.replica) is not None:
                replica.tell_commit_end()  # Members apply up to it, and no append carries it to them soon.

        with suppress(ViewstampError):
            self._is_ordering = True
            self._group.propose(encode_order(moved[:ENTRIES_MAX]), answer)
            return
        self._is_ordering = False

    async def _is_readable(self) -> bool:
        """Return whether all members can read an ORDER: the state has one, or each member was probed."""
        addresses = self._group.membership.addresses
        if self._probed == addresses or self._group.machine.query(OrderStatusQuery()):
            return True
        if self._rounds < self._probe_at:
            return False
        self._probe_at = self._rounds + _PROBE_ROUNDS
        options = self._group.options
        others = {node: address for node, address in addresses.items() if name_of(node) != options.node}
        unfit = await find_unfit(self._network, options.cluster, others, Kind.ORDER)
        reasons = "; ".join(f"{node}: {reason}" for each in unfit for node, reason in each.items())
        if reasons:
            if reasons != self._unfit:
                self._unfit = reasons
                self._logger.warning("! streams are not ordered", unfit=reasons)
            return False
        self._probed = addresses
        return is_leading(self._group)
