"""Nodes on asyncio's own loop in debug mode, on which nothing may go unheard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
async def loop_errors() -> AsyncIterator[list[dict[str, Any]]]:
    """What nobody handled; a test that expects some takes them out of the list."""
    errors: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.set_exception_handler(lambda _, context: errors.append(context))
    yield errors
    await asyncio.sleep(0)
    assert errors == []
