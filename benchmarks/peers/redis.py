"""Redis: a primary and two replicas that sync their append-only files; XADD to a stream, and WAIT for a replica."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.peers.gathered import GatheredConnection, Outcome
from benchmarks.peers.peer import Session, Spawned
from benchmarks.peers.processes import Servers, find_program, free_ports, program_version

__all__ = ["Redis", "RedisConnection"]

_PRIMARY = "primary"
_REPLICAS = ("replica1", "replica2")
_START_SECONDS = 30.0
_LOOK_SECONDS = 0.05
_WAIT_MS = 5000
_SETTINGS = ("--appendonly", "yes", "--appendfsync", "always", "--save", "", "--bind", "127.0.0.1")


class Redis(Spawned):
    """Three servers. No replica becomes the primary by itself when the primary ends."""

    name = "Redis"
    durability = (
        "primary and 2 replicas, appendfsync: always on each; WAIT 1: one replica has the record in memory, and Redis "
        "does not promise that it has synced it"
    )
    client = "our own client, XADD of all records of a turn of the loop and one WAIT 1"

    def __init__(self) -> None:
        self._program = find_program("redis-server")
        self._addresses: dict[str, str] = {}
        self.version = program_version([self._program, "--version"]) if self._program else ""

    def absent(self) -> str:
        """Return a message if the server is not installed; "" = it is."""
        return "" if self._program else "no redis-server on the PATH"

    async def start(self, directory: Path) -> None:
        """Start the primary and two replicas, and wait until both follow. See :class:`Peer`."""
        assert self._program is not None, self.absent()
        servers = self._servers = Servers(directory)
        names = (_PRIMARY, *_REPLICAS)
        self._addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(3), strict=True)}
        primary_port = self._addresses[_PRIMARY].rpartition(":")[2]
        for name, address in self._addresses.items():
            (directory / name).mkdir(parents=True, exist_ok=True)
            of = () if name == _PRIMARY else ("--replicaof", "127.0.0.1", primary_port)
            port = address.rpartition(":")[2]
            servers.spawn(name, [self._program, "--port", port, "--dir", str(directory / name), *_SETTINGS, *of])
        for name, address in self._addresses.items():
            await servers.wait_listening(name, address)
        await self._until_both_follow()
        await self.first_acknowledged(b"first", timeout=_START_SECONDS)

    async def connect_to(self, server: str) -> Session:
        """Connect to a server; only the primary accepts records."""
        connection = await RedisConnection.open(self._addresses[server])
        return Session(connection.append, connection.close)

    async def leader(self) -> str:
        """Return the primary."""
        return _PRIMARY

    async def _until_both_follow(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        host, _, port = self._addresses[_PRIMARY].rpartition(":")
        while time.monotonic() < deadline:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(host, int(port))
                try:
                    writer.write(b"INFO replication\r\n")
                    size = int((await reader.readline())[1:])
                    if (await reader.readexactly(size)).count(b"state=online") == len(_REPLICAS):
                        return
                finally:
                    writer.close()
            await asyncio.sleep(_LOOK_SECONDS)
        raise self.servers.error(_REPLICAS[0], f"does not follow within {_START_SECONDS:g} s")


class RedisConnection(GatheredConnection):
    """A connection with one request at a time, because Redis executes no other command of it during a WAIT."""

    def encode(self, values: Sequence[bytes]) -> bytes:
        """Return a request: an XADD for each record, and one WAIT."""
        added = [
            b"*5\r\n$4\r\nXADD\r\n$5\r\nbench\r\n$1\r\n*\r\n$1\r\nv\r\n$%d\r\n%b\r\n" % (len(v), v) for v in values
        ]
        return b"%bWAIT 1 %d\r\n" % (b"".join(added), _WAIT_MS)

    def decode(self, received: bytes, count: int) -> tuple[int, Sequence[Outcome]] | None:
        """Return the size of the response and the outcomes: an id or an error for each record, and the replicas."""
        lines = received.split(b"\r\n")
        last = len(lines) - 1  # The bytes after the last line break are an incomplete line.
        at = size = 0
        outcomes: list[Outcome] = []
        for _ in range(count):
            taken = 2 if lines[at].startswith(b"$") else 1
            if at + taken > last:
                return None
            outcomes.append(lines[at][1:].decode("utf-8", "replace") if taken == 1 else None)
            at += taken
        if at + 1 > last:
            return None
        size = sum(len(line) + 2 for line in lines[: at + 1])
        if lines[at].startswith(b":") and int(lines[at][1:]) >= 1:
            return size, outcomes
        return size, [f"no replica has it: {lines[at].decode('utf-8', 'replace')}"] * count
