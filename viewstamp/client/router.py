"""Requests and their way: to any node, to one member or to the leader, again and again until one of them answers."""

from __future__ import annotations

from typing import Any

from viewstamp.client.checks import as_seconds
from viewstamp.client.connection import NodeConnection
from viewstamp.client.options import ClientOptions
from viewstamp.client.pool import ConnectionPool, LeaderConnection
from viewstamp.client.routing import Reaction, closed_error, copies, reaction
from viewstamp.client.runtime import Runtime
from viewstamp.errors import RequestError, UnavailableError, ViewstampError
from viewstamp.wire.frame import Frame
from viewstamp.wire.requests import AskStatus
from viewstamp.wire.schema import RequestBody

__all__ = ["Router"]


class Router:
    """Asks on behalf of all parts of a client, by the table of reactions in ``routing.py``.

    Invariants:
      * nothing is connected before ``start``, and nothing is asked after ``close``
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

    def start(self) -> None:
        """Begin to run, unless that has happened. Raises ClosedError after ``close``."""
        if self.is_closed:
            raise closed_error()
        if not self.is_started:
            self.is_started = True
            self._runtime.begin()
            self._runtime.spawn(self.leader.run())

    def close(self) -> None:
        """End every connection; callers get ClosedError."""
        self.is_closed = True
        self.leader.close()
        self.pool.close()

    def seconds(self, timeout: float | None) -> float:
        """Return a caller's timeout, by default that of the options. Raises RequestError if it is not above 0."""
        return as_seconds(timeout, self._options.timeout)

    def deadline(self, timeout: float | None) -> float:
        """Start, and return when a caller's timeout is over, on the runtime's clock."""
        self.start()
        return self._runtime.time() + self.seconds(timeout)

    def left(self, deadline: float) -> float:
        """Return the seconds until a deadline, at least 0."""
        return max(0.0, deadline - self._runtime.time())

    async def ask(self, request: RequestBody, timeout: float | None = None, *, node: str | None = None) -> Frame:
        """Ask any node, or the member ``node``, until one answers within ``timeout``; see :meth:`ask_any`."""
        self.start()
        _, frame = await self.ask_any(request, seconds=self.seconds(timeout), node=node)
        return frame

    async def ask_any(
        self,
        request: RequestBody,
        *,
        seconds: float,
        wait: float = 0.0,
        node: str | None = None,
        avoid: set[str] | None = None,
    ) -> tuple[NodeConnection, Frame]:
        """Ask any node; go to another one, or try again, until one answers.

        Each node is asked once before any is asked again, because two that were removed must not be all that is asked.

        Args:
          request: what to ask.
          seconds: how long to go on trying.
          wait: seconds for which a node may hold its answer because the request says so.
          node: the id of the only member to ask; None = any.
          avoid: addresses that are asked when all others were; those that fail are added.

        Raises:
          UnavailableError: nobody answered in time.
          PeerError: nobody at the known addresses is a node of this cluster.
          ViewstampError: the node's answer, if the table of reactions says that it is final.
        """
        runtime, pool = self._runtime, self.pool
        deadline = runtime.time() + seconds
        avoid = set() if avoid is None else avoid
        told: ViewstampError | None = None
        """The latest answer, which says more than that no time was left for another one."""
        while True:
            connection = None
            try:
                if node is not None:
                    connection = await runtime.within(max(0.0, deadline - runtime.time()), pool.to_node(node))
                else:
                    connection = await pool.any_but(avoid)
                remaining = deadline - runtime.time()
                if node is None and not wait and not avoid.issuperset({*pool.addresses.all} - {connection.address}):
                    remaining /= 2  # The rest is for the other nodes: nothing is known of one that was not asked.
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
                    raise pool.unanswered(f"node {node!r} does not answer") from error
                if pool.finder.strangers is not None:
                    raise copies(pool.finder.strangers)() from error
                delay = pool.finder.delay()
                if runtime.time() + delay >= deadline:
                    raise pool.unanswered(f"no node has answered: {error}") from error
                await runtime.sleep(delay)
            else:
                pool.finder.succeeded()
                return connection, frame

    async def ask_leader(
        self, request: RequestBody, timeout: float | None = None, *, deadline: float | None = None
    ) -> Frame:
        """Ask the leader, whichever node that becomes, until it answers. For requests that may be carried out twice.

        Raises:
          UnavailableError: not carried out.
          OutcomeUnknownError: it may have been carried out; ask again.
          ViewstampError: the leader's answer, if the table of reactions says that it is final.
        """
        deadline = self.deadline(timeout) if deadline is None else deadline
        time, leader = self._runtime.time, self.leader
        reason: ViewstampError | None = None
        is_doubtful = False
        while True:
            seconds = deadline - time()
            try:
                if seconds <= 0:
                    raise TimeoutError
                connection = await leader.wait(seconds)
            except TimeoutError:
                why = f"no leader has answered: {reason or leader.finder.last_error or 'none was found'}"
                raise self.pool.unanswered(why, is_unknown=is_doubtful) from reason
            try:
                timeout = min(self._options.silence, max(0.0, deadline - time()))
                frame = await connection.ask(request, timeout=timeout)
            except TimeoutError:
                reason, is_doubtful = UnavailableError(f"{connection.address} did not answer in time"), True
                self.pool.suspect(connection)
            except ViewstampError as error:
                react = reaction(error)
                if react is Reaction.FINAL:
                    raise
                if self.is_closed:
                    raise closed_error() from error
                if react is Reaction.LATER or reason is None or reaction(reason) is Reaction.ELSEWHERE:
                    reason = error  # What stands in the way says more than that another node does not lead.
                # A node that refused says so; of one that was lost, or failed, nothing is known.
                is_doubtful = is_doubtful or not connection.is_open or react is Reaction.UNKNOWN
                if react is Reaction.LATER and connection.has_led:
                    leader.finder.failed(connection.address, error)
                    await self._runtime.sleep(min(leader.finder.delay(), seconds))
                else:
                    leader.leave(connection, error)
            else:
                connection.has_led = True
                leader.finder.succeeded()
                return frame

    async def leader_status(self, deadline: float) -> tuple[str, dict[str, Any]]:
        """Return the id and the status of the member that says of itself that it leads.

        A node that was removed may know no leader, or one that was removed too: so one node after the other is asked.

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
                connection, frame = await self.ask_any(AskStatus(), seconds=seconds, node=named, avoid=avoid)
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
