"""Linearizability: every operation takes effect at one moment between its call and its answer.

It is a property of a *history*: the clients' calls and answers with their times. A history is linearizable if its
operations can be put in one order in which each gives the answer that it gave; in which an operation that was answered
before another was called precedes it; and in which an operation without an answer comes somewhere after its call, or is
left out.

The property is local: a history is linearizable if that of each topic and each actor is. So a history is judged by
partition, each by a *model* of one object: its initial state, and the effect of an operation on its state.

The search is depth first, along the calls and answers in their order. At an answer to an operation that is not placed,
it is placed; if that does not fit or leads to no order, another pending operation is placed before it, the soonest
answered first. A configuration consists of a state and the set of placed pending operations; one that was reached
before at the same answer is not searched again. An operation is placed only when an answer needs it, and a read-only
one as soon as it fits; neither rule loses an order. If no continuation is left, the history is not linearizable, and
the furthest answer that was reached is reported.

The search can take exponential time. So it counts its steps, and beyond a budget the answer is UNKNOWN, which means
neither of the others; the caller decides how to treat it.

This module does not depend on the simulator, because it also judges histories of real processes.

Sources: Wing and Gong, "Testing and verifying concurrent objects" (1993), for the search; Lowe, "Testing for
linearizability" (2017), for placing just in time, caching configurations and partitioning.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Protocol

from viewstamp.sim.history import Add, Append, Operation, Read, ReadEnd, ReadFrom, Value, Write

__all__ = ["Answer", "Judgement", "Log", "Model", "Register", "judge"]

STEPS_MAX = 1_000_000
"""Calls of a model for one partition after which the answer is UNKNOWN; they take some seconds."""

State = Hashable


class Answer(Enum):
    """The result of the search for an order."""

    LINEARIZABLE = "linearizable"
    VIOLATED = "violated"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result for one partition, or for all: then the worst of them, with the steps of all."""

    answer: Answer
    partition: str = ""
    detail: str = ""
    steps: int = 0


class Model(Protocol):
    """One object: its initial state, and the effects of operations."""

    initial: State

    def prepare(self, operations: Sequence[Operation]) -> Sequence[Operation] | str:
        """Return the operations of one partition as ``step`` shall see them, or the reason why no order can exist."""
        ...

    def step(self, state: Any, operation: Operation) -> State | None:
        """Return the state after ``operation``; None = it cannot come here, or not with its answer.

        The answer of an open operation has no meaning, unless ``prepare`` set it.
        """
        ...

    def only_reads(self, operation: Operation) -> bool:
        """Return whether ``operation`` leaves every state unchanged."""
        ...


def judge(operations: Iterable[Operation], model: Model, *, steps_max: int = STEPS_MAX) -> Judgement:
    """Judge a history, partition by partition, each by ``model``.

    Args:
      operations: in any order.
      model: a model of one object.
      steps_max: the number of model calls allowed for one partition.

    Returns:
      LINEARIZABLE for all, or the first partition that is VIOLATED, or else the first that is UNKNOWN.
    """
    partitions: dict[str, list[Operation]] = {}
    for operation in operations:
        partitions.setdefault(operation.partition, []).append(operation)
    worst = Judgement(Answer.LINEARIZABLE)
    steps = 0
    for partition, of_it in sorted(partitions.items()):
        judgement = _Search(partition, of_it, model, steps_max).run()
        steps += judgement.steps
        if judgement.answer is Answer.VIOLATED:
            return replace(judgement, steps=steps)
        if worst.answer is Answer.LINEARIZABLE:
            worst = judgement
    return replace(worst, steps=steps)


_Config = tuple[Any, frozenset[int]]
"""A possible state, and the pending operations that have been placed before it."""


class _BudgetSpentError(Exception):
    """The search has used its budget of steps."""


@dataclass(frozen=True, slots=True)
class _Event:
    """The call of a read-only operation, or an answer.

    ``under_way`` are the operations that were called before and are answered later, the soonest first. Of the
    operations without an answer, the first ``lost`` were called before. ``reads`` are the read-only ones among
    ``under_way``.
    """

    number: int
    is_answer: bool
    under_way: tuple[int, ...]
    lost: int
    reads: tuple[int, ...]


class _Search:
    """The search in one partition."""

    def __init__(self, partition: str, operations: Sequence[Operation], model: Model, steps_max: int) -> None:
        self._partition = partition
        self._given = operations
        self._model = model
        self._steps_max = steps_max
        self._steps = 0
        self._operations: Sequence[Operation] = ()
        self._events: list[_Event] = []
        self._lost: list[int] = []
        """The operations without an answer that are not read-only, in the order of their calls."""
        self._furthest = 0
        self._states: set[Any] = set()
        """The states in which the furthest event was reached."""

    def run(self) -> Judgement:
        """Search for an order."""
        prepared = self._model.prepare(self._given)
        if isinstance(prepared, str):
            return self._judgement(Answer.VIOLATED, prepared)
        self._operations = prepared
        self._events = list(self._in_order())
        try:
            if self._finds_an_order():
                return self._judgement(Answer.LINEARIZABLE)
        except _BudgetSpentError:
            return self._judgement(Answer.UNKNOWN, f"no verdict after {self._steps} steps")
        operation = prepared[self._events[self._furthest].number]
        states = ", ".join(sorted(map(repr, self._states))[:5])
        return self._judgement(Answer.VIOLATED, f"{operation} fits no order; it could have met the states {states}")

    def _judgement(self, answer: Answer, detail: str = "") -> Judgement:
        return Judgement(answer, self._partition, detail, self._steps)

    def _in_order(self) -> Iterator[_Event]:
        operations = self._operations
        times = [(operation.called, 0, number) for number, operation in enumerate(operations)]
        times += [(each.returned, 1, number) for number, each in enumerate(operations) if not each.is_open]
        under_way: list[int] = []
        reads: list[int] = []
        for _, is_answer, number in sorted(times):
            is_read = self._model.only_reads(operations[number])
            if is_answer:
                (reads if is_read else under_way).remove(number)
                yield _Event(number, True, tuple(under_way), len(self._lost), tuple(reads))
            elif is_read and not operations[number].is_open:
                reads.append(number)
                yield _Event(number, False, (), 0, tuple(reads))
            elif not is_read and operations[number].is_open:
                self._lost.append(number)
            elif not is_read:
                insort(under_way, number, key=lambda each: operations[each].returned)

    def _finds_an_order(self) -> bool:
        """Search the configurations depth first."""
        met: set[tuple[int, _Config]] = set()
        branches: list[tuple[int, _Config, Iterator[int]]] = []
        """The configurations on the current path, with the remaining choices for each."""
        at, config, is_reached = 0, (self._model.initial, frozenset[int]()), True
        while at < len(self._events):
            event = self._events[at]
            if not event.is_answer:
                at, config = at + 1, self._settled(*config, event.reads)
                continue
            if event.number in config[1]:
                at, config = at + 1, (config[0], config[1] - {event.number})
                continue
            if at > self._furthest:
                self._furthest, self._states = at, set()
            if at == self._furthest and is_reached:
                self._states.add(config[0])
            if (at, config) not in met:
                met.add((at, config))
                branches.append((at, config, self._choices(event, config[1])))
            while branches:
                at, (state, placed), choices = branches[-1]
                number = next(choices, None)
                if number is None:
                    branches.pop()
                elif (after := self._step(state, number)) is not None:
                    break
            else:
                return False
            event = self._events[at]
            is_reached = number == event.number
            config = self._settled(after, placed if is_reached else placed | {number}, event.reads)
            at += is_reached
        return True

    def _choices(self, event: _Event, placed: frozenset[int]) -> Iterator[int]:
        """Yield the operations that can be placed next, the likeliest first.

        The answered one, then others before it.
        """
        yield event.number
        for number in event.under_way:
            if number not in placed:
                yield number
        twins: set[Hashable] = set()
        for number in self._lost[: event.lost]:
            operation = self._operations[number]
            if number in placed or (operation.answer is None and operation.request in twins):
                continue
            if operation.answer is None:
                # Of equal operations, only the first called one is tried, because it fits wherever the others do.
                twins.add(operation.request)
            yield number

    def _settled(self, state: Any, placed: frozenset[int], reads: Sequence[int]) -> _Config:
        """Place the read-only operations that fit, because no later moment is better for them."""
        fitting = [number for number in reads if number not in placed and self._step(state, number) is not None]
        return state, placed.union(fitting) if fitting else placed

    def _step(self, state: Any, number: int) -> State | None:
        self._steps += 1
        if self._steps > self._steps_max:
            raise _BudgetSpentError
        return self._model.step(state, self._operations[number])


# -- A log: topics, and actors that record their commands -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Unseen:
    """An append of ``count`` values that no answer has ever shown."""

    count: int


class Log:
    """A log to which values are appended, each once. Its state is its last position.

    The last position suffices as the state because the value at a position never changes. The values that the answers
    show are collected in advance; if two answers contradict each other, no order exists. An append without an answer
    counts as applied if an answer shows one of its values.
    """

    initial: State = 0

    def __init__(self) -> None:
        self._stands: dict[int, Value] = {}

    def prepare(self, operations: Sequence[Operation]) -> Sequence[Operation] | str:
        """Collect the value at each position. See :class:`Model`."""
        self._stands = {}
        appended: dict[Value, Operation] = {}
        for operation in operations:
            if isinstance(operation.request, Append):
                for value in operation.request.values:
                    if value in appended:
                        raise ValueError(f"{value!r} is appended twice to {operation.partition}")
                    appended[value] = operation
        for operation in operations:
            complaint = self._learn(operation)
            if complaint:
                return complaint
        at = {value: position for position, value in self._stands.items()}
        if len(at) != len(self._stands):
            twice = next(value for position, value in self._stands.items() if at[value] != position)
            return f"{twice!r} stands at several positions, one of them {at[twice]}"
        for position, value in self._stands.items():
            if value not in appended:
                return f"{value!r} at {position} was never appended"
        return [self._resolve(operation, at) for operation in operations]

    def _learn(self, operation: Operation) -> str:
        """Record the positions that an answer shows; return a complaint if it contradicts an earlier one."""
        values: Sequence[Value]
        match operation.request:
            case Append(values) if not operation.is_open:
                first = operation.answer
            case ReadFrom(first=first) if not operation.is_open:
                values = operation.answer
            case _:
                return ""
        for position, value in enumerate(values, first):
            if self._stands.setdefault(position, value) != value:
                return f"at {position} stands {self._stands[position]!r}, and {value!r}: {operation}"
        return ""

    def _resolve(self, operation: Operation, at: dict[Value, int]) -> Operation:
        if not operation.is_open or not isinstance(operation.request, Append):
            return operation
        for offset, value in enumerate(operation.request.values):
            if value in at:
                return replace(operation, answer=at[value] - offset)
        return replace(operation, request=_Unseen(len(operation.request.values)), answer=None)

    def step(self, state: int, operation: Operation) -> int | None:
        """See :class:`Model`."""
        answer = operation.answer
        match operation.request:
            case Append(values):
                fits = answer == state + 1 and all(
                    self._stands.get(position, value) == value for position, value in enumerate(values, state + 1)
                )
                return state + len(values) if fits else None
            case _Unseen(count):
                end = state + count
                return None if any(position in self._stands for position in range(state + 1, end + 1)) else end
            case ReadEnd():
                return state if answer == state else None
            case ReadFrom(first, is_whole):
                end = first + len(answer) - 1
                fits = end == max(state, first - 1) if is_whole else end <= state if answer else state < first
                return state if fits else None
            case request:
                raise TypeError(f"a log has no operation {request!r}")

    def only_reads(self, operation: Operation) -> bool:
        """See :class:`Model`."""
        return isinstance(operation.request, ReadEnd | ReadFrom)


# -- A register: one value that is written, read and incremented ----------------------------------------------


class Register:
    """One value, initially ``initial``."""

    def __init__(self, initial: State = 0) -> None:
        self.initial = initial

    def prepare(self, operations: Sequence[Operation]) -> Sequence[Operation] | str:
        """Return the operations unchanged."""
        return operations

    def step(self, state: Any, operation: Operation) -> State | None:
        """See :class:`Model`."""
        match operation.request:
            case Write(value):
                return value
            case Read():
                return state if operation.answer == state else None
            case Add(number):
                after: State = state + number
                return after if operation.is_open or operation.answer == after else None
            case request:
                raise TypeError(f"a register has no operation {request!r}")

    def only_reads(self, operation: Operation) -> bool:
        """See :class:`Model`."""
        return isinstance(operation.request, Read)
