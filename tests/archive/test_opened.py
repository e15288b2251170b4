"""A reader that is kept while its file is damaged, replaced and put back: no wrong record, and no error that stays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.archive.test_key_store import C1, as_run, dumped
from tests.archive.test_key_store import objects as key_objects
from tests.archive.test_ordered_run import PLACES
from tests.archive.test_run_store import batch, objects, of_stream
from viewstamp.archive.committed_runs import RunFile, open_run
from viewstamp.archive.key_store import KeyObjects
from viewstamp.archive.ordered_run import read_ordered
from viewstamp.archive.run_file import RunReader
from viewstamp.archive.store import DirectoryObjects
from viewstamp.client.stream_ranges import StreamRange
from viewstamp.errors import CorruptionError
from viewstamp.host.disk import RealDisk
from viewstamp.ids import Position, RunId, TopicId
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.node.keyed_reads import RangeSlices
from viewstamp.wire.batch import build_batch
from viewstamp.wire.row_schema import RowSchema

pytestmark = pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")

Read = Callable[[], object]
ROW = RowSchema.parse("n: int64")


class Kind(NamedTuple):
    """A sort of readers: ``open`` opens the file and returns what reads its records from then on."""

    file: Path
    other: Path
    """The file of another run."""
    open: Callable[[], Read]


def keyed(path: Path, read: Callable[[KeyObjects, object], object]) -> Kind:
    """Return how nodes keep descriptions: a get of a key that the run does not hold opens the file only."""
    keys = key_objects(path)
    runs = [dumped(keys, 1 + at, 1 + 20 * at, [(b"key %d" % n, b"%d" % at) for n in range(20)]) for at in range(2)]

    def open_file() -> Read:
        opened = key_objects(path)
        assert opened.lookup(runs[:1], b"key 10x").groups == 0
        assert opened._readers
        return lambda: read(opened, runs[0])

    file, other = sorted((path / C1).iterdir())
    return Kind(file, other, open_file)


def get(keys: KeyObjects, run: object) -> object:
    return keys.lookup([run], b"key 7").row  # type: ignore[list-item]


def scan(keys: KeyObjects, run: object) -> object:
    return keys.scan([RangeSlices(b"", None, [run])], 1 << 40).rows  # type: ignore[list-item]


def of_file(path: Path, read: Callable[[RunReader], Iterator[object]], schema: str = "") -> Kind:
    """Return how Spark's tasks and ``open_arrow`` read: the file is opened, then read row group by row group."""
    store, runs = objects(path), []
    for first in (1, 9):
        written = store.begin(RunId(first), TopicId(3), Position(first), schema)
        values = build_batch([ROW.encode({"n": first + at}) for at in range(8)], topic=TopicId(3))
        written.add(Position(first + 8), [b"".join(values.placed(Position(first), 7))])
        runs.append((first, written.finish()))
    file, other = sorted((path / "store").rglob("*.parquet"))
    described = RunFile(1, "c1", runs[0][1].size, runs[0][1].digest.hex())

    def open_file() -> Read:
        reader = open_run(DirectoryObjects(RealDisk(), str(path / "store")), described)
        return lambda: list(read(reader))

    return Kind(file, other, open_file)


def records(reader: RunReader) -> Iterator[object]:
    return (table.to_pylist() for table in reader.read(1, 9))


def columns(reader: RunReader) -> Iterator[object]:
    table, arrays = reader.read_typed(0, ["key", "value"], ["n"])
    yield from (table.to_pylist(), *(each.to_pylist() for each in arrays))


def stream(path: Path) -> Kind:
    _, run = of_stream(path)
    [file] = (path / "store").rglob("*.parquet")
    written = objects(path).begin(RunId(1), TopicId(3), Position(1))
    written.add(Position(9), [batch(1, 8).buffer])
    written.finish()
    [other] = (path / "store" / "c1").iterdir()
    part = StreamRange(2, PLACES[3], PLACES[8] + 1, 3, 9)
    described = RunFile(int(run.id), "c1", run.size, run.digest.hex(), 7)

    def open_file() -> Read:
        reader = open_run(DirectoryObjects(RealDisk(), str(path / "store")), described)
        return lambda: [table.to_pylist() for table in read_ordered(reader, part, "run")] + [*reader.verify()]

    return Kind(file, other, open_file)


def merge(path: Path) -> Kind:
    """Return how a merge reads: it opens the files of its slices, and then goes on for as long as it takes."""
    keys, ids = key_objects(path), itertools.count(2)
    run = dumped(keys, 1, 1, [(b"key %d" % n, b"value") for n in range(20)])

    def open_file() -> Read:
        target = ArchivedRun(RunId(next(ids)), run.topic, run.first, run.end, "prepared", "", 0, b"")
        begun = keys.begin_merge(target, [run], start=b"", end=None, is_oldest=True, range_bytes=1 << 40)

        def read() -> object:
            begun.step()
            return scan(keys, as_run(target.id, run.first, run.end, begun.finish()))

        return read

    [file] = (path / C1).iterdir()
    return Kind(file, file, open_file)


KINDS: dict[str, Callable[[Path], Kind]] = {
    "get": lambda path: keyed(path, get),
    "scan": lambda path: keyed(path, scan),
    "merge": merge,
    "records": lambda path: of_file(path, records),
    "verify": lambda path: of_file(path, lambda reader: reader.verify()),
    "columns": lambda path: of_file(path, columns, ROW.text),
    "stream": stream,
}


def outcome(read: Read) -> object:
    """Return what was read, or the text of the error."""
    try:
        return read()
    except CorruptionError as error:
        return str(error)


def with_other_places(intact: bytes, kind: Kind) -> bytes:
    """Return the file with one changed bit, with which it can be opened, and its records cannot be read."""
    for at in range(
        intact.index(b"viewstamp."), 0, -1
    ):  # The description has a checksum, the places before it have none.
        found = intact[:at] + bytes([intact[at] ^ 1]) + intact[at + 1 :]
        kind.file.write_bytes(found)
        try:
            read = kind.open()
        except CorruptionError:
            continue
        try:
            read()
        except CorruptionError:
            return found
    raise AssertionError("each changed bit is found when the file is opened")


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_that_was_opened_while_its_file_was_damaged_reads_the_intact_one(tmp_path: Path, kind: str) -> None:
    """Parquet's own footer has no checksum, so what was read of it may be wrong, although the description is right."""
    found = KINDS[kind](tmp_path)
    intact, expected = found.file.read_bytes(), found.open()()
    assert expected
    found.file.write_bytes(with_other_places(intact, found))
    read = found.open()
    found.file.write_bytes(intact)
    assert outcome(read) == expected


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "merge"])
def test_a_reader_that_is_kept_returns_no_record_of_another_file_and_goes_on_with_the_right_one(
    tmp_path: Path, kind: str
) -> None:
    found = KINDS[kind](tmp_path)
    intact, other, expected = found.file.read_bytes(), found.other.read_bytes(), found.open()()
    for data in (other, None):
        read = found.open()
        found.file.unlink()
        if data is not None:
            found.file.write_bytes(data.ljust(len(intact), b"\0"))
        for _ in range(2):
            with pytest.raises(CorruptionError, match=found.file.name):
                read()
        found.file.write_bytes(intact)
        assert read() == expected
    misplaced = with_other_places(intact, found)
    for at in range(4, len(intact), 61):
        found.file.write_bytes(intact)
        read = found.open()
        for data in (intact[:at] + bytes([intact[at] ^ 16]) + intact[at + 1 :], misplaced):
            found.file.write_bytes(data)
            with suppress(CorruptionError):
                assert read() == expected
        found.file.write_bytes(intact)
        assert read() == expected
