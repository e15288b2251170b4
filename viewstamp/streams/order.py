"""The order: which global positions the records of each spread topic have, as the state of group 0 has it. Pure.

Each spread topic has global positions of its own, from 1 on and without gaps: a reader that merges its streams goes on
with the next number, and knows what it lacks. ``SpreadTopics.by_stream`` is the home of the topic of a stream.

The leader of a stream reports the end of its committed records. An ORDER holds such ends, and **the runs are computed
when it is applied**: in the order of streams, each stream gets the next global positions of its topic for its records
from its ordered end to the new end. So it makes no difference which state the leader had when it proposed the record.

| an entry of ORDER | effect |
| --- | --- |
| an end above the ordered end of its stream | a run: these records have the next global positions |
| an end at or below it: late, doubled, or reported by a new leader that knows less | none |
| the end of the committed CONTEXTs of its stream | the runs below it are forgotten here, because the stream has them |
| such an end that is not above the last one, or above the ordered end | none |
| an end of a stream that has ``HELD_MAX`` runs here | none |
| an end of a sealed stream (``seal``), which may be removed (``forget``) | none |
| a commit of a batch of a sink | ``spread_commits.py`` |
| an end with which the global positions of its topic would reach 2^63, as only a false report has it | none |

What is no stream of a spread topic is not ordered: an ORDER that names it is refused. A stream of PLACE_GROUP alone has
no topic, so nobody appends to it.

An ORDER without any effect is not admitted, so nothing is written while nothing is committed. One that became so
behind another record changes nothing; its version is not counted.

A stream whose leader writes no CONTEXT is not ordered beyond ``HELD_MAX`` runs, because this state would grow without
a bound. The other streams go on.

A record with a field that this release does not know raises ``OutdatedCodeError``, which stops the member. A record
that no release writes is refused, and changes nothing. docs/design/log-streams/LogStreams.tla specifies all of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, cast

from viewstamp.errors import RequestError
from viewstamp.ids import GlobalPosition, GroupId, Position, Stream
from viewstamp.node.order_queries import OrderTail
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.ordering import ENTRIES_MAX, GlobalRun, StreamReport
from viewstamp.wire.recovering import RecoveredOrder
from viewstamp.wire.staged import decode_fields, decode_known

__all__ = ["HELD_MAX", "Order", "decode_order", "decode_released", "find_global", "find_local", "read_runs"]

HELD_MAX = 65_536
"""The most runs of one stream that are not forgotten. Like the other limits it is part of the replicated behaviour."""
_FIELDS = {Kind.ORDER: frozenset({"ends", "commits"})}
_NAME_MAX = 1024
_NUMBER_MAX = 1 << 63


class _OrderedStream:
    """The order of one stream of the spread topic ``topic``.

    Invariants:
      * ``forgotten <= end``; the runs tile the local positions from ``forgotten`` or before it up to ``end``
      * the runs rise in version and in global position
    """

    __slots__ = ("end", "forgotten", "runs", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.end = Position(1)
        """The ordered end: the first local position without a global one."""
        self.forgotten = Position(1)
        """The committed CONTEXTs of the stream have all runs below it."""
        self.runs: list[GlobalRun] = []
        """The runs that are not forgotten."""

    def forget(self, mapped: Position) -> None:
        self.forgotten = mapped
        del self.runs[: bisect_right(self.runs, mapped, key=lambda run: run.end)]


class Order:
    """The order of the streams of each spread topic. Never awaits.

    ``topics`` is the topic of each stream, as this state has it; what it lacks is no stream.

    Invariants (``tests/streams/test_order.py``), for each topic:
      * each global position below ``next_position`` was given once, to one record of one stream
      * the records of a stream have rising global positions, and each local position below its ordered end has one
      * what was given never changes
    """

    __slots__ = ("_next_positions", "_sealed", "_streams", "version")

    def __init__(self) -> None:
        self.version = 0
        """The number of applied ORDERs that gave positions, of all topics."""
        self._next_positions: dict[str, GlobalPosition] = {}
        """The next global position of each topic of which a stream is ordered."""
        self._streams: dict[Stream, _OrderedStream] = {}
        self._sealed: set[Stream] = set()

    def seal(self, streams: Iterable[Stream]) -> None:
        """Order no further record of these streams, whatever an ORDER says. The spread topics have them in images."""
        self._sealed.update(streams)

    def forget(self, stream: Stream) -> None:
        """Forget all runs of a sealed stream, which was removed. Only its end stays."""
        if (state := self._streams.get(stream)) is not None:
            state.forget(state.end)

    @property
    def is_used(self) -> bool:
        """Return whether there is anything to store: an ORDER had an effect once."""
        return bool(self._streams)

    # Records.

    def check(self, batch: Batch, topics: Mapping[Stream, str]) -> bool:
        """Return whether an ORDER would change anything now.

        Raises:
          RequestError: the record would be refused.
          OutdatedCodeError: it has a field that this release does not know.
        """
        return any(self._is_change(report, topics[report.stream]) for report in _read_order(batch, topics))

    def moved(self, reports: Iterable[StreamReport], topics: Mapping[Stream, str]) -> list[StreamReport]:
        """Return those reports, rising by stream, that would change anything now."""
        known = (report for report in reports if report.stream in topics)
        return sorted(report for report in known if self._is_change(report, topics[report.stream]))

    def is_move(self, report: StreamReport, topics: Mapping[Stream, str]) -> bool:
        """Return whether an ORDER would give records of the stream positions for this end."""
        return report.stream in topics and self._moves(report, topics[report.stream])

    @property
    def sealed(self) -> Collection[Stream]:
        """The streams that are not ordered further."""
        return self._sealed

    def apply(self, batch: Batch, topics: Mapping[Stream, str]) -> list[tuple[Stream, GlobalRun]]:
        """Apply a committed ORDER, and return the new runs, rising by stream. Raises as :meth:`check`."""
        made: list[tuple[Stream, GlobalRun]] = []
        for report in _read_order(batch, topics):
            stream, end, mapped, _ = report
            topic = topics[stream]
            if self._moves(report, topic):
                state = self._streams.setdefault(stream, _OrderedStream(topic))
                run = GlobalRun(self.version + 1, self.next_position(topic), state.end, end - state.end)
                self._next_positions[topic] = GlobalPosition(run.position + run.length)
                state.runs.append(run)
                state.end = end
                made.append((stream, run))
            if self._forgets(report):
                self._streams[stream].forget(mapped)
        self.version += bool(made)
        return made

    def _is_change(self, report: StreamReport, topic: str) -> bool:
        return self._moves(report, topic) or self._forgets(report)

    def _moves(self, report: StreamReport, topic: str) -> bool:
        state = self._streams.get(report.stream)
        end, runs = (state.end, len(state.runs)) if state is not None else (1, 0)
        is_next = end < report.end < end + _NUMBER_MAX - self.next_position(topic)
        return is_next and runs < HELD_MAX and report.stream not in self._sealed

    def _forgets(self, report: StreamReport) -> bool:
        state = self._streams.get(report.stream)
        return state is not None and state.forgotten < report.mapped <= state.end

    # Looking up.

    def next_position(self, topic: str) -> GlobalPosition:
        """Return the first global position of a spread topic that no record has yet."""
        return self._next_positions.get(topic, GlobalPosition(1))

    @property
    def next_positions(self) -> list[GlobalPosition]:
        """The next global positions of all topics of which a stream is ordered."""
        return list(self._next_positions.values())

    def ordered_end(self, stream: Stream) -> Position:
        """Return the first local position of a stream that has no global one yet."""
        state = self._streams.get(stream)
        return state.end if state is not None else Position(1)

    def forgotten_end(self, stream: Stream) -> Position:
        """Return the local position below which only the stream itself has the runs."""
        state = self._streams.get(stream)
        return state.forgotten if state is not None else Position(1)

    def missing(self, stream: Stream, mapped: Position, count_max: int) -> list[GlobalRun]:
        """Return the first runs here that a stream lacks whose own runs end at the local position ``mapped``.

        They never begin above ``mapped``: only runs below the end of the committed CONTEXTs are forgotten here, and
        ``mapped`` is not below that end, unless the caller lags behind this state. Such a caller gets no runs.
        """
        state = self._streams.get(stream)
        if state is None or mapped < state.forgotten:
            return []
        at = bisect_right(state.runs, mapped, key=lambda run: run.end)
        return state.runs[at : at + count_max]

    def tail(self, stream: Stream, topic: str, position: GlobalPosition, runs_max: int) -> OrderTail:
        """Return the order of a stream of a topic from a global position on."""
        following, state = self.next_position(topic), self._streams.get(stream)
        if state is None:
            return OrderTail(following, Position(1), Position(1), ())
        at = bisect_right(state.runs, position, key=global_end)
        return OrderTail(following, state.end, state.forgotten, tuple(state.runs[at : at + runs_max]))

    def find(self, topic: str, position: int) -> tuple[Stream, Position] | None:
        """Return the stream and the local position of a global one of a spread topic.

        None: it was not given yet (``position >= next_position``), or its run was forgotten, and its stream has it.
        """
        for stream, state in self._streams.items():
            if state.topic == topic and (local := find_local(state.runs, position)) is not None:
                return stream, local
        return None

    def find_global(self, stream: Stream, local: int) -> GlobalPosition | None:
        """Return the global position of a record of a stream; None as in :meth:`find`."""
        state = self._streams.get(stream)
        return find_global(state.runs, local) if state is not None else None

    def runs(self) -> Iterator[tuple[Stream, GlobalRun]]:
        """Yield the runs that are not forgotten, by stream."""
        for stream, state in self._streams.items():
            yield from ((stream, run) for run in state.runs)

    def describe(self) -> dict[str, object]:
        """Return the order as plain values, without its topics and streams."""
        return {"version": self.version}

    def streams(self) -> list[StreamReport]:
        """Return each ordered stream with its ordered end, and the end of what is forgotten here."""
        return [StreamReport(stream, state.end, state.forgotten) for stream, state in self._streams.items()]

    def newest_run(self, stream: Stream) -> GlobalRun | None:
        """Return the last run of a stream that is not forgotten; None = there is none."""
        state = self._streams.get(stream)
        return state.runs[-1] if state is not None and state.runs else None

    # Images.

    def recovered(self, found: RecoveredOrder, topics: Mapping[Stream, str]) -> Order:
        """Return this order as a recovery leaves it (``recovering.py``). Nothing is sealed in it.

        Raises ValueError or TypeError if that would break an invariant, or gives a position again.
        """
        version, next_positions, streams = self.image()
        for each in found.topics:
            if each.next_position < self.next_position(each.name):
                raise ValueError(f"positions of topic {each.name!r} from {each.next_position} on are given again")
        if found.version < self.version:
            raise ValueError(f"version {found.version} after {version}")
        following = {**dict(cast("list[tuple[str, int]]", next_positions))}
        following |= {each.name: each.next_position for each in found.topics}
        rows = {Stream(row[0], row[1]): row for row in cast("list[list[Any]]", streams)}
        for one in found.streams:
            rows[one.stream] = [*one.stream, one.end, one.forgotten, [list(run) for run in one.runs]]
        return Order.from_image([found.version, list(following.items()), list(rows.values())], topics)

    def image(self) -> list[object]:
        """Return the order as plain values."""
        streams = [
            [*stream, state.end, state.forgotten, [list(run) for run in state.runs]]
            for stream, state in self._streams.items()
        ]
        return [self.version, [[topic, position] for topic, position in self._next_positions.items()], streams]

    @classmethod
    def from_image(cls, image: list[Any], topics: Mapping[Stream, str]) -> Order:
        """Rebuild the order from :meth:`image`. Raises ValueError or TypeError if it breaks an invariant."""
        version, next_positions, streams = image
        order = cls()
        order.version = _number(version, 0)
        order._next_positions = {topic: GlobalPosition(_number(position)) for topic, position in next_positions}
        ranges: dict[str, list[tuple[int, int]]] = {topic: [] for topic in order._next_positions}
        for group, name, end, forgotten, packed in streams:
            stream = Stream(GroupId(_number(group)), name)
            topic = topics.get(stream)
            if topic is None or topic not in ranges or stream in order._streams:
                raise ValueError(f"stream {stream!r} belongs to no ordered topic, or stands twice")
            state = order._streams[stream] = _OrderedStream(topic)
            state.end, state.forgotten = Position(_number(end)), Position(_number(forgotten))
            state.runs = read_runs(packed)
            last = state.runs[-1].end if state.runs else state.forgotten
            first = state.runs[0].local if state.runs else last
            if not (first <= state.forgotten <= last == state.end):
                raise ValueError(f"the runs of {stream!r} are those from {first} to {last}, not to {end}")
            ranges[topic] += [(run.position, run.length) for run in state.runs]
            if state.runs and state.runs[-1].version > version:
                raise ValueError(f"{stream!r} has a run of version {state.runs[-1].version}, after {version}")
        if not {state.topic for state in order._streams.values()} == ranges.keys() or len(ranges) < len(next_positions):
            raise ValueError(f"the topics {', '.join(map(repr, ranges))} are not those of the ordered streams")
        for topic, given in ranges.items():
            given.sort()
            ends = [position + length for position, length in given]
            starts = [position for position, _ in given[1:]] + [order.next_position(topic)]
            if any(end > start for end, start in zip(ends, starts, strict=False)):
                raise ValueError(f"a global position of topic {topic!r} was given twice, or was not given yet")
        return order


def global_end(run: GlobalRun) -> GlobalPosition:
    """Return the global position after the last record of a run."""
    return GlobalPosition(run.position + run.length)


def find_local(runs: list[GlobalRun], position: int) -> Position | None:
    """Return the local position that has a global one; ``runs`` rise. None = it is in none of them."""
    at = bisect_right(runs, position, key=lambda run: run.position) - 1
    if at < 0 or position >= runs[at].position + runs[at].length:
        return None
    return Position(runs[at].local + position - runs[at].position)


def find_global(runs: list[GlobalRun], local: int) -> GlobalPosition | None:
    """Return the global position of a local one; ``runs`` rise. None = it is in none of them."""
    at = bisect_right(runs, local, key=lambda run: run.local) - 1
    if at < 0 or local >= runs[at].end:
        return None
    return GlobalPosition(runs[at].position + local - runs[at].local)


# Reading records.


def decode_order(batch: Batch) -> list[StreamReport]:
    """Return the entries of an ORDER. Raises as :meth:`Order.check`."""
    (ends,) = decode_known(batch, _FIELDS, ends=list)
    reports: list[StreamReport] = []
    for entry in ends:
        try:
            group, name, end, mapped = entry
            if type(name) is not str or not 0 < len(name) <= _NAME_MAX:
                raise ValueError("the name of the stream is none")
            stream = Stream(GroupId(_number(group)), name)
            reports.append(StreamReport(stream, Position(_number(end)), Position(_number(mapped))))
        except (ValueError, TypeError) as error:
            raise _refused(f"an ORDER with an entry that is none: {brief_repr(entry)}") from error
        if len(reports) > 1 and reports[-2].stream >= stream:
            raise _refused(f"an ORDER with stream {name!r} of group {group} after {reports[-2].stream.name!r}")
    if not 0 < len(reports) <= ENTRIES_MAX:
        raise _refused(f"an ORDER with {len(reports)} entries")
    return reports


def decode_released(batch: Batch) -> list[int]:
    """Return the commits that an ORDER releases (``spread_commits.py``). Raises RequestError."""
    if b"commits" not in batch.values()[0]:  # Most name none.
        return []
    (commits,) = decode_fields(batch, commits=list)
    if not all(type(each) is int and 0 < each < _NUMBER_MAX for each in commits) or commits != sorted(set(commits)):
        raise _refused(f"an ORDER with the commits {brief_repr(commits)}")
    return list(commits)


def _read_order(batch: Batch, topics: Mapping[Stream, str]) -> list[StreamReport]:
    """Return the entries of an ORDER, all of streams of ``topics``. Raises as :meth:`Order.check`."""
    reports = decode_order(batch)
    for report in reports:
        if report.stream not in topics:
            raise RequestError(
                f"{brief_repr(report.stream.name)} is no stream of a topic with streams in group {report.stream.group};"
                " nothing was ordered",
                remedy="look with `viewstamp topic list`",
            )
    return reports


def read_runs(packed: Iterable[Any]) -> list[GlobalRun]:
    """Return runs that tile local positions. Raises ValueError or TypeError if these are none."""
    runs: list[GlobalRun] = []
    for version, position, local, length in packed:
        run = GlobalRun(_number(version), GlobalPosition(_number(position)), Position(_number(local)), _number(length))
        if runs:
            last = runs[-1]
            if run.local != last.end or run.position < last.position + last.length or run.version <= last.version:
                raise ValueError(f"{run} after {last}")
        runs.append(run)
    return runs


def _number(value: Any, least: int = 1) -> int:
    if type(value) is not int or not least <= value < _NUMBER_MAX:
        raise ValueError(f"{value!r} is no number in [{least}, 2^63)")
    return value


def _refused(why: str) -> RequestError:
    return RequestError(f"{why}; it has no effect", remedy="run the same release on all nodes")
