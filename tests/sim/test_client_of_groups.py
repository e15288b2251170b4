"""One client that uses several groups of a simulated cluster, while their leaders change."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from tests.sim.leaders import leader_of
from tests.sim.test_groups import CALM, PlacedWorld
from viewstamp.client import groups as client_groups
from viewstamp.client.aio import Client
from viewstamp.client.append import TopicAppend
from viewstamp.client.options import ClientOptions
from viewstamp.client.reader import TopicReader
from viewstamp.client.results import Outcome, Receipt
from viewstamp.client.routing import ExpectedNode
from viewstamp.errors import OutcomeToken, OutcomeUnknownError, UnavailableError, WrongNodeError
from viewstamp.ids import GROUP_0, GroupId, Sequence, SessionId, TopicId

Answers = dict[bytes, Receipt | Outcome | None]
"""The answer to each append: its receipt, the outcome that was asked for, or None = nothing was written."""


class Caller:
    """A client in a process of its own, which appends to a topic of each group."""

    def __init__(self, world: PlacedWorld, addresses: list[str] | None = None, **options: Any) -> None:
        self.world = world
        self.process = world.loop.process("caller")
        self.client = Client(
            addresses or world.addresses,
            network=world.network.view("caller"),
            entropy=world.loop.entropy("caller"),
            options=ClientOptions(**options),
        )
        self.is_over = False
        self.numbers = itertools.count(1)

    def run(self, work: Coroutine[Any, Any, Any], seconds: float = 60.0) -> Any:
        """Run ``work`` to its end; return its result."""
        task = self.process.spawn(work)
        assert self.world.loop.run_until(task.done, seconds=seconds), self.world.describe()
        return task.result()

    def topic(self, group: GroupId) -> str:
        """Return the topic of a group, which its writer created first."""
        return self.world.writers.acknowledged[group][0]

    async def append(self, group: GroupId, value: bytes, timeout: float | None = None) -> Receipt:
        with self.client._groups.call(group) as parts:
            append = TopicAppend(parts.sender, asyncio.get_running_loop().create_future(), self.topic(group), [value])
            parts.appends.begin(append, append.topic, timeout)
            receipt: Receipt = await parts.appends.end(append)
            return receipt

    async def append_all(self, group: GroupId, answers: Answers) -> None:
        """Append one record after the other until ``is_over``, and note the answers."""
        while not self.is_over:
            value = b"%d of %d" % (next(self.numbers), group)
            try:
                answers[value] = await self.append(group, value)
            except UnavailableError:
                answers[value] = None
                await asyncio.sleep(0.1)
            except OutcomeUnknownError as error:
                answers[value] = await self.outcome(error.token)
            await asyncio.sleep(0.005)

    async def outcome(self, token: OutcomeToken | None) -> Outcome:
        """Ask until there is an answer."""
        assert token is not None
        assert token.group != GROUP_0
        while True:
            try:
                return await self.client.outcome(token)
            except OutcomeUnknownError:
                await asyncio.sleep(0.1)

    async def read(self, group: GroupId) -> list[bytes]:
        """Return the records of a group's topic, linearizably."""
        client = self.client
        with client._groups.call(group) as parts:
            parts.router.start()
            reader = TopicReader(
                *(client._runtime, parts.router, client._options, self.topic(group), 1),
                end=None,
                follow=False,
                node=None,
            )
            return [record.value async for record in reader.records()]

    def check(self, group: GroupId, answers: Answers) -> None:
        """Compare the records of a group with the answers to its appends."""
        written = self.run(self.read(group))
        assert len(written) == len(set(written)), f"a record of group {group} was written twice"
        for value, answer in answers.items():
            if isinstance(answer, Receipt):
                assert written[answer.position - 1] == value
            elif answer is None:
                assert value not in written
            else:
                assert answer.applied == (value in written)
        assert {value for value in written if value not in answers} == set()


@pytest.fixture
def calm() -> Iterator[PlacedWorld]:
    world = PlacedWorld(1, CALM, number=0)
    yield world
    world.close()


def place(world: PlacedWorld, stream: str, *nodes: str) -> GroupId:
    """Place a group, and wait until it has a topic."""
    group = world.place(stream, *nodes)
    assert world.loop.run_until(lambda: bool(world.writers.acknowledged[group]), seconds=60.0)
    return group


def change_leaders(world: PlacedWorld, groups: list[GroupId]) -> int:
    """Kill or isolate the leader of one group after the other, six times; return how often there was one."""
    changes = 0
    for turn in range(6):
        world.loop.run_until(lambda: False, seconds=0.4)
        victim = leader_of(world, groups[turn % 3])
        if victim is not None:
            changes += 1
            if turn % 2:
                world.take_down(victim, power=True)
            else:
                world.network.isolate(victim.name, [each.name for each in world.members] + ["caller"])
            world.loop.run_until(lambda: False, seconds=0.5)
            world.network.heal()
            world.bring_up(victim)
    return changes


def test_one_client_writes_to_each_of_three_groups_exactly_once_while_leaders_change() -> None:
    """The client times out often, so that outcomes are unknown and tokens are asked for."""
    world = PlacedWorld(4, CALM, number=0)
    try:
        groups = [place(world, f"s{number}") for number in range(3)]
        caller = Caller(world, timeout=0.15)
        answers: dict[GroupId, Answers] = {group: {} for group in groups}
        tasks = [caller.process.spawn(caller.append_all(each, answers[each])) for each in groups for _ in range(2)]
        changes = change_leaders(world, groups)
        caller.is_over = True
        assert world.loop.run_until(lambda: all(task.done() for task in tasks), seconds=60.0)
        world.finish(names_min=2)
        told = [answer for each in answers.values() for answer in each.values()]
        assert changes > 2
        assert any(isinstance(each, Outcome) for each in told), "no outcome was unknown"
        for group in groups:
            assert any(isinstance(each, Receipt) for each in answers[group].values())
            caller.check(group, answers[group])
        caller.client._close()
    finally:
        world.close()


def test_a_group_without_a_majority_delays_no_other(calm: PlacedWorld) -> None:
    """Its appends use up their share of the buffer, and the others answer meanwhile."""
    stuck, other = place(calm, "s1", "n2", "n3"), place(calm, "s2", "n1", "n2")
    caller = Caller(calm, timeout=20.0, bytes_in_flight_max=30_000)
    caller.run(caller.append(stuck, b"first"))
    calm.take_down(calm.members[2], power=False)
    waiting = [caller.process.spawn(caller.append(stuck, b"%04d" % number + bytes(1000))) for number in range(100)]
    calm.loop.run_until(lambda: False, seconds=2.0)
    began = calm.loop.time()
    for number in range(100):
        assert caller.run(caller.append(other, b"%d" % number), seconds=2.0).position == number + 1
    assert calm.loop.time() - began < 10.0
    with caller.client._groups.call(stuck) as parts:
        assert parts.sender.queue.tickets, "they fill the share of their group"
    assert not any(task.done() for task in waiting)
    assert calm.loop.run_until(lambda: all(task.done() for task in waiting), seconds=60.0)
    assert all(isinstance(task.exception(), UnavailableError | OutcomeUnknownError) for task in waiting)
    caller.client._close()


def test_another_client_asks_the_group_of_a_token(calm: PlacedWorld) -> None:
    """Group 0 has other sessions, so it would say that this one has ended."""
    group = place(calm, "s1", "n2", "n3")
    caller = Caller(calm)
    caller.run(caller.append(group, b"first"))
    for victim in calm.members[1:]:
        if victim is not leader_of(calm, group):
            calm.take_down(victim, power=False)
            break
    with pytest.raises(OutcomeUnknownError) as unknown:
        caller.run(caller.append(group, b"second", 1.0))
    token = unknown.value.token
    assert token is not None
    assert token.group == group
    calm.bring_up(victim)
    outcome = Caller(calm).run(Caller(calm).client.outcome(token))
    assert outcome.answer == ("applied" if b"second" in caller.run(caller.read(group)) else "not applied")
    caller.client._close()


def test_the_parts_for_a_group_end_some_time_after_the_last_call_and_come_back(
    calm: PlacedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = 3.0  # A minute of simulated time takes half a minute.
    monkeypatch.setattr(client_groups, "IDLE_SECONDS", idle)
    group, stuck = place(calm, "s1"), place(calm, "s2", "n3")
    caller = Caller(calm)
    groups = caller.client._groups
    caller.run(caller.append(group, b"first"))
    with groups.call(group) as before:
        session, nodes = before.sender.session.id, connected(before)
    assert nodes
    calm.take_down(calm.members[2], power=False)
    waiting = caller.process.spawn(caller.append(stuck, b"late", 10 * idle))
    calm.loop.run_until(lambda: False, seconds=0.9 * idle)
    caller.run(caller.append(group, b"again"))
    calm.loop.run_until(lambda: False, seconds=0.4 * idle)
    assert list(groups._parts) == [GROUP_0, group, stuck]
    calm.loop.run_until(lambda: False, seconds=0.9 * idle)
    assert list(groups._parts) == [GROUP_0, stuck], "an append waits in the other one"
    assert connected(before) == []
    assert groups.group_0.sender.held_max == ClientOptions().bytes_in_flight_max // 2
    assert caller.run(caller.append(group, b"last")).position == 3
    with groups.call(group) as after:
        assert after is not before
        assert after.sender.session.id > session
    calm.bring_up(calm.members[2])
    assert calm.loop.run_until(waiting.done, seconds=60.0)
    assert waiting.result().position == 1
    caller.client._close()
    assert connected(after) == []


def connected(parts: Any) -> list[str]:
    return [address for address, connection in parts.pool._connections.items() if connection.is_open]


def test_a_client_of_a_group_learns_the_new_address_of_a_member_that_has_moved(calm: PlacedWorld) -> None:
    """The records of the group keep the old address for ever, so WELCOME and errors take it from group 0."""
    group = place(calm, "s1")
    moving = next(each for each in calm.members[1:] if each is not leader_of(calm, group))
    old, new = moving.address, "127.0.0.1:8001"
    caller = Caller(calm, [calm.members[0].address])
    caller.run(caller.append(group, b"first"))
    with caller.client._groups.call(group) as parts:
        assert calm.loop.run_until(lambda: old in parts.pool.addresses.all, seconds=60.0)
        calm.ask(lambda client: client.add_member(moving.id, new))
        calm.take_down(moving, power=False)
        moving.address = new
        calm.bring_up(moving)
        assert calm.loop.run_until(lambda: new in parts.pool.addresses.all, seconds=60.0), "it is told of changes"
    assert calm.loop.run_until(lambda: calm.has_settled, seconds=60.0)
    for each in calm.members:
        if each is not moving:
            calm.take_down(each, power=False)
    other = Caller(calm, [moving.address])
    waiting = other.process.spawn(other.append(group, b"second"))
    for each in calm.members:
        calm.bring_up(each)
    assert calm.loop.run_until(waiting.done, seconds=60.0)
    with other.client._groups.call(group) as parts:
        assert calm.loop.run_until(lambda: len(parts.pool.addresses.all) == 3, seconds=60.0)
        assert old not in parts.pool.addresses.all
    for each in (caller, other):
        each.client._close()


def test_a_client_that_expects_a_directory_checks_it_in_each_group(calm: PlacedWorld) -> None:
    """A node has one directory for all its groups, so it proves the one incarnation that the settings name."""
    group = place(calm, "s1", "n1")
    member = calm.members[0]
    expected = {member.address: ExpectedNode(node="n1", incarnation=member.incarnation)}
    caller = Caller(calm, [member.address], expected=expected, timeout=5.0)
    assert caller.run(caller.append(group, b"first")).position == 1
    wrong = {member.address: ExpectedNode(node="n1", incarnation="f" * 16)}
    stranger = Caller(calm, [member.address], expected=wrong, timeout=5.0)
    with pytest.raises(WrongNodeError, match="from another data directory"):
        stranger.run(stranger.append(group, b"second"))
    assert caller.run(caller.read(group)) == [b"first"]
    for each in (caller, stranger):
        each.client._close()


def test_an_unknown_group_is_named_and_the_outcome_stays_unknown(calm: PlacedWorld) -> None:
    group = place(calm, "s1")
    caller = Caller(calm)
    caller.run(caller.append(group, b"first"))
    with pytest.raises(OutcomeUnknownError, match="does not host group 999"):
        caller.run(caller.client.outcome(token_of(GroupId(999)), timeout=2.0))
    caller.client._close()


def token_of(group: GroupId) -> OutcomeToken:
    return OutcomeToken(session=SessionId(1), sequence=Sequence(1), topic=TopicId(1), offset=0, count=1, group=group)
