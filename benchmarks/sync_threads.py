"""Which threads should sync the log: a dedicated one, or a small pool that takes turns?

VoltDB's command log syncs from a rotating pool of threads, because a thread that has just been busy is scheduled late.
This program measures both with the log of one node on a real disk, with appends of 4 KiB, under these loads:

* ``idle``: no other load, with 8 appends in flight; ``one caller``: the same with 1;
* ``busy processor``: a process for each core that only computes, so that threads compete for the processors;
* ``busy loop``: every turn of the event loop computes for 2 ms, so that the interpreter lock is mostly taken.

Units: microseconds. ``sync`` is the call of ``fdatasync`` in the thread that makes it. ``append`` is the time from the
call to the completion, both on the loop. ``stall`` is the longest delay of a due timer of the loop. ``cpu`` is the
processor time of the whole process, including the appends of the group.

Expected: a sync of 4 KiB on this kind of machine takes 150-250 µs, a wake-up of a thread 15-50 µs. A pool adds one
wake-up for each group, which matters only while groups follow each other closely. The pool is faster if the scheduler
delays a thread that has used its time slice. The result and decision are in docs/design/0001-sync-threads.md.

    python -m benchmarks.sync_threads [--seconds 1] [--rounds 7] [--output json]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import random
import shutil
import tempfile
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import uvloop

from benchmarks.report import print_json, print_table
from viewstamp.bench.conditions import conditions
from viewstamp.bench.load import percentile
from viewstamp.host.disk import RealDisk, RealFile
from viewstamp.host.interfaces import File
from viewstamp.ids import Index, Position, Term
from viewstamp.wal.budget import WalOptions
from viewstamp.wal.log import Wal
from viewstamp.wire.batch import Batch, build_batch

THREADS = (1, 2, 4)
LOADS = ("one caller", "idle", "busy processor", "busy loop")
IN_FLIGHT = 8
VALUE_BYTES = 4096 - 96 - 16
SEGMENT_BYTES = 64 * 1024 * 1024
BUSY_SECONDS = 0.002
TICK_SECONDS = 0.001
WARM_SECONDS = 0.3


@dataclass
class Sample:
    """The results of one run with one kind of executor, in seconds."""

    syncs: list[float] = field(default_factory=list)
    appends: list[float] = field(default_factory=list)
    stall: float = 0.0
    cpu: float = 0.0
    """Processor seconds of all threads of this process."""
    appends_a_second: float = 0.0


class _TimedFile(RealFile):
    seconds: list[float]

    def sync_data(self) -> None:
        started = time.perf_counter()
        super().sync_data()
        self.seconds.append(time.perf_counter() - started)


class _TimedDisk(RealDisk):
    """A real disk that records the duration of each sync inside a segment."""

    def __init__(self, *, executor_threads: int) -> None:
        super().__init__(executor_threads=executor_threads)
        self.seconds: list[float] = []

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        assert isinstance(file, RealFile)
        timed = _TimedFile(path, file._descriptor)
        timed.seconds = self.seconds
        return timed


async def measure(directory: str, threads: int, load: str, seconds: float) -> Sample:
    """Keep ``IN_FLIGHT`` appends unanswered for some seconds, without a new segment meanwhile; return the results."""
    disk = _TimedDisk(executor_threads=threads)
    wal = Wal.open(disk, directory, WalOptions(segment_bytes=SEGMENT_BYTES), on_batch=lambda *_: None)
    wal.start(_fail)
    loop = asyncio.get_running_loop()
    while wal.bytes_allocated < 2 * SEGMENT_BYTES:  # noqa: ASYNC110  # because the writer thread sends no event
        await asyncio.sleep(0.01)
    sample = Sample()
    is_over = False
    started_at: deque[float] = deque()

    def append() -> None:
        batch = _batch(wal.end)
        started_at.append(time.perf_counter())
        wal.fill(wal.reserve(batch.size), [batch], done)

    def done(error: BaseException | None) -> None:
        sample.appends.append(time.perf_counter() - started_at.popleft())
        if not is_over and error is None:
            append()

    def tick(due: float) -> None:
        sample.stall = max(sample.stall, time.perf_counter() - due)
        if load == "busy loop":
            until = time.perf_counter() + BUSY_SECONDS
            while time.perf_counter() < until:
                pass
        if not is_over:
            loop.call_later(TICK_SECONDS, tick, time.perf_counter() + TICK_SECONDS)

    for _ in range(1 if load == "one caller" else IN_FLIGHT):
        append()
    tick(time.perf_counter())
    await asyncio.sleep(WARM_SECONDS)
    disk.seconds.clear()
    sample.appends.clear()
    sample.stall = 0.0
    cpu = time.process_time()
    await asyncio.sleep(seconds)
    is_over = True
    sample.cpu = time.process_time() - cpu
    sample.syncs = list(disk.seconds)
    sample.appends_a_second = len(sample.appends) / seconds
    await wal.close()
    return sample


def _batch(index: int) -> Batch:
    batch = build_batch([bytes(VALUE_BYTES)])
    batch.stamp(
        term=Term(1), first_index=Index(index), previous_term=Term(1), log_time=index, first_position=Position(index)
    )
    return batch


def _fail(error: BaseException) -> None:
    raise error


def _compute() -> None:
    while True:
        sum(range(1000))


def _run(directory: Path, threads: int, load: str, seconds: float) -> Sample:
    beside = []
    if load == "busy processor":
        beside = [multiprocessing.Process(target=_compute, daemon=True) for _ in range(os.cpu_count() or 1)]
    for process in beside:
        process.start()
    path = tempfile.mkdtemp(dir=directory)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(measure(path, threads, load, seconds))
    finally:
        for process in beside:
            process.terminate()
            process.join()
        shutil.rmtree(path)


def _row(samples: list[Sample]) -> dict[str, float]:
    """Return the medians over the rounds, in microseconds; for ``stall`` the median of the longest of each round."""

    def of(percent: float, what: str) -> float:
        return round(median(percentile(getattr(sample, what), percent) for sample in samples) * 1e6)

    return {
        "sync_us_p50": of(50, "syncs"),
        "sync_us_p99": of(99, "syncs"),
        "append_us_p50": of(50, "appends"),
        "append_us_p99": of(99, "appends"),
        "loop_stall_us": round(median(sample.stall for sample in samples) * 1e6),
        "cpu_us_a_sync": round(median(sample.cpu / max(1, len(sample.syncs)) for sample in samples) * 1e6),
        "appends_a_second": round(median(sample.appends_a_second for sample in samples)),
    }


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description="Measure the log with different numbers of syncing threads.")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of each run")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each kind, in turn")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    arguments = parser.parse_args()
    directory = Path("viewstamp-data/sync-threads").absolute()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        found = conditions(directory)
        samples: dict[tuple[str, int], list[Sample]] = {(load, n): [] for load in LOADS for n in THREADS}
        kinds = list(samples)
        for number in range(arguments.rounds):
            # In turn, each round in another order, so that other work of the machine affects all kinds alike.
            for load, threads in random.Random(number).sample(kinds, len(kinds)):
                samples[load, threads].append(_run(directory, threads, load, arguments.seconds))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    results = [{"load": load, "threads": n, **_row(each)} for (load, n), each in samples.items()]
    if arguments.output == "json":
        print_json({"conditions": found, "results": results})
        return
    columns = ["load", "n", "sync p50", "p99", "append p50", "p99", "loop stall", "cpu/sync", "appends/s"]
    print_table(
        "n threads for the executor that syncs the log; microseconds, medians of the rounds",
        columns,
        [list(row.values()) for row in results],
    )
    for name, value in found.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
