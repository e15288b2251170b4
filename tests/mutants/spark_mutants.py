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


SPARK_MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant("begin-found-topics-late", "a stream lacks records", begin_found_topics_late, rule="§5a"),
        Mutant("hold-micro-batches", "records are never read", wait_for_ever, rule="§5a"),
    )
}
"""The mutants by name."""
