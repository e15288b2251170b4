"""Records in the streams of a run, and the invariants of their order.

A writer appends batches to each stream, at the member that leads its group. It waits for no answer for ever, because
the process of the member may die. It takes another session when an outcome is unknown.

| invariant | sentence |
| --- | --- |
| OrderStable | all members have the same run of each ORDER, whenever they are asked |
| GlobalTiles | at the end the kept records of each topic have the global positions from its first one on, each once |
| OrderOnlyCommitted | ... and the order of a stream ends where its records end, or where it was given up |
| OrderKeepsStreamOrder | ... and the records of a stream have rising positions |
| MapIsComplete | ... which the group of the stream knows, because group 0 has forgotten them |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from viewstamp.errors import UnknownTopicError, ViewstampError
from viewstamp.ids import GlobalPosition, Position, Sequence, SessionId, Stream, TopicId
from viewstamp.node.group import Group
from viewstamp.node.order_queries import (
    GlobalPositionQuery,
    GlobalRecordQuery,
    MissingRunsQuery,
    OrderStatusQuery,
    StreamReportsQuery,
)
from viewstamp.node.placement_queries import ClosedStream, SpreadTopicQuery
from viewstamp.node.state_machine import Result, TopicQuery
from viewstamp.sim.cluster import Cluster, Member
from viewstamp.sim.violation import Violation
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.ordering import GlobalRun
from viewstamp.wire.spreading import topic_of

__all__ = ["OrderedStreams"]

_PAUSE_SECONDS = 0.2
"""The mean time between two batches for a stream."""
_LOOK_SECONDS = 0.1
_ANSWER_SECONDS = 2.0
_BATCHES_MAX = 40
"""The most batches for a stream, because its records stay in the log."""
_RUNS_MAX = 10_000


class OrderedStreams:
    """Writes to the streams of a cluster, and checks their order."""

    def __init__(self, cluster: Cluster, streams: Callable[[], list[Stream]], *, writes: bool = True) -> None:
        """Prepare. ``streams`` returns those that exist by now; without ``writes`` only others write to them."""
        self._cluster = cluster
        self._streams = streams
        self._process = cluster.loop.client("stream-writers")
        self._entropy = cluster.loop.entropy("stream-writers")
        self._tasks: list[asyncio.Task[None]] = []
        self._given: dict[tuple[Stream, int], GlobalRun] = {}
        """The run of each stream and version, as a member had it first."""
        self.written = 0
        """The number of acknowledged batches."""
        self._is_over = not writes

    def start(self) -> None:
        """Begin to look, and to write when there are streams."""
        self._process.spawn(self._look())

    def stop(self) -> None:
        """Write nothing more."""
        self._is_over = True

    @property
    def is_done(self) -> bool:
        """Whether nothing more is written."""
        return all(task.done() for task in self._tasks)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if not self._tasks and not self._is_over:
                self._tasks = [self._process.spawn(self._write(stream)) for stream in self._streams()]
            try:
                self.look()
            except Violation as violation:
                self._cluster.fail(violation)
                return

    def look(self) -> None:
        """Compare the runs that the members have in group 0. Raises Violation."""
        for member in self._cluster.members:
            if not member.is_up or member.node is None or member.node.group.parts is None:
                continue
            for stream, _, forgotten, _ in member.machine.query(OrderStatusQuery()):
                for run in member.machine.query(MissingRunsQuery(stream, forgotten, _RUNS_MAX)):
                    if (known := self._given.setdefault((stream, run.version), run)) != run:
                        raise Violation("OrderStable", f"{member.name} has {run} of {stream}, and {known} was given")

    # Writing.

    def _hosts(self, stream: Stream) -> list[Group]:
        return [hosted for member in self._cluster.members if (hosted := member.group(stream.group)) is not None]

    async def _write(self, stream: Stream) -> None:
        session, sequence = SessionId(0), 0
        for _ in range(_BATCHES_MAX):
            await asyncio.sleep(self._entropy.expovariate(1 / _PAUSE_SECONDS))
            leader = next((each for each in self._hosts(stream) if each.replica and each.replica.is_leading), None)
            if self._is_over:
                return
            if leader is None:
                continue
            try:
                if not session:
                    opened = await self._ask(leader, build_batch([b""], kind=Kind.OPEN_SESSION))
                    assert isinstance(opened, dict), opened
                    session, sequence = SessionId(int(str(opened["session"]))), 0
                topic = TopicId(leader.machine.query(TopicQuery(stream.name))["id"])
                values = [b"x"] * self._entropy.randint(1, 3)
                sequence += 1
                batch = build_batch(values, topic=topic, session=session, sequence=Sequence(sequence))
                await self._ask(leader, batch)
                self.written += 1
            except (TimeoutError, ViewstampError):
                session = SessionId(0)

    async def _ask(self, leader: Group, batch: Batch) -> Result:
        """Propose a batch. Raises ViewstampError, and TimeoutError if the outcome is unknown."""
        answered: asyncio.Future[Result | ViewstampError] = asyncio.get_running_loop().create_future()

        def answer(result: Result | ViewstampError) -> None:
            if not answered.done():
                answered.set_result(result)

        leader.propose(batch, answer)
        async with asyncio.timeout(_ANSWER_SECONDS):
            result = await answered
        if isinstance(result, ViewstampError):
            raise result
        return result

    # The end.

    def _ends(self, stream: Stream) -> list[tuple[Position, Position]]:
        """Return the end of a stream and of its map, on each member of its group."""
        found = []
        for hosted in self._hosts(stream):
            reports = hosted.machine.query(StreamReportsQuery(stream.group))
            own = next((each for each in reports if each.stream == stream), None)
            end, mapped = (own.end, own.mapped) if own is not None else (Position(1), Position(1))
            closed = self._closed(stream)
            if closed is not None and closed.lost_at:  # Its later records have no position.
                end = min(end, closed.end)
            found.append((end, mapped))
        return found

    def _closed(self, stream: Stream) -> ClosedStream | None:
        """Return the end of a stream, as any member has it."""
        member = next(each for each in self._cluster.members if each.is_up and each.node is not None)
        with suppress(UnknownTopicError):
            topic = member.machine.query(SpreadTopicQuery(topic_of(stream.name)))
            return topic.closed_stream(topic.number_of(stream.name))
        return None

    def _kept_streams(self) -> list[Stream]:
        """Return the streams that are not removed."""
        return [stream for stream in self._streams() if (closed := self._closed(stream)) is None or not closed.gone]

    @property
    def is_complete(self) -> bool:
        """Whether all records are ordered on all members, and group 0 has forgotten all runs."""
        for member in self._cluster.members:
            if not member.is_up or member.node is None:
                return False
            ordered = {each.stream: (each.end, each.mapped) for each in member.machine.query(OrderStatusQuery())}
            for stream in self._kept_streams():
                wanted = ordered.get(stream, (1, 1))
                if any(each != (wanted[0], wanted[0]) or each != wanted for each in self._ends(stream)):
                    return False
        return True

    def check(self) -> int:
        """Check the order on the members, which have settled; return the number of records. Raises Violation."""
        self.look()
        places: dict[tuple[str, GlobalPosition], tuple[Stream, int]] = {}
        totals: dict[str, int] = {}
        kept: dict[str, int] = {}
        for stream in self._streams():
            topic, closed = topic_of(stream.name), self._closed(stream)
            if closed is not None and closed.gone:  # All its records were trimmed.
                totals[topic] = totals.get(topic, 0) + closed.end - 1
                continue
            found = set(self._ends(stream))
            end, _ = max(found)
            if found != {(end, end)}:
                raise Violation("OrderOnlyCommitted", f"{stream} has the ends and mapped ends {found}")
            totals[topic] = totals.get(topic, 0) + end - 1
            kept[topic] = max(self._first_position(member, topic) for member in self._cluster.members)
            for hosted in self._hosts(stream):
                first = hosted.machine.query(TopicQuery(stream.name))["first_position"]
                positions = self._positions(hosted, stream, first, end)
                places |= {(topic, position): (stream, local) for local, position in enumerate(positions, first)}
        wanted = {(topic, position) for topic, end in totals.items() for position in range(kept[topic], end + 1)}
        if places.keys() != wanted:
            raise Violation("GlobalTiles", f"{totals} records have the positions {sorted(places)}")
        for (stream, _), run in self._given.items():
            for offset in range(run.length):
                place = topic_of(stream.name), GlobalPosition(run.position + offset)
                is_kept = place[1] >= kept[place[0]]
                if is_kept and places.get(place) != (stream, run.local + offset):
                    raise Violation("OrderStable", f"{run} of {stream} was given, and is not there")
        return sum(totals.values())

    @staticmethod
    def _first_position(member: Member, topic: str) -> int:
        """Return the first global position of a topic that was not trimmed, as a member has it."""
        return member.machine.query(SpreadTopicQuery(topic)).first_position if member.is_up else 1

    def places(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Return the stream of each kept record, and its position there, by topic and position in the topic."""
        found: dict[str, dict[int, tuple[int, int]]] = {}
        for stream in self._kept_streams():
            places = found.setdefault(topic_of(stream.name), {})
            hosted, (end, _) = self._hosts(stream)[0], self._ends(stream)[0]
            first = hosted.machine.query(TopicQuery(stream.name))["first_position"]
            for local, position in enumerate(self._positions(hosted, stream, first, end), first):
                places[position] = int(stream.name.rpartition(".")[2]), local
        return found

    def _positions(self, hosted: Group, stream: Stream, first: Position, end: Position) -> list[GlobalPosition]:
        """Return the global positions of the records of a stream, as a member of its group knows them."""
        found: list[GlobalPosition] = []
        for local in range(first, end):
            position = hosted.machine.query(GlobalPositionQuery(stream, local))
            if position is None:
                raise Violation("MapIsComplete", f"{hosted.me} does not know the position of {local} of {stream}")
            if found and position <= found[-1]:
                raise Violation("OrderKeepsStreamOrder", f"{stream} has {position} after {found[-1]}")
            place = hosted.machine.query(GlobalRecordQuery(stream.group, topic_of(stream.name), position))
            if place != (stream, local):
                raise Violation("GlobalTiles", f"{hosted.me} has {place} at {position}, not {local} of {stream}")
            found.append(GlobalPosition(position))
        return found
