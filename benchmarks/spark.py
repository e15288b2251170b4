"""How fast are the Spark sink, source and offline replay, compared with Spark alone in the same session?

Three nodes run in processes of their own and sync before they acknowledge. Records have 256 bytes, and two tasks run at
once, all on one machine. Each figure is the median of its rounds:

  * sink: files of a million records a micro-batch, into a topic, and into Spark's own parquet file sink
  * overhead: micro-batches of ten records, into the topic; into a sink in Python that does nothing, because Spark
    itself takes this time for any sink in Python; and into Spark's own sink that drops everything
  * batch read: the topic, counted and dropped, compared with ``mapInArrow`` that only counts the records of the JVM,
    because this is the highest rate between the JVM and Python
  * streaming read: the topic, a million records a micro-batch, dropped
  * replay: the files of the three stopped nodes, in order into parquet; compared with the plan for Spark alone: the
    records of all three replicas, ``dropDuplicates`` by (term, index), ``orderBy`` position

For each of them except the overhead the processor time for 1 MB of values (of input for the replay) is printed too, of
the nodes, Spark's Python workers and the JVM, over all measured rounds. ``--only`` measures one of them; the sink
always runs, because it fills the topic. ``--floor`` also measures sources and sinks in Python that contain none of
viewstamp's code (``benchmarks/spark_floor.py``). Their ratio to the peer is the highest that is possible here.

Expected: the sink reaches a fifth to a half of the parquet sink, because everything is written and checked three times,
on the processors that Spark also uses. The batch read reaches half of ``mapInArrow``: it copies nothing into Arrow's
columns, but nodes and workers send and receive on the same processors. The replay reads the headers of each replica and
the records of one, and does not sort.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from benchmarks.processor_time import GROUPS, processor_seconds
from benchmarks.report import print_json, print_table
from benchmarks.spark_floor import SINKS, SOURCES, register, running_peer
from viewstamp.bench.cluster import own_directory
from viewstamp.bench.conditions import conditions
from viewstamp.errors import RequestError
from viewstamp.local.cluster import LocalCluster
from viewstamp.spark import session

_BYTES = 256
_TOPIC = "bench"
_WARM = "warm"
"""The topic of the records that are not measured."""
_WAIT_SECONDS = 60.0
_TINY_BATCHES = 20
_GOALS = {
    "sink": "60 MB/s, 0.7 x parquet",
    "overhead": "100 ms",
    "batch read": "400 MB/s, 0.6 x mapInArrow",
    "streaming read": "200 MB/s",
    "replay": "150 MB/s, 3.5 x",
}

Figures = dict[str, Any]


class _IdleWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        pass


class _Idle(DataSource):
    """A sink that does nothing, so that its time is Spark's own for a sink in Python."""

    @classmethod
    def name(cls) -> str:
        return "idle"

    def streamWriter(self, schema: Any, overwrite: bool) -> _IdleWriter:  # noqa: N802  # Spark's name
        return _IdleWriter()


class Bench:
    """The measurements, with one Spark session and one cluster."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self.options = options
        self.directory = directory
        self.spark = session("viewstamp-bench", cores=2, **{"spark.driver.memory": "4g"})
        self.spark.dataSource.register(_Idle)
        settings = {"wal.cached_bytes": str(options.cached_bytes)} if options.cached_bytes else None
        self.cluster = LocalCluster.open_or_create(str(directory / "cluster"), 3, settings)
        self.bytes_a_batch = options.records * _BYTES
        self._queries = 0
        self._peer: tuple[int, int] | None = None
        """The process id and the port of the peer of the floors; None = they are not measured."""
        self._processor_ms: dict[str, dict[str, float]] = {}

    def run(self) -> Figures:
        """Measure everything and return the figures; the cluster is stopped before the replay."""
        stack = ExitStack()
        try:
            if self.options.floor:
                register(self.spark)
                self._peer = stack.enter_context(running_peer())
            asyncio.run(self._start())
            self._make_files()
            found: Figures = {"sink": self._sink()}
            others = {
                "overhead": self._overhead,
                "batch read": self._batch_read,
                "streaming read": self._streaming_read,
            }
            for name, measure in others.items():
                if self.options.only in (name, None):
                    found[name] = measure()
            if self.options.only in ("replay", None):
                asyncio.run(self.cluster.stop(_WAIT_SECONDS))
                found["replay"] = self._replay()
            found["processor_ms_per_mb"] = {
                name: {group: row[group] / row["mb"] for group in row if group != "mb"}
                for name, row in self._processor_ms.items()
            }
        finally:
            stack.close()
            asyncio.run(self._kill())
            self.spark.stop()
        return found

    async def _start(self) -> None:
        self.cluster.spawn_missing()
        await self.cluster.wait_running(self.cluster.nodes.values(), _WAIT_SECONDS)
        async with self.cluster.target.connect() as client:
            await client.create_topic(_TOPIC)
            await client.create_topic(_WARM)
            await client.create_topic("tiny")
            receipt = await client.append("tiny", b"one")
            assert receipt.durability == "majority, synced", receipt

    async def _kill(self) -> None:
        for node in self.cluster.nodes.values():
            await node.kill()

    def _make_files(self) -> None:
        """Write two files for each micro-batch, so that two tasks share it. Each value is 8 random bytes, repeated."""
        for name, records, batches in (("large", self.options.records, self.options.rounds + 1), ("tiny", 10, 21)):
            for batch in range(batches):
                frame = self.spark.range(batch * records, (batch + 1) * records, numPartitions=2)
                value = "unhex(repeat(lpad(hex(xxhash64(id)), 16, '0'), 32)) AS value"
                (
                    frame.selectExpr(value)
                    .write.option("compression", "none")
                    .option("parquet.enable.dictionary", "false")
                    .mode("append")
                    .parquet(str(self.directory / name / f"{batch:03}"))
                )

    # Writing.

    def _stream(self, files: str, batches: int, begin: Callable[[Any], Any]) -> list[float]:
        """Run a stream over files, a directory for each micro-batch; return the seconds of each except the first."""
        self._queries += 1
        checkpoint = str(self.directory / f"checkpoint-{self._queries}")
        seconds = []
        rows = self.spark.readStream.schema("value binary").option("maxFilesPerTrigger", 2)
        rows = rows.option("recursiveFileLookup", "true").option("latestFirst", "false")
        query = (
            begin(rows.parquet(str(self.directory / files)).writeStream)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        for progress in query.recentProgress:
            if progress.numInputRows:
                seconds.append(progress.durationMs["triggerExecution"] / 1000)
        assert len(seconds) == batches, f"{len(seconds)} micro-batches, {batches} expected"
        return seconds[1:]

    def _to_topic(self, topic: str) -> Callable[[Any], Any]:
        addresses = ",".join(self.cluster.target.addresses)
        return lambda stream: stream.format("viewstamp").option("cluster", addresses).option("topic", topic)

    def _sink(self) -> Figures:
        """Write the files to each sink twice; the first time is not measured, because the JVM still compiles then."""
        batches = self.options.rounds + 1
        total = batches * self.bytes_a_batch
        names = ["sink", "parquet file sink", *(SINKS if self._peer is not None else ())]
        for name in names:
            self._stream("large", batches, self._to_sink(name, _WARM))
        rates = {}
        for name in names:
            with self._processor(name, total):
                rates[name] = self.bytes_a_batch / median(self._stream("large", batches, self._to_sink(name, _TOPIC)))
        found = self._rates(rates.pop("sink"), rates.pop("parquet file sink"), "parquet file sink")
        return {**found, "floors_mb_per_second": {name: rate / 1e6 for name, rate in rates.items()}}

    def _to_sink(self, name: str, topic: str) -> Callable[[Any], Any]:
        """Return what begins a stream to a sink: the topic, or a directory that is named after it, or a floor."""
        path = str(self.directory / f"parquet-{topic}")
        if name == "sink":
            return self._to_topic(topic)
        if name in SINKS:
            port = self._port(name)
            return lambda stream: stream.format(name).option("port", port)
        return lambda stream: stream.format("parquet").option("compression", "none").option("path", path)

    def _overhead(self) -> Figures:
        ours = median(self._stream("tiny", _TINY_BATCHES + 1, self._to_topic("tiny")))
        idle = median(self._stream("tiny", _TINY_BATCHES + 1, lambda stream: stream.format("idle")))
        noop = median(self._stream("tiny", _TINY_BATCHES + 1, lambda stream: stream.format("noop")))
        return {
            "ms": (ours - idle) * 1000,
            "over_noop_ms": (ours - noop) * 1000,
            "batch_ms": ours * 1000,
            "idle_batch_ms": idle * 1000,
            "noop_batch_ms": noop * 1000,
        }

    # Reading.

    def _reader(self, reader: Any) -> Any:
        return (
            reader.format("viewstamp")
            .option("cluster", ",".join(self.cluster.target.addresses))
            .option("topic", _TOPIC)
            .option("columns", "value")
        )

    def _batch_read(self) -> Figures:
        total = self.bytes_a_batch * (self.options.rounds + 1)
        records = self.options.records * (self.options.rounds + 1)

        def count(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            found = sum(batch.num_rows for batch in batches)
            yield pa.RecordBatch.from_pydict({"n": [found]})

        def drop() -> None:
            self._reader(self.spark.read).load().write.format("noop").mode("overwrite").save()

        def tally() -> None:
            found = self._reader(self.spark.read).load().count()
            assert found == records, f"{found} records, {records} were written"

        def ceiling() -> None:
            rows = self.spark.range(records, numPartitions=2).selectExpr(f"unhex(repeat('ab', {_BYTES})) AS value")
            rows.mapInArrow(count, "n long").collect()

        floors = self._floor_reads(records)
        seconds = self._in_turns({"dropped": drop, "counted": tally, "mapInArrow": ceiling, **floors}, total)
        found = self._rates(total / seconds["dropped"], total / seconds["mapInArrow"], "mapInArrow count")
        found["floors_mb_per_second"] = {name: total / seconds[name] / 1e6 for name in floors}
        return {**found, "counted_mb_per_second": total / seconds["counted"] / 1e6}

    def _floor_reads(self, records: int) -> dict[str, Callable[[], None]]:
        """Return the reads of the floors: as many records and tasks as the topic has. {} = floors are not measured."""
        if self._peer is None:
            return {}
        tasks = self._reader(self.spark.read).load().rdd.getNumPartitions()

        def drop(name: str) -> Callable[[], None]:
            reader = self.spark.read.format(name).options(rows=records, tasks=tasks, port=self._port(name))
            return lambda: reader.load().write.format("noop").mode("overwrite").save()

        return {name: drop(name) for name in SOURCES}

    def _port(self, floor: str) -> int:
        """Return the port of the peer if this floor uses it, else 0."""
        assert self._peer is not None, "the floors are measured"
        return self._peer[1] if floor in ("floor-socket", "floor-send") else 0

    def _streaming_read(self) -> Figures:
        checkpoint = str(self.directory / "checkpoint-read")
        with self._processor("streaming read", self.bytes_a_batch * (self.options.rounds + 1)):
            query = (
                self._reader(self.spark.readStream)
                .option("maxRecordsPerTrigger", self.options.records)
                .load()
                .writeStream.format("noop")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        seconds = [p.durationMs["triggerExecution"] / 1000 for p in query.recentProgress if p.numInputRows]
        return {"mb_per_second": self.bytes_a_batch / median(seconds[1:]) / 1e6}

    # The files alone.

    def _replay(self) -> Figures:
        directories = [node.directory for node in self.cluster.nodes.values()]
        files = [path for each in directories for path in Path(each, "wal").glob("*.segment")]
        total = sum(path.stat().st_size for path in files)
        target = str(self.directory / "replayed")

        def chain() -> None:
            frame = self.spark.read.format("viewstamp-wal").option("topic", _TOPIC).load(directories)
            frame.write.mode("overwrite").option("compression", "none").parquet(target)

        def shuffle() -> None:
            alone = [
                self.spark.read.format("viewstamp-wal").option("topic", _TOPIC).option("unsafe", "true").load(each)
                for each in directories
            ]
            frame = alone[0].union(alone[1]).union(alone[2]).dropDuplicates(["term", "index"]).orderBy("position")
            frame.write.mode("overwrite").option("compression", "none").parquet(target)

        seconds = self._in_turns({"chain": chain, "shuffle": shuffle}, total, rounds=2)
        return self._rates(total / seconds["chain"], total / seconds["shuffle"], "dropDuplicates + orderBy")

    # Inside.

    @contextmanager
    def _processor(self, name: str, size: int) -> Iterator[None]:
        """Add the processor time of the block, which handles ``size`` bytes, to that of the row ``name``."""
        nodes = {pid for node in self.cluster.nodes.values() if (pid := node.pid())}
        if self._peer is not None:
            nodes.add(self._peer[0])
        before = processor_seconds(nodes)
        yield
        after = processor_seconds(nodes)
        row = self._processor_ms.setdefault(name, {"mb": 0.0} | dict.fromkeys(before, 0.0))
        row["mb"] += size / 1e6
        for group, seconds in before.items():
            row[group] += (after[group] - seconds) * 1000

    def _in_turns(self, works: dict[str, Callable[[], None]], size: int, rounds: int = 0) -> dict[str, float]:
        """Run each once unmeasured, then all in turns; return the median seconds of each. ``size`` is in bytes."""
        for work in works.values():
            work()
        seconds: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(rounds or self.options.rounds):
            for name, work in works.items():
                with self._processor(name, size):
                    started = time.perf_counter()
                    work()
                    seconds[name].append(time.perf_counter() - started)
        return {name: median(each) for name, each in seconds.items()}

    @staticmethod
    def _rates(ours: float, theirs: float, peer: str) -> Figures:
        return {
            "mb_per_second": ours / 1e6,
            "peer": peer,
            "peer_mb_per_second": theirs / 1e6,
            "ratio": ours / theirs,
        }


def show(result: Figures) -> None:
    """Print the result as a table."""
    print(__doc__)
    rows: list[list[object]] = []
    for name, goal in _GOALS.items():
        if name not in result:
            continue
        each = result[name]
        if "ms" in each:
            idle = f"{each['idle_batch_ms']:.0f} ms a batch"
            rows.append([name, f"{each['ms']:.0f} ms", "a Python sink that does nothing", idle, "", goal])
            rows.append(
                ["", f"{each['over_noop_ms']:.0f} ms", "noop", f"{each['noop_batch_ms']:.0f} ms a batch", "", ""]
            )
            continue
        peer = f"{each['peer_mb_per_second']:.0f} MB/s" if "peer" in each else ""
        ratio = f"{each['ratio']:.2f}" if "ratio" in each else ""
        rows.append([name, f"{each['mb_per_second']:.0f} MB/s", each.get("peer", ""), peer, ratio, goal])
        for floor, rate in each.get("floors_mb_per_second", {}).items():
            rows.append(["", "", floor, f"{rate:.0f} MB/s", f"{rate / each['peer_mb_per_second']:.2f}", ""])
    print_table("Spark", ["", "viewstamp", "peer", "", "ratio", "goal"], rows)
    times = [
        [name, *(f"{each[group]:.1f}" for group in GROUPS)]
        for name, each in result["processor_ms_per_mb"].items()
        if each
    ]
    print_table("Processor time in ms for 1 MB", ["", *GROUPS], times)
    print(", ".join(f"{key}: {value}" for key, value in result["conditions"].items()))


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(prog="benchmarks.spark", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000, help="records a micro-batch")
    parser.add_argument("--rounds", type=int, default=3, help="number of times that each is measured")
    parser.add_argument("--only", choices=list(_GOALS), help="measure this and the sink, which fills the topic")
    parser.add_argument("--floor", action="store_true", help="measure sources and sinks without viewstamp's code too")
    parser.add_argument("--cached-bytes", type=int, default=0, help="[wal] cached_bytes of the nodes; 0 = no bound")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    if options.records < 1000 or options.rounds < 1:
        raise RequestError("too few records or rounds to measure", remedy="use at least 1000 records and one round")
    with own_directory(Path("viewstamp-data")) as directory:
        found = {"conditions": conditions(directory), "durability": "majority, synced"}
        result = {**found, **Bench(options, directory).run()}
    print_json(result) if options.output == "json" else show(result)


if __name__ == "__main__":
    main()
