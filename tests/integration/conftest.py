"""Runs real nodes on the event loop that they use in production."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from viewstamp.host.event_loop import new_event_loop


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"fast": new_event_loop}
