"""What clients do in a simulated world, and the record of it: the history that the checkers judge."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from viewstamp.client.aio import Client
from viewstamp.client.options import Options
from viewstamp.client.results import Receipt
from viewstamp.errors import OutcomeUnknownError, StaleSessionError, StorageFullError, UnavailableError
from viewstamp.ids import Position
from viewstamp.sim.checkers.violation import Violation
from viewstamp.sim.fate import Fate
from viewstamp.sim.journal import Journal, TornError
from viewstamp.sim.sinks import SinkWorkload

if TYPE_CHECKING:
    from viewstamp.sim.world import World

__all__ = ["Append", "Call", "Workload"]


@dataclass(slots=True)
class Append:
    """One append: what was asked, what was answered, and what was known when it was asked.

    ``caller`` appends one after the other; ``after`` is the highest position of the topic that was acknowledged to
    anybody before this append was called: it has to come behind.
    """

    topic: str
    value: bytes
    caller: str
    after: Position
    fate: Fate = Fate.PENDING
    position: Position = Position(0)


@dataclass(slots=True)
class Call:
    """One call of a journal: what was to be written, and under which number it was.

    ``before`` is how many entries of the journal were known to be written before the call.
    """

    key: str
    entry: str
    before: int
    fate: Fate = Fate.PENDING
    number: int = 0


class Workload:
    """Appends, calls, reads and sinks through real clients, each in a process of its own.

    Invariants:
      * values are unique
      * an append is PENDING only while its caller waits
    """

    def __init__(self, world: World, entropy: random.Random) -> None:
        self.appends: list[Append] = []
        self.calls: list[Call] = []
        self.keys = ["", "second"]
        """The journals' keys."""
        self.reads = 0
        self._world = world
        self._entropy = entropy
        self.acknowledged: dict[str, Position] = {}
        """By topic, the highest position that somebody knows to be taken."""
        self._written: dict[str, int] = {}
        """The highest number of an entry of each journal that was answered."""
        self._is_over = False
        self._callers: list[asyncio.Task[None]] = []
        self._clients: list[Client] = []
        self.topics = [f"topic-{number}" for number in range(world.swarm.topics)]
        self.sinks = SinkWorkload(world, self)

    def start(self) -> None:
        """Start the clients."""
        for number in range(self._world.swarm.clients):
            process = self._world.loop.process(f"c{number}")
            task = process.spawn(self._run_client(f"c{number}"))
            task.add_done_callback(self._on_end)
            self._callers.append(task)
        self.sinks.start()

    def stop(self) -> None:
        """Ask every caller to end after its present append."""
        self._is_over = True
        self.sinks.stop()

    @property
    def is_done(self) -> bool:
        """Whether every caller has ended."""
        return all(task.done() for task in self._callers) and self.sinks.is_done

    def _on_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._world.fail(error)

    async def _run_client(self, name: str) -> None:
        swarm = self._world.swarm
        client = Client(
            self._world.addresses,
            network=self._world.network.view(name),
            entropy=self._world.loop.entropy(f"client {name}"),
            options=Options(timeout=swarm.timeout, batch_bytes=2048),
        )
        async with client:
            callers = [
                asyncio.ensure_future(self._run_caller(client, f"{name}.{number}")) for number in range(swarm.callers)
            ]
            callers.append(asyncio.ensure_future(self._run_reader(client)))
            for number in range(swarm.actors):
                callers.append(asyncio.ensure_future(self._run_actor_caller(client, f"{name}.a{number}")))
            await asyncio.gather(*callers)

    async def _run_caller(self, client: Client, name: str) -> None:
        number = 0
        entropy = self._world.loop.entropy(f"caller {name}")
        for topic in self.topics:
            await self.create(client, topic)
        while not self._is_over:
            number += 1
            topic = entropy.choice(self.topics)
            value = f"{name}-{number}-".encode() + b"x" * entropy.randrange(self._world.swarm.value_bytes_max)
            append = Append(topic, value, name, self.acknowledged.get(topic, Position(0)))
            self.appends.append(append)
            await self._append(client, append)
            await asyncio.sleep(entropy.expovariate(1 / self._world.swarm.pause_seconds))

    async def create(self, client: Client, topic: str) -> None:
        """Create a topic, unless it is there, however long it takes."""
        while True:
            try:
                await client.create_topic(topic, retain_bytes=self._world.swarm.retain_bytes)
                return
            except (UnavailableError, OutcomeUnknownError, StorageFullError):
                await asyncio.sleep(0.1)

    async def _append(self, client: Client, append: Append) -> None:
        try:
            receipt = await client.append(append.topic, append.value)
        except OutcomeUnknownError as error:
            await self._find_out(client, append, error)
        except (UnavailableError, StorageFullError):
            append.fate = Fate.NEVER
        else:
            self._acknowledge(append, receipt)

    async def _run_actor_caller(self, client: Client, name: str) -> None:
        """Write entries into journals, one after the other, and count them now and then."""
        number = 0
        entropy = self._world.loop.entropy(f"caller {name}")
        while not self._is_over:
            number += 1
            key = entropy.choice(self.keys)
            journal = client.actor("journal", Journal, key=key)
            call = Call(key, f"{name}-{number}", self._written.get(key, 0))
            self.calls.append(call)
            padding = bytes(entropy.randrange(self._world.swarm.value_bytes_max))
            await self._put(client, journal, call, padding)
            if entropy.random() < 0.2:
                await self._count(journal, key)
            await asyncio.sleep(entropy.expovariate(1 / self._world.swarm.pause_seconds))

    async def _put(self, client: Client, journal: type[Journal], call: Call, padding: bytes) -> None:
        try:
            number = await journal.put(call.entry, padding)
        except TornError as error:
            number = int(error.message)
        except OutcomeUnknownError as error:
            await self._find_out_call(client, call, error)
            return
        except (UnavailableError, StorageFullError):
            call.fate = Fate.NEVER
            return
        self._note_written(call, number)

    async def _find_out_call(self, client: Client, call: Call, error: OutcomeUnknownError) -> None:
        while error.token is not None:
            try:
                outcome = await client.outcome(error.token)
            except (UnavailableError, OutcomeUnknownError, StorageFullError):
                await asyncio.sleep(0.1)
                continue
            except StaleSessionError:
                break
            call.fate = Fate.APPLIED if outcome.applied else Fate.NEVER
            return
        call.fate = Fate.UNKNOWN

    def _note_written(self, call: Call, number: int) -> None:
        call.fate = Fate.APPLIED
        call.number = number
        self._written[call.key] = max(number, self._written.get(call.key, 0))

    async def _count(self, journal: type[Journal], key: str) -> None:
        """Ask linearizably: whatever was answered before must be counted."""
        written = self._written.get(key, 0)
        try:
            count = await journal.count()
        except (UnavailableError, OutcomeUnknownError, StorageFullError):
            return
        if count < written:
            raise Violation("QueriesAreLinearizable", f"journal {key!r} counts {count} after {written} were answered")

    async def _find_out(self, client: Client, append: Append, error: OutcomeUnknownError) -> None:
        """Ask what became of an append, until the answer comes."""
        while error.token is not None:
            try:
                outcome = await client.outcome(error.token)
            except (UnavailableError, OutcomeUnknownError, StorageFullError):
                await asyncio.sleep(0.1)
                continue
            except StaleSessionError:
                break
            if outcome.applied:
                self._acknowledge(append, outcome.receipts[0])
            else:
                append.fate = Fate.NEVER
            return
        append.fate = Fate.UNKNOWN

    def _acknowledge(self, append: Append, receipt: Receipt) -> None:
        append.fate = Fate.APPLIED
        append.position = receipt.position
        self.acknowledge(append.topic, receipt.position)

    def acknowledge(self, topic: str, position: Position) -> None:
        """Take note that a position is taken: who asks from now on must be told so."""
        self.acknowledged[topic] = max(position, self.acknowledged.get(topic, Position(0)))

    async def _run_reader(self, client: Client) -> None:
        """Read linearizably now and then: everything acknowledged before the read began must be in it."""
        while not self._is_over:
            await asyncio.sleep(self._entropy.expovariate(1 / 0.5))
            topic = self._entropy.choice(self.topics)
            acknowledged = self.acknowledged.get(topic, Position(0))
            if acknowledged == 0:
                continue
            try:
                info = await client.describe_topic(topic)
            except (UnavailableError, OutcomeUnknownError, StorageFullError):
                continue
            self.reads += 1
            if info.last_position < acknowledged:
                raise Violation(
                    "ReadsAreLinearizable",
                    f"{topic} ended at {info.last_position} after {acknowledged} had been acknowledged",
                )
