"""Leases in the simulator: reads of a leader that was replaced without its notice, judged for linearizability."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from tests.mutants.catalogue import CATALOGUE
from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.consensus.state import Core
from viewstamp.errors import UnavailableError
from viewstamp.node.changes import Transfer
from viewstamp.sim.checkers.linearizability import Answer, Log, judge
from viewstamp.sim.cluster import Member
from viewstamp.sim.history import Append, ReadEnd, Recorder
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.world import World


class Scene:
    """Three members with leases. One client knows the leader, the other only the other two members."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, Swarm(nodes=3, faults={}, leases=True))
        self.history = Recorder(self.world.loop.time)
        for member in self.world.members:
            self.world.bring_up(member)
        assert self.world.loop.run_until(lambda: self.world.has_settled, seconds=10)
        leader = self.world.leader
        assert leader is not None
        self.old: Member = leader
        self.others = [member for member in self.world.members if member is not leader]
        self._appended = 0
        self.is_over = False
        self._processes = {name: self.world.loop.process(name) for name in ("near", "far")}
        self.near = self._client("near", [leader.address])
        self.far = self._client("far", [member.address for member in self.others])
        self._do("near", self._create)
        self._do("near", lambda: self._append(self.near))

    def _client(self, name: str, addresses: list[str]) -> Client:
        network, entropy = self.world.network.view(name), self.world.loop.entropy(name)
        options = ClientOptions(timeout=20.0)
        return Client(addresses, network=network, entropy=entropy, options=options)

    def _do(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        done = self.begin(name, work)
        assert self.world.loop.run_until(lambda: bool(done), seconds=20)

    def begin(self, name: str, work: Callable[[], Awaitable[None]]) -> list[None]:
        """Begin to work in a process of this name; the list is not empty when it is done."""
        done: list[None] = []

        async def run() -> None:
            await work()
            done.append(None)

        self._processes[name].spawn(run())
        return done

    async def _create(self) -> None:
        await self.near.create_topic("orders")

    async def _append(self, client: Client) -> None:
        self._appended += 1
        value = str(self._appended)
        operation = self.history.call("orders", Append((value,)))
        self.history.answered(operation, (await client.append("orders", value.encode())).position)

    async def read_on(self) -> None:
        """Read the end of the topic again and again, beginning at the old leader."""
        while not self.is_over:
            operation = self.history.call("orders", ReadEnd())
            with contextlib.suppress(UnavailableError):
                self.history.answered(operation, (await self.near.describe_topic("orders", timeout=0.5)).last_position)
            await asyncio.sleep(0.003)

    def cut(self, member: Member) -> None:
        """Cut the old leader off from another member."""
        self.world.network.isolate(self.old.name, [member.name])

    def append_elsewhere(self) -> None:
        """Append through the other members, which elect a leader, and wait for the answer."""
        self._do("far", lambda: self._append(self.far))

    def judged(self) -> Answer:
        """Let reads go on for a moment, and judge the history."""
        self.world.loop.run_for(0.3)
        self.is_over = True
        self.world.loop.run_for(1.0)
        answer = judge(self.history.operations, Log()).answer
        self.world.close()
        return answer


def core_of(member: Member) -> Core:
    assert member.node is not None
    assert member.node.replica is not None
    return member.node.replica.raft.core


def stopped(seed: int) -> Answer:
    """The leader is cut off and stopped; it goes on when another one has acknowledged a record."""
    scene = Scene(seed)
    process = scene.old.process
    assert process is not None
    for member in scene.others:
        scene.cut(member)
    process.stall()
    scene.append_elsewhere()
    scene.begin("near", scene.read_on)
    scene.world.loop.run_for(0.01)
    process.resume()
    return scene.judged()


def handed_over(seed: int) -> Answer:
    """The leader asks another member to campaign, and is cut off when the request has arrived."""
    scene = Scene(seed)
    core, cores = core_of(scene.old), [core_of(member) for member in scene.others]
    scene.begin("near", scene.read_on)
    assert scene.old.node is not None
    assert scene.old.node.replica is not None
    scene.old.node.replica.ref.put(Transfer(scene.others[0].id, lambda _: None))
    assert scene.world.loop.run_until(lambda: any(other.term > core.term for other in cores), seconds=5)
    for member in scene.others:
        scene.cut(member)
    scene.append_elsewhere()
    return scene.judged()


def restarted(seed: int) -> Answer:
    """A member waits for votes, and the only other one starts again, without memory, and is cut off from the leader."""
    scene = Scene(seed)
    waiting, promising = scene.others
    scene.cut(waiting)
    scene.world.loop.run_for(1.0)
    scene.begin("near", scene.read_on)
    scene.world.take_down(promising, power=False)
    scene.cut(promising)
    scene.world.bring_up(promising)
    scene.append_elsewhere()
    return scene.judged()


@pytest.mark.parametrize("scene", [stopped, handed_over, restarted], ids=lambda scene: scene.__name__)
def test_a_replaced_leader_answers_no_read_by_its_lease(scene: Callable[[int], Answer]) -> None:
    assert [scene(seed) for seed in range(4)] == [Answer.LINEARIZABLE] * 4


@pytest.mark.parametrize(
    ("mutant", "scene"),
    [
        ("lease-after-its-end", stopped),
        ("lease-after-transfer", handed_over),
        ("promise-and-vote", restarted),
        ("forget-promise", restarted),
    ],
)
def test_the_checker_finds_a_lease_that_is_used_too_long(mutant: str, scene: Callable[[int], Answer]) -> None:
    with CATALOGUE[mutant].plant():
        assert any(scene(seed) is Answer.VIOLATED for seed in range(20))
