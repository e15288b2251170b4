"""The means that find a planted mistake.

A seed of the simulator or of the core's schedules, an exploration, or a test.
"""

from __future__ import annotations

import contextlib
import gc
import io
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn

import pytest

from tests.consensus import schedule
from tests.explore.scopes import explore
from tests.mutants.aims import AIMS
from tests.mutants.catalogue import CATALOGUE
from tests.node import group
from viewstamp.errors import ContradictionError, PeerError
from viewstamp.sim.run import run_seed

__all__ = ["SEEDS_MAX", "Case", "Exploration", "Killer", "Schedule", "Seed", "find", "hunt"]

SEEDS_MAX = 500
"""Number of seeds that are tried; a mistake that survives them counts as not found."""

_ROOT = Path(__file__).parents[2]
_SECONDS_MAX = 120
_PATIENCE_SECONDS = 5.0
"""Seconds that a test of the node waits for an event that a mutant usually prevents; on the real code it is 20 s."""
_KNOWN = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
"""The plugin for users of viewstamp has been imported before this pytest begins."""


class Seed(NamedTuple):
    """A seed of the simulator with the swarm of an aim; it runs the whole product, with disks and clients."""

    aim: str
    seed: int

    def find(self) -> str:
        """Return the violated invariant; "" = none."""
        return run_seed(self.seed, swarm=AIMS[self.aim].swarm).invariant

    def __str__(self) -> str:
        return f"simulator, {self.aim}, seed {self.seed}"


class Schedule(NamedTuple):
    """A random schedule of the core alone, by a mix of ``tests.consensus.schedule`` and a seed."""

    mix: str
    seed: int

    def find(self) -> str:
        """Return the violated invariant or the core's error; "" = none."""
        try:
            schedule.run(self.mix, self.seed, finish=True)
        except (AssertionError, PeerError, ContradictionError) as found:
            return getattr(found, "invariant", "") or _reason(found)
        return ""

    def __str__(self) -> str:
        return f"schedule, {self.mix}, seed {self.seed}"


class Exploration(NamedTuple):
    """A search of a small scope of the core alone; ``states`` is the number of worlds until the first broken one."""

    scope: str
    states: int

    def find(self) -> str:
        """Return the violated invariant; "" = none among twice as many worlds."""
        broken = explore(self.scope, states_max=2 * self.states + 100).broken
        return broken.invariant if broken is not None else ""

    def __str__(self) -> str:
        return f"explorer, {self.scope}, {self.states:,} worlds"


class Case(NamedTuple):
    """A test of the suite, which fails."""

    name: str
    """Its pytest id; without parameters, one of its cases has to fail."""

    def find(self) -> str:
        """Return the test's failure; "" = none. Skips the running test if this one is, for lack of a package."""
        report = _Report()
        # A world that an earlier mutant broke may leave coroutines behind, which are collected during a later test.
        switched_off = [f"no:{plugin}" for plugin in ("cacheprovider", "terminal", "unraisableexception")]
        configuration = f"--config-file={_ROOT / 'pyproject.toml'}"  # Also for a test outside of the repository.
        arguments = ["-x", *(f"-p{each}" for each in switched_off), "-W", _KNOWN, f"--rootdir={_ROOT}", configuration]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            pytest.main([*arguments, str(_ROOT / self.name)], plugins=[report])
        _forget_what_was_left_open()
        if report.skipped and not report.called:
            pytest.skip(f"{self.name}: {report.skipped[0]}")
        assert report.called, f"{self.name} is no test, or cannot be set up: {report.errors}"
        return report.failed[0] if report.failed else ""

    def __str__(self) -> str:
        return f"`{self.name}`"


Killer = Seed | Schedule | Exploration | Case


@dataclass(eq=False)
class _Report:
    """A pytest plugin that records the tests that were run, and shortens their patience."""

    called: int = 0
    skipped: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, None, None]:
        """Let the body of a test wait for a shorter time; its fixtures must not fail on a busy machine."""
        before, group.PATIENCE_SECONDS = group.PATIENCE_SECONDS, _PATIENCE_SECONDS
        try:
            yield
        finally:
            group.PATIENCE_SECONDS = before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.called += 1
            if report.failed:
                self.failed.append(_crash_of(report))
        elif report.failed:
            self.errors.append(_crash_of(report))
        elif report.skipped:
            self.skipped.append(str(report.longrepr))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(str(report.longrepr))
        elif report.skipped:  # The whole module, by importorskip.
            self.skipped.append(str(report.longrepr))


def _forget_what_was_left_open() -> None:
    """Release the objects that a failed test left open, because a later report would blame a healthy test."""
    for name in ("last_exc", "last_traceback", "last_type", "last_value"):
        sys.__dict__.pop(name, None)  # It keeps a failure with all its frames.
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(3):  # The end of a coroutine runs code, which may leave further objects behind.
                if not gc.collect():
                    break
    finally:
        sys.unraisablehook = before
    gc.freeze()  # What is left is in use. Looking at it again and again took half of the time of the tests of mutants.


def _crash_of(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message.splitlines()[0] if crash is not None else str(report.longrepr)


def _reason(error: Exception) -> str:
    """Return the first words of an error's message, which are the same in every run."""
    text = str(error).split(":")[0].splitlines()
    return "no progress" if text and text[0] == "no progress" else type(error).__name__


@contextlib.contextmanager
def limited(seconds: int = _SECONDS_MAX) -> Iterator[None]:
    """Raise AssertionError if the body hangs; works in the main thread only."""

    def ring(_: int, __: FrameType | None) -> NoReturn:
        raise AssertionError("hangs")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def find(mutant: str, killer: Killer) -> str:
    """Run a killer with a mutant planted; return its finding, "" = the mutant survives."""
    with limited(), CATALOGUE[mutant].plant():
        return killer.find()


def hunt(
    mutant: str, killer: Killer, *, seeds_max: int = SEEDS_MAX, progress: Callable[[Killer], None] = lambda _: None
) -> tuple[Killer, str] | None:
    """Return a killer of the same kind that finds a mutant, with its finding.

    None = the mutant survives ``seeds_max``.
    """
    if isinstance(killer, Seed | Schedule):  # Try the recorded one first, because it usually still works.
        tried: Iterable[Killer] = [killer, *(killer._replace(seed=seed) for seed in range(seeds_max))]
    else:
        tried = [killer]
    for each in tried:
        progress(each)
        found = find(mutant, each)
        if found:
            return each, found
    return None
