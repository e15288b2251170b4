"""Planted mistakes in the sources of Spark."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tests.mutants.mutants import Mutant, everywhere, patched

__all__ = ["SPARK_MUTANTS"]


def begin_found_topics_late() -> AbstractContextManager[None]:
    """A stream that began at the latest records begins topics that it finds later at their end."""
    from viewstamp.spark import topic_pattern  # Needs Spark, as the tests that find the mistake.

    return everywhere(topic_pattern.found_later, lambda options: options)


def wait_for_ever() -> AbstractContextManager[None]:
    """A micro-batch with too few records waits, however long."""
    from viewstamp.spark.trigger_delay import TriggerDelay

    return patched(TriggerDelay, holds=lambda self, waiting, now: 0 < waiting < self._least)


def read_dropped_stream_runs_as_empty() -> AbstractContextManager[None]:
    """The run of a stream that cannot be read gives no records and no error."""
    from viewstamp.spark import archived_streams

    return patched(archived_streams, _explain=lambda options, part, position, error: None)


def read_runs_of_streams_at_all_times() -> AbstractContextManager[None]:
    """A time that was pushed does not reduce the records of the run of a stream."""
    from viewstamp.spark import archived_streams

    return patched(archived_streams, _at=lambda table, times: table)


def freeze_in_any_process() -> AbstractContextManager[None]:
    """A read freezes the objects of every process, also of a user's."""
    import gc

    from viewstamp.spark import worker_objects

    return everywhere(worker_objects.freeze_once, gc.freeze)


SPARK_MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant("begin-found-topics-late", "a stream lacks records", begin_found_topics_late, rule="§5a"),
        Mutant("hold-micro-batches", "records are never read", wait_for_ever, rule="§5a"),
        Mutant("lose-stream-runs", "lost records are no error", read_dropped_stream_runs_as_empty, rule="§5a"),
        Mutant("freeze-in-any-process", "a user's garbage stays in memory", freeze_in_any_process, rule="§5a"),
        Mutant("runs-at-all-times", "records of other times are read", read_runs_of_streams_at_all_times, rule="§5a"),
    )
}
"""The mutants by name."""
