"""Spread actors: actors whose instances are spread over groups by their keys, and the requests about them. Pure.

An instance falls into a slot by the name of its actor and its key, and the *ranges* of the actor assign each slot to
a group. Members and clients use the same functions, because an instance of which two groups had a state would be two
instances.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import msgpack

from viewstamp.ids import GroupId, Index
from viewstamp.wire.access import Need, Right
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.schema import RequestBody, request
from viewstamp.wire.spreading import SLOTS, slot_of, slot_ranges

__all__ = ["ListSpreadActors", "SpreadActor", "SpreadActorOverGroups", "actor_slot", "encode_spread_actor"]


def actor_slot(actor: str, key: str, slots: int) -> int:
    """Return the slot of an instance, from 0 on, the same in each language and each release.

    It is the CRC-32C, modulo the number of slots, of: the length of the actor's name in UTF-8 as 4 bytes, the lowest
    first; the name in UTF-8; the key in UTF-8. So the instances of different actors with the same key fall apart.
    """
    name = actor.encode()
    return slot_of(len(name).to_bytes(4, "little") + name + key.encode(), slots)


@dataclass(frozen=True, slots=True)
class SpreadActor:
    """An actor whose instances are spread over groups, as the state of group 0 has it. It never changes.

    Example::

        spread = await client.spread_actor("account")
        print(spread.groups, spread.group_of("anna"))

    Attributes:
      id: the index of the record that spread it.
      name: the name under which the nodes run the actor.
      slots: the number of slots, into which its instances fall.
      ranges: (first slot, group), by the first slot: a range ends where the next one begins.
    """

    id: Index
    name: str
    slots: int
    ranges: tuple[tuple[int, GroupId], ...]

    @classmethod
    def over(cls, index: int, name: str, slots: int, groups: Sequence[int]) -> Self:
        """Return an actor whose slots are divided among groups in runs of equal length."""
        ranges = slot_ranges(slots, len(groups))
        return cls(Index(index), name, slots, tuple((first, GroupId(groups[place - 1])) for first, place in ranges))

    @property
    def groups(self) -> tuple[GroupId, ...]:
        """The groups, by their first slots."""
        return tuple(dict.fromkeys(group for _, group in self.ranges))

    def group_of(self, key: str) -> GroupId:
        """Return the group of the instance with this key."""
        slot = actor_slot(self.name, key, self.slots)
        return self.ranges[bisect_right(self.ranges, slot, key=lambda each: each[0]) - 1][1]

    def describe(self) -> dict[str, object]:
        """Return it as plain values, for answers."""
        return {"id": self.id, "name": self.name, "slots": self.slots, "ranges": [list(each) for each in self.ranges]}

    @classmethod
    def read(cls, described: Mapping[str, Any]) -> Self:
        """Return the actor from :meth:`describe`, which has been checked (``wire/answers.py``)."""
        ranges = tuple((first, GroupId(group)) for first, group in described["ranges"])
        return cls(Index(described["id"]), described["name"], described["slots"], ranges)


def encode_spread_actor(
    name: str, groups: Sequence[int], *, slots: int = SLOTS, are_named: bool = False, by: str = ""
) -> Batch:
    """Return the record that spreads an actor.

    Args:
      name: the name of the actor.
      groups: the groups, each once, in the order of their slots.
      slots: the number of its slots.
      are_named: whether the caller has named the groups, so that an actor over other groups is not the one it wants.
      by: the caller for the audit log; "" = none is known.
    """
    fields: dict[str, object] = {"name": name, "slots": slots, "groups": list(groups), "are_named": are_named}
    return build_batch([msgpack.packb({**fields, "by": by} if by else fields)], kind=Kind.SPREAD_ACTOR)


@request(FrameKind.SPREAD_ACTOR, needs=Need(Right.ADMINISTER), record=Kind.SPREAD_ACTOR)
class SpreadActorOverGroups(RequestBody):
    """Spread the instances of an actor over groups, before it has any. A second copy of the request finds the same.

    The leader of group 0 first asks every member of group 0 whether its release knows spread actors.

    OK: ``actor`` = {id, name, slots (their number), ranges (a list of [first slot, group], by the first slot)}.
    """

    name: str
    groups: list[int]
    """The ids of the groups, each once; [] = all that are established."""


@request(FrameKind.LIST_SPREAD_ACTORS, needs=Need(Right.READ, Right.APPEND, Right.CALL))
class ListSpreadActors(RequestBody):
    """List the actors that are spread over groups. OK: ``actors``, the maps of SpreadActorOverGroups; ``age``."""

    stale: bool
