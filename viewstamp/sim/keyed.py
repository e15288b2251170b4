"""A keyed topic of a world: clients append, get and scan its keys, while nodes and the store of its runs have faults.

| invariant | sentence |
| --- | --- |
| GetSeesLastAcknowledged | a get, and a scan for each key, returns the last record of its key among the first c \
records, for a c that is at least the position of each record that was acknowledged before it began |
| GetInventsNothing | what it returns is a record of the topic, with this key, and no deletion |
| ScanIsSorted | the keys of a scan rise |
| SlicesAreWhole | when the faults have ended, each slice of each member is in the store, as its catalogue says |
| NothingLeft | when the faults have ended, the store has the objects of the committed runs, and nothing else |

The judge knows the topic from a read at the end, which the checkers of the world compare with all logs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from viewstamp.archive.run_file import run_name
from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.errors import (
    CorruptionError,
    OutcomeUnknownError,
    RequestError,
    StorageError,
    UnavailableError,
    UnknownTopicError,
)
from viewstamp.ids import ClusterId
from viewstamp.node.keyed_queries import KeyedViewQuery, UnneededKeysQuery
from viewstamp.node.state_machine import TopicsQuery
from viewstamp.sim.cluster import Member
from viewstamp.sim.store import SimulatedStore, StoreFaults
from viewstamp.sim.swarm import KEYED_TOPIC as TOPIC
from viewstamp.sim.violation import Violation
from viewstamp.sim.world import World
from viewstamp.wire.batch import Record

__all__ = ["KeyedClients", "judge"]

_KEYS = [b"%c%c" % (a, b) for a in b"abcd" for b in b"xyz"]
_PAUSE_SECONDS = 0.03
_ANSWER_SECONDS = 2.0
_PASSING = (UnavailableError, OutcomeUnknownError, StorageError, UnknownTopicError)


class _Seen(NamedTuple):
    """What a read returned for a key: a position and a value, or None; and the last acknowledged position before it."""

    key: bytes
    acknowledged: int
    found: tuple[int, bytes] | None


class KeyedClients:
    """Appends to a keyed topic, reads it by key, and judges what was read."""

    def __init__(self, world: World) -> None:
        swarm = world.swarm
        self.store = SimulatedStore(world, is_bucket=swarm.archive_bucket)
        self.faults = StoreFaults(
            self.store, swarm.archive_faults, pause=swarm.fault_seconds, lasting=swarm.down_seconds
        )
        world.runs_of = self.store.runs_of
        self.seen: list[_Seen] = []
        self.runs: set[int] = set()
        """The committed runs that a look has found."""
        self.ranges = 1
        """The most ranges that a look has found."""
        self._world = world
        self._entropy = world.loop.entropy("keyed")
        self._process = world.loop.client("keyed-clients")
        self._tasks: list[asyncio.Task[None]] = []
        self._acknowledged = 0
        self._records: list[Record] = []
        self._is_over = False
        self._is_quiet: Callable[[], bool] = lambda: False

    def start(self) -> None:
        """Begin to append and to read, and to inject faults of the store."""
        self._tasks = [self._process.spawn(self._append()), self._process.spawn(self._read())]
        self.faults.start()

    def stop(self, is_quiet: Callable[[], bool]) -> None:
        """End the faults of the store and the clients; the last read begins when ``is_quiet``."""
        self._is_over = True
        self._is_quiet = is_quiet
        self.faults.stop()
        self.store.calm()

    @property
    def is_done(self) -> bool:
        """Whether the clients have ended, and the leader has removed what no run needs."""
        return all(task.done() for task in self._tasks) and not self._left()

    @property
    def counts(self) -> dict[str, int]:
        """How often each fault of the store was injected."""
        return {f"store {kind}": count for kind, count in self.store.counts.items()}

    def _client(self, name: str) -> Client:
        return Client(
            self._world.addresses,
            network=self._world.network.view(name),
            entropy=self._world.loop.entropy(name),
            options=ClientOptions(timeout=_ANSWER_SECONDS),
        )

    async def _append(self) -> None:
        entropy = self._entropy
        async with self._client("keyed-appends") as client:
            while not self._is_over:
                with suppress(*_PASSING):
                    await client.create_topic(TOPIC)
                    await client.configure_keyed(TOPIC)
                    break
                await asyncio.sleep(_PAUSE_SECONDS)
            number = 0
            while not self._is_over:
                await asyncio.sleep(entropy.expovariate(1 / _PAUSE_SECONDS))
                number += 1
                value = b"" if entropy.random() < 0.2 else b"%d " % number + b"v" * entropy.randrange(80)
                with suppress(*_PASSING):
                    receipt = await client.append(TOPIC, value, key=entropy.choice(_KEYS))
                    self._acknowledged = max(self._acknowledged, receipt.position)

    async def _read(self) -> None:
        entropy = self._world.loop.entropy("keyed reads")
        async with self._client("keyed-reads") as client:
            while not self._is_over:
                await asyncio.sleep(entropy.expovariate(1 / _PAUSE_SECONDS))
                if self._acknowledged:
                    with suppress(*_PASSING):
                        await self._read_once(client, is_scan=entropy.random() < 0.15, key=entropy.choice(_KEYS))
                    self._look()
            while not self._records:
                await asyncio.sleep(_PAUSE_SECONDS)
                with suppress(*_PASSING):
                    if self._is_quiet():
                        if not self._acknowledged:
                            return
                        for key in _KEYS:
                            await self._read_once(client, is_scan=False, key=key)
                        await self._read_once(client, is_scan=True, key=b"")
                        self._records = [record async for record in client.read(TOPIC)]

    async def _read_once(self, client: Client, *, is_scan: bool, key: bytes) -> None:
        began, acknowledged = self._world.loop.time(), self._acknowledged
        try:
            if not is_scan:
                record = await client.get(TOPIC, key)
                self.seen.append(_Seen(key, acknowledged, None if record is None else (record.position, record.value)))
                return
            found: dict[bytes, tuple[int, bytes]] = {}
            last = b""
            async for record in client.scan(TOPIC):
                assert record.key is not None, "a row has a key"
                if record.key <= last:
                    raise self._violation("ScanIsSorted", f"{record.key!r} comes after {last!r}")
                last = record.key
                found[record.key] = record.position, record.value
            self.seen += [_Seen(each, acknowledged, found.get(each)) for each in _KEYS]
        except CorruptionError as error:
            if not self.store.was_damaged(began):
                raise self._violation("GetSeesLastAcknowledged", f"calls its runs damaged: {error}") from error
        except RequestError as error:
            # The first leaders of a run may not have applied the record that makes the topic keyed.
            if "is not keyed" not in error.message or self.seen:
                raise

    def _violation(self, invariant: str, text: str) -> Violation:
        violation = Violation(invariant, text)
        self._world.fail(violation)
        return violation

    def _look(self) -> None:
        """Note the runs and ranges that the members have."""
        for member in self._world.members:
            if member.is_up and member.node is not None and member.node.group.parts is not None:
                with suppress(RequestError):
                    view = member.machine.query(KeyedViewQuery(TOPIC))
                    self.ranges = max(self.ranges, len(view.ranges))
                    for each in view.ranges:
                        self.runs |= {int(run.id) for run in each.runs}

    # The end.

    def _some_member(self) -> Member | None:
        """Return a member that has replayed its log; None = there is none at present."""
        ready = (
            each
            for each in self._world.members
            if each.is_up and each.node is not None and each.node.group.parts is not None
        )
        return next(ready, None)

    def _left(self) -> list[str]:
        """Return names that only the store has, or only the catalogue of a member."""
        member = self._some_member()
        if member is None or not any(topic["name"] == TOPIC for topic in member.machine.query(TopicsQuery())):
            return []
        known: set[str] = set()
        with suppress(RequestError):
            ranges = member.machine.query(KeyedViewQuery(TOPIC)).ranges
            known = {_name(run.id) for each in ranges for run in each.runs}
        unneeded = [_name(run.id) for run in member.machine.query(UnneededKeysQuery()).get(TOPIC, [])]
        return sorted((known ^ set(self.store.names)) - self._orphans()) + unneeded

    def _orphans(self) -> set[str]:
        """Return the objects of no run, which the leader removes only once an hour."""
        member = self._some_member()
        assert member is not None, "the caller has found one"
        known = {_name(run.id) for runs in member.machine.query(UnneededKeysQuery()).values() for run in runs}
        with suppress(RequestError):
            ranges = member.machine.query(KeyedViewQuery(TOPIC)).ranges
            known |= {_name(run.id) for each in ranges for run in each.runs}
        return {name for name in self.store.names if name not in known}

    def check(self) -> None:
        """Judge what was read, and the runs. Raises Violation."""
        judge(self.seen, self._records)
        if left := self._left():
            raise Violation("NothingLeft", f"the store has not exactly what the runs need: {left}")
        for member in self._world.members:
            with suppress(RequestError, UnknownTopicError):
                view = member.machine.query(KeyedViewQuery(TOPIC))
                runs = self.store.runs_of(member)
                for run in {run.id: run for each in view.ranges for run in each.runs}.values():
                    try:
                        list(runs.keys.check_keys(run))
                    except CorruptionError as error:
                        raise Violation("SlicesAreWhole", error.message) from error


def judge(seen: Iterable[_Seen], records: Iterable[Record]) -> None:
    """Compare what reads returned with all records of the topic, from position 1 on. Raises Violation."""
    history: dict[bytes, list[tuple[int, bytes]]] = {}
    for record in records:
        if record.key is not None:
            history.setdefault(record.key, []).append((record.position, record.value))
    for key, acknowledged, found in seen:
        of_key = history.get(key, [])
        before = [each for each in of_key if each[0] <= acknowledged]
        allowed = [*before[-1:], *(each for each in of_key if each[0] > acknowledged)]
        if found is not None and (found not in of_key or not found[1]):
            raise Violation("GetInventsNothing", f"{key!r} is {found}, and its records are {of_key[-5:]}")
        is_none_allowed = not before or any(not value for _, value in allowed)
        if found not in allowed and (found is not None or not is_none_allowed):
            raise Violation(
                "GetSeesLastAcknowledged",
                f"{key!r} is {found} after position {acknowledged} was acknowledged; allowed are {allowed}",
            )


def _name(run: int) -> str:
    return run_name(ClusterId("simulated"), run)  # type: ignore[arg-type]
