"""Supervision trees: children end with their parent, and its supervisor gets their escalated failures."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable
from typing import Any

import pytest

from viewstamp.actors import (
    Actor,
    AsyncActor,
    Decision,
    Directive,
    Failure,
    Ref,
    Restart,
    RestartIn,
    Supervisor,
    System,
)
from viewstamp.errors import ClosedError

SOON = Restart(delay_first=1.0, restarts_max=3, window=100.0)


class Leaf(Actor[Callable[[], object]]):
    def __init__(self, notes: list[str], *, breaks_at_end: bool = False) -> None:
        self.notes = notes
        self.breaks_at_end = breaks_at_end

    def on_start(self) -> None:
        self.notes.append(f"{self.ref.name} starts")

    def on_message(self, message: Callable[[], object]) -> None:
        message()

    def on_stop(self, error: BaseException | None) -> None:
        self.notes.append(f"{self.ref.name} stops {error}")
        if self.breaks_at_end:
            raise KeyError(self.ref.name)


class SlowLeaf(AsyncActor[Callable[[], object]]):
    """Takes five seconds to end."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    async def on_start(self) -> None:
        self.notes.append(f"{self.ref.name} starts")

    async def on_message(self, message: Callable[[], object]) -> None:
        message()

    async def on_stop(self, error: BaseException | None) -> None:
        await asyncio.sleep(5)
        self.notes.append(f"{self.ref.name} stops {error}")


class Parent(Leaf):
    """Spawns the given children at each start."""

    def __init__(
        self,
        notes: list[str],
        children: list[Callable[[], Any]],
        refs: list[Ref[Any]],
        supervisor: Supervisor | None = None,
    ) -> None:
        super().__init__(notes)
        self.children = children
        self.refs = refs
        self.supervisor = supervisor

    def on_start(self) -> None:
        super().on_start()
        self.refs[:] = [
            self.spawn(child, name=str(number), supervisor=self.supervisor)
            for number, child in enumerate(self.children, 1)
        ]


class SlowParent(AsyncActor[Callable[[], object]]):
    def __init__(self, notes: list[str], children: list[Callable[[], Any]], refs: list[Ref[Any]]) -> None:
        self.notes = notes
        self.children = children
        self.refs = refs

    async def on_start(self) -> None:
        self.notes.append(f"{self.ref.name} starts")
        self.refs[:] = [
            self.spawn(child, name=str(number), supervisor=Directive.ESCALATE)
            for number, child in enumerate(self.children, 1)
        ]

    async def on_message(self, message: Callable[[], object]) -> None:
        message()

    async def on_stop(self, error: BaseException | None) -> None:
        self.notes.append(f"{self.ref.name} stops {error}")


def boom() -> None:
    raise OSError("boom")


async def test_children_carry_their_parents_name_and_stop_before_it_the_last_first() -> None:
    notes: list[str] = []
    refs: list[Ref[Any]] = []
    system = System()
    other = system.spawn(lambda: Leaf(notes), name="other")
    parent = system.spawn(lambda: Parent(notes, [lambda: Leaf(notes)] * 2, refs), name="pool")
    assert [ref.name for ref in system.refs] == ["other", "pool", "pool/1", "pool/2"]
    notes.clear()
    parent.stop()
    assert notes == ["pool/2 stops None", "pool/1 stops None", "pool stops None"]
    assert await parent.ended is None
    assert system.refs == [other]
    await system.stop()


async def test_a_system_that_stops_ends_children_before_their_parents() -> None:
    notes: list[str] = []
    system = System()
    system.spawn(lambda: Parent(notes, [lambda: SlowLeaf(notes), lambda: Leaf(notes)], []), name="a")
    system.spawn(lambda: Leaf(notes), name="b")
    await asyncio.sleep(0.1)
    notes.clear()
    await system.stop()
    assert notes == ["b stops None", "a/2 stops None", "a stops None", "a/1 stops None"]


async def test_the_end_of_a_parent_comes_after_that_of_its_children() -> None:
    """Otherwise the names of its children would still be taken for a successor."""
    notes: list[str] = []
    system = System()
    parent = system.spawn(lambda: Parent(notes, [lambda: SlowLeaf(notes)], []), name="a")
    await asyncio.sleep(0)
    parent.stop()
    assert notes[-1] == "a stops None"
    assert not parent.is_alive
    assert parent in system.refs
    assert await parent.ended is None
    assert notes[-1] == "a/1 stops None"
    system.spawn(lambda: Parent(notes, [lambda: SlowLeaf(notes)], []), name="a")
    await system.stop()


async def test_a_parent_with_a_task_ends_after_its_children() -> None:
    notes: list[str] = []
    system = System()
    parent = system.spawn(lambda: SlowParent(notes, [lambda: SlowLeaf(notes), lambda: Leaf(notes)], []), name="a")
    await asyncio.sleep(0.1)
    notes.clear()
    parent.stop()
    await parent.ended
    assert notes == ["a/2 stops None", "a/1 stops None", "a stops None"]
    await system.stop()


async def test_a_failed_child_is_restarted_alone() -> None:
    notes: list[str] = []
    refs: list[Ref[Any]] = []
    system = System(supervisor=SOON)
    system.spawn(lambda: Parent(notes, [lambda: Leaf(notes)] * 2, refs), name="a")
    notes.clear()
    refs[0].tell(boom)
    await asyncio.sleep(5)
    assert notes == ["a/1 stops boom", "a/1 starts"]
    await system.stop()


async def test_an_escalated_failure_restarts_the_parent_with_all_its_children() -> None:
    notes: list[str] = []
    refs: list[Ref[Any]] = []
    system = System(supervisor=SOON)
    children: list[Callable[[], Any]] = [lambda: SlowLeaf(notes), lambda: Leaf(notes), lambda: Leaf(notes)]
    system.spawn(lambda: Parent(notes, children, refs, Directive.ESCALATE), name="a")
    await asyncio.sleep(0)
    notes.clear()
    refs[1].tell(boom)
    await asyncio.sleep(20)
    assert notes == [
        "a/3 stops boom",
        "a/2 stops boom",
        "a stops boom",
        "a/1 stops boom",  # five seconds later; only then the next life begins, because it uses the same names
        "a starts",
        "a/2 starts",
        "a/3 starts",
        "a/1 starts",
    ]
    assert system.failures == []
    await system.stop()


async def test_a_parent_with_a_task_is_restarted_as_well() -> None:
    notes: list[str] = []
    refs: list[Ref[Any]] = []
    system = System(supervisor=SOON)
    parent = system.spawn(lambda: SlowParent(notes, [lambda: SlowLeaf(notes), lambda: Leaf(notes)], refs), name="a")
    await asyncio.sleep(0.1)
    notes.clear()
    refs[0].tell(boom)
    await asyncio.sleep(0.1)
    parent.tell(lambda: notes.append("it still takes messages"))
    await asyncio.sleep(20)
    assert notes == [
        "a/2 stops boom",
        "a/1 stops boom",
        "a stops boom",
        "a starts",
        "a/2 starts",
        "it still takes messages",
        "a/1 starts",
    ]
    await system.stop()


async def test_an_unhandled_failure_stops_all_and_names_its_actor() -> None:
    decided: list[tuple[str, Decision]] = []
    refs: list[Ref[Any]] = []
    system = System(
        supervisor=Directive.ESCALATE,
        on_decision=lambda failure, decision: decided.append((failure.actor, decision)),
    )
    system.spawn(lambda: Parent([], [lambda: Leaf([])], refs), name="a")
    refs[0].tell(boom)
    failure = await system.failed
    assert failure is not None
    assert failure.actor == "a"
    assert failure.child == Failure("a/1", failure.error)
    await system.stop()
    assert decided == [("a/1", Directive.ESCALATE), ("a", Directive.STOP_ALL)]
    assert system.failures == [failure]


async def test_an_escalation_that_comes_inside_the_parents_turn_waits_for_its_end() -> None:
    """The parent itself stops the child within its turn, and the child's ``on_stop`` fails.

    The turn still runs to its end.
    """
    notes: list[str] = []
    refs: list[Ref[Any]] = []
    system = System(supervisor=SOON)

    def stop_child() -> None:
        refs[0].stop()
        notes.append("the turn goes on")

    parent = system.spawn(
        lambda: Parent(notes, [lambda: Leaf(notes, breaks_at_end=True)], refs, Directive.ESCALATE), name="a"
    )
    notes.clear()
    parent.tell(stop_child)
    parent.tell(lambda: notes.append("to its end"))
    await asyncio.sleep(3)
    assert notes == [
        "a/1 stops None",
        "the turn goes on",
        "to its end",
        "a stops 'a/1'",
        "a starts",
        "a/1 starts",
    ]
    await system.stop()


async def test_a_turn_that_fails_after_a_child_escalated_is_decided_about_once_more() -> None:
    refs: list[Ref[Any]] = []
    heard: list[str] = []

    class Listening:
        def decide(self, failure: Failure) -> Decision:
            heard.append(f"{failure.actor} {failure.error}")
            return Directive.ESCALATE if "/" in failure.actor else RestartIn(1.0 if failure.child else 5.0)

    def stop_child_and_fail() -> None:
        refs[0].stop()
        boom()

    notes: list[str] = []
    system = System(supervisor=Listening())
    parent = system.spawn(lambda: Parent(notes, [lambda: Leaf(notes, breaks_at_end=True)], refs), name="a")
    parent.tell(stop_child_and_fail)
    await asyncio.sleep(4.5)
    assert heard == ["a/1 'a/1'", "a 'a/1'", "a boom"]
    assert notes.count("a starts") == 1
    await asyncio.sleep(20)
    assert notes.count("a starts") == 2
    system.begin_stop()


async def test_a_start_that_fails_after_a_child_escalated_is_decided_about_once_more() -> None:
    class Hasty(Leaf):
        def on_start(self) -> None:
            super().on_start()
            if self.notes.count("a starts") == 2:
                self.spawn(lambda: Leaf(self.notes, breaks_at_end=True), name="1", supervisor=Directive.ESCALATE).stop()
                boom()

    notes: list[str] = []
    system = System(supervisor=SOON)
    ref = system.spawn(lambda: Hasty(notes), name="a")
    ref.tell(boom)
    await asyncio.sleep(10)
    assert notes.count("a starts") == 3
    ref.tell(lambda: None)
    await asyncio.sleep(10)
    assert notes.count("a starts") == 3
    await system.stop()


async def test_a_next_life_does_not_run_in_the_context_of_the_child_that_failed() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    seen: list[str] = []
    refs: list[Ref[Any]] = []

    class Reading(Parent):
        def on_start(self) -> None:
            seen.append(variable.get())
            super().on_start()

    def set_and_fail() -> None:
        variable.set("the child's")
        boom()

    system = System(supervisor=SOON)
    system.spawn(lambda: Reading([], [lambda: Leaf([])], refs, Directive.ESCALATE), name="a")
    refs[0].tell(set_and_fail)
    await asyncio.sleep(5)
    assert seen == ["unset", "unset"]
    await system.stop()


async def test_a_parent_that_swallows_the_cancellation_is_restarted_all_the_same() -> None:
    class Stubborn(SlowParent):
        async def run(self) -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await super().run()

    notes: list[str] = []
    refs: list[Ref[Any]] = []
    system = System(supervisor=SOON)
    system.spawn(lambda: Stubborn(notes, [lambda: Leaf(notes)], refs), name="a")
    await asyncio.sleep(0.1)
    refs[0].tell(boom)
    await asyncio.sleep(5)
    assert notes.count("a starts") == 2
    await system.stop()


async def test_a_failed_parent_gets_its_own_error_although_it_is_stopped_meanwhile() -> None:
    notes: list[str] = []
    system = System(supervisor=SOON)
    parent = system.spawn(lambda: SlowParent(notes, [lambda: SlowLeaf(notes)], []), name="a")
    await asyncio.sleep(0.1)
    parent.tell(boom)
    await asyncio.sleep(1)
    parent.stop()
    assert await parent.ended is None
    assert notes[-2:] == ["a/1 stops boom", "a stops boom"]
    await system.stop()


async def test_a_child_that_cannot_start_is_the_parents_error() -> None:
    class Broken(Leaf):
        def on_start(self) -> None:
            self.spawn(lambda: Leaf(self.notes), name="grandchild")
            raise ValueError("no such thing")

    notes: list[str] = []
    system = System()
    parent = Leaf(notes)
    system.spawn(parent, name="a")
    with pytest.raises(ValueError, match="no such thing"):
        parent.spawn(Broken(notes), name="child")
    assert notes == ["a starts", "a/child/grandchild starts", "a/child/grandchild stops no such thing"]
    assert [ref.name for ref in system.refs] == ["a"]
    parent.spawn(lambda: Leaf(notes), name="child")
    await system.stop()
    assert await system.failed is None


async def test_an_actor_that_stops_has_no_more_children() -> None:
    refused: list[str] = []

    class Late(Leaf):
        def on_stop(self, error: BaseException | None) -> None:
            try:
                self.spawn(lambda: Leaf([]), name="late")
            except ClosedError as refusal:
                refused.append(str(refusal))

    system = System()
    ref = system.spawn(lambda: Late([]), name="a")
    ref.stop()
    assert refused == ["actor 'a' is stopping, so 'a/late' was not spawned"]
    assert system.refs == []
    await system.stop()


async def test_the_directive_stop_ends_a_failed_parent_with_its_children() -> None:
    notes: list[str] = []
    refs: list[Ref[Any]] = []
    system = System(supervisor=Directive.STOP)
    parent = system.spawn(lambda: Parent(notes, [lambda: SlowLeaf(notes)], refs), name="a")
    await asyncio.sleep(0)
    parent.tell(boom)
    assert isinstance(await parent.ended, OSError)
    assert notes[-2:] == ["a stops boom", "a/1 stops boom"]
    assert not refs[0].is_alive
    await system.stop()


async def test_a_parent_that_is_stopped_while_it_waits_for_its_children_is_not_restarted() -> None:
    notes: list[str] = []
    system = System(supervisor=SOON)
    parent = system.spawn(lambda: Parent(notes, [lambda: SlowLeaf(notes)], []), name="a")
    await asyncio.sleep(0)
    parent.tell(boom)
    await asyncio.sleep(2)  # the delay is over, the child still runs
    parent.stop()
    assert await parent.ended is None
    await asyncio.sleep(10)
    assert notes.count("a starts") == 1
    await system.stop()
