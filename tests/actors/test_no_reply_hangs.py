"""The promise to callers of ``ask``.

Each future is resolved, and states correctly whether the actor saw the message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewstamp.actors import Actor, AsyncActor, Directive, Overflow, Ref, Reply, Restart, Supervisor, System
from viewstamp.errors import ClosedError, OutcomeUnknownError, OverloadedError, UnavailableError, ViewstampError
from viewstamp.sim.loop import run

DEEDS = ("answer", "refuse", "keep", "later", "fail", "stop", "finish", "child", "child fails", "stop all", "cancelled")


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """The action that the actor takes on this message; ``number`` identifies it."""

    number: int
    deed: str
    reply: Reply[int]


@dataclass
class Story:
    """The state that all actors of one run share: the messages seen, and the results of the next starts and stops."""

    seen: set[int] = field(default_factory=set)
    starts: list[bool] = field(default_factory=list)
    stops: list[bool] = field(default_factory=list)

    def maybe_fail(self, plan: list[bool], what: str) -> None:
        if plan and plan.pop(0):
            raise RuntimeError(what)


def obey(actor: OneByOne | Waiting, order: Order) -> None:
    story = actor.story
    if order.deed not in ("answer", "refuse"):
        actor.kept.add(order.number)
    match order.deed:
        case "answer":
            order.reply.resolve(abs(order.number))
        case "refuse":
            order.reply.fail(ValueError(order.number))
        case "keep":
            pass
        case "later":
            actor.schedule(0.5, Order(-order.number, "answer", order.reply))
        case "stop":
            actor.stop()
        case "finish":
            actor.ref.finish()
        case "child" | "child fails":
            kind = OneByOne if order.number % 2 else Waiting
            number = len(actor.system.refs)
            if not actor.is_stopping:
                child = actor.spawn(lambda: kind(story), name=str(number), count_max=1)
                child.tell(Order(order.number, "answer" if order.deed == "child" else "fail", order.reply))
        case "stop all":
            actor.system.begin_stop()
        case "cancelled":
            raise asyncio.CancelledError
        case _:
            raise RuntimeError(order.number)


class OneByOne(Actor[Order]):
    def __init__(self, story: Story) -> None:
        self.story = story
        self.kept: set[int] = set()

    def on_start(self) -> None:
        self.story.maybe_fail(self.story.starts, "on_start")

    def on_message(self, message: Order) -> None:
        self.story.seen.add(message.number)
        obey(self, message)

    def on_stop(self, error: BaseException | None) -> None:
        self.story.maybe_fail(self.story.stops, "on_stop")


class AtOnce(OneByOne):
    def on_messages(self, messages: list[Order]) -> None:
        self.story.seen.update(message.number for message in messages)
        for message in reversed(messages):
            obey(self, message)


class Waiting(AsyncActor[Order]):
    def __init__(self, story: Story) -> None:
        self.story = story
        self.kept: set[int] = set()

    async def on_start(self) -> None:
        await asyncio.sleep(0.1)
        self.story.maybe_fail(self.story.starts, "on_start")

    async def on_message(self, message: Order) -> None:
        self.story.seen.add(message.number)
        await asyncio.sleep(0.2)
        obey(self, message)

    async def on_stop(self, error: BaseException | None) -> None:
        await asyncio.sleep(0.1)
        self.story.maybe_fail(self.story.stops, "on_stop")


KINDS: list[Callable[[Story], Actor[Order] | AsyncActor[Order]]] = [OneByOne, AtOnce, Waiting]
SUPERVISORS: list[Supervisor] = [
    Restart(delay_first=0.3, restarts_max=2, window=10.0),
    Restart(delay_first=0.3, restarts_max=2, window=10.0, otherwise=Directive.STOP),
    Restart(delay_first=0.01, delay_max=0.1, restarts_max=50, window=60.0),
    Directive.STOP,
    Directive.ESCALATE,
    Directive.STOP_ALL,
]


@dataclass(frozen=True)
class Step:
    """One action on an actor from outside, ``wait`` seconds after the last."""

    actor: int
    wait: float
    verb: str
    deed: str
    timeout: float | None
    changes: bool


STEPS = st.builds(
    Step,
    actor=st.sampled_from([0, 0, 0, 1, 2]),
    wait=st.sampled_from([0.0, 0.0, 0.0, 0.05, 0.25, 1.0]),
    verb=st.sampled_from(["ask"] * 8 + ["stop", "finish", "cancel", "give up"]),
    deed=st.sampled_from(DEEDS[:7] + DEEDS),
    timeout=st.sampled_from([None, None, 0.1, 2.0]),
    changes=st.booleans(),
)

PLANS = st.lists(st.booleans(), max_size=6)


async def live(
    steps: list[Step],
    kinds: list[int],
    supervisors: list[int],
    overflow: Overflow,
    story: Story,
    grace: float,
) -> None:
    system = System()
    refs: list[Ref[Order]] = []
    starts, story.starts = story.starts, []  # spawn itself succeeds
    for number, (kind, supervisor) in enumerate(zip(kinds, supervisors, strict=True)):
        refs.append(
            system.spawn(
                lambda kind=kind: KINDS[kind](story),  # type: ignore[misc]
                name=f"actor{number}",
                supervisor=SUPERVISORS[supervisor],
                count_max=2,
                overflow=overflow,
            )
        )
    ends = [ref.ended for ref in refs]
    story.starts = starts
    asks: list[tuple[int, bool, asyncio.Future[int]]] = []
    for number, step in enumerate(steps, 1):
        if step.wait:
            await asyncio.sleep(step.wait)
        ref = refs[step.actor]
        match step.verb:
            case "ask":
                future: asyncio.Future[int] = ref.ask(
                    lambda reply, number=number, deed=step.deed: Order(number, deed, reply),  # type: ignore[misc]
                    timeout=step.timeout,
                    changes=step.changes,
                )
                asks.append((number, step.changes, future))
            case "stop":
                ref.stop()
            case "finish":
                ref.finish()
            case "cancel":
                for task in asyncio.all_tasks():
                    if task.get_name() == f"actor {ref.name}":
                        task.cancel()
            case "give up" if asks:
                asks[-1][2].cancel()
    if grace == 0:
        await asyncio.sleep(200)
        kept = {number for ref in system.refs for number in getattr(ref._cell.actor, "kept", ())}
        left = {number for number, _, future in asks if not future.done()}
        assert left <= kept, f"{left - kept} wait for nobody who lives"
    await system.stop(grace=grace)
    gone = {letter.message.number for letter in system.dead_letters.newest if isinstance(letter.message, Order)}
    for number, changes, future in asks:
        assert future.done(), f"ask {number} was left hanging"
        check(number, changes, future, story)
        was_refused = overflow is Overflow.REFUSE and isinstance(outcome(future), OverloadedError)
        assert number in story.seen or number in gone or was_refused, f"{number} was lost without a trace"
    assert await asyncio.gather(*ends) is not None
    assert system.refs == []
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


def outcome(future: asyncio.Future[int]) -> BaseException | None:
    return None if future.cancelled() else future.exception()


def check(number: int, changes: bool, future: asyncio.Future[int], story: Story) -> None:
    error = outcome(future)
    match error:
        case None:
            assert future.cancelled() or future.result() == number
        case ValueError():
            assert error.args == (number,)
        case OutcomeUnknownError():
            assert changes
        case ClosedError() | OverloadedError():
            assert number not in story.seen or not changes, f"{number} was seen, and is said not to have been: {error}"
        case UnavailableError():
            assert not changes
        case _:
            raise AssertionError(f"no actor answered {error!r}")
    assert error is None or isinstance(error, ViewstampError | ValueError)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(STEPS, max_size=20),
    kinds=st.lists(st.integers(0, 2), min_size=3, max_size=3),
    supervisors=st.lists(st.integers(0, 5), min_size=3, max_size=3),
    overflow=st.sampled_from(Overflow),
    starts=PLANS,
    stops=PLANS,
    grace=st.sampled_from([0.0, 0.0, 3.0]),
)
def test_no_reply_hangs_after_any_failure_stop_or_restart(
    steps: list[Step],
    kinds: list[int],
    supervisors: list[int],
    overflow: Overflow,
    starts: list[bool],
    stops: list[bool],
    grace: float,
) -> None:
    """A run that hangs is a DeadlockError of the simulated loop; a wrong answer is an assertion."""
    run(live(steps, kinds, supervisors, overflow, Story(starts=starts, stops=stops), grace))
