"""What every test runs under: signals that work, and a time limit (``timeout`` in pyproject.toml)."""

from __future__ import annotations

import os

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


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))
