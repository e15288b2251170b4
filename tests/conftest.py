"""Settings for every test: signals that work, and a time limit (``timeout`` in pyproject.toml)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator
from importlib.util import find_spec

import pytest

from tests.signals import restore_interrupt
from tests.steady import SteadyLoop

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
    # The plugin for users makes pytest rewrite the assertions of the whole product, which takes each worker 8 s.
    config.pluginmanager.rewrite_hook._must_rewrite.discard("viewstamp")
    if os.environ.get("VIEWSTAMP_SOAK") and config.getoption("timeout", None) is None:
        config.option.timeout = LONG_SECONDS


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run three workers on two processors, because many tests wait for an election, a process or a disk."""
    return max(2, (os.cpu_count() or 1) * 3 // 2)


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run each test on a loop whose timers a busy machine does not expire early; a directory may choose another."""
    return {"steady": SteadyLoop}


@pytest.hookimpl(wrapper=True)  # xdist reads the groups; markers that a directory's conftest adds count for the rest.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Skip tests marked ``spark`` if Spark, and Arrow with it, is not installed; divide the others among the workers.

    The slow groups come first: if one that takes a minute came last, the other workers would wait for it.
    """
    is_worker = hasattr(config, "workerinput")
    for item in items if is_worker else ():
        if group := _group_of(item):
            item.add_marker(pytest.mark.xdist_group(group))
    yield
    if find_spec("pyspark") is None:
        for item in items:
            if item.get_closest_marker("spark"):
                item.add_marker(pytest.mark.skip(reason="needs the extra `spark`"))
    if is_worker:
        slow = {_group_of(item) or item.nodeid for item in items if _is_slow(item)}
        items.sort(key=lambda item: (_rank(item), (_group_of(item) or item.nodeid) not in slow))


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None or item.get_closest_marker("spark") is not None


def _group_of(item: pytest.Item) -> str:
    """Return the name of a test's group. A group runs in one worker, test by test; "" = the test is alone.

    All tests with a Spark session are one group, because each worker would start a session. The tests of a file are a
    group if they share a fixture or are quick, because each group costs a message. Slow tests are alone.
    """
    if "spark" in getattr(item, "fixturenames", ()):
        return "spark"
    fixtures = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    shares = any(each.scope != "function" and each.baseid for defined in fixtures for each in defined)
    return "" if item.get_closest_marker("slow") is not None and not shares else item.nodeid.split("::")[0]


def _rank(item: pytest.Item) -> int:
    """Return 0 for a test that takes long even for a slow one, 1 for others."""
    return 1


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))
