"""Compares the output of readers with the input. It works on lines of files and values, not on clusters.

:func:`compare` compares by line number: record n has to be line n, so equal lines are different records.
:class:`Proof` compares in any order, because the tasks of one micro-batch of Spark may write in any order.
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
    """The output of one reader compared with the input.

    ``digest`` covers every (position, value) in order: equal digests mean equal sequences. ``lost`` counts only
    acknowledged lines; ``invented`` counts records that are not a line of the input.
    """

    records: int
    digest: str
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    invented: int = 0
    difference: str = ""
    """The first difference, in words; "" = the sequence equals the input, line for line."""

    @property
    def is_equal(self) -> bool:
        """Whether record n has position n and is line n, for all lines, and there are no more records."""
        return not self.difference


def lines_of(path: str) -> Iterator[bytes]:
    """Yield the lines of a file without their newlines, also a last line without a newline."""
    with open(path, "rb") as stream:
        for line in stream:
            yield line[:-1] if line.endswith(b"\n") else line


def records_of(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield position and value from the output of ``read --output json``."""
    for line in lines:
        record = json.loads(line)
        value = record.get("value")
        yield record["position"], base64.b64decode(record["value_base64"]) if value is None else value.encode()


def compare(path: str, records: Iterable[tuple[int, bytes]], acknowledged: int) -> Comparison:
    """Compare ``records`` with the lines of the file ``path``, of which the first ``acknowledged`` must be there.

    Memory is bounded as long as they are equal; after the first difference the rest of both is kept as hashes.
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
    """Passes records on, and computes their number and digest."""

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
    """Classify the differences from line ``start`` on. The k-th equal record is matched with the k-th equal line."""
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
    """Counts values by their hash, in any order, with 16 bytes for each value.

    Invariants:
      * ``digest`` is the sum of all hashes, so it does not depend on the order of the values
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
        """The number of counted values, with repetitions."""
        return self.counts.total()

    @property
    def distinct(self) -> int:
        """The number of different values."""
        return len(self.counts)

    @property
    def digest(self) -> str:
        """The digest: 32 hexadecimal digits."""
        total = sum(int.from_bytes(key) * count for key, count in self.counts.items())
        return f"{total % (1 << 128):032x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The content of a topic compared with the input. ``invented`` counts records that are not a line of the input."""

    rows: int
    distinct: int
    digest: str
    lost: int
    duplicated: int
    invented: int

    @classmethod
    def compare(cls, expected: Tally, found: Tally) -> Proof:
        """Classify the differences. Equal lines of the input need as many equal records."""
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
        """Whether every line is there exactly as often as in the input, and no other record is."""
        return self.lost == self.duplicated == self.invented == 0
