"""The client of a process that cannot await: one for each cluster, on an event loop in a thread of its own.

Spark calls sinks and sources in workers that it keeps over the micro-batches. So the connection, the session and what
they have learnt of the cluster are kept too, and a task costs no handshake.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import random
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec, TypeVar

from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.errors import ClosedError, UnavailableError
from viewstamp.host.address import format_address, parse_address
from viewstamp.host.event_loop import new_event_loop
from viewstamp.host.network import RealNetwork
from viewstamp.spark.remedies import remedies

__all__ = ["BlockingClient", "blocking_client"]

P = ParamSpec("P")
ResultT = TypeVar("ResultT")

_TIMEOUT = 300.0
"""Seconds for each call. A task that fails costs its whole micro-batch, so it rather waits: for a new leader, for
staged bytes to become less, for a node that is restarted."""
_READ_BYTES = 4 * 1024 * 1024
"""What one request of a reader asks for. For each a node looks into the COMMIT again that placed what is read."""
_CLOSE_SECONDS = 2.0
_ANSWER_SECONDS = 1.0
"""How long an address may take to accept or refuse a connection before it counts as one that may be reached."""
_REFUSED_SECONDS = 0.2
"""Between two rounds over addresses that refuse."""

_clients: dict[tuple[int, str], BlockingClient] = {}
"""By process id, because Spark forks its workers: a thread does not come along, and a socket would be shared. What
was inherited is never used, and never dropped either: closing its loop would disturb the parent's. So a child has to
end without clearing up, by ``os._exit``, as Spark's workers and multiprocessing's do."""


def blocking_client(cluster: str) -> BlockingClient:
    """Return this process's client of the cluster at ``cluster`` (``host:port,host:port``); nothing is sent yet.

    Raises:
      ConfigError: an address has another shape.
    """
    key = os.getpid(), cluster
    found = _clients.get(key)
    return found if found is not None else _clients.setdefault(key, BlockingClient(cluster))


class BlockingClient:
    """A client and the event loop that it lives on. May be used by several threads.

    Invariants:
      * the loop's thread runs from the first :meth:`run` until :meth:`close`
      * at the end of the process it is closed, where the process ends in order
    """

    def __init__(self, cluster: str) -> None:
        self.client = Client(
            cluster,
            network=RealNetwork(),
            entropy=random.Random(),
            options=ClientOptions(timeout=_TIMEOUT, read_bytes=_READ_BYTES),
        )
        """Its coroutine functions are for :meth:`run` alone: they belong to the loop."""
        self._process = os.getpid()
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._addresses = [parse_address(address) for address in cluster.split(",")]
        self._was_reached = False

    def reach(self, seconds: float) -> None:
        """Return once a node may be reached; raise if every address refuses connections for ``seconds``.

        For the driver, before anything else: an address that refuses is mistyped, or its node is not running, and calls
        of a client go on trying for as long as their timeout. Addresses that neither accept nor refuse are left to the
        client. Once a connection was accepted this returns at once: a cluster that was there will come back.

        Raises:
          UnavailableError: every address refuses, or has a host name that does not exist.
        """
        if not self._was_reached:
            self.run(_reach, self._addresses, seconds)
            self._was_reached = True

    def run(self, work: Callable[P, Coroutine[Any, Any, ResultT]], *arguments: P.args, **named: P.kwargs) -> ResultT:
        """Run ``work(*arguments, **named)`` on the loop, and wait for its end. Interrupted, it cancels the work.

        Raises:
          ClosedError: the client has been closed.
          ViewstampError: as the work does; the remedy stands in the traceback, which is all that Spark shows.
        """
        loop = self._start()
        future = asyncio.run_coroutine_threadsafe(work(*arguments, **named), loop)
        try:
            with remedies():
                return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Close the client, and end the thread. Idempotent; nothing happens in a process that has inherited this."""
        with self._starting:
            if self._is_closed or os.getpid() != self._process:
                return
            self._is_closed = True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        atexit.unregister(self.close)
        closed = asyncio.run_coroutine_threadsafe(self.client.close(), loop)
        with contextlib.suppress(TimeoutError):
            closed.result(_CLOSE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._is_closed:
                raise ClosedError("the client has been closed")
            if self._loop is None:
                self._loop = new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="viewstamp", daemon=True)
                self._thread.start()
                atexit.register(self.close)
            assert threading.current_thread() is not self._thread, "the loop would wait for itself"
            return self._loop


async def _reach(addresses: Sequence[tuple[str, int]], seconds: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        refusals = [await _refusal(host, port) for host, port in addresses]
        if "" in refusals:
            return
        if loop.time() >= deadline:
            raise UnavailableError(
                f"no node of the cluster accepts connections, tried for {seconds:g} s: {', '.join(refusals)}",
                remedy="check the addresses, and that the nodes run; while a cluster is being restarted, option"
                " connectSeconds says how many seconds to wait for it",
            )
        await asyncio.sleep(_REFUSED_SECONDS)


async def _refusal(host: str, port: int) -> str:
    """Return how an address refuses a connection; "" = it accepts one, or there is no answer yet."""
    loop = asyncio.get_running_loop()
    address = format_address(host, port)
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError):
        return f"{address} (host not found)"
    for *_, sockaddr in found:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                transport, _ = await loop.create_connection(asyncio.Protocol, str(sockaddr[0]), port)
        except ConnectionRefusedError:
            continue
        except (OSError, TimeoutError):
            return ""
        transport.close()
        return ""
    return f"{address} (connection refused)"
