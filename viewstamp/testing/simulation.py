"""``Simulation``: users' actors in simulated clusters, seed after seed, and the failure with its command."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from viewstamp.actors.replicated import ActorHost, ReplicatedActor, lint
from viewstamp.sim.swarm import FAULTS
from viewstamp.testing.run import Invariant, Plan, Run, Scenario, Verdict

if TYPE_CHECKING:
    import pytest

__all__ = ["SECONDS", "SEEDS", "ClusterFactory", "Invocation", "SeedFailedError", "Simulation"]

SECONDS = 4.0
SEEDS = 20


class SeedFailedError(AssertionError):
    """A seed has a finding. The message has the finding and the command that repeats it; ``verdict`` has the rest."""

    def __init__(self, verdict: Verdict, command: str) -> None:
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(verdict.faults.items())) or "none"
        super().__init__(
            f"seed {verdict.seed}: {verdict.finding}: {verdict.detail}\n"
            f"members: {verdict.nodes}; simulated: {verdict.seconds:.3f} s; faults: {faults}\n"
            f"repeat it: {command}"
        )
        self.verdict = verdict
        self.command = command


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """The options of pytest's command line.

    Attributes:
      seed: run this seed only.
      seeds: run seeds 1 to this one.
      sink: called with every event.
      repeat: returns the command that runs a seed again.
      show: called with the text to show beside a failure.
    """

    seed: int | None = None
    seeds: int | None = None
    sink: Callable[[str], None] | None = None
    repeat: Callable[[int], str] = lambda seed: f"Simulation(...).run(..., only={seed})"
    show: Callable[[str], None] = lambda text: None


class Simulation:
    """Clusters with faults that run given actors, one cluster for each seed."""

    def __init__(
        self,
        actors: Mapping[str, type[ReplicatedActor]],
        *,
        nodes: int | None = None,
        faults: Collection[str] | None = None,
        seconds: float = SECONDS,
        allow: Collection[str] = (),
        invocation: Invocation | None = None,
    ) -> None:
        """Describe the clusters; nothing runs yet.

        Args:
          actors: the classes by the names that callers use.
          nodes: the number of members; None = the seed draws 1, 3 or 5.
          faults: the kinds that may happen, from ``viewstamp.sim.swarm.FAULTS``; () = none, None = the seed draws some.
          seconds: the duration of the faults in simulated seconds, unless the scenarios end before.
          allow: parts of the linter's messages about the classes that are accepted.
          invocation: the options of the command line.

        Raises:
          TypeError: an actor is not a class of replicated actors.
          ValueError: a fault is unknown, or there are no members.
        """
        ActorHost(actors)  # Raises TypeError for a wrong class.
        unknown = sorted(set(faults or ()) - set(FAULTS))
        if unknown:
            raise ValueError(f"there are no faults {', '.join(unknown)}; known: {', '.join(FAULTS)}")
        if nodes is not None and nodes < 1:
            raise ValueError(f"nodes={nodes}, but a cluster has at least 1")
        self._actors = dict(actors)
        self._nodes = nodes
        self._faults = None if faults is None else [kind for kind in FAULTS if kind in set(faults)]
        self._seconds = seconds
        self._allow = tuple(allow)
        self._invocation = invocation or Invocation()

    def run(
        self,
        *scenarios: Scenario,
        seeds: int = SEEDS,
        invariant: Invariant | None = None,
        check_each_command: bool = False,
    ) -> list[Verdict]:
        """Run the scenarios, at the same time, in one cluster after the other. Stops at the first seed that fails.

        Example::

            def test_transfers(viewstamp_cluster):
                viewstamp_cluster(actors={"bank": Bank}).run(transfers, seeds=50, invariant=no_money_is_lost)

        Args:
          scenarios: coroutine functions that are called with the :class:`SimulatedCluster`.
          seeds: the number of seeds; always 1 to this one.
          invariant: called with the :class:`MemberState` of each member when all have recovered. It asserts a property,
            or returns False.
          check_each_command: also check the invariant after every command.

        Returns:
          The verdicts of the seeds.

        Raises:
          SeedFailedError: a seed has a finding.
          AssertionError: the linter has a finding, or no seed applied a single command.
          RuntimeError: an event loop runs already, because the test is ``async``; write it with ``def``.
        """
        __tracebackhide__ = True
        _check_no_loop()
        self._lint()
        plan = Plan(
            actors=self._actors,
            scenarios=scenarios,
            invariant=invariant,
            check_each_command=check_each_command,
            nodes=self._nodes,
            faults=self._faults,
            seconds=self._seconds,
        )
        asked = self._invocation
        chosen = [asked.seed] if asked.seed is not None else range(1, (asked.seeds or seeds) + 1)
        verdicts = []
        for seed in chosen:
            verdict = Run(plan, seed, asked.sink).run()
            if verdict.finding:
                asked.show(_last_words(verdict))
                raise SeedFailedError(verdict, asked.repeat(seed)) from verdict.error
            verdicts.append(verdict)
        if self._actors and not any(verdict.commands for verdict in verdicts):
            raise AssertionError("no command was applied in any seed, so the scenarios test nothing")
        return verdicts

    def _lint(self) -> None:
        __tracebackhide__ = True
        findings = [
            finding
            for cls in dict.fromkeys(self._actors.values())
            for finding in lint(cls)
            if not any(allowed in finding for allowed in self._allow)
        ]
        if findings:
            raise AssertionError("\n".join(["the linter found code that may differ between members:", *findings]))


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("run() has its own event loop, in simulated time: write the test as `def`, not `async def`")


def _last_words(verdict: Verdict) -> str:
    return "\n".join(["the last commands:", *verdict.last_commands, "", "the last events:", *verdict.last_events, ""])


class ClusterFactory:
    """Creates the simulations of one test, according to pytest's command line."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        config = request.config
        self._invocation = Invocation(
            seed=config.getoption("--viewstamp-seed"),
            seeds=config.getoption("--viewstamp-seeds"),
            sink=_printer(config) if config.getoption("--viewstamp-trace") else None,
            repeat=lambda seed: f"pytest {shlex.quote(_test_of(request))} --viewstamp-seed {seed}",
            show=lambda text: request.node.add_report_section("call", "viewstamp", text),
        )

    def __call__(
        self,
        actors: Mapping[str, type[ReplicatedActor]],
        *,
        nodes: int | None = None,
        faults: Collection[str] | None = None,
        seconds: float = SECONDS,
        allow: Collection[str] = (),
    ) -> Simulation:
        """Describe the clusters to simulate. See :class:`Simulation`."""
        return Simulation(actors, nodes=nodes, faults=faults, seconds=seconds, allow=allow, invocation=self._invocation)


def _test_of(request: pytest.FixtureRequest) -> str:
    """Return the test's name for a command line, relative to the directory in which pytest was called."""
    item: Any = request.node
    _, colons, names = item.nodeid.partition("::")
    return f"{os.path.relpath(item.path, request.config.invocation_params.dir)}{colons}{names}"


def _printer(config: pytest.Config) -> Callable[[str], None]:
    """Return a function that prints a line to the terminal, even if pytest captures output."""
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    if reporter is None:
        return print

    def write(line: str) -> None:
        reporter.ensure_newline()
        reporter.write_line(line)

    return write
