"""One soak: a cluster, its clients and its faults; then everything is healed, and every promise checked."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.soak import checks
from tests.soak.cell import Cell
from tests.soak.faults import Event, Faults
from tests.soak.members import CELL, SoakedProcesses, StuckError, running
from tests.soak.workload import CLAIMS, KEYS, TOPICS, Workload
from viewstamp.client.options import ClientOptions
from viewstamp.sim.checkers.linearizability import Answer, Judgement
from viewstamp.sim.checkers.replicas import Kept
from viewstamp.sim.history import Fate

__all__ = ["Outcome", "soak"]

ALL = (*TOPICS, CLAIMS)
_WARM_UP_SECONDS = 1.0
_CALM_SECONDS = 1.0
_CLIENT = ClientOptions(timeout=5.0, connect_timeout=1.0, silence=1.5)

Progress = Callable[[float, float, str], None]
"""Called with the seconds so far, the seconds in all, and the present step."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The outcome of a soak."""

    seed: int
    nodes: int
    seconds: float
    """Seconds of faults."""
    violations: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    fates: dict[str, int] = field(default_factory=dict)
    """Numbers of operations by the callers' answers: ok, refused, unknown; and the settled ones among them."""
    judgements: dict[str, Judgement] = field(default_factory=dict)
    records: int = 0
    terms: int | None = None
    """Number of terms begun: elections, and attempts at one. None = the end was not reached."""
    unavailable_seconds: float = 0.0
    """The longest time without an acknowledged write during the faults."""
    ended: list[tuple[str, str, str]] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    """The members at the end."""

    @property
    def linearizable(self) -> Answer:
        """The checker's answer for the whole history."""
        return checks.worst(self.judgements)

    @property
    def holds(self) -> bool:
        """Whether every promise was kept. A history that takes too long to judge breaks none, and is reported."""
        return not self.violations


async def soak(
    directory: Path, *, seed: int, seconds: float, nodes: int = 3, kinds: Sequence[str] = (), progress: Progress
) -> Outcome:
    """Run one soak in ``directory``, which must be empty; its processes are gone at the end.

    The history is left in ``history.jsonl`` in every case. The seed decides the faults and their times; their effects
    also depend on the machine.
    """
    outcome = Outcome(seed=seed, nodes=nodes, seconds=seconds)
    progress(0, seconds, f"starting {nodes} nodes")
    async with running(directory, nodes) as processes:
        workload = Workload(processes.client, str(seed))
        faults = Faults(processes, str(seed), nodes=nodes, kinds=kinds)
        watching = asyncio.ensure_future(processes.watch())
        try:
            await _load(processes, workload, faults, outcome, progress)
            progress(seconds, seconds, "comparing the members' contents")
            held = await _held(processes, outcome, workload)
            watching.cancel()
            await processes.stop(*sorted(processes.up))
            for name, topics in held.items():
                path = processes.node(name).directory
                outcome.violations += await asyncio.to_thread(lambda: list(checks.file_complaints(name, path, topics)))  # noqa: B023
        except StuckError as error:
            outcome.violations.append(f"Liveness: {error}")
        finally:
            watching.cancel()
            outcome.events, outcome.ended = faults.events, processes.ended
            outcome.violations += checks.ended_complaints(processes.ended)
            write_history(directory / "history.jsonl", workload, faults.events)
    progress(seconds, seconds, "judging the history")
    outcome.judgements = await asyncio.to_thread(checks.judgements, workload.recorder.operations)
    outcome.violations += [
        f"Linearizable: {name}: {judgement.detail}"
        for name, judgement in outcome.judgements.items()
        if judgement.answer is Answer.VIOLATED
    ]
    _count(outcome, workload)
    return outcome


async def _load(
    processes: SoakedProcesses, workload: Workload, faults: Faults, outcome: Outcome, progress: Progress
) -> None:
    """Run the callers during the faults; at the end all faults are healed, and the members are level."""
    term = max(int(status["term"]) for status in (await processes.statuses()).values())
    async with workload.running():
        await asyncio.sleep(_WARM_UP_SECONDS)
        began = time.monotonic()
        showing = asyncio.ensure_future(_show(began, outcome.seconds, workload, faults, progress))
        try:
            await faults.run(outcome.seconds)
        finally:
            showing.cancel()
            outcome.unavailable_seconds = _longest_gap(workload.acknowledged_at, began, time.monotonic())
        progress(outcome.seconds, outcome.seconds, "healing everything")
        await processes.start(*processes.names)
        await processes.wait_whole()
        written = len(workload.acknowledged_at)
        await asyncio.sleep(_CALM_SECONDS)
        if len(workload.acknowledged_at) == written:
            await asyncio.sleep(10 * _CALM_SECONDS)
        if len(workload.acknowledged_at) == written:
            raise StuckError("everything is healed, and nothing is written any more")
    await processes.wait_level()
    outcome.terms = max(int(status["term"]) for status in (await processes.statuses()).values()) - term


async def _show(began: float, seconds: float, workload: Workload, faults: Faults, progress: Progress) -> None:
    while True:
        kinds = " + ".join(event.kind for event in faults.events[-4:] if not event.until)
        done = sum(event.is_done for event in faults.events)
        words = f"{len(workload.done):,} operations, {done} faults   {kinds}"
        progress(min(time.monotonic() - began, seconds), seconds, words)
        await asyncio.sleep(0.25)


async def _held(processes: SoakedProcesses, outcome: Outcome, workload: Workload) -> dict[str, dict[str, Kept]]:
    """Read everything from each member alone, and compare it with the promises."""
    statuses = await processes.statuses()
    held: dict[str, dict[str, Kept]] = {}
    async with processes.client(_CLIENT) as client:
        await workload.read_all(client)
        for name, status in statuses.items():
            held[name] = {}
            for topic in ALL:
                records = [record async for record in client.read(topic, 1, node=str(status["member_id"]))]
                values = [bytes(record.value) for record in records]
                held[name][topic] = Kept(1, values, [int(record.timestamp) for record in records])
        cells = {key: await client.actor(CELL, Cell, key=key).account() for key in KEYS}
    outcome.members = sorted(str(status["member_id"]) for status in statuses.values())
    outcome.violations += checks.held_complaints(held, workload)
    outcome.violations += checks.account_complaints(workload, cells)
    outcome.records = sum(len(kept.values) for kept in next(iter(held.values())).values())
    outcome.violations += checks.state_complaints(statuses)
    return held


def _count(outcome: Outcome, workload: Workload) -> None:
    names = {Fate.APPLIED: "ok", Fate.NEVER: "refused", Fate.UNKNOWN: "unknown", Fate.PENDING: "unknown"}
    outcome.fates = dict.fromkeys(("ok", "refused", "unknown", "settled"), 0)
    for done in workload.done:
        outcome.fates[names[done.fate]] += 1
        outcome.fates["settled"] += done.is_settled and done.fate in (Fate.APPLIED, Fate.NEVER)


def _longest_gap(times: Sequence[float], began: float, ended: float) -> float:
    points = [began, *sorted(at for at in times if began <= at <= ended), ended]
    return max(after - before for before, after in itertools.pairwise(points))


def write_history(path: Path, workload: Workload, events: Sequence[Event]) -> None:
    """Write one JSON object per line: every operation and every fault, in the order of their beginning."""
    rows: list[dict[str, Any]] = [
        {
            "at": done.operation.called,
            "until": done.operation.returned,
            "caller": done.caller,
            "in": done.operation.partition,
            "asked": repr(done.operation.request)[:200],
            "answer": repr(done.operation.answer)[:200],
            "expected": done.expected,
            "fate": done.fate.value,
            "settled": done.is_settled,
            "error": done.error,
        }
        for done in workload.done
    ]
    rows += [
        {"at": event.at, "until": event.until, "fault": event.kind, "what": event.detail, "done": event.is_done}
        for event in events
    ]
    rows.sort(key=lambda row: float(row["at"]))
    with path.open("w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False).replace("Infinity", "null") + "\n")
