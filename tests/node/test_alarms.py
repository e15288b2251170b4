"""Timers that share one of the event loop, in simulated time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from viewstamp.node.alarms import Alarm, Alarms
from viewstamp.sim.loop import SimulatedLoop


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop(1)
    yield loop
    loop.close()


class Machine:
    """Alarms in simulated time, and those that have rung, with their times."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop, self._process = loop, loop.process("test")
        self.rung: list[tuple[str, float]] = []

        async def begin() -> Alarms:
            return Alarms()

        started = self._process.spawn(begin())
        assert loop.run_until(started.done, seconds=1.0)
        self._alarms = started.result()

    def set(self, name: str, seconds: float) -> Alarm:
        return self._process.call(self._alarms.set, seconds, lambda: self.rung.append((name, self._loop.time())))

    def set_when_rings(self, seconds: float, name: str, later: float) -> None:
        self._process.call(self._alarms.set, seconds, lambda: self.set(name, later))


@pytest.fixture
def machine(loop: SimulatedLoop) -> Machine:
    return Machine(loop)


def test_alarms_ring_at_their_times_in_the_order_of_these(loop: SimulatedLoop, machine: Machine) -> None:
    for name, seconds in (("late", 3.0), ("early", 1.0), ("middle", 2.0), ("also early", 1.0)):
        machine.set(name, seconds)
    loop.run_for(5.0)
    assert machine.rung == [("early", 1.0), ("also early", 1.0), ("middle", 2.0), ("late", 3.0)]


def test_a_cancelled_alarm_does_not_ring_and_those_behind_it_do(loop: SimulatedLoop, machine: Machine) -> None:
    first = machine.set("first", 1.0)
    machine.set("second", 2.0)
    first.cancel()
    first.cancel()
    loop.run_for(5.0)
    assert machine.rung == [("second", 2.0)]


def test_alarms_that_are_set_later_again_and_again_cost_one_timer(loop: SimulatedLoop, machine: Machine) -> None:
    """As those of ten resting replicas do with each beat."""
    alarms = [machine.set(str(number), 1.5) for number in range(10)]
    before = loop.events
    for _ in range(20):
        loop.run_for(1.0)
        for alarm in alarms:
            alarm.cancel()
        alarms = [machine.set(str(number), 1.5) for number in range(10)]
    assert machine.rung == []
    assert loop.events - before <= 20, "the timer is moved once for all of them, and never fires"


def test_no_timer_is_left_when_all_alarms_are_cancelled(loop: SimulatedLoop, machine: Machine) -> None:
    for alarm in [machine.set("one", 1.0), machine.set("two", 2.0)]:
        alarm.cancel()
    loop.run_for(0.5)
    before = loop.events
    loop.run_for(5.0)
    assert loop.events == before


def test_an_alarm_that_is_set_while_another_rings_rings_too(loop: SimulatedLoop, machine: Machine) -> None:
    machine.set_when_rings(1.0, "next", 0.5)
    machine.set("last", 4.0)
    loop.run_for(5.0)
    assert machine.rung == [("next", 1.5), ("last", 4.0)]
