"""The connections to the members, the one to the leader, and requests that go to any of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from viewstamp.client.checks import read_members
from viewstamp.client.connection import NodeConnection, open_connection
from viewstamp.client.options import ClientOptions
from viewstamp.client.routing import ELSEWHERE, Addresses, LeaderFinder, Roster, closed_error, copies
from viewstamp.client.runtime import Dialer, Future, Runtime
from viewstamp.errors import (
    OutcomeToken,
    RequestError,
    StorageFullError,
    UnavailableError,
    ViewstampError,
    WrongClusterError,
    WrongNodeError,
    unanswered,
)
from viewstamp.ids import ClusterId, SessionId, name_of
from viewstamp.wire.frame import Frame
from viewstamp.wire.identity_proof import CHALLENGE_BYTES
from viewstamp.wire.requests import AskStatus, OpenSession
from viewstamp.wire.schema import RequestBody

__all__ = ["ConnectionPool", "LeaderConnection", "Owner"]


class ConnectionPool:
    """At most one open connection per address, opened when it is needed, kept until it ends.

    Invariants:
      * every open connection is to a node of ``cluster_id``; "" = none was opened yet
      * after ``close`` nothing is opened any more
    """

    def __init__(
        self,
        runtime: Runtime,
        network: Dialer,
        addresses: Addresses,
        request_ids: Iterator[int],
        *,
        cluster_id: str,
        entropy: random.Random,
        options: ClientOptions,
        roster: Roster,
        on_open: Callable[[NodeConnection], None],
    ) -> None:
        self.cluster_id = ClusterId(cluster_id)
        self.preferred: NodeConnection | None = None
        """Whom to ask first: the leader, if it is known."""
        self.finder = LeaderFinder(addresses, entropy=entropy, back_off=(options.back_off_min, options.back_off_max))
        """Which address to try next."""
        self.addresses = addresses
        self._runtime = runtime
        self._network = network
        self._request_ids = request_ids
        self._options = options
        self._on_open = on_open
        self._entropy = entropy
        self._roster = roster
        self._pool: dict[str, NodeConnection] = {}
        self._opening: dict[str, AbstractAsyncContextManager[object]] = {}
        self._away: set[str] = set()
        """Addresses where the last attempt to connect found nobody."""
        self._is_closed = False

    def unanswered(
        self, reason: BaseException | str, *, is_unknown: bool = False, token: OutcomeToken | None = None
    ) -> ViewstampError:
        """Return the error for a request that was not answered in time; see ``errors.unanswered``."""
        # A node may be known by several addresses, and is away if it is at all of them.
        known = [address for address in self.addresses.all if self.addresses.is_member(address)] or self.addresses.all
        names = {address: self._roster.name(address) or self.addresses.name(address) for address in known}
        here = {name for address, name in names.items() if address not in self._away}
        members = set(names.values())
        # Addresses that never were a node's may be wrong ones: then it matters what became of them.
        is_named = any(name != address for address, name in names.items())
        return unanswered(
            members,
            members - here,
            str(reason),
            doctor=self._options.doctor,
            detail="" if is_named or here else str(reason),
            is_unknown=is_unknown,
            token=token,
        )

    def close(self) -> None:
        """End every connection at once. Idempotent."""
        self._is_closed = True
        for link in self._pool.values():
            link.abort()

    def suspect(self, link: NodeConnection) -> None:
        """End a connection on which nothing was heard for too long; one that only is slow may go on."""
        if self._runtime.time() - link.heard >= self._options.silence:
            link.is_silent = True
            link.abort()

    def admits(self, address: str) -> bool:
        """Say whether a connection may be opened to an address, as far as identities go; see ``routing.py``."""
        return self._roster.admits(address)

    def check_member(self, member: str) -> None:
        """Raise WrongNodeError if a member that was not reached is where no connection may be opened."""
        self._roster.check_member(member)

    async def to(self, address: str, *, for_status: bool = False) -> NodeConnection:
        """Return the open connection to ``address``, opening it where there is none.

        Args:
          address: of the node.
          for_status: whether nothing but STATUS will be sent, so that a node will do that cannot prove yet who it is.

        Raises:
          UnavailableError, PeerError: as ``open_connection``; also while the node cannot prove who it is.
          WrongNodeError: no connection may be opened there; see ``routing.py``.
        """
        if address not in self._opening:
            self._opening[address] = self._runtime.create_lock()
        async with self._opening[address]:
            link = self._pool.get(address)
            if link is not None and (link.is_usable or (link.is_open and for_status)):
                return link
            if link is not None and link.is_open:
                link.abort()  # Only another handshake can settle the doubt.
            if self._is_closed:
                raise closed_error()
            expected = self._roster.at(address)
            self._away.add(address)  # Until it has answered, be it that it is another node.
            link = await open_connection(
                self._runtime,
                self._network,
                address,
                self._request_ids,
                cluster_id=self.cluster_id,
                expected=expected,
                challenge=b"" if expected is None else self._entropy.randbytes(CHALLENGE_BYTES),
                timeout=self._options.connect_timeout,
                frame_bytes_max=self._options.frame_bytes_max,
                on_answer=lambda: self._away.discard(address),
            )
            if self._is_closed:
                link.abort()
                raise closed_error()
            if not self.cluster_id:
                self.cluster_id = ClusterId(link.cluster)
            elif link.cluster != self.cluster_id:
                link.abort()
                raise WrongClusterError(
                    f"{address} belongs to cluster {link.cluster!r}, but this client talks to {self.cluster_id!r}",
                    remedy="check the addresses: all of them must be nodes of one cluster",
                )
            self._pool[address] = link
            self.addresses.meet(address, link.node)
            link.tell_members(lambda members, generation: self._learn(link, members, generation))
            self._on_open(link)
            if not link.is_open:
                raise link.closed.result()
            if link.doubt is not None and not for_status:
                raise copies(link.doubt)()
            return link

    def _learn(self, link: NodeConnection, members: dict[str, str], generation: int) -> None:
        """Take the members that a node names."""
        self._roster.vouch(link.node, link.address, members)
        self.addresses.learn(members, generation)

    async def to_node(self, node: str) -> NodeConnection:
        """Return a connection to the member with this id, or to the node of this name.

        Raises:
          UnavailableError: it cannot be reached, or is unknown and not everybody could be asked.
          RequestError: everybody answers, and none of them is that node.
        """
        for link in self._pool.values():
            if link.is_usable and node in (link.node, name_of(link.node)):
                return link
        failures: list[ViewstampError] = []
        seen: list[str] = []
        tried: dict[str, None] = {}
        # The members' own addresses come to light while the list is walked.
        while left := [address for address in self.addresses.of(node) if address not in tried]:
            address = left[0]
            tried[address] = None
            try:
                link = await self.to(address)
                if node in (link.node, name_of(link.node)):
                    return link
                seen.append(link.node)
                await self._learn_members(link)
            except (ViewstampError, TimeoutError) as error:
                failures.append(
                    error if isinstance(error, ViewstampError) else UnavailableError(f"{address} is silent")
                )
        if failures and all(isinstance(failure, WrongNodeError) for failure in failures):
            raise copies(failures[-1])() from failures[-1]
        if failures:
            raise UnavailableError(
                f"node {node!r} does not answer: {failures[-1]}", remedy="start it, or ask another one"
            ) from failures[-1]
        raise RequestError(
            f"no node is named {node!r}; there are {', '.join(sorted(seen))}", remedy="take one of these"
        )

    async def _learn_members(self, link: NodeConnection) -> dict[str, Any]:
        """Ask a node for its status, and remember the addresses of the members that it names."""
        frame = await link.ask(AskStatus(), timeout=self._options.silence)
        status: dict[str, Any] = frame.body["status"]
        membership = status.get("membership")
        generation = membership.get("generation") if isinstance(membership, dict) else 0
        self._learn(link, *read_members({"members": status.get("members") or {}, "generation": generation}))
        return status

    async def ask_any(
        self,
        request: RequestBody,
        *,
        seconds: float,
        wait: float = 0.0,
        node: str | None = None,
        avoid: set[str] | None = None,
    ) -> tuple[NodeConnection, Frame]:
        """Ask any node, or the member ``node``; go to another one, or try again, until one answers.

        Each node is asked once before any is asked again: two that were removed must not be all that is asked.

        Args:
          request: what to ask.
          seconds: how long to go on trying.
          wait: how long a node may hold its answer by the request's own wish.
          node: a member's id.
          avoid: addresses that are asked when all others were; grows by those that fail.

        Raises:
          UnavailableError: nobody answered in time.
          PeerError: nobody at the known addresses is a node of this cluster.
          RequestError: what the node answered.
        """
        deadline = self._runtime.time() + seconds
        avoid = set() if avoid is None else avoid
        told: ViewstampError | None = None
        """What a node answered last; says more than that there was no time left for another answer."""
        while True:
            link = None
            try:
                if node is not None:
                    link = await self._runtime.within(max(0.0, deadline - self._runtime.time()), self.to_node(node))
                else:
                    link = await self._some_link(avoid)
                remaining = deadline - self._runtime.time()
                if node is None and not wait and not avoid.issuperset({*self.addresses.all} - {link.address}):
                    remaining /= 2  # The others have to be asked too: of a node that was not, nobody can say anything.
                frame = await link.ask(request, timeout=max(0.0, min(self._options.silence + wait, remaining)))
            except RequestError:
                raise
            except (ViewstampError, TimeoutError) as error:
                if self._is_closed:
                    raise closed_error() from error
                if link is not None:
                    avoid.add(link.address)
                    if isinstance(error, TimeoutError):
                        self.suspect(link)
                        error = told or UnavailableError(f"{link.address} did not answer in time")
                    told = error
                    self.finder.failed(link.address, error)
                elif node is not None:
                    if isinstance(error, ViewstampError):
                        raise
                    raise self.unanswered(f"node {node!r} does not answer") from error
                if self.finder.strangers is not None:
                    raise copies(self.finder.strangers)() from error
                delay = self.finder.delay()
                if self._runtime.time() + delay >= deadline:
                    raise self.unanswered(f"no node has answered: {error}") from error
                await self._runtime.sleep(delay)
            else:
                self.finder.succeeded()
                return link, frame

    async def _some_link(self, avoid: set[str]) -> NodeConnection:
        """Return an open connection that is not to ``avoid``, the leader's first, then a member's; else open one."""
        if avoid.issuperset(self.addresses.all):
            avoid.clear()
        known = [self.preferred] if self.preferred is not None else []
        known += sorted(self._pool.values(), key=lambda link: not self.addresses.is_member(link.address))
        for link in known:
            if link.is_usable and link.address not in avoid:
                return link
        address = self.finder.next_address()
        for _ in self.addresses.all:
            if address in avoid:
                address = self.finder.next_address()
        try:
            return await self.to(address)
        except ViewstampError as error:
            avoid.add(address)
            self.finder.failed(address, error)
            raise

    async def status(self, seconds: float) -> list[dict[str, Any]]:
        """Return each known node's own status map, with ``reachable`` True; of the others ``address`` and the reason.

        Members that are named by a node that answers are asked too. Never raises for nodes that are away.
        """
        asked: dict[str, dict[str, Any]] = {}
        while True:
            ask = [address for address in self.addresses.all if address not in asked]
            if not ask:
                break
            asking = [self._runtime.spawn(self._status_of(address, seconds)) for address in ask]
            try:
                asked.update([(address, await question) for address, question in zip(ask, asking, strict=True)])
            finally:
                for question in asking:
                    question.cancel()
        # A node may be known by two addresses; and one that answers tells who is behind an address that does not.
        names: dict[str, str] = {}
        for answer in asked.values():
            members = answer.get("members")
            if isinstance(members, dict):
                names |= {str(address): str(node) for node, address in members.items()}
        nodes: dict[str, dict[str, Any]] = {}
        for address, answer in asked.items():
            if not answer["reachable"] and address in names:
                answer = {"id": names[address], **answer}
            name = str(answer.get("id", address))
            if name not in nodes or answer["reachable"]:
                nodes[name] = answer
        return list(nodes.values())

    async def _status_of(self, address: str, seconds: float) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            return {**await self._learn_members(await self.to(address, for_status=True)), "reachable": True}

        try:
            return await self._runtime.within(seconds, ask())
        except (ViewstampError, TimeoutError) as error:
            reason = str(error) or f"no answer within {seconds:g} s"
            return {"address": address, "reachable": False, "error": reason, "error_class": type(error).__name__}


class Owner(Protocol):
    """Who needs a leader: the client."""

    @property
    def has_work(self) -> bool:
        """Whether something waits to be sent or answered."""
        ...

    @property
    def has_session(self) -> bool:
        """Whether a session is open."""
        ...

    def on_session(self, session: SessionId) -> None:
        """Take note that a session was opened."""
        ...

    def on_leader(self) -> None:
        """Take note that there is a link to send to, and a session if there is work."""
        ...

    def on_left(self) -> None:
        """Take note that the link is not the leader's any more."""
        ...

    def on_hopeless(self, error: ViewstampError) -> None:
        """Take note that waiting helps nobody."""
        ...


class LeaderConnection:
    """The link to the node that leads, as far as is known.

    Invariants:
      * ``link`` is None or was open when it was last looked at; ``leave`` is called for it when it ends
      * whoever waits for a leader is told: the link, an error, or by its own deadline
    """

    def __init__(
        self, runtime: Runtime, pool: ConnectionPool, finder: LeaderFinder, options: ClientOptions, owner: Owner
    ) -> None:
        self.link: NodeConnection | None = None
        self._runtime = runtime
        self._pool = pool
        self._finder = finder
        self._options = options
        self._owner = owner
        self._idle: Future[None] | None = None
        """What ``run`` waits for while nobody needs a leader."""
        self._waiters: list[Future[NodeConnection]] = []
        self._is_closed = False

    def need(self) -> None:
        """Look again whether a leader is needed."""
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def close(self) -> None:
        """Tell everybody who waits."""
        self._is_closed = True
        self.link = self._pool.preferred = None
        self._fail(closed_error())

    async def run(self) -> None:
        """Find the leader, and open a session there, whenever somebody needs it. The client's one standing task."""
        while True:
            if not self._is_needed():
                self._idle = self._runtime.create_future()
                await self._idle
                continue
            if self._finder.last_error is not None:
                await self._runtime.sleep(self._finder.delay())
            try:
                await self._approach()
            except ViewstampError:
                # At every address answers one that is none of ours: waiting helps nobody.
                stranger = self._finder.strangers
                if stranger is not None:
                    self._give_up(stranger)

    def _give_up(self, error: ViewstampError) -> None:
        """Fail all who wait for a leader, because waiting does not help."""
        self._owner.on_hopeless(error)
        self._fail(error)

    def _is_needed(self) -> bool:
        if self.link is None:
            return self._owner.has_work or bool(self._waiters)
        return not self._owner.has_session and self._owner.has_work

    async def _approach(self) -> None:
        """Take one step: connect to a node that may lead, or open a session with it."""
        link = self.link
        if link is None:
            address = self._finder.next_address()
            try:
                link = await self._pool.to(address)
            except ViewstampError as error:
                self._finder.failed(address, error, is_away=isinstance(error, UnavailableError))
                if isinstance(error, WrongNodeError) and not self._pool.admits(address):
                    self._give_up(error)  # A node that was met says that the leader is none of the expected nodes.
                raise
            self.link = self._pool.preferred = link
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(link)
            self._waiters = []
        if not self._owner.has_session and self._owner.has_work:
            await self._open_session(link)
        self._owner.on_leader()

    async def _open_session(self, link: NodeConnection) -> None:
        try:
            frame = await link.ask(OpenSession(), timeout=self._options.silence)
        except TimeoutError:
            self._pool.suspect(link)
            return
        except ViewstampError as error:
            self.leave(link, error)
            if isinstance(error, RequestError | StorageFullError):
                self._owner.on_hopeless(error)
            raise
        # A session is the cluster's and not the connection's: it is good even if the leader was left meanwhile.
        link.has_led = True
        self._owner.on_session(SessionId(frame.body["session"]))
        self._finder.succeeded()

    def leave(self, link: NodeConnection, error: ViewstampError) -> None:
        """Give up a leader that is none, or is gone. What it owes goes to the next one."""
        if self.link is link:
            self.link = self._pool.preferred = None
            self._finder.failed(link.address, error, is_away=link.is_silent)
            self._owner.on_left()
            self.need()

    def _fail(self, error: ViewstampError) -> None:
        fresh = copies(error)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(fresh())
        self._waiters = []

    async def _wait(self, seconds: float) -> NodeConnection:
        """Return a link to the node that leads as far as is known. Raises TimeoutError."""
        if self.link is not None:
            return self.link
        waiter: Future[NodeConnection] = self._runtime.create_future()
        self._waiters.append(waiter)
        self.need()
        try:
            return await self._runtime.within(seconds, waiter)
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    async def ask(self, request: RequestBody, *, deadline: float) -> Frame:
        """Ask the leader, wherever it goes, until it answers. For requests that may be carried out twice.

        Args:
          request: what to ask.
          deadline: on the runtime's clock.

        Raises:
          UnavailableError: not carried out.
          OutcomeUnknownError: it may have been carried out; ask again.
          RequestError, StorageFullError: what the leader answered.
        """
        time = self._runtime.time
        reason: BaseException | None = None
        is_doubtful = False
        while True:
            seconds = deadline - time()
            try:
                if seconds <= 0:
                    raise TimeoutError
                link = await self._wait(seconds)
            except TimeoutError:
                why = f"no leader has answered: {reason or self._finder.last_error or 'none was found'}"
                raise self._pool.unanswered(why, is_unknown=is_doubtful) from reason
            try:
                frame = await link.ask(request, timeout=min(self._options.silence, max(0.0, deadline - time())))
            except TimeoutError:
                reason, is_doubtful = UnavailableError(f"{link.address} did not answer in time"), True
                self._pool.suspect(link)
            except (RequestError, StorageFullError):
                raise
            except ViewstampError as error:
                if self._is_closed:
                    raise closed_error() from error
                is_later = isinstance(error, UnavailableError) and not isinstance(error, ELSEWHERE)
                if is_later or reason is None or isinstance(reason, ELSEWHERE):
                    reason = error  # What stands in the way says more than who does not lead.
                # A node that refused says so; of one that was lost, or failed, nothing is known.
                is_doubtful = is_doubtful or not (link.is_open and isinstance(error, UnavailableError))
                if is_later and link.has_led:
                    self._finder.failed(link.address, error)
                    await self._runtime.sleep(min(self._finder.delay(), seconds))
                else:
                    self.leave(link, error)
            else:
                link.has_led = True
                self._finder.succeeded()
                return frame
