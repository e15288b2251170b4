"""Planted mistakes in the owners of instances of actors that are spread over groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.actors.replicated import ActorHost
from viewstamp.client.actors import ActorCalls
from viewstamp.ids import GROUP_0, GroupId
from viewstamp.streams import machine
from viewstamp.streams.admission import AdmissionView
from viewstamp.streams.placement import Placements
from viewstamp.streams.spread_actors import SpreadActors
from viewstamp.wire import spread_actors
from viewstamp.wire.batch import Batch
from viewstamp.wire.spread_actors import SpreadActor
from viewstamp.wire.staged import decode_fields

__all__ = ["ACTOR_MUTANTS"]


def slot_of_an_instance_by_hash() -> AbstractContextManager[None]:
    """The slot of an instance is computed by a function that differs between processes."""
    return everywhere(spread_actors.actor_slot, lambda actor, key, slots: hash((actor, key)) % slots)


def spread_an_actor_with_instances() -> AbstractContextManager[None]:
    original = SpreadActors._check_new

    def check_new(self: SpreadActors, actor: SpreadActor, placements: Placements, instances: int) -> None:
        original(self, actor, placements, 0)

    return patched(SpreadActors, _check_new=check_new)


def admit_behind_the_spreading() -> AbstractContextManager[None]:
    """A leader compares a command with the applied state only, and not with the records in its log."""
    return patched(AdmissionView, check_not_spreading=lambda self, commands: None)


def call_what_another_group_owns() -> AbstractContextManager[None]:
    """Group 0 refuses instances of spread actors, and another group carries out each call of one."""
    original = SpreadActors.check

    def check(self: SpreadActors, calls: Iterable[tuple[str, str | None]], group: GroupId) -> None:
        if group == GROUP_0:
            original(self, calls, group)

    return patched(SpreadActors, check=check)


def read_what_another_group_owns() -> AbstractContextManager[None]:
    """Commands are compared with the owners, and queries are not: they read an instance that was just made."""
    return patched(machine, _OF_INSTANCES=())


def own_all_instances_after_one() -> AbstractContextManager[None]:
    """A group that has an instance of an actor counts as the owner of all of them."""
    return patched(ActorHost, has_instance=lambda self, name, key: self.count_instances(name) > 0)


def move_instances_by_a_late_copy() -> AbstractContextManager[None]:
    """The newest record of a spread actor decides about its groups."""
    original = SpreadActors.apply

    def apply(
        self: SpreadActors, batch: Batch, placements: Placements, count_instances: Callable[[str], int]
    ) -> SpreadActor:
        actor = original(self, batch, placements, count_instances)
        (groups,) = decode_fields(batch, groups=list)
        self.actors[actor.name] = SpreadActor.over(actor.id, actor.name, actor.slots, groups)
        return actor

    return patched(SpreadActors, apply=apply)


def snapshot_without_spread_actors() -> AbstractContextManager[None]:
    return patched(SpreadActors, image=lambda self: [])


def call_group_0_only() -> AbstractContextManager[None]:
    """A client takes the refusal of group 0 as the answer."""

    async def find(self: ActorCalls, actor: str, deadline: float) -> SpreadActor | None:
        return None

    return patched(ActorCalls, find_owners=find)


ACTOR_MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "slot-of-an-instance-by-hash",
            "the slot of an actor's instance differs between processes",
            slot_of_an_instance_by_hash,
            rule="§10",
        ),
        Mutant(
            "spread-an-actor-with-instances",
            "an actor is spread over groups although group 0 has an instance of it",
            spread_an_actor_with_instances,
            rule="§4",
        ),
        Mutant(
            "admit-behind-the-spreading",
            "group 0 takes a command of an actor that a record in its log is about to spread",
            admit_behind_the_spreading,
            rule="§4",
        ),
        Mutant(
            "call-what-another-group-owns",
            "a group creates an instance that belongs to another group",
            call_what_another_group_owns,
            rule="§4",
        ),
        Mutant(
            "read-what-another-group-owns",
            "a group answers a query of an instance that belongs to another group",
            read_what_another_group_owns,
            rule="§4",
        ),
        Mutant(
            "own-all-instances-after-one",
            "a group that has one instance of an actor carries out calls of all others",
            own_all_instances_after_one,
            rule="§4",
        ),
        Mutant(
            "move-instances-by-a-late-copy",
            "a late copy of a request changes the groups of a spread actor",
            move_instances_by_a_late_copy,
            rule="§4",
        ),
        Mutant(
            "call-group-0-only",
            "a client gives up when group 0 refuses an instance, although it belongs to another group",
            call_group_0_only,
            rule="§10",
        ),
        Mutant(
            "snapshot-without-spread-actors",
            "a snapshot holds no spread actors",
            snapshot_without_spread_actors,
            rule="§4",
        ),
    )
}
"""The mutants by name."""
