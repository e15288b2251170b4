"""Runs the tests of the core under the oldest and the newest Python of this machine: ``make test-pythons``.

The Python of ``.venv`` is left out, because ``make test`` runs everything under it; so a machine with only that one
passes. Each other one gets its own environment below ``.venv/pythons``, which later runs reuse.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".venv" / "pythons"
OLDEST = (3, 11)
PACKAGES = ("actors", "client", "config", "consensus", "embed", "host", "node", "streams", "trio", "wal", "wire")
"""Directories below tests/ that run, because versions of Python differ in event loops, typing and dataclasses."""

CHECKERS = ("import-linter", "mypy", "ruff", "types-")
"""Development tools that read the sources instead of running them; one Python is enough for them."""

QUESTION = (
    "import ensurepip, ssl, sys, venv; version = sys.version_info;"
    "print(*version[:2]) if sys.implementation.name == 'cpython' and version.releaselevel == 'final' else sys.exit(1)"
)

Version = tuple[int, int]


def candidates() -> Iterator[Path]:
    """Yield possible interpreters: on the path, and those that pyenv keeps."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    places = [(Path(each), "python3.[1-9][0-9]") for each in os.environ.get("PATH", "").split(os.pathsep)]
    for directory, pattern in (*places, (pyenv, "versions/3.[1-9][0-9]*/bin/python3")):
        with suppress(PermissionError):  # A directory of another user, as `su` leaves it in the environment.
            yield from sorted(directory.glob(pattern))


def interpreters() -> dict[Version, Path]:
    """Return one interpreter of each version that viewstamp supports and that can make an environment."""
    found: dict[Version, Path] = {}
    for path in candidates():
        result = subprocess.run([path, "-c", QUESTION], capture_output=True, text=True, check=False)
        if result.returncode == 0:
            major, minor = map(int, result.stdout.split())
            if (major, minor) >= OLDEST:
                found.setdefault((major, minor), path)
    return found


def requirements() -> list[str]:
    """Return the requirements of the tests, without the tools that only read the sources."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    group: list[str] = project["dependency-groups"]["dev"]
    return [each for each in group if not each.startswith(CHECKERS)]


def environment(version: Version, python: Path) -> Path:
    """Make an environment of this version, unless there is one for this pyproject.toml; return its interpreter."""
    home = ENVIRONMENTS / "{}.{}".format(*version)
    inner = home / "bin" / "python"
    stamp = home / "pyproject.toml"
    project = ROOT / "pyproject.toml"
    if not stamp.exists() or stamp.read_bytes() != project.read_bytes():
        subprocess.run([python, "-m", "venv", "--clear", home], check=True)
        pip = [inner, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "-e", ROOT, *requirements()], check=True)
        shutil.copyfile(project, stamp)
    return inner


def main() -> int:
    found = interpreters()
    chosen = {version: found[version] for version in (min(found), max(found)) if version != sys.version_info[:2]}
    print("found Python", ", ".join("{}.{}".format(*version) for version in sorted(found)), flush=True)
    for version, python in chosen.items():
        print(f"testing the core with {python}", flush=True)
        tests = [f"tests/{package}" for package in PACKAGES]
        command = [environment(version, python), "-m", "pytest", "-q", "-n", "auto", "-m", "not slow and not spark"]
        code = subprocess.run([*command, *tests, *sys.argv[1:]], cwd=ROOT, check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
