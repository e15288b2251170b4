"""The interface to a measured system, ours or another: start it, connect, append records, kill its servers."""

from __future__ import annotations

import abc
import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from benchmarks.peers.processes import with_children
from viewstamp.errors import UnavailableError
from viewstamp.local.process import cpu_seconds

__all__ = ["Append", "Peer", "Reader", "Session"]

_TRY_AGAIN_SECONDS = 0.02

Append = Callable[[bytes], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Session:
    """One connection. ``append`` returns at once what can be awaited: done once the record is on a majority's disks.

    What is awaited raises where the server refuses the record, or the connection is lost: it may be written then.
    """

    append: Append
    close: Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Reader:
    """One connection for reads. ``read`` returns at once an awaitable that is done when the value has arrived."""

    read: Callable[[], Awaitable[object]]
    close: Callable[[], Awaitable[object]]


class Peer(abc.ABC):
    """Three servers on free ports of 127.0.0.1, with all their files in one directory. Used on one event loop."""

    name: ClassVar[str]
    durability: str = ""
    """What is in force when a record is acknowledged; may be asked of the servers, so it is there after the start."""
    client: str = ""
    """What the callers use."""
    version: str = ""

    session_noun: ClassVar[str] = "connection"
    """A session in the words of the table."""
    warm_up_seconds: ClassVar[float] = 0.5
    """Of load, before the first turn of servers that were just started. Some compile their code while they run."""

    def absent(self) -> str:
        """Return why it cannot run here, for people; "" = it can."""
        return ""

    def sessions(self, in_flight: int) -> int:
        """Return how many sessions are fastest for ``in_flight`` unanswered records; measured, not guessed."""
        return 1

    @abc.abstractmethod
    async def start(self, directory: Path) -> None:
        """Start the servers; return once they have a leader and take records. ``directory`` is made if need be.

        Raises:
          UnavailableError: a server did not come up; with the last lines of its log. None is left running.
        """

    @abc.abstractmethod
    async def connect_to(self, server: str) -> Session:
        """Connect to one server, whether it leads or not.

        Raises:
          OSError, UnavailableError: it cannot be reached.
        """

    @abc.abstractmethod
    def pids(self) -> dict[str, int]:
        """Return the servers that run, by name, and their processes' ids."""

    def cpu_used(self) -> float:
        """Return the processor seconds that the servers, and their child processes, have used so far."""
        return sum(sum(cpu_seconds(pid)) for pid in with_children(self.pids().values()))

    @abc.abstractmethod
    async def leader(self) -> str:
        """Return which server leads; waits while there is none. Raises UnavailableError after some seconds."""

    @abc.abstractmethod
    async def kill(self, server: str) -> None:
        """End a server by SIGKILL and wait until it is gone. Does nothing where it does not run."""

    @abc.abstractmethod
    async def start_again(self) -> None:
        """Start the servers that do not run, with the files that they had; return without waiting for them."""

    async def reader(self, server: str) -> Reader:
        """Connect to one server for linearizable reads of one value, which this call has written.

        Raises:
          NotImplementedError: the system is not measured with reads.
          OSError, UnavailableError: the server cannot be reached.
        """
        raise NotImplementedError

    async def connect(self) -> Session:
        """Connect to the leader, or however is fastest."""
        return await self.connect_to(await self.leader())

    async def kill_all(self) -> None:
        """End all servers by SIGKILL."""
        await asyncio.gather(*(self.kill(server) for server in self.pids()))

    async def stop(self) -> None:
        """End all that runs; may be called again, and without a start."""
        await self.kill_all()

    @asynccontextmanager
    async def running(self, directory: Path) -> AsyncIterator[Self]:
        """Start it, and stop it in the end whatever happens."""
        try:
            await self.start(directory)
            yield self
        finally:
            await self.stop()

    async def stand_by(self) -> list[Session]:
        """Connect to all servers that run, for :meth:`first_acknowledged`."""
        return list(await asyncio.gather(*(self.connect_to(server) for server in self.pids())))

    async def first_acknowledged(self, value: bytes, standing: Sequence[Session] = (), timeout: float = 60.0) -> float:
        """Wait until a record is acknowledged by anybody, as soon as can be; return when, by ``time.perf_counter``.

        It is offered to every server every 20 ms, whatever became of the offers before: no client's patience or
        back-off is counted. Without ``standing`` sessions each server that runs is connected to as soon as it listens.
        A session whose connection is lost (OSError) is offered nothing more.

        Raises:
          UnavailableError: not within ``timeout`` seconds.
        """
        acknowledged: asyncio.Future[float] = asyncio.get_running_loop().create_future()

        async def offer(session: Session) -> None:
            await session.append(value)
            if not acknowledged.done():
                acknowledged.set_result(time.perf_counter())

        async def keep_offering(session: Session) -> None:
            offers: list[asyncio.Task[None]] = []
            try:
                while not any(each.done() and isinstance(each.exception(), OSError) for each in offers):
                    offers = [each for each in offers if not each.done()]
                    offers.append(asyncio.ensure_future(offer(session)))
                    await asyncio.sleep(_TRY_AGAIN_SECONDS)
            finally:
                for each in offers:
                    each.cancel()
                await asyncio.gather(*offers, return_exceptions=True)

        async def reach(server: str) -> None:
            while True:
                with suppress(OSError, UnavailableError):
                    session = await self.connect_to(server)
                    try:
                        await keep_offering(session)
                    finally:
                        await session.close()
                await asyncio.sleep(_TRY_AGAIN_SECONDS)

        work = [keep_offering(each) for each in standing] or [reach(server) for server in self.pids()]
        tasks = [asyncio.ensure_future(each) for each in work]
        try:
            return await asyncio.wait_for(acknowledged, timeout)
        except TimeoutError:
            raise UnavailableError(
                f"{self.name} has acknowledged nothing for {timeout:g} s", remedy="look into the logs of its servers"
            ) from None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
