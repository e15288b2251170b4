"""Reading interleaved topics back gives a reader the same batches from memory and from disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.node.group import SMALL, not_on_the_loop
from tests.node.hooked_disk import HookedDisk
from tests.streams.log import Log, Stager, commit, entries, records, seal, trim_topic
from viewstamp.consensus.log import RaftLog as CoreLog
from viewstamp.errors import CorruptionError, TrimmedError
from viewstamp.host.disk import RealDisk
from viewstamp.ids import Index, Position, TopicId
from viewstamp.node.log_reader import LogReader
from viewstamp.node.state_machine import CommitEffectQuery, LocationQuery
from viewstamp.streams import Streams
from viewstamp.wal.log import Wal
from viewstamp.wire.batch import Batch

TOPICS = (TopicId(1), TopicId(2), TopicId(3))


class Written:
    """A log with batches of three topics in turn, of one to three records each, and the expected view of its readers.

    From time to time a sink commits its staged batches to two topics, in another order than their order in the log.
    Then the COMMIT is repeated, or a refused one follows; neither has an effect.
    """

    def __init__(self, rounds: int) -> None:
        self.log = Log(Streams())
        self.machine = self.log.machine
        self.stager = Stager(self.log)
        self.shown: dict[TopicId, list[tuple[int, Batch]]] = {topic: [] for topic in TOPICS}
        """For each topic, in order: the index at which a batch became visible, and the batch as readers see it."""
        session = self.log.session()
        for topic in TOPICS:
            assert self.log.topic(f"topic-{topic}") == topic
        sequence = 0
        for number in range(rounds):
            staged = [self._stage(number, part) for part in range(3)] if number % 5 == 0 else []
            for topic in TOPICS:
                sequence += 1
                batch = records(topic, session, sequence, 1 + number % 3, 500)
                self.log.run(batch)
                self.shown[topic].append((batch.first_index, batch))
            if staged:
                self._commit(number, staged)

    def _stage(self, number: int, part: int) -> tuple[int, list[Batch]]:
        attempt = self.stager.begin(batch=number, name=f"p{part}")
        batches = [self.stager.stage(attempt, TOPICS[(part + at) % 2], 1 + at, 700) for at in range(3)]
        self.log.run(seal(attempt, entries(*batches)))
        return attempt, batches

    def _commit(self, number: int, staged: list[tuple[int, list[Batch]]]) -> None:
        staged.reverse()
        parts = [(attempt, entries(*batches)) for attempt, batches in staged]
        for _ in range(2):
            self.log.propose(commit(*parts, batch=number))
        first = self.log.unapplied[0]
        result = self.log.apply()
        assert isinstance(result, dict)
        self.log.apply()
        following = {name: position for name, position, _ in result["commit"]["ranges"]}  # type: ignore[index]
        for batch in [batch for _, batches in staged for batch in batches]:
            name = f"topic-{batch.topic}"
            placed = b"".join(batch.placed(following[name], first.log_time))
            self.shown[batch.topic].append((first.first_index, Batch.decode(placed)))
            following[name] += batch.count


class Map:
    """One topic's map as the state machine has it, or one that always begins at ``start``."""

    def __init__(self, written: Written, topic: TopicId, start: tuple[int, int] | None = None) -> None:
        self._machine = written.machine
        self._topic = topic
        self._start = start

    def locate(self, position: Position) -> tuple[Index, Position]:
        return self._start or self._machine.query(LocationQuery(topic=self._topic, position=position))  # type: ignore

    def has_effect(self, index: Index) -> bool:
        return bool(self._machine.query(CommitEffectQuery(index=index)))


class Store:
    """A log on disk; the core keeps only the newest batches in memory."""

    def __init__(self, directory: Path, remembered: int) -> None:
        self.written = Written(100)
        self.batches = self.written.log.applied
        disk = HookedDisk(RealDisk(), not_on_the_loop)
        self._opened = (disk, str(directory / "wal"))
        self.remembered = remembered

    async def open(self) -> LogReader:
        disk, directory = self._opened
        self.wal = await asyncio.to_thread(Wal.open, disk, directory, SMALL, on_batch=lambda batch, commit_end: None)
        self.wal.start(lambda error: pytest.fail(str(error)))
        for start in range(0, len(self.batches), 10):
            await self.wal.append(self.batches[start : start + 10])
        tail = self.batches[len(self.batches) - self.remembered :]
        end = self.batches[-1].end
        commit_end = tail[0].first_index if tail else end
        log = CoreLog(end=end, commit_end=commit_end, tail=tail, cache_bytes_max=1 << 20)
        self.reader = LogReader(disk, self.wal, log, "n1")
        return self.reader

    async def close(self) -> None:
        await self.reader.close()
        await self.wal.close()

    async def read(
        self, topic: TopicId, position: int, *, end: int | None = None, bytes_max: int = 1 << 30, start: int = 0
    ) -> list[Batch]:
        """Read from ``position`` on; with ``start``, the scan begins at that index with position 1."""
        topic_map = Map(self.written, topic, (start, 1) if start else None)
        upto = Index(end or self.batches[-1].end)
        buffers = await self.reader.read_topic(topic, topic_map, Position(position), upto, bytes_max)
        return Batch.decode_all(b"".join(buffers))

    def of(self, topic: TopicId, position: int, end: int | None = None) -> list[Batch]:
        """Return the topic's batches with positions from ``position`` on that became visible before index ``end``."""
        upto = end or self.batches[-1].end
        shown = self.written.shown[topic]
        return [batch for at, batch in shown if batch.first_position + batch.count > position and at < upto]


@pytest.fixture(params=[0, 100, 300], ids=["cold", "half warm", "warm"])
async def store(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    store = Store(tmp_path, request.param)
    await store.open()
    yield store
    await store.close()


def shown(batches: list[Batch]) -> list[bytes]:
    return [bytes(batch.buffer) for batch in batches]


async def test_a_topics_batches_come_in_order_and_without_those_of_others(store: Store) -> None:
    for topic in TOPICS:
        for position in (1, 2, 50, 51, 52, 53, 120, 199):
            assert shown(await store.read(topic, position)) == shown(store.of(topic, position))


async def test_positions_follow_on_each_other_over_records_and_commits(store: Store) -> None:
    for topic in TOPICS:
        expected = 1
        for batch in await store.read(topic, 1):
            assert batch.first_position == expected
            expected += batch.count
        assert expected == store.written.log.describe(f"topic-{topic}")["last_position"] + 1


async def test_a_scan_may_begin_long_before_the_wanted_position(store: Store) -> None:
    assert shown(await store.read(TOPICS[1], 100, start=1)) == shown(store.of(TOPICS[1], 100))


async def test_nothing_beyond_the_end_is_returned(store: Store) -> None:
    """Records in the log that are not applied may still be cut."""
    for at in range(100, len(store.batches), 97):
        end = store.batches[at].first_index
        assert shown(await store.read(TOPICS[0], 1, end=end)) == shown(store.of(TOPICS[0], 1, end))


async def test_a_read_is_bounded_by_bytes_and_brings_at_least_one_batch(store: Store) -> None:
    everything = store.of(TOPICS[2], 1)
    found = await store.read(TOPICS[2], 1, bytes_max=10_000)
    assert shown(found) == shown(everything[: len(found)])
    assert sum(batch.size for batch in found) <= 10_000 < sum(batch.size for batch in everything[: len(found) + 1])
    assert len(await store.read(TOPICS[2], 1, bytes_max=1)) == 1


@pytest.mark.parametrize("bytes_max", [2_000, 20_000])
async def test_chunk_by_chunk_gives_the_whole_topic_once(bytes_max: int, store: Store) -> None:
    everything = store.of(TOPICS[0], 1)
    position, found = 1, []
    while position < everything[-1].first_position + everything[-1].count:
        chunk = await store.read(TOPICS[0], position, bytes_max=bytes_max)
        found += chunk
        position = chunk[-1].first_position + chunk[-1].count
    assert shown(found) == shown(everything)


async def test_staged_batches_are_read_without_many_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A COMMIT of a few small batches once made a node decode 64 KiB of the log, 340 small batches, for each."""
    store = Store(tmp_path, 0)
    reader = await store.open()
    staged = {batch.first_index: batch for _, batch in store.written.shown[TOPICS[0]] if batch.attempt}
    read: list[int] = []
    read_log = reader.read_log

    async def note(start: Index, bytes_max: int) -> list[Batch]:
        found = await read_log(start, bytes_max)
        if start in staged:
            read.append(sum(batch.size for batch in found))
        return found

    monkeypatch.setattr(reader, "read_log", note)
    assert shown(await store.read(TOPICS[0], 1)) == shown(store.of(TOPICS[0], 1))
    assert read
    assert max(read) < 10 * max(batch.size for batch in staged.values()) < 32 * 1024
    await store.close()


async def test_many_readers_at_once_and_one_that_gives_up(store: Store) -> None:
    wanted = [(topic, position) for topic in TOPICS for position in (1, 90)]
    reads = [asyncio.create_task(store.read(topic, position)) for topic, position in wanted]
    await asyncio.sleep(0)
    reads[0].cancel()
    results = await asyncio.gather(*reads, return_exceptions=True)
    for result, (topic, position) in zip(results[1:], wanted[1:], strict=True):
        assert isinstance(result, list)
        assert shown(result) == shown(store.of(topic, position))


async def test_a_read_of_a_position_that_is_trimmed_meanwhile_raises_trimmed(tmp_path: Path) -> None:
    """Once the records below are trimmed, it is unknown which COMMITs had no effect.

    A reader could then mistake one for another.
    """
    store = Store(tmp_path, 0)
    await store.open()
    written, topic = store.written, TOPICS[0]
    placed = [batch for _, batch in written.shown[topic] if batch.attempt]
    behind_the_first_commit = next(
        batch.first_position
        for _, batch in written.shown[topic]
        if not batch.attempt and batch.first_position > placed[0].first_position
    )
    read = asyncio.create_task(store.read(topic, behind_the_first_commit, bytes_max=1))
    await asyncio.sleep(0)
    for each in TOPICS:
        name = f"topic-{each}"
        written.log.run(trim_topic(name, written.log.describe(name)["last_position"] + 1))
    written._commit(500, [written._stage(500, part) for part in range(3)])
    with pytest.raises(TrimmedError):
        await read
    await store.close()


async def test_a_damaged_file_fails_the_read_and_not_the_reader(tmp_path: Path) -> None:
    """The node decides how to treat the damage."""
    store = Store(tmp_path, 100)
    await store.open()
    path = min((tmp_path / "wal").glob("*.segment"))
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError):
        await store.read(TOPICS[0], 1, start=1)
    late = store.of(TOPICS[2], 1)[-1]
    assert shown(await store.read(late.topic, late.first_position)) == shown([late])
    await store.close()
