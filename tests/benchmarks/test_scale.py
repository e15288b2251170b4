"""The simulated machines of ``benchmarks/scale``: who waits for whom, and a short simulation of real nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.scale.__main__ import main
from benchmarks.scale.cluster import Load, Simulated, simulate
from benchmarks.scale.costs import Costs
from benchmarks.scale.machines import Machine, MachineLoop
from benchmarks.scale.model import Point, fit
from viewstamp.streams.placement import GROUPS_MAX

COSTS = Costs(
    send_seconds=4e-6,
    send_byte_seconds=6e-11,
    receive_seconds=4e-6,
    receive_byte_seconds=6e-11,
    wake_seconds=1e-6,
    turn_seconds=1e-6,
    sync_cpu_seconds=50e-6,
    sync_seconds={"1": [0.0002], "3": [0.0003]},
)
WORK_SECONDS = 1.0
"""Charged for an event; the real time of one is far less than ``SLACK_SECONDS``."""
SLACK_SECONDS = 0.1


def ends(machines: list[Machine], processes: int, events: int) -> list[float]:
    """Let each process do some events of ``WORK_SECONDS`` at once; return when each process has ended."""
    loop = MachineLoop(COSTS)
    found = [0.0] * processes
    try:
        for number in range(processes):
            process = loop.process(f"p{number}")
            loop.seat(process, machines[number % len(machines)])

            def work(number: int = number) -> None:
                loop.pause()
                loop.resume(WORK_SECONDS)
                found[number] = loop.time()

            for _ in range(events):
                process.call(loop.call_soon, work)
        loop.is_charging = True
        loop.run_for(100.0)
    finally:
        loop.close()
    return found


def test_the_events_of_a_process_wait_for_each_other_and_processes_for_a_core() -> None:
    assert ends([Machine(2)], 1, 3) == [pytest.approx(3.0, abs=SLACK_SECONDS)], "a process has one thread"
    assert ends([Machine(2)], 2, 2) == [pytest.approx(2.0, abs=SLACK_SECONDS)] * 2
    assert max(ends([Machine(1)], 2, 2)) == pytest.approx(4.0, abs=SLACK_SECONDS)
    assert max(ends([Machine(2)], 3, 2)) == pytest.approx(3.0, abs=SLACK_SECONDS), "three share two cores"
    assert ends([Machine(1), Machine(1)], 2, 2) == [pytest.approx(2.0, abs=SLACK_SECONDS)] * 2


def test_a_machine_counts_the_time_of_all_its_cores() -> None:
    machine = Machine(2)
    assert [machine.take(0.0, 1.0), machine.take(0.0, 3.0), machine.take(0.0, 1.0)] == [1.0, 3.0, 2.0]
    assert (machine.busy, machine.free_at) == (5.0, 2.0)


def test_costs_are_written_and_read_and_a_sync_depends_on_the_others() -> None:
    read = Costs.of_json(COSTS.as_json())
    assert read.as_json() == COSTS.as_json()
    entropy = MachineLoop(COSTS).entropy("test")
    assert [read.draw_sync(count, entropy) for count in (1, 2, 3, 9)] == [0.0002, 0.0002, 0.0003, 0.0003]


def test_the_model_finds_the_lines_of_what_was_simulated() -> None:
    base = Simulated(
        per_second=0.0,
        p50_ms=1.0,
        leader_0=0.0,
        other_nodes=0.5,
        busiest_node=0.0,
        machines=0.0,
        orders_per_second=0.0,
        syncs_per_append=0.0,
        megabytes_per_second=0.0,
        clients=0.0,
    )

    def point(nodes: int) -> Point:
        order = 0.001 + 0.0001 * nodes
        return Point(
            nodes,
            durable=replace(base, per_second=nodes * 64 / 0.001),
            ordered=replace(
                base,
                per_second=nodes * 64 / (0.001 + 2 * order),
                orders_per_second=1 / order,
                leader_0=0.5 + (0.0002 + 0.00005 * nodes) / order,
            ),
            idle=replace(base, leader_0=0.01 + 0.001 * nodes),
        )

    model = fit([point(3), point(9)], 64)
    assert (model.durable_seconds, model.waits) == (pytest.approx(0.001), pytest.approx(2.0))
    assert model.ordered_per_second(200) == pytest.approx(point(200).ordered.per_second)
    assert model.durable_per_second(200) == pytest.approx(point(200).durable.per_second)
    assert model.ordered_ceiling == pytest.approx(64 / 0.0002)
    assert model.ordered_per_second(round(model.half_of_ceiling)) == pytest.approx(model.ordered_ceiling / 2)
    assert model.durable_cores(model.durable_nodes_max) == pytest.approx(1.0)
    beyond = 2 * round(model.durable_nodes_max)
    assert model.durable_per_second(beyond) < 0.9 * GROUPS_MAX * 64 / 0.001, "the leader of group 0 has one core"
    assert model.durable_per_second(300) == model.durable_per_second(GROUPS_MAX), "a cluster has no more groups"


def test_real_nodes_append_in_simulated_time() -> None:
    load = Load(nodes=3, streams=2, callers=4, clients=2, is_ordered=True, seconds=0.02, warm_up=0.01)
    found = simulate(load, COSTS)
    assert found.per_second > 0
    assert found.orders_per_second > 0
    assert 0 < found.leader_0 <= 1.1, "a process has one thread"
    assert found.syncs_per_append > 0
    assert found.p50_ms > 1e3 * (2 * load.delay_seconds + 0.0002), "a sync of the stream and a round trip"


def test_too_few_nodes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--nodes", "9,300"])
    assert "--nodes needs two numbers from 3 to 30" in capsys.readouterr().err
