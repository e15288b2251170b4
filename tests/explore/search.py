"""Breadth first through all worlds of a scope: each is visited once, and the first trace that breaks is a shortest.

Of a visited world only a hash of 64 bits is kept, and the number of the world before it. Two worlds with one hash would
hide one of them: with a million worlds the chance is one in thirty million. A trace is found again by walking forward
along the hashes.
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
    """What a search has found."""

    states: int = 0
    """Distinct worlds."""
    transitions: int = 0
    depth: int = 0
    """Steps from the start to the farthest world that was visited."""
    is_exhausted: bool = False
    """Whether there was nothing left to visit."""
    broken: Broken | None = None
    trace: list[str] = field(default_factory=list)
    """How to get from the start to what is broken, in words."""
    seconds: float = 0.0
    member_states: int = 0
    calls: int = 0
    """How often a real core was asked."""

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
    """Visit every world that can be reached from ``start`` (default: nothing has happened), until one is broken.

    Args:
      world: the scope.
      start: where to begin.
      states_max: stop after so many.
      seconds_max: stop after so long.
      prefix: how ``start`` was reached, in words.
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
    """Walk from ``first`` to the world of that number, and to what is broken behind it, with names that stay."""
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
    """Say a step in words."""
    me = world.names[step.member]
    what = step.what
    words = " ".join(map(str, (me, *what))).rstrip(" 0")
    member = world.members.all[state.members[step.member]]
    if what.word == "deliver":
        words = f"{me} receives {world.messages.all[what.number]}"
    elif what.word == "write":
        writes = ", ".join(map(str, member.queue[0].writes)) or "nothing"
        words = f"{me} has durable, and is told: {writes}"
    left = world.left_by(state, step)
    return words if left is None else f"{words}, and crashes amid that; it starts with {left.disk}"
