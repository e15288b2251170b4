"""The order: which global positions the records of all streams have, as the state of group 0 has it. Pure.

The leader of a stream reports the end of its committed records. An ORDER holds such ends, and **the runs are computed
when it is applied**: in the order of streams, each stream gets the next global positions for its records from its
ordered end to the new end. So it makes no difference which state the leader had when it proposed the record.

| an entry of ORDER | effect |
| --- | --- |
| an end above the ordered end of its stream | a run: these records have the next global positions |
| an end at or below it: late, doubled, or reported by a new leader that knows less | none |
| the end of the committed CONTEXTs of its stream | the runs below it are forgotten here, because the stream has them |
| such an end that is not above the last one, or above the ordered end | none |
| an end of a stream that has ``HELD_MAX`` runs here | none |
| an end with which the global positions would reach 2^63, as only a false report has it | none |

An ORDER without any effect is not admitted, so nothing is written while nothing is committed. One that became so
behind another record changes nothing; its version is not counted.

A stream whose leader writes no CONTEXT is not ordered beyond ``HELD_MAX`` runs, because this state would grow without
a bound. The other streams go on.

A record with a field that this release does not know raises ``OutdatedCodeError``, which stops the member. A record
that no release writes is refused, and changes nothing. docs/design/log-streams/LogStreams.tla specifies all of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from viewstamp.errors import RequestError
from viewstamp.ids import GlobalPosition, GroupId, Position, Stream
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.ordering import ENTRIES_MAX, GlobalRun, StreamReport
from viewstamp.wire.staged import decode_known

__all__ = ["HELD_MAX", "Order", "find_global", "find_local", "read_runs"]

HELD_MAX = 65_536
"""The most runs of one stream that are not forgotten. Like the other limits it is part of the replicated behaviour."""
_FIELDS = {Kind.ORDER: frozenset({"ends"})}
_NAME_MAX = 1024
_NUMBER_MAX = 1 << 63


class _OrderedStream:
    """The order of one stream.

    Invariants:
      * ``forgotten <= end``; the runs tile the local positions from ``forgotten`` or before it up to ``end``
      * the runs rise in version and in global position
    """

    __slots__ = ("end", "forgotten", "runs")

    def __init__(self) -> None:
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
    """The order of all streams. Never awaits.

    Invariants (``tests/streams/test_order.py``):
      * each global position below ``next_position`` was given once, to one record of one stream
      * the records of a stream have rising global positions, and each local position below its ordered end has one
      * what was given never changes
    """

    __slots__ = ("_streams", "next_position", "version")

    def __init__(self) -> None:
        self.version = 0
        """The number of applied ORDERs that gave positions."""
        self.next_position = GlobalPosition(1)
        self._streams: dict[Stream, _OrderedStream] = {}

    @property
    def is_used(self) -> bool:
        """Return whether there is anything to store: an ORDER had an effect once."""
        return bool(self._streams)

    # Records.

    def check(self, batch: Batch) -> bool:
        """Return whether an ORDER would change anything now.

        Raises:
          RequestError: the record would be refused.
          OutdatedCodeError: it has a field that this release does not know.
        """
        return any(self._is_change(report) for report in decode_order(batch))

    def streams_of(self, batch: Batch) -> list[Stream]:
        """Return the streams that an ORDER names. Raises as :meth:`check`."""
        return [report.stream for report in decode_order(batch)]

    def moved(self, reports: Iterable[StreamReport]) -> list[StreamReport]:
        """Return those reports, rising by stream, that would change anything now."""
        return sorted(report for report in reports if self._is_change(report))

    def apply(self, batch: Batch) -> list[tuple[Stream, GlobalRun]]:
        """Apply a committed ORDER, and return the new runs, rising by global position. Raises as :meth:`check`."""
        made: list[tuple[Stream, GlobalRun]] = []
        for report in decode_order(batch):
            stream, end, mapped = report
            if self._moves(report):
                state = self._streams.setdefault(stream, _OrderedStream())
                run = GlobalRun(self.version + 1, self.next_position, state.end, end - state.end)
                self.next_position = GlobalPosition(self.next_position + run.length)
                state.runs.append(run)
                state.end = end
                made.append((stream, run))
            if self._forgets(report):
                self._streams[stream].forget(mapped)
        self.version += bool(made)
        return made

    def _is_change(self, report: StreamReport) -> bool:
        return self._moves(report) or self._forgets(report)

    def _moves(self, report: StreamReport) -> bool:
        state = self._streams.get(report.stream)
        end, runs = (state.end, len(state.runs)) if state is not None else (1, 0)
        return end < report.end < end + _NUMBER_MAX - self.next_position and runs < HELD_MAX

    def _forgets(self, report: StreamReport) -> bool:
        state = self._streams.get(report.stream)
        return state is not None and state.forgotten < report.mapped <= state.end

    # Looking up.

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

    def find(self, position: int) -> tuple[Stream, Position] | None:
        """Return the stream and the local position of a global one.

        None: it was not given yet (``position >= next_position``), or its run was forgotten, and its stream has it.
        """
        for stream, state in self._streams.items():
            if (local := find_local(state.runs, position)) is not None:
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
        """Return the order as plain values, without its streams."""
        return {"version": self.version, "next_position": self.next_position}

    def streams(self) -> list[StreamReport]:
        """Return each ordered stream with its ordered end, and the end of what is forgotten here."""
        return [StreamReport(stream, state.end, state.forgotten) for stream, state in self._streams.items()]

    # Images.

    def image(self) -> list[object]:
        """Return the order as plain values."""
        streams = [
            [*stream, state.end, state.forgotten, [list(run) for run in state.runs]]
            for stream, state in self._streams.items()
        ]
        return [self.version, self.next_position, streams]

    @classmethod
    def from_image(cls, image: list[Any]) -> Order:
        """Rebuild the order from :meth:`image`. Raises ValueError or TypeError if it breaks an invariant."""
        version, next_position, streams = image
        order = cls()
        order.version, order.next_position = _number(version, 0), GlobalPosition(_number(next_position))
        ranges: list[tuple[int, int]] = []
        for group, name, end, forgotten, packed in streams:
            stream = Stream(GroupId(_number(group)), name)
            if type(name) is not str or stream in order._streams:
                raise ValueError(f"stream {stream!r} is no stream, or stands twice")
            state = order._streams[stream] = _OrderedStream()
            state.end, state.forgotten = Position(_number(end)), Position(_number(forgotten))
            state.runs = read_runs(packed)
            last = state.runs[-1].end if state.runs else state.forgotten
            first = state.runs[0].local if state.runs else last
            if not (first <= state.forgotten <= last == state.end):
                raise ValueError(f"the runs of {stream!r} are those from {first} to {last}, not to {end}")
            ranges += [(run.position, run.length) for run in state.runs]
            if state.runs and state.runs[-1].version > version:
                raise ValueError(f"{stream!r} has a run of version {state.runs[-1].version}, after {version}")
        ranges.sort()
        ends = [position + length for position, length in ranges]
        starts = [position for position, _ in ranges[1:]] + [next_position]
        if any(end > start for end, start in zip(ends, starts, strict=False)):
            raise ValueError("a global position was given twice, or was not given yet")
        return order


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
