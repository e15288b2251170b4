"""Shell completion with the script that `viewstamp completion` prints."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

BIN = Path(sys.prefix) / "bin"
ENVIRONMENT = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}


def printed(*command: str, **variables: str) -> str:
    return subprocess.run(
        command, env={**ENVIRONMENT, **variables}, capture_output=True, text=True, check=True, timeout=120
    ).stdout


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("viewstamp clu", {"cluster"}),
        ("viewstamp members re", {"replace", "remove"}),
        ("viewstamp append --expected", {"--expected-position"}),
    ],
)
def test_bash_completes_commands_and_options(line: str, words: set[str]) -> None:
    words_of_line = line.split()
    script = (
        "source <(viewstamp completion bash); "
        f"COMP_WORDS=({line}); COMP_CWORD={len(words_of_line) - 1}; "
        'complete -p viewstamp >/dev/null && _viewstamp_completion viewstamp; echo "${COMPREPLY[@]}"'
    )
    assert set(printed("bash", "-c", script).split()) == words


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_zsh_and_fish_complete_commands(shell: str) -> None:
    script = printed("viewstamp", "completion", shell)
    assert f"_VIEWSTAMP_COMPLETE=complete_{shell}" in script
    asked = {
        "_VIEWSTAMP_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": "viewstamp cluster s",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    offered = printed("viewstamp", **asked)
    assert all(word in offered for word in ("start", "stop", "status"))
    assert "kill" not in offered
    if path := shutil.which(shell):
        printed(path, "-n", "-c", script) if shell == "zsh" else printed(path, "--no-execute", "-c", script)


def test_unknown_shell_is_rejected_with_the_supported_ones() -> None:
    found = subprocess.run(
        ["viewstamp", "completion", "tcsh"], env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120
    )
    assert found.returncode == 2
    assert "'bash', 'zsh', 'fish'" in found.stderr
