"""The guide, followed to the letter, and what the package promises of its imports."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.guides.guide import run_guide
from viewstamp.local.cluster import LocalCluster

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_guide_does_what_it_says(tmp_path: Path) -> None:
    try:
        assert run_guide(ROOT / "docs" / "guides" / "trio.md", tmp_path) == 5
    finally:
        for file in tmp_path.glob("three/n1.toml"):
            for node in LocalCluster.open(file.parent).nodes.values():
                asyncio.run(node.kill())
