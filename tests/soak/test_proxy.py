"""A proxy forwards unless it is cut, and a cut affects no other connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.soak.proxy import CLIENT, Switchboard
from viewstamp.wire.frame import FrameDecoder, FrameKind, encode_frame

PATIENCE_SECONDS = 20


class Ends:
    """The two ends of one connection through a proxy."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> None:
        self.reader, self.writer, self.far, self.back = reader, writer, far, back


@asynccontextmanager
async def connected(opener: str) -> AsyncIterator[tuple[Switchboard, Ends]]:
    """Connect ``opener`` with a member n2 that has received its HELLO."""
    accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    server = await asyncio.start_server(lambda *streams: accepted.put_nowait(streams), "127.0.0.1", 0)
    board = Switchboard()
    host, port = server.sockets[0].getsockname()
    address = await board.open("n2", f"{host}:{port}")
    reader, writer = await asyncio.open_connection(*address.split(":"))
    hello = b"".join(encode_frame(FrameKind.HELLO, {"node": opener}))
    writer.write(hello[:7])
    await asyncio.sleep(0)
    writer.write(hello[7:])
    far, back = await accepted.get()
    (frame,) = FrameDecoder().feed(await far.readexactly(len(hello)))
    assert frame.body == {"node": opener}
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield board, Ends(reader, writer, far, back)
    finally:
        for end in (writer, back):
            end.close()
        await board.close()
        server.close()


@pytest.mark.parametrize(("opener", "name"), [("n1", "n1"), ("n1~8c21f0aa", "n1"), ("", CLIENT)])
async def test_a_cut_holds_one_direction_until_it_is_healed(opener: str, name: str) -> None:
    """The soak needs partitions of one direction, because they produce leaders that no member answers.

    The rules use names without the suffix of a new disk, so they also apply to a member that lost its disk.
    """
    async with connected(opener) as (board, ends):
        board.cut([name], ["n2"])
        ends.writer.write(b"held")
        ends.back.write(b"not held")
        assert await ends.reader.readexactly(8) == b"not held"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ends.far.read(1), 0.05)
        board.heal()
        assert await ends.far.readexactly(4) == b"held"


async def test_a_cut_between_others_is_not_noticed() -> None:
    async with connected("n1") as (board, ends):
        board.cut(["n3"], ["n1", "n2"])
        board.cut(["n1", "n2"], ["n3"])
        ends.writer.write(b"through")
        assert await ends.far.readexactly(7) == b"through"


async def test_a_slow_wire_is_late_and_keeps_the_order() -> None:
    async with connected("n1") as (board, ends):
        board.slow(["n1"], ["n2"], 0.05)
        began = asyncio.get_running_loop().time()
        for piece in (b"one ", b"two ", b"three"):
            ends.writer.write(piece)
            await asyncio.sleep(0)
        assert await ends.far.readexactly(13) == b"one two three"
        assert asyncio.get_running_loop().time() - began >= 0.05


async def test_dropped_connections_end_on_both_sides() -> None:
    async with connected("n1") as (board, ends):
        assert board.drop("n3") == 0
        assert board.drop("n1") == 1
        for reader in (ends.reader, ends.far):
            with suppress(ConnectionResetError):  # A reset ends the connection just as well.
                assert await reader.read() == b""


async def test_the_last_bytes_are_delivered_before_the_end() -> None:
    """A node that refuses a peer sends the reason and closes; without the reason, the peer would ask for ever."""
    async with connected("n1") as (_, ends):
        ends.back.write(b"no" * 1000)
        ends.back.close()
        assert await ends.reader.read() == b"no" * 1000


async def test_a_connection_to_a_member_that_is_down_ends() -> None:
    board = Switchboard()
    address = await board.open("n2", "127.0.0.1:1")
    reader, writer = await asyncio.open_connection(*address.split(":"))
    writer.writelines([bytes(piece) for piece in encode_frame(FrameKind.HELLO, {"node": "n1"})])
    with suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b""
    writer.close()
    await board.close()
