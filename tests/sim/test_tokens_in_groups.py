"""Access control in other groups than 0, in a simulated cluster: tokens that a node may not know to be revoked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.mutants.token_mutants import TOKEN_MUTANTS
from tests.sim.leaders import leader_of
from tests.sim.test_client_of_groups import Caller
from tests.sim.test_groups import CALM, PlacedWorld
from tests.sim.test_spread_appends import spread
from viewstamp.client.aio import Client
from viewstamp.errors import AccessDeniedError, OutcomeUnknownError, UnavailableError
from viewstamp.ids import GroupId
from viewstamp.node.token_age import TOKENS_SECONDS


class Guarded(NamedTuple):
    """A cluster with a spread topic of one stream, an administrator, and a token that may append to it."""

    world: PlacedWorld
    group: GroupId
    admin: Caller
    writer: Caller

    def revoke(self) -> None:
        self.admin.run(self.admin.client.revoke_token("writer"))

    def cut_off(self, node: str) -> None:
        """Cut a node off from the others; clients can still reach it."""
        self.world.network.isolate(node, [each.name for each in self.world.members if each.name != node])

    def append(self, value: bytes, timeout: float = 2.0) -> str:
        """Append as the writer; return "" or the class of the error."""
        try:
            self.writer.run(self.writer.client.append("spread", value, timeout=timeout))
        except (AccessDeniedError, UnavailableError, OutcomeUnknownError) as error:
            return type(error).__name__
        return ""

    def written(self) -> list[bytes]:
        """Return the records of the topic in their order."""

        async def read(client: Client) -> list[bytes]:
            return [record.value async for record in client.read("spread", stream=1)]

        found: list[bytes] = self.admin.run(read(self.admin.client))
        return found


def guarded(world: PlacedWorld, *founders: str) -> Guarded:
    group = world.place("s1", *founders)
    spread(world, [group], 1)
    _, ops = world.ask(lambda client: client.create_token("ops", ["administer"]))
    admin = Caller(world, timeout=20.0, token=ops)
    _, text = admin.run(admin.client.create_token("writer", ["append:spread"]))
    writer = Caller(world, timeout=20.0, token=text)
    world.writers.stop()
    return Guarded(world, group, admin, writer)


@pytest.fixture
def calm() -> Iterator[PlacedWorld]:
    world = PlacedWorld(1, CALM, number=0)
    yield world
    world.close()


def wait(world: PlacedWorld, seconds: float) -> None:
    world.loop.run_until(lambda: False, seconds=seconds)


def use_after_revocation(cluster: Guarded) -> list[str]:
    """Revoke the token while n3, which leads its group alone, cannot know it; return the answers to later appends."""
    assert cluster.append(b"before") == ""
    cluster.cut_off("n3")
    cluster.revoke()
    wait(cluster.world, TOKENS_SECONDS)
    return [cluster.append(b"after %d" % number) for number in range(3)]


def test_a_node_that_cannot_know_of_a_revocation_permits_nothing_after_the_stated_time(calm: PlacedWorld) -> None:
    cluster = guarded(calm, "n3")
    assert "" not in use_after_revocation(cluster)
    calm.network.heal()
    assert cluster.append(b"after", timeout=20.0) == "AccessDeniedError"
    assert cluster.written() == [b"before"]


def test_a_node_that_does_not_look_at_the_age_of_its_tokens_is_found(calm: PlacedWorld) -> None:
    with TOKEN_MUTANTS["age-of-tokens-ignored"].plant():
        assert "" in use_after_revocation(guarded(calm, "n3"))


def test_a_group_goes_on_while_group_0_elects_a_leader_and_stops_without_a_majority(calm: PlacedWorld) -> None:
    cluster = guarded(calm, "n3")
    assert cluster.append(b"a") == ""
    first, second = calm.members[:2]
    calm.take_down(first, power=False)
    for number in range(20):
        assert cluster.append(b"%d" % number) == ""
        wait(calm, 0.3)
    calm.take_down(second, power=False)
    wait(calm, TOKENS_SECONDS)
    refused = cluster.append(b"none", timeout=10.0)
    assert refused != ""
    calm.bring_up(second)
    assert cluster.append(b"b", timeout=20.0) == ""
    written = cluster.written()
    assert [each for each in written if each != b"none"] == [b"a", *(b"%d" % number for number in range(20)), b"b"]
    assert b"none" not in written or refused == "OutcomeUnknownError"


def test_a_denied_append_is_not_written_later_by_a_leader_that_does_not_know_of_the_revocation(
    calm: PlacedWorld,
) -> None:
    """The client asks for the outcome of appends in doubt, and a leader of the group that lags answers too."""
    cluster = guarded(calm)
    assert cluster.append(b"before") == ""
    leader = leader_of(calm, cluster.group)
    assert leader is not None
    behind = next(each for each in calm.members if each is not leader)
    answers: dict[bytes, str] = {}

    async def use(number: int) -> None:
        for turn in range(10):
            value = b"%d.%d" % (number, turn)
            try:
                await cluster.writer.client.append("spread", value)
                answers[value] = ""
            except (AccessDeniedError, UnavailableError) as error:
                answers[value] = type(error).__name__
            except OutcomeUnknownError as error:
                outcome = await cluster.writer.outcome(error.token)
                answers[value] = "" if outcome.applied else "not applied"
            await asyncio.sleep(0.05)

    tasks = [cluster.writer.process.spawn(use(number)) for number in range(5)]
    wait(calm, 0.1)
    cluster.cut_off(behind.name)
    revoking = cluster.admin.process.spawn(cluster.admin.client.revoke_token("writer"))
    assert calm.loop.run_until(revoking.done, seconds=60.0)
    calm.network.heal()
    calm.take_down(leader, power=False)
    assert calm.loop.run_until(lambda: all(task.done() for task in tasks), seconds=120.0), calm.describe()
    calm.bring_up(leader)
    written = cluster.written()
    assert len(written) == len(set(written))
    assert {value for value, answer in answers.items() if not answer} == set(written) - {b"before"}
    assert cluster.append(b"after", timeout=20.0) == "AccessDeniedError"
