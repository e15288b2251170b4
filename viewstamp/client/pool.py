"""The connections of a client in one group: one for each address at most, and the search for the leader."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from viewstamp.client.connection import NodeConnection
from viewstamp.client.links import LinkRequest, Links
from viewstamp.client.options import ClientOptions
from viewstamp.client.routing import Addresses, LeaderFinder, Reaction, Roster, closed_error, copies, reaction
from viewstamp.client.runtime import Dialer, Future, Runtime
from viewstamp.errors import (
    OutcomeToken,
    PeerError,
    RequestError,
    UnavailableError,
    ViewstampError,
    WrongClusterError,
    WrongNodeError,
    unanswered,
)
from viewstamp.ids import GROUP_0, GroupId, SessionId, name_of
from viewstamp.wire.access import Token
from viewstamp.wire.handshake import read_members
from viewstamp.wire.identity_proof import CHALLENGE_BYTES
from viewstamp.wire.requests import AskStatus, OpenSession

__all__ = ["ConnectionPool", "LeaderConnection", "Owner"]

_BRIEF_SECONDS = 1.0
"""A link that ends so soon after a client joined it may have ended because of a request of this very client."""
_BRIEF_MAX = 2
"""Brief links in a row after which a client gets a link of its own, so that it cannot cut off the others again."""


class ConnectionPool:
    """At most one open connection per address, opened when it is needed, kept until it ends.

    The links below the connections are shared with other clients (``link.py``), except with a node that lost the link
    to this client ``_BRIEF_MAX`` times in a row, each time within ``_BRIEF_SECONDS`` and while it owed an answer.

    Invariants:
      * every open connection is to a node of the cluster of ``roster``, and belongs to one group
      * after ``close`` nothing is opened any more
    """

    def __init__(
        self,
        runtime: Runtime,
        network: Dialer,
        addresses: Addresses,
        links: Callable[[], Links],
        *,
        entropy: random.Random,
        options: ClientOptions,
        roster: Roster,
        on_open: Callable[[NodeConnection], None],
        group: GroupId = GROUP_0,
    ) -> None:
        self.preferred: NodeConnection | None = None
        """The connection to try first: the leader's; None = the leader is not known."""
        self.finder = LeaderFinder(addresses, entropy=entropy, back_off=(options.back_off_min, options.back_off_max))
        """Chooses the address to try next."""
        self.addresses = addresses
        self._runtime = runtime
        self._network = network
        self._links = links
        """The links of the event loop. Called on the loop, because a client can be made before there is one."""
        self._options = options
        self._on_open = on_open
        self._entropy = entropy
        self._roster = roster
        self._group = group
        self._connections: dict[str, NodeConnection] = {}
        self._opening: dict[str, AbstractAsyncContextManager[object]] = {}
        self._brief: dict[str, int] = {}
        """By address: how many links in a row were brief."""
        self._away: set[str] = set()
        """Addresses at which the last attempt to connect had no answer."""
        self._strangers: set[str] = set()
        """Addresses of nodes that do not serve this group, as they said last: no members of it, or its log failed."""
        self._is_closed = False

    def unanswered(
        self,
        reason: BaseException | str,
        *,
        is_read: bool = False,
        is_unknown: bool = False,
        token: OutcomeToken | None = None,
    ) -> ViewstampError:
        """Return the error for a request that was not answered in time; see ``errors.unanswered``."""
        # A node may be known by several addresses. It counts as away only if none of them answers.
        known = [address for address in self.addresses.all if self.addresses.is_member(address)] or self.addresses.all
        known = [address for address in known if address not in self._strangers] or known
        names = {address: self._roster.name(address) or self.addresses.name(address) for address in known}
        here = {name for address, name in names.items() if address not in self._away}
        members = set(names.values())
        # If no address is known to be a node's, all may be wrong. Then the error has to show the reason.
        is_named = any(name != address for address, name in names.items())
        return unanswered(
            members,
            members - here,
            str(reason),
            doctor=self._options.doctor,
            detail="" if is_named or here else str(reason),
            is_read=is_read,
            is_unknown=is_unknown,
            token=token,
        )

    def close(self) -> None:
        """End every connection at once. Idempotent."""
        self._is_closed = True
        for connection in self._connections.values():
            connection.abort()

    def suspect(self, connection: NodeConnection) -> None:
        """End a connection over which no answer came for too long. If it only is slow, it may go on."""
        now = self._runtime.time()
        if now - connection.heard >= self._options.silence:
            connection.leave_silent(now)

    def admits(self, address: str) -> bool:
        """Return whether identities allow a connection to an address; see ``routing.py``."""
        return self._roster.admits(address)

    def check_member(self, member: str) -> None:
        """Raise WrongNodeError if an unreachable member is at an address to which no connection may be opened."""
        self._roster.check_member(member)

    async def to(self, address: str, *, for_status: bool = False) -> NodeConnection:
        """Return the open connection to ``address``; open one if there is none.

        Cancelled: other clients that wait for the same link go on; see ``links.py``.

        Args:
          address: of the node.
          for_status: whether only STATUS will be sent, which a node may get before it can prove its identity.

        Raises:
          UnavailableError, PeerError: as ``Links.find``; also while the node cannot prove its identity.
          WrongNodeError: no connection may be opened there; see ``routing.py``.
        """
        if address not in self._opening:
            self._opening[address] = self._runtime.create_lock()
        async with self._opening[address]:
            connection = self._connections.get(address)
            if connection is not None and (connection.is_usable or (connection.is_open and for_status)):
                return connection
            if connection is not None and connection.is_open:
                connection.abort()  # Only another handshake can remove the doubt.
            if self._is_closed:
                raise closed_error()
            expected = self._roster.at(address)
            self._away.add(address)  # Until a node has answered there, even the wrong one.
            wanted = LinkRequest(
                network=self._network,
                address=address,
                cluster_id=self._roster.cluster_id,
                expected=expected,
                challenge=b"" if expected is None else self._entropy.randbytes(CHALLENGE_BYTES),
                token=Token.read(self._options.token) if self._options.token else None,
                directories=self._roster.directories,
                group=self._group,
                connect_timeout=self._options.connect_timeout,
                silence=self._options.silence,
                frame_bytes_max=self._options.frame_bytes_max,
                is_alone=self._brief.get(address, 0) >= _BRIEF_MAX,
            )
            try:
                connection = NodeConnection(self._runtime, await self._links().find(self._runtime, wanted))
            except ViewstampError as error:
                if error.is_refusal or isinstance(error, PeerError):
                    self._away.discard(address)
                if error.is_refusal and type(error) is UnavailableError and self._group:
                    self._strangers.add(address)
                raise
            self._away.discard(address)
            self._strangers.discard(address)
            connection.closed.add_done_callback(lambda _: self._note_end(connection))
            if self._is_closed:
                connection.abort()
                raise closed_error()
            try:
                self._roster.check_cluster(address, connection.cluster)
            except WrongClusterError:
                connection.abort()
                raise
            self._connections[address] = connection
            self.addresses.meet(address, connection.node)
            connection.follow_members(lambda members, generation: self._learn(connection, members, generation))
            self._on_open(connection)
            if not connection.is_open:
                raise connection.closed.result()
            if connection.doubt is not None and not for_status:
                raise copies(connection.doubt)()
            return connection

    def _note_end(self, connection: NodeConnection) -> None:
        is_brief = connection.was_owed and self._runtime.time() - connection.joined < _BRIEF_SECONDS
        self._brief[connection.address] = self._brief.get(connection.address, 0) + 1 if is_brief else 0

    def _learn(self, connection: NodeConnection, members: dict[str, str], generation: int) -> None:
        """Store the members that a node names."""
        self._roster.vouch(connection.node, connection.address, members)
        self.addresses.learn(members, generation)

    def open_to(self, node: str) -> NodeConnection | None:
        """Return the open connection to the member with this id, or to the node of this name; None = there is none."""
        preferred = self.preferred
        if preferred is not None and preferred.node == node and preferred.is_usable:
            return preferred
        for connection in self._connections.values():
            if connection.is_usable and (node == connection.node or node == name_of(connection.node)):
                return connection
        return None

    async def to_node(self, node: str) -> NodeConnection:
        """Return a connection to the member with this id, or to the node of this name.

        Raises:
          UnavailableError: it cannot be reached, or is unknown and some nodes did not answer.
          RequestError: all nodes answer, and none of them is that node.
        """
        if (connection := self.open_to(node)) is not None:
            return connection
        failures: list[ViewstampError] = []
        seen: list[str] = []
        tried: dict[str, None] = {}
        # Each node that answers may name more addresses.
        while left := [address for address in self.addresses.of(node) if address not in tried]:
            address = left[0]
            tried[address] = None
            try:
                connection = await self.to(address)
                if node in (connection.node, name_of(connection.node)):
                    return connection
                seen.append(connection.node)
                await self._learn_members(connection)
            except (ViewstampError, TimeoutError) as error:
                failures.append(
                    error if isinstance(error, ViewstampError) else UnavailableError(f"{address} did not answer")
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

    async def _learn_members(self, connection: NodeConnection) -> dict[str, Any]:
        """Request a node's status, and store the addresses of the members that it names."""
        frame = await connection.ask(AskStatus(), timeout=self._options.silence)
        status: dict[str, Any] = frame.body["status"]
        membership = status.get("membership")
        generation = membership.get("generation") if isinstance(membership, dict) else 0
        self._learn(connection, *read_members({"members": status.get("members") or {}, "generation": generation}))
        return status

    def at_hand(self, avoid: set[str]) -> NodeConnection | None:
        """Return the leader's connection if it is open and its address is not in ``avoid``; else None."""
        connection = self.preferred
        if connection is None or not connection.is_usable or connection.address in avoid:
            return None
        return connection

    def has_others(self, connection: NodeConnection, avoid: set[str]) -> bool:
        """Return whether there are addresses besides the one of ``connection`` and those in ``avoid``."""
        if not avoid:
            return len(self.addresses.all) > 1
        return not avoid.issuperset({*self.addresses.all} - {connection.address})

    async def any_but(self, avoid: set[str]) -> NodeConnection:
        """Return an open connection to an address not in ``avoid``: the leader's, else a member's, else a new one."""
        if avoid.issuperset(self.addresses.all):
            avoid.clear()
        known = [self.preferred] if self.preferred is not None else []
        known += sorted(
            self._connections.values(), key=lambda connection: not self.addresses.is_member(connection.address)
        )
        for connection in known:
            if connection.is_usable and connection.address not in avoid:
                return connection
        address = self.finder.next_address()
        for _ in self.addresses.all:
            if address in avoid:
                address = self.finder.next_address()
        try:
            return await self.to(address)
        except ViewstampError as error:
            avoid.add(address)
            self.finder.failed(address, error, is_away=isinstance(error, UnavailableError))
            raise

    async def status(self, seconds: float) -> list[dict[str, Any]]:
        """Return the status map of each known node, with ``reachable`` True; of the others ``address`` and the reason.

        Members that a node names are included. Never raises for nodes that are away.
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
        # A node may be known by two addresses. A node that answers names the member at an address that does not.
        names: dict[str, str] = {}
        for answer in asked.values():
            members = answer.get("members")
            if isinstance(members, dict):
                names |= {str(address): str(node) for node, address in members.items()}
        nodes: dict[str, dict[str, Any]] = {}
        for address, answer in asked.items():
            if not answer["reachable"] and address in names:
                answer = {"id": name_of(names[address]), "member_id": names[address], **answer}
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
            remedy = error.remedy if isinstance(error, ViewstampError) else ""
            answer = {"address": address, "reachable": False, "error": reason, "remedy": remedy}
            return {**answer, "error_class": type(error).__name__}


class Owner(Protocol):
    """The part of a client that sends batches of a session to the leader: the sender."""

    @property
    def has_work(self) -> bool:
        """Whether a batch waits to be sent or to be answered."""
        ...

    @property
    def has_session(self) -> bool:
        """Whether a session is open."""
        ...

    def on_session(self, session: SessionId) -> None:
        """Begin a session that was opened."""
        ...

    def on_leader(self) -> None:
        """Send: there is a connection to the leader, and a session if there is work."""
        ...

    def on_left(self) -> None:
        """Stop: the connection is no longer the leader's."""
        ...

    def on_hopeless(self, error: ViewstampError) -> None:
        """Fail unsent work, because waiting does not help."""
        ...


class LeaderConnection:
    """The connection to the node that is believed to lead. Finds that node, and opens a session there.

    Invariants:
      * ``connection`` is None, or ``leave`` will be called for it when it ends
      * every call of ``wait`` ends with the connection, an error, or its own timeout
    """

    def __init__(self, runtime: Runtime, pool: ConnectionPool, finder: LeaderFinder, options: ClientOptions) -> None:
        self.connection: NodeConnection | None = None
        self.finder = finder
        self._runtime = runtime
        self._pool = pool
        self._options = options
        self._owner: Owner | None = None
        self._idle: Future[None] | None = None
        """The future that ``run`` awaits while no leader is needed."""
        self._waiters: list[Future[NodeConnection]] = []

    def serve(self, owner: Owner) -> None:
        """Set the part that sends batches to the leader. Called once, before ``run``."""
        self._owner = owner

    def need(self) -> None:
        """Have ``run`` check again whether a leader is needed."""
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def close(self) -> None:
        """Fail all callers that wait for a leader."""
        self.connection = self._pool.preferred = None
        self._fail(closed_error())

    async def run(self) -> None:
        """Find the leader and open a session there, whenever one is needed. The only task that a client always has."""
        while True:
            if not self._is_needed():
                self._idle = self._runtime.create_future()
                await self._idle
                continue
            if self.finder.last_error is not None:
                await self._runtime.sleep(self.finder.delay())
            try:
                await self._approach()
            except ViewstampError:
                # A server that is no node of the cluster answers at every address, so waiting does not help.
                stranger = self.finder.strangers
                if stranger is not None:
                    self._give_up(stranger)

    def _give_up(self, error: ViewstampError) -> None:
        """Fail all callers that wait for a leader, because waiting does not help."""
        if self._owner is not None:
            self._owner.on_hopeless(error)
        self._fail(error)

    @property
    def _needs_session(self) -> bool:
        return self._owner is not None and self._owner.has_work and not self._owner.has_session

    def _is_needed(self) -> bool:
        if self.connection is None:
            return bool(self._waiters) or (self._owner is not None and self._owner.has_work)
        return self._needs_session

    async def _approach(self) -> None:
        """Connect to a node that may lead, and open a session if one is needed."""
        connection = self.connection
        if connection is None:
            address = self.finder.next_address()
            try:
                connection = await self._pool.to(address)
            except ViewstampError as error:
                self.finder.failed(address, error, is_away=isinstance(error, UnavailableError))
                if isinstance(error, WrongNodeError) and not self._pool.admits(address):
                    self._give_up(error)  # An expected node names a leader that is not an expected node.
                raise
            self.connection = self._pool.preferred = connection
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(connection)
            self._waiters = []
        if self._owner is None:
            return
        if self._needs_session:
            await self._open_session(connection, self._owner)
        self._owner.on_leader()

    async def _open_session(self, connection: NodeConnection, owner: Owner) -> None:
        try:
            frame = await connection.ask(OpenSession(), timeout=self._options.silence)
        except TimeoutError:
            self._pool.suspect(connection)
            return
        except ViewstampError as error:
            self.leave(connection, error)
            if reaction(error) is Reaction.FINAL:
                owner.on_hopeless(error)
            raise
        # The session belongs to the cluster, so it is valid even if the leader was left meanwhile.
        connection.has_led = True
        owner.on_session(SessionId(frame.body["session"]))
        self.finder.succeeded()

    def leave(self, connection: NodeConnection, error: ViewstampError) -> None:
        """Leave a node that does not lead or is gone. Its unanswered requests are sent to the next one."""
        if self.connection is connection:
            self.connection = self._pool.preferred = None
            self.finder.failed(connection.address, error, is_away=connection.is_silent)
            if self._owner is not None:
                self._owner.on_left()
            self.need()

    def _fail(self, error: ViewstampError) -> None:
        fresh = copies(error)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(fresh())
        self._waiters = []

    async def wait(self, seconds: float) -> NodeConnection:
        """Return a connection to the node that is believed to lead. Raises TimeoutError after ``seconds``."""
        if self.connection is not None:
            return self.connection
        waiter: Future[NodeConnection] = self._runtime.create_future()
        self._waiters.append(waiter)
        self.need()
        try:
            return await self._runtime.within(seconds, waiter)
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
