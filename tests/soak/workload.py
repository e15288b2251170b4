"""The operations of the soak's clients, each recorded with its times on one clock and its outcome."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.soak.cell import Cell
from tests.soak.members import CELL
from viewstamp.client import Client, ClientOptions
from viewstamp.errors import (
    OutcomeUnknownError,
    PositionMismatchError,
    StaleSessionError,
    StorageFullError,
    UnavailableError,
    UnknownTopicError,
    ViewstampError,
)
from viewstamp.ids import Position
from viewstamp.sim.history import Add, Append, Fate, Operation, Read, ReadEnd, ReadFrom, Recorder, Write
from viewstamp.sim.workload import ClientAppend as Appended

__all__ = ["CLAIMS", "KEYS", "TOPICS", "Done", "Workload", "partition_of", "read"]

TOPICS = ("orders", "events")
CLAIMS = "claims"
"""The topic of the conditional appends."""
PERSONS = [
    ClientOptions(timeout=max(5.0, silence), connect_timeout=1.0, silence=silence) for silence in (1.0, 2.5, 6.0)
]
"""The options of each person's clients, from impatient to patient.

A client that waits long for an answer may receive one of an old leader.
"""
KEYS = ("", "second")
"""The keys of the cells."""
_PASSING = (UnavailableError, StorageFullError)
"""It did not happen now, but may succeed the next time."""
_READ_BACK = 30
_VALUE_BYTES_MAX = 1500


def partition_of(key: str) -> str:
    """Return the name of a cell's partition of the history."""
    return f"cell {key!r}"


@dataclass(slots=True)
class Done:
    """One operation for the history file: caller, request and outcome, besides the checker's data."""

    caller: str
    operation: Operation
    fate: Fate = Fate.PENDING
    error: str = ""
    """The caller's first error, if any."""
    expected: int = 0
    """The position that a conditional append expected."""
    is_settled: bool = False
    """Whether its outcome was unknown at first and determined later."""


Act = Callable[[str, "Person", random.Random], Awaitable[None]]
"""The repeated action of a caller: takes its name and its person."""


class Person:
    """A sequence of clients: each is closed in the middle of its calls, and a new one continues.

    Invariants:
      * ``client`` is open, or was closed while its callers waited: they get an error and use the next one
    """

    def __init__(
        self, name: str, connect: Callable[[ClientOptions, str], Client], options: ClientOptions, entropy: random.Random
    ) -> None:
        self.name = name
        self.client = connect(options, name)
        self._connect = connect
        self._options = options
        self._entropy = entropy

    async def live(self) -> None:
        """Replace the client from time to time, until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._entropy.uniform(5, 25))
                old, self.client = self.client, self._connect(self._options, self.name)
                await old.close()
        finally:
            await self.client.close()


class Workload:
    """Callers that append, append on condition, call cells and read, each one operation at a time.

    Invariants:
      * values are unique among all callers
      * an operation is PENDING only while its caller waits, and UNKNOWN only if its outcome cannot be determined
    """

    def __init__(
        self, connect: Callable[[ClientOptions, str], Client], seed: str, *, pause_seconds: float = 0.05
    ) -> None:
        self.appended: list[Appended] = []
        """The appends to the topics, for the checker of exactly-once."""
        self.done: list[Done] = []
        self.recorder = Recorder(time.monotonic)
        self.complaints: list[str] = []
        """Answers that no fault explains."""
        self.seen_stale: list[tuple[str, int, tuple[bytes, ...]]] = []
        """Stale answers of single members: the topic, the first position, and the values."""
        self.acknowledged_at: list[float] = []
        """Times of all acknowledged writes."""
        self.last_number: dict[tuple[str, str], int] = {}
        """The last applied call number, by key and caller."""
        self._connect = connect
        self._seed = seed
        self._pause = pause_seconds
        self._ends = dict.fromkeys((*TOPICS, CLAIMS), 0)
        self._is_over = False
        self._numbers = itertools.count(1)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the callers; at the end, let each finish its operation, for which the cluster must be healthy."""
        persons = [
            Person(f"p{number}", self._connect, options, random.Random(f"{self._seed} person {number}"))
            for number, options in enumerate(PERSONS)
        ]
        await self._create_topics(persons[0])
        lives = [asyncio.ensure_future(person.live()) for person in persons]
        callers = [asyncio.ensure_future(self._run(*each)) for person in persons for each in self._callers(person)]
        try:
            yield
            self._is_over = True
            await asyncio.gather(*callers)
        finally:
            for task in (*callers, *lives):
                task.cancel()
            await asyncio.gather(*callers, *lives, return_exceptions=True)

    def _callers(self, person: Person) -> list[tuple[str, Person, Act]]:
        acts = [self._append, self._append, self._claim, self._call, self._call, self._look, self._look]
        return [(f"{person.name}.{number}", person, act) for number, act in enumerate(acts)]

    async def _create_topics(self, person: Person) -> None:
        for topic in self._ends:
            while True:
                try:
                    await person.client.create_topic(topic)
                    break
                except (*_PASSING, OutcomeUnknownError):
                    await asyncio.sleep(0.1)

    async def _run(self, name: str, person: Person, act: Act) -> None:
        entropy = random.Random(f"{self._seed} caller {name}")
        while not self._is_over:
            await act(name, person, entropy)
            await asyncio.sleep(entropy.expovariate(1 / self._pause))

    # -- Writing ---------------------------------------------------------------------------------------------

    async def _append(self, name: str, person: Person, entropy: random.Random) -> None:
        """Append one record, or several in one atomic batch."""
        topic = entropy.choice(TOPICS)
        values = tuple(self._value(name, entropy) for _ in range(entropy.choice((1, 1, 1, 2, 3))))
        done = self._begin(name, topic, Append(values))
        records = self._note_values(done, name, topic, values)
        many = len(values) > 1
        first = await self._write(
            done,
            person,
            lambda client: client.append_many(topic, values) if many else client.append(topic, values[0]),
            lambda answer: (answer[0] if many else answer).position,
        )
        self._end_append(done, records, first)

    async def _claim(self, name: str, person: Person, entropy: random.Random) -> None:
        """Append at the expected end of the topic. A refusal contains the actual end, so it counts as a read."""
        value = self._value(name, entropy)
        expected = self._ends[CLAIMS] + entropy.choice((1, 1, 1, 2))
        done = self._begin(name, CLAIMS, Append((value,)))
        done.expected = expected
        records = self._note_values(done, name, CLAIMS, (value,))
        try:
            first = await self._write(
                done,
                person,
                lambda client: client.append(CLAIMS, value, expected_position=expected),
                lambda answer: answer.position,
            )
        except PositionMismatchError as error:
            done.fate = records[0].fate = Fate.NEVER
            if not error.actual or error.actual == expected:
                self.complaints.append(f"{name} expected position {expected}, and was refused: {error}")
            done.operation.request = ReadEnd()
            self.recorder.answered(done.operation, error.actual - 1)
            self._ends[CLAIMS] = error.actual - 1
            return
        self._end_append(done, records, first)

    async def _call(self, name: str, person: Person, entropy: random.Random) -> None:
        """Add to a cell, or set it."""
        key = entropy.choice(KEYS)
        number, value = next(self._numbers), entropy.randrange(1_000_000)
        is_add = entropy.random() < 0.8
        amount = value % 10 + 1
        request = Add(amount) if is_add else Write(value)
        done = self._begin(name, partition_of(key), request)

        def call(client: Client) -> Awaitable[Any]:
            proxy = client.actor(CELL, Cell, key=key)
            return proxy.add(name, number, amount) if is_add else proxy.write(name, number, value)

        answer = await self._write(done, person, call, lambda answer: answer)
        if done.fate is Fate.APPLIED:
            self.last_number[key, name] = number
            if answer is not None or not is_add:  # None for a sum: applied, but the result is no longer kept.
                self.recorder.answered(done.operation, answer)

    async def _write(
        self,
        done: Done,
        person: Person,
        ask: Callable[[Client], Awaitable[Any]],
        answer_of: Callable[[Any], Any],
    ) -> Any:
        """Send a request and determine its outcome; return the answer, None = there is none."""
        try:
            answer = answer_of(await ask(person.client))
        except OutcomeUnknownError as error:
            done.error = f"{type(error).__name__}: {error}"
            return await self._settle(done, person, error)
        except StaleSessionError as error:
            done.error, done.fate = f"{type(error).__name__}: {error}", Fate.APPLIED
            return None
        except _PASSING as error:
            done.error, done.fate = f"{type(error).__name__}: {error}", Fate.NEVER
            self.recorder.never(done.operation)
            await asyncio.sleep(0.05)
            return None
        except PositionMismatchError:
            raise
        except ViewstampError as error:
            done.error, done.fate = f"{type(error).__name__}: {error}", Fate.UNKNOWN
            self.complaints.append(f"{done.caller}: {done.operation.request!r:.80}: {done.error}")
            return None
        done.fate = Fate.APPLIED
        self.acknowledged_at.append(time.monotonic())
        return answer

    async def _settle(self, done: Done, person: Person, error: OutcomeUnknownError) -> Any:
        """Ask for the outcome until there is an answer, through the person's present client."""
        done.is_settled = True
        if error.token is None:
            done.fate = Fate.UNKNOWN
            self.complaints.append(f"{done.caller}: there is no token for {done.operation.request!r:.80}: {error}")
            return None
        while True:
            try:
                outcome = await person.client.outcome(error.token)
                break
            except (OutcomeUnknownError, UnavailableError):
                await asyncio.sleep(0.1)
        if outcome.expired:
            done.fate = Fate.UNKNOWN
            self.complaints.append(f"{done.caller}: the outcome is said to be expired, within minutes: {done.error}")
            return None
        if not outcome.applied:
            done.fate = Fate.NEVER
            self.recorder.never(done.operation)
            return None
        done.fate = Fate.APPLIED
        if isinstance(done.operation.request, Append):
            return outcome.receipts[0].position
        return outcome.results[0] if outcome.results is not None else None

    def _begin(self, name: str, partition: str, request: Any) -> Done:
        done = Done(name, self.recorder.call(partition, request))
        self.done.append(done)
        return done

    def _note_values(self, done: Done, name: str, topic: str, values: tuple[bytes, ...]) -> list[Appended]:
        records = [Appended(topic, value, name, done.operation) for value in values]
        self.appended += records
        return records

    def _end_append(self, done: Done, records: list[Appended], first: int | None) -> None:
        for offset, record in enumerate(records):
            record.fate = done.fate
            record.position = Position((first or 0) + offset)
        if done.fate is Fate.APPLIED and first is not None:
            self.recorder.answered(done.operation, first)
            topic = records[0].topic
            self._ends[topic] = max(self._ends[topic], first + len(records) - 1)
            if done.expected and done.expected != first:
                self.complaints.append(f"{done.caller} expected position {done.expected}, and was given {first}")

    def _value(self, name: str, entropy: random.Random) -> bytes:
        return f"{name}-{next(self._numbers)} ".encode() + b"." * entropy.randrange(_VALUE_BYTES_MAX)

    # -- Reading ---------------------------------------------------------------------------------------------

    async def _look(self, name: str, person: Person, entropy: random.Random) -> None:
        """Read something, linearizably most of the time."""
        topic = entropy.choice(tuple(self._ends))
        start = max(1, self._ends[topic] - _READ_BACK)
        match entropy.randrange(4):
            case 0:
                key = entropy.choice(KEYS)
                await self._ask(name, partition_of(key), Read(), person.client.actor(CELL, Cell, key=key).read())
            case 1:
                await self._ask(name, topic, ReadEnd(), _end_of(person.client, topic))
            case 2:
                request = ReadFrom(start, is_whole=True)
                await self._ask(name, topic, request, read(person.client, topic, start))
            case _:
                await self._look_stale(name, person, topic, start)
        await asyncio.sleep(entropy.expovariate(1 / self._pause))

    async def _look_stale(self, name: str, person: Person, topic: str, start: int) -> None:
        try:
            answer = await person.client.read_stale(topic, start)
            values = tuple([bytes(record.value) async for record in answer.value])
        except _PASSING:
            return
        except ViewstampError as error:
            if not isinstance(error, UnknownTopicError):  # A lagging member may not have the topic yet.
                self.complaints.append(f"{name}: a stale read of {topic}: {type(error).__name__}: {error}")
            return
        self.seen_stale.append((topic, start, values))

    async def _ask(self, name: str, partition: str, request: Any, asking: Awaitable[Any]) -> None:
        done = self._begin(name, partition, request)
        try:
            answer = await asking
        except _PASSING as error:
            done.error, done.fate = f"{type(error).__name__}: {error}", Fate.NEVER
            self.recorder.never(done.operation)
        except ViewstampError as error:
            done.error, done.fate = f"{type(error).__name__}: {error}", Fate.NEVER
            self.recorder.never(done.operation)
            self.complaints.append(f"{name}: {request!r:.80}: {done.error}")
        else:
            done.fate = Fate.APPLIED
            self.recorder.answered(done.operation, answer)

    async def read_all(self, client: Client) -> None:
        """Read everything linearizably at the end, which settles the unknown outcomes."""
        for topic in self._ends:
            request = ReadFrom(1, is_whole=True)
            await self._ask("end", topic, request, read(client, topic, 1))
        for key in KEYS:
            await self._ask("end", partition_of(key), Read(), client.actor(CELL, Cell, key=key).read())


async def _end_of(client: Client, topic: str) -> int:
    return (await client.describe_topic(topic)).last_position


async def read(client: Client, topic: str, start: int, *, node: str | None = None) -> tuple[bytes, ...]:
    """Read a topic to its end, or to the end that ``node`` has."""
    return tuple([bytes(record.value) async for record in client.read(topic, start, node=node)])
