"""Reading batches back, from memory and from disk, with topics interleaved: it must make no difference to a reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.node.group import SMALL, not_on_the_loop
from tests.node.hooked_disk import HookedDisk
from viewstamp.consensus.log import Log
from viewstamp.errors import CorruptionError
from viewstamp.host.disk import RealDisk
from viewstamp.ids import Index, Position, Sequence, SessionId, Term, TopicId
from viewstamp.node.log_reader import LogReader
from viewstamp.wal.wal import Wal
from viewstamp.wire.batch import Batch, build_batch

TOPICS = (TopicId(1), TopicId(2), TopicId(3))


def interleaved(count: int) -> list[Batch]:
    """Return batches of three topics in turn, of one to three records each."""
    batches: list[Batch] = []
    index, ends = 1, dict.fromkeys(TOPICS, 1)
    for number in range(count):
        topic = TOPICS[number % len(TOPICS)]
        values = [f"{topic}-{ends[topic] + at}".encode() + b"." * 500 for at in range(1 + number % 3)]
        batch = build_batch(values, topic=topic, session=SessionId(1), sequence=Sequence(number + 1))
        batch.stamp(
            term=Term(1),
            first_index=Index(index),
            previous_term=Term(1 if number else 0),
            log_time=number,
            first_position=Position(ends[topic]),
        )
        index, ends[topic] = batch.end, ends[topic] + batch.count
        batches.append(batch)
    return batches


class Store:
    """A log on disk, of which the core remembers the newest batches only."""

    def __init__(self, directory: Path, remembered: int) -> None:
        self.batches = interleaved(300)
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
        log = Log(end=end, commit_end=commit_end, tail=tail, cache_bytes_max=1 << 20)
        self.reader = LogReader(disk, self.wal, log, "n1")
        return self.reader

    async def close(self) -> None:
        await self.reader.close()
        await self.wal.close()

    def of(self, topic: TopicId, position: int, end: int) -> list[Batch]:
        """Return the topic's batches that hold positions from ``position`` on, before index ``end``."""
        return [
            batch
            for batch in self.batches
            if batch.topic == topic and batch.first_position + batch.count > position and batch.first_index < end
        ]


@pytest.fixture(params=[0, 100, 300], ids=["cold", "half warm", "warm"])
async def store(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    store = Store(tmp_path, request.param)
    await store.open()
    yield store
    await store.close()


def shown(batches: list[Batch]) -> list[bytes]:
    return [bytes(batch.buffer) for batch in batches]


async def test_a_topics_batches_come_in_order_and_nobody_elses(store: Store) -> None:
    end = Index(store.batches[-1].end)
    for topic in TOPICS:
        for position in (1, 2, 50, 120, 199):
            found = await store.reader.read_topic(topic, Index(1), Position(position), end, 1 << 30)
            assert shown(found) == shown(store.of(topic, position, end))


async def test_a_scan_may_begin_anywhere_before_what_is_wanted(store: Store) -> None:
    """At the batch itself, or at any boundary below it."""
    end = Index(store.batches[-1].end)
    wanted = store.of(TOPICS[1], 100, end)
    for start in (store.batches[0], store.batches[30], wanted[0]):
        found = await store.reader.read_topic(TOPICS[1], start.first_index, Position(100), end, 1 << 30)
        assert shown(found) == shown(wanted)


async def test_nothing_beyond_the_end_is_returned(store: Store) -> None:
    """What is in the log but not applied may yet be cut."""
    for at in (1, 150, 250):
        end = store.batches[at].first_index
        found = await store.reader.read_topic(TOPICS[0], Index(1), Position(1), end, 1 << 30)
        assert shown(found) == shown(store.of(TOPICS[0], 1, end))


async def test_a_read_is_bounded_by_bytes_and_brings_at_least_one_batch(store: Store) -> None:
    end = Index(store.batches[-1].end)
    everything = store.of(TOPICS[2], 1, end)
    found = await store.reader.read_topic(TOPICS[2], Index(1), Position(1), end, 10_000)
    assert shown(found) == shown(everything[: len(found)])
    assert sum(batch.size for batch in found) <= 10_000 < sum(batch.size for batch in everything[: len(found) + 1])
    assert len(await store.reader.read_topic(TOPICS[2], Index(1), Position(1), end, 1)) == 1


async def test_chunk_by_chunk_gives_the_whole_topic_once(store: Store) -> None:
    end = Index(store.batches[-1].end)
    everything = store.of(TOPICS[0], 1, end)
    position, found = Position(1), []
    while position < everything[-1].first_position + everything[-1].count:
        chunk = await store.reader.read_topic(TOPICS[0], Index(1), position, end, 5_000)
        found += chunk
        position = Position(chunk[-1].first_position + chunk[-1].count)
    assert shown(found) == shown(everything)


async def test_many_readers_at_once_and_one_that_gives_up(store: Store) -> None:
    end = Index(store.batches[-1].end)
    reads = [
        asyncio.create_task(store.reader.read_topic(topic, Index(1), Position(position), end, 1 << 30))
        for topic in TOPICS
        for position in (1, 90)
    ]
    await asyncio.sleep(0)
    reads[0].cancel()
    results = await asyncio.gather(*reads, return_exceptions=True)
    expected = [store.of(topic, position, end) for topic in TOPICS for position in (1, 90)]
    for result, batches in zip(results[1:], expected[1:], strict=True):
        assert isinstance(result, list)
        assert shown(result) == shown(batches)


async def test_a_damaged_file_fails_the_read_and_not_the_reader(tmp_path: Path) -> None:
    """It is the node that decides what to do about it."""
    store = Store(tmp_path, 100)
    reader = await store.open()
    path = min((tmp_path / "wal").glob("*.segment"))
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    end = Index(store.batches[-1].end)
    with pytest.raises(CorruptionError):
        await reader.read_topic(TOPICS[0], Index(1), Position(1), end, 1 << 30)
    late = store.batches[-1]
    found = await reader.read_topic(late.topic, late.first_index, late.first_position, end, 1 << 30)
    assert shown(found) == shown([late])
    await store.close()
