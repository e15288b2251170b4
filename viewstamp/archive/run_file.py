"""The file of a run: Parquet, with a description that has a checksum for each row group. Needs pyarrow.

| column | type | contents |
| --- | --- | --- |
| position | int64 | rises by one, from the first position of the run |
| term, index | int64 | the identity of the record in the log |
| timestamp | timestamp, microseconds, UTC | the log time of its batch, or of its COMMIT |
| key | binary, null = none | as appended |
| value | binary | as appended |
| headers | binary, null = none | one msgpack map, as in the log |
| global_position | int64 | the position in the topic with streams; only of a stream |
| row | struct | the fields of the row; only of a topic with a schema (``run_rows.py``) |

The description is the value of the key ``viewstamp.run`` in the metadata of the file: eight hexadecimal digits, the
crc32c of the rest, and a JSON map of cluster, run, topic, positions, digest, indices, log times, and for each row
group its first position, its number of records and its checksum. A reader chooses row groups by it, and not by
statistics, so bytes that changed anywhere in the file lead to an error or to the right records, and never to others.

The format is 1 without the column ``row``, and 2 with it: an earlier release refuses such a file with its number. It is
3 for a stream: the description has the group of the stream, and the order of its records (``wire/run_order.py``),
which readers take the global positions from. The column repeats them for other programs; ``verify`` compares both.

The digest of a run is the BLAKE2b of its first and its end position, and of the BLAKE2b of each *stream*: the
numbers of a column (little-endian, 8 bytes), or the lengths of its byte strings (4 bytes, -1 = null), or these byte
strings one behind the other. The checksum of a row group is the crc32c of the crc32c of each stream within it. Neither
depends on encoding, compression or division into row groups. That of a stream's run is the BLAKE2b of this digest and
of its order.
"""

from __future__ import annotations

import json
import struct
from array import array
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import partial
from hashlib import blake2b
from io import RawIOBase
from typing import Any, BinaryIO, Final, NamedTuple

from viewstamp.archive.columns import binary_array, load_arrow, number_array, rising
from viewstamp.archive.identity import check_origin
from viewstamp.archive.opened import OpenedFile
from viewstamp.archive.run_rows import (
    ROW,
    RunRows,
    TypedGroup,
    column_bytes,
    column_checksum,
    row_column,
    row_encodings,
    row_type,
)
from viewstamp.errors import CorruptionError, FrameError, OutdatedCodeError, RequestError, ViewstampError
from viewstamp.ids import GROUP_0, ClusterId, GroupId, Index, Position, RunId, Term, TopicId
from viewstamp.wire.batch import Columns
from viewstamp.wire.checksum import crc32c
from viewstamp.wire.columns import join_columns
from viewstamp.wire.row_schema import RowSchema
from viewstamp.wire.run_order import OrderBuilder, RunOrder

__all__ = [
    "BASE_COLUMNS",
    "GROUP_BYTES",
    "NewRun",
    "RunFooter",
    "RunGroup",
    "RunPart",
    "RunReader",
    "RunWriter",
    "damaged_run",
    "join_parts",
    "ordered_digest",
    "packed_order",
    "reading_parquet",
    "run_folder",
    "run_name",
]

GROUP_BYTES: Final = 16 * 1024 * 1024
"""Bytes of records that a writer holds in memory; they become one row group."""
GROUP_RECORDS: Final = 256 * 1024
_PIECE_BYTES: Final = 1024 * 1024
"""Bytes of a row group that are decoded at once. A column that is decoded as a whole is moved while it grows."""
_FORMAT: Final = 1
_FORMAT_WITH_ROWS: Final = 2
_FORMAT_OF_STREAMS: Final = 3
_KEY: Final = b"viewstamp.run"
_LEFT_OUT: Final = {
    _FORMAT: frozenset({"rows", "group", "order"}),
    _FORMAT_WITH_ROWS: frozenset({"group", "order"}),
    _FORMAT_OF_STREAMS: frozenset[str](),
}
"""The fields that the description of a format does not have."""
_DIGEST_SIZE: Final = 32
_NUMBERS: Final = ("position", "term", "index", "timestamp")
_BINARIES: Final = ("key", "value", "headers")
BASE_COLUMNS: Final = (*_NUMBERS, *_BINARIES)
"""The columns of the records."""
_STREAMS: Final = len(_NUMBERS) + 2 * len(_BINARIES)


GLOBAL: Final = "global_position"
"""The column of the global positions of a stream."""


def run_folder(cluster: ClusterId, group: GroupId = GROUP_0) -> str:
    """Return the folder of the objects of a group, with a slash. No id of a cluster has the character @.

    The folder of another group than 0 is not within that of group 0, which releases before list for orphans.
    """
    return f"{cluster}/" if group == GROUP_0 else f"{cluster}@{group}/"


def run_name(cluster: ClusterId, run: RunId, group: GroupId = GROUP_0) -> str:
    """Return the name of the object of a run, with 20 digits, so that a list is in the order of the ids."""
    return f"{run_folder(cluster, group)}{run:020d}.parquet"


def ordered_digest(digest: str, order: RunOrder | None) -> str:
    """Return the digest of a run whose records have a digest, and of a stream this order."""
    if order is None:
        return digest
    return blake2b(bytes.fromhex(digest) + order.pack(), digest_size=_DIGEST_SIZE).hexdigest()


class RunGroup(NamedTuple):
    """A row group: its first position, its number of records, and the checksum of its streams."""

    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which no caller uses
    checksum: int


@dataclass(frozen=True, slots=True)
class RunFooter:
    """The description of a run in its file. ``end`` and ``end_index`` are exclusive, times are in microseconds."""

    cluster: ClusterId
    run: RunId
    topic: TopicId
    first: Position
    end: Position
    digest: str
    first_index: Index
    end_index: Index
    first_time: int
    last_time: int
    groups: tuple[RunGroup, ...]
    rows: RunRows | None = None
    """The typed columns; None = the topic has no schema."""
    group: GroupId = GROUP_0
    order: str = ""
    """The order of the records of a stream, deflated, in base64; "" = the topic is no stream."""

    def pack(self) -> bytes:
        """Return the value of the key in the metadata."""
        version = _FORMAT_OF_STREAMS if self.order else _FORMAT if self.rows is None else _FORMAT_WITH_ROWS
        found = {"format": version, **asdict(self)}
        for name in _LEFT_OUT.get(version, ()):
            del found[name]
        text = json.dumps(found).encode()
        return b"%08x%b" % (crc32c(text), text)

    @classmethod
    def unpack(cls, packed: bytes, name: str) -> RunFooter:
        """Read the description of the file ``name`` and check it. Raises CorruptionError, OutdatedCodeError."""
        text = packed[8:]
        if packed[:8] != b"%08x" % crc32c(text):
            raise damaged_run(name, "its description has another checksum")
        try:
            found = json.loads(text)
            version = found.pop("format")
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            raise damaged_run(name, f"its description cannot be read: {error!r}") from error
        left_out = _LEFT_OUT.get(version) if type(version) is int else None
        if left_out is None or found.keys() != {field.name for field in fields(cls)} - left_out:
            raise OutdatedCodeError(
                f"run file {name} has format {version}, but this release reads formats up to {_FORMAT_OF_STREAMS}",
                remedy="read it with the release that wrote it, or a newer one",
            )
        try:
            rows = None if found.get("rows") is None else RunRows.of(found["rows"])
            footer = cls(**{**found, "groups": tuple(RunGroup(*group) for group in found["groups"]), "rows": rows})
            if rows is not None and len(rows.groups) != len(footer.groups):
                raise ValueError(f"{len(rows.groups)} row groups with typed columns instead of {len(footer.groups)}")
            at: int = footer.first
            for group in footer.groups:
                if group.first != at or group.count < 1:
                    raise ValueError(f"row group at {group.first} instead of {at}")
                at += group.count
            if not footer.first < footer.end == at:
                raise ValueError(f"row groups up to {at} instead of {footer.end}")
            if version == _FORMAT_OF_STREAMS and not footer.order:
                raise ValueError("it is that of a stream, and has no order")
        except (ValueError, TypeError, RequestError) as error:
            raise damaged_run(name, f"its description is not that of a run: {error}") from error
        return footer

    def read_order(self, name: str) -> RunOrder | None:
        """Return the order of the records of file ``name``; None = the topic is no stream. Raises CorruptionError."""
        if not self.order:
            return None
        try:
            order = RunOrder.inflate(b64decode(self.order, validate=True))
            if (order.first, order.end) != (self.first, self.end):
                raise ValueError(f"positions {order.first} to {order.end - 1}")
        except ValueError as error:
            raise damaged_run(name, f"its order is not that of its records: {error}") from error
        return order

    def check_identity(self, cluster: ClusterId, run: RunId, name: str, group: GroupId = GROUP_0) -> None:
        """Check that the file ``name`` is that of a run of a group of a cluster. Raises CorruptionError."""
        check_origin(name, (self.cluster, self.group, self.run), (cluster, group, run))


class NewRun(NamedTuple):
    """A run that is going to be written; all of it but the order is in the description of its file."""

    cluster: ClusterId
    """The cluster whose records these are."""
    run: RunId
    topic: TopicId
    first: Position
    """The position of the first record."""
    schema: str = ""
    """The text of the topic's schema; "" = it has none, and the run has no typed columns."""
    group: GroupId = GROUP_0
    """The group of the topic."""
    order: OrderBuilder | None = None
    """The order of the records of a stream, which is extended before they are added; None = the topic is no stream."""


class RunWriter:
    """Writes the records of one run, batch by batch, in the order of their positions.

    Invariants:
      * ``end`` is the position after the last record that was added

    A writer that is abandoned leaves a file without an end, which no reader accepts.
    """

    def __init__(self, sink: BinaryIO, new: NewRun, *, group_bytes: int = GROUP_BYTES) -> None:
        """Begin a file.

        Args:
          sink: gets the bytes, in order. The caller closes it, and makes it durable.
          new: the run; the caller extends its order before it adds the records.
          group_bytes: as ``GROUP_BYTES``.

        Raises:
          ConfigError: pyarrow is not installed.
        """
        self._arrow = load_arrow()
        self._new = new
        self.end: int = new.first
        self._group_bytes = group_bytes
        self._held: list[RunPart] = []
        self._held_records = self._held_bytes = 0
        self._groups: list[RunGroup] = []
        self._streams = [blake2b(digest_size=_DIGEST_SIZE) for _ in range(_STREAMS)]
        self._indices: list[int] = []
        self._times: list[int] = []
        self._row_schema = RowSchema.parse(new.schema) if new.schema else None
        self._typed: list[TypedGroup | None] = []
        texts, numbers = ([], []) if self._row_schema is None else row_encodings(self._row_schema)
        parquet = self._arrow.parquet
        self._writer = parquet.ParquetWriter(
            sink,
            _schema(self._arrow, self._row_schema, is_stream=new.order is not None),
            compression="zstd",
            compression_level=1,
            use_dictionary=["key", *texts],
            column_encoding=dict.fromkeys(
                [*_NUMBERS, *([] if new.order is None else [GLOBAL]), *numbers], "DELTA_BINARY_PACKED"
            ),
            write_statistics=[*_NUMBERS, "key"],
        )

    def add(self, term: Term, first_index: Index, log_time: int, columns: Columns) -> None:
        """Add the next records: a batch, or a part of one. Most calls return before they are written.

        Raises:
          FrameError: the body of a batch has no valid layout. The run cannot be completed.
        """
        self._held.append(RunPart(term, first_index, log_time, columns))
        self._held_records += columns.count
        self._held_bytes += columns.size
        self.end += columns.count
        if self._held_bytes >= self._group_bytes or self._held_records >= GROUP_RECORDS:
            self._write_group()

    def finish(self) -> RunFooter:
        """Write the rest and the description, and return it. At least one record was added."""
        assert self.end > self._new.first, "a run has at least one record"
        self._write_group()
        assert sum(group.count for group in self._groups) == self.end - self._new.first, "a batch was refused"
        order = None if self._new.order is None else self._new.order.order
        footer = RunFooter(
            self._new.cluster,
            self._new.run,
            self._new.topic,
            self._new.first,
            Position(self.end),
            ordered_digest(_digest(self._new.first, self.end, self._streams), order),
            Index(min(self._indices)),
            Index(max(self._indices)),
            min(self._times),
            max(self._times),
            tuple(self._groups),
            None if self._row_schema is None else RunRows(self._row_schema.text, self._typed),
            self._new.group,
            packed_order(order),
        )
        self._writer.add_key_value_metadata({_KEY: footer.pack()})
        self._writer.close()
        return footer

    def _write_group(self) -> None:
        if not self._held:
            return
        parts, self._held = self._held, []
        first, count = self.end - self._held_records, self._held_records
        self._held_records = self._held_bytes = 0
        table = join_parts(self._arrow, first, count, parts)
        checksums = [0] * _STREAMS
        for at, part in _parts(table):
            checksums[at] = crc32c(part, checksums[at])
            self._streams[at].update(part)
        self._groups.append(RunGroup(first, count, _checksum(checksums)))
        self._indices += [min(part.index for part in parts), max(part.index + part.columns.count for part in parts)]
        self._times += [min(part.time for part in parts), max(part.time for part in parts)]
        row_source = table
        if self._new.order is not None:
            positions = self._new.order.order.positions(first, count)
            table = table.append_column(GLOBAL, number_array(self._arrow.int64(), count, [positions]))
        if self._row_schema is not None:
            rows, typed = row_column(self._row_schema, row_source, BASE_COLUMNS)
            table = table.append_column(ROW, rows)
            self._typed.append(typed)
        self._writer.write_table(table, row_group_size=count)


class RunReader:
    """Reads the file of one run. Blocking; not for several threads at once.

    Attributes:
      footer: the description of the run.
    """

    def __init__(self, source: BinaryIO | RawIOBase, name: str) -> None:
        """Open a file and read its description.

        Args:
          source: the bytes, with random access. The caller closes it. It has to raise a ViewstampError where it cannot
            be read, because an OSError is taken for damage: pyarrow raises it for a file that is not Parquet.
          name: the name of the file, for messages.

        Raises:
          ConfigError: pyarrow is not installed.
          CorruptionError: it is truncated or changed, or is not the file of a run.
          OutdatedCodeError: it is of a newer format.
        """
        self._arrow = load_arrow()
        self._name = name
        self._file: OpenedFile[Any, RunFooter] = OpenedFile(partial(_open, self._arrow, source, name))
        self.footer = self._file.footer

    def check_identity(self, cluster: ClusterId, run: RunId, group: GroupId = GROUP_0) -> None:
        """Check that the file is that of a run of a group of a cluster. Raises CorruptionError."""
        self.footer.check_identity(cluster, run, self._name, group)

    def read(self, start: int, end: int) -> Iterator[Any]:
        """Yield the records at positions in ``[start, end)`` that the run holds, as Arrow tables, by position.

        Each row group that holds one of them is read and verified as a whole; the others are not read.

        Raises:
          CorruptionError: the file has changed; the records that were yielded before are right.
        """
        for number, group in enumerate(self.footer.groups):
            low, high = max(start, group.first), min(end, group.first + group.count)
            if low < high:
                yield self._group(number, group).slice(low - group.first, high - low)

    def read_group(self, position: int) -> tuple[int, Any]:
        """Return the verified row group that holds a position of the run: its first position, and an Arrow table.

        Raises:
          CorruptionError: the file has changed.
        """
        assert self.footer.first <= position < self.footer.end, f"position {position} is not in this run"
        groups = self.footer.groups
        number = bisect_right(groups, position, key=lambda group: group.first) - 1
        return groups[number].first, self._group(number, groups[number])

    def verify(self) -> Iterator[int]:
        """Read the whole file, one row group a step, and compare its records with the digest; yields bytes of memory.

        Raises:
          CorruptionError: the file has changed; the digest is compared behind the last step.
        """
        streams = [blake2b(digest_size=_DIGEST_SIZE) for _ in range(_STREAMS)]
        order = self.footer.read_order(self._name)
        for number, group in enumerate(self.footer.groups):
            table = self._group(number, group)
            for at, part in _parts(table):
                streams[at].update(part)
            if order is not None:
                self._check_positions(number, group, order)
            typed = None if self.footer.rows is None else self.footer.rows.groups[number]
            if self.footer.rows is not None and typed is not None:
                if [column_checksum(table[name]) for name in BASE_COLUMNS] != typed.base:
                    raise damaged_run(self._name, f"its columns from position {group.first} on have another checksum")
                self.read_typed(number, (), [field.name for field in RowSchema.parse(self.footer.rows.schema).fields])
            yield table.nbytes
        found = ordered_digest(_digest(self.footer.first, self.footer.end, streams), order)
        if found != self.footer.digest:
            raise damaged_run(self._name, f"its records have the digest {found} instead of {self.footer.digest}")

    def read_typed(self, number: int, names: Sequence[str], row_fields: Sequence[str]) -> tuple[Any, list[Any]]:
        """Return some columns of a row group with typed columns, verified: a table, and an array for each field.

        Only the bytes of these columns are read.

        Args:
          number: the number of the row group; the run has a :class:`TypedGroup` for it.
          names: of the columns of the records.
          row_fields: of the fields of the run's schema.

        Raises:
          CorruptionError: the file has changed.
        """
        rows = self.footer.rows
        typed = None if rows is None else rows.groups[number]
        assert rows is not None, "the caller has looked"
        assert typed is not None, "the caller has looked"
        places = {field.name: at for at, field in enumerate(RowSchema.parse(rows.schema).fields)}
        expected = [typed.base[BASE_COLUMNS.index(name)] for name in names]
        expected += [typed.columns[places[name]].checksum for name in row_fields]
        return self._file.read(lambda file: self._typed(file, number, names, row_fields, expected))

    def _typed(
        self, file: Any, number: int, names: Sequence[str], row_fields: Sequence[str], expected: list[int]
    ) -> tuple[Any, list[Any]]:
        group = self.footer.groups[number]
        with reading_parquet(self._arrow, self._name):
            paths = [*names, *(f"{ROW}.{name}" for name in row_fields)]
            found = file.read_row_group(number, columns=paths, use_threads=False)
            found.validate(full=True)
            row = found[ROW].combine_chunks() if row_fields else None
            arrays = [] if row is None else [self._arrow.chunked_array([row.field(name)]) for name in row_fields]
            table = found.select(names)
            sums = [column_checksum(column) for column in (*table.columns, *arrays)]
        if sums != expected or any(len(each) != group.count for each in (*table.columns, *arrays)):
            raise damaged_run(self._name, f"its columns from position {group.first} on have another checksum")
        return table, arrays

    def _check_positions(self, number: int, group: RunGroup, order: RunOrder) -> None:
        """Check that the column with the global positions is that of the order. Raises CorruptionError."""
        expected = number_array(self._arrow.int64(), group.count, [order.positions(group.first, group.count)])

        def check(file: Any) -> None:
            with reading_parquet(self._arrow, self._name):
                found = file.read_row_group(number, columns=[GLOBAL], use_threads=False)[GLOBAL]
                is_equal = found.combine_chunks().equals(expected)
            if not is_equal:
                raise damaged_run(self._name, f"its global positions from position {group.first} on are not its order")

        self._file.read(check)

    def _group(self, number: int, group: RunGroup) -> Any:
        return self._file.read(lambda file: self._verified(file, number, group))

    def _verified(self, file: Any, number: int, group: RunGroup) -> Any:
        """Return a row group as a table. Raises CorruptionError: it has another checksum."""
        with reading_parquet(self._arrow, self._name):
            size = file.metadata.row_group(number).total_byte_size
            rows = max(1, group.count * _PIECE_BYTES // max(1, size))
            pieces = []
            checksums = [0] * _STREAMS
            for batch in file.iter_batches(rows, row_groups=[number], columns=[*BASE_COLUMNS], use_threads=False):
                # Now, because its bytes are in the cache of the processor still.
                batch.validate(full=True)
                piece = self._arrow.Table.from_batches([batch], _schema(self._arrow))
                for at, part in _parts(piece):
                    checksums[at] = crc32c(part, checksums[at])
                pieces.append(piece)
            table = self._arrow.concat_tables(pieces)
        if table.num_rows != group.count or _checksum(checksums) != group.checksum:
            raise damaged_run(self._name, f"its records from position {group.first} on have another checksum")
        return table


def _open(arrow: Any, source: BinaryIO | RawIOBase, name: str) -> tuple[Any, RunFooter]:
    """Return a file as pyarrow reads it, and its description. Raises CorruptionError, OutdatedCodeError."""
    with reading_parquet(arrow, name):
        file = arrow.parquet.ParquetFile(source)
        packed = (file.metadata.metadata or {}).get(_KEY)
    if packed is None:
        raise damaged_run(name, "it has no description of a run")
    footer = RunFooter.unpack(packed, name)
    with reading_parquet(arrow, name):
        schema = file.schema_arrow.remove_metadata()
    row_schema = None if footer.rows is None else RowSchema.parse(footer.rows.schema)
    if schema != _schema(arrow, row_schema, is_stream=bool(footer.order)) or file.num_row_groups != len(footer.groups):
        raise damaged_run(name, "its columns or row groups are not those of its description")
    return file, footer


class RunPart(NamedTuple):
    """A batch, or a part of one; its records have one term and one log time, and rising indices."""

    term: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which no caller uses
    time: int
    columns: Columns


def join_parts(arrow: Any, first: int, count: int, parts: list[RunPart]) -> Any:
    """Return parts, which have ``count`` records from position ``first`` on, as one Arrow table. Raises FrameError."""
    try:
        columns = join_columns([part.columns for part in parts])
    except (OverflowError, ValueError) as error:
        raise FrameError(f"the columns of batches cannot be joined: {error}") from error
    int64, none = arrow.int64(), arrow.nulls(count, arrow.binary())
    key = none if columns.keys is None else binary_array(columns.keys, count, columns.validity)
    headers = none
    if columns.headers is not None:
        found = binary_array(columns.headers, count, None)
        is_none = arrow.compute.equal(arrow.compute.binary_length(found), 0)
        headers = arrow.compute.if_else(is_none, arrow.scalar(None, arrow.binary()), found)
    terms = (array("q", [part.term]) * part.columns.count for part in parts)
    indices = (rising(part.index, part.columns.count) for part in parts)
    times = (array("q", [part.time]) * part.columns.count for part in parts)
    arrays = [
        number_array(int64, count, [rising(first, count)]),
        number_array(int64, count, terms),
        number_array(int64, count, indices),
        number_array(arrow.timestamp("us", tz="UTC"), count, times),
        key,
        binary_array(columns.values, count, None),
        headers,
    ]
    return arrow.Table.from_arrays(arrays, schema=_schema(arrow))


def packed_order(order: RunOrder | None) -> str:
    """Return the order as the description of a run has it."""
    return "" if order is None else b64encode(order.deflate()).decode()


def _schema(arrow: Any, rows: RowSchema | None = None, *, is_stream: bool = False) -> Any:
    numbers = [(name, arrow.int64()) for name in _NUMBERS[:3]]
    time = ("timestamp", arrow.timestamp("us", tz="UTC"))
    typed = [] if rows is None else [(ROW, row_type(rows))]
    if is_stream:
        typed.insert(0, (GLOBAL, arrow.int64()))
    return arrow.schema([*numbers, time, *((name, arrow.binary()) for name in _BINARIES), *typed])


def _checksum(checksums: list[int]) -> int:
    """Return the checksum of a row group from those of its streams."""
    return int(crc32c(struct.pack(f"<{_STREAMS}I", *checksums)))


def _parts(table: Any) -> Iterator[tuple[int, memoryview]]:
    """Yield the parts of each stream of a table: the number of the stream, and bytes."""
    for at, name in enumerate(_NUMBERS):
        yield from ((at, part) for _, part in column_bytes(table[name]))
    for at, name in enumerate(_BINARIES):
        yield from ((len(_NUMBERS) + 2 * at + stream, part) for stream, part in column_bytes(table[name]))


def _digest(first: int, end: int, streams: list[Any]) -> str:
    parts = [struct.pack("<QQ", first, end), *(stream.digest() for stream in streams)]
    return blake2b(b"".join(parts), digest_size=_DIGEST_SIZE).hexdigest()


@contextmanager
def reading_parquet(arrow: Any, name: str) -> Iterator[None]:
    """Convert errors of the Parquet reader into CorruptionError; errors of the source go on as they are."""
    try:
        yield
    except ViewstampError:
        raise
    except (arrow.ArrowException, OSError, ValueError, LookupError, TypeError, MemoryError) as error:
        raise damaged_run(name, f"it cannot be read as Parquet: {error}") from error


def damaged_run(name: str, why: str) -> CorruptionError:
    """Return the error about the object ``name`` of a run."""
    return CorruptionError(
        f"run file {name} is damaged: {why}",
        path=name,
        expected="the file of a run",
        found=why,
        remedy="keep the object, and put an intact copy in its place",
    )
