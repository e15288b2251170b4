"""Spark sources and sinks in Python without any of viewstamp's code, to know how fast one can be on this machine.

| name | does |
| --- | --- |
| floor-memory | a source: yields the same Arrow batch of values again and again |
| floor-socket | a source: receives the values from a process that only sends them |
| floor-drop | a sink: takes Arrow batches and drops them |
| floor-send | a sink: sends the values to a process that only drops them |

There is no log, no checksum, no copy on a second node and no disk. ``python -m benchmarks.spark --floor`` measures them
beside viewstamp, in the same session and in turns.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)

__all__ = ["SINKS", "SOURCES", "VALUE_BYTES", "register", "running_peer", "stream_writer"]

SOURCES: Final = ("floor-memory", "floor-socket")
SINKS: Final = ("floor-drop", "floor-send")
VALUE_BYTES: Final = 256
"""Bytes of each value."""
_ROWS: Final = 4000
"""Rows of an Arrow batch: about 1 MB, as a staged batch of viewstamp has."""
_ROOT: Final = Path(__file__).parents[1]
_NUMBER: Final = 8
"""Bytes of the first message to the peer: how many bytes it is to send; 0 = it is to receive until the end,
and to answer how many it received."""


@dataclass(frozen=True)
class _Part(InputPartition):
    """The rows of one task."""

    rows: int


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._rows, self._tasks, self._port = (int(options[name]) for name in ("rows", "tasks", "port"))

    def partitions(self) -> list[_Part]:
        ends = [self._rows * task // self._tasks for task in range(self._tasks + 1)]
        return [_Part(end - start) for start, end in pairwise(ends)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part), f"Spark gave {partition!r}"
        rows = [min(_ROWS, partition.rows - done) for done in range(0, partition.rows, _ROWS)]
        if not self._port:
            value = memoryview(bytes(_ROWS * VALUE_BYTES))
            yield from (_batch(value[: count * VALUE_BYTES], count) for count in rows)
            return
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            connection.sendall((partition.rows * VALUE_BYTES).to_bytes(_NUMBER, "little"))
            for count in rows:
                data = bytearray(count * VALUE_BYTES)
                received = connection.recv_into(data, 0, socket.MSG_WAITALL)
                assert received == len(data), f"the peer sent {received} of {len(data)} bytes"
                yield _batch(memoryview(data), count)


@cache
def _offsets() -> pa.Buffer:
    """Return the offsets of the values of a batch."""
    return pa.array(range(0, VALUE_BYTES * (_ROWS + 1), VALUE_BYTES), pa.int32()).buffers()[1]


def _batch(values: memoryview, count: int) -> pa.RecordBatch:
    array = pa.Array.from_buffers(pa.binary(), count, [None, _offsets(), pa.py_buffer(values)])
    return pa.RecordBatch.from_arrays([array], names=["value"])


def _take(batches: Iterator[pa.RecordBatch], port: int) -> WriterCommitMessage:
    """Drop the batches, or send their values to the peer at ``port`` and wait until it has them."""
    if not port:
        for _ in batches:
            pass
        return WriterCommitMessage()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(bytes(_NUMBER))
        sent = 0
        for batch in batches:
            data = batch.column(0).buffers()[2]
            connection.sendall(data)
            sent += data.size
        connection.shutdown(socket.SHUT_WR)
        received = int.from_bytes(connection.recv(_NUMBER, socket.MSG_WAITALL), "little")
        assert received == sent, f"the peer received {received} of {sent} bytes"
    return WriterCommitMessage()


class _BatchWriter(DataSourceArrowWriter):
    def __init__(self, port: int) -> None:
        self._port = port

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _take(iterator, self._port)


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, port: int) -> None:
        self._port = port

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _take(iterator, self._port)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Do nothing, so that the time is Spark's own."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Do nothing."""


class _Memory(DataSource):
    """Options: ``rows`` and ``tasks`` of a read; ``port`` of the peer, 0 = none."""

    @classmethod
    def name(cls) -> str:
        return "floor-memory"

    def schema(self) -> str:
        return "value binary"

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader(self.options)

    def writer(self, schema: Any, overwrite: bool) -> _BatchWriter:
        return _BatchWriter(int(self.options["port"]))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802  # Spark's name
        return stream_writer(int(self.options["port"]))


class _Socket(_Memory):
    @classmethod
    def name(cls) -> str:
        return "floor-socket"


class _Drop(_Memory):
    @classmethod
    def name(cls) -> str:
        return "floor-drop"


class _Send(_Memory):
    @classmethod
    def name(cls) -> str:
        return "floor-send"


def stream_writer(port: int) -> DataSourceStreamArrowWriter:
    """Return the writer for micro-batches of a sink; ``port``: of the peer, 0 = drop the rows."""
    return _StreamWriter(port)


def register(spark: Any) -> None:
    """Make the sources and sinks known to a session."""
    for each in (_Memory, _Socket, _Drop, _Send):
        spark.dataSource.register(each)


@contextmanager
def running_peer() -> Iterator[tuple[int, int]]:
    """Run the process that sends and drops values; yield its process id and its port."""
    command = [sys.executable, "-m", "benchmarks.spark_floor"]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as peer:
        assert peer.stdout is not None, "it was asked for"
        try:
            yield peer.pid, int(peer.stdout.readline())
        finally:
            peer.kill()


def _serve(connection: socket.socket) -> None:
    with connection:
        left = int.from_bytes(connection.recv(_NUMBER, socket.MSG_WAITALL), "little")
        block = bytearray(_ROWS * VALUE_BYTES)
        if not left:
            received = 0
            while size := connection.recv_into(block):
                received += size
            connection.sendall(received.to_bytes(_NUMBER, "little"))
        while left:
            size = min(left, len(block))
            connection.sendall(memoryview(block)[:size])
            left -= size


def main() -> None:
    """Be the peer: print the port, and serve until the process is killed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_serve, args=[connection], daemon=True).start()


if __name__ == "__main__":
    main()
