"""The order of streams: any history keeps its invariants, and no record but its own changes it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mutants.mutants import patched
from tests.streams.log import Log, create_topic, open_session, pieces, records, restored, trim_topic
from tests.streams.order_history import BrokenOrderError, OrderHistory, copied
from tests.streams.test_placement import established
from viewstamp.errors import CorruptionError, OutdatedCodeError, RequestError
from viewstamp.ids import GlobalPosition, GroupId, Position, Stream
from viewstamp.node.order_queries import MissingRunsQuery, MovedStreamsQuery, OrderedRunsQuery, StreamReportsQuery
from viewstamp.node.state_machine import Answered
from viewstamp.streams import Streams, order
from viewstamp.streams.order import Order
from viewstamp.streams.stream_map import StreamMap, StreamMaps
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.ordering import ENTRIES_MAX, GlobalRun, StreamReport, encode_context, encode_order
from viewstamp.wire.spreading import encode_spread


def report(stream: Stream, end: int, mapped: int = 1) -> StreamReport:
    return StreamReport(stream, Position(end), Position(mapped))


def run(version: int, position: int, local: int, length: int) -> GlobalRun:
    return GlobalRun(version, GlobalPosition(position), Position(local), length)


def record(kind: Kind, **fields: object) -> Batch:
    return build_batch([msgpack.packb(fields)], kind=kind)


A, B = Stream(GroupId(1), "a"), Stream(GroupId(1), "b")
C = Stream(GroupId(2), "a")
D = Stream(GroupId(2), "d")
TOPICS = {A: "t", B: "t", C: "t", D: "u"}


def applied(*orders: Iterable[StreamReport]) -> Order:
    state = Order()
    for reports in orders:
        state.apply(encode_order(list(reports)), TOPICS)
    return state


# Histories.


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 4), st.integers(1, 2))
def test_any_history_of_reports_leaders_and_snapshots_keeps_the_invariants(
    seed: int, streams: int, topics: int
) -> None:
    """Reports are lost, doubled, late, and shrink; leaders of streams and of group 0 change, and cut their logs."""
    history = OrderHistory(random.Random(seed), streams=streams, topics=topics)
    for _ in range(80):
        history.act()


def test_a_history_has_each_kind_of_step() -> None:
    kinds: set[str] = set()
    for seed in range(20):
        history = OrderHistory(random.Random(seed))
        while history.act() or len(history.steps) < 40:
            pass
        kinds |= {step["kind"] for step in history.steps}
    assert kinds == {"append", "commit", "elect", "context", "propose", "order", "cut"}


def test_a_broken_invariant_is_found() -> None:
    history = OrderHistory(random.Random(1))
    (placed,) = history.placed.values()
    while not placed:
        history.act()
    placed[0] = placed[0]._replace(identity="another record")
    with pytest.raises(BrokenOrderError, match="OrderStable"):
        history.check()


# ORDER.


def test_the_versions_and_positions_of_the_example_of_varlog() -> None:
    """Both streams have a record, and later the second one has another: its version has no entry for the first."""
    state = Order()
    both = encode_order([report(A, 2), report(C, 2)])
    assert state.apply(both, TOPICS) == [(A, run(1, 1, 1, 1)), (C, run(1, 2, 1, 1))]
    assert state.apply(encode_order([report(A, 2), report(C, 3)]), TOPICS) == [(C, run(2, 3, 2, 1))]
    assert (state.describe(), state.next_position("t")) == ({"version": 2}, 4)
    assert [state.find("t", position) for position in range(1, 5)] == [(A, 1), (C, 1), (C, 2), None]
    assert state.find_global(C, 2) == 3
    assert state.find_global(C, 3) is None
    assert state.find_global(B, 1) is None


def test_each_topic_has_global_positions_of_its_own_without_gaps() -> None:
    """The records of A and C, which have one topic, follow each other, whatever the topic of D gets between them."""
    state = applied([report(A, 3), report(D, 4)])
    state = Order.from_image(copied_image(state), TOPICS)
    both = encode_order([report(C, 2), report(D, 5)])
    assert state.apply(both, TOPICS) == [(C, run(2, 3, 1, 1)), (D, run(2, 4, 4, 1))]
    assert (state.next_position("t"), state.next_position("u"), state.next_position("v")) == (4, 5, 1)
    assert [state.find("t", position) for position in (1, 3, 4)] == [(A, 1), (C, 1), None]
    assert [state.find("u", position) for position in (1, 4, 5)] == [(D, 1), (D, 4), None]
    known = StreamMaps.from_image([["t.1", columns([1, 1, 1, 2])], ["u.1", columns([1, 1, 1, 3])]])
    assert [known.find(A.group, topic, 3) for topic in ("t", "u", "t.1")] == [None, (Stream(A.group, "u.1"), 3), None]


def copied_image(state: Order) -> list[Any]:
    """Return the image as a member reads it in a snapshot."""
    image: list[Any] = msgpack.unpackb(msgpack.packb(state.image()))
    return image


def test_streams_get_their_positions_in_the_order_of_group_and_name() -> None:
    state = Order()
    moved = state.moved([report(C, 2), report(B, 3), report(A, 2)], TOPICS)
    assert [stream for stream, _ in state.apply(encode_order(moved), TOPICS)] == [A, B, C]


@pytest.mark.parametrize("end", [1, 2, 3])
def test_an_end_at_or_below_the_ordered_end_has_no_effect(end: int) -> None:
    state = applied([report(A, 3)])
    late = encode_order([report(A, end)])
    assert not state.check(copied(late), TOPICS)
    assert state.moved([report(A, end)], TOPICS) == []
    before = state.image()
    assert state.apply(late, TOPICS) == []
    assert state.image() == before


def test_only_runs_that_a_stream_has_are_forgotten() -> None:
    state = applied([report(A, 3)], [report(A, 5)], [report(C, 2)])
    assert state.check(encode_order([report(A, 1, 3)]), TOPICS)
    state.apply(encode_order([report(A, 1, 4)]), TOPICS)
    assert [each for each, _ in state.runs()] == [A, C], "a run of which a part is not in the stream stays"
    assert state.find("t", 1) is None
    assert state.find("t", 3) == (A, 3)
    assert (state.ordered_end(A), state.forgotten_end(A)) == (5, 4)
    before = state.image()
    for mapped in (1, 3, 4, 6):
        state.apply(encode_order([report(A, 1, mapped)]), TOPICS)
    assert state.image() == before, "a smaller end, and one above the ordered end, have no effect"
    assert state.apply(encode_order([report(A, 6, 5)]), TOPICS) == [(A, run(4, 6, 5, 1))]


def test_a_stream_whose_leader_writes_no_context_is_ordered_to_a_limit() -> None:
    with patched(order, HELD_MAX=2):
        state = applied([report(A, 2)], [report(A, 3)], [report(A, 4), report(C, 2)])
        assert (state.ordered_end(A), state.ordered_end(C)) == (3, 2)
        assert state.moved([report(A, 4)], TOPICS) == []
        state.apply(encode_order([report(A, 4, 2)]), TOPICS)
        state.apply(encode_order([report(A, 4)]), TOPICS)
        assert state.ordered_end(A) == 4


def test_the_runs_from_a_record_on_are_known_in_group_0_or_in_its_stream(log: Log) -> None:
    ordered(log)
    log.run(encode_context("orders", [run(1, 1, 1, 1), run(2, 7, 2, 1)]))
    of_stream = Stream(GroupId(7), "orders")
    for local, known in ((1, [run(1, 1, 1, 1), run(2, 7, 2, 1)]), (2, [run(2, 7, 2, 1)]), (3, [])):
        assert log.machine.query(OrderedRunsQuery(of_stream, local, 9)) == known
    assert log.machine.query(OrderedRunsQuery(of_stream, 1, 1)) == [run(1, 1, 1, 1)]
    (stream,) = spread(log, "t")
    assert log.machine.query(OrderedRunsQuery(stream, 1, 9)) == []
    log.run(encode_order([report(stream, 3)]))
    log.run(encode_order([report(stream, 5)]))
    for local, known in ((2, [run(1, 1, 1, 2), run(2, 3, 3, 2)]), (4, [run(2, 3, 3, 2)]), (5, [])):
        assert log.machine.query(OrderedRunsQuery(stream, local, 9)) == known
    log.run(encode_order([report(stream, 5, 3)]))
    assert log.machine.query(OrderedRunsQuery(stream, 2, 9)) == [], "its stream has it"


def test_a_leader_that_lags_behind_group_0_gets_no_runs() -> None:
    """They would begin above the end of its map."""
    state = applied([report(A, 3)], [report(A, 5)])
    state.apply(encode_order([report(A, 5, 3)]), TOPICS)
    assert state.missing(A, Position(1), 9) == []
    assert state.missing(A, Position(3), 9) == [run(2, 3, 3, 2)]
    assert state.missing(A, Position(5), 9) == []
    assert state.missing(C, Position(1), 9) == []
    assert applied([report(A, 3)], [report(A, 5)]).missing(A, Position(1), 1) == [run(1, 1, 1, 2)]


@pytest.mark.parametrize(
    "ends",
    [
        [],
        [[1, "a", 2]],
        [[1, "a", 2, 1, 1]],
        [[0, "a", 2, 1]],
        [[True, "a", 2, 1]],
        [[1, 7, 2, 1]],
        [[1, "", 2, 1]],
        [[1, "a", 0, 1]],
        [[1, "a", 2, 0]],
        [[1, "a", 1 << 63, 1]],
        [[1, "a", 2, None]],
        [None],
        [[1, "b", 2, 1], [1, "a", 2, 1]],
        [[1, "a", 2, 1], [1, "a", 2, 1]],
        [[number, "a", 2, 1] for number in range(1, ENTRIES_MAX + 2)],
    ],
)
def test_an_order_that_is_none_is_refused(ends: list[Any]) -> None:
    state = applied([report(A, 2)])
    before = state.image()
    for call in (state.check, state.apply):
        with pytest.raises(RequestError, match="an ORDER with"):
            call(record(Kind.ORDER, ends=ends), TOPICS)
    assert state.image() == before


def test_a_field_of_a_newer_release_stops_the_member(log: Log) -> None:
    for newer in (
        record(Kind.ORDER, ends=[[1, "a", 2, 1]], why=1),
        record(Kind.CONTEXT, stream="a", runs=[[1, 1, 1, 1]], why=1),
        build_batch([msgpack.packb({"ends": [[1, "a", 2, 1]]})] * 2, kind=Kind.ORDER),
    ):
        with pytest.raises(OutdatedCodeError, match=r"'why'|2 records"):
            log.propose(copied(newer))
        with pytest.raises(OutdatedCodeError, match=r"'why'|2 records"):
            log.enter(newer)


@pytest.mark.parametrize("kind", [Kind.ORDER, Kind.CONTEXT])
@pytest.mark.parametrize("content", [b"\xc1", msgpack.packb([1]), msgpack.packb({"ends": 7, "stream": "a", "runs": 7})])
def test_a_record_without_its_fields_is_refused(log: Log, kind: Kind, content: bytes) -> None:
    with pytest.raises(RequestError, match=f"{kind.name}"):
        log.enter(build_batch([content], kind=kind))


# CONTEXT.


def test_a_run_that_the_map_has_is_skipped() -> None:
    known = StreamMap()
    runs = [run(1, 1, 1, 2), run(3, 9, 3, 1)]
    known.extend(known.new_runs(runs))
    assert known.new_runs(runs) == []
    assert known.new_runs([*runs, run(4, 12, 4, 1)]) == [run(4, 12, 4, 1)]
    assert [known.find_local(position) for position in (1, 2, 3, 8, 9, 10)] == [1, 2, None, None, 3, None]
    assert [known.find_global(local) for local in (1, 2, 3, 4)] == [1, 2, 9, None]


def test_runs_without_a_record_of_another_stream_between_them_are_one_run_of_the_map() -> None:
    """While callers wait, a stream that is alone gets hundreds of them a second."""
    runs = [run(1, 1, 1, 2), run(2, 3, 3, 1), run(5, 4, 4, 2), run(6, 9, 6, 1), run(7, 10, 7, 1)]
    known = StreamMap()
    for each in runs:
        known.extend(known.new_runs([each]))
    assert [known.run(at) for at in range(len(known))] == [run(5, 1, 1, 5), run(7, 9, 6, 2)]
    assert [known.find_global(local) for local in range(1, 9)] == [1, 2, 3, 4, 5, 9, 10, None]
    assert [known.find_local(position) for position in (3, 5, 6, 9, 10)] == [3, 5, None, 6, 7]
    for at, each in enumerate(runs):
        assert known.new_runs([each]) == [], "a second copy is skipped"
        assert known.new_runs([*runs[at:], run(8, 11, 8, 1)]) == [run(8, 11, 8, 1)]
    for other in (run(4, 5, 4, 2), run(6, 4, 4, 2), run(5, 4, 4, 3)):
        with pytest.raises(ValueError, match="contradicts"):
            known.new_runs([other])
    unjoined = columns(*([each.version, each.position, each.local, each.length] for each in runs))
    assert StreamMap.from_image(unjoined).image() == known.image(), "as an earlier release has written it"


@pytest.mark.parametrize(
    "runs",
    [
        [run(4, 20, 4, 1)],
        [run(3, 1, 1, 1)],
        [run(1, 2, 1, 2)],
        [run(1, 1, 1, 3)],
        [run(2, 20, 3, 1)],
        [run(3, 2, 3, 1)],
    ],
    ids=["gap", "newer", "elsewhere", "longer", "older", "overlapping"],
)
def test_runs_that_do_not_fit_are_refused(runs: list[GlobalRun]) -> None:
    known = StreamMap()
    known.extend([run(2, 1, 1, 2)])
    with pytest.raises(ValueError, match=r"begins at|contradicts|after"):
        known.new_runs(runs)


def test_a_trim_keeps_the_newest_run_and_the_end_of_the_map() -> None:
    known = StreamMap()
    known.extend([run(1, 1, 1, 2), run(2, 5, 3, 2), run(3, 9, 5, 2)])
    known.trim(Position(4))
    assert (len(known), known.find_global(2), known.find_global(3)) == (2, None, 5)
    known.trim(Position(7))
    assert (len(known), known.end, known.find_global(6)) == (1, 7, 10)
    known.trim(Position(1))
    assert len(known) == 1


def test_a_map_keeps_its_end_when_its_stream_is_trimmed_empty(log: Log) -> None:
    ordered(log)
    log.run(encode_context("orders", [run(1, 1, 1, 2)]))
    log.run(trim_topic("orders", 3))
    again = Log(restored(log.machine))
    again.machine.stop_leading()
    assert log.machine.query(StreamReportsQuery(GroupId(7))) == [report(Stream(GroupId(7), "orders"), 3, 3)]
    assert again.machine.query(StreamReportsQuery(GroupId(7))) == [report(Stream(GroupId(7), "orders"), 3, 3)]


# In the state of a group.


@pytest.fixture
def log() -> Log:
    return Log(Streams())


def spread(log: Log, *topics: str) -> list[Stream]:
    """Create spread topics with one stream each, in groups of their own, and return the streams."""
    groups = [GroupId(established(log, f"s-{topic}")) for topic in topics]
    for topic, group in zip(topics, groups, strict=True):
        log.run(encode_spread(topic, [group]))
    return [Stream(group, f"{topic}.1") for topic, group in zip(topics, groups, strict=True)]


def ordered(log: Log, count: int = 2) -> None:
    """Create the topic "orders" with some records."""
    log.run(create_topic("orders"))
    session = log.run(open_session())
    assert isinstance(session, dict)
    number = session["session"]
    assert isinstance(number, int)
    log.run(records(1, number, 1, count))


def test_group_0_orders_the_streams_of_spread_topics_only(log: Log) -> None:
    (stream,) = spread(log, "t")
    placed, other = Stream(stream.group, "s-t"), Stream(stream.group, "t.2")
    assert log.machine.query(MovedStreamsQuery([report(each, 3) for each in (placed, other, stream)])) == [
        report(stream, 3)
    ]
    assert log.run(encode_order([report(stream, 3)])) == {"version": 1}
    for none in (placed, other, Stream(GroupId(stream.group + 1), "t.1"), Stream(GroupId(1 << 40), "t.1")):
        before = log.machine.query(MissingRunsQuery(stream, Position(1), 9))
        for call in (log.propose, log.enter):
            with pytest.raises(RequestError, match="is no stream of a topic with streams in group"):
                call(encode_order([report(none, 3)]))
        assert log.machine.query(MissingRunsQuery(stream, Position(1), 9)) == before == [run(1, 1, 1, 2)]


def test_an_order_without_effect_is_not_written(log: Log) -> None:
    (stream,) = spread(log, "t")
    log.run(encode_order([report(stream, 3)]))
    chain = log.machine.chain
    admission = log.propose(encode_order([report(stream, 3)]))
    assert admission == Answered({"version": 1})
    assert not log.unapplied
    assert log.enter(encode_order([report(stream, 2)])) == {"version": 1}
    assert log.machine.chain == chain, "one that entered the log has no effect either"


def test_a_context_without_effect_is_not_written(log: Log) -> None:
    ordered(log)
    log.run(encode_context("orders", [run(1, 1, 1, 2)]))
    chain = log.machine.chain
    assert log.propose(encode_context("orders", [run(1, 1, 1, 2)])) == Answered({})
    log.enter(encode_context("orders", [run(1, 1, 1, 2)]))
    assert log.machine.chain == chain


@pytest.mark.parametrize(
    ("name", "runs", "message"),
    [
        ("orders", [], "without runs"),
        ("orders", [[1, 1, 1]], "runs that are none"),
        ("orders", [[1, 1, 1, 0]], "runs that are none"),
        ("orders", [[1, 1, 1, 1], [2, 2, 3, 1]], "runs that are none"),
        ("orders", [[1, 1, 1, 1], [1, 2, 2, 1]], "runs that are none"),
        ("orders", [[1, 1, 2, 1]], "does not fit"),
        ("orders", [[1, 1, 1, 3]], "which ends before it"),
        ("others", [[1, 1, 1, 1]], "is no stream of this group"),
    ],
)
def test_a_context_that_does_not_fit_is_refused(log: Log, name: str, runs: list[Any], message: str) -> None:
    ordered(log)
    before = log.machine.digest()
    for call in (log.propose, log.enter):
        with pytest.raises(RequestError, match=message):
            call(record(Kind.CONTEXT, stream=name, runs=runs))
    assert log.machine.query(StreamReportsQuery(GroupId(7))) == [report(Stream(GroupId(7), "orders"), 3)]
    assert before != log.machine.digest(), "the refused record is in the log"


# Images.


def test_the_order_is_restored_and_goes_on_alike(log: Log) -> None:
    one, two = spread(log, "t", "u")
    log.run(encode_order([report(one, 3), report(two, 2)]))
    log.run(encode_order([report(one, 4, 3)]))
    log.run(encode_order([report(one, 5)]))
    again = Log(restored(log.machine), first_index=log.next_index)
    assert again.machine.digest() == log.machine.digest()
    for each in (log, again):
        each.run(encode_order([report(two, 5)]))
    assert again.machine.digest() == log.machine.digest()


def test_a_state_without_an_order_is_written_as_before(log: Log) -> None:
    established(log, "s1")
    ordered(log)
    _, header = msgpack.unpackb(next(iter(pieces(log.machine.begin_snapshot()))))
    assert header[0] == 5
    assert len(header) == 1 + 7 + 2


@pytest.mark.parametrize(
    "image",
    [
        [1, [["t", 3]], [[1, "a", 3, 1, []]]],
        [1, [["t", 3]], [[1, "a", 3, 1, [[1, 1, 1, 2]]], [1, "a", 3, 3, []]]],
        [1, [["t", 2]], [[1, "a", 3, 1, [[1, 1, 1, 2]]]]],
        [0, [["t", 3]], [[1, "a", 3, 1, [[1, 1, 1, 2]]]]],
        [1, [["t", 3]], [[1, "a", 3, 4, [[1, 1, 1, 2]]]]],
        [1, [["t", 3]], [[1, "a", 4, 1, [[1, 1, 1, 2]]]]],
        [1, [["t", 4]], [[1, "a", 3, 1, [[1, 1, 1, 2]]], [1, "b", 3, 1, [[1, 2, 1, 2]]]]],
        [1, [["t", 3]], [[1, 7, 3, 3, []]]],
        [1, [["t", 3]], [[1, "e", 3, 1, [[1, 1, 1, 2]]]]],
        [1, [["u", 3]], [[1, "a", 3, 1, [[1, 1, 1, 2]]]]],
        [1, [["t", 3], ["u", 2]], [[1, "a", 3, 1, [[1, 1, 1, 2]]]]],
        [1, [["t", 3], ["t", 4]], [[1, "a", 3, 1, [[1, 1, 1, 2]]]]],
        [1, [["t", 0]], [[1, "a", 3, 3, []]]],
        [1, [[["t"], 3]], [[1, "a", 3, 1, [[1, 1, 1, 2]]]]],
        [1, 3, [[1, "a", 3, 1, [[1, 1, 1, 2]]]]],
        [-1, [], []],
        [1],
    ],
)
def test_a_damaged_image_of_the_order_is_refused(image: list[Any]) -> None:
    assert Order.from_image([1, [["t", 3]], [[1, "a", 3, 1, [[1, 1, 1, 2]]]]], TOPICS).ordered_end(A) == 3
    with pytest.raises((ValueError, TypeError)):
        Order.from_image(image, TOPICS)


def test_a_false_report_leaves_a_state_that_can_be_loaded(log: Log) -> None:
    """Snapshots have numbers below 2^63. Beyond them, no node could start from a snapshot of group 0 again."""
    group = GroupId(established(log, "s1"))
    log.run(encode_spread("t", [group, group]))
    first, second = (Stream(group, f"t.{number}") for number in (1, 2))
    top = Position((1 << 63) - 1)
    log.run(encode_order([StreamReport(first, top, Position(1)), StreamReport(second, top, Position(1))]))
    found = restored(log.machine)._state.order
    assert found.image() == log.machine._state.order.image()
    assert found.next_position("t") < 1 << 63
    assert (found.ordered_end(first), found.ordered_end(second)) == (top, 1)


def columns(*runs: list[int]) -> list[bytes]:
    """Return the image of a map with these runs."""
    return [b"".join(number.to_bytes(8, "little") for number in column) for column in zip(*runs, strict=True)]


def test_the_image_of_a_map_has_32_bytes_for_each_run() -> None:
    """A busy stream gets a million runs in three days, and the node packs them all at the begin of a snapshot."""
    whole = StreamMap()
    whole.extend([GlobalRun(at, GlobalPosition(5 * at), Position(2 * at - 1), 2) for at in range(1, 1001)])
    assert whole.image() == columns(*([at, 5 * at, 2 * at - 1, 2] for at in range(1, 1001)))
    loaded = StreamMap.from_image(whole.image())
    assert (loaded.image(), loaded.end, len(loaded)) == (whole.image(), 2001, 1000)


@pytest.mark.parametrize(
    "image",
    [
        [["a", [b""] * 4]],
        [["a", columns([1, 1, 1, 2])]] * 2,
        [["a", columns([1, 1, 1, 2])[:3]]],
        [["a", [*columns([1, 1, 1, 2])[:3], b"1234567"]]],
        [["a", [*columns([1, 1, 1, 2])[:3], bytes(16)]]],
        [["a", [[1], [1], [1], [2]]]],
        [["a", columns([1, 1, 1, 0])]],
        [["a", columns([1, 1, 1, 1 << 63])]],
        [["a", columns([1, 1, 1, 2], [2, 3, 4, 1])]],
        [["a", columns([1, 1, 1, 2], [2, 2, 3, 1])]],
        [["a", columns([1, 1, 1, 2], [1, 3, 3, 1])]],
        [[7, columns([1, 1, 1, 1])]],
        [["a"]],
    ],
)
def test_a_damaged_image_of_the_maps_is_refused(image: list[Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        StreamMaps.from_image(image)


def test_an_order_beyond_the_committed_records_is_damage(log: Log) -> None:
    """Line 5 of B0: a start that finds the map of a stream behind its last record reports it."""
    ordered(log)
    log.run(encode_context("orders", [run(1, 1, 1, 2)]))
    whole = list(pieces(log.machine.begin_snapshot()))
    section, header = msgpack.unpackb(whole[0])
    header[10][1] = [["orders", columns([1, 1, 1, 3])]]
    whole[0] = msgpack.packb([section, header])
    with pytest.raises(CorruptionError, match="beyond its committed records"):
        Streams().prepare(whole)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), min_size=1, max_size=6), st.integers(1, 40))
def test_the_first_record_from_a_global_position_on_is_found(lengths: list[tuple[int, int]], position: int) -> None:
    """Each run has a length, and the number of positions that other streams have before it."""
    runs, local, free = [], 1, 1
    for version, (length, before) in enumerate(lengths, 1):
        runs.append(GlobalRun(version, GlobalPosition(free + before), Position(local), length))
        local, free = local + length, free + before + length
    found = StreamMap()
    found.extend(runs)
    own = {run.local + at: run.position + at for run in runs for at in range(run.length)}
    assert found.first_from(position) == min((each for each in own if own[each] >= position), default=local)
    assert StreamMap().end == 1
