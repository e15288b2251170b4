"""``ActorCut``: the state of all instances at one index, read in pieces while commands continue; and back again.

Pieces are packed values. The first is the head::

    {format, end, log_time, chain, era, lineage, fingerprint, actors: {name: [log version, low, high, instances]}}

every other one holds instances of one name, in their order::

    [name, [[key, version, credit, size, era, packed state], ...]]

A cut copies on write, one instance at a time: before a command changes an instance that the cut has not handed out, the
cut packs and keeps its state. So its memory is bounded by the states of the instances that are changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from viewstamp.actors.replicated.hosted import Hosted, Instance
from viewstamp.errors import CorruptionError, OutdatedCodeError, RequestError
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.values import pack, unpack

__all__ = ["FORMAT", "ActorCut", "Image", "read_pieces"]

FORMAT = 1

Row = list[Any]
"""[key, version, credit, size, era, packed state]"""


class ActorCut:
    """One cut of one host. Called on the thread that applies commands.

    Invariants:
      * an instance with ``instance.cut == number`` needs no more work: handed out, kept, or created after the cut
      * ``_held`` has the rows that are kept and not handed out yet
    """

    def __init__(self, number: int, head: dict[str, Any], hosted: Iterable[Hosted]) -> None:
        self.number = number
        self._head: bytes | None = pack(head)
        self._held: dict[Instance, Row] = {}
        self._held_bytes = 0
        self._error: RequestError | None = None
        # The order of instances only grows, so its present length determines the instances of the cut.
        self._walk: Iterator[tuple[Hosted, Instance]] | None = _walk([(each, len(each.order)) for each in hosted])
        self._next: tuple[Hosted, Instance] | None = None

    @property
    def held_bytes(self) -> int:
        """The size of the states that are kept for this cut."""
        return self._held_bytes

    @property
    def is_closed(self) -> bool:
        """Whether everything has been handed out or released."""
        return self._walk is None

    def capture(self, hosted: Hosted, instance: Instance) -> None:
        """Keep the instance's present state, because a command is about to change it."""
        instance.cut = self.number
        try:
            row = _row(hosted, instance)
        except RequestError as error:
            self._error = self._error or error  # The cut fails, and the command does not.
            return
        self._held[instance] = row
        self._held_bytes += len(row[-1])

    def next_piece(self, bytes_max: int) -> bytes | None:
        """Return the next piece of about ``bytes_max`` bytes; None = there are no more.

        A piece holds at least one instance, so a large instance makes a large piece.

        Raises:
          RequestError: a state cannot be packed, so the cut is useless; the message names the instance.
        """
        if self._error is not None:
            raise self._error
        if self._head is not None:
            head, self._head = self._head, None
            return head
        rows: list[Row] = []
        size = 0
        name = ""
        while size < bytes_max:
            found = self._take()
            if found is None:
                break
            if rows and found[0].name != name:
                self._next = found
                break
            name = found[0].name
            row = self._hand_out(*found)
            rows.append(row)
            size += len(row[0]) + len(row[-1])
        if not rows:
            self.close()
            return None
        return pack([name, rows])

    def _take(self) -> tuple[Hosted, Instance] | None:
        found, self._next = self._next, None
        return found or (next(self._walk, None) if self._walk is not None else None)

    def _hand_out(self, hosted: Hosted, instance: Instance) -> Row:
        held = self._held.pop(instance, None)
        if held is not None:
            self._held_bytes -= len(held[-1])
            return held
        row = _row(hosted, instance)
        instance.cut = self.number
        return row

    def close(self) -> None:
        """Release everything that was not handed out. Idempotent."""
        self._walk = self._next = self._head = None
        self._held.clear()
        self._held_bytes = 0


def _walk(members: list[tuple[Hosted, int]]) -> Iterator[tuple[Hosted, Instance]]:
    for hosted, count in members:
        for position in range(count):
            yield hosted, hosted.order[position]


def _row(hosted: Hosted, instance: Instance) -> Row:
    try:
        version, packed = hosted.packed_state(instance)
    except RequestError as error:
        raise RequestError(
            f"no snapshot was taken, because of {hosted.name}[{instance.key!r}]: {error.message}", remedy=error.remedy
        ) from error
    return [instance.key, version, instance.credit, instance.size, instance.era, packed]


@dataclass(frozen=True, slots=True)
class Image:
    """The content of a cut: the head, and the instances of each name, asleep."""

    head: dict[str, Any]
    instances: dict[str, list[Instance]]


def read_pieces(pieces: Iterable[bytes]) -> Image:
    """Read the pieces of a cut, in their order. May run on any thread.

    Each piece becomes instances at once, because a million rows would take 120 MB that Python does not give back.

    Raises:
      CorruptionError: they are not a cut of this format.
    """
    head: dict[str, Any] | None = None
    instances: dict[str, list[Instance]] = {}
    for piece in pieces:
        try:
            value = unpack(piece)
            if head is None:
                head = dict(value)
                if head["format"] > FORMAT:
                    raise OutdatedCodeError(
                        f"the snapshot of the actors has format {head['format']}, newer than this code's {FORMAT}",
                        remedy="upgrade this node and start it again",
                    )
                _check_head(head)
                instances = {name: [] for name in head["actors"]}
            else:
                name, more = value
                instances[name].extend(map(_instance, more))
        except (RequestError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise CorruptionError(
                f"a piece of {len(piece)} bytes is not part of a snapshot of actors: {error!r}"
            ) from error
    found = {name: len(each) for name, each in instances.items()}
    expected = {name: each[-1] for name, each in head["actors"].items()} if head is not None else None
    if head is None or found != expected:
        raise CorruptionError(f"the snapshot of actors holds {found} instances, but should hold {expected}")
    return Image(head, instances)


def _check_head(head: dict[str, Any]) -> None:
    numbers = [head[name] for name in ("end", "log_time", "chain", "era", "lineage")]
    numbers += [number for each in head["actors"].values() for number in each]
    is_head = type(head["fingerprint"]) is bytes and all(map(len, head["actors"].values()))
    if not is_head or not all(type(number) is int and 0 <= number < 1 << 64 for number in numbers):
        raise ValueError(f"{brief_repr(head)} is not the head of a cut")


def _instance(row: Any) -> Instance:
    if list(map(type, row)) != [str, int, int, int, int, bytes]:
        raise ValueError(f"{brief_repr(row)} is not [key, version, credit, size, era, packed state]")
    key, version, credit, size, era, packed = row
    instance = Instance(key, None, packed, version)
    instance.credit, instance.size, instance.era = credit, size, era
    return instance
