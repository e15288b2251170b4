"""Brings the logs in step that are left of several groups, for a fork of the survivors. Blocking; writes nothing.

``streams/recovering.py`` decides. Here its two inputs are read: the state at the end of each log, and what the log
still has of what the state has forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from viewstamp.errors import CorruptionError, RequestError
from viewstamp.fork.judge import ForkSource
from viewstamp.host.interfaces import Disk
from viewstamp.ids import GlobalPosition, GroupId, Stream
from viewstamp.replay.read import ExtentReader
from viewstamp.replay.visible import load_snapshot
from viewstamp.streams.ledger import Ledger
from viewstamp.streams.order import decode_order
from viewstamp.streams.recovering import OldGroup, OldHome, RecoveryPlan, plan_recovery
from viewstamp.streams.state import State
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.ordering import GlobalRun
from viewstamp.wire.sink_parts import attempt_of, is_part
from viewstamp.wire.staged import decode_fields

__all__ = ["GroupsRecovery", "LostInstances", "OldGroupReader", "OldHomeReader", "plan_groups", "read_log"]

ReaderT = TypeVar("ReaderT", bound="_Reader")


@dataclass(frozen=True, slots=True)
class LostInstances:
    """A spread actor of which instances are lost, because nothing is left of these groups."""

    actor: str
    groups: tuple[GroupId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsRecovery:
    """What happens to the groups: the plan about streams and sinks, and the actors that lose instances."""

    plan: RecoveryPlan
    actors: tuple[LostInstances, ...]


def plan_groups(disk: Disk, source: ForkSource, on_bytes: Callable[[int], None] = lambda _: None) -> GroupsRecovery:
    """Plan how the groups of ``source`` go on together; it has the records behind those of the fork then.

    Args:
      disk: the disk with all directories.
      source: the judged logs of the survivors, with groups.
      on_bytes: called now and then with the bytes of the logs that were applied since the last call.

    Raises:
      CorruptionError: the files are damaged, or those of two clusters.
      RequestError: a topic cannot get a further stream; the message says what to do.
    """

    def home_reader(state: State) -> OldHomeReader:
        reader = OldHomeReader(state)
        reader.known_end = source.commit_end
        return reader

    home = read_log(disk, source, home_reader, on_bytes)
    groups: dict[GroupId, OldGroup | None] = {}
    for each in source.groups:
        groups[each.placed.id] = None
        if not each.is_lost:
            read = read_log(disk, each.source, OldGroupReader, on_bytes)
            groups[each.placed.id] = OldGroup(read.state, read.released)
    plan = plan_recovery(OldHome(home.state, home.runs, home.known), groups)
    source.behind = plan.behind_home
    for each in source.groups:
        each.source.behind = _Behind(plan, each.placed.id)
    lost = {group for group, old in groups.items() if old is None}
    actors = (
        LostInstances(actor.name, tuple(group for group in actor.groups if group in lost))
        for actor in home.state.spread_actors.actors.values()
    )
    return GroupsRecovery(plan=plan, actors=tuple(each for each in actors if each.groups))


@dataclass(frozen=True, slots=True)
class _Behind:
    """Yields the records of one group behind those of the fork, for each of its members anew."""

    plan: RecoveryPlan
    group: GroupId

    def __call__(self) -> list[Batch]:
        return list(self.plan.behind_group(self.group))


class _Reader:
    """Applies a log, from a state on."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._ledger = Ledger(state)

    def take(self, batch: Batch) -> None:
        """Apply the next batch."""
        with suppress(RequestError):  # A replicated refusal, as each member decided.
            self._ledger.apply(batch)


class OldHomeReader(_Reader):
    """Reads group 0. ``runs`` has all runs that its log gives, also those that the state has forgotten since."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.runs: dict[Stream, list[GlobalRun]] = {}
        self.known: dict[str, GlobalPosition] = {}
        """The next positions of all topics before the first batch that is not known to be committed."""
        self.known_end = 1 << 62
        """The end of what is known to be committed."""
        self._begin()

    def _begin(self) -> None:
        self.runs = {}
        for stream, run in self.state.order.runs():
            self.runs.setdefault(stream, []).append(run)

    def take(self, batch: Batch) -> None:
        """Apply the next batch."""
        state = self.state
        if not self.known and batch.end > self.known_end:
            self.known = {topic: state.order.next_position(topic) for topic in state.spread.topics}
        super().take(batch)
        match batch.kind:
            case Kind.ORDER:
                for stream in _moved(batch):
                    run = state.order.newest_run(stream)
                    known = self.runs.setdefault(stream, [])
                    if run is not None and (not known or known[-1].end < run.end):
                        known.append(run)
            case Kind.FORK | Kind.RECOVER_ORDER:  # What was given before may belong to other records now.
                self._begin()
            case Kind.SPREAD_ACTOR:
                with suppress(RequestError):
                    state.spread_actors.apply(batch, state.placements, lambda _: 0)
            case Kind.RESHARD_ACTOR:
                state.spread_actors.reshard(batch, state.placements)


class OldGroupReader(_Reader):
    """Reads another group. ``released`` has the attempts whose placed parts its log forgets."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.released: set[int] = set()

    def take(self, batch: Batch) -> None:
        """Apply the next batch."""
        if batch.kind is Kind.FORGET_SINK:
            (name,) = decode_fields(batch, name=str)
            sink = self.state.staging.sinks.get(name)
            if is_part(name) and sink is not None and sink.batch >= 0:
                self.released.add(attempt_of(name))
        super().take(batch)


def _begin(disk: Disk, source: ForkSource) -> tuple[State, int]:
    """Return the state from which a log is applied, and the index: the oldest one, because later ones forget more."""
    if source.start == 1:
        return State(), 1
    damage: CorruptionError | None = None
    for snapshot in reversed(source.snapshots):
        try:
            return load_snapshot(disk, snapshot), int(snapshot.meta.end)
        except CorruptionError as error:
            damage = error
    assert damage is not None, "a log that begins above index 1 is judged with its snapshot"
    raise damage


def read_log(
    disk: Disk,
    source: ForkSource,
    make: Callable[[State], ReaderT],
    on_bytes: Callable[[int], None] = lambda _: None,
) -> ReaderT:
    """Return a reader that has applied the whole log. Raises as :func:`plan_groups`."""
    state, begin = _begin(disk, source)
    found = make(state)
    with ExtentReader(disk) as reader:
        for batch in source.batches(reader):
            if batch.first_index >= begin:
                found.take(batch)
            on_bytes(batch.size)
    return found


def _moved(batch: Batch) -> set[Stream]:
    """Return the streams that an ORDER names."""
    with suppress(RequestError):
        return {report.stream for report in decode_order(batch)}
    return set()
