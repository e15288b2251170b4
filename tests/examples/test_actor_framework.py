"""``examples/actor_framework.py``: what it shows is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "actor_framework.py"


def test_every_price_is_told_though_the_server_hangs_up_and_no_faster_than_allowed() -> None:
    """Of 107 questions every 15th is lost, 7 of them; they are asked again, and each costs a worker its life."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    shown = re.fullmatch(
        r"100 prices, 590\.00 in all, for 107 questions\n"
        r"7 times the server hung up, and a worker was restarted\n"
        r"(\d+) questions a second\n",
        done.stdout,
    )
    assert shown is not None, done.stdout
    assert 0 < int(shown[1]) <= 215
