"""Turns: how often an actor is woken, and for which messages."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from functools import partial

import pytest

from viewstamp.actors import Actor, AsyncActor, System
from viewstamp.errors import ClosedError, OverloadedError


class Recorder(Actor[object]):
    """Records the messages of each turn; a callable among them is called."""

    def __init__(self) -> None:
        self.turns: list[list[object]] = []
        self.ends: list[BaseException | None] = []

    def on_messages(self, messages: list[object]) -> None:
        self.turns.append(messages)
        for message in messages:
            if callable(message):
                message()

    def on_stop(self, error: BaseException | None) -> None:
        self.ends.append(error)


async def iterate(count: int = 1) -> None:
    """Let the loop run whole iterations."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_turn_takes_all_messages_since_the_last() -> None:
    system = System()
    recorder = Recorder()
    ref = system.spawn(recorder, name="recorder")
    for number in range(100):
        ref.tell(number)
    assert recorder.turns == []
    await iterate()
    assert recorder.turns == [list(range(100))]
    await iterate(5)
    assert len(recorder.turns) == 1
    await system.stop()


async def test_many_callbacks_of_one_iteration_make_one_turn() -> None:
    """Eight connections that are read in one iteration cost one turn, not eight."""
    system = System()
    recorder = Recorder()
    ref = system.spawn(recorder, name="recorder")
    loop = asyncio.get_running_loop()
    for number in range(8):
        loop.call_soon(ref.tell, number)
    await iterate(2)
    assert recorder.turns == [list(range(8))]
    await system.stop()


async def test_a_message_of_an_actor_to_itself_comes_in_the_next_iteration() -> None:
    """Other actors get their turn in between."""
    system = System()
    order: list[str] = []

    class Again(Actor[int]):
        def __init__(self, name: str) -> None:
            self.name = name

        def on_message(self, message: int) -> None:
            order.append(f"{self.name}{message}")
            if message < 3:
                self.ref.tell(message + 1)

    system.spawn(Again("a"), name="a").tell(1)
    system.spawn(Again("b"), name="b").tell(1)
    await iterate(4)
    assert order == ["a1", "b1", "a2", "b2", "a3", "b3"]
    await system.stop()


async def test_an_actor_is_woken_once_for_any_number_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    system = System()
    calls: list[object] = []
    loop = asyncio.get_running_loop()
    call_soon = loop.call_soon

    def counting(callback: Callable[..., object], *args: object, context: contextvars.Context | None = None) -> object:
        calls.append(callback)
        return call_soon(callback, *args, context=context)

    monkeypatch.setattr(loop, "call_soon", counting)
    ref = system.spawn(Recorder(), name="recorder")
    calls.clear()
    for number in range(1000):
        ref.tell(number)
    assert len(calls) == 1
    monkeypatch.undo()
    await system.stop()


async def test_on_message_sees_one_message_after_the_other() -> None:
    seen: list[int] = []

    class OneByOne(Actor[int]):
        def on_message(self, message: int) -> None:
            seen.append(message)

    system = System()
    ref = system.spawn(OneByOne(), name="one")
    for number in (3, 1, 2):
        ref.tell(number)
    await iterate()
    assert seen == [3, 1, 2]
    await system.stop()


async def test_tell_now_runs_an_idle_actor_before_it_returns() -> None:
    system = System()
    recorder = Recorder()
    ref = system.spawn(recorder, name="recorder")
    ref.tell_now(1)
    ref.tell_now(2)
    assert recorder.turns == [[1], [2]]
    await iterate()
    assert recorder.turns == [[1], [2]]
    await system.stop()
    ref.tell_now(3)
    assert recorder.turns == [[1], [2]]


async def test_tell_now_keeps_the_order_of_messages_and_never_runs_an_actor_in_its_own_turn() -> None:
    system = System()
    recorder = Recorder()
    ref = system.spawn(recorder, name="recorder")
    ref.tell(1)
    ref.tell_now(2)
    assert recorder.turns == []
    await iterate()
    assert recorder.turns == [[1, 2]]
    inner = partial(ref.tell_now, 3)
    ref.tell_now(inner)
    assert recorder.turns == [[1, 2], [inner]]
    await iterate()
    assert recorder.turns == [[1, 2], [inner], [3]]
    await system.stop()


async def test_a_failure_in_a_turn_of_tell_now_is_the_actors() -> None:
    def fail() -> None:
        raise ValueError("boom")

    system = System()
    ref = system.spawn(Recorder(), name="recorder")
    ref.tell_now(fail)
    failure = await system.failed
    assert failure is not None
    assert isinstance(failure.error, ValueError)


async def test_a_full_mailbox_refuses_tell_and_takes_put() -> None:
    system = System()
    recorder = Recorder()
    ref = system.spawn(recorder, name="recorder", count_max=2)
    ref.tell(1)
    assert ref.maybe_tell(2)
    assert not ref.maybe_tell(3)
    with pytest.raises(OverloadedError):
        ref.tell(4)
    ref.put("durable")
    assert ref.waiting == 3
    await iterate()
    assert recorder.turns == [[1, 2, "durable"]]
    assert ref.waiting == 0
    await system.stop()


async def test_a_mailbox_bounded_in_bytes_refuses_what_does_not_fit() -> None:
    system = System()
    ref = system.spawn(Recorder(), name="recorder", bytes_max=10, measure=lambda message: len(str(message)))
    ref.tell("12345678")
    with pytest.raises(OverloadedError, match="8 of 10 bytes"):
        ref.tell("123")
    ref.tell("12")
    await system.stop()


async def test_a_turn_is_whole_when_the_actor_stops_inside_it() -> None:
    """The rest of the list is handled, and ``on_stop`` comes after the turn, never inside it."""
    system = System()
    order: list[str] = []

    class Quitter(Actor[str]):
        def on_message(self, message: str) -> None:
            order.append(message)
            if message == "quit":
                self.stop()
                self.stop()
                assert self.is_stopping
                order.append("asked")

        def on_stop(self, error: BaseException | None) -> None:
            order.append(f"stopped {error}")

    ref = system.spawn(Quitter(), name="quitter")
    for message in ("a", "quit", "b"):
        ref.tell(message)
    await iterate()
    assert order == ["a", "quit", "asked", "b", "stopped None"]
    assert not ref.is_alive
    assert system.refs == []
    assert not system.is_stopping
    await system.stop()


async def test_messages_waiting_at_a_stop_are_never_handled() -> None:
    system = System()
    recorder = Recorder()
    ref = system.spawn(recorder, name="recorder")
    ref.tell(1)
    ref.stop()
    ref.put(2)
    assert not ref.maybe_tell(3)
    with pytest.raises(ClosedError, match="'recorder' has stopped"):
        ref.tell(4)
    await iterate(3)
    assert recorder.turns == []
    assert recorder.ends == [None]
    await system.stop()
    assert recorder.ends == [None]


async def test_on_start_runs_inside_spawn_and_may_tell_itself() -> None:
    class Starter(Recorder):
        def on_start(self) -> None:
            self.ref.tell("first")
            self.schedule(1.0, "later")

    system = System()
    starter = Starter()
    ref = system.spawn(starter, name="starter")
    ref.tell("second")
    await asyncio.sleep(2)
    assert starter.turns == [["first", "second"], ["later"]]
    await system.stop()


async def test_an_error_of_on_start_is_raised_by_spawn_and_stops_no_other() -> None:
    class Broken(Recorder):
        def on_start(self) -> None:
            self.schedule(1.0, "never")
            self.ref.tell("never")
            raise ValueError("no such thing")

    system = System()
    other = system.spawn(Recorder(), name="other")
    broken = Broken()
    with pytest.raises(ValueError, match="no such thing"):
        system.spawn(broken, name="broken")
    await asyncio.sleep(2)
    assert broken.turns == []
    assert broken.ends == []
    assert other.is_alive
    assert [ref.name for ref in system.refs] == ["other"]
    await system.stop()
    assert await system.failed is None


async def test_an_actor_may_stop_itself_in_on_start() -> None:
    class Shy(Recorder):
        def on_start(self) -> None:
            self.stop()

    system = System()
    shy = Shy()
    ref = system.spawn(shy, name="shy")
    assert not ref.is_alive
    assert shy.ends == [None]
    assert system.refs == []
    await system.stop()


async def test_a_turn_does_not_run_in_the_context_of_its_first_sender() -> None:
    """Otherwise one client's log context would appear in the log lines of all that share its turn."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    seen: list[str] = []

    class Reader(Actor[int]):
        def on_message(self, message: int) -> None:
            seen.append(variable.get())

    system = System()
    ref = system.spawn(Reader(), name="reader")
    variable.set("the teller's")
    ref.tell(1)
    await iterate()
    assert seen == ["unset"]
    await system.stop()


async def test_a_timer_leaves_its_message_once_and_can_be_cancelled() -> None:
    system = System()
    recorder = Recorder()
    ref = system.spawn(recorder, name="recorder", count_max=1)
    loop = asyncio.get_running_loop()
    start = loop.time()
    times: list[float] = []
    recorder.schedule(0.5, lambda: times.append(loop.time() - start))
    gone = recorder.schedule(0.25, "cancelled")
    assert gone.is_pending
    gone.cancel()
    gone.cancel()
    assert not gone.is_pending
    await asyncio.sleep(2)
    assert times == [pytest.approx(0.5, abs=0.01)]
    assert len(recorder.turns) == 1
    assert ref.waiting == 0
    await system.stop()


async def test_a_timer_is_not_refused_by_a_full_mailbox() -> None:
    """A tick that was lost under load would stop an election timer."""
    system = System()
    recorder = Recorder()
    ref = system.spawn(recorder, name="recorder", count_max=1)
    recorder.schedule(0.0, "tick")
    ref.tell("full")
    await iterate(3)
    assert [message for turn in recorder.turns for message in turn] == ["full", "tick"]
    await system.stop()


async def test_a_repeated_timer_keeps_in_step_until_it_is_cancelled() -> None:
    system = System()
    recorder = Recorder()
    system.spawn(recorder, name="recorder")
    loop = asyncio.get_running_loop()
    start = loop.time()
    times: list[float] = []
    timer = recorder.schedule(1.0, lambda: times.append(loop.time() - start), every=2.5)
    await asyncio.sleep(9)
    assert timer.is_pending
    assert times == pytest.approx([1.0, 3.5, 6.0, 8.5], abs=0.01)
    timer.cancel()
    await asyncio.sleep(10)
    assert len(times) == 4
    await system.stop()


async def test_a_repeated_timer_omits_the_ticks_missed_in_a_stall() -> None:
    system = System()
    recorder = Recorder()
    system.spawn(recorder, name="recorder")
    loop = asyncio.get_running_loop()
    start = loop.time()
    times: list[float] = []

    def stall() -> None:
        loop.jumping_selector.now += 3.3  # type: ignore[attr-defined]

    recorder.schedule(1.0, lambda: times.append(loop.time() - start), every=1.0)
    loop.call_later(1.5, stall)
    await asyncio.sleep(7.5)
    assert times == pytest.approx([1.0, 4.8, 5.0, 6.0, 7.0], abs=0.01)
    await system.stop()


async def test_repeated_messages_do_not_pile_up_in_front_of_a_busy_actor() -> None:
    """``put`` is never refused, so at ten ticks a second a minute's work would leave 600 of them."""
    seen: list[str] = []

    class Busy(AsyncActor[str]):
        async def on_start(self) -> None:
            self.schedule(0.1, "tick", every=0.1)

        async def on_message(self, message: str) -> None:
            seen.append(message)
            if message == "work":
                await asyncio.sleep(60)

    system = System()
    ref = system.spawn(Busy(), name="busy")
    ref.tell("work")
    await asyncio.sleep(59)
    assert ref.waiting == 1
    await asyncio.sleep(2)
    assert 8 < len(seen) < 14
    await system.stop()


async def test_a_stop_cancels_timers_and_none_starts_after_it() -> None:
    system = System()
    recorder = Recorder()
    ref = system.spawn(recorder, name="recorder")
    timer = recorder.schedule(1.0, "never")
    ref.stop()
    assert not timer.is_pending
    assert not recorder.schedule(1.0, "never").is_pending
    await asyncio.sleep(3)
    assert recorder.turns == []
    await system.stop()


async def test_an_actor_that_was_not_spawned_raises_a_clear_error() -> None:
    with pytest.raises(AssertionError, match="Recorder has not been spawned"):
        _ = Recorder().ref


async def test_an_actor_without_a_handler_fails_and_names_it() -> None:
    system = System()
    system.spawn(Actor[int](), name="empty").tell(1)
    failure = await system.failed
    assert failure is not None
    assert isinstance(failure.error, NotImplementedError)
    await system.stop()
