"""Actors whose instances are spread over several groups of a simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from tests.mutants.mutants import patched
from tests.sim.leaders import leader_of
from tests.sim.test_client_of_groups import Caller, change_leaders
from tests.sim.test_groups import CALM, PlacedWorld
from viewstamp.actors.replicated import ReplicatedActor, command, query
from viewstamp.client import Outcome
from viewstamp.client import groups as client_groups
from viewstamp.errors import CommandError, OutcomeUnknownError, RequestError, UnavailableError, UnknownActorError
from viewstamp.ids import GROUP_0, GroupId, NodeId
from viewstamp.node import placer, server
from viewstamp.node.actor_owners import SpreadActorsQuery
from viewstamp.node.state_machine import StateMachine
from viewstamp.streams import Streams
from viewstamp.wire.batch import Kind
from viewstamp.wire.spread_actors import SpreadActor


class OverdrawnError(CommandError):
    """The account has less than that."""


class Account(ReplicatedActor):
    """An account whose commands use no time, no random numbers and no ids, which come from the log of a group."""

    def __init__(self) -> None:
        self.balance = 0
        self.entries: list[str] = []

    @command
    def deposit(self, entry: str, amount: int) -> int:
        self.entries.append(entry)
        self.balance += amount
        return self.balance

    @command
    def withdraw(self, entry: str, amount: int) -> int:
        if amount > self.balance:
            raise OverdrawnError(f"{self.balance}")
        self.entries.append(entry)
        self.balance -= amount
        return self.balance

    @query
    def read(self) -> list[str]:
        return self.entries


class Ledger(Account):
    """A second class, of which another actor of group 0 has instances."""


def machine(_: NodeId) -> StateMachine:
    return Streams({"account": Account, "ledger": Ledger})


class ActorWorld(PlacedWorld):
    """Members that run accounts."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, CALM, number=0, machine=machine)

    def spread(self, groups: list[GroupId]) -> SpreadActor:
        return self.ask(lambda client: client.spread_actor("account", groups=groups))

    def hosts(self, group: GroupId) -> list[Streams]:
        """Return the state machines of a group's members that are up."""
        found = [hosted.machine for each in self.members if (hosted := each.group(group)) is not None]
        assert all(isinstance(each, Streams) for each in found)
        return found  # type: ignore[return-value]

    def instances(self, group: GroupId, actor: str = "account") -> set[int]:
        """Return the number of instances in each member of a group."""
        return {each._actors.count_instances(actor) for each in self.hosts(group)}

    def state_sum(self, groups: list[GroupId]) -> int:
        """Return the checksum of all accounts, which all members of a group agree about."""
        total = 0
        for group in groups:
            sums = {each._actors.state_sum("account") for each in self.hosts(group)}
            assert len(sums) == 1, f"the members of group {group} have other states"
            total += int.from_bytes(sums.pop(), "little")
        return total % (1 << 128)

    def settle(self, has_groups: bool) -> None:
        if has_groups:
            self.finish(names_min=0)
        assert self.loop.run_until(lambda: self.has_settled, seconds=60.0)

    def pause(self, seconds: float) -> None:
        self.loop.run_until(lambda: False, seconds=seconds)


@pytest.fixture
def world() -> Iterator[ActorWorld]:
    made = ActorWorld(1)
    yield made
    made.close()


class Depositor(Caller):
    """A client that calls accounts, and notes what became of each call."""

    def __init__(self, world: PlacedWorld, addresses: list[str] | None = None, **options: object) -> None:
        super().__init__(world, addresses, **options)
        self.answers: dict[str, dict[str, int | Outcome | None]] = {}
        """By key: the answer to each entry; None = nothing was done."""

    async def deposit(self, key: str) -> None:
        """Call one command after the other until ``is_over``; every other one without the class."""
        answers = self.answers[key] = {}
        typed = self.client.actor("account", Account, key=key)
        while not self.is_over:
            number = next(self.numbers)
            entry = f"{number:06}"
            try:
                if number % 2:
                    answers[entry] = await typed.deposit(entry, 1)
                else:
                    answers[entry] = await self.client.call("account", "deposit", entry, 1, key=key)
            except UnavailableError:
                answers[entry] = None
                await asyncio.sleep(0.1)
            except OutcomeUnknownError as error:
                answers[entry] = await self.outcome(error.token)
            await asyncio.sleep(0.04)


def test_each_call_is_carried_out_once_in_the_group_of_its_instance_while_leaders_change() -> None:
    """The client times out often, so that outcomes are unknown and tokens are asked for."""
    world = ActorWorld(6)
    try:
        groups = [world.place(f"s{number}") for number in range(3)]
        spread = world.spread(groups)
        caller = Depositor(world, timeout=0.15)
        keys = [key_in(spread, group, skip=skip) for group in groups for skip in range(1)]
        tasks = [caller.process.spawn(caller.deposit(key)) for key in keys]
        changes = change_leaders(world, groups)
        caller.is_over = True
        assert world.loop.run_until(lambda: all(task.done() for task in tasks), seconds=60.0)
        assert changes > 2
        world.finish(names_min=1)
        for key in keys:
            assert len(check_entries(caller, key)) > 3
        told = [answer for each in caller.answers.values() for answer in each.values()]
        assert any(isinstance(each, Outcome) for each in told), "no outcome was unknown"
        assert world.instances(GROUP_0) == {0}
        assert sum(sum(world.instances(group)) for group in groups) == len(keys)
        caller.client._close()
    finally:
        world.close()


def key_in(spread: SpreadActor, group: GroupId, *, skip: int = 0) -> str:
    """Return a key whose instance belongs to ``group``; another one for each ``skip``."""
    return [key for key in map(str, range(200)) if spread.group_of(key) == group][skip]


async def carry_out(caller: Caller, entropy: Random) -> list[object]:
    """Call 40 accounts 300 times, each account once at a time; return the results in the order of the calls."""
    results: dict[int, object] = {}

    async def call(number: int, key: str, method: str, amount: int, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await before
        try:
            results[number] = await caller.client.call("account", method, f"e{number}", amount, key=key)
        except CommandError as error:
            results[number] = str(error)

    last: dict[str, asyncio.Task[None]] = {}
    for number in range(300):
        key, amount = f"account {entropy.randrange(40)}", entropy.randrange(1, 100)
        method = "withdraw" if entropy.random() < 0.4 else "deposit"
        last[key] = asyncio.create_task(call(number, key, method, amount, last.get(key)))
    await asyncio.gather(*last.values())
    return [results[number] for number in sorted(results)]


def test_the_states_after_the_same_commands_are_equal_for_1_3_and_8_groups() -> None:
    """With one group all instances are in group 0, because the actor is not spread."""
    found: list[tuple[list[object], int]] = []
    for count in (1, 3, 8):
        world = ActorWorld(count)
        try:
            groups = [world.place(f"s{number}", "n1", "n2") for number in range(count)] if count > 1 else [GROUP_0]
            if count > 1:
                world.spread(groups)
            caller = Caller(world)
            results = caller.run(carry_out(caller, Random(7)))
            (listed,) = [each for each in caller.run(caller.client.list_actors()) if each.name == "account"]
            assert (listed.instances, listed.missing) == (40, ())
            assert listed.groups == (tuple(groups) if count > 1 else ())
            caller.client._close()
            world.settle(count > 1)
            assert all(all(world.instances(group)) for group in groups), "each group has a part"
            found.append((results, world.state_sum(groups)))
        finally:
            world.close()
    assert found[0] == found[1] == found[2]
    assert any(isinstance(each, str) for each in found[0][0]), "a command was refused by the account"


def test_a_group_without_a_majority_delays_no_call_of_another_instance(world: ActorWorld) -> None:
    stuck, other = world.place("s1", "n2", "n3"), world.place("s2", "n1", "n2")
    spread = world.spread([stuck, other])
    caller = Caller(world, timeout=10.0)
    lost, kept = key_in(spread, stuck), key_in(spread, other)
    for key in (lost, kept):
        assert caller.run(caller.client.call("account", "deposit", "a", 1, key=key)) == 1
    world.take_down(world.members[2], power=False)
    waiting = [caller.process.spawn(caller.client.call("account", "deposit", "b", 1, key=lost)) for _ in range(20)]
    world.pause(1.0)
    for number in range(30):
        balance = caller.run(caller.client.call("account", "deposit", "b", 1, key=kept), seconds=1.0)
        assert balance == number + 2
    assert caller.run(caller.client.query("account", "read", key=kept)) == ["a"] + ["b"] * 30
    (listed, _) = caller.run(caller.client.list_actors())
    assert (listed.name, listed.instances, listed.missing) == ("account", 1, (stuck,))
    (listed, _) = caller.run(caller.client.list_actors(stale=True))
    assert (listed.instances, listed.missing) == (2, ())
    stale = caller.run(caller.client.query("account", "read", key=lost, stale=True))
    assert stale.value[0] == "a"
    assert not any(task.done() for task in waiting)
    assert world.loop.run_until(lambda: all(task.done() for task in waiting), seconds=60.0)
    assert all(isinstance(task.exception(), UnavailableError | OutcomeUnknownError) for task in waiting)
    caller.client._close()


def test_a_client_that_knew_the_actor_before_it_was_spread_goes_to_the_group_of_the_instance(world: ActorWorld) -> None:
    """Its call of group 0 is refused, and with it no call of another actor in the same batch."""
    group = world.place("s1")
    caller = Caller(world)
    account, ledger = caller.client.actor("account", Account, key="k"), caller.client.actor("ledger", Ledger, key="k")
    assert caller.run(account.read()) == []
    caller.run(ledger.deposit("a", 1))
    asked = caller.client.describe_actor("account")
    caller.client._actors._queue.interfaces["\0account"] = caller.run(asked)

    async def both() -> list[int]:
        return await asyncio.gather(*(each.deposit(f"b{n}", 1) for n in range(5) for each in (ledger, account)))

    world.spread([group])
    assert caller.run(both()) == [2, 1, 3, 2, 4, 3, 5, 4, 6, 5]
    assert caller.run(account.read()) == [f"b{n}" for n in range(5)]
    assert world.instances(GROUP_0) == {0}
    assert caller.run(caller.client.query("account", "read", key="k", max_staleness=60.0)).value[-1] == "b4"
    caller.client._close()


def test_an_actor_is_watched_in_the_group_of_its_instance(world: ActorWorld) -> None:
    groups = [world.place("s1"), world.place("s2")]
    world.spread(groups)
    caller = Caller(world)
    for number in range(3):
        caller.run(caller.client.call("account", "deposit", f"e{number}", 1, key="k"))

    async def watch(key: str | None) -> list[str]:
        seen: list[str] = []
        async for change in caller.client.watch("account", Account, key=key, index=1):
            seen.append(change.arguments[0])
            if len(seen) == 3:
                break
        return seen

    assert caller.run(watch("k")) == ["e0", "e1", "e2"]
    with pytest.raises(UnknownActorError, match="belongs to the groups") as refused:
        caller.run(watch(None))
    assert "watch one key at a time" in refused.value.remedy
    caller.client._close()


def test_a_leader_whose_node_does_not_know_the_owners_yet_carries_out_nothing(world: ActorWorld) -> None:
    """The client waits until the node has applied the record. Here it is not written yet."""
    group = world.place("s1", "n1")
    spread = SpreadActor.over(1, "account", 4096, [group])
    caller = Caller(world, timeout=1.0)
    caller.client._actors._spread["account"] = spread  # As another node has told, or as a forged one.
    with pytest.raises(UnavailableError):
        caller.run(caller.client.query("account", "read", key="k"))
    assert world.instances(group) == {0}
    waiting = caller.process.spawn(caller.client.call("account", "deposit", "b", 1, key="k", timeout=60.0))
    world.pause(1.0)
    assert not waiting.done()
    world.spread([group])
    assert world.loop.run_until(waiting.done, seconds=60.0)
    assert waiting.result() == 1
    caller.client._close()


def test_a_request_to_spread_an_actor_is_refused_with_the_next_step_and_changes_nothing(world: ActorWorld) -> None:
    def refused(name: str, *groups: int) -> RequestError:
        with pytest.raises(RequestError) as error:
            world.ask(lambda client: client.spread_actor(name, groups=groups))
        assert world.ask(lambda client: client.list_spread_actors()) == []
        return error.value

    assert "viewstamp group place" in refused("account").remedy
    first, second = world.place("s1"), world.place("s2")
    assert isinstance(refused("nobody"), UnknownActorError)
    assert "group 99 was never placed" in refused("account", first, 99).message
    assert "each once" in refused("account", first, first).remedy
    with patched(server, Kind=[Kind.CONTEXT]):  # The highest kind in the WELCOME of the release before.
        assert "runs a release that cannot read records of kind 34" in refused("account").message
    caller = Caller(world)
    caller.run(caller.client.call("ledger", "deposit", "a", 1, key="k"))
    assert "'ledger' has 1 instances in group 0" in refused("ledger").message
    spread = world.spread([])
    assert spread.groups == (first, second)
    assert world.spread([]) == world.spread([first, second]) == spread
    with pytest.raises(RequestError, match="is spread with the groups"):
        world.spread([second])
    assert caller.run(caller.client.list_spread_actors(stale=True)) == [spread]
    (_, ledger) = caller.run(caller.client.list_actors())
    assert (ledger.name, ledger.instances, ledger.groups) == ("ledger", 1, ())
    caller.client._close()


def test_an_actor_of_an_earlier_release_keeps_its_number_of_slots(
    world: ActorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command again finds it, although new actors have other slots."""
    world.place("s0")
    with monkeypatch.context() as earlier:
        earlier.setattr(placer, "SLOTS", 4096)
        actor = world.ask(lambda client: client.spread_actor("account"))
    assert actor.slots == 4096
    assert world.ask(lambda client: client.spread_actor("account")) == actor
    assert world.ask(lambda client: client.spread_actor("ledger")).slots == 4093


def test_a_node_that_lags_is_not_believed_that_an_actor_is_not_spread(world: ActorWorld) -> None:
    """It describes the actor without owners, so the call goes to group 0, which refuses it, and so does the query."""
    world.place("s0")
    member = next(each for each in world.members if each is not leader_of(world, GROUP_0))
    group = world.place("s1", *(each.name for each in world.members if each is not member))
    caller = Caller(world, [member.address], timeout=30.0)
    assert caller.run(caller.client.query("account", "read", key="k")) == []
    world.ask(lambda client: client.spread_actor("ledger"))  # Before the first one all members are probed.
    assert world.loop.run_until(lambda: world.has_settled, seconds=60.0)
    world.network.isolate(member.name, [each.name for each in world.members if each is not member])
    others = Caller(world, [each.address for each in world.members if each is not member])
    others.run(others.client.spread_actor("account", groups=[group], timeout=30.0))
    assert [each.name for each in member.machine.query(SpreadActorsQuery())] == ["ledger"]
    stale = caller.run(caller.client.query("account", "read", key="k", stale=True, node=member.id))
    assert stale.value == [], "the state before the actor was spread has no instance"
    assert caller.run(caller.client.call("account", "deposit", "a", 1, key="k")) == 1
    assert caller.run(caller.client.query("account", "read", key="k")) == ["a"]
    world.network.heal()
    assert world.loop.run_until(lambda: world.has_settled, seconds=60.0)
    assert world.instances(GROUP_0) == {0}
    for each in (caller, others):
        each.client._close()


def test_the_parts_for_the_group_of_an_instance_end_after_the_last_call_and_come_back(world: ActorWorld) -> None:
    group = world.place("s1")
    world.spread([group])
    caller = Caller(world)
    account = caller.client.actor("account", Account, key="k")
    with patched(client_groups, IDLE_SECONDS=0.5):
        for number in range(
            1, 6
        ):  # Each within half a second of the one before, and all but the first by the short path.
            assert caller.run(account.deposit("a", 1)) == number
            world.pause(0.3)
        assert list(caller.client._groups._parts) == [GROUP_0, group]
        world.pause(1.0)
        assert list(caller.client._groups._parts) == [GROUP_0]
        assert caller.run(account.deposit("a", 1)) == 6
    caller.client._close()


@pytest.mark.parametrize("lead", [-0.005, 0.1], ids=["spread first", "called first"])
def test_an_actor_that_is_spread_while_it_is_called_has_instances_on_one_side_only(lead: float) -> None:
    """The leader of group 0 dies while the record and the first commands are under way."""
    world = ActorWorld(3)
    try:
        groups = [world.place("s1"), world.place("s2")]
        operator, caller = Caller(world, timeout=1.0), Depositor(world, timeout=0.3)
        tasks = [caller.process.spawn(deposit_after(caller, key, -lead)) for key in ("a", "b", "c")]
        world.pause(max(lead, 0.0))
        spreading = operator.process.spawn(spread_or_refused(operator))
        world.pause(0.02)
        victim = leader_of(world, GROUP_0)
        assert victim is not None
        world.take_down(victim, power=True)
        world.pause(0.5)
        world.bring_up(victim)
        assert world.loop.run_until(spreading.done, seconds=60.0)
        world.pause(0.5)
        caller.is_over = True
        assert world.loop.run_until(lambda: all(task.done() for task in tasks), seconds=60.0)
        world.finish(names_min=0)
        found = world.instances(GROUP_0), sum(sum(world.instances(group)) for group in groups)
        assert found == (({0}, 3) if spreading.result() else ({3}, 0))
        assert spreading.result() == (lead < 0)
        for key in caller.answers:
            assert check_entries(caller, key)
        for each in (operator, caller):
            each.client._close()
    finally:
        world.close()


async def deposit_after(caller: Depositor, key: str, seconds: float) -> None:
    await asyncio.sleep(max(seconds, 0.0))
    await caller.deposit(key)


async def spread_or_refused(caller: Caller) -> bool:
    """Spread the actor, however often that fails; False = it has an instance already."""
    while True:
        try:
            await caller.client.spread_actor("account")
        except RequestError as error:
            if "whose states cannot move" not in error.message:
                raise
            return False
        except (UnavailableError, OutcomeUnknownError):
            await asyncio.sleep(0.05)
        else:
            return True


def check_entries(caller: Depositor, key: str) -> list[str]:
    """Compare the entries of an account with the answers to its calls; return them."""
    entries: list[str] = caller.run(caller.client.query("account", "read", key=key, timeout=60.0))
    assert entries == sorted(set(entries)), "an entry was written twice, or out of order"
    for entry, answer in caller.answers[key].items():
        if isinstance(answer, int):
            assert entries[answer - 1] == entry
        else:
            assert (entry in entries) == (answer is not None and answer.applied)
    assert set(entries) <= set(caller.answers[key])
    return entries
