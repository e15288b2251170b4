"""Sends a request to any node, to one member or to the leader, and repeats it until a node answers."""

from __future__ import annotations

from typing import Any

from viewstamp.client.checks import as_seconds
from viewstamp.client.connection import NodeConnection
from viewstamp.client.options import ClientOptions
from viewstamp.client.pool import ConnectionPool, LeaderConnection
from viewstamp.client.routing import Reaction, closed_error, copies, reaction
from viewstamp.client.runtime import Future, Runtime
from viewstamp.errors import RequestError, UnavailableError, ViewstampError
from viewstamp.wire.frame import Frame
from viewstamp.wire.requests import AskStatus
from viewstamp.wire.schema import RequestBody

__all__ = ["Router"]


class Router:
    """Sends the requests of all parts of a client, by the table of reactions in ``routing.py``.

    Invariants:
      * no connection is opened before ``start``, and no request is sent after ``close``
    """

    def __init__(
        self, runtime: Runtime, options: ClientOptions, pool: ConnectionPool, leader: LeaderConnection
    ) -> None:
        self.pool = pool
        self.leader = leader
        self.is_closed = False
        self.is_started = False
        self._runtime = runtime
        self._options = options
        self._search: Future[None] | None = None
        """The task that searches for the leader."""

    def start(self) -> None:
        """Start the client if it has not started. Raises ClosedError after ``close``."""
        if self.is_closed:
            raise closed_error()
        if not self.is_started:
            self.is_started = True
            self._runtime.begin()
            self._search = self._runtime.spawn(self.leader.run())

    def close(self) -> None:
        """End every connection; callers get ClosedError."""
        self.is_closed = True
        if self._search is not None:
            self._search.cancel()
        self.leader.close()
        self.pool.close()

    def seconds(self, timeout: float | None) -> float:
        """Return a caller's timeout, by default that of the options. Raises RequestError if it is not above 0."""
        return as_seconds(timeout, self._options.timeout)

    def deadline(self, timeout: float | None) -> float:
        """Start the client, and return the end of a caller's timeout on the runtime's clock."""
        self.start()
        return self._runtime.time() + self.seconds(timeout)

    def left(self, deadline: float) -> float:
        """Return the seconds until a deadline, at least 0."""
        return max(0.0, deadline - self._runtime.time())

    async def ask(
        self,
        request: RequestBody,
        timeout: float | None = None,
        *,
        deadline: float | None = None,
        node: str | None = None,
    ) -> Frame:
        """Send a request to any node, or to the member ``node``, until one answers; see :meth:`ask_any`."""
        deadline = self.deadline(timeout) if deadline is None else deadline
        _, frame = await self.ask_any(request, seconds=self.left(deadline), node=node)
        return frame

    async def ask_any(
        self,
        request: RequestBody,
        *,
        seconds: float,
        wait: float = 0.0,
        node: str | None = None,
        avoid: set[str] | None = None,
        is_read: bool = True,
    ) -> tuple[NodeConnection, Frame]:
        """Send a request to one node after the other until one answers.

        Every node gets the request once before any gets it again, because the first ones may be removed members.

        Args:
          request: the request.
          seconds: time until the call fails.
          wait: seconds for which the request allows a node to hold its answer.
          node: the id of the only member to try; None = any.
          avoid: addresses that are tried after all others; those that fail are added.
          is_read: whether the request changes nothing, for the message of an error.

        Raises:
          UnavailableError: no node answered in time.
          PeerError: no server at the known addresses is a node of this cluster.
          ViewstampError: the node's answer, if the table of reactions says that it is final.
        """
        runtime, pool = self._runtime, self.pool
        deadline = runtime.time() + seconds
        avoid = set() if avoid is None else avoid
        told: ViewstampError | None = None
        """The latest answer; it explains more than a timeout of the last attempt does."""
        while True:
            connection = None
            try:
                if node is not None:
                    connection = pool.open_to(node)
                    if connection is None:
                        connection = await runtime.within(max(0.0, deadline - runtime.time()), pool.to_node(node))
                else:
                    connection = pool.at_hand(avoid) or await pool.any_but(avoid)
                remaining = deadline - runtime.time()
                if node is None and not wait and pool.has_others(connection, avoid):
                    remaining /= 2  # Keep time for nodes that were not tried, because they may answer at once.
                timeout = max(0.0, min(self._options.silence + wait, remaining))
                frame = await connection.ask(request, timeout=timeout, wait=wait)
            except (ViewstampError, TimeoutError) as error:
                if isinstance(error, ViewstampError) and reaction(error) is Reaction.FINAL:
                    raise
                if self.is_closed:
                    raise closed_error() from error
                if connection is not None:
                    avoid.add(connection.address)
                    if isinstance(error, TimeoutError):
                        pool.suspect(connection)
                        error = told or UnavailableError(f"{connection.address} did not answer in time")
                    told = error
                    pool.finder.failed(connection.address, error)
                elif node is not None:
                    if isinstance(error, ViewstampError):
                        raise
                    raise pool.unanswered(f"node {node!r} does not answer", is_read=is_read) from error
                if pool.finder.strangers is not None:
                    raise copies(pool.finder.strangers)() from error
                delay = pool.finder.delay()
                if runtime.time() + delay >= deadline:
                    raise pool.unanswered(f"no node has answered: {error}", is_read=is_read) from error
                await runtime.sleep(delay)
            else:
                pool.finder.succeeded()
                return connection, frame

    async def ask_leader(
        self,
        request: RequestBody,
        timeout: float | None = None,
        *,
        deadline: float | None = None,
        wait: float = 0.0,
    ) -> Frame:
        """Send a request to the leader, and to each later one, until one answers. The request must be idempotent.

        ``wait``: the seconds for which the request allows a node to hold its answer.

        The request is not sent any more when the time that is left is shorter than the node's quickest answer so far.
        It could only time out, and then the caller would not know whether it was carried out. At least half of the time
        is used, because all earlier answers may have been slow.

        Raises:
          UnavailableError: it was not carried out.
          OutcomeUnknownError: it may have been carried out; call again.
          ViewstampError: the leader's answer, if the table of reactions says that it is final.
        """
        deadline = self.deadline(timeout) if deadline is None else deadline
        time, leader = self._runtime.time, self.leader
        half = (deadline - time()) / 2
        reason: ViewstampError | None = None
        refusal: ViewstampError | None = None
        is_doubtful = False
        while True:
            seconds = deadline - time()
            try:
                if seconds <= 0:
                    raise TimeoutError
                connection = await leader.wait(seconds)
                seconds = deadline - time()
                if seconds <= 0 or seconds < min(connection.quickest, half):
                    raise TimeoutError
            except TimeoutError:
                why = f"no leader has answered: {reason or leader.finder.last_error or 'none was found'}"
                raise self.pool.unanswered(why, is_unknown=is_doubtful) from reason
            question = connection.put(request, timeout=min(self._options.silence + wait, seconds), wait=wait)
            try:
                frame = await connection.answer_to(question)
            except TimeoutError:
                # The last refusal of a leader explains more than the silence of the attempt behind it.
                before = f"; before that a leader refused: {refusal}" if refusal is not None else ""
                reason = UnavailableError(f"{connection.address} did not answer in time{before}")
                is_doubtful = is_doubtful or question.was_sent
                self.pool.suspect(connection)
            except ViewstampError as error:
                react = reaction(error)
                if react is Reaction.FINAL:
                    raise
                if self.is_closed:
                    raise closed_error() from error
                if react is Reaction.LATER or reason is None or reaction(reason) is Reaction.ELSEWHERE:
                    reason = error  # It explains more than NotLeaderError of another node does.
                if react is Reaction.LATER and connection.is_open:
                    refusal = error
                # A refusal is certain. If the connection was lost, a request that was sent may have been carried out.
                is_lost = question.was_sent and not connection.is_open
                is_doubtful = is_doubtful or is_lost or react is Reaction.UNKNOWN
                if react is Reaction.LATER and connection.has_led:
                    leader.finder.failed(connection.address, error)
                    await self._runtime.sleep(min(leader.finder.delay(), self.left(deadline)))
                else:
                    leader.leave(connection, error)
            else:
                connection.has_led = True
                leader.finder.succeeded()
                return frame

    async def leader_status(self, deadline: float) -> tuple[str, dict[str, Any]]:
        """Return the id and the status of the member that reports itself as the leader.

        A removed node may report no leader, or a removed one. So the nodes are tried one after the other.
        Callers may change the membership afterwards, so an error says that nothing was written.

        Raises:
          UnavailableError: no node leads.
        """
        time, options = self._runtime.time, self._options
        named: str | None = None
        avoid: set[str] = set()
        while True:
            leader = None
            seconds = max(0.0, deadline - time())
            if named is not None:
                seconds = min(seconds, options.connect_timeout + options.silence)
            try:
                connection, frame = await self.ask_any(
                    AskStatus(), seconds=seconds, node=named, avoid=avoid, is_read=False
                )
            except (UnavailableError, RequestError):
                if named is None or self.is_closed:
                    raise
                self.pool.check_member(named)
            else:
                leader = frame.body["status"].get("leader")
                if leader == connection.node:
                    return str(leader), frame.body["status"]
                avoid.add(connection.address)
            named = str(leader) if leader and named is None else None
            if named is None and avoid.issuperset(self.pool.addresses.all):
                await self._runtime.sleep(min(options.back_off_max, max(0.0, deadline - time())))
            if time() >= deadline:
                raise self.pool.unanswered("no node leads")

    async def status(self, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return the status map of each known node: ``reachable`` True, or False with ``address`` and the error.

        The members that an answering node names are asked too. Raises nothing for nodes that do not answer.
        """
        self.start()
        longest = self._options.connect_timeout + self._options.silence
        return await self.pool.status(min(self.seconds(timeout), longest))
