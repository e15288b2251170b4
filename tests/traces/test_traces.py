"""A run is recorded in the order in which disks and messages allow its steps, and is a behaviour of the specification.

`make traces` checks more runs, and VIEWSTAMP_SOAK=1 all planted mistakes that are known to be rejected. TLC needs Java,
so it checks one run here only if JAR names tla2tools.jar.
"""

import os
import re
from dataclasses import replace

import pytest

from tests.mutants.catalogue import CATALOGUE
from tests.traces.finds import FINDS, Find
from tests.traces.recorder import Step
from tests.traces.runs import Run, record
from tests.traces.tla import Outcome, check_trace, follow_trace, module_of, outcome_of

_IS_SOAK = os.environ.get("VIEWSTAMP_SOAK") == "1"
_SEEDS = 20
_STEPS = 70


@pytest.fixture(scope="module")
def first_run() -> Run:
    """The first steps of one run."""
    run = record("diverging tails", 0, steps_max=_STEPS)
    assert run.failure == ""
    return run


@pytest.fixture(scope="module")
def steps(first_run: Run) -> list[Step]:
    """Its steps."""
    return first_run.steps


def test_a_run_is_recorded_from_the_first_start_to_a_commit(steps: list[Step]) -> None:
    assert len(steps) == _STEPS
    assert [step["kind"] for step in steps[:3]] == ["restart"] * 3
    assert {step["member"] for step in steps} == {"n1", "n2", "n3"}
    assert {step["kind"] for step in steps} == {"restart", "disk", "core", "append", "commit", "acknowledge", "send"}


def test_a_seed_is_recorded_the_same_each_time(steps: list[Step]) -> None:
    assert record("diverging tails", 0, steps_max=_STEPS).steps == steps


def test_a_request_for_votes_follows_its_durable_vote(steps: list[Step]) -> None:
    assert not _asks_early(steps)
    with CATALOGUE["vote-before-durable"].plant():
        assert _asks_early(record("diverging tails", 0, steps_max=_STEPS).steps)


def _asks_early(steps: list[Step]) -> bool:
    """Return whether a member asks for votes while its disk, as recorded, does not hold its own vote."""
    durable: set[tuple[str, int]] = set()
    for step in steps:
        if step["kind"] == "disk" and step["vote"] == step["member"]:
            durable.add((step["member"], step["term"]))
        if step.get("what") == "ask" and (step["member"], step["term"]) not in durable:
            return True
    return False


def test_the_module_has_one_line_for_each_step(first_run: Run) -> None:
    text = module_of(first_run)
    assert 'Members == {"n1", "n2", "n3"}\n' in text
    lines = re.findall(r'^  \[kind \|-> "\w+", member \|-> "n\d", .*\],?$', text, re.MULTILINE)
    assert len(lines) == _STEPS
    fields = 'term |-> 0, vote |-> "", hist |-> <<<<0, 1>>>>, end |-> 1, commit |-> 1'
    assert f'  [kind |-> "restart", member |-> "n1", {fields}],' in lines
    assert text.count("<<") == text.count(">>")


@pytest.mark.parametrize(
    ("output", "outcome"),
    [
        ("Error: Invariant Unfinished is violated.\n", Outcome(is_accepted=True, reached=9)),
        (
            "Error: Invariant LogSafety is violated.\nState 1: <I\nState 2: <N\n",
            Outcome(is_accepted=False, reached=1, broken="LogSafety"),
        ),
        (
            "No error has been found.\nThe depth of the complete state graph search is 5.\n",
            Outcome(is_accepted=False, reached=4),
        ),
    ],
    ids=["accepted", "invariant", "no-step"],
)
def test_the_verdict_of_tlc_is_read(output: str, outcome: Outcome) -> None:
    assert outcome_of(output, 9) == outcome


def test_another_failure_of_tlc_is_no_verdict() -> None:
    with pytest.raises(RuntimeError, match="Parsing"):
        outcome_of("Parsing or semantic analysis failed.", 9)


@pytest.mark.parametrize(
    "swarm",
    ["diverging tails", "fallen leaders", "late messages", "mixed, five members", "mixed, the second group"],
)
def test_a_run_is_a_behaviour_of_the_specification(swarm: str) -> None:
    run = record(swarm, 0, steps_max=100)
    assert run.failure == ""
    assert follow_trace(run) == Outcome(is_accepted=True, reached=len(run.steps))


def test_a_run_in_which_followers_find_commits_is_a_behaviour_of_the_specification() -> None:
    run = record("mixed, told", 0, steps_max=150)
    assert follow_trace(run) == Outcome(is_accepted=True, reached=len(run.steps))
    leaders = {step["member"] for step in run.steps if step.get("role") == "leader"}
    ends: dict[bool, int] = {True: 1, False: 1}
    found = 0
    for step in run.steps:
        if step["kind"] == "commit":
            by_leader = step["member"] in leaders
            found += not by_leader and step["end"] > ends[True]
            ends[by_leader] = max(ends[by_leader], step["end"])
    assert found > 3


def test_a_run_with_a_change_of_the_voters_is_a_behaviour_of_the_specification() -> None:
    for seed in range(_SEEDS):
        run = record("changing voters", seed, steps_max=150)
        assert follow_trace(run) == Outcome(is_accepted=True, reached=len(run.steps))
        if any(len(each) == 2 and each[1] for step in run.steps for each in step.get("memberships", ())):
            return
    pytest.fail("no run has a joint membership")


@pytest.mark.parametrize(
    "find", [find for find in FINDS if _IS_SOAK or find.steps <= 100], ids=lambda find: find.mutant
)
def test_a_run_with_a_planted_mistake_is_none(find: Find) -> None:
    """Several seeds, because a change of the code moves the events of a seed."""
    with CATALOGUE[find.mutant].plant():
        runs = (record(find.swarm, seed, steps_max=find.steps) for seed in range(find.seed, find.seed + _SEEDS))
        assert any(not follow_trace(run).is_accepted for run in runs)


def _with_a_longer_disk(run: Run) -> tuple[Run, int]:
    at = next(at for at, step in enumerate(run.steps) if step["kind"] == "disk" and step["end"] > 1)
    changed = {**run.steps[at], "end": run.steps[at]["end"] + 1000}
    return replace(run, steps=[*run.steps[:at], changed, *run.steps[at + 1 :]]), at


def test_a_disk_that_holds_too_much_is_not_explained(first_run: Run) -> None:
    changed, at = _with_a_longer_disk(first_run)
    assert follow_trace(changed) == Outcome(is_accepted=False, reached=at)


@pytest.mark.slow
def test_tlc_has_the_same_verdicts(first_run: Run) -> None:
    jar, java = os.environ.get("JAR"), os.environ.get("JAVA", "java")
    if not jar:
        pytest.skip("JAR does not name tla2tools.jar; docs/design/0023 says how to get it")
    for run in (first_run, _with_a_longer_disk(first_run)[0]):
        assert check_trace(run, jar=jar, java=java) == follow_trace(run)
