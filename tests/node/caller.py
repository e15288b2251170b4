"""A hand-made connection to a node, which sends arbitrary bytes and reads frames."""

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
    """One connection to a node. Every wait is bounded."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []
        self._requests = 0

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        """Wait until the node has taken most of the written bytes."""
        await self._writer.drain()

    def send(self, kind: int, body: object, payload: Buffer = b"") -> None:
        self.write(b"".join(encode_frame(kind, body, [payload])))

    async def frame(self) -> Frame:
        """Return the next frame. Raises EOFError if the node has closed the connection."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self._frames:
                data = await self._reader.read(65536)
                if not data:
                    raise EOFError
                self._frames = self._decoder.feed(data)
            return self._frames.pop(0)

    async def is_ended(self) -> bool:
        """Wait for the end of the connection; return False if a frame arrives instead."""
        try:
            await self.frame()
        except (EOFError, ConnectionResetError):
            return True
        return False

    async def hello(self, **changes: object) -> Frame:
        """Send a HELLO and return the answer."""
        self.send(FrameKind.HELLO, {**HELLO, **changes})
        return await self.frame()

    async def ask(self, kind: int, payload: Buffer = b"", **fields: object) -> Frame:
        """Send a request and return the answer, after checking that it carries the request's id."""
        self._requests += 1
        self.send(kind, {"id": self._requests, **fields}, payload)
        answer = await self.frame()
        assert answer.body["id"] == self._requests
        return answer

    async def refusal(self, kind: int, payload: Buffer = b"", **fields: object) -> str:
        """Send a request that the node must refuse; return the name of the error."""
        answer = await self.ask(kind, payload, **fields)
        assert answer.kind == FrameKind.ERROR, answer.body
        assert answer.body["message"]
        return str(answer.body["error"])


@asynccontextmanager
async def call(group: Group, name: str = "n1", *, greet: bool = True) -> AsyncIterator[Caller]:
    """Connect to a member. Unless ``greet`` is False, the handshake of a client is done first."""
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
    """Return the body of an OK frame."""
    assert frame.kind == FrameKind.OK, frame.body
    body: dict[str, Any] = frame.body
    return body
