"""Keeps the objects of a Spark worker's imports out of its cycle collector."""

from __future__ import annotations

import gc
import os

__all__ = ["freeze_once"]

_frozen: set[int] = set()
"""Ids of processes, because Spark forks its workers."""


def freeze_once() -> None:
    """Freeze the objects of this process, if it is a Spark worker that runs a task, and has not done so before.

    Spark's daemon collects garbage after each task of a worker that it uses again, and so looks at all objects of all
    imported modules each time. Frozen objects are left out of that. All objects that are alive at this moment are
    frozen, those of the user's functions too. Reference counting still frees them, but the collector does not look at
    them again: a cycle among them that becomes garbage later stays until the worker ends. Cycles that are garbage
    already are collected first.

    Does nothing in the driver, in the workers that plan, in a process of a user, and in workers that run only one task.
    """
    from pyspark import TaskContext

    if os.getpid() in _frozen or TaskContext.get() is None or "SPARK_REUSE_WORKER" not in os.environ:
        return
    _frozen.add(os.getpid())
    gc.collect()
    gc.freeze()
