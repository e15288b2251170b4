"""Heartbeats of several groups in shared frames: connections that lose everything, failures, older releases."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from viewstamp.consensus.messages import HeartbeatRequest, HeartbeatResponse
from viewstamp.consensus.quiet import beat_ticks
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.state import Leading
from viewstamp.ids import GROUP_0, GroupId, NodeId, name_of
from viewstamp.node.beats import Beat, Beats, decode_beats
from viewstamp.node.group import Group
from viewstamp.node.health.digests import Digests
from viewstamp.node.inbox import FromPeer
from viewstamp.node.replica import Replica
from viewstamp.sim.cluster import Member
from viewstamp.sim.group_writers import GroupWriters
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.world import World
from viewstamp.wire.frame import Frame
from viewstamp.wire.handshake import Welcome

FIRST, SECOND = GroupId(1), GroupId(2)


@contextmanager
def idle() -> Iterator[World]:
    """Yield a world in which groups 1 and 2 are idle, and n3 leads both."""
    world = World(1, Swarm(nodes=3, groups=3, faults={}, seconds=1.0))
    try:
        for member in world.members:
            world.bring_up(member)
        leader = world.members[-1]
        assert world.loop.run_until(
            lambda: world.has_settled and all(leads(leader, each) for each in (FIRST, SECOND)), seconds=60.0
        )
        world.loop.run_until(lambda: False, seconds=1.0)
        yield world
    finally:
        world.close()


@pytest.fixture
def world() -> Iterator[World]:
    with idle() as world:
        yield world


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> list[list[Beat]]:
    """Return a list to which the heartbeats of each received BEATS frame are added."""
    frames: list[list[Beat]] = []

    def decode(frame: Frame) -> list[Beat]:
        frames.append(decode_beats(frame))
        return frames[-1]

    monkeypatch.setattr("viewstamp.node.peer_frames.decode_beats", decode)
    return frames


def replica_of(member: Member, group: GroupId) -> Group:
    hosted = member.group(group)
    assert hosted is not None
    return hosted


def leads(member: Member, group: GroupId) -> bool:
    hosted = member.group(group)
    return hosted is not None and hosted.replica is not None and hosted.replica.is_leading


async def begin_later(beats: Beats, *, seconds: float) -> None:
    """Let a node beat at another time of the period."""
    beats.stop()
    await asyncio.sleep(seconds)
    beats.start()


def mute(world: World, group: GroupId, source: Member, target: Member) -> None:
    """Lose everything that a member sends to another one on its own connection of a group from now on."""
    assert target.node is not None
    assert target.node.server is not None
    for session in target.node.server.connections:
        if session.group is replica_of(target, group) and name_of(session.peer) == source.name:
            world.network.mute(session._connection)


def terms(world: World, group: GroupId) -> list[int]:
    return [hosted.replica.raft.core.term for each in world.members if (hosted := replica_of(each, group)).replica]


def has_new_leader(world: World, group: GroupId) -> bool:
    """Write to a group; return whether another member than n3 leads when the first write is acknowledged."""
    writers = GroupWriters(world)
    writers.write_to(group)
    assert world.loop.run_until(lambda: bool(writers.acknowledged[group]), seconds=60.0), world.describe()
    writers.stop()
    return not leads(world.members[-1], group)


def test_heartbeats_of_other_groups_do_not_keep_a_leader_whose_appends_are_lost(world: World) -> None:
    *others, leader = world.members
    for other in others:
        mute(world, FIRST, leader, other)
    assert has_new_leader(world, FIRST)
    assert leads(leader, SECOND)


def test_a_connection_that_loses_everything_costs_no_idle_group_its_leader(world: World) -> None:
    before = terms(world, FIRST), terms(world, SECOND)
    *others, leader = world.members
    for other in others:
        mute(world, FIRST, leader, other)
        mute(world, FIRST, other, leader)
    world.loop.run_until(lambda: False, seconds=10.0)
    assert (terms(world, FIRST), terms(world, SECOND)) == before


def test_idle_groups_send_their_heartbeats_together(world: World, frames: list[list[Beat]]) -> None:
    before = terms(world, FIRST), terms(world, SECOND)
    world.loop.run_until(lambda: False, seconds=2.0)
    assert frames
    assert all([group for group, _, _ in frame] == [FIRST, SECOND] for frame in frames)
    assert {type(message) for frame in frames for _, _, message in frame} == {HeartbeatRequest, HeartbeatResponse}
    assert (terms(world, FIRST), terms(world, SECOND)) == before


def test_a_group_whose_replica_raises_in_a_beat_leaves_the_others_beating(
    world: World, frames: list[list[Beat]], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, broken = world.members[-1], RuntimeError("broken")
    failed = replica_of(leader, FIRST)
    assert failed.replica is not None
    before = terms(world, SECOND)

    def beat() -> None:
        raise broken

    monkeypatch.setattr(failed.replica.raft, "beat", beat)
    assert world.loop.run_until(failed.failed.done, seconds=60.0)
    assert failed.failed.result() is broken
    frames.clear()
    assert world.loop.run_until(lambda: any(leads(each, FIRST) for each in world.members[:-1]), seconds=60.0)
    assert leads(leader, SECOND)
    assert terms(world, SECOND) == before
    assert not any(group == FIRST and leader.name == message.source for frame in frames for group, _, message in frame)


def test_a_node_of_an_older_release_gets_each_heartbeat_on_the_connection_of_its_group(
    frames: list[list[Beat]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The WELCOMEs of n1 do not say that it reads BEATS."""
    welcome = Welcome.to_map

    def to_map(self: Welcome) -> dict[str, object]:
        return welcome(replace(self, takes_beats=self.takes_beats and self.node != "n1"))

    monkeypatch.setattr(Welcome, "to_map", to_map)
    with idle() as world:
        before = terms(world, FIRST), terms(world, SECOND)
        world.loop.run_until(lambda: False, seconds=2.0)
        assert (terms(world, FIRST), terms(world, SECOND)) == before
        assert {message.target for frame in frames for _, _, message in frame} == {"n2", "n3"}


def test_the_timers_of_idle_replicas_do_not_fire(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next heartbeat comes before, and a leader checks for its quorum with a beat."""
    fired: list[Replica] = []
    on_tick = Replica._on_tick

    def note(self: Replica) -> None:
        fired.append(self)
        on_tick(self)

    monkeypatch.setattr(Replica, "_on_tick", note)
    world.loop.run_until(lambda: False, seconds=2.0)
    replicas = [replica_of(member, group).replica for member in world.members for group in (FIRST, SECOND)]
    assert fired, "those of group 0 fire"
    assert [replica for replica in replicas if replica in fired] == []


def test_an_idle_leader_has_one_turn_for_each_beat(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It steps the responses of all its followers in the turn of the next beat."""
    turns: Counter[Replica] = Counter()
    beats: Counter[Replica] = Counter()
    on_messages, beat = Replica.on_messages, Replica.beat

    def count_turn(self: Replica, messages: list[Any]) -> None:
        turns[self] += 1
        on_messages(self, messages)

    def count_beat(self: Replica) -> None:
        beats[self] += 1
        beat(self)

    monkeypatch.setattr(Replica, "on_messages", count_turn)
    monkeypatch.setattr(Replica, "beat", count_beat)
    world.loop.run_until(lambda: False, seconds=9.0)
    for group in (FIRST, SECOND):
        replica = replica_of(world.members[-1], group).replica
        assert replica is not None
        assert turns[replica] == beats[replica] > 10


def test_nodes_that_lead_groups_of_each_other_beat_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose beat is due within half of one joins that of another node. So none wakes up twice for a beat."""
    old, new = world.members[-1], world.members[0]
    second = replica_of(new, SECOND)
    assert old.process is not None
    old.process.spawn(replica_of(old, SECOND).transfer_leadership("n1"))
    assert world.loop.run_until(lambda: leads(new, SECOND), seconds=5.0)
    assert new.process is not None
    assert new.node is not None
    new.process.spawn(begin_later(new.node.beats, seconds=0.025))
    world.loop.run_until(lambda: False, seconds=1.0)
    at: dict[Replica, list[float]] = defaultdict(list)
    beat = Replica.beat

    def note(self: Replica) -> None:
        at[self].append(world.loop.time())
        beat(self)

    monkeypatch.setattr(Replica, "beat", note)
    world.loop.run_until(lambda: False, seconds=2.0)
    alone, joining, options = replica_of(old, FIRST).replica, second.replica, new.node.options
    assert alone is not None
    assert joining is not None
    first, joined = at[alone], at[joining]
    apart = [min(abs(one - other) for other in joined) for one in first[1:-1]]
    period = (first[-1] - first[0]) / (len(first) - 1)
    assert max(apart) < period / 20
    assert period == pytest.approx(beat_ticks(options.core) * options.tick_seconds, rel=0.1)


def test_all_turns_of_idle_followers_are_short(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: Counter[Replica] = Counter()
    short: Counter[Replica] = Counter()
    on_messages, count = Replica.on_messages, Replica._count

    def count_turn(self: Replica, messages: list[Any]) -> None:
        turns[self] += 1
        on_messages(self, messages)

    def count_short(self: Replica, item: FromPeer) -> None:
        short[self] += 1
        count(self, item)

    monkeypatch.setattr(Replica, "on_messages", count_turn)
    monkeypatch.setattr(Replica, "_count", count_short)
    world.loop.run_until(lambda: False, seconds=2.0)
    for member in world.members[:-1]:
        for group in (FIRST, SECOND):
            replica = replica_of(member, group).replica
            assert replica is not None
            assert turns[replica] == short[replica] > 10


def test_idle_groups_report_their_clocks_every_four_seconds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Group 0 does so every second. Three members send theirs to the two others."""
    sent: Counter[Raft] = Counter()
    report = Digests.report_clock

    def count(digests: Digests, member: NodeId) -> None:
        sent[digests._raft] += member != digests._me
        report(digests, member)

    monkeypatch.setattr(Digests, "report_clock", count)
    world.loop.run_until(lambda: False, seconds=20.0)
    for group, reports in ((GROUP_0, 40), (FIRST, 10), (SECOND, 10)):
        for member in world.members:
            replica = replica_of(member, group).replica
            assert replica is not None
            assert sent[replica.raft] == pytest.approx(reports, abs=2)


def test_a_leader_that_has_just_sent_heartbeats_sends_none_with_the_beat(world: World) -> None:
    replica = replica_of(world.members[-1], FIRST).replica
    assert replica is not None
    raft, leading = replica.raft, replica.raft.core.state
    assert isinstance(leading, Leading)
    raft.tick(raft.core.wall_us)
    raft.beat()
    ready = raft.ready()
    assert ready is not None
    assert len(ready.messages) == 2
    raft.beat()
    assert raft.ready() is None
