"""The committed batches of sinks over streams that are not visible yet, as the state of group 0 has them. Pure.

A COMMIT_PARTS decides about a batch whose records are staged in several groups. The leaders of the groups then *place*
the parts: their records get local positions. When all are placed, one ORDER *releases* the commit: it moves each of its
streams over its part, so that readers by position see all of the batch or nothing.

| an ORDER that names a commit | effect |
| --- | --- |
| that is not pending: doubled, or late | the ORDER is as one that does not name it |
| that is pending, with the ends of all its streams, each beyond the records of the commit | it is released |
| with fewer streams, an end that is too low, a stream that cannot be ordered, or before an earlier pending commit of \
one of its streams | the ORDER is refused as a whole |

A sealed stream does not count, because it is never ordered further. The groups place the parts of a stream in the order
of the commits, so the first pending commit of a stream is the first in the stream.

What an ORDER without commits may pass is decided by the reports: the leader of a group reports a stream up to its first
placed part that is not released (``node/sink_parts.py``). docs/design/log-streams/SpreadSinks.tla specifies all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from viewstamp.errors import OverloadedError, RequestError
from viewstamp.ids import GroupId, Position, Stream
from viewstamp.node.sink_part_queries import PendingPart
from viewstamp.wire.ordering import StreamReport
from viewstamp.wire.sink_parts import STREAMS_MAX, PartsCommit, read_parts

__all__ = ["PENDING_MAX", "SpreadCommits"]

PENDING_MAX = 256
"""A leader admits no further commit when so many are not visible."""


class SpreadCommits:
    """The pending commits, by their indices, which rise.

    Invariants:
      * the streams of a pending commit are ordered up to its parts at most
    """

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending: dict[int, PartsCommit] = {}

    def check(self, commit: PartsCommit, topics: Collection[Stream], sealed: Collection[Stream]) -> None:
        """Check the streams of a commit. Raises RequestError."""
        for stream in commit.counts:
            if stream not in topics or stream in sealed:
                raise RequestError(
                    f"{stream.name!r} in group {stream.group} is {'a sealed' if stream in sealed else 'no'} stream of a"
                    " topic; nothing was committed",
                    remedy="begin another attempt, and stage again",
                )

    def check_room(self) -> None:
        """Raise OverloadedError if too many commits are pending."""
        if len(self.pending) >= PENDING_MAX:
            raise OverloadedError(
                f"{len(self.pending)} batches of sinks are committed and not visible yet, which is the limit; this one"
                " was not committed",
                remedy="look for a group without a leader: `viewstamp group list`; then try again",
            )

    def add(self, index: int, commit: PartsCommit) -> None:
        """Add a commit, at the index of its record."""
        self.pending[index] = commit

    def is_pending(self, sink: str) -> bool:
        """Return whether a batch of a sink is committed and not visible yet."""
        return any(commit.sink == sink for commit in self.pending.values())

    def attempts(self) -> set[int]:
        """Return the attempts of all pending commits."""
        return {part.attempt for commit in self.pending.values() for part in commit.parts}

    def parts_of(self, group: GroupId) -> tuple[PendingPart, ...]:
        """Return the parts of a group, in the order of their commits."""
        return tuple(
            PendingPart(index, commit.sink, part)
            for index, commit in self.pending.items()
            for part in commit.parts
            if part.group == group
        )

    # The release.

    def releasable(
        self,
        ends: Mapping[tuple[int, Stream], Position],
        ordered_end: Callable[[Stream], Position],
        sealed: Collection[Stream],
    ) -> dict[int, dict[Stream, Position]]:
        """Return the commits that one ORDER can release now, with its ends of their streams.

        Args:
          ends: the ends of the parts of commits in streams that are known.
          ordered_end: returns the ordered end of a stream.
          sealed: the streams that are not ordered further.
        """
        found: dict[int, dict[Stream, Position]] = {}
        taken: set[Stream] = set()
        room = STREAMS_MAX
        for index, commit in self.pending.items():
            streams = commit.counts.keys() - sealed
            known = {stream: ends[index, stream] for stream in streams if (index, stream) in ends}
            is_next = taken.isdisjoint(streams)
            taken |= streams
            is_whole = all(
                stream in known and known[stream] >= ordered_end(stream) + commit.counts[stream] for stream in streams
            )
            if is_next and is_whole and known and len(known) <= room:
                found[index] = known
                room -= len(known)
        return found

    def check_release(
        self,
        commits: Iterable[int],
        reports: Iterable[StreamReport],
        ordered_end: Callable[[Stream], Position],
        sealed: Collection[Stream],
        moves: Callable[[StreamReport], bool],
    ) -> None:
        """Check that an ORDER can release ``commits``. Raises RequestError.

        Args:
          commits: the commits that it names.
          reports: its ends.
          ordered_end: as of :meth:`releasable`.
          sealed: as of :meth:`releasable`.
          moves: returns whether an end moves its stream.
        """
        moved = {report.stream: report for report in reports if moves(report)}
        ends = {(index, stream): report.end for index in commits for stream, report in moved.items()}
        releasable = self.releasable(ends, ordered_end, sealed)
        for index in commits:
            if index in self.pending and index not in releasable:
                raise RequestError(
                    f"an ORDER that would make a part of commit {index} visible, and not all of it; it has no effect",
                    remedy="run the same release on all nodes",
                )

    def release(self, commits: Iterable[int]) -> list[int]:
        """Remove commits that an ORDER has released, and return those that were pending."""
        return [index for index in commits if self.pending.pop(index, None) is not None]

    # Images.

    def image(self) -> list[object]:
        """Return the commits as plain values."""
        return [[index, *commit[:4], [part.pack() for part in commit.parts]] for index, commit in self.pending.items()]

    @classmethod
    def from_image(cls, image: list[Any], topics: Collection[Stream]) -> SpreadCommits:
        """Rebuild the commits from :meth:`image`. Raises ValueError or TypeError if it breaks an invariant."""
        commits = cls()
        last = 0
        for index, sink, owner, run, number, packed in image:
            commit = PartsCommit(sink, owner, run, number, read_parts(packed))
            if type(index) is not int or index <= last or not commit.counts.keys() <= set(topics):
                raise ValueError(f"commit {index} after {last}, with the streams {list(commit.counts)}")
            commits.pending[index] = commit
            last = index
        return commits
