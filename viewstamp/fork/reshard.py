"""Reshard: a fork of a stopped cluster after which its actors' instances live in another number of groups. Blocking.

The order is that of a fork (``fork.py``), with three more steps:

1. after the judgement: the state of each group is computed with the actors' code, and checked;
2. each new log has, behind the records of the fork, a RESHARD_ACTOR for each actor, and then the INSTANCES that come
   from other groups (``streams/resharding.py``). Group 0 has the records of the new groups before them;
3. when all new files are complete, and before the fork is decided: the states are computed again, from the new files
   alone, and compared with the old ones.

The instances of all groups are in memory, packed, from step 1 to step 3. A node has them in memory too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from viewstamp.actors.replicated import ReplicatedActor
from viewstamp.errors import CorruptionError, OutdatedCodeError, RequestError, UnknownActorError
from viewstamp.fork.fork import NewMember
from viewstamp.fork.judge import ForkSource, GroupSource, judge_source
from viewstamp.fork.states import state_at_end
from viewstamp.host.interfaces import Disk
from viewstamp.ids import GROUP_0, GroupId, Index
from viewstamp.node.actor_owners import SpreadActorsQuery
from viewstamp.node.placement_queries import PlacedGroup
from viewstamp.streams.placement import FOUNDERS_MAX, GROUPS_MAX
from viewstamp.streams.resharding import HeldInstances, arrivals, check_owners, reshards, version_of
from viewstamp.streams.spread_actors import ACTOR_GROUPS_MAX
from viewstamp.wire.batch import Batch
from viewstamp.wire.resharding import PackedInstance, encode_instances
from viewstamp.wire.spread_actors import SpreadActor
from viewstamp.wire.spreading import SLOTS

__all__ = ["MovedActor", "Reshard", "plan_reshard"]

HeldByActor = dict[str, dict[GroupId, HeldInstances]]
Classes = Mapping[str, type[ReplicatedActor]]
_RECORDS_OF_FORK = 2
"""MEMBERSHIP and FORK, before the records of the new groups."""


@dataclass(frozen=True, slots=True)
class MovedActor:
    """What a reshard does with one actor: the groups before and after, its instances, and those that change the group.

    ``before`` is (0,) for an actor of group 0.
    """

    name: str
    before: tuple[GroupId, ...]
    after: tuple[GroupId, ...]
    instances: int
    moved: int


@dataclass(slots=True, kw_only=True)
class Reshard:
    """A plan: :func:`viewstamp.fork.fork` takes its ``source`` and its ``check``.

    Attributes:
      source: the logs of the old cluster, and what comes behind them; also the new groups.
      actors: the actors whose groups change, as the new cluster has them.
      moved: the same in numbers.
      new_groups: the ids of the groups that the old cluster does not have.
    """

    source: ForkSource
    actors: list[SpreadActor]
    moved: list[MovedActor]
    new_groups: list[GroupId]
    _disk: Disk
    _classes: Classes
    _held: HeldByActor = field(repr=False)
    _owners: Mapping[str, SpreadActor]

    def check(self, staged: Sequence[str], on_bytes: Callable[[int], None] = lambda _: None) -> None:
        """Read the new files, and compare the instances in them with those of the old cluster.

        For each actor the number of instances and the sum of their digests over all groups are the same as before, and
        each instance is in the group that owns its slot. The sum alone would not see an instance in a wrong group.

        Raises:
          CorruptionError: they differ, or the new files are damaged.
        """
        found = _read(self._disk, judge_source(self._disk, staged, with_groups=True), self._classes, on_bytes)[1]
        for name in self._held | found:
            before, after = (_total(held.get(name, {}).values()) for held in (self._held, found))
            if before != after:
                raise CorruptionError(
                    f"actor {name!r} has {before[0]} instances in the old cluster and {after[0]} in the new one, and"
                    f" their states have the sums {before[1]:032x} and {after[1]:032x}; no cluster was made",
                    path=staged[0],
                    expected=f"{before[0]} instances, sum {before[1]:032x}",
                    found=f"{after[0]} instances, sum {after[1]:032x}",
                    remedy="repeat the command; if it fails again, keep the files and report this as a bug",
                )
            check_owners(found.get(name, {}), name, _owner(self._owners.get(name)))


def plan_reshard(
    disk: Disk,
    source: ForkSource,
    *,
    groups: int,
    members: Sequence[NewMember],
    classes: Classes,
    spread: Sequence[str] = (),
    on_bytes: Callable[[int], None] = lambda _: None,
) -> Reshard:
    """Compute the states of all groups, and plan the new ones; nothing is written. ``source`` becomes the plan's.

    Args:
      disk: the disk with all directories.
      source: the judged logs, with groups.
      groups: the number of groups in which the instances live in the new cluster. The established groups with the
        lowest ids are taken first, then new ones.
      members: the voters of the new cluster.
      classes: the actors, by the names in the log.
      spread: actors of group 0 that are spread over the groups too, beside those that are spread already.
      on_bytes: called now and then with the bytes of the logs that were applied since the last call.

    Raises:
      RequestError: the number is out of range, there is nothing to do, or calls of a newer version of a class have not
        reached all groups.
      UnknownActorError: an actor that is named has no instance, and is not spread.
      OutdatedCodeError: the code of an actor is missing, or older than the instances.
      CorruptionError: the files are damaged, or an instance is in a group that does not own it.
    """
    if not 1 <= groups <= ACTOR_GROUPS_MAX:
        raise RequestError(
            f"actors cannot live in {groups} groups; nothing was written",
            remedy=f"name a number from 1 to {ACTOR_GROUPS_MAX}",
        )
    known, held = _read(disk, source, classes, on_bytes)
    for name, each in held.items():
        check_owners(each, name, _owner(known.get(name)))
    placed = [each.placed for each in source.groups]
    new = _new_groups(source, members, groups - len(placed))
    chosen = sorted([*(group.id for group in placed), *(group.id for group in new)])[:groups]
    changed = _changed(dict.fromkeys([*known, *spread]), known, held, chosen)
    coming = {each.name: arrivals(each, held.get(each.name, {})) for each in changed}
    moved = [
        MovedActor(
            each.name,
            known[each.name].groups if each.name in known else (GROUP_0,),
            each.groups,
            _total(held.get(each.name, {}).values())[0],
            sum(map(len, coming[each.name].values())),
        )
        for each in changed
    ]
    versions = {each.name: version_of(each.name, held.get(each.name, {})) for each in changed}
    source.groups += [GroupSource(group, ForkSource.empty(source.cluster), is_new=True) for group in new]
    logs = [(GROUP_0, source), *((each.placed.id, each.source) for each in source.groups)]
    begin_time = 1 + max(log.last_log_time for _, log in logs)
    for group, log in logs:
        log.begin_time = begin_time
        log.behind = partial(_behind, group, changed, coming, versions)
    return Reshard(
        source=source,
        actors=changed,
        moved=moved,
        new_groups=[group.id for group in new],
        _disk=disk,
        _classes=classes,
        _held=held,
        _owners=known | {each.name: each for each in changed},
    )


def _read(
    disk: Disk, source: ForkSource, classes: Classes, on_bytes: Callable[[int], None]
) -> tuple[dict[str, SpreadActor], HeldByActor]:
    """Return the spread actors, and the instances of each actor in each group."""
    home = state_at_end(disk, source, GROUP_0, None, classes, on_bytes)
    spread = {actor.name: actor for actor in home.query(SpreadActorsQuery())}
    held: HeldByActor = {}

    def note(group: GroupId, machine_held: Mapping[str, HeldInstances]) -> None:
        for name, each in machine_held.items():
            held.setdefault(name, {})[group] = each

    note(GROUP_0, home.held())
    for each in source.groups:
        group = each.placed.id
        try:
            note(group, state_at_end(disk, each.source, group, home, classes, on_bytes).held())
        except OutdatedCodeError as error:
            raise OutdatedCodeError(f"group {group}: {error.message}", remedy=error.remedy) from error
    return spread, held


def _new_groups(source: ForkSource, members: Sequence[NewMember], number: int) -> list[PlacedGroup]:
    """Return the groups to add, with the ids that their records in group 0 will have."""
    placed = [each.placed for each in source.groups]
    number = max(number, 0)
    if len(placed) + number > GROUPS_MAX:
        raise RequestError(
            f"the cluster would have {len(placed) + number} groups, and the limit is {GROUPS_MAX}; nothing was written",
            remedy="name a smaller number of groups",
        )
    taken = {stream for group in placed for stream in group.streams}
    names = (name for at in itertools.count(1) if (name := f"group-{at}") not in taken)
    founders = {member.node: member.address for member in members[:FOUNDERS_MAX]}
    first, records = source.end + _RECORDS_OF_FORK, 1 + len(founders)
    return [
        PlacedGroup(GroupId(Index(first + at * records)), founders, (name,), {})
        for at, name in zip(range(number), names, strict=False)
    ]


def _changed(
    names: Iterable[str], known: Mapping[str, SpreadActor], held: HeldByActor, groups: Sequence[GroupId]
) -> list[SpreadActor]:
    """Return the actors with their new groups, without those that have them already."""
    changed = []
    for name in names:
        if name not in known and name not in held:
            raise UnknownActorError(
                f"the old cluster has no instance of an actor {name!r}, and it is not spread; nothing was written",
                remedy=f"name one of {', '.join(sorted(held)) or 'its actors; it has none'}",
            )
        actor = SpreadActor.over(0, name, SLOTS, groups)  # Also one that has another number of an earlier release.
        if name not in known or known[name].ranges != actor.ranges:
            changed.append(actor)
    if not changed:
        what = "the actors live in these groups already" if known else "no actor is spread over groups"
        raise RequestError(
            f"{what}, so there is nothing to do; nothing was written",
            remedy="name another number of groups" if known else "name the actors to spread: --spread NAME",
        )
    return changed


def _behind(
    group: GroupId,
    actors: Sequence[SpreadActor],
    coming: Mapping[str, Mapping[GroupId, Sequence[PackedInstance]]],
    versions: Mapping[str, int],
) -> Iterator[Batch]:
    """Yield the records of a reshard in the log of one group."""
    yield from reshards(actors)
    for actor in actors:
        yield from encode_instances(actor.name, versions[actor.name], coming[actor.name].get(group, ()))


def _owner(actor: SpreadActor | None) -> Callable[[str], GroupId]:
    """Return the function from a key to the group that owns the instance; None = an actor of group 0."""
    return actor.group_of if actor is not None else lambda _: GROUP_0


def _total(held: Iterable[HeldInstances]) -> tuple[int, int]:
    """Return the number of instances, and the sum of the digests of their states."""
    rows = list(held)
    return sum(len(each.instances) for each in rows), sum(each.state_sum for each in rows) % (1 << 128)
