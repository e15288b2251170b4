"""The clients of a simulated world, with a record of their operations that the checkers judge."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, replace
from itertools import cycle

from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import Outcome, Receipt
from viewstamp.client.runtime import Dialer
from viewstamp.errors import (
    AccessDeniedError,
    OutcomeUnknownError,
    StorageFullError,
    TrimmedError,
    UnavailableError,
    UnknownTopicError,
)
from viewstamp.ids import Position
from viewstamp.sim import history
from viewstamp.sim.cluster import Cluster
from viewstamp.sim.history import Fate, Operation, ReadEnd
from viewstamp.sim.journal import Journal, TornError
from viewstamp.sim.sinks import SinkWorkload
from viewstamp.sim.tokens import TokenHolders, with_token
from viewstamp.sim.topics import PASSING, Topics

__all__ = ["Call", "ClientAppend", "Workload", "journal_of"]

_READ_BACK = 20
"""Number of records before the last known one at which a reader begins."""


@dataclass(slots=True)
class ClientAppend:
    """One append and its answer. A ``caller`` makes one append at a time."""

    topic: str
    value: bytes
    caller: str
    operation: Operation
    fate: Fate = Fate.PENDING
    position: Position = Position(0)


@dataclass(slots=True)
class Call:
    """One call of a journal: the entry, and the number in the answer."""

    key: str
    entry: str
    operation: Operation
    fate: Fate = Fate.PENDING
    number: int = 0


class Workload:
    """Appends, calls, reads and sinks through real clients. Some processes have several, which share connections.

    Invariants:
      * values are unique
      * an append is PENDING only while its caller waits
    """

    def __init__(self, cluster: Cluster, entropy: random.Random) -> None:
        self.appends: list[ClientAppend] = []
        self.calls: list[Call] = []
        self.keys = ["", "second"]
        """The journals' keys."""
        self.topics = Topics(cluster.swarm)
        self.history = self.topics.history
        self._cluster = cluster
        self._entropy = entropy
        self._is_over = False
        self._callers: list[asyncio.Task[None]] = []
        self._clients: list[Client] = []
        self.sinks = SinkWorkload(cluster, self.topics)
        self.tokens = TokenHolders(cluster, self._append_as_holder)

    def start(self) -> None:
        """Start the clients; with access control, once it is on."""
        if not self._cluster.swarm.tokens:
            self._start()
            return
        process = self._cluster.loop.client("administrator")
        task = process.spawn(self._administer(process.name))
        task.add_done_callback(self._on_end)
        self._callers.append(task)

    async def _administer(self, name: str) -> None:
        """Turn access control on, start the others, and create and revoke tokens."""
        network = self._cluster.network.view(name)
        async with self._client(name, network) as admin:
            await self.tokens.begin(admin)
            if self._is_over:
                return
            self._start()
            if self.topics.names and self._cluster.swarm.callers:
                await self.topics.create(admin, self.topics.names[0])
                await self.tokens.run(admin, lambda holder, token: self._client(holder, network, token))

    async def _append_as_holder(self, client: Client, caller: str) -> bool:
        """Append one value to the first topic; return whether it was acknowledged. Raises AccessDeniedError."""
        topic = self.topics.names[0]
        value = f"{caller}-{len(self.appends)}".encode()
        append = ClientAppend(topic, value, caller, self.history.call(topic, history.Append((value,))))
        self.appends.append(append)
        try:
            await self._append(client, append)
        except AccessDeniedError:
            self._end_never(append)
            raise
        return append.fate is Fate.APPLIED

    def _start(self) -> None:
        for number in range(self._cluster.swarm.clients):
            process = self._cluster.loop.client(f"c{number}")
            task = process.spawn(self._run_client(f"c{number}"))
            task.add_done_callback(self._on_end)
            self._callers.append(task)
        self.sinks.start()

    def stop(self) -> None:
        """Let every caller end after its present append."""
        self._is_over = self.tokens.is_over = True
        self.sinks.stop()

    @property
    def is_done(self) -> bool:
        """Whether every caller has ended."""
        return all(task.done() for task in self._callers) and self.sinks.is_done

    def _on_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._cluster.swarm.majority_loses_power:  # There a topic may be gone again.
            self._cluster.fail(error)

    async def _run_client(self, name: str) -> None:
        """Run one client after another; each but the last is killed at a random moment.

        A new client may find another leader than those that keep their connection.
        """
        loop, seconds = self._cluster.loop, self._cluster.swarm.visit_seconds
        entropy = loop.entropy(f"visits of {name}")
        visit = 0
        while not self._is_over:
            visit += 1
            process = loop.client(f"{name}.{visit}")
            task = process.spawn(self._visit(process.name))
            await asyncio.wait([task], timeout=entropy.expovariate(1 / seconds) if seconds else None)
            if task.done():
                task.result()
            elif self._is_over:
                await task
            else:
                process.kill()

    async def _visit(self, name: str) -> None:
        """Be one process. Its clients, one to four, share their connections because they share their network."""
        swarm, loop = self._cluster.swarm, self._cluster.loop
        entropy, network = loop.entropy(f"sessions of {name}"), self._cluster.network.view(name)
        clients = [
            self._client(name + f" {number}" * (number > 0), network) for number in range(entropy.choice([1, 1, 2, 4]))
        ]
        of = cycle(clients)
        callers = [
            asyncio.ensure_future(self._run_caller(next(of), f"{name}.{number}")) for number in range(swarm.callers)
        ]
        callers.append(asyncio.ensure_future(self._run_reader(next(of))))
        for number in range(swarm.actors):
            callers.append(asyncio.ensure_future(self._run_actor_caller(next(of), f"{name}.a{number}")))
        if len(clients) > 1:
            callers.append(asyncio.ensure_future(self._come_and_go(name, network, entropy)))
        await asyncio.gather(*callers)
        for client in clients:
            await client.close()

    def _client(self, name: str, network: Dialer, token: str = "") -> Client:
        options = ClientOptions(timeout=self._cluster.swarm.timeout, batch_bytes=2048)
        return Client(
            self._cluster.addresses,
            network=network,
            entropy=self._cluster.loop.entropy(f"client {name}"),
            options=replace(options, token=token) if token else with_token(self._cluster, options),
        )

    async def _come_and_go(self, name: str, network: Dialer, entropy: random.Random) -> None:
        """Open short-lived clients, one after the other, whose request is cancelled after some 2 ms.

        Clients of one event loop share connections, and a cancelled request must not harm the others.
        """
        visitors = 0
        while not self._is_over:
            await asyncio.sleep(entropy.expovariate(1 / self._cluster.swarm.read_seconds))
            visitors += 1
            with contextlib.suppress(TimeoutError, *PASSING):
                async with self._client(f"{name} visitor {visitors}", network) as visitor:
                    await asyncio.wait_for(visitor.list_topics(), entropy.expovariate(1 / 0.002))

    async def _run_caller(self, client: Client, name: str) -> None:
        number = 0
        entropy = self._cluster.loop.entropy(f"caller {name}")
        for topic in self.topics.names:
            await self.topics.create(client, topic)
        while not self._is_over:
            number += 1
            topic = entropy.choice(self.topics.names)
            value = f"{name}-{number}-".encode() + b"x" * entropy.randrange(self._cluster.swarm.value_bytes_max)
            operation = self.history.call(topic, history.Append((value,)))
            append = ClientAppend(topic, value, name, operation)
            self.appends.append(append)
            await self._append(client, append)
            await asyncio.sleep(entropy.expovariate(1 / self._cluster.swarm.pause_seconds))

    async def _append(self, client: Client, append: ClientAppend) -> None:
        try:
            receipt = await client.append(append.topic, append.value)
        except OutcomeUnknownError as error:
            outcome = await self._find_out(client, append, error)
            if outcome is not None:
                self._acknowledge(append, outcome.receipts[0])
        except (UnavailableError, StorageFullError):
            self._end_never(append)
        else:
            self._acknowledge(append, receipt)

    async def _run_actor_caller(self, client: Client, name: str) -> None:
        """Write entries into journals, one after another, and count them from time to time."""
        number = 0
        entropy = self._cluster.loop.entropy(f"caller {name}")
        while not self._is_over:
            number += 1
            key = entropy.choice(self.keys)
            journal = client.actor("journal", Journal, key=key)
            entry = f"{name}-{number}"
            call = Call(key, entry, self.history.call(journal_of(key), history.Append((entry,))))
            self.calls.append(call)
            padding = bytes(entropy.randrange(self._cluster.swarm.value_bytes_max))
            await self._put(client, journal, call, padding)
            if entropy.random() < 0.2:
                await self._count(journal, key)
            await asyncio.sleep(entropy.expovariate(1 / self._cluster.swarm.pause_seconds))

    async def _put(self, client: Client, journal: type[Journal], call: Call, padding: bytes) -> None:
        try:
            number = await journal.put(call.entry, padding)
        except TornError as error:
            number = int(error.message.partition(" ")[0])
        except OutcomeUnknownError as error:
            await self._find_out(client, call, error)
            return
        except (UnavailableError, StorageFullError):
            self._end_never(call)
            return
        call.fate = Fate.APPLIED
        call.number = number
        self.history.answered(call.operation, number)

    async def _find_out(self, client: Client, asked: ClientAppend | Call, error: OutcomeUnknownError) -> Outcome | None:
        """Ask for the outcome of a request until there is an answer; return it if it was applied."""
        while error.token is not None:
            try:
                outcome = await client.outcome(error.token)
            except PASSING:
                await asyncio.sleep(0.1)
                continue
            if outcome.expired:
                break
            if not outcome.applied:
                self._end_never(asked)
                return None
            asked.fate = Fate.APPLIED
            return outcome
        asked.fate = Fate.UNKNOWN
        return None

    def _end_never(self, asked: ClientAppend | Call) -> None:
        asked.fate = Fate.NEVER
        self.history.never(asked.operation)

    async def _count(self, journal: type[Journal], key: str) -> None:
        """Read the number of entries linearizably."""
        operation = self.history.call(journal_of(key), ReadEnd())
        with contextlib.suppress(*PASSING):
            self.history.answered(operation, await journal.count())

    def _acknowledge(self, append: ClientAppend, receipt: Receipt) -> None:
        append.fate = Fate.APPLIED
        append.position = receipt.position
        self.history.answered(append.operation, receipt.position)
        self.topics.acknowledge(append.topic, receipt.position)

    async def _run_reader(self, client: Client) -> None:
        """From time to time, read the end of a topic or its last records linearizably."""
        while not self._is_over:
            await asyncio.sleep(self._entropy.expovariate(1 / self._cluster.swarm.read_seconds))
            topic = self._entropy.choice(self.topics.names)
            with contextlib.suppress(*PASSING, UnknownTopicError, TrimmedError):
                if self._entropy.random() < 0.5:
                    operation = self.history.call(topic, ReadEnd())
                    self.history.answered(operation, (await client.describe_topic(topic)).last_position)
                else:
                    await self.topics.read(client, topic, max(1, self.topics.acknowledged.get(topic, 0) - _READ_BACK))


def journal_of(key: str) -> str:
    """Return the name of a journal's partition of the history."""
    return f"journal {key!r}"
