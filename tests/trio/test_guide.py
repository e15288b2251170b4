"""The guide is followed to the letter, and the package's promises about its imports hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guides.guide import run_guide
from tests.processes import none_left

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_guide_works_as_shown(tmp_path: Path) -> None:
    with none_left(tmp_path):
        assert run_guide(ROOT / "docs" / "guides" / "trio.md", tmp_path) == 5
