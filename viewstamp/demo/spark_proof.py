"""Compares what is in a topic with what should be, whatever the order: tasks of one micro-batch may change places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

__all__ = ["Proof", "Tally"]


class Tally:
    """Counts values by their hash, in any order; holds 16 bytes of each, not the values.

    Invariants:
      * ``digest`` is the sum of all hashes: equal for the same values in another order, and for no others
    """

    def __init__(self, values: Iterable[bytes] = ()) -> None:
        self.counts: Counter[bytes] = Counter()
        for value in values:
            self.add(value)

    def add(self, value: bytes) -> None:
        """Count one value."""
        self.counts[blake2b(value, digest_size=16).digest()] += 1

    @property
    def total(self) -> int:
        """How many values were counted, equal ones each time."""
        return self.counts.total()

    @property
    def distinct(self) -> int:
        """How many different values were counted."""
        return len(self.counts)

    @property
    def digest(self) -> str:
        """Return 32 hexadecimal digits."""
        total = sum(int.from_bytes(key) * count for key, count in self.counts.items())
        return f"{total % (1 << 128):032x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a topic holds, beside the input. ``invented`` counts records that no line of the input explains."""

    rows: int
    distinct: int
    digest: str
    lost: int
    duplicated: int
    invented: int

    @classmethod
    def compare(cls, expected: Tally, found: Tally) -> Proof:
        """Tell apart what went wrong: an input with equal lines wants as many equal records."""
        more = found.counts - expected.counts
        return cls(
            rows=found.total,
            distinct=found.distinct,
            digest=found.digest,
            lost=(expected.counts - found.counts).total(),
            duplicated=sum(count for key, count in more.items() if key in expected.counts),
            invented=sum(count for key, count in more.items() if key not in expected.counts),
        )

    @property
    def holds(self) -> bool:
        """Say whether every line is there exactly as often as in the input, and nothing else."""
        return self.lost == self.duplicated == self.invented == 0
