"""Random histories of clients, leaders and members against a plain list per topic."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.streams.log import Log, create_topic, fence, open_session, records, restored
from viewstamp.errors import StaleSessionError, UnavailableError
from viewstamp.ids import Position
from viewstamp.node.state_machine import Accepted, Answered, Receipt, Waiting
from viewstamp.streams import Streams
from viewstamp.streams.session import RECEIPTS_MAX
from viewstamp.wire.batch import Batch, Kind

SESSIONS_MAX = 2
TOPICS = 2


class History(RuleBasedStateMachine):
    """A leader's log over one machine, a second member that is sometimes restored from an image, and the model.

    The model is a list per topic of (session, sequence), one item a record, and per session the decided sequences.
    """

    def __init__(self) -> None:
        super().__init__()
        self.member = Streams(sessions_max=SESSIONS_MAX)
        self.log = Log(Streams(sessions_max=SESSIONS_MAX))
        self.topics: dict[int, list[tuple[int, int]]] = {n + 1: [] for n in range(TOPICS)}
        self.decided: dict[int, dict[int, bool]] = {}
        self.in_log: dict[int, set[int]] = {}
        self.used: list[int] = []
        for n in range(TOPICS):
            self.log.propose(create_topic(f"t{n}"))
            self._apply()

    def _apply(self) -> None:
        batch = self.log.unapplied[0]
        result = self.log.apply()
        assert self.member.apply(batch) == result
        if batch.kind is Kind.OPEN_SESSION:
            assert result == {"session": batch.first_index}
            if len(self.used) == SESSIONS_MAX:
                del self.decided[self.used.pop(0)]
            self.used.append(batch.first_index)
            self.decided[batch.first_index] = {}
        elif batch.kind is Kind.RECORDS:
            topic = self.topics[batch.topic]
            assert isinstance(result, Receipt)
            assert result.first_position == len(topic) + 1
            topic.extend([(batch.session, batch.sequence)] * batch.count)
            self._decide(batch, applied=True)
        elif batch.kind is Kind.FENCE:
            decided = self.decided[batch.session]
            self._decide(batch, applied=decided.get(batch.sequence, False))
            assert (result is not None) == decided[batch.sequence]

    def _decide(self, batch: Batch, *, applied: bool) -> None:
        decided = self.decided[batch.session]
        for sequence in range(len(decided) + 1, batch.sequence):
            decided[sequence] = False
        decided[batch.sequence] = applied
        self.used.remove(batch.session)
        self.used.append(batch.session)

    def _logged(self, session: int) -> int:
        """The last sequence of a session in the whole log, by looking at every batch."""
        of_session = [b.sequence for b in self.log.unapplied if b.session == session]
        return max([len(self.decided[session]), *of_session])

    @rule()
    def open(self) -> None:
        try:
            self.log.propose(open_session())
        except UnavailableError:
            assert any(b.kind is Kind.OPEN_SESSION for b in self.log.unapplied)

    @precondition(lambda self: self.decided)
    @rule(
        data=st.data(),
        ahead=st.sampled_from([1, 1, 1, 1, 0, 0, -1, -2, -4, 2]),
        topic=st.integers(1, TOPICS),
        count=st.integers(1, 3),
    )
    def append(self, data: st.DataObject, ahead: int, topic: int, count: int) -> None:
        session = data.draw(st.sampled_from(sorted(self.decided)))
        logged = self._logged(session)
        sequence = max(1, logged + ahead)
        decided = self.decided[session].get(sequence)
        in_log = any(
            b.kind is Kind.RECORDS and (b.session, b.sequence) == (session, sequence) for b in self.log.unapplied
        )
        opening = any(b.kind is Kind.OPEN_SESSION for b in self.log.unapplied)
        try:
            admission = self.log.propose(records(topic, session, sequence, count))
        except UnavailableError:
            fenced = decided is None and not in_log and sequence <= logged
            assert sequence > logged + 1 or fenced or (opening and sequence == logged + 1)
        else:
            if isinstance(admission, Answered):
                assert decided is not None
                assert (admission.result is not None) == decided
            elif isinstance(admission, Waiting):
                assert in_log
            else:
                assert sequence == logged + 1

    @precondition(lambda self: self.decided)
    @rule(data=st.data(), ahead=st.sampled_from([1, 2, 3, 0, -1, -3]))
    def fence(self, data: st.DataObject, ahead: int) -> None:
        session = data.draw(st.sampled_from(sorted(self.decided)))
        sequence = max(1, self._logged(session) + ahead)
        try:
            admission = self.log.propose(fence(session, sequence))
        except UnavailableError:
            assert any(b.kind is Kind.OPEN_SESSION for b in self.log.unapplied)
        else:
            assert isinstance(admission, Accepted) == (sequence not in self.decided[session])

    @rule()
    def forgotten_sessions_stay_refused(self) -> None:
        for session in range(1, self.log.next_index):
            if session not in self.decided:
                try:
                    self.log.propose(records(1, session, 1))
                except StaleSessionError:
                    continue
                raise AssertionError(f"session {session} was forgotten and is served")

    @precondition(lambda self: self.log.unapplied)
    @rule(share=st.floats(0, 1))
    def apply(self, share: float) -> None:
        for _ in range(max(1, int(share * len(self.log.unapplied)))):
            self._apply()

    @rule(kept=st.floats(0, 1))
    def change_leader(self, kept: float) -> None:
        """A suffix of the log is cut; what stays is applied; the next leader admits from there."""
        unapplied = self.log.unapplied
        cut = len(unapplied) - int(kept * len(unapplied))
        self.log.unapplied = unapplied[: len(unapplied) - cut]
        next_index = unapplied[len(unapplied) - cut].first_index if cut else self.log.next_index
        self.log.machine.stop_leading()
        while self.log.unapplied:
            self._apply()
        self.log = Log(self.log.machine, first_index=next_index, term=self.log.term + 1)

    @rule()
    def replace_member_by_an_image(self) -> None:
        self.member = restored(self.log.machine, sessions_max=SESSIONS_MAX)

    @invariant()
    def members_agree(self) -> None:
        assert self.member.digest() == self.log.machine.digest()

    @invariant()
    def topics_are_the_lists(self) -> None:
        for topic, items in self.topics.items():
            described = self.member.query("describe_topic", name=f"t{topic - 1}")
            assert isinstance(described, dict)
            assert described["last_position"] == len(items)
            # Exactly once: a (session, sequence) is one unbroken run in one topic.
            runs = [item for i, item in enumerate(items) if i == 0 or items[i - 1] != item]
            assert len(runs) == len(set(runs))

    @invariant()
    def every_decided_sequence_is_answered_the_same_for_ever(self) -> None:
        for session, decided in self.decided.items():
            for sequence, applied in decided.items():
                if sequence > len(decided) - RECEIPTS_MAX:
                    answer = self.member.query("outcome", session=session, sequence=sequence)
                    assert (answer is not None) == applied

    @invariant()
    def positions_are_located_inside_the_log(self) -> None:
        for topic, items in self.topics.items():
            for position in range(1, len(items) + 2):
                found = self.member.query("locate", topic=topic, position=Position(position))
                assert isinstance(found, int)
                assert 1 <= found <= self.log.next_index


TestHistory = pytest.mark.slow(History.TestCase)
TestHistory.settings = settings(
    max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
