"""The sink with injected faults: ``format("viewstamp-faulty")``. Workers get it by value, as they import no tests.

``fault`` is the place, ``action`` the effect; ``times`` is the number of strikes, counted by files named after
``mark``. In tasks it strikes in one partition only, so that the others have staged and sealed.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from viewstamp.client import Client
from viewstamp.host.network import RealNetwork
from viewstamp.spark import blocking_client as clients
from viewstamp.spark.data_source import ViewstampDataSource
from viewstamp.wire.frame import FrameKind

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from viewstamp.client.runtime import Wire

__all__ = ["AccidentError", "FaultySource"]

OWN = ("fault", "action", "times", "batch", "mark", "process", "bytes")
SECONDS_MAX = 60.0


class AccidentError(Exception):
    """The effect of the fault."""


@dataclass
class Fault:
    """Strikes ``times`` times at ``where`` in one batch.

    where: "staging" (rows are staged, not sealed), "sealed", "before-commit", "after-commit", of the log.
    action: "raise"; "exit": this process ends; "kill": Spark's process ends too; "pause": create MARK.waits, await
    MARK.go; "late": pause, then raise; "deaf": the nodes' answers to the commit are lost, until the connection ends.
    """

    where: str
    action: str
    times: int
    batch: int
    mark: str
    process: int
    cluster: str
    staged_bytes: int
    """The bytes that the other partition stages, and a little more."""

    def maybe_strike(self, where: str, batch: int) -> None:
        if (where, batch) != (self.where, self.batch):
            return
        for number in range(self.times):
            try:
                os.close(os.open(f"{self.mark}.{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            self._strike()
            return

    def _strike(self) -> None:
        if self.where == "staging":
            self._wait_until_staged()
        match self.action:
            case "kill":
                os.kill(self.process, signal.SIGKILL)
                os._exit(9)
            case "exit":
                os._exit(7)
            case "pause" | "late":
                os.close(os.open(f"{self.mark}.waits", os.O_CREAT))
                _wait(lambda: os.path.exists(f"{self.mark}.go"))
                if self.action == "late":
                    raise AccidentError(f"{self.where} in batch {self.batch}")
            case "deaf":
                self._become_deaf()
            case _:
                raise AccidentError(f"{self.where} in batch {self.batch}")

    def _wait_until_staged(self) -> None:
        """Wait until the other partition is sealed, and a block of this one is in the log, where it will be left."""
        link = clients.blocking_client(self.cluster)

        def is_staged() -> bool:
            (sink,) = link.run(link.client.list_sinks)
            return sink.sealed > 0 and sink.bytes > self.staged_bytes

        _wait(is_staged)

    def _become_deaf(self) -> None:
        clients.blocking_client(self.cluster).close()
        link = clients.BlockingClient(self.cluster)
        link.client = Client(self.cluster, network=DeafNetwork(f"{self.mark}.sent"), entropy=random.Random(1))
        clients._clients[os.getpid(), self.cluster, None, ""] = link


def _wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not until():
        assert time.monotonic() < deadline, "what the fault waits for does not happen"
        time.sleep(0.01)


class DeafNetwork(RealNetwork):
    """After a COMMIT was sent on a connection, drop all further bytes on it. ``mark`` is a file that records this.

    It happens on the first connection with a COMMIT; later connections work normally.
    """

    def __init__(self, mark: str) -> None:
        super().__init__()
        self._mark = mark

    async def connect(self, address, accept):  # type: ignore[no-untyped-def]
        deaf = False

        def wrap(wire: Wire):  # type: ignore[no-untyped-def]
            send = wire.send

            def note_commit(buffers: Sequence[bytes]) -> None:
                nonlocal deaf
                send(buffers)
                if any(len(part) > 8 and part[:3] == b"VSF" and part[8] == FrameKind.COMMIT for part in buffers):
                    try:
                        os.close(os.open(self._mark, os.O_CREAT | os.O_EXCL))
                        deaf = True
                    except FileExistsError:
                        pass

            handler = accept(Overheard(wire, note_commit))
            hear = handler.on_bytes

            class Ears:
                def on_bytes(self, data: bytes) -> None:
                    if not deaf:
                        hear(data)

                def on_closed(self, error: BaseException | None) -> None:
                    handler.on_closed(error)

            return Ears()

        return await super().connect(address, wrap)


class Overheard:
    """A connection with another ``send``."""

    def __init__(self, wire, send) -> None:  # type: ignore[no-untyped-def]
        self._wire = wire
        self.send = send

    def __getattr__(self, name: str) -> object:
        return getattr(self._wire, name)


class FaultySource(ViewstampDataSource):
    """The real data source, whose streams fail."""

    @classmethod
    def name(cls) -> str:
        return "viewstamp-faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> FaultyWriter:  # noqa: N802
        given = dict(self.options)
        own = {name: given.pop(name) for name in OWN}
        fault = Fault(
            own["fault"],
            own["action"],
            int(own["times"]),
            int(own["batch"]),
            own["mark"],
            int(own["process"]),
            given["cluster"],
            int(own["bytes"]),
        )
        return FaultyWriter(ViewstampDataSource(given).streamWriter(schema, overwrite), fault)


class FaultyWriter(DataSourceStreamArrowWriter):
    """Injects the fault before or after the calls of the real writer."""

    def __init__(self, inner: DataSourceStreamArrowWriter, fault: Fault) -> None:
        self._inner = inner
        self._fault = fault

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        if context.partitionId() != 1:
            return self._inner.write(iterator)
        batch = int(context.getLocalProperty("streaming.sql.batchId"))

        def broken() -> Iterator[RecordBatch]:
            for number, rows in enumerate(iterator):
                if number:
                    self._fault.maybe_strike("staging", batch)
                yield rows

        message = self._inner.write(broken())
        self._fault.maybe_strike("sealed", batch)
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._fault.maybe_strike("before-commit", batchId)
        self._inner.commit(messages, batchId)
        self._fault.maybe_strike("after-commit", batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._inner.abort(messages, batchId)
