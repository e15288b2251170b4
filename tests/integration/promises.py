"""The promises that a cluster gave before a power cut, to its clients and among its members, and checks of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from viewstamp.ids import NodeId
from viewstamp.sim.recording import OperationKind, Recording
from viewstamp.wal.truncation import MARK_NAME

__all__ = ["Acknowledged", "Durable", "Promises", "Refused", "Seen", "Sent"]


class Sent(NamedTuple):
    """These values are about to be appended as one; from here on all or none of them may be found."""

    topic: str
    values: tuple[bytes, ...]


class Acknowledged(NamedTuple):
    """These values are in the topic from ``position`` on, for ever."""

    topic: str
    values: tuple[bytes, ...]
    position: int


class Refused(NamedTuple):
    """These values were certainly not written, and never will be."""

    topic: str
    values: tuple[bytes, ...]


class Seen(NamedTuple):
    """A linearizable read returned that the topic ends at ``last_position``, so it will never be shorter."""

    topic: str
    last_position: int


class Durable(NamedTuple):
    """A member's log is durable up to ``end``; other members may have counted on it."""

    node: NodeId
    end: int


@dataclass
class Promises:
    """The promises that were given before a cut."""

    acknowledged: dict[str, dict[int, bytes]] = field(default_factory=dict)
    """By topic and position."""
    groups: dict[bytes, tuple[str, tuple[bytes, ...]]] = field(default_factory=dict)
    """For each sent value: its topic, and the values that were sent together with it."""
    refused: set[bytes] = field(default_factory=set)
    seen: dict[str, int] = field(default_factory=dict)
    """The highest last position that a reader received, by topic."""
    durable: dict[NodeId, int] = field(default_factory=dict)
    """The end of each member's durable log; absent while a truncation may have moved it."""

    @classmethod
    def before(cls, recording: Recording, cut_at: int, *, earlier: Promises | None = None) -> Promises:
        """Return the promises before operation ``cut_at``, including ``earlier`` ones from before the recording."""
        promises = cls() if earlier is None else deepcopy(earlier)
        events = iter(recording.marks(cut_at))
        for operation in recording.operations[:cut_at]:
            if operation.kind is OperationKind.MARK:
                promises.add(next(events))
            elif operation.kind is OperationKind.RENAME and operation.target.endswith(MARK_NAME):
                promises.durable.pop(NodeId(Path(operation.target).parts[-3]), None)
        return promises

    def add(self, event: object) -> None:
        match event:
            case Sent(topic, values):
                self.groups |= dict.fromkeys(values, (topic, values))
            case Acknowledged(topic, values, position):
                self.acknowledged.setdefault(topic, {}).update(enumerate(values, position))
            case Refused(_, values):
                self.refused.update(values)
            case Seen(topic, last_position):
                self.seen[topic] = max(last_position, self.seen.get(topic, 0))
            case Durable(node, end):
                self.durable[node] = end

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def complaints(self, topic: str, values: Sequence[bytes]) -> Iterator[str]:
        """Describe the errors in a topic's values, from position 1 on."""
        for position, value in self.acknowledged.get(topic, {}).items():
            if position > len(values):
                yield f"{topic}: {value[:20]!r} was acknowledged at {position}, the topic ends at {len(values)}"
            elif values[position - 1] != value:
                yield f"{topic}: {value[:20]!r} was acknowledged at {position}, there is {values[position - 1][:20]!r}"
        if len(values) < self.seen.get(topic, 0):
            yield f"{topic}: a reader saw {self.seen[topic]} records, the topic ends at {len(values)}"
        places: dict[bytes, int] = {}
        for place, value in enumerate(values, 1):
            if value in places:
                yield f"{topic}: {value[:20]!r} stands at {places[value]} and at {place}"
            places[value] = place
        for value, place in places.items():
            sent_to, group = self.groups.get(value, ("", ()))
            if sent_to != topic:
                yield f"{topic}: {value[:20]!r} at {place} was never sent"
            elif value in self.refused:
                yield f"{topic}: {value[:20]!r} was refused, and stands at {place}"
            elif [places.get(each) for each in group] != list(
                range(places[group[0]], places[group[0]] + len(group)) if group[0] in places else ()
            ):
                yield f"{topic}: of the atomic {[each[:20] for each in group]} there is only a part"
