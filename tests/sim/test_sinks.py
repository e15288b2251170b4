"""The checker of sinks reports a wrong history, and the drivers make the requests that it judges."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from viewstamp.client.sinks import CommitRange, SinkCommit, SinkInfo
from viewstamp.ids import Position
from viewstamp.sim.checkers.sinks import check_sinks
from viewstamp.sim.history import Fate
from viewstamp.sim.run import run_seed
from viewstamp.sim.sinks import Commit, SinkBatch, SinkWorkload, TaskAttempt
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.topics import Observed, Topics
from viewstamp.sim.violation import Violation
from viewstamp.sim.world import World

FIRST = {"a": 1, "b": 1}
"""Nothing has been trimmed."""


class History:
    """Two batches of two attempts each that were committed to two topics, with an append of another client in between.

    Tests may change every request, answer and observation before they are judged.
    """

    def __init__(self) -> None:
        world = World(1, Swarm(nodes=1, faults={}))
        self.sinks = SinkWorkload(world, Topics(world.swarm))
        world.close()
        self.seen = self.sinks.topics.observed.topics
        self.first = self._batch(0, first_a=1, first_b=1, time=10)
        self.seen["a"][5] = (b"another client's", 15)
        self.second = self._batch(1, first_a=6, first_b=3, time=20)

    def _batch(self, number: int, first_a: int, first_b: int, time: int) -> Commit:
        batch = SinkBatch("s", "o", number)
        parts = [
            TaskAttempt(
                batch, f"{number}.{part}", [(topic, f"{number} {part} {topic} {at}".encode()) for topic, at in held]
            )
            for part, held in enumerate([[("a", 0), ("b", 0), ("a", 1)], [("a", 0), ("a", 1), ("b", 0)]])
        ]
        answer = SinkCommit(
            sink="s",
            batch=number,
            duplicate=False,
            ranges=[CommitRange("a", first_a, 4), CommitRange("b", first_b, 2)],
            index=100 + number,
            timestamp=time,
        )
        commit = Commit(batch, parts, 6, {}, Fate.APPLIED, answer)
        self.sinks.attempts += parts
        self.sinks.commits.append(commit)
        for topic, first in (("a", first_a), ("b", first_b)):
            for position, value in enumerate(commit.records_of(topic), first):
                self.seen.setdefault(topic, {})[position] = (value, time)
        return commit

    def swap(self, one: tuple[str, int], other: tuple[str, int]) -> None:
        """Swap two records."""
        topics = self.seen
        topics[one[0]][one[1]], topics[other[0]][other[1]] = topics[other[0]][other[1]], topics[one[0]][one[1]]

    def check(self) -> None:
        check_sinks(self.sinks, FIRST)


def see_twice(history: History) -> None:
    history.seen["a"][10] = (history.seen["a"][6][0], 20)


def lose_one(history: History) -> None:
    del history.seen["a"][9]


def lose_a_topic(history: History) -> None:
    del history.seen["b"][3], history.seen["b"][4]


def lose_all(history: History) -> None:
    lose_a_topic(history)
    for position in range(6, 10):
        del history.seen["a"][position]


def name_a_part(history: History) -> None:
    """Every attempt that a driver named was recorded, but one task's part never became part of a named attempt."""
    del history.second.attempts[1]
    for position in (8, 9):
        del history.seen["a"][position]
    del history.seen["b"][4]


def exchange_parts(history: History) -> None:
    history.swap(("a", 6), ("a", 8))
    history.swap(("a", 7), ("a", 9))


def stand_apart(history: History) -> None:
    history.swap(("a", 4), ("a", 5))
    history.seen["a"][4] = (history.seen["a"][4][0], 10)


def add_what_nobody_committed(history: History) -> None:
    stray = TaskAttempt(SinkBatch("s", "o", 2), "2.0", [("a", b"stray")])
    history.sinks.attempts.append(stray)
    history.seen["a"][10] = (b"stray", 20)


def add_an_attempt_that_was_not_named(history: History) -> None:
    stray = TaskAttempt(history.second.batch, "1.9", [("a", b"stray")])
    history.sinks.attempts.append(stray)
    history.seen["a"][10] = (b"stray", 20)


def refuse_it(history: History) -> None:
    history.second.fate, history.second.answer = Fate.NEVER, None


def stand_elsewhere(history: History) -> None:
    history.seen["b"][5], history.seen["a"][9] = history.seen["a"].pop(9), history.seen["b"][4]


def rise_backwards(history: History) -> None:
    for commit, number in ((history.first, 7), (history.second, 3)):
        for attempt in commit.attempts:
            attempt.batch = SinkBatch("s", "o", number)
        commit.batch = SinkBatch("s", "o", number)


def tell_two_things(history: History) -> None:
    answer = history.second.answer
    assert answer is not None
    other = SinkCommit(sink="s", batch=1, duplicate=True, ranges=answer.ranges, index=99, timestamp=answer.timestamp)
    history.sinks.commits.append(Commit(history.second.batch, history.second.attempts, 6, {}, Fate.APPLIED, other))


def tell_twice_that_it_is_new(history: History) -> None:
    history.sinks.commits.append(history.second)


def tell_another_time(history: History) -> None:
    for position in range(6, 10):
        history.seen["a"][position] = (history.seen["a"][position][0], 21)


def fall_back_in_time(history: History) -> None:
    history.seen["a"][5] = (b"another client's", 9)


def stand_before_what_was_known(history: History) -> None:
    history.second.after = {"b": Position(3)}


def end_inside_a_batch(history: History) -> None:
    history.sinks.topics.observed.ends.append([("a", 7)])


def end_between_topics(history: History) -> None:
    history.sinks.topics.observed.ends.append([("a", 9), ("b", 2)])


def leave_something(history: History) -> None:
    history.sinks.left["s"] = SinkInfo(
        name="s",
        owner="o",
        run="r",
        batch=1,
        index=101,
        timestamp=20,
        ranges=None,
        keep_seconds=1.0,
        attempts=1,
        sealed=0,
        bytes=0,
    )


def say_it_is_committed(history: History) -> None:
    history.sinks.known[SinkBatch("s", "o", 2)] = [
        SinkCommit(sink="s", batch=2, duplicate=True, ranges=None, index=0, timestamp=0)
    ]


WRONG: list[tuple[Callable[[History], None], str]] = [
    (see_twice, "BatchOnce"),
    (lose_one, "BatchWhole"),
    (lose_a_topic, "BatchWhole"),
    (lose_all, "BatchVisible"),
    (name_a_part, "BatchWhole"),
    (exchange_parts, "BatchWhole"),
    (stand_apart, "BatchWhole"),
    (add_what_nobody_committed, "NothingUncommitted"),
    (add_an_attempt_that_was_not_named, "BatchWhole"),
    (refuse_it, "BatchWhole"),
    (stand_elsewhere, "NothingUncommitted"),
    (rise_backwards, "BatchesRise"),
    (tell_two_things, "AnswersAgree"),
    (tell_twice_that_it_is_new, "BatchOnce"),
    (tell_another_time, "AnswersAgree"),
    (fall_back_in_time, "TimesNeverFall"),
    (stand_before_what_was_known, "BatchWhole"),
    (end_inside_a_batch, "NeverInPart"),
    (end_between_topics, "NeverInPart"),
    (leave_something, "NothingLeftStaged"),
    (say_it_is_committed, "BatchVisible"),
]


def test_a_history_that_is_right_passes() -> None:
    History().check()


@pytest.mark.parametrize(("change", "invariant"), WRONG, ids=lambda each: getattr(each, "__name__", each))
def test_a_history_that_is_wrong_in_one_thing_is_found(change: Callable[[History], None], invariant: str) -> None:
    history = History()
    change(history)
    with pytest.raises(Violation) as found:
        history.check()
    assert found.value.invariant == invariant


@pytest.mark.parametrize("fate", [Fate.PENDING, Fate.UNKNOWN])
def test_a_commit_with_an_unknown_outcome_may_or_may_not_have_been_applied(fate: Fate) -> None:
    for change in (lambda history: None, lose_all):
        history = History()
        history.second.fate, history.second.answer = fate, None
        change(history)
        history.check()


def test_records_trimmed_before_any_reader_saw_them_are_not_missed() -> None:
    history = History()
    for position in range(1, 4):
        del history.seen["a"][position]
    check_sinks(history.sinks, {"a": 4, "b": 1})
    with pytest.raises(Violation):
        history.check()


def test_all_readers_have_to_see_the_same_for_ever() -> None:
    observed = Observed()
    observed.note("a", 1, b"x", 10)
    observed.note("a", 1, b"x", 10)
    for value, time in ((b"y", 10), (b"x", 11)):
        with pytest.raises(Violation, match="PositionsStay"):
            observed.note("a", 1, value, time)


@pytest.mark.slow
def test_without_faults_every_batch_is_committed_although_drivers_die() -> None:
    verdict = run_seed(1, swarm=Swarm(faults={}, seconds=3.0, callers=0, sinks=2, driver_seconds=0.3, topics=2))
    assert verdict.invariant == "", verdict.detail
    assert verdict.commits > 15
