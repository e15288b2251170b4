"""Connections to the members, and questions that any of them can answer. Knows nothing of appends and sessions."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

from viewstamp.client.addresses import Addresses
from viewstamp.client.checks import read_members
from viewstamp.client.connection import Link, open_link
from viewstamp.client.leader import LeaderSearch
from viewstamp.client.options import Options
from viewstamp.client.roster import Roster
from viewstamp.client.shell import Dialer, Shell
from viewstamp.errors import (
    ClosedError,
    OutcomeToken,
    RequestError,
    UnavailableError,
    ViewstampError,
    WrongClusterError,
    WrongNodeError,
    unanswered,
)
from viewstamp.ids import ClusterId, name_of
from viewstamp.wire.frame import Frame
from viewstamp.wire.identity_proof import CHALLENGE_BYTES
from viewstamp.wire.requests import FrameKind

__all__ = ["Links", "again", "closed_error"]


class Links:
    """At most one open connection per address, opened when it is needed, kept until it ends.

    Invariants:
      * every open connection is to a node of ``cluster_id``; "" = none was opened yet
      * after ``close`` nothing is opened any more
    """

    def __init__(
        self,
        shell: Shell,
        network: Dialer,
        addresses: Addresses,
        request_ids: Iterator[int],
        *,
        cluster_id: str,
        entropy: random.Random,
        options: Options,
        roster: Roster,
        on_open: Callable[[Link], None],
    ) -> None:
        self.cluster_id = ClusterId(cluster_id)
        self.preferred: Link | None = None
        """Whom to ask first: the leader, if it is known."""
        self.search = LeaderSearch(addresses, entropy=entropy, back_off=(options.back_off_min, options.back_off_max))
        """Which address to try next."""
        self.addresses = addresses
        self._shell = shell
        self._network = network
        self._request_ids = request_ids
        self._options = options
        self._on_open = on_open
        self._entropy = entropy
        self._roster = roster
        self._links: dict[str, Link] = {}
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
        for link in self._links.values():
            link.abort()

    def suspect(self, link: Link) -> None:
        """End a connection on which nothing was heard for too long; one that only is slow may go on."""
        if self._shell.time() - link.heard >= self._options.silence:
            link.is_silent = True
            link.abort()

    def admits(self, address: str) -> bool:
        """Say whether a connection may be opened to an address, as far as identities go; see ``roster.py``."""
        return self._roster.admits(address)

    def check_member(self, member: str) -> None:
        """Raise WrongNodeError if a member that was not reached is where no connection may be opened."""
        self._roster.check_member(member)

    async def to(self, address: str, *, for_status: bool = False) -> Link:
        """Return the open connection to ``address``, opening it where there is none.

        Args:
          address: of the node.
          for_status: whether nothing but STATUS will be sent, so that a node will do that cannot prove yet who it is.

        Raises:
          UnavailableError, PeerError: as ``open_link``; also while the node cannot prove who it is.
          WrongNodeError: no connection may be opened there; see ``roster.py``.
        """
        if address not in self._opening:
            self._opening[address] = self._shell.create_lock()
        async with self._opening[address]:
            link = self._links.get(address)
            if link is not None and (link.is_usable or (link.is_open and for_status)):
                return link
            if link is not None and link.is_open:
                link.abort()  # Only another handshake can settle the doubt.
            if self._is_closed:
                raise closed_error()
            expected = self._roster.at(address)
            self._away.add(address)  # Until it has answered, be it that it is another node.
            link = await open_link(
                self._shell,
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
            self._links[address] = link
            self.addresses.meet(address, link.node)
            link.tell_members(lambda members, generation: self._learn(link, members, generation))
            self._on_open(link)
            if not link.is_open:
                raise link.closed.result()
            if link.doubt is not None and not for_status:
                raise again(link.doubt)()
            return link

    def _learn(self, link: Link, members: dict[str, str], generation: int) -> None:
        """Take the members that a node names."""
        self._roster.vouch(link.node, link.address, members)
        self.addresses.learn(members, generation)

    async def to_node(self, node: str) -> Link:
        """Return a connection to the member with this id, or to the node of this name.

        Raises:
          UnavailableError: it cannot be reached, or is unknown and not everybody could be asked.
          RequestError: everybody answers, and none of them is that node.
        """
        for link in self._links.values():
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
            raise again(failures[-1])() from failures[-1]
        if failures:
            raise UnavailableError(
                f"node {node!r} does not answer: {failures[-1]}", remedy="start it, or ask another one"
            ) from failures[-1]
        raise RequestError(
            f"no node is named {node!r}; there are {', '.join(sorted(seen))}", remedy="take one of these"
        )

    async def _learn_members(self, link: Link) -> dict[str, Any]:
        """Ask a node for its status, and remember the addresses of the members that it names."""
        frame = await link.ask(FrameKind.STATUS, {}, timeout=self._options.silence)
        status: dict[str, Any] = frame.body["status"]
        membership = status.get("membership")
        generation = membership.get("generation") if isinstance(membership, dict) else 0
        self._learn(link, *read_members({"members": status.get("members") or {}, "generation": generation}))
        return status

    async def ask_any(
        self,
        kind: FrameKind,
        body: dict[str, object],
        *,
        seconds: float,
        wait: float = 0.0,
        node: str | None = None,
        avoid: set[str] | None = None,
    ) -> tuple[Link, Frame]:
        """Ask any node, or the member ``node``; go to another one, or try again, until one answers.

        Each node is asked once before any is asked again: two that were removed must not be all that is asked.

        Args:
          kind: of the request.
          body: of the request, without id.
          seconds: how long to go on trying.
          wait: how long a node may hold its answer by the request's own wish.
          node: a member's id.
          avoid: addresses that are asked when all others were; grows by those that fail.

        Raises:
          UnavailableError: nobody answered in time.
          PeerError: nobody at the known addresses is a node of this cluster.
          RequestError: what the node answered.
        """
        deadline = self._shell.time() + seconds
        avoid = set() if avoid is None else avoid
        told: ViewstampError | None = None
        """What a node answered last; says more than that there was no time left for another answer."""
        while True:
            link = None
            try:
                if node is not None:
                    link = await self._shell.within(max(0.0, deadline - self._shell.time()), self.to_node(node))
                else:
                    link = await self._some_link(avoid)
                remaining = deadline - self._shell.time()
                if node is None and not wait and not avoid.issuperset({*self.addresses.all} - {link.address}):
                    remaining /= 2  # The others have to be asked too: of a node that was not, nobody can say anything.
                frame = await link.ask(kind, body, timeout=max(0.0, min(self._options.silence + wait, remaining)))
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
                    self.search.failed(link.address, error)
                elif node is not None:
                    if isinstance(error, ViewstampError):
                        raise
                    raise self.unanswered(f"node {node!r} does not answer") from error
                if self.search.strangers is not None:
                    raise again(self.search.strangers)() from error
                delay = self.search.delay()
                if self._shell.time() + delay >= deadline:
                    raise self.unanswered(f"no node has answered: {error}") from error
                await self._shell.sleep(delay)
            else:
                self.search.succeeded()
                return link, frame

    async def _some_link(self, avoid: set[str]) -> Link:
        """Return an open connection that is not to ``avoid``, the leader's first, then a member's; else open one."""
        if avoid.issuperset(self.addresses.all):
            avoid.clear()
        known = [self.preferred] if self.preferred is not None else []
        known += sorted(self._links.values(), key=lambda link: not self.addresses.is_member(link.address))
        for link in known:
            if link.is_usable and link.address not in avoid:
                return link
        address = self.search.next_address()
        for _ in self.addresses.all:
            if address in avoid:
                address = self.search.next_address()
        try:
            return await self.to(address)
        except ViewstampError as error:
            avoid.add(address)
            self.search.failed(address, error)
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
            asking = [self._shell.spawn(self._status_of(address, seconds)) for address in ask]
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
            return await self._shell.within(seconds, ask())
        except (ViewstampError, TimeoutError) as error:
            reason = str(error) or f"no answer within {seconds:g} s"
            return {"address": address, "reachable": False, "error": reason, "error_class": type(error).__name__}


def closed_error() -> ViewstampError:
    """Return what a closed client answers."""
    return ClosedError("the client is closed", remedy="open a new one")


def again(error: ViewstampError) -> Callable[[], ViewstampError]:
    """Return a maker of equal errors: one object raised in many tasks would gather all their tracebacks."""
    return lambda: copy.copy(error)
