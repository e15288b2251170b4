"""Three real nodes on an event loop in a thread. Spark's processes connect to them; a test calls methods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.in_thread import InThread, in_thread
from viewstamp.client import Client, TopicInfo
from viewstamp.config import make_certificates
from viewstamp.embed.connect import connect
from viewstamp.embed.local_cluster import ClusterHandle, local_cluster
from viewstamp.host.tls import TlsFiles
from viewstamp.wire.batch import Record

__all__ = ["RunningCluster", "SecuredCluster", "running_cluster", "secured_cluster"]

ResultT = TypeVar("ResultT")


class RunningCluster:
    """The operations on a cluster for tests that do not await. Safe to use from any thread."""

    def __init__(self, cluster: InThread[ClusterHandle]) -> None:
        self._cluster = cluster
        self._handle = handle = cluster.held
        self._client: Client = cluster.call(handle.client)
        self.addresses = ",".join(handle.address(node) for node in handle.ids)
        """The value of ``option("cluster", ...)``."""

    def run(self, question: Callable[[Client], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """Run a question that a client has to await: ``run(lambda client: client.list_sinks())``."""
        return self._cluster.run(question(self._client))

    def create_topic(self, name: str) -> None:
        self.run(lambda client: client.create_topic(name))

    def describe(self, topic: str) -> TopicInfo:
        return self.run(lambda client: client.describe_topic(topic))

    def append(self, topic: str, values: list[bytes]) -> None:
        async def append(client: Client) -> None:
            await asyncio.gather(*(client.append(topic, value) for value in values))

        self.run(append)

    def read(self, topic: str) -> list[Record]:
        """Return all records that a reader sees now, in order."""

        async def read(client: Client) -> list[Record]:
            return [record async for record in client.read(topic)]

        return self.run(read)

    def values(self, topic: str) -> list[bytes]:
        return [record.value for record in self.read(topic)]

    @property
    def nodes(self) -> list[str]:
        """The running nodes."""
        return list(self._handle.nodes)

    @property
    def leader(self) -> str:
        """Return the leader, as the running nodes report it; wait until there is one."""

        async def leader() -> str:
            while True:
                for node in self._handle.nodes.values():
                    if node.node_status["role"] == "leader":
                        return str(node.id)
                await asyncio.sleep(0.01)

        return self._cluster.run(leader())

    def stop(self, node: str) -> None:
        """Stop a node; its files stay."""
        self._cluster.run(self._handle.stop(node))

    def start(self, *nodes: str) -> None:
        """Start nodes that were stopped, all at once, and wait until they are RUNNING."""

        async def start() -> None:
            await asyncio.gather(*map(self._handle.start, nodes))

        self._cluster.run(start())

    def directory(self, node: str) -> str:
        """Return the directory of a node's files."""
        return str(self._handle.directory / node)


@contextmanager
def running_cluster(
    *, nodes: int = 3, groups: int = 0, settings: Mapping[str, object] | None = None
) -> Iterator[RunningCluster]:
    """Run a cluster in a temporary directory, on free ports, until the context is left.

    ``groups``: how many groups beside group 0 are established first, ``own1`` and so on.
    """

    async def place(client: Client) -> None:
        for number in range(1, groups + 1):
            await client.place_group(f"own{number}")
        while not all(group.is_established for group in await client.list_groups()):
            pass

    with in_thread(lambda: local_cluster(nodes=nodes, settings=settings or {})) as cluster:
        running = RunningCluster(cluster)
        if groups:
            running.run(place)
        yield running


class SecuredCluster(RunningCluster):
    """A cluster with TLS that asks for tokens. Its methods act as an administrator."""

    def __init__(self, cluster: InThread[ClusterHandle], root: Path) -> None:
        super().__init__(cluster)
        self.root = root
        """The directory of the settings files and the certificates."""
        tls = self._handle.tls
        assert tls is not None
        self.tls: TlsFiles = tls
        text = self.create_token("administrator", "administer")
        self._client = cluster.call(lambda: connect(self.addresses, tls=tls, token=text))

    def close(self) -> None:
        self._cluster.run(self._client.close())

    def files(self) -> dict[str, str]:
        """Return the options that name the certificate of a client."""
        return {"tlsAuthority": self.tls.authority, "tlsCertificate": self.tls.certificate, "tlsKey": self.tls.key}

    def create_token(self, name: str, *roles: str) -> str:
        return self.run(lambda client: client.create_token(name, roles))[1]

    def revoke(self, file: str) -> None:
        """Revoke the token in a file."""
        token = Path(file).read_text(encoding="utf-8").split("_")[1]
        self.run(lambda client: client.revoke_token(token))

    def replace_authority(self) -> None:
        """Replace all certificates by those of another authority, so that earlier ones open no connection any more."""
        running = self.nodes
        for node in running:
            self.stop(node)
        for file in ("ca.pem", "ca.key"):
            (self.root / "tls" / file).unlink()
        make_certificates(str(self.root), clients=[Path(self.tls.key).stem], renew=True)
        self.start(*running)


@contextmanager
def secured_cluster(root: Path) -> Iterator[SecuredCluster]:
    """Run a cluster with TLS and tokens in a directory that stays, until the context is left."""
    with in_thread(lambda: local_cluster(nodes=3, tls=True, directory=root)) as cluster:
        secured = SecuredCluster(cluster, root)
        try:
            yield secured
        finally:
            secured.close()
