"""Compares the output of a reader of a topic with streams with the input, by the receipts of the input.

A receipt names the stream of a line and its position there. So each record that a reader returns has one line to be
equal to, whatever the order of the streams is. The order itself is compared between readers, by a digest.
"""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

from viewstamp.demo.proof import Comparison, lines_of

__all__ = ["compare_order", "places_of"]

_Place = tuple[int, int, int, bytes]
"""The position of a record in the topic, its stream, its position there, and its value."""


def places_of(lines: Iterable[bytes]) -> Iterator[_Place]:
    """Yield the records in the output of ``read --output json``."""
    for line in lines:
        record = json.loads(line)
        value = record.get("value")
        data = base64.b64decode(record["value_base64"]) if value is None else value.encode()
        yield record["position"], record["stream"], record["stream_position"], data


def compare_order(path: str, records: Iterable[_Place], places: Sequence[array[int]]) -> Comparison:
    """Compare ``records`` with the lines of the file ``path``.

    Args:
      path: the input. It is held in memory.
      records: what a reader returned.
      places: for each stream, the number of the line, from 1, at each of its positions; 0 = no receipt has it.

    Returns the comparison: its ``digest`` covers positions, streams and values in order, and each line has to be there
    once, at the place in its receipt, while positions and those in each stream rise by one.
    """
    lines = list(lines_of(path))
    hashing = blake2b(digest_size=16)
    ends = [0] * len(places)
    found = bytearray(len(lines) + 1)
    count = duplicated = out_of_order = invented = 0
    difference = ""
    for position, stream, local, value in records:
        count += 1
        hashing.update(b"%d %d %d %d " % (position, stream, local, len(value)))
        hashing.update(value)
        where = f"record {count} has position {position}, and is {local} of stream {stream}"
        number = places[stream - 1][local - 1] if 1 <= stream <= len(places) and local <= len(places[stream - 1]) else 0
        if position != count or not number or local != ends[stream - 1] + 1:
            out_of_order += 1
            difference = difference or where
        if number and lines[number - 1] == value:
            duplicated += found[number]
            found[number] = 1
        else:
            invented += 1
            difference = difference or f"{where}, where the receipt of line {number} is"
        if 1 <= stream <= len(places):
            ends[stream - 1] = local
    lost = sum(1 for each in places for number in each if number and not found[number])
    if lost or duplicated:
        difference = difference or f"{lost} lines are missing, {duplicated} stand twice"
    return Comparison(
        records=count,
        digest=hashing.hexdigest(),
        lost=lost,
        duplicated=duplicated,
        out_of_order=out_of_order,
        invented=invented,
        difference=difference,
    )
