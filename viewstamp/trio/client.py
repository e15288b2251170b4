"""``Client`` for trio, and ``connect``: the shared rules of a client in a nursery of its own."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from viewstamp.client.checks import as_staleness
from viewstamp.client.client import BaseClient
from viewstamp.client.named_reader import NamedReader
from viewstamp.client.options import ClientOptions
from viewstamp.client.reader import TopicReader
from viewstamp.client.results import Change
from viewstamp.client.runtime import Dialer
from viewstamp.host.tls import Tls, TlsFiles
from viewstamp.trio.items import Items
from viewstamp.trio.links import shared
from viewstamp.trio.network import TrioTlsNetwork
from viewstamp.trio.nursery import inner_nursery
from viewstamp.trio.runtime import TrioRuntime
from viewstamp.wire.batch import Batch, Record
from viewstamp.wire.commands import Stale

__all__ = ["Client", "connect", "run_client"]

ClientT = TypeVar("ClientT", bound="Client")


class Client(BaseClient):
    """One session with a cluster, shared by all tasks of a trio program. Made by :func:`connect`.

    Every call is a checkpoint. An append that was answered before its caller could be cancelled returns its receipt.
    """

    def __init__(
        self,
        runtime: TrioRuntime,
        addresses: str | Sequence[str],
        *,
        network: Dialer,
        cluster_id: str = "",
        options: ClientOptions | None = None,
    ) -> None:
        self._runs = runtime
        super().__init__(
            addresses,
            runtime=runtime,
            links=lambda: shared().links,
            network=network,
            entropy=random.SystemRandom(),
            cluster_id=cluster_id,
            options=options,
        )

    def end(self) -> None:
        """Fail all waiting calls, and start no further task. Called when the client's context is left."""
        self._close()
        self._runs.close()

    def read(
        self,
        topic: str,
        start: int | None = None,
        *,
        end: int | None = None,
        follow: bool = False,
        node: str | None = None,
        stream: int | None = None,
    ) -> Items[Record]:
        """Read a topic's records in order; see :meth:`viewstamp.Client.read`.

        Each record is a checkpoint for cancellation, and each batch is one for scheduling too. If the iteration is
        cancelled, iterate again: it continues with the next record.
        """
        return _records(self._reader(topic, start, end=end, follow=follow, node=node, stream=stream))

    def scan(
        self,
        topic: str,
        start: bytes | str = b"",
        end: bytes | str | None = None,
        *,
        prefix: bytes | str | None = None,
    ) -> Items[Record]:
        """Yield the last record of each key of a keyed topic; see :meth:`viewstamp.Client.scan`."""
        scanner = self._keyed.scanner(topic, start, end, prefix)
        return Items(scanner.next_records, lambda: None)  # Nothing is under way outside ``next_records``.

    def read_batches(
        self,
        topic: str,
        start: int | None = None,
        *,
        end: int | None = None,
        follow: bool = False,
        node: str | None = None,
        stream: int | None = None,
    ) -> Items[Batch]:
        """Read whole batches, unopened; see :meth:`viewstamp.Client.read_batches`."""
        reader = self._reader(topic, start, end=end, follow=follow, node=node, stream=stream)
        return Items(reader.next_batches, reader.close)

    async def read_stale(
        self,
        topic: str,
        start: int | None = None,
        *,
        end: int | None = None,
        max_staleness: float | None = None,
        node: str | None = None,
        stream: int | None = None,
    ) -> Stale[Items[Record]]:
        """Read a topic's records up to where one node has applied them; see :meth:`viewstamp.Client.read_stale`."""
        reader = self._reader(
            topic, start, end=end, node=node, staleness=as_staleness(True, max_staleness), stream=stream
        )
        await reader.begin()
        return Stale(_records(reader), reader.applied_index, reader.age_seconds)

    def watch(
        self, name: str, cls: type[Any] | None = None, *, key: str | None = None, index: int = 0
    ) -> Items[Change]:
        """Yield the commands that are applied to an actor, in order, each once; see :meth:`viewstamp.Client.watch`.

        Each change is a trio checkpoint. If the iteration is cancelled, iterate again: it continues with the next
        change and skips none.
        """
        watcher = self._watcher(name, cls, key, index)
        return Items(watcher.next_changes, lambda: None)  # Nothing is under way outside ``next_changes``.


def _records(reader: TopicReader | NamedReader) -> Items[Record]:
    chunks: Items[Any] = Items(reader.next_chunk, reader.close)

    async def fetch() -> list[Record] | None:
        item = await anext(chunks, None)
        return None if item is None else reader.cut(item)

    return Items(fetch, reader.close)


@asynccontextmanager
async def connect(
    addresses: str | Sequence[str],
    *,
    cluster_id: str = "",
    options: ClientOptions | None = None,
    tls: TlsFiles | None = None,
) -> AsyncIterator[Client]:
    """Run a client of the cluster with nodes at ``addresses`` while the context is open.

    Nothing is connected before the first call. Leaving the context closes the client: appends that were never sent
    get ClosedError, sent ones OutcomeUnknownError. An exception of the body is raised unchanged.

    Args:
      addresses: ``"host:port,host:port"`` or a sequence; any members, the others are found from there.
      cluster_id: the client refuses any other cluster; "" = any cluster.
      options: how to batch, wait and retry.
      tls: the client's certificate, for a cluster with TLS; see :func:`viewstamp.connect`. None = without TLS.

    Raises:
      ConfigError: an address has another shape, or a file of ``tls`` is wrong.
    """
    certificate = None if tls is None else Tls(tls)

    def make(runtime: TrioRuntime, network: Dialer) -> Client:
        if certificate is not None:
            network = TrioTlsNetwork(network, certificate)
        return Client(runtime, addresses, network=network, cluster_id=cluster_id, options=options)

    async with run_client(make) as client:
        yield client


@asynccontextmanager
async def run_client(make: Callable[[TrioRuntime, Dialer], ClientT]) -> AsyncIterator[ClientT]:
    """Run the client that ``make`` returns, in a nursery of its own."""
    async with inner_nursery() as nursery:
        runtime = TrioRuntime(nursery.start_soon)
        client = make(runtime, shared().network)
        nursery.start_soon(runtime.run)
        try:
            yield client
        finally:
            client.end()
