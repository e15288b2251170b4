"""Runs a guide as its reader would: writes its files, types its commands, and compares their output.

In a guide, a fenced block with the language

* ``python`` or ``toml`` that begins with ``# NAME`` is that file;
* ``console`` is a terminal: lines after ``$ `` are commands, the others their output. ``...`` stands for any text
  within a line; a line ``...`` alone for any lines. Empty lines at the end do not matter.

Other blocks are not run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.quick_java import QUICK_JAVA

__all__ = ["blocks", "run_guide"]


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield (language, text) of each fenced block."""
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield match[1], match[2]


def run_guide(path: Path, directory: Path, *, any_numbers: bool = False) -> int:
    """Follow a guide in ``directory``; return the number of typed commands.

    With ``any_numbers``, a page may show the output of one earlier run: a number then matches any number, and a long
    hexadecimal word any other.

    Raises:
      AssertionError: a command's output differs; the message shows both.
    """
    typed = 0
    for language, text in blocks(path.read_text(encoding="utf-8")):
        if language in ("python", "toml") and (named := re.match(r"# (\S+\.(?:py|toml))\n", text)):
            (directory / named[1]).parent.mkdir(parents=True, exist_ok=True)
            (directory / named[1]).write_text(text, encoding="utf-8")
        elif language == "console":
            for command, expected in commands(text):
                printed = re.sub(r"\n{2,}\Z", "\n", run(command, directory))
                if any_numbers:
                    printed, expected = without_numbers(printed), without_numbers(expected)
                assert re.fullmatch(pattern(expected), printed), f"$ {command}\n{printed}\n--- expected:\n{expected}"
                typed += 1
    return typed


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield (command, output) of a terminal."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed.rstrip("\n")


def pattern(expected: str) -> str:
    """Return a regular expression for an expected output; the widths of columns do not matter."""
    lines = []
    for line in expected.splitlines():
        words = [re.escape(word).replace(re.escape("..."), ".*") for word in line.split()]
        lines.append(r"(?:.*\n)*?" if line.strip() == "..." else " *" + " +".join(words) + r" *\n")
    return "".join(lines)


def without_numbers(text: str) -> str:
    """Return a text with 0 for every number and every word of 16 or more hexadecimal digits, and no roles.

    The leader is chosen by chance, like the ports, so its name may differ between two runs.
    """
    text = re.sub(r"\b(?:leader|follower) +running\b", "member running", text)
    return re.sub(r"\b[0-9a-f]{16,}\b|\d+(?:[.,]\d+)*", "0", text)


def run(command: str, directory: Path) -> str:
    """Run one command as in a terminal; return its output, stdout and stderr together."""
    bin_directory = os.path.dirname(sys.executable)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VIEWSTAMP_")}
    environment["PATH"] = f"{bin_directory}{os.pathsep}{environment['PATH']}"
    environment.setdefault("JDK_JAVA_OPTIONS", QUICK_JAVA)
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,  # Spark needs some time to start.
        check=False,
    )
    return done.stdout
