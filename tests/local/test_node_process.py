"""The process of a node starts without the parser, because it keeps its imports in memory as long as it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from viewstamp.cli import main
from viewstamp.local.node_process import plain_config


@pytest.mark.parametrize(
    "arguments",
    [
        ["node", "run", "--config", "n1.toml"],
        ["node", "run", "--config", "n1.toml", "--output", "json"],
        ["node", "run", "--config", "n1.toml", "--output", "table"],
    ],
)
def test_usual_command_lines_need_no_parser(arguments: list[str]) -> None:
    assert plain_config(arguments) == "n1.toml"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["node", "run"],
        ["node", "run", "--config"],
        ["node", "run", "--help"],
        ["node", "run", "--config", "n1.toml", "--set", "limits.scrub_bytes_per_second=0"],
        ["node", "run", "--config", "n1.toml", "--output", "xml"],
        ["config", "show", "--config", "n1.toml"],
    ],
)
def test_other_command_lines_are_left_to_the_parser(arguments: list[str]) -> None:
    assert plain_config(arguments) is None


@pytest.mark.parametrize("more", [[], ["--set", "limits.scrub_bytes_per_second=0"]])
def test_missing_file_is_the_same_error_with_and_without_the_parser(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    assert main.run(["node", "run", "--config", str(tmp_path / "n1.toml"), *more]) == 2
    assert f"cannot read {tmp_path / 'n1.toml'}: No such file or directory" in capsys.readouterr().err


@pytest.mark.slow
def test_node_process_imports_neither_parser_nor_console_nor_client(tmp_path: Path) -> None:
    """They would be half of an idle node's memory, and of its start time."""
    script = (
        "import sys\nfrom viewstamp.cli import main\nfrom viewstamp.local import node_process\n"
        "import viewstamp.embed.run_node\nnode_process.logger().bind(node='n1')\n"
        "main.run(['node', 'run', '--config', 'missing.toml'])\n"
        "print(sorted({'click', 'pydantic', 'rich', 'structlog', 'typer', 'viewstamp.client'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120, cwd=tmp_path
    )
    assert result.stdout.strip() == "[]"
