"""Injects faults that a seed decides, on two parallel tracks, each with one fault after another.

One track breaks processes, disks and the membership, and waits until the cluster has recovered by itself. The other
track is the weather: faults that pass. The tracks overlap freely, with one exception: when a recovery takes long, the
weather clears until it is done, because no cluster can recover on a network that is always broken.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tests.soak.members import PATIENCE_SECONDS, InvariantError, SoakedProcesses, StuckError
from tests.soak.proxy import CLIENT, Loss
from viewstamp.errors import ViewstampError
from viewstamp.host.chaos import Fault, FaultKind
from viewstamp.ids import NodeId, name_of

__all__ = ["BREAKS", "WEATHER", "Event", "Faults"]

BREAKS = {
    "kill": 4,
    "kill-leader": 3,
    "kill-all": 2,
    "restart": 2,
    "transfer": 3,
    "flip-bit": 5,
    "wipe": 3,
    "add": 2,
    "remove": 2,
    "replace": 1,
}
"""Weights of the faults, by name, that last until the cluster has recovered."""
WEATHER = {
    "pause": 3,
    "partition": 3,
    "one-way": 3,
    "slow-network": 2,
    "lossy-network": 1,
    "drop": 2,
    "slow-disk": 2,
    "full-disk": 2,
}
"""Weights of the faults, by name, that pass."""

_CLEAR_AFTER_SECONDS = 15.0
_LEARNING_SECONDS = 5.0
"""Time that the members may take to adapt to the latency of the network ..."""
_LOSSY_SECONDS = 10.0
"""... and time within which a record must then be committed."""


@dataclass(slots=True, kw_only=True)
class Event:
    """One fault: its kind, its target, and its begin and end on the history's clock."""

    kind: str
    detail: str
    at: float
    until: float = 0.0
    is_done: bool = False
    """False = it was impossible at that time, or was cut short."""


class Faults:
    """Breaks a cluster until the time is over.

    Invariants:
      * no fault impairs more than a minority of the voters: each one asks :meth:`SoakedProcesses.check_may_impair`
      * when :meth:`run` returns, all weather is over, and every process was started again
    """

    def __init__(self, processes: SoakedProcesses, seed: str, *, nodes: int, kinds: Sequence[str] = ()) -> None:
        """Prepare the faults.

        Args:
          processes: the cluster.
          seed: decides the faults, their targets and the pauses between them.
          nodes: the lowest number of voters.
          kinds: the names of the wanted faults; none = all.
        """
        self.events: list[Event] = []
        self._processes = processes
        self._nodes = nodes
        self._kinds = set(kinds) or {*BREAKS, *WEATHER}
        self._entropy = {name: random.Random(f"{seed} {name}") for name in ("breaks", "weather")}
        self._is_over = asyncio.Event()
        self._clear_for = 0
        """Number of recoveries that wait for fair weather."""

    async def run(self, seconds: float) -> None:
        """Inject faults for ``seconds``, then heal the weather. Raises StuckError if a node did not recover."""
        tracks = [
            asyncio.ensure_future(self._track("breaks", BREAKS, self._break)),
            asyncio.ensure_future(self._track("weather", WEATHER, self._pass)),
        ]
        try:
            await asyncio.wait(tracks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
            self._is_over.set()
            await asyncio.gather(*tracks)
        finally:
            for track in tracks:
                track.cancel()
            await asyncio.gather(*tracks, return_exceptions=True)
            self._processes.heal()

    async def _track(
        self, name: str, weights: dict[str, int], act: Callable[[str, random.Random, Event], Awaitable[None]]
    ) -> None:
        entropy = self._entropy[name]
        kinds = [kind for kind in weights if kind in self._kinds]
        while kinds and not await self._over_within(entropy.uniform(0.3, 3.0)):
            if name == "weather" and self._clear_for:
                continue
            (kind,) = entropy.choices(kinds, [weights[kind] for kind in kinds])
            event = Event(kind=kind, detail="", at=time.monotonic())
            self.events.append(event)
            try:
                await act(kind, entropy, event)
                event.is_done = event.is_done or bool(event.detail)
            except InvariantError as error:
                event.detail = f"not done: {error}"
            except StuckError as error:
                event.detail += f"; {error}"
                raise
            finally:
                event.until = time.monotonic()

    async def _over_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_over.wait(), seconds)
        return self._is_over.is_set()

    # -- Lasting faults ---------------------------------------------------------------------------------------

    async def _break(self, kind: str, entropy: random.Random, event: Event) -> None:
        processes = self._processes
        name = entropy.choice(processes.names)
        down = entropy.uniform(0, 2)
        match kind:
            case "kill-leader":
                event.detail = await processes.leader() or name
                await self._kill([event.detail], down)
            case "kill":
                event.detail = name
                await self._kill([name], down)
            case "kill-all":
                event.detail = ", ".join(processes.names)
                await self._kill(processes.names, down)
            case "restart":
                event.detail = name
                await processes.stop(name)
                await asyncio.sleep(down)
                await processes.start(name)
                await self._back(name)
            case "flip-bit":
                back = entropy.random() * entropy.choice((0, 0, 1))
                await self._damage(name, event, lambda name: processes.flip_bit(name, back))
            case "wipe":
                await self._damage(name, event, processes.wipe)
            case "transfer":
                await self._transfer(name, event)
            case "add":
                if len(processes.names) > self._nodes + 1:
                    raise InvariantError("there are enough members")
                event.detail = await processes.make_node()
                await self._join(event.detail, replaces="")
            case "remove":
                if len(processes.names) <= self._nodes:
                    raise InvariantError("there are few members")
                event.detail = name
                await self._leave(name)
            case "replace":
                new = await processes.make_node()
                event.detail = f"{name} by {new}"
                await self._join(new, replaces=name)
                await processes.retire(name)

    async def _kill(self, names: list[str], down: float) -> None:
        await self._processes.kill(*names)
        await asyncio.sleep(down)
        await self._processes.start(*names)
        await self._back(*names)

    async def _damage(self, name: str, event: Event, act: Callable[[str], Awaitable[str]]) -> None:
        """Stop a node, damage its disk, and start it; it has to recover by itself."""
        processes = self._processes
        await processes.check_may_impair(name)
        await processes.kill(name)
        try:
            done = await act(name)
            event.detail = f"{name}: {done}" if done else ""
        finally:
            await processes.start(name)
        await self._back(name)

    async def _transfer(self, name: str, event: Event) -> None:
        members = await self._processes.members()
        target = next((voter for voter in members.voters if name_of(voter) == name), None) if members else None
        with suppress(ViewstampError):  # In bad weather the target may be unreachable; then the leader continues.
            event.detail = f"to {await self._processes.admin.transfer_leadership(target, timeout=5)}"

    async def _join(self, name: str, *, replaces: str) -> None:
        """Ask for a node to be added, as often as necessary, and wait until it votes."""
        processes = self._processes

        async def is_asked_for() -> bool:
            members = await processes.members()
            return members is not None and name in members.addresses

        async def ask() -> None:
            members = await processes.admin.list_members(timeout=3)
            old = next((voter for voter in members.voters if name_of(voter) == replaces), "")
            address = processes.board.proxies[name].address
            await processes.admin.add_member(name, address, replaces=old, timeout=5)

        await self._insist(f"{name} is added", ask, is_asked_for)
        await self._back(name)

    async def _leave(self, name: str) -> None:
        processes = self._processes

        async def is_gone() -> bool:
            members = await processes.members()
            return (
                members is not None and NodeId(name) not in map(name_of, members.addresses) and not members.is_changing
            )

        async def ask() -> None:
            members = await processes.admin.list_members(timeout=3)
            member = next((each for each in members.addresses if name_of(each) == name), None)
            if member is not None:
                await processes.admin.remove_member(member, timeout=5)

        await self._insist(f"{name} is removed", ask, is_gone)
        await processes.retire(name)

    async def _insist(
        self, what: str, ask: Callable[[], Awaitable[None]], is_so: Callable[[], Awaitable[bool]]
    ) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        told = ""
        with self._fair_weather():
            while not await is_so():
                if time.monotonic() > deadline:
                    raise StuckError(f"after {PATIENCE_SECONDS:g} s this is still not true: {what}: {told}")
                try:
                    await ask()
                except ViewstampError as error:
                    told = f"{type(error).__name__}: {error}"
                    await asyncio.sleep(0.2)

    async def _back(self, *names: str) -> None:
        """Wait until nodes have recovered; if that takes long, clear the weather."""
        try:
            await self._processes.wait_back(*names, patience=_CLEAR_AFTER_SECONDS)
        except StuckError:
            with self._fair_weather():
                await self._processes.wait_back(*names)

    @contextmanager
    def _fair_weather(self) -> Iterator[None]:
        self._clear_for += 1
        try:
            yield
        finally:
            self._clear_for -= 1

    # -- Passing faults ---------------------------------------------------------------------------------------

    async def _pass(self, kind: str, entropy: random.Random, event: Event) -> None:
        processes, board = self._processes, self._processes.board
        names = processes.names
        name = entropy.choice(names)
        if entropy.random() < 0.5:
            name = await processes.leader() or name  # A fault of the leader concerns all.
        seconds = entropy.uniform(0.3, 6.0)
        others = [each for each in names if each != name]
        try:
            match kind:
                case "pause":
                    event.detail = name
                    processes.pause(name)
                case "partition":
                    side = [name, *entropy.sample(others, entropy.randrange(len(others)))]
                    rest = [each for each in names if each not in side]
                    far = [person for person in processes.people if entropy.random() < 0.5]
                    event.detail = f"{', '.join(side)} | {', '.join([*rest, *far])}"
                    for person in far:
                        processes.estrange(person, *side)
                    rest += [CLIENT] if entropy.random() < 0.2 else []
                    board.cut(side, rest)
                    board.cut(rest, side)
                case "one-way":
                    far = entropy.sample(others, entropy.randrange(1, len(others) + 1))
                    source, target = entropy.choice((([name], far), (far, [name])))
                    event.detail = f"{', '.join(source)} -> {', '.join(target)}"
                    board.cut(source, target)
                case "slow-network":
                    delay = entropy.uniform(0.01, 0.3)
                    event.detail = f"{name} by {delay * 1000:.0f} ms"
                    board.slow([name], others, delay)
                    board.slow(others, [name], delay)
                case "lossy-network":
                    # Between all members at once: a majority has to make progress nevertheless.
                    loss = Loss(delay=0.05, stalls=0.1, resets=0.01, entropy=entropy)
                    event.detail = "all links: RTT 100 ms, 10 % stalls, 1 % resets"
                    board.lose(names, names, loss)
                    await self._see_progress(event)
                    return
                case "drop":
                    seconds = 0
                    event.detail = f"{name}: {board.drop(name)} connections"
                case "slow-disk":
                    milliseconds = entropy.randrange(20, 700)
                    event.detail = f"{name} by {milliseconds} ms"
                    processes.impose(name, Fault(kind=FaultKind.SLOW_DISK, milliseconds=milliseconds))
                case "full-disk":
                    event.detail = name
                    processes.impose(name, Fault(kind=FaultKind.FILL_DISK))
            await self._over_or_clear(seconds)
        finally:
            if name in processes.names:
                processes.resume(name)
                processes.impose(name)
            for person in processes.people:
                processes.estrange(person)
            board.heal()

    async def _see_progress(self, event: Event) -> None:
        """Wait until the fault is over; a record has to be committed meanwhile, unless another fault is active."""
        await self._over_or_clear(_LEARNING_SECONDS)
        before = await self._committed()
        await self._over_or_clear(_LOSSY_SECONDS)
        is_whole = time.monotonic() - event.at >= _LEARNING_SECONDS + _LOSSY_SECONDS
        disturbed = [each for each in self.events if each.kind in BREAKS and not 0 < each.until < event.at]
        if is_whole and not disturbed and await self._committed() <= before:
            raise StuckError(f"nothing was committed within {_LOSSY_SECONDS:g} s of a network that loses packets")

    async def _committed(self) -> int:
        statuses = await self._processes.statuses()
        return max((int(status["commit_index"]) for status in statuses.values() if "commit_index" in status), default=0)

    async def _over_or_clear(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._clear_for:
            if await self._over_within(min(left, 0.2)):
                return
