"""An executor on real threads: one that does all the work, or a small pool that takes turns.

Why a pool: docs/design/0001-sync-threads.md.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Generic, TypeVar

__all__ = ["ThreadExecutor"]

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class _Stop:
    """The last item in an executor's queue."""


class ThreadExecutor(Generic[ItemT, ResultT]):
    """Daemon threads fed by a SimpleQueue, one of them at a time; reports through ``call_soon_threadsafe``.

    One wake-up each way takes 34-52 µs, half the time of ``run_in_executor``. With more than one thread, a thread that
    has ended its turn while items arrived hands the executor to the next thread and sleeps. If no items arrived, it
    keeps the turn and waits for items.

    Invariants:
      * only the thread whose turn it is takes items, works and reports, so both keep their order
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
    ) -> None:
        """Start the threads; reports go to the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._work = work
        self._done = done
        self._queue: SimpleQueue[ItemT | _Stop] = SimpleQueue()
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._closed = False
        self._failure: BaseException | None = None
        self._turns: list[SimpleQueue[bool]] = [SimpleQueue() for _ in range(threads)]
        """For each thread: True = its turn begins, False = the executor has stopped."""
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=f"{name}-{number}" if threads > 1 else name)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.daemon = True
            thread.start()
        self._turns[0].put(True)

    def put(self, item: ItemT) -> None:
        """Queue ``item``; dropped after :meth:`close`."""
        if not self._closed:
            self._queue.put(item)

    async def close(self) -> None:
        """Work on all queued items, report them, and stop. Idempotent; if cancelled, the work goes on."""
        if not self._closed:
            self._closed = True
            self._queue.put(_Stop())
        await asyncio.shield(self._finished)
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        turns = self._turns
        following = turns[(number + 1) % len(turns)]
        while turns[number].get():
            is_going_on = self._turn()
            while is_going_on and self._queue.empty():
                is_going_on = self._turn()  # The queue is empty, so handing over would only wake one more thread.
            if is_going_on:
                following.put(True)
                continue
            for turn in turns:
                turn.put(False)
            with suppress(RuntimeError):  # The loop is closed.
                self._loop.call_soon_threadsafe(self._finish)

    def _turn(self) -> bool:
        """Wait for items, work on all of them, and report. Returns whether the executor goes on."""
        items: list[ItemT] = []
        queue = self._queue
        item = queue.get()
        while not isinstance(item, _Stop):
            items.append(item)
            if queue.empty():  # Only this thread takes items, so the next get() cannot block.
                break
            item = queue.get()
        if items:
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

    def _finish(self) -> None:
        if not self._finished.done():
            self._finished.set_result(None)
