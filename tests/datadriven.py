"""Behaviour as text: scripts of commands with their recorded output, which is compared, or rewritten on request.

A script consists of blocks that are separated by blank lines. A block is comments, commands, a line ``---`` and the
output::

    # Three members elect a leader.
    (cluster members=3)
    campaign n1
    deliver
    ---
    > n1 n2 PreVoteRequest term=1 ...

A command consists of words and ``key=value`` options, split as by a shell. The output of one in parentheses is not
recorded. Output is never typed by hand: ``pytest --rewrite`` writes it, and the author reads the diff.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Block", "Command", "compare", "parse"]

_RULE = "---"


@dataclass(frozen=True)
class Command:
    """One command of a script."""

    name: str
    words: tuple[str, ...]
    options: dict[str, str]
    is_silent: bool
    line: int

    def word(self, at: int = 0) -> str:
        """Return a required word."""
        if at >= len(self.words):
            raise SyntaxError(f"line {self.line}: {self.name} lacks a word")
        return self.words[at]

    def number(self, option: str, default: int) -> int:
        """Return an option as a number."""
        return int(self.options.get(option, default))


@dataclass
class Block:
    """The comments and commands of a block, unchanged, and the output below them."""

    text: list[str] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    output: list[str] = field(default_factory=list)


def parse(text: str) -> list[Block]:
    """Read a script.

    Raises:
      SyntaxError: a block without ``---``, or an invalid command; the message contains the line.
    """
    blocks: list[Block] = []
    block: Block | None = None
    is_output = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            if block is not None and block.commands and not is_output:
                raise SyntaxError(f"line {number}: the commands before it have no {_RULE}")
            if is_output:
                block, is_output = None, False
            continue
        if block is None:
            block = Block()
            blocks.append(block)
        if is_output:
            block.output.append(line)
        elif line == _RULE:
            is_output = True
        else:
            block.text.append(line)
            if not line.startswith("#"):
                block.commands.append(_command(line, number))
    if block is not None and not is_output:
        raise SyntaxError(f"the last block has no {_RULE}")
    return blocks


def _command(line: str, number: int) -> Command:
    is_silent = line.startswith("(") and line.endswith(")")
    try:
        name, *words = shlex.split(line[1:-1] if is_silent else line)
    except ValueError as error:
        raise SyntaxError(f"line {number}: {error}") from error
    options = dict(word.split("=", 1) for word in words if "=" in word)
    return Command(name, tuple(word for word in words if "=" not in word), options, is_silent, number)


def compare(path: Path, run: Callable[[Command], list[str]], *, rewrite: bool) -> None:
    """Run a script and compare its output; with ``rewrite``, put the new output into the file instead.

    Raises:
      AssertionError: the output of a block differs; the message shows both for the first one.
    """
    blocks = parse(path.read_text(encoding="utf-8"))
    written = []
    for block in blocks:
        output: list[str] = []
        for command in block.commands:
            lines = run(command)
            if not command.is_silent:
                output.extend(line.rstrip() for line in lines)
        output = output or ["ok"]
        assert rewrite or output == block.output, _difference(path, block, output)
        written.append("\n".join([*block.text, _RULE, *output]))
    if rewrite:
        path.write_text("\n\n".join(written) + "\n", encoding="utf-8")


def _difference(path: Path, block: Block, output: list[str]) -> str:
    return "\n".join([f"{path.name}, the block of line {block.commands[0].line} now gives:", *output])
