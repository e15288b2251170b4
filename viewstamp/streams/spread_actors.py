"""Spread actors: which group owns an instance of an actor, as the state of group 0 has it. Pure.

An actor is one of group 0, until one record spreads its instances over other groups by their slots
(``wire/spread_actors.py``). No instance exists then, and the groups of the slots never change. So each instance has one
owner for ever, and a node that has applied the record knows it, however much it lags otherwise.

| record | fields | changes nothing if | refused if |
| --- | --- | --- | --- |
| SPREAD_ACTOR | name, slots, groups: [each once], are_named: whether the caller has named the groups | the actor is \
spread already | it is spread with other slots, or over other groups than those that were named; it has an instance; a \
group is not established; there are too many |

The name identifies a request, as that of a spread topic does. There is no removal, so a late copy changes nothing.
Only a reshard of a stopped cluster gives an actor other groups: the new cluster has another id (``resharding.py``).
Its record is in the logs of all groups, and each group has the owners from it. So a leader on a node that lags behind
group 0 never takes the owners of the old cluster for those of the new one.

| a call or a query | in group 0 | in another group |
| --- | --- | --- |
| of an actor that is not spread | carried out | UnavailableError, because the node may lag behind group 0 |
| of an instance that the group owns | cannot be | carried out |
| of an instance that another group owns | UnknownActorError with ``is_spread`` | the same |
| of an actor that a record in the log is about to spread | UnavailableError, until it is applied | as above |

A record with a field that this release does not know raises ``OutdatedCodeError``, as those of ``placement.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from viewstamp.errors import RequestError, UnavailableError, UnknownActorError
from viewstamp.ids import GROUP_0, GroupId
from viewstamp.streams.placement import Placements
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.spread_actors import SpreadActor
from viewstamp.wire.staged import decode_known

__all__ = ["ACTOR_GROUPS_MAX", "SPREAD_ACTORS_MAX", "SpreadActors"]

SPREAD_ACTORS_MAX = 1000
"""The most spread actors. Like the other limits it is part of the replicated behaviour."""
ACTOR_GROUPS_MAX = 256
"""The most groups of one spread actor; a cluster has no more groups."""
_SLOTS_MAX = 65_536
_NAME_MAX = 100
"""As the names of actors are limited by ``ActorHost``."""
_FIELDS = {
    Kind.SPREAD_ACTOR: frozenset({"name", "slots", "groups", "are_named", "by"}),
    Kind.RESHARD_ACTOR: frozenset({"name", "slots", "groups"}),
}


class SpreadActors:
    """The spread actors, by their names, in the order of their ids. Never awaits.

    Invariants:
      * a slot of an actor belongs to one group, which is established, and never moves while the cluster runs
      * group 0 has no instance of a spread actor
    """

    __slots__ = ("actors",)

    def __init__(self) -> None:
        self.actors: dict[str, SpreadActor] = {}

    def check(self, calls: Iterable[tuple[str, str | None]], group: GroupId) -> None:
        """Check that ``group`` owns the instances of calls: (actor, key); key None = all instances of the actor.

        Raises:
          UnknownActorError: another group owns one of them. It stays so, and ``is_spread`` is True.
          UnavailableError: in another group than 0, the actor is not spread as far as this state has it.
        """
        actors = self.actors
        for name, key in calls:
            actor = actors.get(name)
            if actor is None:
                if group == GROUP_0:
                    continue
                raise UnavailableError(
                    f"actor {name!r} is not spread over groups as far as this node knows, so group {group} has no"
                    " instance of it; nothing was done",
                    remedy="call it in group 0; or, if it was spread a moment ago, try again",
                )
            owners = actor.groups if key is None else (actor.group_of(key),)
            if owners != (group,):
                instance = f"actor {name!r}" if key is None else f"{name}[{key!r}]"
                raise UnknownActorError(
                    f"{instance} belongs to {_listed(owners)}, not to group {group}, because the instances of the actor"
                    " are spread over groups; nothing was done",
                    is_spread=True,
                    remedy="use a client of a release that knows spread actors; watch one key at a time",
                )

    def find_settled(
        self, batch: Batch, placements: Placements, count_instances: Callable[[str], int]
    ) -> SpreadActor | None:
        """Return the actor if a record would change nothing; None = it would be spread.

        Args:
          batch: the record.
          placements: the groups.
          count_instances: returns the number of the instances of an actor in group 0.

        Raises:
          RequestError: the record would be refused.
          OutdatedCodeError: it has a field that this release does not know.
        """
        wanted, are_named = _decode(batch)
        actor = self.actors.get(wanted.name)
        if actor is None:
            self._check_new(wanted, placements, count_instances(wanted.name))
            return None
        for what, own, other in (
            ("slots", actor.slots, wanted.slots),
            *([("groups", list(actor.groups), list(wanted.groups))] if are_named else []),
        ):
            if own != other:
                raise RequestError(
                    f"actor {actor.name!r} is spread with the {what} {own}, not {other}; it was not changed",
                    remedy="take it as it is: `viewstamp actor list`",
                )
        return actor

    def apply(self, batch: Batch, placements: Placements, count_instances: Callable[[str], int]) -> SpreadActor:
        """Apply a committed record, and return the actor. Raises as :meth:`find_settled`: a replicated refusal."""
        actor = self.find_settled(batch, placements, count_instances)
        if actor is None:
            actor, _ = _decode(batch)
            self.actors[actor.name] = actor
        return actor

    def reshard(self, batch: Batch, placements: Placements) -> SpreadActor:
        """Give an actor the groups of a committed RESHARD_ACTOR, and return it.

        Raises RequestError: the record is malformed, or names groups that are not established. OutdatedCodeError.
        """
        name, slots, groups = decode_known(batch, _FIELDS, name=str, slots=int, groups=list)
        _check_shape(name, slots, groups)
        before = self.actors.get(name)
        if before is None:
            self._check_number(name)
        actor = SpreadActor.over(batch.first_index if before is None else before.id, name, slots, groups)
        if placements.is_used:  # Only the state of group 0 has groups.
            _check_groups(actor, placements)
        self.actors[name] = actor
        return actor

    def _check_new(self, actor: SpreadActor, placements: Placements, instances: int) -> None:
        """Check an actor that is not spread. Raises RequestError."""
        if instances:
            raise RequestError(
                f"actor {actor.name!r} has {instances} instances in group 0, whose states cannot move; it was not"
                " spread",
                remedy="spread an actor before its first command; run the class under another name, and spread that",
            )
        _check_groups(actor, placements)
        self._check_number(actor.name)

    def _check_number(self, name: str) -> None:
        """Check that there may be one more actor. Raises RequestError."""
        if len(self.actors) >= SPREAD_ACTORS_MAX:
            raise RequestError(
                f"actor {name!r} would exceed the limit of {SPREAD_ACTORS_MAX} spread actors; it was not spread",
                remedy="use fewer actors, with more keys",
            )

    # Images.

    def image(self) -> list[object]:
        """Return the actors as plain values."""
        return [[each.id, each.name, each.slots, list(each.groups)] for each in self.actors.values()]

    @classmethod
    def from_image(cls, image: list[Any], placements: Placements) -> SpreadActors:
        """Rebuild the actors from :meth:`image`. Raises ValueError or TypeError if they break an invariant."""
        actors, last = cls(), 0
        for number, name, slots, groups in image:
            if type(number) is not int or number <= last:
                raise ValueError(f"spread actor {number!r} after {last}")
            last = number
            if type(groups) is not list:
                raise TypeError(f"spread actor {number} has the groups {groups!r}")
            if name in actors.actors:
                raise ValueError(f"spread actor {name!r} exists twice")
            try:
                _check_shape(name, slots, groups)
                actor = SpreadActor.over(number, name, slots, groups)
                actors._check_number(name)
                if placements.is_used:  # Only the state of group 0 has groups.
                    _check_groups(actor, placements)
            except RequestError as error:
                raise ValueError(f"spread actor {number}: {error.message}") from error
            actors.actors[name] = actor
        return actors


def _decode(batch: Batch) -> tuple[SpreadActor, bool]:
    """Return the actor of a record, and whether its groups are named. Raises RequestError, OutdatedCodeError."""
    name, slots, groups, are_named = decode_known(batch, _FIELDS, name=str, slots=int, groups=list, are_named=bool)
    _check_shape(name, slots, groups)
    return SpreadActor.over(batch.first_index, name, slots, groups), are_named


def _check_groups(actor: SpreadActor, placements: Placements) -> None:
    """Check that the groups of an actor are established. Raises RequestError."""
    for group in actor.groups:
        placed = placements.groups.get(group)
        if placed is None or not placed.is_established:
            raise RequestError(
                f"group {group} {'was never placed' if placed is None else 'is not established yet'}, so it cannot"
                f" have instances of actor {actor.name!r}; it was not spread",
                remedy="name groups that are established: `viewstamp group list`",
            )


def _check_shape(name: object, slots: object, groups: list[Any]) -> None:
    """Check the parts of an actor that do not depend on the state. Raises RequestError."""

    def refuse(why: str, remedy: str) -> NoReturn:
        raise RequestError(f"{why}; it was not spread", remedy=remedy)

    if type(name) is not str or not 1 <= len(name) <= _NAME_MAX:
        refuse(f"an actor cannot be named {brief_repr(name)}", f"take a name of 1 to {_NAME_MAX} characters")
    if not 1 <= len(groups) <= ACTOR_GROUPS_MAX:
        refuse(f"an actor cannot be spread over {len(groups)} groups", f"take 1 to {ACTOR_GROUPS_MAX} groups")
    if not all(type(group) is int and group > GROUP_0 for group in groups) or len(set(groups)) < len(groups):
        refuse(
            f"an actor cannot be spread over the groups {brief_repr(groups)}",
            "take the ids of groups from `viewstamp group list`, each once",
        )
    if type(slots) is not int or not len(groups) <= slots <= _SLOTS_MAX:
        refuse(
            f"an actor over {len(groups)} groups cannot have {brief_repr(slots)} slots",
            f"take a number from the groups up to {_SLOTS_MAX}",
        )


def _listed(groups: Iterable[GroupId]) -> str:
    named = list(map(str, groups))
    return f"group {named[0]}" if len(named) == 1 else f"the groups {', '.join(named)}"
