"""House rules about names: one name means one thing, and each module is listed in its package's docstring."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.sources import MODULES, PACKAGE, name, place, public_classes, tree
from viewstamp import errors

TWO_FACES = {
    "Client": "the same client for asyncio and for trio",
    "EmbeddedNode": "the same node for asyncio and for trio",
}
"""Class names that are in several modules on purpose, with the reason."""


def test_no_public_class_name_stands_twice() -> None:
    """A class name in a log line or a traceback must identify one class."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for each in public_classes(tree(path)):
            homes[each].append(name(path))
    twice = {each: paths for each, paths in homes.items() if len(paths) > 1}
    assert {each: paths for each, paths in twice.items() if each not in TWO_FACES} == {}
    assert sorted(TWO_FACES.keys() - twice.keys()) == [], "no longer twice: remove from TWO_FACES"


def unnamed_modules(package: Path) -> set[str]:
    """Return the modules and subpackages that a package's docstring does not name in backticks."""
    docstring = ast.get_docstring(tree(package / "__init__.py")) or ""
    modules = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    modules |= {path.parent.name for path in package.glob("*/__init__.py")}
    return {each for each in modules if not re.search(rf"(?<!\w){each}(?:\.py|/)?`", docstring)}


def test_each_package_names_its_modules() -> None:
    """A newcomer reads a package's docstring to find the file to open.

    A name is in backticks, alone or at the end of a path: ``format``, ``wal/format.py``, ``viewstamp.wal.format``.
    """
    packages = {place(path.parent) if path.parent != PACKAGE else "viewstamp": path.parent for path in MODULES}
    unnamed = {package: sorted(unnamed_modules(path)) for package, path in packages.items()}
    assert {package: found for package, found in unnamed.items() if found} == {}


def test_the_error_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    """A caller picks its ``except`` clause from this drawing."""

    def lines(error: type[BaseException], depth: int) -> Iterator[tuple[int, str]]:
        yield depth, error.__name__
        for child in error.__subclasses__():
            if child.__module__ == errors.__name__:
                yield from lines(child, depth + 1)

    drawn = [
        (len(match[1]) // 2 - 2, match[2])
        for match in re.finditer(r"^( {4,})([A-Z]\w*Error)\b", errors.__doc__ or "", re.MULTILINE)
    ]
    assert drawn == list(lines(errors.ViewstampError, 0))
    assert {error for _, error in drawn} == {each for each in errors.__all__ if each.endswith("Error")}


def test_no_exception_class_is_defined_outside_the_tree_by_accident() -> None:
    """An error of the project that is no ``ViewstampError`` would escape every caller that catches those.

    The simulator's errors are left out, because they end a run and need not be caught.
    """
    found = [
        f"{name(path)}: {node.name}"
        for path in MODULES
        if place(path).partition("/")[0] not in ("sim", "errors.py")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
        and any(isinstance(b, ast.Name) and b.id in ("Exception", "BaseException", "RuntimeError") for b in node.bases)
    ]
    assert found == []


def test_no_module_is_named_after_nothing() -> None:
    """A file of helpers has no clear purpose, and grows until nothing can be found in it."""
    nameless = {"utils", "util", "common", "helpers", "helper", "base", "manager", "misc"}
    assert [name(path) for path in MODULES if nameless & set(path.relative_to(PACKAGE).with_suffix("").parts)] == []
