"""The cut of the logs of all groups, over random histories of groups, orders and contexts."""

from __future__ import annotations

import random

from tests.replay import members
from viewstamp.ids import GroupId, NodeId, Position, Stream
from viewstamp.streams.joint_cut import contradictions, is_above
from viewstamp.streams.ledger import Ledger
from viewstamp.streams.state import State
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.ordering import GlobalRun, StreamReport, encode_context, encode_order
from viewstamp.wire.placing import encode_hosted, encode_place
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


def replayed(batches: list[Batch]) -> State:
    ledger = Ledger(State())
    for batch in batches:
        ledger.apply(batch)
    return ledger.state


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
        home, version = [*history.home.batches], history.home.ledger.state.order.version
        ends: dict[GroupId, list[Batch]] = {}
        for stream in history.streams:
            for _ in range(entropy.choice((0, 3, 15))):
                step(history, entropy)
            ends[stream.group] = [*history.groups[stream.group].batches]
        states: dict[GroupId, State] = {}
        for group, batches in ends.items():
            at = next((at for at, batch in enumerate(batches) if is_above(batch, version)), len(batches))
            states[group] = replayed(batches[:at])
            cuts += at < len(batches)
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


def test_a_batch_is_above_a_version_by_any_of_its_runs() -> None:
    runs = [GlobalRun(2, 1, Position(1), 1), GlobalRun(5, 4, Position(2), 1)]  # type: ignore[arg-type]
    batch = encode_context("spread.1", runs)
    assert [is_above(batch, version) for version in (1, 2, 4, 5, 6)] == [True, True, True, False, False]
    assert not is_above(build_batch([b"x"]), 0)
    assert not is_above(build_batch([b"\x81\xa6stream\x01"], kind=Kind.CONTEXT), 0), "it is refused, so without effect"
