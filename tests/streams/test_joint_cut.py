"""The cut of the logs of all groups, over random histories of groups, orders and contexts."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

import pytest

from tests.replay import members
from tests.streams.log import command
from tests.streams.test_spread_commits import Groups, commit_parts
from tests.streams.test_spread_commits import History as SinkHistory
from viewstamp.errors import RequestError, UnavailableError
from viewstamp.ids import GroupId, Index, NodeId, Position, Stream
from viewstamp.node.order_queries import HomeCut, HomeCutQuery
from viewstamp.node.sink_part_queries import HasPartsCommitsQuery
from viewstamp.streams.joint_cut import contradictions, ends_before
from viewstamp.streams.ledger import Ledger
from viewstamp.streams.state import State
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.ordering import GlobalRun, StreamReport, encode_context, encode_order
from viewstamp.wire.placing import encode_hosted, encode_place
from viewstamp.wire.sink_parts import AttemptPart, encode_begin_part, encode_drop
from viewstamp.wire.sink_parts import encode_place as encode_part_place
from viewstamp.wire.spreading import encode_spread

STREAMS = 3


class History:
    """The committed logs of group 0 and of groups with one stream each, with what their leaders know.

    A leader of a stream may know an old state of group 0, and a leader of group 0 old reports: a report is true for
    ever. ``versions`` has the version of the order after each batch of group 0.
    """

    def __init__(self) -> None:
        self.home = Log()
        founders = {NodeId("n1"): "a:1"}
        groups = []
        for number in range(STREAMS):
            groups.append(GroupId(self.home.add(encode_place(founders, [f"s{number}"], since=0)).first_index))
            self.home.add(encode_hosted(groups[-1], NodeId("n1"), f"{number:016x}"))
        self.home.add(encode_spread("spread", groups))
        self.streams = [Stream(group, f"spread.{number}") for number, group in enumerate(groups, 1)]
        self.groups = {group: Log() for group in groups}
        for stream in self.streams:
            self.groups[stream.group].topic(stream.name)
        self.reports: list[StreamReport] = []

    def append(self, at: int, count: int) -> None:
        self.groups[self.streams[at].group].records(*[b"."] * count)

    def report(self, at: int) -> None:
        """Let the leader of a stream report its committed end, and that of its committed CONTEXTs."""
        stream = self.streams[at]
        state = self.groups[stream.group].ledger.state
        end, mapped = state.names[stream.name].next_position, state.maps.mapped_end(stream.name)
        self.reports.append(StreamReport(stream, end, mapped))

    def order(self, newest: int) -> None:
        """Commit an ORDER with the newest of some of the reports."""
        chosen = {report.stream: report for report in self.reports[: max(newest, 0) + 1]}
        moved = self.home.ledger.state.order.moved(chosen.values(), dict.fromkeys(self.streams, "spread"))
        if moved:
            self.home.add(encode_order(moved))

    def context(self, at: int, count: int) -> None:
        """Commit a CONTEXT with the first runs that a stream lacks."""
        stream = self.streams[at]
        log = self.groups[stream.group]
        mapped = log.ledger.state.maps.mapped_end(stream.name)
        if runs := self.home.ledger.state.order.missing(stream, mapped, count):
            log.add(encode_context(stream.name, runs))


class Log(members.Log):
    """A log with the state after it."""

    def __init__(self) -> None:
        self.ledger = Ledger(State())
        super().__init__()

    def add(self, batch: Batch, position: int = 0) -> Batch:
        added = super().add(batch, position)
        self.ledger.apply(added)
        return added


def replayed(batches: Sequence[Batch]) -> State:
    ledger = Ledger(State())
    for batch in batches:
        with suppress(RequestError):
            ledger.apply(batch)
    return ledger.state


def cut_of(batches: Sequence[Batch], home: HomeCut, floor: int) -> Sequence[Batch]:
    """Return the batches of a group up to its cut."""
    at = next((at for at, batch in enumerate(batches) if ends_before(batch, home, floor)), len(batches))
    return batches[:at]


def step(history: History, entropy: random.Random) -> None:
    """Let one leader do one thing. A leader of group 0 may have an old report, and one of a stream few runs."""
    at = entropy.randrange(STREAMS)
    match entropy.randrange(4):
        case 0:
            history.append(at, entropy.randint(1, 3))
        case 1:
            history.report(at)
        case 2 if history.reports:
            history.order(len(history.reports) - 1 - entropy.choice((0, 0, 0, 1, 4)))
        case _:
            history.context(at, entropy.choice((1, 2, 9)))


def test_the_cut_of_a_backup_at_any_moment_contradicts_nothing() -> None:
    """Group 0 is cut at one moment. The end of each other group is read at that moment, or some steps later."""
    forgotten, cuts = 0, 0
    for seed in range(120):
        entropy = random.Random(seed)
        history = History()
        for _ in range(entropy.randint(0, 60)):
            step(history, entropy)
        floors = {group: log.end for group, log in history.groups.items()}
        for _ in range(entropy.choice((0, 3))):
            step(history, entropy)
        home, home_cut = [*history.home.batches], history.home.ledger.state.answer(HomeCutQuery())
        assert isinstance(home_cut, HomeCut)
        ends: dict[GroupId, list[Batch]] = {}
        for stream in history.streams:
            for _ in range(entropy.choice((0, 3, 15))):
                step(history, entropy)
            ends[stream.group] = [*history.groups[stream.group].batches]
        states: dict[GroupId, State] = {}
        for group, batches in ends.items():
            kept = cut_of(batches, home_cut, floors[group])
            states[group] = replayed(kept)
            cuts += len(kept) < len(batches)
        cut = replayed(home)
        forgotten += sum(report.mapped > 1 for report in cut.order.streams())
        assert contradictions(cut, states) == [], seed
        for stream in history.streams:
            check_positions(history, cut, states[stream.group], stream)
    assert forgotten > 30, "group 0 has rarely forgotten runs"
    assert cuts > 30, "few logs were cut"


def check_positions(history: History, cut: State, state: State, stream: Stream) -> None:
    """Each position that the cut has given is known, and is the one that the original has."""
    original, home = history.groups[stream.group].ledger.state, history.home.ledger.state
    for local in range(1, cut.order.ordered_end(stream)):
        found = cut.order.find_global(stream, local) or state.maps.find_global(stream.name, local)
        assert found is not None, f"nobody knows the position of record {local} of {stream.name}"
        assert found == (home.order.find_global(stream, local) or original.maps.find_global(stream.name, local))
        assert local < state.names[stream.name].next_position, f"record {local} of {stream.name} is missing"


def two_logs() -> tuple[History, Stream]:
    history = History()
    history.append(0, 4)
    history.report(0)
    history.order(0)
    history.context(0, 4)
    history.report(0)
    history.order(1)
    return history, history.streams[0]


def test_each_contradiction_is_named() -> None:
    history, stream = two_logs()
    home, group = history.home.ledger.state, history.groups[stream.group]
    whole = {stream.group: group.ledger.state}
    assert contradictions(home, whole) == []
    assert contradictions(home, {}) == [], "a group that is not given is not compared"
    short = {stream.group: replayed([each for each in group.batches if each.kind is Kind.CREATE_TOPIC])}
    assert contradictions(home, short) == [
        "spread.1 ends at position 0, and the order has it up to 4",
        "spread.1 has global positions up to position 0, and group 0 has forgotten those up to 4",
    ]
    unmapped = {stream.group: replayed([each for each in group.batches if each.kind is not Kind.CONTEXT])}
    assert contradictions(home, unmapped) == [
        "spread.1 has global positions up to position 0, and group 0 has forgotten those up to 4"
    ]
    early = replayed([each for each in history.home.batches if each.kind is not Kind.ORDER])
    assert contradictions(early, whole) == [
        "spread.1 has global positions up to position 4, in version 1 of the order, and the order has them up to 0, in"
        " version 0"
    ]


def home_at(version: int = 0, end: int = 100, open_: Iterable[int] = (), pending: Iterable[int] = ()) -> HomeCut:
    return HomeCut(end=Index(end), version=version, open_attempts=frozenset(open_), pending_attempts=frozenset(pending))


def test_a_batch_is_beyond_a_version_by_any_of_its_runs() -> None:
    runs = [GlobalRun(2, 1, Position(1), 1), GlobalRun(5, 4, Position(2), 1)]  # type: ignore[arg-type]
    batch = encode_context("spread.1", runs)
    assert [ends_before(batch, home_at(version), 0) for version in (1, 2, 4, 5, 6)] == [True, True, True, False, False]
    assert not ends_before(build_batch([b"x"]), home_at(), 0)
    refused = build_batch([b"\x81\xa6stream\x01"], kind=Kind.CONTEXT)
    assert not ends_before(refused, home_at(), 0), "it is refused, so without effect"


def test_the_records_of_parts_are_beyond_the_end_of_group_0_or_before_its_decision() -> None:
    home = home_at(open_=[3], pending=[4])

    def are_beyond(batches: Callable[[int], Batch]) -> list[int]:
        return [attempt for attempt in (2, 3, 4, 99, 100, 101) if ends_before(batches(attempt), home, 0)]

    def place(attempt: int) -> Batch:
        return encode_part_place(AttemptPart(attempt, GroupId(9), 1, b"", ()), "s")

    assert are_beyond(lambda attempt: encode_begin_part(attempt, "s")) == [100, 101]
    assert are_beyond(place) == [3, 100, 101]
    assert are_beyond(encode_drop) == [3, 4, 100, 101]
    users = [
        command(Kind.COMMIT, sink="s", owner="q", run="r", batch=0, parts=[]),
        command(Kind.FORGET_SINK, name="s"),
    ]
    assert not any(ends_before(batch, home, 0) for batch in users), "sinks of users are in one group only"


def test_what_was_committed_before_group_0_was_cut_is_not_left_out() -> None:
    log = members.Log()
    forged, context = log.add(encode_begin_part(1 << 40, "s")), log.add(encode_drop(3))
    assert ends_before(forged, home_at(), floor=1)
    assert not ends_before(forged, home_at(), floor=2), "a client can send it, and each later backup would end here"
    assert ends_before(context, home_at(open_=[3]), floor=2)
    with pytest.raises(UnavailableError, match="was committed before group 0 was cut at index 99, and needs a later"):
        ends_before(context, home_at(open_=[3]), floor=3)


def test_batches_of_sinks_are_whole_in_the_cut_of_a_backup_at_any_moment_and_new_ones_go_on() -> None:
    seen = dict.fromkeys(("cuts", "pending", "placed", "open", "reused"), 0)
    for seed in range(40):
        history = SinkHistory(seed)
        history.steps(history.entropy.randint(5, 60))
        floors = {group: log.next_index for group, log in history.logs.items()}
        history.steps(history.entropy.choice((0, 4)))
        home = [*history.zero.applied]
        ends: dict[int, list[Batch]] = {}
        for group, log in history.logs.items():
            history.steps(history.entropy.choice((0, 5, 30)))
            ends[group] = [*log.applied]
        state = replayed(home)
        cut = state.answer(HomeCutQuery())
        assert isinstance(cut, HomeCut)
        logs = {group: cut_of(batches, cut, floors[group]) for group, batches in ends.items()}
        states = {GroupId(group): replayed(batches) for group, batches in logs.items()}
        assert contradictions(state, states) == [], seed
        seen["cuts"] += any(len(logs[group]) < len(ends[group]) for group in logs)
        seen["pending"] += bool(cut.pending_attempts)
        seen["open"] += bool(cut.open_attempts)
        seen["placed"] += any(part.is_placed for each in states.values() for part in each.staging.parts())
        seen["reused"] += any(attempt >= cut.end for attempt in history.attempts)
        check_goes_on(history.replayed(home, logs), history.attempts)
    assert min(seen.values()) > 5, seen


def check_goes_on(new: Groups, known: Collection[int]) -> None:
    """Check that restored groups make all committed batches visible, and new ones.

    ``known``: the attempts of the original. The restored group 0 gives the same ids again.
    """
    new.settle()
    assert not new.zero.machine.query(HasPartsCommitsQuery()), "a committed batch never becomes visible"
    for number in range(20):
        sink = f"new {number}"
        attempt = new.begin(sink)
        if attempt in known or number < 2:
            new.zero.run(commit_parts(*new.whole(attempt, sink=sink), sink=sink))
    new.settle()
    assert not new.zero.machine.query(HasPartsCommitsQuery()), "a new batch never becomes visible"
