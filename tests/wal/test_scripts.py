"""The log's behaviour as text: each script in ``tests/scripts/wal`` shows one behaviour, disk call by disk call."""

from pathlib import Path

import pytest

from tests.datadriven import compare, parse
from tests.wal.script import Script

SCRIPTS = sorted((Path(__file__).parents[1] / "scripts" / "wal").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_output_of_a_script_is_as_recorded(path: Path, rewrite: bool) -> None:
    compare(path, Script().run, rewrite=rewrite)


def test_every_script_begins_with_a_comment() -> None:
    assert len(SCRIPTS) >= 7
    for path in SCRIPTS:
        first = parse(path.read_text(encoding="utf-8"))[0]
        assert first.text[0].startswith("# "), path.name
