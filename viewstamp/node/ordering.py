"""The ordering of streams: the effects of a node that leads a group of streams, or group 0.

The rules are in ``streams/order.py`` and ``streams/stream_map.py``; both are asked as queries. A round is made every
0.25 s. It decides by applied states only, so everything in it is committed, and remembers nothing that is not known
again after a restart.
A caller that waits for a global position (``order_waits.py``) hastens it: the reports of its group are sent, and ORDER
is appended, in the next turn of the event loop. While an ORDER is on its way the reports gather for the next one.
The parts of a batch of a sink are placed in the next turn after group 0 has decided about it, and the streams behind
them are reported in the next turn after its release.

| this node leads | in a round it |
| --- | --- |
| a group with streams | reports the ends that would change the order in its own state of group 0 to the leader of \
group 0; every second it appends a CONTEXT with the runs that a stream's log lacks |
| group 0, and finds that records of a group are committed before the leader of that group knows it | orders them in \
the next turn, because its leader says how far it is durable only if a caller waits there |
| nothing, of a group with streams that has no leader | reports the ends that it has applied: these are committed, and \
the group may never have a leader again |
| group 0 | appends an ORDER with the newest reports, if that would change anything, and none is on its way; and \
SEALED_STREAM for each closing stream of which a report says that it is sealed, when all its records are ordered |

| event | effect |
| --- | --- |
| a report is lost, or its receiver does not lead, or dies | it is made again in the next round, also for callers |
| it is late or doubled | no effect, because a report is true for ever |
| a node begins to lead after a decision or a release, or the record that it proposed is refused | the next round \
places and reports, because each look compares the applied states |
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from viewstamp.errors import RequestError, ViewstampError
from viewstamp.host.interfaces import Network
from viewstamp.host.logger import Logger
from viewstamp.ids import GROUP_0, GroupId, NodeId, Position, Stream, name_of
from viewstamp.node.fitness import unfit_members
from viewstamp.node.group import Group
from viewstamp.node.order_queries import MissingRunsQuery, MovedStreamsQuery, OrderStatusQuery
from viewstamp.node.order_waits import OrderWaits, is_leading
from viewstamp.node.placement_queries import GroupsQuery, SealableQuery, SealableStream
from viewstamp.node.sink_part_queries import GroupPartsQuery, HasPartsCommitsQuery, ReleasableQuery
from viewstamp.node.sink_parts import SinkParts
from viewstamp.node.state_machine import Result
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.ordering import ENTRIES_MAX, PlacedPart, StreamReport, encode_context, encode_order
from viewstamp.wire.sealing import encode_sealed

__all__ = ["Ordering"]

_ROUND_SECONDS = 0.25
_CONTEXT_ROUNDS = 4
"""A CONTEXT is appended in each of so many rounds ..."""
_CONTEXT_RUNS = 256
"""... or when a stream lacks so many runs. The most runs in one."""
_PROBE_ROUNDS = 20
"""The rounds between two probes, if a member was not fit."""
_PARTS_MAX = 65_536
"""The most parts of commits of which a leader of group 0 keeps the ends. All parts are reported again."""
_REPORTS_MAX = 32_768
"""The most streams of which a leader of group 0 keeps a report; more than the placement can have."""


class Ordering:
    """Takes part in the order of all streams. Nothing runs before :meth:`on_placement` finds a placed group.

    Invariants:
      * at most one ORDER of this node, and one CONTEXT and one SEALED_STREAM for each stream, has no answer yet
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
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._rounds = 0
        self._reports: dict[Stream, StreamReport] = {}
        """The newest reports, while this node leads group 0."""
        self._is_ordering = False
        """Whether an ORDER has no answer yet."""
        self._awaiting: set[NodeId] = set()
        """The nodes on which a caller waits for what ``_reports`` would order. They learn of its ORDER at once."""
        self._mapping: set[Stream] = set()
        """The streams of which a CONTEXT has no answer yet."""
        self._hastened: dict[GroupId, tuple[object, ...]] = {}
        """The last report of each group between rounds: the round, the leader of group 0, and the ends."""
        self._placed: dict[tuple[int, Stream], Position] = {}
        """The ends of the placed parts of commits of sinks, while this node leads group 0."""
        self._parts = SinkParts(group, on_change=self._on_placed, log=log)
        self._is_placing = False
        """Whether a call of :meth:`_place` is planned."""
        self._sealing: set[Stream] = set()
        """The streams of which a SEALED_STREAM has no answer yet."""
        self._settled: dict[GroupId, tuple[object, ...]] = {}
        """The applied indices at which nothing was left to do for a group."""
        self._probed: Mapping[NodeId, str] | None = None
        """The members that can read an ORDER; None = not known."""
        self._is_begun = False
        """Whether the state of group 0 was seen to have an order, so that all members can read an ORDER."""
        self._probe_at = 0
        self._refused: dict[str, str] = {}
        """The refused records that were logged, each with the last error."""
        self._unfit = ""
        """The last reason why nothing was ordered, as it was logged."""

    def on_placement(self) -> None:
        """Begin with the rounds if there is a placed group. Never awaits."""
        if self._task is not None or self._is_stopping or self._group.parts is None:
            return
        if self._group.machine.query(GroupsQuery()):
            self._task = asyncio.get_running_loop().create_task(self._guard())
            self._waits.hasten = self._hasten

    async def stop(self) -> None:
        """End the rounds, and begin none again. Idempotent."""
        self._is_stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _guard(self) -> None:
        """Make rounds for ever; the root of a task."""
        try:
            await self._make_rounds()
        except Exception as error:
            self._on_failed(error)

    async def _make_rounds(self) -> None:
        while True:
            await asyncio.sleep(_ROUND_SECONDS)
            self._rounds += 1
            if not self._is_able:
                continue
            for hosted in list(self._hosted.values()):
                if hosted is self._group:
                    continue
                if is_leading(hosted):
                    self._look(hosted)
                elif _is_leaderless(hosted):
                    self._tell(hosted)
            if is_leading(self._group):
                await self._order()
            else:
                self._reports.clear()
                self._placed.clear()
                self._awaiting.clear()
                self._probed = None

    def _hasten(self) -> None:
        """Report and order between the rounds, because a caller has begun to wait, or will."""
        new = self._waits.take_new()
        if self._is_stopping or not self._is_able:
            return
        try:
            for hosted in new:
                if is_leading(hosted):
                    self._hasten_report(hosted)
                elif is_leading(self._group):
                    self._take_found(hosted)
            if self._awaiting:
                self._order_awaited(frozenset())
        except Exception as error:
            self._on_failed(error)

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
        reports, parts = self._parts.look(hosted)
        is_settled = not self._report(hosted, reports, parts) and not hosted.machine.query(GroupPartsQuery())
        for report in reports:
            runs = order.query(MissingRunsQuery(report.stream, report.mapped, _CONTEXT_RUNS))
            if runs:
                is_settled = False
                if len(runs) == _CONTEXT_RUNS or self._rounds % _CONTEXT_ROUNDS == 0:
                    self._propose_context(hosted, report.stream, encode_context(report.stream.name, runs))
        if is_settled:
            self._settled[hosted.id] = place

    def _tell(self, hosted: Group) -> None:
        """Report what is committed in a group without a leader, as far as this node knows."""
        place = "told", hosted.applied_index, self._group.applied_index
        if self._settled.get(hosted.id) != place and not self._report(hosted, *self._parts.reports(hosted)):
            self._settled[hosted.id] = place

    def _report(self, hosted: Group, reports: Sequence[StreamReport], parts: Sequence[PlacedPart]) -> bool:
        """Report what has moved in a group; return whether anything has. A batch of a sink is released at once."""
        moved = self._group.machine.query(MovedStreamsQuery(reports))
        sealed = [each.report for each in self._group.machine.query(SealableQuery(reports))]
        if sealed:  # Appends to it wait until its slots belong to another stream.
            moved = sorted({*moved, *sealed})
        if moved or parts:
            is_awaited = self._waits.is_awaited(hosted.id) or bool(sealed) or bool(parts)
            self._group.report_streams(hosted.id, moved[:ENTRIES_MAX], parts[:ENTRIES_MAX], is_awaited=is_awaited)
        return bool(moved or parts)

    def _hasten_report(self, hosted: Group) -> None:
        """Report what has moved in a group whose callers wait, unless this was reported since the last round.

        An append says that its caller will ask, and is reported; then the caller asks.
        """
        reports, _ = self._parts.reports(hosted)
        moved = self._group.machine.query(MovedStreamsQuery(reports))
        core = self._group.parts.raft.core if self._group.parts is not None else None
        what = self._rounds, core.leader if core is not None else None, moved
        if moved and self._hastened.get(hosted.id) != what:
            self._hastened[hosted.id] = what
            self._group.report_streams(hosted.id, moved[:ENTRIES_MAX], is_awaited=True)

    def on_found(self, group: GroupId) -> None:
        """Order what this node has found to be committed in a group, in the next turn. Never awaits."""
        if group != GROUP_0 and is_leading(self._group):
            self._waits.expect(group)

    def _take_found(self, hosted: Group) -> None:
        """Take the report that the leader of a group would make, because a caller waits on its node."""
        core = hosted.parts.raft.core if hosted.parts is not None else None
        if core is not None and core.leader is not None:
            reports, _ = self._parts.reports(hosted)
            self.take(name_of(core.leader), self._group.machine.query(MovedStreamsQuery(reports)), is_awaited=True)

    def on_order(self) -> None:
        """Look at the groups of a batch again if an ORDER that was applied has released it. Never awaits.

        The order of their streams stopped before its parts, and callers may wait for records behind them.
        """
        if self._parts.have_changed():
            self._plan_to_place()

    def on_decision(self) -> None:
        """Place the parts of a batch that group 0 has decided about, instead of in the next round. Never awaits.

        The driver's first question whether the batch is visible brings the commit end to the other members, because it
        is a linearizable read.
        """
        if self._group.machine.query(HasPartsCommitsQuery()):
            self._plan_to_place()

    def _plan_to_place(self) -> None:
        if not self._is_placing:
            self._is_placing = True
            asyncio.get_running_loop().call_soon(self._place)

    def _place(self) -> None:
        """Look at each group that this node leads and that has parts."""
        self._is_placing = False
        self._parts.forget()
        for hosted in list(self._hosted.values()):
            if hosted is not self._group and hosted.machine.query(GroupPartsQuery()):
                self._look_again(hosted)

    def _on_placed(self, hosted: Group) -> None:
        """Look at a group again at once, because a part of a batch was placed in it."""
        if not self._is_stopping and self._is_able and is_leading(hosted):
            asyncio.get_running_loop().call_soon(self._look_again, hosted)

    def _look_again(self, hosted: Group) -> None:
        try:
            if not self._is_stopping and self._is_able and is_leading(hosted):
                self._look(hosted)
        except Exception as error:
            self._on_failed(error)

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

    def take(
        self,
        source: NodeId,
        reports: Sequence[StreamReport],
        parts: Sequence[PlacedPart] = (),
        *,
        is_awaited: bool = False,
    ) -> None:
        """Take reports of the node ``source`` about streams of one group; dropped if it may not make them."""
        groups = [*(each.stream.group for each in reports[:1]), *(each.stream.group for each in parts[:1])]
        if not groups or not is_leading(self._group) or not self._may_report(source, groups[0]):
            return
        for part in parts if len(self._placed) < _PARTS_MAX else ():
            self._placed[part.commit, part.stream] = part.end
        for report in reports:
            known = self._reports.get(report.stream)
            if known is None and len(self._reports) >= _REPORTS_MAX:
                return
            # Both are true, perhaps of two leaders.
            end = max(report.end, known.end if known is not None else Position(1))
            mapped = max(report.mapped, known.mapped if known is not None else Position(1))
            is_sealed = report.is_sealed or (known is not None and known.is_sealed)
            self._reports[report.stream] = StreamReport(report.stream, end, mapped, is_sealed)
        if is_awaited:
            self._awaiting.add(source)
            self._waits.hurry()

    def _may_report(self, source: NodeId, group: GroupId) -> bool:
        hosted = self._hosted.get(group)
        members = hosted.membership.addresses if hosted is not None else {}
        if source in members or any(name_of(member) == source for member in members):
            return True
        placed = self._group.machine.query(GroupsQuery())
        return any(each.id == group and source in each.hosts for each in placed)

    async def _order(self) -> None:
        """Propose an ORDER for the reports, after a probe of the members if it would be the first one."""
        if bool(self._placed) or self._group.machine.query(MovedStreamsQuery(self._reports.values())):
            await self._is_readable()
        self._propose_order()

    def _order_awaited(self, names: frozenset[NodeId]) -> None:
        """Propose an ORDER for what is awaited. If there is none, send the commit end to ``names``, and who awaits it.

        Members apply up to it, and otherwise no append carries it to them soon. A node that reports what is ordered
        already has not applied that.
        """
        names |= self._awaiting
        if self._is_ordering or (self._awaiting and self._propose_order()):
            return
        if names and (replica := self._group.replica) is not None:
            replica.tell_commit_end(names)
        if not self._reports:
            self._awaiting.clear()

    def _propose_order(self) -> bool:
        """Propose an ORDER for the reports now, if this would change anything; return whether it was.

        The end of closing streams that are sealed and ordered is proposed, too.
        """
        if self._is_ordering or not is_leading(self._group):
            return False
        moved = self._group.machine.query(MovedStreamsQuery(self._reports.values()))
        sealable = self._group.machine.query(SealableQuery(self._reports.values()))
        self._reports = {report.stream: report for report in (*moved, *(each.report for each in sealable))}
        commits, ends = self._release(moved)
        for each in sealable:
            if each.is_ordered:
                self._propose_sealed(each)
        if not ends or not self._is_known_readable:
            return False
        names = frozenset(self._awaiting)
        if len(ends) <= ENTRIES_MAX:
            self._awaiting.clear()

        def answer(result: Result | ViewstampError) -> None:
            self._is_ordering = False
            self._note_refusal("ORDER", result)
            if isinstance(result, ViewstampError):  # It may be refused at once, so only the next round repeats it.
                self._awaiting |= names
                return
            if sealable:
                self._propose_order()  # Their records may be ordered now, so that they can be sealed.
            self._order_awaited(names)

        with suppress(ViewstampError):
            self._is_ordering = True
            self._group.propose(encode_order(sorted(ends[:ENTRIES_MAX]), commits), answer)
            if names and (replica := self._group.replica) is not None:
                replica.tell_durable_end(names)
            return True
        self._is_ordering = False
        return False

    def _release(self, moved: Sequence[StreamReport]) -> tuple[list[int], list[StreamReport]]:
        """Return the commits of sinks that an ORDER can release now, and all ends of that ORDER, theirs first."""
        if not self._placed:
            return [], [*moved]
        commits = self._group.machine.query(ReleasableQuery(self._placed))
        if not self._group.machine.query(HasPartsCommitsQuery()):
            self._placed.clear()
        known = {report.stream: report for report in moved}
        released: dict[Stream, StreamReport] = {}
        for ends in commits.values():
            for stream, end in ends.items():
                mapped = known[stream].mapped if stream in known else Position(1)
                released[stream] = StreamReport(stream, end, mapped)
        others = (report for report in moved if report.stream not in released)
        return sorted(commits), [*released.values(), *others]

    @property
    def _is_known_readable(self) -> bool:
        """Whether all members can read an ORDER, as far as this node knows without a probe."""
        if not self._is_begun:
            self._is_begun = bool(self._group.machine.query(OrderStatusQuery()))
        return self._is_begun or self._probed == self._group.membership.addresses

    def _propose_sealed(self, sealable: SealableStream) -> None:
        stream = sealable.report.stream
        if stream in self._sealing:
            return

        def answer(result: Result | ViewstampError) -> None:
            self._sealing.discard(stream)
            self._note_refusal(f"SEALED of {stream.name} in group {stream.group}", result)

        with suppress(ViewstampError):
            self._sealing.add(stream)
            self._group.propose(encode_sealed(sealable.topic, sealable.number, sealable.report.end), answer)
            return
        self._sealing.discard(stream)

    async def _is_readable(self) -> bool:
        """Return whether all members can read an ORDER: the state has one, or each member was probed."""
        if self._is_known_readable:
            return True
        membership = self._group.membership
        if self._rounds < self._probe_at:
            return False
        self._probe_at = self._rounds + _PROBE_ROUNDS
        unfit = await unfit_members(self._network, self._group, membership, Kind.ORDER)
        reasons = "; ".join(f"{node}: {reason}" for each in unfit for node, reason in each.items())
        if reasons:
            if reasons != self._unfit:
                self._unfit = reasons
                self._logger.warning("! streams are not ordered", unfit=reasons)
            return False
        self._probed = membership.addresses
        return is_leading(self._group)


def _is_leaderless(group: Group) -> bool:
    """Return whether a member of a group, with all records of its own applied state committed, knows no leader."""
    replica = group.replica
    return replica is not None and not group.failed.done() and replica.raft.core.leader is None
