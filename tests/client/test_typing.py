"""The types of actors' proxies, as a type checker infers them without a plugin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from typing import Any, assert_type
import viewstamp as vs

class Inventory(vs.ReplicatedActor):
    @vs.command
    def reserve(self, sku: str, n: int = 1) -> bool:
        return n > 0

    @vs.query
    def available(self, sku: str) -> int:
        return 1

async def use(client: vs.EmbeddedNode) -> None:
    inventory = client.actor("inventory", Inventory, key="north")
    assert_type(await inventory.reserve("A-17", n=2), bool)
    assert_type(await inventory.available("A-17"), int)
    assert_type(await inventory.available.stale("A-17"), vs.Stale[int])
    untyped = client.actor("inventory")
    assert_type(await untyped.reserve("A-17", 2), Any)
    assert_type(await untyped.available.stale("A-17"), vs.Stale[Any])
    async for change in client.watch("inventory", Inventory):
        assert_type(change, vs.Change)
    assert_type(await client.append("orders", b"a", key=b"k"), vs.Receipt)
    assert_type(await client.create_topic("orders", retain_bytes=1), vs.TopicInfo)
    assert_type(await client.list_members(timeout=1.0), vs.Members)
    assert_type(client.sink("lake", owner="query"), vs.Sink)
"""

WRONG = {
    "await inventory.reserve(17)": "arg-type",
    "await inventory.reserve()": "call-arg",
    "await inventory.steal()": "attr-defined",
    'await inventory.reserve.stale("A-17")': "attr-defined",
    'await client.append("orders", "text")': "arg-type",
    "await client.create_topic()": "call-arg",
}


@pytest.mark.slow
def test_mypy_infers_the_methods_of_a_proxy_with_their_types(tmp_path: Path) -> None:
    lines = ["    " + line for line in WRONG]
    program = PROGRAM.replace("    untyped =", "\n".join([*lines, "    untyped ="]))
    file = tmp_path / "program.py"
    file.write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(file)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    first = program.splitlines().index(lines[0]) + 1
    found = [line.rsplit("[", 1)[-1].rstrip("]") for line in checked.stdout.splitlines()]
    places = [int(line.split(":")[1]) for line in checked.stdout.splitlines()]
    assert (found, places) == (list(WRONG.values()), list(range(first, first + len(WRONG)))), checked.stdout
