"""The process dies or the power fails at every single disk call; all acknowledged records are there afterwards."""

from __future__ import annotations

import asyncio
import copy
import math
import os
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from tests.wal.logs import (
    DIRECTORY,
    IDENTITY,
    SMALL,
    Journal,
    bytes_on,
    contents,
    make_batch,
    make_batches,
    swallow,
)
from viewstamp.ids import Index
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash, SimulatedLoop
from viewstamp.wal.budget import WalOptions
from viewstamp.wal.control_file import ControlFile, ControlState
from viewstamp.wal.log import Wal
from viewstamp.wal.recovery import Survey
from viewstamp.wal.verdict import Known
from viewstamp.wire.batch import Batch

TURN_SECONDS = 0.01
"""The longest turn of the writer here; a due sync waits for the one in progress."""

Script = Callable[[Wal, ControlFile, Journal], Coroutine[Any, Any, None]]


async def append_and_roll(wal: Wal, control: ControlFile, journal: Journal) -> None:
    """Append groups of several sizes over several segments, with control writes between them."""
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
    """Truncate between the batches of one group, then write batches of other sizes over the cut."""
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
    """Truncate whole segments, once at a boundary and once inside one, without waiting in between."""
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
    """Write the empty groups that close the last group."""
    journal.append(wal, make_batches(1, 3))
    await journal.settle()
    await asyncio.sleep(1)
    assert wal.groups == 2, "an empty group closed the first one"
    journal.append(wal, make_batches(4, 3))
    await journal.settle()
    await wal.close()


async def trim_and_go_on_in_what_was_dropped(wal: Wal, control: ControlFile, journal: Journal) -> None:
    """In each of several rounds, fill segments and trim those of the round before, without waiting in between."""
    index = 1
    for turn in range(4):
        for _ in range(5):
            journal.append(wal, make_batches(index, 3, size=1300))
            index += 3
            if turn % 2:
                await journal.settle()
        journal.trim(wal, index - 14)
        journal.append(wal, [make_batch(index)])
        index += 1
        await journal.settle()
        await asyncio.sleep(0.01)
    assert wal.first_index > 30
    journal.truncate(wal, wal.first_index + 2)
    await journal.settle()


async def reset_and_go_on(wal: Wal, control: ControlFile, journal: Journal) -> None:
    """Reset the log above its end, in its middle, and at its end."""
    for turn, end in enumerate((100, 101, 50, 50)):
        begin = wal.end
        for at in range(3):
            journal.append(wal, make_batches(begin + 2 * at, 2, term=turn + 1, size=2500))
        journal.reset(wal, end, turn + 2)
        journal.append(wal, make_batches(end, 2, term=turn + 2, size=700))
        journal.write(wal, control, ControlState(**IDENTITY, term=turn + 1))
        await journal.settle()
    journal.trim(wal, 51)
    journal.truncate(wal, 51)
    await journal.settle()


INTERVAL = replace(SMALL, sync_seconds=0.004, idle_seconds=0.05)
BOUNDED = replace(SMALL, bytes_max=4 * SMALL.segment_bytes)
POWER_CUTS = 6 if os.environ.get("VIEWSTAMP_SOAK") else 3
"""Random outcomes of a power cut at each call."""
SCRIPTS = [
    (append_and_roll, SMALL),
    (truncate_within_a_group, SMALL),
    (truncate_over_segments, SMALL),
    (close_when_idle_and_at_the_end, SMALL),
    (trim_and_go_on_in_what_was_dropped, SMALL),
    (trim_and_go_on_in_what_was_dropped, replace(BOUNDED, bytes_max=6 * SMALL.segment_bytes)),
    (reset_and_go_on, SMALL),
    (reset_and_go_on, BOUNDED),
    (append_and_roll, INTERVAL),
    (truncate_over_segments, INTERVAL),
    (trim_and_go_on_in_what_was_dropped, INTERVAL),
    (reset_and_go_on, INTERVAL),
]
IDS = [
    script.__name__ + (" bounded" * bool(options.bytes_max)) + (" interval" * bool(options.sync_seconds))
    for script, options in SCRIPTS
]


def run_until_dead(
    disk: SimulatedDisk, loop: SimulatedLoop, script: Script, options: WalOptions, call: int | None
) -> tuple[Journal, bool]:
    """Run ``script`` on a new log and crash at disk call number ``call``; return the journal and whether it crashed."""
    journal = Journal()
    died: list[bool] = []

    async def node() -> None:
        wal = Wal.open(disk, DIRECTORY, options, on_batch=lambda batch, committed: None)
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


def crashed_at(call: int, script: Script, options: WalOptions) -> tuple[SimulatedDisk, Journal, bool, float]:
    """Run ``script`` on a new disk and crash at disk call number ``call``.

    Return the disk, the journal, whether it crashed, and the time from which a power cut may lose acknowledged batches.
    """
    loop = SimulatedLoop(call)
    disk = SimulatedDisk(loop=loop)
    disk.make_directory("/data")
    journal, died = run_until_dead(disk, loop, script, options, call)
    durable_before = loop.time() - options.sync_seconds - TURN_SECONDS if options.sync_seconds else math.inf
    loop.close()
    return disk, journal, died, durable_before


def check_recovered(
    disk: SimulatedDisk, journal: Journal, options: WalOptions, durable_before: float = math.inf
) -> Journal:
    """Open the log and compare it with the allowed ones; return the journal that continues from it."""
    found: list[Batch] = []
    seen = Survey(disk=disk, directory=DIRECTORY, known=Known(first_index_max=None)).run()
    first_index = Index(seen.judgement.first_index if seen.segments else journal.base)
    if options.bytes_max:
        assert bytes_on(disk) <= options.bytes_max, "the limit holds at every instant"
    control = ControlFile.open(disk, "/data")
    wal = Wal.open(
        disk,
        DIRECTORY,
        options,
        on_batch=lambda batch, committed: found.append(batch),
        first_index=first_index,
    )
    legal = journal.legal(durable_before)
    assert any(each.allows(contents(found), wal.first_index, wal.end, control.state) for each in legal), (
        f"found {wal.first_index}..{wal.end} and {control.state}, allowed are "
        f"{[(each.base, each.trimmed, each.end, each.state.term if each.state else None) for each in legal]}"
    )
    assert wal.recovery.end == wal.durable_end == (found[-1].end if found else wal.first_index)
    if seen.segments:
        assert seen.recovery() == wal.recovery, "a survey reports the same as an opening"
    if options.bytes_max:
        assert bytes_on(disk) <= wal.bytes_allocated <= options.bytes_max
    return journal.adopt(found, wal.first_index, control.state)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["killed", "power cut"])
@pytest.mark.parametrize(("script", "options"), SCRIPTS, ids=IDS)
def test_a_crash_at_any_disk_call_leaves_every_acknowledged_batch(
    script: Script, options: WalOptions, end: str
) -> None:
    """Crash at every call of the script, recover, and find every acknowledged batch and no invented one.

    In the interval mode a power cut may lose batches acknowledged since the last sync, and nothing else.
    """
    call = 0
    died = True
    while died:
        call += 1
        disk, journal, died, durable_before = crashed_at(call, script, options)
        for seed in range(1 if end == "killed" else POWER_CUTS):
            entropy = random.Random(f"{call} {seed}")
            after = SimulatedDisk()
            after.volume = copy.deepcopy(disk.volume)
            if end == "power cut":
                after.crash(entropy)
            found = check_recovered(after, journal, options, math.inf if end == "killed" else durable_before)
            # Recovered batches are durable: a second opening finds the same, even after another power cut.
            after.crash(entropy)
            check_recovered(after, found, options)
    assert call > 20


@pytest.mark.slow
@pytest.mark.parametrize("end", ["killed", "power cut"])
@pytest.mark.parametrize(("script", "options"), SCRIPTS, ids=IDS)
def test_a_power_cut_at_any_call_of_recovery_loses_nothing_either(
    script: Script, options: WalOptions, end: str
) -> None:
    """Batches that a killed process left in the page cache must be durable before recovery reports them."""
    for call in range(3, 400, 3 if end == "killed" else 9):
        disk, journal, died, durable_before = crashed_at(call, script, options)
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
                check_recovered(after, journal, options, durable_before)
                is_dead = False
            except SimulatedCrash:
                after.crash(entropy)
                check_recovered(after, journal, options, durable_before)
        if not died:
            break
