"""Planted mistakes in the changes of the hosts of groups."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.consensus.state import Core
from viewstamp.ids import GroupId, NodeId, name_of
from viewstamp.node import host_changes, hosting
from viewstamp.node.host_changes import HostChanges, has_left, ids_of
from viewstamp.node.hosting import Hosting
from viewstamp.node.inbox import Join
from viewstamp.node.options import NodeOptions
from viewstamp.node.placement_queries import GroupsQuery, PlacedGroup
from viewstamp.streams import group_hosts
from viewstamp.streams.placement import Placements

__all__ = ["HOST_MUTANTS"]


def add_a_host_unread() -> AbstractContextManager[None]:
    """A leader adds a host by its own applied state of group 0, which may lag."""

    async def add(self: HostChanges, group: GroupId, join: Join) -> None:
        core, name, placed = self._led(group), name_of(join.member), self._placed(group)
        if core is None or placed is None or name not in placed.hosts or name in placed.leaving or ids_of(core, name):
            return
        await self._hosted[group].change_members("add", join.member, join.address, "")

    return patched(HostChanges, _add=add)


def report_a_host_unconfirmed() -> AbstractContextManager[None]:
    """A leader reports that a host has left, and another one leads by then."""

    async def remove(self: HostChanges, group: GroupId, node: NodeId) -> None:
        core = self._led(group)
        if core is not None and (ids := ids_of(core, node)):
            await self._hosted[group].change_members("remove", ids[0], "", "")
        elif core is not None and has_left(core, node):
            self._group.report_left(group, node)

    return patched(HostChanges, _remove=remove)


def report_an_uncommitted_removal() -> AbstractContextManager[None]:
    """The removal of a host may be cut, and the host votes with a directory that it has closed."""

    def has_left(core: Core, node: NodeId) -> bool:
        return not ids_of(core, node)

    return everywhere(host_changes.has_left, has_left)


def remove_the_records_of_a_leaving_host() -> AbstractContextManager[None]:
    """A host removes its directory while it is still a voter."""

    def ended(self: Hosting) -> list[GroupId]:
        return [each.id for each in self._queried(GroupsQuery()) if self._group.options.node in each.leaving]

    return patched(Hosting, _ended=property(ended))


def add_a_host_by_its_name() -> AbstractContextManager[None]:
    """An added node takes part under its name, as if it were a founder."""
    original = hosting.options_of

    def options_of(node: NodeOptions, placed: PlacedGroup) -> NodeOptions:
        options = original(node, placed)
        return options if node.node in placed.members else replace(options, incarnations={})

    return everywhere(original, options_of)


def begin_with_the_hosts() -> AbstractContextManager[None]:
    """A founder without records begins with the hosts that are left, maybe with itself alone."""
    original = hosting.options_of

    def options_of(node: NodeOptions, placed: PlacedGroup) -> NodeOptions:
        return replace(original(node, placed), members=placed.hosts)

    return everywhere(original, options_of)


def add_a_host_again() -> AbstractContextManager[None]:
    """A node that has left is added again, and its old directory is taken for its new one."""
    original = group_hosts.added_host

    def hosted_too(group: PlacedGroup, node: NodeId, address: str) -> PlacedGroup | None:
        left = tuple(each for each in group.left if each != node)
        return original(replace(group, left=left), node, address)

    return everywhere(original, hosted_too)


def leave_without_a_request() -> AbstractContextManager[None]:
    """A report of any member makes a host leave, although nobody has asked for it."""
    original = group_hosts.left_host

    def left_too(group: PlacedGroup, node: NodeId) -> PlacedGroup | None:
        return original(replace(group, leaving=(*group.leaving, node)), node)

    return everywhere(original, left_too)


def remove_the_last_host() -> AbstractContextManager[None]:
    """All hosts of a group leave, so the removal never ends."""
    original = group_hosts.leaving_host

    def leaving_too(group: PlacedGroup, node: NodeId) -> PlacedGroup | None:
        if node not in group.hosts or node in group.leaving:
            return original(group, node)
        return replace(group, leaving=(*group.leaving, node))

    return everywhere(original, leaving_too)


def hosts_in_an_old_snapshot() -> AbstractContextManager[None]:
    return patched(Placements, have_moved=property(lambda self: False))


def count_founders_for_hosts() -> AbstractContextManager[None]:
    """What reads the hosts reads the founders, so an added node neither opens its group nor may leave it."""
    return patched(PlacedGroup, hosts=property(lambda self: dict(self.members)))


HOST_MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant("add-a-host-unread", "a node that has left a group votes in it", add_a_host_unread, rule="§7, rule 18"),
        Mutant(
            "report-a-host-unconfirmed",
            "a deposed leader reports that a node has left, while another one adds it",
            report_a_host_unconfirmed,
            rule="§7, rule 15",
        ),
        Mutant(
            "report-an-uncommitted-removal",
            "a node closes a group in which it still counts",
            report_an_uncommitted_removal,
            rule="§7, rule 15",
        ),
        Mutant(
            "remove-the-records-of-a-leaving-host",
            "a voter removes its records",
            remove_the_records_of_a_leaving_host,
            rule="§7",
        ),
        Mutant(
            "add-a-host-by-its-name",
            "a node votes in a group with an empty directory",
            add_a_host_by_its_name,
            rule="§7, rule 18",
        ),
        Mutant(
            "begin-with-the-hosts",
            "a founder without records elects itself in an established group",
            begin_with_the_hosts,
            rule="§7",
        ),
        Mutant("add-a-host-again", "an old directory is taken for a new one", add_a_host_again, rule="§7, rule 18"),
        Mutant("leave-without-a-request", "a host leaves that nobody has removed", leave_without_a_request, rule="§7"),
        Mutant("remove-the-last-host", "a group has no host", remove_the_last_host, rule="§7"),
        Mutant(
            "hosts-in-an-old-snapshot",
            "an older release reads a group with other hosts than its founders",
            hosts_in_an_old_snapshot,
            rule="§7",
        ),
        Mutant(
            "count-founders-for-hosts", "an added node does not open its group", count_founders_for_hosts, rule="§7"
        ),
    )
}
"""The mutants by name."""
