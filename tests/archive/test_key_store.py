"""Runs of keys as files: what was dumped and merged is found again, in few groups, and damage is never a record."""

from __future__ import annotations

import io
import random
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import msgpack
import pytest

from tests.formats.build import FIXTURES
from viewstamp.archive.key_file import PARQUET_KEYS
from viewstamp.archive.key_rows import GroupRows, KeyFilter, KeyFooter, KeyRunReader, merge_rows
from viewstamp.archive.key_store import KeyObjects
from viewstamp.archive.store import DirectoryObjects
from viewstamp.errors import CorruptionError, FrameError, OutdatedCodeError, UnavailableError
from viewstamp.host.disk import RealDisk
from viewstamp.ids import ClusterId, Index, Position, RunId, Term, TopicId
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.node.keyed_archivist import WrittenKeys
from viewstamp.node.keyed_reads import RangeSlices
from viewstamp.node.keyed_rows import KeyRow
from viewstamp.wire.batch import Batch, build_batch
from viewstamp.wire.checksum import crc32c

pytestmark = pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")

C1 = ClusterId("c1")
T1 = TopicId(1)


def batch_of(first: int, pairs: list[tuple[bytes | None, bytes]]) -> Batch:
    headers = [{"n": b"%d" % number} if number % 3 == 0 else None for number in range(len(pairs))]
    batch = build_batch([value for _, value in pairs], topic=T1, keys=[key for key, _ in pairs], headers=headers)
    at = Index(first + 100)
    batch.stamp(term=Term(2), first_index=at, previous_term=Term(1), log_time=first, first_position=Position(first))
    return batch


def objects(path: Path) -> KeyObjects:
    store = DirectoryObjects(RealDisk(), str(path))
    store.prepare(f"{C1}/")
    return KeyObjects(store, C1)


def dumped(keys: KeyObjects, run: int, first: int, pairs: list[tuple[bytes | None, bytes]]) -> ArchivedRun:
    written = keys.begin_dump(RunId(run), T1, Position(first), Position(first + len(pairs)))
    half = len(pairs) // 2
    for at, part in ((first, pairs[:half]), (first + half, pairs[half:])):
        if part:
            written.add(Position(first + len(pairs)), [batch_of(at, part).buffer])
    return as_run(run, first, first + len(pairs), written.finish())


def as_run(run: int, first: int, end: int, found: WrittenKeys) -> ArchivedRun:
    return ArchivedRun(RunId(run), T1, Position(first), Position(end), "committed", "", found.size, found.digest)


def merged(
    keys: KeyObjects, run: int, slices: list[ArchivedRun], start: bytes = b"", end: bytes | None = None, **more: object
) -> tuple[ArchivedRun, WrittenKeys]:
    target = ArchivedRun(RunId(run), T1, slices[0].first, slices[-1].end, "prepared", "", 0, b"")
    options = {"is_oldest": True, "range_bytes": 1 << 40} | more
    written = keys.begin_merge(target, slices, start=start, end=end, **options)  # type: ignore[arg-type]
    while written.step():
        pass
    found = written.finish()
    return as_run(run, slices[0].first, slices[-1].end, found), found


def rows(keys: KeyObjects, run: ArchivedRun, start: bytes = b"", end: bytes | None = None) -> list[KeyRow]:
    return keys.scan([RangeSlices(start, end, [run])], 1 << 40).rows


def test_dumps_and_merges_hold_the_last_record_of_each_key(tmp_path: Path) -> None:
    entropy, keys = random.Random(1), objects(tmp_path)
    expected, runs = dict[bytes, bytes](), list[ArchivedRun]()
    for number in range(6):
        pairs: list[tuple[bytes | None, bytes]] = [(None, b"no key")]
        for _ in range(300):
            key, value = b"%03d" % entropy.randrange(500), b"v%d" % entropy.randrange(9) * entropy.randrange(4)
            pairs.append((key, value))
            expected[key] = value
        runs.append(dumped(keys, number + 1, 1 + 301 * number, pairs))
        list(keys.check_keys(runs[-1]))
    for key in (b"%03d" % number for number in range(500)):
        found = keys.lookup(runs, key)
        assert (found.row.value or b"" if found.row is not None else None) == expected.get(key)
    live = {key: value for key, value in expected.items() if value}
    scanned = keys.scan([RangeSlices(b"", None, runs)], 1 << 40)
    assert [(row.key, row.value) for row in scanned.rows] == sorted(live.items())
    newer, _ = merged(keys, 10, runs[3:], is_oldest=False)
    whole, written = merged(keys, 11, [*runs[:3], newer])
    list(keys.check_keys(whole))
    assert written.records == len(live), "the oldest slice is in it, so deleted keys are gone"
    assert [(row.key, row.value) for row in rows(keys, whole)] == sorted(live.items())
    deleted = [row for row in keys._reader(newer).rows(b"", None) if row.value is None]
    assert deleted, "older slices may have these keys"
    part, _ = merged(keys, 12, runs, b"100", b"200")
    assert [row.key for row in rows(keys, part)] == sorted(key for key in live if b"100" <= key < b"200")


def test_a_merge_divides_its_range_at_keys_of_equal_parts(tmp_path: Path) -> None:
    keys = objects(tmp_path)
    entropy = random.Random(2)
    pairs: list[tuple[bytes | None, bytes]] = [(b"%05d" % n, entropy.randbytes(1000)) for n in range(3000)]
    run = dumped(keys, 1, 1, pairs)
    _, written = merged(keys, 2, [run], range_bytes=1_000_000)
    assert len(written.splits) == 2
    assert written.splits == sorted(written.splits)
    assert all(b"00700" < split < b"02400" for split in written.splits)
    _, small = merged(keys, 3, [run], range_bytes=2_000_000)
    assert small.splits in ([], [b"%05d" % int(small.splits[0])] if small.splits else [])


def test_a_key_is_looked_for_in_one_group_of_each_run_that_may_hold_it(tmp_path: Path) -> None:
    keys = objects(tmp_path)
    runs = [
        dumped(keys, number + 1, 1 + 5000 * number, [(b"%d %05d" % (number, n), b"x" * 100) for n in range(5000)])
        for number in range(4)
    ]
    assert len(keys._reader(runs[0]).footer.groups) > 1
    found = keys.lookup(runs, b"0 03000")
    assert found.row is not None
    assert (found.runs, found.groups) == (4, 1), "the keys of the other runs do not reach it"
    misses = [keys.lookup(runs, b"2 0%04dx" % n).groups for n in range(1000)]
    assert sum(misses) < 40, "the filter passes one of a hundred"
    page = keys.scan([RangeSlices(b"1", b"3", runs)], 10_000)
    assert page.next is not None
    assert 70 < len(page.rows) < 100


def test_a_filter_passes_what_was_added_and_little_else() -> None:
    keys = KeyFilter.sized(1000)
    for number in range(1000):
        keys.add(b"%d" % number)
    assert all(keys.passes(b"%d" % number) for number in range(1000))
    assert sum(keys.passes(b"x%d" % number) for number in range(10_000)) < 200


def test_the_newest_of_equal_keys_wins_a_merge() -> None:
    def row(key: bytes, position: int, value: bytes | None = b"v") -> KeyRow:
        return KeyRow(key, position, 1, position, 1, value, None)

    new, middle, old = [row(b"a", 9), row(b"c", 8, None)], [row(b"a", 5), row(b"b", 6)], [row(b"a", 1), row(b"c", 2)]
    kept = list(merge_rows([new, middle, old], drops_tombstones=False))
    assert [(each.key, each.position) for each in kept] == [(b"a", 9), (b"b", 6), (b"c", 8)]
    live = merge_rows([new, middle, old], drops_tombstones=True)
    assert [(each.key, each.position) for each in live] == [(b"a", 9), (b"b", 6)]


@pytest.mark.parametrize("stride", [1, 2])
def test_no_changed_byte_gives_another_record(tmp_path: Path, stride: int) -> None:
    keys = objects(tmp_path)
    run = dumped(keys, 1, 1, [(b"key %d" % n, b"value %d" % n) for n in range(20)])
    [file] = (tmp_path / "c1").iterdir()
    intact, expected = file.read_bytes(), rows(keys, run)
    entropy = random.Random(stride)
    for at in sorted(entropy.sample(range(len(intact)), 150)):
        file.write_bytes(intact[:at] + bytes([intact[at] ^ 1 << entropy.randrange(8)]) + intact[at + 1 :])
        with suppress(CorruptionError):
            assert rows(objects(tmp_path), run) == expected
            list(objects(tmp_path).check_keys(run))
    file.write_bytes(intact[:-7])
    with pytest.raises(CorruptionError):
        rows(objects(tmp_path), run)
    file.unlink()
    with pytest.raises(CorruptionError, match=file.name):
        rows(objects(tmp_path), run)


def test_the_object_of_another_run_or_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    keys = objects(tmp_path)
    one, two = dumped(keys, 1, 1, [(b"a", b"1")]), dumped(keys, 2, 2, [(b"a", b"2")])
    with pytest.raises(UnavailableError, match="has an object"):
        keys.begin_dump(RunId(2), T1, Position(1), Position(2))
    other = ArchivedRun(two.id, T1, two.first, two.end, "committed", "", two.size, one.digest)
    with pytest.raises(CorruptionError, match="and the catalogue has"):
        list(keys.check_keys(other))
    written = keys.begin_dump(RunId(3), T1, Position(1), Position(3))
    with pytest.raises(FrameError, match="is not the batch of topic 1 that holds position 1"):
        written.add(Position(3), [batch_of(2, [(b"a", b"1")]).buffer])
    written.abandon()

    class Newer:
        description = KeyFooter(C1, RunId(1), T1, Position(1), Position(2), 0, "", b"", (), KeyFilter.sized(1)).pack()

        def read(self, number: int, begin: int, end: int) -> GroupRows:
            raise AssertionError(number)

    assert KeyRunReader(Newer, "r").footer.records == 0
    text = Newer.description[8:].replace(b'"format": 2', b'"format": 3')
    Newer.description = b"%08x%b" % (crc32c(text), text)
    with pytest.raises(OutdatedCodeError, match="has format 3, but this release reads formats up to 2"):
        KeyRunReader(Newer, "r")


def test_a_file_of_format_1_is_read_checked_and_merged(tmp_path: Path) -> None:
    """It was written by the code before format 2, from the batch of this test. Its checksums are those of rows."""
    (tmp_path / "c1").mkdir()
    copied = tmp_path / "c1" / f"{1:020}.parquet"
    copied.write_bytes((FIXTURES / "keys-1.parquet").read_bytes())
    digest = bytes.fromhex("0ce0c728adb849c2a61f119c7e7b433313b044c35188712dc506577041011942")
    run = ArchivedRun(RunId(1), T1, Position(1), Position(10), "committed", "", copied.stat().st_size, digest)
    keys = objects(tmp_path)
    list(keys.check_keys(run))
    for number in range(9):
        row = keys.lookup([run], b"key %d" % number).row
        headers = msgpack.packb({"n": b"%d" % number}) if number % 3 == 0 else None
        value = None if number % 4 == 3 else bytes([number]) * 60_000
        assert row == KeyRow(b"key %d" % number, number + 1, 2, number + 101, 7, value, headers)
    newer, _ = merged(keys, 2, [run], is_oldest=False)
    list(keys.check_keys(newer))
    assert keys._reader(newer).footer.format == 2
    assert rows(keys, newer) == rows(keys, run)
    flip_each(copied, 40)
    with pytest.raises(CorruptionError):
        list(objects(tmp_path).check_keys(run))


def flip_each(file: Path, step: int) -> None:
    """Flip a bit of a byte in each ``step`` bytes."""
    found = bytearray(file.read_bytes())
    found[4::step] = bytes(each ^ 1 for each in found[4::step])
    file.write_bytes(found)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 300])
def test_a_changed_row_of_a_group_has_another_checksum(tmp_path: Path, count: int) -> None:
    """Each field of each row counts, and so does the difference between no value, an empty one and another key's."""
    entropy = random.Random(count)

    def row(number: int) -> KeyRow:
        value = entropy.choice([None, b"v" * entropy.randrange(9)])
        return KeyRow(b"%05d" % number, number + 1, 2, number, 3, value, entropy.choice([None, b"\x80"]))

    def checksum(some: list[KeyRow]) -> int:
        sink = io.BytesIO()
        writer = PARQUET_KEYS.begin(sink)
        written = b"".join(map(bytes, writer.write(some)))
        writer.finish(b"description")
        read = PARQUET_KEYS.open(sink, "r").read(0, 0, 0)
        assert b"".join(map(bytes, read.content())) == written, "the bytes are those of the rows, not of the encoding"
        assert read.rows(0, count) == some
        return crc32c(written)

    rows_ = [row(number) for number in range(count)]
    intact = checksum(rows_)
    at = entropy.randrange(count)
    for name, value in rows_[at]._asdict().items():
        new = (
            value + 1 if isinstance(value, int) else (b"" if value is None else None if name != "key" else value + b"x")
        )
        changed = [*rows_]
        changed[at] = changed[at]._replace(**{name: new})
        assert checksum(changed) != intact, name


class CountedObjects(DirectoryObjects):
    """A store in a directory that counts its reads."""

    reads = 0

    def read_part(self, name: str, offset: int, size: int) -> bytes:
        self.reads += 1
        return super().read_part(name, offset, size)


def test_a_get_asks_the_store_once_and_one_of_a_cached_group_never(tmp_path: Path) -> None:
    store = CountedObjects(RealDisk(), str(tmp_path))
    store.prepare(f"{C1}/")
    keys = KeyObjects(store, C1)
    run = dumped(keys, 1, 1, [(b"%05d" % n, b"x" * 300) for n in range(2000)])
    assert keys.lookup([run], b"00000").row is not None
    for key, more in ((b"00001", 0), (b"01999", 1), (b"01998", 0)):
        before = store.reads
        assert keys.lookup([run], key).row is not None
        assert store.reads - before == more


def test_the_groups_in_memory_are_bounded_by_their_bytes(tmp_path: Path) -> None:
    keys = objects(tmp_path)
    run = dumped(keys, 1, 1, [(b"%05d" % n, b"x" * 4_000_000) for n in range(12)])
    for number in range(12):
        assert keys.lookup([run], b"%05d" % number).row is not None
        held = sum(group.size for group in keys._groups.values())
        assert held == keys._groups_bytes <= 32 * 1024 * 1024
    assert len(keys._groups) == 8
