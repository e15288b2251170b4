"""Other groups than 0 on the nodes of a run: they are placed, each gets a writer, and their states are compared.

A writer creates topics, one after the other, at the member that leads its group, and remembers the acknowledged ones.
It waits for no answer for ever, because the process of the leader may die.

| invariant | sentence |
| --- | --- |
| GroupsKeepWhatTheyAcknowledged | at the end each member of a group has every topic whose creation was acknowledged |
| GroupsAreApart | ... and no topic of another group |
| GroupsAgree | ... and the same state as the other members of the group |
| EstablishedIsNeverNew | a member is open under the name of a founder only with the disk that group 0 has on \
record for it, and an id of a group never has two disks |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgpack

from viewstamp.errors import ViewstampError
from viewstamp.ids import GROUP_0, GroupId, NodeId
from viewstamp.node.group import Group
from viewstamp.node.state_machine import GroupsQuery, Result, TopicsQuery
from viewstamp.sim.cluster import Cluster
from viewstamp.sim.violation import Violation
from viewstamp.wire.batch import Kind, build_batch

__all__ = ["GroupPlacer", "GroupWriters"]

_PAUSE_SECONDS = 0.05
_LOOK_SECONDS = 0.01
_ANSWER_SECONDS = 2.0


class GroupWriters:
    """One writer for each group but group 0."""

    def __init__(self, cluster: Cluster) -> None:
        self.acknowledged: dict[GroupId, list[str]] = {}
        """The names of the topics whose creation was acknowledged, by group."""
        self._cluster = cluster
        self._process = cluster.loop.process("group-writers")
        self._is_over = False

    def start(self) -> None:
        """Begin to write to the groups of the cluster."""
        for group in self._cluster.groups[1:]:
            self.write_to(group)

    def write_to(self, group: GroupId) -> None:
        """Begin to write to a group."""
        self.acknowledged[group] = []
        self._process.spawn(self._write(group))

    def stop(self) -> None:
        """Write nothing more."""
        self._is_over = True

    async def _write(self, group: GroupId) -> None:
        number = 0
        while not self._is_over:
            await asyncio.sleep(_PAUSE_SECONDS)
            leader = self._leader(group)
            if leader is None:
                continue
            number += 1
            name = f"g{group}-{number}"
            if await self._is_created(leader, name):
                self.acknowledged[group].append(name)

    def _leader(self, group: GroupId) -> Group | None:
        replicas = [hosted for member in self._cluster.members if (hosted := member.group(group)) is not None]
        return next((hosted for hosted in replicas if hosted.replica is not None and hosted.replica.is_leading), None)

    async def _is_created(self, leader: Group, name: str) -> bool:
        answered: asyncio.Future[Result | ViewstampError] = asyncio.get_running_loop().create_future()

        def answer(result: Result | ViewstampError) -> None:
            if not answered.done():
                answered.set_result(result)

        record = msgpack.packb({"name": name, "retain_bytes": 0, "retain_seconds": 0.0})
        try:
            leader.propose(build_batch([record], kind=Kind.CREATE_TOPIC), answer)
            async with asyncio.timeout(_ANSWER_SECONDS):
                return not isinstance(await answered, ViewstampError)
        except (ViewstampError, TimeoutError):
            return False

    def check(self) -> None:
        """Compare the states of the members, which have settled. Raises Violation."""
        for group, acknowledged in self.acknowledged.items():
            hosts = [hosted for member in self._cluster.members if (hosted := member.group(group)) is not None]
            for hosted in hosts:
                topics = hosted.machine.query(TopicsQuery())
                assert isinstance(topics, list), "the answer is a list of topics"
                names = [topic["name"] for topic in topics]
                if lost := set(acknowledged).difference(names):
                    raise Violation("GroupsKeepWhatTheyAcknowledged", f"{hosted.me} lacks {sorted(lost)} of {group}")
                if foreign := [name for name in names if not name.startswith(f"g{group}-")]:
                    raise Violation("GroupsAreApart", f"{hosted.me} has {foreign} in {group}")
            if len({hosted.machine.digest() for hosted in hosts}) > 1:
                raise Violation("GroupsAgree", f"the members of group {group} have different states")


class GroupPlacer:
    """Places groups at the leader of group 0, one after the other, and watches the disks of their members."""

    def __init__(self, cluster: Cluster, number: int, *, on_placed: Callable[[GroupId], None]) -> None:
        """Prepare; ``on_placed`` is called with each of the ``number`` groups when its record is committed."""
        self.placed: list[GroupId] = []
        self._cluster = cluster
        self._number = number
        self._on_placed = on_placed
        self._process = cluster.loop.process("group-placer")
        self._founders: dict[tuple[GroupId, NodeId], str] = {}
        """The disks on record, as any member has applied them."""
        self._established: dict[GroupId, None] = {}
        self._disks: dict[tuple[GroupId, NodeId], str] = {}
        """The disk of each id that was ever open."""

    def start(self) -> None:
        """Begin to place groups, and to look at the members."""
        self._process.spawn(self._place())
        self._process.spawn(self._look())

    async def _place(self) -> None:
        while len(self.placed) < self._number:
            await asyncio.sleep(_PAUSE_SECONDS)
            leader = self._cluster.leader
            if leader is None or leader.node is None:
                continue
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    answer = await leader.node.hosting.place([f"s{len(self.placed)}"])
            except (ViewstampError, TimeoutError):
                continue  # The same call on the next leader finds the group if it was placed.
            placed = answer["group"]
            assert isinstance(placed, dict), "the answer is a group"
            self.placed.append(GroupId(placed["id"]))
            self._on_placed(self.placed[-1])

    async def _look(self) -> None:
        while True:
            try:
                self.check()
            except Violation as violation:
                self._cluster.fail(violation)
                return
            await asyncio.sleep(_LOOK_SECONDS)

    def check(self) -> None:
        """Check the disks of all open members. Raises Violation."""
        nodes = [(each.name, each.node) for each in self._cluster.members if each.is_up and each.node is not None]
        for _, node in nodes:
            for placed in node.machine.query(GroupsQuery()) if node.group.parts is not None else ():
                for founder, incarnation in placed.incarnations.items():
                    self._expect(self._founders, placed.id, founder, incarnation)
                if placed.is_established:
                    self._established[placed.id] = None
        for name, node in nodes:
            for group in node.groups.values():
                if group.id == GROUP_0 or group.parts is None:
                    continue
                if group.id not in self._established:
                    raise Violation("EstablishedIsNeverNew", f"{name} has opened group {group.id} before all founders")
                if group.me == name:
                    self._expect(self._founders, group.id, name, group.incarnation)
                self._expect(self._disks, group.id, group.me, group.incarnation)

    @staticmethod
    def _expect(known: dict[tuple[GroupId, NodeId], str], group: GroupId, member: NodeId, incarnation: str) -> None:
        if known.setdefault((group, member), incarnation) != incarnation:
            raise Violation("EstablishedIsNeverNew", f"{member} has another disk in group {group} than before")
