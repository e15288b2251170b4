"""``Simulation``: users' actors in simulated clusters, seed after seed, and the failure that says how to repeat it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from viewstamp.actors.replicated import ActorHost, ReplicatedActor, lint
from viewstamp.sim.swarm import FAULTS
from viewstamp.testing.run import Invariant, Plan, Run, Scenario, Verdict

__all__ = ["SECONDS", "SEEDS", "Invocation", "SeedFailedError", "Simulation"]

SECONDS = 4.0
SEEDS = 20


class SeedFailedError(AssertionError):
    """A seed has found something. The message says what, and how to repeat it; ``verdict`` has the rest."""

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
    """What was asked for beside the test's own words; the values of the command line's options.

    ``seed``: this one only. ``seeds``: 1 to this one. ``sink``: hears every event. ``repeat``: gives the command that
    runs a seed again. ``show``: takes what is worth reading beside a failure.
    """

    seed: int | None = None
    seeds: int | None = None
    sink: Callable[[str], None] | None = None
    repeat: Callable[[int], str] = lambda seed: f"Simulation(...).run(..., only={seed})"
    show: Callable[[str], None] = lambda text: None


class Simulation:
    """Clusters that run given actors, one for each seed, in which everything breaks that may break."""

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
          nodes: how many members; None = the seed draws 1, 3 or 5.
          faults: the kinds that may happen, of ``viewstamp.sim.swarm.FAULTS``; () = none, None = the seed draws some.
          seconds: how long faults go on, in simulated seconds, unless the scenarios end before.
          allow: parts of what the linter says about the classes that are all right.
          invocation: what the command line asks for.

        Raises:
          TypeError: what is to be an actor is none.
          ValueError: a fault is not known, or there are no members.
        """
        ActorHost(actors)  # for its errors
        unknown = sorted(set(faults or ()) - set(FAULTS))
        if unknown:
            raise ValueError(f"no such faults: {', '.join(unknown)}; there are {', '.join(FAULTS)}")
        if nodes is not None and nodes < 1:
            raise ValueError(f"{nodes} members are no cluster")
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
        """Run the scenarios, at the same time, in one cluster after the other; stop at the first seed that fails.

        Args:
          scenarios: coroutine functions that are given the :class:`SimulatedCluster`.
          seeds: how many; 1 to this one, the same ones each time.
          invariant: is given the :class:`MemberState` of each member when all have recovered, and asserts what must
            hold of it, or returns False.
          check_each_command: ask the invariant after every command too.

        Returns:
          what each seed came to.

        Raises:
          SeedFailedError: a seed found something.
          AssertionError: the linter did, or no seed applied a single command.
          RuntimeError: an event loop runs already: the test is ``async``, and should not be.
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
            raise AssertionError("no command was applied in any seed: the scenarios test nothing")
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
            raise AssertionError("\n".join(["this would not be the same on every member:", *findings]))


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("run() brings its own event loop, in simulated time: write the test as `def`, not `async def`")


def _last_words(verdict: Verdict) -> str:
    return "\n".join(["the last commands:", *verdict.last_commands, "", "the last events:", *verdict.last_events, ""])
