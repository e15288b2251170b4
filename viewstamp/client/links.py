"""Connections to the members, and questions that any of them can answer. Knows nothing of appends and sessions."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from viewstamp.client.connection import Link, open_link
from viewstamp.client.leader import LeaderSearch
from viewstamp.client.options import Options
from viewstamp.client.shell import Dialer, Shell
from viewstamp.errors import ClosedError, RequestError, UnavailableError, ViewstampError, WrongClusterError
from viewstamp.ids import ClusterId, name_of
from viewstamp.wire.frame import Frame
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
        addresses: Sequence[str],
        request_ids: Iterator[int],
        *,
        cluster_id: str,
        entropy: random.Random,
        options: Options,
        on_open: Callable[[Link], None],
        on_member: Callable[[str], None],
    ) -> None:
        self.cluster_id = ClusterId(cluster_id)
        self.preferred: Link | None = None
        """Whom to ask first: the leader, if it is known."""
        self.search = LeaderSearch(addresses, entropy=entropy, back_off=(options.back_off_min, options.back_off_max))
        """The known addresses, and which to try next."""
        self._shell = shell
        self._network = network
        self._request_ids = request_ids
        self._options = options
        self._on_open = on_open
        self._on_member = on_member
        self._links: dict[str, Link] = {}
        self._opening: dict[str, AbstractAsyncContextManager[object]] = {}
        self._is_closed = False

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

    async def to(self, address: str) -> Link:
        """Return the open connection to ``address``, opening it where there is none.

        Raises:
          UnavailableError, PeerError: as ``open_link``.
        """
        if address not in self._opening:
            self._opening[address] = self._shell.create_lock()
        async with self._opening[address]:
            link = self._links.get(address)
            if link is not None and link.is_open:
                return link
            if self._is_closed:
                raise closed_error()
            link = await open_link(
                self._shell,
                self._network,
                address,
                self._request_ids,
                cluster_id=self.cluster_id,
                timeout=self._options.connect_timeout,
                frame_bytes_max=self._options.frame_bytes_max,
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
            self._on_open(link)
            if not link.is_open:
                raise link.closed.result()
            return link

    async def to_node(self, node: str) -> Link:
        """Return a connection to the member with this id, or to the node of this name.

        Raises:
          UnavailableError: it cannot be reached, or is unknown and not everybody could be asked.
          RequestError: everybody answers, and none of them is that node.
        """
        for link in self._links.values():
            if link.is_open and node in (link.node, name_of(link.node)):
                return link
        failures: list[ViewstampError] = []
        seen: list[str] = []
        # The members' own addresses come to light while the list is walked.
        for address in self.search.addresses:
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
        members = status.get("members")
        if isinstance(members, dict):
            for address in members.values():
                self.search.learn(str(address))
                self._on_member(str(address))
        return status

    async def ask_any(
        self, kind: FrameKind, body: dict[str, object], *, seconds: float, wait: float = 0.0, node: str | None = None
    ) -> tuple[Link, Frame]:
        """Ask any node, or the member ``node``; go to another one, or try again, until one answers.

        Args:
          kind: of the request.
          body: of the request, without id.
          seconds: how long to go on trying.
          wait: how long a node may hold its answer by the request's own wish.
          node: a member's id.

        Raises:
          UnavailableError: nobody answered in time.
          PeerError: nobody at the known addresses is a node of this cluster.
          RequestError: what the node answered.
        """
        deadline = self._shell.time() + seconds
        avoid: str | None = None
        told: ViewstampError | None = None
        """What a node answered last; says more than that there was no time left for another answer."""
        while True:
            link = None
            try:
                link = await (self.to_node(node) if node is not None else self._some_link(avoid))
                remaining = deadline - self._shell.time()
                frame = await link.ask(kind, body, timeout=max(0.0, min(self._options.silence + wait, remaining)))
            except RequestError:
                raise
            except (ViewstampError, TimeoutError) as error:
                if self._is_closed:
                    raise closed_error() from error
                if link is not None:
                    avoid = link.address
                    if isinstance(error, TimeoutError):
                        self.suspect(link)
                        error = told or UnavailableError(f"{link.address} did not answer in time")
                    told = error
                    self.search.failed(link.address, error)
                elif node is not None:
                    raise
                if self.search.strangers is not None:
                    raise again(self.search.strangers)() from error
                delay = self.search.delay()
                if self._shell.time() + delay >= deadline:
                    raise UnavailableError(
                        f"nobody answered within {seconds:g} s: {error}",
                        remedy="check the addresses, and that a majority of the nodes runs",
                    ) from error
                await self._shell.sleep(delay)
            else:
                self.search.succeeded()
                return link, frame

    async def _some_link(self, avoid: str | None) -> Link:
        """Return an open connection that is not to ``avoid``, the leader's first; else open one."""
        known = [self.preferred] if self.preferred is not None else []
        known += self._links.values()
        for link in known:
            if link.is_open and link.address != avoid:
                return link
        address = self.search.next_address()
        try:
            return await self.to(address)
        except ViewstampError as error:
            self.search.failed(address, error)
            raise

    async def status(self, seconds: float) -> list[dict[str, Any]]:
        """Return each known node's own status map, with ``reachable`` True; of the others ``address`` and the reason.

        Members that are named by a node that answers are asked too. Never raises for nodes that are away.
        """
        asked: dict[str, dict[str, Any]] = {}
        while True:
            ask = [address for address in self.search.addresses if address not in asked]
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
            return {**await self._learn_members(await self.to(address)), "reachable": True}

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
