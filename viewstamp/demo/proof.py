"""Compares what readers return with the input. Knows nothing of clusters: it sees lines of files and values.

:func:`compare` does so by line number, where record n has to be line n: equal lines are different records.
:class:`Proof` does so whatever the order is, because the tasks of one micro-batch of Spark may change places.
"""

from __future__ import annotations

import base64
import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain

__all__ = ["Comparison", "Proof", "Tally", "compare", "lines_of", "records_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What one reader gave, beside the input.

    ``digest`` covers every (position, value) in order: equal digests are equal sequences. ``lost`` counts
    acknowledged lines only; ``invented`` records that no line of the input explains.
    """

    records: int
    digest: str
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    invented: int = 0
    difference: str = ""
    """The first difference, in words; "" = the sequence is the input, line for line."""

    @property
    def is_equal(self) -> bool:
        """Say whether record n has position n and is line n, for all lines and no more."""
        return not self.difference


def lines_of(path: str) -> Iterator[bytes]:
    """Yield the lines of a file without their newlines; a last line without one counts."""
    with open(path, "rb") as stream:
        for line in stream:
            yield line[:-1] if line.endswith(b"\n") else line


def records_of(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield position and value out of the lines that ``read --output json`` prints."""
    for line in lines:
        record = json.loads(line)
        value = record.get("value")
        yield record["position"], base64.b64decode(record["value_base64"]) if value is None else value.encode()


def compare(path: str, records: Iterable[tuple[int, bytes]], acknowledged: int) -> Comparison:
    """Compare ``records`` with the lines of the file ``path``, of which the first ``acknowledged`` must be there.

    In bounded memory as long as they are equal; after the first difference the rest of both is kept as hashes.
    """
    hashing = _Hashing(records)
    lines = lines_of(path)
    number = 0
    for number, line in enumerate(lines, 1):
        record = next(hashing, None)
        if record is None or record != (number, line):
            difference = _difference(number, line, record)
            rest = chain(() if record is None else (record,), hashing)
            return _count(path, number, chain((line,), lines), rest, hashing, acknowledged, difference)
    extra = next(hashing, None)
    if extra is not None:
        difference = f"record {number + 1} is more than the input has: position {extra[0]}"
        return _count(path, number + 1, (), chain((extra,), hashing), hashing, acknowledged, difference)
    return Comparison(records=hashing.count, digest=hashing.digest)


class _Hashing(Iterator[tuple[int, bytes]]):
    """Passes records on, and keeps their number and a digest of all of them."""

    def __init__(self, records: Iterable[tuple[int, bytes]]) -> None:
        self._records = iter(records)
        self._hash = blake2b(digest_size=16)
        self.count = 0

    def __next__(self) -> tuple[int, bytes]:
        position, value = next(self._records)
        self._hash.update(b"%d %d " % (position, len(value)))
        self._hash.update(value)
        self.count += 1
        return position, value

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


def _difference(number: int, line: bytes, record: tuple[int, bytes] | None) -> str:
    if record is None:
        return f"line {number} is missing, and all after it"
    position, value = record
    if position != number:
        return f"record {number} has position {position}"
    return f"record {number} is {value[:60]!r}, but line {number} is {line[:60]!r}"


def _count(
    path: str,
    start: int,
    lines: Iterable[bytes],
    records: Iterable[tuple[int, bytes]],
    hashing: _Hashing,
    acknowledged: int,
    difference: str,
) -> Comparison:
    """Tell apart what went wrong from line ``start`` on: the k-th equal record stands for the k-th equal line."""
    waiting: defaultdict[int, deque[int]] = defaultdict(deque)
    for number, line in enumerate(lines, start):
        waiting[hash(line)].append(number)
    known: set[int] | None = None
    duplicated = out_of_order = invented = highest = 0
    for _, value in records:
        key = hash(value)
        if waiting.get(key):
            number = waiting[key].popleft()
            out_of_order += number < highest
            highest = max(highest, number)
            continue
        if known is None:
            known = {hash(line) for line in lines_of(path)}
        if key in known:
            duplicated += 1
        else:
            invented += 1
    lost = sum(number <= acknowledged for numbers in waiting.values() for number in numbers)
    return Comparison(
        records=hashing.count,
        digest=hashing.digest,
        lost=lost,
        duplicated=duplicated,
        out_of_order=out_of_order,
        invented=invented,
        difference=difference,
    )


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
