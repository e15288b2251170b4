"""The applier applies batches in order and once, and answers each waiting caller once."""

from __future__ import annotations

import pytest

from tests.streams.log import Log, create_topic, open_session, records
from viewstamp.errors import CorruptionError, OutcomeUnknownError, RequestError, ViewstampError
from viewstamp.host.clock import RealClock
from viewstamp.ids import Index, Position, Sequence, SessionId, Term
from viewstamp.node.applier import Applier
from viewstamp.node.state_machine import Placement, Result
from viewstamp.streams import Streams
from viewstamp.wire.batch import Batch


class Answers:
    """Records the answers that it is called with."""

    def __init__(self) -> None:
        self.answers: list[Result | ViewstampError] = []

    def __call__(self, answer: Result | ViewstampError) -> None:
        self.answers.append(answer)


def run(applier: Applier, batches: list[Batch]) -> None:
    """Queue committed batches and run one turn of the applier."""
    applier.pending.extend(batches)
    applier.apply_turn()


def a_log() -> list[Batch]:
    """Return a log with a topic at index 1, a session at 2, three records at 3 to 5 and one at 6."""
    log = Log(Streams())
    log.run(create_topic("orders"))
    log.run(open_session())
    log.run(records(1, 2, 1, count=3))
    log.run(records(1, 2, 2))
    return log.applied


def test_a_proposal_is_answered_when_its_batch_is_applied_and_only_then() -> None:
    applier, told = Applier(Streams(), RealClock()), Answers()
    batches = a_log()
    applier.answer_when_applied(Index(3), told)
    run(applier, batches[:2])
    assert told.answers == []
    run(applier, batches[2:])
    (receipt,) = told.answers
    assert isinstance(receipt, Placement)
    assert (receipt.first_position, receipt.count, receipt.first_index) == (1, 3, 3)
    assert applier.applied_end == 7


def test_a_retry_is_answered_as_the_batch_that_it_repeats() -> None:
    applier, original, retries = Applier(Streams(), RealClock()), Answers(), [Answers(), Answers()]
    batches = a_log()
    run(applier, batches[:2])
    applier.answer_when_applied(Index(3), original)
    for retry in retries:
        applier.answer_retry(SessionId(2), Sequence(1), retry)
    run(applier, batches[2:])
    assert len(original.answers) == 1
    assert [retry.answers for retry in retries] == [original.answers, original.answers]


def test_a_refusal_by_the_state_machine_is_a_result_and_the_log_goes_on() -> None:
    """A refusal by the state machine is deterministic: all members refuse the same command and none has failed."""
    applier, told = Applier(Streams(), RealClock()), Answers()
    batches = a_log()
    forbidden = create_topic("not allowed!")
    last = batches[-1]
    forbidden.stamp(
        term=last.term,
        first_index=last.end,
        previous_term=last.term,
        log_time=last.log_time,
        first_position=forbidden.first_position,
    )
    applier.answer_when_applied(forbidden.first_index, told)
    run(applier, [*batches, forbidden])
    assert [type(answer) for answer in told.answers] == [RequestError]
    assert applier.applied_end == forbidden.end


def test_waiters_for_an_index_are_called_in_log_order_then_in_order_of_registration() -> None:
    applier = Applier(Streams(), RealClock())
    batches = a_log()
    calls: list[str] = []
    for name, index in (("six", 6), ("three", 3), ("one", 1), ("three again", 3), ("two", 2)):
        applier.call_when_applied(Index(index), lambda name=name: calls.append(name))  # type: ignore[misc]
    assert calls == []
    run(applier, batches[:1])
    assert calls == ["one"]
    run(applier, batches[1:3])
    assert calls == ["one", "two", "three", "three again"]
    applier.call_when_applied(Index(5), lambda: calls.append("at once"))
    assert calls[-1] == "at once"
    run(applier, batches[3:])
    assert calls[-1] == "six"


def test_a_cancelled_waiter_is_dropped_and_the_others_are_still_called() -> None:
    """An idle log applies nothing for days, while readers come, wait for the next record and leave."""
    applier = Applier(Streams(), RealClock())
    batches = a_log()
    calls: list[int] = []
    stay = [1, 4, 6]
    for number in range(1000):
        index = Index(1 + number % 6)
        give_up = applier.call_when_applied(index, lambda index=index: calls.append(index))  # type: ignore[misc]
        if number not in stay:
            give_up()
            give_up()
        assert applier.held_waiters <= 2 * (1 + len(stay))
    run(applier, batches)
    assert calls == [1, 2, 5]
    assert applier.held_waiters == 0
    applier.call_when_applied(Index(6), lambda: calls.append(6))()
    assert calls == [1, 2, 5, 6]


def test_after_a_failure_no_caller_is_answered_a_second_time() -> None:
    """A deposed leader answers its callers with OutcomeUnknownError, but may still apply its log later."""
    applier, proposal, retry, reader = Applier(Streams(), RealClock()), Answers(), Answers(), Answers()
    batches = a_log()
    run(applier, batches[:2])
    applier.answer_when_applied(Index(3), proposal)
    applier.answer_retry(SessionId(2), Sequence(2), retry)
    applier.call_when_applied(Index(6), lambda: reader(None))
    unknown = OutcomeUnknownError("deposed", token=None)
    applier.fail(unknown)
    applier.fail(unknown)
    run(applier, batches[2:])
    assert proposal.answers == retry.answers == [unknown]
    assert reader.answers == [None], "a call that waits only for an index is still made"


def test_a_batch_out_of_order_is_a_defect() -> None:
    applier = Applier(Streams(), RealClock())
    batches = a_log()
    with pytest.raises(AssertionError, match="after 1"):
        run(applier, batches[1:2])
    run(applier, batches)
    with pytest.raises(AssertionError):
        run(applier, batches[-1:])


def test_a_batch_that_contradicts_the_state_stops_the_node() -> None:
    """Members have diverged: a node that continued would serve a state that differs from the group's."""
    applier = Applier(Streams(), RealClock())
    batches = a_log()
    run(applier, batches[:3])
    wrong = records(1, 2, 2)
    wrong.stamp(term=Term(1), first_index=Index(6), previous_term=Term(1), log_time=1006, first_position=Position(9))
    with pytest.raises(CorruptionError):
        run(applier, [wrong])
