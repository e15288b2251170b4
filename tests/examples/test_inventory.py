"""``examples/inventory.py`` sells no piece twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from viewstamp.config import create_cluster, node_file

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "inventory.py"


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_no_piece_too_many_is_sold_while_the_leader_leaves() -> None:
    shown = run()
    assert shown.startswith("1,000 customers, 600 pieces, the leader n")
    assert shown.endswith(" gone: 600 sold, 0 left\n")


def test_member_of_a_cluster_keeps_its_stock_over_a_restart(tmp_path: Path) -> None:
    """Ten pieces arrive and ten are sold at each start, so none is left over and none is counted twice."""
    create_cluster(str(tmp_path), 1)
    for _ in range(2):
        assert run(node_file(str(tmp_path), "n1")) == "n1 sold 10\n"
