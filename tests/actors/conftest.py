"""A loop that jumps in time to the next timer, so that deadlines cost nothing.

A test must leave no error in the loop.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable

import pytest

from tests.loop_errors import loop_errors as loop_errors


class JumpingSelector(selectors.DefaultSelector):
    """Never sleeps: the loop's time moves on instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events:
            assert timeout is not None, "nothing is ready and no timer runs: this would wait for ever"
            self.now += max(timeout, 0.0)
        return events


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.jumping_selector = JumpingSelector()
        super().__init__(self.jumping_selector)

    def time(self) -> float:
        return self.jumping_selector.now


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"jumping": JumpingLoop}
