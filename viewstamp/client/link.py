"""One TCP connection to a node, which all clients of an event loop share. ``links.py`` opens and finds them.

A link multiplexes. A client uses it through a ``NodeConnection`` (``connection.py``), its *user*:

  * **Sending.** A user with something to send calls ``ready``. In the next turn of the loop the link asks the ready
    users for frames, one frame each in a round, and writes the frames of the turn in few calls. So batches of many
    sessions travel together, because each is built at the moment in which the link takes it.
  * **Fairness.** A turn ends after ``FRAMES_PER_TURN`` rounds or ``BYTES_PER_TURN`` bytes, and no turn begins while
    the operating system has not taken ``UNSENT_BYTES_MAX`` bytes. Frames beyond that stay with their users. So a
    single request waits in this process behind those bytes at most, and one frame of each other user, however much
    another session has to send.
  * **Answers.** Request ids come from one counter for each link, so an answer names its request and with it its user.
    An answer to a user that has left is dropped.
  * **Errors.** If an answer is malformed, or its user fails while it takes it, only that user is cut off. If the stream
    itself is malformed (a bad checksum, a frame that no client expects), the link ends for all, because no frame after
    it can be trusted.

Limits of the server that count for each connection, and so for all users of a link
-----------------------------------------------------------------------------------
| limit of a connection (``node/server.py``) | how one session is kept from using it up |
| --- | --- |
| 1,024 requests that wait (reads, queries, watchers) | The link sends at most ``QUESTIONS_MAX`` at a time. A quarter \
of them is kept for users that have fewer than an equal share. Further ones wait here, and nothing is refused. |
| one READ answer at a time | Nothing: reads of all sessions of a process take turns. A link always reads, so the turn \
ends when the bytes have arrived, and never waits for a slow caller. |
| ``frame_bytes_max`` bytes of answers that were not taken | Nothing, but the link always reads. The limit is reached \
only by answers of 64 MiB together in one turn of the node. |
| a malformed request ends the connection | All users reconnect, and send their unanswered requests again. A client \
whose links break twice at once gets a link of its own (``pool.py``), so one bad request cannot cut off the others \
for good. |

Unanswered batches (``in_flight_bytes_max``) and the number of requests of all clients are limits of the node, which do
not depend on the number of connections. At most ``USERS_MAX`` clients share a link; more clients get more links.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Protocol

from viewstamp.client.identity import check_identity
from viewstamp.client.results import DURABILITY
from viewstamp.client.routing import Directories, ExpectedNode
from viewstamp.client.runtime import Future, Runtime, Wire
from viewstamp.errors import FrameError, PeerError, UnavailableError, ViewstampError
from viewstamp.host.interfaces import Buffer
from viewstamp.ids import GROUP_0, GroupId, NodeId, name_of
from viewstamp.wire.access import Token
from viewstamp.wire.answers import error_from
from viewstamp.wire.frame import Frame, FrameDecoder, FrameKind, TooLarge, encode_frame
from viewstamp.wire.handshake import Hello, Opening, Welcome, read_members
from viewstamp.wire.identity_proof import administrator_proof
from viewstamp.wire.token_requests import ProveDirectory

__all__ = ["BYTES_PER_TURN", "FRAMES_PER_TURN", "QUESTIONS_MAX", "UNSENT_BYTES_MAX", "USERS_MAX", "Link", "LinkUser"]

USERS_MAX = 256
"""Clients that share one link. With more, those that each follow a few topics would use up its questions."""
FRAMES_PER_TURN = 16
"""Frames of one user that are written in one turn of the event loop."""
BYTES_PER_TURN = 512 * 1024
"""Bytes after which a turn ends, with the round that is under way."""
UNSENT_BYTES_MAX = 256 * 1024
"""Bytes that the operating system has not taken and above which no frame is asked for."""
QUESTIONS_MAX = 960
"""Questions (requests other than those of sessions) on one link that are not answered. Below the node's own limit."""
_RESERVED = QUESTIONS_MAX // 4
"""Questions that only users with fewer than an equal share may add."""
_PIECE_BUFFERS = 64
"""Buffers that are written together, for example the frames of 32 batches.

The node works on them while this process builds the next ones. Smaller pieces cost more rounds than they save time.
"""
_CONGESTED_SECONDS = 0.001
"""The wait before the link looks again whether the operating system has taken the bytes."""
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions from a body of another shape than the code expects."""


class LinkUser(Protocol):
    """One client's use of a link."""

    is_open: bool
    is_ready: bool
    """Whether the link is going to call ``next_frame``. Set by the link."""
    has_more: bool
    """Set by ``next_frame``: whether there may be another frame."""
    heard: float
    """When an answer for this user came last. Set by the link."""
    questions: int
    """Questions of this user that the node has not answered. Counted by the link."""

    def next_frame(self) -> Sequence[Buffer] | None:
        """Return the next frame to send; None = there is none."""
        ...

    def learn_members(self, members: dict[str, str], generation: int) -> None:
        """Take the members that the node names."""
        ...

    def cut_off(self, reason: ViewstampError, *, is_owed: bool) -> None:
        """Take note that the link has ended; ``is_owed`` = an answer to this user was outstanding."""
        ...


Receive = Callable[[Any, Frame], None]


class Link:
    """One open connection to a node: the handshake, and the user to which each answer belongs.

    Invariants:
      * a link that is open has a user, from the turn in which its handshake ended
      * every user that has not left is cut off when the link ends, once
      * ``_expected`` has each request that was sent and has no answer, also those of users that have left
    """

    def __init__(
        self,
        runtime: Runtime,
        address: str,
        *,
        frame_bytes_max: int,
        silence: float,
        on_end: Callable[[Link], None] = lambda link: None,
    ) -> None:
        """Begin without a connection.

        Args:
          runtime: of the event loop, and of no client: it has to outlive each of them.
          address: of the node.
          frame_bytes_max: the largest frame that is accepted.
          silence: seconds after which a node that owes an answer and has sent nothing counts as dead.
          on_end: called once when the link has ended.
        """
        self.address = address
        self.node = NodeId("")
        self.cluster = ""
        self.record_bytes_max = 0
        self.batch_bytes_max = 0
        self.durability = DURABILITY
        """The durability of records that this node acknowledges, for example "majority, synced"."""
        self.members: tuple[dict[str, str], int] = {}, 0
        """The members and their generation, as the node said last."""
        self.doubt: ViewstampError | None = None
        """Why only STATUS may be sent: the node has not proved, or contradicts, the identity. None = no doubt."""
        self.reason: ViewstampError | None = None
        """Why the link has ended; None = it is open."""
        self.is_silent = False
        """It was ended because the node sent nothing any more."""
        self.request_ids = count(1)
        self.quickest = math.inf
        """Seconds of the quickest answer of the node so far: to HELLO, or to a question. inf = it gave none."""
        self._runtime = runtime
        self._silence = silence
        self._on_end = on_end
        self._heard = runtime.time()
        """When the node last sent anything, on the runtime's clock."""
        self._decoder = FrameDecoder(frame_bytes_max, skips_too_large=True)
        self._wire: Wire | None = None
        self._opening: Opening | None = None
        self._welcome: Future[Welcome] = runtime.create_future()
        self._users: dict[LinkUser, None] = {}
        self._ready: deque[LinkUser] = deque()
        self._is_due = False
        """A turn has been asked for."""
        self._expected: dict[int, tuple[LinkUser, Receive, bool, bool]] = {}
        """By request id: the user, its receiver, whether it is a question, and whether the node may hold the answer."""
        self._owed = 0
        """Requests in ``_expected`` that the node must answer without waiting."""
        self._owed_since = 0.0
        """When ``_owed`` last rose from 0."""
        self._questions = 0
        self._refused: dict[LinkUser, None] = {}
        """Users with questions that wait because too many are unanswered."""

    # The network calls these.

    def accept(self, wire: Wire) -> Link:
        """Take the connection."""
        self._wire = wire
        return self

    def on_bytes(self, data: bytes) -> None:
        """Take the next bytes, and hand each answer to its user.

        Raises:
          PeerError: the node does not speak our protocol; the network aborts the connection, and the link ends for all.
        """
        now = self._heard = self._runtime.time()
        expected = self._expected
        for frame in self._decoder.feed(data):
            body = frame.body
            try:
                is_plain = frame.kind == FrameKind.OK and type(body) is dict
                request: int | None = body["id"] if is_plain else self._request_of(frame)
                found = None if request is None else expected.pop(request, None)
            except _MALFORMED as error:
                raise self._malformed(frame, error) from error
            if found is None:
                continue
            user, receive, is_question, may_be_held = found
            if not may_be_held:
                self._owed -= 1
            if is_question:
                self._free_question(user)
            if user.is_open:
                user.heard = now
                try:
                    receive(user, frame)
                except Exception as error:
                    self._drop(user, self._malformed(frame, error) if isinstance(error, _MALFORMED) else error)

    def _request_of(self, frame: Frame) -> int | None:
        """Return the id of the request that a frame answers; None = it answers none, and was taken here."""
        kind, body = frame.kind, frame.body
        if type(body) is TooLarge:
            if kind != FrameKind.OK or body.request is None:
                raise FrameError(
                    f"{self.address} sent a frame of {body.size:,} bytes that is no answer, which is too large"
                )
            return body.request
        if kind == FrameKind.OK or kind == FrameKind.ERROR:
            if kind == FrameKind.ERROR and "members" in body:
                self._on_members(body)
            request: int = body["id"]
            return request
        self._on_other(frame)
        return None

    def _free_question(self, user: LinkUser) -> None:
        self._questions -= 1
        user.questions -= 1
        if self._refused:
            refused, self._refused = self._refused, {}
            for each in refused:
                self.ready(each)

    def _on_other(self, frame: Frame) -> None:
        if frame.kind == FrameKind.MEMBERS:
            if "members" in frame.body:
                self._on_members(frame.body)
        elif self._opening is not None and self._opening.receive(frame, self._wire.identity if self._wire else None):
            assert self._opening.welcome is not None, "received just now"
            self._on_welcome(self._opening.welcome)
        else:
            raise PeerError(f"{self.address} sent a frame of kind {frame.kind}, which no client expects")

    def _on_welcome(self, welcome: Welcome) -> None:
        self.node = NodeId(welcome.node)
        self.cluster = welcome.cluster
        self.record_bytes_max = welcome.record_bytes_max
        self.batch_bytes_max = welcome.batch_bytes_max
        self.durability = welcome.durability or DURABILITY
        if welcome.members is not None and "members" in welcome.members:
            self._on_members(welcome.members)
        if not self._welcome.done():
            self._welcome.set_result(welcome)

    def _on_members(self, body: Mapping[str, Any]) -> None:
        self.members = read_members(body)
        for user in list(self._users):
            user.learn_members(*self.members)

    def _malformed(self, frame: Frame, error: Exception) -> PeerError:
        malformed = PeerError(f"{self.address} sent a frame of kind {frame.kind} with a wrong body: {error!r:.200}")
        malformed.__cause__ = error
        return malformed

    def on_closed(self, error: BaseException | None) -> None:
        """Take note that the connection has ended: every user is cut off."""
        self._end(self._lost(error))

    def _lost(self, error: BaseException | None) -> ViewstampError:
        if isinstance(error, ViewstampError):
            return error
        detail = f": {error}" if error is not None and str(error) else ""
        return UnavailableError(f"the connection to {self.address} was lost{detail}", remedy="try again")

    # ``links.py`` calls these.

    async def greet(
        self,
        cluster_id: str,
        expected: ExpectedNode | None,
        challenge: bytes,
        *,
        token: Token | None = None,
        directories: Directories | None = None,
        group: GroupId = GROUP_0,
    ) -> None:
        """Send HELLO, wait for WELCOME, and compare it with the node that is expected (None = any).

        Cancelled: the handshake may be under way, so the caller has to abort the link.

        Raises:
          WrongClusterError: the node belongs to another cluster than ``cluster_id``; "" takes any.
          WrongNodeError: it is not the node that is expected.
          PeerError: no node of ours, or of another version.
          UnavailableError: the connection was lost.
        """
        assert self._wire is not None, "the network gave no connection"
        hello = Hello(
            cluster=cluster_id,
            members=True,
            challenge=challenge if expected is not None else b"",
            token="" if token is None else token.text,
            proves=bool(directories),
            group=group,
        )
        self._opening = Opening(hello.to_map(), self.address, refused=_refusal)
        sent_at = self._runtime.time()
        self._wire.send(self._opening.frame)
        welcome = await self._welcome
        self.quickest = min(self.quickest, self._heard - sent_at)
        if expected is not None:
            self.doubt = check_identity(self.address, expected, welcome.to_map(), challenge)
        if welcome.challenge and directories:
            self._wire.send(_proof(welcome, directories))

    def abort(self) -> None:
        """End the link at once, for all."""
        if self._wire is not None:
            self._wire.abort()
        self._end(self._lost(None))

    def _end(self, reason: ViewstampError) -> None:
        if self.reason is not None:
            return
        self.reason = reason
        self._ready.clear()
        self._refused.clear()
        if not self._welcome.done():
            self._welcome.set_exception(reason)
            self._welcome.exception()  # Marks it as retrieved, because the handshake may have been cancelled.
        owed = {user: None for user, *_ in self._expected.values()}
        self._expected.clear()
        users, self._users = self._users, {}
        self._on_end(self)
        for user in users:
            user.cut_off(reason, is_owed=user in owed)

    # Users call these.

    @property
    def has_room(self) -> bool:
        """Whether another client may join."""
        return self.reason is None and len(self._users) < USERS_MAX

    def join(self, user: LinkUser) -> None:
        """Add a user. The link stays open until all users have left."""
        assert self.reason is None, "a link that has ended has no users"
        self._users[user] = None

    def leave(self, user: LinkUser) -> None:
        """Remove a user; the last one ends the link. Idempotent."""
        self._users.pop(user, None)
        if not self._users:
            self.abort()

    def _drop(self, user: LinkUser, error: Exception) -> None:
        """Cut one user off, because of an answer to it or of a mistake in its own code. The others go on."""
        self._users.pop(user, None)
        user.cut_off(self._lost(error), is_owed=False)
        if not self._users:
            self.abort()

    def ready(self, user: LinkUser) -> None:
        """Schedule calls of ``user.next_frame`` for the next turn, until it returns None. Never awaits."""
        if not user.is_ready and self.reason is None:
            user.is_ready = True
            self._ready.append(user)
            if not self._is_due:
                self._is_due = True
                self._runtime.call_soon(self._write)

    def expect(
        self, request_id: int, user: LinkUser, receive: Receive, *, is_question: bool = False, may_be_held: bool = False
    ) -> None:
        """Register a request that is about to be sent, so that its answer is passed to ``receive(user, frame)``.

        Args:
          request_id: from ``request_ids``.
          user: the sender.
          receive: takes the answer; it is not called after the user has left.
          is_question: whether the request counts towards ``QUESTIONS_MAX``.
          may_be_held: whether the request allows the node to wait before it answers.
        """
        self._expected[request_id] = user, receive, is_question, may_be_held
        if not may_be_held:
            if self._owed == 0:
                self._owed_since = self._runtime.time()
            self._owed += 1
        if is_question:
            self._questions += 1
            user.questions += 1

    def admits_question(self, user: LinkUser) -> bool:
        """Return whether a user may send one more question; if not, it is made ready after an answer."""
        if self._questions < QUESTIONS_MAX:
            share = max(1, QUESTIONS_MAX // len(self._users))
            if user.questions < share or self._questions < QUESTIONS_MAX - _RESERVED:
                return True
        self._refused[user] = None
        return False

    def suspect(self, since: float) -> None:
        """End the link for all if the node owes an answer since ``since`` and has sent nothing for too long.

        A user whose own answer is late calls this. Traffic of other users shows that the node lives.
        """
        if self._owed:
            since = min(since, self._owed_since)
        if self.reason is None and self._runtime.time() - max(self._heard, since) >= self._silence:
            self.is_silent = True
            self.abort()

    def _write(self) -> None:
        """Write the frames of this turn."""
        self._is_due = False
        wire, ready = self._wire, self._ready
        if self.reason is not None or wire is None:
            return
        if wire.unsent_bytes > UNSENT_BYTES_MAX:
            self._is_due = True
            self._runtime.call_later(_CONGESTED_SECONDS, self._write)
            return
        out: list[Buffer] = []
        sent = 0
        for _ in range(FRAMES_PER_TURN):
            for _ in range(len(ready)):
                user = ready.popleft()
                user.is_ready = False
                if not user.is_open:
                    continue
                try:
                    frame = user.next_frame()
                except Exception as error:
                    self._drop(user, error)
                    continue
                if frame is not None:
                    out += frame
                    if user.has_more and not user.is_ready:
                        user.is_ready = True
                        ready.append(user)
                    if len(out) >= _PIECE_BUFFERS:
                        sent += sum(map(len, out))
                        wire.send(out)
                        out = []
            if not ready or sent + sum(map(len, out)) >= BYTES_PER_TURN:
                break
        if out:
            wire.send(out)
        if ready and not self._is_due:
            self._is_due = True
            self._runtime.call_soon(self._write)


def _refusal(body: Mapping[str, Any]) -> ViewstampError:
    """Return the error that a REFUSED stands for. The node answers, so a client must not say that it is away."""
    error = error_from(body)
    error.is_refusal = True
    return error


def _proof(welcome: Welcome, directories: Directories) -> list[Buffer]:
    """Return the frame that proves to a node that this client can read a data directory: its own, or another member's.

    A node knows every member's incarnation from the membership, but its own is known even before that.
    """
    name = name_of(welcome.node)
    node, incarnation = next((each for each in directories if each[0] == name), next(iter(directories)))
    proof = administrator_proof(incarnation, directory_of=node, to=welcome.node, challenge=welcome.challenge)
    return encode_frame(ProveDirectory.kind, ProveDirectory(node=node, proof=proof).to_map())
