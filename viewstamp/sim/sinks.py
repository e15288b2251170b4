"""Drivers that write to sinks in a simulated world, as Spark does. A checker judges the record of their calls.

A *driver* writes numbered batches: several tasks stage the records of a batch, then the driver commits it. A plan fixes
the contents of a batch before the first driver begins it, but each driver divides them among its tasks at random.

A driver can be killed between any two steps. Its successor begins at the batch that the checkpoint names, and does not
know whether that batch was committed. Some drivers are not killed, but continue beside their successor. From time to
time the successor is another owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import math
import random
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.client.sinks import Sealed, SinkCommit, SinkInfo
from viewstamp.errors import (
    FencedError,
    OutcomeUnknownError,
    RequestError,
    StagingError,
    StorageFullError,
    TrimmedError,
    UnavailableError,
    UnknownTopicError,
)
from viewstamp.ids import Position
from viewstamp.sim.cluster import Cluster
from viewstamp.sim.history import Fate
from viewstamp.sim.tokens import with_token
from viewstamp.sim.topics import PASSING, Topics
from viewstamp.sim.violation import Violation

if TYPE_CHECKING:
    from viewstamp.sim.loop import SimulatedLoop, SimulatedProcess

__all__ = ["Commit", "SinkBatch", "SinkWorkload", "TaskAttempt"]

ResultT = TypeVar("ResultT")
_TRIES_MAX = 6
"""Attempts of a driver at a batch; then it gives up, and another driver follows."""
_LAST_TRIES_MAX = 1000
_PADDING_MAX = 1000
_READ_SECONDS = 15.0
"""Seconds for which a topic may be unreadable once all faults are over."""
_DEATH = 0.1
"""The chance that a driver dies around a COMMIT; its successor then does not know the outcome."""


class TaskFailedError(Exception):
    """A task failed, as tasks do."""


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """A batch; ``number`` is unique only for one owner of one sink."""

    sink: str
    owner: str
    number: int


@dataclass(slots=True)
class TaskAttempt:
    """The records that one task has staged for a batch: (topic, value) in order."""

    batch: SinkBatch
    name: str
    records: list[tuple[str, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class Commit:
    """One COMMIT of a driver: the attempts that it named, in order, and the answer.

    ``size`` is the number of records of the whole batch, ``after`` by topic the highest position that was acknowledged
    to any client before. ``called`` and ``returned`` are times of the history, infinite = there was no answer.
    """

    batch: SinkBatch
    attempts: list[TaskAttempt]
    size: int
    after: dict[str, Position]
    fate: Fate = Fate.PENDING
    answer: SinkCommit | None = None
    called: float = 0.0
    returned: float = math.inf

    def records_of(self, topic: str) -> list[bytes]:
        """Return the values that the topic gets from it, in order."""
        return [value for attempt in self.attempts for into, value in attempt.records if into == topic]


@dataclass(slots=True)
class _Checkpoint:
    """The state of a sink that outlives its drivers: the owner, and the batch with which the next driver begins."""

    owner: str
    next_batch: int = 0


class SinkWorkload:
    """Supervisors, their drivers and a reader, each in a process of its own.

    Invariants:
      * values are unique, and each belongs to one attempt
      * a commit is PENDING only while its driver waits, or if the driver was killed
    """

    def __init__(self, cluster: Cluster, topics: Topics) -> None:
        self.attempts: list[TaskAttempt] = []
        self.commits: list[Commit] = []
        self.known: dict[SinkBatch, list[SinkCommit]] = {}
        """The answers to writers about batches that were already committed when they began."""
        self.left: dict[str, SinkInfo] = {}
        """By sink: its status after the last commit."""
        self.cluster = cluster
        self.topics = topics
        self._over: asyncio.Future[None] = cluster.loop.create_future()
        self._drivers = 0
        self._tasks: list[tuple[SimulatedProcess, asyncio.Task[None]]] = []

    def start(self) -> None:
        """Start the supervisors and the reader."""
        process = self.cluster.loop.process
        supervisors = [
            self._spawn(process(f"s{number}"), self._supervise(f"sink-{number}"))
            for number in range(self.cluster.swarm.sinks)
        ]
        if supervisors:
            self._spawn(process("r0"), self._run_reader(supervisors))

    def stop(self) -> None:
        """Let every driver end after its present batch, and then let one more write one more batch to each sink."""
        self._over.set_result(None)

    @property
    def is_over(self) -> bool:
        """Whether drivers shall end."""
        return self._over.done()

    @property
    def is_done(self) -> bool:
        """Whether all have ended."""
        return all(task.done() or process.is_dead for process, task in self._tasks)

    def _spawn(self, process: SimulatedProcess, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = process.spawn(work)
        task.add_done_callback(self._on_end)
        self._tasks.append((process, task))
        return task

    def _on_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.cluster.fail(error)

    def _client(self, name: str) -> Client:
        return Client(
            self.cluster.addresses,
            network=self.cluster.network.view(name),
            entropy=self.cluster.loop.entropy(f"client {name}"),
            options=with_token(
                self.cluster,
                ClientOptions(timeout=self.cluster.swarm.timeout, batch_bytes=2048, stage_bytes_in_flight=4096),
            ),
        )

    async def _supervise(self, sink: str) -> None:
        """Run one driver after another; kill each, or leave it running."""
        entropy = self.cluster.loop.entropy(f"supervisor {sink}")
        checkpoint = _Checkpoint("o0")
        gone: list[asyncio.Future[None]] = []
        while not self.is_over:
            if entropy.random() < 0.1:
                checkpoint = _Checkpoint(f"o{len(gone)}")
            process, end = self._start_driver(sink, checkpoint)
            gone.append(end)
            seconds = entropy.expovariate(1 / self.cluster.swarm.driver_seconds)
            await asyncio.wait([end, self._over], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not self.is_over and entropy.random() < 0.6:
                process.kill()
            await asyncio.sleep(entropy.expovariate(1 / 0.1))
        if gone:
            await asyncio.wait(gone)
        while sink not in self.left:
            await self._start_driver(sink, checkpoint, is_last=True)[1]
            # A late owner took the sink over from the one that the checkpoint names.
            checkpoint = _Checkpoint("last")

    def _start_driver(
        self, sink: str, checkpoint: _Checkpoint, *, is_last: bool = False
    ) -> tuple[SimulatedProcess, asyncio.Future[None]]:
        """Start a driver; return its process, and a future that is done when it has ended or was killed."""
        self._drivers += 1
        name = f"d{self._drivers}"
        process = self.cluster.loop.client(name)
        driver = _Driver(self, sink, checkpoint, name, process, self._client(name), is_last=is_last)
        end: asyncio.Future[None] = self.cluster.loop.create_future()

        def on_end(_: object = None) -> None:
            if not end.done():
                end.set_result(None)

        process.on_death(on_end)
        self._spawn(process, driver.run()).add_done_callback(on_end)
        return process, end

    async def _run_reader(self, supervisors: list[asyncio.Task[None]]) -> None:
        """Read the topics again and again, each from the end of the last pass; at the end read everything."""
        entropy = self.cluster.loop.entropy("reader")
        topics = self.topics.names
        reader = _Reader(self._client("r0"), self.topics, self.cluster.loop)
        async with reader.client:
            while not self.is_over:
                await asyncio.sleep(entropy.expovariate(1 / 0.15))
                topic = entropy.choice(topics)
                await reader.read(topic, self._somebody(entropy), back=entropy.choice((0, 0, 5)))
                if entropy.random() < self.cluster.swarm.trim_chance:
                    await reader.trim(topic, entropy.choice((0, 0, 5)))
            await asyncio.wait(supervisors)
        reader.client = self._client("r0")  # All machines that the first client knew may have been replaced by now.
        async with reader.client:
            for topic in topics:
                for member in (None, self._somebody(entropy)):
                    await reader.read_all(topic, member, is_there=self._is_there)

    def _is_there(self, node: str | None) -> bool:
        """Return whether the cluster still has ``node``; True for None, because any node may then answer."""
        return node is None or any(member.name == node for member in self.cluster.members)

    def _somebody(self, entropy: random.Random) -> str | None:
        """Choose a member to read from, or None for a linearizable read."""
        return entropy.choice([None, *(member.name for member in self.cluster.members)])


class _Reader:
    """Reads topics, each from where it stopped."""

    def __init__(self, client: Client, topics: Topics, loop: SimulatedLoop) -> None:
        self.client = client
        self._topics = topics
        self._loop = loop
        self._ends: list[tuple[str, int]] = []
        topics.observed.ends.append(self._ends)
        self._following: dict[str, int] = {}

    async def read(self, topic: str, node: str | None, *, back: int) -> bool:
        """Read from ``back`` positions before the next one on, as ``node`` has it, or linearizably if it is None.

        Return whether the end was reached.
        """
        following = self._following.get(topic, 1)
        try:
            if node is None:
                info = await self.client.describe_topic(topic)
                self._ends.append((topic, info.last_position))
            start = following - back
            end = await self._topics.read(self.client, topic, start if start >= 1 else None, node=node)
            self._following[topic] = max(following, end)
        except TrimmedError as error:
            self._following[topic] = max(following, error.first)
            return False
        except (*PASSING, UnknownTopicError):
            return False
        except RequestError:
            if node is None:
                raise
            return False  # It is not a member yet, or no longer.
        return True

    async def trim(self, topic: str, back: int) -> None:
        """Trim the records that were read, except the last ``back``."""
        position = self._following.get(topic, 1) - back
        if position > 1:
            with contextlib.suppress(*PASSING):
                await self.client.trim_topic(topic, position)

    async def read_all(self, topic: str, node: str | None, *, is_there: Callable[[str | None], bool]) -> None:
        """Read all that the topic keeps, after all faults. Raises Violation if that fails again and again."""
        end = self._loop.time() + _READ_SECONDS
        while is_there(node) and not await self.read(topic, node, back=1 << 62):
            if self._loop.time() > end:
                raise Violation("TopicsAreReadable", f"{topic} cannot be read of {node or 'anybody'}")
            await asyncio.sleep(0.1)


class _Driver:
    """One run: writes batch after batch until it is stopped, is fenced, or gives up."""

    def __init__(
        self,
        record: SinkWorkload,
        sink: str,
        checkpoint: _Checkpoint,
        run: str,
        process: SimulatedProcess,
        client: Client,
        *,
        is_last: bool,
    ) -> None:
        self._record = record
        self._cluster = record.cluster
        self._swarm = record.cluster.swarm
        self._checkpoint = checkpoint
        self._owner = checkpoint.owner
        self._run = run
        self._process = process
        self._client = client
        self._is_last = is_last
        self._sink = client.sink(
            sink,
            owner=checkpoint.owner,
            run=run,
            reset=True,
            keep_seconds=3600 if is_last else self._swarm.keep_seconds,
        )
        self._entropy = record.cluster.loop.entropy(f"driver {run}")
        self._begun = 0
        self._strays: list[asyncio.Task[tuple[TaskAttempt, Sealed | SinkCommit]]] = []
        """Tasks that were taken for lost, and continue."""

    async def run(self) -> None:
        """Write batches from the checkpoint's on.

        The last driver of a sink writes one, however often it has to retry.
        """
        async with self._client:
            for topic in self._record.topics.names:
                await self._record.topics.create(self._client, topic)
            with contextlib.suppress(FencedError, TaskFailedError):
                await self._write_all()
            for stray in self._strays:
                await asyncio.wait([stray])
                stray.exception()

    async def _write_all(self) -> None:
        number = self._checkpoint.next_batch
        while not self._record.is_over or self._is_last:
            await self._write(SinkBatch(self._sink.name, self._owner, number))
            if self._maybe_die(0.0):
                await self._rest()
            number += 1
            self._checkpoint.next_batch = max(self._checkpoint.next_batch, number)
            if self._is_last:
                self._record.left[self._sink.name] = await self._describe()
                return
            await self._rest(self._swarm.pause_seconds)

    async def _describe(self) -> SinkInfo:
        while True:
            try:
                return await self._client.describe_sink(self._sink.name)
            except PASSING:
                await asyncio.sleep(0.1)

    async def _write(self, batch: SinkBatch) -> None:
        """Write one batch; all of it again after any failure."""
        for _ in range(_LAST_TRIES_MAX if self._is_last else _TRIES_MAX):
            try:
                await self._try(batch)
            except (StagingError, TaskFailedError, *PASSING):
                if self._entropy.random() < 0.3:
                    await self._abort(batch)
                await self._rest(0.2)
            else:
                if self._entropy.random() < 0.2:
                    # Spark does so when a step after its COMMIT failed; then the driver ends.
                    await self._abort(batch)
                    if self._maybe_die(0.0, chance=0.5):
                        await self._rest()
                return
        raise TaskFailedError

    async def _try(self, batch: SinkBatch) -> None:
        results = await _all(self._run_task(batch, part) for part in self._divide(batch))
        attempts = [attempt for attempt, result in results if isinstance(result, Sealed)]
        sealed = [result for _, result in results if isinstance(result, Sealed)]
        for _ in range(3):
            await self._rest()
            copies = self._entropy.choice((1, 1, 1, 2))
            if any(await _all(self._commit(batch, attempts, sealed) for _ in range(copies))):
                return
        raise TaskFailedError

    def _plan(self, batch: SinkBatch) -> list[tuple[str, int, int]]:
        """Return the contents of the batch for all of its writers: topic, number and padding of each record."""
        entropy = self._cluster.loop.entropy(f"plan {batch.sink} {batch.owner} {batch.number}")
        padding = min(self._swarm.value_bytes_max, _PADDING_MAX)
        return [
            (entropy.choice(self._record.topics.names), number, entropy.randrange(padding))
            for number in range(entropy.randint(0, self._swarm.sink_records))
        ]

    def _divide(self, batch: SinkBatch) -> list[list[tuple[str, int, int]]]:
        """Divide the batch's plan into parts, one for each task, each in its own order."""
        parts: list[list[tuple[str, int, int]]] = [[] for _ in range(self._entropy.randint(1, self._swarm.sink_tasks))]
        for record in self._plan(batch):
            self._entropy.choice(parts).append(record)
        return parts

    async def _run_task(
        self, batch: SinkBatch, part: list[tuple[str, int, int]]
    ) -> tuple[TaskAttempt, Sealed | SinkCommit]:
        """Let a task write a part; if it fails or is taken for lost, start another one under another name."""
        for _ in range(4):
            task = asyncio.ensure_future(self._stage(batch, part))
            if self._entropy.random() < 0.1:
                await self._rest()
                if not task.done():
                    self._strays.append(task)
                    continue
            try:
                return await task
            except FencedError:
                raise
            except (StagingError, TaskFailedError, *PASSING):
                await self._rest()
            except RequestError as error:
                if not self._may_be_too_much(batch):
                    raise
                await self._abort(batch)
                raise TaskFailedError from error
        raise TaskFailedError

    async def _stage(
        self, batch: SinkBatch, part: list[tuple[str, int, int]]
    ) -> tuple[TaskAttempt, Sealed | SinkCommit]:
        self._begun += 1
        attempt = TaskAttempt(batch, f"{self._run}.{self._begun}")
        self._record.attempts.append(attempt)
        begun = await self._sink.begin(batch.number, attempt.name)
        if isinstance(begun, SinkCommit):
            self._record.known.setdefault(batch, []).append(begun)
            return attempt, begun
        at = 0
        while at < len(part):
            await self._step()
            topic = part[at][0]
            end = next((i for i in range(at, len(part)) if part[i][0] != topic), len(part))
            end = min(end, at + self._entropy.randint(1, 5))
            values = [self._value(batch, attempt, *record) for record in part[at:end]]
            attempt.records += [(topic, value) for value in values]
            await begun.stage_records(topic, values)
            at = end
        await self._step()
        sealed = await begun.seal()
        await self._step()
        return attempt, sealed

    def _may_be_too_much(self, batch: SinkBatch) -> bool:
        """Return whether the attempts at a batch, including abandoned ones, come near the limit for staged bytes."""
        attempts = (attempt for attempt in self._record.attempts if attempt.batch == batch)
        return 2 * sum(len(value) for each in attempts for _, value in each.records) > self._swarm.staged_bytes_max

    @staticmethod
    def _value(batch: SinkBatch, attempt: TaskAttempt, topic: str, number: int, padding: int) -> bytes:
        return f"{batch.sink} {batch.owner} {batch.number} {attempt.name} {topic} {number} ".encode() + b"x" * padding

    async def _commit(self, batch: SinkBatch, attempts: list[TaskAttempt], sealed: list[Sealed]) -> bool:
        """Commit; return whether the batch is known to be committed."""
        topics = self._record.topics
        now = topics.history.now
        commit = Commit(batch, attempts, len(self._plan(batch)), dict(topics.acknowledged), called=now())
        self._record.commits.append(commit)
        self._maybe_die(self._entropy.expovariate(1 / self._swarm.step_seconds))
        try:
            answer = await self._sink.commit(batch.number, sealed)
        except (OutcomeUnknownError, FencedError) as error:
            # Fenced: a copy with a lost answer may have committed it before.
            commit.fate = Fate.UNKNOWN
            if isinstance(error, FencedError):
                raise
            return False
        except (StagingError, UnavailableError, StorageFullError) as error:
            commit.fate = Fate.NEVER
            if isinstance(error, StagingError):
                raise
            return False
        commit.fate = Fate.APPLIED
        commit.answer = answer
        commit.returned = now()
        for topic, first, count in answer.ranges or []:
            topics.acknowledge(topic, Position(first + count - 1))
        return True

    async def _abort(self, batch: SinkBatch) -> None:
        """Abort, as Spark does after any outcome of the commit."""
        try:
            await self._sink.abort(batch.number)
        except PASSING:
            return

    def _maybe_die(self, seconds: float, *, chance: float = _DEATH) -> bool:
        """Kill the driver with a chance, after ``seconds``, unless drivers shall end."""

        def die() -> None:
            if not self._record.is_over:
                self._process.kill()

        dies = self._entropy.random() < chance
        if dies:
            self._cluster.loop.call_later(seconds, die, context=contextvars.Context())
        return dies

    async def _rest(self, seconds: float = 0.0) -> None:
        """Wait about ``seconds``, or the duration of a step."""
        await asyncio.sleep(self._entropy.expovariate(1 / (seconds or self._swarm.step_seconds)))

    async def _step(self) -> None:
        """Continue after a moment, or fail."""
        await self._rest()
        if self._entropy.random() < 0.02:
            raise TaskFailedError


async def _all(works: Iterable[Coroutine[Any, Any, ResultT]]) -> list[ResultT]:
    """Await all of them, even if some fail; then raise the first error."""
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast("list[ResultT]", results)
