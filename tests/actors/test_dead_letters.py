"""Dead letters: lost messages are counted and shown, and cost no actor its turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from viewstamp.actors import Actor, DeadLetter, Directive, Loss, Overflow, Reply, System
from viewstamp.errors import ClosedError, OverloadedError


class Sink(Actor[object]):
    def on_message(self, message: object) -> None:
        if message == "boom":
            raise OSError("boom")


async def test_each_kind_of_loss_is_counted_and_reported() -> None:
    told: list[DeadLetter] = []
    system = System(supervisor=Directive.STOP, on_dead_letter=told.append)
    failing = system.spawn(Sink, name="failing")
    for message in ("fine", "boom", "waits"):
        failing.tell(message)
    full = system.spawn(Sink, name="full", count_max=1, overflow=Overflow.DROP_NEWEST)
    full.tell("first")
    full.tell("second")
    assert not full.maybe_tell("third")
    await failing.ended
    with pytest.raises(ClosedError):
        failing.tell("told late")
    assert not failing.maybe_tell("maybe late")
    failing.put("put late")
    await asyncio.sleep(0)
    expected = [
        DeadLetter("full", "second", Loss.OVERFLOW),
        DeadLetter("full", "third", Loss.OVERFLOW),
        DeadLetter("failing", "boom", Loss.FAILED),
        DeadLetter("failing", "waits", Loss.STOPPED),
        DeadLetter("failing", "told late", Loss.ENDED),
        DeadLetter("failing", "maybe late", Loss.ENDED),
        DeadLetter("failing", "put late", Loss.ENDED),
    ]
    assert list(system.dead_letters.newest) == expected
    assert told == expected
    assert system.dead_letters.counts == {Loss.OVERFLOW: 2, Loss.FAILED: 1, Loss.STOPPED: 1, Loss.ENDED: 3}
    await system.stop()


async def test_a_refused_message_is_no_dead_letter() -> None:
    """Its sender got the refusal, and still has the message."""
    system = System()
    ref = system.spawn(Sink, name="a", count_max=1)
    ref.tell(1)
    with pytest.raises(OverloadedError):
        ref.tell(2)
    await asyncio.sleep(0)
    assert sum(system.dead_letters.counts.values()) == 0
    await system.stop()


async def test_all_are_counted_and_the_newest_kept() -> None:
    system = System()
    ref = system.spawn(Sink, name="a")
    ref.stop()
    for number in range(1000):
        ref.put(number)
    assert system.dead_letters.counts[Loss.ENDED] == 1000
    assert [letter.message for letter in system.dead_letters.newest] == list(range(900, 1000))
    await system.stop()


async def test_a_listener_that_raises_disturbs_no_actor(loop_errors: list[dict[str, Any]]) -> None:
    def listen(letter: DeadLetter) -> None:
        raise KeyError(letter.message)

    system = System(on_dead_letter=listen)
    ref = system.spawn(Sink, name="a")
    ref.tell("waits")
    ref.stop()
    await system.stop()
    await asyncio.sleep(0)
    assert [repr(context["exception"]) for context in loop_errors] == ["KeyError('waits')"]
    loop_errors.clear()


@pytest.mark.parametrize("overflow", [Overflow.DROP_NEWEST, Overflow.DROP_OLDEST])
async def test_an_ask_fails_when_its_message_is_dropped(overflow: Overflow) -> None:
    class Answering(Actor[Reply[int]]):
        def on_message(self, message: Reply[int]) -> None:
            message.resolve(1)

    system = System()
    ref = system.spawn(Answering, name="a", count_max=1, overflow=overflow)
    asks: list[asyncio.Future[int]] = [ref.ask(lambda reply: reply, timeout=None) for _ in range(2)]
    results = await asyncio.gather(*asks, return_exceptions=True)
    dropped, kept = results if overflow is Overflow.DROP_OLDEST else reversed(results)
    assert isinstance(dropped, OverloadedError)
    assert "'a' is full" in str(dropped)
    assert kept == 1
    await system.stop()
