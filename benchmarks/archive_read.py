"""How fast does Spark read archived records, compared with the nodes and with plain scans of the same files?

Three nodes run in processes of their own. A topic is archived as a whole into a directory; records have 256 bytes that
cannot be compressed. Two tasks run at once, all on one machine. Each figure is the median of the rounds, in turns:

  * nodes: ``spark.read.format("viewstamp")``, dropped
  * archive: the same with the option ``archive``, so from the files of the runs; all columns are verified
  * spark parquet: ``spark.read.parquet`` of the same files, in the JVM, without verification
  * pyarrow, two threads or one: ``ParquetFile.iter_batches`` of the same files in this process, without verification
  * verified, one thread: ``RunReader``, which is what a task of ``archive`` does, without Spark

Expected: the archive is read at the rate at which Python tasks pass Arrow batches to Spark, or that of the verified
scan on two processors, whichever is less; the nodes are slower, because they use the same processors.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pyarrow
from pyarrow import parquet

from benchmarks.arrow_read import BATCH, BYTES, TOPIC, fill
from benchmarks.report import print_json, print_table
from viewstamp.archive.run_file import RunReader
from viewstamp.bench.cluster import own_directory
from viewstamp.bench.conditions import conditions
from viewstamp.errors import RequestError
from viewstamp.local.cluster import LocalCluster
from viewstamp.spark import session


def _scan(files: list[Path], threads: bool) -> None:
    pyarrow.set_cpu_count(2 if threads else 1)
    for file in files:
        for _ in parquet.ParquetFile(file).iter_batches(use_threads=threads):
            pass


def _verify(files: list[Path]) -> None:
    for file in files:
        with open(file, "rb") as source:
            reader = RunReader(source, file.name)
            for _ in reader.read(reader.footer.first, reader.footer.end):
                pass


def measure(records: int, rounds: int, directory: Path) -> dict[str, object]:
    """Return the MB of values per second of each, and the conditions."""
    store = directory / "archive"
    spark = session("viewstamp-bench", cores=2, **{"spark.driver.memory": "4g"})
    cluster = LocalCluster.open_or_create(str(directory / "cluster"), 3, {"archive.directory": str(store)})
    try:
        runs = asyncio.run(fill(cluster, records))
        files = sorted(store.glob("*/*.parquet"))
        options = {"cluster": ",".join(cluster.target.addresses), "topic": TOPIC}

        def read(**more: str) -> None:
            frame = spark.read.format("viewstamp").options(**options, **more).load()
            frame.write.format("noop").mode("overwrite").save()

        def count() -> None:
            found = spark.read.format("viewstamp").options(**options, archive=str(store)).load().count()
            assert found == records, f"{found} records, {records} were written"

        works: dict[str, Callable[[], None]] = {
            "nodes": read,
            "archive": lambda: read(archive=str(store)),
            "archive, value only": lambda: read(archive=str(store), columns="value"),
            "spark parquet": lambda: spark.read.parquet(*map(str, files)).write.format("noop").mode("overwrite").save(),
            "pyarrow, two threads": lambda: _scan(files, threads=True),
            "pyarrow, one thread": lambda: _scan(files, threads=False),
            "verified, one thread": lambda: _verify(files),
        }
        count()
        for work in works.values():
            work()
        seconds: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(rounds):
            for name, work in works.items():
                started = time.perf_counter()
                work()
                seconds[name].append(time.perf_counter() - started)
        total = records * BYTES / 1e6
        size = sum(file.stat().st_size for file in files)
        return {
            "rates": {name: total / median(each) for name, each in seconds.items()},
            "megabytes": total,
            "runs": runs,
            "file_megabytes": size / 1e6,
            "load": os.getloadavg()[0],
        }
    finally:
        for node in cluster.nodes.values():
            asyncio.run(node.kill())
        spark.stop()


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(prog="benchmarks.archive_read", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="number of times that each is measured")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    if options.records < BATCH or options.rounds < 1:
        raise RequestError("too few records or rounds to measure", remedy=f"use {BATCH} records or more")
    with own_directory(Path("viewstamp-data")) as directory:
        result = {"conditions": conditions(directory), **measure(options.records, options.rounds, directory)}
    if options.output == "json":
        print_json(result)
        return
    print(__doc__)
    rates = result["rates"]
    assert isinstance(rates, dict)
    print_table("Reading archived records", ["", "MB/s"], [[name, f"{rate:.0f}"] for name, rate in rates.items()])
    print({key: value for key, value in result.items() if key != "rates"})


if __name__ == "__main__":
    main()
