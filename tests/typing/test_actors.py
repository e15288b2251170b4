"""Replicated actors for type checkers: the proxy's methods are awaited, an instance's are plain."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SNIPPET = """
import viewstamp as vs


class Inventory(vs.ReplicatedActor):
    def __init__(self) -> None:
        self.stock: dict[str, int] = {}

    @vs.command
    def reserve(self, sku: str, n: int = 1) -> bool:
        reveal_type(self.now)                               # datetime.datetime
        reveal_type(self.random)                            # random.Random
        reveal_type(self.new_id())                          # uuid.UUID
        reveal_type(self.available(sku))                    # int
        return self.available(sku) >= n

    @vs.query
    def available(self, sku: str) -> int:
        return self.stock.get(sku, 0)

    @vs.command
    def wrong(self) -> int:
        return "x"                                          # error: Incompatible return value type


async def use(client: vs.Client) -> None:
    inventory = client.actor("inventory", Inventory, key="k")
    reveal_type(inventory)                                  # type[{Inventory}]
    reveal_type(await inventory.reserve("A", n=2))          # bool
    reveal_type(await inventory.available("A"))             # int
    reveal_type(await inventory.available.stale("A"))       # tuple[int, int, float, fallback={Stale}[int]]
    reveal_type((await inventory.available.stale("A")).value)  # int
    await inventory.reserve(1)                              # error: Argument 1 has incompatible type "int"
    await inventory.reserve()                               # error: Too few arguments
    await inventory.available("A", 1)                       # error: Too many arguments
    await inventory.reserv("A")                             # error: has no attribute "reserv"
    inventory.reserve("A")                                  # error: must be used
    await inventory.reserve.stale("A")                      # error: has no attribute "stale"


local = Inventory()
reveal_type(local.reserve("A"))                             # bool
local.reserve(1)                                            # error: Argument 1 has incompatible type "int"
reveal_type(Inventory.__viewstamp__)                        # {Interface}
"""
NAMES = {
    "{Inventory}": "snippet.Inventory",
    "{Stale}": "viewstamp.wire.commands.Stale",
    "{Interface}": "viewstamp.wire.commands.Interface",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Return mypy's message for each line of the snippet."""
    directory = tmp_path_factory.mktemp("typing")
    (directory / "snippet.py").write_text(SNIPPET, encoding="utf-8")
    # Use the project's own cache, because most of the time would otherwise go into unchanged modules.
    options = [
        "--strict",
        "--no-error-summary",
        "--enable-error-code=unused-awaitable",
        f"--cache-dir={ROOT}/.mypy_cache/typing",
    ]
    result = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "snippet.py"],
        cwd=directory,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    says: dict[int, str] = {}
    for line, message in re.findall(r"^snippet.py:(\d+): (.*)$", result.stdout, re.MULTILINE):
        says[int(line)] = f"{says.get(int(line), '')} {message}"
    assert says, result.stdout + result.stderr
    return says


@pytest.mark.slow
def test_types_are_those_in_the_snippet(found: dict[int, str]) -> None:
    revealed = {}
    for number, line in enumerate(SNIPPET.splitlines(), 1):
        if (match := re.search(r"reveal_type\(.*\) +# (.*)$", line)) is not None:
            expected = match[1]
            for short, name in NAMES.items():
                expected = expected.replace(short, name)
            revealed[number] = expected
    said = {number: re.sub(r'^ note: Revealed type is "(.*)"$', r"\1", found.get(number, "")) for number in revealed}
    assert {number: text.replace("builtins.", "") for number, text in said.items()} == revealed


@pytest.mark.slow
def test_impossible_calls_are_errors_and_nothing_else_is(found: dict[int, str]) -> None:
    expected = {
        number: match[1]
        for number, line in enumerate(SNIPPET.splitlines(), 1)
        if (match := re.search(r"# error: (.*)$", line)) is not None
    }
    errors = {number: message for number, message in found.items() if "error:" in message}
    assert sorted(errors) == sorted(expected)
    for number, text in expected.items():
        words = [re.escape(word) for word in text.split()]
        assert re.search(".*".join(words), errors[number]), (text, errors[number])
