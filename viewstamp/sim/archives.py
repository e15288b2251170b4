"""The archive of a world: an operator archives topics, a reader reads them at any member, while the store has faults.

| invariant | sentence |
| --- | --- |
| CommittedIsWhole | when a member has a run as committed, its object is in the store, durable, with exactly \
these records |
| RunIdsStay | an id is that of one run for ever, on all members |
| DeletedWasArchived | the first kept position of a topic with archive settings rises over positions of committed runs \
only |
| RunsTile | on each member, the committed runs of a topic follow one another without a gap, up to its archived end |
| NothingDroppedBefore | a member that deletes the beginning of its log has every kept record in its log or in a \
committed run, and has read the whole object of each such run since its start, when it was intact |
| KeptIsReadable | a read from a member returns the record at the position that was asked for, and the following ones \
in order, or an error: that the member cannot say now, or that the object is damaged while a fault has damaged one |
| EveryMemberReads | when the faults have ended, each member returns every kept record within the minute |
| NothingLeft | when the faults have ended, and it was tidied up, the store has the objects of the committed runs, and \
nothing else; each of these runs has kept records |

A record that a read returns is compared with every other observation of its position (``topics.py``, PositionsStay),
and in the end with the answers to the clients. The store has three more invariants (``store.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from viewstamp.archive.run_store import ReadableRun
from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.errors import (
    CorruptionError,
    OutcomeUnknownError,
    RequestError,
    StorageError,
    TrimmedError,
    UnavailableError,
    UnknownTopicError,
)
from viewstamp.ids import GROUP_0, Index, Position, TopicId
from viewstamp.node.archive_queries import ArchivableTopic, ArchivedRun, ArchiveQuery
from viewstamp.node.node import Node
from viewstamp.node.state_machine import LocationQuery, StateMachine, TopicsQuery
from viewstamp.sim.cluster import Member
from viewstamp.sim.store import SimulatedStore, StoreFaults, object_name, read_run
from viewstamp.sim.topics import Topics
from viewstamp.sim.violation import Violation
from viewstamp.sim.world import World
from viewstamp.wire.batch import Batch

__all__ = ["Archives", "archived_batches", "passing"]

_LOOK_SECONDS = 0.1
_READ_RECORDS = 40
"""The most records of a read."""
_PAUSE_SECONDS = 0.15
_ANSWER_SECONDS = 2.0
_TIDY_SECONDS = 0.5
_ONE_OF_RUNS = 12
"""A request archives at most this number of records, half of the time."""
_PASSING = (UnavailableError, OutcomeUnknownError, StorageError, UnknownTopicError)


@contextmanager
def passing() -> Iterator[None]:
    """Let the errors pass that faults cause. A store that refuses its work ends a request at once."""
    try:
        yield
    except _PASSING:
        pass
    except RequestError as error:
        if "cannot go on with the archive" not in error.message:
            raise


class Archives:
    """Archives the topics of a run, reads them, and checks both."""

    def __init__(self, world: World, topics: Topics) -> None:
        swarm = world.swarm
        self.store = SimulatedStore(world, is_bucket=swarm.archive_bucket)
        self.faults = StoreFaults(
            self.store, swarm.archive_faults, pause=swarm.fault_seconds, lasting=swarm.down_seconds
        )
        self.archived: dict[str, int] = {}
        """The highest archived end of each topic that the leader has answered."""
        self.reads = 0
        """Number of records that were read from members."""
        self.drops = 0
        """How often a member deleted archived records that topics keep from its log."""
        world.runs_of = self.store.runs_of
        self._world = world
        self._topics = topics
        self._entropy = world.loop.entropy("archives")
        self._process = world.loop.process("archive-operator")
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = False
        self._is_clean = False
        self._is_quiet: Callable[[], bool] = lambda: False
        self._ids: dict[int, tuple[int, int, int]] = {}
        self.runs: set[int] = set()
        """The runs that were committed."""
        self._firsts: dict[tuple[str, TopicId], int] = {}
        """The first kept position of each topic with archive settings, as each member had it at the last look."""
        self._archived_ends: dict[TopicId, int] = {}
        """The highest end of a committed run of each topic that any member had."""
        self.deletions = 0
        """How often a member deleted records because of a delete age."""
        self._begins: dict[str, tuple[Node, Index, Index]] = {}
        """The node, and the begin and the end of its log, of each member that was looked at."""

    def start(self) -> None:
        """Begin to archive, to read, to look, and to inject faults of the store."""
        self._tasks = [self._process.spawn(self._operate()), self._process.spawn(self._read_often())]
        self._process.spawn(self._world.look_often(self.look, _LOOK_SECONDS))
        self.faults.start()
        after_event = self._world.loop.after_event
        assert after_event is not None, "a world checks after each event"

        def after_each() -> None:
            after_event()
            for member in self._world.touched() if self._begins else self._world.members:
                if member.node is not None and member.node.group.wal is not None:
                    self._look_at_log(member, member.node)

        self._world.loop.after_event = after_each

    def stop(self, is_quiet: Callable[[], bool]) -> None:
        """End the faults of the store; the operator tidies up when ``is_quiet``, because trims go on until then."""
        self._is_over = True
        self._is_quiet = is_quiet
        self.faults.stop()
        self.store.calm()

    @property
    def is_done(self) -> bool:
        """Whether the operator has ended, and has left nothing that no run needs."""
        return all(task.done() for task in self._tasks)

    @property
    def counts(self) -> dict[str, int]:
        """How often each fault of the store was injected."""
        return {f"store {kind}": count for kind, count in self.store.counts.items()}

    # Clients.

    def _client(self, name: str) -> Client:
        return Client(
            self._world.addresses,
            network=self._world.network.view("archive-operator"),
            entropy=self._world.loop.entropy(name),
            options=ClientOptions(timeout=_ANSWER_SECONDS),
        )

    async def _operate(self) -> None:
        entropy, swarm = self._entropy, self._world.swarm
        # A run whose archive delay is long keeps the log for all runs behind it.
        delays = entropy.choice(((0.0,), (0.0, 1.0), (0.0, 1.0, 3600.0)))
        async with self._client("archive-operator") as client:
            while not self._is_over:
                await asyncio.sleep(entropy.expovariate(1 / _PAUSE_SECONDS))
                topic = entropy.choice(self._topics.names)
                with passing():
                    draw = entropy.random()
                    if swarm.archive_settings and entropy.random() < 0.2:
                        await self._configure(client, topic)
                    elif draw < 0.1:
                        await self._check_some_run(client)
                    elif draw < 0.25:
                        await client.find_orphans(remove=True)
                    else:
                        few = self.archived.get(topic, 1) + entropy.randint(1, _ONE_OF_RUNS)
                        before = few if entropy.random() < 0.5 else None
                        end = await client.archive_topic(topic, before, delay=entropy.choice(delays))
                        self.archived[topic] = max(end, self.archived.get(topic, 1))
            while not self._is_clean:
                await asyncio.sleep(_TIDY_SECONDS)
                with passing():
                    if swarm.archive_settings:
                        await self._end_settings(client)
                    await self._tidy(client)

    async def _configure(self, client: Client, topic: str) -> None:
        """Turn the archive of a topic on, mostly with other ages than before, or off."""
        entropy = self._entropy
        with suppress(RequestError):  # Without the archive the retention would delete runs.
            if entropy.random() < 0.15:
                await client.configure_topic(topic, archive=False)
            else:
                await client.configure_topic(
                    topic,
                    archive=True,
                    archive_after_seconds=entropy.choice((0.0, 0.0, 0.3)),
                    archive_delay_seconds=entropy.choice((0.0, 1.0)),
                    delete_after_seconds=entropy.choice((0.0, 1.0, 2.0)),
                )

    async def _end_settings(self, client: Client) -> None:
        """Turn the archives off, so that nothing is written or deleted behind the last look."""
        for topic in self._topics.names:
            with suppress(UnknownTopicError):
                await client.configure_topic(topic, archive=False, retain_bytes=0)

    async def _tidy(self, client: Client) -> None:
        is_quiet = self._is_quiet()
        if is_quiet:
            for member in self._world.members:
                for topic in self._topics.names:
                    await self._read_all(client, topic, member.name)
        for topic in self._topics.names:
            with suppress(UnknownTopicError):
                await client.archive_topic(topic, 1)
        await client.find_orphans(remove=True)
        self._is_clean = is_quiet and not self.store.late and not await client.find_orphans() and not self._left()

    async def _read_all(self, client: Client, topic: str, node: str) -> None:
        """Read a topic from a member, from its first record on. Raises as the client's calls."""
        at = 0
        with suppress(UnknownTopicError, RequestError):  # It has not joined yet, or the topic is trimmed meanwhile.
            async for record in client.read(topic, node=node):
                if at and record.position != at:
                    raise self._violation("KeptIsReadable", f"{node} returns {record.position} of {topic} for {at}")
                self._topics.observed.note(topic, record.position, record.value, record.timestamp)
                at = record.position + 1

    async def _check_some_run(self, client: Client) -> None:
        runs = [run.id for run in await client.list_runs() if run.state == "committed"]
        if not runs:
            return
        began, run = self._world.loop.time(), self._entropy.choice(runs)
        with suppress(RequestError):  # It was dropped meanwhile.
            damage = await client.check_run(run)
            if damage and not self.store.was_damaged(began):
                raise self._violation("CheckIsTrue", f"run {run} is called damaged: {damage}")

    async def _read_often(self) -> None:
        entropy = self._entropy
        async with self._client("archive-reader") as client:
            while not self._is_over:
                await asyncio.sleep(entropy.expovariate(1 / _PAUSE_SECONDS))
                topic = entropy.choice(self._topics.names)
                last = self._topics.acknowledged.get(topic, 0)
                if last:
                    node = entropy.choice(self._world.members).name
                    with suppress(*_PASSING):
                        await self._read(client, topic, entropy.randint(1, last), node)

    async def _read(self, client: Client, topic: str, start: int, node: str) -> None:
        began, at = self._world.loop.time(), start
        try:
            async for record in client.read(topic, start, end=start + _READ_RECORDS, node=node):
                if record.position != at:
                    raise self._violation("KeptIsReadable", f"{node} returns {record.position} of {topic} for {at}")
                self._topics.observed.note(topic, record.position, record.value, record.timestamp)
                at += 1
                self.reads += 1
        except TrimmedError as error:
            swarm = self._world.swarm
            if not (swarm.retain_bytes or swarm.trim_chance or swarm.archive_settings):
                raise self._violation("KeptIsReadable", f"{node} calls {at} of {topic} trimmed: {error}") from error
        except RequestError as error:
            if "no node is named" not in error.message:  # It was removed, or has not joined yet.
                raise
        except CorruptionError as error:
            if not self.store.was_damaged(began):
                raise self._violation("KeptIsReadable", f"{node} calls {at} of {topic} damaged: {error}") from error

    def _violation(self, invariant: str, text: str) -> Violation:
        violation = Violation(invariant, text)
        self._world.fail(violation)
        return violation

    # Looks.

    def look(self) -> None:
        """Check the runs that the members have. Raises Violation."""
        for member in self._world.members:
            if member.is_up and member.node is not None and member.node.group.parts is not None:
                for topic in _topics_of(member.machine):
                    self._look_at_runs(member, topic)
                self._look_at_firsts(member)

    def _look_at_firsts(self, member: Member) -> None:
        """Check that a topic with archive settings has lost records of committed runs only. Raises Violation."""
        if self._world.swarm.trim_chance:
            return
        for topic in member.machine.query(TopicsQuery()):
            key, first = (member.name, TopicId(topic["id"])), topic["first_position"]
            if "archive" not in topic:
                self._firsts.pop(key, None)
                continue
            known = self._firsts.setdefault(key, first)
            if first > max(known, self._archived_ends.get(key[1], 1)):
                raise Violation(
                    "DeletedWasArchived",
                    f"{member.name} keeps topic {topic['name']} from {first} on, not from {known}, and the runs of all"
                    f" members have ended at {self._archived_ends.get(key[1], 1)}",
                )
            self.deletions += first > known
            self._firsts[key] = first

    def _look_at_runs(self, member: Member, topic: ArchivableTopic) -> None:
        at = 0
        for run in topic.runs:
            identity = int(run.topic), int(run.first), int(run.end)
            if (known := self._ids.setdefault(int(run.id), identity)) != identity:
                raise Violation("RunIdsStay", f"{member.name} has run {run.id} as {identity}, known is {known}")
            if run.state != "committed":
                continue
            if at and run.first != at:
                raise Violation("RunsTile", f"{member.name}: run {run.id} begins at {run.first}, not at {at}")
            at = run.end
            self._archived_ends[run.topic] = max(run.end, self._archived_ends.get(run.topic, 1))
            if run.id not in self.runs:
                self.runs.add(int(run.id))
                self.store.check_committed(run)
        if at and at != topic.next_first and topic.next_first != topic.first_position:
            raise Violation("RunsTile", f"{member.name}: the runs end at {at}, the archived end is {topic.next_first}")

    def _look_at_log(self, member: Member, node: Node) -> None:
        """Check a member that has deleted the beginning of its log since the last look. Raises Violation.

        Its process may have died in this event.
        """
        wal = node.group.wal
        assert wal is not None, "the caller has looked"
        begin, end = wal.first_index, wal.durable_end
        known = self._begins.get(member.name)
        self._begins[member.name] = node, begin, end
        if known is None or known[0] is not node or begin <= known[1]:
            return
        if begin > known[2] or begin == end:
            return  # A snapshot was installed: these records were never in this log.
        for topic in _topics_of(node.machine):
            if topic.archived_end < topic.next_position:
                index, _ = node.machine.query(LocationQuery(topic.id, topic.archived_end))
                if index < begin:
                    raise Violation(
                        "NothingDroppedBefore",
                        f"{member.name} deletes its log before {begin}, and position {topic.archived_end} of topic"
                        f" {topic.id} was at {index} and is in no committed run",
                    )
            for run in topic.runs:
                if run.state != "committed" or run.end <= topic.first_position:
                    continue
                # The sparse map names an index at or before the record, maybe one of the run before this one.
                located, _ = node.machine.query(LocationQuery(topic.id, max(run.first, topic.first_position)))
                is_dropped = max(located, run.first_index) < begin and run.end_index > known[1]
                self.drops += is_dropped
                key = member.name, member.starts, object_name(run)
                if is_dropped and key not in self.store.whole_reads:
                    raise Violation(
                        "NothingDroppedBefore",
                        f"{member.name} deletes its log before {begin}, and has not read run {run.id} as a whole, whose"
                        f" records begin at {run.first_index}",
                    )

    # The end.

    def _left(self) -> list[str]:
        """Return the names in the store that no committed run with kept records has, and runs that nobody needs."""
        member = next(each for each in self._world.members if each.is_up and each.node is not None)
        needed = {
            object_name(run)
            for topic in _topics_of(member.machine)
            for run in topic.runs
            if run.state == "committed" and run.end > topic.first_position
        }
        known = {object_name(run) for topic in _topics_of(member.machine) for run in topic.runs}
        return sorted(needed ^ (known | self.store.names_of(GROUP_0)))

    def check(self) -> None:
        """Check the store and the catalogue at the end. Raises Violation."""
        self.look()
        if left := self._left():
            raise Violation("NothingLeft", f"the store has not exactly what the runs need: {left}")
        for name, data in self.store.objects.items():
            try:
                list(read_run(data, name).verify())
            except CorruptionError as error:
                raise Violation("CommittedIsWhole", f"in the end: {error.message}") from error

    def ends(self) -> Mapping[str, int]:
        """Return the archived end of each topic, on the first member."""
        member = self._world.members[0]
        return {
            topic["name"]: member.machine.query(ArchiveQuery(topic["name"])).archived_end
            for topic in member.machine.query(TopicsQuery())
        }

    def open(self, run: ArchivedRun) -> ReadableRun:
        """Open the object of a run as it is in the store."""
        name = object_name(run)
        data = self.store.objects.get(name)
        if data is None:
            raise Violation("CommittedIsWhole", f"in the end {name} is missing")
        return read_run(data, name)


def archived_batches(archives: Archives, member: Member, topic: str, begin: Index) -> list[Batch]:
    """Return the batches of the runs of a topic that were in the member's log before ``begin``."""
    found = member.machine.query(ArchiveQuery(topic))
    runs = [run for run in found.runs if run.state == "committed" and run.end > found.first_position]
    # Staged records are in the log before those around them, so a run may be there in part.
    last = max((number for number, run in enumerate(runs) if run.first_index < begin), default=-1)
    # The map of the topic may name an index that the log has deleted, for a record that it still has.
    while 0 <= last < len(runs) - 1 and member.machine.query(LocationQuery(found.id, runs[last].end))[0] < begin:
        last += 1
    if last < 0 and runs and member.machine.query(LocationQuery(found.id, found.first_position))[0] < begin:
        last = len(runs) - 1
    batches: list[Batch] = []
    for run in runs[: last + 1]:
        opened = archives.open(run)
        for group in opened.footer.groups:
            batches += Batch.decode_all(opened.load(Position(group.first)).data)
    return batches


def _topics_of(machine: StateMachine) -> list[ArchivableTopic]:
    return [machine.query(ArchiveQuery(topic["name"])) for topic in machine.query(TopicsQuery())]
