from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from viewstamp.client.aio import AsyncioRuntime
from viewstamp.client.batches import Request
from viewstamp.client.connection import NodeConnection
from viewstamp.client.link import BYTES_PER_TURN, FRAMES_PER_TURN, QUESTIONS_MAX, UNSENT_BYTES_MAX, Link
from viewstamp.errors import FrameError, PeerError, UnavailableError
from viewstamp.host.interfaces import Buffer, Connection
from viewstamp.node import server
from viewstamp.wire.frame import Frame, FrameDecoder, FrameKind, encode_frame
from viewstamp.wire.requests import ListTopics


class Pipe(Connection):
    """The near end of a connection; the test is the far end."""

    peer = "test"

    def __init__(self) -> None:
        self.sent: list[Frame] = []
        self.writes = 0
        self.unsent = 0
        self.is_aborted = False
        self._decoder = FrameDecoder()

    def send(self, buffers: Sequence[Buffer]) -> None:
        self.writes += 1
        self.sent += self._decoder.feed(b"".join(buffers))

    @property
    def unsent_bytes(self) -> int:
        return self.unsent

    async def drain(self) -> None:
        return

    def close(self) -> None:
        return

    def abort(self) -> None:
        self.is_aborted = True


def runtime() -> AsyncioRuntime:
    running = AsyncioRuntime()
    running.begin()
    return running


def open_link(**options: float) -> tuple[Link, Pipe]:
    """Return a link to a node that the test plays, and the test's end of it."""
    link = Link(runtime(), "n1", frame_bytes_max=1 << 20, silence=options.get("silence", 2.0))
    pipe = Pipe()
    link.accept(pipe)
    return link, pipe


def answer(link: Link, request: Frame, fields: dict[str, object]) -> None:
    link.on_bytes(b"".join(encode_frame(FrameKind.OK, {"id": request.body["id"], **fields})))


async def sent(pipe: Pipe, count: int) -> list[Frame]:
    """Return the sent frames, once there are ``count``."""
    for _ in range(100_000):
        if len(pipe.sent) >= count:
            return pipe.sent
        await asyncio.sleep(0)
    raise AssertionError(f"{len(pipe.sent)} frames were sent, and not {count}")


async def test_a_late_answer_to_a_question_that_timed_out_is_dropped() -> None:
    """Found by seed 10982: it was matched to an append, and the connection ended because of that."""
    link, pipe = open_link()
    connection = NodeConnection(runtime(), link)
    strays: list[Frame] = []
    connection.on_answer = lambda _, frame: strays.append(frame)
    with pytest.raises(TimeoutError):
        await connection.ask(ListTopics(stale=False), timeout=0.001)
    answer(link, pipe.sent[0], {"topics": [], "applied_index": 0})
    assert strays == []
    assert connection.is_open


async def test_a_late_answer_to_a_question_that_was_cancelled_is_dropped_and_so_is_a_second_one() -> None:
    link, pipe = open_link()
    connection = NodeConnection(runtime(), link)
    strays: list[Frame] = []
    connection.on_answer = lambda _, frame: strays.append(frame)
    asking = asyncio.ensure_future(connection.ask(ListTopics(stale=False), timeout=60))
    await sent(pipe, 1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    for _ in range(2):
        answer(link, pipe.sent[0], {"topics": [], "applied_index": 0})
    assert strays == []
    assert connection.is_open


async def test_a_question_that_is_cancelled_in_its_first_turn_is_never_sent() -> None:
    link, pipe = open_link()
    connection = NodeConnection(runtime(), link)
    asking = [asyncio.ensure_future(connection.ask(ListTopics(stale=False), timeout=60)) for _ in range(2)]
    await asyncio.sleep(0)
    asking[0].cancel()
    await sent(pipe, 1)
    answer(link, pipe.sent[0], {"topics": [], "applied_index": 0, "age": 0.0})
    await asking[1]
    assert len(pipe.sent) == 1


@pytest.mark.parametrize("body", [{"members": ["a:1"]}, {"members": {"n1": 7}}, {"members": {"n1": "a:1"}}])
async def test_members_that_are_none_end_the_connection(body: dict[str, object]) -> None:
    link, _ = open_link()
    with pytest.raises(PeerError, match="names the members"):
        link.on_bytes(b"".join(encode_frame(FrameKind.MEMBERS, body)))


async def test_members_are_not_learned_before_the_node_is_known_to_be_one_of_ours() -> None:
    link, _ = open_link()
    heard: list[object] = []
    link.on_bytes(b"".join(encode_frame(FrameKind.MEMBERS, {"members": {"n1": "a:1"}, "generation": 2})))
    assert heard == []
    connection = NodeConnection(runtime(), link)
    connection.follow_members(lambda members, generation: heard.append((members, generation)))
    assert heard == [({"n1": "a:1"}, 2)]
    link.on_bytes(b"".join(encode_frame(FrameKind.MEMBERS, {"members": {"n2": "b:1"}, "generation": 3})))
    assert heard[1:] == [({"n2": "b:1"}, 3)]


class Talker:
    """A session with requests to send: a source of requests for one connection."""

    def __init__(self, link: Link, frames: int, size: int = 10) -> None:
        self.connection = NodeConnection(runtime(), link)
        self.connection.source = self.next_request
        self.connection.on_answer = lambda _, frame: self.answers.append(frame)
        self.answers: list[Frame] = []
        self.sent: list[int] = []
        self._left = frames
        self._size = size
        self.connection.wake()

    def next_request(self, connection: NodeConnection) -> Request | None:
        if self._left == 0:
            return None
        self._left -= 1
        connection.has_more = self._left > 0
        request = next(connection.request_ids)
        self.sent.append(request)
        return Request(request, FrameKind.APPEND, {"id": request}, (bytes(self._size),))


async def test_frames_of_one_turn_are_written_together_and_users_take_turns() -> None:
    link, pipe = open_link()
    first, second = Talker(link, 3), Talker(link, 2)
    await sent(pipe, 5)
    assert pipe.writes == 1
    owners = ["first" if frame.body["id"] in first.sent else "second" for frame in pipe.sent]
    assert owners == ["first", "second", "first", "second", "first"]
    for frame in reversed(pipe.sent):
        answer(link, frame, {"receipt": None})
    assert [frame.body["id"] for frame in first.answers] == first.sent[::-1]
    assert [frame.body["id"] for frame in second.answers] == second.sent[::-1]


async def test_a_session_with_much_to_send_delays_another_by_one_turn_at_most() -> None:
    link, pipe = open_link()
    Talker(link, 4096)
    await sent(pipe, 1)
    assert len(pipe.sent) == FRAMES_PER_TURN
    quick = Talker(link, 1)
    await sent(pipe, FRAMES_PER_TURN + 1)
    assert quick.sent[0] in [frame.body["id"] for frame in pipe.sent[FRAMES_PER_TURN : FRAMES_PER_TURN + 2]]


async def test_large_frames_end_a_turn_early() -> None:
    link, pipe = open_link()
    Talker(link, 16, BYTES_PER_TURN // 2)
    await sent(pipe, 1)
    assert len(pipe.sent) == 2


async def test_nothing_is_asked_for_while_the_system_takes_no_bytes() -> None:
    link, pipe = open_link()
    pipe.unsent = UNSENT_BYTES_MAX + 1
    slow = Talker(link, 1)
    for _ in range(10):
        await asyncio.sleep(0)
    assert slow.sent == [], "its batch can still grow, and a timeout would be certain, as it was not sent"
    pipe.unsent = 0
    await asyncio.sleep(1.0)
    assert len(pipe.sent) == 1


async def test_one_session_cannot_use_up_the_requests_that_a_node_lets_wait() -> None:
    link, pipe = open_link()
    greedy, modest = NodeConnection(runtime(), link), NodeConnection(runtime(), link)
    asking = [asyncio.ensure_future(greedy.ask(ListTopics(stale=False), timeout=60)) for _ in range(2 * QUESTIONS_MAX)]
    for _ in range(QUESTIONS_MAX):
        await asyncio.sleep(0)
    of_greedy = len(pipe.sent)
    assert QUESTIONS_MAX // 2 <= of_greedy < QUESTIONS_MAX
    asking.append(asyncio.ensure_future(modest.ask(ListTopics(stale=False), timeout=60)))
    await sent(pipe, of_greedy + 1)
    answer(link, pipe.sent[-1], {"topics": [], "applied_index": 0, "age": 0.0})
    await asking[-1]
    # Each answer lets the next question be sent.
    for at in range(2 * QUESTIONS_MAX):
        await sent(pipe, min(at + 1, of_greedy) + 1)
        answer(
            link,
            [*pipe.sent[:of_greedy], *pipe.sent[of_greedy + 1 :]][at],
            {"topics": [], "applied_index": 0, "age": 0.0},
        )
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.gather(*asking)
    assert len(pipe.sent) == 2 * QUESTIONS_MAX + 1


def test_a_link_asks_for_less_than_a_node_lets_wait_for_one_connection() -> None:
    """A node limits the requests that wait on one connection. A link sends fewer, so that none is rejected."""
    assert QUESTIONS_MAX < server._REQUESTS_MAX


async def test_a_user_that_aborts_leaves_the_others_connected_and_the_last_one_ends_the_link() -> None:
    link, pipe = open_link()
    one, other = Talker(link, 1), Talker(link, 1)
    await sent(pipe, 2)
    one.connection.abort()
    assert one.connection.closed.done()
    for frame in pipe.sent:
        answer(link, frame, {"receipt": None})
    assert (len(one.answers), len(other.answers)) == (0, 1)
    assert other.connection.is_open
    assert link.reason is None
    other.connection.abort()
    assert link.reason is not None
    assert pipe.is_aborted


async def test_a_user_that_aborts_with_frames_to_send_sends_none_of_them() -> None:
    link, pipe = open_link()
    one, other = Talker(link, 1), Talker(link, 1)
    one.connection.abort()
    await sent(pipe, 1)
    assert [frame.body["id"] for frame in pipe.sent] == other.sent
    assert one.sent == []


async def test_a_link_that_breaks_in_mid_answer_cuts_off_all_users_and_names_the_unanswered() -> None:
    link, pipe = open_link()
    owed, idle = Talker(link, 1), Talker(link, 0)
    await sent(pipe, 1)
    whole = b"".join(encode_frame(FrameKind.OK, {"id": owed.sent[0], "receipt": None}))
    link.on_bytes(whole[:-1])
    link.on_closed(ConnectionResetError("reset"))
    for talker in (owed, idle):
        with pytest.raises(UnavailableError, match="reset"):
            raise talker.connection.closed.result()
        assert talker.answers == []
    assert (owed.connection.was_owed, idle.connection.was_owed) == (True, False)


async def test_a_wrong_answer_cuts_off_its_own_session_only() -> None:
    link, pipe = open_link()
    one, other = NodeConnection(runtime(), link), Talker(link, 1)
    asking = asyncio.ensure_future(one.ask(ListTopics(stale=False), timeout=60))
    await sent(pipe, 2)
    of_other, of_one = sorted(pipe.sent, key=lambda frame: frame.kind == FrameKind.LIST_TOPICS)
    answer(link, of_one, {"topics": 7})
    with pytest.raises(PeerError, match="answered LIST_TOPICS"):
        await asking
    assert not one.is_open
    answer(link, of_other, {"receipt": None})
    assert len(other.answers) == 1


async def test_a_mistake_in_one_session_cuts_off_that_session_alone() -> None:
    link, pipe = open_link()
    broken, sound = Talker(link, 1), Talker(link, 1)

    def fail(connection: NodeConnection) -> None:
        raise AssertionError("a mistake of ours")

    broken.connection.source = fail
    await sent(pipe, 1)
    with pytest.raises(UnavailableError, match="a mistake of ours"):
        raise broken.connection.closed.result()
    assert [frame.body["id"] for frame in pipe.sent] == sound.sent


async def test_bytes_that_are_no_frame_end_the_link_for_all() -> None:
    link, _ = open_link()
    talkers = [Talker(link, 0), Talker(link, 0)]
    with pytest.raises(FrameError) as garbage:
        link.on_bytes(b"garbage" * 10)
    link.on_closed(garbage.value)
    assert not any(talker.connection.is_open for talker in talkers)


async def test_a_node_that_answers_one_session_is_not_silent_for_the_link_of_another() -> None:
    link, pipe = open_link(silence=0.05)
    waiting, served = Talker(link, 1), Talker(link, 1)
    await sent(pipe, 2)
    since = asyncio.get_running_loop().time()
    await asyncio.sleep(0.06)
    answer(link, next(frame for frame in pipe.sent if frame.body["id"] in served.sent), {"receipt": None})
    waiting.connection.leave_silent(since)
    assert waiting.connection.is_silent
    assert served.connection.is_open


async def test_a_link_on_which_nothing_comes_any_more_ends_for_all() -> None:
    link, pipe = open_link(silence=0.05)
    waiting, idle = Talker(link, 1), Talker(link, 0)
    await sent(pipe, 1)
    since = asyncio.get_running_loop().time()
    await asyncio.sleep(0.06)
    waiting.connection.leave_silent(since)
    assert link.is_silent
    assert idle.connection.is_silent
    assert not idle.connection.is_open


async def test_a_short_timeout_of_one_session_does_not_end_the_link_of_the_others() -> None:
    link, pipe = open_link(silence=0.05)
    hasty, idle = NodeConnection(runtime(), link), Talker(link, 0)
    await asyncio.sleep(0.06)
    with pytest.raises(TimeoutError):
        await hasty.ask(ListTopics(stale=False), timeout=0.001)
    assert idle.connection.is_open, "the node owed nothing before"
    await asyncio.sleep(0.06)
    with pytest.raises(TimeoutError):
        await hasty.ask(ListTopics(stale=False), timeout=0.001)
    assert not idle.connection.is_open, "the first question is owed an answer for longer than the silence"
    assert len(pipe.sent) == 2


async def test_an_answer_that_a_node_may_hold_is_not_missed() -> None:
    link, _ = open_link(silence=0.05)
    hasty, follower = NodeConnection(runtime(), link), NodeConnection(runtime(), link)
    asking = asyncio.ensure_future(follower.ask(ListTopics(stale=False), timeout=60, wait=60))
    await asyncio.sleep(0.06)
    with pytest.raises(TimeoutError):
        await hasty.ask(ListTopics(stale=False), timeout=0.001)
    assert follower.is_open
    asking.cancel()
