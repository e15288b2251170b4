"""Changes of the membership and of the leader: begun by the core, and answered when they are complete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from viewstamp.consensus.membership import AddMember, Change, RemoveMember
from viewstamp.consensus.raft import Raft
from viewstamp.errors import ConfigError, OutcomeUnknownError, RequestError, UnavailableError, ViewstampError
from viewstamp.host.address import parse_address
from viewstamp.ids import Index, NodeId, Term, name_of
from viewstamp.node.placement_queries import PlacedGroup
from viewstamp.value_class import value_class

__all__ = [
    "ChangeMembers",
    "MembershipChanges",
    "Transfer",
    "answered",
    "check_address",
    "check_hosts_none",
    "parse_change",
]

Told = Callable[[dict[str, object] | ViewstampError], None]


@value_class(kw_only=False)
class ChangeMembers:
    """Change the membership; ``told`` is called once, with {"membership": ...} or an error."""

    change: Change
    told: Told


@value_class(kw_only=False)
class Transfer:
    """Hand the leadership over to ``target`` (None = the most up to date); ``told`` gets {"leader": ...} or error."""

    target: NodeId | None
    told: Told


@value_class(kw_only=False)
class _Begun:
    """A change that is under way: done when a membership from ``index`` on is committed, and not joint."""

    index: Index
    term: Term
    told: Told


class MembershipChanges:
    """The changes that this member's core has begun and that are not complete.

    Invariants:
      * each request is answered exactly once; with OutcomeUnknownError if this member stops leading before the end
    """

    def __init__(self, raft: Raft) -> None:
        self._raft = raft
        self._begun: list[_Begun] = []
        self.waiting = False
        """Whether a change or a transfer may be complete, so that :meth:`note` must be called after the turn."""
        self._transfers: list[tuple[NodeId, Told]] = []

    def begin(self, item: ChangeMembers) -> None:
        """Begin a change."""
        try:
            viewstamp = self._raft.change(item.change)
        except ViewstampError as error:
            item.told(error)
            return
        self.waiting = True
        self._begun.append(_Begun(viewstamp.index, self._raft.core.term, item.told))

    def begin_transfer(self, item: Transfer) -> None:
        """Begin to hand the leadership over."""
        try:
            target = self._raft.transfer(item.target)
        except ViewstampError as error:
            item.told(error)
            return
        self.waiting = True
        self._transfers.append((target, item.told))

    def note(self) -> None:
        """Answer the changes that are complete after a turn."""
        self._begun = [begun for begun in self._begun if not self._has_told(begun)]
        if self._transfers:
            self._note_transfers()
        self.waiting = bool(self._begun or self._transfers)

    def fail(self, error: ViewstampError) -> None:
        """Fail all pending changes, because this member does not go on with them."""
        begun, self._begun = self._begun, []
        transfers, self._transfers = self._transfers, []
        for told in [*(each.told for each in begun), *(told for _, told in transfers)]:
            told(error)

    def _has_told(self, begun: _Begun) -> bool:
        core = self._raft.core
        entry = core.memberships[-1]
        if begun.index <= entry.index < core.log.commit_end and not entry.membership.is_joint:
            begun.told({"membership": entry.membership.shown()})
            return True
        if core.leader != core.me or core.term != begun.term:
            begun.told(
                OutcomeUnknownError(
                    f"{core.me} does not lead any more: the change may still be committed",
                    token=None,
                    remedy="check with `viewstamp members list`, and repeat the request if the change is missing",
                )
            )
            return True
        return False

    def _note_transfers(self) -> None:
        core = self._raft.core
        if core.leader == core.me and core.leading.transferee is not None:
            return
        transfers, self._transfers = self._transfers, []
        for target, told in transfers:
            if core.leader == core.me:
                told(
                    UnavailableError(
                        f"{target} did not take over from {core.me} in time",
                        remedy="run `viewstamp doctor` to find the reason, or name another voter",
                    )
                )
            else:
                told({"leader": target})


async def answered(begin: Callable[[Told], None]) -> dict[str, object]:
    """Call ``begin`` and return the answer. If cancelled, the change may be made all the same.

    Raises:
      ViewstampError: the answer was an error, or ``begin`` raised it.
    """
    future: asyncio.Future[dict[str, object]] = asyncio.get_running_loop().create_future()

    def told(answer: dict[str, object] | ViewstampError) -> None:
        if future.done():
            return
        if isinstance(answer, ViewstampError):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    begin(told)
    return await future


def check_address(address: str) -> None:
    """Check an address before it enters the log, because every member would read a wrong one at each start.

    Raises:
      RequestError: no node can listen there.
    """
    try:
        _, port = parse_address(address)
    except ConfigError as error:
        raise RequestError(error.message, remedy=error.remedy) from error
    if port == 0:
        raise RequestError(f"{address!r} has port 0, on which no node can listen", remedy="name the node's real port")


_NAME_MAX = 256
"""Longest id of a node, in characters, because each status and each membership record contains it."""


def parse_change(action: str, node: str, address: str, replaces: str) -> Change:
    """Read a request for a change: "add", "learn" (a learner that stays one), "replace" or "remove".

    Raises:
      RequestError: it is not a valid change.
    """
    if not node or (not address) != (action == "remove") or bool(replaces) != (action == "replace"):
        raise RequestError(
            f"a change {action!r} of node {node!r} at {address!r} in the place of {replaces!r}",
            remedy="add, learn and replace need a node and its address, replace also the replaced node; remove a node",
        )
    if max(len(node), len(replaces)) > _NAME_MAX:
        size = max(len(node), len(replaces))
        raise RequestError(f"the id of the node has {size:,} characters", remedy=f"take {_NAME_MAX} at most")
    if address:
        check_address(address)
    match action:
        case "add" | "replace":
            return AddMember(NodeId(node), address, replaces=NodeId(replaces) if replaces else None)
        case "learn":
            return AddMember(NodeId(node), address, becomes_voter=False)
        case "remove":
            return RemoveMember(NodeId(node))
    raise RequestError(f"unknown change {action!r}", remedy="add, learn, replace or remove")


def check_hosts_none(change: Change, members: Iterable[NodeId], placed: Iterable[PlacedGroup]) -> None:
    """Check that a change of group 0 removes no node on which a group is placed.

    The node would go on in that group without following group 0, which has its streams and the addresses of its
    members. A group that is placed while the change is under way is not found; its founder can be added again.

    Args:
      change: the change.
      members: the members of group 0. One id of a node may be removed while another one stays.
      placed: the placed groups, by the applied state of the leader.

    Raises:
      RequestError: it removes one.
    """
    gone, kept = (change.node, None) if isinstance(change, RemoveMember) else (change.replaces, change.node)
    if gone is None or name_of(gone) in {name_of(each) for each in (*members, kept or gone) if each != gone}:
        return
    groups = [str(group.id) for group in placed if name_of(gone) in group.hosts]
    if groups:
        raise RequestError(
            f"{gone} hosts the groups {', '.join(groups)}, so it has to stay a member of group 0; it was not removed",
            remedy="put other nodes in its place: `viewstamp group add-member`, then `viewstamp group remove-member`;"
            " cancel groups that are not established: `viewstamp group cancel`; remove those without streams:"
            f" `viewstamp group remove`; if the machine is lost, start {name_of(gone)} on another one, and give its"
            f" address: `viewstamp members add {name_of(gone)} ADDRESS`",
        )
