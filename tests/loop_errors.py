"""Fails a test that leaves an unhandled error in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

__all__ = ["loop_errors"]


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
