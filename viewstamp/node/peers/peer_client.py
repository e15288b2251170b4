"""Requests to another member over a connection of their own: the handshake of a peer, then one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from viewstamp.errors import FrameError, LostDiskError, PeerError, TrimmedError, UnavailableError, ViewstampError
from viewstamp.host.interfaces import Connection, Network
from viewstamp.ids import NodeId
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.frame import Frame, FrameDecoder, FrameKind, encode_frame
from viewstamp.wire.handshake import Opening, read_members
from viewstamp.wire.schema import RequestBody

__all__ = ["LostError", "PeerSession", "refusal_of"]

_ANSWER_SECONDS = 10.0


class LostError(UnavailableError):
    """The other member repairs its log as well, and has lost the requested records."""


_ERRORS: dict[str, type[ViewstampError]] = {each.__name__: each for each in (TrimmedError, LostError)}
"""The errors of an answer that are raised as themselves; all others are raised as PeerError."""


class PeerSession:
    """One connection to one member; :meth:`open` it, :meth:`ask`, :meth:`close`.

    Invariants:
      * one request at a time; an answer to an earlier one is dropped
    """

    def __init__(self, peer: NodeId, hello: dict[str, object]) -> None:
        self.peer = peer
        self._opening = Opening(hello, peer, refused=refusal_of, is_meant=lambda found: found == peer)
        self._decoder = FrameDecoder()
        self._connection: Connection | None = None
        self._answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._closed: BaseException | None = None
        self._number = 0

    @classmethod
    async def open(cls, network: Network, address: str, peer: NodeId, hello: dict[str, object]) -> PeerSession:
        """Connect to ``peer`` at ``address``. Raises OSError or TimeoutError if it does not answer."""
        session = cls(peer, hello)
        async with asyncio.timeout(_ANSWER_SECONDS):
            await network.connect(address, session._accept)
        return session

    @property
    def members(self) -> tuple[dict[str, str], int] | None:
        """The members (id to address) and their generation, as the other side's WELCOME named them; None = it did not.

        Raises:
          PeerError: it names them in another form.
        """
        welcome = self._opening.welcome
        return read_members(welcome.members) if welcome is not None and welcome.members is not None else None

    async def ask(self, request: RequestBody) -> Frame:
        """Send a request, and return the answer.

        Raises:
          TrimmedError: the peer does not keep the requested records any more.
          LostError: the peer has lost them.
          PeerError: refused, or the connection has ended.
          TimeoutError: no answer; close the session.
        """
        if self._closed is not None or self._connection is None:
            raise PeerError(f"{self.peer} closed the connection") from self._closed
        self._number += 1
        self._answer = asyncio.get_running_loop().create_future()
        self._connection.send(encode_frame(request.kind, {"id": self._number, **request.to_map()}))
        async with asyncio.timeout(_ANSWER_SECONDS):
            return await self._answer

    def close(self) -> None:
        """End the connection. Idempotent."""
        if self._connection is not None:
            self._connection.abort()

    def _accept(self, connection: Connection) -> PeerSession:
        """Take the connection, and send the HELLO."""
        self._connection = connection
        connection.send(self._opening.frame)
        return self

    def on_bytes(self, data: bytes) -> None:
        """Decode the received bytes."""
        for frame in self._decoder.feed(data):
            body: Any = frame.body
            if not isinstance(body, dict):
                raise FrameError(f"{self.peer} sent a frame of kind {frame.kind} that is no map: {brief_repr(body)}")
            certificate = self._connection.identity if self._connection is not None else None
            if (
                not self._opening.receive(frame, certificate)
                and body.get("id") == self._number
                and not self._answer.done()
            ):
                if frame.kind == FrameKind.OK:
                    self._answer.set_result(frame)
                elif frame.kind == FrameKind.ERROR:
                    error = _ERRORS.get(str(body.get("error")), PeerError)
                    self._answer.set_exception(error(_text_of(body, "message"), remedy=_text_of(body, "remedy")))

    def on_closed(self, error: BaseException | None) -> None:
        """Fail the request that waits for an answer."""
        self._closed = error or PeerError(f"{self.peer} closed the connection")
        if not self._answer.done():
            self._answer.set_exception(self._closed)
            self._answer.exception()  # Marks it as retrieved, because the caller may have been cancelled.


def refusal_of(body: Mapping[str, Any]) -> PeerError:
    """Return the error that a REFUSED of a member stands for."""
    kind = LostDiskError if body.get("error") == LostDiskError.__name__ else PeerError
    return kind(_text_of(body, "message"), remedy=_text_of(body, "remedy"))


def _text_of(body: Mapping[str, Any], name: str) -> str:
    """Return a text field of a received map; a value that is not a text is shown as its repr."""
    value = body.get(name)
    return value if isinstance(value, str) else brief_repr(value)
