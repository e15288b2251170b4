"""The pytest plugin as its users meet it: its installation, its options, and the output of a failure."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Imported first, because runs of pytest inside this one unload the modules that they imported first.
import viewstamp.testing
from tests.guides.guide import run_guide

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
ONLY_OURS = ("-p", "no:asyncio", "-p", "no:hypothesispytest")
assert viewstamp.testing.__all__

COUNTERS = """
    import viewstamp as vs
    import pytest

    class Counter(vs.ReplicatedActor):
        def __init__(self):
            self.count = 0

        @vs.command
        def add(self, n: int) -> int:
            self.count += n
            return self.count

    async def add_one(cluster):
        await cluster.client().actor("counter", Counter).add(1)

    @pytest.mark.parametrize("most", [0, 1])
    def test_counts(viewstamp_cluster, most):
        few = lambda member: member.actor("counter", Counter).count <= most
        viewstamp_cluster(actors={"counter": Counter}, faults=()).run(add_one, seeds=3, invariant=few)
"""


@pytest.fixture(autouse=True)
def _only_our_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exclude other plugins, which warn or take time, from the inner runs; the outer run has them all."""
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(ONLY_OURS))


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "examples" / "bank_transfer", tmp_path / "bank_transfer"))


def run(command: str, directory: Path) -> str:
    environment = {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", command], cwd=directory, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
def test_the_example_finds_the_transfer_that_loses_money_and_passes_the_mended_bank(bank: Path) -> None:
    shown = run("pytest", bank)
    assert "1 failed, 1 passed" in shown
    told = re.search(r"seed (\d+): Invariant: after command \d+, (bank.transfer\(.*\)) raised Unknown.*: (.*)", shown)
    assert told is not None, shown
    assert "'evve'" in told[2]
    assert told[3].startswith("assert")
    repeat = re.search(r"repeat it: (pytest .*)", shown)
    assert repeat is not None
    assert repeat[1] == f"pytest test_bank.py::test_no_money_is_lost_by_the_hasty_bank --viewstamp-seed {told[1]}"
    again = run(repeat[1], bank)
    assert "1 failed" in again
    assert told[0] in again


@pytest.mark.slow
def test_the_guide_works_as_shown(tmp_path: Path) -> None:
    assert run_guide(ROOT / "docs" / "guides" / "testing.md", tmp_path) > 3


def test_a_failure_contains_a_shell_command_and_the_last_events(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=COUNTERS)
    result = pytester.runpytest_inprocess(*ONLY_OURS)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E * seed 1: Invariant: is False on n1 in the end",
            "E * members: *; simulated: * s; faults: none",
            "E * repeat it: pytest 'test_it.py::test_counts[[]0]' --viewstamp-seed 1",
            "* Captured viewstamp call *",
            "the last commands:",
            "* #3 counter.add(1) -> 1",
            "the last events:",
        ]
    )


@pytest.mark.parametrize(
    ("options", "seeds"), [([], "123"), (["--viewstamp-seed=2"], "2"), (["--viewstamp-seeds=5"], "12345")]
)
def test_the_command_line_decides_the_seeds(pytester: pytest.Pytester, options: list[str], seeds: str) -> None:
    pytester.makepyfile(
        test_it=COUNTERS
        + """
    def test_seeds(viewstamp_cluster):
        verdicts = viewstamp_cluster(actors={"counter": Counter}, nodes=1, faults=()).run(add_one, seeds=3)
        raise LookupError("".join(str(verdict.seed) for verdict in verdicts))
    """
    )
    result = pytester.runpytest_inprocess(*ONLY_OURS, "-k", "test_seeds", *options)
    result.stdout.fnmatch_lines([f"E * LookupError: {seeds}"])


def test_the_trace_is_printed_in_spite_of_capturing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=COUNTERS)
    result = pytester.runpytest_inprocess(*ONLY_OURS, "-k", "counts and 1", "--viewstamp-seed=1", "--viewstamp-trace")
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(["0.000000 n1 = start 1", "* n1 = command 3: counter.add(1) -> 1"])


def test_a_run_that_does_not_ask_for_the_fixture_imports_nothing() -> None:
    program = "import sys, viewstamp.pytest_plugin; print(*sorted(m for m in sys.modules if m[:9] == 'viewstamp'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "viewstamp viewstamp.pytest_plugin\n"
