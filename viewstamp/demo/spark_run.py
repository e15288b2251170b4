"""``viewstamp demo-spark``: a streaming job of Spark that writes every row once, although it is killed; and a proof.

The flights are in a folder of at most twenty files, and a Spark driver, in its own process, writes them into a topic,
one file a micro-batch. Meanwhile the driver is killed with SIGKILL, with its JVM and all its workers: once with rows
staged and not committed, and once after the commit is in the log and before it is in Spark's checkpoint. Between the
two the cluster's leader is killed. Each time the driver is started again, and continues from its checkpoint. During all
of this, readers look for parts of a micro-batch. Then a client that is not Spark compares the topic with the files, and
Spark reads the topic back, as a stream, and computes the delays.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from viewstamp.demo.proof import lines_of
from viewstamp.demo.source import check_flights, flights
from viewstamp.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.sinks import SinkInfo
    from viewstamp.demo.spark_driver import Driver
    from viewstamp.demo.spark_result import SparkDemoResult
    from viewstamp.demo.spark_watch import PartialBatchWatch
    from viewstamp.local.cluster import LocalCluster
    from viewstamp.terminal.show import Show

__all__ = ["Input", "SparkDemo", "check_demo"]

TOPIC: Final = "flights"
WAIT_SECONDS: Final = 60.0
KILLS: Final = (1 / 4, 1 / 2, 5 / 8)
"""The shares of the micro-batches after which Spark, the leader, and Spark again are killed."""
KILL_LOOK_SECONDS: Final = 0.002
COMMIT_LOOK_SECONDS: Final = 0.02
"""Short, because another commit has to follow before the files are written, and small ones are written quickly."""
SHOW_SECONDS: Final = 0.2
CLIENT_SECONDS: Final = 30.0
READER_SECONDS: Final = 1.0
"""Seconds that a reader waits for its node, which may be down."""


def check_demo(picture: str, *, in_directory: bool) -> None:
    """Check the requirements now, so that the demo does not fail after two minutes.

    Raises:
      ConfigError: a package is missing, or the picture cannot be written.
    """
    missing = [
        name for name in ("pyspark", "pyarrow", "pandas", "matplotlib") if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise ConfigError(
            f"demo-spark needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed",
            remedy="run `make demo-spark` in a clone, or `pip install 'viewstamp[spark,plot]'`",
        )
    check_flights()
    folder = os.path.dirname(picture)
    if not in_directory and (os.path.isdir(picture) or not os.access(folder, os.W_OK)):
        raise ConfigError(
            f"--plot {picture} cannot be written", remedy="name a file in a folder that this user may write"
        )


class SparkDemo:
    """One run, from the first process to the picture. It ends all its processes."""

    def __init__(self, directory: str, nodes: int, picture: str, show: Show) -> None:
        from viewstamp.demo.spark_result import SparkDemoResult
        from viewstamp.local.cluster import LocalCluster

        self._show = show
        self._folder = os.path.join(directory, "spark")
        self._cluster: LocalCluster = LocalCluster.open_or_create(directory, nodes)
        self._addresses = ",".join(self._cluster.target.addresses)
        self._result: SparkDemoResult = SparkDemoResult(nodes=nodes, plot=picture)
        self._input: Input
        self._watch: PartialBatchWatch
        self._driver: Driver
        self._drivers: list[Driver] = []
        self._client: Client
        self._is_written = False

    async def run(self) -> SparkDemoResult:
        """Run the demo, and return its result."""
        try:
            self._show.phase(f"starting {self._result.nodes} nodes in {self._cluster.directory}")
            self._cluster.spawn_missing()
            await self._cluster.wait_running(self._cluster.nodes.values(), WAIT_SECONDS)
            await self._start_driver()
            await self._prepare()
            async with self._cluster.target.connect(CLIENT_SECONDS) as self._client:
                await self._client.create_topic(TOPIC)
                await self._wait_ready()
                await self._write()
                await asyncio.gather(self._prove(), self._aggregate())
            await self._draw()
            self._show.phase("stopping Spark and all nodes")
            await self._driver.kill()
            await self._cluster.stop(WAIT_SECONDS)
        finally:
            self._show.close()
            for driver in self._drivers:
                await driver.kill()
            for node in self._cluster.nodes.values():
                await node.kill()
        return self._result

    async def _start_driver(self) -> None:
        from viewstamp.demo.spark_driver import Driver

        self._driver = await Driver.start(self._addresses, self._folder)
        self._drivers.append(self._driver)

    async def _prepare(self) -> None:
        """Write the files while Spark starts, because two cores have room for both."""
        from viewstamp.demo.source import FLIGHTS

        self._show.phase(f"writing {FLIGHTS:,} flights as files, while Spark starts")
        self._input = await asyncio.to_thread(Input.write, os.path.join(self._folder, "flights"))
        self._result.rows = self._input.rows

    async def _wait_ready(self) -> None:
        waiting = asyncio.create_task(self._driver.wait_for("ready"))
        while not (await asyncio.wait([waiting], timeout=SHOW_SECONDS))[0]:
            self._show.count(0, 0, f"starting Spark: {time.monotonic() - self._driver.started_at:.0f} s")
        await waiting

    # Writing while Spark and the leader are killed.

    async def _write(self) -> None:
        from viewstamp.demo.spark_watch import PartialBatchWatch

        async with self._cluster.target.connect(READER_SECONDS) as reader:
            self._watch = PartialBatchWatch(reader, TOPIC, self._input.ends)
            watching = asyncio.create_task(self._watch.run(list(self._cluster.nodes)))
            work = [asyncio.create_task(each) for each in (self._run_drivers(), self._kill_all())]
            showing = asyncio.create_task(self._show_writing())
            try:
                await asyncio.gather(*work)
                self._watch.finish()
                await watching
            finally:
                for task in (*work, watching, showing):
                    task.cancel()
                await asyncio.gather(*work, watching, showing, return_exceptions=True)
        self._result.looks = self._watch.looks
        self._result.partial = self._watch.partial

    async def _run_drivers(self) -> None:
        """Write the files with one driver after the other, until one is not killed."""
        started = time.monotonic()
        self._driver.tell("write")
        while await self._driver.wait_for("written") is None:
            await self._driver.kill()  # Waits until all its processes have ended.
            again = time.monotonic()
            await self._start_driver()
            await self._driver.wait_for("ready")
            self._result.starting_seconds += time.monotonic() - again
            self._show.note(f"Spark runs again after {time.monotonic() - again:.1f} s, from its checkpoint")
            self._driver.tell("write")
        self._result.seconds = time.monotonic() - started
        self._is_written = True

    async def _kill_all(self) -> None:
        first, second, third = (int(share * len(self._input.sizes)) for share in KILLS)
        sink = await self._wait_sink(lambda sink: sink.batch >= first, SHOW_SECONDS)
        while sink is not None and not await self._kill_staging():
            pass
        sink = await self._wait_sink(lambda sink: sink.batch >= second, SHOW_SECONDS)
        if sink is not None:
            await self._kill_leader(sink.batch)
        sink = await self._wait_sink(lambda sink: sink.batch >= third, COMMIT_LOOK_SECONDS)
        if sink is not None:
            await self._kill_committed(sink.batch)

    async def _sink(self) -> SinkInfo | None:
        """Return the only sink, that of the query; None = it has not begun."""
        return next(iter(await self._client.list_sinks()), None)

    async def _wait_sink(
        self, wanted: Callable[[SinkInfo], bool], look_seconds: float = KILL_LOOK_SECONDS
    ) -> SinkInfo | None:
        """Wait until ``wanted`` is true for the sink, and return it; None if all input files are written before."""
        while not self._is_written:
            sink = await self._sink()
            if sink is not None and wanted(sink):
                return sink
            await asyncio.sleep(look_seconds)
        return None

    async def _kill_staging(self) -> bool:
        """Kill Spark while rows are staged and not committed; return whether that was so, or all files are written."""
        sink = await self._wait_sink(lambda sink: sink.bytes > 0)
        if sink is None:
            return True
        await self._driver.kill()
        after = await self._sink()
        assert after is not None, "a sink stays"
        is_hit = after.bytes > 0
        found = f"{after.bytes:,} bytes staged, not committed" if is_hit else "it had just committed"
        self._note_kill(after.batch + is_hit, found)
        return is_hit

    async def _kill_committed(self, before: int) -> None:
        """Kill Spark as soon as the log has one more commit, if possible before Spark has noted it."""
        if await self._wait_sink(lambda sink: sink.batch > before) is None:
            return
        await self._driver.kill()
        sink = await self._sink()
        assert sink is not None, "a sink stays"
        is_known = self._is_in_checkpoint(sink.batch)
        self._note_kill(sink.batch, f"committed in the log, {'and' if is_known else 'not yet'} in Spark's checkpoint")

    def _is_in_checkpoint(self, batch: int) -> bool:
        """Return whether Spark has noted that a micro-batch is done."""
        return os.path.exists(os.path.join(self._folder, "checkpoint", "commits", str(batch)))

    def _note_kill(self, batch: int, found: str) -> None:
        hit = f"in micro-batch {batch + 1} of {len(self._input.sizes)}: {found}"
        self._result.driver_kills.append(hit)
        self._show.note(f"killed Spark (SIGKILL), {hit}")

    async def _kill_leader(self, batch: int) -> None:
        """Kill the leader, and restart it after Spark's next commit."""
        leader, _ = await self._cluster.leader(WAIT_SECONDS)
        leader.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        await leader.wait_gone(WAIT_SECONDS)
        self._show.note(f"killed {leader.id}, the leader (SIGKILL), in micro-batch {batch + 2}")
        await self._wait_sink(lambda sink: sink.batch > batch)
        waited = f"the next commit came after {time.monotonic() - killed:.1f} s"
        self._result.leader_kills.append(f"{leader.id}, in micro-batch {batch + 2}; {waited}")
        self._cluster.spawn(leader)
        await self._cluster.wait_running([leader], WAIT_SECONDS)
        self._show.note(f"restarted {leader.id}; {waited}")

    async def _show_writing(self) -> None:
        """Update the progress line."""
        rows, files = self._input.rows, len(self._input.sizes)
        ends = sorted(self._input.ends)
        end, since = 0, time.monotonic()
        while True:
            if self._watch.end > end or not self._driver.is_ready:
                end, since = self._watch.end, time.monotonic()
            done = bisect_right(ends, end) - 1
            if self._driver.is_ready:
                doing = f"next for {time.monotonic() - since:.0f} s"
            else:
                doing = f"starting Spark: {time.monotonic() - self._driver.started_at:.0f} s"
            self._show.count(end, rows, f"{end:>9,} of {rows:,}   micro-batch {done} of {files}   {doing}")
            await asyncio.sleep(SHOW_SECONDS)

    # Reading.

    async def _prove(self) -> None:
        """Compare the topic with the files. Staged records of committed batches are deleted by now."""
        from viewstamp.demo.proof import Proof, Tally

        expected = await asyncio.to_thread(Tally, self._input.lines())
        found = Tally()
        async for record in self._client.read(TOPIC):
            found.add(record.value)
        sink = await self._sink()
        self._result.staged = 0 if sink is None else sink.attempts
        self._result.digest = expected.digest
        self._result.proof = Proof.compare(expected, found)

    async def _aggregate(self) -> None:
        """Make Spark read the topic, and keep its result."""
        from viewstamp.demo.spark_delays import Delays

        rows = self._input.rows

        def on_event(event: dict[str, Any]) -> None:
            self._show.count(event["rows"], rows, f"{event['rows']:>9,} of {rows:,}   read back by Spark, as a stream")

        self._show.phase("comparing the topic with the files, and reading it back by Spark, as a stream")
        self._driver.tell("aggregate")
        self._result.delays = Delays((await self._driver.wait_for("delays", on_event))["rows"])

    async def _draw(self) -> None:
        from viewstamp.demo.spark_delays import airline_names, draw

        self._show.phase("drawing the delays")
        assert self._result.delays is not None
        try:
            await asyncio.to_thread(draw, self._result.plot, self._result.delays, airline_names())
        except OSError as error:
            raise StorageError(
                f"cannot write {self._result.plot}: {error.strerror}", remedy="name another file with --plot"
            ) from error


FILES_MAX: Final = 20
LINES_MIN: Final = 500
"""Each file but the last has at least this many lines, because a micro-batch of a few lines takes a second, too."""


@dataclass(frozen=True, slots=True)
class Input:
    """A folder of files of lines; ``sizes`` has the number of lines of each, in the order in which Spark reads them."""

    folder: str
    sizes: tuple[int, ...]

    @classmethod
    def write(cls, folder: str) -> Input:
        """Write the flights into ``folder``, in the order of their schedule; a file has two or three weeks.

        Raises:
          ConfigError: the flights are not installed.
          StorageError: the folder cannot be written.
        """
        lines = list(flights())
        size = max(-(-len(lines) // FILES_MAX), LINES_MIN)
        parts = [lines[start : start + size] for start in range(0, len(lines), size)]
        first = time.time() - len(parts)
        try:
            os.makedirs(folder)
            for number, part in enumerate(parts):
                path = os.path.join(folder, f"{number:02}.jsonl")
                with open(path, "wb") as stream:
                    stream.writelines(line + b"\n" for line in part)
                # Spark reads files in the order of their modification times.
                os.utime(path, (first + number, first + number))
        except OSError as error:
            raise StorageError(
                f"cannot write {folder}: {error.strerror}",
                remedy="name a directory with --dir that this user may write, on a disk with 1 GB of free space",
            ) from error
        return cls(folder, tuple(map(len, parts)))

    @property
    def rows(self) -> int:
        """The number of lines in all files."""
        return sum(self.sizes)

    @property
    def ends(self) -> frozenset[int]:
        """The possible last positions of a topic: the ends of files, because a file becomes visible as a whole."""
        return frozenset(accumulate(self.sizes, initial=0))

    def lines(self) -> Iterator[bytes]:
        """Yield all lines, in the order of the files."""
        for name in sorted(os.listdir(self.folder)):
            yield from lines_of(os.path.join(self.folder, name))
