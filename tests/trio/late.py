"""Timeouts of trio programs that expire at a chosen moment, although the nodes live in real time on another thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from viewstamp.errors import ViewstampError

__all__ = ["late_error", "until"]


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not condition():  # noqa: ASYNC110 - the condition is the other side's state
            await trio.sleep(0.001)


async def late_error(
    clock: trio.testing.MockClock, seconds: float, condition: Callable[[], bool], call: Callable[[], Awaitable[Any]]
) -> ViewstampError:
    """Return the error of a call that is under way when ``condition`` holds, and then exceeds its timeout."""
    errors: list[ViewstampError] = []

    async def fail() -> None:
        with pytest.raises(ViewstampError) as raised:
            await call()
        errors.append(raised.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail)
        await until(condition)
        clock.jump(seconds)
    return errors[0]
