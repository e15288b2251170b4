"""What every test runs under: signals that work, and a time limit (``timeout`` in pyproject.toml)."""

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked ``spark`` where Spark, and Arrow with it, is not installed."""
    if find_spec("pyspark") is None:
        for item in items:
            if item.get_closest_marker("spark"):
                item.add_marker(pytest.mark.skip(reason="needs the extra `spark`"))


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))
