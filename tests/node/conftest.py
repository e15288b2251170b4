"""Runs the node tests on asyncio's own loop in debug mode, and fails a test that leaves an unhandled error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
async def loop_errors() -> AsyncIterator[list[dict[str, Any]]]:
    """Unhandled errors of the event loop; a test that expects some removes them from the list."""
    errors: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.set_exception_handler(lambda _, context: errors.append(context))
    yield errors
    await asyncio.sleep(0)
    assert errors == []
