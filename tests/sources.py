"""The project's sources for the house rules: as text or as a syntax tree, without importing them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

__all__ = ["MODULES", "PACKAGE", "ROOT", "TESTS", "name", "offenders", "place", "public_classes", "tree"]

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "viewstamp"
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def name(path: Path) -> str:
    """Return a path relative to the root of the project, as messages show it."""
    return path.relative_to(ROOT).as_posix()


def place(path: Path) -> str:
    """Return a module's path relative to ``viewstamp/``, for example ``wal/format.py``."""
    return path.relative_to(PACKAGE).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file. The rules share it, so none may change it."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def offenders(paths: Iterable[Path], rule: Callable[[Path], Iterable[str]]) -> list[str]:
    """Return the objections of a rule to the files, as ``path: objection``; a test asserts that there are none."""
    return [f"{name(path)}: {objection}" for path in paths for objection in rule(path)]


def public_classes(module: ast.Module) -> list[str]:
    """Return the names of the public classes that a module defines at its top level."""
    return [node.name for node in module.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
