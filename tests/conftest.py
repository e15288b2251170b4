"""Settings for every test: signals that work, and a time limit (``timeout`` in pyproject.toml)."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.quick_processes import REAL, QuickPopen
from tests.signals import restore_interrupt
from tests.steady import SteadyLoop

LONGEST = (
    "spark",
    "tests/integration/test_demo_spark.py",
    "tests/sim/test_run.py",
    "tests/spark/test_standalone.py",
    "tests/cli/test_operating.py",
    "tests/guides/",
    "tests/formats/test_rolling_upgrade.py",
    "sources",
    "tests/spark/test_java.py",
    "tests/docs/",
    "tests/local/",
    "tests/backup/",
    "tests/soak/",
    "tests/integration/",
    "tests/cli/",
    "tests/sim/",
)
"""The groups, and the beginnings of their names, that take a worker longest; they come first, in this order."""
LONG_SECONDS = 3600
"""Time limit of one test in the long form of the suite (VIEWSTAMP_SOAK=1)."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the output of the datadriven scripts anew instead of comparing it; read the diff",
    )


def pytest_configure(config: pytest.Config) -> None:
    restore_interrupt()
    # A busy machine must not fail a property: no time limit for an example, nor for making one.
    settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("untimed")
    if "PYTEST_CURRENT_TEST" not in os.environ:
        gc.disable()  # Until :func:`pytest_collection_finish`: the objects of the collection are kept anyway.
        if sys.platform == "linux":
            subprocess.Popen = QuickPopen
    # The plugin for users makes pytest rewrite the assertions of the whole product, which takes each worker 8 s.
    config.pluginmanager.rewrite_hook._must_rewrite.discard("viewstamp")
    if os.environ.get("VIEWSTAMP_SOAK") and config.getoption("timeout", None) is None:
        config.option.timeout = LONG_SECONDS


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let this test start processes by a fork, or not."""
    QuickPopen.is_on = not item.nodeid.startswith(REAL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run two workers on each processor and two more, because a test often waits: for an election or a disk.

    With four workers, two processors were idle for a fifth of the time; six that wait independently of each other
    would leave 4 % idle. A worker takes 7 s of processor time for its collection.
    """
    return 2 * (os.cpu_count() or 1) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run each test on a loop whose timers a busy machine does not expire early; a directory may choose another."""
    return {"steady": SteadyLoop}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadgroup``, give the workers the groups of :func:`_group_of`, in the order of the collection."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group_of(nodeid)

    return Groups(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let each worker begin the collection at another directory, because pytest compiles a test file at its first use.

    In a fresh clone that takes 9 s of processor time. Workers that began at the same file would all compile each file;
    this way each compiles a part, and finds the byte code of the other parts.
    """
    report = yield
    worker: dict[str, Any] | None = getattr(collector.config, "workerinput", None)
    if worker is not None and collector.path == Path(__file__).parent and isinstance(collector, pytest.Directory):
        first = len(report.result) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        report.result = report.result[first:] + report.result[:first]
    return report


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exempt the objects of the collection from garbage collection.

    A worker has 300,000 of them, and each simulated world and each planted mutant calls ``gc.collect()``. With the
    exemption, 16 tests of mutants took 5 s of processor time instead of 12 s. The pytest that a mutant runs inside a
    test exempts nothing, because the objects of a broken world must be collected.

    Garbage is collected after 20,000 new objects, and not after 700, which takes a tenth of the processor time less. A
    process of a node has similar settings.
    """
    if "PYTEST_CURRENT_TEST" not in os.environ:
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    """Skip tests marked ``spark`` if Spark, and Arrow with it, is not installed; sort the others for the workers.

    The slow groups come first: if one that takes a minute came last, the other workers would wait for it.
    """
    items.sort(key=lambda item: item.path)  # All workers need the same list, wherever they began the collection.
    yield  # Markers that a directory's conftest adds count, too.
    if find_spec("pyspark") is None:
        for item in items:
            if item.get_closest_marker("spark"):
                item.add_marker(pytest.mark.skip(reason="needs the extra `spark`"))
    if hasattr(config, "workerinput"):
        slow = {_group_of(item.nodeid) for item in items if _is_slow(item)}
        items.sort(key=lambda item: (_rank(item.nodeid), _group_of(item.nodeid) not in slow))


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None or item.get_closest_marker("spark") is not None


def _group_of(nodeid: str) -> str:
    """Return the name of a test's group, whose tests run one after the other in one worker.

    The tests with a Spark session are one group, because each worker would start a session and warm up its JVM. So are
    those that look at the project's sources, because each worker would parse them. The tests of other files are a group
    if they share a fixture or are quick; those of files with slow tests are groups of one.
    """
    file = nodeid.partition("::")[0]
    text = _text_of(file)
    if file.startswith("tests/test_") and "sources import" in text:
        return "sources"
    if file.startswith("tests/spark/") and "SparkSession" in text:
        return "spark"
    return nodeid if "mark.slow" in text and "scope=" not in text else file


@cache
def _text_of(file: str) -> str:
    path = Path(__file__).parents[1] / file
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _rank(nodeid: str) -> int:
    """Return the place of a test's group in LONGEST; shorter ones come later."""
    name = _group_of(nodeid)
    return next((rank for rank, longest in enumerate(LONGEST) if name.startswith(longest)), len(LONGEST))


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))
