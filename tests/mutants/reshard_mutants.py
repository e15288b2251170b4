"""Planted mistakes in a reshard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

from tests.mutants.mutants import Mutant, patched
from viewstamp.actors.replicated import ActorHost
from viewstamp.fork import Reshard
from viewstamp.fork.judge import ForkSource
from viewstamp.ids import GroupId
from viewstamp.streams.placement import Placements
from viewstamp.streams.resharding import HeldInstances
from viewstamp.streams.spread_actors import SpreadActors
from viewstamp.wire.resharding import PackedInstance
from viewstamp.wire.spread_actors import SpreadActor

__all__ = ["RESHARD_MUTANTS"]

forking = import_module("viewstamp.fork.fork")  # The package has a function of this name.
resharding = import_module("viewstamp.fork.reshard")
Coming = dict[GroupId, list[PackedInstance]]


def reshard_loses_an_instance() -> AbstractContextManager[None]:
    original = resharding.arrivals

    def arrivals(actor: SpreadActor, held: Mapping[GroupId, HeldInstances]) -> Coming:
        coming: Coming = original(actor, held)
        next(iter(coming.values())).pop()
        return coming

    return patched(resharding, arrivals=arrivals)


def reshard_keeps_what_leaves() -> AbstractContextManager[None]:
    return patched(ActorHost, keep=lambda self, name, is_kept, *, end: 0)


def reshard_by_the_old_groups() -> AbstractContextManager[None]:
    original = resharding.arrivals

    def arrivals(actor: SpreadActor, held: Mapping[GroupId, HeldInstances]) -> Coming:
        before = SpreadActor.over(actor.id, actor.name, actor.slots, [*held])
        coming: Coming = original(before, held)
        return coming

    return patched(resharding, arrivals=arrivals)


def reshard_of_the_first_version() -> AbstractContextManager[None]:
    def version_of(name: str, held: Mapping[GroupId, HeldInstances]) -> int:
        return next((each.version for each in held.values() if each.instances), 0)

    return patched(resharding, version_of=version_of)


def reshard_unchecked() -> AbstractContextManager[None]:
    def check(self: Reshard, staged: Sequence[str], on_bytes: Callable[[int], None] = lambda _: None) -> None:
        """Believe what was written."""

    return patched(Reshard, check=check)


def reshard_at_the_time_of_each_group() -> AbstractContextManager[None]:
    return patched(ForkSource, begin_time=property(lambda self: 0, lambda self, value: None))


def reshard_beside_a_node() -> AbstractContextManager[None]:
    original = forking.check_unchanged
    seen: list[ForkSource] = []

    def check_unchanged(disk: Any, source: ForkSource) -> None:
        if source not in seen:
            seen.append(source)
            original(disk, source)

    return patched(forking, check_unchanged=check_unchanged)


def instances_without_their_version() -> AbstractContextManager[None]:
    original = ActorHost.take

    def take(self: ActorHost, batch: Any, name: str, version: int, instances: Sequence[PackedInstance]) -> None:
        original(self, batch, name, 0, instances)

    return patched(ActorHost, take=take)


def reshard_believes_group_0() -> AbstractContextManager[None]:
    """A group does not keep the owners from its own log."""
    original = SpreadActors.reshard

    def reshard(self: SpreadActors, batch: Any, placements: Placements) -> SpreadActor:
        actor = original(self, batch, placements)
        if not placements.is_used:
            del self.actors[actor.name]
        return actor

    return patched(SpreadActors, reshard=reshard)


RESHARD_MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "reshard-loses-an-instance",
            "one instance that changes its group comes to none",
            reshard_loses_an_instance,
            rule="note 0027",
        ),
        Mutant(
            "reshard-keeps-what-leaves",
            "an instance that changes its group stays in the old one too",
            reshard_keeps_what_leaves,
            rule="note 0027",
        ),
        Mutant(
            "reshard-by-the-old-groups",
            "the owners are computed from the old number of groups",
            reshard_by_the_old_groups,
            rule="note 0027",
        ),
        Mutant(
            "reshard-of-the-first-version",
            "groups that calls of the newest version of a class have not reached are accepted",
            reshard_of_the_first_version,
            rule="note 0027",
        ),
        Mutant(
            "reshard-unchecked",
            "the new files are not read back before they take effect",
            reshard_unchecked,
            rule="note 0027",
        ),
        Mutant(
            "reshard-at-the-time-of-each-group",
            "each log goes on at its own time, which may be before that of an instance that comes",
            reshard_at_the_time_of_each_group,
            rule="note 0027",
        ),
        Mutant(
            "reshard-beside-a-node",
            "a node that has run while the new files were written is not noticed",
            reshard_beside_a_node,
            rule="note 0027",
        ),
        Mutant(
            "instances-without-their-version",
            "a group that instances come to does not know the version of their calls",
            instances_without_their_version,
            rule="note 0027",
        ),
        Mutant(
            "reshard-believes-group-0",
            "a leader whose node lags behind group 0 goes by the owners before the reshard",
            reshard_believes_group_0,
            rule="note 0027",
        ),
    )
}
"""The mutants by name."""
