"""An operator who changes the hosts of placed groups while a run goes on, and the checks of what becomes of them.

| invariant | sentence |
| --- | --- |
| LeftStaysOut | from when any member has applied that a node has left a group, no committed membership of the group \
has an id of it |
| HostsAreMembers | at the end the voters of each group are its hosts, and no other node has it or its directory |
"""

from __future__ import annotations

import asyncio

from viewstamp.client.aio import Client
from viewstamp.errors import RequestError
from viewstamp.ids import GroupId, NodeId, name_of
from viewstamp.node.placement_queries import GroupsQuery, PlacedGroup
from viewstamp.sim.groups import GroupPlacer
from viewstamp.sim.topics import PASSING
from viewstamp.sim.violation import Violation
from viewstamp.sim.world import World

__all__ = ["GroupMoves"]

_MOVE_SECONDS = 0.7
"""The mean time between two changes."""
_LOOK_SECONDS = 0.05
_MOVES_MAX = 8


class GroupMoves:
    """Adds hosts to groups and removes others, at random, one removal at a time."""

    def __init__(self, world: World, placer: GroupPlacer) -> None:
        """Prepare; :meth:`start` begins."""
        self.done: list[tuple[str, GroupId, NodeId]] = []
        """The changes that were acknowledged."""
        self._world = world
        self._placer = placer
        self._entropy = world.loop.entropy("group-moves")
        self._is_over = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to change hosts, and to check."""
        process = self._world.loop.process("group-mover")
        self._task = process.spawn(self._move())
        process.spawn(self._world.look_often(self.look, _LOOK_SECONDS))

    def stop(self) -> None:
        """Begin no further change."""
        self._is_over = True

    @property
    def is_done(self) -> bool:
        """Whether no change is under way."""
        return self._task is not None and self._task.done()

    @property
    def counts(self) -> dict[str, int]:
        """Number of changes that were acknowledged, by their kinds."""
        kinds = [kind for kind, _, _ in self.done]
        return {f"{kind}-host": kinds.count(kind) for kind in ("add", "remove")}

    @property
    def unlike(self) -> str:
        """Return how the members of a group differ from its hosts; "" = nowhere."""
        for placed in self._placed():
            hosts, voters = set(placed.hosts), self._voters(placed.id)
            if placed.leaving or hosts != voters:
                return f"group {placed.id} has the hosts {sorted(hosts)}, leaving {placed.leaving}, voters {voters}"
            for member in self._world.members:
                has_directory = member.disk.volume.exists(f"{member.data_dir}/groups/{placed.id}")
                if {member.group(placed.id) is not None, has_directory} != {member.name in hosts}:
                    return f"group {placed.id} has the hosts {sorted(hosts)}, and {member.name} differs"
        return ""

    def check(self) -> None:
        """Check the end of a run, in which all has settled. Raises Violation."""
        self.look()
        if wrong := self.unlike:
            raise Violation("HostsAreMembers", wrong)

    def look(self) -> None:
        """Check that no node is a member of a group that it has left. Raises Violation."""
        for member in self._world.members:
            if not member.is_up or member.node is None or member.node.group.parts is None:
                continue
            for placed in member.node.machine.query(GroupsQuery()):
                back = self._names(placed.id).intersection(placed.left) if placed.left else ()
                if back:
                    raise Violation("LeftStaysOut", f"group {placed.id} has {sorted(back)} as members, who have left")

    def _placed(self) -> list[PlacedGroup]:
        """Return the groups as the member has them that has applied most."""
        nodes = [each.node for each in self._world.members if each.is_up and each.node is not None]
        started = [node for node in nodes if node.group.parts is not None]
        if not started:
            return []
        return max(started, key=lambda node: node.group.applied_index).machine.query(GroupsQuery())

    def _names(self, group: GroupId) -> set[NodeId]:
        """Return the names of the members of the newest committed membership of a group."""
        damages = self._world.damages_of.get(group)
        membership = damages._disks.membership if damages is not None else None
        return set(map(name_of, membership.addresses)) if membership is not None else set()

    def _voters(self, group: GroupId) -> set[NodeId]:
        damages = self._world.damages_of.get(group)
        membership = damages._disks.membership if damages is not None else None
        if membership is None or membership.is_joint or membership.learners:
            return set()
        return set(map(name_of, membership.voters))

    async def _move(self) -> None:
        async with self._placer.client() as client:
            while not self._is_over and len(self.done) < _MOVES_MAX:
                await asyncio.sleep(self._entropy.expovariate(1 / _MOVE_SECONDS))
                stay = [each for each in self._placed() if each.id in self._placer.placed and each.is_established]
                if stay and not self._is_over:
                    await self._change(client, self._entropy.choice(stay))

    async def _change(self, client: Client, placed: PlacedGroup) -> None:
        """Add a host to a group, or remove one if the damage allows it; wait for the end of a removal."""
        names = [member.name for member in self._world.members]
        spare = [name for name in names if name not in placed.hosts and name not in placed.left]
        is_added = bool(spare) and (len(placed.hosts) == 1 or self._entropy.random() < 0.5)
        if is_added:
            await self._ask(client, "add", placed.id, self._entropy.choice(spare))
            return
        staying = [node for node in placed.hosts if node not in placed.leaving]
        if len(staying) == 1:
            return
        node = self._entropy.choice(staying)
        damages = self._world.damages_of[placed.id]
        sets = [frozenset(each for each in voters if name_of(each) != node) for voters in damages._sets()]
        if not all(voters and damages.allows_voters(voters) for voters in sets):
            return
        damages.planned.extend(sets)
        if await self._ask(client, "remove", placed.id, node):
            while any(each.id == placed.id and node in each.hosts for each in self._placed()):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_SECONDS)  # No event tells what any node has applied.
        damages.planned.clear()
        damages.settle()

    async def _ask(self, client: Client, kind: str, group: GroupId, node: NodeId) -> bool:
        """Request a change until its outcome is certain; return whether it is made."""
        self._world.note(node, "!", f"{kind} in group {group}")
        call = client.add_group_member if kind == "add" else client.remove_group_member
        while True:
            try:
                await call(group, node)
            except RequestError as error:
                self._world.note(node, "!", f"{kind} in group {group} is refused: {error}")
                return False
            except PASSING:
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                self.done.append((kind, group, node))
                return True
