"""``import viewstamp``: every name exists, is the one that the type checker sees, and costs nothing before its use."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import viewstamp
from viewstamp.ids import RELEASE


def typed_imports() -> dict[str, tuple[str, str]]:
    """Return the type checker's view: name -> (module, name there)."""
    tree = ast.parse(Path(viewstamp.__file__).read_text(encoding="utf-8"))
    return {
        alias.asname or alias.name: (str(node.module), alias.name)
        for guard in tree.body
        if isinstance(guard, ast.If) and ast.unparse(guard.test) == "TYPE_CHECKING"
        for node in guard.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_every_name_is_the_one_that_the_type_checker_sees() -> None:
    imports = typed_imports()
    assert sorted(imports) == sorted(viewstamp.__all__)
    for name, (module, origin) in imports.items():
        assert getattr(viewstamp, name) is getattr(import_module(module), origin), name


def test_the_release_is_that_of_the_package() -> None:
    project = Path(__file__).parents[1] / "pyproject.toml"
    assert tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"] == RELEASE


def test_every_error_is_exported() -> None:
    errors = import_module("viewstamp.errors")
    assert [name for name in errors.__all__ if name not in viewstamp.__all__] == []


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'viewstamp' has no attribute 'opennode'"):
        _ = viewstamp.opennode  # type: ignore[attr-defined]
    assert set(viewstamp.__all__) <= set(dir(viewstamp))


def test_importing_the_package_loads_none_of_its_modules() -> None:
    """A program that only catches an error, or a command that only prints its help, need not load an event loop."""
    script = (
        "import sys; before = set(sys.modules); import viewstamp; after = set(sys.modules)\n"
        "viewstamp.TrimmedError, viewstamp.Viewstamp\n"
        "print(sorted(name for name in after - before if name.startswith(('viewstamp', 'asyncio', 'structlog'))),"
        " 'asyncio' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "['viewstamp'] False"
