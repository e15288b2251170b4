"""Plans a replay: the batches that readers of the cluster would have seen, in the order in which they became visible.

A batch of RECORDS is visible at its own place. Staged batches are visible at the place of the COMMIT that names them,
in its order, with its log time. So the log is applied to topics and sinks as every member applied it
(``streams/ledger.py``): from an empty state if the log is complete from its first record on, else from a snapshot.

Below that snapshot, positions are counted backwards from the topics in the snapshot, and checked against the headers
and the topics' sparse maps. The retention at the end of the log decides how far back, because members delete log as
soon as a trim is applied, with or without a snapshot since. So a lost piece that held no retained record is no loss.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from viewstamp.errors import CorruptionError, RequestError
from viewstamp.host.interfaces import Disk
from viewstamp.ids import Position, TopicId
from viewstamp.node.archive_queries import note_archived
from viewstamp.node.placement_queries import PlacedGroup
from viewstamp.node.snapshots.file import read_header, read_pieces
from viewstamp.replay.chain import Chain, Gap
from viewstamp.replay.headers import HEADER_ONLY
from viewstamp.replay.replica import ReplicaFinding, Snapshot
from viewstamp.streams.cut import load_state
from viewstamp.streams.ledger import Ledger
from viewstamp.streams.state import State
from viewstamp.streams.topic import Topic
from viewstamp.wire.batch import HEADER_SIZE, Batch, Kind
from viewstamp.wire.staged import StagedBatch, decode_commit, entries_of

__all__ = ["ReplayPlan", "VisibleItem", "build_plan", "load_snapshot"]

_KIND_AT: Final = 52
_NOWHERE: Final = (1 << 32) - 1
"""The place of a staged batch that no replica has."""
_BEHIND_ALL: Final = 1 << 63
"""Above each position. The records of a stream that was removed are all below it: trimmed."""


class VisibleItem(NamedTuple):
    """Records to show: ``count`` records of a batch, after its first ``skip``.

    ``place`` is that of the batch in the chain; ``first_position`` that of the first record shown; ``log_time`` in
    microseconds since 1970.
    """

    topic: int
    first_position: int
    skip: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which an item does not need
    log_time: int
    place: int


@dataclass(slots=True)
class ReplayPlan:
    """The items in order of visibility, as columns. ``topics`` has the names by id of all topics in the log.

    The first ``known_committed`` items became visible at indices that are known to be committed. ``commands`` counts
    calls of actors, which a replay does not run.
    """

    chain: Chain
    topics: dict[int, str] = field(default_factory=dict)
    known_committed: int = 0
    commands: int = 0
    findings: list[ReplicaFinding] = field(default_factory=list)
    archived: set[int] = field(default_factory=set)
    """The topics of which archived records were left out; a finding has their positions."""
    topic: array[int] = field(default_factory=lambda: array("I"))
    first_position: array[int] = field(default_factory=lambda: array("Q"))
    skip: array[int] = field(default_factory=lambda: array("I"))
    count: array[int] = field(default_factory=lambda: array("I"))
    log_time: array[int] = field(default_factory=lambda: array("q"))
    place: array[int] = field(default_factory=lambda: array("I"))
    described: list[dict[str, Any]] = field(default_factory=list)
    """The topics at the end of the log, as a backup describes them."""
    groups: list[PlacedGroup] = field(default_factory=list)
    """The established groups beside group 0, as its state has them."""
    state: State | None = None
    """The state at the end of the log, without actors."""

    def __len__(self) -> int:
        return len(self.place)

    def item(self, at: int) -> VisibleItem:
        """Return one item."""
        return VisibleItem(
            self.topic[at], self.first_position[at], self.skip[at], self.count[at], self.log_time[at], self.place[at]
        )

    def __iter__(self) -> Iterator[VisibleItem]:
        return map(self.item, range(len(self)))

    def add(self, item: VisibleItem) -> None:
        """Append an item."""
        for column, value in zip(self._columns, item, strict=True):
            column.append(value)

    @property
    def _columns(self) -> tuple[array[int], ...]:
        return self.topic, self.first_position, self.skip, self.count, self.log_time, self.place

    @property
    def records(self) -> int:
        """The number of records shown."""
        return sum(self.count)

    @property
    def bytes(self) -> int:
        """The bytes of the batches shown, headers included."""
        chain = self.chain
        total = 0
        for place in self.place:
            replica, row = chain.copy(place)
            total += chain.replicas[replica].rows.size(row)
        return total

    @property
    def not_known_committed(self) -> int:
        """The number of records that became visible at indices that no replica knew to be committed."""
        return sum(self.count[self.known_committed :])

    @property
    def shown_topics(self) -> list[str]:
        """The names of the topics with records in the plan, in order of creation."""
        return [self.topics[topic] for topic in sorted(set(self.topic))]

    def only(self, names: Sequence[str]) -> ReplayPlan:
        """Return the plan of these topics only.

        Raises:
          RequestError: a topic is not in the log.
        """
        known = {name: topic for topic, name in self.topics.items()}
        for name in names:
            if name not in known:
                raise RequestError(
                    f"the log has no topic {name!r}; it has: {', '.join(known) or 'none'}",
                    remedy="name one of them",
                )
        wanted = {known[name] for name in names}
        plan = ReplayPlan(self.chain, self.topics, 0, self.commands, self.findings, self.archived & wanted)
        for at, item in enumerate(self):
            if item.topic in wanted:
                plan.add(item)
                plan.known_committed += at < self.known_committed
        return plan


def build_plan(disk: Disk, chain: Chain) -> ReplayPlan:
    """Apply the chain and return the visible records, from the first retained position of each topic on.

    Raises:
      CorruptionError: no replica has a required index; a batch contradicts the state; or no intact snapshot reaches the
        beginning of the log.
      OutdatedCodeError: a snapshot was written by newer code.
    """
    return _Planner(disk, chain).plan()


def load_snapshot(disk: Disk, snapshot: Snapshot) -> State:
    """Return the state in a snapshot, without actors. Raises CorruptionError, OutdatedCodeError."""
    file = disk.open_read(snapshot.path)
    try:
        pieces = read_pieces(file, read_header(file))
        state = load_state(pieces)
        for _ in pieces:
            pass  # The actors' part is skipped, but only at its end the whole file is verified.
        return state
    finally:
        file.close()


class _Planner:
    """Builds a plan. ``_staged_indices`` and ``_staged_places`` are the staged batches of the chain, in order."""

    def __init__(self, disk: Disk, chain: Chain) -> None:
        self._disk = disk
        self._chain = chain
        self._plan = ReplayPlan(chain)
        self._lost: dict[tuple[int, int], CorruptionError] = {}
        """The error for each item without a place, by (topic, first position). Raised only if the item is retained."""
        self._staged_indices = array("Q")
        self._staged_places = array("I")

    def plan(self) -> ReplayPlan:
        chain, plan = self._chain, self._plan
        state, begin = self._base()
        start = self._find_staged(begin)
        next_positions = {int(id_): int(topic.next_position) for id_, topic in state.topics.items()}
        ledger = Ledger(state)
        known = 0
        for place in range(start, len(chain)):
            self._apply(ledger, place)
            if chain.link(place).end <= chain.commit_end:
                known = len(plan)
        plan.topics = {int(id_): topic.name for id_, topic in state.topics.items()}
        for dropped in state.sealed.dropped:
            next_positions.pop(dropped, None)
        plan.groups = [group for group in state.placements.groups.values() if group.is_established]
        for group in plan.groups:  # Its members may be other machines than those whose directories were named.
            text = f"the cluster also has group {group.id} on {', '.join(group.hosts)}, whose records are not read"
            self._find("other group", chain.replicas[0].directory, text)
        below = list(self._below(state, next_positions, begin, start))[::-1]
        return self._kept(state, below, known)

    # The beginning.

    def _base(self) -> tuple[State, int]:
        """Return the state from which the chain can be applied without a gap, and its index."""
        chain = self._chain
        needed = max(chain.gaps[0].end if chain.gaps else chain.begin, self._first_applicable())
        if needed == 1:
            return State(), 1
        damaged: list[str] = []
        candidates = {
            (snapshot.meta.end, snapshot.path): snapshot
            for replica in chain.replicas
            for snapshot in replica.snapshots
            if needed <= snapshot.meta.end <= chain.end
        }
        for (end, path), snapshot in sorted(candidates.items(), reverse=True):
            if (term := self._term_before(end)) not in (None, snapshot.meta.term):
                text = f"it ends in term {snapshot.meta.term}, but the log there has term {term}"
                self._find("contradiction", path, text)
                damaged.append(f"{path}: {text}")
                continue
            try:
                return load_snapshot(self._disk, snapshot), end
            except CorruptionError as error:
                self._find("damaged snapshot", path, error.message, error.location)
                damaged.append(str(error))
        gap = chain.gaps[0] if chain.gaps else Gap(1, needed)
        raise _lost(
            [gap],
            f"no intact snapshot reaches index {needed - 1}" + "".join(f"; {each}" for each in damaged),
        )

    def _first_applicable(self) -> int:
        """Return the index behind the last batch that cannot be applied because its body is damaged."""
        chain = self._chain
        if any(replica.rows.unreadable for replica in chain.replicas):
            for place in range(len(chain) - 1, -1, -1):
                replica, row = chain.copy(place)
                rows = chain.replicas[replica].rows
                if row in rows.unreadable and rows.batch(row).kind not in HEADER_ONLY:
                    return chain.link(place).end
        return 1

    def _find(self, kind: str, path: str, text: str, location: int = 0) -> None:
        self._plan.findings.append(ReplicaFinding(kind, path, location, text))

    def _term_before(self, end: int) -> int | None:
        """Return the term of the record before ``end`` in the chain; None = its batch is missing."""
        chain = self._chain
        low, high = 0, len(chain)
        while low < high:
            middle = (low + high) // 2
            if chain.link(middle).end < end:
                low = middle + 1
            else:
                high = middle
        if low < len(chain) and chain.link(low).end == end:
            return chain.link(low).term
        if low < len(chain) and chain.link(low).first_index == end:
            return chain.link(low).previous_term
        return None

    def _find_staged(self, begin: int) -> int:
        """Note the places of the staged batches, count commands; return the place of index ``begin`` in the chain."""
        chain, plan = self._chain, self._plan
        start = len(chain)
        for place in range(len(chain)):
            replica, row = chain.copy(place)
            rows = chain.replicas[replica].rows
            kind = rows.headers[row * HEADER_SIZE + _KIND_AT]
            link = rows.link(row)
            if kind == Kind.STAGED:
                self._staged_indices.append(link.first_index)
                self._staged_places.append(place)
            elif kind == Kind.COMMANDS:
                plan.commands += link.end - link.first_index
            if link.first_index >= begin and start == len(chain):
                start = place
        return start

    # Below the snapshot.

    def _below(self, state: State, next_positions: dict[int, int], begin: int, start: int) -> Iterator[VisibleItem]:
        """Yield the items below place ``start``, the last first, back to the first that ``state`` retains.

        Args:
          state: the state at the end of the chain.
          next_positions: those of the topics at index ``begin``.
          begin: the index from which the chain is applied.
          start: the place of that index in the chain.
        """
        counts = _Counts(state, next_positions)
        end = begin
        for place in range(start - 1, -1, -1):
            batch = self._batch(place)
            if batch.end < end:
                counts.pass_gap()
            end = batch.first_index
            if counts.are_complete or batch.first_index < state.first_visible:
                break
            if batch.kind is Kind.RECORDS and counts.wants(batch.topic, batch.first_index):
                if not counts.agree(batch):
                    break
                first = counts.take(batch.topic, batch.count)
                yield VisibleItem(batch.topic, first, 0, batch.count, batch.log_time, place)
            elif batch.kind is Kind.COMMIT and batch.first_index not in counts.idle:
                yield from self._below_commit(counts, batch, place)
        missing = counts.missing()
        if archived := {id_: text for id_, text, is_archived in missing if is_archived}:
            self._find_archived(archived, "; ".join(archived.values()))
        if lost := [text for _, text, is_archived in missing if not is_archived]:
            gaps = self._chain.gaps or [Gap(1, self._chain.begin)]
            raise _lost(gaps, f"they held {'; '.join(lost)}")

    def _below_commit(self, counts: _Counts, batch: Batch, place: int) -> Iterator[VisibleItem]:
        self._check_body(batch, place)
        for entry in reversed(_entries(batch)):
            if counts.wants(entry.topic, batch.first_index):
                first = counts.take(entry.topic, entry.count)
                yield VisibleItem(entry.topic, first, 0, entry.count, batch.log_time, self._staged(entry, first, batch))

    # From the snapshot on.

    def _apply(self, ledger: Ledger, place: int) -> None:
        batch = self._batch(place)
        kind = batch.kind
        if kind is Kind.COMMANDS or kind is Kind.MEMBERSHIP:
            ledger.apply(batch)
            return
        if kind is Kind.RECORDS:
            ledger.apply(batch)
            item = VisibleItem(batch.topic, batch.first_position, 0, batch.count, batch.log_time, place)
            self._plan.add(item)
            return
        entries: list[StagedBatch] = []
        next_position: dict[int, int] = {}
        try:
            if kind is Kind.COMMIT:
                entries = _entries(batch)
                topics = ledger.state.topics
                used = {TopicId(entry.topic) for entry in entries}
                next_position = {int(id_): int(topics[id_].next_position) for id_ in used if id_ in topics}
            answer = ledger.apply(batch)
        except RequestError:
            return  # Rejected, as on every member.
        commit = answer.get("commit") if answer is not None and kind is Kind.COMMIT else None
        if not isinstance(commit, dict) or commit["duplicate"]:
            return
        for entry in entries:
            first = next_position[entry.topic]
            next_position[entry.topic] = first + entry.count
            staged = self._staged(entry, first, batch)
            self._plan.add(VisibleItem(entry.topic, first, 0, entry.count, batch.log_time, staged))

    def _kept(self, state: State, below: Sequence[VisibleItem], known: int) -> ReplayPlan:
        """Return the plan with ``below`` in front, without trimmed and aged records; the rest must be readable."""
        plan, chain = self._plan, self._chain
        first = {int(id_): int(topic.first_position) for id_, topic in state.topics.items()}
        archived = {int(id_): state.runs.archived_end(topic) for id_, topic in state.topics.items()}
        for dropped in map(int, state.sealed.dropped):
            first[dropped], archived[dropped] = _BEHIND_ALL, Position(0)
        away: list[VisibleItem] = []
        holes = _ends_of_holes(itertools.chain(below, plan), first, archived)
        kept = ReplayPlan(
            chain, plan.topics, 0, plan.commands, plan.findings, plan.archived, groups=plan.groups, state=state
        )
        kept.described = [
            note_archived(topic.describe(), state.runs.archived_end(topic)) for topic in state.topics.values()
        ]
        for at, item in enumerate(itertools.chain(below, plan), -len(below)):
            skip = max(first[item.topic] - item.first_position, 0)
            if skip >= item.count:
                continue
            if item.place == _NOWHERE or item.first_position < holes.get(item.topic, 0):
                if item.first_position + item.count > archived[item.topic]:
                    raise self._lost[item.topic, item.first_position]
                away.append(item)
                continue
            replica, row = chain.copy(item.place)
            if row in chain.replicas[replica].rows.unreadable:
                link = chain.link(item.place)
                raise _lost([Gap(link.first_index, link.end)], "every copy of that batch is damaged")
            kept.add(item._replace(first_position=item.first_position + skip, skip=skip, count=item.count - skip))
            kept.known_committed += at < known
        if away:
            ranges = (
                f"positions {item.first_position} to {item.first_position + item.count - 1}"
                f" of topic {plan.topics[item.topic]!r}"
                for item in away
            )
            self._find_archived({item.topic for item in away}, "; ".join(ranges))
        return kept

    def _find_archived(self, topics: Iterable[int], what: str) -> None:
        self._plan.archived.update(topics)
        self._find(
            "archived",
            self._chain.replicas[0].directory,
            f"{what}: the log has deleted them, or records behind them, and they are in committed runs of the archive,"
            " whose files are not read here",
        )

    def _batch(self, place: int) -> Batch:
        replica, row = self._chain.copy(place)
        return self._chain.replicas[replica].rows.batch(row)

    def _check_body(self, batch: Batch, place: int) -> None:
        replica, row = self._chain.copy(place)
        if row not in self._chain.replicas[replica].rows.bodies:
            gap = Gap(batch.first_index, batch.end)
            raise _lost([gap], f"a {batch.kind.name} is there, and every copy of it is damaged")

    def _staged(self, entry: StagedBatch, first: int, commit: Batch) -> int:
        """Return the place of a staged batch whose first record gets position ``first``; ``_NOWHERE`` = it is lost.

        That may be no loss: when records are trimmed, their log is deleted, but the COMMIT may still be there.
        """
        at = bisect_left(self._staged_indices, entry.index)
        if at == len(self._staged_indices) or self._staged_indices[at] != entry.index:
            gap = Gap(entry.index, entry.index + entry.count)
            error = _lost([gap], f"the COMMIT at index {commit.first_index} made them visible")
            self._lost[entry.topic, first] = error
            return _NOWHERE
        return self._staged_places[at]


class _Counts:
    """Counts each topic's positions backwards from ``next_positions``, down to the first that ``state`` retains.

    ``next_positions`` are those of an earlier state of the same log. ``idle``: COMMITs without effect.

    Behind a gap the count of a topic may be wrong, until the header of a batch of RECORDS, or the beginning of the
    topic's sparse map, confirms it.
    """

    def __init__(self, state: State, next_positions: dict[int, int]) -> None:
        self.idle = frozenset(state.staging.idle_commits)
        self._topics: dict[int, Topic] = {int(id_): topic for id_, topic in state.topics.items()}
        self._next = next_positions
        self._begins: dict[int, tuple[int, int]] = {
            id_: self._topics[id_].locate(self._topics[id_].first_position)
            for id_, next_position in next_positions.items()
            if self._topics[id_].first_position < next_position
        }
        """The first (index, position) in the sparse map of each topic that is not completely counted yet."""
        self._archived_ends = {id_: state.runs.archived_end(self._topics[id_]) for id_ in self._begins}
        self._unsure: set[int] = set()

    @property
    def are_complete(self) -> bool:
        """Whether all retained records are counted."""
        return not self._begins

    def wants(self, topic: int, index: int) -> bool:
        """Return whether a record visible at ``index`` is retained, or shares an entry of the sparse map with one."""
        begin = self._begins.get(topic)
        return begin is not None and index >= begin[0]

    def pass_gap(self) -> None:
        """Note that batches are missing here."""
        self._unsure.update(self._begins)

    def agree(self, batch: Batch) -> bool:
        """Return whether the header of a batch of RECORDS agrees with the count; if not, retained records are lost."""
        if batch.first_position + batch.count != self._next[batch.topic]:
            return False
        self._unsure.discard(batch.topic)
        return True

    def take(self, topic: int, count: int) -> int:
        """Count ``count`` records back; return the position of the first of them."""
        self._next[topic] -= count
        if topic not in self._unsure and self._next[topic] <= self._topics[topic].first_position:
            del self._begins[topic]
        return self._next[topic]

    def missing(self) -> list[tuple[int, str, bool]]:
        """Return each topic of which retained positions were not found, these, and whether all are in committed runs.

        Behind a gap the count may be wrong, so nothing is known to be archived then.
        """
        return [
            (
                id_,
                f"positions {max(position, self._topics[id_].first_position)} to {self._next[id_] - 1}"
                f" of topic {self._topics[id_].name!r}",
                id_ not in self._unsure and self._next[id_] <= self._archived_ends[id_],
            )
            for id_, (_, position) in self._begins.items()
            if self._next[id_] != position
        ]


def _entries(batch: Batch) -> list[StagedBatch]:
    return [entry for _, packed in decode_commit(batch).parts for entry in entries_of(packed)]


def _ends_of_holes(
    items: Iterable[VisibleItem], first: Mapping[int, int], archived: Mapping[int, int]
) -> dict[int, int]:
    """Return, by topic, the end of its last archived item that the log lacks.

    Staged records are in the log long before the records that precede them, so the log may still have those. Without a
    gap only what follows can be shown.
    """
    holes: dict[int, int] = {}
    for item in items:
        end = item.first_position + item.count
        if item.place == _NOWHERE and first[item.topic] < end <= archived[item.topic]:
            holes[item.topic] = max(end, holes.get(item.topic, 0))
    return holes


def _lost(gaps: Sequence[Gap], reason: str) -> CorruptionError:
    indices = ", ".join(f"{gap.first} to {gap.end - 1}" for gap in sorted(gaps))
    return CorruptionError(
        f"no replica has indices {indices}: {reason}",
        expected=f"indices {indices}",
        found="no intact copy",
        remedy="name the directories of more members: one that has these indices is enough",
    )
