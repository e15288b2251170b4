"""One session of Spark for all tests of this folder, and a cluster beside it.

A JVM takes ten seconds to start and a gigabyte of memory, so all tests share one. The session is made by ``session()``,
as for a user, with additional settings. A test that stops nodes takes ``running_cluster``; the others share one cluster
and have a topic each.

Each JVM has the options of ``tests/quick_java.py``, also in other processes that tests start. The shared session's
tasks run in Python workers from ``tests/spark/daemon.py``, which have imported what they need. The other sessions have
Spark's daemon, as users have.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.quick_java import QUICK_JAVA
from tests.spark.cluster import RunningCluster, SecuredCluster, running_cluster, secured_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


if find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]

os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK_JAVA)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/tests/spark/" in item.path.as_posix():
            item.add_marker("spark")
            item.add_marker(pytest.mark.timeout(600))  # On a busy machine the start of a worker takes ten seconds.


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which Spark stores what its user interface shows."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def spark(event_log: Path) -> Iterator[SparkSession]:
    """A session with two cores, in which a failed task is tried four times in all."""
    from viewstamp.spark import session

    conf = {
        "spark.python.daemon.module": "tests.spark.daemon",
        "spark.master": "local[2,4]",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": event_log.as_uri(),
        "spark.eventLog.compress": "false",
    }
    spark = session("tests", cores=2, **conf)
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[RunningCluster]:
    """Three nodes for all tests. No test stops one of them or changes a setting."""
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    """Three nodes with TLS that ask for tokens. After a test that stops nodes, all of them run again."""
    with secured_cluster(tmp_path_factory.mktemp("secured")) as cluster:
        yield cluster


_numbers = itertools.count(1)


@pytest.fixture
def new_topic(cluster: RunningCluster) -> Callable[[], str]:
    """Create a topic that no other test uses, and return its name."""

    def create() -> str:
        name = f"topic-{next(_numbers)}"
        cluster.create_topic(name)
        return name

    return create


@pytest.fixture
def topic(new_topic: Callable[[], str]) -> str:
    """A topic that no other test uses."""
    return new_topic()
