"""The simulated event loop: runs ordinary asyncio code in simulated time, identically for the same seed.

Rules that make it deterministic:

1. One ready queue, first in, first out. Time stands still while it holds anything, and then jumps to the next timer;
   timers of the same time fire in the order in which they were set (asyncio's own heap leaves that open).
2. No threads, sockets, signals or subprocesses. ``run_in_executor`` and ``to_thread`` run the function on the loop, in
   an event of its own.
3. Tasks and futures hash by their creation number, so the sets inside ``asyncio.wait`` and ``TaskGroup`` iterate in
   the same order in every process. Task names are numbered by the loop, not by the interpreter.
4. The cyclic garbage collector runs only at fixed event counts, because finalizers have effects, too.
5. Random numbers come from generators that are derived from the seed by name.

A **process** is the scope of everything that dies together. A context variable names it, so every callback, timer and
task that its code starts belongs to it, and none of them runs after ``kill``. Tasks of a dead process are kept until
the loop closes, because collecting a coroutine would run its ``finally`` blocks, and a dead process must not run any
code.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import heapq
import io
import math
import random
import sys
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, TypeVar, TypeVarTuple

from viewstamp.host.interfaces import Clock
from viewstamp.sim.trace import Trace

__all__ = [
    "DeadlockError",
    "LivelockError",
    "SimulatedClock",
    "SimulatedCrash",
    "SimulatedLoop",
    "SimulatedProcess",
    "current_process",
    "run",
]

ResultT = TypeVar("ResultT")
ArgumentsT = TypeVarTuple("ArgumentsT")

_EVENTS_PER_COLLECTION = 200_000
_EVENTS_AT_ONE_TIME_MAX = 1_000_000
"""Number of events without a move of time above which the loop counts as spinning."""
_CANCELLED_TIMERS_MIN = 200
"""Number of cancelled timers below which the heap is not worth rebuilding."""
_CLOSE_ATTEMPTS = 100
"""Number of awaits in ``finally`` blocks that a discarded coroutine may pass."""


class SimulatedCrash(BaseException):
    """Raised out of a call of a process that has just died, so that nothing after the call happens.

    Like KeyboardInterrupt it is not an ``Exception``, because no code of the process may handle it.
    """


class DeadlockError(RuntimeError):
    """Nothing is ready, no timer is set, and the awaited result is missing.

    The message lists every task and its await.
    """


class LivelockError(RuntimeError):
    """Events follow each other endlessly without a move of time."""


_PROCESS: contextvars.ContextVar[SimulatedProcess | None] = contextvars.ContextVar("process", default=None)


def current_process() -> SimulatedProcess | None:
    """Return the running process; None for the world's own code."""
    return _PROCESS.get()


class _Task(asyncio.Task[Any]):
    """A task that hashes by its number (rule 3)."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class _Future(asyncio.Future[Any]):
    """A future that hashes by its number (rule 3)."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class SimulatedProcess:
    """The scope of everything that dies together; made by ``SimulatedLoop.process``.

    Invariants:
      * after ``kill`` no callback, timer or task of the process runs; one that is running now may run to its next
        await, and all its calls of the simulated host raise :class:`SimulatedCrash`
      * between ``pause`` or ``stall`` and ``resume`` none runs either; those that came due run afterwards, in the order
        in which they came due
    """

    def __init__(self, loop: SimulatedLoop, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.rate = 1.0
        """The speed of its timers relative to simulated time, which is the rate of its machine's clock."""
        self.context = contextvars.Context()
        """A context in which this process is current, for callbacks from outside, such as the network's."""
        self.context.run(_PROCESS.set, self)
        self.touched: list[Any] | None = None
        """The members of a cluster that an event of this process can change at once; None = any."""
        self._loop = loop
        self._runs = True
        self._held: list[asyncio.Handle] = []
        self._tasks: weakref.WeakSet[_Task] = weakref.WeakSet()
        self._buried: list[_Task] = []
        self._on_death: dict[Callable[[], None], None] = {}

    def spawn(self, coroutine: Coroutine[Any, Any, ResultT], *, name: str | None = None) -> asyncio.Task[ResultT]:
        """Start a task of this process."""
        return self._loop.create_task(coroutine, name=name, context=self.context.copy())

    def call(self, function: Callable[[*ArgumentsT], ResultT], *arguments: *ArgumentsT) -> ResultT:
        """Call ``function`` now, as code of this process."""
        return self.context.copy().run(function, *arguments)

    def on_death(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Register ``callback`` to be called at ``kill``, outside the process.

        Return a function that unregisters it.
        """
        self._on_death[callback] = None

        def call_off() -> None:
            self._on_death.pop(callback, None)

        return call_off

    def kill(self) -> None:
        """Stop all code of this process for ever, without running any of it. Idempotent."""
        if self.is_dead:
            return
        self.is_dead = True
        self._runs = False
        self._buried = sorted(self._tasks, key=hash)  # First: of an unbegun task only the handle is left.
        self._held.clear()
        self._loop.trace.note(self._loop.time(), self.name, "!", "dies")
        callbacks, self._on_death = list(self._on_death), {}
        for callback in callbacks:
            contextvars.Context().run(callback)

    def pause(self) -> None:
        """Stop all code of this process until ``resume``, as SIGSTOP does. Idempotent."""
        self.is_paused = True
        self._runs = False

    def stall(self) -> None:
        """Stop the event loop of this process until ``resume``, as a long callback does; its threads continue."""
        self._runs = False

    def resume(self) -> None:
        """Continue after ``pause`` or ``stall``: handles that came due meanwhile become ready now."""
        if self.is_dead or self._runs:
            return
        self.is_paused = False
        self._runs = True
        self._loop.requeue(self._held)
        self._held = []

    def admit(self, handle: asyncio.Handle) -> bool:
        """Return whether ``handle``, which has come due, may run now. Called by the loop."""
        if not self._runs and not self.is_dead:
            self._held.append(handle)
        return self._runs

    def adopt(self, task: _Task) -> None:
        """Register a new task of this process. Called by the loop."""
        if self.is_dead:
            self._buried.append(task)
        else:
            self._tasks.add(task)

    def discard(self) -> None:
        """Drop all tasks without running their code. Called by the loop when it closes."""
        tasks = self._buried or sorted(self._tasks, key=hash)
        self._buried = []
        for task in tasks:
            if task.done():
                task._log_traceback = False
            else:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                self._close(task.get_coro())

    def failures(self) -> list[_Task]:
        """Return the tasks that ended with an exception that no code has retrieved."""
        return [] if self.is_dead else [task for task in sorted(self._tasks, key=hash) if task._log_traceback]

    def _close(self, coroutine: Any) -> None:
        """Throw GeneratorExit into a coroutine until it ends, and ignore its exceptions."""
        for _ in range(_CLOSE_ATTEMPTS):
            try:
                self.context.copy().run(coroutine.close)
            except (Exception, asyncio.CancelledError, SimulatedCrash):
                continue
            return


# Typed as Any: the omitted abstract methods (sockets, signals, subprocesses) raise NotImplementedError.
_AbstractEventLoop: Any = asyncio.AbstractEventLoop


class SimulatedLoop(_AbstractEventLoop):  # type: ignore[misc]
    """An event loop with simulated time, starting at 0.0 seconds.

    An exception that escapes a callback ends the run: it is raised out of ``run_...`` or ``step``. A task's exception
    that no code has retrieved is raised when ``run_until_complete`` returns, or by ``check``.

    Invariants:
      * time never goes back, and moves only while nothing is ready
      * ``events`` counts the events that ran; ``after_event`` was called after each
    """

    def __init__(self, seed: int | str = 0, *, trace: Trace | None = None) -> None:
        self.seed = seed
        self.trace = trace if trace is not None else Trace()
        self.events = 0
        self.after_event: Callable[[], None] | None = None
        """Called after every event, outside all processes; an exception from it ends the run."""
        self.ran: SimulatedProcess | None = None
        """The process of the last event, if nothing else can have run since the event before; else None."""
        self._has_left = True
        """Whether code outside of events may have run since the last event."""
        self._now = 0.0
        self._ready: deque[Any] = deque()
        self._timers: list[tuple[float, int, Any]] = []
        self._numbers = 0
        self._blocked = 0.0
        """Seconds by which the result of the call of :meth:`run_in_executor` that is being made comes later."""
        self._task_count = 0
        self._timers_cancelled = 0
        self._events_at_this_time = 0
        self._world = SimulatedProcess(self, "world")
        self._processes = [self._world]
        self._failures: list[BaseException] = []
        self._exception_handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self._debug = False
        self._running = False
        self._stopping = False
        self._closed = False
        self._thread = threading.get_ident()

    # the simulation

    def entropy(self, name: str) -> random.Random:
        """Return a generator for ``name``, derived from the seed: the same name gives the same numbers."""
        return random.Random(f"{self.seed}/{name}")

    def process(self, name: str) -> SimulatedProcess:
        """Make a new process; ``name`` is for people and the trace, and may be used again after its death."""
        process = SimulatedProcess(self, name)
        self._processes.append(process)
        return process

    def client(self, name: str) -> SimulatedProcess:
        """Make a new process that reaches the members of a cluster by messages alone."""
        process = self.process(name)
        process.touched = []
        return process

    def step(self) -> bool:
        """Run one event, moving time first if nothing is ready; return False if there is none at all."""
        with self._entered():
            return self._run_one(math.inf)

    def run_for(self, seconds: float) -> None:
        """Run everything that happens in the next ``seconds``; afterwards time has moved by exactly that much."""
        end = self._now + seconds
        with self._entered():
            while self._run_one(end):
                pass
        self._now = end

    def run_until(self, condition: Callable[[], bool], *, seconds: float, every: float = 0.0) -> bool:
        """Run for at most ``seconds`` until ``condition`` holds; return whether it does.

        It is checked after every event; with ``every``, only after an event at least so many seconds after the last
        check, because a condition that asks each member costs more than an event.
        """
        end = self._now + seconds
        with self._entered():
            while not condition():
                checked = self._now
                while self._run_one(end):
                    if self._now - checked >= every:
                        break
                else:
                    self._now = end
                    return condition()
        return True

    def check(self) -> None:
        """Raise a task's exception that no code has retrieved, if there is one."""
        for process in self._processes:
            for task in process.failures():
                error = task.exception()
                if error is not None:
                    error.add_note(f"never retrieved: the exception of {task.get_name()} of {process.name}")
                    self._failures.append(error)
        if self._failures:
            failures, self._failures = self._failures, []
            raise failures[0]

    def dump(self) -> str:
        """Describe the await of every living task, for people."""
        out = io.StringIO()
        for process in self._processes:
            for task in [] if process.is_dead else sorted(process._tasks, key=hash):
                if not task.done():
                    out.write(f"{process.name}: ")
                    task.print_stack(limit=4, file=out)
        return out.getvalue()

    def requeue(self, handles: list[asyncio.Handle]) -> None:
        """Make handles ready that came due earlier. Called by processes that resume."""
        self._ready.extend(handles)

    def _run_one(self, end: float) -> bool:
        """Run the next event that is due at or before ``end``."""
        ready = self._ready
        while True:
            if not ready and not self._advance(end):
                return False
            handle = ready.popleft()
            if handle._cancelled:
                continue
            context = handle._context
            process = context.get(_PROCESS)
            if process is None or process._runs or process.admit(handle):
                break
        self.events += 1
        self._events_at_this_time += 1
        self.ran, self._has_left = None if self._has_left else process, False
        try:
            context.run(handle._callback, *handle._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            if process is None or not process.is_dead:
                who = "the world" if process is None else process.name
                error.add_note(f"in event {self.events} at {self._now:.6f} s, of {who}; seed {self.seed}")
                raise
        if self.after_event is not None:
            self.after_event()
        if self._failures:
            self.check()
        if self._events_at_this_time > _EVENTS_AT_ONE_TIME_MAX:
            raise LivelockError(f"{self._events_at_this_time} events at {self._now:.6f} s; the last was {handle!r}")
        if self.events % _EVENTS_PER_COLLECTION == 0:
            gc.collect()
        return True

    def _advance(self, end: float) -> bool:
        """Move time to the next timer and make all timers of that time ready; False if there is none up to ``end``."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)[2]._scheduled = False
            self._timers_cancelled -= 1
        if not timers or timers[0][0] > end:
            return False
        now = self._now = timers[0][0]
        self._events_at_this_time = 0
        while timers and timers[0][0] == now:
            handle = heapq.heappop(timers)[2]
            handle._scheduled = False
            if handle._cancelled:
                self._timers_cancelled -= 1
            else:
                self._ready.append(handle)
        return True

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        """Be the running loop of this thread, without the interpreter's own sources of nondeterminism."""
        if self._closed:
            raise RuntimeError("the simulated loop is closed")
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("a simulated loop cannot run inside a running event loop")
        collecting = gc.isenabled()
        hooks = sys.get_asyncgen_hooks()
        self._thread = threading.get_ident()
        self._running = self._has_left = True
        asyncio._set_running_loop(self)
        sys.set_asyncgen_hooks(finalizer=self._finalize_generator)
        gc.disable()
        try:
            yield
        finally:
            self._running = False
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            if collecting:
                gc.enable()

    def _finalize_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        process = _PROCESS.get()
        if not self._closed and (process is None or not process.is_dead):
            self.call_soon(lambda: self.create_task(generator.aclose()))

    # asyncio: running

    def run_forever(self) -> None:
        """Run until ``stop``, or until nothing can happen any more."""
        with self._entered():
            while not self._stopping and self._run_one(math.inf):
                pass
        self._stopping = False

    def run_until_complete(self, future: Any) -> Any:
        """Run until ``future`` (or coroutine) is done; return its result. All other work stands still then.

        Raises:
          DeadlockError: it can never be done.
        """
        main = asyncio.ensure_future(future, loop=self)
        with self._entered():
            while not main.done():
                if not self._run_one(math.inf):
                    raise DeadlockError(f"nothing can happen any more at {self._now:.6f} s\n{self.dump()}")
        result = main.result()
        self.check()
        return result

    def stop(self) -> None:
        """End ``run_forever`` after the current event."""
        self._stopping = True

    def is_running(self) -> bool:
        """Return whether an event of this loop is running."""
        return self._running

    def is_closed(self) -> bool:
        """Return whether ``close`` was called."""
        return self._closed

    def close(self) -> None:
        """End the world: none of its code runs any more, and all objects are released. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        # Clean-up code that looks for a loop finds this one, which refuses, instead of making a real one.
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            for process in self._processes:
                process.discard()
        finally:
            asyncio._set_running_loop(outer)
        self._processes.clear()

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: ``close`` drops them."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there is none."""

    # asyncio: callbacks and timers

    def time(self) -> float:
        """Return the simulated seconds since the run began."""
        return self._now

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Queue ``callback`` after everything that is ready."""
        handle = asyncio.Handle(callback, args, self, context)
        if not self._closed:
            self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Do the same as ``call_soon``; refused from another thread, because no seed decides that one's timing."""
        if threading.get_ident() != self._thread:
            raise RuntimeError("a second thread in the simulation: use the host's executors instead")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Queue ``callback`` in ``delay`` simulated seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Queue ``callback`` at the simulated time ``when``; at once if that is not in the future."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if self._closed:
            return handle
        if when <= self._now:
            self._ready.append(handle)
            return handle
        process = handle._context.get(_PROCESS)  # type: ignore[attr-defined]
        if process is not None and process.rate != 1.0:
            when = self._now + (when - self._now) / process.rate
        self._numbers += 1
        handle._scheduled = True  # type: ignore[attr-defined]
        heapq.heappush(self._timers, (when, self._numbers, handle))
        return handle

    def _timer_handle_cancelled(self, handle: Any) -> None:
        """Count a cancelled timer; the heap is rebuilt once most of its timers are cancelled."""
        if not handle._scheduled:
            return
        self._timers_cancelled += 1
        if self._timers_cancelled > max(_CANCELLED_TIMERS_MIN, len(self._timers) // 2):
            self._timers = [entry for entry in self._timers if not entry[2]._cancelled and entry[2] is not handle]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def run_in_executor(
        self, executor: Any, func: Callable[[*ArgumentsT], ResultT], *args: *ArgumentsT
    ) -> asyncio.Future[ResultT]:
        """Call ``func`` on the loop, in an event of its own (rule 2); the result comes after :meth:`block`."""
        future: asyncio.Future[ResultT] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            self._blocked = 0.0
            try:
                result = func(*args)
            except Exception as error:
                report(future.set_exception, error)
            else:
                report(future.set_result, result)

        def report(tell: Callable[[Any], None], outcome: object) -> None:
            if self._blocked:
                self.call_later(self._blocked, lambda: None if future.cancelled() else tell(outcome))
            else:
                tell(outcome)

        self.call_soon(work)
        return future

    def block(self, seconds: float) -> None:
        """Let the call of :meth:`run_in_executor` that is being made last longer. Its effect takes place now."""
        self._blocked += seconds

    # asyncio: tasks and futures

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future of this loop."""
        self._numbers += 1
        future = _Future(loop=self)
        future.number = self._numbers
        return future

    def create_task(
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        """Make a task of the process of ``context`` (the current one if None)."""
        if self._closed:
            coro.close()
            raise RuntimeError("the simulated loop is closed")
        self._task_count += 1
        self._numbers += 1
        # Set the number before the base class hashes the task, which it does to add it to the set of all tasks.
        task = _Task.__new__(_Task)
        task.number = self._numbers
        task.__init__(coro, loop=self, name=name or f"task-{self._task_count}", context=context)  # type: ignore[misc]
        process = _PROCESS.get() if context is None else context.get(_PROCESS)
        (process or self._world).adopt(task)
        return task

    def set_task_factory(self, factory: Any) -> None:
        """Refuse: another task class would not be deterministic (rule 3)."""
        if factory is not None:
            raise NotImplementedError("the simulated loop makes its own tasks")

    def get_task_factory(self) -> None:
        """Return None: there is no other factory."""

    # asyncio: errors

    def set_exception_handler(
        self, handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None
    ) -> None:
        """Call ``handler`` for unretrieved exceptions, instead of failing the run."""
        self._exception_handler = handler

    def get_exception_handler(self) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None:
        """Return the present handler."""
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Fail the run after the current event."""
        error = context.get("exception")
        if not isinstance(error, BaseException):
            error = RuntimeError(context.get("message", "unnamed failure"))
        self._failures.append(error)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Handle the report of an error in a task, future or handle."""
        if self._closed or isinstance(context.get("exception"), SimulatedCrash):
            return
        if self._exception_handler is not None:
            self._exception_handler(self, context)
        else:
            self.default_exception_handler(context)

    def get_debug(self) -> bool:
        """Return whether asyncio's debug mode is on."""
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        """Switch asyncio's debug mode."""
        self._debug = enabled


class SimulatedClock(Clock):
    """One node's clocks: the loop's time, with the errors that clocks have.

    ``rate`` is seconds shown per simulated second; ``wall_offset_us`` may be changed at any time (a jump).
    """

    WALL_START_US = 1_700_000_000_000_000

    def __init__(self, loop: SimulatedLoop, *, offset: float = 0.0, rate: float = 1.0, wall_offset_us: int = 0) -> None:
        self.offset = offset
        self.rate = rate
        self.wall_offset_us = wall_offset_us
        self._loop = loop

    def set_rate(self, rate: float) -> None:
        """Change the rate from now on; the present readings of the clocks do not jump."""
        gone = self._loop.time() * (self.rate - rate)
        self.offset += gone
        self.wall_offset_us += int(gone * 1e6)
        self.rate = rate

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment of this node."""
        return self.offset + self._loop.time() * self.rate

    def wall_us(self) -> int:
        """Return microseconds since 1970 by this node's wall clock."""
        return self.WALL_START_US + self.wall_offset_us + int(self._loop.time() * self.rate * 1e6)


def run(main: Coroutine[Any, Any, ResultT], *, seed: int | str = 0, trace: Trace | None = None) -> ResultT:
    """Run ``main`` in a simulated loop of its own, as ``asyncio.run`` would in a real one; return its result.

    Raises:
      DeadlockError: nothing can happen any more and ``main`` is not done.
    """
    loop = SimulatedLoop(seed, trace=trace)
    try:
        result: ResultT = loop.run_until_complete(main)
        return result
    finally:
        loop.close()
