"""Reshard: which group gets which instances, and the records by which it gets them. Pure.

``viewstamp.fork.reshard`` writes the records behind the log of each group of a stopped cluster (docs/design/0027).

| record | in group 0 | in another group |
| --- | --- | --- |
| RESHARD_ACTOR | the slots belong to these groups; instances of the actor leave | instances that it does \
not own leave it |
| INSTANCES | none | instances come from other groups, byte for byte |

So a state is a function of its log, as ever: a member that begins with an older snapshot, or with the whole log,
gets the same state. Neither record is ever admitted: a client or a leader cannot write one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from viewstamp.actors.replicated import ActorHost
from viewstamp.errors import CorruptionError, OutdatedCodeError, RequestError
from viewstamp.ids import GROUP_0, GroupId
from viewstamp.streams.state import State
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.resharding import PackedInstance, decode_instances, encode_reshard
from viewstamp.wire.spread_actors import SpreadActor

__all__ = ["STATE_BYTES_MAX", "HeldInstances", "apply_resharding", "arrivals", "check_owners", "reshards", "version_of"]

STATE_BYTES_MAX = 32 * 1024 * 1024
"""The largest state that moves, because a record has to fit into a frame of 64 MiB."""


@dataclass(frozen=True, slots=True)
class HeldInstances:
    """The instances of one actor in one group, in the order of their first commands there.

    ``version`` is the highest version of a command that the group has carried out for the actor; 0 = callers named it
    without its class. ``state_sum`` is ``ActorHost.state_sum``.
    """

    version: int
    instances: list[PackedInstance]
    state_sum: int


def version_of(name: str, held: Mapping[GroupId, HeldInstances]) -> int:
    """Return the highest version of a command of an actor, which all groups with instances must have.

    An instance of a group with a lower one is in a state that older code has left. The group has not carried out a
    command of the new version yet, and the first one may change how states look.

    Raises:
      RequestError: they have several.
    """
    versions = {group: each.version for group, each in held.items() if each.instances}
    newest = max(versions.values(), default=0)
    behind = sorted(group for group, version in versions.items() if version < newest)
    if behind:
        raise RequestError(
            f"actor {name!r} has had calls of version {newest} of its class, and not yet in"
            f" {_listed(behind)}: {', '.join(f'version {versions[group]}' for group in behind)}; nothing was written",
            remedy="start the old cluster, call an instance of each of these groups with the new code, and repeat the"
            " command",
        )
    return newest


def check_owners(held: Mapping[GroupId, HeldInstances], name: str, group_of: Callable[[str], GroupId]) -> None:
    """Check that each instance is in the group that owns it, so in one only. Raises CorruptionError."""
    for group, each in held.items():
        for instance in each.instances:
            if group_of(instance.key) != group:
                raise CorruptionError(
                    f"{name}[{instance.key!r}] is in group {group}, and group {group_of(instance.key)} owns it",
                    expected=f"the instance in group {group_of(instance.key)}",
                    found=f"in group {group}",
                    remedy="keep these files, and report this as a bug; the directories may be of different moments",
                )


def arrivals(actor: SpreadActor, held: Mapping[GroupId, HeldInstances]) -> dict[GroupId, list[PackedInstance]]:
    """Return the instances that come to each group from others, given those of all old groups.

    They are in the order of the old groups, and in each of these in the order of their first commands.

    Raises:
      RequestError: a state is too large for a record.
    """
    coming: dict[GroupId, list[PackedInstance]] = {}
    for group, each in sorted(held.items()):
        for instance in each.instances:
            owner = actor.group_of(instance.key)
            if owner == group:
                continue
            if len(instance.state) > STATE_BYTES_MAX:
                raise RequestError(
                    f"the state of {actor.name}[{instance.key!r}] has {len(instance.state):,} bytes, and one that moves"
                    f" may have {STATE_BYTES_MAX:,}; nothing was written",
                    remedy="make the state smaller, for example by keeping records in a topic",
                )
            coming.setdefault(owner, []).append(instance)
    return coming


def reshards(actors: Iterable[SpreadActor]) -> Iterator[Batch]:
    """Yield the RESHARD_ACTORs, which stand in each log before its INSTANCES."""
    for actor in actors:
        yield encode_reshard(actor.name, actor.slots, actor.groups)


def apply_resharding(batch: Batch, state: State, actors: ActorHost, group: GroupId) -> None:
    """Apply a committed RESHARD_ACTOR or INSTANCES to the state of ``group``. Closes an open cut of the instances.

    Raises:
      CorruptionError: the record is malformed, or contradicts the state.
      OutdatedCodeError: this member's code does not have the actor, or has an older version of it.
    """
    try:
        if batch.kind is Kind.INSTANCES:
            name, version, instances = decode_instances(batch)
            actors.take(batch, name, version, instances)
            state.note(batch.kind, len(instances))
            return
        if group == GROUP_0 and not state.placements.is_used:
            raise RequestError("there is no group but group 0")
        actor = state.spread_actors.reshard(batch, state.placements)
    except OutdatedCodeError:
        raise
    except RequestError as error:
        raise CorruptionError(
            f"{batch!r}: {error.message}",
            path="the log",
            expected=f"a {batch.kind.name} as a reshard writes it",
            found=brief_repr(batch.values()[0][:64]),
            remedy="stop the node, keep its files, and reshard the files of the old cluster again",
        ) from error
    removed = actors.keep(actor.name, lambda key: actor.group_of(key) == group, end=int(batch.end))
    state.note(batch.kind, removed, *actor.groups)
    if group == GROUP_0:
        state.access.note(
            batch, "actor reshard", f"{actor.name}: groups {_listed(actor.groups)}", by="owner of the files"
        )


def _listed(groups: Iterable[int]) -> str:
    return ", ".join(map(str, groups))
