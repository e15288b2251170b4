"""A client's use of a link: its requests and answers, apart from those of other clients that share the link."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from viewstamp.client.batches import Request
from viewstamp.client.link import Link
from viewstamp.client.runtime import Future, Runtime, TimerHandle
from viewstamp.errors import ConfigError, PeerError, ResultTooLargeError, UnavailableError, ViewstampError
from viewstamp.host.address import parse_address
from viewstamp.host.interfaces import Buffer
from viewstamp.wire.answers import error_from, is_answer
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.commands import TOO_LARGE_REMEDY
from viewstamp.wire.frame import Frame, FrameKind, TooLarge, encode_frame
from viewstamp.wire.schema import RequestBody

__all__ = ["NodeConnection", "Question", "parse_addresses", "too_large"]

_QUESTIONS_TOGETHER = 32
"""Small questions that count as one frame where a link divides a turn among its clients."""
_TOGETHER_BYTES = 16 * 1024
"""No further question is added to such a frame once it has this many bytes."""


def parse_addresses(addresses: str | Sequence[str]) -> list[str]:
    """Return the addresses of ``"host:port,host:port"`` or of a sequence of them, in order, each once.

    Raises:
      ConfigError: there is none, or one has another shape.
    """
    parts = addresses.split(",") if isinstance(addresses, str) else list(addresses)
    parsed = list(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if not parsed:
        raise ConfigError(
            f"no address in {addresses!r}", remedy="name at least one node: host:port, several joined by commas"
        )
    for address in parsed:
        _, port = parse_address(address)
        if port == 0:
            raise ConfigError(
                f"{address!r} has port 0, on which no node can listen", remedy="name the node's real port"
            )
    return parsed


class NodeConnection:
    """The connection to a node as one client sees it. Other clients may share the link below it; none sees another.

    Answers to requests that were sent with :meth:`ask` resolve their futures; answers to requests that ``source``
    returned go to ``on_answer``.

    Invariants:
      * every future that ``ask`` waits for is resolved when the connection ends
      * ``closed`` resolves exactly once, and nothing is delivered after it
    """

    def __init__(self, runtime: Runtime, link: Link) -> None:
        """Join an open link. ``runtime`` is the client's: its futures and timers end with the client."""
        self.address = link.address
        self.node = link.node
        self.cluster = link.cluster
        self.record_bytes_max = link.record_bytes_max
        self.batch_bytes_max = link.batch_bytes_max
        self.durability = link.durability
        """The durability of records that this node acknowledges, for example "majority, synced"."""
        self.doubt = link.doubt
        """Why only STATUS may be sent: the node has not proved, or contradicts, the identity. None = no doubt."""
        self.request_ids = link.request_ids
        self.joined = self.heard = runtime.time()
        """``heard``: when the node last answered this client, or when the connection began, on the runtime's clock."""
        self.is_open = True
        """Whether requests may still be answered."""
        self.is_silent = False
        """It was ended because the node had not answered for too long: its machine may be dead."""
        self.was_owed = False
        """The link ended while an answer to this client was outstanding."""
        self.has_led = False
        """Whether the node has given this client an answer that only a leader gives."""
        self.probe = 0
        """The id of a request of the session whose answer is timed; 0 = none."""
        self.probed_at = 0.0
        self.fastest = math.inf
        """Seconds of the quickest answer to a timed request, sent at ``probed_at``."""
        self.is_ready = self.has_more = False
        self.questions = 0
        self.closed: Future[ViewstampError] = runtime.create_future()
        """Resolves with the reason when the connection has ended."""
        self.source: Callable[[NodeConnection], Request | None] | None = None
        """Returns the next request of the client's session, and sets ``has_more``; called after :attr:`wake`."""
        self.wake = partial(link.ready, self)
        """Have the requests of ``source`` sent in the next turn. Never awaits."""
        self.on_answer: Callable[[NodeConnection, Frame], None] = _ignore
        """Takes the answers to the requests of ``source``."""
        self._runtime = runtime
        self._link = link
        self._waiting: dict[Question, None] = {}
        """Unanswered questions."""
        self._timer: TimerHandle | None = None
        self._timer_due = math.inf
        """The time at which ``_timer`` looks for late questions: not after the earliest deadline."""
        self._unsent: deque[Question] = deque()
        self._on_members: Callable[[dict[str, str], int], None] | None = None
        link.join(self)

    # The client calls these.

    @property
    def is_usable(self) -> bool:
        """Whether any request may be sent; if there is a doubt, only STATUS may."""
        return self.is_open and self.doubt is None

    @property
    def quickest(self) -> float:
        """Seconds of the quickest answer on this link so far: to HELLO, or to a question of any client."""
        return self._link.quickest

    def follow_members(self, told: Callable[[dict[str, str], int], None]) -> None:
        """Call ``told`` with the members and their generation: now, and whenever the node names others."""
        self._on_members = told
        told(*self._link.members)

    async def ask(self, request: RequestBody, *, timeout: float, wait: float = 0.0) -> Frame:
        """Send a request and wait for its answer.

        Cancelled: a request that the link has not taken yet is never sent; else the answer is dropped when it arrives.

        Args:
          request: the request.
          timeout: seconds until the answer.
          wait: seconds for which the request allows the node to hold its answer; a part of ``timeout``.

        Raises:
          TimeoutError: no answer within ``timeout`` seconds; it may still be carried out.
          ViewstampError: the error that the node answered, or UnavailableError when the connection was lost.
        """
        return await self.answer_to(self.put(request, timeout=timeout, wait=wait))

    def put(self, request: RequestBody, *, timeout: float, wait: float = 0.0) -> Question:
        """Queue a request for the next turn of the link; the first half of :meth:`ask`. Never awaits.

        ``answer_to`` must follow. If the connection has ended, nothing is queued, and it raises the reason.
        """
        future: Future[Frame] = self._runtime.create_future()
        request_id = next(self.request_ids)
        frame = encode_frame(request.kind, {"id": request_id, **request.to_map()})
        question = Question(request_id, request.kind, frame, future, wait)
        if self.closed.done():
            future.set_exception(self.closed.result())
            return question
        self._waiting[question] = None
        self._unsent.append(question)
        if not self.is_ready:
            self.wake()
        question.deadline = deadline = self._runtime.time() + timeout
        if deadline < self._timer_due:
            self._set_timer(deadline)
        return question

    async def answer_to(self, question: Question) -> Frame:
        """Wait for the answer to a request; the second half of :meth:`ask`. ``question.was_sent`` is final then."""
        try:
            return await question.future
        except TimeoutError:
            if question.sent_at is not None:
                self._link.suspect(question.sent_at + question.wait)
            raise
        finally:
            self._waiting.pop(question, None)

    def _set_timer(self, deadline: float) -> None:
        """Have late questions expired at ``deadline``. They share a timer, because nearly all are answered before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._timer_due = deadline
        if deadline < math.inf:
            self._timer = self._runtime.call_later(max(0.0, deadline - self._runtime.time()), self._expire)

    def _expire(self) -> None:
        now = self._runtime.time()
        for question in self._waiting:
            if question.deadline <= now and not question.future.done():
                question.future.set_exception(TimeoutError())
        left = (question.deadline for question in self._waiting if not question.future.done())
        self._set_timer(min(left, default=math.inf))

    def leave_silent(self, since: float) -> None:
        """End the connection because the node owes an answer since ``since`` and has sent this client nothing.

        If the node has sent nothing to the other clients of the link either, the link ends for all of them.
        """
        self.is_silent = True
        self._link.suspect(since)
        self.abort()

    def abort(self) -> None:
        """End the connection at once, for this client only; ``closed`` resolves. Idempotent."""
        self.cut_off(UnavailableError(f"the connection to {self.address} was lost", remedy="try again"), is_owed=False)

    # The link calls these.

    def next_frame(self) -> Sequence[Buffer] | None:
        """Return the next frames to send: up to ``_QUESTIONS_TOGETHER`` questions, or one request; None = none now."""
        self.has_more = False
        unsent = self._unsent
        if unsent:
            frames: list[Buffer] = []
            size = count = 0
            while unsent and count < _QUESTIONS_TOGETHER and size < _TOGETHER_BYTES:
                question = unsent[0]
                if question.future.done():  # Its caller was cancelled, or the time is over.
                    unsent.popleft()
                elif self._link.admits_question(self):
                    unsent.popleft()
                    question.sent_at = self._runtime.time()
                    self._link.expect(
                        question.request_id, self, question.receive, is_question=True, may_be_held=question.wait > 0
                    )
                    frames += question.frame
                    size += len(question.frame[0])
                    count += 1
                else:
                    break
            if frames:
                self.has_more = True
                return frames
        request = self.source(self) if self.source is not None else None
        if request is None:
            return None
        self._link.expect(request.id, self, self.on_answer)
        return encode_frame(request.kind, request.body, request.payload)

    def note_answer(self, seconds: float) -> None:
        """Record how long the node took to answer a question."""
        self._link.quickest = min(self._link.quickest, seconds)

    def learn_members(self, members: dict[str, str], generation: int) -> None:
        """Pass the members on that the node names."""
        if self._on_members is not None:
            self._on_members(members, generation)

    def cut_off(self, reason: ViewstampError, *, is_owed: bool) -> None:
        """End the connection: fail every question, and resolve ``closed``. Idempotent."""
        if not self.is_open:
            return
        self.is_open = False
        self.is_silent = self.is_silent or self._link.is_silent
        self.was_owed = is_owed
        self._link.leave(self)
        self.closed.set_result(reason)
        self._set_timer(math.inf)
        for question in self._waiting:
            if not question.future.done():
                question.future.set_exception(reason)


class Question:
    """A request of :meth:`NodeConnection.ask`."""

    __slots__ = ("deadline", "frame", "future", "kind", "request_id", "sent_at", "wait")

    def __init__(
        self, request_id: int, kind: FrameKind, frame: Sequence[Buffer], future: Future[Frame], wait: float
    ) -> None:
        self.request_id = request_id
        self.kind = kind
        self.frame = frame
        self.future = future
        self.wait = wait
        self.deadline = math.inf
        self.sent_at: float | None = None
        """None = it was not sent."""

    @property
    def was_sent(self) -> bool:
        """Whether the link has taken the request, so that the node may carry it out."""
        return self.sent_at is not None

    def receive(self, connection: NodeConnection, frame: Frame) -> None:
        """Take the answer. Dropped if the caller has gone.

        Raises:
          PeerError: it is no answer to this request; the connection ends for this client.
        """
        if self.future.done():
            return
        assert self.sent_at is not None, "it is answered"
        connection.note_answer(connection.heard - self.sent_at)
        if type(frame.body) is TooLarge:
            self.future.set_exception(too_large(frame.body.size))
        elif frame.kind == FrameKind.ERROR:
            self.future.set_exception(error_from(frame.body))
        elif is_answer(self.kind, frame.body):
            self.future.set_result(frame)
        else:
            raise PeerError(f"{connection.address} answered {self.kind.name} with {brief_repr(frame.body)}")


def too_large(size: int) -> ResultTooLargeError:
    """Return the error for an answer of ``size`` bytes, which is larger than this client accepts."""
    return ResultTooLargeError(
        f"the answer takes {size:,} bytes, more than this client takes; the request was carried out",
        remedy=TOO_LARGE_REMEDY,
    )


def _ignore(connection: NodeConnection, frame: Frame) -> None:
    """A client without a session sends no requests of one."""
