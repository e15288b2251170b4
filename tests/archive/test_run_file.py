"""The file of a run: what comes out equals what went in; a changed file gives an error or the same records."""

from __future__ import annotations

import io
import subprocess
import sys
from array import array
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewstamp.archive import run_file
from viewstamp.archive.run_file import NewRun, RunFooter, RunReader, RunWriter
from viewstamp.archive.store import DirectoryObjects, ObjectFile
from viewstamp.errors import ConfigError, CorruptionError, FrameError, OutdatedCodeError, StorageError
from viewstamp.host.disk import RealDisk
from viewstamp.ids import ClusterId, Index, Position, RunId, Term, TopicId
from viewstamp.wire.batch import Batch, Column, Columns, build_batch

pytestmark = pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")

CLUSTER = ClusterId("c1")


class Row(NamedTuple):
    """A record, as a run has it."""

    position: int
    term: int
    index: int  # type: ignore[assignment]
    time: int
    key: bytes | None
    value: bytes
    headers: bytes | None


class Part(NamedTuple):
    """A batch of the log."""

    term: int
    index: int  # type: ignore[assignment]
    time: int
    records: list[tuple[bytes, bytes | None, dict[str, bytes] | None]]

    def batch(self) -> Batch:
        values, keys, headers = (list(each) for each in zip(*self.records, strict=True))
        return build_batch(
            values,
            keys=keys if any(key is not None for key in keys) else None,
            headers=headers if any(headers) else None,
        )


def written(parts: list[Part], *, first: int = 1, group_bytes: int = 1 << 20) -> tuple[bytes, RunFooter]:
    sink = io.BytesIO()
    writer = RunWriter(sink, NewRun(CLUSTER, RunId(900), TopicId(3), Position(first)), group_bytes=group_bytes)
    for part in parts:
        writer.add(Term(part.term), Index(part.index), part.time, part.batch().columns())
    footer = writer.finish()
    return sink.getvalue(), footer


def rows(parts: list[Part], first: int = 1) -> list[Row]:
    found: list[Row] = []
    for part in parts:
        for at, (value, key, headers) in enumerate(part.records):
            packed = msgpack.packb(headers) if headers else None
            found.append(Row(first + len(found), part.term, part.index + at, part.time, key, value, packed))
    return found


def read(file: bytes, start: int = 0, end: int = 1 << 40) -> list[Row]:
    import pyarrow

    found: list[Row] = []
    for table in RunReader(io.BytesIO(file), "orders.parquet").read(start, end):
        columns = [
            table[name].cast(pyarrow.int64()) if name == "timestamp" else table[name] for name in table.column_names
        ]
        found += map(Row._make, zip(*(column.to_pylist() for column in columns), strict=True))
    return found


SMALL = [
    Part(2, 10, 1_000_000, [(b"a", None, None), (b"", b"k", None), (b"ccc", b"", {"h": b"1"})]),
    Part(2, 20, 1_000_001, [(b"d" * 50, None, None)]),
    Part(3, 15, 1_000_001, [(bytes([n]) * n, b"%d" % n, None) for n in range(20)]),
    Part(3, 40, 2_000_000, [(b"last", None, {"a": b"", "b": bytes(9)})]),
]

BYTES = st.binary(max_size=12)
PARTS = st.lists(
    st.builds(
        Part,
        st.integers(1, 1 << 40),
        st.integers(1, 1 << 40),
        st.integers(0, 1 << 50),
        st.lists(
            st.tuples(BYTES, st.none() | BYTES, st.none() | st.dictionaries(st.text(max_size=3), BYTES, max_size=2)),
            min_size=1,
            max_size=9,
        ),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=20, deadline=None)
@given(PARTS, st.integers(1, 1 << 40), st.sampled_from([1, 400, 1 << 20]), st.data())
def test_what_comes_out_equals_what_went_in(
    parts: list[Part], first: int, group_bytes: int, data: st.DataObject
) -> None:
    file, footer = written(parts, first=first, group_bytes=group_bytes)
    expected = rows(parts, first)
    end = first + len(expected)
    assert (footer.first, footer.end) == (first, end)
    assert (footer.first_index, footer.end_index) == (
        min(row.index for row in expected),
        max(row.index for row in expected) + 1,
    )
    assert (footer.first_time, footer.last_time) == (min(p.time for p in parts), max(p.time for p in parts))
    reader = RunReader(io.BytesIO(file), "f")
    assert reader.footer == footer
    list(reader.verify())
    assert read(file, 0, end + 5) == expected
    start = data.draw(st.integers(first - 1, end))
    stop = data.draw(st.integers(start, end + 1))
    assert read(file, start, stop) == [row for row in expected if start <= row.position < stop]


def test_the_digest_depends_on_the_records_only() -> None:
    whole = written(SMALL)[1].digest
    assert written(SMALL, group_bytes=1)[1].digest == whole
    records = SMALL[2].records
    halves = [*SMALL[:2], Part(3, 15, 1_000_001, records[:7]), Part(3, 22, 1_000_001, records[7:]), SMALL[3]]
    assert written(halves)[1].digest == whole
    assert written(SMALL, first=2)[1].digest != whole
    for at, changed in enumerate(
        [
            SMALL[1]._replace(term=3),
            SMALL[1]._replace(index=21),
            SMALL[1]._replace(time=1_000_000),
            SMALL[1]._replace(records=[(b"d" * 49 + b"e", None, None)]),
            SMALL[1]._replace(records=[(b"d" * 50, b"", None)]),
            SMALL[1]._replace(records=[(b"d" * 50, None, {"": b""})]),
        ]
    ):
        assert written([SMALL[0], changed, *SMALL[2:]])[1].digest != whole, at


def test_a_boundary_between_two_records_is_a_part_of_the_digest() -> None:
    one = written([Part(1, 1, 1, [(b"ab", b"", None), (b"c", None, None)])])[1]
    other = written([Part(1, 1, 1, [(b"a", b"", None), (b"bc", None, None)])])[1]
    swapped = written([Part(1, 1, 1, [(b"ab", None, None), (b"c", b"", None)])])[1]
    assert len({one.digest, other.digest, swapped.digest}) == 3


def test_a_range_is_read_from_its_row_groups_only() -> None:
    parts = [Part(1, 1 + 10 * n, n, [(b"%d" % n * 2000, None, None)] * 10) for n in range(20)]
    file, footer = written(parts, group_bytes=1)
    assert len(footer.groups) == 20
    reads: list[int] = []

    class Source(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            reads.append(len(data))
            return data

    reader = RunReader(Source(file), "f")
    opened = sum(reads)
    assert sum(len(table) for table in reader.read(95, 107)) == 12
    assert sum(reads) - opened < len(file) / 5
    assert list(reader.read(201, 300)) == []


def test_a_run_is_read_from_a_store_by_requests_for_its_row_groups(tmp_path: Path) -> None:
    store = DirectoryObjects(RealDisk(), str(tmp_path))
    file = written(SMALL, group_bytes=1)[0]
    store.create("runs/900", [file[:100], file[100:]])
    reader = RunReader(ObjectFile(store, "runs/900", len(file)), "runs/900")
    assert [row for table in reader.read(4, 6) for row in table["position"].to_pylist()] == [4, 5]
    store.remove("runs/900")
    with pytest.raises(CorruptionError, match=r"object runs/900 of .* is damaged: it is not there"):
        list(reader.verify())


def test_a_file_is_read_without_viewstamp() -> None:
    from pyarrow import parquet

    table = parquet.read_table(io.BytesIO(written(SMALL)[0]))
    assert table["value"].to_pylist() == [row.value for row in rows(SMALL)]
    assert str(table.schema.field("timestamp").type) == "timestamp[us, tz=UTC]"


# Damage.


@pytest.mark.parametrize("kept", [0, 3, 4, 8, 100, 0.5, -300, -9, -8, -5, -1])
def test_a_truncated_file_is_damaged(kept: float) -> None:
    file = written(SMALL)[0]
    cut = file[: int(len(file) * kept)] if isinstance(kept, float) else file[:kept]
    with pytest.raises(CorruptionError, match=r"run file orders.parquet is damaged") as raised:
        read(cut)
    assert raised.value.path == "orders.parquet"
    assert raised.value.remedy


@settings(max_examples=120, deadline=None)
@given(st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_a_changed_byte_anywhere_gives_an_error_or_the_same_records(place: float, change: int) -> None:
    whole = FILES[0] if FILES else FILES.append(written(SMALL, group_bytes=300)[0]) or FILES[0]
    file = bytearray(whole)
    file[int(place * len(file))] ^= change
    try:
        reader = RunReader(io.BytesIO(bytes(file)), "f")
        reader.check_identity(CLUSTER, RunId(900))
        list(reader.verify())
        found = read(bytes(file))
    except (CorruptionError, OutdatedCodeError):
        return
    assert found == rows(SMALL)


FILES: list[bytes] = []


def test_records_of_another_file_are_found_where_parquet_sees_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = written([Part(1, 1, 1, [(b"aaaa", None, None)] * 9)])[1].pack()
    monkeypatch.setattr(RunFooter, "pack", lambda self: packed)
    file = written([Part(1, 1, 1, [(b"aaab", None, None)] * 9)])[0]
    with pytest.raises(CorruptionError, match="its records from position 1 on have another checksum"):
        read(file)


def test_the_digest_is_compared_by_a_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    file, footer = written(SMALL)
    wrong = replace(footer, digest="00" * 32).pack()
    monkeypatch.setattr(RunFooter, "pack", lambda self: wrong)
    with pytest.raises(CorruptionError, match=f"have the digest {footer.digest} instead of 0000"):
        list(RunReader(io.BytesIO(written(SMALL)[0]), "f").verify())
    list(RunReader(io.BytesIO(file), "f").verify())


@pytest.mark.parametrize(
    ("cluster", "run", "message"),
    [("c2", 900, "not of run 900 of cluster c2"), ("c1", 901, "that of run 900 of cluster c1, not of run 901")],
)
def test_the_file_of_another_cluster_or_run_is_refused(cluster: str, run: int, message: str) -> None:
    reader = RunReader(io.BytesIO(written(SMALL)[0]), "f")
    reader.check_identity(CLUSTER, RunId(900))
    with pytest.raises(CorruptionError, match=message):
        reader.check_identity(ClusterId(cluster), RunId(run))


def test_a_foreign_parquet_file_is_refused() -> None:
    import pyarrow
    from pyarrow import parquet

    sink = io.BytesIO()
    parquet.write_table(pyarrow.table({"value": [b"x"]}), sink)
    with pytest.raises(CorruptionError, match="it has no description of a run"):
        RunReader(io.BytesIO(sink.getvalue()), "f")


def test_a_newer_format_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_file, "_FORMAT", 4)
    monkeypatch.setitem(run_file._LEFT_OUT, 4, run_file._LEFT_OUT[1])
    file = written(SMALL)[0]
    monkeypatch.undo()
    with pytest.raises(OutdatedCodeError, match="run file f has format 4, but this release reads formats up to 3"):
        RunReader(io.BytesIO(file), "f")


@pytest.mark.parametrize(
    "changed",
    [
        {"end": 27},
        {"first": 2},
        {"groups": ()},
        {"groups": (run_file.RunGroup(1, 24, 5), run_file.RunGroup(26, 1, 5))},
        {"groups": (run_file.RunGroup(1, 25, 5), run_file.RunGroup(26, 0, 5))},
    ],
)
def test_a_description_that_contradicts_itself_is_damage(changed: dict[str, Any]) -> None:
    footer = written(SMALL)[1]
    values = {name: getattr(footer, name) for name in RunFooter.__slots__}
    with pytest.raises(CorruptionError, match="its description is not that of a run"):
        RunFooter.unpack(RunFooter(**{**values, **changed}).pack(), "f")


def test_a_description_of_other_row_groups_is_damage() -> None:
    file = written(SMALL, group_bytes=1)[0]
    footer = written(SMALL)[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFooter, "unpack", classmethod(lambda cls, packed, name: footer))
        with pytest.raises(CorruptionError, match="are not those of its description"):
            RunReader(io.BytesIO(file), "f")


@pytest.mark.parametrize("offsets", [[0, 5, 3], [0, -1, 3], [0, (1 << 31) - 1, 3]])
@pytest.mark.parametrize("is_alone", [True, False])
def test_a_batch_with_an_invalid_layout_is_refused(offsets: list[int], is_alone: bool) -> None:
    sink = io.BytesIO()
    writer = RunWriter(sink, NewRun(CLUSTER, RunId(9), TopicId(1), Position(1)))
    right = Part(1, 1, 1, [(b"a" * 9, None, None)]).batch().columns()
    wrong = Columns(2, Column(array("i", offsets).tobytes(), b"abc"))
    for columns in [wrong] if is_alone else [right, wrong, right]:
        writer.add(Term(1), Index(1), 1, columns)
    with pytest.raises(FrameError, match=r"invalid layout|cannot be joined"):
        writer.finish()
    with pytest.raises(AssertionError, match="a batch was refused"):
        writer.finish()
    with pytest.raises(CorruptionError):
        RunReader(io.BytesIO(sink.getvalue()), "f")


def test_bytes_under_a_null_key_are_no_part_of_the_record() -> None:
    values = Column(array("i", [0, 1, 2]).tobytes(), b"ab")
    digests = set()
    for hidden in (b"x", b"y"):
        keys = Column(array("i", [0, 1, 2]).tobytes(), hidden + b"k")
        sink = io.BytesIO()
        writer = RunWriter(sink, NewRun(CLUSTER, RunId(9), TopicId(1), Position(1)))
        writer.add(Term(1), Index(1), 1, Columns(2, values, b"\x02", keys, None))
        digests.add(writer.finish().digest)
        list(RunReader(io.BytesIO(sink.getvalue()), "f").verify())
        assert [row.key for row in read(sink.getvalue())] == [None, b"k"]
    assert len(digests) == 1


def test_an_error_of_the_store_is_not_taken_for_damage() -> None:
    class Source(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise StorageError("the store is away")

    with pytest.raises(StorageError, match="the store is away"):
        RunReader(Source(written(SMALL)[0]), "f")


def test_memory_is_bounded_by_a_row_group() -> None:
    sink = io.BytesIO()
    writer = RunWriter(sink, NewRun(CLUSTER, RunId(9), TopicId(1), Position(1)), group_bytes=10_000)
    held = 0
    for number in range(100):
        columns = Part(1, 1, 1, [(b"x" * 1000, None, None)]).batch().columns()
        writer.add(Term(1), Index(number + 1), 1, columns)
        held = max(held, sum(part.columns.size for part in writer._held))
    footer = writer.finish()
    assert held < 12_000
    assert len(footer.groups) >= 9


# Without pyarrow.


def test_without_pyarrow_the_package_is_there_and_its_calls_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match="need pyarrow, which is not installed") as raised:
        RunReader(io.BytesIO(), "f")
    assert raised.value.remedy == "pip install 'viewstamp[archive]'"
    with pytest.raises(ConfigError):
        RunWriter(io.BytesIO(), NewRun(CLUSTER, RunId(9), TopicId(1), Position(1)))


def test_importing_the_package_does_not_import_pyarrow() -> None:
    code = "import sys, viewstamp.archive.run_file; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0
