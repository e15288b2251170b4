"""Classes of replicated actors: mistakes are refused at the definition; and the interface that callers see."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NewType, TypedDict, cast

import pytest

from viewstamp.actors.replicated import ActorHost, ReplicatedActor, command, query
from viewstamp.errors import CommandError, RequestError

if TYPE_CHECKING:
    from decimal import Decimal

Sku = NewType("Sku", str)


class OutOfStockError(CommandError):
    """Defined in the module of the class, so callers get this class."""


class Line(TypedDict):
    sku: str
    n: int


class Inventory(ReplicatedActor):
    class ClosedError(CommandError):
        """Defined in the class itself."""

    def __init__(self) -> None:
        self.stock: dict[str, int] = {}

    @command
    def reserve(self, sku: str, n: int = 1) -> bool:
        """Set n aside.

        More of it.
        """
        self.stock[sku] = self.stock.get(sku, 3) - n
        return self.stock[sku] >= 0

    @query
    def available(self, sku: str) -> int:
        return self.stock.get(sku, 3)


class Warehouse(Inventory):
    version = 2

    @command
    def reserve(self, sku: str, n: int = 1) -> bool:
        return n < 10 and super().reserve(sku, n)

    @command
    def close(self) -> None:
        raise self.ClosedError("closed")


def test_an_instance_is_a_plain_object() -> None:
    inventory = Inventory()
    assert inventory.reserve("A", 2)
    assert inventory.available("A") == 1
    assert vars(inventory) == {"stock": {"A": 1}}


def test_a_subclass_inherits_and_overrides() -> None:
    assert Warehouse().reserve("A", 11) is False
    assert Warehouse().reserve("A", 1) is True
    assert sorted(Warehouse.__viewstamp__.commands) == ["close", "reserve"]
    assert (Inventory.__viewstamp__.version, Warehouse.__viewstamp__.version) == (1, 2)


def test_the_interface_contains_all_that_callers_need() -> None:
    interface = Inventory.__viewstamp__
    assert interface is Inventory().__viewstamp__
    assert interface.name == "Inventory"
    assert f"reserve{interface.commands['reserve']}" == "reserve(sku: str, n: int = ...) -> bool"
    assert interface.commands["reserve"].summary == "Set n aside."
    assert list(interface.queries) == ["available"]
    assert interface.errors["OutOfStockError"] is OutOfStockError
    assert interface.errors["ClosedError"] is Inventory.ClosedError


def test_errors_from_elsewhere_are_named_in_raises() -> None:
    elsewhere = cast("type[CommandError]", type("ElsewhereError", (CommandError,), {}))

    class Actor(ReplicatedActor):
        raises = (elsewhere,)

    assert Actor.__viewstamp__.errors["ElsewhereError"] is elsewhere


def test_a_call_on_the_class_explains_how_to_call() -> None:
    with pytest.raises(TypeError, match=r"Inventory.reserve was called on the class.*node.actor\(NAME, Inventory\)"):
        Inventory.reserve("A", 1)
    with pytest.raises(TypeError, match="a query is called by a proxy"):
        Inventory.available("A")


def test_methods_have_the_attributes_that_tools_use() -> None:
    method = cast("Any", Inventory.reserve)
    assert repr(method) == "<command Inventory.reserve>"
    assert (method.__name__, method.__module__) == ("reserve", __name__)
    assert method.__doc__.startswith("Set n aside.")


def test_outside_a_command_there_are_no_dice() -> None:
    inventory = Inventory()
    with pytest.raises(RequestError, match=r"self.random is for commands"):
        _ = inventory.random
    with pytest.raises(RequestError, match=r"self.new_id\(\) is for commands"):
        inventory.new_id()


async def asynchronous(self: object) -> None: ...
async def asynchronously(self: object) -> Any:
    yield 1


def generator(self: object) -> Any:
    yield 1


@functools.wraps(asynchronous)
def wrapped(self: object) -> Any:
    return asynchronous(self)


@pytest.mark.parametrize("mark", [command, query])
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (asynchronous, "asynchronous is async: a"),
        (asynchronously, "asynchronously is async: a"),
        (wrapped, "asynchronous is async: a"),
        (generator, "generator is a generator: a"),
        (staticmethod(len), "must be the outermost decorator of a plain method"),
        (property(len), "must be the outermost decorator of a plain method"),
    ],
    ids=["async", "async generator", "wrapped", "generator", "staticmethod", "property"],
)
def test_a_method_that_can_not_run_in_one_step_is_refused(
    mark: Callable[[Any], Any], function: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        mark(function)


def no_self() -> None: ...
def event(self: Any, guard: threading.Event) -> None: ...
def callback(self: Any, then: list[Callable[[], None]]) -> None: ...
def returns(self: Any) -> Inventory | None: ...
def mutable(self: Any, tags: list[str] = []) -> None: ...  # noqa: B006
def fine(self: Any, sku: str) -> int: ...  # type: ignore[empty-body]


class Custom:
    pass


def custom(self: Any, each: dict[str, Custom]) -> None: ...


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"version": 0}, "version is 0, but must be a whole number from 1 on"),
        ({"version": "2"}, "version is '2'"),
        ({"__slots__": ("x",)}, "__slots__"),
        ({"__init__": lambda self, size: None}, "__init__ has the parameters size"),
        ({"now": 1}, "Actor.now would hide an attribute"),
        ({"_hidden": command(fine)}, "Actor._hidden: a command cannot have this name"),
        ({"get_state": query(fine)}, "Actor.get_state: a query cannot have this name"),
        ({"m": command(no_self)}, "Actor.m has no parameter self"),  # type: ignore[arg-type]
        ({"m": command(event)}, "Actor.m(guard: Event): only plain values can be logged"),
        ({"m": command(custom)}, "Actor.m(each: Custom)"),
        ({"m": command(callback)}, "Actor.m(then: Callable)"),
        ({"m": query(returns)}, "Actor.m(return: Inventory)"),
        ({"m": command(mutable)}, "Actor.m(tags) has a list as its default"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_class_that_could_not_be_replicated_is_refused(body: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        type("Actor", (ReplicatedActor,), body)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"reserve": fine}, "Actor.reserve overrides a command: decorate it with @command"),
        ({"reserve": query(fine)}, "Actor.reserve is a query, but its base has a command"),
    ],
    ids=["plain", "query"],
)
def test_an_override_that_would_hide_a_command_is_refused(body: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        type("Actor", (Inventory,), body)


def test_annotations_that_are_values_or_not_known_yet_pass() -> None:
    class Actor(ReplicatedActor):
        @command
        def take(
            self,
            lines: list[Line],
            kind: Literal["a", "b"],
            sku: Sku | None,
            at: tuple[datetime, ...],
            more: Mapping[str, set[int]],
            price: Decimal,
            *rest: "int | str",  # noqa: UP037
            unannotated=None,
            **named: Any,
        ) -> None: ...

    assert list(Actor.__viewstamp__.commands) == ["take"]


def test_a_dataclass_with_defaults_is_an_actor_and_one_without_is_refused_by_the_host() -> None:
    @dataclass
    class Settings(ReplicatedActor):
        values: dict[str, int] = field(default_factory=dict)

    @dataclass
    class Asking(ReplicatedActor):
        size: int

    assert Settings().values == {}
    ActorHost({"settings": Settings})
    with pytest.raises(TypeError, match=r"Asking.__init__ has the parameters size"):
        ActorHost({"asking": Asking})


@pytest.mark.parametrize(
    ("name", "cls", "error"),
    [("", Inventory, ValueError), ("x" * 101, Inventory, ValueError), ("a", Custom, TypeError), ("a", 1, TypeError)],
    ids=["empty", "long", "no actor", "no class"],
)
def test_a_host_refuses_a_class_that_is_no_actor(name: str, cls: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        ActorHost({name: cls})
