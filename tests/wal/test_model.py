"""The log against a list: random work and random crashes over several lives must leave an allowed log each time."""

from __future__ import annotations

import asyncio
import math
import random
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wal.logs import DIRECTORY, IDENTITY, SMALL, Journal, bytes_on, contents, make_batches, new_disk, swallow
from viewstamp.errors import StorageFullError
from viewstamp.ids import Index
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash, SimulatedLoop
from viewstamp.wal.budget import WalOptions
from viewstamp.wal.control_file import ControlFile, ControlState
from viewstamp.wal.log import Wal
from viewstamp.wal.recovery import Survey
from viewstamp.wal.verdict import Known
from viewstamp.wire.batch import Batch

BOUNDED = replace(SMALL, bytes_max=5 * SMALL.segment_bytes)
INTERVAL = replace(SMALL, sync_seconds=0.01)
TURN_SECONDS = 0.01


@dataclass(frozen=True)
class AppendItem:
    batches: int
    count: int
    size: int


@dataclass(frozen=True)
class Truncate:
    keep: float
    """The share of the batches that stays."""


@dataclass(frozen=True)
class TrimItem:
    keep: float
    """The share of the batches that may stay."""


@dataclass(frozen=True)
class ResetItem:
    ahead: int
    """The distance from the end to the index at which the log begins anew."""


@dataclass(frozen=True)
class Vote:
    size: int


@dataclass(frozen=True)
class Wait:
    seconds: float
    """0 = until everything is durable."""


Work = AppendItem | Truncate | TrimItem | ResetItem | Vote | Wait


@dataclass(frozen=True)
class Life:
    work: list[Work]
    dies_at: int | None
    """The number of the disk call at which the process dies; None = a clean stop."""
    is_power_cut: bool
    options: WalOptions
    seed: int


works = st.one_of(
    st.builds(AppendItem, st.integers(1, 6), st.integers(1, 4), st.sampled_from([1, 100, 900, 5000])),
    st.builds(AppendItem, st.integers(1, 6), st.integers(1, 4), st.sampled_from([100, 900, 5000])),
    st.builds(Truncate, st.floats(0, 1)),
    st.builds(TrimItem, st.floats(0, 1)),
    st.builds(ResetItem, st.integers(0, 3)),
    st.builds(Vote, st.sampled_from([0, 700, 9000])),
    st.builds(Wait, st.sampled_from([0.0, 0.0, 0.0005, 0.2])),
)
lives = st.builds(
    Life,
    st.lists(works, max_size=12),
    st.one_of(st.none(), st.integers(1, 80)),
    st.booleans(),
    st.sampled_from([SMALL, BOUNDED, INTERVAL, replace(BOUNDED, sync_seconds=INTERVAL.sync_seconds)]),
    st.integers(0, 1 << 30),
)


class Model:
    """Several lives of a node's disk, and the logs that it may hold."""

    def __init__(self) -> None:
        self.disk = new_disk()
        self.journal = Journal()
        self.term = 0
        self.durable_before = math.inf
        self.is_cut = False
        """Whether the power was cut since the last recovery; only then may unsynced writes be lost."""

    def live(self, life: Life) -> None:
        loop = SimulatedLoop(life.seed)
        before = self.disk.volume
        before_steps = self.journal.steps
        self.disk = SimulatedDisk(loop=loop)
        self.disk.volume = before
        died: list[bool] = []
        if life.dies_at is not None:
            self.disk.crash_at(life.dies_at, lambda: died.append(True))
        process = loop.process("node")
        task = process.spawn(self._run(life))
        assert loop.run_until(lambda: bool(died) or task.done(), seconds=600)
        loop.run_for(0)
        if not died:
            task.result()
        assert self.journal.error is None, "accepted batches are written"
        if life.options.sync_seconds and self.journal.steps is not before_steps:
            self.durable_before = loop.time() - life.options.sync_seconds - TURN_SECONDS
        if life.is_power_cut:
            self.disk.crash(random.Random(life.seed))
            self.is_cut = True
        else:
            self.disk.kill()
        process.kill()
        loop.close()

    async def _run(self, life: Life) -> None:
        wal, control = self.recover(life.options)
        wal.start(swallow)
        self.term += 1
        for work in life.work:
            await self._do(work, wal, control)
            if life.options.bytes_max:
                assert bytes_on(self.disk) <= max(wal.bytes_allocated, life.options.bytes_max)
        if life.dies_at is None:
            await wal.close()

    def recover(self, options: WalOptions = SMALL) -> tuple[Wal, ControlFile]:
        """Open the log and compare it with the allowed ones."""
        found: list[Batch] = []
        seen = Survey(disk=self.disk, directory=DIRECTORY, known=Known(first_index_max=None)).run()
        first_index = Index(seen.judgement.first_index if seen.segments else self.journal.base)
        control = ControlFile.open(self.disk, "/data")
        wal = Wal.open(
            self.disk, DIRECTORY, options, on_batch=lambda batch, _: found.append(batch), first_index=first_index
        )
        legal = self.journal.legal(self.durable_before if self.is_cut else math.inf)
        assert any(each.allows(contents(found), wal.first_index, wal.end, control.state) for each in legal)
        if seen.segments:
            assert seen.recovery() == wal.recovery
        assert contents(wal.read(wal.first_index, 1 << 30)) == contents(found)
        self.journal = self.journal.adopt(found, wal.first_index, control.state)
        self.durable_before, self.is_cut = math.inf, False
        return wal, control

    async def _do(self, work: Work, wal: Wal, control: ControlFile) -> None:
        match work:
            case AppendItem():
                batches = make_batches(wal.end, work.batches, count=work.count, term=self.term, size=work.size)
                with suppress(StorageFullError):
                    self.journal.append(wal, batches)
            case Truncate():
                self.term += 1
                first = max(self.journal.trimmed, *(step.trim or step.reset or 1 for step in self.journal.steps), 1)
                log = self.journal.handed_over()
                ends = [batch.end for batch in log if batch.end >= first]
                if ends:
                    self.journal.truncate(wal, ends[int(work.keep * (len(ends) - 1))])
            case TrimItem():
                ends = [wal.first_index, *(batch.end for batch in self.journal.handed_over())]
                self.journal.trim(wal, ends[int((1 - work.keep) * (len(ends) - 1))])
            case ResetItem():
                self.journal.reset(wal, wal.end + work.ahead, self.term)
            case Vote():
                state = self.journal.state or ControlState(**IDENTITY)
                latest = next((step.state for step in reversed(self.journal.steps) if step.state), state)
                self.journal.write(wal, control, replace(latest, term=latest.term + 1, membership=bytes(work.size)))
            case Wait(0):
                await self.journal.settle()
                wal.commit_hint = wal.durable_end
            case Wait():
                await asyncio.sleep(work.seconds)


@pytest.mark.slow
@given(st.lists(lives, min_size=1, max_size=6))
@settings(max_examples=150, deadline=None)
def test_a_log_over_many_lives_holds_every_acknowledged_batch_and_no_invented_one(history: list[Life]) -> None:
    model = Model()
    for life in history:
        model.live(life)
    try:
        model.recover()
    except SimulatedCrash:
        pytest.fail("the disk is alive again after a death")
