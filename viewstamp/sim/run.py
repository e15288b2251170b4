"""Runs one seed, from its swarm to the verdict."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from viewstamp.sim.archives import Archives
from viewstamp.sim.checkers.exactly_once import check_appends, check_calls
from viewstamp.sim.checkers.linearizability import Answer, Log, judge
from viewstamp.sim.checkers.liveness import check_liveness
from viewstamp.sim.checkers.log_time import check_advances
from viewstamp.sim.checkers.replicas import check_replicas, check_states
from viewstamp.sim.checkers.sinks import check_sinks
from viewstamp.sim.ending import contents_of, history_of, journals_of
from viewstamp.sim.faults import Faults
from viewstamp.sim.group_moves import GroupMoves
from viewstamp.sim.groups import PlacedGroups
from viewstamp.sim.history import Operation
from viewstamp.sim.keyed import KeyedClients
from viewstamp.sim.loop import SimulatedLoop
from viewstamp.sim.notices import Notices
from viewstamp.sim.offline import replay_and_compare, replay_and_compare_all
from viewstamp.sim.stream_archives import StreamArchives
from viewstamp.sim.swarm import KEYED_TOPIC, Swarm, draw_swarm, with_archives, with_groups, with_keyed, with_moves
from viewstamp.sim.trace import Trace
from viewstamp.sim.violation import Violation
from viewstamp.sim.workload import Workload
from viewstamp.sim.world import World

__all__ = ["SeedVerdict", "run_seed"]

_LEASES_CHANCE = 0.3
"""The share of seeds with leases, if the swarm is drawn."""
_NOTICES_CHANCE = 0.5
"""The share of seeds in which followers find commits by themselves, if the swarm is drawn."""
_TOKENS_CHANCE = 0.2
"""The share of seeds with access control, if the swarm is drawn and no majority loses acknowledged records."""
_GROUPS_CHANCE = 0.3
"""The share of seeds with placed groups, of those with a drawn swarm that allows them: one of eight of all."""
_MOVES_CHANCE = 0.5
"""The share of those with placed groups whose members change."""
_ARCHIVES_CHANCE = 0.25
"""The share of seeds with an archive, of those with a drawn swarm that allows it: one of seven of all."""
_KEYED_CHANCE = 0.15
"""The share of seeds with a keyed topic, of those with a drawn swarm that allows it."""
_SETTLE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedVerdict:
    """The result of a run. ``invariant`` is empty if nothing was violated; ``digest`` is the trace's."""

    seed: int
    steps: int | None
    events: int
    appends: int
    acknowledged: int
    commits: int
    """Batches of sinks that were acknowledged as committed."""
    operations: int
    """Number of operations in the history that was judged for linearizability ..."""
    is_judged: bool
    """... and whether all of it was judged, which may take too long."""
    faults: dict[str, int]
    digest: str
    archived_runs: int = 0
    """Number of runs of archived records that were committed ..."""
    archive_drops: int = 0
    stream_runs: int = 0
    """Number of runs of streams that were committed."""
    key_runs: int = 0
    """Number of runs of keys that were committed ..."""
    key_ranges: int = 0
    """... the most ranges at a time ..."""
    key_reads: int = 0
    """... and the number of keys that were read."""
    """... and how often a member deleted one from its log."""
    invariant: str = ""
    detail: str = ""
    tail: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        return f"viewstamp sim run --seed {self.seed}" + (f" --steps {self.steps}" if self.steps else "")


def run_seed(
    seed: int,
    *,
    swarm: Swarm | None = None,
    steps: int | None = None,
    sink: Callable[[str], None] | None = None,
) -> SeedVerdict:
    """Run one seed to its verdict. Does not raise for errors of the product.

    Args:
      seed: decides everything.
      swarm: the settings of the run; None = drawn from the seed.
      steps: end faults and work after this number of events, if the swarm does not end them before.
      sink: called with every line of the trace.
    """
    if swarm is None:
        loop = SimulatedLoop(seed)
        swarm = draw_swarm(loop.entropy("swarm"))
        # From streams of their own, so that each seed has the faults that it had without leases, tokens and groups.
        swarm = replace(swarm, leases=loop.entropy("leases").random() < _LEASES_CHANCE)
        has_tokens = loop.entropy("tokens").random() < _TOKENS_CHANCE and not swarm.majority_loses_power
        swarm = replace(swarm, tokens=has_tokens)
        swarm = replace(swarm, notices=loop.entropy("notices").random() < _NOTICES_CHANCE)
        groups = loop.entropy("groups")
        if groups.random() < _GROUPS_CHANCE:
            swarm = with_groups(swarm, groups)
        moves_of = loop.entropy("moves of the swarm")
        if moves_of.random() < _MOVES_CHANCE:
            swarm = with_moves(swarm, moves_of)
        archives_of = loop.entropy("archives of the swarm")
        if archives_of.random() < _ARCHIVES_CHANCE:
            swarm = with_archives(swarm, archives_of)
        keyed_of = loop.entropy("keyed topic of the swarm")
        if keyed_of.random() < _KEYED_CHANCE:
            swarm = with_keyed(swarm, keyed_of)
    trace = Trace(sink=sink)
    world = World(seed, swarm, trace=trace)
    workload = Workload(world, world.loop.entropy("workload"))
    faults = Faults(world, world.loop.entropy("faults"))
    placed = (
        PlacedGroups(
            world,
            swarm.placed,
            cancels=swarm.cancels,
            streams=2 * swarm.placed,
            changes=True,
            founders=swarm.founders,
        )
        if swarm.placed
        else None
    )
    moves = GroupMoves(world, placed.placer) if placed is not None and swarm.moves else None
    archives = Archives(world, workload.topics) if swarm.archives else None
    keyed = KeyedClients(world) if swarm.keyed else None
    streams = (
        StreamArchives(world, archives.store, placed.placer) if archives is not None and placed is not None else None
    )
    if placed is not None and archives is not None:
        placed.readers.was_damaged = archives.store.was_damaged
    invariant = detail = ""
    is_judged = False
    try:
        is_judged = _run(world, workload, faults, placed, moves, archives, streams, keyed, steps)
    except Violation as violation:
        invariant, detail = violation.invariant, violation.detail
    except Exception as error:
        invariant, detail = f"no {type(error).__name__}", f"{error} {getattr(error, '__notes__', '')} {_where(error)}"
    others = [each.counts for each in (moves, archives, keyed) if each is not None]
    counts = {kind: count for each in others for kind, count in each.items()}
    verdict = SeedVerdict(
        seed=seed,
        steps=steps,
        events=world.loop.events,
        appends=len(workload.appends),
        acknowledged=sum(append.position > 0 for append in workload.appends),
        commits=len({commit.batch for commit in workload.sinks.commits if commit.answer is not None}),
        operations=len(workload.history.operations),
        is_judged=is_judged,
        faults=faults.counts | counts,
        digest=trace.digest(),
        archived_runs=len(archives.runs) if archives is not None else 0,
        archive_drops=archives.drops if archives is not None else 0,
        stream_runs=len(streams.runs) if streams is not None else 0,
        key_runs=len(keyed.runs) if keyed is not None else 0,
        key_ranges=keyed.ranges if keyed is not None else 0,
        key_reads=len(keyed.seen) if keyed is not None else 0,
        invariant=invariant,
        detail=detail,
        tail=tuple(trace.lines)[-40:] if invariant else (),
    )
    world.close()
    return verdict


def _run(
    world: World,
    workload: Workload,
    faults: Faults,
    placed: PlacedGroups | None,
    moves: GroupMoves | None,
    archives: Archives | None,
    streams: StreamArchives | None,
    keyed: KeyedClients | None,
    steps: int | None,
) -> bool:
    """Run a world to its end and check it; return whether all of the history was judged."""
    loop = world.loop
    for member in world.members:
        world.bring_up(member)
    workload.start()
    faults.start()
    notices = Notices(world, loop.entropy("when to tell"))
    if world.swarm.notices:
        notices.start()
    if placed is not None:
        placed.start()
    if moves is not None:
        moves.start()
    if archives is not None:
        archives.start()
    if streams is not None:
        streams.start()
    if keyed is not None:
        keyed.start()
    loop.run_until(lambda: steps is not None and loop.events >= steps, seconds=world.swarm.seconds)
    faults.stop()
    is_lossy = world.swarm.majority_loses_power
    if not is_lossy:
        replay_and_compare(world, workload)
    world.calm()
    notices.stop()
    workload.stop()
    faults.operator.finish()
    if placed is not None:
        placed.stop()
    if moves is not None:
        moves.stop()
    if archives is not None:
        archives.stop(lambda: workload.is_done)
    if streams is not None and placed is not None:
        streams.stop(lambda: placed.is_done)
    if keyed is not None:
        keyed.stop(lambda: workload.is_done)
    # A session that lost acknowledged batches cannot go on, so its client waits for ever.
    check_liveness(
        world,
        lambda: (
            is_lossy
            or (
                workload.is_done
                and faults.operator.is_done
                and (placed is None or placed.is_done)
                and (moves is None or (moves.is_done and not moves.unlike))
                and (archives is None or archives.is_done)
                and (streams is None or streams.is_done)
                and (keyed is None or keyed.is_done)
            )
        ),
    )
    check_advances(world)
    # The leader may have written a record meanwhile, for example because an archive delay has ended.
    loop.run_until(lambda: world.has_settled, seconds=_SETTLE_SECONDS)
    loop.check()
    if placed is not None:
        placed.check()
    if moves is not None:
        moves.check()
    if archives is not None:
        archives.check()
    if streams is not None:
        streams.check()
    if keyed is not None:
        keyed.check()
    contents = {member.id: contents_of(member, archives) for member in world.members}
    check_replicas(contents)
    check_states({member.id: member.machine for member in world.members})
    replay_and_compare_all(world, next(iter(contents.values())), archives.ends() if archives is not None else {})
    if is_lossy:
        return True  # Acknowledged records may be gone, so there is no history to judge.
    # The keyed topic is judged above; its records are not those of the workload.
    kept = {topic: held for topic, held in next(iter(contents.values())).items() if topic != KEYED_TOPIC}
    for topic, held in kept.items():
        for position, (value, time) in enumerate(zip(held.values, held.times, strict=True), held.first):
            workload.topics.observed.note(topic, position, value, time)
    staged = {value for attempt in workload.sinks.attempts for _, value in attempt.records}
    journals = journals_of(world.members[0], workload)
    check_appends(workload.appends, kept, staged)
    committed = check_sinks(workload.sinks, {topic: held.first for topic, held in kept.items()})
    check_calls(workload.calls, journals)
    return _check_history(history_of(workload, committed, kept, journals))


def _where(error: BaseException) -> str:
    """Return the file and line that raised, because an assertion without a message contains nothing else."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _check_history(history: Sequence[Operation]) -> bool:
    """Judge the clients' history; return whether all of it was judged."""
    judgement = judge(history, Log())
    if judgement.answer is Answer.VIOLATED:
        raise Violation("Linearizable", f"{judgement.partition}: {judgement.detail}")
    return judgement.answer is Answer.LINEARIZABLE
