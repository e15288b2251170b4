"""Random histories of clients, leaders and members against a plain list per topic and a plain number per counter."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.streams.actors import CLASSES, EmptyError, arguments, call, commands, decoded, result_of
from tests.streams.log import (
    Log,
    configure_topic,
    create_topic,
    fence,
    open_session,
    records,
    restored,
    trim_topic,
)
from viewstamp.errors import PositionMismatchError, RequestError, StaleSessionError, TrimmedError, UnavailableError
from viewstamp.ids import Position
from viewstamp.node.state_machine import (
    Accepted,
    ActorQuery,
    Answered,
    CommandResults,
    FirstPositionQuery,
    LocationQuery,
    OutcomeQuery,
    Placement,
    SnapshotView,
    TopicQuery,
    Waiting,
)
from viewstamp.streams import Streams
from viewstamp.streams.session import RECEIPTS_MAX, RESULTS_MAX
from viewstamp.streams.sessions import decode_expiry
from viewstamp.streams.settings import decode_trim
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.commands import decode_command

SESSIONS_MAX = 2
SESSION_SECONDS = 12
TOPICS = 2
OF_A_CLIENT = (Kind.RECORDS, Kind.COMMANDS)
FORGETTING = (Kind.OPEN_SESSION, Kind.EXPIRE_SESSIONS)
RETENTIONS = st.sampled_from(
    [
        {},
        {"retain_bytes": 0},
        {"retain_bytes": 50_000},
        {"retain_seconds": 0},
        {"retain_seconds": 4},
        {"retain_seconds": 48},
    ]
)
SPAN = 64 * 1024


@dataclass
class Topic:
    """All records that a topic got, and the positions from which they have to be kept."""

    items: list[tuple[int, int]] = field(default_factory=list)
    """(session, sequence) of each record."""
    batches: list[Batch] = field(default_factory=list)
    """The batch of each record."""
    may_go: int = 1
    """Records below this position may be missing, because of a trim or of retention."""
    must_go: int = 1
    """Records below this position must be missing, because of a trim."""
    retain_bytes: int = 0
    retain_seconds: float = 0.0

    def let_age(self, now: int) -> None:
        """Note which records retention may drop at this time of the log."""
        kept = 0
        for position in range(len(self.items), self.may_go - 1, -1):
            batch = self.batches[position - 1]
            if position == len(self.items) or self.batches[position] is not batch:
                beyond = self.retain_bytes and kept >= self.retain_bytes
                kept += batch.size
            old = self.retain_seconds and batch.log_time <= now - self.retain_seconds * 1e6
            if beyond or old:
                self.may_go = position + 1
                return


@dataclass
class Copy:
    """A snapshot that is being taken, and the machine's digest and chain at its index."""

    cut: SnapshotView
    digest: bytes
    chain: int
    applied: int
    """The number of batches applied before."""
    pace: int
    """The number of pieces handed out before each batch that is applied meanwhile."""
    pieces: list[bytes] = field(default_factory=list)

    def hand_out(self, count: int) -> None:
        for _ in range(count):
            piece = self.cut.next_piece(1)
            if piece is None:
                return
            self.pieces.append(piece)


class History(RuleBasedStateMachine):
    """A leader's log over one machine, a second member that is sometimes replaced by a copy, and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.member = self._fresh()
        self.log = Log(self._fresh())
        self.applied: list[Batch] = []
        self.copies: dict[Streams, Copy] = {}
        self.topics = {n + 1: Topic() for n in range(TOPICS)}
        self.counters = {"a": 0, "b": 0}
        self.decided: dict[int, dict[int, bool]] = {}
        self.results: dict[tuple[int, int], CommandResults] = {}
        self.mismatches: dict[tuple[int, int], int] = {}
        self.used: list[int] = []
        self.used_at: dict[int, int] = {}
        """The log time of each session's last batch."""
        for n in range(TOPICS):
            self.log.propose(create_topic(f"t{n}"))
        self.log.propose(open_session())
        self._apply_all()

    @staticmethod
    def _fresh() -> Streams:
        return Streams(CLASSES, sessions_max=SESSIONS_MAX, session_seconds=SESSION_SECONDS)

    def _apply_all(self) -> None:
        while self.log.unapplied:
            self._apply()

    def _apply(self) -> None:
        batch = self.log.unapplied[0]
        self.applied.append(batch)
        for copy in self.copies.values():
            copy.hand_out(copy.pace)
        for topic in self.topics.values():
            topic.let_age(batch.log_time)
        result: Any
        try:
            result = self.log.apply()
        except RequestError as refusal:
            result = refusal
            with pytest.raises(type(refusal)):
                self.member.apply(batch)
        else:
            assert self.member.apply(batch) == result
        match batch.kind:
            case Kind.OPEN_SESSION:
                assert result == {"session": batch.first_index}
                if len(self.used) == SESSIONS_MAX:
                    del self.decided[self.used.pop(0)]
                self.used.append(batch.first_index)
                self.used_at[batch.first_index] = batch.log_time
                self.decided[batch.first_index] = {}
            case Kind.EXPIRE_SESSIONS:
                for session in decode_expiry(batch):
                    assert batch.log_time - self.used_at[session] >= SESSION_SECONDS * 1_000_000
                    self.used.remove(session)
                    del self.decided[session]
            case Kind.RECORDS:
                topic = self.topics[batch.topic]
                assert isinstance(result, Placement)
                assert result.first_position == len(topic.items) + 1
                topic.items.extend([(batch.session, batch.sequence)] * batch.count)
                topic.batches.extend([batch] * batch.count)
                self._decide(batch, applied=True)
            case Kind.COMMANDS:
                assert isinstance(result, CommandResults)
                assert [self._shown(each) for each in decoded(result.results)] == self._counted(batch)
                self.results[batch.session, batch.sequence] = result
                self._decide(batch, applied=True)
            case Kind.FENCE if batch.topic:
                assert isinstance(result, PositionMismatchError)
                assert result.actual == len(self.topics[batch.topic].items) + 1 != int(batch.values()[0])
                self._decide(batch, applied=False)
                self.mismatches[batch.session, batch.sequence] = result.actual
            case Kind.FENCE:
                decided = self.decided[batch.session]
                self._decide(batch, applied=decided.get(batch.sequence, False))
                assert (result is not None) == decided[batch.sequence]
            case Kind.TRIM_TOPIC:
                name, position = decode_trim(batch)
                topic = self.topics[int(name[1:]) + 1]
                if position > len(topic.items) + 1:
                    assert isinstance(result, RequestError)
                else:
                    topic.may_go = max(topic.may_go, position)
                    topic.must_go = max(topic.must_go, position)
            case Kind.CONFIGURE_TOPIC:
                topic = self.topics[result["topic"]["id"]]
                topic.retain_bytes = result["topic"]["retain_bytes"]
                topic.retain_seconds = result["topic"]["retain_seconds"]
        for topic in self.topics.values():
            topic.let_age(batch.log_time)

    def _counted(self, batch: Batch) -> list[object]:
        """Carry out the commands of ``batch`` with plain numbers; return the expected results."""
        answers: list[object] = []
        for each in map(decode_command, batch.values()):
            (amount,) = each.arguments
            if each.method == "take" and amount > self.counters[each.key]:
                answers.append("EmptyError")
                continue
            self.counters[each.key] += amount if each.method == "add" else -amount
            answers.append(self.counters[each.key])
        return answers

    @staticmethod
    def _shown(answer: object) -> object:
        return type(answer).__name__ if isinstance(answer, EmptyError) else answer

    def _decide(self, batch: Batch, *, applied: bool) -> None:
        decided = self.decided[batch.session]
        for sequence in range(len(decided) + 1, batch.sequence):
            decided[sequence] = False
        decided[batch.sequence] = applied
        self.used.remove(batch.session)
        self.used.append(batch.session)
        self.used_at[batch.session] = batch.log_time

    def _logged(self, session: int) -> int:
        """The last sequence of a session in the whole log, found in its batches one by one."""
        of_session = [b.sequence for b in self.log.unapplied if b.session == session]
        return max([len(self.decided[session]), *of_session])

    # Clients.

    @rule()
    def open(self) -> None:
        try:
            self.log.propose(open_session())
        except UnavailableError:
            assert any(b.kind in FORGETTING for b in self.log.unapplied)

    @rule(at_once=st.booleans())
    def expire(self, at_once: bool) -> None:
        now = self.log.seconds * 1_000_000 + 1000 + self.log.next_index
        in_log = {b.session for b in self.log.unapplied}
        idle = {each for each in self.used if now - self.used_at[each] > SESSION_SECONDS * 1_000_000} - in_log
        batch = self.log.machine.upkeep(now, now)
        if batch is None:
            assert not idle or any(b.kind in FORGETTING for b in self.log.unapplied)
            return
        assert set(decode_expiry(batch)) == idle
        self.log.propose(batch)
        if at_once:
            self._apply_all()

    @precondition(lambda self: self.decided)
    @rule(
        data=st.data(),
        ahead=st.sampled_from([1, 1, 1, 1, 0, 0, -1, -2, -4, 2]),
        topic=st.integers(1, TOPICS),
        count=st.integers(1, 3),
        size=st.sampled_from([8, 8, 8, 30_000]),
        expected=st.sampled_from([None, None, 0, 0, 1, -1]),
        at_once=st.booleans(),
    )
    def append(
        self, data: st.DataObject, ahead: int, topic: int, count: int, size: int, expected: int | None, at_once: bool
    ) -> None:
        session = data.draw(st.sampled_from(sorted(self.decided)))
        sequence = max(1, self._logged(session) + ahead)
        batch = records(topic, session, sequence, count, size)
        if expected is not None:
            batch.first_position = Position(max(1, self._next_position(topic) + expected))
        self._send(batch, at_once=at_once)

    def _next_position(self, topic: int) -> int:
        in_log = sum(b.count for b in self.log.unapplied if b.kind is Kind.RECORDS and b.topic == topic)
        return len(self.topics[topic].items) + in_log + 1

    @precondition(lambda self: self.decided)
    @rule(
        data=st.data(),
        ahead=st.sampled_from([1, 1, 1, 1, 0, 0, -1, -2, -4, 2]),
        calls=st.lists(
            st.tuples(st.sampled_from(["add", "take"]), st.integers(0, 9), st.sampled_from("ab")),
            min_size=1,
            max_size=3,
        ),
        at_once=st.booleans(),
    )
    def command(self, data: st.DataObject, ahead: int, calls: list[tuple[str, int, str]], at_once: bool) -> None:
        session = data.draw(st.sampled_from(sorted(self.decided)))
        sequence = max(1, self._logged(session) + ahead)
        self._send(
            commands(session, sequence, *(call(method, amount, key=key) for method, amount, key in calls)),
            at_once=at_once,
        )

    def _send(self, batch: Batch, *, at_once: bool) -> None:
        session, sequence = batch.session, batch.sequence
        logged = self._logged(session)
        decided = self.decided[session].get(sequence)
        in_log = any(
            b.kind in OF_A_CLIENT and (b.session, b.sequence) == (session, sequence) for b in self.log.unapplied
        )
        forgetting = any(b.kind in FORGETTING for b in self.log.unapplied)
        expected, following = batch.first_position, self._next_position(batch.topic) if batch.topic else 0
        mismatch = self.mismatches.get((session, sequence), 0)
        try:
            admission = self.log.propose(batch)
        except PositionMismatchError as refused:
            assert expected
            assert decided is False
            assert refused.actual == mismatch  # noqa: PT017 - there may be no error at all
        except UnavailableError:
            fenced = decided is None and not in_log and sequence <= logged
            assert sequence > logged + 1 or fenced or (forgetting and sequence == logged + 1)
        else:
            if isinstance(admission, Answered):
                assert not (expected and mismatch)
                assert decided is not None
                assert (admission.result is not None) == decided
            elif isinstance(admission, Waiting):
                assert in_log
            else:
                assert sequence == logged + 1
                assert (admission.instead is None) == (expected in (0, following))
                if at_once:
                    self._apply_all()

    @precondition(lambda self: self.decided)
    @rule(data=st.data(), ahead=st.sampled_from([1, 2, 3, 0, -1, -3]))
    def fence(self, data: st.DataObject, ahead: int) -> None:
        session = data.draw(st.sampled_from(sorted(self.decided)))
        sequence = max(1, self._logged(session) + ahead)
        try:
            admission = self.log.propose(fence(session, sequence))
        except UnavailableError:
            assert any(b.kind in FORGETTING for b in self.log.unapplied)
        else:
            assert isinstance(admission, Accepted) == (sequence not in self.decided[session])

    @rule()
    def forgotten_sessions_stay_refused(self) -> None:
        for session in range(1, self.log.next_index):
            if session not in self.decided:
                for batch in (records(1, session, 1), commands(session, 1, call("add", 1, key="a"))):
                    with pytest.raises(StaleSessionError):
                        self.log.propose(batch)

    # Topics.

    @rule(topic=st.integers(1, TOPICS), back=st.sampled_from([0, 0, 1, 2, 5, -1]))
    def trim(self, topic: int, back: int) -> None:
        end = len(self.topics[topic].items) + 1
        position = max(1, end - back)
        try:
            self.log.propose(trim_topic(f"t{topic - 1}", position))
        except RequestError:
            assert position > end
        else:
            self._apply_all()

    @rule(topic=st.integers(1, TOPICS), retention=RETENTIONS)
    def configure(self, topic: int, retention: dict[str, object]) -> None:
        self.log.propose(configure_topic(f"t{topic - 1}", **retention))
        self._apply_all()

    @rule(seconds=st.integers(1, 10))
    def let_time_pass(self, seconds: int) -> None:
        self.log.seconds += seconds

    # Members.

    @precondition(lambda self: self.log.unapplied)
    @rule(share=st.floats(0, 1))
    def apply(self, share: float) -> None:
        for _ in range(max(1, int(share * len(self.log.unapplied)))):
            self._apply()

    @rule(kept=st.floats(0, 1), other=st.booleans())
    def change_leader(self, kept: float, other: bool) -> None:
        """A suffix of the log is cut and the rest applied; then the same or the other machine leads."""
        unapplied = self.log.unapplied
        cut = len(unapplied) - int(kept * len(unapplied))
        self.log.unapplied = unapplied[: len(unapplied) - cut]
        next_index = unapplied[len(unapplied) - cut].first_index if cut else self.log.next_index
        self.log.machine.stop_leading()
        self._apply_all()
        machine = self.log.machine
        if other:
            machine, self.member = self.member, machine
        seconds = self.log.seconds
        self.log = Log(machine, first_index=next_index, term=self.log.term + 1)
        self.log.seconds = seconds

    @precondition(lambda self: not self.copies)
    @rule()
    def replace_member_by_a_copy_of_the_leader(self) -> None:
        self.member = restored(self.log.machine, CLASSES, sessions_max=SESSIONS_MAX, session_seconds=SESSION_SECONDS)

    @rule(leader=st.booleans(), pace=st.integers(0, 3))
    def begin_cut(self, leader: bool, pace: int) -> None:
        machine = self.log.machine if leader else self.member
        if machine not in self.copies:
            digest, chain = machine.digest(), machine.chain
            self.copies[machine] = Copy(machine.begin_snapshot(), digest, chain, len(self.applied), pace)

    @precondition(lambda self: any(copy.applied < len(self.applied) for copy in self.copies.values()))
    @rule()
    def finish_a_cut(self) -> None:
        """Replace the member by a machine with these pieces and all batches applied since."""
        copy = self.copies.pop(min(self.copies, key=lambda machine: self.copies[machine].applied))
        copy.hand_out(1000)
        self.copies.pop(self.member, None)
        self.member.adopt(self.member.prepare(iter(copy.pieces)))
        assert (self.member.digest(), self.member.chain) == (copy.digest, copy.chain)
        for batch in self.applied[copy.applied :]:
            with suppress(RequestError):
                self.member.apply(batch)

    @precondition(lambda self: len(self.copies) == 2)
    @rule()
    def abandon_a_cut(self) -> None:
        _, copy = self.copies.popitem()
        copy.cut.close()

    @invariant()
    def members_agree(self) -> None:
        leader = self.log.machine
        assert self.member.digest() == leader.digest()
        assert (self.member.chain, self.member.lineage) == (leader.chain, leader.lineage)
        common = min(len(self.member.trail()), len(leader.trail()))
        assert common == 0 or self.member.trail()[-common:] == leader.trail()[-common:]

    @invariant()
    def topics_are_the_lists(self) -> None:
        for topic, model in self.topics.items():
            described = self.member.query(TopicQuery(name=f"t{topic - 1}"))
            assert isinstance(described, dict)
            assert described["last_position"] == len(model.items)
            # Exactly once: a (session, sequence) is one unbroken run in one topic.
            runs = [item for i, item in enumerate(model.items) if i == 0 or model.items[i - 1] != item]
            assert len(runs) == len(set(runs))

    @invariant()
    def nothing_is_trimmed_too_early_and_not_too_much_stays(self) -> None:
        for topic, model in self.topics.items():
            described = self.member.query(TopicQuery(name=f"t{topic - 1}"))
            assert isinstance(described, dict)
            assert model.must_go <= described["first_position"] <= model.may_go
            if model.retain_bytes:
                largest = max((batch.size for batch in model.batches), default=0)
                assert described["bytes"] <= model.retain_bytes + SPAN + 2 * largest

    @invariant()
    def counters_are_the_numbers(self) -> None:
        for key, count in self.counters.items():
            answer = self.member.query(ActorQuery(actor="counter", key=key, method="read", arguments=arguments()))
            assert isinstance(answer, bytes)
            assert result_of(answer) == count

    @invariant()
    def every_decided_sequence_is_answered_the_same_for_ever(self) -> None:
        for session, decided in self.decided.items():
            for sequence, applied in decided.items():
                if sequence > len(decided) - RECEIPTS_MAX:
                    answer = self.member.query(OutcomeQuery(session=session, sequence=sequence))
                    assert (answer is not None) == applied
                    expected = self.results.get((session, sequence))
                    if expected is not None and sequence > len(decided) - RESULTS_MAX:
                        assert answer == expected

    @invariant()
    def what_is_kept_is_located_at_or_before_its_batch(self) -> None:
        firsts = []
        for topic, model in self.topics.items():
            first = self.member.query(FirstPositionQuery(topic=topic))
            assert isinstance(first, int)
            for position in range(1, len(model.items) + 1):
                if position < first:
                    with pytest.raises(TrimmedError):
                        self.member.query(LocationQuery(topic=topic, position=position))
                    continue
                found = self.member.query(LocationQuery(topic=topic, position=position))[0]
                assert isinstance(found, int)
                assert model.batches[0].first_index <= found <= model.batches[position - 1].first_index
                firsts.append(found)
            assert (
                self.member.query(LocationQuery(topic=topic, position=len(model.items) + 1))[0] == self.applied[-1].end
            )
        assert self.member.keep_from() == min(firsts, default=None)


TestHistory = pytest.mark.slow(History.TestCase)
TestHistory.settings = settings(
    max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
