"""Balances the leaders of the groups over the nodes, by the transfer of leadership that each group has.

Each round looks at the status of all nodes, and moves one leader after the other until they are spread evenly. So the
same call again has no further effect, and a call after a failure moves the leaders back.

| event | effect |
| --- | --- |
| a transfer fails, or its outcome is unknown | the group is not moved to that node in this call, and the result has \
the reason. Its leader, whichever it is, goes on |
| a leader changes by itself during the call | the next round sees it |
| two calls at once | each moves leaders towards the same balance; one may undo a step of the other, and both end |
| the caller dies, or is cancelled | the leaders stay where they are; a transfer that was sent may happen |
| a status is old or forged | a transfer that is not needed. The leader refuses a target that does not follow closely |

The leader of group 0 counts as a load of its node, and is not moved, because all requests of operators need it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from viewstamp.client.admin import Admin
from viewstamp.client.audit_notes import note_in_group
from viewstamp.client.groups import Groups
from viewstamp.client.results import GroupLeader
from viewstamp.client.runtime import Runtime
from viewstamp.errors import OutcomeUnknownError, RequestError, UnavailableError
from viewstamp.ids import GROUP_0, GroupId, NodeId, name_of
from viewstamp.wire.requests import TransferLeadership
from viewstamp.wire.token_requests import TRANSFER

__all__ = ["Balance", "leading_node", "next_move"]

_TRANSFER_SECONDS = 3.0
"""The most seconds for one transfer, so that a group without a majority does not take the time of the others."""
_LOOK_SECONDS = 0.05
"""Time between two looks while a group elects its leader."""
_ROUNDS = 4
"""The most rounds of a call. Only leaders that change by themselves all the time need more than two."""
_STATUS_SECONDS = 2.0
"""Time for the status of all nodes, because a node that is paused does not answer at all."""


class _Seen:
    """The groups as the nodes have reported them.

    Attributes:
      leaders: the name of the node that leads a group; a group without a leader is missing.
      members: the members of a group that may lead it: the name of the node, and the member's id in the group.
      unfit: the nodes that cannot take over a group now, each with the reason.
    """

    def __init__(self, statuses: Sequence[Mapping[str, Any]], groups: Collection[GroupId]) -> None:
        self.leaders: dict[GroupId, str] = {}
        self.members: dict[GroupId, dict[str, str]] = {}
        self.unfit: dict[tuple[GroupId, str], str] = {}
        found = {str(each["id"]): each for each in statuses if each["reachable"]}
        by_group: dict[GroupId, dict[str, Mapping[str, Any]]] = {GROUP_0: found}
        for node, status in found.items():
            for hosted in status.get("hosted", []):
                by_group.setdefault(GroupId(hosted["group"]), {})[node] = hosted
        for group in (GROUP_0, *groups):
            hosts = by_group.get(group, {})
            leader = leading_node(hosts)
            if leader is None:
                continue
            self.leaders[group] = leader
            voters = [NodeId(voter) for voter in hosts[leader]["membership"]["voters"]]
            self.members[group] = {name_of(voter): voter for voter in voters}
            for node, voter in self.members[group].items():
                if reason := _why_unfit(hosts.get(node), voter, is_known=node in found):
                    self.unfit[group, node] = f"{node} {reason}"


def leading_node(parts: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the node that leads a group in the highest term, by the statuses of its parts; None = none leads."""
    leading = [node for node, each in parts.items() if each.get("role") == "leader"]
    return max(leading, key=lambda node: (int(parts[node].get("term") or 0), node), default=None)


def _why_unfit(hosted: Mapping[str, Any] | None, member: str, *, is_known: bool) -> str:
    """Return why a member cannot lead its group now, by its own status; "" = nothing is known against it."""
    if hosted is None:
        return "does not have the group open" if is_known else "does not answer"
    if hosted.get("failure"):
        return "has stopped the group after a failure"
    if hosted.get("member_id") != member:
        return "has another disk than the member"
    if hosted.get("lifecycle") != "running" or hosted.get("silent_until") is not None:
        return "has not caught up yet"
    return ""


def next_move(
    leaders: Mapping[GroupId, str], electable: Mapping[GroupId, Collection[str]]
) -> tuple[GroupId, str] | None:
    """Return the next group to move, and the node that is to lead it; None = the leaders are spread evenly.

    Evenly: no node with two leaders more than another one could give one away to it, directly or over other nodes.

    Args:
      leaders: the node that leads each group. Each group counts as one.
      electable: the nodes that may take over a group; a group that is missing stays.
    """
    load = Counter(leaders.values())
    for nodes in electable.values():
        load.update(dict.fromkeys(nodes, 0))
    led: dict[str, list[GroupId]] = {}
    for group in sorted(leaders):
        led.setdefault(leaders[group], []).append(group)
    for start in sorted(load, key=lambda node: (-load[node], node)):
        seen, queue = {start}, [start]
        for node in queue:  # Grows: a search for the nearest node with a load that is lower by two.
            for group in led.get(node, []):
                for target in sorted(electable.get(group, ())):
                    if target in seen:
                        continue
                    if load[target] <= load[start] - 2:
                        return group, target  # The last step of the way first, because each step helps by itself.
                    seen.add(target)
                    queue.append(target)
    return None


class Balance:
    """Moves the leaders of groups."""

    def __init__(self, runtime: Runtime, groups: Groups, admin: Admin, entropy: random.Random) -> None:
        self._runtime = runtime
        self._groups = groups
        self._admin = admin
        self._entropy = entropy

    async def balance_leaders(self, *, timeout: float | None = None) -> list[GroupLeader]:
        """Spread the leaders of the groups evenly over the nodes. Returns one entry for each group, group 0 first.

        Leaders are moved one after the other. An append to a group that is being moved waits some milliseconds longer.
        Nothing moves if the leaders are spread evenly already. A group that would have to move and cannot has a
        ``reason``; the others are moved all the same. Cancelled: the groups that were moved stay where they are.

        Example::

            for each in await client.balance_leaders():
                print(each.group, each.before, each.leader, each.reason)

        Args:
          timeout: seconds from now for all groups together; None = the client's default.

        Raises:
          UnavailableError: no node that has a leader of group 0 answered in time; nothing was moved.
          RequestError: the node runs a release without groups.
        """
        router = self._groups.group_0.router
        deadline = router.deadline(timeout)
        placed = await self._admin.list_groups(timeout=router.left(deadline))
        groups = [group.id for group in placed if group.is_established]
        seen = await self._look(groups, (), deadline)
        before, failed = dict(seen.leaders), dict[tuple[GroupId, str], str]()
        for _ in range(_ROUNDS):
            barred = {**seen.unfit, **failed}
            if (move := next_move(seen.leaders, _electable(seen, barred))) is None or router.left(deadline) <= 0:
                break
            while move is not None and router.left(deadline) > 0:
                group, node = move
                if reason := await self._transfer(group, seen.members[group][node], router.left(deadline)):
                    failed[move] = f"{node}: {reason}"
                else:
                    seen.leaders[group] = node
                barred = {**seen.unfit, **failed}
                move = next_move(seen.leaders, _electable(seen, barred))
            seen = await self._look(groups, seen.leaders, deadline)
        barred = {**seen.unfit, **failed}
        wanted = next_move(seen.leaders, _electable(seen, {}))
        return [
            GroupLeader(
                group=group,
                before=before.get(group, ""),
                leader=seen.leaders.get(group, ""),
                reason=_why_not(group, seen, barred, is_even=wanted is None),
            )
            for group in (GROUP_0, *groups)
        ]

    async def _look(self, groups: Sequence[GroupId], known: Collection[GroupId], deadline: float) -> _Seen:
        """Return the state of the groups; waits a moment for the new leader of each group that had one before."""
        router, time = self._groups.group_0.router, self._runtime.time
        until = min(deadline, time() + _TRANSFER_SECONDS)
        while True:
            seen = _Seen(await router.status(min(router.left(deadline), _STATUS_SECONDS)), groups)
            if seen.leaders.keys() >= set(known) or time() >= until:
                return seen
            await self._runtime.sleep(_LOOK_SECONDS)

    async def _transfer(self, group: GroupId, member: str, seconds: float) -> str:
        """Hand a group over to a member; return why that failed, "" = it leads."""
        seconds = min(seconds, _TRANSFER_SECONDS)
        with self._groups.call(group) as parts:
            parts.router.start()
            admin = Admin(parts.router)
            try:
                request = TransferLeadership(node=member, noted=await self._note(group, member, seconds))
                await admin.ask_leader(request, "the leader stays", timeout=seconds)
            except (UnavailableError, OutcomeUnknownError, RequestError) as error:
                return error.message
        return ""

    async def _note(self, group: GroupId, member: str, seconds: float) -> int:
        """Note a transfer in the audit log; as :func:`note_in_group`."""
        return await note_in_group(self._groups.group_0.router, group, TRANSFER, member, seconds)


def _electable(seen: _Seen, barred: Mapping[tuple[GroupId, str], str]) -> dict[GroupId, list[str]]:
    """Return the nodes that may take over each group but group 0, without those that are barred."""
    return {
        group: [node for node in members if node != seen.leaders[group] and (group, node) not in barred]
        for group, members in seen.members.items()
        if group != GROUP_0
    }


def _why_not(group: GroupId, seen: _Seen, barred: Mapping[tuple[GroupId, str], str], *, is_even: bool) -> str:
    """Return why a group is not where an even spread needs it; "" = it is, or another group has the reason."""
    if group not in seen.leaders:
        return "it has no leader, or no node that answers has it"
    if is_even or group == GROUP_0:
        return ""
    load = Counter(seen.leaders.values())
    own = load[seen.leaders[group]]
    reasons = [
        barred[group, node]
        for node in seen.members[group]
        if node != seen.leaders[group] and (group, node) in barred and load[node] < own
    ]
    return "; ".join(reasons)
