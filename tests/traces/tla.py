"""Writes a recorded run as a TLA+ module, and runs TLC on it."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.traces.interpreter import Module, State
from tests.traces.recorder import Step
from tests.traces.runs import Run

__all__ = ["Outcome", "check_trace", "follow_trace", "module_of", "outcome_of"]

_SPECIFICATIONS = Path(__file__).parents[2] / "docs" / "design" / "announcement"
_INVARIANTS = (
    "OneLeader LogSafety LeaderComplete CommittedIsChosen CommittedIsDurable HistoryTrue DurableIsDurable FollowsLeader"
    " AckedIsDurable"
)
_MODULES = ("Announcement.tla", "AnnouncementTrace.tla")
_CONFIGURATION = f"""SPECIFICATION TraceSpec
CONSTANTS
  Node <- Members
  None = ""
  Founders <- FirstVoters
  Changes = {{}}
  Value = {{}}
  MaxTerm <- HighestTerm
  MaxLen = 1000000
  MaxCrash = 1000000
  Mistakes = {{}}
INVARIANTS {_INVARIANTS} Unfinished
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict of TLC on one run. ``is_accepted``: the run is a behaviour of the specification."""

    is_accepted: bool
    reached: int
    """Steps of the run that are steps of the specification; the next one is not."""
    broken: str = ""
    """The invariant of the specification that does not hold after them; "" = none."""


def module_of(run: Run) -> str:
    """Return the text of the module ``Recorded``: the members, the highest term, and the steps."""
    lines = ",\n".join(f"  {_literal(step)}" for step in run.steps)
    return (
        "---- MODULE Recorded ----\n"
        f"Members == {_literal(frozenset(_members(run)))}\n"
        f"FirstVoters == {_literal(run.founders)}\n"
        f"HighestTerm == {_highest_term(run)}\n"
        f"Steps == <<\n{lines}\n>>\n"
        "====\n"
    )


def _frozen(step: Step) -> Step:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in step.items()}


def _members(run: Run) -> list[str]:
    return sorted({step["member"] for step in run.steps})


def _highest_term(run: Run) -> int:
    return max([1, *(step["term"] for step in run.steps if "term" in step)])


def _literal(value: object) -> str:
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(int(value))
        case str():
            return f'"{value}"'
        case frozenset():
            return f"{{{', '.join(sorted(map(_literal, value)))}}}"
        case Mapping():
            return f"[{', '.join(f'{key} |-> {_literal(each)}' for key, each in value.items())}]"
        case Iterable():
            return f"<<{', '.join(map(_literal, value))}>>"
        case _:
            raise TypeError(f"no TLA+ value: {value!r}")


def follow_trace(run: Run) -> Outcome:
    """Check a recorded run as ``check_trace`` does, with an evaluation of the same modules in this process."""
    constants = {
        "Node": frozenset(_members(run)),
        "None": "",
        "Founders": run.founders,
        "Changes": frozenset[str](),
        "Value": frozenset[str](),
        "MaxTerm": _highest_term(run),
        "MaxLen": 1_000_000,
        "MaxCrash": 1_000_000,
        "Mistakes": frozenset[str](),
        "Steps": tuple(map(_frozen, run.steps)),
    }
    module = Module([_SPECIFICATIONS / name for name in _MODULES], constants)
    states = list(module.states("TraceInit"))
    for reached in range(len(run.steps) + 1):
        broken = [name for name in _INVARIANTS.split() for state in states if not module.is_true(name, state)]
        if broken:
            return Outcome(is_accepted=False, reached=reached, broken=broken[0])
        if reached == len(run.steps):
            break
        following: list[State] = []
        for state in states:
            following += [new for new in module.states("TraceNext", state) if new not in following]
        if not following:
            return Outcome(is_accepted=False, reached=reached)
        states = following
    return Outcome(is_accepted=True, reached=len(run.steps))


def check_trace(run: Run, *, jar: str, java: str) -> Outcome:
    """Run TLC on a recorded run. Blocks for some seconds. Raises RuntimeError if TLC fails for another reason."""
    with tempfile.TemporaryDirectory(prefix="viewstamp-trace-") as directory:
        work = Path(directory)
        for name in _MODULES:
            shutil.copy(_SPECIFICATIONS / name, work)
        (work / "Recorded.tla").write_text(module_of(run))
        (work / "AnnouncementTrace.cfg").write_text(_CONFIGURATION)
        options = ["-deadlock", "-workers", "1", "-config", "AnnouncementTrace.cfg", "AnnouncementTrace.tla"]
        memory = ["-Xmx2g", "-Xss64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command = [java, *memory, "-cp", jar, "tlc2.TLC", *options]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    return outcome_of(done.stdout, len(run.steps))


def outcome_of(output: str, count: int) -> Outcome:
    """Return the verdict in the output of TLC on a run of ``count`` steps. Raises RuntimeError if it holds none."""
    broken = re.search(r"Invariant (\w+) is violated", output)
    states = re.findall(r"^State (\d+):", output, re.MULTILINE)
    if broken is not None and broken[1] == "Unfinished":
        return Outcome(is_accepted=True, reached=count)
    if broken is not None:
        return Outcome(is_accepted=False, reached=int(states[-1]) - 1, broken=broken[1])
    depth = re.search(r"depth of the complete state graph search is (\d+)", output)
    if depth is None or "No error has been found" not in output:
        raise RuntimeError(f"TLC failed:\n{output[-4000:]}")
    return Outcome(is_accepted=False, reached=int(depth[1]) - 1)
