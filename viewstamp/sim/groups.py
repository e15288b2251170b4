"""Other groups than 0 on the nodes of a run: they are placed, each gets a writer, and their states are compared.

A writer creates topics, one after the other, at the member that leads its group, and remembers the acknowledged ones.
It waits for no answer for ever, because the process of the leader may die.

| invariant | sentence |
| --- | --- |
| GroupsKeepWhatTheyAcknowledged | at the end each member of a group has every topic whose creation was acknowledged |
| GroupsAreApart | ... and no topic of another group |
| GroupsAgree | ... and the same state as the other members of the group |
| CancelledIsGone | no member opens a group after its cancellation was acknowledged |
| PlacedOnce | at the end the members have exactly the groups that were acknowledged and not cancelled |
| EstablishedIsNeverNew | a member is open under the name of a founder only with the disk that group 0 has on \
record for it, and an id of a group never has two disks |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgpack

from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.errors import RequestError, ViewstampError
from viewstamp.ids import GROUP_0, GroupId, NodeId
from viewstamp.node.group import Group
from viewstamp.node.state_machine import GroupsQuery, Result, TopicsQuery
from viewstamp.sim.cluster import Cluster
from viewstamp.sim.topics import PASSING
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
    """Places groups by a client, one after the other, and watches the disks of their members."""

    def __init__(
        self, cluster: Cluster, number: int, *, on_placed: Callable[[GroupId], None], cancels: bool = False
    ) -> None:
        """Prepare.

        Args:
          cluster: where to place them.
          number: how many to place.
          on_placed: called with each of them when it stays: it was not, or could not be, cancelled.
          cancels: whether to cancel each group once, as soon as it is placed.
        """
        self.placed: list[GroupId] = []
        self.cancelled: list[GroupId] = []
        """The groups whose cancellation was acknowledged."""
        self._cluster = cluster
        self._number = number
        self._on_placed = on_placed
        self._cancels = cancels
        self._process = cluster.loop.process("group-placer")
        self._founders: dict[tuple[GroupId, NodeId], str] = {}
        """The disks on record, as any member has applied them."""
        self._established: dict[GroupId, None] = {}
        self._disks: dict[tuple[GroupId, NodeId], str] = {}
        """The disk of each id that was ever open."""
        self._open: dict[tuple[str, GroupId], object] = {}
        """The replicas that were looked at, by machine and group."""

    def start(self) -> None:
        """Begin to place groups, and to look at the members: regularly, and in the event in which one opens a group."""
        self._process.spawn(self._place())
        self._process.spawn(self._look())
        after_event = self._cluster.loop.after_event
        assert after_event is not None, "a world checks after each event"

        def look() -> None:
            after_event()
            if self._is_another_open():
                self.check()

        self._cluster.loop.after_event = look

    def _is_another_open(self) -> bool:
        """Return whether a member has opened a group since the last call.

        A replica under a name that is not its own any more lives only until a peer refuses it.
        """
        known, is_another = self._open, False
        for member in self._cluster.members:
            for group in member.node.groups.values() if member.node is not None else ():
                key = member.name, group.id
                if group.parts is not None and known.get(key) is not group.parts:
                    known[key] = group.parts
                    is_another = True
        return is_another

    def client(self) -> Client:
        """Return a client of the cluster, which the caller closes."""
        return Client(
            self._cluster.addresses,
            network=self._cluster.network.view("group-placer"),
            entropy=self._cluster.loop.entropy("group-placer"),
            options=ClientOptions(timeout=_ANSWER_SECONDS),
        )

    async def _place(self) -> None:
        async with self.client() as client:
            for number in range(self._number):
                group = await self._place_one(client, f"s{number}")
                if self._cancels and await self._cancel(client, group):
                    group = await self._place_one(client, f"s{number}")
                self.placed.append(group)
                self._on_placed(group)

    async def _place_one(self, client: Client, stream: str) -> GroupId:
        """Place a group with one stream, however often the request fails."""
        while True:
            await asyncio.sleep(_PAUSE_SECONDS)
            try:
                return (await client.place_group(stream)).id
            except PASSING:
                continue

    async def _cancel(self, client: Client, group: GroupId) -> bool:
        """Cancel a group, however often the request fails; return False if it is established."""
        while True:
            try:
                await client.cancel_group(group)
            except PASSING:
                await asyncio.sleep(_PAUSE_SECONDS)
            except RequestError:
                return False
            else:
                self.cancelled.append(group)
                return True

    def check_end(self) -> None:
        """Compare the groups of the members, which have settled, with those that were placed. Raises Violation."""
        for member in self._cluster.members:
            if member.is_up and member.node is not None:
                found = [placed.id for placed in member.machine.query(GroupsQuery())]
                if found != self.placed:
                    raise Violation("PlacedOnce", f"{member.name} has the groups {found}, not {self.placed}")

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
                if group.id in self.cancelled:
                    raise Violation("CancelledIsGone", f"{name} has opened group {group.id}, which was cancelled")
                if group.id not in self._established:
                    raise Violation("EstablishedIsNeverNew", f"{name} has opened group {group.id} before all founders")
                if group.me == name:
                    self._expect(self._founders, group.id, name, group.incarnation)
                self._expect(self._disks, group.id, group.me, group.incarnation)

    @staticmethod
    def _expect(known: dict[tuple[GroupId, NodeId], str], group: GroupId, member: NodeId, incarnation: str) -> None:
        if known.setdefault((group, member), incarnation) != incarnation:
            raise Violation("EstablishedIsNeverNew", f"{member} has another disk in group {group} than before")
