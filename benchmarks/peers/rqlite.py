"""rqlite: three members, SQLite behind a Raft log; an INSERT for each record over its HTTP interface."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.peers.gathered import GatheredConnection, Outcome
from benchmarks.peers.peer import Session, Spawned
from benchmarks.peers.processes import Servers, find_program, free_ports
from viewstamp.errors import UnavailableError

__all__ = ["Rqlite", "RqliteConnection"]

_NAMES = ("n1", "n2", "n3")
_START_SECONDS = 60.0
_ASK_SECONDS = 2.0
_LOOK_SECONDS = 0.1
_TABLE = "CREATE TABLE records (position INTEGER PRIMARY KEY, value TEXT NOT NULL)"
_INSERT = "INSERT INTO records (value) VALUES (?)"


class Rqlite(Spawned):
    """Three members. A member that does not lead forwards requests."""

    name = "rqlite"
    durability = "3 members, each syncs its Raft log before it answers (the default); SQLite itself is not synced"
    client = "our own HTTP client, the INSERTs of a turn of the loop in one request, values as base64"

    def __init__(self) -> None:
        self._program = find_program("rqlited")
        self._addresses: dict[str, str] = {}

    def absent(self) -> str:
        """Return a message if the server is not installed; "" = it is."""
        return "" if self._program else "no rqlited on the PATH"

    async def start(self, directory: Path) -> None:
        """Start three members of a new cluster, and create the table. See :class:`Peer`."""
        assert self._program is not None, self.absent()
        servers = self._servers = Servers(directory)
        ports = free_ports(2 * len(_NAMES))
        self._addresses = {name: f"127.0.0.1:{port}" for name, port in zip(_NAMES, ports, strict=False)}
        raft = dict(zip(_NAMES, (f"127.0.0.1:{port}" for port in ports[len(_NAMES) :]), strict=True))
        for name, address in self._addresses.items():
            command = [self._program, "-node-id", name, "-http-addr", address, "-raft-addr", raft[name]]
            command += ["-bootstrap-expect", str(len(_NAMES)), "-join", ",".join(raft.values())]
            servers.spawn(name, [*command, str(directory / name)])
        for name, address in self._addresses.items():
            await servers.wait_listening(name, address)
        leader = await self.leader()
        await asyncio.to_thread(_ask, self._addresses[leader], "POST", "/db/execute", [[_TABLE]])
        await self.first_acknowledged(b"first", timeout=_START_SECONDS)

    async def connect_to(self, server: str) -> Session:
        """Connect to one member."""
        connection = await RqliteConnection.open(self._addresses[server])
        return Session(connection.append, connection.close)

    async def leader(self) -> str:
        """Return the leader, by requests to the members."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            for server in self.pids():
                with suppress(OSError, ValueError, http.client.HTTPException):
                    members = await asyncio.to_thread(_ask, self._addresses[server], "GET", "/nodes")
                    reached = [name for name in _NAMES if members.get(name, {}).get("reachable")]
                    leading = [name for name in reached if members[name].get("leader")]
                    if leading and len(reached) == len(self.pids()):
                        return leading[0]
            await asyncio.sleep(_LOOK_SECONDS)
        raise UnavailableError(f"no member leads for {_START_SECONDS:g} s", remedy="look into the logs of rqlite")


def _ask(address: str, method: str, path: str, body: object = None) -> Any:
    connection = http.client.HTTPConnection(address, timeout=_ASK_SECONDS)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


class RqliteConnection(GatheredConnection):
    """An HTTP/1.1 connection with one request at a time, because its responses come in the order of the requests."""

    def encode(self, values: Sequence[bytes]) -> bytes:
        """Return one request with an INSERT for each record."""
        body = json.dumps([[_INSERT, base64.b64encode(value).decode()] for value in values]).encode()
        head = (
            b"POST /db/execute HTTP/1.1\r\nHost: rqlite\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        )
        return head % len(body) + body

    def decode(self, received: bytes, count: int) -> tuple[int, Sequence[Outcome]] | None:
        """Return the size of the response, and the outcome of each record."""
        head, found, rest = received.partition(b"\r\n\r\n")
        if not found:
            return None
        body, size = _body(head.lower(), rest)
        if body is None:
            return None
        status = head.partition(b"\r\n")[0].decode()
        if " 200 " not in status:
            return len(head) + 4 + size, [f"{status}: {body.decode('utf-8', 'replace')[:200]}"] * count
        results = json.loads(body)["results"]
        assert len(results) == count, f"{len(results)} results for {count} records"
        return len(head) + 4 + size, [each.get("error") for each in results]


def _body(head: bytes, rest: bytes) -> tuple[bytes | None, int]:
    """Return the body of a response, None if it is incomplete, and the number of its bytes on the wire."""
    if b"transfer-encoding: chunked" not in head:
        size = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
        return (rest[:size] if len(rest) >= size else None), size
    body, at = b"", 0
    while (end := rest.find(b"\r\n", at)) >= 0:
        size = int(rest[at:end], 16)
        if len(rest) < end + 2 + size + 2:
            return None, 0
        body, at = body + rest[end + 2 : end + 2 + size], end + 2 + size + 2
        if not size:
            return body, at
    return None, 0
