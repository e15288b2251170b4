"""Each planted mistake makes the simulator fail on the seed on record, and the real code passes that very seed.

Where a change to the product moves the events of a seed, ``python -m tests.mutants --record`` looks for new ones.
"""

import sys
from functools import cache

import pytest

from tests.mutants.aims import AIMS
from tests.mutants.hunt import SEEDS_MAX, hunt, run_aimed
from tests.mutants.mutants import MUTANTS
from tests.mutants.records import RECORDS, Record
from tests.mutants.table import DOCUMENT, document
from viewstamp.sim.run import Verdict

RECORDED_WITH = (3, 11)
"""Another Python's asyncio takes other steps, and so other events: there each mutant is hunted from seed 1 on."""


@cache
def of_the_real_code(aim: str, seed: int) -> Verdict:
    """Several mutants are found by the same seed."""
    return run_aimed(aim, seed)


@pytest.mark.slow
@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.mutant)
def test_the_seed_on_record_finds_the_mutant_and_the_real_code_passes_it(record: Record) -> None:
    if sys.version_info[:2] == RECORDED_WITH:
        planted = run_aimed(record.aim, record.seed, mutant=record.mutant)
        assert record.invariant == planted.invariant, f"{planted.detail}; hunt again: python -m tests.mutants --record"
    else:
        found = hunt(record.mutant, record.aim)
        assert found is not None, f"{record.mutant} survives {SEEDS_MAX} seeds"
        planted = found
    healthy = of_the_real_code(record.aim, planted.seed)
    assert healthy.invariant == "", healthy.detail


def test_every_mutant_is_on_record_within_the_seeds_allowed() -> None:
    assert [record.mutant for record in RECORDS] == list(MUTANTS)
    assert max(record.seed for record in RECORDS) <= SEEDS_MAX


def test_the_table_in_the_docs_is_that_of_the_records() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert document(text, RECORDS) == text


@pytest.mark.slow
@pytest.mark.parametrize("aim", AIMS)
def test_an_aimed_seed_is_the_same_run_each_time_and_full_of_faults(aim: str) -> None:
    first, second = run_aimed(aim, 5), run_aimed(aim, 5)
    assert first.digest == second.digest
    assert sum(first.faults.values()) > 5


@pytest.mark.slow
def test_a_mutant_leaves_nothing_behind_in_the_simulator() -> None:
    """Planted and pulled out, the code is what it was: the same seed gives the same trace."""
    before = run_aimed("drawn", 2).digest
    for mutant in MUTANTS.values():
        with mutant.plant():
            pass
    assert run_aimed("drawn", 2).digest == before
