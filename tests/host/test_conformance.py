"""Every behaviour of the host interface, shown by the real host and by the simulated one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from viewstamp.host import clock
from viewstamp.host.clock import UNKNOWN_BOOT, RealClock, read_boot_id
from viewstamp.host.conformance import (
    BOOT_BEHAVIOURS,
    CLOCK_BEHAVIOURS,
    DISK_BEHAVIOURS,
    NETWORK_BEHAVIOURS,
    ConformanceError,
)
from viewstamp.host.disk import RealDisk
from viewstamp.host.interfaces import Clock, Disk, Network
from viewstamp.host.network import RealNetwork
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedClock, SimulatedLoop
from viewstamp.sim.network import LinkOptions, SimulatedNetwork
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.world import World

DiskBehaviour = Callable[[Disk, str], Coroutine[Any, Any, None]]
NetworkBehaviour = Callable[[Network], Coroutine[Any, Any, None]]
ClockBehaviour = Callable[[Clock], Coroutine[Any, Any, None]]
BootBehaviour = Callable[[Callable[[], str]], Coroutine[Any, Any, None]]


def _run_real(coroutine: Coroutine[Any, Any, None], loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=loop_factory, debug=loop_factory is asyncio.new_event_loop) as runner:
        runner.run(coroutine)


@pytest.mark.parametrize("behaviour", DISK_BEHAVIOURS, ids=lambda each: each.__name__)
def test_the_real_disk_conforms(behaviour: DiskBehaviour, tmp_path: Path) -> None:
    _run_real(behaviour(RealDisk(), str(tmp_path)), asyncio.new_event_loop)


@pytest.mark.parametrize("behaviour", DISK_BEHAVIOURS, ids=lambda each: each.__name__)
def test_the_simulated_disk_conforms(behaviour: DiskBehaviour) -> None:
    loop = SimulatedLoop(1)
    disk = SimulatedDisk("n1", loop=loop)
    disk.make_directory("/data")
    loop.run_until_complete(behaviour(disk, "/data"))
    loop.close()


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("behaviour", NETWORK_BEHAVIOURS, ids=lambda each: each.__name__)
def test_the_real_network_conforms(
    behaviour: NetworkBehaviour, factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    _run_real(behaviour(RealNetwork()), factory)


@pytest.mark.parametrize("options", [LinkOptions(), LinkOptions(split=0.5, delay_mean=0.01)], ids=["plain", "split"])
@pytest.mark.parametrize("behaviour", NETWORK_BEHAVIOURS, ids=lambda each: each.__name__)
def test_the_simulated_network_conforms(behaviour: NetworkBehaviour, options: LinkOptions) -> None:
    loop = SimulatedLoop(1)
    network = SimulatedNetwork(loop, options=options)
    loop.run_until_complete(behaviour(network.view("n1")))
    assert not network.connections
    loop.close()


@pytest.mark.parametrize("behaviour", CLOCK_BEHAVIOURS, ids=lambda each: each.__name__)
def test_the_real_clock_conforms(behaviour: ClockBehaviour) -> None:
    _run_real(behaviour(RealClock()), asyncio.new_event_loop)


@pytest.mark.parametrize("behaviour", CLOCK_BEHAVIOURS, ids=lambda each: each.__name__)
def test_the_simulated_clock_conforms(behaviour: ClockBehaviour) -> None:
    loop = SimulatedLoop(1)
    loop.run_until_complete(behaviour(SimulatedClock(loop, rate=1.1, offset=5)))
    loop.close()


def test_the_suite_finds_a_disk_that_does_not_conform() -> None:
    """A suite that passes everything would pass this disk, too."""

    class Forgetful(SimulatedDisk):
        def rename(self, source: str, target: str) -> None:
            self.volume.remove(source)

    failed = []
    for behaviour in DISK_BEHAVIOURS:
        disk = Forgetful()
        disk.make_directory("/data")
        loop = SimulatedLoop(1)
        try:
            loop.run_until_complete(behaviour(disk, "/data"))
        except (ConformanceError, FileNotFoundError):
            failed.append(behaviour.__name__)
        loop.close()
    assert failed == ["renaming_replaces_and_open_files_stay_what_they_are"]


@pytest.mark.parametrize("behaviour", BOOT_BEHAVIOURS, ids=lambda each: each.__name__)
def test_the_real_boot_id_conforms(behaviour: BootBehaviour) -> None:
    _run_real(behaviour(read_boot_id), asyncio.new_event_loop)


@pytest.mark.parametrize("behaviour", BOOT_BEHAVIOURS, ids=lambda each: each.__name__)
def test_the_simulated_boot_id_conforms(behaviour: BootBehaviour) -> None:
    world = World(1, Swarm(nodes=1, faults={}))
    world.loop.run_until_complete(behaviour(world.members[0].host.boot_id))
    world.close()


def test_a_simulated_power_cut_ends_a_boot_and_a_kill_does_not() -> None:
    world = World(1, Swarm(nodes=1, faults={}))
    [member] = world.members
    before = member.host.boot_id()
    world.take_down(member, power=False)
    assert member.host.boot_id() == before
    world.take_down(member, power=True)
    assert member.host.boot_id() != before
    world.close()


def test_a_machine_without_a_boot_id_reports_it_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_boot_id() != UNKNOWN_BOOT or not sys.platform.startswith("linux")
    monkeypatch.setattr(clock, "_BOOT_ID_PATH", "/proc/there/is/no/such/file")
    assert read_boot_id() == UNKNOWN_BOOT
