"""The writers: tasks stage rows, and the driver commits them.

A batch is (sink, batch number). Its tasks stage rows, each under an attempt of its own, and the driver commits the
attempts of the tasks that Spark counts. Tasks that failed, or that ran twice, send no message, so no commit names them.

A task learns its batch from the properties of its job, and the driver from the messages of the tasks, because the
writer with which Spark commits a micro-batch has no task and no query.

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

from viewstamp.client.aio import Client
from viewstamp.client.sinks import Sealed, Sink, SinkCommit
from viewstamp.errors import AccessDeniedError, ConfigError, RequestError, UnknownTopicError, ViewstampError
from viewstamp.spark.blocking_client import BlockingClient, blocking_client
from viewstamp.spark.options import SinkOptions
from viewstamp.spark.records import table_options
from viewstamp.spark.remedies import remedies
from viewstamp.spark.rows import Rows, check_schema, value_columns
from viewstamp.spark.typed_rows import check_written, topic_schema
from viewstamp.spark.worker_objects import freeze_once

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

__all__ = ["BatchWriter", "Staged", "StreamWriter", "batch_writer", "stream_writer"]

_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"
_BATCH_ID = "streaming.sql.batchId"
"""Local properties that Spark sets for the jobs of a query. There is none for the run id, but it is the job group."""
_EXECUTION_ID = "spark.sql.execution.id"
_ROOT_ID = "spark.sql.execution.root.id"
"""Local properties of every job of Spark SQL; they differ if an execution is a part of another one."""

_COMMITTER = "pyspark.sql.worker.python_streaming_sink_runner"
"""The module of the process in which Spark commits and aborts micro-batches, with new writers. They are not checked
again, because an abort would wait for a cluster that does not answer, fail, and hide the reason for the abort."""

_DAY = 86_400.0
_TRANSACTION = "transaction"
"""The owner of batches that no query writes."""
_BLOCK_BYTES = 1024 * 1024
"""Bytes of one staged batch; less if the cluster's record limit is less, because a batch may always hold one record."""
_PLANNING_SECONDS = 60.0
_CLEANING_SECONDS = 5.0
"""Seconds for clean-up. Without it the cluster deletes the staged records later."""

_known_topics: set[tuple[str, str]] = set()
"""(cluster, topic) that this process has found to exist. It is not asked again, because topics are not deleted."""

_allowed: set[tuple[str, str, str]] = set()
"""(cluster, sink, token) that this process has found to be allowed. A right that is lost later fails in the tasks."""

_log = logging.getLogger("viewstamp.spark")


class Target(NamedTuple):
    """A batch of a sink, with its owner and run."""

    sink: str
    owner: str
    run: str
    batch: int


@dataclass(slots=True)
class Staged(WriterCommitMessage):
    """The message of a task to the driver. ``sealed`` is None if nothing was staged.

    That is the case for a partition without rows, and for a batch that is already committed.
    """

    target: Target
    partition: int
    sealed: Sealed | None


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. Spark creates one for the tasks of each, and another one for its commit."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[RecordBatch]) -> Staged:
        """Stage the rows of one partition; runs in a task.

        Raises:
          RequestError: a row cannot be a record, and the message names it; or the topic does not exist.
          FencedError: a newer run writes this query, or the sink belongs to another query.
          UnavailableError, OutcomeUnknownError: the cluster did not answer in time; a retry is safe.
        """
        query, run, batch = map(_local_property, (_QUERY_ID, _RUN_ID, _BATCH_ID))
        assert query is not None, "a micro-batch belongs to a query"
        assert run is not None, "a query runs in a job group"
        assert batch is not None, "a micro-batch has a number"
        target = Target(self._options.sink_id or query, query, run, int(batch))
        return _stage(self._options, self._schema, target, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Make the staged rows readable. A batch that is already committed stays unchanged.

        Raises:
          FencedError: a newer run writes this query.
          StagingError: the staged rows are gone. Nothing was written; the batch has to run again.
          UnavailableError, OutcomeUnknownError: as for :meth:`write`.
        """
        staged = _only_staged(messages)
        assert all(message.target.batch == batchId for message in staged), f"not all are of batch {batchId}: {staged}"
        _commit(self._options, staged)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Delete the staged rows if a task has reported. Spark also calls this after a commit, which is harmless."""
        _abort(self._options, next((message.target for message in _only_staged(messages)), None))


class BatchWriter(DataSourceArrowWriter):
    """Writes one batch. Its tasks and its commit use copies of one writer."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._run = uuid.uuid4().hex

    def write(self, iterator: Iterator[RecordBatch]) -> Staged:
        """Stage the rows of one partition; runs in a task. Raises as :meth:`StreamWriter.write` does.

        Raises:
          ConfigError: Spark creates a table with these rows. Spark then removes the table.
        """
        with remedies():
            _check_creates_no_table(self._schema)
        return _stage(self._options, self._schema, self._target(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the staged rows readable. Raises as :meth:`StreamWriter.commit` does."""
        staged = _only_staged(messages)
        if _commit(self._options, staged):
            self._forget()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the staged rows."""
        _abort(self._options, next((message.target for message in _only_staged(messages)), self._target()))
        self._forget()

    @property
    def sink(self) -> str:
        """The name of the sink of this write."""
        return self._target().sink

    def _target(self) -> Target:
        """Return the target. Tasks know it; the driver knows it except for the query of ``foreachBatch``."""
        options = self._options
        if options.batch_id is None:
            return Target(options.txn_id or f"write-{self._run}", _TRANSACTION, self._run, 0)
        query, run = _local_property(_QUERY_ID), _local_property(_RUN_ID)
        return Target(options.sink_id, query or "", run if query and run else self._run, options.batch_id)

    def _forget(self) -> None:
        """Forget a sink that was created for this write only.

        If this fails, or if a task that Spark gave up begins an attempt later, the cluster forgets the sink after a
        day, and deletes the staged rows of such a task by their age.
        """
        if not self._options.txn_id and self._options.batch_id is None:
            with _only_helps("forgetting the sink of this write"), contextlib.suppress(RequestError):
                # A RequestError means that the sink does not exist, because no task began an attempt, or that this
                # takes the right to administer. Then the cluster forgets the sink after a day.
                link = blocking_client(self._options.cluster, self._options.tls, self._options.token_file)
                link.run(link.client.forget_sink, self.sink, timeout=_CLEANING_SECONDS)


def stream_writer(options: SinkOptions, schema: StructType) -> StreamWriter:
    """Return a writer for micro-batches, after a check of the topic and the schema; runs on the driver.

    Raises:
      UnknownTopicError: the topic does not exist.
      AccessDeniedError: the token has no right on the topic, or on the sink if an option names it.
      ConfigError: rows of this schema cannot be records.
      UnavailableError: the cluster does not answer.
    """
    if _COMMITTER not in sys.modules:
        _check(options, schema, options.sink_id)
    return StreamWriter(options, schema)


def batch_writer(options: SinkOptions, schema: StructType) -> BatchWriter:
    """Return a writer for one batch, with the checks of :func:`stream_writer`."""
    writer = BatchWriter(options, schema)
    _check(options, schema, writer.sink)
    return writer


def _check(options: SinkOptions, schema: StructType, sink: str) -> None:
    with remedies():
        check_schema(schema, options.topic, options.format, options.filled_in)
    link = blocking_client(options.cluster, options.tls, options.token_file)
    link.reach(options.connect_seconds)
    known = options.cluster, options.topic
    if options.topic and known not in _known_topics:
        link.run(_find_topic, link.client, options.topic)
        _known_topics.add(known)
    if options.format == "rows":
        with remedies():
            check_written(value_columns(schema, "rows"), link.run(topic_schema, link.client, options.topic))
    allowed = options.cluster, sink, link.token
    if sink and link.token and allowed not in _allowed:
        # An ABORT of a run without attempts has no effect. Without this check each task would fail several times.
        try:
            link.run(link.client.sink(sink).abort, 0, timeout=_PLANNING_SECONDS)
        except AccessDeniedError as error:
            if not (options.sink_id or options.txn_id):
                error.add_note(
                    "each write without a name has a sink of its own: give txnId, or the role append:write-*"
                )
            raise
        if options.sink_id:
            _allowed.add(allowed)


async def _find_topic(client: Client, topic: str) -> None:
    """Check that a topic exists, with or without streams. Raises UnknownTopicError."""
    try:
        await client.describe_topic(topic, timeout=_PLANNING_SECONDS)
    except UnknownTopicError as error:
        try:
            await client.describe_spread_topic(topic, timeout=_PLANNING_SECONDS)
        except UnknownTopicError:
            raise error from None  # Its remedy is that of most users.


def _stage(options: SinkOptions, schema: StructType, target: Target, iterator: Iterator[RecordBatch]) -> Staged:
    """Stage and seal one partition, under a name that no other attempt has."""
    freeze_once()
    context = TaskContext.get()
    assert context is not None, "rows are written in tasks"
    partition = context.partitionId()
    name = f"{context.taskAttemptId()}:{partition}:{uuid.uuid4().hex}"
    link = blocking_client(options.cluster, options.tls, options.token_file)
    with remedies():
        first = next(iterator, None)
        if first is None:
            return Staged(target, partition, None)
        attempt = link.run(_sink(link, options, target).begin, target.batch, name)
        if isinstance(attempt, SinkCommit):
            return Staged(target, partition, None)
        try:
            limit = link.client.record_bytes_max
            required = link.run(_required, link.client, options)
            rows = Rows(
                schema,
                options.topic,
                format=options.format,
                record_bytes_max=limit,
                block_bytes=min(_BLOCK_BYTES, limit),
                partition=partition,
                filled_in=options.filled_in,
                required=required,
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


async def _required(client: Client, options: SinkOptions) -> list[str]:
    """Return the columns that have to have a value in each row. A schema only becomes wider, so none is added later."""
    if options.format != "rows":
        return []
    return [field.name for field in (await topic_schema(client, options.topic)).fields if not field.is_nullable]


def _check_creates_no_table(schema: StructType) -> None:
    """Refuse the rows of ``saveAsTable``, or of CREATE TABLE ... AS SELECT, that creates a table; runs in a task.

    Spark keeps no options of such a table, so it could not be read. Spark calls the writer as for ``save()``. The only
    difference is that the write is a part of another execution, which creates the table. A write in ``foreachBatch``
    is a part of another execution too, but it belongs to a query.
    """
    is_nested = _local_property(_EXECUTION_ID) != _local_property(_ROOT_ID)
    if is_nested and _local_property(_QUERY_ID) is None and table_options(schema) is None:
        raise ConfigError(
            "these rows would create a table of which Spark keeps no options, so it could not be read; nothing was"
            " written",
            remedy="create the table first, without columns: CREATE TABLE ... USING viewstamp OPTIONS (cluster '...',"
            " topic '...'); then INSERT INTO it, or append with saveAsTable. Without a table: .save()",
        )


def _commit(options: SinkOptions, staged: Sequence[Staged]) -> bool:
    """Commit the sealed attempts in the order of their partitions; return whether there were any.

    If no task had a row, or if all found the batch committed, there is nothing to do. A missing commit is the same as
    an empty batch, also when Spark runs it again, because batch numbers only have to increase.
    """
    sealed = [message.sealed for message in sorted(staged, key=_partition) if message.sealed is not None]
    if sealed:
        target = staged[0].target
        link = blocking_client(options.cluster, options.tls, options.token_file)
        link.run(_sink(link, options, target).commit, target.batch, sealed)
    return bool(sealed)


def _abort(options: SinkOptions, target: Target | None) -> None:
    """Delete the staged rows of a batch that is not committed.

    Spark has no messages of failed tasks. If all failed, the target is unknown, and the rows are deleted by the next
    run, by the next commit, or by their age.
    """
    if target is not None:
        with _only_helps("dropping what was staged"):
            link = blocking_client(options.cluster, options.tls, options.token_file)
            link.run(_sink(link, options, target).abort, target.batch, timeout=_CLEANING_SECONDS)


def _sink(link: BlockingClient, options: SinkOptions, target: Target) -> Sink:
    return link.client.sink(
        target.sink,
        owner=target.owner,
        run=target.run,
        reset=options.sink_reset,
        forget_seconds=_forget_seconds(options, target),
    )


def _forget_seconds(options: SinkOptions, target: Target) -> float:
    """Return after how many seconds the cluster forgets the sink; only sinks of a single batch are forgotten."""
    if target.owner != _TRANSACTION:
        return math.inf
    if not options.txn_id:
        return _DAY
    return options.txn_keep_days * _DAY or math.inf


def _only_staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """Return the messages of the tasks that succeeded."""
    return [message for message in messages if isinstance(message, Staged)]


def _partition(message: Staged) -> int:
    return message.partition


def _local_property(name: str) -> str | None:
    """Return a property of this task's job; None = it is not set, or this is not a task."""
    context = TaskContext.get()
    return context.getLocalProperty(name) if context is not None else None


@contextlib.contextmanager
def _only_helps(what: str) -> Iterator[None]:
    """Log an error and continue, because it would hide the reason of a failure, or make a durable batch look failed."""
    try:
        yield
    except ViewstampError as error:
        _log.warning("%s failed: %s", what, error)
