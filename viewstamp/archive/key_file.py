"""The file of a run of keys: Parquet, sorted by key. Needs pyarrow. ``key_rows.py`` has its rows and its description.

| column | type | contents |
| --- | --- | --- |
| key | binary | each key once; the keys rise, compared as unsigned bytes |
| position, term, index | int64 | the identity of the last record of the key |
| timestamp | timestamp, microseconds, UTC | its log time |
| value | binary, null = the key was deleted | as appended |
| headers | binary, null = none | one msgpack map, as in the log |

The description is the value of the key ``viewstamp.keys`` in the metadata of the file. Parquet's own minimum and
maximum of the keys of each row group are there for other programs; a reader of viewstamp uses the description.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO, Final, Protocol

from viewstamp.archive.columns import load_arrow
from viewstamp.archive.key_columns import KeyColumns
from viewstamp.archive.key_rows import GroupReader, GroupWriter
from viewstamp.archive.run_file import damaged_run, reading_parquet
from viewstamp.node.keyed_rows import KeyRow
from viewstamp.wire.batch import Buffer

__all__ = ["PARQUET_KEYS", "KeyFormat"]

_KEY: Final = b"viewstamp.keys"
_NUMBERS: Final = ("position", "term", "index")


class KeyFormat(Protocol):
    """How groups of rows are bytes."""

    def begin(self, sink: BinaryIO) -> GroupWriter:
        """Begin a file; ``sink`` gets the bytes in order. Raises ConfigError."""
        ...

    def open(self, source: BinaryIO | io.RawIOBase, name: str) -> GroupReader:
        """Open a file. Raises CorruptionError, ConfigError."""
        ...


class _Parquet:
    """The format of all stores; it has the calls of :class:`KeyFormat`."""

    def begin(self, sink: BinaryIO) -> GroupWriter:
        return _Writer(sink)

    def open(self, source: BinaryIO | io.RawIOBase, name: str) -> GroupReader:
        return _Reader(source, name)


PARQUET_KEYS: KeyFormat = _Parquet()


class _Writer:
    def __init__(self, sink: BinaryIO) -> None:
        self._arrow = load_arrow()
        self._sink = sink
        self._writer = self._arrow.parquet.ParquetWriter(
            sink,
            _schema(self._arrow),
            compression="zstd",
            compression_level=1,
            use_dictionary=False,
            column_encoding=dict.fromkeys(_NUMBERS, "DELTA_BINARY_PACKED"),
            write_statistics=["key"],
        )

    @property
    def size(self) -> int:
        return self._sink.tell()

    def write(self, rows: Sequence[KeyRow]) -> Iterable[Buffer]:
        schema = _schema(self._arrow)
        columns = zip(zip(*rows, strict=True), schema, strict=True)
        arrays = [self._arrow.array(column, type=field.type) for column, field in columns]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=schema), row_group_size=len(rows))
        return KeyColumns(arrays).content()

    def finish(self, description: bytes) -> None:
        self._writer.add_key_value_metadata({_KEY: description})
        self._writer.close()


class _Reader:
    def __init__(self, source: BinaryIO | io.RawIOBase, name: str) -> None:
        self._arrow = load_arrow()
        self._name = name
        self._part = _Part(source)
        with reading_parquet(self._arrow, self._name):
            # Without the buffer of pyarrow, which another thread would fill: the part is in memory already.
            self._file = self._arrow.parquet.ParquetFile(self._part, pre_buffer=False)
            self.description: bytes | None = (self._file.metadata.metadata or {}).get(_KEY)
            if self._file.schema_arrow.remove_metadata() != _schema(self._arrow):
                raise damaged_run(name, "its columns are not those of a run of keys")

    def read(self, number: int, begin: int, end: int) -> KeyColumns:
        # The places are those of our description, because pyarrow ends the process if those of a damaged file are read.
        self._part.fetch(begin, end)
        with reading_parquet(self._arrow, self._name):
            table = self._file.read_row_group(number, use_threads=False)
            self._part.drop()
            columns = [each.chunk(0) if each.num_chunks == 1 else each.combine_chunks() for each in table.columns]
            return KeyColumns(columns)


class _Part(io.RawIOBase):
    """A file of which one part is in memory, so that the seven columns of a group are one request to the store."""

    def __init__(self, source: BinaryIO | io.RawIOBase) -> None:
        self._source = source
        self._at = self._start = 0
        self._data = b""

    def fetch(self, begin: int, end: int) -> None:
        """Read a part. What is read outside of it later is read from the source then."""
        self._data = b""
        if begin < end:
            self._source.seek(begin)
            self._data = self._source.read(end - begin) or b""
            self._start = begin

    def drop(self) -> None:
        """Forget the part."""
        self._data = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            self._at = self._source.seek(offset, whence)
        else:
            self._at = max(offset + (self._at if whence == io.SEEK_CUR else 0), 0)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        low = self._at - self._start
        if size is not None and low >= 0 and 0 <= size <= len(self._data) - low:
            found = self._data[low : low + size]
        else:
            self._source.seek(self._at)
            found = self._source.read(-1 if size is None else size) or b""
        self._at += len(found)
        return found


def _schema(arrow: Any) -> Any:
    return arrow.schema(
        [
            ("key", arrow.binary()),
            *((name, arrow.int64()) for name in _NUMBERS),
            ("timestamp", arrow.timestamp("us", tz="UTC")),
            ("value", arrow.binary()),
            ("headers", arrow.binary()),
        ]
    )
