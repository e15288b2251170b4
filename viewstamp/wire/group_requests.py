"""The rows of the table of requests about groups; ``requests.py`` has the others."""

from __future__ import annotations

from viewstamp.wire.access import Need, Right
from viewstamp.wire.batch import Kind
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.schema import RequestBody, request

__all__ = ["CancelGroup", "HostGroup", "ListGroups", "PlaceGroup", "RemoveGroup", "UnhostGroup"]

_ADMINISTER = Need(Right.ADMINISTER)
_ANY = Need(Right.READ, Right.APPEND, Right.CALL)


@request(FrameKind.PLACE_GROUP, needs=_ADMINISTER, record=Kind.PLACE_GROUP)
class PlaceGroup(RequestBody):
    """Place a group with these streams on these nodes. A second copy of the request finds the same group.

    The leader of group 0 first asks every member of group 0 whether its release knows groups, and adds the addresses of
    the founders to the record.

    OK: ``group`` = {id, members (the founders: name to address), streams, hosted (the founders that have created their
    directory), is_established}.
    """

    streams: list[str]
    founders: list[str]
    """The names of members of group 0; [] = all voters, or those of the group that has these streams."""
    since: int
    """An index that was applied somewhere before the first copy of the request was sent. The request is refused if a
    group was cancelled after it, so that a late copy does not place a cancelled group again."""


@request(FrameKind.CANCEL_GROUP, needs=_ADMINISTER, record=Kind.CANCEL_GROUP)
class CancelGroup(RequestBody):
    """Cancel a group that is not established. A second copy of the request changes nothing. OK without fields."""

    group: int


@request(FrameKind.HOST_GROUP, needs=_ADMINISTER, record=Kind.HOST_GROUP)
class HostGroup(RequestBody):
    """Let one more member of group 0 host an established group. A second copy of the request changes nothing.

    The leader of group 0 first asks every member of group 0 whether its release knows the record.

    OK: ``group``, as PlaceGroup, with ``hosts``.
    """

    group: int
    node: str


@request(FrameKind.UNHOST_GROUP, needs=_ADMINISTER, record=Kind.UNHOST_GROUP)
class UnhostGroup(RequestBody):
    """Let a host leave an established group. A second copy of the request changes nothing. OK: as HostGroup."""

    group: int
    node: str


@request(FrameKind.REMOVE_GROUP, needs=_ADMINISTER, record=Kind.REMOVE_GROUP)
class RemoveGroup(RequestBody):
    """Remove an established group that has nothing left. A second copy of the request changes nothing. OK: ``group``.

    The client has asked the group whether it keeps a topic. Before the first removal the leader of group 0 asks every
    member of group 0 whether its release reads the record.
    """

    group: int
    seen: int
    """An index of group 0 that the caller had read before it asked the group. The request is refused if a stream of the
    group was removed after it."""
    is_lost: bool
    """Whether the group was not asked, because its nodes never answer again. Members that do not answer the question
    about their release are no obstacle then."""


@request(FrameKind.LIST_GROUPS, needs=_ANY)
class ListGroups(RequestBody):
    """List the groups that are placed. OK: ``groups``, a list of the maps that PlaceGroup returns; ``applied_index``.

    ``applied_index``: what ``since`` of a PlaceGroup has to be.
    """
