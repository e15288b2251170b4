"""Nodes for tests of a client: they speak the real frames, and share one real state machine.

Everything is committed at once. ``script`` decides the reaction to each APPEND that arrives. Commits of sinks cannot be
read here; use real nodes for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgpack

from tests.streams.log import Log
from viewstamp.actors.replicated import ReplicatedActor
from viewstamp.client import Client, ClientOptions
from viewstamp.consensus.membership import Membership
from viewstamp.errors import (
    NoQuorumError,
    NotLeaderError,
    PositionMismatchError,
    TrimmedError,
    UnavailableError,
    UnknownActorError,
    UnknownTopicError,
    ViewstampError,
    WrongClusterError,
)
from viewstamp.host.interfaces import Connection, Listener, Network
from viewstamp.host.network import RealNetwork
from viewstamp.ids import GroupId, NodeId, Position, Sequence, SessionId
from viewstamp.node.actor_owners import SpreadActorsQuery
from viewstamp.node.changes import parse_change
from viewstamp.node.placement_queries import GroupsQuery, SpreadTopicQuery, SpreadTopicsQuery
from viewstamp.node.state_machine import (
    Accepted,
    ActorChangesQuery,
    ActorQuery,
    ActorsQuery,
    Answered,
    AuditQuery,
    CommandResults,
    InterfaceQuery,
    Placement,
    Result,
    SinkQuery,
    SinksQuery,
    TokensQuery,
    TopicQuery,
    TopicsQuery,
)
from viewstamp.sim.loop import SimulatedLoop
from viewstamp.sim.network import SimulatedNetwork
from viewstamp.streams import Streams
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.commands import decode_command
from viewstamp.wire.frame import PROTOCOL_VERSION, Frame, FrameDecoder, FrameKind, encode_frame
from viewstamp.wire.identity_proof import identity_proof
from viewstamp.wire.placing import encode_hosted
from viewstamp.wire.spreading import SLOTS

CLUSTER = "c1"
FOR_THE_LEADER = (
    FrameKind.APPEND,
    FrameKind.APPEND_AT,
    FrameKind.CALL,
    FrameKind.OPEN_SESSION,
    FrameKind.OUTCOME,
    FrameKind.CREATE_TOPIC,
    FrameKind.CONFIGURE_TOPIC,
    FrameKind.TRIM_TOPIC,
    FrameKind.PLACE_GROUP,
    FrameKind.CANCEL_GROUP,
    FrameKind.HOST_GROUP,
    FrameKind.UNHOST_GROUP,
    FrameKind.REMOVE_GROUP,
    FrameKind.SPREAD_TOPIC,
    FrameKind.CONFIGURE_ARCHIVE,
    FrameKind.CONFIGURE_SCHEMA,
    FrameKind.CONFIGURE_SPREAD_SCHEMA,
    FrameKind.CONFIGURE_SPREAD_ARCHIVE,
    FrameKind.SPREAD_ACTOR,
    FrameKind.CONFIGURE_SPREAD,
    FrameKind.TRIM_SPREAD,
    FrameKind.ADD_STREAM,
    FrameKind.GONE_STREAM,
    FrameKind.SEAL_STREAM,
    FrameKind.LOSE_STREAM,
    FrameKind.ARCHIVE_TOPIC,
    FrameKind.CHECK_RUN,
    FrameKind.FIND_ORPHANS,
    FrameKind.CREATE_TOKEN,
    FrameKind.ROTATE_TOKEN,
    FrameKind.REVOKE_TOKEN,
    FrameKind.STAGE,
    FrameKind.BEGIN_ATTEMPT,
    FrameKind.SEAL_ATTEMPT,
    FrameKind.ABORT_ATTEMPTS,
    FrameKind.COMMIT,
    FrameKind.FORGET_SINK,
    FrameKind.CHANGE_MEMBERS,
    FrameKind.TRANSFER_LEADERSHIP,
)
COMMANDS = {
    FrameKind.CREATE_TOPIC: Kind.CREATE_TOPIC,
    FrameKind.CONFIGURE_TOPIC: Kind.CONFIGURE_TOPIC,
    FrameKind.TRIM_TOPIC: Kind.TRIM_TOPIC,
    FrameKind.BEGIN_ATTEMPT: Kind.BEGIN_ATTEMPT,
    FrameKind.SEAL_ATTEMPT: Kind.SEAL_ATTEMPT,
    FrameKind.ABORT_ATTEMPTS: Kind.ABORT_ATTEMPTS,
    FrameKind.COMMIT: Kind.COMMIT,
    FrameKind.FORGET_SINK: Kind.FORGET_SINK,
    FrameKind.PLACE_GROUP: Kind.PLACE_GROUP,
    FrameKind.CANCEL_GROUP: Kind.CANCEL_GROUP,
    FrameKind.HOST_GROUP: Kind.HOST_GROUP,
    FrameKind.UNHOST_GROUP: Kind.UNHOST_GROUP,
    FrameKind.REMOVE_GROUP: Kind.REMOVE_GROUP,
    FrameKind.SPREAD_TOPIC: Kind.SPREAD_TOPIC,
    FrameKind.CONFIGURE_ARCHIVE: Kind.CONFIGURE_ARCHIVE,
    FrameKind.CONFIGURE_SCHEMA: Kind.CONFIGURE_SCHEMA,
    FrameKind.CONFIGURE_SPREAD_SCHEMA: Kind.CONFIGURE_SPREAD_SCHEMA,
    FrameKind.CONFIGURE_SPREAD_ARCHIVE: Kind.CONFIGURE_SPREAD_ARCHIVE,
    FrameKind.SPREAD_ACTOR: Kind.SPREAD_ACTOR,
    FrameKind.CONFIGURE_SPREAD: Kind.CONFIGURE_SPREAD,
    FrameKind.TRIM_SPREAD: Kind.TRIM_SPREAD,
    FrameKind.ADD_STREAM: Kind.ADD_STREAM,
    FrameKind.GONE_STREAM: Kind.GONE_STREAM,
    FrameKind.SEAL_STREAM: Kind.CLOSE_STREAM,
    FrameKind.LOSE_STREAM: Kind.LOSE_STREAM,
    FrameKind.CREATE_TOKEN: Kind.CREATE_TOKEN,
    FrameKind.ROTATE_TOKEN: Kind.ROTATE_TOKEN,
    FrameKind.REVOKE_TOKEN: Kind.REVOKE_TOKEN,
}
"""Requests that change the state by one map, with the kinds of their batches."""


BATCHES = {
    FrameKind.APPEND: Kind.RECORDS,
    FrameKind.APPEND_AT: Kind.RECORDS,
    FrameKind.CALL: Kind.COMMANDS,
    FrameKind.STAGE: Kind.STAGED,
}


@dataclass
class Refuse:
    """Answer with an error; the batch is not in the log."""

    error: ViewstampError


class Act:
    """The reaction of a node to an APPEND, a CALL or a STAGE."""

    OK = "apply and answer"
    LOSE = "lose the connection before anything is applied"
    APPLY_AND_LOSE = "apply, and lose the connection before answering"
    HOLD = "keep it without applying it, until it is released"
    APPLY_AND_HOLD = "apply it, and keep the answer until it is released"


@dataclass
class Arrival:
    """An APPEND, a CALL or a STAGE, as it arrived."""

    node: str
    session: int
    sequence: int
    values: list[bytes]


@dataclass
class Node:
    """One member, listening."""

    cluster: Cluster
    name: str
    listener: Listener | None = None
    address: str = ""
    incarnation: str | None = ""
    """The incarnation with which it answers a challenge, as a member does once it is up; None = it replays its log."""
    connections: list[Peer] = field(default_factory=list)
    is_silent: bool = False
    """It receives everything and answers nothing."""
    snapshots: list[dict[str, object]] = field(default_factory=list)
    refusal: ViewstampError | None = None
    """The answer to every request, as from a node that is replaying its log."""
    lags: bool = False
    """It has not applied the records of spread topics, and knows none if its state is asked."""
    trims_changes: bool = False
    """It keeps no changes for watchers, like a restarted node."""

    def accept(self, connection: Connection) -> Peer:
        peer = Peer(self, connection)
        self.connections.append(peer)
        return peer

    def lose_connections(self) -> None:
        for peer in self.connections:
            peer.connection.abort()
        self.connections = []

    async def kill(self) -> None:
        assert self.listener is not None
        await self.listener.close()
        self.lose_connections()


class Cluster:
    """Members that share one log; ``leader`` is the one that accepts appends."""

    def __init__(
        self,
        network: Callable[[str], Network] | None = None,
        *,
        actors: Mapping[str, type[ReplicatedActor]] | None = None,
        **limits: int,
    ) -> None:
        self.network = network if network is not None else network_of_the_loop()
        """Returns the network as a node or the clients see it."""
        self.id = CLUSTER
        self.log = Log(Streams(actors, **limits))
        self.membership = Membership({})
        self.nodes: list[Node] = []
        self.leader: Node | None = None
        self.arrived: list[Arrival] = []
        self.requests: list[tuple[str, int]] = []
        """Every request: the node's name and the kind of the frame."""
        self.script: deque[str | Refuse] = deque()
        """Reactions to the next APPENDs, CALLs and STAGEs; empty = ``Act.OK``."""
        self.next_position = 1
        """Of each spread topic."""
        self.losses: deque[int] = deque()
        """Kinds of requests: the answer to the next one of each kind is lost after it was applied."""
        self.archiving: deque[dict[str, object] | ViewstampError] = deque()
        """The answers to the next ARCHIVE_TOPICs; empty = all is archived."""
        self.refuse_outcomes: deque[ViewstampError] = deque()
        self.refuse_changes: ViewstampError | None = None
        """The answer to a membership change."""
        self.held: deque[Callable[[], None]] = deque()
        self.limits = {"record_bytes_max": 1024 * 1024, "batch_bytes_max": 8 * 1024 * 1024}
        self.durability: str | None = None
        self.told_members: dict[str, str] | None = None
        """The members that every WELCOME and STATUS names; None = a WELCOME names none."""
        self.forgets_results = False
        """Answer CALL and OUTCOME as if the results were no longer kept."""
        self.unknown: set[str] = set()
        """Methods that the nodes' code lacks, although they are described."""
        self.garbles_results = 0
        """Number of the next answers to CALL that have one result too many."""
        self.bodies: list[tuple[int, dict[str, Any]]] = []
        """Kind and body of every request."""
        self.ignores_expected_positions = False
        self.asked: list[Callable[[], bool]] = []
        """Waiting watchers: called after each change; they return whether they could be answered."""
        self.hints = True
        self.checks_hello = True
        self.garbage = 0
        """Number of the next answers that are invalid."""
        self.default = Act.OK
        self.poison: bytes | None = None
        """A record that makes a node close the connection, as after a malformed frame."""
        self.clients: list[Client] = []
        self.groups: list[int] = []
        """The group of each HELLO. The nodes have one log, which they take for that of each group."""
        self.hosts: dict[int, set[str]] = {}
        """The nodes that host a group; all, if a group is not in it."""
        self.read_chunk = 1024 * 1024
        """READ answers hold at most this many bytes, but at least one batch."""

    async def start(self, nodes: int) -> None:
        for n in range(nodes):
            node = Node(self, f"n{n + 1}")
            node.listener = await self.network(node.name).listen("127.0.0.1:0", node.accept)
            node.address = node.listener.address
            self.nodes.append(node)
        self.leader = self.nodes[0]
        self.membership = Membership({NodeId(node.name): node.address for node in self.nodes})

    def client(self, *nodes: int, cluster_id: str = "", seed: int = 1, **options: Any) -> Client:
        """Make a client with the addresses of the given nodes, or of all of them."""
        known = [self.nodes[n] for n in nodes] if nodes else self.nodes
        # Otherwise more batches would be in flight on a machine that answers slowly.
        options.setdefault("batches_in_flight_far", options.get("batches_in_flight", ClientOptions().batches_in_flight))
        client = Client(
            [node.address for node in known],
            network=self.network("client"),
            entropy=random.Random(seed),
            cluster_id=cluster_id,
            options=ClientOptions(**options),
        )
        self.clients.append(client)
        return client

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        for node in self.nodes:
            await node.kill()

    def release(self) -> None:
        """Release everything that is held, in order."""
        while self.held:
            self.held.popleft()()

    def values(self, topic: int = 1) -> list[bytes]:
        """Return the values of the topic, in order of position."""
        return [value for batch in self.batches(topic) for value in batch.values()]

    def commands(self) -> list[tuple[str, list[Any]]]:
        """Return the applied commands in order: method and arguments."""
        batches = [batch for batch in self.log.applied if batch.kind is Kind.COMMANDS]
        commands = [decode_command(value) for batch in batches for value in batch.values()]
        return [(command.method, command.arguments) for command in commands]

    def batches(self, topic: int) -> list[Batch]:
        return [b for b in self.log.applied if b.kind is Kind.RECORDS and b.topic == topic]

    def propose(self, batch: Batch) -> Result:
        """Admit a batch and apply it at once. Raises the errors of the state machine."""
        admission = self.log.propose(batch)
        if isinstance(admission, Answered):
            return admission.result
        assert isinstance(admission, Accepted)
        result = self.log.apply()
        self.asked = [is_answered for is_answered in self.asked if not is_answered()]
        return result

    def establish(self, group: GroupId) -> None:
        """Record a disk for each founder of a group."""
        for number, node in enumerate(self.nodes):
            self.propose(encode_hosted(group, NodeId(node.name), f"{number:016x}"))


def network_of_the_loop() -> Callable[[str], Network]:
    """Return the views of a new simulated network on a simulated loop, and of the real one on another loop."""
    loop = asyncio.get_running_loop()
    return cache(SimulatedNetwork(loop).view) if isinstance(loop, SimulatedLoop) else lambda node: RealNetwork()


class Peer:
    """A node's end of one connection."""

    def __init__(self, node: Node, connection: Connection) -> None:
        self.node = node
        self.cluster = node.cluster
        self.connection = connection
        self.decoder = FrameDecoder()

    def on_closed(self, error: BaseException | None) -> None:
        if self in self.node.connections:
            self.node.connections.remove(self)

    def on_bytes(self, data: bytes) -> None:
        if self.node.is_silent:
            return
        for frame in self.decoder.feed(data):
            self.on_frame(frame)

    def on_frame(self, frame: Frame) -> None:
        body = frame.body
        if frame.kind == FrameKind.HELLO:
            self.greet(body)
            return
        self.cluster.requests.append((self.node.name, frame.kind))
        self.cluster.bodies.append((frame.kind, body))
        try:
            self.on_request(frame)
        except ViewstampError as error:
            self.error(body["id"], error)

    def greet(self, body: dict[str, Any]) -> None:
        group = body.get("group", 0)
        self.cluster.groups.append(group)
        if self.node.name not in self.cluster.hosts.get(group, {self.node.name}):
            error = UnavailableError(f"{self.node.name} does not host group {group}")
            self.connection.send(encode_frame(FrameKind.REFUSED, describe(error)))
            self.connection.close()
            return
        if body["cluster"] not in ("", self.cluster.id) and self.cluster.checks_hello:
            error = WrongClusterError(f"this is {self.cluster.id}, not {body['cluster']}")
            self.connection.send(encode_frame(FrameKind.REFUSED, describe(error)))
            self.connection.close()
            return
        welcome = {
            "cluster": self.cluster.id,
            "node": self.node.name,
            "version": PROTOCOL_VERSION,
            "limits": self.cluster.limits,
        }
        if self.cluster.durability is not None:
            welcome["durability"] = self.cluster.durability
        if "challenge" in body:
            incarnation = self.node.incarnation
            welcome["proof"] = None if incarnation is None else identity_proof(incarnation, body["challenge"])
        if self.cluster.told_members is not None:
            welcome |= {"members": self.cluster.told_members, "generation": 1}
        self.connection.send(encode_frame(FrameKind.WELCOME, welcome))

    def on_request(self, frame: Frame) -> None:
        cluster = self.cluster
        body = frame.body
        request = body["id"]
        if self.node.refusal is not None:
            raise self.node.refusal
        if frame.kind in FOR_THE_LEADER and cluster.leader is not self.node:
            leader = cluster.leader if cluster.hints else None
            raise NotLeaderError(
                f"{self.node.name} does not lead",
                leader=None if leader is None else NodeId(leader.name),
                address=None if leader is None else leader.address,
            )
        if frame.kind in BATCHES:
            batch = Batch.decode(bytearray(frame.payload))
            assert batch.kind is BATCHES[frame.kind]
            is_expected = frame.kind == FrameKind.APPEND_AT and not cluster.ignores_expected_positions
            batch.first_position = Position(body["position"] if is_expected else 0)
            self.on_append(request, batch)
        elif frame.kind == FrameKind.OPEN_SESSION:
            self.ok(request, cluster.propose(build_batch([b""], kind=Kind.OPEN_SESSION)))
        elif frame.kind == FrameKind.OUTCOME:
            if cluster.refuse_outcomes:
                raise cluster.refuse_outcomes.popleft()
            session, sequence = SessionId(body["session"]), Sequence(body["sequence"])
            fence = build_batch([b""], kind=Kind.FENCE, session=session, sequence=sequence)
            self.ok(request, answered(cluster.propose(fence)))
        elif frame.kind in COMMANDS:
            fields = {name: value for name, value in body.items() if name != "id"}
            if frame.kind == FrameKind.BEGIN_ATTEMPT:
                fields["keep_bytes"] = 0
            if frame.kind == FrameKind.PLACE_GROUP:
                addresses = {node.name: node.address for node in cluster.nodes}
                fields["members"] = {name: addresses[name] for name in fields.pop("founders")} or addresses
            if frame.kind == FrameKind.HOST_GROUP:
                fields["address"] = "n4.example:7001"
            if frame.kind == FrameKind.SPREAD_TOPIC:
                groups, streams = fields["groups"], fields.pop("streams")
                fields |= {"groups": [groups[n % len(groups)] for n in range(streams)], "slots": SLOTS}
                fields["are_named"] = True
            if frame.kind in (FrameKind.ADD_STREAM, FrameKind.SEAL_STREAM, FrameKind.LOSE_STREAM):
                fields["is_named"] = True
            if frame.kind == FrameKind.SPREAD_ACTOR:
                fields |= {"slots": SLOTS, "are_named": True}
            result = cluster.propose(build_batch([msgpack.packb(fields)], kind=COMMANDS[frame.kind]))
            if cluster.losses and cluster.losses[0] == frame.kind:
                cluster.losses.popleft()
                self.connection.abort()
            else:
                self.ok(request, result)
        elif frame.kind == FrameKind.LIST_GROUPS:
            groups = [group.describe() for group in cluster.log.machine.query(GroupsQuery())]
            self.ok(request, {"groups": groups, "applied_index": cluster.log.next_index - 1})
        elif frame.kind == FrameKind.DESCRIBE_SPREAD:
            if self.node.lags and body["stale"]:
                raise UnknownTopicError(f"no topic with streams is named {body['name']!r}")
            topic = cluster.log.machine.query(SpreadTopicQuery(body["name"])).describe()
            order = {"next_position": cluster.next_position, "ordered_ends": [1] * len(topic["groups"])}
            self.ok(request, {"topic": topic, "age": 0.0, "applied_index": cluster.log.next_index - 1, **order})
        elif frame.kind == FrameKind.LIST_SPREADS:
            topics = [each.describe() for each in cluster.log.machine.query(SpreadTopicsQuery())]
            self.ok(request, {"topics": topics, "age": 0.0})
        elif frame.kind == FrameKind.LIST_SPREAD_ACTORS:
            actors = [each.describe() for each in cluster.log.machine.query(SpreadActorsQuery())]
            self.ok(request, {"actors": actors, "age": 0.0})
        elif frame.kind == FrameKind.ARCHIVE_TOPIC:
            answer = cluster.archiving.popleft() if cluster.archiving else {"archived_end": body["end"]}
            if isinstance(answer, ViewstampError):
                raise answer
            # A leader that goes on holds its answer.
            wait = 1.0 if answer.get("is_running") else 0.0
            asyncio.get_running_loop().call_later(wait, self.ok, request, {"is_running": False, **answer})
        elif frame.kind == FrameKind.CHECK_RUN:
            self.ok(request, {"is_running": False, "damage": ""})
        elif frame.kind == FrameKind.FIND_ORPHANS:
            self.ok(request, {"is_running": False, "orphans": [[9, 100]]})
        elif frame.kind == FrameKind.LIST_RUNS:
            self.ok(request, {"runs": []})
        elif frame.kind == FrameKind.LIST_TOKENS:
            self.ok(request, {"tokens": cluster.log.machine.query(TokensQuery()), "is_on": False})
        elif frame.kind == FrameKind.LIST_AUDIT:
            self.ok(request, {"entries": cluster.log.machine.query(AuditQuery(body["since"]))})
        elif frame.kind == FrameKind.LIST_SINKS:
            self.ok(request, {"sinks": cluster.log.machine.query(SinksQuery())})
        elif frame.kind == FrameKind.DESCRIBE_SINK:
            self.ok(request, {"sink": cluster.log.machine.query(SinkQuery(name=body["name"]))})
        elif frame.kind == FrameKind.DESCRIBE_TOPIC:
            topic = cluster.log.machine.query(TopicQuery(name=body["name"]))
            self.ok(request, {"topic": topic, "applied_index": cluster.log.next_index - 1, "age": self.age(body)})
        elif frame.kind == FrameKind.LIST_TOPICS:
            self.ok(request, {"topics": cluster.log.machine.query(TopicsQuery()), "age": self.age(body)})
        elif frame.kind == FrameKind.STATUS:
            members = cluster.told_members or {node.name: node.address for node in cluster.nodes}
            status: dict[str, object] = {"id": self.node.name, "address": self.node.address, "members": members}
            status["membership"] = cluster.membership.shown()
            if cluster.leader is not None:
                status["leader"] = cluster.leader.name
            self.ok(request, {"status": status})
        elif frame.kind == FrameKind.READ:
            self.on_read(request, body)
        elif frame.kind == FrameKind.QUERY:
            fields = {name: body[name] for name in ("actor", "key", "method", "arguments")}
            result = cluster.log.machine.query(ActorQuery(**fields))
            self.ok(request, {"result": result, "applied_index": cluster.log.next_index - 1, "age": self.age(body)})
        elif frame.kind == FrameKind.WATCH:
            self.on_watch(request, body)
        elif frame.kind == FrameKind.LIST_ACTORS:
            self.ok(request, {"actors": cluster.log.machine.query(ActorsQuery())})
        elif frame.kind == FrameKind.DESCRIBE_ACTOR:
            self.ok(request, {"actor": cluster.log.machine.query(InterfaceQuery(name=body["name"]))})
        elif frame.kind == FrameKind.CREATE_SNAPSHOT:
            self.node.snapshots.insert(0, {"index": cluster.log.next_index, "term": 1, "bytes": 10, "created": 7.0})
            self.ok(request, {"snapshot": {**self.node.snapshots[0], "seconds": 0.5}})
        elif frame.kind == FrameKind.LIST_SNAPSHOTS:
            self.ok(request, {"snapshots": self.node.snapshots})
        elif frame.kind == FrameKind.CHANGE_MEMBERS:
            if cluster.refuse_changes is not None:
                raise cluster.refuse_changes
            change = parse_change(*(body[name] for name in ("action", "node", "address", "replaces")))
            changed = cluster.membership.changed(change)
            cluster.membership = changed.left() if changed.is_joint else changed
            if cluster.losses and cluster.losses[0] == frame.kind:
                cluster.losses.popleft()
                self.connection.abort()
            else:
                self.ok(request, {"membership": cluster.membership.shown()})
        elif frame.kind == FrameKind.TRANSFER_LEADERSHIP:
            cluster.leader = next(node for node in cluster.nodes if node.name == (body["node"] or "n2"))
            self.ok(request, {"leader": cluster.leader.name})

    def age(self, body: dict[str, Any]) -> float:
        """Return the age of an answer: 1.5 s if the caller allows that much. The node n2 never has an age."""
        if not body["stale"]:
            return 0
        bound = body.get("max_staleness")
        if self.node.name == "n2":
            if bound is not None:
                raise NoQuorumError("n2 has not known since its start")
            return math.inf
        return 1.5 if bound is None or bound >= 1.5 else 0

    def on_append(self, request: int, batch: Batch) -> None:
        cluster = self.cluster
        cluster.arrived.append(Arrival(self.node.name, batch.session, batch.sequence, batch.values()))
        if batch.kind is Kind.COMMANDS:
            unknown = {decode_command(value).method for value in batch.values()} & cluster.unknown
            if unknown:
                raise UnknownActorError(f"no {unknown}")
        if cluster.poison in batch.values():
            self.connection.abort()
            return
        act = cluster.script.popleft() if cluster.script else cluster.default
        if isinstance(act, Refuse):
            raise act.error
        if act == Act.LOSE:
            self.connection.abort()
        elif act == Act.HOLD:
            cluster.held.append(lambda: self.apply(request, batch))
        elif act == Act.APPLY_AND_LOSE:
            with contextlib.suppress(PositionMismatchError):
                cluster.propose(batch)
            self.connection.abort()
        elif act == Act.APPLY_AND_HOLD:
            result = cluster.propose(batch)
            cluster.held.append(lambda: self.ok(request, answered(result)))
        else:
            self.apply(request, batch)

    def apply(self, request: int, batch: Batch) -> None:
        try:
            self.ok(request, answered(self.cluster.propose(batch)))
        except ViewstampError as error:
            self.error(request, error)

    def on_read(self, request: int, body: dict[str, Any]) -> None:
        topics = self.cluster.log.machine.query(TopicsQuery())
        assert isinstance(topics, list)
        if body["topic"] > len(topics):
            raise UnknownTopicError("no such topic")
        found: list[Batch] = []
        size = 0
        for batch in self.cluster.batches(body["topic"]):
            if batch.first_position + batch.count <= body["position"]:
                continue
            if found and size + batch.size > min(body["bytes_max"], self.cluster.read_chunk):
                break
            found.append(batch)
            size += batch.size
        answer = {
            "id": request,
            "last_position": topics[body["topic"] - 1]["last_position"],
            "applied_index": self.cluster.log.next_index - 1,
        }
        self.connection.send(encode_frame(FrameKind.OK, answer, [batch.buffer for batch in found]))

    def on_watch(self, request: int, body: dict[str, Any]) -> None:
        if self.node.trims_changes and body["index"]:
            raise TrimmedError("kept from 1000 on", first=1000)

        def look(*, is_last: bool = False) -> bool:
            wanted = ActorChangesQuery(body["actor"], body["key"], body["index"])
            changes, index = self.cluster.log.machine.query(wanted)
            if changes or is_last or not body["wait"]:
                self.ok(request, {"changes": changes, "index": index})
                return True
            return False

        if not look():
            self.cluster.asked.append(look)
            asyncio.get_running_loop().call_later(body["wait"], self.give_up, look)

    def give_up(self, look: Callable[..., bool]) -> None:
        if look in self.cluster.asked:
            self.cluster.asked.remove(look)
            look(is_last=True)

    def ok(self, request: int, fields: object) -> None:
        assert isinstance(fields, dict)
        if fields.get("results") is not None and self.cluster.forgets_results:
            fields["results"] = None
        if fields.get("results") is not None and self.cluster.garbles_results:
            self.cluster.garbles_results -= 1
            fields["results"] = [*fields["results"], b""]
        if self.cluster.garbage:
            self.cluster.garbage -= 1
            fields = dict.fromkeys(fields, "garbage")
        self.connection.send(encode_frame(FrameKind.OK, {"id": request, **fields}))

    def error(self, request: int, error: ViewstampError) -> None:
        self.connection.send(encode_frame(FrameKind.ERROR, {"id": request, **describe(error)}))


def describe(error: ViewstampError) -> dict[str, object]:
    return {
        "error": type(error).__name__,
        "message": error.message,
        "remedy": error.remedy,
        "leader": getattr(error, "leader", None),
        "address": getattr(error, "address", None),
        "first": getattr(error, "first", None),
        "actual": getattr(error, "actual", None),
    }


def answered(result: Result) -> dict[str, object]:
    """Return the body of the OK to a batch or a fence."""
    if isinstance(result, CommandResults):
        return {**answered(result.receipt), "results": result.results}
    if not isinstance(result, Placement):
        return {"receipt": None}
    return {
        "receipt": [result.first_position, result.count, result.term, result.first_index, result.log_time],
    }
