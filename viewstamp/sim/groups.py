"""Other groups than 0 on the nodes of a run: they are placed, written to and read, and their states are compared.

A writer creates topics, one after the other, at the member that leads its group. A reader lists them linearizably at
any member. Neither waits for an answer for ever, because the process of the member may die. When all groups are placed,
a client may create a topic whose records are spread over streams of these groups.

| invariant | sentence |
| --- | --- |
| GroupsKeepWhatTheyAcknowledged | at the end each member of a group has every topic whose creation was acknowledged |
| GroupsAreApart | ... and no topic of another group |
| GroupsAgree | ... and the same state as the other members of the group |
| StreamsAreCreated | at the end each member has the spread topic, with the groups that were acknowledged, and each \
member of a group has exactly the streams of that group |
| StreamsFollow | at the end each of these streams has the retention and the schema of the topic, which a client has \
changed, and begins at the record to which a client has trimmed the topic. If a client has ended it, it is sealed on \
all members; it may end into a stream that was added. If it has removed it, the groups have dropped it |
| Linearizable | the topics of a group are a log: each creation appends a name, each list is a read of all of it |
| CancelledIsGone | no member opens a group after its cancellation was acknowledged |
| PlacedOnce | at the end the members have exactly the groups that were acknowledged and not cancelled |
| StatusIsReadable | clients can decode the status of a member, also of one on which a group has failed |
| EstablishedIsNeverNew | a member is open under the name of a founder only with the disk that group 0 has on \
record for it, and an id of a group never has two disks |
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable

from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import Receipt, SpreadTopicInfo
from viewstamp.errors import FrameError, RequestError, StorageError
from viewstamp.ids import GROUP_0, GroupId, Index, NodeId, Position, Stream, Term
from viewstamp.node.order_queries import FirstFromQuery
from viewstamp.node.placement_queries import (
    GroupsQuery,
    PlacedGroup,
    SealedStreamQuery,
    SpreadTopicQuery,
    SpreadTopicsQuery,
)
from viewstamp.node.state_machine import TopicQuery
from viewstamp.sim.cluster import Cluster, Member, is_settled
from viewstamp.sim.disk import UNLIMITED_BYTES
from viewstamp.sim.group_writers import SPREAD, GroupWriters, topic_names
from viewstamp.sim.keyed_appends import KeyedAppends
from viewstamp.sim.loop import SimulatedProcess
from viewstamp.sim.order_readers import OrderReaders
from viewstamp.sim.ordered import OrderedStreams
from viewstamp.sim.ordered_appends import OrderedAppends
from viewstamp.sim.tokens import with_token
from viewstamp.sim.topics import PASSING
from viewstamp.sim.violation import Violation
from viewstamp.sim.world import World
from viewstamp.wire.frame import FrameDecoder, FrameKind, encode_frame
from viewstamp.wire.spread_requests import LoseStream
from viewstamp.wire.spreading import stream_name, topic_of

__all__ = ["GroupPlacer", "PlacedGroups"]

_PAUSE_SECONDS = 0.05
_LOOK_SECONDS = 0.01
_ANSWER_SECONDS = 2.0
_APART = f"{SPREAD}.apart"
"""The name of a second one, with one stream, because each topic has global positions of its own."""
_ORDERED_SECONDS = 0.5
"""The mean time between two ordered appends to a stream."""
_ORDERED_MAX = 12
"""The most ordered appends to a stream, because each takes as much work as three other appends."""
_RETAIN_BYTES = 1 << 40
_TRIMS_MAX = 10
_TRIM_SECONDS = 0.3
_TRIM_MAX = 40
_ENDS_MAX = 3
_END_SECONDS = 1.0
_LOST_CHANCE = 0.3
_ADD_CHANCE = 0.5
_REMOVE_CHANCE = 0.6
_GROUP_DOWN_SECONDS = 1.0
"""Time after which an operator restarts a node because one of its groups has failed."""


class PlacedGroups:
    """The groups that are placed while a world runs: each is watched by checkers, written to and read."""

    def __init__(
        self,
        world: World,
        number: int,
        *,
        cancels: bool,
        streams: int = 0,
        changes: bool = False,
        founders: int = 0,
    ) -> None:
        """Prepare; see :class:`GroupPlacer`."""
        self.writers = GroupWriters(world)
        self.placer = GroupPlacer(
            world,
            number,
            on_seen=self._on_seen,
            on_placed=self.writers.write_to,
            on_gone=world.forget,
            cancels=cancels,
            streams=streams,
            changes=changes,
            founders=founders,
        )
        self.ordered = OrderedStreams(world, lambda: self.placer.streams, writes=streams > 0)
        self.appends = OrderedAppends(
            world,
            lambda: self.placer.streams if self.placer.apart is not None else [],
            clients=1,
            pause_seconds=_ORDERED_SECONDS,
            appends_max=_ORDERED_MAX,
        )
        self.keyed = KeyedAppends(world, lambda: self.placer.spread)
        self.readers = OrderReaders(world, lambda: self.placer.topics, number=1)
        self._has_streams = streams > 0
        self._world = world
        world.damages.on_disk_loss = self.placer.look

    def start(self) -> None:
        """Begin to place groups."""
        self.placer.start()
        self.ordered.start()
        if self._has_streams:
            self.appends.start()
            self.keyed.start()
            self.readers.start()

    def stop(self) -> None:
        """Write nothing more, once each group has acknowledged something."""
        self.writers.stop()
        self.ordered.stop()
        self.appends.stop()
        self.keyed.stop()

    @property
    def is_level(self) -> bool:
        """Whether all groups are placed, all members of each have the same log, and cancelled ones left nothing."""
        hosts = {each: self._hosts(each) for each in self.placer.placed}
        are_settled = all(members and is_settled(members, each) for each, members in hosts.items())
        return (
            self.placer.is_done
            and are_settled
            and not self.leftovers
            and not self.placer.missing_streams
            and not self.placer.unlike_streams
            and self.ordered.is_complete
        )

    @property
    def leftovers(self) -> list[str]:
        """The directories of groups whose cancellation was acknowledged, without those of which a node has a reason."""
        found = []
        for member in self._world.members:
            kept = member.node.hosting.kept if member.node is not None else {}
            paths = [f"{member.data_dir}/groups/{group}" for group in self.placer.cancelled if group not in kept]
            found += [path for path in paths if member.disk.volume.exists(path)]
        return found

    @property
    def is_done(self) -> bool:
        """Whether :attr:`is_level` holds, and nothing more is written."""
        if self._has_streams and not (self.appends.is_done and self.readers.are_at_the_end):
            return False
        return self.writers.is_done and self.ordered.is_done and self.is_level

    def check(self) -> None:
        """Check the groups at the end. Raises Violation."""
        self.placer.look()
        self.placer.check_end()
        for member in self._world.members:
            check_status(member)
        self.writers.check()
        self.ordered.check()
        self.appends.check()
        self.keyed.check()
        if self._has_streams:
            self.readers.check(self.ordered.places())

    def _on_seen(self, placed: PlacedGroup) -> None:
        self._world.watch(placed.id, frozenset(placed.members))

    def _hosts(self, group: GroupId) -> list[Member]:
        hosts = self.placer.hosts.get(group, (0, frozenset()))[1]  # Empty = no look has seen the placement yet.
        return [member for member in self._world.members if member.name in hosts]


def check_status(member: Member) -> None:
    """Check that a client can decode the status of a running member. Raises Violation."""
    assert member.node is not None, f"{member.name} is down"
    frame = b"".join(encode_frame(FrameKind.OK, {"id": 1, "status": member.node.status}))
    try:
        list(FrameDecoder().feed(frame))
    except FrameError as error:
        raise Violation("StatusIsReadable", f"{member.name}: {error}") from error


class GroupPlacer:
    """Places groups by a client, one after the other, and watches the disks of their members."""

    def __init__(
        self,
        cluster: Cluster,
        number: int,
        *,
        on_seen: Callable[[PlacedGroup], None],
        on_placed: Callable[[GroupId], None],
        on_gone: Callable[[GroupId], None],
        cancels: bool = False,
        streams: int = 0,
        changes: bool = False,
        founders: int = 0,
    ) -> None:
        """Prepare.

        Args:
          cluster: where to place them.
          number: how many to place.
          on_seen: called with each group that a member has applied.
          on_placed: called with each of them when it stays: it was not, or could not be, cancelled.
          on_gone: called with each of them whose cancellation was acknowledged.
          cancels: whether to cancel each group once, as soon as it is placed.
          streams: of the topic that is created when all groups are placed; 0 = none.
          changes: whether to change this topic afterwards.
          founders: how many members found each group, at random; 0 = all voters.
        """
        self.spread: SpreadTopicInfo | None = None
        """The spread topic whose creation was acknowledged."""
        self.apart: SpreadTopicInfo | None = None
        """The same for the second one."""
        self.ended: set[int] = set()
        """The streams of it whose end was acknowledged."""
        self.removed: set[int] = set()
        """The streams of it whose removal was acknowledged."""
        self._unanswered_trims: list[int] = []
        """The positions of its trims since the last answered one. Each may take effect later."""
        self.placed: list[GroupId] = []
        self.cancelled: list[GroupId] = []
        """The groups whose cancellation was acknowledged."""
        self.hosts: dict[GroupId, tuple[Index, frozenset[NodeId]]] = {}
        """The newest hosts of each group that a member has applied, and its applied index then."""
        self._cluster = cluster
        self._number = number
        self._on_seen = on_seen
        self._on_placed = on_placed
        self._on_gone = on_gone
        self._cancels = cancels
        self._streams = streams
        self._changes = changes
        self._founders = founders
        self._process = cluster.loop.process("group-placer")
        self._recorded: dict[tuple[GroupId, NodeId], str] = {}
        """The disks on record, as any member has applied them."""
        self._established: dict[GroupId, None] = {}
        self._disks: dict[tuple[GroupId, NodeId], str] = {}
        """The disk of each id that was ever open."""
        self._open: dict[tuple[str, GroupId], object] = {}
        """The replicas that were looked at, by machine and group."""
        self._failing: dict[SimulatedProcess, float] = {}
        """The processes in which a group has failed, with the time at which the operator noticed it."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to place groups, and to look at the members: regularly, and in the event in which one opens a group."""
        self._task = self._process.spawn(self._place())
        self._process.spawn(self._cluster.look_often(self._look, _LOOK_SECONDS))
        after_event = self._cluster.loop.after_event
        assert after_event is not None, "a world checks after each event"

        def after_each() -> None:
            after_event()
            if self._is_another_open():
                self.look()

        self._cluster.loop.after_event = after_each

    def _is_another_open(self) -> bool:
        """Return whether a member has opened a group since the last call.

        A replica under a name that is not its own any more lives only until a peer refuses it.
        """
        known, is_another = self._open, False
        for member in self._cluster.touched() if known else self._cluster.members:
            for group in member.node.groups.values() if member.node is not None else ():
                key = member.name, group.id
                if group.parts is not None and known.get(key) is not group.parts:
                    known[key] = group.parts
                    is_another = True
        return is_another

    @property
    def is_done(self) -> bool:
        """Whether all groups are placed."""
        return self._task is not None and self._task.done()

    def client(self) -> Client:
        """Return a client of the cluster, which the caller closes."""
        return Client(
            self._cluster.addresses,
            network=self._cluster.network.view("group-placer"),
            entropy=self._cluster.loop.entropy("group-placer"),
            options=with_token(self._cluster, ClientOptions(timeout=_ANSWER_SECONDS)),
        )

    async def _place(self) -> None:
        async with self.client() as client:
            for number in range(self._number):
                group = await self._place_one(client, f"s{number}")
                if self._cancels and await self._cancel(client, group):
                    group = await self._place_one(client, f"s{number}")
                self.placed.append(group)
                self._on_placed(group)
            while self._streams and self.apart is None:
                await asyncio.sleep(_PAUSE_SECONDS)
                # A RequestError until a group is established.
                with contextlib.suppress(*PASSING, RequestError):
                    if self.spread is None:
                        self.spread = await client.create_spread_topic(SPREAD, self._streams)
                    self.apart = await client.create_spread_topic(_APART, 1)
            if self._changes and self.spread is not None:
                await self._configure(client)
                await self._end_streams(client)
                await self._trim(client)
                await self._remove_streams(client)
                while True:  # A trim may have an outcome that is not known.
                    await asyncio.sleep(_PAUSE_SECONDS)
                    with contextlib.suppress(*PASSING):
                        self._take(await client.describe_spread_topic(SPREAD))
                        break

    async def _configure(self, client: Client) -> None:
        """Change the retention and the schema of the topic some times, to limits that no stream reaches."""
        entropy = self._cluster.loop.entropy("spread-changes")
        for _ in range(entropy.randrange(3)):
            wanted = _RETAIN_BYTES + entropy.randrange(4)
            while self.spread is None or self.spread.retain_bytes != wanted:
                await asyncio.sleep(_PAUSE_SECONDS)
                try:
                    self._take(await client.configure_spread_topic(SPREAD, retain_bytes=wanted))
                except PASSING:
                    continue
                except RequestError as error:  # The operator of the archive configures it, too.
                    if "after this request was made" not in error.message:
                        raise
        for fields in range(1, self._cluster.loop.entropy("spread-schemas").randrange(1, 4)):
            schema = ", ".join(f"f{number}: int64?" for number in range(fields))
            while self.spread is None or self.spread.schema != schema:
                await asyncio.sleep(_PAUSE_SECONDS)
                with contextlib.suppress(*PASSING):
                    await client.set_schema(SPREAD, schema)
                    self._take(await client.describe_spread_topic(SPREAD))

    async def _end_streams(self, client: Client) -> None:
        """End some streams of the topic, never all; some without their groups, which live all the same."""
        entropy, adds = self._cluster.loop.entropy("spread-ends"), self._cluster.loop.entropy("spread-adds")
        for stream in entropy.sample(range(1, self._streams + 1), entropy.randrange(min(self._streams, _ENDS_MAX))):
            await asyncio.sleep(entropy.expovariate(1 / _END_SECONDS))
            is_lost = entropy.random() < _LOST_CHANCE
            if adds.random() < _ADD_CHANCE:
                await self._add_stream(client)
            while True:
                with contextlib.suppress(*PASSING):
                    if is_lost:  # Not by the call of the client, which refuses a group that has a majority.
                        request = LoseStream(name=SPREAD, stream=stream, into=0)
                        await client._admin.ask_leader(request, "the stream is not ended")
                    else:
                        await client.seal_stream(SPREAD, stream)
                    break
                await asyncio.sleep(_PAUSE_SECONDS)
            self.ended.add(stream)

    async def _remove_streams(self, client: Client) -> None:
        """Remove some of the streams that were ended, after a trim above their records."""
        entropy = self._cluster.loop.entropy("spread-removals")
        for stream in sorted(self.ended):
            if entropy.random() >= _REMOVE_CHANCE:
                continue
            while stream not in self.removed:
                await asyncio.sleep(_PAUSE_SECONDS)
                try:
                    self._take(await client.remove_stream(SPREAD, stream))
                    self.removed.add(stream)
                except RequestError:  # It is closing, or keeps records.
                    await self._trim_above(client, stream)
                except PASSING:
                    continue

    async def _trim_above(self, client: Client, stream: int) -> None:
        """Trim the topic above the records of a stream, if it is sealed."""
        with contextlib.suppress(*PASSING):
            topic = await client.describe_spread_topic(SPREAD)
            behind, end = topic.lost_at(stream), topic.closed_at(stream)
            if not behind and end > 1:
                last = Receipt(Position(end - 1), Term(0), Index(0), 0, stream=stream)
                behind = ((await client.find_global_position(SPREAD, last)).global_position or 0) + 1
            if behind > topic.first_position:
                self._unanswered_trims.append(behind)
                self._take(await client.trim_spread_topic(SPREAD, behind))
                self._unanswered_trims.clear()

    async def _add_stream(self, client: Client) -> None:
        """Add a stream, into which the next one ends that names no other, because it has no slots."""
        assert self.spread is not None, "the topic exists"
        wanted = self.spread.streams + 1
        while self.spread.streams < wanted:
            await asyncio.sleep(_PAUSE_SECONDS)
            with contextlib.suppress(*PASSING):
                self._take(await client.add_stream(SPREAD, stream=wanted))

    def _take(self, topic: SpreadTopicInfo) -> None:
        """Take an answer about the topic, unless it is older than one that had a further stream."""
        if self.spread is None or topic.streams >= self.spread.streams:
            self.spread = topic

    async def _trim(self, client: Client) -> None:
        """Trim the topic to a global position, as soon as there are so many records."""
        entropy = self._cluster.loop.entropy("spread-trims")
        for _ in range(entropy.randrange(_TRIMS_MAX)):
            await asyncio.sleep(_TRIM_SECONDS)
            position = entropy.randrange(1, _TRIM_MAX)
            try:
                self._take(await client.trim_spread_topic(SPREAD, position))
                self._unanswered_trims.clear()
            except RequestError:  # There are fewer records.
                continue
            except PASSING:
                self._unanswered_trims.append(position)

    async def _place_one(self, client: Client, stream: str) -> GroupId:
        """Place a group with one stream, however often the request fails."""
        names = [member.name for member in self._cluster.members]
        founders = self._cluster.loop.entropy(f"founders of {stream}").sample(names, self._founders)
        while True:
            await asyncio.sleep(_PAUSE_SECONDS)
            try:
                return (await client.place_group(stream, founders=founders)).id
            except PASSING:
                continue

    async def _cancel(self, client: Client, group: GroupId) -> bool:
        """Cancel a group, however often the request fails; return False if it is established."""
        while True:
            try:
                await client.cancel_group(group)
            except PASSING:
                await asyncio.sleep(_PAUSE_SECONDS)
            except RequestError:
                return False
            else:
                self.cancelled.append(group)
                self._on_gone(group)
                return True

    def check_end(self) -> None:
        """Compare the groups of the members, which have settled, with those that were placed. Raises Violation."""
        for member in self._cluster.members:
            if member.is_up and member.node is not None:
                found = [placed.id for placed in member.machine.query(GroupsQuery())]
                if found != self.placed:
                    raise Violation("PlacedOnce", f"{member.name} has the groups {found}, not {self.placed}")
                topics = [(each.name, each.groups) for each in member.machine.query(SpreadTopicsQuery())]
                if topics != [(topic.name, topic.groups) for topic in self.topics]:
                    raise Violation("StreamsAreCreated", f"{member.name} has {topics}, acknowledged: {self.topics}")
                kept = [each.retain_bytes for each in member.machine.query(SpreadTopicsQuery())]
                if self.spread is not None and kept[:1] != [self.spread.retain_bytes]:
                    raise Violation("StreamsFollow", f"{member.name} keeps {kept}, acknowledged was {self.spread}")
                schemas = [each.schema for each in member.machine.query(SpreadTopicsQuery())]
                if self.spread is not None and schemas[:1] != [self.spread.schema]:
                    raise Violation("StreamsFollow", f"{member.name} has {schemas}, acknowledged was {self.spread}")
                if self.spread is not None:
                    first = member.machine.query(SpreadTopicQuery(SPREAD)).first_position
                    known = self.spread.first_position
                    if first != known and not (first > known and first in self._unanswered_trims):
                        raise Violation("StreamsFollow", f"{member.name} begins at {first}, acknowledged was {known}")
        if wrong := self.missing_streams:
            raise Violation("StreamsAreCreated", wrong)
        if wrong := self.unlike_streams:
            raise Violation("StreamsFollow", wrong)

    @property
    def streams(self) -> list[Stream]:
        """The streams of the acknowledged topics."""
        return [
            Stream(GroupId(group), stream_name(topic.name, number))
            for topic in self.topics
            for number, group in enumerate(topic.groups, 1)
        ]

    @property
    def kept_streams(self) -> list[Stream]:
        """Those of them whose removal was not acknowledged."""
        removed = {stream_name(SPREAD, number) for number in self.removed}
        return [stream for stream in self.streams if stream.name not in removed]

    @property
    def topics(self) -> list[SpreadTopicInfo]:
        """The acknowledged topics."""
        return [topic for topic in (self.spread, self.apart) if topic is not None]

    @property
    def missing_streams(self) -> str:
        """Return how the streams of a member of a group differ from those of the acknowledged topics; "" = nowhere."""
        for group in self.placed:
            wanted = {stream.name for stream in self.kept_streams if stream.group == group}
            for member in self._cluster.members:
                hosted = member.group(group)
                found = {name for name in topic_names(hosted) if name.startswith(f"{SPREAD}.")} if hosted else wanted
                if found != wanted:
                    return f"{member.name} has the streams {sorted(found)} in group {group}, not {sorted(wanted)}"
        return ""

    def _unsealed_stream(self, spread: SpreadTopicInfo) -> str:
        """Return an acknowledged end that a member does not have; "" = there is none."""
        for number in self.ended:
            for member in self._cluster.members:
                if not member.is_up or member.node is None:
                    continue
                closed = member.machine.query(SpreadTopicQuery(SPREAD)).closed_stream(number)
                hosted, name = member.group(spread.group_of(number)), spread.topic_of(number)
                is_sealed = hosted is None or hosted.machine.query(SealedStreamQuery(name))
                if closed is not None and closed.gone and hosted is not None:
                    is_sealed |= name not in topic_names(hosted)  # Removed before its group has created it.
                if closed is not None and (closed.gone > 0) is not (number in self.removed):
                    return f"{member.name} has {closed}, and the streams {self.removed} were removed"
                if closed is None or not closed.end or not is_sealed:
                    return f"{member.name} has the end {closed} of stream {number}, sealed in its group: {is_sealed}"
        return ""

    @property
    def unlike_streams(self) -> str:
        """Return a stream of a member that has not followed the topic as the member has applied it; "" = there is none.

        The acknowledged topic is not enough, because a trim without an answer may take effect at any later time.
        """
        acknowledged = self.spread
        if acknowledged is None:
            return ""
        if wrong := self._unsealed_stream(acknowledged):
            return wrong
        for stream in self.kept_streams:
            if topic_of(stream.name) != SPREAD:
                continue
            for member in self._cluster.members:
                hosted = member.group(stream.group)
                if hosted is None:
                    continue
                spread = member.machine.query(SpreadTopicQuery(SPREAD))
                if not (spread.configured or spread.first_position > 1 or spread.schema):
                    continue
                topic = hosted.machine.query(TopicQuery(stream.name))
                if topic.get("schema", "") != spread.schema:
                    return f"{member.name} has a schema of {stream} that is not {spread.schema!r}: {topic}"
                if spread.configured and topic["retain_bytes"] != spread.retain_bytes:
                    return f"{member.name} keeps {topic['retain_bytes']} bytes of {stream}, not {spread.retain_bytes}"
                if topic["first_position"] != hosted.machine.query(FirstFromQuery(stream.name, spread.first_position)):
                    return f"{stream} begins at {topic['first_position']} on {member.name}, not at {spread}"
        return ""

    def _look(self) -> None:
        self.look()
        self._restart_failed()

    def _restart_failed(self) -> None:
        """Let an operator restart each node on which a group has failed, some time after the failure.

        A group that could not be created because the disk is full needs none: it is tried again.
        """
        loop = self._cluster.loop
        for member in self._cluster.members:
            node, process = member.node, member.process
            if node is None or process is None:
                continue
            failures = [group.failed.result() for group in node.groups.values() if group.failed.done()]
            is_full = member.disk.capacity_bytes < UNLIMITED_BYTES
            if not failures and (is_full or not node.hosting.failures):
                self._failing.pop(process, None)
                continue
            if process not in self._failing:
                check_status(member)
            for failure in failures:
                if not isinstance(failure, StorageError):
                    raise Violation("a group fails only when its disk does", f"{member.id}: {failure!r}")
            if loop.time() - self._failing.setdefault(process, loop.time()) >= _GROUP_DOWN_SECONDS:
                loop.call_soon(self._cluster.restart, member, process, context=contextvars.Context())

    def look(self) -> None:
        """Note the groups that the members have applied, and check the disks of the open ones. Raises Violation."""
        nodes = [(each.name, each.node) for each in self._cluster.members if each.is_up and each.node is not None]
        for _, node in nodes:
            for placed in node.machine.query(GroupsQuery()) if node.group.parts is not None else ():
                if placed.id not in self.hosts and placed.id not in self.cancelled:
                    self._on_seen(placed)
                    self.hosts[placed.id] = node.group.applied_index, frozenset(placed.hosts)
                elif placed.has_moved and node.group.applied_index > self.hosts[placed.id][0]:
                    self.hosts[placed.id] = node.group.applied_index, frozenset(placed.hosts)
                for founder, incarnation in placed.incarnations.items():
                    self._expect(self._recorded, placed.id, founder, incarnation)
                if placed.is_established:
                    self._established[placed.id] = None
        for name, node in nodes:
            for group in node.groups.values():
                if group.id == GROUP_0 or group.parts is None:
                    continue
                if group.id in self.cancelled:
                    raise Violation("CancelledIsGone", f"{name} has opened group {group.id}, which was cancelled")
                if group.id not in self._established:
                    raise Violation("EstablishedIsNeverNew", f"{name} has opened group {group.id} before all founders")
                if group.me == name:
                    self._expect(self._recorded, group.id, name, group.incarnation)
                self._expect(self._disks, group.id, group.me, group.incarnation)

    @staticmethod
    def _expect(known: dict[tuple[GroupId, NodeId], str], group: GroupId, member: NodeId, incarnation: str) -> None:
        if known.setdefault((group, member), incarnation) != incarnation:
            raise Violation("EstablishedIsNeverNew", f"{member} has another disk in group {group} than before")
