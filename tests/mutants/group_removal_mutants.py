"""Planted mistakes in the removal of groups."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.node import removed
from viewstamp.streams import cut, group_removal
from viewstamp.streams.group_removal import check_empty
from viewstamp.streams.placement import Placements
from viewstamp.streams.spread import SpreadTopics
from viewstamp.streams.spread_actors import SpreadActors
from viewstamp.streams.state import State
from viewstamp.wal.control_file import CONTROL_NAMES
from viewstamp.wire.batch import Batch

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
