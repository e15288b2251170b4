"""Runs commands in this process, against a cluster of processes in ``directory``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from viewstamp.cli import main


@pytest.fixture
def run(directory: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command against the cluster; return its JSON output (a list for ``read``), or its error.

    The file of the test defines the fixture ``directory``.
    """

    def run(*arguments: str, code: int = 0) -> Any:
        capfd.readouterr()
        assert main.run([*arguments, "--dir", str(directory), "--output", "json"]) == code, capfd.readouterr().err
        captured = capfd.readouterr()
        lines = [json.loads(line) for line in (captured.err if code > 1 else captured.out).splitlines()]
        return lines if arguments[0] == "read" and not code else lines[-1]

    return run
