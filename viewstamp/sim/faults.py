"""The one who breaks things: draws a fault, does it, undoes it later."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from viewstamp.sim.cluster import Member
from viewstamp.sim.disk import DiskOptions
from viewstamp.sim.loop import SimulatedClock
from viewstamp.sim.operator import Operator
from viewstamp.sim.stranger import Stranger
from viewstamp.sim.swarm import DAMAGES
from viewstamp.sim.world import World

__all__ = ["Faults"]

_CALLS_UNTIL_CRASH_MAX = 40
_JUMPS_US = (5_000_000, 3_600_000_000, 73 * 365 * 24 * 3_600_000_000)
"""The wall clock jumps by as much at most: five seconds, an hour, 73 years."""
_STOP_SECONDS = 0.5
"""How long a node has for a clean stop."""
_LOOK_SECONDS = 0.005
"""How often is looked for a new leader to strike."""


class Faults:
    """Breaks the world at random, as its swarm says, until it is told to stop.

    Everything is drawn from one generator in the order of events, so that a seed is the whole story.
    """

    def __init__(self, world: World, entropy: random.Random) -> None:
        self.counts: dict[str, int] = {}
        self._world = world
        self._entropy = entropy
        self._task: asyncio.Task[None] | None = None
        self.operator = Operator(world, world.loop.entropy("operator"))
        self.stranger = Stranger(world, world.loop.entropy("stranger"))
        self._kinds: dict[str, Callable[[Member], None]] = {
            "kill": self._kill,
            "power": self._power,
            "power-all": self._power_all,
            "crash-in-call": self._crash_in_call,
            "isolate": self._isolate,
            "one-way": self._one_way,
            "slow": self._slow,
            "break": self._break_connections,
            "pause": self._pause,
            "stall": self._stall,
            "failed-sync": self._failed_sync,
            "clock": self._clock,
            "drift": self._drift,
            "busy": self._busy,
            "full-disk": self._full_disk,
            "full-log": self._full_log,
            "transfer": self._transfer,
            "members": self._members,
            "stranger": self._stranger,
            **{kind: partial(self._damage, kind) for kind in DAMAGES},
        }

    def start(self) -> None:
        """Inject faults until :meth:`stop`.

        A fault that raises ends the run, because a run without faults proves little.
        """
        self._task = self._world.loop.create_task(self._run())
        self._task.add_done_callback(self._look)

    def stop(self) -> None:
        """Inject no more faults. What they have begun, such as a restart that is due, still happens."""
        if self._task is not None:
            self._task.cancel()

    def _look(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._world.fail(error)

    async def _run(self) -> None:
        swarm = self._world.swarm
        weights = {kind: swarm.faults[kind] for kind in self._kinds if swarm.faults.get(kind, 0) > 0}
        if not weights:
            return
        if swarm.strike_seconds > 0:
            await asyncio.gather(self._break_anybody(weights), self._break_leaders(weights))
        else:
            await self._break_anybody(weights)

    async def _break_anybody(self, weights: dict[str, float]) -> None:
        while True:
            await asyncio.sleep(self._entropy.expovariate(1 / self._world.swarm.fault_seconds))
            kind = self._entropy.choices(list(weights), list(weights.values()))[0]
            self._break(kind, self._entropy.choice(self._world.members))

    async def _break_leaders(self, weights: dict[str, float]) -> None:
        """Strike each leader some time after its election, and again while it leads.

        What only a few members hold at such a moment is what the rules of elections are about.
        """
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            leader = self._world.leader
            if leader is not None:
                await asyncio.sleep(self._entropy.expovariate(1 / self._world.swarm.strike_seconds))
                kind = self._entropy.choices(list(weights), list(weights.values()))[0]
                self._break(kind, leader)

    def _break(self, kind: str, member: Member) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self._world.note(member.id, "!", f"fault {kind}")
        self._kinds[kind](member)

    def _later(self, call: Callable[[], None]) -> None:
        self._world.loop.call_later(self._entropy.expovariate(1 / self._world.swarm.down_seconds), call)

    def _kill(self, member: Member) -> None:
        """Kill -9: memory and connections are gone, what was written is there."""
        self._world.take_down(member, power=False)
        self._later(lambda: self._world.bring_up(member))

    def _power(self, member: Member) -> None:
        """A power cut: what was not synced may be gone, in any subset."""
        self._world.take_down(member, power=self._may_lose_power(member))
        self._later(lambda: self._world.bring_up(member))

    def _may_lose_power(self, member: Member) -> bool:
        """Say whether a power cut is within the budget: in interval mode it takes what the member acknowledged."""
        swarm = self._world.swarm
        return swarm.sync_seconds == 0 or swarm.majority_loses_power or self._world.damages.lose_power(member)

    def _power_all(self, _: Member) -> None:
        """A power cut of the whole site."""
        for member in self._world.members:
            self._power(member)

    def _crash_in_call(self, member: Member) -> None:
        """Die inside one of the next disk calls, by kill or by power cut."""
        if not member.is_up:
            return
        power = self._entropy.random() < 0.7

        def died() -> None:
            self._world.take_down(member, power=power and self._may_lose_power(member))
            self._later(lambda: self._world.bring_up(member))

        member.disk.crash_at(member.disk.calls + self._entropy.randint(1, _CALLS_UNTIL_CRASH_MAX), died)

    def _isolate(self, member: Member) -> None:
        """Nobody hears the node, and it hears nobody."""
        self._world.isolate(member)
        self._later(lambda: self._world.heal(member.name))

    def _one_way(self, member: Member) -> None:
        """Nothing passes from one node to another; the way back is open."""
        other = self._entropy.choice(self._world.members)
        if other is not member:
            self._world.network.partition(member.name, other.name)
            self._later(lambda: self._world.network.heal(member.name, other.name))

    def _slow(self, member: Member) -> None:
        """What the node sends arrives late, in its order; the way back is as quick as ever."""
        network = self._world.network
        late = self._entropy.choice((0.2, 1.0))
        others = [other.name for other in self._world.members if other is not member]
        for other in others:
            network.set_link(member.name, other, replace(network.options, delay_min=late))

        def hasten() -> None:
            for other in others:
                network.set_link(member.name, other, None)

        self._later(hasten)

    def _break_connections(self, member: Member) -> None:
        """Every connection of the node breaks."""
        self._world.network.break_connections(member.name)

    def _pause(self, member: Member) -> None:
        """SIGSTOP: the process stands still while its disk and its peers do not."""
        process = member.process
        if process is not None and not process.is_dead:
            process.pause()
            self._later(process.resume)

    def _stall(self, member: Member) -> None:
        """The disk takes its time."""
        slow = self._entropy.choice((0.01, 0.05, 0.2))
        member.disk.options = DiskOptions(delay_min=slow, delay_mean=slow)
        self._later(lambda: self._world.calm_disk(member))

    def _failed_sync(self, member: Member) -> None:
        """A sync fails: the node must stop for good, and what it acknowledged before must be there."""
        if member.is_up:
            member.disk.fail("sync", self._entropy.randint(0, 5))
            if self._entropy.random() < 0.5:  # The log stream is a file on the same disk.
                self._full_log(member)

    def _clock(self, member: Member) -> None:
        """The wall clock jumps by seconds, hours or decades, either way; of so many machines only as the swarm says."""
        known = self._world.off_clocks
        if member.name not in known and len(known) >= self._world.swarm.off_clocks_max:
            member = next(each for each in (*self._world.members, *self._world.retired) if each.name in known)
        known.setdefault(member.name)
        jump_us = self._entropy.choice(_JUMPS_US)
        offset_us = member.clock.wall_offset_us + self._entropy.randint(-jump_us, jump_us)
        member.clock.wall_offset_us = max(offset_us, -SimulatedClock.WALL_START_US)  # Not before 1970.

    def _drift(self, member: Member) -> None:
        """The member's clocks go at another rate from now on: a tenth slower or quicker at most."""
        member.clock.set_rate(self._entropy.uniform(0.9, 1.1))
        if member.process is not None:
            member.process.rate = member.clock.rate

    def _busy(self, member: Member) -> None:
        """The event loop stands still, as in a long callback: nothing is sent, heard or timed; its threads go on."""
        process = member.process
        if process is not None and not process.is_dead:
            process.stall()
            seconds = self._entropy.choice((0.05, 0.2, 0.5, 1.5))
            self._world.loop.call_later(seconds, process.resume)

    def _full_disk(self, member: Member) -> None:
        """Somebody else takes what is left of the disk, but for a little, and gives it back later."""
        disk = member.disk
        disk.capacity_bytes = disk.volume.bytes_used() + self._entropy.choice((0, 10_000, 100_000))
        self._later(lambda: self._world.calm_capacity(member))

    def _full_log(self, member: Member) -> None:
        """The log stream cannot be written: every line that the node logs raises OSError."""
        self._world.full_logs[member.name] = None
        self._later(lambda: self._world.full_logs.pop(member.name, None))

    def _transfer(self, member: Member) -> None:
        """Somebody asks the leader to hand over, to this member."""
        self.operator.transfer(member)

    def _members(self, member: Member) -> None:
        """Somebody adds a machine, or removes or replaces this member, be it the leader."""
        self.operator.change(member)

    def _stranger(self, member: Member) -> None:
        """A process that is no member sends forged frames; see ``stranger.py``."""
        self.stranger.attack(member)

    def _damage(self, kind: str, member: Member) -> None:
        """The disk loses or changes what was durable: most of the time while nobody runs."""
        # A node that is still starting would raise ClosedError from its start, as it should, and end the run.
        has_started = member.is_up and member.node is not None and member.node.replica is not None
        if kind == "lose-tail" and has_started and self._entropy.random() < 0.5:
            self._stop_cleanly(member)
            self._world.loop.call_later(_STOP_SECONDS, self._damage_stopped, kind, member, member.starts)
            return
        if kind != "flip" or self._entropy.random() < 0.5:
            self._world.take_down(member, power=False)
            self._later(lambda: self._world.bring_up(member))
        self._world.damages.do(kind, member, self._entropy)

    def _stop_cleanly(self, member: Member) -> None:
        """Have the node stop as on SIGTERM: it writes what it would know at its next start."""
        if member.node is not None and member.process is not None:
            member.is_stopping = True
            member.process.spawn(member.node.stop())

    def _damage_stopped(self, kind: str, member: Member, starts: int) -> None:
        if member.starts == starts and not member.is_retired:
            self._world.take_down(member, power=False)
            self._later(lambda: self._world.bring_up(member))
            self._world.damages.do(kind, member, self._entropy)
