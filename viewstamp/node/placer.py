"""The placer: the steps of the leader of group 0 before it writes a record about a group or a spread topic.

The rules of the records are in ``streams/placement.py`` and ``streams/spread.py``. Of a group:

| step | if it is lost, doubled or late, or the process dies |
| --- | --- |
| 1. a linearizable read looks for a group with these streams, and answers with it | nothing was changed; the client \
sends the request again |
| 2. the founders get the addresses of the membership of group 0 | the same |
| 3. each member of group 0 is probed (``peers/probe.py``) | the same |
| 4. if the membership has changed since step 2: from step 2 on | the same |
| 5. the record is proposed | a second copy finds the group in step 1, or when its record is applied |

A member that joins between steps 4 and 5 is not probed. If its release is older, it stops at the record, and the other
members go on, as they do with a member that is down.

A spread topic takes the same steps without the founders. In their place the groups of its streams are chosen, by the
applied state. Another leader may choose others for a second copy, but it finds the topic in step 1, or when its record
is applied. A release before spread topics would stop at the record, so the probe asks for that kind of record. It is
made before the first topic only, because afterwards a member of such a release has stopped already, and a member that
is down must not prevent another topic. A change of a spread topic takes these steps too, with a probe before the first
change of its kind. Before the first end of a stream the probe asks for SEAL_STREAM, the last kind of the three that
follow each other. Before the first loss of a stream it asks for LOSE_STREAM, and members that do not answer are no
obstacle, because the nodes of the lost group may be down for good. If one of them comes back with an older release, it
stops at the record, as a member that is replaced after a probe. Before each note that the group of a sealed stream is
lost it asks for that record in the same way. Before the first removal the probe asks for
DROP_STREAM; if the stream is lost, members need not answer either.

A change of the hosts of a group takes the steps of a group, without a look for another one. Members that do not answer
are no obstacle, because the node that shall leave may be down for good. The removal of a group takes these steps too,
with a probe before the first one; if the nodes of the group are lost, members that do not answer are no obstacle.

A spread actor takes the steps of a spread topic, and a node that leads group 0 has to have the actor's class. Which
groups are established does not change, so another leader takes the same ones, or more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgpack

from viewstamp.consensus.leader import not_leader
from viewstamp.consensus.membership import Membership
from viewstamp.errors import RequestError
from viewstamp.host.interfaces import Network
from viewstamp.ids import GroupId, NodeId, name_of
from viewstamp.node.actor_owners import ActorSpreadingQuery, SpreadActorsQuery
from viewstamp.node.answers import result_fields
from viewstamp.node.fitness import Needs, when_fit
from viewstamp.node.group import Group
from viewstamp.node.group_0 import check_group_0
from viewstamp.node.order_queries import TopicOrderQuery
from viewstamp.node.placement_queries import (
    FreeGroupsQuery,
    GroupsQuery,
    PlacedGroup,
    PlacementQuery,
    RemovedGroupsQuery,
    SpreadingQuery,
    SpreadTopic,
    SpreadTopicQuery,
    SpreadTopicsQuery,
)
from viewstamp.node.service import Caller, in_a_task, name_of_caller, proposes
from viewstamp.node.state_machine import InterfaceQuery
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.frame import Frame
from viewstamp.wire.group_requests import CancelGroup, HostGroup, ListGroups, PlaceGroup, RemoveGroup, UnhostGroup
from viewstamp.wire.names import check_new_topic
from viewstamp.wire.placing import encode_cancel, encode_host, encode_place, encode_remove, encode_unhost
from viewstamp.wire.row_schema import RowSchema
from viewstamp.wire.schema import RequestBody
from viewstamp.wire.schema_requests import ConfigureSpreadSchema
from viewstamp.wire.sealing import encode_close, encode_gone, encode_lose, encode_lose_sealed
from viewstamp.wire.sink_parts import encode_begin_part
from viewstamp.wire.sink_requests import BeginPart, CommitParts
from viewstamp.wire.spread_actors import ListSpreadActors, SpreadActor, SpreadActorOverGroups, encode_spread_actor
from viewstamp.wire.spread_requests import (
    AddStream,
    ConfigureSpreadArchive,
    ConfigureSpreadTopic,
    CreateSpreadTopic,
    DescribeSpreadTopic,
    ListSpreadTopics,
    LoseStream,
    RemoveStream,
    SealStream,
    TrimSpreadTopic,
)
from viewstamp.wire.spreading import (
    SLOTS,
    encode_add_stream,
    encode_configure_spread,
    encode_spread,
    encode_spread_archive,
    encode_spread_schema,
    encode_trim_spread,
)

__all__ = ["Placer"]

_NO_GROUP = "no group was placed"
_NO_HOST = "the hosts of the group were not changed"
_NO_TOPIC = "no topic was created"
_NO_ACTOR = "no actor was spread"
_NOT_REMOVED = "the group was not removed"
_NO_CHANGE = "the topic was not changed"
_NO_PART = "nothing was staged"
_LAST_KINDS = {Kind.CLOSE_STREAM: Kind.SEAL_STREAM, Kind.GONE_STREAM: Kind.DROP_STREAM}
"""The highest kind of the records that follow each other from a record on."""

PreparedT = TypeVar("PreparedT")


class Placer:
    """Prepares the records that place groups. Of a request it keeps only which members were probed for parts."""

    def __init__(self, group: Group, network: Network) -> None:
        """Place groups by records of ``group``, group 0 of this node; probe its members by ``network``."""
        self._group = group
        self._network = network
        self._fit: Mapping[NodeId, str] = {}
        """The members that were probed for the records about parts of attempts."""

    async def prepare(self, asked: PlaceGroup, *, by: str) -> Batch | PlacedGroup:
        """Return the record to propose, or the group that exists. Changes nothing; cancellable.

        Args:
          asked: the request.
          by: the caller for the audit log; "" = none is known.

        Raises:
          RequestError: a founder is no member of group 0, or is named twice; a member is of an older release, or
            acknowledges before it syncs; or the record would be refused.
          NotLeaderError: ask the leader. NoQuorumError: no majority has confirmed that this node leads.
          UnavailableError: a member does not answer, or the members change; try again.
        """
        group = self._group
        self._check_leading()
        if not all(type(each) is str for each in asked.founders):
            raise RequestError("a founder whose name is no text; no group was placed", remedy="give names of nodes")
        groups, _ = await group.reading.query(GroupsQuery(), stale=False)
        if (found := _find(groups, asked)) is not None:
            return found

        def place(membership: Membership) -> Needs[Batch | PlacedGroup]:
            members = _founders(membership, asked.founders)
            record = encode_place(members, asked.streams, since=asked.since, by=by)
            found = group.machine.query(PlacementQuery(record))
            return (record, Kind.PLACE_GROUP) if found is None else (found, None)

        return await self._when_fit(place, _NO_GROUP)

    async def prepare_hosts(self, asked: HostGroup | UnhostGroup, *, by: str) -> Batch | PlacedGroup:
        """Return the record to propose, or the group if it would change nothing. Changes nothing; cancellable.

        Args:
          asked: the request.
          by: the caller for the audit log; "" = none is known.

        Raises: as :meth:`prepare`; but members that do not answer are no obstacle.
        """
        group = self._group
        self._check_leading()
        groups, _ = await group.reading.query(GroupsQuery(), stale=False)

        def change(membership: Membership) -> Needs[Batch | PlacedGroup]:
            if isinstance(asked, UnhostGroup):
                record = encode_unhost(GroupId(asked.group), NodeId(asked.node), by=by)
            else:
                ((node, address),) = _founders(membership, [asked.node], _NO_HOST).items()
                record = encode_host(GroupId(asked.group), node, address, by=by)
            if (found := group.machine.query(PlacementQuery(record))) is not None:
                return found, None
            return record, None if any(each.has_moved for each in groups) else Kind.LEFT_GROUP

        return await self._when_fit(change, _NO_HOST, may_be_silent=True)

    async def prepare_topic(self, asked: CreateSpreadTopic, *, by: str) -> Batch | SpreadTopic:
        """Return the record to propose, or the topic that exists. Changes nothing; cancellable.

        Args:
          asked: the request.
          by: the caller for the audit log; "" = none is known.

        Raises:
          RequestError: as :meth:`prepare`; or there are too many groups; or the record would be refused.
          NotLeaderError, NoQuorumError, UnavailableError: as :meth:`prepare`.
        """
        group = self._group
        self._check_leading()
        if len(asked.groups) > asked.streams or not all(type(each) is int for each in asked.groups):
            raise RequestError(
                f"{asked.streams} streams cannot be in the groups {brief_repr(asked.groups)}; {_NO_TOPIC}",
                remedy="name the ids of at most as many groups as there are streams: `viewstamp group list`",
            )
        topics, _ = await group.reading.query(SpreadTopicsQuery(), stale=False)

        def spread(membership: Membership) -> Needs[Batch | SpreadTopic]:
            record = self._topic_record(asked, by)
            if (found := group.machine.query(SpreadingQuery(record))) is not None:
                return found, None
            return record, None if topics else Kind.SPREAD_TOPIC

        return await self._when_fit(spread, _NO_TOPIC)

    async def prepare_change(self, record: Batch, *, may_be_silent: bool = False) -> Batch | SpreadTopic:
        """Return the record to propose, which changes a spread topic, or the topic if it would change nothing.

        Changes nothing; cancellable. ``may_be_silent``: members that do not answer the probe count as fit.

        Raises:
          UnknownTopicError, RequestError: the record would be refused, or a member is of an older release.
          NotLeaderError, NoQuorumError, UnavailableError: as :meth:`prepare`.
        """
        group = self._group
        self._check_leading()
        topics, _ = await group.reading.query(SpreadTopicsQuery(), stale=False)

        def change(membership: Membership) -> Needs[Batch | SpreadTopic]:
            if (found := group.machine.query(SpreadingQuery(record))) is not None:
                return found, None
            if any(topic.has_change(record.kind) for topic in topics):
                return record, None
            return record, _LAST_KINDS.get(record.kind, record.kind)

        return await self._when_fit(change, _NO_CHANGE, may_be_silent=may_be_silent)

    async def prepare_group_removal(self, asked: RemoveGroup, *, by: str) -> Batch | PlacedGroup:
        """Return the record to propose, which removes a group, or the id of the group if it is gone.

        Raises as :meth:`prepare_change`.
        """
        group = self._group
        self._check_leading()
        record = encode_remove(GroupId(asked.group), seen=asked.seen, is_lost=asked.is_lost, by=by)
        removed, _ = await group.reading.query(RemovedGroupsQuery(), stale=False)

        def remove(membership: Membership) -> Needs[Batch | PlacedGroup]:
            if (found := group.machine.query(PlacementQuery(record))) is not None:
                return found, None
            return record, None if removed else Kind.REMOVE_GROUP

        return await when_fit(self._network, group, remove, _NOT_REMOVED, may_be_silent=asked.is_lost)

    async def prepare_stream(self, asked: AddStream, *, by: str) -> Batch | SpreadTopic:
        """Return the record to propose, which adds a stream, or the topic if it has it. Raises as prepare_change."""
        self._check_leading()
        group = asked.group or self._group.machine.query(FreeGroupsQuery(1))[0]
        name = check_new_topic(asked.name)
        record = encode_add_stream(name, asked.stream, group, is_named=bool(asked.group), by=by)
        return await self.prepare_change(record)

    async def prepare_end(self, asked: SealStream | LoseStream, *, by: str) -> Batch | SpreadTopic:
        """Return the record to propose, which ends a stream, or the topic if it is ended. Raises as prepare_change."""
        self._check_leading()
        name = check_new_topic(asked.name)
        if isinstance(asked, LoseStream) and asked.is_sealed:
            return await self.prepare_change(encode_lose_sealed(name, asked.stream, by=by), may_be_silent=True)
        topic, _ = await self._group.reading.query(SpreadTopicQuery(name), stale=False)
        others = [stream for stream in topic.open_streams() if stream != asked.stream]
        # Without another stream the record is refused, because a stream cannot get its own slots.
        into = asked.into or next(iter(others), asked.stream)
        is_lost = isinstance(asked, LoseStream)
        encode = encode_lose if is_lost else encode_close
        record = encode(name, asked.stream, into, is_named=bool(asked.into), by=by)
        return await self.prepare_change(record, may_be_silent=is_lost)

    async def prepare_removal(self, asked: RemoveStream, *, by: str) -> Batch | SpreadTopic:
        """Return the record to propose, which removes a stream, or the topic if it is removed.

        Raises as :meth:`prepare_change`.
        """
        self._check_leading()
        name = check_new_topic(asked.name)
        topic, _ = await self._group.reading.query(SpreadTopicQuery(name), stale=False)
        closed = topic.closed_stream(asked.stream)
        record = encode_gone(name, asked.stream, asked.behind, by=by)
        return await self.prepare_change(record, may_be_silent=closed is not None and closed.lost_at > 0)

    async def check_parts(self) -> None:
        """Check that all members of group 0 read the records about parts of attempts. Changes nothing; cancellable.

        Raises RequestError, UnavailableError: as :meth:`prepare`.
        """
        self._group.check_replayed()

        def fit(membership: Membership) -> Needs[Mapping[NodeId, str]]:
            members = membership.addresses
            return members, None if self._fit == members else Kind.COMMIT_PARTS

        self._fit = await self._when_fit(fit, _NO_PART)

    async def prepare_actor(self, asked: SpreadActorOverGroups, *, by: str) -> Batch | SpreadActor:
        """Return the record to propose, or the actor that is spread already. Changes nothing; cancellable.

        Args:
          asked: the request.
          by: the caller for the audit log; "" = none is known.

        Raises:
          UnknownActorError: this node's code does not have the actor.
          RequestError: as :meth:`prepare`; or no group is established; or the record would be refused.
          NotLeaderError, NoQuorumError, UnavailableError: as :meth:`prepare`.
        """
        group = self._group
        self._check_leading()
        actors, _ = await group.reading.query(SpreadActorsQuery(), stale=False)

        def spread(membership: Membership) -> Needs[Batch | SpreadActor]:
            record = self._actor_record(asked, by)
            if (found := group.machine.query(ActorSpreadingQuery(record))) is not None:
                return found, None
            group.machine.query(InterfaceQuery(asked.name))  # Raises if this node does not know the actor.
            return record, None if actors else Kind.SPREAD_ACTOR

        return await self._when_fit(spread, _NO_ACTOR)

    def _actor_record(self, asked: SpreadActorOverGroups, by: str) -> Batch:
        """Return the record of an actor: over the named groups, or all that are established. Raises RequestError.

        One that is spread keeps its number of slots, as a topic.
        """
        groups = asked.groups
        if not groups:
            groups = [each.id for each in self._group.machine.query(GroupsQuery()) if each.is_established]
        if not groups:
            raise RequestError(
                f"no group is established, so no actor can be spread; {_NO_ACTOR}",
                remedy="place groups first: `viewstamp group place`; see them with `viewstamp group list`",
            )
        spread = self._group.machine.query(SpreadActorsQuery())
        slots = next((each.slots for each in spread if each.name == asked.name), SLOTS)
        return encode_spread_actor(asked.name, groups, slots=slots, are_named=bool(asked.groups), by=by)

    def _topic_record(self, asked: CreateSpreadTopic, by: str) -> Batch:
        """Return the record of a topic, with the named groups in turns, or the free ones.

        One that exists keeps its number of slots, because it may be of a release that gave others.
        """
        if asked.groups:
            groups = [asked.groups[stream % len(asked.groups)] for stream in range(asked.streams)]
        else:
            groups = list(self._group.machine.query(FreeGroupsQuery(asked.streams)))
        topics = self._group.machine.query(SpreadTopicsQuery())
        return encode_spread(
            check_new_topic(asked.name),
            groups,
            slots=next((each.slots for each in topics if each.name == asked.name), SLOTS),
            retain_bytes=asked.retain_bytes or 0,
            retain_seconds=asked.retain_seconds or 0.0,
            are_named=bool(asked.groups),
            by=by,
        )

    def _check_leading(self) -> None:
        """Raise UnavailableError or NotLeaderError unless this node leads group 0."""
        self._group.check_replayed()
        replica = self._group.replica
        assert replica is not None, "a replayed group has one"
        if not replica.is_leading:
            raise not_leader(replica.raft.core)

    async def _when_fit(
        self, prepare: Callable[[Membership], Needs[PreparedT]], failed: str, *, may_be_silent: bool = False
    ) -> PreparedT:
        """As :func:`viewstamp.node.fitness.when_fit`, for this group; ``failed`` is what was not done."""
        return await when_fit(self._network, self._group, prepare, failed, may_be_silent=may_be_silent)


def _find(groups: Sequence[PlacedGroup], asked: PlaceGroup) -> PlacedGroup | None:
    """Return the group that has these streams, if it has these founders too, or the request names none."""
    for group in groups:
        if list(group.streams) == asked.streams and set(asked.founders) in (set(), set(group.members)):
            return group
    return None


def _founders(membership: Membership, names: Sequence[object], failed: str = _NO_GROUP) -> dict[NodeId, str]:
    """Return the founders with their addresses; [] = all voters. Raises RequestError.

    A learner of group 0 applies its records, and has a disk on record, as a voter does. Whether a node votes in group 0
    says nothing about its vote in another group.
    """
    addresses = {name_of(member): address for member, address in membership.addresses.items()}
    for place, name in enumerate(names):
        if name not in addresses:
            raise RequestError(
                f"a group cannot have the founder {name!r}, which is no member of group 0:"
                f" {', '.join(addresses)}; {failed}",
                remedy="name members, see `viewstamp members list`; or add the node first: `viewstamp members add`",
            )
        if name in names[:place]:
            raise RequestError(f"founder {name!r} is named twice; no group was placed", remedy="name it once")
    voters = {name_of(member): address for member, address in membership.electors.items()}
    return {NodeId(str(name)): addresses[NodeId(str(name))] for name in names} or voters


# The handlers of the requests about groups.


@in_a_task(ListGroups)
async def _list_groups(caller: Caller, request: int, asked: ListGroups) -> None:
    check_group_0(caller)
    groups, _ = await caller.group.reading.query(GroupsQuery(), stale=False)
    caller.check(asked)
    index = caller.group.applied_index
    caller.ok(request, {"groups": [group.describe() for group in groups], "applied_index": index})


@in_a_task(PlaceGroup)
async def _place_group(caller: Caller, request: int, asked: PlaceGroup) -> None:
    """Propose the record that the node has prepared. The leader checks the caller again when it admits the record."""
    check_group_0(caller)
    prepared = await caller.service.placer.prepare(asked, by=name_of_caller(caller))
    _propose_or_answer(caller, request, asked, "group", prepared)


def _propose_or_answer(
    caller: Caller,
    request: int,
    asked: RequestBody,
    name: str,
    prepared: Batch | PlacedGroup | SpreadTopic | SpreadActor,
) -> None:
    """Propose the prepared record; answer at once, with the field ``name``, if it would change nothing."""
    if isinstance(prepared, Batch):
        caller.propose(request, prepared, result_fields)
    else:
        caller.check(asked)
        caller.ok(request, {name: prepared.describe()})


@proposes(CancelGroup)
def _cancel_group(caller: Caller, request: int, asked: CancelGroup, frame: Frame) -> None:
    check_group_0(caller)
    record = encode_cancel(GroupId(asked.group), by=name_of_caller(caller))
    caller.propose(request, record, lambda _: {})


@in_a_task(HostGroup)
async def _host_group(caller: Caller, request: int, asked: HostGroup) -> None:
    check_group_0(caller)
    prepared = await caller.service.placer.prepare_hosts(asked, by=name_of_caller(caller))
    _propose_or_answer(caller, request, asked, "group", prepared)


@in_a_task(UnhostGroup)
async def _unhost_group(caller: Caller, request: int, asked: UnhostGroup) -> None:
    check_group_0(caller)
    prepared = await caller.service.placer.prepare_hosts(asked, by=name_of_caller(caller))
    _propose_or_answer(caller, request, asked, "group", prepared)


@in_a_task(RemoveGroup)
async def _remove_group(caller: Caller, request: int, asked: RemoveGroup) -> None:
    check_group_0(caller)
    prepared = await caller.service.placer.prepare_group_removal(asked, by=name_of_caller(caller))
    _propose_or_answer(caller, request, asked, "group", prepared)


@in_a_task(CreateSpreadTopic)
async def _create_spread_topic(caller: Caller, request: int, asked: CreateSpreadTopic) -> None:
    """Propose the record that the node has prepared. The leader checks the caller again when it admits the record."""
    check_group_0(caller)
    prepared = await caller.service.placer.prepare_topic(asked, by=name_of_caller(caller))
    _propose_or_answer(caller, request, asked, "topic", prepared)


@in_a_task(ConfigureSpreadTopic)
async def _configure_spread_topic(caller: Caller, request: int, asked: ConfigureSpreadTopic) -> None:
    check_group_0(caller)
    record = encode_configure_spread(
        check_new_topic(asked.name),
        since=asked.since,
        retain_bytes=asked.retain_bytes,
        retain_seconds=asked.retain_seconds,
        by=name_of_caller(caller),
    )
    prepared = await caller.service.placer.prepare_change(record)
    _propose_or_answer(caller, request, asked, "topic", prepared)


@in_a_task(ConfigureSpreadArchive)
async def _configure_spread_archive(caller: Caller, request: int, asked: ConfigureSpreadArchive) -> None:
    check_group_0(caller)
    record = encode_spread_archive(
        check_new_topic(asked.name),
        since=asked.since,
        retain_bytes=asked.retain_bytes,
        retain_seconds=asked.retain_seconds,
        is_on=asked.is_on,
        after_seconds=asked.after_seconds,
        delay_seconds=asked.delay_seconds,
        delete_seconds=asked.delete_seconds,
        by=name_of_caller(caller),
    )
    prepared = await caller.service.placer.prepare_change(record)
    _propose_or_answer(caller, request, asked, "topic", prepared)


@in_a_task(ConfigureSpreadSchema)
async def _configure_spread_schema(caller: Caller, request: int, asked: ConfigureSpreadSchema) -> None:
    check_group_0(caller)
    schema = RowSchema.parse(asked.schema).text
    record = encode_spread_schema(check_new_topic(asked.name), schema, by=name_of_caller(caller))
    prepared = await caller.service.placer.prepare_change(record)
    _propose_or_answer(caller, request, asked, "topic", prepared)


@in_a_task(TrimSpreadTopic)
async def _trim_spread_topic(caller: Caller, request: int, asked: TrimSpreadTopic) -> None:
    check_group_0(caller)
    record = encode_trim_spread(check_new_topic(asked.name), asked.position, by=name_of_caller(caller))
    prepared = await caller.service.placer.prepare_change(record)
    _propose_or_answer(caller, request, asked, "topic", prepared)


@in_a_task(AddStream)
async def _add_stream(caller: Caller, request: int, asked: AddStream) -> None:
    check_group_0(caller)
    prepared = await caller.service.placer.prepare_stream(asked, by=name_of_caller(caller))
    _propose_or_answer(caller, request, asked, "topic", prepared)


@in_a_task(SealStream)
async def _seal_stream(caller: Caller, request: int, asked: SealStream) -> None:
    check_group_0(caller)
    prepared = await caller.service.placer.prepare_end(asked, by=name_of_caller(caller))
    _propose_or_answer(caller, request, asked, "topic", prepared)


@in_a_task(LoseStream)
async def _lose_stream(caller: Caller, request: int, asked: LoseStream) -> None:
    check_group_0(caller)
    prepared = await caller.service.placer.prepare_end(asked, by=name_of_caller(caller))
    _propose_or_answer(caller, request, asked, "topic", prepared)


@in_a_task(RemoveStream)
async def _remove_stream(caller: Caller, request: int, asked: RemoveStream) -> None:
    check_group_0(caller)
    prepared = await caller.service.placer.prepare_removal(asked, by=name_of_caller(caller))
    _propose_or_answer(caller, request, asked, "topic", prepared)


@in_a_task(DescribeSpreadTopic)
async def _describe_spread_topic(caller: Caller, request: int, asked: DescribeSpreadTopic) -> None:
    check_group_0(caller)
    reading = caller.group.reading
    topic, age = await reading.query(SpreadTopicQuery(asked.name), stale=asked.stale)
    caller.check(asked)
    next_position, ends = reading.query_now(TopicOrderQuery(asked.name))
    order: dict[str, object] = {"next_position": next_position, "ordered_ends": ends}
    index = caller.group.applied_index
    caller.ok(request, {"topic": topic.describe(), "age": age, "applied_index": index, **order})


@in_a_task(ListSpreadTopics)
async def _list_spread_topics(caller: Caller, request: int, asked: ListSpreadTopics) -> None:
    check_group_0(caller)
    topics, age = await caller.group.reading.query(SpreadTopicsQuery(), stale=asked.stale)
    caller.check(asked)
    seen = [each.describe() for each in topics if caller.gate.sees(caller.credentials, ListSpreadTopics, each.name)]
    caller.ok(request, {"topics": seen, "age": age})


@in_a_task(SpreadActorOverGroups)
async def _spread_actor(caller: Caller, request: int, asked: SpreadActorOverGroups) -> None:
    """Propose the record that the node has prepared. The leader checks the caller again when it admits the record."""
    check_group_0(caller)
    prepared = await caller.service.placer.prepare_actor(asked, by=name_of_caller(caller))
    _propose_or_answer(caller, request, asked, "actor", prepared)


@in_a_task(ListSpreadActors)
async def _list_spread_actors(caller: Caller, request: int, asked: ListSpreadActors) -> None:
    check_group_0(caller)
    actors, age = await caller.group.reading.query(SpreadActorsQuery(), stale=asked.stale)
    caller.check(asked)
    seen = [each.describe() for each in actors if caller.gate.sees(caller.credentials, ListSpreadActors, each.name)]
    caller.ok(request, {"actors": seen, "age": age})


@in_a_task(BeginPart)
async def _begin_part(caller: Caller, request: int, asked: BeginPart) -> None:
    """Begin the part of an attempt in the group of this connection."""
    if caller.group is caller.service.group:
        raise RequestError(
            f"a part of attempt {asked.attempt} belongs to another group than 0; nothing was staged",
            remedy="stage records of a topic without streams in the attempt itself",
        )
    await caller.service.placer.check_parts()
    caller.propose(request, encode_begin_part(asked.attempt, asked.sink), result_fields)


@proposes(CommitParts)
def _commit_parts(caller: Caller, request: int, asked: CommitParts, frame: Frame) -> None:
    check_group_0(caller)
    fields = asked.to_map()
    fields.pop("id", None)
    caller.propose(request, build_batch([msgpack.packb(fields)], kind=Kind.COMMIT_PARTS), result_fields)
