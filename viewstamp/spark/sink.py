"""The writers: what a task stages, and what the driver commits.

A batch is (sink, batch number). Its tasks stage rows, each under an attempt of its own, and the driver commits the
attempts whose tasks Spark counts. Tasks that failed, or that ran twice, are in no message, so no commit names them.

Which batch it is, a task knows from what Spark passes along with every job, and the driver from the tasks' messages:
where it commits a micro-batch, Spark gives it a writer that knows of no task and of no query.

| written by     | sink               | owner           | run           | batch number |
| -------------- | ------------------ | --------------- | ------------- | ------------ |
| writeStream    | sinkId or query id | query id        | run id        | batch id     |
| foreachBatch   | sinkId             | query id        | run id        | batchId      |
| write + txnId  | txnId              | ``transaction`` | one per write | 0            |
| write          | one per write      | ``transaction`` | one per write | 0            |
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from viewstamp.client.sinks import Sealed, Sink, SinkCommit
from viewstamp.errors import RequestError, ViewstampError
from viewstamp.spark.blocking_client import blocking_client
from viewstamp.spark.options import SinkOptions
from viewstamp.spark.remedies import remedies
from viewstamp.spark.rows import Rows, check_schema

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

__all__ = ["BatchWriter", "Staged", "StreamWriter", "batch_writer", "stream_writer"]

_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"
_BATCH_ID = "streaming.sql.batchId"
"""Local properties that Spark gives to the jobs of a query. The run id has no name of its own: it is the job group."""

_COMMITTER = "pyspark.sql.worker.python_streaming_sink_runner"
"""What Spark runs in the process that commits and aborts micro-batches, with new writers. These are not checked again:
an abort would wait for a cluster that does not answer, and fail, and hide why there is one."""

_DAY = 86_400.0
_TRANSACTION = "transaction"
"""The owner of what no query writes."""
_BLOCK_BYTES = 1024 * 1024
"""What goes into one staged batch. A batch may always hold what one record may, so where that is less, it is less."""
_PLANNING_SECONDS = 60.0
_CLEANING_SECONDS = 5.0
"""For what only helps: what it would have dropped is dropped later in any case."""

_known_topics: set[tuple[str, str]] = set()
"""(cluster, topic) that this process has asked for: a planner lives for many batches, and a topic stays."""

_log = logging.getLogger("viewstamp.spark")


class Target(NamedTuple):
    """Which batch of which sink, and on whose behalf."""

    sink: str
    owner: str
    run: str
    batch: int


@dataclass(slots=True)
class Staged(WriterCommitMessage):
    """What a task tells the driver. ``sealed`` is None where nothing was staged.

    That is so for a partition without rows, and for a batch that is committed already.
    """

    target: Target
    partition: int
    sealed: Sealed | None


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. Spark makes one for the tasks of each, and another one for its commit."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[RecordBatch]) -> Staged:
        """Stage the rows of one partition; runs in a task.

        Raises:
          RequestError: a row is no record, and the message says which; or no such topic.
          FencedError: a newer run writes this query, or the sink belongs to another one.
          UnavailableError, OutcomeUnknownError: the cluster did not answer in time; again is harmless.
        """
        query, run, batch = map(_local_property, (_QUERY_ID, _RUN_ID, _BATCH_ID))
        assert query is not None, "a micro-batch belongs to a query"
        assert run is not None, "a query runs in a job group"
        assert batch is not None, "a micro-batch has a number"
        target = Target(self._options.sink_id or query, query, run, int(batch))
        return _stage(self._options, self._schema, target, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Make what the tasks staged readable; a batch that is committed already is left as it is.

        Raises:
          FencedError: a newer run writes this query.
          StagingError: what was staged is not there any more. Nothing was written; the batch has to run again.
          UnavailableError, OutcomeUnknownError: as for :meth:`write`.
        """
        staged = _only_staged(messages)
        assert all(message.target.batch == batchId for message in staged), f"not all are of batch {batchId}: {staged}"
        _commit(self._options, staged)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Drop what was staged, as far as a task has said for what. Spark calls this also after a commit: no harm."""
        _abort(self._options, next((message.target for message in _only_staged(messages)), None))


class BatchWriter(DataSourceArrowWriter):
    """Writes one batch. Its tasks and its commit have copies of one writer."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._run = uuid.uuid4().hex

    def write(self, iterator: Iterator[RecordBatch]) -> Staged:
        """Stage the rows of one partition; runs in a task. Raises as :meth:`StreamWriter.write` does."""
        return _stage(self._options, self._schema, self._target(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make what the tasks staged readable. Raises as :meth:`StreamWriter.commit` does."""
        staged = _only_staged(messages)
        if _commit(self._options, staged):
            self._forget()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what was staged."""
        _abort(self._options, next((message.target for message in _only_staged(messages)), self._target()))
        self._forget()

    def _target(self) -> Target:
        """Return where this goes: known to a task, and, but for the query of ``foreachBatch``, to the driver."""
        options = self._options
        if options.batch_id is None:
            return Target(options.txn_id or f"write-{self._run}", _TRANSACTION, self._run, 0)
        query, run = _local_property(_QUERY_ID), _local_property(_RUN_ID)
        return Target(options.sink_id, query or "", run if query and run else self._run, options.batch_id)

    def _forget(self) -> None:
        """Forget a sink that was made for this write alone, and that nobody will ask for again.

        If this fails, or a copy of a task that Spark gave up begins an attempt after it, the cluster forgets the sink
        after a day, and drops by its age what such a task has staged.
        """
        if not self._options.txn_id and self._options.batch_id is None:
            with _only_helps("forgetting the sink of this write"), contextlib.suppress(RequestError):
                # A RequestError means that there is no such sink: no task came as far as beginning an attempt.
                link = blocking_client(self._options.cluster)
                link.run(link.client.forget_sink, self._target().sink, timeout=_CLEANING_SECONDS)


def stream_writer(options: SinkOptions, schema: StructType) -> StreamWriter:
    """Return a writer for micro-batches, once the topic and the schema are known to be right; runs on the driver.

    Raises:
      UnknownTopicError: the cluster has no such topic.
      ConfigError: rows of this schema are no records.
      UnavailableError: the cluster does not answer.
    """
    if _COMMITTER not in sys.modules:
        _check(options, schema)
    return StreamWriter(options, schema)


def batch_writer(options: SinkOptions, schema: StructType) -> BatchWriter:
    """Return a writer for one batch, checked as by :func:`stream_writer`."""
    _check(options, schema)
    return BatchWriter(options, schema)


def _check(options: SinkOptions, schema: StructType) -> None:
    with remedies():
        check_schema(schema, options.topic, options.format, options.filled_in)
    link = blocking_client(options.cluster)
    link.reach(options.connect_seconds)
    known = options.cluster, options.topic
    if options.topic and known not in _known_topics:
        link.run(link.client.describe_topic, options.topic, timeout=_PLANNING_SECONDS)
        _known_topics.add(known)


def _stage(options: SinkOptions, schema: StructType, target: Target, iterator: Iterator[RecordBatch]) -> Staged:
    """Stage and seal one partition, under a name that no other attempt at it has."""
    context = TaskContext.get()
    assert context is not None, "rows are written in tasks"
    partition = context.partitionId()
    name = f"{context.taskAttemptId()}:{partition}:{uuid.uuid4().hex}"
    link = blocking_client(options.cluster)
    with remedies():
        first = next(iterator, None)
        if first is None:
            return Staged(target, partition, None)
        attempt = link.run(_sink(options, target).begin, target.batch, name)
        if isinstance(attempt, SinkCommit):
            return Staged(target, partition, None)
        try:
            limit = link.client.record_bytes_max
            rows = Rows(
                schema,
                options.topic,
                format=options.format,
                record_bytes_max=limit,
                block_bytes=min(_BLOCK_BYTES, limit),
                partition=partition,
                filled_in=options.filled_in,
            )
            for batch in itertools.chain([first], iterator):
                for topic, columns in rows.push(batch):
                    link.run(attempt.stage, topic, columns)
            for topic, columns in rows.flush():
                link.run(attempt.stage, topic, columns)
            return Staged(target, partition, link.run(attempt.seal))
        except Exception:
            with _only_helps("dropping what a task staged"):
                link.run(attempt.abort, timeout=_CLEANING_SECONDS)
            raise


def _commit(options: SinkOptions, staged: Sequence[Staged]) -> bool:
    """Commit what the tasks sealed, in the order of their partitions; return whether there was anything.

    Where no task had a row, or all found the batch committed, there is nothing to do: numbers only have to rise, so a
    batch that no commit names is as good as an empty one, also when Spark runs it again.
    """
    sealed = [message.sealed for message in sorted(staged, key=_partition) if message.sealed is not None]
    if sealed:
        target = staged[0].target
        blocking_client(options.cluster).run(_sink(options, target).commit, target.batch, sealed)
    return bool(sealed)


def _abort(options: SinkOptions, target: Target | None) -> None:
    """Drop what was staged for a batch that is not committed.

    Of tasks that failed Spark has no message. Where all did, nobody says what to drop; the next run, the next
    commit, or time does.
    """
    if target is not None:
        with _only_helps("dropping what was staged"):
            blocking_client(options.cluster).run(_sink(options, target).abort, target.batch, timeout=_CLEANING_SECONDS)


def _sink(options: SinkOptions, target: Target) -> Sink:
    return blocking_client(options.cluster).client.sink(
        target.sink,
        owner=target.owner,
        run=target.run,
        reset=options.sink_reset,
        forget_seconds=_forget_seconds(options, target),
    )


def _forget_seconds(options: SinkOptions, target: Target) -> float:
    """Return after how many seconds the cluster forgets the sink: one that writes a single batch, never a query's."""
    if target.owner != _TRANSACTION:
        return math.inf
    if not options.txn_id:
        return _DAY
    return options.txn_keep_days * _DAY or math.inf


def _only_staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """Return the messages of the tasks that ended well."""
    return [message for message in messages if isinstance(message, Staged)]


def _partition(message: Staged) -> int:
    return message.partition


def _local_property(name: str) -> str | None:
    """Return what Spark says of the job of this task; None where it says nothing, or where this is no task."""
    context = TaskContext.get()
    return context.getLocalProperty(name) if context is not None else None


@contextlib.contextmanager
def _only_helps(what: str) -> Iterator[None]:
    """Log an error and go on: it would hide why a batch failed, or call one failed that is durable."""
    try:
        yield
    except ViewstampError as error:
        _log.warning("%s failed: %s", what, error)
