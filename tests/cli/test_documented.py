"""``docs/operating.md`` lists every command, option, setting and exit code, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from viewstamp.cli.commands import command_tree
from viewstamp.config.model import NodeSettings, keys_of

DOCS = Path(__file__).parents[2] / "docs"
OPERATING = (DOCS / "operating.md").read_text(encoding="utf-8")
COMMON = {"--dir", "--cluster", "--timeout", "--output", "--help"}


def commands(group: Any, path: str = "viewstamp") -> Iterator[tuple[str, set[str]]]:
    """Yield each command and its own options."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            params = [each for each in command.params if each.param_type_name == "option"]
            options = [option for each in params for option in [*each.opts, *each.secondary_opts]]
            yield f"{path} {name}", set(options) - COMMON


def rows() -> dict[str, set[str]]:
    """Return the commands in the page's tables, and the options in the row of each."""
    found = {}
    for line in OPERATING.splitlines():
        if match := re.match(r"\| `(viewstamp [a-z -]+?)(?: [A-Z][A-Z ]*)?` \|", line):
            found[match[1]] = set(re.findall(r"--[a-z-]+", line))
    return found


def test_every_command_and_its_options_have_a_row_and_no_row_has_others() -> None:
    assert rows() == dict(commands(typer.main.get_command(command_tree())))
    assert {option for option in COMMON if f"`{option}" not in OPERATING} == set()


def test_every_setting_has_a_row_and_no_row_has_another() -> None:
    named = re.findall(r"^\| `\[(\w+)\] (\w+)` \|", OPERATING, re.MULTILINE)
    assert [row for row in named if row[0] != "actors"] == [(key.section, key.name) for key in keys_of(NodeSettings)]
    assert ("actors", "NAME") in named


def test_every_exit_code_has_a_row() -> None:
    from viewstamp import errors

    codes = {getattr(errors, name).exit_code for name in errors.__all__ if name.endswith("Error")} | {0, 130}
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    assert codes == set(map(int, re.findall(r"^\| (\d+) \|", page, re.MULTILINE)))


def shown() -> Iterator[tuple[str, str]]:
    """Yield the place and the arguments of each ``viewstamp`` in a code block, a code span or a remedy of the pages."""
    root = DOCS.parent
    for page in [*DOCS.rglob("*.md"), *root.glob("*.md"), *root.glob("changelog.d/*.md"), root / "tests" / "README.md"]:
        is_fenced = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            is_fenced ^= line.lstrip().startswith("```")
            is_code = is_fenced or line.startswith("    ")
            begins = r"(?:^ *|[|;(] *|&& |# |\$ |[ =/]bin/)" if is_code else "(?:`|`[^`]*(?:/bin/|: |, |&& ))"
            for found in re.finditer(rf"{begins}viewstamp ((?:[a-z]|--)[^`|;#)&]*)", line):
                yield f"{page.relative_to(root)}:{number}", found[1]


def test_every_command_that_a_page_shows_exists_and_has_its_options() -> None:
    whole = typer.main.get_command(command_tree())
    table = dict(commands(whole))
    groups = {name.rsplit(" ", 1)[0] for name in table if name.count(" ") > 1}
    of_all = COMMON | {"--token-file"} | {option for each in whole.params for option in each.opts}
    wrong = []
    for place, text in shown():
        words, name = text.split(), "viewstamp"
        options = set(re.findall(r"(?<!\S)--[a-z-]+", text))
        while words and f"{name} {words[0]}" in table.keys() | groups:
            name += f" {words.pop(0)}"
        is_known = name in table or not words or words[0].startswith("-")
        if not is_known or not options <= table.get(name, set()) | of_all:
            wrong.append(f"{place}: viewstamp {text}")
    assert wrong == []
