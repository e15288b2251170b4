"""Parts of batches of sinks: the leader of a group places what group 0 has committed, and drops what it never will.

An attempt at a batch stages a part in each group whose streams get its records. Group 0 decides about the attempt; the
leader of the group acts on the applied states of both groups on its node:

| the attempt, in the state of group 0 | the part, in the state of the group | the leader |
| --- | --- | --- |
| not known yet, because this state is older; or not committed | open, or sealed | keeps it |
| committed, and not released | sealed | proposes COMMIT, which gives its records local positions. Those of an \
earlier commit come first |
| committed, and not released | placed | reports where it ends, and its stream only up to its first record |
| over: it can never be committed, or its commit was released | any | proposes FORGET_SINK, which drops it, or \
forgets where it was placed |

The state of group 0 may lag. An attempt that is over stays so, and what was committed and released was placed before,
in this log. So a record that was proposed by an old state has no effect, or the one that is right.

| event | effect |
| --- | --- |
| the leader of the group changes, or dies at any line | the next leader compares the two states again |
| COMMIT or FORGET_SINK is lost | proposed again |
| ... is doubled, or comes from two leaders | the part is placed, or gone: no effect |
| a report is lost, doubled or late | it is repeated, and true for ever |
| the look after a decision or a release does not come, or comes twice | the next round looks; what was \
proposed is not proposed again before its answer |
| the group has no majority | the commit is not released; its streams stand still in the order from its parts on |
| group 0 has no majority | nothing is decided, so all is kept |
| the clock jumps | nothing depends on it |

The state of the group lacks no part of a commit that the state of group 0 has, because the seal of the part was
answered before: by this leader, which had applied it, or in an earlier term, and a leader proposes nothing before it
has applied everything of earlier terms. So a part that is not here was placed and forgotten.

Why the earlier commit comes first: an ORDER releases all streams of a commit at once, and passes over what lies before
its parts. Two commits in different orders in two streams would wait for each other for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from viewstamp.errors import ViewstampError
from viewstamp.host.logger import Logger
from viewstamp.ids import GroupId, Position, Stream
from viewstamp.node.group import Group
from viewstamp.node.order_queries import StreamReportsQuery
from viewstamp.node.sink_part_queries import (
    GroupPart,
    GroupPartsQuery,
    PartFates,
    PartFatesQuery,
    PendingPart,
)
from viewstamp.node.state_machine import Result
from viewstamp.wire.batch import Batch
from viewstamp.wire.ordering import PlacedPart, StreamReport
from viewstamp.wire.sink_parts import encode_drop, encode_place

__all__ = ["SinkParts"]


class SinkParts:
    """Places and drops the parts of the groups that this node leads. It keeps nothing but what it has proposed.

    Invariants:
      * for each part at most one record of this node has no answer yet
    """

    def __init__(self, group: Group, *, on_change: Callable[[Group], None], log: Logger) -> None:
        """Prepare.

        Args:
          group: group 0 of this node.
          on_change: called with a group when a part of it was placed, in the turn of its answer.
          log: the logger of the node.
        """
        self._group = group
        self._on_change = on_change
        self._logger = log
        self._proposed: set[tuple[GroupId, int]] = set()
        """The parts with a record that has no answer yet, by their attempts."""
        self._pending: dict[GroupId, tuple[PendingPart, ...]] = {}
        """The pending parts of each group that has some, when it was last looked at."""

    def look(self, hosted: Group) -> tuple[list[StreamReport], list[PlacedPart]]:
        """Propose what a group that this node leads lacks; return what it can report about its streams and parts."""
        for attempt, record in lacking_records(*self._read(hosted)):
            self._propose(hosted, attempt, record)
        return self.reports(hosted)

    def reports(self, hosted: Group) -> tuple[list[StreamReport], list[PlacedPart]]:
        """Return what this node can report about the streams and the parts of a group, which it need not lead."""
        parts, fates = self._read(hosted)
        reports = cut_reports(hosted.machine.query(StreamReportsQuery(hosted.id)), parts, fates)
        return reports, placed_parts(hosted.id, parts, fates)

    def have_changed(self) -> bool:
        """Return whether group 0 has other pending parts than when their groups were looked at."""
        query = self._group.machine.query
        return any(query(PartFatesQuery(group, ())).pending != known for group, known in self._pending.items())

    def forget(self) -> None:
        """Forget what was pending, before the groups that this node leads now are looked at again."""
        self._pending.clear()

    def _read(self, hosted: Group) -> tuple[dict[int, GroupPart], PartFates]:
        parts = {part.attempt: part for part in hosted.machine.query(GroupPartsQuery())}
        fates = PartFates(frozenset(), ())
        if parts:
            fates = self._group.machine.query(PartFatesQuery(hosted.id, tuple(parts)))
        if fates.pending:
            self._pending[hosted.id] = fates.pending
        else:
            self._pending.pop(hosted.id, None)
        return parts, fates

    def _propose(self, hosted: Group, attempt: int, record: Batch) -> None:
        place = hosted.id, attempt
        if place in self._proposed:
            return

        def answer(result: Result | ViewstampError) -> None:
            self._proposed.discard(place)
            if isinstance(result, ViewstampError):
                self._logger.warning("! part of a batch", group=hosted.id, attempt=attempt, error=str(result))
            else:
                self._on_change(hosted)

        with suppress(ViewstampError):
            self._proposed.add(place)
            hosted.propose(record, answer)
            return
        self._proposed.discard(place)


def lacking_records(parts: dict[int, GroupPart], fates: PartFates) -> list[tuple[int, Batch]]:
    """Return the records that a group lacks, each with its attempt.

    They drop the parts of attempts that are over, and place those of the first commit that has any that is not placed.

    Args:
      parts: the parts in the state of the group, by their attempts.
      fates: what group 0 has decided about them.
    """
    records = [(attempt, encode_drop(attempt)) for attempt in sorted(fates.over)]
    commit = 0
    for each in fates.pending:
        part = parts.get(each.part.attempt)
        if part is not None and not part.is_placed and commit in (0, each.commit):
            commit = each.commit
            records.append((part.attempt, encode_place(each.part, each.sink)))
    return records


def cut_reports(reports: list[StreamReport], parts: dict[int, GroupPart], fates: PartFates) -> list[StreamReport]:
    """Return reports up to the first record of each stream that belongs to a placed part that is not released.

    What a stream has in its map was ordered before, so it is not cut off.
    """
    held: dict[str, int] = {}
    for part in parts.values():
        if part.is_placed and part.attempt not in fates.over:
            for name, first, _ in part.ranges:
                held[name] = min(first, held.get(name, first))
    return [
        each._replace(end=Position(max(min(each.end, held[each.stream.name]), each.mapped)), is_sealed=False)
        if each.stream.name in held
        else each
        for each in reports
    ]


def placed_parts(group: GroupId, parts: dict[int, GroupPart], fates: PartFates) -> list[PlacedPart]:
    """Return where the commits end whose parts in this group are all placed."""
    ends: dict[int, dict[str, int]] = {}
    lacking: set[int] = set()
    for each in fates.pending:
        part = parts.get(each.part.attempt)
        if part is None or not part.is_placed:
            lacking.add(each.commit)
            continue
        of_commit = ends.setdefault(each.commit, {})
        for name, first, count in part.ranges:
            of_commit[name] = max(first + count, of_commit.get(name, 0))
    return [
        PlacedPart(Stream(group, name), commit, Position(end))
        for commit, of_commit in ends.items()
        if commit not in lacking
        for name, end in of_commit.items()
    ]
