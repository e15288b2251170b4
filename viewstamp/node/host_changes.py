"""Changes of the hosts of groups: brings the members of the groups that this node leads into line with group 0.

Group 0 has the hosts of each group (``streams/placement.py``), and each group has its members in its own log. The
leader of a group compares both after each change, and repeats what is not complete. It remembers nothing that decides,
except for the requests of hosts that are no members yet, which they repeat.

| the state of group 0 | the newest membership in the log of the group | the leader of the group, in term T |
| --- | --- | --- |
| a host that is not leaving asks to be added | no id of the node | reads group 0 linearizably. If the node is such a \
host, and T has not ended, it adds the id as a learner, which the core promotes |
| a host that is not leaving asks | another id of the node | nothing here: it lost its disk (``peers/identity.py``) |
| a host is leaving | ids of the node | removes one after the other |
| a host is leaving | no id, committed and not joint | confirms that it leads, looks again, and reports that the node \
has left |

The order of the two reads keeps a node out that has left. docs/design/0026, "Members of an established group", has the
argument and the table of deaths. Each group has one task, so no node is added between the second read and the report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from viewstamp.consensus.roles import Lifecycle
from viewstamp.consensus.state import Core
from viewstamp.errors import ViewstampError
from viewstamp.host.logger import Logger
from viewstamp.ids import GROUP_0, GroupId, NodeId, Term, name_of
from viewstamp.node.group import Group
from viewstamp.node.inbox import Join
from viewstamp.node.placement_queries import GroupsQuery, PlacedGroup

__all__ = ["HostChanges"]

_REPEAT_SECONDS = 0.5


class HostChanges:
    """Changes the members of the groups that this node leads, each in a task of its own while there is work.

    Invariants:
      * a node is added only by a leader that has read group 0 linearizably in its own term
      * a node is reported as gone only by a leader that has confirmed that it leads since it knew that the node leaves
    """

    def __init__(
        self,
        group: Group,
        *,
        hosted: Mapping[GroupId, Group],
        on_failed: Callable[[BaseException], None],
        log: Logger,
    ) -> None:
        """Prepare; nothing runs before :meth:`look`.

        Args:
          group: group 0 of this node.
          hosted: the groups that are open on this node.
          on_failed: called if a task has failed, which ends the node.
          log: the logger of the node.
        """
        self._group = group
        self._hosted = hosted
        self._on_failed = on_failed
        self._logger = log
        self._asking: dict[GroupId, dict[NodeId, Join]] = {}
        """The newest request of each node that is no member of a group, by its name."""
        self._tasks: dict[GroupId, asyncio.Task[None]] = {}
        self._is_stopping = False

    def on_join(self, group: GroupId, join: Join) -> None:
        """Take the request of a node without an id in the membership of a group that this node leads."""
        if group != GROUP_0:
            self._asking.setdefault(group, {})[name_of(join.member)] = join
            self.look()

    def look(self) -> None:
        """Begin with the groups that need a change, because hosts or leaders may have changed. Never awaits."""
        if self._is_stopping or self._group.parts is None:
            return
        for placed in self._group.machine.query(GroupsQuery()):
            if placed.id not in self._tasks and self._has_work(placed):
                self._tasks[placed.id] = asyncio.get_running_loop().create_task(self._run(placed.id))

    @property
    def is_busy(self) -> bool:
        """Whether a group is being changed."""
        return bool(self._tasks)

    async def stop(self) -> None:
        """End all tasks. A change that has begun goes on in its group. Idempotent."""
        self._is_stopping = True
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _placed(self, group: GroupId) -> PlacedGroup | None:
        if self._group.parts is None:
            return None
        return next((each for each in self._group.machine.query(GroupsQuery()) if each.id == group), None)

    def _has_work(self, placed: PlacedGroup) -> bool:
        return self._led(placed.id) is not None and bool(placed.leaving or self._asking.get(placed.id))

    def _led(self, group: GroupId, term: Term | None = None) -> Core | None:
        """Return the core of a group if this node leads it as RUNNING, and still in ``term`` if one is given."""
        hosted = self._hosted.get(group)
        replica = hosted.replica if hosted is not None else None
        if hosted is None or hosted.failed.done() or replica is None or not replica.is_leading:
            return None
        core = replica.raft.core
        return core if core.lifecycle is Lifecycle.RUNNING and term in (None, core.term) else None

    async def _run(self, group: GroupId) -> None:
        """Take steps with one group until there is no work; the root of its task."""
        try:
            while (placed := self._placed(group)) is not None and self._has_work(placed):
                for node in placed.leaving:
                    with suppress(ViewstampError):  # Repeated: for example, no majority answers now.
                        await self._remove(group, node)
                for join in list(self._asking.pop(group, {}).values()):
                    with suppress(ViewstampError):
                        await self._add(group, join)
                await asyncio.sleep(_REPEAT_SECONDS)
        except Exception as error:
            self._on_failed(error)
        finally:
            del self._tasks[group]

    async def _add(self, group: GroupId, join: Join) -> None:
        """Add a host that asks. Raises ViewstampError if it is to be tried again; the host repeats its request."""
        core = self._led(group)
        if core is None:
            return
        term, name = core.term, name_of(join.member)
        groups, _ = await self._group.reading.query(GroupsQuery(), stale=False)
        placed = next((each for each in groups if each.id == group), None)
        if placed is None or name not in placed.hosts or name in placed.leaving:
            return
        core = self._led(group, term)
        if core is None or ids_of(core, name):
            return
        self._logger.info("= a host is added to its group", group=group, member=join.member)
        await self._hosted[group].change_members("add", join.member, join.address, "")

    async def _remove(self, group: GroupId, node: NodeId) -> None:
        """Take the next step with a host that is leaving. Raises ViewstampError if it is to be tried again."""
        core = self._led(group)
        if core is None:
            return
        hosted, term = self._hosted[group], core.term
        if ids := ids_of(core, node):
            self._logger.info("= a host leaves its group", group=group, member=ids[0])
            await hosted.change_members("remove", ids[0], "", "")
            return
        await hosted.reading.confirm()
        if (core := self._led(group, term)) is not None and has_left(core, node):
            self._group.report_left(group, node)


def ids_of(core: Core, node: NodeId) -> list[NodeId]:
    """Return the ids of a node in the newest membership of a log, committed or not."""
    return [member for member in core.membership.addresses if name_of(member) == node]


def has_left(core: Core, node: NodeId) -> bool:
    """Return whether no id of a node is in the newest membership of a leader's log, which is committed."""
    entry = core.memberships[-1]
    is_committed = 0 < entry.index < core.log.commit_end and not entry.membership.is_joint
    return is_committed and not ids_of(core, node)
