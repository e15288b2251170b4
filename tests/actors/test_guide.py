"""``docs/guides/actor-framework.md``, followed to the letter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guides.guide import run_guide

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "actor-framework.md"


@pytest.mark.slow
def test_the_guide_works_as_shown(tmp_path: Path) -> None:
    assert run_guide(GUIDE, tmp_path) == 3
