"""Batches, logs on a simulated disk, and a journal that computes which logs a crash may leave."""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any

from viewstamp.errors import ClosedError, StorageError
from viewstamp.ids import Index, Position, Term
from viewstamp.sim import loop as sim_loop
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.wal.budget import WalOptions
from viewstamp.wal.control_file import ControlFile, ControlState
from viewstamp.wal.format import is_replaced_name
from viewstamp.wal.log import Wal
from viewstamp.wire.batch import Batch, Kind, build_batch

DIRECTORY = "/data/wal"
SMALL = WalOptions(segment_bytes=16 * 1024, reserve_bytes=0, idle_seconds=0.05)
IDENTITY = {"cluster_id": "c", "node_id": "n1", "incarnation": "i"}


def make_batch(
    first_index: int,
    count: int = 1,
    *,
    term: int = 1,
    size: int = 64,
    fill: bytes = b"",
    kind: Kind = Kind.RECORDS,
) -> Batch:
    """Return a stamped batch of ``count`` records with values that identify them."""
    values = [fill or b"%d.%d" % (term, first_index + i) + b"." * size for i in range(count)]
    batch = build_batch(values, kind=kind)
    batch.stamp(
        term=Term(term),
        first_index=Index(first_index),
        previous_term=Term(term),
        log_time=first_index,
        first_position=Position(first_index),
    )
    return batch


def make_batches(first_index: int, batches: int, *, count: int = 1, term: int = 1, size: int = 64) -> list[Batch]:
    return [make_batch(first_index + i * count, count, term=term, size=size) for i in range(batches)]


def contents(batches: Sequence[Batch]) -> list[bytes]:
    return [bytes(batch.buffer) for batch in batches]


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    return disk


def open_wal(disk: SimulatedDisk, options: WalOptions = SMALL, **arguments: object) -> tuple[Wal, list[bytes]]:
    """Open the log; return it with the bytes of every recovered batch."""
    found: list[bytes] = []
    wal = Wal.open(
        disk,
        DIRECTORY,
        options,
        on_batch=lambda batch, committed: found.append(bytes(batch.buffer)),
        **arguments,  # type: ignore[arg-type]
    )
    return wal, found


def names_of(disk: SimulatedDisk, kind: str) -> list[str]:
    """Return the names of the files of one kind: segment, prepared or dropped."""
    return [name for name in disk.list_directory(DIRECTORY) if name.endswith(f".{kind}")]


def bytes_on(disk: SimulatedDisk) -> int:
    """Return the bytes of all segments and spares, which the size limit of a log counts."""
    names = disk.list_directory(DIRECTORY)
    names = [name for name in names if "mark" not in name and not is_replaced_name(name)]
    return sum(len(disk.volume.find(f"{DIRECTORY}/{name}").data) for name in names)


def write_log(disk: SimulatedDisk, groups: Sequence[Sequence[Batch]], options: WalOptions = SMALL) -> Wal:
    """Write each of ``groups`` as one group, blocking; leave the log as a killed process would."""
    wal, _ = open_wal(disk, options)
    for group in groups:
        wal.append_now(group)
    return wal


@dataclass(slots=True, eq=False)
class Step:
    """One item handed to the log: batches, the end of a truncation, a trim, a reset or a control state."""

    batches: Sequence[Batch] = ()
    cut: int | None = None
    trim: int | None = None
    reset: int | None = None
    state: ControlState | None = None
    done_at: float | None = None

    @property
    def is_done(self) -> bool:
        return self.done_at is not None


@dataclass(frozen=True)
class Legal:
    """A log and a control state that a crash may leave; the log may begin anywhere from ``base`` to ``trimmed``."""

    log: list[bytes]
    base: int
    end: int
    trimmed: int
    state: ControlState | None

    def allows(self, found: list[bytes], first_index: int, end: int, state: ControlState | None) -> bool:
        is_suffix = self.log[len(self.log) - len(found) :] == found
        is_whole = is_suffix and (self.base <= first_index <= max(self.base, self.trimmed)) and end == self.end
        return is_whole and (first_index > self.base or len(found) == len(self.log)) and state == self.state


@dataclass
class Journal:
    """Every item handed to a log, in order, and which of them the log has reported complete."""

    log: list[Batch] = field(default_factory=list)
    state: ControlState | None = None
    base: int = 1
    trimmed: int = 1
    steps: list[Step] = field(default_factory=list)
    error: BaseException | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def append(self, wal: Wal, batches: Sequence[Batch]) -> Step:
        reservation = wal.reserve(sum(batch.size for batch in batches))
        step = Step(batches=batches)
        self.steps.append(step)
        wal.fill(reservation, batches, partial(self._done, step))
        return step

    def truncate(self, wal: Wal, end: int) -> Step:
        step = Step(cut=end)
        self.steps.append(step)
        wal.truncate(Index(end), partial(self._done, step))
        return step

    def trim(self, wal: Wal, first_index: int) -> Step:
        step = Step(trim=first_index)
        self.steps.append(step)
        wal.trim(Index(first_index), partial(self._done, step))
        return step

    def reset(self, wal: Wal, end: int, term: int) -> Step:
        step = Step(reset=end)
        self.steps.append(step)
        wal.reset(Index(end), Term(term), partial(self._done, step))
        return step

    def write(self, wal: Wal, control: ControlFile, state: ControlState) -> Step:
        step = Step(state=state)
        self.steps.append(step)
        wal.run(partial(control.write, state), partial(self._done, step))
        return step

    def _done(self, step: Step, error: BaseException | None) -> None:
        self.changed.set()
        if isinstance(error, ClosedError) and step.trim is not None:
            return
        if error is not None:
            self.error = error
            return
        before = self.steps[: self.steps.index(step)]
        assert all(each.is_done or each.trim is not None for each in before), "items other than trims complete in order"
        step.done_at = asyncio.get_running_loop().time()

    async def settle(self) -> None:
        """Wait until every item is complete or has failed."""
        while self.error is None and not all(step.is_done for step in self.steps):
            self.changed.clear()
            await self.changed.wait()

    def handed_over(self) -> list[Batch]:
        """Return the log after all items, ignoring trims."""
        log = list(self.log)
        for step in self.steps:
            log = _after(log, step)
        return log

    def legal(self, durable_before: float = math.inf) -> list[Legal]:
        """Return every log that a crash now may leave: all completed items and any prefix of the others.

        Items completed after ``durable_before`` may be lost as well, unless an item other than an append followed them.
        """
        allowed: list[Legal] = []
        log, base, trimmed, state = list(self.log), self.base, self.trimmed, self.state

        def allow() -> None:
            end = log[-1].end if log else base
            allowed.append(Legal(contents(log), base, end, min(trimmed, end), state))

        for at, step in enumerate(self.steps):
            synced = any(later.is_done and not later.batches for later in self.steps[at:])
            is_certain = step.done_at is not None and (synced or step.done_at <= durable_before)
            if step.trim is not None:
                trimmed = max(trimmed, step.trim)
                continue
            if not is_certain:
                allow()
            if step.batches:
                for batch in step.batches:
                    log.append(batch)
                    if not is_certain:
                        allow()
                continue
            log = _after(log, step)
            if step.reset is not None:
                base = trimmed = step.reset
            elif step.state is not None:
                state = step.state
        allow()
        return allowed

    def adopt(self, found: Sequence[Batch], first_index: int, state: ControlState | None) -> Journal:
        """Return the journal that continues from the recovered batches."""
        return Journal(list(found), state, first_index, max(first_index, self.trimmed))


def _after(log: list[Batch], step: Step) -> list[Batch]:
    if step.reset is not None:
        return []
    if step.cut is not None:
        return [batch for batch in log if batch.end <= step.cut]
    return [*log, *step.batches]


def simulated(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on the simulated loop."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        sim_loop.run(test(**arguments))

    run.__signature__ = signature(test)  # type: ignore[attr-defined]
    return run


def swallow(_: StorageError) -> None:
    """Ignore a failure that the test checks elsewhere."""
