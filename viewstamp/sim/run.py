"""One seed, from its swarm to the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from viewstamp.ids import Index
from viewstamp.node.state_machine import StateMachine
from viewstamp.sim.checkers.calls import check_calls, check_states
from viewstamp.sim.checkers.history import Kept, check_history, check_replicas
from viewstamp.sim.checkers.sinks import check_sinks
from viewstamp.sim.checkers.violation import Violation
from viewstamp.sim.faults import Faults
from viewstamp.sim.loop import SimulatedLoop
from viewstamp.sim.swarm import Swarm, draw_swarm
from viewstamp.sim.trace import Trace
from viewstamp.sim.workload import Workload
from viewstamp.sim.world import Member, World
from viewstamp.wal.wal import Wal
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.commands import decode_result, encode_arguments
from viewstamp.wire.staged import decode_commit, entries_of

__all__ = ["Verdict", "run_seed"]

_RECOVERY_SECONDS = 60.0
"""How long, in simulated seconds, a cluster may take to be RUNNING and to agree once all faults have stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a run came to. ``invariant`` is empty where nothing was violated; ``digest`` is the trace's."""

    seed: int
    events: int
    appends: int
    acknowledged: int
    commits: int
    """Batches of sinks of which somebody was told that they are committed."""
    faults: dict[str, int]
    digest: str
    invariant: str = ""
    detail: str = ""
    tail: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The one command that repeats the run."""
        return f"viewstamp sim run --seed {self.seed}"


def run_seed(
    seed: int,
    *,
    swarm: Swarm | None = None,
    steps: int | None = None,
    sink: Callable[[str], None] | None = None,
) -> Verdict:
    """Run one seed to its verdict. Never raises for what the product does wrong.

    Args:
      seed: decides everything.
      swarm: the settings of the run; None = drawn from the seed.
      steps: end faults and work after so many events, if the swarm does not end them before.
      sink: hears every line of the trace.
    """
    if swarm is None:
        swarm = draw_swarm(SimulatedLoop(seed).entropy("swarm"))
    trace = Trace(sink=sink)
    world = World(seed, swarm, trace=trace)
    workload = Workload(world, world.loop.entropy("workload"))
    faults = Faults(world, world.loop.entropy("faults"))
    invariant = detail = ""
    try:
        _run(world, workload, faults, steps)
    except Violation as violation:
        invariant, detail = violation.invariant, violation.detail
    except Exception as error:
        invariant, detail = f"no {type(error).__name__}", f"{error} {getattr(error, '__notes__', '')}"
    verdict = Verdict(
        seed=seed,
        events=world.loop.events,
        appends=len(workload.appends),
        acknowledged=sum(append.position > 0 for append in workload.appends),
        commits=len({commit.batch for commit in workload.sinks.commits if commit.answer is not None}),
        faults=faults.counts,
        digest=trace.digest(),
        invariant=invariant,
        detail=detail,
        tail=tuple(trace.lines)[-40:] if invariant else (),
    )
    world.close()
    return verdict


def _run(world: World, workload: Workload, faults: Faults, steps: int | None) -> None:
    loop = world.loop
    for member in world.members:
        world.bring_up(member)
    workload.start()
    breaking = loop.create_task(faults.run())
    loop.run_until(lambda: steps is not None and loop.events >= steps, seconds=world.swarm.seconds)
    breaking.cancel()
    world.calm()
    workload.stop()
    if not loop.run_until(lambda: workload.is_done and world.has_settled, seconds=_RECOVERY_SECONDS):
        raise Violation("Liveness", f"not recovered {_RECOVERY_SECONDS:g} s after the last fault: {world.describe()}")
    loop.check()
    contents = {member.id: _contents(member) for member in world.members}
    check_replicas(contents)
    kept = next(iter(contents.values()))
    for topic, held in kept.items():
        for position, (value, time) in enumerate(zip(held.values, held.times, strict=True), held.first):
            workload.sinks.observed.note(topic, position, value, time)
    staged = {value for attempt in workload.sinks.attempts for _, value in attempt.records}
    check_history(workload.appends, kept, staged)
    check_sinks(workload.sinks, {topic: held.first for topic, held in kept.items()})
    check_states({member.id: member.machine for member in world.members})
    check_calls(workload.calls, _journals(world.members[0], workload))


def _contents(member: Member) -> dict[str, Kept]:
    """Read every topic from the member's own log on disk: of its state only where each topic begins is asked."""
    node = member.node
    assert node is not None
    assert node.wal is not None
    topics: list[dict[str, Any]] = node.machine.query("list_topics")  # type: ignore[assignment]
    batches = _batches(node.wal)
    contents = {}
    for topic in topics:
        kept = contents[topic["name"]] = Kept(topic["first_position"], [], [])
        located = node.machine.query("locate", topic=topic["id"], position=kept.first)
        index, at = cast("tuple[int, int]", located)
        for batch in batches:
            if batch.first_index < index:
                continue
            for found in _made_visible(batch, topic["id"], node.wal, node.machine):
                if batch.kind is Kind.RECORDS and found.first_position != at:
                    raise Violation(
                        "PositionsHaveNoGap", f"{member.id}: {found!r} at {found.first_position} after {at - 1}"
                    )
                gone = max(0, kept.first - at)
                kept.values.extend(found.values()[gone:])
                kept.times.extend([batch.log_time] * max(0, found.count - gone))
                at += found.count
        if kept.first + len(kept.values) != topic["last_position"] + 1:
            raise Violation(
                "TopicsAreWhole", f"{member.id} holds {len(kept.values)} records from {kept.first} of {topic}"
            )
    return contents


def _batches(wal: Wal) -> list[Batch]:
    batches: list[Batch] = []
    index = wal.first_index
    while index < wal.durable_end:
        batches += wal.read(index, 1024 * 1024)
        index = batches[-1].end
    return batches


def _made_visible(batch: Batch, topic: int, wal: Wal, machine: StateMachine) -> list[Batch]:
    """Return the batches of a topic that become visible with ``batch``: itself, or what it commits."""
    if batch.kind is Kind.RECORDS:
        return [batch] if batch.topic == topic else []
    if batch.kind is not Kind.COMMIT or not machine.query("has_effect", index=batch.first_index):
        return []
    entries = [entry for _, entries in decode_commit(batch).parts for entry in entries_of(entries)]
    found = [wal.read(Index(entry.index), 1)[0] for entry in entries if entry.topic == topic]
    for entry, each in zip((entry for entry in entries if entry.topic == topic), found, strict=True):
        if (each.kind, each.first_index, each.topic, each.count) != (Kind.STAGED, entry.index, topic, entry.count):
            raise Violation("CommitsAreTrue", f"{batch!r} names {entry}, in the log is {each!r}")
    return found


def _journals(member: Member, workload: Workload) -> dict[str, list[str]]:
    """Return the entries of every journal, by its key, as a member holds them."""
    journals = {}
    for key in workload.keys:
        packed = member.machine.query(
            "call_query", actor="journal", key=key, method="read", arguments=encode_arguments([], {})
        )
        assert isinstance(packed, bytes)
        journals[key] = decode_result(packed)
    return journals
