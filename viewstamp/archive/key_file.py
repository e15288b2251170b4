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

from collections.abc import Sequence
from io import RawIOBase
from typing import Any, BinaryIO, Final, Protocol

from viewstamp.archive.columns import load_arrow
from viewstamp.archive.key_rows import GroupReader, GroupWriter
from viewstamp.archive.run_file import damaged_run, reading_parquet
from viewstamp.node.keyed_rows import KeyRow

__all__ = ["PARQUET_KEYS", "KeyFormat"]

_KEY: Final = b"viewstamp.keys"
_NUMBERS: Final = ("position", "term", "index")


class KeyFormat(Protocol):
    """How groups of rows are bytes."""

    def begin(self, sink: BinaryIO) -> GroupWriter:
        """Begin a file; ``sink`` gets the bytes in order. Raises ConfigError."""
        ...

    def open(self, source: BinaryIO | RawIOBase, name: str) -> GroupReader:
        """Open a file. Raises CorruptionError, ConfigError."""
        ...


class _Parquet:
    """The format of all stores; it has the calls of :class:`KeyFormat`."""

    def begin(self, sink: BinaryIO) -> GroupWriter:
        return _Writer(sink)

    def open(self, source: BinaryIO | RawIOBase, name: str) -> GroupReader:
        return _Reader(source, name)


PARQUET_KEYS: KeyFormat = _Parquet()


class _Writer:
    def __init__(self, sink: BinaryIO) -> None:
        self._arrow = load_arrow()
        self._writer = self._arrow.parquet.ParquetWriter(
            sink,
            _schema(self._arrow),
            compression="zstd",
            compression_level=1,
            use_dictionary=False,
            column_encoding=dict.fromkeys(_NUMBERS, "DELTA_BINARY_PACKED"),
            write_statistics=["key"],
        )

    def write(self, rows: Sequence[KeyRow]) -> None:
        schema = _schema(self._arrow)
        columns = zip(zip(*rows, strict=True), schema, strict=True)
        arrays = [self._arrow.array(column, type=field.type) for column, field in columns]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=schema), row_group_size=len(rows))

    def finish(self, description: bytes) -> None:
        self._writer.add_key_value_metadata({_KEY: description})
        self._writer.close()


class _Reader:
    def __init__(self, source: BinaryIO | RawIOBase, name: str) -> None:
        self._arrow = load_arrow()
        self._name = name
        with reading_parquet(self._arrow, self._name):
            self._file = self._arrow.parquet.ParquetFile(source)
            self.description: bytes | None = (self._file.metadata.metadata or {}).get(_KEY)
            if self._file.schema_arrow.remove_metadata() != _schema(self._arrow):
                raise damaged_run(name, "its columns are not those of a run of keys")

    def read(self, number: int) -> list[KeyRow]:
        with reading_parquet(self._arrow, self._name):
            table = self._file.read_row_group(number, use_threads=False)
            table.validate(full=True)
            columns = [
                (column.cast(self._arrow.int64()) if column.type not in (self._arrow.binary(),) else column).to_pylist()
                for column in table.columns
            ]
        return list(map(KeyRow._make, zip(*columns, strict=True)))


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
