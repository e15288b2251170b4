"""A client for code that cannot await: one for each cluster, on an event loop in its own thread.

Spark calls sinks and sources in workers that it keeps over many micro-batches. So the connection and the session are
kept too, and a task costs no handshake.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import random
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.client.token_file import find_token
from viewstamp.errors import ClosedError, ConfigError, UnavailableError
from viewstamp.host.address import format_address, parse_address
from viewstamp.host.event_loop import new_event_loop
from viewstamp.host.tls import TlsFiles
from viewstamp.host.tls_network import client_network
from viewstamp.spark.remedies import remedies

__all__ = ["BlockingClient", "blocking_client"]

P = ParamSpec("P")
ResultT = TypeVar("ResultT")

_TIMEOUT = 300.0
"""Seconds for each call. Long, because a failed task costs its whole micro-batch: it rather waits for a new leader, for
staged bytes to be freed, or for a node to restart."""
_READ_BYTES = 4 * 1024 * 1024
"""Bytes of one request of a reader. Large, because a node reads the COMMIT of staged records again for each request."""
_CLOSE_SECONDS = 2.0
_ANSWER_SECONDS = 1.0
"""Seconds for an address to accept or refuse a connection; after that it counts as possibly reachable."""
_REFUSED_SECONDS = 0.2
"""Seconds between two rounds over addresses that refuse."""

_clients: dict[tuple[int, str, TlsFiles | None, str], BlockingClient] = {}
"""By process id, because Spark forks its workers: threads do not survive a fork, and a socket would be shared. An
inherited client is never used, and never closed either, because closing its loop would disturb the parent's. So a child
has to end without clean-up, by ``os._exit``, as Spark's workers and those of multiprocessing do."""

_log = logging.getLogger("viewstamp.spark")


def blocking_client(cluster: str, tls: TlsFiles | None = None, token_file: str = "") -> BlockingClient:
    """Return this process's client of the cluster at ``cluster`` (``host:port,host:port``). Sends no request.

    The token is read again for each call, because Spark's workers live as long as the application, and a token may be
    replaced meanwhile. A client with an earlier token is closed, so each task keeps the one that it got. If the file
    cannot be read any more, the earlier token stays in use, because whoever replaces a file may empty it first.

    Args:
      cluster: the addresses.
      tls: the client's certificate; None = a cluster without TLS. Files that have changed are loaded again by the
        client itself. The name of a file, like that of the next one, may be one of :func:`sent_file`.
      token_file: a file with the token to use; "" = the token in VIEWSTAMP_TOKEN, or none.

    Raises:
      ConfigError: an address, or a file of ``tls``, is invalid, or the file has no token.
    """
    if tls is not None:
        files = {name: sent_file(getattr(tls, name)) for name in ("authority", "certificate", "key")}
        tls = replace(tls, **files)
    token_file = sent_file(token_file)
    key = os.getpid(), cluster, tls, token_file
    found = _clients.get(key)
    try:
        token = find_token(token_file)
    except ConfigError as error:
        if found is None:
            raise
        _log.warning("the token in use stays in use: %s", error)
        return found
    if found is None:
        return _clients.setdefault(key, BlockingClient(cluster, tls, token))
    if found.token != token:
        _clients[key] = BlockingClient(cluster, tls, token)
        found.close()
    return _clients[key]


def sent_file(name: str) -> str:
    """Return the path of a file that an option names.

    A name without a leading slash is that of a file which Spark has sent (``--files``, ``SparkContext.addFile``), if
    there is such a one in this process; otherwise it is relative to the working directory.
    """
    if not name or os.path.isabs(name):
        return name
    from pyspark.core.files import SparkFiles

    with contextlib.suppress(AssertionError, TypeError):  # Raised by Spark where it has sent no files.
        root: str = SparkFiles.getRootDirectory()
        # The process that plans a streaming source gets the directory of a job. It does not exist, and its parent holds
        # the files.
        for directory in (root, os.path.dirname(root)):
            sent = os.path.abspath(os.path.join(directory, name))
            if os.path.exists(sent):
                return sent
    return os.path.abspath(name)


class BlockingClient:
    """A client and its event loop. May be used by several threads.

    Invariants:
      * the loop's thread runs from the first :meth:`run` until :meth:`close`
      * it is closed when the process exits normally
    """

    def __init__(self, cluster: str, tls: TlsFiles | None = None, token: str = "") -> None:
        self.token = token
        self.client = Client(
            cluster,
            network=client_network(tls),
            entropy=random.SystemRandom(),
            options=ClientOptions(timeout=_TIMEOUT, read_bytes=_READ_BYTES, token=token),
        )
        """Its coroutine functions must be passed to :meth:`run`, because they belong to the loop."""
        self._process = os.getpid()
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._addresses = [parse_address(address) for address in cluster.split(",")]
        self._was_reached = False

    def reach(self, seconds: float) -> None:
        """Return once a node may be reachable; raise if every address refuses connections for ``seconds``.

        The driver calls this first, because an address that refuses is mistyped or its node is down, while calls of a
        client retry until their timeout. Addresses that neither accept nor refuse are left to the client. After the
        first accepted connection this returns at once, because a cluster that was there may come back.

        Raises:
          UnavailableError: every address refuses, or its host name does not exist.
        """
        if not self._was_reached:
            self.run(_reach, self._addresses, seconds)
            self._was_reached = True

    def run(self, work: Callable[P, Coroutine[Any, Any, ResultT]], *arguments: P.args, **named: P.kwargs) -> ResultT:
        """Run ``work(*arguments, **named)`` on the loop, and wait for its result. An interrupt cancels the work.

        Raises:
          ClosedError: the client is closed.
          ViewstampError: as raised by the work; its traceback, which is all that Spark shows, includes the remedy.
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
        """Close the client, and end the thread. Safe to repeat. Does nothing in a process that inherited the client."""
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
                f"no node of the cluster accepted a connection within {seconds:g} s: {', '.join(refusals)}",
                remedy="check the addresses, and that the nodes run; to wait longer for a cluster that restarts, set"
                " option connectSeconds",
            )
        await asyncio.sleep(_REFUSED_SECONDS)


async def _refusal(host: str, port: int) -> str:
    """Return how an address refuses a connection; "" = it accepts one, or does not answer yet."""
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
