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
