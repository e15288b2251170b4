"""Nodes inside a program: no error may go unnoticed on the program's own loop, and no thread may stay behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.loop_errors import left_behind


@pytest.fixture(autouse=True)
async def tidy() -> AsyncIterator[None]:
    """Check that a test leaves no unhandled error, no task and no thread."""
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    yield
    # The loop's own thread pool, which lives as long as the loop, writes files.
    await asyncio.get_running_loop().shutdown_default_executor()
    left = await left_behind(tasks, threads)
    assert (left, errors) == ([], [])
