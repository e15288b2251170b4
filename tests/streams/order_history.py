"""Histories of the order of streams: logs whose leaders change, and the product's state machines above them.

A log is what consensus promises: its committed beginning never changes, and the rest may be cut. Each action is one of
those of docs/design/log-streams/LogStreams.tla, and is recorded as a step, so that a history can be checked against it.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from viewstamp.errors import RequestError
from viewstamp.ids import GroupId, Position, Stream, TopicId
from viewstamp.streams.order import Order
from viewstamp.streams.stream_map import StreamMaps
from viewstamp.streams.topic import Topic
from viewstamp.wire.batch import Batch
from viewstamp.wire.ordering import GlobalRun, StreamReport, encode_context, encode_order
from viewstamp.wire.spreading import stream_name, topic_of

__all__ = ["BrokenOrderError", "OrderHistory", "Step"]

Step = dict[str, Any]
"""The fields of one step: ``kind``, and those of the kind in ``LogStreamsTrace.tla``."""


class BrokenOrderError(AssertionError):
    """An invariant of the order does not hold; the message begins with its name in the specification."""


class _Place(NamedTuple):
    """What a global position of a topic got when it was given."""

    stream: int
    local: int
    identity: object


def copied(batch: Batch) -> Batch:
    """Return a batch as another member decodes it."""
    return Batch.decode(bytearray(batch.buffer))


class OrderHistory:
    """Some streams, each in a group of its own, and group 0. Streams have numbers from 1, as in the specification.

    The specification has the streams of one topic. With ``topics`` the streams belong to so many topics in turn.
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        streams: int = 2,
        topics: int = 1,
        records_max: int = 6,
        cuts_max: int = 3,
        checks: bool = True,
    ) -> None:
        self.rng = rng
        self.failure = ""
        """The error of the last action, which :meth:`try_act` has caught."""
        self.steps: list[Step] = []
        names = [stream_name(f"t{number % topics}", 1 + number // topics) for number in range(streams)]
        self.streams = [Stream(GroupId(8 + number), name) for number, name in enumerate(names)]
        self.topics = {stream: topic_of(stream.name) for stream in self.streams}
        self.logs: list[list[object]] = [[] for _ in self.streams]
        """The logs: the identity of each record, or a CONTEXT."""
        self.commits = [0 for _ in self.streams]
        self.elected = [0 for _ in self.streams]
        self.orders: list[Batch] = []
        self.order = Order()
        self.images: list[list[Any]] = [self.order.image()]
        """The states of group 0 after each committed record, as snapshots."""
        self.cuts = 0
        self.placed: dict[str, list[_Place]] = {topic: [] for topic in self.topics.values()}
        """For each topic what its global positions got, from 1 on."""
        self._records_max, self._cuts_max, self._checks = records_max, cuts_max, checks

    # What members know.

    def records(self, number: int, upto: int | None = None) -> list[object]:
        return [entry for entry in self.logs[number][:upto] if not isinstance(entry, Batch)]

    def maps(self, number: int, upto: int) -> StreamMaps:
        """Return the state that a member of a stream's group has applied."""
        stream, maps, topic = self.streams[number], StreamMaps(), Topic(TopicId(1), self.streams[number].name)
        for index, entry in enumerate(self.logs[number][:upto], 1):
            if isinstance(entry, Batch):
                maps.apply(copied(entry), {stream.name: topic})
            else:
                topic.extend(index, 1, 100, index, 100 * index, index)
            if self.rng.random() < 0.2:
                maps = StreamMaps.from_image(maps.image())
                maps.check_topics({stream.name: topic})
        return maps

    def report(self, number: int) -> StreamReport:
        """Return the report of a leader that has applied some beginning: late, doubled, or smaller than another one."""
        upto = self.rng.choice([self.commits[number], self.rng.randint(0, self.commits[number])])
        end = Position(len(self.records(number, upto)) + 1)
        return StreamReport(self.streams[number], end, self.maps(number, upto).mapped_end(self.streams[number].name))

    # Actions. Each returns whether it was possible.

    def act(self) -> bool:
        """Take a random action."""
        number = self.rng.randrange(len(self.streams))
        action = self.rng.choices([self.append, self.commit, self.context, self.elect], weights=[4, 5, 2, 1])[0]
        if self.rng.random() < 0.35:
            done = self.rng.choices([self.propose, self.commit_order, self.cut], weights=[4, 5, 1])[0]()
        else:
            done = action(number)
        if self._checks:
            self.check()
        return done

    def try_act(self) -> bool:
        """Take a random action; return whether it raised no error, as one of a planted mistake may."""
        try:
            self.act()
        except Exception as error:
            self.failure = repr(error)
        return not self.failure

    def append(self, number: int) -> bool:
        if len(self.records(number)) >= self._records_max:
            return False
        identity = (number + 1, self.elected[number], len(self.logs[number]) + 1)
        self.logs[number].append(identity)
        self._step("append", s=number + 1)
        return True

    def commit(self, number: int) -> bool:
        if self.commits[number] >= len(self.logs[number]):
            return False
        self.commits[number] += 1
        self._step("commit", s=number + 1)
        return True

    def elect(self, number: int) -> bool:
        if self.elected[number] >= self._cuts_max or self.commits[number] == len(self.logs[number]):
            return False
        length = self.rng.randrange(self.commits[number], len(self.logs[number]))
        del self.logs[number][length:]
        self.elected[number] += 1
        self._step("elect", s=number + 1, length=length)
        return True

    def context(self, number: int) -> bool:
        """A leader that has applied some beginnings writes a CONTEXT."""
        stream = self.streams[number]
        upto = self.rng.choice([self.commits[number], self.rng.randint(0, self.commits[number])])
        order = Order.from_image(self.rng.choice([self.images[-1], self.rng.choice(self.images)]), self.topics)
        runs = order.missing(stream, self.maps(number, upto).mapped_end(stream.name), 256)
        if not runs:
            return False
        self.logs[number].append(copied(encode_context(stream.name, runs)))
        self._step("context", s=number + 1, runs=tuple(self._run(number, run) for run in runs))
        return True

    def propose(self) -> bool:
        reports = {stream: self.report(number) for number, stream in enumerate(self.streams) if self.rng.random() < 0.8}
        moved = self.order.moved(reports.values(), self.topics)
        if not moved:
            return False
        self.orders.append(copied(encode_order(moved)))
        known = {report.stream: report for report in moved}
        ends = tuple(known[stream].end if stream in known else 1 for stream in self.streams)
        mapped = tuple(known[stream].mapped if stream in known else 1 for stream in self.streams)
        self._step("propose", ends=ends, mapped=mapped)
        return True

    def commit_order(self) -> bool:
        if len(self.images) > len(self.orders):
            return False
        batch = self.orders[len(self.images) - 1]
        for stream, run in self.order.apply(copied(batch), self.topics):
            number, placed = self.streams.index(stream), self.placed[self.topics[stream]]
            if run.position != len(placed) + 1:
                raise BrokenOrderError(f"GlobalTiles: {run} after {len(placed)} positions")
            records = self.records(number)
            for local in range(run.local, run.end):
                identity = records[local - 1] if local <= len(records) else None
                placed.append(_Place(number, local, identity))
        self.images.append(self.order.image())
        history = sorted(self.order.runs(), key=lambda each: each[1].position)
        self._step(
            "order",
            version=self.order.version,
            next=self.order.next_position(self.topics[self.streams[0]]),
            ordered=tuple(map(self.order.ordered_end, self.streams)),
            forgotten=tuple(map(self.order.forgotten_end, self.streams)),
            history=tuple(self._run(self.streams.index(stream), run) for stream, run in history),
        )
        if self.rng.random() < 0.5:
            self.order = Order.from_image(self.images[-1], self.topics)
        return True

    def cut(self) -> bool:
        """A new leader of group 0 lacks some uncommitted records."""
        if self.cuts >= self._cuts_max or len(self.images) > len(self.orders):
            return False
        length = self.rng.randrange(len(self.images) - 1, len(self.orders))
        del self.orders[length:]
        self.cuts += 1
        self._step("cut", length=length)
        return True

    def _run(self, number: int, run: GlobalRun) -> Step:
        return {"v": run.version, "s": number + 1, "l": run.local, "n": run.length, "g": run.position}

    def _step(self, kind: str, **fields: Any) -> None:
        self.steps.append({"kind": kind, **fields})

    # Invariants.

    def check(self) -> None:
        """Check the invariants, by the names of the specification. Raises BrokenOrderError."""
        order = self.order
        for topic, placed in self.placed.items():
            if (found := order.next_position(topic)) != len(placed) + 1:
                raise BrokenOrderError(f"GlobalTiles: {found} is next after {len(placed)} positions of {topic}")
        for number, stream in enumerate(self.streams):
            given = self.placed[self.topics[stream]]
            mine, end = [place for place in given if place.stream == number], order.ordered_end(stream)
            if [place.local for place in mine] != list(range(1, end)):
                raise BrokenOrderError(f"OrderKeepsStreamOrder: {mine}, and {end} is the ordered end")
            committed = self.records(number, self.commits[number])
            if end > len(committed) + 1:
                raise BrokenOrderError(f"OrderOnlyCommitted: {end} is ordered, {len(committed)} are committed")
            try:
                maps = self.maps(number, self.commits[number])
            except RequestError as error:
                raise BrokenOrderError(f"MapIsComplete: {error}") from error
            if order.forgotten_end(stream) > maps.mapped_end(stream.name):
                raise BrokenOrderError(f"MapIsComplete: {order.forgotten_end(stream)} is forgotten")
            self._check_lookups(number, maps)
        for topic, placed in self.placed.items():
            for position, place in enumerate(placed, 1):
                records = self.records(place.stream)
                if place.identity is None or place.local > len(records) or records[place.local - 1] != place.identity:
                    raise BrokenOrderError(f"OrderStable: {position} of {topic} was {place}")

    def _check_lookups(self, number: int, maps: StreamMaps) -> None:
        """Each given position is found, here or in the stream, and nowhere another record."""
        stream = self.streams[number]
        topic = self.topics[stream]
        for position, place in enumerate(self.placed[topic], 1):
            if place.stream != number:
                continue
            here = self.order.find(topic, position)
            there = maps.find(stream.group, topic, position)
            if {here, there} - {None} != {(stream, place.local)}:
                raise BrokenOrderError(f"GlobalTiles: {position} is {here} or {there}, and was {place}")
            back = [self.order.find_global(stream, place.local), maps.find_global(stream.name, place.local)]
            if set(back) - {None} != {position}:
                raise BrokenOrderError(f"GlobalTiles: {place} has the positions {back}, and was given {position}")
