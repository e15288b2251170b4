"""The examples in the docstrings of the public API run as they are printed, against a real cluster."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import viewstamp
from tests.processes import eventually
from viewstamp.config import create_cluster, node_file

pytestmark = pytest.mark.slow


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield (qualified name, docstring) of each exported object and of its public methods."""
    for name in viewstamp.__all__:
        exported = getattr(viewstamp, name)
        yield name, inspect.cleandoc(exported.__doc__ or "")
        if isinstance(exported, type):
            for method in dir(exported):
                if not method.startswith("_"):
                    found = inspect.getattr_static(exported, method).__doc__
                    yield f"{name}.{method}", inspect.cleandoc(found or "")


def examples() -> dict[str, str]:
    """Return the source of each example, by the name of the object that it belongs to."""
    found: dict[str, str] = {}
    for name, text in docstrings():
        for block in re.findall(r"^Example::\n\n((?:(?: +.*)?\n)+)", f"{text}\n", re.MULTILINE):
            if block not in found.values():  # Methods are inherited: Client.append is EmbeddedNode.append.
                found[name] = block
    return {name: textwrap.dedent(block) for name, block in found.items()}


EXAMPLES = examples()


def as_coroutine(source: str) -> str:
    return "async def example():\n" + textwrap.indent(source, "    ") + "\n    return locals()\n"


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """The names that an example may use beside ``client`` and ``node``: all exports, and the class ``Inventory``."""
    found: dict[str, Any] = {"viewstamp": viewstamp, **{name: getattr(viewstamp, name) for name in viewstamp.__all__}}
    exec(
        compile("from __future__ import annotations\n" + EXAMPLES["ReplicatedActor"], "<ReplicatedActor>", "exec"),
        found,
    )
    return found


async def established(client: viewstamp.Client) -> bool:
    """Return whether all groups are established."""
    return all(group.is_established for group in await client.list_groups())


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "ReplicatedActor"])
async def test_example_of_a_docstring_runs(name: str, names: dict[str, Any], tmp_path: Path) -> None:
    if name in {"Client.archive_topic", "Client.configure_keyed", "Client.get", "Client.scan", "open_arrow"}:
        pytest.importorskip("pyarrow")
    create_cluster(str(tmp_path / "shop"), 1)
    archive = {"archive.directory": str(tmp_path / "archive")}
    actors = dict.fromkeys(("inventory", "account"), names["Inventory"])
    async with viewstamp.local_cluster(nodes=1, actors=actors, settings=archive) as cluster:
        client = cluster.client()
        await client.create_topic("orders")
        await client.append("orders", b"zero")
        await client.call("inventory", "reserve", "A-17", 99)
        if "payments" in EXAMPLES[name]:
            await client.create_topic("payments")
            await client.set_schema("payments", "id: int64, name: string?")
        if any(each in EXAMPLES[name] for each in ("stream", "spread", "group_member")):
            await client.place_group("s1")
            await eventually(lambda: established(client))
        used = (
            "describe_stream",
            "configure_spread_topic",
            "add_stream",
            "move_stream",
            "remove_stream",
            "stream_runs",
            "archive_spread",
        )
        if any(each in EXAMPLES[name] for each in used) or name == "SpreadRecord":
            await client.create_spread_topic("parcels", 4)
        if "move_stream" in EXAMPLES[name]:
            await client.place_group("s2")
            await eventually(lambda: established(client))
        source = EXAMPLES[name]
        for printed, real in (
            ('"127.0.0.1:7001,127.0.0.1:7002"', repr(cluster.address("n1"))),
            ('"127.0.0.1:7001"', repr(cluster.address("n1"))),
            ('"shop/n1.toml"', repr(node_file(str(tmp_path / "shop"), "n1"))),
        ):
            source = source.replace(printed, real)
        namespace = {**names, "client": client}
        exec(compile(as_coroutine(source), f"<{name}>", "exec"), namespace)
        await namespace["example"]()


def test_every_exported_function_and_the_main_classes_have_an_example() -> None:
    functions = {name for name in viewstamp.__all__ if inspect.isfunction(getattr(viewstamp, name))}
    classes = {"ClientOptions", "Outcome", "Receipt", "ReplicatedActor", "ViewstampError"}
    calls = {
        f"Client.{name}" for name in ("actor", "append", "append_many", "call", "outcome", "query", "read", "watch")
    }
    assert sorted((functions | classes | calls) - EXAMPLES.keys()) == []


def test_examples_are_found_whole() -> None:
    for name, source in EXAMPLES.items():
        ast.parse(as_coroutine(source), filename=name)
