"""The guides, followed to the letter: what they show is what happens."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guides.guide import pattern, run_guide
from viewstamp.cli.local import LocalCluster

ROOT = Path(__file__).parents[2]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """An empty directory with the examples in it; whatever a guide leaves running there is ended."""
    for example in (ROOT / "examples").glob("*.py"):
        shutil.copy(example, tmp_path)
    yield tmp_path
    for file in tmp_path.glob("*/n1.toml"):
        for node in LocalCluster.open(file.parent).nodes.values():
            asyncio.run(node.kill())


@pytest.mark.slow
@pytest.mark.parametrize("guide", ["actors", "embedding", "snapshots"])
def test_a_guide_does_what_it_says(guide: str, directory: Path) -> None:
    assert run_guide(ROOT / "docs" / "guides" / f"{guide}.md", directory) > 3


def test_what_a_guide_expects_may_leave_out_words_and_lines() -> None:
    import re

    assert re.fullmatch(pattern("a  b ...\n...\nlast"), "a    b c d\nany\nthing\nlast\n")
    assert re.fullmatch(pattern("a\n...\nlast"), "a\nlast\n")
    assert not re.fullmatch(pattern("a\nlast"), "a\nany\nlast\n")
    assert not re.fullmatch(pattern("a.c"), "abc\n")
    assert re.fullmatch(pattern(""), "")
