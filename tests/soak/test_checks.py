"""Breaks each property that a soak checks on purpose, because a check that finds nothing proves nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.soak.checks import account_complaints, ended_complaints, held_complaints, judgements, state_complaints, worst
from tests.soak.members import CELL, too_much
from tests.soak.workload import CLAIMS, TOPICS, Done, Workload, partition_of
from viewstamp.client import Client, ClientOptions
from viewstamp.client.results import Members
from viewstamp.ids import Position
from viewstamp.sim.checkers.linearizability import Answer
from viewstamp.sim.checkers.replicas import Kept
from viewstamp.sim.history import Add, Append, Fate, Operation, Read, ReadEnd
from viewstamp.sim.workload import ClientAppend as Appended

TOPIC = TOPICS[0]


def no_client(_: ClientOptions, __: str) -> Client:
    raise AssertionError("this must not be called")


class Story:
    """Three members, with contents that match the answers to two callers; tests spoil it."""

    def __init__(self) -> None:
        self.workload = Workload(no_client, "a story")
        self.held = {
            name: {
                TOPIC: Kept(1, [b"a 1", b"b 1", b"a 2"], [10, 11, 12]),
                CLAIMS: Kept(1, [b"claim"], [13]),
            }
            for name in ("n1", "n2", "n3")
        }
        for position, (caller, value) in enumerate([("a", b"a 1"), ("b", b"b 1"), ("a", b"a 2")], 1):
            self.append(caller, TOPIC, value, Fate.APPLIED, position)
        self.append("c", CLAIMS, b"claim", Fate.APPLIED, 1).expected = 1
        self.append("b", TOPIC, b"refused", Fate.NEVER, 0)
        self.append("b", TOPIC, b"unknown", Fate.UNKNOWN, 0)
        self.workload.seen_stale.append((TOPIC, 2, (b"b 1",)))

    def append(self, caller: str, topic: str, value: bytes, fate: Fate, position: int) -> Done:
        operation = Operation(topic, Append((value,)), called=0)
        self.workload.appended.append(Appended(topic, value, caller, operation, fate, Position(position)))
        self.workload.done.append(Done(caller, operation, fate))
        return self.workload.done[-1]

    def everywhere(self, values: list[bytes]) -> None:
        """Give all members these values."""
        for topics in self.held.values():
            topics[TOPIC] = Kept(1, values, [10] * len(values))


def replace_the_last_value(story: Story) -> None:
    story.held["n3"][TOPIC] = Kept(1, [b"a 1", b"b 1", b"x"], [10, 11, 12])


def shorten_one(story: Story) -> None:
    story.held["n2"][TOPIC] = Kept(1, [b"a 1", b"b 1"], [10, 11])


def change_a_time(story: Story) -> None:
    story.held["n2"][TOPIC] = Kept(1, [b"a 1", b"b 1", b"a 2"], [10, 11, 13])


def lose(story: Story) -> None:
    story.everywhere([b"a 1", b"b 1"])


def double(story: Story) -> None:
    story.everywhere([b"a 1", b"b 1", b"a 2", b"b 1"])


def invent(story: Story) -> None:
    story.everywhere([b"a 1", b"b 1", b"a 2", b"nobody's"])


def write_what_was_refused(story: Story) -> None:
    story.everywhere([b"a 1", b"b 1", b"a 2", b"refused"])


def put_the_unknown_before_the_earlier(story: Story) -> None:
    story.workload.appended[0].fate = Fate.UNKNOWN
    story.everywhere([b"unknown", b"b 1", b"a 2"])


def claim_elsewhere(story: Story) -> None:
    story.workload.done[3].expected = 2


def lie_while_stale(story: Story) -> None:
    story.workload.seen_stale.append((TOPIC, 2, (b"a 2",)))


def answer_strangely(story: Story) -> None:
    story.workload.complaints.append("p1: RecordTooLargeError")


def test_a_story_without_a_mistake_passes_all_checks() -> None:
    story = Story()
    assert list(held_complaints(story.held, story.workload)) == []
    story.everywhere([b"a 1", b"b 1", b"a 2", b"unknown"])
    assert list(held_complaints(story.held, story.workload)) == []


@pytest.mark.parametrize(
    ("spoil", "invariant"),
    [
        (replace_the_last_value, "ReplicasEqual"),
        (shorten_one, "ReplicasEqual"),
        (change_a_time, "ReplicasEqual"),
        (lose, "NothingLost"),
        (double, "OnceOnly"),
        (invent, "NothingInvented"),
        (write_what_was_refused, "NeverMeansNever"),
        (put_the_unknown_before_the_earlier, "InOrder"),
        (claim_elsewhere, "AtItsPosition"),
        (lie_while_stale, "StaleIsTrue"),
        (answer_strangely, "Answers"),
    ],
)
def test_a_broken_promise_is_named(spoil: Callable[[Story], None], invariant: str) -> None:
    story = Story()
    spoil(story)
    assert [complaint.partition(":")[0] for complaint in held_complaints(story.held, story.workload)] == [invariant]


def test_calls_that_do_not_follow_or_are_not_there_are_named() -> None:
    workload = Story().workload
    workload.last_number["", "p0.3"] = 7
    assert list(account_complaints(workload, {"": ({"p0.3": 7}, [])})) == []
    assert len(list(account_complaints(workload, {"": ({"p0.3": 7}, [["p0.3", 7, 6]])}))) == 1
    assert len(list(account_complaints(workload, {"": ({"p0.3": 5}, [])}))) == 1


def test_cells_that_are_not_the_same_are_named() -> None:
    def states(*digests: str) -> dict[str, dict[str, object]]:
        return {f"n{number}": {"state": {"actors": {CELL: {"digest": each}}}} for number, each in enumerate(digests)}

    assert list(state_complaints(states("a", "a", "a"))) == []
    assert len(list(state_complaints(states("a", "b", "a")))) == 1


def test_a_process_may_end_for_want_of_space_and_for_nothing_else() -> None:
    assert list(ended_complaints([("n1", "StorageFullError", "no space is left")])) == []
    assert len(list(ended_complaints([("n1", "CorruptionError", "the log is damaged")]))) == 1


def test_the_history_is_judged_by_topic_and_by_cell() -> None:
    """The stale answer is found in its one cell; the topics, which have another model, are correct."""
    cell = partition_of("")
    history = [
        Operation(TOPIC, Append((b"a",)), called=1, answer=1, returned=2),
        Operation(TOPIC, ReadEnd(), called=3, answer=1, returned=4),
        Operation(cell, Add(2), called=1, answer=2, returned=2),
        Operation(cell, Add(3), called=3, answer=5, returned=4),
        Operation(cell, Read(), called=5, answer=5, returned=6),
    ]
    assert worst(judgements(history)) is Answer.LINEARIZABLE
    history.append(Operation(cell, Read(), called=7, answer=2, returned=8))
    found = judgements(history)
    assert worst(found) is found[cell].answer is Answer.VIOLATED
    assert found[TOPIC].answer is Answer.LINEARIZABLE


@pytest.mark.parametrize(
    ("voters", "impaired", "name", "may"),
    [
        (["n1", "n2", "n3"], [], "n1", True),
        (["n1", "n2", "n3"], ["n1"], "n1", True),
        (["n1", "n2", "n3"], ["n1"], "n2", False),
        (["n1~8c21f0aa", "n2", "n3"], ["n1"], "n2", False),
        (["n1", "n2", "n3", "n4"], ["n1"], "n2", False),
        (["n1", "n2", "n3", "n4", "n5"], ["n1"], "n2", True),
        (["n1", "n2", "n3"], ["n9"], "n2", True),
        (["n1", "n2", "n3"], [], "n4", False),
        (["n1"], [], "n1", False),
    ],
)
def test_only_a_minority_is_impaired(voters: list[str], impaired: list[str], name: str, *, may: bool) -> None:
    """The cluster does not promise to survive more, so a violation found then would be the soak's own mistake."""
    addresses = dict.fromkeys(voters, "127.0.0.1:7001")
    assert (too_much(name, impaired, Members(voters=addresses)) == "") is may


def test_no_member_is_impaired_during_a_membership_change() -> None:
    voters = dict.fromkeys(["n1", "n2", "n3", "n4", "n5"], "127.0.0.1:7001")
    assert too_much("n1", [], Members(voters=voters, joining={"n6": ""})) != ""
    assert too_much("n1", [], Members(voters=voters, outgoing=voters)) != ""
