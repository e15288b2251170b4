"""The offline replay of the disks at one instant of a run, of all machines and of some of them.

A run calls it twice: when the faults stop, where members may be down, recovering, reborn or in the middle of a change;
and at the end, where all members hold the same. A directory is read as a killed process leaves it: all written data is
there, synced or not.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from viewstamp.errors import ConfigError, NoQuorumError
from viewstamp.replay import Digest, ExtentReader, OfflineReplay
from viewstamp.sim.checkers.replays import Record, check_acknowledged, check_whole
from viewstamp.sim.checkers.replicas import Contents, Kept
from viewstamp.sim.cluster import Member
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.swarm import KEYED_TOPIC
from viewstamp.sim.violation import Violation
from viewstamp.sim.volume import Volume
from viewstamp.sim.workload import Workload
from viewstamp.sim.world import World
from viewstamp.wal.control_file import CONTROL_NAMES
from viewstamp.wire.batch import Columns
from viewstamp.wire.columns import offsets_of

__all__ = ["replay_and_compare", "replay_and_compare_all"]


def replay_and_compare(world: World, workload: Workload) -> int:
    """Replay all disks, and a random choice of them; compare the results with the clients' answers so far.

    Returns:
      how many of the two replays had a majority.

    Raises:
      Violation: a replay that claims a majority lacks an acknowledged record, or shows one that was never written.
    """
    machines = [*world.members, *world.retired]
    entropy = world.loop.entropy("replays")
    majorities = 0
    trims = world.swarm.trim_chance > 0 or world.swarm.retain_bytes > 0 or world.swarm.archives
    written = {append.value for append in workload.appends}
    written.update(value for attempt in workload.sinks.attempts for _, value in attempt.records)
    for chosen in (machines, _some(machines, entropy)):
        found = _replayed(world, chosen)
        if found is not None:
            found.pop(KEYED_TOPIC, None)  # Its records are not those of the workload.
            check_acknowledged(_names(chosen), found, _acknowledged(workload), written, trims=trims)
            majorities += 1
    return majorities


def replay_and_compare_all(world: World, contents: Contents, archived: Mapping[str, int]) -> None:
    """Replay the disks of all members, and of a random choice; compare the results with the members' final contents.

    ``archived`` has the archived ends of topics, whose earlier records may be in no file.

    Raises:
      Violation: they differ, or the members are no majority.
    """
    found = _replayed(world, world.members)
    if found is None:
        raise Violation("ReplayEqualsMembers", "all members together are no majority")
    check_whole(_names(world.members), found, contents, archived)
    chosen = _some([*world.members, *world.retired], world.loop.entropy("replays in the end"))
    found = _replayed(world, chosen)
    if found is not None:
        check_whole(_names(chosen), found, contents, archived)


def _acknowledged(workload: Workload) -> Iterator[Record]:
    for append in workload.appends:
        if append.position:
            yield append.topic, append.position, append.value
    for commit in workload.sinks.commits:
        if commit.answer is None or commit.answer.duplicate:
            continue  # A duplicate is answered with the records of another COMMIT.
        for taken in commit.answer.ranges or ():
            for position, value in enumerate(commit.records_of(taken.topic), taken.first_position):
                yield taken.topic, position, value


def _some(machines: list[Member], entropy: random.Random) -> list[Member]:
    return entropy.sample(machines, entropy.randint(1, len(machines)))


def _names(machines: Iterable[Member]) -> str:
    return ", ".join(str(machine.id) for machine in machines)


def _replayed(world: World, machines: Sequence[Member]) -> dict[str, Kept] | None:
    """Return the contents that a replay of the machines' disks shows; None = the replay refuses them.

    It has to refuse them if they are no majority, or if one has a segment of another log. It may refuse them if one is
    damaged and a member is missing, because only that member may have the committed records that the damaged one lost.

    Raises:
      Violation: it accepts a segment of another log.
    """
    disk = SimulatedDisk("replay")
    disk.volume = Volume.joined(machine.disk.volume for machine in machines)
    paths = [machine.data_dir for machine in machines]
    paths = [path for path in paths if any(disk.exists(f"{path}/{name}") for name in (*CONTROL_NAMES, "wal"))]
    if not paths:
        return None
    foreign = [machine.foreign_path for machine in machines if machine.foreign_path is not None]
    try:
        replay = OfflineReplay.open(disk, paths)
    except NoQuorumError:
        return None
    except ConfigError as error:
        if any(machine.complains_of_foreign(error) for machine in machines):
            return None
        raise
    if foreign:
        raise Violation("ForeignRefused", f"a replay takes {foreign} for the log of {_names(machines)}")
    if replay.problem is not None:
        if any(machine.id in world.damages for machine in machines) and not _is_everyone(world, machines, replay):
            return None
        raise Violation("ReplayIsPossible", f"of {_names(machines)}: {replay.problem}")
    return _contents(disk, replay)


def _is_everyone(world: World, machines: Sequence[Member], replay: OfflineReplay) -> bool:
    """Return whether the replay counts every member, apart from damaged ones.

    In interval mode it does not count a member that was running, because files do not show whether that lost power.
    """
    uncounted = {
        replica.directory
        for replica in replay.replicas
        if any(finding.kind == "recovering" for finding in replica.findings)
    }
    missing = [
        member
        for member in world.members
        if member not in machines or (member.data_dir in uncounted and member.id not in world.damages)
    ]
    return not missing


def _contents(disk: SimulatedDisk, replay: OfflineReplay) -> dict[str, Kept]:
    found: dict[str, Kept] = {}
    with ExtentReader(disk) as reader:
        for run, columns in replay.runs(reader, Digest()):
            kept = found.get(run.topic)
            if kept is None:
                kept = found[run.topic] = Kept(run.position, [], [])
            if kept.first + len(kept.values) != run.position:
                raise Violation("PositionsHaveNoGap", f"a replay shows {run} after {kept.first + len(kept.values) - 1}")
            kept.values.extend(_values(columns))
            kept.times.extend([run.log_time] * columns.count)
    return found


def _values(columns: Columns) -> list[bytes]:
    data = bytes(columns.values.data)
    return [data[start:end] for start, end in pairwise(offsets_of(columns.values))]
