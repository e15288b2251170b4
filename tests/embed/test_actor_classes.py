"""Actor classes that settings name are found, or refused by name before anything starts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from viewstamp.embed.actor_classes import import_actors
from viewstamp.errors import ConfigError

STOCK = """
import viewstamp as vs

class Inventory(vs.ReplicatedActor):
    @vs.command
    def reserve(self, sku: str, n: int) -> bool:
        return True

    class Shelf(vs.ReplicatedActor):
        pass

class Plain:
    pass

number = 7
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with modules that is neither on Python's path nor the current directory."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    package = tmp_path / "package_of_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "stock.py").write_text(STOCK)
    (package / "broken.py").write_text("import a_module_of_nowhere\n")
    (package / "wrong.py").write_text("class Unfinished(:\n")
    (package / "failing.py").write_text("1 / 0\n")
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_class_is_found_beside_the_settings_and_in_the_current_directory(directory: Path) -> None:
    (directory / "here" / "module_of_a_test.py").write_text(STOCK)
    found = import_actors(
        {
            "inventory": "package_of_a_test.stock:Inventory",
            "shelf": "package_of_a_test.stock:Inventory.Shelf",
            "other": "module_of_a_test:Inventory",
        },
        str(directory),
    )
    assert [(name, cls.__module__, cls.__qualname__) for name, cls in found.items()] == [
        ("inventory", "package_of_a_test.stock", "Inventory"),
        ("shelf", "package_of_a_test.stock", "Inventory.Shelf"),
        ("other", "module_of_a_test", "Inventory"),
    ]


def test_without_actors_the_path_stays_as_it_is(directory: Path) -> None:
    before = [*sys.path]
    assert import_actors({}, str(directory)) == {}
    assert sys.path == before


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("package_of_a_test.stok:Inventory", "there is no module package_of_a_test.stok, neither installed nor in "),
        ("no_package_of_a_test.stock:Inventory", "there is no module no_package_of_a_test, neither installed nor in "),
        ("package_of_a_test.stock:Inventry", "package_of_a_test.stock has no class Inventry"),
        ("package_of_a_test.stock:Inventory.Box", "package_of_a_test.stock has no class Inventory.Box"),
        ("package_of_a_test.stock:Plain", "package_of_a_test.stock has Plain, but that is no class of replicated"),
        ("package_of_a_test.stock:number", "package_of_a_test.stock has number, but that is no class of replic"),
        (
            "package_of_a_test.broken:Inventory",
            "importing package_of_a_test.broken failed: ModuleNotFoundError: No module named 'a_module_of_nowhere'",
        ),
        ("package_of_a_test.wrong:Inventory", "importing package_of_a_test.wrong failed: SyntaxError"),
        ("package_of_a_test.failing:Inventory", "importing package_of_a_test.failing failed: ZeroDivisionError: divi"),
    ],
)
def test_an_error_names_the_actor_the_module_and_the_class(directory: Path, target: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        import_actors({"inventory": target}, str(directory))
    assert caught.value.message.startswith(f"[actors] inventory = '{target}': {expected}")
    assert caught.value.remedy
