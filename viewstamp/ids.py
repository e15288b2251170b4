"""The coordinates of the system: clusters, nodes, terms, indices and positions.

Numbers start at 1; 0 always means "none yet" or "before the first". A name shows whether a boundary is included:
``last_index`` is inclusive, and ``end`` is half-open (the first index that is not held), as in :class:`range`. The
protocol computes with ends; commands and messages show inclusive numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, NewType

__all__ = [
    "GROUP_0",
    "RELEASE",
    "CertificateName",
    "ClusterId",
    "GlobalPosition",
    "GroupId",
    "Index",
    "NodeId",
    "Position",
    "RunId",
    "Sequence",
    "SessionId",
    "Stream",
    "Term",
    "TopicId",
    "Viewstamp",
    "name_of",
]

RELEASE: Final = "0.1.0"
"""The release of this code. It stands in pyproject.toml, too: the installed package takes 20 ms to say it."""

ClusterId = NewType("ClusterId", str)
NodeId = NewType("NodeId", str)

GroupId = NewType("GroupId", int)
"""The number of a consensus group of a cluster; 0 = the group that every cluster has."""

GROUP_0: Final = GroupId(0)

Term = NewType("Term", int)
"""An election period, from 1; 0 = none yet."""

Index = NewType("Index", int)
"""The place of a record in one consensus group's log, from 1; 0 = before the first."""

Position = NewType("Position", int)
"""The place of a record in its topic, from 1, without gaps; 0 = before the first."""

GlobalPosition = NewType("GlobalPosition", int)
"""The place of a record among the records of all streams, from 1, without gaps; 0 = none yet."""

TopicId = NewType("TopicId", int)
"""The number of a topic, from 1, which the log assigns when the topic is created; 0 = no topic."""

RunId = NewType("RunId", int)
"""The id of a run of archived records: the index of its PREPARE_RUN, so it is unique in the log."""


class Stream(NamedTuple):
    """The identity of a log stream: the group that has it, and its name there. Streams are ordered by this pair."""

    group: GroupId
    name: str


SessionId = NewType("SessionId", int)
"""The id of a client's session: the index of the record that opened it, so it is unique in the log; 0 = none."""

Sequence = NewType("Sequence", int)
"""The number of a batch within its session, from 1; 0 = none."""


def name_of(member: NodeId | str) -> NodeId:
    """Return the node's name for a member's id: "n2" for ``n2~8c21f0aa``, the id of n2 after it lost its disk."""
    return NodeId(member.partition("~")[0])


class Viewstamp(NamedTuple):
    """The identity of a record: its term and its index. Viewstamps are ordered by term, then by index.

    Two records with the same viewstamp are the same record. ``str()`` gives ``term.index``, for example ``3.1042``.
    """

    term: Term
    index: Index  # type: ignore[assignment]  # replaces tuple.index(), which is of no use for a pair

    def __str__(self) -> str:
        return f"{self.term}.{self.index}"


_SCHEME: Final = "viewstamp:"
_WORD: Final = r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})"
_URI: Final = re.compile(f"viewstamp://{_WORD}/(member|client)/{_WORD}", re.ASCII)


class CertificateName(NamedTuple):
    """The part of a cluster that a certificate names: a member, or a client.

    It stands in the certificate as a URI among the alternative names, ``viewstamp://CLUSTER/member/NODE`` or
    ``viewstamp://CLUSTER/client/NAME``. ``str()`` gives that URI.

    Attributes:
      cluster: the id of the cluster.
      is_member: whether it names a member; False = a client.
      name: the name of the node, or of the client.
    """

    cluster: str
    is_member: bool
    name: str

    def __str__(self) -> str:
        return f"viewstamp://{self.cluster}/{self.part}"

    @property
    def part(self) -> str:
        """The part without the cluster: ``member/NODE`` or ``client/NAME``."""
        return f"{'member' if self.is_member else 'client'}/{self.name}"

    @classmethod
    def find(cls, uris: Iterable[str]) -> CertificateName | None:
        """Return the name among the URIs of a certificate; None = there is none, or more than one, or a malformed one.

        A certificate with two names is not used, because each check could take another one of them.
        """
        found = [uri for uri in uris if uri.lower().startswith(_SCHEME)]
        match = _URI.fullmatch(found[0]) if len(found) == 1 else None
        return None if match is None else cls(match[1], match[2] == "member", match[3])
