"""Users' actors in simulated clusters: the findings with their names, and the determinism of a seed."""

from __future__ import annotations

import asyncio
import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import viewstamp as vs
from viewstamp.sim.network import LinkOptions
from viewstamp.sim.swarm import Swarm
from viewstamp.testing import MemberState, SeedFailedError, SimulatedCluster, Simulation, Verdict
from viewstamp.testing.run import Plan

EXAMPLE = Path(__file__).parents[2] / "examples" / "bank_transfer"


class Counter(vs.ReplicatedActor):
    def __init__(self) -> None:
        self.count = 0

    @vs.command
    def add(self, n: int) -> int:
        self.count += n
        return self.count

    @vs.query
    def value(self) -> int:
        return self.count


async def count_up(cluster: SimulatedCluster) -> None:
    counter = cluster.client().actor("counter", Counter)
    for expected in range(1, 9):
        assert await counter.add(1) == expected
        await asyncio.sleep(cluster.random.uniform(0, 0.1))
    assert await counter.value() == 8


async def add_only(cluster: SimulatedCluster) -> None:
    """Check nothing, because the errors have to be found elsewhere."""
    counter = cluster.client().actor("counter", Counter)
    for _ in range(8):
        await counter.add(1)
        await asyncio.sleep(cluster.random.uniform(0, 0.1))


def simulate(cls: type[vs.ReplicatedActor], **settings: Any) -> Simulation:
    return Simulation({"counter": cls}, **settings)


def failure(
    cls: type[vs.ReplicatedActor], scenario: Any = count_up, *, allow: str = "nothing", **asked: Any
) -> Verdict:
    with pytest.raises(SeedFailedError) as caught:
        simulate(cls, allow=[allow]).run(scenario, **asked)
    assert caught.value.__cause__ is caught.value.verdict.error
    return caught.value.verdict


@pytest.mark.slow
def test_a_right_actor_passes_while_everything_breaks() -> None:
    verdicts = simulate(Counter).run(
        count_up, seeds=10, invariant=lambda member: member.actor("counter", Counter) and 1
    )
    assert [verdict.commands for verdict in verdicts] == [8] * 10
    assert {verdict.nodes for verdict in verdicts} >= {1, 3}
    assert len({kind for verdict in verdicts for kind in verdict.faults}) > 6


@pytest.mark.slow
def test_the_same_seed_is_the_same_run_twice_in_one_process() -> None:
    first, second = (simulate(Counter).run(count_up, seeds=4) for _ in range(2))
    assert first == second
    assert len({verdict.digest for verdict in first}) == 4


@pytest.mark.slow
def test_the_same_seed_is_the_same_run_in_processes_that_hash_differently() -> None:
    program = (
        "from test_bank import *; from viewstamp.testing import Simulation;"
        "print([v.digest for v in Simulation({'bank': Bank}).run(transfers, seeds=3, invariant=no_money_is_lost)])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=EXAMPLE,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "4242")
    }
    assert len(outputs) == 1


def test_an_invariant_is_asked_after_each_command_and_names_the_one_that_broke_it() -> None:
    def small(member: MemberState) -> None:
        assert member.actor("counter", Counter).count < 3, "too much"

    verdict = failure(Counter, invariant=small, check_each_command=True)
    assert verdict.finding == "Invariant"
    assert "counter.add(1) -> 3: too much" in verdict.detail
    assert verdict.commands == 3
    assert isinstance(verdict.error, AssertionError)


def test_an_invariant_is_asked_of_each_member_in_the_end() -> None:
    asked = []

    def note(member: MemberState) -> bool:
        asked.append((member.member, {key: each.count for key, each in member.actors("counter", Counter).items()}))
        return member.actor("counter", Counter, key="never called").count == 0

    simulate(Counter, nodes=3).run(count_up, seeds=1, invariant=note)
    assert asked == [(member, {"": 8}) for member in ("n1", "n2", "n3")]
    assert failure(Counter, invariant=lambda member: False).detail == "is False on n1 in the end"


def test_an_error_of_a_scenario_is_found_with_its_own_traceback() -> None:
    async def wrong(cluster: SimulatedCluster) -> None:
        assert await cluster.client().actor("counter", Counter).add(1) == 2, "one and none is two"

    verdict = failure(Counter, wrong)
    assert (verdict.finding, verdict.detail) == ("ScenariosPass", "wrong: one and none is two")
    assert verdict.error is not None
    assert verdict.error.__traceback__ is not None
    assert re.search(r"#\d+ counter\.add\(1\) -> 1$", verdict.last_commands[-1])
    assert verdict.last_events


def test_a_scenario_that_does_not_end_is_found_and_shown_where_it_waits() -> None:
    async def waits(cluster: SimulatedCluster) -> None:
        await asyncio.Event().wait()

    verdict = failure(Counter, waits)
    assert verdict.finding == "ScenariosEnd"
    assert f"scenario-1 waits in {__file__}:{waits.__code__.co_firstlineno + 1} waits" in verdict.detail


def test_a_task_that_a_scenario_forgot_is_found_too() -> None:
    async def forgets(cluster: SimulatedCluster) -> None:
        cluster.forgotten = asyncio.create_task(fail())  # type: ignore[attr-defined]
        await cluster.client().actor("counter", Counter).add(1)

    async def fail() -> None:
        raise LookupError("never awaited")

    assert failure(Counter, forgets).detail == "LookupError: never awaited"


def test_a_command_that_is_not_deterministic_is_found_and_named() -> None:
    class Dice(Counter):
        @vs.command
        def add(self, n: int) -> int:
            self.count += random.randrange(1 << 30)
            return 0

    async def throw(cluster: SimulatedCluster) -> None:
        for _ in range(8):
            await cluster.client().actor("counter", Dice).add(1)
            await asyncio.sleep(0.2)

    with pytest.raises(AssertionError, match=r"Dice\.add: random\.randrange differs from member to member"):
        simulate(Dice).run(throw)
    verdict = failure(Dice, throw, allow="random.randrange")
    assert verdict.finding == "StatesEqual"
    assert "counter.add(1)" in verdict.detail


def test_a_query_that_changes_the_state_is_found() -> None:
    class Meter(Counter):
        @vs.query
        def value(self) -> int:
            self.count += 1
            return self.count

    verdict = failure(Meter, allow="a query changes")
    assert (verdict.finding, verdict.detail[:26]) == ("QueriesChangeNothing", "counter.value() has change")


def test_a_state_that_a_snapshot_does_not_keep_is_found() -> None:
    class Forgetful(Counter):
        def set_state(self, state: Any, version: int) -> None:
            self.count = 0

    class Stubborn(Counter):
        def set_state(self, state: Any, version: int) -> None:
            raise LookupError("no such state")

    assert failure(Forgetful, add_only).finding == "SnapshotsKeepState"
    verdict = failure(Stubborn, add_only)
    assert verdict.finding == "SnapshotsKeepState"
    assert "no such state" in verdict.detail


def test_a_command_that_stops_the_node_is_found() -> None:
    class Deep(Counter):
        @vs.command
        def add(self, n: int) -> int:
            return self.add(n)

    verdict = failure(Deep)
    assert verdict.finding == "CommandsEnd"
    assert "RecursionError" in verdict.detail
    assert "counter.add(1)" in verdict.detail


@pytest.mark.slow
def test_a_service_that_repeats_calls_of_unknown_outcome_is_found_out_by_faults_only() -> None:
    async def hasty(cluster: SimulatedCluster) -> None:
        counter = cluster.client(timeout=0.3).actor("counter", Counter)
        for expected in range(1, 9):
            while True:
                try:
                    count = await counter.add(1)
                    break
                except (vs.UnavailableError, vs.OutcomeUnknownError):
                    await asyncio.sleep(0.1)
            assert count == expected

    simulate(Counter, nodes=3, faults=()).run(hasty, seeds=5)
    with pytest.raises(SeedFailedError, match=r"ScenariosPass: hasty: assert \d+ == \d+"):
        simulate(Counter, nodes=3, faults=["isolate"]).run(hasty, seeds=30)


def swarms(faults: Sequence[str] | None) -> list[Swarm]:
    plan = Plan(
        actors={},
        scenarios=(),
        invariant=None,
        check_each_command=False,
        nodes=3,
        faults=faults,
        seconds=4.0,
    )
    return [plan.draw(seed) for seed in range(1, 41)]


def test_without_faults_no_message_is_lost_no_disk_is_slow_and_every_member_may_lead() -> None:
    for swarm in swarms(()):
        assert swarm.links == LinkOptions()
        assert (swarm.disk_stall, swarm.disk_mean, swarm.sync_only) == (0, Swarm().disk_mean, 0)
    assert any(swarm.links.drop for swarm in swarms(["kill"])), "what a seed draws beside the faults that were named"


def test_links_hold_messages_up_only_where_that_fault_may_happen() -> None:
    def seeds_with_stalls(faults: Sequence[str] | None) -> int:
        return sum(swarm.links.stall > 0 for swarm in swarms(faults))

    assert seeds_with_stalls(()) == 0
    assert seeds_with_stalls(["isolate"]) == 0
    assert seeds_with_stalls(["slow"]) > 0
    assert seeds_with_stalls(None) > 0


def test_a_scenario_may_break_things_itself() -> None:
    led = []

    async def strikes(cluster: SimulatedCluster) -> None:
        counter = cluster.client().actor("counter", Counter)
        await counter.add(1)
        led.append(cluster.leader)
        cluster.isolate(cluster.leader or "")
        await counter.add(1)
        led.append(cluster.leader)
        cluster.heal()
        cluster.kill(cluster.leader or "", power=True)
        await counter.add(1)
        led.append(cluster.leader)
        cluster.start(str(led[1]))
        assert not cluster.is_calm
        with pytest.raises(ValueError, match="has no member 'n9'; its members are n1, n2, n3"):
            cluster.kill("n9")

    (verdict,) = simulate(Counter, nodes=3, faults=()).run(strikes, seeds=1)
    assert verdict.faults == {}
    assert led[0] != led[1] != led[2]
    assert None not in led


def test_when_the_faults_have_ended_a_scenario_breaks_nothing_any_more() -> None:
    async def late(cluster: SimulatedCluster) -> None:
        counter = cluster.client().actor("counter", Counter)
        while not cluster.is_calm:
            await counter.add(1)
        cluster.isolate("n1")

    with pytest.raises(SeedFailedError, match="ScenariosPass: late: RuntimeError: the faults have ended"):
        simulate(Counter, faults=["pause"], seconds=1).run(late, seeds=1)


def test_several_scenarios_run_at_the_same_time() -> None:
    met = asyncio.Event()

    async def waits(cluster: SimulatedCluster) -> None:
        await met.wait()
        assert await cluster.client().actor("counter", Counter).value() == 1

    async def goes(cluster: SimulatedCluster) -> None:
        await cluster.client().actor("counter", Counter).add(1)
        met.set()

    simulate(Counter, nodes=1).run(waits, goes, seeds=1)


def test_a_simulation_that_tests_nothing_fails() -> None:
    async def idle(cluster: SimulatedCluster) -> None:
        await asyncio.sleep(0.1)

    with pytest.raises(AssertionError, match="no command was applied in any seed"):
        simulate(Counter, nodes=1).run(idle, seeds=1)


def test_a_wrong_simulation_is_refused_before_it_runs() -> None:
    with pytest.raises(ValueError, match="there are no faults rain, snow; known: kill, power"):
        simulate(Counter, faults=["snow", "kill", "rain"])
    with pytest.raises(ValueError, match="nodes=0"):
        simulate(Counter, nodes=0)
    with pytest.raises(TypeError, match="is not a class derived from"):
        simulate(dict)  # type: ignore[arg-type]


async def test_an_async_test_is_refused() -> None:
    with pytest.raises(RuntimeError, match="write the test as `def`"):
        simulate(Counter).run(count_up)
