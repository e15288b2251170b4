"""Writes records to parquet files: a directory of files in log order, complete or absent. Needs pyarrow."""

from __future__ import annotations

import os
import shutil
from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgpack

from viewstamp.archive.columns import binary_array, number_array, rising
from viewstamp.errors import ConfigError, StorageError
from viewstamp.replay.read import Block, RecordRun, blocks
from viewstamp.wire.batch import Column, Columns

if TYPE_CHECKING:
    import pyarrow

__all__ = ["FILE_BYTES", "check_target", "write_parquet"]

FILE_BYTES: Final = 256 * 1024 * 1024
"""A file is closed when it has this many bytes of records."""
GROUP_BYTES: Final = 32 * 1024 * 1024
"""Bytes that are held in memory and become one row group."""


def check_target(path: str) -> None:
    """Check the target before anything is read.

    Raises:
      ConfigError: pyarrow is not installed, or ``path`` exists.
    """
    _arrow()
    if os.path.exists(path):
        raise ConfigError(f"{path} already exists", remedy="name another path, because no file is overwritten")


def write_parquet(path: str, runs: Iterable[tuple[RecordRun, Columns]], *, file_bytes: int = FILE_BYTES) -> int:
    """Write all records to ``path``/part-00000.parquet and so on, in order; return the number of files.

    The columns are those of the Spark source: topic, position, term, index, timestamp (UTC, microseconds), key, value,
    headers (a map). The files are written to ``path``.incomplete, synced, and renamed at the end. Files that an
    interrupted run left there are deleted.

    Raises:
      ConfigError: as :func:`check_target`.
      StorageError: the files cannot be written. ``path`` does not exist then.
    """
    check_target(path)
    temporary = f"{path}.incomplete"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        os.makedirs(temporary)
        files = _Files(temporary, file_bytes)
        try:
            for block in blocks(runs, min(GROUP_BYTES, file_bytes)):
                files.add(block)
        finally:
            files.close()
        _sync(temporary)
        os.rename(temporary, path)
        _sync(os.path.dirname(os.path.abspath(path)))
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}",
            remedy="choose a path that this user may write, on a disk with free space",
        ) from error
    return files.count


class _Files:
    """The files of one directory. There is at least one, so that an empty result has columns too."""

    def __init__(self, directory: str, file_bytes: int) -> None:
        self.count = 0
        self._directory = directory
        self._file_bytes = file_bytes
        self._size = 0
        self._stream: Any = None
        self._writer: Any = None
        self._begin()

    def add(self, block: Block) -> None:
        if self._size >= self._file_bytes:
            self.close()
            self._begin()
        self._writer.write_batch(_to_arrow(block), row_group_size=block.columns.count)
        self._size += block.size

    def close(self) -> None:
        """Complete and sync the present file. Safe to repeat."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with self._stream as stream:
                writer.close()
                stream.flush()
                os.fsync(stream.fileno())

    def _begin(self) -> None:
        arrow = _arrow()
        from pyarrow import parquet

        self._stream = open(f"{self._directory}/part-{self.count:05}.parquet", "xb")  # noqa: SIM115 - closed by close
        self._writer = parquet.ParquetWriter(
            self._stream, _schema(arrow), compression="snappy", use_dictionary=["topic"], write_statistics=_MEASURED
        )
        self.count += 1
        self._size = 0


_MEASURED: Final = ["topic", "position", "index", "timestamp"]
"""Columns with statistics, because readers filter by them. Those of values would only cost space."""


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(
            f"parquet needs pyarrow, which is not installed ({error})",
            remedy="pip install 'viewstamp[spark]', or only pyarrow; without --to the records are verified and counted",
        ) from error
    return pyarrow


def _schema(arrow: Any) -> pyarrow.Schema:
    return arrow.schema(
        [
            ("topic", arrow.string()),
            ("position", arrow.int64()),
            ("term", arrow.int64()),
            ("index", arrow.int64()),
            ("timestamp", arrow.timestamp("us", tz="UTC")),
            ("key", arrow.binary()),
            ("value", arrow.binary()),
            ("headers", arrow.map_(arrow.string(), arrow.binary())),
        ]
    )


def _to_arrow(block: Block) -> pyarrow.RecordBatch:
    arrow = _arrow()
    count = block.columns.count
    names = list(dict.fromkeys(run.topic for run in block.runs))
    number = {name: at for at, name in enumerate(names)}
    topics = arrow.DictionaryArray.from_arrays(
        number_array(arrow.int32(), count, (array("i", [number[run.topic]]) * run.count for run in block.runs)), names
    )
    columns = block.columns
    arrays = [
        topics.cast(arrow.string()),
        number_array(arrow.int64(), count, (rising(run.position, run.count) for run in block.runs)),
        number_array(arrow.int64(), count, (array("q", [run.term]) * run.count for run in block.runs)),
        number_array(arrow.int64(), count, (rising(run.index, run.count) for run in block.runs)),
        number_array(
            arrow.timestamp("us", tz="UTC"), count, (array("q", [run.log_time]) * run.count for run in block.runs)
        ),
        binary_array(columns.keys, count, columns.validity) if columns.keys else arrow.nulls(count, arrow.binary()),
        binary_array(columns.values, count, None),
        _headers(columns.headers, count),
    ]
    return arrow.RecordBatch.from_arrays(arrays, schema=_schema(arrow))


def _headers(column: Column | None, count: int) -> Any:
    arrow = _arrow()
    kind = arrow.map_(arrow.string(), arrow.binary())
    if column is None:
        return arrow.nulls(count, kind)
    packed: Sequence[bytes] = binary_array(column, count, None).to_pylist()
    return arrow.array([list(msgpack.unpackb(each).items()) if each else None for each in packed], kind)


def _sync(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
