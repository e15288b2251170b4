"""Spark's daemon, which forks the Python workers, with the modules that each worker would import.

A worker of a small query spends most of its time on imports. Spark's own daemon imports nothing, because some packages
start threads, which a fork does not copy. This one keeps them from that, and refuses to fork otherwise.

Only the tasks of the session that the tests share use it. The workers that plan have Spark's daemon, because Spark lets
nobody choose theirs. So have the demo, the standalone cluster and the jobs in processes of their own, as users do.
"""

from __future__ import annotations

import gc
import importlib
import os

from pyspark.daemon import manager

MODULES = (
    "pandas",
    "pyarrow",
    "pyspark.worker",
    "viewstamp.spark.data_source",
    "viewstamp.spark.sink",
    "viewstamp.spark.stream_source",
    "viewstamp.spark.wal_source",
)
THREADS = "/proc/self/task"
"""A directory for each thread, also for those that are not Python's; only Linux has it."""


def main() -> None:
    """Import the modules, and fork workers until Spark closes stdin."""
    # The libraries read both once, when they are imported.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
    for name in MODULES:
        importlib.import_module(name)
    assert not os.path.isdir(THREADS) or len(os.listdir(THREADS)) == 1, "a module has started a thread"
    # Else each worker would look at all of these objects after each task.
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
