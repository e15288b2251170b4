"""Breadth-first search through all worlds of a scope.

Each is visited once, and the first failing trace is a shortest one.

For a visited world, the search keeps only a 64-bit hash and the number of the preceding world. Two worlds with the same
hash would hide one of them: with a million worlds the chance is one in thirty million. A trace is reconstructed by
walking forward along the hashes.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.explore.world import Broken, State, Step, World

__all__ = ["Result", "search"]


@dataclass(kw_only=True)
class Result:
    """The result of a search."""

    states: int = 0
    """Number of distinct worlds."""
    transitions: int = 0
    depth: int = 0
    """Number of steps from the start to the farthest visited world."""
    is_exhausted: bool = False
    """Whether all reachable worlds were visited."""
    broken: Broken | None = None
    trace: list[str] = field(default_factory=list)
    """The steps from the start to the broken world, in words."""
    seconds: float = 0.0
    member_states: int = 0
    calls: int = 0
    """Number of calls of a real core."""

    def __str__(self) -> str:
        end = "exhausted" if self.is_exhausted else "not exhausted"
        if self.broken is not None:
            end = f"{self.broken.invariant} after {len(self.trace)} steps"
        return (
            f"{self.states:,} worlds, {self.transitions:,} steps, depth {self.depth}, {self.seconds:.1f} s: {end}"
            f" ({self.member_states:,} states of one member, {self.calls:,} calls of the core)"
        )


def search(
    world: World,
    start: State | None = None,
    *,
    states_max: int | None = None,
    seconds_max: float | None = None,
    prefix: Sequence[str] = (),
    progress: Callable[[Result], None] = lambda _: None,
) -> Result:
    """Visit every world that can be reached from ``start`` (default: the first world), until one is broken.

    Args:
      world: the scope.
      start: the initial world.
      states_max: the number of worlds after which the search stops.
      seconds_max: the time after which the search stops, in seconds.
      prefix: the steps that led to ``start``, in words.
      progress: called after each 20,000 worlds.
    """
    began = time.monotonic()
    first = world.canonical(start or world.first())
    result = Result(states=1)
    numbers = {hash(first): 0}
    parents = array("l", [-1])
    hashes = array("q", [hash(first)])
    level = [first]

    def finish() -> Result:
        result.seconds = time.monotonic() - began
        result.member_states = len(world.members.all)
        result.calls = world.calls
        return result

    while level:
        following: list[State] = []
        for state in level:
            number = numbers[hash(state)]
            for _, follows in world.next(state):
                result.transitions += 1
                if isinstance(follows, Broken):
                    result.broken = follows
                    result.trace = [*prefix, *_trace(world, first, parents, hashes, number)]
                    return finish()
                canonical = world.canonical(follows)
                key = hash(canonical)
                if key in numbers:
                    continue
                numbers[key] = result.states
                parents.append(number)
                hashes.append(key)
                result.states += 1
                following.append(canonical)
                if result.states % 20_000 == 0:
                    progress(finish())
            if (states_max and result.states >= states_max) or (seconds_max and time.monotonic() - began > seconds_max):
                return finish()
        level = following
        result.depth += bool(level)
    result.is_exhausted = True
    return finish()


def _trace(world: World, first: State, parents: array[int], hashes: array[int], number: int) -> list[str]:
    """Walk from ``first`` to that world and one step further, to the broken one, without renaming members."""
    path: list[int] = []
    while number > 0:
        path.append(hashes[number])
        number = parents[number]
    state = first
    words = []
    for key in reversed(path):
        before = state
        step, state = next(
            (step, follows)
            for step, follows in world.next(state)
            if isinstance(follows, State) and hash(world.canonical(follows)) == key
        )
        words.append(describe(world, before, step))
    step, broken = next((step, follows) for step, follows in world.next(state) if isinstance(follows, Broken))
    return [*words, f"{describe(world, state, step)}: {broken.complaint}"]


def describe(world: World, state: State, step: Step) -> str:
    """Describe a step in words."""
    me = world.names[step.member]
    what = step.what
    words = " ".join(map(str, (me, *what))).rstrip(" 0")
    member = world.members.all[state.members[step.member]]
    if what.word == "deliver":
        words = f"{me} receives {world.messages.all[what.number]}"
    elif what.word == "write":
        writes = ", ".join(map(str, member.queue[0].writes)) or "nothing"
        words = f"{me} completes: {writes}"
    left = world.left_by(state, step)
    return words if left is None else f"{words}, and crashes amid that; it starts with {left.disk}"
