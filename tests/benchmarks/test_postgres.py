"""The client of PostgreSQL: responses belong to their inserts however the stream is divided, and a lost one fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from benchmarks.peers.postgres import _Connection
from viewstamp.errors import UnavailableError

INSERTED = b"2\0\0\0\x04C\0\0\0\x0fINSERT 0 1\0Z\0\0\0\x05I"
REFUSED = b"E\0\0\0\x1aSERROR\0Mdisk is full\0\0Z\0\0\0\x05I"
NOTICE = b"N\0\0\0\x05\0"


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[_Connection, asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield a connection, and the streams of its server."""
    accepted: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Future()
    server = await asyncio.start_server(lambda *streams: accepted.set_result(streams), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _, connection = await asyncio.get_running_loop().create_connection(_Connection, "127.0.0.1", port)
    reader, writer = await accepted
    try:
        yield connection, reader, writer
    finally:
        connection.close()
        writer.close()
        server.close()


async def test_an_answer_belongs_to_its_insert_wherever_the_stream_is_cut() -> None:
    """Three inserts are unanswered and the second is refused; the server's bytes arrive one by one, and all at once."""
    answers = INSERTED + NOTICE + REFUSED + INSERTED
    for size in (1, 7, len(answers)):
        async with connected() as (connection, _, _writer):
            futures = [connection.append(b"value") for _ in range(3)]
            for at in range(0, len(answers), size):
                connection.data_received(answers[at : at + size])
            found = await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), 5)
            assert [type(each) for each in found] == [list, UnavailableError, list]
            assert "disk is full" in str(found[1])


async def test_an_insert_is_one_bind_one_execute_and_one_sync() -> None:
    """Each insert is a transaction of its own. Without a Sync after each, several inserts would share one."""
    async with connected() as (connection, reader, writer):
        future = connection.append(b"\0value")
        kinds = []
        for _ in range(3):
            head = await reader.readexactly(5)
            body = await reader.readexactly(int.from_bytes(head[1:], "big") - 4)
            kinds.append((head[:1], b"\0\0\0\x06\0value" in body))
        assert kinds == [(b"B", True), (b"E", False), (b"S", False)]
        writer.write(INSERTED)
        assert await asyncio.wait_for(future, 5) == []


async def test_unanswered_inserts_fail_when_the_server_closes_the_connection() -> None:
    """Otherwise one caller would block the whole measurement."""
    async with connected() as (connection, _, writer):
        future = connection.append(b"value")
        writer.close()
        with pytest.raises(UnavailableError, match="closed the connection"):
            await future
        with pytest.raises(UnavailableError, match="closed the connection"):
            await connection.append(b"value")
