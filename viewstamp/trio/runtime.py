"""The turns of a client in a trio program: futures, timers and tasks inside one nursery."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from itertools import count
from typing import Any, Generic, TypeVar

import trio

from viewstamp.client.routing import closed_error
from viewstamp.errors import ViewstampError

__all__ = ["TrioFuture", "TrioRuntime", "TrioTimer"]

ResultT = TypeVar("ResultT")


class TrioFuture(Generic[ResultT]):
    """A result that may not be there yet; see :class:`viewstamp.client.runtime.Future`. Awaiting one is a checkpoint.

    Invariants:
      * a future that has its result cannot be cancelled; a task that is cancelled after that gets the result
    """

    __slots__ = ("_callbacks", "_error", "_is_cancelled", "_is_done", "_result", "_runtime", "_task")

    def __init__(self, runtime: TrioRuntime) -> None:
        self._runtime = runtime
        self._is_done = False
        self._is_cancelled = False
        self._result: ResultT
        self._error: BaseException | None = None
        self._task: trio.lowlevel.Task | None = None
        """The task that awaits it."""
        self._callbacks: list[Callable[[Any], object]] = []

    def done(self) -> bool:
        """Return whether it has a result or an error, or was cancelled."""
        return self._is_done

    def cancelled(self) -> bool:
        """Return whether it was cancelled."""
        return self._is_cancelled

    def result(self) -> ResultT:
        """Return the result, or raise the error, of one that is done and not cancelled."""
        assert self._is_done, "a result that is not there yet"
        assert not self._is_cancelled, "nobody asks for the result of what was cancelled"
        if self._error is not None:
            raise self._error
        return self._result

    def exception(self) -> BaseException | None:
        """Return the error of one that is done; None = there is none."""
        assert self._is_done, "a result that is not there yet"
        return self._error

    def set_result(self, result: ResultT, /) -> None:
        """Set the result."""
        self._result = result
        self._finish()

    def set_exception(self, error: BaseException, /) -> None:
        """Set an error."""
        self._error = error
        self._finish()

    def cancel(self) -> bool:
        """Cancel it. No task may be awaiting it."""
        if self._is_done:
            return False
        assert self._task is None, "a task is cancelled by its scope, not by what it waits for"
        self._is_cancelled = True
        self._finish()
        return True

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Have ``callback`` called in a turn after the one in which it is done."""
        if self._is_done:
            self._runtime.call_soon(partial(callback, self))
        else:
            self._callbacks.append(callback)

    def __await__(self) -> Generator[Any, Any, ResultT]:
        return self._wait().__await__()

    async def _wait(self) -> ResultT:
        if self._is_done:
            await trio.lowlevel.checkpoint()
        else:
            assert self._task is None, "one task at most waits for a future"
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort)
        return self.result()

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        self.cancel()
        return trio.lowlevel.Abort.SUCCEEDED

    def _finish(self) -> None:
        assert not self._is_done, "a future is done once"
        self._is_done = True
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)
        for callback in self._callbacks:
            self._runtime.call_soon(partial(callback, self))


class _Work(TrioFuture[ResultT]):
    """A task in the client's nursery, and its result."""

    __slots__ = ("_scope", "_work")

    def __init__(self, runtime: TrioRuntime, work: Coroutine[Any, Any, ResultT]) -> None:
        super().__init__(runtime)
        self._work = work
        self._scope = trio.CancelScope()

    def cancel(self) -> bool:
        """Cancel the work; the future is cancelled with it."""
        self._scope.cancel()
        return super().cancel()

    async def run(self) -> None:
        """Do the work. A ViewstampError is its result; any other error is a defect, and ends the client."""
        error: ViewstampError = closed_error()  # The result if the nursery is cancelled, because the client has ended.
        try:
            with self._scope:
                result = await self._work
                if not self.done():
                    self.set_result(result)
        except ViewstampError as raised:
            error = raised
        finally:
            if not self.done():
                self.set_exception(error)


class TrioTimer:
    """A scheduled call."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Callable[[], object]) -> None:
        self.when = when
        self.call: Callable[[], object] | None = call
        """None = cancelled."""

    def cancel(self) -> None:
        """Cancel the call."""
        self.call = None


class TrioRuntime:
    """A nursery, or trio's system tasks, as a :class:`viewstamp.client.runtime.Runtime`.

    One task, ``run``, makes the calls. A defect in one of them ends the nursery, so that it is noticed.

    Invariants:
      * calls are made in the order in which they were asked for, timers in the order of their times
      * nothing is called and no task begins after ``close``
    """

    def __init__(self, start_soon: Callable[[Callable[[], Awaitable[None]]], object]) -> None:
        """Begin; ``start_soon`` starts a task: a nursery's method, or ``trio.lowlevel.spawn_system_task``."""
        self.time = trio.current_time
        self._start_soon = start_soon
        self._token = trio.lowlevel.current_trio_token()
        self._soon: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, TrioTimer]] = []
        self._order = count()
        self._woken = trio.Event()
        self._sleep = trio.CancelScope()
        self._is_closed = False

    def begin(self) -> None:
        """Do nothing, because the runtime belongs to its nursery from the beginning."""

    def close(self) -> None:
        """Drop all scheduled calls, and make no further one. Idempotent."""
        self._is_closed = True
        self._soon.clear()
        self._timers.clear()

    async def run(self) -> None:
        """Make the calls when they are due, until cancelled."""
        while True:
            with trio.CancelScope(deadline=self._timers[0][0] if self._timers else math.inf) as self._sleep:
                await self._woken.wait()
            self._woken = trio.Event()
            now = self.time()
            while self._timers and self._timers[0][0] <= now:
                _, _, timer = heapq.heappop(self._timers)
                if timer.call is not None:
                    self._soon.append(timer.call)
            for _ in range(len(self._soon)):
                self._soon.popleft()()
            if self._soon:
                self._woken.set()

    def create_future(self) -> TrioFuture[Any]:
        """Return a new future."""
        return TrioFuture(self)

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Call back in the next turn."""
        if not self._is_closed:
            self._soon.append(partial(callback, *args) if args else callback)
            self._woken.set()

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> None:
        """Call back in a turn, in the order of asking; from any thread. Raises RuntimeError once trio has ended."""
        self._token.run_sync_soon(partial(self.call_soon, callback, *args))

    def call_later(self, seconds: float, callback: Callable[..., object], *args: object) -> TrioTimer:
        """Call back after ``seconds``."""
        timer = TrioTimer(self.time() + seconds, partial(callback, *args))
        if not self._is_closed:
            heapq.heappush(self._timers, (timer.when, next(self._order), timer))
            if timer.when < self._sleep.deadline:
                self._sleep.deadline = timer.when
        return timer

    def spawn(self, work: Coroutine[Any, Any, ResultT]) -> TrioFuture[ResultT]:
        """Run ``work`` in a task of the nursery."""
        task = _Work(self, work)
        if self._is_closed:
            work.close()
            task.set_exception(closed_error())
        else:
            self._start_soon(task.run)
        return task

    def create_lock(self) -> trio.Lock:
        """Return a lock."""
        return trio.Lock()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await trio.sleep(seconds)

    async def within(self, seconds: float, work: Awaitable[ResultT]) -> ResultT:
        """Await ``work``; raises TimeoutError, and cancels it, after ``seconds``."""
        with trio.move_on_after(seconds):
            return await work
        raise TimeoutError
