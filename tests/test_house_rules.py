"""House rules about the shape of the sources: sizes, exports, docstrings, the import direction.

A house rule reads the sources as text or as a syntax tree, and does not import the code that it judges. Each is one
test that lists all offenders. If a file has a reason to break a rule, the file and the reason are listed beside the
rule.

The rules are in four files: ``test_house_rules`` (shape), ``test_house_rules_names`` (one name, one thing),
``test_house_rules_homes`` (one rule, one home) and ``test_house_rules_text`` (documents and notes).
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.sources import MODULES, PACKAGE, ROOT, TESTS, name, offenders, tree

LINES_MAX = 700


def dunder_all(module: ast.Module) -> list[str] | None:
    for node in module.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            value: list[str] = ast.literal_eval(node.value)
            return value
    return None


def defined_names(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Assign():
                yield from (
                    each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)
                )
            case ast.AnnAssign(target=ast.Name(id=found)):
                yield found
            case ast.Import() | ast.ImportFrom():
                yield from (alias.asname or alias.name for alias in node.names)


def test_all_is_sorted_and_names_existing_objects() -> None:
    """Sorted as ruff sorts: constants, classes, functions. Readers use it as the module's list of contents."""

    def rank(each: str) -> tuple[int, str]:
        return (0 if each.isupper() else 1 if each[:1].isupper() else 2, each)

    def rule(path: Path) -> Iterator[str]:
        module = tree(path)
        exported = dunder_all(module)
        if exported is None:
            return
        if exported != sorted(set(exported), key=rank):
            yield "__all__ is not sorted, or names something twice"
        if not any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in module.body):
            there = set(defined_names(module)) | {p.stem for p in path.parent.iterdir()}
            yield from (f"{each} is not there" for each in exported if each not in there)

    assert offenders(MODULES, rule) == []


def test_no_module_outgrows_its_reader() -> None:
    lengths = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {path: length for path, length in lengths.items() if length > LINES_MAX} == {}


def test_every_module_has_a_docstring() -> None:
    """A module begins with a sentence that describes its responsibility."""
    assert [name(path) for path in MODULES if not ast.get_docstring(tree(path))] == []


def test_a_subpackages_code_is_exports() -> None:
    """The docstring of a package is a specification, so its ``__init__`` contains nothing but exports."""
    allowed = ast.Import | ast.ImportFrom | ast.Assign | ast.Expr

    def rule(path: Path) -> Iterator[str]:
        yield from (ast.unparse(node)[:60] for node in tree(path).body if not isinstance(node, allowed))

    assert offenders(sorted(PACKAGE.glob("*/__init__.py")), rule) == []


@cache
def names_in(source: Path) -> set[str]:
    return set(defined_names(tree(source))) if source.exists() else set()


def test_names_that_tests_and_benchmarks_import_from_the_project_exist() -> None:
    """Nothing but a run finds such an error elsewhere, because mypy reads only the product."""
    imports = re.compile(r"^ *from ((?:viewstamp|tests)[\w.]*) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)

    def rule(path: Path) -> Iterator[str]:
        for found in imports.finditer(path.read_text(encoding="utf-8")):  # A syntax tree takes too long.
            module = ROOT.joinpath(*found[1].split("."))
            source = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
            there = names_in(source) | {each.stem for each in module.glob("*")}
            names = re.findall(r"(\w+)(?: as \w+)?(?:,|$)", re.sub(r"#.*", "", found[2] or found[3]).strip())
            if "__getattr__" not in there:
                yield from (f"{found[1]} has no {each}" for each in names if each not in there)

    others = [path for name in ("benchmarks", "examples") for path in sorted((ROOT / name).rglob("*.py"))]
    assert offenders([*TESTS, *others], rule) == []


@pytest.mark.slow
def test_imports_only_point_down() -> None:
    """The contracts are in pyproject.toml; an unlisted subpackage fails, too, so that it gets its place."""
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
