"""What is left of several groups is brought in step: histories of which each log is cut anywhere."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

import pytest

from tests.streams.log import create_topic
from tests.streams.test_joint_cut import STREAMS, History, check_goes_on, step
from tests.streams.test_spread_commits import History as SinkHistory
from viewstamp.errors import CorruptionError
from viewstamp.fork.recovery import OldGroupReader, OldHomeReader
from viewstamp.ids import GROUP_0, GroupId, Index, Position, Stream, Term
from viewstamp.streams.cut import StateCut, load_state
from viewstamp.streams.joint_cut import contradictions
from viewstamp.streams.recovering import OldGroup, OldHome, RecoveryPlan, plan_recovery
from viewstamp.streams.state import State
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.ordering import StreamReport, encode_context, encode_order
from viewstamp.wire.recovering import (
    RecoveredOrder,
    RecoveredStream,
    RecoveredTopic,
    encode_recovered,
    encode_set_aside,
)
from viewstamp.wire.sealing import encode_close, encode_gone, encode_seal, encode_sealed
from viewstamp.wire.sealing import encode_drop as encode_drop_stream
from viewstamp.wire.spreading import encode_spread

Positions = dict[Stream, dict[int, int]]
"""The global positions of the records of each stream, by their local ones."""


class New:
    """The states of a new cluster behind a recovery, with logs that go on."""

    def __init__(self, home: Iterable[Batch], groups: Mapping[GroupId, Sequence[Batch] | None]) -> None:
        self.home = OldHomeReader(State())
        for batch in home:
            self.home.take(batch)
        self.groups = {group: OldGroupReader(State()) for group in groups}
        for group, batches in groups.items():
            for batch in batches or ():
                self.groups[group].take(batch)
        old = {
            group: OldGroup(read.state, frozenset(read.released)) if groups[group] is not None else None
            for group, read in self.groups.items()
        }
        self.plan: RecoveryPlan = plan_recovery(OldHome(self.home.state, self.home.runs), old)

        self.records: dict[GroupId, list[Batch]] = {
            GROUP_0: [*self.plan.behind_home()],
            **{group: [*self.plan.behind_group(group)] for group in groups},
        }
        for group, batches in self.records.items():
            for batch in batches:
                self.add(self.groups[group] if group else self.home, batch)

    @staticmethod
    def add(reader: OldHomeReader | OldGroupReader, batch: Batch, position: int = 0) -> None:
        batch.stamp(
            term=Term(9),
            first_index=Index(reader.state.end),
            previous_term=Term(9),
            log_time=2_000_000_000,
            first_position=Position(position),
        )
        reader.take(batch)

    @property
    def states(self) -> dict[GroupId, State]:
        return {group: read.state for group, read in self.groups.items()}

    def positions(self) -> Positions:
        """Return what the states say about the positions of records, also of records that are gone."""
        return {stream: self._positions_of(stream) for stream in self.home.state.spread.by_stream}

    def _positions_of(self, stream: Stream) -> dict[int, int]:
        order, maps = self.home.state.order, self.groups[stream.group].state.maps
        found: dict[int, int] = {}
        for local in range(1, order.ordered_end(stream)):
            position = order.find_global(stream, local) or maps.find_global(stream.name, local)
            if position is not None:
                found[local] = position
        return found

    def go_on(self) -> None:
        """Create the streams that are missing, order everything, and write all CONTEXTs."""
        home = self.home.state
        for stream in list(home.spread.by_stream):
            state = self.groups[stream.group].state
            if stream.name not in state.names:
                self.add(self.groups[stream.group], create_topic(stream.name))
            topic = state.names[stream.name]
            report = StreamReport(stream, topic.next_position, state.maps.mapped_end(stream.name))
            if moved := home.order.moved([report], home.spread.by_stream):
                self.add(self.home, encode_order(moved))
            if runs := home.order.missing(stream, state.maps.mapped_end(stream.name), 1000):
                self.add(self.groups[stream.group], encode_context(stream.name, runs))
                assert state.maps.mapped_end(stream.name) == home.order.ordered_end(stream), "a CONTEXT is refused"


def truth(history: History) -> Positions:
    """Return the positions that the old cluster has given."""
    read = OldHomeReader(State())
    for batch in history.home.batches:
        read.take(batch)
    return {
        stream: {run.local + at: run.position + at for run in read.runs.get(stream, ()) for at in range(run.length)}
        for stream in history.streams
    }


def beginning(batches: Sequence[Batch], entropy: random.Random) -> list[Batch]:
    """Return a beginning of a log, often nearly all of it."""
    lack = entropy.choice((0, 0, 1, 2, 4, entropy.randint(0, len(batches))))
    return list(batches[: max(0, len(batches) - lack)])


@pytest.mark.parametrize("seed", range(200))
def test_any_beginnings_of_logs_become_one_cluster_that_gives_no_position_twice(seed: int) -> None:
    entropy = random.Random(seed)
    history = History()
    for _ in range(entropy.randint(10, 90)):
        step(history, entropy)
    given = truth(history)
    begun = next(at for at, batch in enumerate(history.home.batches) if batch.kind is Kind.SPREAD_TOPIC) + 1
    rest = history.home.batches[begun:]
    home = [*history.home.batches[:begun], *beginning(rest, entropy)]
    logs = {
        group: None if entropy.random() < 0.15 else beginning(log.batches, entropy)
        for group, log in history.groups.items()
    }
    new = New(home, logs)
    assert contradictions(new.home.state, new.states) == []
    check_image(new.home.state)
    kept = new.positions()
    rests = {Stream(each.group, f"spread.{each.number}"): each for each in new.plan.streams}
    lost = {at for hole in new.plan.lost_positions for at in range(hole.first, hole.end)}
    for stream in history.streams:
        found, told = kept[stream], rests[stream]
        assert len(found) == told.kept_end - 1
        topic = new.groups[stream.group].state.names.get(stream.name)
        assert topic is None or told.next_position == topic.next_position
        for local, position in found.items():
            assert given[stream].get(local) == position, "a record has another position than before"
            assert topic is not None
            assert local < topic.next_position, "the order names a record that is gone"
        named = set(given[stream].values()) - set(found.values())
        assert {position for position in named if position < new.home.state.order.next_position("spread")} <= lost
    assert lost.isdisjoint(position for found in kept.values() for position in found.values())
    new.go_on()
    after = new.positions()
    everything = [position for found in after.values() for position in found.values()]
    assert len(set(everything)) == len(everything), "two records have one position"
    for stream, found in kept.items():
        assert after[stream].items() >= found.items(), "a position has changed"
        state = new.groups[stream.group].state
        is_given_up = stream in rests and rests[stream].is_given_up
        assert is_given_up or new.home.state.order.ordered_end(stream) == state.names[stream.name].next_position
    old_positions = {position: (stream, local) for stream, found in given.items() for local, position in found.items()}
    boundary = max([0, *(position for found in kept.values() for position in found.values())])
    for stream, found in after.items():
        for local, position in found.items():
            assert position > boundary or old_positions[position] == (stream, local), "a lost position is given again"
    topic = new.home.state.spread.topics["spread"]
    assert topic.open_streams(), "nobody can append"


def check_image(state: State) -> None:
    """Check that a snapshot of the state can be read."""
    cut = StateCut(state)
    pieces = iter(lambda: cut.next_piece(1 << 20), None)
    again = load_state(iter(pieces))
    assert again.order.image() == state.order.image()
    assert again.spread.topics == state.spread.topics


def test_the_groups_of_a_whole_history_get_no_record() -> None:
    history = History()
    entropy = random.Random(5)
    for _ in range(60):
        step(history, entropy)
    new = New(history.home.batches, {group: log.batches for group, log in history.groups.items()})
    assert [*new.plan.behind_home()] == []
    assert not any([*new.plan.behind_group(group)] for group in history.groups)
    assert new.plan.lost_positions == []
    assert not any(each.lost or each.unplaced or each.is_given_up for each in new.plan.streams)


def ordered(history: History, at: int, count: int, *, is_mapped: bool = False) -> None:
    """Append to a stream, and order its records."""
    history.append(at, count)
    history.report(at)
    history.order(len(history.reports) - 1)
    if is_mapped:
        history.context(at, 99)


def test_an_order_at_the_end_of_the_log_that_was_never_committed_gives_way_to_the_maps() -> None:
    """The old leader of group 0 has written an ORDER that another leader's has replaced."""
    history = History()
    ordered(history, 0, 2, is_mapped=True)
    false = [*history.home.batches]
    ordered(history, 1, 3, is_mapped=True)
    end = Position(history.groups[history.streams[0].group].ledger.state.names["spread.1"].next_position)
    history.append(0, 2)
    batch = encode_order([StreamReport(history.streams[0], Position(end + 2), Position(1))])
    last = false[-1]
    batch.stamp(
        term=Term(1),
        first_index=Index(last.end),
        previous_term=last.term,
        log_time=last.log_time,
        first_position=Position(0),
    )
    new = New([*false, batch], {group: log.batches for group, log in history.groups.items()})
    assert new.positions()[history.streams[0]] == {1: 1, 2: 2}
    assert new.positions()[history.streams[1]] == {1: 3, 2: 4, 3: 5}
    assert not any(each.is_given_up for each in new.plan.streams)
    new.go_on()
    assert new.positions()[history.streams[0]] == {1: 1, 2: 2, 3: 6, 4: 7}


def test_records_of_which_nobody_knows_the_positions_never_get_others() -> None:
    """Group 0 begins at a snapshot that has forgotten the runs, and the stream lacks the CONTEXT with them."""
    history = History()
    stream = history.streams[0]
    log = history.groups[stream.group]
    ordered(history, 0, 3)
    unmapped = [*log.batches]
    history.context(0, 99)
    history.report(0)
    history.order(len(history.reports) - 1)
    ordered(history, 1, 2)
    home = history.home.ledger.state
    read = OldGroupReader(State())
    for batch in unmapped:
        read.take(batch)
    others = {
        each.group: OldGroup(history.groups[each.group].ledger.state) for each in history.streams if each != stream
    }
    plan = plan_recovery(
        OldHome(home, {each: [run for of, run in home.order.runs() if of == each] for each in history.streams}),
        {stream.group: OldGroup(read.state), **others},
    )
    rest = plan.streams[0]
    assert (rest.is_given_up, rest.ordered_end, rest.kept_end, rest.unplaced) == (True, 4, 1, 3)
    assert [(each.first, each.end) for each in plan.lost_positions] == [(1, 4)]
    kinds = [batch.kind for batch in plan.behind_home()]
    assert kinds == [Kind.RECOVER_ORDER, Kind.LOSE_STREAM]


def test_a_topic_of_which_no_stream_can_go_on_gets_another_one() -> None:
    history = History()
    for at in range(STREAMS):
        ordered(history, at, 1)
    new = New(history.home.batches, dict.fromkeys(history.groups))
    topic = new.home.state.spread.topics["spread"]
    assert topic.open_streams() == [STREAMS + 1]
    assert [(each.stream, each.into, each.end, each.lost_at) for each in topic.closed] == [
        (number, STREAMS + 1, 1, 4) for number in range(1, STREAMS + 1)
    ]
    assert topic.lost_positions == (1, 4)
    new.go_on()


def test_streams_that_group_0_does_not_know_make_room_for_those_of_a_later_topic() -> None:
    history = History()
    ordered(history, 0, 2, is_mapped=True)
    begun = next(at for at, batch in enumerate(history.home.batches) if batch.kind is Kind.SPREAD_TOPIC)
    home = history.home.batches[:begun]
    new = New(home, {group: log.batches for group, log in history.groups.items()})
    stream = history.streams[0]
    assert new.plan.aside == {each: 2 if each == stream else 0 for each in history.streams}
    state = new.groups[stream.group].state
    assert list(state.names) == ["spread.1~1"]
    assert state.topics[state.names["spread.1~1"].id].first_position == 3
    assert not state.maps.is_used
    new.add(new.home, encode_spread("spread", [each.group for each in history.streams]))
    new.go_on()
    assert state.names["spread.1"].next_position == 1
    again = New([], {})
    assert again.plan.aside == {}


def removed_stream() -> tuple[History, int]:
    """Let the first stream end, and be removed and dropped; return the history, and the index of its removal."""
    history = History()
    stream = history.streams[0]
    log = history.groups[stream.group]
    ordered(history, 0, 2, is_mapped=True)
    ordered(history, 1, 3, is_mapped=True)
    history.home.add(encode_close("spread", 1, 2))
    log.add(encode_seal(stream.name))
    history.home.add(encode_sealed("spread", 1, 3))
    log.command(Kind.TRIM_TOPIC, name=stream.name, position=3)
    gone = history.home.add(encode_gone("spread", 1, 3)).first_index
    log.add(encode_drop_stream(stream.name, 3, gone))
    return history, gone


def test_a_removed_stream_stays_removed() -> None:
    history, _ = removed_stream()
    new = New(history.home.batches, {group: log.batches for group, log in history.groups.items()})
    assert [*new.plan.behind_home()] == []
    assert not any([*new.plan.behind_group(group)] for group in history.groups)
    assert [each.number for each in new.plan.streams] == [2, 3]
    lost = dict.fromkeys(history.groups)
    new = New(
        history.home.batches, {**lost, history.streams[1].group: history.groups[history.streams[1].group].batches}
    )
    assert [each.number for each in new.plan.streams if each.is_given_up] == [3]
    [gone] = new.home.state.spread.topics["spread"].gone_streams
    assert (gone.stream, gone.end, gone.lost_at) == (1, 3, 0)
    check_image(new.home.state)


def test_a_stream_that_was_dropped_is_created_again_if_group_0_does_not_know_of_its_removal() -> None:
    history, gone = removed_stream()
    home = [batch for batch in history.home.batches if batch.first_index < gone]
    new = New(home, {group: log.batches for group, log in history.groups.items()})
    state = new.groups[history.streams[0].group].state
    assert contradictions(new.home.state, new.states) == []
    check_image(state)
    check_image(new.home.state)
    [closed] = new.home.state.spread.topics["spread"].closed
    assert (closed.end, closed.lost_at) == (1, 6)
    new.go_on()
    assert state.names["spread.1"].next_position == 1


def test_a_batch_of_a_sink_is_decided_or_dropped_as_a_whole() -> None:
    seen = dict.fromkeys(("rewritable", "dropped", "pending", "given up", "released", "whole", "went on"), 0)
    for seed in range(150):
        history = SinkHistory(seed)
        entropy = random.Random(seed)
        history.steps(entropy.randint(10, 90))
        begun = next(at for at, batch in enumerate(history.zero.applied) if batch.kind is Kind.SPREAD_TOPIC) + 1
        home = [*history.zero.applied[:begun], *beginning(history.zero.applied[begun:], entropy)]
        logs = {
            GroupId(group): [log.applied[0], *beginning(log.applied[1:], entropy)]
            for group, log in history.logs.items()
        }
        new = New(home, logs)
        assert [each for each in contradictions(new.home.state, new.states) if "has placed a part" not in each] == []
        for state in (new.home.state, *new.states.values()):
            check_image(state)
        check_batches(history, new, seen)
        for each in new.plan.dropped:
            sink = new.home.state.staging.sinks.get(each.sink)
            assert sink is None or not each.is_rewritable or sink.batch < each.batch
        assert not new.home.state.staging.attempts
        seen["rewritable"] += any(each.is_rewritable for each in new.plan.dropped)
        seen["dropped"] += bool(new.plan.dropped)
        seen["pending"] += bool(new.home.state.commits.pending)
        seen["given up"] += any(each.is_given_up for each in new.plan.streams)
        if not any(each.is_given_up for each in new.plan.streams):
            seen["went on"] += 1
            whole = {int(group): [*batches, *new.records[group]] for group, batches in logs.items()}
            check_goes_on(history.replayed([*home, *new.records[GROUP_0]], whole), history.attempts)
    assert min(seen.values()) > 5, seen


def check_batches(history: SinkHistory, new: New, seen: dict[str, int]) -> None:
    """Check that no record is visible of a batch that was not visible in the old cluster, and that none ever will be.

    A batch that was visible there may lack records, as any acknowledged records.
    """
    order, old_ends = new.home.state.order, history.ordered_ends()
    dropped = {(each.sink, each.batch) for each in new.plan.dropped}
    pending = {(each.sink, each.batch) for each in new.home.state.commits.pending.values()}
    for key, parts in history.decided.items():
        ends = {}
        for part in parts:
            stream = history.streams[part.group]
            first, end = history.places.get((part.group, part.attempt), (1 << 60, 1 << 60))
            if end <= new.states[part.group].names[stream.name].next_position:
                ends[stream] = first, end
        was_visible = all(
            history.places.get((part.group, part.attempt), (0, 1 << 60))[1]
            <= old_ends.get(history.streams[part.group], 1)
            for part in parts
        )
        seen["released"] += was_visible
        is_seen = {stream for stream, (first, _) in ends.items() if first < order.ordered_end(stream)}
        assert was_visible or not is_seen, f"a part of {key} is visible"
        seen["whole"] += len(is_seen) == len(parts)
        if key in dropped:
            assert key not in pending
            assert not is_seen, f"a part of the dropped batch {key} is visible"
            for stream, (first, _) in ends.items():
                assert stream in order.sealed, f"a part of the dropped batch {key} can become visible"
                assert order.ordered_end(stream) <= first


def test_a_record_of_a_recovery_that_contradicts_the_state_is_damage() -> None:
    history = History()
    ordered(history, 0, 2)
    state, stream = history.home.ledger.state, history.streams[0]
    for found in (
        RecoveredOrder(1, (RecoveredTopic("spread", 2, 0, 0),), ()),  # type: ignore[arg-type]
        RecoveredOrder(0, (), ()),
        RecoveredOrder(1, (), (RecoveredStream(Stream(GroupId(99), "x"), Position(1), ()),)),
        RecoveredOrder(1, (), (), (77,)),
        RecoveredOrder(1, (), (), (), (("s", 1),)),
        RecoveredOrder(1, (), (RecoveredStream(stream, Position(9), state.order.missing(stream, Position(1), 9)),)),  # type: ignore[arg-type]
    ):
        with pytest.raises(CorruptionError, match="contradicts the state"):
            New.add(history_reader(history), encode_recovered(found))
    with pytest.raises(CorruptionError, match="no stream of this group"):
        New.add(OldGroupReader(State()), encode_set_aside(["x"]))


def history_reader(history: History) -> OldHomeReader:
    read = OldHomeReader(State())
    for batch in history.home.batches:
        read.take(batch)
    return read
