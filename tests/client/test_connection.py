from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest

from viewstamp.client.aio import AsyncioRuntime
from viewstamp.client.connection import NodeConnection
from viewstamp.errors import PeerError
from viewstamp.host.interfaces import Buffer, Connection
from viewstamp.wire.frame import Frame, FrameDecoder, FrameKind, encode_frame
from viewstamp.wire.requests import ListTopics


class Pipe(Connection):
    """The near end of a connection whose far end is the test."""

    peer = "test"

    def __init__(self) -> None:
        self.sent: list[Frame] = []
        self._decoder = FrameDecoder()

    def send(self, buffers: Sequence[Buffer]) -> None:
        self.sent += self._decoder.feed(b"".join(buffers))

    @property
    def unsent_bytes(self) -> int:
        return 0

    async def drain(self) -> None:
        return

    def close(self) -> None:
        return

    def abort(self) -> None:
        return


def runtime() -> AsyncioRuntime:
    running = AsyncioRuntime()
    running.begin()
    return running


def answer(link: NodeConnection, request: Frame, fields: dict[str, object]) -> None:
    link.on_bytes(b"".join(encode_frame(FrameKind.OK, {"id": request.body["id"], **fields})))


async def test_a_late_answer_to_a_question_that_timed_out_is_dropped() -> None:
    """Found by seed 10982: it was taken for the answer to an append, and the connection ended for it."""
    link = NodeConnection(runtime(), "n1", itertools.count(1), frame_bytes_max=1 << 20)
    pipe = Pipe()
    link.accept(pipe)
    strays: list[Frame] = []
    link.on_answer = lambda _, frame: strays.append(frame)
    with pytest.raises(TimeoutError):
        await link.ask(ListTopics(stale=False), timeout=0.001)
    answer(link, pipe.sent[0], {"topics": [], "applied_index": 0})
    assert strays == []
    assert link.is_open


async def test_a_late_answer_to_a_question_that_was_cancelled_is_dropped_once() -> None:
    link = NodeConnection(runtime(), "n1", itertools.count(1), frame_bytes_max=1 << 20)
    pipe = Pipe()
    link.accept(pipe)
    strays: list[Frame] = []
    link.on_answer = lambda _, frame: strays.append(frame)
    asking = asyncio.ensure_future(link.ask(ListTopics(stale=False), timeout=60))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    answer(link, pipe.sent[0], {"topics": [], "applied_index": 0})
    assert strays == []
    # An answer that belongs to nobody is the session's to judge.
    answer(link, pipe.sent[0], {"receipt": None})
    assert len(strays) == 1


@pytest.mark.parametrize("body", [{"members": ["a:1"]}, {"members": {"n1": 7}}, {"members": {"n1": "a:1"}}])
async def test_members_that_are_none_end_the_connection(body: dict[str, object]) -> None:
    link = NodeConnection(runtime(), "n1", itertools.count(1), frame_bytes_max=1 << 20)
    link.accept(Pipe())
    with pytest.raises(PeerError, match="names the members"):
        link.on_bytes(b"".join(encode_frame(FrameKind.MEMBERS, body)))


async def test_nobody_hears_of_members_before_the_node_is_known_to_be_one_of_ours() -> None:
    link = NodeConnection(runtime(), "n1", itertools.count(1), frame_bytes_max=1 << 20)
    link.accept(Pipe())
    heard: list[object] = []
    link.on_bytes(b"".join(encode_frame(FrameKind.MEMBERS, {"members": {"n1": "a:1"}, "generation": 2})))
    assert heard == []
    link.tell_members(lambda members, generation: heard.append((members, generation)))
    assert heard == [({"n1": "a:1"}, 2)]
    link.on_bytes(b"".join(encode_frame(FrameKind.MEMBERS, {"members": {"n2": "b:1"}, "generation": 3})))
    assert heard[1:] == [({"n2": "b:1"}, 3)]
