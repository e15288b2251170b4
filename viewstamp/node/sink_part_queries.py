"""The queries about the parts of attempts: what a group has of them, and what group 0 has decided about them."""

from __future__ import annotations

from collections.abc import Mapping

from viewstamp.ids import GroupId, Position, Stream
from viewstamp.node.state_machine import Query
from viewstamp.value_class import value_class
from viewstamp.wire.sink_parts import AttemptPart

__all__ = [
    "GroupPart",
    "GroupPartsQuery",
    "HasPartsCommitsQuery",
    "HasSealedPartsQuery",
    "PartFates",
    "PartFatesQuery",
    "PendingPart",
    "ReleasableQuery",
]


@value_class(kw_only=False)
class GroupPart:
    """The part of an attempt, in the state of its group.

    Attributes:
      attempt: the attempt, in group 0.
      part: its id here; 0 = it has no staged records any more.
      is_placed: whether its records have local positions.
      ranges: of a placed part, (stream, first local position, count).
    """

    attempt: int
    part: int
    is_placed: bool
    ranges: tuple[tuple[str, int, int], ...]


@value_class(kw_only=False)
class PendingPart:
    """A part that group 0 has committed, and not released yet.

    Attributes:
      commit: the index of its COMMIT_PARTS.
      sink: the name of the sink.
      part: the part.
    """

    commit: int
    sink: str
    part: AttemptPart


@value_class(kw_only=False)
class PartFates:
    """What group 0 has decided about attempts.

    Attributes:
      over: those that will never be committed, or whose commit was released.
      pending: all parts of the group that are committed and not released, in the order of their commits.
    """

    over: frozenset[int]
    pending: tuple[PendingPart, ...]


@value_class(kw_only=False)
class GroupPartsQuery(Query[list[GroupPart]]):
    """All parts in the state of a group."""


@value_class(kw_only=False)
class HasSealedPartsQuery(Query[bool]):
    """Whether a group has parts that group 0 may have committed, and that are not placed."""


@value_class(kw_only=False)
class PartFatesQuery(Query[PartFates]):
    """What the state of group 0 has decided about the parts of a group. Asked about ``attempts`` that it may know."""

    group: GroupId
    attempts: tuple[int, ...]


@value_class(kw_only=False)
class ReleasableQuery(Query[dict[int, dict[Stream, Position]]]):
    """The commits of group 0 that one ORDER can release: of each, the ends of its parts.

    ``ends``: the end of the parts of a commit in a stream, as far as reports have it.
    """

    ends: Mapping[tuple[int, Stream], Position]


@value_class(kw_only=False)
class HasPartsCommitsQuery(Query[bool]):
    """Whether group 0 has committed parts that are not released."""
