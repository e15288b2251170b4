"""The maps: which global positions the records of a group's streams have, as the state of that group has it. Pure.

The state of group 0 gives global positions (``order.py``). A CONTEXT copies runs from there into the log of the stream
to which they belong, and group 0 may forget them when it is committed. So the positions of a stream live as long as the
stream.

| a run of a CONTEXT | effect |
| --- | --- |
| begins at the end of the map | it is added, or joined to the newest run if its global positions go on there too |
| is in the map, or in one of its runs: a second copy, or one of an earlier leader | none: it is skipped |
| begins above the end of the map, or contradicts a run in it | the record is refused, and changes nothing |
| reaches beyond the last record of the stream in this log | the same, because only committed records are ordered |

A CONTEXT is never empty, and one that would change nothing is not admitted. The end of the map is state of its own, so
it stays when all records of the stream are trimmed. A run is dropped when all its records are trimmed; the newest one
and that of the last trimmed record never are, until the stream is removed.

While callers wait for positions, a stream gets hundreds of runs a second. Many of them go on where the one before ends,
because no other stream of the topic had a record between, so they are joined to one. The joined run has the newest of
their versions, so that no older run fits behind it. CONTEXTs have the runs as group 0 has given them: which of them a
map has joined depends on nothing but the log, and releases that join none agree about what fits.

A map takes 32 bytes for each run, in memory and in a snapshot. An image has columns of bytes, which are copied at once:
a list of a million runs stopped the node for two seconds. The images of releases that joined none are joined here.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from operator import add, eq, le, lt
from typing import Any

from viewstamp.errors import RequestError
from viewstamp.ids import GlobalPosition, GroupId, Position, Stream
from viewstamp.streams.order import read_runs
from viewstamp.streams.topic import Topic
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.ordering import GlobalRun
from viewstamp.wire.spreading import topic_of
from viewstamp.wire.staged import decode_known

__all__ = ["StreamMap", "StreamMaps", "decode_context"]

_FIELDS = {Kind.CONTEXT: frozenset({"stream", "runs"})}


class StreamMap:
    """The global positions of the records of one stream.

    Invariants:
      * the runs tile the local positions up to ``end``, and rise in version and in global position
      * between two runs are global positions of other streams
      * the newest run is kept
    """

    __slots__ = ("_lengths", "_locals", "_positions", "_versions", "end")

    def __init__(self) -> None:
        self.end = Position(1)
        """The local position after the last record whose global position is known here."""
        self._versions = array("Q")
        self._positions = array("Q")
        self._locals = array("Q")
        self._lengths = array("Q")

    def __len__(self) -> int:
        return len(self._locals)

    def run(self, at: int) -> GlobalRun:
        """Return the run at a place of the map."""
        local, position = Position(self._locals[at]), GlobalPosition(self._positions[at])
        return GlobalRun(self._versions[at], position, local, self._lengths[at])

    def new_runs(self, runs: list[GlobalRun]) -> list[GlobalRun]:
        """Return those of ``runs`` that the map lacks. Raises ValueError if they leave a gap, or contradict the map."""
        if runs[0].local > self.end:
            raise ValueError(f"it begins at {runs[0].local}, but the map ends at {self.end}")
        new = [run for run in runs if run.local >= self.end]
        for run in runs[: len(runs) - len(new)]:
            at = bisect_right(self._locals, run.local) - 1
            if run.end > self.end or (at >= 0 and not _is_part(run, self.run(at))):
                raise ValueError(f"{run} contradicts the map, which ends at {self.end}")
        if new and self:
            last = self.run(-1)
            if new[0].version <= last.version or new[0].position < last.position + last.length:
                raise ValueError(f"{new[0]} after {last}")
        return new

    def extend(self, runs: list[GlobalRun]) -> None:
        """Add runs that :meth:`new_runs` has returned."""
        for run in runs:
            if self and run.position == self._positions[-1] + self._lengths[-1]:
                self._versions[-1] = run.version
                self._lengths[-1] += run.length
            else:
                self._versions.append(run.version)
                self._positions.append(run.position)
                self._locals.append(run.local)
                self._lengths.append(run.length)
            self.end = run.end

    def runs_at(self, local: int, count_max: int) -> list[GlobalRun]:
        """Return the first ``count_max`` runs with the records from a local position on; [] = it is in none of them."""
        at = bisect_right(self._locals, local) - 1
        if at < 0 or local >= self.end:
            return []
        return [self.run(each) for each in range(at, min(at + count_max, len(self)))]

    def image(self) -> list[object]:
        """Return the map as four columns of little-endian numbers of 8 bytes."""
        return [_little(column).tobytes() for column in self._columns]

    @classmethod
    def from_image(cls, image: list[Any]) -> StreamMap:
        """Rebuild a map from :meth:`image`. Raises ValueError or TypeError if it breaks an invariant."""
        loaded = cls()
        for column, packed in zip(loaded._columns, image, strict=True):
            if type(packed) is not bytes:
                raise TypeError(f"a column of a map is {brief_repr(packed)}")
            column.frombytes(packed)
            column[:] = _little(column)
        versions, positions, locals_, lengths = loaded._columns
        if not len(versions) == len(positions) == len(locals_) == len(lengths) > 0:
            raise ValueError(f"a map with columns of {', '.join(str(len(each)) for each in loaded._columns)} runs")
        if not all(min(each) >= 1 and max(each) < 1 << 63 for each in loaded._columns):
            raise ValueError("a map with a number that is not in [1, 2^63)")
        if not all(map(eq, map(add, locals_, lengths), locals_[1:])):
            raise ValueError("the runs of a map leave a gap")
        if not (all(map(le, map(add, positions, lengths), positions[1:])) and all(map(lt, versions, versions[1:]))):
            raise ValueError("the runs of a map do not rise")
        if any(map(eq, map(add, positions, lengths), positions[1:])):
            unjoined, loaded = loaded, cls()
            loaded.extend([unjoined.run(at) for at in range(len(unjoined))])
        loaded.end = loaded.run(-1).end
        return loaded

    @property
    def _columns(self) -> tuple[array[int], ...]:
        return self._versions, self._positions, self._locals, self._lengths

    def trim(self, position: Position) -> None:
        """Drop the runs before that of the last record below a local position, but not the newest one.

        That run is kept because readers have to know where the trimmed records end in the order.
        """
        gone = min(bisect_right(self._locals, position - 1) - 1, len(self) - 1)
        if gone > 0:
            for column in self._columns:
                del column[:gone]

    def runs_from(self, position: int, count_max: int) -> list[GlobalRun]:
        """Return the first runs that end above a global position, rising."""
        at = max(0, bisect_right(self._positions, position) - 1)
        if at < len(self) and self._positions[at] + self._lengths[at] <= position:
            at += 1
        return [self.run(each) for each in range(at, min(at + count_max, len(self)))]

    def find_local(self, position: int) -> Position | None:
        """Return the local position of the record with a global one; None = it is in no run that is known here."""
        at = bisect_right(self._positions, position) - 1
        if at < 0 or position >= self._positions[at] + self._lengths[at]:
            return None
        return Position(self._locals[at] + position - self._positions[at])

    def first_from(self, position: int) -> Position:
        """Return the local position of the first record with a global one from ``position`` on, or else the end."""
        at = max(bisect_right(self._positions, position) - 1, 0)
        if position >= self._positions[at] + self._lengths[at]:
            return Position(self._locals[at + 1]) if at + 1 < len(self) else self.end
        return Position(self._locals[at] + max(position - self._positions[at], 0))

    def find_global(self, local: int) -> GlobalPosition | None:
        """Return the global position of a record; None as in :meth:`find_local`."""
        at = bisect_right(self._locals, local) - 1
        if at < 0 or local >= self._locals[at] + self._lengths[at]:
            return None
        return GlobalPosition(self._positions[at] + local - self._locals[at])


class StreamMaps:
    """The maps of the streams of one group, by the names of the streams. Never awaits."""

    __slots__ = ("_maps",)

    def __init__(self) -> None:
        self._maps: dict[str, StreamMap] = {}

    @property
    def is_used(self) -> bool:
        """Return whether there is anything to store: a CONTEXT was applied once."""
        return bool(self._maps)

    def check(self, batch: Batch, topics: Mapping[str, Topic]) -> list[GlobalRun]:
        """Return the runs that a CONTEXT would add; [] = it would change nothing.

        Raises:
          RequestError: the record would be refused.
          OutdatedCodeError: it has a field that this release does not know.
        """
        return self._new(*decode_context(batch), topics)

    def apply(self, batch: Batch, topics: Mapping[str, Topic]) -> list[GlobalRun]:
        """Apply a committed CONTEXT; return the runs that are new. Raises as :meth:`check`."""
        name, runs = decode_context(batch)
        new = self._new(name, runs, topics)
        if new:
            self._maps.setdefault(name, StreamMap()).extend(new)
        return new

    def _new(self, name: str, runs: list[GlobalRun], topics: Mapping[str, Topic]) -> list[GlobalRun]:
        topic = topics.get(name)
        if topic is None:
            raise _refused(f"a CONTEXT of {name!r}, which is no stream of this group")
        if runs[-1].end > topic.next_position:
            raise _refused(f"a CONTEXT up to position {runs[-1].end - 1} of {name!r}, which ends before it")
        try:
            return (self._maps.get(name) or StreamMap()).new_runs(runs)
        except ValueError as error:
            raise _refused(f"a CONTEXT of {name!r} with a run that does not fit: {error}") from error

    def trim(self, name: str, position: Position) -> None:
        """Drop the runs of a stream whose records are below ``position``, because they were trimmed."""
        if (found := self._maps.get(name)) is not None:
            found.trim(position)

    def drop(self, name: str) -> None:
        """Drop the map of a stream, because the stream was removed, or is set aside."""
        self._maps.pop(name, None)

    def get(self, name: str) -> StreamMap | None:
        """Return the map of a stream; None = it has no run yet."""
        return self._maps.get(name)

    def mapped_end(self, name: str) -> Position:
        """Return the end of the map of a stream."""
        found = self._maps.get(name)
        return found.end if found is not None else Position(1)

    def ends(self) -> Iterator[tuple[str, Position, GlobalRun]]:
        """Yield each stream with a map: its name, the end of the map, and its newest run."""
        for name, each in self._maps.items():
            yield name, each.end, each.run(-1)

    def first_from(self, name: str, position: int) -> Position:
        """Return the first local position of a stream whose global one is not below ``position``, or its map's end."""
        found = self._maps.get(name)
        return found.first_from(position) if found is not None else Position(1)

    def find(self, group: GroupId, topic: str, position: int) -> tuple[Stream, Position] | None:
        """Return the stream of ``group``, which is this one, and the local position of a global one; None = unknown.

        ``topic``: the spread topic. Each stream with a map belongs to one, so its name is enough to know which.
        """
        for name, each in self._maps.items():
            if topic_of(name) == topic and (local := each.find_local(position)) is not None:
                return Stream(group, name), local
        return None

    def find_global(self, name: str, local: int) -> GlobalPosition | None:
        """Return the global position of a record of a stream; None = unknown."""
        found = self._maps.get(name)
        return found.find_global(local) if found is not None else None

    def runs_at(self, name: str, local: int, count_max: int) -> list[GlobalRun]:
        """Return runs of a stream; as :meth:`StreamMap.runs_at`."""
        found = self._maps.get(name)
        return found.runs_at(local, count_max) if found is not None else []

    # Images.

    def image(self) -> list[object]:
        """Return the maps as plain values."""
        return [[name, each.image()] for name, each in self._maps.items()]

    @classmethod
    def from_image(cls, image: list[Any]) -> StreamMaps:
        """Rebuild the maps from :meth:`image`. Raises ValueError or TypeError if they break an invariant."""
        maps = cls()
        for name, packed in image:
            if type(name) is not str or name in maps._maps:
                raise ValueError(f"{name!r} is no stream, or stands twice")
            maps._maps[name] = StreamMap.from_image(packed)
        return maps

    def check_topics(self, topics: Mapping[str, Topic]) -> None:
        """Check that the maps are those of ``topics``. Raises ValueError: a start would find damage (B0, line 5)."""
        for name, each in self._maps.items():
            if name not in topics or each.end > topics[name].next_position:
                raise ValueError(f"the order of {name!r} reaches to {each.end}, beyond its committed records")


def _is_part(run: GlobalRun, held: GlobalRun) -> bool:
    """Return whether a run is one of those that were joined to ``held``, in which its first record is."""
    return (
        run.end <= held.end and run.position - run.local == held.position - held.local and run.version <= held.version
    )


def decode_context(batch: Batch) -> tuple[str, list[GlobalRun]]:
    """Return the stream and the runs of a CONTEXT. Raises as :meth:`StreamMaps.check`."""
    name, packed = decode_known(batch, _FIELDS, stream=str, runs=list)
    try:
        runs = read_runs(packed)
    except (ValueError, TypeError) as error:
        raise _refused(f"a CONTEXT of {name!r} with runs that are none: {brief_repr(packed)}") from error
    if not runs:
        raise _refused(f"a CONTEXT of {name!r} without runs")
    return name, runs


def _little(column: array[int]) -> array[int]:
    """Return a column with the bytes of its numbers in little-endian order."""
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column


def _refused(why: str) -> RequestError:
    return RequestError(f"{why}; it has no effect", remedy="run the same release on all nodes")
