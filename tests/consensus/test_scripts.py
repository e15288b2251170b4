"""The core's behaviour as text: each script in ``tests/scripts/consensus`` shows one behaviour."""

from pathlib import Path

import pytest

from tests.consensus.script import Script
from tests.datadriven import compare, parse

SCRIPTS = sorted((Path(__file__).parents[1] / "scripts" / "consensus").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_output_of_a_script_is_as_recorded(path: Path, rewrite: bool) -> None:
    compare(path, Script().run, rewrite=rewrite)


def test_every_script_begins_with_a_comment() -> None:
    assert len(SCRIPTS) >= 10
    for path in SCRIPTS:
        first = parse(path.read_text(encoding="utf-8"))[0]
        assert first.text[0].startswith("# "), path.name
