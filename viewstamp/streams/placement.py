"""The placement: the groups of a cluster, their founders and their streams, as the state of group 0 has them. Pure.

A group is *placed* by a record that names its founders and its streams, and its id is the index of that record. Each
founder creates its directory, and reports the random id of that disk, the incarnation. The group is *established* when
the incarnations of all founders are recorded, and only then its members vote.

| record | fields | changes nothing if | refused if |
| --- | --- | --- | --- |
| PLACE_GROUP | members: {node: address}, streams: [name], since: index | the same group exists | a stream belongs to \
another group, there are too many, or a group was cancelled or removed after ``since`` |
| HOSTED | group, node, incarnation | this incarnation is recorded | the group is unknown, the node is no founder, or \
another incarnation is recorded (``EstablishedIsNeverNew``) |
| CANCEL_GROUP | group | it was cancelled or removed already | the group is unknown, or established |
| REMOVE_GROUP | group, seen: index, is_lost | it was removed or cancelled already | the group is unknown, not \
established, or not empty (``group_removal.py``) |
| HOST_GROUP, UNHOST_GROUP, LEFT_GROUP | | ``group_hosts.py`` | |

A founder whose disk was lost has another incarnation, so it is never taken for the founder again. It joins the
established group under another id, as a node does in group 0 (protocol rule 18). A group that is not established has
acknowledged nothing, so it can be cancelled. Its id is not used again, and its streams may be placed again.

The names of the streams identify a request: a second copy finds the group that the first one has placed. A copy that
arrives after that group was cancelled would place another one. So each request has ``since``, an index that its sender
read before it sent the first copy, and it is refused if any group was cancelled or removed after that index. The ids of
the newest ``CANCELLED_MAX`` cancelled and removed groups are kept, so that a second copy of a CANCEL_GROUP or a
REMOVE_GROUP is answered, and nodes know which directories to remove.

A record with a field that this release does not know raises ``OutdatedCodeError``, which stops the member: it could
neither apply nor skip the record without a state that differs from the others'.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from viewstamp.errors import CorruptionError, RequestError
from viewstamp.ids import GROUP_0, GroupId, Index, NodeId
from viewstamp.node.placement_queries import (
    CancelledGroupsQuery,
    GroupsQuery,
    PlacedGroup,
    RemovedGroupsQuery,
)
from viewstamp.node.state_machine import Query
from viewstamp.streams.group_hosts import (
    FOUNDERS_MAX,
    added_host,
    check_host,
    image_of_hosts,
    leaving_host,
    left_host,
    with_hosts,
)
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.identity_proof import fingerprint
from viewstamp.wire.staged import decode_known, decode_optional

__all__ = ["CANCELLED_MAX", "FOUNDERS_MAX", "GROUPS_MAX", "STREAMS_MAX", "Placements", "is_stream_name"]

GROUPS_MAX = 256
"""The most groups that are placed at the same time. Like the other limits it is part of the replicated behaviour."""
STREAMS_MAX = 64
"""The most streams of one group."""
CANCELLED_MAX = 1024
"""The most cancelled and removed groups whose ids are kept; above it the one that ended first is forgotten."""
_EVER = (1 << 63) - 1
"""The ``since`` of a record without one: it is never refused for it."""
_CANCELLED = "cancelled"
_STREAM = re.compile("[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_INCARNATION = re.compile("[0-9a-f]{16}")
_FIELDS = {
    Kind.PLACE_GROUP: frozenset({"members", "streams", "since", "by"}),
    Kind.HOSTED: frozenset({"group", "node", "incarnation"}),
    Kind.CANCEL_GROUP: frozenset({"group", "by"}),
    Kind.REMOVE_GROUP: frozenset({"group", "seen", "is_lost", "by"}),
    Kind.HOST_GROUP: frozenset({"group", "node", "address", "by"}),
    Kind.UNHOST_GROUP: frozenset({"group", "node", "by"}),
    Kind.LEFT_GROUP: frozenset({"group", "node"}),
}


class Placements:
    """The placed groups, in the order of their ids. Never awaits.

    Invariants:
      * a stream belongs to one group at most
      * the incarnation of a founder never changes, and no two founders of a group have the same one
      * an established group stays until it is removed
      * no group is both placed and cancelled
      * a removed group is in ``cancelled`` too
      * an established group has a host that is not leaving; a node that has left is no host again
    """

    __slots__ = ("_by_stream", "_retired", "cancelled", "groups", "removed")

    def __init__(self, groups: Iterable[PlacedGroup] = ()) -> None:
        self.groups: dict[GroupId, PlacedGroup] = {}
        self.cancelled: dict[GroupId, Index] = {}
        """The newest cancelled and removed groups, each with the index of its record, in the order of these."""
        self.removed: set[GroupId] = set()
        """Those of them that were established, so that their directories may hold records."""
        self._by_stream: dict[str, GroupId] = {}
        self._retired: set[str] = set()
        """The streams that were removed. Their names are not used again."""
        for group in groups:
            self._add(group)

    @property
    def is_used(self) -> bool:
        """Return whether there is anything to store: a group was placed once."""
        return bool(self.groups or self.cancelled)

    def find_settled(self, batch: Batch) -> PlacedGroup | None:
        """Return the group if a record would change nothing; None = it would be applied.

        Raises:
          RequestError: the record would be refused.
          OutdatedCodeError: it has a field that this release does not know.
        """
        match batch.kind:
            case Kind.PLACE_GROUP:
                return self._find(batch, *_decode_place(batch))
            case Kind.HOSTED:
                group, node, _ = self._check_hosted(batch)
                return group if node in group.incarnations else None
            case Kind.HOST_GROUP | Kind.UNHOST_GROUP | Kind.LEFT_GROUP:
                group, changed = self._rehosted(batch)
                return group if changed is None else None
            case _:
                group = self._check_end(batch)
                return None if group.id in self.groups else group

    def apply(self, batch: Batch) -> PlacedGroup:
        """Apply a committed record, and return the group; of CANCEL_GROUP and REMOVE_GROUP the one that is gone now.

        If it was gone before, only its id is known. The caller has checked that a group to remove is empty.

        Raises: as :meth:`find_settled`; a RequestError is a replicated refusal.
        """
        match batch.kind:
            case Kind.PLACE_GROUP:
                members, streams = _decode_place(batch)
                group = self._find(batch, members, streams)
                if group is None:
                    group = PlacedGroup(GroupId(batch.first_index), members, streams, {})
                    self._add(group)
            case Kind.HOSTED:
                group, node, incarnation = self._check_hosted(batch)
                if node not in group.incarnations:
                    group = replace(group, incarnations={**group.incarnations, node: incarnation})
                    self.groups[group.id] = group
            case Kind.HOST_GROUP | Kind.UNHOST_GROUP | Kind.LEFT_GROUP:
                group, changed = self._rehosted(batch)
                if changed is not None:
                    self.groups[group.id] = group = changed
            case _:
                group = self._check_end(batch)
                if group.id in self.groups:
                    self._end(group, Index(batch.first_index))
        return group

    def forked(self, rows: Sequence[object]) -> Placements:
        """Return the placements of a new cluster, which has these of the established groups, on other disks.

        Args:
          rows: of each group its id, and a map from the name of each founder to [address, incarnation].

        Raises:
          CorruptionError: a row is malformed, or is not of an established group.
        """
        kept: dict[GroupId, PlacedGroup] = {}
        for row in rows:
            try:
                number, founders = cast("tuple[int, dict[str, list[str]]]", row)
                members = {NodeId(name): address for name, (address, _) in founders.items()}
                incarnations = {NodeId(name): incarnation for name, (_, incarnation) in founders.items()}
                group = self.groups[GroupId(number)]
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                raise _unforkable(row) from error
            if not group.is_established or not members:
                raise _unforkable(row)
            kept[group.id] = PlacedGroup(group.id, members, group.streams, incarnations)
        forked = Placements()
        forked.groups = {group: kept[group] for group in self.groups if group in kept}
        # The names of removed streams stay, also those of groups that are not kept.
        forked._by_stream = {
            stream: group for stream, group in self._by_stream.items() if group in kept or stream in self._retired
        }
        forked._retired = self._retired & forked._by_stream.keys()
        return forked

    def answer(self, query: Query[Any]) -> object:
        """Return the answer to a query about groups. Raises RequestError as :meth:`find_settled` does."""
        match query:
            case GroupsQuery():
                return list(self.groups.values())
            case CancelledGroupsQuery():
                return [group for group in self.cancelled if group not in self.removed]
            case RemovedGroupsQuery():
                return [group for group in self.cancelled if group in self.removed]
            case _:
                raise AssertionError(f"the state has no answer to {query!r}")

    def group_of(self, stream: str) -> GroupId | None:
        """Return the group to which a stream belongs; None = there is no such stream."""
        return self._by_stream.get(stream)

    def add_stream(self, stream: str, group: GroupId) -> None:
        """Add a stream of a spread topic to an established group. There must be none of this name.

        The group of a retired stream may be removed.
        """
        assert stream not in self._by_stream, f"stream {stream!r} belongs to group {self._by_stream[stream]}"
        assert stream in self._retired or self.groups[group].is_established, f"group {group} may be cancelled"
        self._by_stream[stream] = group

    def retire(self, streams: Iterable[str]) -> None:
        """Count these streams of a spread topic no more, because they were removed."""
        self._retired.update(streams)

    @property
    def stream_counts(self) -> dict[GroupId, int]:
        """Return the number of streams of each established group, in the order of their ids."""
        counts = {group.id: 0 for group in self.groups.values() if group.is_established}
        for stream, owner in self._by_stream.items():
            if owner in counts and stream not in self._retired:
                counts[owner] += 1
        return counts

    def _add(self, group: PlacedGroup) -> None:
        self.groups[group.id] = group
        for stream in group.streams:
            self._by_stream[stream] = group.id

    def _end(self, group: PlacedGroup, index: Index) -> None:
        del self.groups[group.id]
        for stream in group.streams:
            del self._by_stream[stream]
        self.cancelled[group.id] = index
        if group.is_established:
            self.removed.add(group.id)
        if len(self.cancelled) > CANCELLED_MAX:
            first = next(iter(self.cancelled))
            del self.cancelled[first]
            self.removed.discard(first)

    def _group(self, group: int) -> PlacedGroup:
        found = self.groups.get(GroupId(group))
        if found is None:
            raise RequestError(
                f"there is no group {group}: it was cancelled or removed, or never placed",
                remedy="take the id of a group from `viewstamp group list`",
            )
        return found

    def _find(self, batch: Batch, members: Mapping[NodeId, str], streams: tuple[str, ...]) -> PlacedGroup | None:
        """Return the group that a PLACE_GROUP finds; None = it creates one. Raises RequestError."""
        for stream in streams:
            if (owner := self._by_stream.get(stream)) is not None:
                group = self.groups.get(owner)
                if group is None:
                    raise RequestError(
                        f"the name {stream!r} is that of a stream that was removed, and is not used again; no group was"
                        " placed",
                        remedy="take another name",
                    )
                if (group.members, group.streams) == (members, streams):
                    return group  # A second copy of the request.
                raise RequestError(
                    f"the name {stream!r} belongs to group {owner}, which has the founders {', '.join(group.members)}"
                    f" and was placed with the names {', '.join(group.streams)}; no group was placed",
                    remedy="take another name, or place the group with the same founders and names",
                )
        if len(self.groups) >= GROUPS_MAX:
            raise RequestError(
                f"there are {GROUPS_MAX} groups, which is the limit; no group was placed",
                remedy="put more streams into one group",
            )
        since = decode_optional(batch, "since", _EVER)
        last, cancelled_at = next(reversed(self.cancelled.items()), (GROUP_0, 0))
        if cancelled_at > since:
            raise RequestError(
                f"group {last} was {'removed' if last in self.removed else 'cancelled'} after this request was made, so"
                " the request may be a late copy of the one that placed it; no group was placed",
                remedy="look with `viewstamp group list`, and place the group again if it is missing",
            )
        return None

    def _check_hosted(self, batch: Batch) -> tuple[PlacedGroup, NodeId, str]:
        """Return the group, the founder and its incarnation in a HOSTED. Raises RequestError."""
        number, text, incarnation = decode_known(batch, _FIELDS, group=int, node=str, incarnation=str)
        if not _INCARNATION.fullmatch(incarnation):
            raise RequestError(
                f"a HOSTED with the incarnation {brief_repr(incarnation)}, which is not 16 hexadecimal digits",
                remedy="run the same release on all nodes",
            )
        group, node = self._group(number), NodeId(text)
        if node not in group.members:
            raise RequestError(
                f"{node} is no founder of group {group.id}: {', '.join(group.members)}",
                remedy=f"add it as a member of group {group.id} once the group is established",
            )
        known = group.incarnations.get(node)
        if known is not None and known != incarnation:
            raise RequestError(
                f"group {group.id} has another disk of {node} on record (fingerprint {fingerprint(known)}) than the"
                f" one that {node} reports now ({fingerprint(incarnation)}); it stays as it is",
                remedy=f"put the directory groups/{group.id} of {node} back if it was moved; otherwise {node} joins the"
                " group under another id when the group is established",
            )
        twin = next((other for other, each in group.incarnations.items() if each == incarnation and other != node), "")
        if twin:
            raise RequestError(
                f"{node} reports the disk of {twin} (fingerprint {fingerprint(incarnation)}) for group {group.id}",
                remedy=f"remove groups/{group.id} from the data directory of {node}: it is a copy of that of {twin}",
            )
        return group, node, incarnation

    def _rehosted(self, batch: Batch) -> tuple[PlacedGroup, PlacedGroup | None]:
        """Return a group, and what a record about its hosts makes of it; None = unchanged. Raises RequestError."""
        address = ""
        if batch.kind is Kind.HOST_GROUP:
            number, text, address = decode_known(batch, _FIELDS, group=int, node=str, address=str)
        else:
            number, text = decode_known(batch, _FIELDS, group=int, node=str)
        group, node = self._group(number), NodeId(text)
        if not group.is_established:
            raise RequestError(
                f"group {group.id} is not established, so its hosts cannot be changed",
                remedy=f"wait for its founders, see `viewstamp group list`; or `viewstamp group cancel {group.id}`",
            )
        match batch.kind:
            case Kind.HOST_GROUP:
                return group, added_host(group, node, address)
            case Kind.UNHOST_GROUP:
                return group, leaving_host(group, node)
            case _:
                return group, left_host(group, node)

    def _check_end(self, batch: Batch) -> PlacedGroup:
        """Return the group that a CANCEL_GROUP or a REMOVE_GROUP ends; only its id if it is gone. Raises RequestError.

        Whether a group to remove is empty is checked by ``group_removal.py``.
        """
        (number,) = decode_known(batch, _FIELDS, group=int)
        if number in self.cancelled:
            return PlacedGroup(GroupId(number), {}, (), {})
        group = self._group(number)
        if batch.kind is Kind.REMOVE_GROUP:
            if not group.is_established:
                raise RequestError(
                    f"group {group.id} is not established, so it holds nothing; it was not removed",
                    remedy=f"cancel it: viewstamp group cancel {group.id}",
                )
            return group
        if group.is_established:
            raise RequestError(
                f"group {group.id} is established, so it may hold acknowledged records; it was not cancelled",
                remedy="leave it: only a group that lacks the disk of a founder can be cancelled",
            )
        return group

    @property
    def founders(self) -> list[str]:
        """The incarnations of all founders."""
        return [disk for group in self.groups.values() for disk in group.incarnations.values()]

    @property
    def have_moved(self) -> bool:
        """Whether the hosts of any group are, or were, to be others than its founders."""
        return any(group.has_moved for group in self.groups.values())

    # Images.

    def image(self) -> list[object]:
        """Return the groups as plain values, behind the ids of the cancelled and removed ones if there are any."""
        ended = [[group, index, *[True] * (group in self.removed)] for group, index in self.cancelled.items()]
        cancelled: list[object] = [_CANCELLED, ended]
        groups: list[object] = [
            [group.id, dict(group.members), list(group.streams), dict(group.incarnations), *image_of_hosts(group)]
            for group in self.groups.values()
        ]
        return [cancelled, *groups] if self.cancelled else groups

    @classmethod
    def from_image(cls, image: list[Any]) -> Placements:
        """Rebuild the groups from :meth:`image`. Raises ValueError or TypeError if they break an invariant."""
        placements, last = cls(), 0
        if image and image[0][0] == _CANCELLED:
            placements.cancelled, placements.removed = _read_cancelled(image[0][1])
        for number, members, streams, incarnations, *hosts in image[1:] if placements.cancelled else image:
            if type(number) is not int or number <= last:
                raise ValueError(f"group {number!r} after group {last}")
            if number in placements.cancelled:
                raise ValueError(f"group {number} is placed and cancelled")
            last = number
            try:
                _check_members(members)
                _check_streams(streams)
            except RequestError as error:
                raise ValueError(f"group {number}: {error.message}") from error
            if any(stream in placements._by_stream for stream in streams):
                raise ValueError(f"group {number} has a stream of another group")
            if not incarnations.keys() <= members.keys() or len(set(incarnations.values())) < len(incarnations):
                raise ValueError(f"group {number} has incarnations of other nodes, or one twice")
            if not all(_INCARNATION.fullmatch(each) for each in incarnations.values()):
                raise ValueError(f"group {number} has an incarnation that is none")
            group = PlacedGroup(GroupId(number), members, tuple(streams), incarnations)
            placements._add(with_hosts(group, *hosts) if hosts else group)
        return placements


def _read_cancelled(image: list[Any]) -> tuple[dict[GroupId, Index], set[GroupId]]:
    """Return the cancelled and removed groups of an image, and the removed ones. Raises ValueError or TypeError."""
    cancelled: dict[GroupId, Index] = {}
    removed: set[GroupId] = set()
    last = 0
    for group, index, *more in image:
        if len(more) > 1 or any(each is not True for each in more):
            raise ValueError(f"group {group!r} was cancelled or removed: {brief_repr(more)}")
        if more:
            removed.add(GroupId(group))
        if type(group) is not int or type(index) is not int or not (0 < group < index and last < index):
            raise ValueError(f"group {group!r} was cancelled at {index!r}, after index {last}")
        cancelled[GroupId(group)], last = Index(index), index
    if not 0 < len(cancelled) == len(image) <= CANCELLED_MAX:
        raise ValueError(f"{len(image)} groups were cancelled")
    return cancelled, removed


def _decode_place(batch: Batch) -> tuple[dict[NodeId, str], tuple[str, ...]]:
    members, streams = decode_known(batch, _FIELDS, members=dict, streams=list)
    _check_members(members)
    _check_streams(streams)
    return members, tuple(streams)


def _check_members(members: dict[Any, Any]) -> None:
    if not 1 <= len(members) <= FOUNDERS_MAX:
        raise RequestError(
            f"a group cannot have {len(members)} founders",
            remedy=f"name 1 to {FOUNDERS_MAX} nodes, better an odd number",
        )
    for node, address in members.items():
        check_host(node, address)


def _unforkable(row: object) -> CorruptionError:
    return CorruptionError(
        f"the record of a fork has {brief_repr(row)} for a group",
        path="the log",
        expected="an established group with the addresses and the disks of its founders",
        found=brief_repr(row),
        remedy="fork the files of the old cluster again",
    )


def is_stream_name(name: object) -> bool:
    """Return whether a stream may have this name."""
    return type(name) is str and _STREAM.fullmatch(name) is not None


def _check_streams(streams: list[Any]) -> None:
    if not 1 <= len(streams) <= STREAMS_MAX:
        raise RequestError(f"a group cannot have {len(streams)} names", remedy=f"give 1 to {STREAMS_MAX} names")
    for place, stream in enumerate(streams):
        if not is_stream_name(stream):
            raise RequestError(
                f"a group cannot be named {brief_repr(stream)}",
                remedy="take 1 to 128 letters, digits, dots, underscores or hyphens; the first one a letter, a digit or"
                " an underscore",
            )
        if stream in streams[:place]:
            raise RequestError(f"the name {stream!r} is given twice; no group was placed", remedy="give each name once")
