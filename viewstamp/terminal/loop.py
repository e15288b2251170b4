"""Runs the coroutine of a command on an event loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from viewstamp.host.event_loop import new_event_loop

__all__ = ["run_async"]

ResultT = TypeVar("ResultT")


def run_async(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run a coroutine to its end, on uvloop if it is installed.

    Ctrl-C, SIGTERM and SIGHUP cancel it and raise KeyboardInterrupt, so that a command that started processes also ends
    them.
    """
    ended = False

    async def cancellable() -> ResultT:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def end() -> None:
            nonlocal ended
            ended = True
            if task is not None:
                task.cancel()

        # An ignored signal stays ignored, because nohup relies on that.
        caught = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
        for number in caught:
            loop.add_signal_handler(number, end)
        try:
            return await work
        finally:
            for number in caught:
                # uvloop keeps its handler when it closes, and the process would ignore the signal from then on.
                loop.remove_signal_handler(number)

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(cancellable())
    except asyncio.CancelledError:
        if ended:
            raise KeyboardInterrupt from None
        raise
