"""Other groups than 0 on the nodes of a run: a writer for each, and the comparison of their states at the end.

A writer creates topics, one after the other, at the member that leads its group, and remembers the acknowledged ones.
It waits for no answer for ever, because the process of the leader may die.

| invariant | sentence |
| --- | --- |
| GroupsKeepWhatTheyAcknowledged | at the end each member of a group has every topic whose creation was acknowledged |
| GroupsAreApart | ... and no topic of another group |
| GroupsAgree | ... and the same state as the other members of the group |
"""

from __future__ import annotations

import asyncio

import msgpack

from viewstamp.errors import ViewstampError
from viewstamp.ids import GroupId
from viewstamp.node.group import Group
from viewstamp.node.state_machine import Result, TopicsQuery
from viewstamp.sim.cluster import Cluster
from viewstamp.sim.violation import Violation
from viewstamp.wire.batch import Kind, build_batch

__all__ = ["GroupWriters"]

_PAUSE_SECONDS = 0.05
_ANSWER_SECONDS = 2.0


class GroupWriters:
    """One writer for each group but group 0."""

    def __init__(self, cluster: Cluster) -> None:
        self.acknowledged: dict[GroupId, list[str]] = {group: [] for group in cluster.groups[1:]}
        """The names of the topics whose creation was acknowledged, by group."""
        self._cluster = cluster
        self._is_over = False

    def start(self) -> None:
        """Begin to write to every group."""
        process = self._cluster.loop.process("group-writers")
        for group in self.acknowledged:
            process.spawn(self._write(group))

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
