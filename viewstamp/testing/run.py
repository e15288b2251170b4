"""One seed: users' actors and scenarios in one simulated cluster, from the swarm to the verdict."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, cast

from viewstamp.actors.replicated import MACHINE_FAILURES, ReplicatedActor
from viewstamp.errors import DivergedError, OutdatedCodeError
from viewstamp.ids import NodeId
from viewstamp.sim.checkers.replicas import check_states
from viewstamp.sim.faults import Faults
from viewstamp.sim.loop import SimulatedLoop
from viewstamp.sim.network import LinkOptions
from viewstamp.sim.swarm import Swarm, draw_swarm, without_faults
from viewstamp.sim.trace import Trace
from viewstamp.sim.violation import Violation
from viewstamp.sim.world import World
from viewstamp.testing.cluster import SimulatedCluster
from viewstamp.testing.watched import WatchedHost, WatchedStreams

__all__ = ["Invariant", "MemberState", "Plan", "Run", "Scenario", "Verdict"]

ActorT = TypeVar("ActorT", bound=ReplicatedActor)


class MemberState:
    """One member's state at this moment. The instances are the member's own: read them, and change nothing."""

    def __init__(self, member: str, host: WatchedHost) -> None:
        self.member = member
        """The member's name."""
        self._host = host

    def actor(self, name: str, cls: type[ActorT], *, key: str = "") -> ActorT:
        """Return the instance of an actor; a new one if no command has created it yet.

        Raises:
          UnknownActorError: no actor has this name.
        """
        return cast("ActorT", self._host.instance(name, key))

    def actors(self, name: str, cls: type[ActorT]) -> dict[str, ActorT]:
        """Return all instances of an actor by their keys.

        Raises:
          UnknownActorError: no actor has this name.
        """
        return cast("dict[str, ActorT]", self._host.instances(name))


Scenario = Callable[[SimulatedCluster], Coroutine[Any, Any, object]]
Invariant = Callable[[MemberState], object]

_PATIENCE_SECONDS = 60.0
"""Simulated seconds that the cluster may take to recover, and the scenarios to end, after the last fault."""
_COMMANDS_SHOWN = 12
_EVENTS_SHOWN = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The properties that all seeds share. ``nodes`` None = the seed draws them; ``faults`` None = drawn, () = none."""

    actors: Mapping[str, type[ReplicatedActor]]
    scenarios: Sequence[Scenario]
    invariant: Invariant | None
    check_each_command: bool
    nodes: int | None
    faults: Sequence[str] | None
    seconds: float

    def draw(self, seed: int) -> Swarm:
        """Draw the cluster's properties from the seed."""
        entropy = SimulatedLoop(seed).entropy("swarm of users' actors")
        swarm = draw_swarm(entropy)
        faults = swarm.faults
        if self.faults is not None:
            faults = {kind: entropy.choice((0.5, 1.0, 3.0)) for kind in self.faults}
        # Without changes of membership, because scenarios refer to members by name.
        faults = {kind: often for kind, often in faults.items() if kind != "members"}
        links = swarm.links
        if self.faults is not None and "slow" not in self.faults:
            # Slow links delay messages for longer than an election takes. That is a fault, and the caller chose others.
            links = replace(links, delay_min=LinkOptions().delay_min, stall=0.0)
        with_snapshots = entropy.random() < 0.6
        swarm = replace(
            swarm,
            nodes=swarm.nodes if self.nodes is None else self.nodes,
            seconds=self.seconds if faults else _PATIENCE_SECONDS,
            # Faults come quickly, because a scenario is short.
            fault_seconds=entropy.choice((0.1, 0.2, 0.5)),
            faults=faults,
            links=links,
            segment_bytes=4 * 1024,
            bytes_max=0,
            snapshot_bytes=entropy.choice((512, 2048, 8192)) if with_snapshots else 1 << 40,
        )
        return without_faults(swarm) if self.faults is not None and not faults else swarm


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of one seed.

    Attributes:
      seed: the seed.
      nodes: the number of members.
      seconds: the duration in simulated seconds.
      commands: the number of applied commands.
      faults: the number of faults, by kind.
      digest: a checksum over every event, equal in each run of the seed.
      finding: the name of the finding; "" = none.
      detail: the finding in words.
      error: the exception that caused the finding; None = there is none.
      last_commands: the last commands before the end.
      last_events: the last events before the end.
    """

    seed: int
    nodes: int
    seconds: float
    commands: int
    faults: Mapping[str, int]
    digest: str
    finding: str = ""
    detail: str = ""
    error: BaseException | None = None
    last_commands: Sequence[str] = ()
    last_events: Sequence[str] = field(default=(), repr=False)


class Run:
    """One run of one seed.

    Invariants:
      * ``finding`` is the first finding; later ones are ignored
      * a command is announced, and checked by the invariant, once; members that apply it later are compared by digests
    """

    def __init__(self, plan: Plan, seed: int, sink: Callable[[str], None] | None = None) -> None:
        self._plan = plan
        self._seed = seed
        self._trace = Trace(sink=sink)
        swarm = plan.draw(seed)
        self._streams: dict[NodeId, WatchedStreams] = {}
        """The state machine of each member's present process, or of its last one."""
        self._world = World(seed, swarm, machine=self._make_machine, trace=self._trace)
        self._faults = Faults(self._world, self._world.loop.entropy("faults"))
        self._scenarios: list[asyncio.Task[None]] = []
        self._commands: deque[str] = deque(maxlen=_COMMANDS_SHOWN)
        self._calls: dict[int, str] = {}
        self._newest = 0
        self._found: Violation | None = None

    def run(self) -> Verdict:
        """Run the seed, once."""
        try:
            self._run()
        except Violation as violation:
            self._found = self._found or _for_users(violation)
        except Exception as error:
            self._found = self._found or _caused(f"no {type(error).__name__}", _text(error), error)
        finally:
            world, found = self._world, self._found
            verdict = Verdict(
                seed=self._seed,
                nodes=world.swarm.nodes,
                seconds=world.loop.time(),
                commands=len(self._calls),
                faults=self._faults.counts,
                digest=self._trace.digest(),
                finding=found.invariant if found is not None else "",
                detail=found.detail if found is not None else "",
                error=found.__cause__ if found is not None else None,
                last_commands=tuple(self._commands),
                last_events=tuple(self._trace.lines)[-_EVENTS_SHOWN:],
            )
            world.close()
        return verdict

    def _run(self) -> None:
        world, loop = self._world, self._world.loop
        for member in world.members:
            world.bring_up(member)
        for number, scenario in enumerate(self._plan.scenarios, 1):
            self._start(scenario, f"scenario-{number}")
        self._faults.start()
        loop.run_until(self._is_done, seconds=world.swarm.seconds)
        self._faults.stop()
        world.calm()
        self._faults.operator.finish()
        operator = self._faults.operator
        if not loop.run_until(
            lambda: self._is_done() and operator.is_done and world.has_settled, seconds=_PATIENCE_SECONDS
        ):
            if not self._is_done():
                where = describe_waiting(loop)
                raise Violation("ScenariosEnd", f"not ended {_PATIENCE_SECONDS:g} s after the last fault\n{where}")
            raise Violation(
                "Liveness", f"not recovered {_PATIENCE_SECONDS:g} s after the last fault: {world.describe()}"
            )
        loop.check()
        self._check_states()
        for member in world.members:
            self._check_invariant(member.name, f"on {member.id} in the end")
            for lost in self._streams[member.name].host.lost_in_snapshots():
                raise Violation("SnapshotsKeepState", lost)
        if self._found is not None:
            raise self._found

    # Scenarios.

    def _start(self, scenario: Scenario, name: str) -> None:
        process = self._world.loop.process(name)
        self._scenarios.append(process.spawn(self._play(scenario, SimulatedCluster(self._world, name)), name=name))

    async def _play(self, scenario: Scenario, cluster: SimulatedCluster) -> None:
        __tracebackhide__ = True
        try:
            await scenario(cluster)
        except Exception as error:
            self._fail(
                _caused("ScenariosPass", f"{getattr(scenario, '__name__', 'a scenario')}: {_text(error)}", error)
            )
        await cluster.close()

    def _is_done(self) -> bool:
        return all(task.done() for task in self._scenarios)

    # Members' states.

    def _make_machine(self, member: NodeId) -> WatchedStreams:
        machine = self._streams[member] = WatchedStreams(self._plan.actors, _Ear(self, member))
        return machine

    def commanded(self, member: NodeId, index: int, call: str, end: str) -> None:
        """Record that a member has applied a command."""
        if index <= self._newest or self._found is not None:
            return
        self._newest = index
        self._world.note(member, "=", f"command {index}: {call}{end}")
        self._calls[index] = call
        self._commands.append(f"{self._world.loop.time():.6f} #{index} {call}{end}")
        if self._plan.check_each_command:
            self._check_invariant(member, f"after command {index}, {call}{end}")

    def changed_by_query(self, member: NodeId, call: str) -> None:
        """Record that a query has changed a member's state."""
        self._fail(
            Violation("QueriesChangeNothing", f"{call} has changed the state of {member}, and of no other member")
        )

    def _check_states(self) -> None:
        try:
            check_states({member.name: member.machine for member in self._world.members})
        except Violation as violation:
            trails = [dict(self._streams[member.name].host.trail) for member in self._world.members]
            for index, call in self._calls.items():
                if len({trail[index] for trail in trails if index in trail}) > 1:
                    raise Violation("StatesEqual", f"members differ since command {index}, {call}") from violation
            raise

    def _check_invariant(self, member: NodeId, when: str) -> None:
        __tracebackhide__ = True
        if self._plan.invariant is None:
            return
        try:
            if self._plan.invariant(MemberState(member, self._streams[member].host)) is False:
                self._fail(Violation("Invariant", f"is False {when}"))
        except Exception as error:
            self._fail(_caused("Invariant", f"{when}: {_text(error)}", error))

    def _fail(self, violation: Violation) -> None:
        """Keep the first finding; the run ends after this event."""
        if self._found is None:
            self._found = violation
            self._world.fail(violation)


@dataclass(frozen=True, slots=True)
class _Ear:
    """The ``Watch`` of one member."""

    run: Run
    member: NodeId

    def commanded(self, index: int, call: str, end: str) -> None:
        self.run.commanded(self.member, index, call, end)

    def changed_by_query(self, call: str) -> None:
        self.run.changed_by_query(self.member, call)


def _caused(invariant: str, detail: str, error: BaseException) -> Violation:
    violation = Violation(invariant, detail)
    violation.__cause__ = error
    return violation


def _for_users(violation: Violation) -> Violation:
    """Return the finding under the name that users know."""
    match violation.__cause__:
        case DivergedError() as error:
            return _caused("StatesEqual", str(error), error)
        case OutdatedCodeError() as error:
            return _caused("SnapshotsKeepState", str(error), error)
        case BaseException() as error if isinstance(error, MACHINE_FAILURES):
            where = "; ".join(getattr(error, "__notes__", ()))
            return _caused("CommandsEnd", f"{type(error).__name__} stops the node: {error}; {where}", error)
    return violation


def _text(error: BaseException) -> str:
    """Return an exception on one line: with its type, unless it is an AssertionError with a message."""
    first = (str(error).splitlines() or [""])[0]
    return first if isinstance(error, AssertionError) and first else f"{type(error).__name__}: {first}"


_NOT_USERS = (str(Path(asyncio.__file__).parent), str(Path(__file__).parents[1]))


def describe_waiting(loop: asyncio.AbstractEventLoop) -> str:
    """Return a line for each task of users' code, with the lines in which it waits, the innermost last."""
    lines = []
    for task in sorted(asyncio.all_tasks(loop), key=hash):
        frames = [frame for frame in _frames(task) if not frame.f_code.co_filename.startswith(_NOT_USERS)]
        if frames:
            places = (f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}" for frame in frames)
            lines.append(f"{task.get_name()} waits in {', '.join(places)}")
    return "\n".join(lines)


def _frames(task: asyncio.Task[Any]) -> list[FrameType]:
    """Return the frames of the coroutines that await each other; ``Task.get_stack`` has only the outermost."""
    frames = []
    waiting: Any = task.get_coro()
    while getattr(waiting, "cr_frame", None) is not None:
        frames.append(waiting.cr_frame)
        waiting = waiting.cr_await
    return frames
