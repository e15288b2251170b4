"""The checker of linearizability is checked itself, by histories with a known verdict and against brute force."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import count, permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewstamp.sim.checkers.linearizability import Answer, Log, Model, Register, judge
from viewstamp.sim.history import Add, Append, Operation, Read, ReadEnd, ReadFrom, Recorder, Write

NEVER = math.inf


def op(request: Any, called: float, returned: float = NEVER, answer: Any = None, partition: str = "p") -> Operation:
    return Operation(partition, request, called, answer, returned)


def verdict(model: Model, *operations: Operation) -> Answer:
    return judge(operations, model).answer


# -- Known histories of a register -----------------------------------------------------------------------------


def test_a_read_beside_a_write_may_see_it_or_not() -> None:
    for seen in (0, 1):
        assert verdict(Register(), op(Write(1), 1, 4), op(Read(), 2, 3, seen)) is Answer.LINEARIZABLE


def test_a_read_behind_a_write_that_was_answered_must_see_it() -> None:
    assert verdict(Register(), op(Write(1), 1, 2), op(Read(), 3, 4, 0)) is Answer.VIOLATED


def test_a_later_reader_sees_the_writes_of_an_earlier_one() -> None:
    """The write is pending all the time, but it takes effect at one moment for all readers."""
    write = op(Write(1), 1, 10)
    assert verdict(Register(), write, op(Read(), 2, 3, 1), op(Read(), 4, 5, 1)) is Answer.LINEARIZABLE
    assert verdict(Register(), write, op(Read(), 2, 3, 1), op(Read(), 4, 5, 0)) is Answer.VIOLATED


def test_readers_beside_each_other_may_see_it_in_either_order() -> None:
    assert verdict(Register(), op(Write(1), 1, 10), op(Read(), 2, 5, 1), op(Read(), 3, 5, 0)) is Answer.LINEARIZABLE


def test_a_write_that_was_never_answered_may_happen_much_later_or_never() -> None:
    lost = op(Write(1), 1)
    assert verdict(Register(), lost, op(Read(), 2, 3, 0), op(Read(), 4, 5, 1)) is Answer.LINEARIZABLE
    assert verdict(Register(), lost, op(Read(), 2, 3, 0)) is Answer.LINEARIZABLE
    assert verdict(Register(), lost, op(Read(), 2, 3, 1), op(Read(), 4, 5, 0)) is Answer.VIOLATED


def test_a_later_call_explains_no_answer() -> None:
    assert verdict(Register(), op(Read(), 1, 2, 1), op(Write(1), 3, 4)) is Answer.VIOLATED


def test_a_write_of_the_present_value_may_still_have_to_wait() -> None:
    """The checker could place this write at once, where it changes nothing.

    But the last read is only possible if it comes after the other write.
    """
    history = [op(Write(5), 1, 2), op(Write(5), 3, 8), op(Write(7), 4, 7), op(Read(), 9, 10, 5)]
    assert verdict(Register(), *history) is Answer.LINEARIZABLE


def test_the_same_sum_in_two_answers_is_a_violation() -> None:
    assert verdict(Register(), op(Add(1), 1, 4, 1), op(Add(1), 2, 3, 2)) is Answer.LINEARIZABLE
    assert verdict(Register(), op(Add(1), 1, 4, 1), op(Add(1), 2, 3, 1)) is Answer.VIOLATED


def test_partitions_are_judged_apart_and_the_one_that_fails_is_named() -> None:
    history = [op(Write(1), 1, 2, partition="a"), op(Read(), 3, 4, 0, partition="b")]
    assert judge(history, Register()).answer is Answer.LINEARIZABLE
    judgement = judge([*history, op(Read(), 5, 6, 0, partition="a")], Register())
    assert (judgement.answer, judgement.partition) == (Answer.VIOLATED, "a")
    assert "Read()" in judgement.detail


def test_a_history_that_would_take_for_ever_is_answered_by_unknown() -> None:
    """Sixteen additions of different numbers are pending, so the read could have seen the sum of any subset."""
    history = [op(Add(1 << bit), 0) for bit in range(16)]
    history.append(op(Read(), 1, 2, -1))
    judgement = judge(history, Register(), steps_max=20_000)
    assert (judgement.answer, judgement.partition) == (Answer.UNKNOWN, "p")
    assert judgement.steps <= 20_001
    assert judge([*history[:8], history[-1]], Register()).answer is Answer.VIOLATED


def test_a_violation_elsewhere_outweighs_an_unknown() -> None:
    hard = [op(Add(1 << bit), 0) for bit in range(16)] + [op(Read(), 1, 2, -1)]
    wrong = [op(Read(), 1, 2, 1, partition="q")]
    assert judge(hard + wrong, Register(), steps_max=1000).answer is Answer.VIOLATED


def test_many_equal_operations_without_an_answer_cost_no_more_than_one() -> None:
    history = [op(Add(1), number) for number in range(200)]
    history.append(op(Read(), 300, 301, 150))
    judgement = judge(history, Register())
    assert judgement.answer is Answer.LINEARIZABLE
    assert judgement.steps < 100_000


def test_writers_and_readers_beside_each_other_cost_little_where_an_order_is_easily_found() -> None:
    """Sixteen callers each read or write one of five values: very many orders fit, and one is enough."""
    entropy = random.Random(4)
    history: list[Operation] = []
    value = 0
    free = [0.0] * 16
    for now in range(1, 301):
        caller = entropy.randrange(16)
        called, free[caller] = min(max(free[caller], now - entropy.uniform(0, 16)), now), now + entropy.uniform(0, 16)
        if entropy.random() < 0.5:
            value = entropy.randrange(5)
            history.append(op(Write(value), called, free[caller]))
        else:
            history.append(op(Read(), called, free[caller], value))
    judgement = judge(history, Register())
    assert judgement.answer is Answer.LINEARIZABLE
    assert judgement.steps < 10_000


# -- Known histories of a log ----------------------------------------------------------------------------------


def test_appends_stand_in_the_order_of_their_answers() -> None:
    first, second = op(Append(("a",)), 1, 2, 1), op(Append(("b",)), 3, 4, 2)
    assert verdict(Log(), first, second) is Answer.LINEARIZABLE
    assert verdict(Log(), op(Append(("a",)), 1, 2, 2), op(Append(("b",)), 3, 4, 1)) is Answer.VIOLATED


def test_a_lost_append_is_violated_by_the_next_position() -> None:
    """Two appends were acknowledged at position 1."""
    assert verdict(Log(), op(Append(("a",)), 1, 2, 1), op(Append(("b",)), 3, 4, 1)) is Answer.VIOLATED


def test_an_end_that_is_too_small_is_stale_and_one_that_is_too_large_invented() -> None:
    appended = op(Append(("a", "b")), 1, 2, 1)
    for end, answer in ((1, Answer.VIOLATED), (2, Answer.LINEARIZABLE), (3, Answer.VIOLATED)):
        assert verdict(Log(), appended, op(ReadEnd(), 3, 4, end)) is answer


def test_half_of_an_append_is_never_seen() -> None:
    appended = op(Append(("a", "b")), 1, 9, 1)
    assert verdict(Log(), appended, op(ReadEnd(), 2, 3, 1)) is Answer.VIOLATED
    assert verdict(Log(), appended, op(ReadFrom(1), 2, 3, ("a",))) is Answer.LINEARIZABLE, (
        "a read need not return all values"
    )


def test_an_unacknowledged_position_is_filled_by_a_lost_append_only() -> None:
    later = op(Append(("b",)), 5, 6, 2)
    assert verdict(Log(), later) is Answer.VIOLATED
    assert verdict(Log(), op(Append(("a",)), 1), later) is Answer.LINEARIZABLE
    assert verdict(Log(), op(Append(("a", "c")), 1), later) is Answer.VIOLATED, "two values do not fit"
    assert verdict(Log(), op(Append(("a",)), 7), later) is Answer.VIOLATED, "the append was called afterwards"


def test_a_lost_append_that_was_read_is_at_the_position_of_the_read() -> None:
    lost = op(Append(("a",)), 1)
    seen = op(ReadFrom(1), 3, 4, ("a",))
    assert verdict(Log(), lost, seen, op(ReadEnd(), 5, 6, 1)) is Answer.LINEARIZABLE
    assert verdict(Log(), lost, seen, op(ReadEnd(), 5, 6, 0)) is Answer.VIOLATED


def test_a_position_holds_one_value_and_a_value_one_position() -> None:
    lost = [op(Append((value,)), 1) for value in "ab"]
    assert verdict(Log(), *lost, op(ReadFrom(1), 2, 3, ("a",)), op(ReadFrom(1), 4, 5, ("b",))) is Answer.VIOLATED
    assert verdict(Log(), *lost, op(ReadFrom(1), 2, 3, ("a",)), op(ReadFrom(2), 4, 5, ("a",))) is Answer.VIOLATED
    assert verdict(Log(), op(ReadFrom(1), 2, 3, ("z",))) is Answer.VIOLATED, "the value was never appended"


def test_a_read_that_finds_nothing_precedes_the_append_at_its_position() -> None:
    appended = op(Append(("a",)), 1, 2, 1)
    assert verdict(Log(), appended, op(ReadFrom(1), 3, 4, ())) is Answer.VIOLATED
    assert verdict(Log(), appended, op(ReadFrom(2), 3, 4, ())) is Answer.LINEARIZABLE


def test_a_long_history_of_a_log_costs_little() -> None:
    """Sixteen concurrent callers, every tenth answer lost, and a reader: a few steps for each operation."""
    clock = count(1)
    recorder = Recorder(lambda: next(clock))
    end = 0
    for round_ in range(300):
        calls = [recorder.call("t", Append((f"{round_}.{caller}",))) for caller in range(16)]
        read = recorder.call("t", ReadEnd())
        for at, call in enumerate(calls):
            end += 1
            if at == 7:
                recorder.answered(read, end)
            if (round_ * 16 + at) % 10:
                recorder.answered(call, end)
    judgement = judge(recorder.operations, Log())
    assert judgement.answer is Answer.LINEARIZABLE
    assert judgement.steps < 200 * len(recorder.operations)


def test_a_value_that_is_appended_twice_is_a_mistake_of_the_test() -> None:
    with pytest.raises(ValueError, match="'a' is appended twice to p"):
        judge([op(Append(("a",)), 1), op(Append(("a",)), 2)], Log())


# -- Against brute force ---------------------------------------------------------------------------------------


def brute_force(operations: Sequence[Operation], play: Callable[[Iterable[Operation]], bool]) -> bool:
    """Try every order of every subset of the operations without an answer."""
    answered = [each for each in operations if not each.is_open]
    lost = [each for each in operations if each.is_open]
    for chosen in range(1 << len(lost)):
        taken = answered + [each for bit, each in enumerate(lost) if chosen >> bit & 1]
        if any(keeps_time(order) and play(order) for order in permutations(taken)):
            return True
    return False


def keeps_time(order: Sequence[Operation]) -> bool:
    return all(not later.returned < earlier.called for at, earlier in enumerate(order) for later in order[at + 1 :])


def play_register(order: Iterable[Operation]) -> bool:
    value: Any = 0
    for each in order:
        match each.request:
            case Write(new):
                value = new
            case Add(number):
                value += number
        if not each.is_open and not isinstance(each.request, Write) and each.answer != value:
            return False
    return True


def play_log(order: Iterable[Operation]) -> bool:
    held: list[Any] = []
    for each in order:
        said: Any = None
        match each.request:
            case Append(values):
                said = len(held) + 1
                held += values
            case ReadEnd():
                said = len(held)
            case ReadFrom(first):
                said = tuple(held[first - 1 :][: max(1, len(each.answer))]) if not each.is_open else None
        if not each.is_open and each.answer != said:
            return False
    return True


def timed(requests: st.SearchStrategy[tuple[Any, Any]]) -> st.SearchStrategy[list[Operation]]:
    """Generate operations with right or wrong answers, at times from a small range; some have no answer."""
    call = st.tuples(requests, st.integers(0, 8), st.integers(0, 4), st.booleans())
    return st.lists(call, min_size=1, max_size=5).map(
        lambda calls: [
            op(request, called, NEVER if is_lost else called + took, None if is_lost else answer)
            for (request, answer), called, took, is_lost in calls
        ]
    )


small = st.integers(0, 2)
of_registers = st.one_of(
    st.tuples(st.builds(Write, small), st.none()),
    st.tuples(st.builds(Read), small),
    st.tuples(st.builds(Add, st.integers(0, 1)), st.integers(0, 3)),
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(timed(of_registers))
def test_the_verdict_on_a_register_is_that_of_brute_force(history: list[Operation]) -> None:
    expected = Answer.LINEARIZABLE if brute_force(history, play_register) else Answer.VIOLATED
    assert verdict(Register(), *history) is expected


def distinct(history: list[Operation]) -> list[Operation]:
    """Give every append its own values, in the order of the list: a, b, c, ...."""
    letters = iter("abcdefghijklmnop")
    for each in history:
        if isinstance(each.request, Append):
            each.request = Append(tuple(next(letters) for _ in each.request.values))
    return history


positions = st.integers(1, 4)
of_logs = st.one_of(
    st.tuples(st.sampled_from([Append((0,)), Append((0, 0))]), positions),
    st.tuples(st.builds(ReadEnd), st.integers(0, 3)),
    st.tuples(st.builds(ReadFrom, st.integers(1, 3)), st.sampled_from([(), ("a",), ("b",), ("a", "b"), ("b", "a")])),
)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(timed(of_logs).map(distinct))
def test_the_verdict_on_a_log_is_that_of_brute_force(history: list[Operation]) -> None:
    expected = Answer.LINEARIZABLE if brute_force(history, play_log) else Answer.VIOLATED
    assert verdict(Log(), *history) is expected


@st.composite
def runs_of_a_log(draw: st.DrawFn) -> list[Operation]:
    """Generate a history of a real log, in which each operation takes effect within its time.

    Then one answer may be changed.
    """
    history: list[Operation] = []
    held: list[str] = []
    for at in range(draw(st.integers(2, 5))):
        kind = draw(st.sampled_from(("append", "end", "from")))
        called, returned = at * 4 - draw(st.integers(0, 8)), at * 4 + draw(st.integers(0, 8))
        if kind == "append":
            history.append(op(Append((f"v{at}",)), called, returned, len(held) + 1))
            held.append(f"v{at}")
        elif kind == "end":
            history.append(op(ReadEnd(), called, returned, len(held)))
        else:
            first = draw(st.integers(1, len(held) + 1))
            history.append(op(ReadFrom(first), called, returned, tuple(held[first - 1 :])))
    for each in history:
        if draw(st.integers(0, 4)) == 0:
            each.answer, each.returned = None, NEVER
    if draw(st.booleans()):
        bent = draw(st.sampled_from(history))
        if isinstance(bent.answer, int):
            bent.answer += draw(st.sampled_from((-1, 1)))
    return history


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(runs_of_a_log())
def test_a_run_of_a_log_is_found_linearizable_and_a_bent_one_judged_as_brute_force_does(
    history: list[Operation],
) -> None:
    expected = Answer.LINEARIZABLE if brute_force(history, play_log) else Answer.VIOLATED
    assert verdict(Log(), *history) is expected
