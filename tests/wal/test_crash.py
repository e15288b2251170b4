"""A process that dies, or loses its power, at every single disk call: what it acknowledged is there afterwards."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.wal.logs import DIRECTORY, IDENTITY, SMALL, Journal, make_batch, make_batches, swallow
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash, SimulatedLoop
from viewstamp.wal.control_file import ControlFile, ControlState
from viewstamp.wal.verify import verify
from viewstamp.wal.wal import Wal
from viewstamp.wire.batch import Batch

Script = Callable[[Wal, ControlFile, Journal], Coroutine[Any, Any, None]]


async def append_and_roll(wal: Wal, control: ControlFile, journal: Journal) -> None:
    """Groups of several sizes, over several segments, with control writes between them."""
    index = 1
    for turn in range(8):
        for _ in range(turn % 3 + 1):
            journal.append(wal, make_batches(index, 2, count=3, size=300))
            index += 6
        if turn % 3 == 0:
            membership = bytes([turn]) * 6000  # larger than a page, so that a copy can be torn
            journal.write(wal, control, ControlState(**IDENTITY, term=turn + 1, vote="n2", membership=membership))
        await journal.settle()
        wal.commit_hint = wal.durable_end
    journal.append(wal, [make_batch(index, 1, size=20_000)])
    await journal.settle()


async def truncate_within_a_group(wal: Wal, control: ControlFile, journal: Journal) -> None:
    """A cut between the batches of one group, then another log over it, whose batches are of other sizes."""
    journal.append(wal, make_batches(1, 6, size=200))
    await journal.settle()
    journal.append(wal, make_batches(7, 4, size=200))
    await journal.settle()
    journal.truncate(wal, 4)
    journal.write(wal, control, ControlState(**IDENTITY, term=2, history=((0, 1), (2, 4))))
    await journal.settle()
    journal.append(wal, make_batches(4, 9, term=2, size=90))
    await journal.settle()


async def truncate_over_segments(wal: Wal, control: ControlFile, journal: Journal) -> None:
    """A cut that removes whole segments, once at their boundary and once inside one, without waiting in between."""
    index = 1
    for _ in range(9):
        journal.append(wal, make_batches(index, 5, size=1000))
        index += 5
        await journal.settle()
    assert len(wal.segments()) >= 3
    boundary = wal.segments()[-1].first_index
    journal.truncate(wal, boundary)
    journal.append(wal, make_batches(boundary, 2, term=2, size=500))
    journal.truncate(wal, 8)
    journal.append(wal, make_batches(8, 3, term=3, size=1200))
    await journal.settle()
    journal.truncate(wal, 1)
    journal.append(wal, make_batches(1, 3, term=4))
    await journal.settle()


async def close_when_idle_and_at_the_end(wal: Wal, control: ControlFile, journal: Journal) -> None:
    """The empty groups that close the last one."""
    journal.append(wal, make_batches(1, 3))
    await journal.settle()
    await asyncio.sleep(1)
    assert wal.groups == 2, "an empty group closed the first one"
    journal.append(wal, make_batches(4, 3))
    await journal.settle()
    await wal.close()


SCRIPTS = [append_and_roll, truncate_within_a_group, truncate_over_segments, close_when_idle_and_at_the_end]


def run_until_dead(disk: SimulatedDisk, loop: SimulatedLoop, script: Script, call: int | None) -> tuple[Journal, bool]:
    """Run ``script`` on a new log; die at disk call number ``call``, counted from here. Return whether it died."""
    journal = Journal()
    died: list[bool] = []

    async def node() -> None:
        wal = Wal.open(disk, DIRECTORY, SMALL, on_batch=lambda batch, committed: None)
        wal.start(swallow)
        control = ControlFile.open(disk, "/data")
        await script(wal, control, journal)

    disk.crash_at(None if call is None else disk.calls + call, lambda: died.append(True))
    process = loop.process("node")
    task = process.spawn(node())
    assert loop.run_until(lambda: bool(died) or task.done(), seconds=60)
    loop.run_for(0)
    if not died:
        task.result()
        process.kill()
    return journal, bool(died)


def check_recovered(disk: SimulatedDisk, journal: Journal) -> tuple[list[Batch], ControlState | None]:
    """Open what is there and compare it with what may be there."""
    found: list[Batch] = []
    before = verify(disk, "/data") if disk.exists(DIRECTORY) else None
    control = ControlFile.open(disk, "/data")
    wal = Wal.open(disk, DIRECTORY, SMALL, on_batch=lambda batch, committed: found.append(batch))
    got = ([bytes(batch.buffer) for batch in found], control.state)
    legal = journal.legal()
    assert got in legal, (
        f"found up to {found[-1] if found else None} and {control.state}, allowed are ends "
        f"{[(len(log), state.term if state else None) for log, state in legal]}"
    )
    assert wal.recovery.end == wal.durable_end == (found[-1].end if found else 1)
    if before is not None:
        assert before.verdict == wal.recovery.verdict
    return found, control.state


@pytest.mark.slow
@pytest.mark.parametrize("end", ["killed", "power cut"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_death_at_any_disk_call_leaves_what_was_acknowledged(script: Script, end: str) -> None:
    """For every call of the script: die there, recover, and find everything acknowledged and nothing invented."""
    call = 0
    died = True
    while died:
        call += 1
        loop = SimulatedLoop(call)
        disk = SimulatedDisk(loop=loop)
        disk.make_directory("/data")
        journal, died = run_until_dead(disk, loop, script, call)
        loop.close()
        for seed in range(1 if end == "killed" else 6):
            entropy = random.Random(f"{call} {seed}")
            after = SimulatedDisk()
            after.volume = copy.deepcopy(disk.volume)
            if end == "power cut":
                after.crash(entropy)
            found, state = check_recovered(after, journal)
            # What was recovered is durable now: a second opening finds the same, also after another power cut.
            after.crash(entropy)
            check_recovered(after, journal.adopt(found, state))
    assert call > 20


@pytest.mark.slow
@pytest.mark.parametrize("end", ["killed", "power cut"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_power_cut_at_any_call_of_recovery_loses_nothing_either(script: Script, end: str) -> None:
    """What a killed process left in the page cache only must be durable before recovery says so of it."""
    for call in range(3, 400, 1 if end == "killed" else 9):
        loop = SimulatedLoop(call)
        disk = SimulatedDisk(loop=loop)
        disk.make_directory("/data")
        journal, died = run_until_dead(disk, loop, script, call)
        loop.close()
        entropy = random.Random(call)
        if end == "killed":
            disk.kill()
        else:
            disk.crash(entropy)
        inner = 0
        is_dead = True
        while is_dead:
            inner += 1
            after = SimulatedDisk()
            after.volume = copy.deepcopy(disk.volume)
            after.crash_at(inner)
            try:
                check_recovered(after, journal)
                is_dead = False
            except SimulatedCrash:
                after.crash(entropy)
                check_recovered(after, journal)
        if not died:
            break
