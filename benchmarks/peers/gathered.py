"""A connection that sends all records of a turn of the loop in one request, and gathers more until the response.

It is for servers that handle the requests of a connection one after the other, because further requests of one record
each would only wait there.
"""

from __future__ import annotations

import abc
import asyncio
from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Self, cast

from viewstamp.errors import UnavailableError

__all__ = ["GatheredConnection", "Outcome", "PeerConnection", "varint"]

_CONNECT_SECONDS = 2.0
_SILENCE_SECONDS = 10.0

Outcome = str | None
"""The outcome of an append: None = the record was written; otherwise the server's error."""


_Held = tuple[bytes, asyncio.Future[None]]


class PeerConnection(asyncio.Protocol):
    """A connection to a server of a peer. ``connection_lost`` fails all calls that have no answer."""

    _transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is no subclass of asyncio's.

    async def close(self) -> None:
        """Close the connection; calls that have no answer fail."""
        self._transport.close()
        self.connection_lost(None)


class GatheredConnection(PeerConnection, abc.ABC):
    """Appends over one connection. Subclasses encode a request and decode its answer."""

    requests_max: ClassVar[int] = 1
    """Requests that may be unanswered at the same time."""
    bytes_max: ClassVar[int] = 800_000
    """Bytes of values in one request, because Kafka refuses batches above a megabyte. A single value may be longer."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._held: list[_Held] = []
        self._sent: deque[list[asyncio.Future[None]]] = deque()
        self._received = b""
        self._error: Exception | None = None
        self._silence: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, address: str) -> Self:
        """Connect; raises OSError if no server answers."""
        host, _, port = address.rpartition(":")
        opening = asyncio.get_running_loop().create_connection(cls, host, int(port))
        _, connection = await asyncio.wait_for(opening, _CONNECT_SECONDS)
        return connection

    @abc.abstractmethod
    def encode(self, values: Sequence[bytes]) -> bytes:
        """Return the request that appends ``values``."""

    @abc.abstractmethod
    def decode(self, received: bytes, count: int) -> tuple[int, Sequence[Outcome]] | None:
        """Return the size of the first answer, and the outcome of its ``count`` records; None = it is incomplete."""

    def append(self, value: bytes) -> asyncio.Future[None]:
        """Append a record; the future is done when the server has acknowledged it, UnavailableError if it refused."""
        answer: asyncio.Future[None] = self._loop.create_future()
        if self._error is not None:
            answer.set_exception(self._error)
            return answer
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append((value, answer))
        return answer

    def data_received(self, data: bytes) -> None:
        """Settle the records of each answer that is complete."""
        self._received += data
        while self._sent and (found := self.decode(self._received, len(self._sent[0]))) is not None:
            size, outcomes = found
            self._received = self._received[size:]
            for answer, outcome in zip(self._sent.popleft(), outcomes, strict=True):
                if answer.done():
                    continue
                if outcome is None:
                    answer.set_result(None)
                else:
                    answer.set_exception(UnavailableError(f"the server refuses a record: {outcome}"))
            self._watch()
        if self._held:
            self._flush()

    def connection_lost(self, exception: Exception | None) -> None:
        """Fail all records that are not acknowledged."""
        self._error = self._error or exception or ConnectionResetError("the connection was closed")
        if self._silence is not None:
            self._silence.cancel()
        waiting = [answer for answers in self._sent for answer in answers] + [answer for _, answer in self._held]
        self._sent.clear()
        self._held.clear()
        for answer in waiting:
            if not answer.done():
                answer.set_exception(self._error)

    def _flush(self) -> None:
        while self._held and len(self._sent) < self.requests_max:
            records, self._held = self._split()
            self._transport.write(self.encode([value for value, _ in records]))
            self._sent.append([answer for _, answer in records])
            self._watch()

    def _split(self) -> tuple[list[_Held], list[_Held]]:
        """Return the records of the next request, and the rest of the records."""
        size = 0
        for number, (value, _) in enumerate(self._held):
            size += len(value)
            if size > self.bytes_max and number:
                return self._held[:number], self._held[number:]
        return self._held, []

    def _watch(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
        self._silence = self._loop.call_later(_SILENCE_SECONDS, self._on_silence) if self._sent else None

    def _on_silence(self) -> None:
        self.connection_lost(UnavailableError(f"the server has answered nothing for {_SILENCE_SECONDS:g} s"))
        self._transport.abort()


def varint(number: int) -> bytes:
    """Return a number from 0 on in groups of seven bits, as protobuf and Kafka encode it."""
    groups = bytearray()
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    groups.append(number)
    return bytes(groups)
