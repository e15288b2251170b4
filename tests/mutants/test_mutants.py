"""Each planted mistake is found by its recorded killer, and the real code passes that very killer.

If a change to the product moves the events of a seed, ``python -m tests.mutants --record`` looks for new ones. ``make
mutants`` runs all seeds of the simulator; here a quarter of the records is checked, and for a quarter
of the aims one seed.

The quarter is another one after each commit (``PART``), so four commits in a row check all.
"""

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.consensus.schedule import run
from tests.mutants.aims import AIMS
from tests.mutants.catalogue import CATALOGUE
from tests.mutants.killers import Case, Schedule, Seed, find, hunt
from tests.mutants.mutants import patched
from tests.mutants.records import RECORDS, Record
from tests.mutants.table import AIMS_DOCUMENT, DOCUMENT, aims_document, document
from viewstamp.sim.run import SeedVerdict, run_seed

IN_THE_SIMULATOR = [(record.mutant, record.seed) for record in RECORDS if record.seed is not None]
ONE_OF_EACH_AIM = {
    aim: min((each for each in IN_THE_SIMULATOR if each[1].aim == aim), key=lambda each: each[1].seed) for aim in AIMS
}
"""The one with the lowest seed, because it is soon found again if its seed moves."""
SOAK = bool(os.environ.get("VIEWSTAMP_SOAK"))
PARTS = 4
"""A run checks one of so many parts of the records, because each record takes a third of a second of processor time."""


def _part() -> int:
    """Return the part of this run: the number of commits modulo ``PARTS``; 0 without a history."""
    count = ["git", "-C", str(Path(__file__).parent), "rev-list", "--count", "HEAD"]
    try:
        counted = subprocess.run(count, capture_output=True, text=True, check=False).stdout
    except OSError:
        counted = ""
    return int(counted or 0) % PARTS


PART = int(os.environ["VIEWSTAMP_PART"]) if "VIEWSTAMP_PART" in os.environ else _part()
"""The part of this run, so that a failed run can be repeated at another commit: VIEWSTAMP_PART=2."""
AIMS_OF_THE_RUN = list(ONE_OF_EACH_AIM) if SOAK else list(ONE_OF_EACH_AIM)[PART::PARTS]
OF_SPARK = {
    each.mutant for each in RECORDS if isinstance(each.killer, Case) and each.killer.name.startswith("tests/spark/")
}
"""The mutants that cannot be planted without pyspark."""
LEFT_OUT = {name for name in ("pyspark", "pyarrow", "pyiceberg") if find_spec(name) is None}
"""The packages without which some mutants cannot be planted."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "record",
    [
        pytest.param(record, id=record.mutant, marks=[pytest.mark.spark] if record.mutant in OF_SPARK else [])
        for record in (RECORDS if SOAK else RECORDS[PART::PARTS])
    ],
)
def test_what_is_on_record_finds_the_mutant_and_the_real_code_passes_it(record: Record) -> None:
    found = find(record.mutant, record.killer)
    assert found, f"survives {record.killer}; hunt again: python -m tests.mutants --record {record.mutant}"
    assert isinstance(record.killer, Case) or found == record.found
    if isinstance(record.killer, Schedule):  # The suite itself runs the cases and explores the scopes.
        assert record.killer.find() == ""


def test_a_killer_that_lacks_a_package_finds_nothing_and_does_not_fail(tmp_path: Path) -> None:
    case = tmp_path / "test_case.py"
    case.write_text("import pytest\npytestmark = pytest.mark.skip('no pyarrow')\ndef test_it(): pass\n")
    with pytest.raises(pytest.skip.Exception, match="no pyarrow"):
        Case(f"{case}::test_it").find()
    with pytest.raises(AssertionError, match="is no test"):
        Case(f"{case}::test_another").find()


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "seed"), [pytest.param(*ONE_OF_EACH_AIM[aim], id=aim) for aim in AIMS_OF_THE_RUN])
def test_the_simulator_notices(mutant: str, seed: Seed) -> None:
    """One mutant of an aim; ``make mutants`` runs all of them. A change may have moved the recorded seed."""
    hunted = hunt(mutant, seed, seeds_max=50)
    assert hunted is not None, f"{mutant} survives {seed.aim}"
    assert hunted[0].find() == "", "the real code fails too"


def test_a_mutant_that_takes_other_arguments_is_refused() -> None:
    """Otherwise the TypeError of its call counts as the finding, whatever the test looks at."""

    class Original:
        def find(self, name: str, *, wait: bool = False) -> str:
            return name

    with patched(Original, find=lambda self, name, *, wait=False: "another"):
        assert Original().find("this", wait=True) == "another"
    for other in (
        lambda self: "",
        lambda self, name: "",
        lambda self, name, *, wait, where: "",
        lambda self, name, where, *, wait: "",
    ):
        with pytest.raises(AssertionError, match="but <function"), patched(Original, find=other):
            pass


def test_every_mutant_is_on_record() -> None:
    assert [record.mutant for record in RECORDS] == list(CATALOGUE)


def test_every_row_of_the_protocol_s_rules_and_every_list_has_a_mutant() -> None:
    """The rows of section 2 of the protocol's rules.

    Twenty-five mistakes that a model checker has shown to be harmful.
    """
    rules = " ".join(f"{mutant.rule}," for mutant in CATALOGUE.values())
    assert [row for row in range(1, 26) if f"row {row}," not in rules] == []
    assert all(mutant.rule for mutant in CATALOGUE.values())


def test_the_tables_in_the_docs_are_those_of_the_records() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert document(text, RECORDS) == text
    aims = AIMS_DOCUMENT.read_text(encoding="utf-8")
    assert aims_document(aims) == aims


@pytest.mark.slow
@pytest.mark.skipif(not SOAK, reason="a minute and more: VIEWSTAMP_SOAK=1")
@pytest.mark.parametrize("aim", AIMS)
def test_an_aimed_seed_is_the_same_run_each_time_and_full_of_faults(aim: str) -> None:
    first, second = _run_aimed(aim, 5), _run_aimed(aim, 5)
    assert first.digest == second.digest
    assert sum(first.faults.values()) > 5


@pytest.mark.slow
def test_a_mutant_leaves_nothing_behind() -> None:
    """After a mutant is planted and removed, the same seed must give the same run as before."""
    before = run("even", 3).trace, _run_aimed("late answers", 1).digest
    for mutant in CATALOGUE.values():
        try:
            with mutant.plant():
                pass
        except ModuleNotFoundError as error:
            if error.name not in LEFT_OUT:
                raise
    assert (run("even", 3).trace, _run_aimed("late answers", 1).digest) == before


def _run_aimed(aim: str, seed: int) -> SeedVerdict:
    return run_seed(seed, swarm=AIMS[aim].swarm)
