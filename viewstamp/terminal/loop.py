"""The event loop on which a command does its work."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from viewstamp.host.event_loop import new_event_loop

__all__ = ["run_async"]

ResultT = TypeVar("ResultT")


def run_async(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run a coroutine to its end, on uvloop where there is one.

    Ctrl-C, SIGTERM and the end of the terminal cancel it and raise KeyboardInterrupt: whoever started processes
    ends them then, whatever the reason is.
    """
    ended = False

    async def cancellable() -> ResultT:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def end() -> None:
            nonlocal ended
            ended = True
            if task is not None:
                task.cancel()

        # A signal that is ignored stays ignored, because nohup asks for that.
        caught = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
        for number in caught:
            loop.add_signal_handler(number, end)
        try:
            return await work
        finally:
            for number in caught:
                # uvloop leaves its handler behind when it closes: the process could not be ended any more.
                loop.remove_signal_handler(number)

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(cancellable())
    except asyncio.CancelledError:
        if ended:
            raise KeyboardInterrupt from None
        raise
