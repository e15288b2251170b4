from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from viewstamp.errors import ClosedError, RequestError
from viewstamp.trio.nursery import inner_nursery
from viewstamp.trio.runtime import TrioRuntime


def run(test: Callable[[TrioRuntime], Awaitable[Any]]) -> Any:
    """Run a test with a runtime, in simulated time."""

    async def main() -> Any:
        async with inner_nursery() as nursery:
            runtime = TrioRuntime(nursery.start_soon)
            nursery.start_soon(runtime.run)
            return await test(runtime)

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_future_wakes_its_waiters_with_its_result() -> None:
    async def test(runtime: TrioRuntime) -> None:
        future = runtime.create_future()
        runtime.call_later(3.0, future.set_result, "there")
        with trio.testing.assert_checkpoints():
            assert await future == "there"
        assert runtime.time() == trio.current_time()
        with trio.testing.assert_checkpoints():
            assert await future == "there"

    run(test)


def test_a_cancelled_waiter_cancels_its_future() -> None:
    async def test(runtime: TrioRuntime) -> None:
        future = runtime.create_future()
        with trio.move_on_after(1.0) as scope:
            await future
        assert scope.cancelled_caught
        assert future.done()
        assert future.cancelled()

    run(test)


def test_an_answer_that_came_before_the_cancellation_is_not_lost() -> None:
    async def test(runtime: TrioRuntime) -> None:
        future = runtime.create_future()
        with trio.CancelScope() as scope:

            def answer() -> None:
                future.set_result("receipt")
                scope.cancel()

            runtime.call_soon(answer)
            assert await future == "receipt"
        assert not future.cancelled()

    run(test)


def test_calls_come_in_the_order_of_their_requests_and_timers_in_the_order_of_time() -> None:
    async def test(runtime: TrioRuntime) -> list[str]:
        calls: list[str] = []
        runtime.call_later(2.0, calls.append, "late")
        runtime.call_later(1.0, calls.append, "early")
        runtime.call_later(1.0, calls.append, "early too")
        runtime.call_later(1.5, calls.append, "never").cancel()
        runtime.call_soon(calls.append, "first")
        runtime.call_soon(lambda: runtime.call_soon(calls.append, "in the turn after"))
        runtime.call_soon(calls.append, "second")
        await trio.sleep(2.5)
        return calls

    assert run(test) == ["first", "second", "in the turn after", "early", "early too", "late"]


def test_a_timer_that_is_due_before_all_others_comes_before_them() -> None:
    async def test(runtime: TrioRuntime) -> float:
        fired = runtime.create_future()
        runtime.call_later(1000.0, lambda: None)
        await trio.sleep(1)
        began = runtime.time()
        runtime.call_later(1.0, lambda: fired.set_result(runtime.time() - began))
        return float(await fired)

    assert run(test) == 1.0


def test_work_that_takes_too_long_is_cancelled() -> None:
    async def test(runtime: TrioRuntime) -> None:
        future = runtime.create_future()
        began = runtime.time()
        with pytest.raises(TimeoutError):
            await runtime.within(2.0, future)
        assert runtime.time() - began == 2.0
        assert future.cancelled()
        runtime.call_later(2.0, (answered := runtime.create_future()).set_result, 1)
        assert await runtime.within(math.inf, answered) == 1

    run(test)


def test_an_error_of_ours_is_the_result_of_a_task() -> None:
    async def test(runtime: TrioRuntime) -> None:
        async def work() -> None:
            raise RequestError("no")

        with pytest.raises(RequestError, match="no"):
            await runtime.spawn(work())

    run(test)


def test_cancelling_the_awaited_future_cancels_the_work() -> None:
    async def test(runtime: TrioRuntime) -> list[str]:
        ends: list[str] = []

        async def work() -> None:
            try:
                await trio.sleep_forever()
            finally:
                ends.append("cancelled")

        with trio.move_on_after(1.0):
            await runtime.spawn(work())
        await trio.testing.wait_all_tasks_blocked()
        runtime.spawn(work()).cancel()
        await trio.testing.wait_all_tasks_blocked()
        return ends

    assert run(test) == ["cancelled", "cancelled"]


def test_a_mistake_in_a_call_or_a_task_ends_the_program_and_not_just_itself() -> None:
    async def calls(runtime: TrioRuntime) -> None:
        runtime.call_soon(lambda: [][1])
        await trio.sleep_forever()

    async def works(runtime: TrioRuntime) -> None:
        async def work() -> None:
            raise IndexError

        await runtime.spawn(work())

    for test in (calls, works):
        with pytest.raises(ExceptionGroup) as raised:
            run(test)
        assert raised.group_contains(IndexError)


def test_work_that_ends_with_the_client_has_no_waiters() -> None:
    async def main() -> None:
        async def work() -> None:
            await trio.sleep_forever()

        async with inner_nursery() as nursery:
            runtime = TrioRuntime(nursery.start_soon)
            future = runtime.spawn(work())
            await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(ClosedError):
            await future
        runtime.close()
        with pytest.raises(ClosedError):
            await runtime.spawn(work())

    trio.run(main)


def test_an_exception_of_the_body_leaves_the_inner_nursery_unchanged() -> None:
    async def main() -> None:
        error = KeyError("mine")
        with pytest.raises(KeyError) as raised:  # noqa: PT012 - the whole context is tested
            async with inner_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                raise error
        assert raised.value is error
        with trio.CancelScope() as scope:
            async with inner_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                scope.cancel()
                await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        with pytest.raises(KeyError), trio.CancelScope() as scope:  # noqa: PT012 - as above
            async with inner_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                scope.cancel()
                raise error

    trio.run(main)
