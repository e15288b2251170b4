"""Decides whether a node may start at the address in its settings. The membership record decides.

A node that the record has at another address may be a copy of a member. It has that member's identity, so the others
would count its votes and acknowledgements as the member's: two disks would count as one voter. So it does not start.

| the record of the node's own log (newest, committed or not) | the node |
| --- | --- |
| none: the directory is new, and ``[cluster] members`` has the address, or does not name the node | starts |
| none, and ``[cluster] members`` has another address | refuses: the settings contradict themselves |
| does not name the node: it is new, or was removed | starts; the others decide |
| has the address | starts |
| has another address, and a member names a newer record with this one: it was moved while it was down | starts |
| has another address, and no member names such a record | refuses |
| has another address, and the node is the only member | refuses: it may be a copy, and no other member can decide |

The others are asked at the addresses of the node's own record, by a client's handshake, which changes nothing. A node
that does not answer is asked again for ``_ASK_SECONDS``, because all nodes may be starting at the same time. Of two
records the one of the higher generation counts. If that one is never committed, the node starts at an address that no
member uses, which is harmless.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from viewstamp.errors import FrameError, MovedError, ViewstampError
from viewstamp.host.address import parse_address
from viewstamp.host.interfaces import Connection, Network
from viewstamp.node.options import NodeOptions
from viewstamp.node.peers.peer_client import refusal_of
from viewstamp.node.replay import Recovered
from viewstamp.wire.frame import FrameDecoder
from viewstamp.wire.handshake import Hello, Opening, Welcome

__all__ = ["check_address"]

_ASK_SECONDS: Final = 3.0
_AGAIN_SECONDS: Final = 0.1
_WELCOME_SECONDS: Final = 1.0


async def check_address(options: NodeOptions, recovered: Recovered, network: Network) -> None:
    """Return if the node may start at the address of its settings; cancellable.

    Raises:
      MovedError: the membership has it at another one; see the table above.
    """
    own = options.advertise or options.listen
    stored = recovered.stored
    membership = stored.readdressing.entry(stored.memberships[-1]).membership
    member = recovered.member_id
    recorded = membership.addresses.get(member)
    if recorded is None or recorded == own or parse_address(own)[1] == 0:
        return
    if recovered.is_new:
        raise MovedError(
            f"[cluster] members has {member} at {recorded}, but [node] advertise or listen says {own}",
            remedy="write the same address in both, as the other members are to reach it",
        )
    others = {name: address for name, address in membership.addresses.items() if name != member}
    questions = [
        asyncio.ensure_future(_ask(network, address, options.cluster, member, membership.generation, own))
        for address in others.values()
    ]
    try:
        for question in asyncio.as_completed(questions):
            if await question:
                return
    finally:
        for each in questions:
            each.cancel()
    raise MovedError(
        f"the membership has {member} at {recorded}, but [node] advertise or listen says {own}; nothing was started",
        remedy=_remedy(recorded, own),
    )


def _remedy(recorded: str, own: str) -> str:
    return (
        f"put {recorded} back into the settings; or, if this node has moved to {own}: viewstamp node readdress --config"
        " FILE, then start it; or, if this directory is a copy: viewstamp cluster fork begins a new cluster with it"
    )


async def _ask(network: Network, address: str, cluster: str, member: str, generation: int, own: str) -> bool:
    """Ask the node at ``address`` until it names the members; return whether its record is newer and has ``own``."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _ASK_SECONDS
    while True:
        question = _Question(cluster)
        try:
            async with asyncio.timeout(_WELCOME_SECONDS):
                await network.connect(address, question.accept)
                found, members = await question.answer
            if found > generation and members.get(member) == own:
                return True
            if found >= generation:
                return False
        except (OSError, TimeoutError, ViewstampError):
            pass  # It is down, starting, or in another cluster: it is asked again.
        finally:
            question.close()
        if loop.time() > deadline:
            return False
        await asyncio.sleep(_AGAIN_SECONDS)


class _Question:
    """A connection that sends a client's HELLO, because the WELCOME names the members."""

    def __init__(self, cluster: str) -> None:
        self.answer: asyncio.Future[tuple[int, dict[str, str]]] = asyncio.get_running_loop().create_future()
        """The generation of the node's membership, and its members' addresses."""
        self._opening = Opening(Hello(cluster=cluster).to_map(), "the other member", refused=refusal_of)
        self._decoder = FrameDecoder()
        self._connection: Connection | None = None

    def accept(self, connection: Connection) -> _Question:
        """Take the connection, and send the HELLO."""
        self._connection = connection
        connection.send(self._opening.frame)
        return self

    def close(self) -> None:
        """End the connection. Idempotent."""
        if self._connection is not None:
            self._connection.abort()
        self.answer.cancel()

    def on_bytes(self, data: bytes) -> None:
        """Decode the bytes. Raises FrameError if the answer is not a WELCOME that names members."""
        for frame in self._decoder.feed(data):
            certificate = self._connection.identity if self._connection is not None else None
            if self._opening.receive(frame, certificate) and not self.answer.done():
                self.answer.set_result(_members_of(self._opening.welcome))

    def on_closed(self, error: BaseException | None) -> None:
        """Fail ``answer``, if it is not done."""
        if not self.answer.done():
            self.answer.set_exception(error or FrameError("the connection was closed"))
            self.answer.exception()  # Marks it as retrieved, because the caller may have been cancelled.


def _members_of(welcome: Welcome | None) -> tuple[int, dict[str, str]]:
    told: Any = welcome.members if welcome is not None else None
    if told is None:
        raise FrameError("a WELCOME that does not name the members")
    return told["generation"], told["members"]
