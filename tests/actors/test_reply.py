"""Asks: every future is resolved, and states correctly whether the request may have been carried out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from viewstamp.actors import Actor, AsyncActor, Reply, System
from viewstamp.errors import ClosedError, OutcomeUnknownError, OverloadedError, RequestError, UnavailableError


@dataclass(frozen=True, slots=True)
class Double:
    number: int
    reply: Reply[int]


class Doubler(Actor[Double]):
    """Doubles numbers over 0 at once, refuses those below, and keeps 0 for later."""

    def __init__(self) -> None:
        self.kept: list[Double] = []

    def on_message(self, message: Double) -> None:
        if message.number < 0:
            message.reply.fail(RequestError(f"{message.number} is negative"))
        elif message.number == 0:
            self.kept.append(message)
        else:
            message.reply.resolve(2 * message.number)


class SlowDoubler(AsyncActor[Double]):
    async def on_message(self, message: Double) -> None:
        await asyncio.sleep(message.number)
        message.reply.resolve(2 * message.number)


async def test_an_ask_is_answered_with_a_result_or_an_error() -> None:
    system = System()
    ref = system.spawn(Doubler(), name="doubler")
    good: asyncio.Future[int] = ref.ask(lambda reply: Double(21, reply), timeout=1.0)
    bad: asyncio.Future[int] = ref.ask(lambda reply: Double(-1, reply), timeout=None)
    assert await good == 42
    with pytest.raises(RequestError, match="-1 is negative"):
        await bad
    await system.stop()


async def test_an_answer_may_come_turns_later() -> None:
    system = System()
    doubler = Doubler()
    ref = system.spawn(doubler, name="doubler")
    later: asyncio.Future[int] = ref.ask(lambda reply: Double(0, reply), timeout=10.0)
    assert await ref.ask(lambda reply: Double(1, reply), timeout=10.0) == 2
    assert not later.done()
    assert doubler.kept[0].reply.is_open
    doubler.kept[0].reply.resolve(7)
    assert await later == 7
    await system.stop()


async def test_a_deadline_that_passes_leaves_the_outcome_unknown() -> None:
    """The actor has the message and may still act on it, so a failure would be a guess."""
    system = System()
    doubler = Doubler()
    ref = system.spawn(doubler, name="doubler")
    loop = asyncio.get_running_loop()
    start = loop.time()
    with pytest.raises(OutcomeUnknownError, match=r"'doubler' did not answer within 2.5 s"):
        await ref.ask(lambda reply: Double(0, reply), timeout=2.5)
    assert loop.time() - start == pytest.approx(2.5, abs=0.01)
    assert not doubler.kept[0].reply.is_open
    doubler.kept[0].reply.resolve(7)  # too late, but no error
    await system.stop()


async def test_a_deadline_of_a_question_is_only_unavailable() -> None:
    system = System()
    ref = system.spawn(Doubler(), name="doubler")
    with pytest.raises(UnavailableError, match="did not answer within 1") as caught:
        await ref.ask(lambda reply: Double(0, reply), timeout=1.0, changes=False)
    assert type(caught.value) is UnavailableError
    await system.stop()


async def test_an_ask_that_finds_the_mailbox_full_is_refused_through_its_future() -> None:
    system = System()
    ref = system.spawn(Doubler(), name="doubler", count_max=1)
    first: asyncio.Future[int] = ref.ask(lambda reply: Double(1, reply), timeout=1.0)
    second: asyncio.Future[int] = ref.ask(lambda reply: Double(2, reply), timeout=1.0)
    with pytest.raises(OverloadedError):
        await second
    assert await first == 2
    await system.stop()


async def test_an_ask_of_a_stopped_actor_ends_closed() -> None:
    system = System()
    ref = system.spawn(Doubler(), name="doubler")
    await system.stop()
    with pytest.raises(ClosedError):
        await ref.ask(lambda reply: Double(1, reply), timeout=None)


async def test_messages_that_never_reached_the_actor_are_closed_and_the_others_unknown() -> None:
    """A caller may retry elsewhere after the first error, but has to find out the outcome after the second."""
    system = System()
    ref = system.spawn(Doubler(), name="doubler")
    reached: asyncio.Future[int] = ref.ask(lambda reply: Double(0, reply), timeout=None)
    question: asyncio.Future[int] = ref.ask(lambda reply: Double(0, reply), timeout=None, changes=False)
    await asyncio.sleep(0)
    waiting: asyncio.Future[int] = ref.ask(lambda reply: Double(0, reply), timeout=None)
    await system.stop()
    with pytest.raises(OutcomeUnknownError, match="stopped before it answered"):
        await reached
    with pytest.raises(ClosedError):
        await question
    with pytest.raises(ClosedError):
        await waiting


async def test_an_async_actor_that_stops_distinguishes_the_two_as_well() -> None:
    system = System()
    ref = system.spawn(SlowDoubler(), name="slow")
    in_hand: asyncio.Future[int] = ref.ask(lambda reply: Double(5, reply), timeout=None)
    waiting: asyncio.Future[int] = ref.ask(lambda reply: Double(1, reply), timeout=None)
    await asyncio.sleep(1)
    await system.stop()
    with pytest.raises(OutcomeUnknownError):
        await in_hand
    with pytest.raises(ClosedError):
        await waiting


async def test_an_actor_may_answer_open_asks_when_it_stops() -> None:
    class Polite(Doubler):
        def on_stop(self, error: BaseException | None) -> None:
            for message in self.kept:
                message.reply.fail(UnavailableError("going down, nothing was done"))

    system = System()
    ref = system.spawn(Polite(), name="polite")
    future: asyncio.Future[int] = ref.ask(lambda reply: Double(0, reply), timeout=None)
    await asyncio.sleep(0)
    await system.stop()
    with pytest.raises(UnavailableError, match="nothing was done"):
        await future


async def test_a_failing_turn_leaves_no_reply_hanging() -> None:
    class Fragile(Doubler):
        def on_message(self, message: Double) -> None:
            if message.number == 13:
                raise ZeroDivisionError
            super().on_message(message)

    system = System()
    ref = system.spawn(Fragile(), name="fragile")
    other = system.spawn(Doubler(), name="other")
    futures = [
        ref.ask(lambda reply, number=number: Double(number, reply), timeout=None)  # type: ignore[misc]
        for number in (1, 0, 13, 2)
    ]
    elsewhere: asyncio.Future[int] = other.ask(lambda reply: Double(0, reply), timeout=None)
    results = await asyncio.gather(*futures, elsewhere, return_exceptions=True)
    # The messages after the failed one, and those of the other actor, were never handled.
    assert [type(result) for result in results] == [
        int,
        OutcomeUnknownError,
        OutcomeUnknownError,
        ClosedError,
        ClosedError,
    ]
    await system.stop()


async def test_a_failing_turn_of_an_actor_that_takes_lists_leaves_all_of_it_unknown() -> None:
    """The turn may have begun with any of them."""

    class Fragile(Actor[Double]):
        def on_messages(self, messages: list[Double]) -> None:
            raise ZeroDivisionError

    system = System()
    ref = system.spawn(Fragile(), name="fragile")
    change: asyncio.Future[int] = ref.ask(lambda reply: Double(1, reply), timeout=None)
    question: asyncio.Future[int] = ref.ask(lambda reply: Double(1, reply), timeout=None, changes=False)
    results = await asyncio.gather(change, question, return_exceptions=True)
    assert [type(result) for result in results] == [OutcomeUnknownError, ClosedError]
    await system.stop()


async def test_an_asker_that_is_cancelled_gives_up_the_answer_only() -> None:
    system = System()
    doubler = Doubler()
    ref = system.spawn(doubler, name="doubler")

    async def asker() -> int:
        return await ref.ask(lambda reply: Double(0, reply), timeout=5.0)

    task = asyncio.create_task(asker())
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not doubler.kept[0].reply.is_open
    doubler.kept[0].reply.resolve(1)
    await asyncio.sleep(10)
    await system.stop()


async def test_an_abandoned_ask_logs_nothing() -> None:
    """A dropped future must not log "exception was never retrieved" when its actor stops or is late."""
    system = System()
    ref = system.spawn(Doubler(), name="doubler", count_max=2)
    _ = ref.ask(lambda reply: Double(0, reply), timeout=1.0)
    _ = ref.ask(lambda reply: Double(0, reply), timeout=None)
    _ = ref.ask(lambda reply: Double(0, reply), timeout=None)
    await asyncio.sleep(2)
    await system.stop()
    _ = ref.ask(lambda reply: Double(0, reply), timeout=None)


async def test_answering_twice_is_a_mistake() -> None:
    class Twice(Doubler):
        def on_message(self, message: Double) -> None:
            message.reply.resolve(1)
            message.reply.resolve(2)

    system = System()
    ref = system.spawn(Twice(), name="twice")
    assert await ref.ask(lambda reply: Double(1, reply), timeout=1.0) == 1
    failure = await system.failed
    assert failure is not None
    assert "answered the same message twice" in str(failure.error)
    await system.stop()


async def test_nothing_is_kept_of_an_ask_that_is_over() -> None:
    """Answered, late and abandoned asks are not remembered, however long a node runs."""
    system = System()
    doubler = Doubler()
    ref = system.spawn(doubler, name="doubler")
    loop = asyncio.get_running_loop()
    for _ in range(10):
        assert await ref.ask(lambda reply: Double(1, reply), timeout=60.0) == 2
        ref.ask(lambda reply: Double(0, reply), timeout=None).cancel()
        ref.ask(lambda reply: Double(0, reply), timeout=0.01)
    await asyncio.sleep(1)
    assert len(ref._cell._replies) == 0
    assert not [handle for handle in loop._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
    await system.stop()
