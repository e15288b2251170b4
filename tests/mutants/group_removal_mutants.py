"""Planted mistakes in the removal of groups."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.client import group_removal as client_removal
from viewstamp.client.group_removal import GroupRemovalCalls
from viewstamp.ids import GroupId
from viewstamp.node import placer, removed
from viewstamp.streams import cut, group_removal
from viewstamp.streams.group_removal import check_empty
from viewstamp.streams.placement import Placements
from viewstamp.streams.spread import SpreadTopics
from viewstamp.streams.spread_actors import SpreadActors
from viewstamp.streams.state import State
from viewstamp.wal.control_file import CONTROL_NAMES
from viewstamp.wire.batch import Batch
from viewstamp.wire.group_requests import RemoveGroup

__all__ = ["GROUP_REMOVAL_MUTANTS"]


def remove_a_group_with_streams() -> AbstractContextManager[None]:
    return patched(group_removal, _kept_streams=lambda topic, group: ())


def remove_a_group_with_actors() -> AbstractContextManager[None]:
    original = check_empty

    def check(batch: Batch, spread: SpreadTopics, actors: SpreadActors) -> None:
        original(batch, spread, SpreadActors())

    return everywhere(original, check)


def remove_a_group_by_an_old_look() -> AbstractContextManager[None]:
    return patched(group_removal, _removals=lambda topic, group: ())


def remove_a_group_unasked() -> AbstractContextManager[None]:
    """The client does not ask the group whether it keeps a topic."""

    async def is_empty(self: GroupRemovalCalls, group: GroupId, lost: bool, deadline: float) -> bool:
        return True

    return patched(GroupRemovalCalls, _is_empty=is_empty)


def remove_a_group_by_the_newest_index() -> AbstractContextManager[None]:
    """The client takes an index that it has not read before it asked the group."""
    original = client_removal.RemoveGroup

    def request(*, group: int, seen: int, is_lost: bool) -> RemoveGroup:
        return original(group=group, seen=1 << 40, is_lost=is_lost)

    return patched(client_removal, RemoveGroup=request)


def remove_a_group_unprobed() -> AbstractContextManager[None]:
    original = placer.when_fit

    async def when_fit(network: Any, group: Any, prepare: Any, failed: str, **more: Any) -> Any:
        def without(membership: Any) -> Any:
            prepared, _ = prepare(membership)
            return prepared, None

        return await original(network, group, without if "removed" in failed else prepare, failed, **more)

    return patched(placer, when_fit=when_fit)


def keep_the_control_file_of_a_removed_group() -> AbstractContextManager[None]:
    """The control files keep their names until the records are gone."""
    return patched(removed, _RENAMED=CONTROL_NAMES)


def removed_groups_in_an_old_snapshot() -> AbstractContextManager[None]:
    original = cut._version_of

    def version_of(state: State) -> int:
        before, state.placements.removed = state.placements.removed, set()
        try:
            return original(state)
        finally:
            state.placements.removed = before

    return patched(cut, _version_of=version_of)


def take_a_removed_group_for_a_cancelled_one() -> AbstractContextManager[None]:
    """A snapshot does not say which groups were established."""
    original = Placements.image

    def image(self: Placements) -> Any:
        before, self.removed = self.removed, set()
        try:
            return original(self)
        finally:
            self.removed = before

    return patched(Placements, image=image)


GROUP_REMOVAL_MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "remove-a-group-with-streams",
            "a group is removed with the records of a topic",
            remove_a_group_with_streams,
            rule="§7",
        ),
        Mutant(
            "remove-a-group-with-actors",
            "a group is removed with instances of an actor",
            remove_a_group_with_actors,
            rule="§7",
        ),
        Mutant(
            "remove-a-group-by-an-old-look",
            "a group is removed before it has deleted its last stream",
            remove_a_group_by_an_old_look,
            rule="§7",
        ),
        Mutant(
            "remove-a-group-unasked",
            "a group is removed that keeps a topic",
            remove_a_group_unasked,
            rule="§7",
        ),
        Mutant(
            "remove-a-group-by-the-newest-index",
            "a group is removed although a stream was removed since the look",
            remove_a_group_by_the_newest_index,
            rule="§7",
        ),
        Mutant(
            "remove-a-group-unprobed",
            "a member of an older release stops at the removal of a group",
            remove_a_group_unprobed,
            rule="§7",
        ),
        Mutant(
            "keep-the-control-file-of-a-removed-group",
            "a directory that was removed by half is opened as a member",
            keep_the_control_file_of_a_removed_group,
            rule="§5",
        ),
        Mutant(
            "removed-groups-in-an-old-snapshot",
            "an older release reads a state with removed groups",
            removed_groups_in_an_old_snapshot,
            rule="§7",
        ),
        Mutant(
            "take-a-removed-group-for-a-cancelled-one",
            "a node that adopts a snapshot keeps the directory of a removed group",
            take_a_removed_group_for_a_cancelled_one,
            rule="§7",
        ),
    )
}
