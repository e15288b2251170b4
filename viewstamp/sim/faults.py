"""Draws faults, injects them, and undoes them later."""

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
"""The largest jumps of the wall clock: five seconds, an hour, 73 years."""
_STOP_SECONDS = 0.5
"""Seconds that a node has for a clean stop."""
_LOOK_SECONDS = 0.005
"""Interval of the checks for a new leader to strike."""


class Faults:
    """Injects random faults, as its swarm says, until it is stopped.

    Everything is drawn from one generator in the order of events, so that a seed decides the whole run.
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
        """Inject no more faults. Their pending consequences, such as a restart that is due, still happen."""
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

        At such a moment only a few members hold the newest records, which is the case that the rules of elections are
        for.
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
        """Kill -9: memory and connections are gone, written data stays."""
        self._world.take_down(member, power=False)
        self._later(lambda: self._world.bring_up(member))

    def _power(self, member: Member) -> None:
        """A power cut: any subset of the unsynced data may be gone."""
        self._world.take_down(member, power=self._may_lose_power(member))
        self._later(lambda: self._world.bring_up(member))

    def _may_lose_power(self, member: Member) -> bool:
        """Return whether a power cut is within the budget; in interval mode it takes acknowledged records."""
        swarm = self._world.swarm
        return swarm.sync_seconds == 0 or swarm.majority_loses_power or self._world.damages.lose_power(member)

    def _power_all(self, _: Member) -> None:
        """A power cut of the whole site."""
        for member in self._world.members:
            self._power(member)

    def _crash_in_call(self, member: Member) -> None:
        """Die inside one of the next disk calls, by a kill or a power cut."""
        if not member.is_up:
            return
        power = self._entropy.random() < 0.7

        def died() -> None:
            self._world.take_down(member, power=power and self._may_lose_power(member))
            self._later(lambda: self._world.bring_up(member))

        member.disk.crash_at(member.disk.calls + self._entropy.randint(1, _CALLS_UNTIL_CRASH_MAX), died)

    def _isolate(self, member: Member) -> None:
        """Cut the node off from all others, in both directions."""
        self._world.isolate(member)
        self._later(lambda: self._world.heal(member.name))

    def _one_way(self, member: Member) -> None:
        """Cut one direction between two nodes; the other stays open."""
        other = self._entropy.choice(self._world.members)
        if other is not member:
            self._world.network.partition(member.name, other.name)
            self._later(lambda: self._world.network.heal(member.name, other.name))

    def _slow(self, member: Member) -> None:
        """Deliver the node's messages late, in their order; the opposite direction keeps its speed."""
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
        """Break every connection of the node."""
        self._world.network.break_connections(member.name)

    def _pause(self, member: Member) -> None:
        """SIGSTOP: the process stands still while its disk and its peers continue."""
        process = member.process
        if process is not None and not process.is_dead:
            process.pause()
            self._later(process.resume)

    def _stall(self, member: Member) -> None:
        """Slow the disk down."""
        slow = self._entropy.choice((0.01, 0.05, 0.2))
        member.disk.options = DiskOptions(delay_min=slow, delay_mean=slow)
        self._later(lambda: self._world.calm_disk(member))

    def _failed_sync(self, member: Member) -> None:
        """Fail a sync: the node must stop for good, and all that it acknowledged before must be there."""
        if member.is_up:
            member.disk.fail("sync", self._entropy.randint(0, 5))
            if self._entropy.random() < 0.5:  # The log stream is a file on the same disk.
                self._full_log(member)

    def _clock(self, member: Member) -> None:
        """Let the wall clock jump by seconds, hours or decades; the swarm limits the number of such machines."""
        known = self._world.off_clocks
        if member.name not in known and len(known) >= self._world.swarm.off_clocks_max:
            member = next(each for each in (*self._world.members, *self._world.retired) if each.name in known)
        known.setdefault(member.name)
        jump_us = self._entropy.choice(_JUMPS_US)
        offset_us = member.clock.wall_offset_us + self._entropy.randint(-jump_us, jump_us)
        member.clock.wall_offset_us = max(offset_us, -SimulatedClock.WALL_START_US)  # Not before 1970.

    def _drift(self, member: Member) -> None:
        """Let the member's clocks run at another rate from now on, at most a tenth slower or quicker."""
        member.clock.set_rate(self._entropy.uniform(0.9, 1.1))
        if member.process is not None:
            member.process.rate = member.clock.rate

    def _busy(self, member: Member) -> None:
        """Block the event loop as a long callback would: nothing is sent, received or timed, but threads continue."""
        process = member.process
        if process is not None and not process.is_dead:
            process.stall()
            seconds = self._entropy.choice((0.05, 0.2, 0.5, 1.5))
            self._world.loop.call_later(seconds, process.resume)

    def _full_disk(self, member: Member) -> None:
        """Fill the disk from outside, except for a little, and free the space later."""
        disk = member.disk
        disk.capacity_bytes = disk.volume.bytes_used() + self._entropy.choice((0, 10_000, 100_000))
        self._later(lambda: self._world.calm_capacity(member))

    def _full_log(self, member: Member) -> None:
        """Make the log stream unwritable: every line that the node logs raises OSError."""
        self._world.full_logs[member.name] = None
        self._later(lambda: self._world.full_logs.pop(member.name, None))

    def _transfer(self, member: Member) -> None:
        """Ask the leader to transfer leadership to this member."""
        self.operator.transfer(member)

    def _members(self, member: Member) -> None:
        """Add a machine, or remove or replace this member, even the leader."""
        self.operator.change(member)

    def _stranger(self, member: Member) -> None:
        """Send forged frames from outside the group; see ``stranger.py``."""
        self.stranger.attack(member)

    def _damage(self, kind: str, member: Member) -> None:
        """Lose or change durable data on the disk, usually while the node is down."""
        # A node that is still starting would correctly raise ClosedError from its start, and so end the run.
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
        """Let the node stop as on SIGTERM: it writes the state that its next start needs."""
        if member.node is not None and member.process is not None:
            member.is_stopping = True
            member.process.spawn(member.node.stop())

    def _damage_stopped(self, kind: str, member: Member, starts: int) -> None:
        if member.starts == starts and not member.is_retired:
            self._world.take_down(member, power=False)
            self._later(lambda: self._world.bring_up(member))
            self._world.damages.do(kind, member, self._entropy)
