"""viewstamp: three nodes with the default settings and without fault switches, as in production, and a client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

from benchmarks.actors import Counter
from benchmarks.peers.peer import Peer, Reader, Session
from viewstamp.client import Client
from viewstamp.client.options import ClientOptions
from viewstamp.errors import UnavailableError
from viewstamp.local.cluster import LocalCluster
from viewstamp.wire.commands import encode_arguments
from viewstamp.wire.requests import QueryActor

__all__ = ["Ours", "OursWithTls"]

_TOPIC = "bench"
_WAIT_SECONDS = 30.0
_POLL_SECONDS = 0.02


class Ours(Peer):
    """Three node processes. Each session is a client of its own, in the process of the callers."""

    name = "viewstamp"
    client = "viewstamp's own, asyncio on uvloop; the sessions of a process share connections"
    session_noun = "session"
    has_tls: ClassVar[bool] = False
    version = version("viewstamp")

    def __init__(self, *, nodes: int = 3, settings: Mapping[str, str] | None = None, chaos: bool = False) -> None:
        """``settings``: those of the new cluster, ``section.key`` to text. ``chaos``: whether it has fault switches."""
        self._nodes, self._settings, self._chaos = nodes, settings, chaos
        self._cluster: LocalCluster | None = None

    async def start(self, directory: Path) -> None:
        """Start the nodes and create a topic. See :class:`Peer`."""
        self._cluster = LocalCluster.open_or_create(
            directory, self._nodes, self._settings, chaos=self._chaos, tls=self.has_tls
        )
        await self._cluster.start(_WAIT_SECONDS)
        async with self._cluster.target.connect() as client:
            await client.create_topic(_TOPIC)
            receipt = await client.append(_TOPIC, b"first")
        self.durability = receipt.durability

    async def connect_to(self, server: str) -> Session:
        """Return a client. ``server`` is ignored, because a client has all addresses and finds the leader itself."""
        client = self.cluster.target.connect()
        await _begin(client, client.describe_topic(_TOPIC))
        return Session(partial(client.append, _TOPIC), client.close)

    async def connect_apart(self, number: int) -> Session:
        """Return a client whose options depend on ``number``, because clients of equal options share connections."""
        client = self.cluster.target.connect(options=ClientOptions(silence=ClientOptions().silence + number / 1e6))
        await _begin(client, client.describe_topic(_TOPIC))
        return Session(partial(client.append, _TOPIC), client.close)

    async def connect(self) -> Session:
        """Return a client."""
        return await self.connect_to("")

    async def reader(self, server: str) -> Reader:
        """Return queries of the actor "counter", which the settings name, on one node."""
        client = self.cluster.target.connect()
        await _begin(client, client.actor("counter", Counter).add(1))
        query = QueryActor(
            actor="counter", key="", method="read", arguments=encode_arguments([], {}), stale=False, applied_index=0
        )
        # The client itself prefers the leader for linearizable reads.
        return Reader(partial(client._router.ask, query, node=server), client.close)

    async def stand_by(self) -> list[Session]:
        """Return one client, because it finds every new leader."""
        return [await self.connect()]

    def pids(self) -> dict[str, int]:
        """Return the running nodes, and their process ids."""
        nodes = [] if self._cluster is None else self._cluster.nodes.values()
        return {str(node.id): pid for node in nodes if (pid := node.pid()) is not None}

    async def leader(self) -> str:
        """Return the leader, by a request to the nodes."""
        deadline = time.monotonic() + _WAIT_SECONDS
        async with self.cluster.target.connect() as client:
            while time.monotonic() < deadline:
                for status in await client.status():
                    if status.get("role") == "leader":
                        return str(status["id"])
                await asyncio.sleep(_POLL_SECONDS)
        raise UnavailableError(f"no node leads for {_WAIT_SECONDS:g} s", remedy="look into the logs of the nodes")

    async def kill(self, server: str) -> None:
        """End a node by SIGKILL."""
        await self.cluster.node(server).kill()

    async def start_again(self) -> None:
        """Start the nodes that do not run."""
        self.cluster.spawn_missing()

    @property
    def cluster(self) -> LocalCluster:
        """The local cluster, for measurements that other peers do not have."""
        assert self._cluster is not None, "it is started first"
        return self._cluster


async def _begin(client: Client, first: Awaitable[object]) -> None:
    """Await a client's first request, and close the client if that fails: the caller gets nothing to close."""
    try:
        await first
    except BaseException:
        await client.close()
        raise


class OursWithTls(Ours):
    """The same, with certificates and TLS on every connection. Needs the library ``cryptography``."""

    name = "viewstamp with TLS"
    has_tls = True
