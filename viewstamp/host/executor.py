"""An executor on real threads: one that does all the work, or a small pool that takes turns.

Why a pool: docs/design/0001-sync-threads.md. Threads exist only while there is work, because a node with many groups
has three executors for each of them, and most groups are idle:

| the executor | its threads |
| --- | --- |
| rests: nothing was put for ``_IDLE_SECONDS``, or yet | none |
| an item is put | one begins a *shift*; another one is added when the turn is passed for the first time |
| no thread can be started, for example because of a limit of the process | the items wait, it is tried again |
| nothing is put for ``_IDLE_SECONDS`` | all end |
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

__all__ = ["ThreadExecutor"]

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

_IDLE_SECONDS = 5.0
"""Seconds without work after which the threads end. The next item waits some 100 µs longer, for a new thread."""
_RETRY_SECONDS = 0.1
"""Time from a failed start of a thread to the next attempt."""


class _Stop:
    """The last item in the queue of a shift."""


_STOP = _Stop()


class _Shift(Generic[ItemT]):
    """The threads and the queue of an executor, from an item that finds it at rest to the next rest."""

    def __init__(self, threads: int) -> None:
        self.queue: SimpleQueue[ItemT | _Stop] = SimpleQueue()
        self.turns: list[SimpleQueue[bool]] = [SimpleQueue() for _ in range(threads)]
        """For each thread: True = its turn begins, False = the shift has ended."""
        self.threads: list[threading.Thread] = []
        """The started ones; the others are started when their first turn begins."""


class ThreadExecutor(Generic[ItemT, ResultT]):
    """Daemon threads fed by a SimpleQueue, one of them at a time; reports through ``call_soon_threadsafe``.

    One wake-up each way takes 34-52 µs, half the time of ``run_in_executor``. With more than one thread, a thread that
    has ended its turn while items arrived hands the executor to the next thread and sleeps. If no items arrived, it
    keeps the turn and waits for items.

    Invariants:
      * only the thread whose turn it is takes items, works and reports, so both keep their order
      * a shift ends when all items have been reported, so at most one shift has items
      * ``work`` never runs twice at once, and never again after it has raised
      * ``done`` has been called for every item when :meth:`close` returns
    """

    def __init__(
        self,
        name: str,
        work: Callable[[list[ItemT]], ResultT],
        done: Callable[[list[ItemT], ResultT | BaseException], None],
        *,
        threads: int = 1,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> None:
        """Prepare; reports go to the running event loop. The first item starts the first thread."""
        self._loop = asyncio.get_running_loop()
        self._name = name
        self._work = work
        self._done = done
        self._idle_seconds = idle_seconds
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._closed = False
        self._failure: BaseException | None = None
        self._thread_count = threads
        self._shift: _Shift[ItemT] = _Shift(threads)
        self._ending: list[threading.Thread] = []
        """Threads of the shifts before, which may not have ended yet."""
        self._retry: asyncio.TimerHandle | None = None
        """Set while items wait because no thread could be started."""
        self._put_count = 0
        self._taken_count = 0
        """Items that threads have taken; written by the thread whose turn it is."""

    def put(self, item: ItemT) -> None:
        """Queue ``item``; dropped after :meth:`close`. Call it on the event loop, or within ``work``."""
        if not self._closed:
            self._put_count += 1
            shift = self._shift
            shift.queue.put(item)
            if not shift.threads:
                self._begin_shift()

    async def close(self) -> None:
        """Work on all queued items, report them, and stop. Idempotent; if cancelled, the work goes on."""
        if not self._closed:
            self._closed = True
            if self._shift.threads or not self._shift.queue.empty():
                self._shift.queue.put(_STOP)
            else:
                self._finished.set_result(None)
        await asyncio.shield(self._finished)
        for thread in [*self._ending, *self._shift.threads]:
            thread.join()

    # -- On the event loop --------------------------------------------------------------------------------------

    def _begin_shift(self) -> None:
        """Start the first thread, now or later; called if items wait and there is no thread."""
        shift = self._shift
        if not shift.threads and not shift.queue.empty():
            if self._start(shift, 0):
                shift.turns[0].put(True)
            elif self._retry is None:
                self._retry = self._loop.call_later(_RETRY_SECONDS, self._on_retry)

    def _on_retry(self) -> None:
        self._retry = None
        self._begin_shift()

    def _on_idle(self, taken: int) -> None:
        """End the threads if no item was put since the thread that asks has waited; ``taken`` is its count."""
        if taken == self._put_count and not self._closed:
            shift, self._shift = self._shift, _Shift(self._thread_count)
            shift.queue.put(_STOP)
            self._ending = [thread for thread in self._ending if thread.is_alive()] + shift.threads

    def _on_ended(self, shift: _Shift[ItemT]) -> None:
        """Note the end of a shift. Only :meth:`close` ends the present one."""
        if shift is self._shift and not self._finished.done():
            self._finished.set_result(None)

    # -- On the threads -----------------------------------------------------------------------------------------

    def _start(self, shift: _Shift[ItemT], number: int) -> bool:
        """Start a thread; return whether that was possible."""
        name = f"{self._name}-{number}" if self._thread_count > 1 else self._name
        thread = threading.Thread(target=self._run, args=(shift, number), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # "can't start new thread": a limit of the process or of the machine.
            return False
        shift.threads.append(thread)
        return True

    def _run(self, shift: _Shift[ItemT], number: int) -> None:
        turns = shift.turns
        following = (number + 1) % len(turns)
        while turns[number].get():
            is_going_on = self._turn(shift)
            while is_going_on and (shift.queue.empty() or not self._may_follow(shift, following)):
                is_going_on = self._turn(shift)  # If the queue is empty, handing over would only wake one more thread.
            if is_going_on:
                turns[following].put(True)
                continue
            for turn in turns:
                turn.put(False)
            with suppress(RuntimeError):  # The loop is closed.
                self._loop.call_soon_threadsafe(self._on_ended, shift)

    def _may_follow(self, shift: _Shift[ItemT], following: int) -> bool:
        """Return whether the next thread can take the turn; it is started if it was not needed before."""
        return following < len(shift.threads) or self._start(shift, following)

    def _turn(self, shift: _Shift[ItemT]) -> bool:
        """Wait for items, work on all of them, and report. Returns whether the shift goes on."""
        items: list[ItemT] = []
        queue = shift.queue
        try:
            item = queue.get(timeout=self._idle_seconds)
        except Empty:
            try:
                self._loop.call_soon_threadsafe(self._on_idle, self._taken_count)
            except RuntimeError:
                return False  # The loop is closed, so nothing will be put.
            item = queue.get()
        while not isinstance(item, _Stop):
            items.append(item)
            if queue.empty():  # Only this thread takes items, so the next get() cannot block.
                break
            item = queue.get()
        if items:
            self._taken_count += len(items)
            outcome: ResultT | BaseException
            if self._failure is None:
                try:
                    outcome = self._work(items)
                except BaseException as error:
                    # The root of this thread: every error is reported, and nothing is tried again.
                    outcome = self._failure = error
            else:
                outcome = self._failure
            try:
                self._loop.call_soon_threadsafe(self._done, items, outcome)
            except RuntimeError:
                return False  # The loop is closed, so reports are not possible.
        return not isinstance(item, _Stop)
