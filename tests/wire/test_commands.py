"""Commands, results and interfaces to bytes and back; an impossible call is refused with the possible ones."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewstamp.errors import CommandError, RequestError, UnknownActorError
from viewstamp.wire.batch import build_batch
from viewstamp.wire.commands import (
    NO_RESULT,
    Command,
    Interface,
    Method,
    decode_arguments,
    decode_command,
    decode_commands,
    decode_result,
    encode_arguments,
    encode_command,
    encode_failure,
    encode_head,
    encode_result,
)
from viewstamp.wire.values import pack

PLAIN = st.none() | st.integers() | st.text(max_size=5) | st.tuples(st.integers())
NAMED = st.dictionaries(st.text(max_size=5), PLAIN, max_size=3)


class OutOfStockError(CommandError):
    def __init__(self, sku: str, left: int) -> None:
        super().__init__(f"{left} of {sku} left")


def reserve(sku: str, n: int = 1, *, note: str = "") -> bool:
    """Set n aside.

    Answers whether enough were left.
    """
    raise AssertionError


def spread(first: int, *rest: int, **named: int) -> None: ...


INTERFACE = Interface(
    "Inventory",
    3,
    {"reserve": Method.of(inspect.signature(reserve), "Set n aside."), "spread": Method.of(inspect.signature(spread))},
    {"available": Method.of(inspect.signature(lambda sku: 0))},
)


@given(st.text(max_size=5), st.text(max_size=5), st.integers(), st.lists(PLAIN, max_size=3), NAMED)
def test_a_command_comes_out_as_it_went_in(
    actor: str, key: str, version: int, arguments: list[Any], named: dict[str, Any]
) -> None:
    data = encode_command(actor, key, version, "reserve", arguments, named)
    assert decode_command(data) == Command(actor, key, version, "reserve", arguments, named)
    assert isinstance(decode_command(memoryview(data)), Command)
    assert decode_arguments(encode_arguments(arguments, named)) == (arguments, named)


def test_the_commands_of_a_batch_are_read_at_once() -> None:
    values = [encode_command("a", f"k{n}", n, "m", [n] * n, {"of": (n,)}) for n in range(5)]
    assert decode_commands(*build_batch(values).column()) == [decode_command(value) for value in values]


@pytest.mark.parametrize("cut", [0, 1, 9, 11, 20])
def test_values_that_are_commands_only_when_taken_together_are_refused(cut: int) -> None:
    """Each record is a command of its own, with an index, a result and a caller."""
    both = encode_command("a", "k", 1, "m", [], {}) * 2
    parts = [both[:cut], both[cut:]]
    with pytest.raises(RequestError, match="no command"):
        decode_commands(*build_batch(parts).column())


def test_a_head_and_arguments_are_a_command() -> None:
    whole = encode_head("a", "k", 2, "m") + pack([(1,)]) + pack({"b": 3})
    assert whole == encode_command("a", "k", 2, "m", ((1,),), {"b": 3})


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        ["a", "k", 1, "m", []],
        ["a", "k", 1, "m", [], {}, 0],
        ["a", "k", True, "m", [], {}],
        ["a", "k", 1, "m", (), {}],
        ["a", None, 1, "m", [], {}],
        {"actor": "a"},
    ],
)
def test_an_invalid_command_is_refused(value: object) -> None:
    with pytest.raises(RequestError, match="no command"):
        decode_command(pack(value))


@pytest.mark.parametrize("value", [None, [], [1], [[], {}, 1], [{}, []]])
def test_invalid_arguments_are_refused(value: object) -> None:
    with pytest.raises(RequestError, match="no arguments"):
        decode_arguments(pack(value))


def test_an_argument_that_can_not_be_packed_is_named() -> None:
    with pytest.raises(RequestError) as caught:
        encode_command("shop", "", 1, "reserve", ["A", [object()]], {})
    assert caught.value.message == "argument 2 of shop.reserve()[0] is an object"
    with pytest.raises(RequestError, match=r"argument note of shop.reserve\(\) is an object"):
        encode_command("shop", "", 1, "reserve", ["A"], {"note": object()})


@given(PLAIN)
def test_a_result_comes_out_as_it_went_in(value: object) -> None:
    assert decode_result(encode_result(value)) == value


def test_the_result_of_nothing_is_a_constant() -> None:
    assert encode_result(None) == NO_RESULT


def test_a_result_that_looks_like_a_failure_is_none() -> None:
    assert decode_result(encode_result(["ValueError", "bad"])) == ["ValueError", "bad"]


def test_a_failure_is_raised_with_the_name_of_the_commands_error() -> None:
    with pytest.raises(CommandError) as caught:
        decode_result(encode_failure("ValueError", "n is negative"))
    assert (str(caught.value), caught.value.kind) == ("ValueError: n is negative", "ValueError")
    with pytest.raises(CommandError) as caught:
        decode_result(encode_failure("CommandError", "sold out"))
    assert (str(caught.value), caught.value.kind) == ("sold out", "CommandError")


def test_a_caller_that_knows_the_class_gets_the_class() -> None:
    """Its own ``__init__`` is not called, because the needed arguments are not transmitted."""
    with pytest.raises(OutOfStockError) as caught:
        decode_result(encode_failure("OutOfStockError", "0 of A left"), {"OutOfStockError": OutOfStockError})
    assert (str(caught.value), caught.value.kind) == ("0 of A left", "OutOfStockError")
    assert caught.value.message == "0 of A left"


def test_a_message_that_is_no_text_still_travels() -> None:
    with pytest.raises(CommandError, match=r"bad \\ud800"):
        decode_result(encode_failure("ValueError", "bad \ud800"))


@pytest.mark.parametrize("value", [None, [], [1, 2], ["a", "b", "c"], {}])
def test_an_invalid_result_is_refused(value: object) -> None:
    with pytest.raises(RequestError, match="no result"):
        decode_result(pack(value))


def test_an_interface_travels_but_for_its_errors() -> None:
    wired = Interface.from_wire(INTERFACE.to_wire())
    assert wired == INTERFACE
    assert str(wired.commands["reserve"]) == "(sku: str, n: int = ..., *, note: str = ...) -> bool"
    assert wired.commands["reserve"].summary == "Set n aside."


@pytest.mark.parametrize("data", [{}, {"name": "x", "version": "?", "commands": {}, "queries": {}}, {"name": 1}])
def test_an_invalid_description_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="no description of an actor"):
        Interface.from_wire(data)


@pytest.mark.parametrize(
    ("method", "arguments", "named"),
    [
        ("reserve", ["A"], {}),
        ("reserve", ["A", 2], {}),
        ("reserve", [], {"sku": "A"}),
        ("reserve", ["A"], {"note": "x"}),
        ("spread", [1, 2, 3], {"a": 1}),
    ],
)
def test_calls_that_can_work_pass(method: str, arguments: list[Any], named: dict[str, Any]) -> None:
    for interface in (INTERFACE, Interface.from_wire(INTERFACE.to_wire())):
        interface.check(method, arguments, named, query=False)


@pytest.mark.parametrize(
    ("method", "arguments", "named", "query", "message"),
    [
        ("reserv", [], {}, False, "Inventory has no command 'reserv'; its commands: reserve, spread"),
        (
            "reserv",
            [],
            {},
            True,
            "Inventory has no query 'reserv'; its queries: available; its commands: reserve",
        ),
        ("available", ["A"], {}, False, "Inventory.available is a query, not a command"),
        ("reserve", ["A"], {}, True, "Inventory.reserve is a command, not a query"),
        ("reserve", [], {}, False, "does not take ()"),
        ("reserve", ["A", 1, 2], {}, False, "does not take ('A', 1, 2)"),
        ("reserve", ["A"], {"sku": "B"}, False, "does not take ('A', sku='B')"),
        ("reserve", ["A"], {"m": 1}, False, "(sku: str, n: int = ..., *, note: str = ...) -> bool does not take"),
        ("spread", [], {}, False, "does not take ()"),
    ],
)
def test_an_impossible_call_is_refused_with_the_possible_ones(
    method: str, arguments: list[Any], named: dict[str, Any], query: bool, message: str
) -> None:
    with pytest.raises(UnknownActorError) as caught:
        INTERFACE.check(method, arguments, named, query=query)
    assert message in str(caught.value)
