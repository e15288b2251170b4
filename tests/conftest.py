"""Settings for every test: signals that work, and a time limit (``timeout`` in pyproject.toml)."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

from tests.signals import restore_interrupt

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
    if os.environ.get("VIEWSTAMP_SOAK") and config.getoption("timeout", None) is None:
        config.option.timeout = LONG_SECONDS


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run three workers on two processors, because many tests wait for an election, a process or a disk."""
    return max(2, (os.cpu_count() or 1) * 3 // 2)


@pytest.hookimpl(trylast=True)  # Markers that a directory's conftest adds count, too.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests marked ``spark`` if Spark, and Arrow with it, is not installed; run slow files first.

    A worker of xdist takes whole files. If a file that takes a minute came last, the other workers would wait for it.
    """
    if find_spec("pyspark") is None:
        for item in items:
            if item.get_closest_marker("spark"):
                item.add_marker(pytest.mark.skip(reason="needs the extra `spark`"))
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("spark")}
        items.sort(key=lambda item: item.path not in slow)


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))
