"""Blocking work of a node that starts, off the event loop, in an executor of its own that a stop can wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from viewstamp.host.interfaces import Disk, SerialExecutor

__all__ = ["OffLoop"]

ResultT = TypeVar("ResultT")


class OffLoop:
    """Runs one piece of blocking work after the other."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._executor: SerialExecutor[None] | None = None

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """Run ``work`` and return what it does. Cancelled, it goes on until :meth:`close` has waited for it."""
        future: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()

        def done(_: list[None], result: ResultT | BaseException) -> None:
            if isinstance(result, BaseException) and not future.done():
                future.set_exception(result)
            elif not isinstance(result, BaseException) and not future.done():
                future.set_result(result)

        self._executor = self._disk.executor("recovery", lambda _: work(), done)
        self._executor.put(None)
        try:
            result = await future
        except Exception:
            await self._executor.close()
            raise
        await self._executor.close()
        return result

    async def close(self) -> None:
        """Wait for the work that is under way. Idempotent."""
        if self._executor is not None:
            await self._executor.close()
