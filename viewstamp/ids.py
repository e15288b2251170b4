"""The coordinates of the system: clusters, nodes, terms, indices and positions.

Numbers start at 1; 0 always means "none yet" or "before the first". Two kinds of boundary exist and
their names tell them apart: ``last_index`` is inclusive, ``end`` is half-open (the first index not
held), as in :class:`range`. The protocol computes with ends; commands and messages show inclusive numbers.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

__all__ = [
    "ClusterId",
    "Index",
    "NodeId",
    "Position",
    "Sequence",
    "SessionId",
    "Term",
    "TopicId",
    "Viewstamp",
    "name_of",
]

ClusterId = NewType("ClusterId", str)
NodeId = NewType("NodeId", str)

Term = NewType("Term", int)
"""An election period, from 1; 0 = none yet."""

Index = NewType("Index", int)
"""The place of a record in one consensus group's log, from 1; 0 = before the first."""

Position = NewType("Position", int)
"""The place of a record in its topic, from 1, without gaps; 0 = before the first."""

TopicId = NewType("TopicId", int)
"""The number of a topic, given by the log when the topic is created, from 1; 0 = no topic."""

SessionId = NewType("SessionId", int)
"""A client's numbered conversation: the index of the record that opened it, so never used twice; 0 = none."""

Sequence = NewType("Sequence", int)
"""The number of a batch within its session, from 1; 0 = none."""


def name_of(member: NodeId | str) -> NodeId:
    """Return the node's name for a member's id. A node that lost its disk has a longer id: ``n2~8c21f0aa``."""
    return NodeId(member.partition("~")[0])


class Viewstamp(NamedTuple):
    """The identity of a record: the term it was appended in and its index. Ordered lexicographically."""

    term: Term
    index: Index  # type: ignore[assignment]  # hides tuple.index(), which nobody wants of a pair

    def __str__(self) -> str:
        return f"{self.term}.{self.index}"
