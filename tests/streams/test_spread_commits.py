"""Batches of sinks over several groups: any history of writers, leaders and ORDERs shows each whole, and once."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgpack
import pytest

from tests.streams.log import Log, Stager, abort, begin, command, create_topic, entries, pieces, restored, seal
from tests.streams.test_placement import established
from tests.streams.test_spread import spread_over
from viewstamp.errors import OutdatedCodeError, OverloadedError, RequestError, StagingError, ViewstampError
from viewstamp.ids import GroupId, Position, Stream
from viewstamp.node.order_queries import MissingRunsQuery, MovedStreamsQuery, OrderStatusQuery, StreamReportsQuery
from viewstamp.node.sink_part_queries import (
    GroupPart,
    GroupPartsQuery,
    HasPartsCommitsQuery,
    PartFatesQuery,
    ReleasableQuery,
)
from viewstamp.node.sink_parts import cut_reports, lacking_records, placed_parts
from viewstamp.node.state_machine import SinkQuery
from viewstamp.streams import Streams, spread_commits
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.ordering import PlacedPart, StreamReport, encode_context, encode_order
from viewstamp.wire.sealing import encode_seal
from viewstamp.wire.sink_parts import AttemptPart, encode_begin_part, encode_drop

GROUPS = 2


def commit_parts(*parts: AttemptPart, sink: str = "s", batch: int = 0, owner: str = "q", run: str = "r") -> Batch:
    packed = [part.pack() for part in parts]
    return command(Kind.COMMIT_PARTS, sink=sink, owner=owner, run=run, batch=batch, parts=packed)


class Groups:
    """Group 0, and groups with one stream each of the topic "orders"."""

    def __init__(self) -> None:
        self.zero = Log(Streams())
        self.ids = [established(self.zero, f"s{number}") for number in range(GROUPS)]
        self.zero.run(spread_over("orders", *self.ids))
        self.logs: dict[int, Log] = {}
        self.stagers: dict[int, Stager] = {}
        self.streams = {group: Stream(GroupId(group), f"orders.{at}") for at, group in enumerate(self.ids, 1)}
        for group in self.ids:
            log = self.logs[group] = Log(Streams(), first_index=1)
            log.run(create_topic(self.streams[group].name))
            self.stagers[group] = Stager(log)

    def replayed(self, zero: Sequence[Batch], logs: Mapping[int, Sequence[Batch]]) -> Groups:
        """Return the same groups with other logs, whose leaders have a newer term."""
        again = Groups()
        again.zero = continued(zero)
        again.ids, again.streams = self.ids, self.streams
        again.logs = {group: continued(batches) for group, batches in logs.items()}
        again.stagers = {group: Stager(log) for group, log in again.logs.items()}
        return again

    def begin(self, sink: str = "s", batch: int = 0, **fields: object) -> int:
        result = self.zero.run(begin(sink, batch, **fields))
        assert isinstance(result, dict)
        return int(result["attempt"])

    def part(self, attempt: int, group: int, count: int, *, sink: str = "s", is_sealed: bool = True) -> AttemptPart:
        """Stage a part of an attempt in a group."""
        log, stager = self.logs[group], self.stagers[group]
        result = log.run(encode_begin_part(attempt, sink))
        assert isinstance(result, dict)
        part = int(result["attempt"])
        held = entries(stager.stage(part, 1, count))
        if is_sealed:
            log.run(seal(part, held))
        return AttemptPart(attempt, GroupId(group), part, held, ((self.streams[group].name, count),))

    def whole(self, attempt: int, count: int = 2, sink: str = "s") -> list[AttemptPart]:
        """Stage and seal an attempt with a part in each group."""
        parts = [self.part(attempt, group, count, sink=sink) for group in self.ids]
        self.zero.run(seal(attempt, b""))
        return parts

    def look(self, group: int, machine: Streams, zero: Streams) -> tuple[list[StreamReport], list[PlacedPart], Any]:
        """Return what a leader of a group reports and proposes that has applied these states."""
        parts = {part.attempt: part for part in machine.query(GroupPartsQuery())}
        fates = zero.query(PartFatesQuery(GroupId(group), tuple(parts)))
        reports = cut_reports(machine.query(StreamReportsQuery(GroupId(group))), parts, fates)
        return reports, placed_parts(GroupId(group), parts, fates), lacking_records(parts, fates)

    def order(self, reports: list[StreamReport], placed: list[PlacedPart]) -> None:
        """Propose an ORDER for reports, as the leader of group 0 does."""
        machine = self.zero.machine
        commits = machine.query(ReleasableQuery({(part.commit, part.stream): part.end for part in placed}))
        moved = {each.stream: each for each in machine.query(MovedStreamsQuery(reports))}
        for ends in commits.values():
            moved |= {stream: StreamReport(stream, end, Position(1)) for stream, end in ends.items()}
        if moved:
            self.zero.propose(encode_order(sorted(moved.values()), sorted(commits)))
            while self.zero.unapplied:
                self.zero.apply()

    def ordered_ends(self) -> dict[Stream, int]:
        return {each.stream: each.end for each in self.zero.machine.query(OrderStatusQuery())}

    def settle(self) -> None:
        """Let leaders that know everything do what is left."""
        for _ in range(40):
            reports, placed = [], []
            for group, log in self.logs.items():
                of_group, of_parts, records = self.look(group, log.machine, self.zero.machine)
                for _, record in records:
                    log.run(record)
                    self.note_places(log)
                reports += of_group
                placed += of_parts
            self.order(reports, placed)

    def note_places(self, log: Log) -> None:
        """Called after each record that a leader has proposed."""


def continued(batches: Sequence[Batch]) -> Log:
    """Return a log that goes on behind these batches."""
    machine = Streams()
    for batch in batches:
        with suppress(RequestError):
            machine.apply(batch)
    return Log(machine, first_index=batches[-1].end, term=9)


class History(Groups):
    """A random history. Leaders may act on old states of group 0, and report old states of both."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.entropy = random.Random(seed)
        self.old: dict[int, list[Streams]] = {group: [] for group in (0, *self.ids)}
        self.attempts: dict[int, tuple[str, int, str]] = {}
        self.sealed: dict[int, dict[int, AttemptPart]] = {}
        self.batches = {"a": 0, "b": 0}
        self.decided: dict[tuple[str, int], list[AttemptPart]] = {}
        self.places: dict[tuple[int, int], tuple[int, int]] = {}
        """(group, attempt) to (first local position, end)."""

    def machine(self, group: int) -> Streams:
        """Return a present or an old state."""
        present = self.logs[group].machine if group else self.zero.machine
        return self.entropy.choice([present, *self.old[group][-3:]])

    def run(self, count: int) -> None:
        self.steps(count)
        self.settle()
        self.check()
        ends = self.ordered_ends()
        for parts in self.decided.values():
            for part in parts:
                assert self.places[part.group, part.attempt][1] <= ends[self.streams[part.group]], "it stands still"
        left = self.zero.machine.query(PartFatesQuery(GroupId(1), tuple(self.attempts))).over
        for log in self.logs.values():
            assert {part.attempt for part in log.machine.query(GroupPartsQuery())}.isdisjoint(left)
        assert not self.zero.machine.query(HasPartsCommitsQuery())

    def steps(self, count: int) -> None:
        """Let somebody do something, ``count`` times."""
        for _ in range(count):
            group = self.entropy.choice(self.ids)
            step = self.entropy.choices(
                (
                    self.keep,
                    self.start,
                    self.stage,
                    self.decide,
                    self.drop,
                    self.append,
                    self.lead,
                    self.give,
                    self.map,
                ),
                (1, 2, 6, 3, 0.4, 1, 6, 4, 1),
            )[0]
            step(group)
            self.check()

    def keep(self, group: int) -> None:
        """Keep the present state of a group, or of group 0, for leaders that lag; and go on with a snapshot of it."""
        chosen = self.entropy.choice([0, group])
        log = self.logs[chosen] if chosen else self.zero
        self.old[chosen].append(log.machine)
        log.machine = restored(log.machine)
        log.machine.begin_leading()

    def start(self, group: int) -> None:
        sink = self.entropy.choice(["a", "b"])
        run = f"run {self.entropy.randrange(1 + len(self.attempts) // 4)}"
        with suppress(ViewstampError):
            result = self.zero.run(begin(sink, self.batches[sink], f"p{len(self.attempts)}", run=run))
            assert isinstance(result, dict)
            if result["attempt"]:
                self.attempts[int(result["attempt"])] = sink, self.batches[sink], run
                self.sealed[int(result["attempt"])] = {}

    def stage(self, group: int) -> None:
        """Stage a part, perhaps of an attempt that is gone."""
        waiting = [each for each in self.attempts if group not in self.sealed[each]]
        if waiting:
            attempt = self.entropy.choice(waiting[-3:])
            self.sealed[attempt][group] = self.part(
                attempt, group, self.entropy.randint(1, 3), sink=self.attempts[attempt][0]
            )

    def decide(self, group: int) -> None:
        whole = [each for each in self.attempts if len(self.sealed[each]) == GROUPS]
        if whole:
            attempt = self.entropy.choice(whole[-3:])
            sink, batch, run = self.attempts[attempt]
            parts = list(self.sealed[attempt].values())
            with suppress(ViewstampError):
                self.zero.run(seal(attempt, b""))
                self.zero.run(commit_parts(*parts, sink=sink, batch=batch, run=run))
                assert (sink, batch) not in self.decided, "a batch is committed twice"
                self.decided[sink, batch] = parts
                self.batches[sink] = batch + 1

    def drop(self, group: int) -> None:
        sink = self.entropy.choice(["a", "b"])
        runs = {run for name, _, run in self.attempts.values() if name == sink}
        for run in runs:
            self.zero.run(abort(sink, self.batches[sink], run))

    def append(self, group: int) -> None:
        stager = self.stagers[group]
        stager.sequence += 1
        self.logs[group].append(1, stager.session, stager.sequence, self.entropy.randint(1, 2))

    def lead(self, group: int) -> None:
        """Propose some of what a leader lacks that has applied its own log, and any state of group 0."""
        log = self.logs[group]
        for _, record in self.look(group, log.machine, self.machine(0))[2]:
            if self.entropy.random() < 0.7:
                with suppress(RequestError):
                    log.propose(record)
        while log.unapplied:
            with suppress(RequestError):
                log.apply()
            self.note_places(log)

    def note_places(self, log: Log) -> None:
        group = next(each for each, of_group in self.logs.items() if of_group is log)
        for part in log.machine.query(GroupPartsQuery()):
            if part.is_placed:
                ((_, first, count),) = part.ranges
                place = first, first + count
                assert self.places.setdefault((group, part.attempt), place) == place, "a part is placed twice"
                assert any(part.attempt == each.attempt for parts in self.decided.values() for each in parts)

    def give(self, group: int) -> None:
        """Order by reports of leaders that may lag."""
        reports, placed = [], []
        for each in self.ids:
            of_group, of_parts, _ = self.look(each, self.machine(each), self.machine(0))
            reports += of_group
            placed += of_parts
        with suppress(RequestError):
            self.order(reports, placed)

    def map(self, group: int) -> None:
        stream = self.streams[group]
        mapped = next((r.mapped for r in self.logs[group].machine.query(StreamReportsQuery(GroupId(group)))), None)
        runs = self.machine(0).query(MissingRunsQuery(stream, mapped, 8)) if mapped is not None else []
        if runs:
            self.logs[group].run(encode_context(stream.name, runs))

    def check(self) -> None:
        """Check that each batch is visible whole or not at all."""
        ends = self.ordered_ends()
        for key, parts in self.decided.items():
            seen = []
            for part in parts:
                first, end = self.places.get((part.group, part.attempt), (1 << 60, 1 << 60))
                ordered = ends.get(self.streams[part.group], 1)
                assert ordered <= first or ordered >= end, f"a piece of a part of {key} is visible"
                seen.append(ordered >= end)
            assert len(set(seen)) == 1, f"batch {key} is visible in some streams: {seen}"


@pytest.mark.parametrize("seed", range(10))
def test_any_history_shows_each_batch_whole_or_not_at_all_and_once(seed: int) -> None:
    history = History(seed)
    history.run(150)
    assert history.decided


@pytest.fixture
def groups() -> Groups:
    return Groups()


def test_an_order_that_would_show_a_part_of_a_batch_alone_is_refused(groups: Groups) -> None:
    """Whatever the leader of group 0 has written: the state of each member decides."""
    commit = groups.zero.next_index + 2
    parts = groups.whole(groups.begin())
    commit = groups.zero.next_index
    groups.zero.run(commit_parts(*parts))
    one, two = groups.streams.values()
    for reports in (
        [StreamReport(one, Position(3), Position(1))],
        [StreamReport(one, Position(3), Position(1)), StreamReport(two, Position(2), Position(1))],
    ):
        with pytest.raises(RequestError, match="make a part of commit"):
            groups.zero.enter(encode_order(reports, [commit]))
        assert groups.ordered_ends() == {}
    both = [StreamReport(one, Position(3), Position(1)), StreamReport(two, Position(3), Position(1))]
    groups.zero.enter(encode_order(both, [commit, commit + 50]))
    assert groups.ordered_ends() == {one: 3, two: 3}
    assert not groups.zero.machine.query(HasPartsCommitsQuery())
    groups.zero.enter(encode_order(both, [commit]))
    assert groups.ordered_ends() == {one: 3, two: 3}, "doubled: no effect"


def test_a_part_stays_until_its_attempt_is_over_and_no_longer(groups: Groups) -> None:
    first, group = groups.begin(), groups.ids[0]
    groups.part(first, group, 2)
    log, zero = groups.logs[group], groups.zero
    behind = restored(zero.machine)
    second = groups.begin(name="p1")
    groups.part(second, group, 1, is_sealed=False)
    log.seconds = 10**6
    groups.stagers[group].log.run(create_topic("later"))
    assert [bool(each.part) for each in log.machine.query(GroupPartsQuery())] == [True] * 2, (
        "no age drops a part in its group"
    )
    assert groups.look(group, log.machine, behind)[2] == [], "an attempt that is not known yet may be committed"
    zero.run(begin(run="r2", name="p2"))
    assert [attempt for attempt, _ in groups.look(group, log.machine, zero.machine)[2]] == [first, second]
    assert groups.look(group, log.machine, behind)[2] == []
    groups.settle()
    assert log.machine.query(GroupPartsQuery()) == []
    log.enter(encode_begin_part(first, "s"))
    groups.settle()
    assert log.machine.query(GroupPartsQuery()) == [], "one that comes late is dropped too"


def test_a_stream_is_not_sealed_before_the_parts_that_are_sealed_in_its_group(groups: Groups) -> None:
    group = groups.ids[0]
    log, name = groups.logs[group], groups.streams[group].name
    parts = groups.whole(groups.begin())
    late = groups.part(groups.begin(name="p1"), group, 1, is_sealed=False)
    for attempt in (log.propose, log.enter):
        with pytest.raises(RequestError, match="the stream was not sealed"):
            attempt(encode_seal(name))
    groups.zero.run(commit_parts(*parts))
    groups.settle()
    again = groups.part(groups.begin(batch=1, name="p1"), group, 1, is_sealed=False)
    log.run(encode_seal(name))
    for part in (late, again):
        with pytest.raises(StagingError, match="does not exist"):
            log.run(seal(part.part, part.entries))
    assert groups.ordered_ends()[groups.streams[group]] == 3


def test_what_is_committed_and_not_visible_is_in_snapshots_that_earlier_releases_refuse(groups: Groups) -> None:
    def version(log: Log) -> int:
        cut = log.machine.begin_snapshot()
        section, state = msgpack.unpackb(next(pieces(cut)))
        cut.close()
        assert section == "state"
        return int(state[0])

    group = groups.ids[0]
    before = version(groups.logs[group]), version(groups.zero)
    parts = groups.whole(groups.begin())
    assert version(groups.logs[group]) == 16
    groups.zero.run(commit_parts(*parts))
    assert version(groups.zero) == 16
    groups.zero.machine = restored(groups.zero.machine)
    groups.zero.machine.begin_leading()
    described: Any = groups.zero.machine.query(SinkQuery("s"))
    assert described["is_pending"]
    groups.settle()
    described = groups.zero.machine.query(SinkQuery("s"))
    assert (described["batch"], described["ranges"], described.get("is_pending")) == (0, None, None)
    after = version(groups.logs[group]), version(groups.zero)
    assert after == (before[0], after[1])
    assert after[1] < 16


def test_bad_records_about_parts_are_refused_and_change_nothing(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = groups.begin()
    good = groups.whole(attempt)
    for wrong, why in (
        ([good[0], good[0]], "two in one group"),
        ([], "there is none"),
        ([good[0]._replace(entries=b"x")], "1 bytes of entries"),
        ([good[0]._replace(counts=(("orders.1", 7),))], "do not have the records"),
        ([good[0]._replace(part=0)], "is no part"),
        ([good[0]._replace(counts=())], "the streams"),
        ([good[0]._replace(counts=(("bills.1", 2),))], "is .* no stream|no stream"),
        ([good[0]._replace(attempt=attempt + 1000)], "does not exist"),
    ):
        for enter in (groups.zero.propose, groups.zero.enter):
            with pytest.raises(ViewstampError, match=why):
                enter(commit_parts(*wrong))
    for kind in (Kind.BEGIN_PART, Kind.COMMIT_PARTS):
        fields = {"attempt": 1, "sink": "s", "owner": "q", "run": "r", "batch": 0, "parts": [], "later": 1}
        with pytest.raises(OutdatedCodeError, match="later"):
            groups.zero.enter(command(kind, **fields))
    with pytest.raises(RequestError, match="attempt 0"):
        groups.logs[groups.ids[0]].enter(encode_begin_part(0, "s"))
    with pytest.raises(RequestError, match="no sink is named"):
        groups.logs[groups.ids[0]].enter(encode_drop(4711))
    assert not groups.zero.machine.query(HasPartsCommitsQuery())
    monkeypatch.setattr(spread_commits, "PENDING_MAX", 1)
    groups.zero.run(commit_parts(*good))
    assert groups.zero.enter(commit_parts(*good)) != {}, "a second copy is a duplicate"
    more = groups.whole(groups.begin(batch=1))
    with pytest.raises(OverloadedError, match="1 batches of sinks are committed and not visible"):
        groups.zero.propose(commit_parts(*more, batch=1))


def test_parts_are_described_as_they_are(groups: Groups) -> None:
    group = groups.ids[0]
    machine = groups.logs[group].machine
    attempt = groups.begin()
    part = groups.part(attempt, group, 2)
    assert machine.query(GroupPartsQuery()) == [GroupPart(attempt, part.part, False, ())]
    assert groups.logs[group].run(encode_begin_part(attempt, "s")) == {"attempt": part.part}
    groups.zero.run(seal(attempt, b""))
    groups.zero.run(commit_parts(part))
    groups.logs[group].run(groups.look(group, machine, groups.zero.machine)[2][0][1])
    assert machine.query(GroupPartsQuery()) == [GroupPart(attempt, 0, True, ((groups.streams[group].name, 1, 2),))]
    assert groups.logs[group].run(encode_begin_part(attempt, "s")) == {"attempt": 0}
