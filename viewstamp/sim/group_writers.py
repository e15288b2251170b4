"""Writes to the groups of a world and reads them: each creation of a topic appends a name, a list reads all names."""

from __future__ import annotations

import asyncio
import itertools

import msgpack

from viewstamp.errors import OutcomeUnknownError, ViewstampError
from viewstamp.ids import GroupId
from viewstamp.node.group import Group
from viewstamp.node.state_machine import Result, TopicsQuery
from viewstamp.sim.checkers.linearizability import Answer, Log, judge
from viewstamp.sim.cluster import Cluster
from viewstamp.sim.history import Append, Operation, ReadFrom, Recorder
from viewstamp.sim.violation import Violation
from viewstamp.wire.batch import Kind, build_batch

__all__ = ["SPREAD", "GroupWriters", "topic_names"]

SPREAD = "spread"
"""The name of the spread topic, whose streams no writer creates."""
_PAUSE_SECONDS = 0.05
_READ_SECONDS = 0.3
"""The mean time between two reads of a group."""
_ANSWER_SECONDS = 2.0


class GroupWriters:
    """One writer and one reader for each group but group 0."""

    def __init__(self, cluster: Cluster) -> None:
        self.acknowledged: dict[GroupId, list[str]] = {}
        """The names of the topics whose creation was acknowledged, by group."""
        ticks = itertools.count(1)
        self.history = Recorder(lambda: next(ticks))
        """The creations and the lists of topics; each group is a partition."""
        self._cluster = cluster
        self._process = cluster.loop.client("group-writers")
        self._entropy = cluster.loop.entropy("group-writers")
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = False

    def start(self) -> None:
        """Begin to write to the groups of the cluster."""
        for group in self._cluster.groups[1:]:
            self.write_to(group)

    def write_to(self, group: GroupId) -> None:
        """Begin to write to a group, and to read it."""
        self.acknowledged[group] = []
        self._tasks += self._process.spawn(self._write(group)), self._process.spawn(self._read(group))

    def stop(self) -> None:
        """Write nothing more, once each group has acknowledged something."""
        self._is_over = True

    @property
    def is_done(self) -> bool:
        """Whether nothing more is written."""
        return all(task.done() for task in self._tasks)

    async def _write(self, group: GroupId) -> None:
        number = 0
        while not self._is_over or not self.acknowledged[group]:
            await asyncio.sleep(_PAUSE_SECONDS)
            leader = next((each for each in self._hosts(group) if each.replica and each.replica.is_leading), None)
            if leader is None:
                continue
            number += 1
            name = f"g{group}-{number}"
            operation = self.history.call(_partition(group), Append((name,)))
            try:
                await self._create(leader, name)
            except (TimeoutError, OutcomeUnknownError):
                continue
            except ViewstampError:
                self.history.never(operation)
                continue
            self.history.answered(operation, 0)  # The end of the run gives the position: see :meth:`_judge`.
            self.acknowledged[group].append(name)

    def _hosts(self, group: GroupId) -> list[Group]:
        return [hosted for member in self._cluster.members if (hosted := member.group(group)) is not None]

    async def _create(self, leader: Group, name: str) -> None:
        """Create a topic. Raises ViewstampError, and TimeoutError if the outcome is unknown."""
        answered: asyncio.Future[Result | ViewstampError] = asyncio.get_running_loop().create_future()

        def answer(result: Result | ViewstampError) -> None:
            if not answered.done():
                answered.set_result(result)

        record = msgpack.packb({"name": name, "retain_bytes": 0, "retain_seconds": 0.0})
        leader.propose(build_batch([record], kind=Kind.CREATE_TOPIC), answer)
        async with asyncio.timeout(_ANSWER_SECONDS):
            result = await answered
        if isinstance(result, ViewstampError):
            raise result

    async def _read(self, group: GroupId) -> None:
        while not self._is_over:
            await asyncio.sleep(self._entropy.expovariate(1 / _READ_SECONDS))
            hosts = self._hosts(group)
            if hosts:
                operation = self.history.call(_partition(group), ReadFrom(1, is_whole=True))
                try:
                    names = await self._list(self._entropy.choice(hosts))
                except (TimeoutError, ViewstampError):
                    continue
                self.history.answered(operation, tuple(names))

    async def _list(self, hosted: Group) -> list[str]:
        """Return the names of the topics linearizably. Raises ViewstampError or TimeoutError."""
        answered: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

        def read(error: ViewstampError | None) -> None:
            if answered.done():
                return
            if error is None:
                answered.set_result(_own_names(hosted))
            else:
                answered.set_exception(error)

        hosted.reading.join(read)
        async with asyncio.timeout(_ANSWER_SECONDS):
            return await answered

    def check(self) -> None:
        """Compare the states of the members, which have settled, and judge the history. Raises Violation."""
        for group, acknowledged in self.acknowledged.items():
            hosts = self._hosts(group)
            for hosted in hosts:
                names = _own_names(hosted)
                if lost := set(acknowledged).difference(names):
                    raise Violation("GroupsKeepWhatTheyAcknowledged", f"{hosted.me} lacks {sorted(lost)} of {group}")
                if foreign := [name for name in names if not name.startswith(f"g{group}-")]:
                    raise Violation("GroupsAreApart", f"{hosted.me} has {foreign} in {group}")
            if len({hosted.machine.digest() for hosted in hosts}) > 1:
                raise Violation("GroupsAgree", f"the members of group {group} have different states")
            self._judge(group, _own_names(hosts[0]))

    def _judge(self, group: GroupId, names: list[str]) -> None:
        """Judge the history of a group that has these topics in the end."""
        partition = _partition(group)
        operations = [each for each in self.history.operations if each.partition == partition]
        positions = {name: position for position, name in enumerate(names, 1)}
        for operation in operations:
            if isinstance(operation.request, Append) and not operation.is_open:
                operation.answer = positions[str(operation.request.values[0])]
        now = self.history.now
        operations.append(Operation(partition, ReadFrom(1, is_whole=True), now(), tuple(names), now()))
        judgement = judge(operations, Log())
        if judgement.answer is Answer.VIOLATED:
            raise Violation("Linearizable", f"{partition}: {judgement.detail}")


def _partition(group: GroupId) -> str:
    return f"group {group}"


def _own_names(hosted: Group) -> list[str]:
    """Return the names of the topics that writers created in a group, in this order, as a member has applied them."""
    return [name for name in topic_names(hosted) if not name.startswith(f"{SPREAD}.")]


def topic_names(hosted: Group) -> list[str]:
    """Return the names of all topics of a group in the order of their creation, as a member has applied them."""
    topics = hosted.machine.query(TopicsQuery())
    assert isinstance(topics, list), "the answer is a list of topics"
    return [topic["name"] for topic in topics]
