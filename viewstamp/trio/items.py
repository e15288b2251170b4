"""Iterators for trio programs: over records, batches, changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Self, TypeVar

try:
    import trio
except ImportError as error:
    # The package imports this module first, so the message about a missing trio is here.
    raise ImportError("viewstamp.trio needs trio: pip install 'viewstamp[trio]'", name="trio") from error

__all__ = ["Items"]

ItemT = TypeVar("ItemT")


class Items(Generic[ItemT]):
    """An iterator over items that are fetched some at a time. After a cancellation it continues without a gap.

    Each step is a checkpoint for cancellation, and, if it had to fetch items, for scheduling too.

    It is not a generator, because trio ends a generator that is dropped before its end, with a warning. If this
    iterator is dropped, a request that is under way goes on for a while; ``async with`` or ``aclose`` cancels it.
    """

    def __init__(self, fetch: Callable[[], Awaitable[Sequence[ItemT] | None]], close: Callable[[], object]) -> None:
        """Iterate; never awaits.

        Args:
          fetch: returns the next items; [] = there are none yet; None = the end.
          close: cancels the request that is under way. Idempotent.
        """
        self._fetch = fetch
        self._give_up = close
        self._items: deque[ItemT] = deque()
        self._is_closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ItemT:
        if self._items:
            await trio.lowlevel.checkpoint_if_cancelled()
        while not self._items:
            await trio.lowlevel.checkpoint()
            more = None if self._is_closed else await self._fetch()
            if more is None:
                raise StopAsyncIteration
            self._items.extend(more)
        return self._items.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    async def aclose(self) -> None:
        """End it. Idempotent."""
        self._close()
        await trio.lowlevel.checkpoint()

    def _close(self) -> None:
        self._is_closed = True
        self._items.clear()
        self._give_up()
