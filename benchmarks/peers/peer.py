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

from benchmarks.peers.processes import Servers, with_children
from viewstamp.errors import UnavailableError
from viewstamp.local.process import cpu_seconds

__all__ = ["Append", "Peer", "Reader", "Session", "Spawned"]

_TRY_AGAIN_SECONDS = 0.02

Append = Callable[[bytes], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Session:
    """One connection. ``append`` returns an awaitable at once; it is done when a majority's disks have the record.

    The awaitable raises if the server refuses the record or the connection is lost. The record may be written then.
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
    """Settings in force when a record is acknowledged. Set after ``start``, because some servers report their own."""
    client: str = ""
    """Description of the client."""
    version: str = ""

    session_noun: ClassVar[str] = "connection"
    """The table's word for a session."""
    warm_up_seconds: ClassVar[float] = 0.5
    """Seconds of load before the first turn of new servers, because some compile their code while they run."""

    def absent(self) -> str:
        """Return the reason why the system cannot run here, for the table; "" = it can."""
        return ""

    def sessions(self, in_flight: int) -> int:
        """Return the number of sessions that was measured as fastest for ``in_flight`` unanswered records."""
        return 1

    @abc.abstractmethod
    async def start(self, directory: Path) -> None:
        """Start the servers; return once they have a leader and accept records. Creates a missing ``directory``.

        After an error servers may run until :meth:`stop`; :meth:`running` calls it in any case.

        Raises:
          UnavailableError: a server did not start; the message has the last lines of its log.
        """

    @abc.abstractmethod
    async def connect_to(self, server: str) -> Session:
        """Connect to one server, whether it leads or not.

        Raises:
          OSError, UnavailableError: the server cannot be reached.
        """

    @abc.abstractmethod
    def pids(self) -> dict[str, int]:
        """Return the process ids of the running servers, by name."""

    def cpu_used(self) -> float:
        """Return the processor seconds that the servers, and their child processes, have used so far."""
        return sum(sum(cpu_seconds(pid)) for pid in with_children(self.pids().values()))

    @abc.abstractmethod
    async def leader(self) -> str:
        """Return the name of the leader; waits while there is none. Raises UnavailableError after some seconds."""

    @abc.abstractmethod
    async def kill(self, server: str) -> None:
        """End a server by SIGKILL and wait until it has ended. Does nothing if it is not running."""

    @abc.abstractmethod
    async def start_again(self) -> None:
        """Start the servers that are not running, with their existing files; return without waiting for them."""

    async def reader(self, server: str) -> Reader:
        """Connect to one server for linearizable reads of one value, which this call writes first.

        Raises:
          NotImplementedError: the system is not measured with reads.
          OSError, UnavailableError: the server cannot be reached.
        """
        raise NotImplementedError

    async def connect(self) -> Session:
        """Connect to the leader, or by another way that is faster for this system."""
        return await self.connect_to(await self.leader())

    async def kill_all(self) -> None:
        """End all servers by SIGKILL."""
        await asyncio.gather(*(self.kill(server) for server in self.pids()))

    async def stop(self) -> None:
        """End all servers; may be called repeatedly, and before ``start``."""
        await self.kill_all()

    @asynccontextmanager
    async def running(self, directory: Path) -> AsyncIterator[Self]:
        """Start the servers, and stop them at exit."""
        try:
            await self.start(directory)
            yield self
        finally:
            await self.stop()

    async def stand_by(self) -> list[Session]:
        """Return connections to all running servers, for :meth:`first_acknowledged`."""
        return list(await asyncio.gather(*(self.connect_to(server) for server in self.pids())))

    async def first_acknowledged(self, value: bytes, standing: Sequence[Session] = (), timeout: float = 60.0) -> float:
        """Wait until any server acknowledges a record; return the time of the acknowledgement by ``time.perf_counter``.

        The record is sent to every server every 20 ms, whether or not earlier ones were answered, so that no back-off
        of a client is measured. Without ``standing`` sessions, each running server is connected to as soon as it
        listens. After an OSError a session is not used again.

        Raises:
          UnavailableError: no server has acknowledged a record within ``timeout`` seconds.
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


class Spawned(Peer):
    """A peer with child processes. ``start`` must set ``_servers``, which is None before."""

    _servers: Servers | None = None

    @property
    def servers(self) -> Servers:
        """The processes; available after ``start``."""
        assert self._servers is not None, "start the peer first"
        return self._servers

    def pids(self) -> dict[str, int]:
        """Return the process ids of the running servers, by name."""
        return self._servers.pids() if self._servers is not None else {}

    async def kill(self, server: str) -> None:
        """End a server by SIGKILL."""
        await self.servers.kill(server)

    async def start_again(self) -> None:
        """Start the servers that are not running."""
        self.servers.spawn_missing()
