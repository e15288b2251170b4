"""A connection to a node by hand: any bytes in, frames out. What a real client or peer would never send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.node.group import CLUSTER, PATIENCE_SECONDS, Group
from viewstamp.ids import NodeId
from viewstamp.wire.batch import Buffer
from viewstamp.wire.frame import PROTOCOL_VERSION, Frame, FrameDecoder, FrameKind, encode_frame

HELLO: dict[str, object] = {"cluster": CLUSTER, "node": "", "incarnation": "", "version": PROTOCOL_VERSION}


class Caller:
    """One connection. Every wait is bounded."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []
        self._requests = 0

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def send(self, kind: int, body: object, payload: Buffer = b"") -> None:
        self.write(b"".join(encode_frame(kind, body, [payload])))

    async def frame(self) -> Frame:
        """Return the next frame. Raises EOFError: the node has ended the connection."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self._frames:
                data = await self._reader.read(65536)
                if not data:
                    raise EOFError
                self._frames = self._decoder.feed(data)
            return self._frames.pop(0)

    async def is_ended(self) -> bool:
        """Wait for the end of the connection; False where a frame comes instead."""
        try:
            await self.frame()
        except (EOFError, ConnectionResetError):
            return True
        return False

    async def hello(self, **changes: object) -> Frame:
        """Shake hands; return the answer."""
        self.send(FrameKind.HELLO, {**HELLO, **changes})
        return await self.frame()

    async def ask(self, kind: int, payload: Buffer = b"", **fields: object) -> Frame:
        """Send a request, and return the answer, which must be its own."""
        self._requests += 1
        self.send(kind, {"id": self._requests, **fields}, payload)
        answer = await self.frame()
        assert answer.body["id"] == self._requests
        return answer

    async def refusal(self, kind: int, payload: Buffer = b"", **fields: object) -> str:
        """Send a request that must be refused; return the name of the error."""
        answer = await self.ask(kind, payload, **fields)
        assert answer.kind == FrameKind.ERROR, answer.body
        assert answer.body["message"]
        return str(answer.body["error"])


@asynccontextmanager
async def call(group: Group, name: str = "n1", *, greet: bool = True) -> AsyncIterator[Caller]:
    """Connect to a member, as a client that has shaken hands unless ``greet`` is False."""
    host, port = group.board.ports[group.members[NodeId(name)]].rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    caller = Caller(reader, writer)
    try:
        if greet:
            assert (await caller.hello()).kind == FrameKind.WELCOME
        yield caller
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


def body_of(frame: Frame) -> dict[str, Any]:
    """Return the body of an OK."""
    assert frame.kind == FrameKind.OK, frame.body
    body: dict[str, Any] = frame.body
    return body
