"""Fails a test that leaves something behind: an unhandled error in the event loop, a task or a thread.

asyncio's debug mode finds more of them. It also records a stack with each callback, future and task, which takes a
third of the processor time of these tests, and is only printed with an error. So only the long form records them.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Set
from typing import Any

import pytest

__all__ = ["left_behind", "loop_errors"]


@pytest.fixture(autouse=True)
async def loop_errors(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[dict[str, Any]]]:
    """Unhandled errors of the event loop; a test that expects some removes them from the list."""
    errors: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    if not os.environ.get("VIEWSTAMP_SOAK"):
        # Callbacks, futures and tasks ask this, and record no stack. The checks of the loop itself do not ask.
        monkeypatch.setattr(loop, "get_debug", lambda: False)
    loop.set_exception_handler(lambda _, context: errors.append(context))
    yield errors
    await asyncio.sleep(0)
    assert errors == []


async def left_behind(tasks: Set[asyncio.Task[Any]], threads: Set[threading.Thread]) -> list[object]:
    """Return the tasks and threads that were not there before and do not end within a second."""
    left: list[object] = []
    for _ in range(100):
        await asyncio.sleep(0.01 if left else 0)
        mine = {asyncio.current_task()}
        left = [*(asyncio.all_tasks() - tasks - mine), *(set(threading.enumerate()) - threads)]
        if not left:
            break
    return left
