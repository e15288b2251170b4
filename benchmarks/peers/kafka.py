"""Kafka: three brokers with KRaft, one topic with one partition on all of them; each batch is synced, acks=all."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import shutil
import struct
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from crc32c import crc32c

from benchmarks.peers.gathered import GatheredConnection, Outcome, varint
from benchmarks.peers.peer import Session, Spawned
from benchmarks.peers.processes import Servers, free_ports
from viewstamp.errors import UnavailableError

__all__ = ["Kafka", "KafkaConnection"]

_NAMES = ("b1", "b2", "b3")
_TOPIC = "bench"
_START_SECONDS = 80.0
_ASK_SECONDS = 10.0
_LOOK_SECONDS = 0.2
_HEAP = "-Xmx512m"
_PRODUCE, _FETCH, _METADATA, _CREATE_TOPICS = 0, 1, 3, 19
_FETCH_BYTES = 1024 * 1024
_FETCH_WAIT_MS = 500
_TIMEOUT_MS = 5000
_SETTINGS = {"flush.messages": "1", "min.insync.replicas": "2"}

_CONFIG = """
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
listeners=PLAINTEXT://{address},CONTROLLER://{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={directory}
offsets.topic.replication.factor=3
"""


class Kafka(Spawned):
    """Three processes, each a broker and a controller. ``KAFKA_HOME`` names the directory with ``libs/*.jar``."""

    name = "Kafka"
    durability = "3 brokers, acks=all, min.insync.replicas=2, flush.messages=1: each in-sync replica syncs each batch"
    client = "our own client, the records of a turn of the loop in a batch, up to 5 requests under way"
    warm_up_seconds = 5.0

    def __init__(self) -> None:
        self._libraries = _libraries()
        self._java = shutil.which("java") or ""
        self._addresses: dict[str, str] = {}

    def absent(self) -> str:
        """Return a message if Java or Kafka is missing; "" = both are installed."""
        if not self._java:
            return "no java on the PATH"
        return "" if self._libraries is not None else "no Kafka: KAFKA_HOME names no directory with libs/kafka_*.jar"

    async def start(self, directory: Path) -> None:
        """Format three directories, start the brokers, and create the topic. See :class:`Peer`."""
        assert self._libraries is not None, self.absent()
        servers = self._servers = Servers(directory)
        ports = free_ports(2 * len(_NAMES))
        self._addresses = {name: f"127.0.0.1:{port}" for name, port in zip(_NAMES, ports, strict=False)}
        controllers = [f"127.0.0.1:{port}" for port in ports[len(_NAMES) :]]
        voters = ",".join(f"{number}@{address}" for number, address in enumerate(controllers, 1))
        cluster = _cluster_id()
        for number, (name, address) in enumerate(self._addresses.items(), 1):
            settings = _CONFIG.format(
                number=number,
                voters=voters,
                address=address,
                controller=controllers[number - 1],
                directory=directory / name,
            )
            self._file(name).write_text(settings, encoding="utf-8")
        await asyncio.gather(*(asyncio.to_thread(self._format, name, cluster) for name in _NAMES))
        for name in _NAMES:
            servers.spawn(name, self._program("kafka.Kafka", str(self._file(name))))
        for name, address in self._addresses.items():
            await servers.wait_listening(name, address, _START_SECONDS)
        await self._make_topic()

    async def connect_to(self, server: str) -> Session:
        """Connect to one broker; only the leader of the partition accepts records."""
        connection = await KafkaConnection.open(self._addresses[server])
        return Session(connection.append, connection.close)

    async def leader(self) -> str:
        """Return the leader of the partition, by requests to the brokers."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            for server in self.pids():
                with suppress(OSError, EOFError):
                    leader, in_sync = _leader(await self._ask(server, _METADATA, 1, _metadata_request()))
                    if 1 <= leader <= len(_NAMES) and in_sync == len(self.pids()):
                        return _NAMES[leader - 1]
            await asyncio.sleep(_LOOK_SECONDS)
        raise UnavailableError("no broker leads the partition", remedy="look into the logs of Kafka")

    async def read_all(self, records: int) -> int:
        """Fetch batches from the first record until there are this many records; return the number of records."""
        host, _, port = self._addresses[await self.leader()].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=2 * _FETCH_BYTES)
        try:
            offset = 0
            while offset < records:
                writer.write(_request(_FETCH, 4, 1, _fetch_request(offset)))
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                before, offset = offset, _next_offset(await reader.readexactly(size), offset)
                if offset == before:
                    raise UnavailableError(f"Kafka has no record behind {offset}", remedy="look into its logs")
            return offset
        finally:
            writer.close()

    async def _make_topic(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        error = -1
        while time.monotonic() < deadline:
            with suppress(OSError, EOFError):
                answer = await self._ask(_NAMES[0], _CREATE_TOPICS, 2, _create_request())
                (error,) = struct.unpack_from(">h", answer, 8 + 2 + len(_TOPIC))
                if error in (0, 36):  # Created now, or by an earlier request whose response was lost.
                    # The leader of the partition may learn of the topic later than this broker.
                    await self.first_acknowledged(b"first", timeout=deadline - time.monotonic())
                    return
            await asyncio.sleep(_LOOK_SECONDS)
        raise UnavailableError(f"the topic was not created: error {error}", remedy="look into the logs of Kafka")

    async def _ask(self, server: str, key: int, version: int, body: bytes) -> bytes:
        host, _, port = self._addresses[server].rpartition(":")
        async with asyncio.timeout(_ASK_SECONDS):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(_request(key, version, 1, body))
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                return (await reader.readexactly(size))[4:]
            finally:
                writer.close()

    def _file(self, name: str) -> Path:
        return self.servers.directory / f"{name}.properties"

    def _format(self, name: str, cluster: str) -> None:
        command = self._program("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._file(name)))
        done = subprocess.run(command, capture_output=True, text=True, timeout=_START_SECONDS, check=False)
        if done.returncode:
            raise UnavailableError(f"Kafka cannot format {name}: {done.stderr[-500:]}", remedy="see its message")

    def _program(self, name: str, *arguments: str) -> list[str]:
        return [self._java, _HEAP, "-cp", f"{self._libraries}/*", name, *arguments]


class KafkaConnection(GatheredConnection):
    """A connection for produce requests, which the broker answers in order."""

    requests_max = 5

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count()

    def encode(self, values: Sequence[bytes]) -> bytes:
        """Return a request with one batch."""
        batch = _batch(values)
        body = struct.pack(">hhii", -1, -1, _TIMEOUT_MS, 1) + _text(_TOPIC) + struct.pack(">iii", 1, 0, len(batch))
        return _request(_PRODUCE, 7, next(self._numbers) & 0x7FFFFFFF, body + batch)

    def decode(self, received: bytes, count: int) -> tuple[int, Sequence[Outcome]] | None:
        """Return the size of the response, and the outcome of its batch for each record."""
        if len(received) < 4:
            return None
        size = 4 + int.from_bytes(received[:4], "big")
        if len(received) < size:
            return None
        # Size, number of the request, number of topics, the topic, number of partitions, the partition.
        (error,) = struct.unpack_from(">h", received, 12 + 2 + len(_TOPIC) + 8)
        return size, [f"error {error} of Kafka's protocol" if error else None] * count


def _libraries() -> Path | None:
    home = os.environ.get("KAFKA_HOME")
    libraries = Path(home) / "libs" if home else None
    return libraries if libraries is not None and any(libraries.glob("kafka_*.jar")) else None


def _cluster_id() -> str:
    """Return 16 random bytes in Kafka's notation for ids."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _request(key: int, version: int, number: int, body: bytes) -> bytes:
    head = struct.pack(">hhi", key, version, number) + _text("bench")
    return struct.pack(">i", len(head) + len(body)) + head + body


def _metadata_request() -> bytes:
    return struct.pack(">i", 1) + _text(_TOPIC)


def _create_request(settings: Mapping[str, str] = _SETTINGS) -> bytes:
    body = struct.pack(">i", 1) + _text(_TOPIC) + struct.pack(">ihii", 1, len(_NAMES), 0, len(settings))
    body += b"".join(_text(name) + _text(value) for name, value in settings.items())
    return body + struct.pack(">ib", _TIMEOUT_MS, 0)


def _fetch_request(offset: int) -> bytes:
    head = struct.pack(">iiiibi", -1, _FETCH_WAIT_MS, 1, _FETCH_BYTES, 0, 1)
    return head + _text(_TOPIC) + struct.pack(">iiqi", 1, 0, offset, _FETCH_BYTES)


def _next_offset(answer: bytes, offset: int) -> int:
    """Return the offset after the last whole batch of a fetch response, or ``offset`` if it has none."""
    at = 4 + 4 + 4 + 2 + len(_TOPIC) + 4 + 4  # Number, throttle, topics, the topic, partitions, the partition.
    error, _, _, aborted = struct.unpack_from(">hqqi", answer, at)
    if error:
        raise UnavailableError(f"error {error} of Kafka's protocol")
    at += 22 + 16 * max(0, aborted) + 4
    while at + 61 <= len(answer):
        first, size = struct.unpack_from(">qi", answer, at)
        if at + 12 + size > len(answer):
            break
        (last,) = struct.unpack_from(">i", answer, at + 23)
        offset = first + last + 1
        at += 12 + size
    return offset


def _leader(answer: bytes) -> tuple[int, int]:
    """Return the number of the broker that leads the partition, -1 if none does, and the number of in-sync replicas."""
    at = 0

    def number(form: str) -> int:
        nonlocal at
        (found,) = struct.unpack_from(f">{form}", answer, at)
        at += struct.calcsize(form)
        return int(found)

    def skip_text() -> None:
        nonlocal at
        size = number("h")
        at += max(0, size)

    for _ in range(number("i")):  # The brokers.
        number("i")
        skip_text()
        number("i")
        skip_text()
    number("i")  # The controller.
    for _ in range(number("i")):  # The topics.
        number("h")
        skip_text()
        number("b")
        for _ in range(number("i")):  # The partitions.
            number("h")
            number("i")
            leader = number("i")
            for _ in range(number("i")):
                number("i")
            return leader, number("i")
    return -1, 0


def _varint(number: int) -> bytes:
    """Return a signed number in the encoding of Kafka's records (zigzag, seven bits a byte)."""
    return varint((number << 1) ^ (number >> 63))


def _batch(values: Sequence[bytes]) -> bytes:
    """Return a record batch of version 2 with these values."""
    records = []
    for offset, value in enumerate(values):
        # Attributes, no later than the first record, its offset, no key, the value, no headers.
        record = b"\0\0%b\x01%b%b\0" % (_varint(offset), _varint(len(value)), value)
        records.append(_varint(len(record)) + record)
    now = int(time.time() * 1000)
    summed = struct.pack(">hiqqqhii", 0, len(values) - 1, now, now, -1, -1, -1, len(values)) + b"".join(records)
    head = struct.pack(">ibI", -1, 2, crc32c(summed))
    return struct.pack(">qi", 0, len(head) + len(summed)) + head + summed
