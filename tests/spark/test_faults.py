"""Kills, errors and repeats while a stream is written: every row is written once, and no batch in part.

A reader follows the topic all the time, and must never see a part of a micro-batch. The log is on three real
nodes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.spark.cluster import RunningCluster, running_cluster
from tests.spark.fault_job import BATCHES, ROW_BYTES, ROWS, SETTINGS, FaultJob, prepare
from tests.spark.jobs import finish, put_file, read_files, start
from viewstamp.client import Client, SinkInfo
from viewstamp.errors import FencedError, StagingError, ViewstampError

pytestmark = pytest.mark.slow

AT_LENGTH = pytest.mark.skipif(not os.environ.get("VIEWSTAMP_SOAK"), reason="VIEWSTAMP_SOAK=1 runs all")
ATTEMPTS_MAX = 4
"""Number of attempts at a task in a session of the tests."""
SECONDS_MAX = 300
PADDING = "." * ROW_BYTES
REPOSITORY = Path(__file__).parents[2]


def values(batch: int) -> list[str]:
    return [f"{batch}-{row} {PADDING}" for row in range(ROWS)]


EXPECTED = {value.encode() for batch in range(BATCHES) for value in values(batch)}


class Reader:
    """Follows a topic in a thread, and keeps the records."""

    def __init__(self, cluster: RunningCluster, topic: str) -> None:
        self.values: list[bytes] = []
        self.partial: list[int] = []
        """Positions at which the topic ended in the middle of a batch."""
        self.passes = 0
        self._cluster = cluster
        self._topic = topic
        self._is_over = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._running = self._pool.submit(self._run)

    def stop(self) -> None:
        self._is_over.set()
        self._pool.shutdown()
        self._running.result()

    def _run(self) -> None:
        while not self._is_over.wait(0.02):
            with contextlib.suppress(ViewstampError):
                self.values += self._cluster.run(self._read_on)
            self.passes += 1
            if len(self.values) % ROWS:
                self.partial.append(len(self.values))

    async def _read_on(self, client: Client) -> list[bytes]:
        return [record.value async for record in client.read(self._topic, len(self.values) + 1)]


class Trial:
    """A job, its cluster, and the conditions that must always hold."""

    def __init__(self, job: FaultJob, cluster: RunningCluster, topic: str) -> None:
        self.job = job
        self.cluster = cluster
        self.topic = topic

    @property
    def visible(self) -> int:
        """The number of rows in complete batches."""
        count = self.cluster.describe(self.topic).last_position
        assert count % ROWS == 0, f"{count} rows are visible, and that is no number of whole batches"
        return count // ROWS

    @property
    def sink(self) -> SinkInfo:
        (query,) = self.cluster.run(lambda client: client.list_sinks())
        return query

    def start_and_hold(self, where: str, how: str = "pause") -> StreamingQuery:
        """Start the job, and return when it waits at this place of the second batch."""
        query = self.job.start(where, how)
        eventually(Path(f"{self.job.mark}.waits").exists)
        return query

    def go_on(self) -> None:
        """Let the job continue."""
        Path(f"{self.job.mark}.go").touch()

    def fail(self, query: StreamingQuery, error: str) -> None:
        """Wait until the query fails with this text."""
        with pytest.raises(PySparkException) as caught:
            finish(query)
        assert error in str(caught.value)

    def end(self, *, partitions: int = 2) -> None:
        """Start the job again from its checkpoint, and wait for its end."""
        finish(self.job.start(partitions=partitions))
        assert self.visible == BATCHES


@contextmanager
def trial(spark: SparkSession, cluster: RunningCluster, directory: Path) -> Iterator[Trial]:
    """Run a trial; at its end every row is there once, no staged row is left, and no part of a batch was ever seen."""
    topic = f"faults-{directory.name}"
    cluster.create_topic(topic)
    for batch in range(BATCHES):
        put_file(directory / "files", batch, values(batch))
    tried = Trial(FaultJob(spark, cluster.addresses, topic, directory), cluster, topic)
    reader = Reader(cluster, topic)
    try:
        yield tried
        tried_values = cluster.values(topic)
    finally:
        reader.stop()
    assert len(tried_values) == BATCHES * ROWS
    assert digest(set(tried_values)) == digest(EXPECTED)
    assert tried.sink.batch == BATCHES - 1
    eventually(lambda: (tried.sink.attempts, tried.sink.bytes) == (0, 0))
    assert reader.partial == []
    assert reader.values == tried_values[: len(reader.values)]
    assert reader.passes > 3


def digest(rows: set[bytes]) -> str:
    return hashlib.sha256(b"\n".join(sorted(rows))).hexdigest()


def eventually(look: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def pieces(spark: SparkSession) -> Iterator[None]:
    """Make Spark pass rows in pieces, and use the faulty sink."""
    prepare(spark)
    before = {name: spark.conf.get(name) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture
def trials(spark: SparkSession, tmp_path: Path) -> Iterator[Trial]:
    """A trial with a cluster of its own."""
    with running_cluster() as cluster, trial(spark, cluster, tmp_path) as tried:
        yield tried


def run_and_be_killed(tried: Trial, where: str) -> None:
    """Run the job in a driver of its own, whose JVM is killed by SIGKILL in the second batch."""
    command = [sys.executable, "-m", "tests.spark.fault_job"]
    arguments = [tried.cluster.addresses, tried.topic, str(tried.job.directory), where]
    done = subprocess.run(
        [*command, *arguments], cwd=REPOSITORY, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode != 0
    assert Path(f"{tried.job.mark}.0").exists(), done.stderr


# The eight required faults.


@AT_LENGTH  # make demo-spark, which the suite runs, kills it there as well.
def test_spark_is_killed_in_the_middle_of_a_write(trials: Trial) -> None:
    run_and_be_killed(trials, "staging")
    assert trials.visible == 1
    assert trials.sink.bytes > 0, "what was staged is left behind"
    trials.end()


@AT_LENGTH
def test_a_restart_after_a_death_in_a_write_partitions_the_batch_otherwise(trials: Trial) -> None:
    """Other tasks now provide the rows that a dead task had staged, so only whole batches may be committed."""
    trials.fail(trials.job.start("staging", "exit", times=ATTEMPTS_MAX), "crashed")
    assert trials.visible == 1
    trials.end(partitions=3)


@AT_LENGTH
def test_the_commit_fails_before_the_log_has_it(trials: Trial) -> None:
    trials.fail(trials.job.start("before-commit"), "AccidentError: before-commit in batch 1")
    assert trials.visible == 1
    assert trials.sink.bytes == 0, "the abort has dropped what was sealed"
    trials.end()


def test_spark_is_killed_when_the_log_has_the_commit_and_spark_has_not(trials: Trial) -> None:
    run_and_be_killed(trials, "after-commit")
    assert trials.visible == 2
    assert trials.sink.batch == 1
    trials.end()


def test_the_commit_fails_when_the_log_has_it(trials: Trial) -> None:
    """Spark then aborts a batch that is committed."""
    trials.fail(trials.job.start("after-commit"), "AccidentError: after-commit in batch 1")
    assert trials.visible == 2
    trials.end()


@AT_LENGTH
def test_a_task_fails_as_often_as_it_is_tried(trials: Trial) -> None:
    trials.fail(trials.job.start("staging", times=ATTEMPTS_MAX), "AccidentError: staging in batch 1")
    assert trials.visible == 1
    assert trials.sink.bytes == 0, "each has dropped what it staged"
    trials.end()


@AT_LENGTH
def test_a_task_fails_when_it_has_sealed_and_is_tried_again(trials: Trial) -> None:
    """There are two sealed attempts at one partition. Only the one whose message Spark has is committed."""
    finish(trials.job.start("sealed"))
    assert Path(f"{trials.job.mark}.0").exists()


def test_a_worker_dies_in_the_middle_of_a_write_and_the_task_is_tried_again(trials: Trial) -> None:
    finish(trials.job.start("staging", "exit"))
    assert Path(f"{trials.job.mark}.0").exists()


# Further faults.


def test_a_driver_that_has_been_replaced_cannot_commit(trials: Trial) -> None:
    """It has sealed all rows and sleeps; another run of the query begins the same batch; then it wakes up."""
    query = trials.start_and_hold("before-commit")
    assert trials.sink.sealed == 2
    older = trials.sink
    trials.cluster.run(lambda client: client.sink(older.name, owner=older.owner, run="the next").begin(1))
    assert trials.sink.sealed == 0, "the newer run has dropped what the older one sealed"
    trials.go_on()
    trials.fail(query, FencedError.__name__)
    assert trials.visible == 1
    trials.end()


@AT_LENGTH
def test_a_driver_that_has_been_replaced_cannot_stage(trials: Trial) -> None:
    """Its task waits with one piece staged; the other run writes and commits the batch; no row is added to it."""
    query = trials.start_and_hold("staging")
    older = trials.sink

    async def write(client: Client) -> None:
        sink = client.sink(older.name, owner=older.owner, run="the next")
        attempt = await sink.begin(1)
        await attempt.stage_records(trials.topic, [value.encode() for value in values(1)])
        await sink.commit(1, [await attempt.seal()])

    trials.cluster.run(write)
    assert trials.visible == 2
    trials.go_on()
    trials.fail(query, FencedError.__name__)
    assert trials.visible == 2
    trials.end()


def test_the_answer_to_a_commit_is_lost_with_the_leader(trials: Trial) -> None:
    """The commit is in the log, but its driver has no answer: it asks the next leader, which confirms the commit."""
    query = trials.job.start("before-commit", "deaf")
    eventually(Path(f"{trials.job.mark}.sent").exists)
    eventually(lambda: trials.sink.batch == 1)
    trials.cluster.stop(trials.cluster.leader)
    finish(query)
    assert trials.visible == BATCHES


@AT_LENGTH
def test_the_leader_is_lost_while_rows_are_staged(trials: Trial) -> None:
    query = trials.start_and_hold("staging")
    trials.cluster.stop(trials.cluster.leader)
    trials.go_on()
    finish(query)
    assert trials.visible == BATCHES


@AT_LENGTH
def test_an_abort_that_fails_does_not_hide_why_there_was_one(trials: Trial) -> None:
    """Without a majority no staged row can be deleted; the user has to see the original error, without a long wait."""
    query = trials.start_and_hold("before-commit", "late")
    nodes = [trials.cluster.leader]
    trials.cluster.stop(nodes[0])
    nodes.append(trials.cluster.leader)
    trials.cluster.stop(nodes[1])
    trials.go_on()
    started = time.monotonic()
    trials.fail(query, "AccidentError: before-commit in batch 1")
    assert time.monotonic() - started < 30, "it does not wait long for what only helps"
    for node in nodes:
        trials.cluster.start(node)
    trials.end()


@AT_LENGTH
def test_the_leader_is_lost_before_the_commit_reaches_it(trials: Trial) -> None:
    query = trials.start_and_hold("before-commit")
    trials.cluster.stop(trials.cluster.leader)
    trials.go_on()
    finish(query)
    assert trials.visible == BATCHES


def test_all_nodes_are_stopped_between_the_seals_and_the_commit(trials: Trial) -> None:
    """Sealed rows are durable, and the query waits until a majority answers again."""
    query = trials.start_and_hold("before-commit")
    assert trials.sink.sealed == 2
    nodes = trials.cluster.nodes
    for node in nodes:
        trials.cluster.stop(node)
    trials.go_on()
    trials.cluster.start(*nodes)
    finish(query)
    assert trials.visible == BATCHES


@AT_LENGTH
def test_what_was_sealed_is_gone_when_its_commit_comes(trials: Trial) -> None:
    """Sealed rows are dropped if the attempt has expired, or a user has deleted the sink. Then the commit fails."""
    query = trials.start_and_hold("before-commit")
    sink = trials.sink
    trials.cluster.run(lambda client: client.sink(sink.name, owner=sink.owner, run=sink.run).abort(1))
    trials.go_on()
    trials.fail(query, StagingError.__name__)
    assert trials.visible == 1
    trials.end()


@AT_LENGTH
def test_a_query_is_stopped_in_the_middle_of_a_write(trials: Trial) -> None:
    query = trials.start_and_hold("staging")
    query.stop()
    assert trials.visible == 1
    trials.end()


def test_a_new_checkpoint_is_another_query_which_writes_all_there_is(
    spark: SparkSession, cluster: RunningCluster, topic: str, tmp_path: Path
) -> None:
    """Without a sinkId no name connects it to the former query, so no batch is skipped: all rows are there twice."""
    put_file(tmp_path / "files", 0, ["a", "b"])
    for checkpoint in ("first", "second"):
        rows = read_files(spark, tmp_path / "files")
        finish(start(rows, tmp_path / checkpoint, cluster.addresses, topic=topic))
    assert cluster.values(topic) == [b"a", b"b"] * 2
