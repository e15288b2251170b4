"""The clients of Redis, rqlite and Kafka: each response settles the records of its request, however it is divided."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from crc32c import crc32c

from benchmarks.peers.gathered import GatheredConnection
from benchmarks.peers.kafka import KafkaConnection
from benchmarks.peers.redis import RedisConnection
from benchmarks.peers.rqlite import RqliteConnection
from viewstamp.errors import UnavailableError


def kafka_answer(number: int, error: int) -> bytes:
    body = struct.pack(">iih", number, 1, 5) + b"bench" + struct.pack(">iihqqqi", 1, 0, error, 0, -1, 0, 0)
    return struct.pack(">i", len(body)) + body


def http_answer(status: str, body: bytes, *, chunked: bool) -> bytes:
    if not chunked:
        return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status.encode(), len(body), body)
    pieces = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (body[:5], body[5:], b""))
    return b"HTTP/1.1 %b\r\nTransfer-Encoding: chunked\r\n\r\n%b" % (status.encode(), pieces)


REDIS = (b"$5\r\n1-0-0\r\n-OOM no memory\r\n$3\r\n1-1\r\n:1\r\n", b"$3\r\n1-2\r\n:0\r\n")
RESULTS = b'{"results":[{"last_insert_id":1},{"error":"disk full"},{"last_insert_id":2}]}'

ANSWERS = {
    RedisConnection: ((*REDIS,), [None, "no memory", None], "no replica"),
    RqliteConnection: (
        (http_answer("200 OK", RESULTS, chunked=True), http_answer("503 Gone", b"no leader", chunked=False)),
        [None, "disk full", None],
        "503",
    ),
    KafkaConnection: ((kafka_answer(0, 0), kafka_answer(1, 6)), [None, None, None], "error 6"),
}
"""The responses to a request with three records and to one with one record, and the errors."""


@asynccontextmanager
async def connected(
    kind: type[GatheredConnection], answers: Sequence[bytes]
) -> AsyncIterator[tuple[GatheredConnection, list[bytes]]]:
    """Yield a connection to a server that answers each read with the next of ``answers``, until there are none left."""
    requests: list[bytes] = []
    ended = asyncio.Event()
    remaining = iter(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            requests.append(data)
            for byte in next(remaining, b""):
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()
        await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        connection = await kind.open(f"127.0.0.1:{port}")
        yield connection, requests
        await connection.close()
        await asyncio.wait_for(ended.wait(), 5)


@pytest.mark.parametrize("kind", ANSWERS, ids=lambda kind: kind.__name__)
async def test_each_record_has_the_outcome_that_its_answer_states(kind: type[GatheredConnection]) -> None:
    """A record that was refused must not count as written."""
    answers, outcomes, error = ANSWERS[kind]
    async with connected(kind, answers) as (connection, requests):
        records = [connection.append(value) for value in (b"one", b"two", b"three")]
        found = await asyncio.wait_for(asyncio.gather(*records, return_exceptions=True), 5)
        assert len(requests) == 1
        for each, outcome in zip(found, outcomes, strict=True):
            assert (each is None) == (outcome is None), each
            assert outcome is None or outcome in str(each)
        with pytest.raises(UnavailableError, match=error):
            await asyncio.wait_for(connection.append(b"four"), 5)


async def test_records_are_gathered_while_a_request_is_under_way_and_fail_with_the_connection() -> None:
    async with connected(RedisConnection, [b"", b""]) as (connection, requests):
        first = connection.append(b"one")
        while not requests:  # noqa: ASYNC110 - the server in this process fills the list
            await asyncio.sleep(0.001)
        second = connection.append(b"two")
        await asyncio.sleep(0)
        await connection.close()
        for each in (first, second, connection.append(b"three")):
            with pytest.raises(ConnectionResetError):
                await each
        assert len(requests) == 1


async def test_a_request_has_no_more_bytes_than_the_server_takes() -> None:
    async with connected(KafkaConnection, [kafka_answer(0, 0) + kafka_answer(1, 0)]) as (connection, requests):
        records = [connection.append(bytes(500_000)), connection.append(bytes(500_000))]
        await asyncio.wait_for(asyncio.gather(*records), 5)
        sent = b"".join(requests)
        assert int.from_bytes(sent[:4], "big") < 600_000


async def test_a_batch_for_kafka_has_the_checksum_and_the_lengths_of_its_format() -> None:
    connection = KafkaConnection()
    request = connection.encode([b"a" * 100, b"b"])
    (size,) = struct.unpack_from(">i", request)
    assert size == len(request) - 4
    batch = request[request.index(struct.pack(">qi", 0, 0)[:8]) :]
    _, length, epoch, magic, checksum = struct.unpack_from(">qiibI", batch)
    assert (epoch, magic, length) == (-1, 2, len(batch) - 12)
    assert checksum == crc32c(batch[21:])
    records = batch[61:]
    assert records == (
        b"\xd6\x01\0\0\0\x01\xc8\x01" + b"a" * 100 + b"\0" + b"\x0e\0\0\x02\x01\x02b\0"  # zigzag lengths: 107, 7
    )
