"""The log against a list: random work, random deaths, several lives; what is found is always what may be found."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wal.logs import DIRECTORY, IDENTITY, SMALL, Journal, make_batches, new_disk, swallow
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash, SimulatedLoop
from viewstamp.wal.control_file import ControlFile, ControlState
from viewstamp.wal.recovery import Recovery
from viewstamp.wal.verify import verify
from viewstamp.wal.wal import Wal
from viewstamp.wire.batch import Batch


@dataclass(frozen=True)
class Append:
    batches: int
    count: int
    size: int


@dataclass(frozen=True)
class Truncate:
    keep: float
    """The share of the batches that stays."""


@dataclass(frozen=True)
class Vote:
    size: int


@dataclass(frozen=True)
class Wait:
    seconds: float
    """0 = until everything is durable."""


@dataclass(frozen=True)
class Life:
    work: list[Append | Truncate | Vote | Wait]
    dies_at: int | None
    """The disk call; None = a clean stop."""
    is_power_cut: bool
    seed: int


works = st.one_of(
    st.builds(Append, st.integers(1, 6), st.integers(1, 4), st.sampled_from([1, 100, 900, 5000])),
    st.builds(Truncate, st.floats(0, 1)),
    st.builds(Vote, st.sampled_from([0, 700, 9000])),
    st.builds(Wait, st.sampled_from([0.0, 0.0, 0.0005, 0.2])),
)
lives = st.builds(
    Life,
    st.lists(works, max_size=12),
    st.one_of(st.none(), st.integers(1, 80)),
    st.booleans(),
    st.integers(0, 1 << 30),
)


class Model:
    """Several lives of a node's disk, and what its log must hold."""

    def __init__(self) -> None:
        self.disk = new_disk()
        self.journal = Journal()
        self.term = 0

    def live(self, life: Life) -> None:
        loop = SimulatedLoop(life.seed)
        before = self.disk.volume
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
        if life.is_power_cut:
            self.disk.crash(random.Random(life.seed))
        else:
            self.disk.kill()
        process.kill()
        loop.close()

    async def _run(self, life: Life) -> None:
        wal, control = self.recover()
        wal.start(swallow)
        self.term += 1
        for work in life.work:
            await self._do(work, wal, control)
        if life.dies_at is None:
            await wal.close()

    def recover(self) -> tuple[Wal, ControlFile]:
        """Open what is there, and compare it with what may be there."""
        found: list[Batch] = []
        seen = verify(self.disk, "/data") if self.disk.exists(DIRECTORY) else None
        control = ControlFile.open(self.disk, "/data")
        wal = Wal.open(self.disk, DIRECTORY, SMALL, on_batch=lambda batch, committed: found.append(batch))
        got = ([bytes(batch.buffer) for batch in found], control.state)
        assert got in self.journal.legal()
        if seen is not None:
            self._compare(wal.recovery, seen.verdict, seen.batches)
        assert [bytes(batch.buffer) for batch in wal.read(wal.first_index, 1 << 30)] == got[0]
        self.journal = self.journal.adopt(found, control.state)
        return wal, control

    @staticmethod
    def _compare(recovery: Recovery, verdict: str, batches: int) -> None:
        assert (recovery.verdict, recovery.batches) == (verdict, batches)

    async def _do(self, work: Append | Truncate | Vote | Wait, wal: Wal, control: ControlFile) -> None:
        match work:
            case Append():
                batches = make_batches(wal.end, work.batches, count=work.count, term=self.term, size=work.size)
                self.journal.append(wal, batches)
            case Truncate():
                self.term += 1
                ends = [1, *(batch.end for batch in self._handed_over())]
                self.journal.truncate(wal, ends[int(work.keep * (len(ends) - 1))])
            case Vote():
                state = self.journal.state or ControlState(**IDENTITY)
                latest = next((step.state for step in reversed(self.journal.steps) if step.state), state)
                self.journal.write(wal, control, replace(latest, term=latest.term + 1, membership=bytes(work.size)))
            case Wait(0):
                await self.journal.settle()
                wal.commit_hint = wal.durable_end
            case Wait():
                await asyncio.sleep(work.seconds)

    def _handed_over(self) -> list[Batch]:
        log = list(self.journal.log)
        for step in self.journal.steps:
            if step.cut is not None:
                log = [batch for batch in log if batch.end <= step.cut]
            log.extend(step.batches)
        return log


@pytest.mark.slow
@given(st.lists(lives, min_size=1, max_size=6))
@settings(max_examples=150, deadline=None)
def test_a_log_over_many_lives_holds_what_was_acknowledged_and_nothing_invented(history: list[Life]) -> None:
    model = Model()
    for life in history:
        model.live(life)
    try:
        model.recover()
    except SimulatedCrash:
        pytest.fail("the disk is alive again after a death")
