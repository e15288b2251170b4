"""An operator who places groups, moves streams into them and out again, and removes them, and the checks of that.

| invariant | sentence |
| --- | --- |
| RemovedIsEmpty | when the first member applies the removal of a group, no member of it that has applied all its \
committed records has a topic |
| StreamsHaveGroups | in the state of each member the group of every stream that is not removed is placed |
| RemovedStaysRemoved | at the end no member has a removed group open or placed, or a directory of it |

From the removal on the members delete their copies, so the group is not checked any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from viewstamp.client.aio import Client
from viewstamp.client.results import Receipt, SpreadTopicInfo
from viewstamp.errors import RequestError, TrimmedError
from viewstamp.ids import GroupId, Index, Position, Term
from viewstamp.node.placement_queries import GroupsQuery, RemovedGroupsQuery, SpreadTopicsQuery
from viewstamp.sim.cluster import Member
from viewstamp.sim.group_writers import topic_names
from viewstamp.sim.groups import GroupPlacer
from viewstamp.sim.topics import PASSING
from viewstamp.sim.violation import Violation
from viewstamp.sim.world import World

__all__ = ["GroupRemovals"]

AnswerT = TypeVar("AnswerT")

_PAUSE_SECONDS = 0.05
_HASTE_CHANCE = 0.3
"""How often a removal is tried before the group is empty."""


class GroupRemovals:
    """Takes one group after the other through its life, with one stream of a topic in it for a while."""

    def __init__(self, world: World, placer: GroupPlacer, topic: str, homes: list[GroupId], number: int) -> None:
        """Prepare; :meth:`start` begins.

        Args:
          world: in which the topic and the groups ``homes`` exist.
          placer: of the groups of the world.
          topic: the name of the spread topic.
          homes: the groups that stay.
          number: how many groups are placed and removed.
        """
        self.removed: list[GroupId] = []
        """The groups of which a member has applied the removal."""
        self.refused = 0
        """How many removals were refused."""
        self._world = world
        self._placer = placer
        self._topic = topic
        self._homes = homes
        self._number = number
        self._entropy = world.loop.entropy("group-removals")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, and check after each event."""
        process = self._world.loop.process("group-remover")
        self._task = process.spawn(self._run())
        after_event = self._world.loop.after_event
        assert after_event is not None, "a world checks after each event"

        def after_each() -> None:
            after_event()
            for member in self._world.touched():
                self._look(member)

        self._world.loop.after_event = after_each

    @property
    def is_done(self) -> bool:
        """Whether all groups are removed."""
        if self._task is not None and self._task.done():
            self._task.result()
            return True
        return False

    @property
    def left(self) -> str:
        """Return what a member has of a removed group; "" = nothing."""
        for member in self._world.members:
            for group in self.removed:
                if member.group(group) is not None:
                    return f"{member.name} has group {group} open, which was removed"
                if member.disk.volume.exists(f"{member.data_dir}/groups/{group}"):
                    return f"{member.name} has the directory of group {group}, which was removed"
        return ""

    def check(self) -> None:
        """Check the end of a run, in which all has settled. Raises Violation."""
        for member in self._world.members:
            self._look(member)
        if self.left:
            raise Violation("RemovedStaysRemoved", self.left)

    def _look(self, member: Member) -> None:
        """Check the placement as a member has applied it. Raises Violation."""
        if not member.is_up or member.node is None or member.node.group.parts is None:
            return
        machine = member.node.machine
        removed = machine.query(RemovedGroupsQuery())
        for group in removed:
            if group not in self.removed:
                self._check_empty(group)
                self.removed.append(group)
                self._world.forget(group)
        if not removed:
            return
        placed = {each.id for each in machine.query(GroupsQuery())}
        if placed.intersection(removed):
            raise Violation("RemovedStaysRemoved", f"{member.name} has the groups {placed}, and removed {removed}")
        for topic in machine.query(SpreadTopicsQuery()):
            gone = {each.stream for each in topic.gone_streams}
            kept = {number: group for number, group in enumerate(topic.groups, 1) if number not in gone}
            if any(group not in placed for group in kept.values()):
                raise Violation("StreamsHaveGroups", f"{member.name} has {kept} of {topic.name}, and groups {placed}")

    def _check_empty(self, group: GroupId) -> None:
        if group not in self._world.others:
            return
        committed = self._world.others[group][0].facts.committed_end
        for member in self._world.members:
            hosted = member.group(group)
            if hosted is None or hosted.parts is None or hosted.applied_index + 1 < committed:
                continue
            if topics := topic_names(hosted):
                raise Violation("RemovedIsEmpty", f"group {group} is removed, and {member.name} has {topics}")

    async def _run(self) -> None:
        async with self._placer.client() as client:
            for number in range(self._number):
                await self._take_through(client, f"passing-{number}")

    async def _take_through(self, client: Client, name: str) -> None:
        """Place a group, move a stream into it and out again, and remove the group."""
        names = [member.name for member in self._world.members]
        founders = self._entropy.sample(names, self._entropy.choice((1, 2, 3)))
        group = GroupId((await self._ask(client.place_group, name, founders=founders)).id)
        self._placer.placed.append(group)
        topic = await self._move(client, group)
        stream = max(number for number in topic.kept_streams if topic.group_of(number) == group)
        await self._pause(0.5)
        if self._entropy.random() < _HASTE_CHANCE:
            await self._try_removal(client, group)
        home = self._entropy.choice(self._homes)
        await self._ask(client.move_stream, self._topic, stream, home)
        await self._empty(client, stream)
        while not await self._try_removal(client, group):
            await self._pause(0.1)
        self._placer.placed.remove(group)

    async def _move(self, client: Client, group: GroupId) -> SpreadTopicInfo:
        """Move a stream with keys into a group, when that is established; return the topic."""
        while True:
            topic = await self._ask(client.describe_spread_topic, self._topic)
            stream = self._entropy.choice(sorted({each for _, each in topic.ranges}))
            try:
                return self._take(await self._ask(client.move_stream, self._topic, stream, group))
            except RequestError:
                await self._pause(0.1)

    async def _empty(self, client: Client, stream: int) -> None:
        """Wait for the seal of a stream, trim its records, and remove it."""
        while True:
            topic = self._take(await self._ask(client.describe_spread_topic, self._topic))
            if stream in topic.sealed_streams:
                break
            await self._pause(0.1)
        self._placer.ended.add(stream)
        if (end := topic.closed_at(stream)) > 1:
            last = Receipt(Position(end - 1), Term(0), Index(0), 0, stream=stream)
            with suppress(TrimmedError):
                found = await self._ask(client.find_global_position, self._topic, last)
                assert found.global_position is not None, "the record has a position"
                behind = found.global_position + 1
                self._take(await self._ask(client.trim_spread_topic, self._topic, behind))
        self._placer.removed.add(stream)
        while True:
            try:
                self._take(await self._ask(client.remove_stream, self._topic, stream))
            except RequestError:  # The group has not followed the trim yet.
                await self._pause(0.1)
            else:
                return

    async def _try_removal(self, client: Client, group: GroupId) -> bool:
        """Remove a group; return False if that is refused."""
        self._world.note("operator", "!", f"removes group {group}")
        try:
            await self._ask(client.remove_group, group)
        except RequestError as error:
            self._world.note("operator", "!", f"group {group} stays: {error}")
            self.refused += 1
            return False
        return True

    def _take(self, topic: SpreadTopicInfo) -> SpreadTopicInfo:
        self._placer._take(topic)
        return topic

    async def _ask(self, call: Callable[..., Coroutine[Any, Any, AnswerT]], *given: Any, **named: Any) -> AnswerT:
        """Make a call however often its outcome is not known. Raises RequestError."""
        while True:
            try:
                return await call(*given, **named)
            except PASSING:
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(self._entropy.uniform(0.5, 1.5) * seconds)
