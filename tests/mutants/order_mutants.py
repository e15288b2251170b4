"""Planted mistakes in the order of streams."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tests.mutants.mutants import Mutant, patched
from viewstamp.client import balance
from viewstamp.errors import RequestError, ViewstampError
from viewstamp.ids import GlobalPosition, GroupId, Index, NodeId, Position, Stream
from viewstamp.node.order_queries import FirstFromQuery, StreamReportsQuery
from viewstamp.node.ordering import Ordering
from viewstamp.node.placement_queries import SpreadTopic, SpreadTopicsQuery
from viewstamp.node.state_machine import Query, Result
from viewstamp.node.stream_topics import StreamTopics, _record
from viewstamp.streams import order, stream_map
from viewstamp.streams.order import Order, _OrderedStream
from viewstamp.streams.settings import decode_settings
from viewstamp.streams.spread import SpreadTopics
from viewstamp.streams.state import State
from viewstamp.streams.stream_map import StreamMap
from viewstamp.wire.batch import Batch
from viewstamp.wire.ordering import GlobalRun, StreamReport
from viewstamp.wire.staged import decode_fields

__all__ = ["ORDER_MUTANTS"]


def take_shrunk() -> AbstractContextManager[None]:
    """A report that shrank moves the ordered end back, so that positions are given twice."""
    original = Order.apply

    def apply(self: Order, batch: Batch, topics: Mapping[Stream, str]) -> list[tuple[Stream, GlobalRun]]:
        for report in order.decode_order(batch):
            state = self._streams.get(report.stream)
            if state is not None and 1 < report.end < state.end:
                state.end = report.end
        return original(self, batch, topics)

    return patched(Order, apply=apply)


def order_again_at_once() -> AbstractContextManager[None]:
    """An ORDER that is refused is made again at once, as long as it is refused."""
    original = Ordering._note_refusal

    def note(self: Ordering, what: str, result: Result | ViewstampError) -> None:
        original(self, what, result)
        if what == "ORDER" and isinstance(result, ViewstampError):
            self._propose_order()

    return patched(Ordering, _note_refusal=note)


def skip_a_position() -> AbstractContextManager[None]:
    original = Order.apply

    def apply(self: Order, batch: Batch, topics: Mapping[Stream, str]) -> list[tuple[Stream, GlobalRun]]:
        made = original(self, batch, topics)
        for topic in {topics[stream] for stream, _ in made if len(made) > 1}:
            self._next_positions[topic] = GlobalPosition(self.next_position(topic) + 1)
        return made

    return patched(Order, apply=apply)


def forget_what_is_ordered() -> AbstractContextManager[None]:
    """Group 0 forgets runs when they are ordered, although no CONTEXT has them."""
    original = Order.apply

    def apply(self: Order, batch: Batch, topics: Mapping[Stream, str]) -> list[tuple[Stream, GlobalRun]]:
        before = [stream for stream, _ in self.runs()]
        made = original(self, batch, topics)
        for stream in before:
            self._streams[stream].forget(self._streams[stream].end)
        return made

    return patched(Order, apply=apply)


def forget_a_part() -> AbstractContextManager[None]:
    """A run is forgotten although the stream has only a part of the runs up to its end."""

    def forget(self: _OrderedStream, mapped: Position) -> None:
        self.forgotten = mapped
        self.runs = [run for run in self.runs if run.local >= mapped]

    return patched(_OrderedStream, forget=forget)


def context_above_the_map() -> AbstractContextManager[None]:
    """A leader that lags behind group 0 writes runs that begin above the end of its map."""

    def missing(self: Order, stream: Stream, mapped: Position, count_max: int) -> list[GlobalRun]:
        state = self._streams.get(stream)
        return [run for run in state.runs if run.end > mapped][-1:] if state is not None else []

    return patched(Order, missing=missing)


def add_known_runs() -> AbstractContextManager[None]:
    return patched(StreamMap, new_runs=lambda self, runs: runs)


def report_what_is_admitted() -> AbstractContextManager[None]:
    """A leader reports one record more than it knows to be committed."""
    original = State.answer

    def answer(self: State, query: Query[Any]) -> object:
        found: Any = original(self, query)
        if isinstance(query, StreamReportsQuery):
            return [StreamReport(each.stream, Position(each.end + 1), each.mapped) for each in found]
        return found

    return patched(State, answer=answer)


def order_any_stream() -> AbstractContextManager[None]:
    """Streams that no spread topic has are ordered, with the positions of a topic without a name."""
    original, known = Order.apply, Order.check

    class AnyStream(dict[Stream, str]):
        def __missing__(self, stream: Stream) -> str:
            return ""

        def __contains__(self, stream: object) -> bool:
            return True

    def apply(self: Order, batch: Batch, topics: Mapping[Stream, str]) -> list[tuple[Stream, GlobalRun]]:
        return original(self, batch, AnyStream(topics))

    def check(self: Order, batch: Batch, topics: Mapping[Stream, str]) -> bool:
        return known(self, batch, AnyStream(topics))

    return patched(Order, apply=apply, check=check)


def one_space_for_all_topics() -> AbstractContextManager[None]:
    """The topics share their global positions, so that those of one topic have gaps."""

    def next_position(self: Order, topic: str) -> GlobalPosition:
        return max(self._next_positions.values(), default=GlobalPosition(1))

    return patched(Order, next_position=next_position)


def report_from_anybody() -> AbstractContextManager[None]:
    def may_report(self: Ordering, source: NodeId, group: GroupId) -> bool:
        return True

    return patched(Ordering, _may_report=may_report)


def map_without_its_end() -> AbstractContextManager[None]:
    """A trim drops the newest run, and with it the end of the map in the next snapshot."""

    def trim(self: StreamMap, position: Position) -> None:
        kept = [run for run in (self.run(at) for at in range(len(self))) if run.end > position]
        self.__init__()  # type: ignore[misc]
        self.extend(kept)

    return patched(StreamMap, trim=trim)


def join_across_other_streams() -> AbstractContextManager[None]:
    """A run is joined to the one before although records of another stream are between them."""

    def extend(self: StreamMap, runs: list[GlobalRun]) -> None:
        for run in runs:
            if self:
                self._versions[-1] = run.version
                self._lengths[-1] += run.length
            else:
                for column, number in zip(self._columns, run, strict=True):
                    column.append(number)
            self.end = run.end

    return patched(StreamMap, extend=extend)


def refuse_parts() -> AbstractContextManager[None]:
    """A second copy of a run contradicts the one to which the first was joined."""
    return patched(stream_map, _is_part=lambda run, held: run == held)


def join_with_the_first_version() -> AbstractContextManager[None]:
    """A joined run has the oldest of its versions, so that an older run fits behind it."""
    original = StreamMap.extend

    def extend(self: StreamMap, runs: list[GlobalRun]) -> None:
        for run in runs:
            version = self._versions[-1] if self else 0
            before = len(self)
            original(self, [run])
            if len(self) == before:
                self._versions[-1] = version

    return patched(StreamMap, extend=extend)


def order_without_versions() -> AbstractContextManager[None]:
    original = Order.image
    return patched(Order, image=lambda self: [len(self._streams), *original(self)[1:]])


def write_empty_orders() -> AbstractContextManager[None]:
    """An ORDER is written in each round, although nothing was committed."""
    return patched(Order, moved=lambda self, reports, topics: sorted(reports), check=lambda self, batch, topics: True)


def order_beyond_64_bits() -> AbstractContextManager[None]:
    """A false report uses up the global positions that a snapshot can hold."""
    original = Order._moves

    def moves(self: Order, report: StreamReport, topic: str) -> bool:
        return original(self, report, topic) or report.end == (1 << 63) - 1 > self.ordered_end(report.stream)

    return patched(Order, _moves=moves)


def move_to_any_member() -> AbstractContextManager[None]:
    """A leader is moved to a member although its node does not answer."""
    return patched(balance, _why_unfit=lambda hosted, member, *, is_known: "")


def configure_by_a_late_copy() -> AbstractContextManager[None]:
    """A copy of a CONFIGURE_SPREAD that arrives after another one undoes it."""
    original = SpreadTopics._configured

    def configured(self: SpreadTopics, batch: Batch) -> tuple[SpreadTopic, SpreadTopic | None]:
        try:
            return original(self, batch)
        except RequestError:
            topic = self.topics[decode_settings(batch).name]
            kept = decode_settings(batch).retain_bytes or 0
            return topic, replace(topic, retain_bytes=kept, configured=Index(batch.first_index))

    return patched(SpreadTopics, _configured=configured)


def configure_by_an_old_state() -> AbstractContextManager[None]:
    """A leader that lags behind group 0 gives a stream a retention that was replaced."""

    async def configure(self: StreamTopics) -> None:
        self._configuring = None
        for group, topic, stream in self._streams(self._group.machine.query(SpreadTopicsQuery())):
            self._propose(group, stream, _record(stream, topic, is_new=False))

    return patched(StreamTopics, _configure=configure)


def trim_beyond_the_order() -> AbstractContextManager[None]:
    """A trim may name positions that are not given yet, so later records are gone before anybody reads them."""

    def trimmed(self: SpreadTopics, batch: Batch, order: Order) -> tuple[SpreadTopic, SpreadTopic | None]:
        name, position = decode_fields(batch, name=str, position=int)
        topic = self.topics[name]
        changed = replace(topic, first_position=GlobalPosition(position))
        return topic, changed if position > topic.first_position else None

    return patched(SpreadTopics, _trimmed=trimmed)


def trim_back() -> AbstractContextManager[None]:
    """A late copy of a trim moves the first position back."""
    original = SpreadTopics._trimmed

    def trimmed(self: SpreadTopics, batch: Batch, order: Order) -> tuple[SpreadTopic, SpreadTopic | None]:
        topic, changed = original(self, batch, order)
        (position,) = decode_fields(batch, position=int)
        return topic, changed or replace(topic, first_position=GlobalPosition(position))

    return patched(SpreadTopics, _trimmed=trimmed)


def trim_what_has_no_run() -> AbstractContextManager[None]:
    """A stream is trimmed to its end if the map of its group has no record from the position on."""
    original = State.answer

    def answer(self: State, query: Query[Any]) -> object:
        found: Any = original(self, query)
        if isinstance(query, FirstFromQuery) and found == self.maps.mapped_end(query.stream):
            return self.named(query.stream).next_position
        return found

    return patched(State, answer=answer)


ORDER_MUTANTS = {
    name: Mutant(name, mistake, plant, rule="§7")
    for name, mistake, plant in (
        ("order-takes-shrunk", "a report that shrank moves the ordered end back", take_shrunk),
        ("order-again-at-once", "an ORDER that is refused is made again without a pause", order_again_at_once),
        ("order-skips-a-position", "a global position is given to no record", skip_a_position),
        ("forget-what-is-ordered", "group 0 forgets runs that no CONTEXT has", forget_what_is_ordered),
        ("forget-a-part", "group 0 forgets a run of which a CONTEXT has a part", forget_a_part),
        ("context-above-the-map", "a CONTEXT leaves a gap behind the runs before it", context_above_the_map),
        ("add-known-runs", "a run that the map has is added again", add_known_runs),
        ("report-what-is-admitted", "a leader of a stream reports more than is committed", report_what_is_admitted),
        ("order-any-stream", "what is no stream gets global positions", order_any_stream),
        ("one-space-for-all-topics", "the topics share their global positions", one_space_for_all_topics),
        ("report-from-anybody", "a node reports for a group of which it is no member", report_from_anybody),
        ("map-without-its-end", "a trim removes the newest run of a stream", map_without_its_end),
        ("join-across-other-streams", "runs are joined across records of another stream", join_across_other_streams),
        ("refuse-parts", "a copy of a run that was joined contradicts the map", refuse_parts),
        ("join-with-the-first-version", "an older run fits behind a joined one", join_with_the_first_version),
        ("order-without-versions", "a snapshot has another version of the order", order_without_versions),
        ("write-empty-orders", "an ORDER is written while nothing is committed", write_empty_orders),
        ("order-beyond-64-bits", "a false report makes a state that no snapshot can hold", order_beyond_64_bits),
        ("move-to-any-member", "a leader is moved to a member that does not answer", move_to_any_member),
        ("configure-by-a-late-copy", "a late copy of a change undoes a later one", configure_by_a_late_copy),
        ("trim-beyond-the-order", "a trim deletes records that are not ordered yet", trim_beyond_the_order),
        ("trim-back", "a late copy of a trim moves the first position back", trim_back),
        ("trim-what-has-no-run", "records are trimmed whose global position is not known", trim_what_has_no_run),
        ("configure-by-an-old-state", "a stream gets a retention that was replaced", configure_by_an_old_state),
    )
}
"""The mutants by name."""
