"""Rules that are run, not asked for: names, sizes, the error tree, the doors to the outside, the import direction.

Each rule reads the sources as text or as a syntax tree; none of them imports the code that it judges, except
``errors``. A rule that a file has a reason to break names the file and the reason here.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from viewstamp import errors

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "viewstamp"
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LINES_MAX = 700

DOORS = ("host", "sim", "cli")
"""The subpackages that may touch the clock and the dice; everybody else is handed them, so that a seed decides all."""

EXCEPTIONS = {
    "actors/replicated/actor.py": "a command's dice, seeded from its place in the log",
    "config/create.py": "chooses free ports and identities once, for a person at the command line; never in a node",
    "embed": "composes the real host, whose entropy is the operating system's",
    "spark": "composes clients with the real network, in processes that Spark starts",
    "trio/client.py": "composes a client with the real network, as embed does for asyncio",
}
"""Paths under ``viewstamp/`` that may use the doors all the same, and why."""


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def dunder_all(module: ast.Module) -> list[str] | None:
    for node in module.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            value: list[str] = ast.literal_eval(node.value)
            return value
    return None


def top_level_names(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Assign():
                yield from (target.id for target in node.targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=found)):
                yield found
            case ast.Import() | ast.ImportFrom():
                yield from (alias.asname or alias.name for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_all_is_sorted_and_names_what_is_there(path: Path) -> None:
    """Sorted as ruff sorts: constants, then classes, then functions. Read as the list of what a module offers."""
    module = tree(path)
    exported = dunder_all(module)
    if exported is None:
        return

    def rank(each: str) -> tuple[int, str]:
        return (0 if each.isupper() else 1 if each[:1].isupper() else 2, each)

    assert exported == sorted(exported, key=rank)
    assert len(set(exported)) == len(exported)
    there = set(top_level_names(module)) | {p.stem for p in path.parent.iterdir()}
    if not any(node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "__getattr__"):
        assert [each for each in exported if each not in there] == []


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
    """An error of the project that is no ``ViewstampError`` would pass by every caller that catches those.

    What is left out: the simulator's, which end a run and are for nobody to catch.
    """
    found = [
        f"{name(path)}: {node.name}"
        for path in MODULES
        if path.relative_to(PACKAGE).parts[0] not in ("sim", "errors.py")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
        and any(isinstance(b, ast.Name) and b.id in ("Exception", "BaseException", "RuntimeError") for b in node.bases)
    ]
    assert found == []


def test_no_module_is_named_after_nothing() -> None:
    """What has no noun has no place: a file of helpers grows until nobody finds anything in it."""
    nameless = {"utils", "util", "common", "helpers", "helper", "base", "manager", "misc"}
    assert [name(path) for path in MODULES if nameless & set(path.relative_to(PACKAGE).with_suffix("").parts)] == []


def test_no_module_outgrows_its_reader() -> None:
    lengths = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {path: length for path, length in lengths.items() if length > LINES_MAX} == {}


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_every_module_says_what_it_owns(path: Path) -> None:
    assert ast.get_docstring(tree(path)), "a module opens with a sentence that says what it owns"


@pytest.mark.parametrize(
    "path",
    [directory / "__init__.py" for directory in sorted(PACKAGE.iterdir()) if (directory / "__init__.py").exists()],
    ids=name,
)
def test_a_subpackages_docstring_is_a_specification_and_its_code_is_exports(path: Path) -> None:
    module = tree(path)
    allowed = ast.Import | ast.ImportFrom | ast.Assign | ast.Expr
    assert [ast.unparse(node)[:60] for node in module.body if not isinstance(node, allowed)] == []


def test_there_are_no_unfinished_notes() -> None:
    """What is left to do stands in an issue, where somebody looks for it."""
    marker = re.compile(r"\b(TO" "DO|FIX" "ME|XX" "X)\\b")
    found = [
        f"{name(path)}:{number}"
        for path in [*MODULES, *TESTS]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if marker.search(line)
    ]
    assert found == []


def uses_of_the_outside(module: ast.Module) -> Iterator[str]:
    """What would make two runs of one seed differ: waiting, wall clocks and dice that are not handed in.

    ``random.Random`` as a type is fine, and as a generator that somebody seeded; making one is not.
    """
    forbidden = {
        "time": {"sleep", "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"},
        "random": None,  # all of it
        "uuid": {"uuid1", "uuid4"},
        "secrets": None,
        "os": {"urandom", "getrandom"},
        "datetime": {"now", "utcnow", "today"},
    }
    types = {"Random"}
    made = {id(node.func) for node in ast.walk(module) if isinstance(node, ast.Call)}
    for node in ast.walk(module):
        match node:
            case ast.Attribute(value=ast.Name(id=source), attr=used) if source in forbidden:
                names = forbidden[source]
                if (names is None or used in names) and not (used in types and id(node) not in made):
                    yield f"line {node.lineno}: {source}.{used}"
            case ast.ImportFrom(module=str(source)) if source in forbidden:
                names = forbidden[source]
                for alias in node.names:
                    if (names is None or alias.name in names) and alias.name not in types:
                        yield f"line {node.lineno}: from {source} import {alias.name}"
            case ast.Call(func=ast.Name(id="Random")):
                yield f"line {node.lineno}: Random(...)"


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_clock_and_dice_are_handed_in(path: Path) -> None:
    place = path.relative_to(PACKAGE)
    if place.parts[0] in DOORS or place.as_posix() in EXCEPTIONS or place.parts[0] in EXCEPTIONS:
        return
    assert list(uses_of_the_outside(tree(path))) == []


def test_the_rule_about_clock_and_dice_sees_them() -> None:
    source = """
import random, time
from random import Random, choice
def f(entropy: random.Random, other: Random) -> None:
    time.sleep(1); time.time(); random.random(); random.Random(1); Random(2); entropy.random(); loop.time()
"""
    assert sorted(uses_of_the_outside(ast.parse(source))) == [
        "line 3: from random import choice",
        "line 5: Random(...)",
        "line 5: random.Random",
        "line 5: random.random",
        "line 5: time.sleep",
        "line 5: time.time",
    ]


def test_every_exception_to_a_rule_is_still_there() -> None:
    assert [place for place in EXCEPTIONS if not (PACKAGE / place).exists()] == []


def counts_of_votes(module: ast.Module, *, may_look: bool) -> Iterator[str]:
    """Where votes are counted: a number of voters is taken; with ``may_look`` False, voters are looked at at all."""
    sets = {"voters", "electors", "outgoing"}
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Name(id="len" | "sum"), args=[ast.Attribute(attr=found)]) if found in sets:
                yield f"line {node.lineno}: the number of {found}"
            case ast.Attribute(attr=found) if found in sets and not may_look:
                yield f"line {node.lineno}: {found}"


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_votes_are_counted_in_one_place(path: Path) -> None:
    """``consensus/standing.py`` decides who is a majority; the offline replay once did so by rules of its own.

    The replay does not even look at voters. The record itself (``membership.py``) may say that one is the last.
    """
    place = path.relative_to(PACKAGE)
    may_look = {"consensus": True, "node": True, "replay": False, "spark": False}.get(place.parts[0])
    if may_look is not None and place.name not in ("standing.py", "membership.py"):
        assert list(counts_of_votes(tree(path), may_look=may_look)) == []


def test_the_rule_about_votes_sees_them() -> None:
    source = """
present = sum(member in membership.voters for member in members)
enough = 2 * present > len(membership.voters)
"""
    assert sorted(counts_of_votes(ast.parse(source), may_look=True)) == ["line 3: the number of voters"]
    assert sorted(counts_of_votes(ast.parse(source), may_look=False)) == [
        "line 2: voters",
        "line 3: the number of voters",
        "line 3: voters",
    ]


def test_every_path_that_the_documents_name_exists() -> None:
    """A document that points at nothing is worse than none; a renamed file takes its mentions with it."""
    documents = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
    pattern = re.compile(r"`((?:viewstamp|tests|docs|examples|benchmarks)/[^`\s:#]*)(?:::?[^`\s]*|#[^`\s]*)?`")
    missing = []
    for document in documents:
        for match in pattern.finditer(document.read_text(encoding="utf-8")):
            path = match[1].rstrip("/")
            exists = any(ROOT.glob(path)) if any(c in path for c in "*?[") else (ROOT / path).exists()
            if not exists:
                missing.append(f"{name(document)}: {match[1]}")
    assert missing == []


def test_every_test_that_the_documents_name_exists() -> None:
    """Written as ``tests/wal/test_recovery.py::test_name``: the proof of a claim must be found by who doubts it."""
    pattern = re.compile(r"`(tests/[\w/]+\.py)::(?:\w+::)?(\w+)(?:\[[^`]*\])?`")
    missing = []
    for document in sorted((ROOT / "docs").rglob("*.md")):
        for match in pattern.finditer(document.read_text(encoding="utf-8")):
            path = ROOT / match[1]
            if not path.exists() or not re.search(rf"def {match[2]}\b", path.read_text(encoding="utf-8")):
                missing.append(f"{name(document)}: {match[0]}")
    assert missing == []


@pytest.mark.slow
def test_imports_only_point_down() -> None:
    """The contracts stand in pyproject.toml; an unlisted subpackage fails too, so that it gets its place."""
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
