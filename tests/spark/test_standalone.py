"""A standalone cluster of Spark: the ways in which executors get the package, and lost or slow executors.

The nodes have TLS and ask for tokens, and Spark sends the certificate and the token to the executors.

One of these is part of the suite; ``VIEWSTAMP_SOAK=1`` runs all. Each starts a driver of its own, half a minute.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.spark.cluster import RunningCluster, SecuredCluster
from tests.spark.standalone import HOSTS, Standalone, make_environment, make_wheel, running_standalone
from tests.spark.standalone_job import BATCHES, ROWS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2 and /proc"),
    pytest.mark.timeout(600),  # Five Javas start; on a busy machine that takes minutes.
]

SOAK = bool(os.environ.get("VIEWSTAMP_SOAK"))
AT_LENGTH = pytest.mark.skipif(not SOAK, reason="VIEWSTAMP_SOAK=1 runs all")
WORKERS = HOSTS if SOAK else HOSTS[1:]
"""In the suite one worker, on another host than the driver's, because each worker and each executor is a Java."""
SECONDS_MAX = 300
JOB = Path(__file__).with_name("standalone_job.py")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("standalone")


@pytest.fixture(scope="module")
def standalone(directory: Path) -> Iterator[Standalone]:
    with running_standalone(directory, WORKERS) as standalone:
        yield standalone


@pytest.fixture(scope="module")
def wheel(directory: Path) -> Path:
    return make_wheel(directory / "viewstamp.zip")


@dataclass
class Delivery:
    """The way in which the executors get the package."""

    python: Path | str
    """The Python of the executors, and of the driver unless ``environment`` sets another."""
    conf: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    py_files: Sequence[Path] = ()


@pytest.fixture(scope="module")
def installed(directory: Path, wheel: Path) -> Delivery:
    """A wheel in the environment of the executors, and of the driver."""
    return Delivery(make_environment(directory / "environment", wheel))


@pytest.fixture(scope="module")
def archived(directory: Path, installed: Delivery) -> Delivery:
    """An archive of such an environment, unpacked by Spark beside each executor."""
    archive = shutil.make_archive(str(directory / "archive"), "gztar", directory / "environment")
    return Delivery(
        "./environment/bin/python",
        conf={"spark.archives": f"{archive}#environment"},
        environment={"PYSPARK_DRIVER_PYTHON": str(installed.python)},
    )


@pytest.fixture(scope="module")
def shipped(directory: Path, wheel: Path) -> Delivery:
    """The wheel as ``--py-files``, in an environment with its requirements and without the package."""
    return Delivery(make_environment(directory / "bare", None), py_files=[wheel])


class Job:
    """A driver that runs."""

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        self._process = process
        self.directory = directory

    def wait_for(self, file: str) -> str:
        """Wait until a task has written this file, and return its content."""
        path = self.directory / file
        deadline = time.monotonic() + SECONDS_MAX
        while not (path.exists() and path.read_text()):
            assert self._process.poll() is None, self._process.communicate()[0]
            assert time.monotonic() < deadline, f"{file} never came"
            time.sleep(0.05)
        return path.read_text()

    def result(self) -> dict[str, object]:
        output, _ = self._process.communicate(timeout=SECONDS_MAX)
        assert self._process.returncode == 0, output
        found: dict[str, object] = json.loads((self.directory / "result.json").read_text(encoding="utf-8"))
        return found


Start = Callable[..., Job]


@pytest.fixture
def cluster(secured: SecuredCluster) -> RunningCluster:
    return secured


@pytest.fixture
def start(standalone: Standalone, secured: SecuredCluster, topic: str, tmp_path: Path) -> Iterator[Start]:
    """Start the job; at the end, kill its remaining processes."""
    started: list[subprocess.Popen[str]] = []
    token = tmp_path / "job.token"
    token.write_text(secured.create_token(topic, f"append:{topic}", f"read:{topic}"), encoding="utf-8")
    files = {**secured.files(), "tokenFile": str(token)}
    options = {option: Path(file).name for option, file in files.items()}
    options |= {"cluster": secured.addresses, "topic": topic}

    def start(delivery: Delivery, seconds: int = 0, **conf: str) -> Job:
        process = standalone.submit(
            JOB,
            json.dumps(options),
            str(tmp_path),
            str(seconds),
            conf={
                "spark.files": ",".join(files.values()),
                **delivery.conf,
                **{name.replace("_", "."): value for name, value in conf.items()},
            },
            python=delivery.python,
            environment=delivery.environment,
            py_files=delivery.py_files,
            directory=tmp_path,
        )
        started.append(process)
        return Job(process, tmp_path)

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def check(cluster: RunningCluster, topic: str, job: Job) -> dict[str, object]:
    """Each row is in the topic once, and no staged record is left."""
    found = job.result()
    values = cluster.values(topic)
    assert (len(values), len(set(values))) == (BATCHES * ROWS, BATCHES * ROWS)
    sink = cluster.run(lambda client: client.describe_sink(topic))
    assert (sink.batch, sink.attempts, sink.bytes) == (BATCHES - 1, 0, 0)
    return found


def check_read(cluster: RunningCluster, topic: str, job: Job) -> dict[str, object]:
    """Each row is in the topic once, and a batch query and a stream have read it once."""
    found = check(cluster, topic, job)
    assert (found["count"], found["different"], found["streamed"]) == (BATCHES * ROWS,) * 3
    return found


def test_executor_is_lost_in_the_middle_of_a_write(
    start: Start, installed: Delivery, standalone: Standalone, cluster: RunningCluster, topic: str
) -> None:
    """Another executor repeats the task under another attempt; the rows that the lost one staged are deleted."""
    job = start(installed, seconds=SECONDS_MAX)
    executor = int(job.wait_for("attempt-1-0-0"))
    assert executor in standalone.executors()
    os.kill(executor, signal.SIGKILL)
    assert "/site-packages/" in str(check(cluster, topic, job)["package"])
    assert (job.directory / "attempt-1-0-1").exists()


@AT_LENGTH
def test_the_package_is_installed_where_executors_run(
    start: Start, installed: Delivery, cluster: RunningCluster, topic: str
) -> None:
    check_read(cluster, topic, start(installed))


@AT_LENGTH
def test_the_package_comes_in_an_archive_of_an_environment(
    start: Start, archived: Delivery, cluster: RunningCluster, topic: str
) -> None:
    check_read(cluster, topic, start(archived))


@AT_LENGTH
def test_the_package_comes_with_py_files(start: Start, shipped: Delivery, cluster: RunningCluster, topic: str) -> None:
    """The job calls register(spark), so that the files also reach the process that plans a streaming source."""
    assert "viewstamp.zip/" in str(check_read(cluster, topic, start(shipped))["package"])


@AT_LENGTH
def test_a_slow_task_is_overtaken_by_a_speculative_copy(
    start: Start, installed: Delivery, standalone: Standalone, cluster: RunningCluster, topic: str
) -> None:
    """Both have staged the same rows. The commit names the attempt that was sealed, and the other is deleted."""
    job = start(
        installed,
        seconds=SECONDS_MAX,
        spark_speculation="true",
        spark_speculation_interval="100ms",
        spark_speculation_multiplier="1.1",
        spark_speculation_quantile="0.1",
    )
    slow = int(job.wait_for("attempt-1-0-0"))
    copy = int(job.wait_for("attempt-1-0-1"))
    hosts = standalone.executors()
    assert hosts[slow] != hosts[copy], "Spark starts a copy on another host"
    check(cluster, topic, job)
