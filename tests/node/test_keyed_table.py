"""The table of a keyed topic keeps the rows that no run has, whatever is dumped and when."""

from __future__ import annotations

import random

import pytest

from tests.mutants.mutants import patched
from viewstamp.node import keyed_table
from viewstamp.node.keyed_rows import KeyRow
from viewstamp.node.keyed_table import KeyTable, find_row, overlay


@pytest.mark.parametrize("seed", range(20))
def test_the_table_keeps_the_rows_that_no_run_has(seed: int) -> None:
    entropy = random.Random(seed)
    last = dict[bytes, KeyRow]()
    dumped = position = 10
    table = KeyTable(position)
    with patched(keyed_table, _GENERATION_BYTES=entropy.choice([1, 1000, 1 << 20])):
        for _ in range(60):
            rows = list[KeyRow]()
            for _ in range(entropy.randrange(8)):
                value = entropy.choice([None, b"%d" % position])
                rows.append(KeyRow(b"%d" % entropy.randrange(12), position, 1, position, 0, value, None))
                position += 1
            position += entropy.randrange(2)  # A record without a key has a position, and no row.
            last.update({row.key: row for row in rows})
            table.add(rows, position)
            dumped = entropy.randrange(dumped, position + 1)
            table.discard(dumped)

            assert table.end == position
            for key, row in last.items():
                if row.position >= dumped:
                    assert find_row(table.generations, key) == row
            runs = sorted(row for row in last.values() if row.position < dumped and row.value is not None)
            expected = sorted(row for row in last.values() if row.value is not None)
            assert overlay(table.generations, runs, b"", None) == expected
