"""The queries about actors whose instances are spread over groups. ``streams/spread_actors.py`` answers them.

Only the state of group 0 has the owners. A group asks that of its own node, which may lag: an actor that this state has
is spread as all nodes have it for ever, and one that it lacks may be spread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from viewstamp.ids import GroupId
from viewstamp.node.state_machine import Query
from viewstamp.wire.batch import Batch
from viewstamp.wire.spread_actors import SpreadActor

__all__ = ["ActorSpreadingQuery", "OwnedQuery", "SpreadActorsQuery"]


@dataclass(frozen=True, slots=True)
class SpreadActorsQuery(Query[list[SpreadActor]]):
    """All actors that are spread over groups, in the order of their ids."""


@dataclass(frozen=True, slots=True)
class ActorSpreadingQuery(Query[SpreadActor | None]):
    """The actor that a SPREAD_ACTOR finds; None = it would spread one. Raises RequestError if it would be refused."""

    record: Batch


@dataclass(frozen=True, slots=True)
class OwnedQuery(Query[None]):
    """Whether a group owns these instances, by the state of group 0: (actor, key); key None = all of the actor.

    Raises UnknownActorError: another group does; UnavailableError: not as far as this node knows.
    """

    calls: Iterable[tuple[str, str | None]]
    group: GroupId
