"""The archive of a topic with streams in a world whose groups are placed: an operator archives it, while all goes on.

The readers of the topic (``order_readers.py``) compare what they get with the order of the streams, wherever it comes
from. The store, with its invariants and its faults, is that of ``archives.py``.

| invariant | sentence |
| --- | --- |
| CommittedIsWhole | as in ``archives.py``, for the runs of each group |
| RunsTile | on each member, the committed runs of a stream follow one another without a gap, and in the order of the \
topic, up to the archived end |
| CheckIsTrue | a check of a run finds damage only while a fault has damaged an object |
| NothingLeft | when the faults have ended, and it was tidied up, the store has the objects of the committed runs of \
each group, and nothing else |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise

from viewstamp.client.aio import Client
from viewstamp.errors import RequestError, StreamSealedError
from viewstamp.ids import GroupId
from viewstamp.node.archive_queries import ArchivableTopic, ArchiveQuery
from viewstamp.node.state_machine import TopicsQuery
from viewstamp.sim.archives import passing
from viewstamp.sim.cluster import Member
from viewstamp.sim.group_writers import SPREAD
from viewstamp.sim.groups import GroupPlacer
from viewstamp.sim.store import SimulatedStore, object_name
from viewstamp.sim.violation import Violation
from viewstamp.sim.world import World

__all__ = ["StreamArchives"]

_LOOK_SECONDS = 0.1
_PAUSE_SECONDS = 0.2
_TIDY_SECONDS = 0.5


class StreamArchives:
    """Archives the topic with streams, and checks its runs."""

    def __init__(self, world: World, store: SimulatedStore, placer: GroupPlacer) -> None:
        self.runs: set[str] = set()
        """The names of the objects of the runs that were committed."""
        self._world = world
        self._store = store
        self._placer = placer
        self._entropy = world.loop.entropy("stream-archives")
        self._process = world.loop.process("stream-archive-operator")
        self._task: asyncio.Task[None] | None = None
        self._is_over = False
        self._is_quiet: Callable[[], bool] = lambda: False

    def start(self) -> None:
        """Begin to archive, and to look."""
        self._task = self._process.spawn(self._operate())
        self._process.spawn(self._world.look_often(self.look, _LOOK_SECONDS))

    def stop(self, is_quiet: Callable[[], bool]) -> None:
        """Archive no more; the operator tidies up when ``is_quiet``: trims and appends go on until then."""
        self._is_over = True
        self._is_quiet = is_quiet

    @property
    def is_done(self) -> bool:
        """Whether the operator has ended, and has left nothing that no run needs."""
        return self._task is not None and self._task.done()

    async def _operate(self) -> None:
        async with self._placer.client() as client:
            while not self._is_over or self._placer.spread is None:
                await asyncio.sleep(self._entropy.expovariate(1 / _PAUSE_SECONDS))
                if self._placer.spread is not None:
                    with passing(), suppress(StreamSealedError):  # A stream was removed meanwhile.
                        await self._do_something(client)
            is_clean = False
            while not is_clean:
                await asyncio.sleep(_TIDY_SECONDS)
                with passing(), suppress(StreamSealedError):
                    is_clean = await self._tidy(client)

    async def _do_something(self, client: Client) -> None:
        entropy, draw = self._entropy, self._entropy.random()
        if draw < 0.25:
            await self._configure(client, is_on=entropy.random() < 0.85)
        elif draw < 0.4:
            await client.find_stream_orphans(entropy.choice(self._placer.placed), remove=True)
        elif draw < 0.5:
            await self._check_some_run(client)
        else:
            await client.archive_spread_topic(SPREAD, delay=entropy.choice((0.0, 1.0)))

    async def _configure(self, client: Client, *, is_on: bool) -> None:
        """Turn the archive of the topic on, mostly with other ages than before, or off."""
        entropy = self._entropy
        after, delay = entropy.choice((0.0, 0.3)), entropy.choice((0.0, 1.0))
        with suppress(RequestError):  # Without the archive the retention would delete runs.
            if is_on:
                await client.configure_spread_topic(
                    SPREAD, archive=True, archive_after_seconds=after, archive_delay_seconds=delay
                )
            else:
                await client.configure_spread_topic(SPREAD, archive=False)

    async def _check_some_run(self, client: Client) -> None:
        runs = [run for run in await client.list_stream_runs(SPREAD) if run.state == "committed"]
        if not runs:
            return
        began, run = self._world.loop.time(), self._entropy.choice(runs)
        with suppress(RequestError):  # It was dropped meanwhile.
            damage = await client.check_stream_run(run.group, run.id)
            if damage and not self._store.was_damaged(began):
                violation = Violation("CheckIsTrue", f"run {run} is called damaged: {damage}")
                self._world.fail(violation)
                raise violation

    async def _tidy(self, client: Client) -> bool:
        """Archive everything, and remove what no run needs; return whether the store has what it should have.

        The archive is on, because without it the runs of removed streams are dropped within an hour only.
        """
        is_quiet = self._is_quiet()
        await self._configure(client, is_on=True)
        await client.archive_spread_topic(SPREAD, delay=0.0)
        for group in self._placer.placed:
            await client.find_stream_orphans(group, remove=True)
        return is_quiet and not self._store.late and not self.left()

    # Looks.

    def look(self) -> None:
        """Check the runs that the members have. Raises Violation."""
        for member in self._world.members:
            for _, topic in self._streams_of(member):
                self._look_at(member, topic)

    def _look_at(self, member: Member, topic: ArchivableTopic) -> None:
        committed = [run for run in topic.runs if run.state == "committed"]
        for one, following in pairwise(committed):
            if one.end != following.first or one.end_global > following.first_global:
                raise Violation("RunsTile", f"{member.name} has {following} behind {one}")
        if committed and committed[-1].end != topic.next_first and topic.next_first != topic.first_position:
            raise Violation("RunsTile", f"{member.name}: {committed[-1]} is the last one, not {topic.next_first}")
        for run in committed:
            if (name := object_name(run)) not in self.runs:
                self.runs.add(name)
                self._store.check_committed(run)

    def _streams_of(self, member: Member) -> Iterator[tuple[GroupId, ArchivableTopic]]:
        """Yield the streams of a member with their runs, as it has applied them."""
        for group in self._placer.placed:
            hosted = member.group(group)
            if hosted is not None and hosted.parts is not None:
                for topic in hosted.machine.query(TopicsQuery()):
                    yield group, hosted.machine.query(ArchiveQuery(topic["name"]))

    def left(self) -> list[str]:
        """Return names that only the store has, or only the catalogue of a member."""
        found: list[str] = []
        for group in self._placer.placed:
            for member in self._world.members:
                hosted = member.group(group)
                if hosted is None or hosted.parts is None:
                    continue
                runs = [run for each, topic in self._streams_of(member) for run in topic.runs if each == group]
                found += {object_name(run) for run in runs} ^ self._store.names_of(group)
                found += [object_name(run) for run in runs if run.state != "committed"]
        return sorted(found)

    def check(self) -> None:
        """Check the store and the catalogues at the end. Raises Violation."""
        self.look()
        if left := self.left():
            raise Violation("NothingLeft", f"the store has not exactly what the runs of streams need: {left}")
