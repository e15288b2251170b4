from pathlib import Path

import pytest

from tests.datadriven import Command, compare, parse

SCRIPT = """\
# What it shows.
(quiet)
say hello to=you
---
hello you

say bye
---
bye all
"""


def say(command: Command) -> list[str]:
    return [f"{command.word()} {command.options.get('to', 'all')}"] if command.name == "say" else ["not shown"]


def test_a_script_is_blocks_of_comments_commands_and_output() -> None:
    first, second = parse(SCRIPT)
    assert first.text == ["# What it shows.", "(quiet)", "say hello to=you"]
    assert [(c.name, c.words, c.options, c.is_silent) for c in first.commands] == [
        ("quiet", (), {}, True),
        ("say", ("hello",), {"to": "you"}, False),
    ]
    assert second.output == ["bye all"]


@pytest.mark.parametrize("text", ["say hello\n", "say hello\n\nsay bye\n---\nbye\n", 'say "hello\n---\n'])
def test_an_invalid_script_is_refused(text: str) -> None:
    with pytest.raises(SyntaxError):
        parse(text)


def test_another_output_fails_and_is_shown_and_rewriting_changes_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "script.txt"
    path.write_text(SCRIPT.replace("hello you", "hello me"))
    with pytest.raises(AssertionError, match="hello you"):
        compare(path, say, rewrite=False)
    compare(path, say, rewrite=True)
    assert path.read_text() == SCRIPT
    compare(path, say, rewrite=False)
