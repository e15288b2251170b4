"""The guides are followed to the letter: their commands print the shown output."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guides.guide import pattern, run_guide, without_numbers
from tests.processes import none_left

pytestmark = pytest.mark.timeout(600)  # A page starts up to a hundred processes.

ROOT = Path(__file__).parents[2]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """An empty directory with the examples; processes that a guide leaves running there are ended."""
    for example in (ROOT / "examples").glob("*.py"):
        shutil.copy(example, tmp_path)
    with none_left(tmp_path):
        yield tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    "guide", ["actors", "embedding", pytest.param("replay", marks=pytest.mark.spark), "sinks", "snapshots", "topics"]
)
def test_a_guide_works_as_shown(guide: str, directory: Path) -> None:
    assert run_guide(ROOT / "docs" / "guides" / f"{guide}.md", directory) > 3


@pytest.mark.skipif(not os.environ.get("VIEWSTAMP_SOAK"), reason="VIEWSTAMP_SOAK=1 runs all")
@pytest.mark.slow
@pytest.mark.spark
def test_the_pages_on_spark_work_as_shown(directory: Path) -> None:
    """The job is pasted and run twice; then each row is there once."""
    assert run_guide(ROOT / "docs" / "spark.md", directory) > 5


@pytest.mark.slow
def test_the_readme_works_as_shown(directory: Path) -> None:
    """The page shows the output of one run, so numbers may differ: ports, processes, times."""
    assert run_guide(ROOT / "README.md", directory, any_numbers=True) > 10


@pytest.mark.slow
def test_the_tutorial_works_as_shown(directory: Path) -> None:
    assert run_guide(ROOT / "docs" / "tutorial.md", directory) > 10


def test_numbers_may_differ_if_a_page_shows_the_output_of_one_run() -> None:
    shown = "cluster 71c35dd1b1909ad2e4013c81ba9d22e6 leader n1, 1,009 of 16.0 MiB at 127.0.0.1:16838, bad"
    assert without_numbers(shown) == "cluster 0 leader n0, 0 of 0 MiB at 0:0, bad"


def test_an_expected_output_may_omit_words_and_lines() -> None:
    assert re.fullmatch(pattern("a  b ...\n...\nlast"), "a    b c d\nany\nthing\nlast\n")
    assert re.fullmatch(pattern("a\n...\nlast"), "a\nlast\n")
    assert not re.fullmatch(pattern("a\nlast"), "a\nany\nlast\n")
    assert not re.fullmatch(pattern("a.c"), "abc\n")
    assert re.fullmatch(pattern(""), "")
