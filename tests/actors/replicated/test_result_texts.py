"""The texts of viewstamp that can become the result of a command stay the same in every release.

If a result or a state cannot be packed, or a result is too large, the result of the command is an error, and its text
is part of the bytes that members keep for retries and compare. During a rolling upgrade two releases apply the same
command. If their texts differed, the members would seem to have different states, and the ones in the minority would
stop. So a text in this file is part of the format of the log: do not change it, not even to correct its English.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import viewstamp as vs
from viewstamp.actors.replicated import ActorHost
from viewstamp.ids import Index, Position, Term
from viewstamp.wire.batch import Kind, build_batch
from viewstamp.wire.commands import encode_command
from viewstamp.wire.values import unpack


class Colour(Enum):
    RED = 1


class Celsius(float):
    pass


class Unknown:
    pass


def nested(depth: int) -> Any:
    value: Any = ()
    for _ in range(depth):
        value = (value,)
    return value


WRONG: dict[str, Any] = {
    "object": Unknown(),
    "enum": Colour.RED,
    "subclass": Celsius(3),
    "surrogate": "\ud800",
    "naive": datetime(2013, 1, 1),
    "zone": datetime(2013, 1, 1, tzinfo=ZoneInfo("Europe/Paris")),
    "named offset": datetime(2013, 1, 1, tzinfo=timezone(timedelta(hours=1), "CET")),
    "inside": {"A-17": [1, {Unknown: 2}]},
    "deep": nested(40),
    "large": 1 << 70,
    "aware": datetime(2013, 1, 1, tzinfo=UTC),
}


class Holder(vs.ReplicatedActor):
    def __init__(self) -> None:
        self.held: Any = None

    @vs.command
    def give(self, name: str) -> Any:
        return WRONG[name]

    @vs.command
    def hold(self, name: str) -> None:
        self.held = WRONG[name]

    @vs.command
    def pad(self, size: int) -> str:
        return "x" * size

    @vs.command
    def fail(self) -> None:
        raise Silent


class Silent(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise ValueError


class Stubborn(vs.ReplicatedActor):
    def __init__(self) -> None:
        self.count = 0

    @vs.command
    def add(self) -> int:
        self.count += 1
        return self.count

    def get_state(self) -> Any:
        raise KeyError("count")


class Custom(vs.ReplicatedActor):
    def __init__(self) -> None:
        self.count = 0

    @vs.command
    def add(self) -> int:
        self.count += 1
        return self.count

    def get_state(self) -> Any:
        return [Unknown()]


def results(*calls: tuple[Any, ...], limit: int = 0) -> list[Any]:
    """Apply calls on a new member as one batch; return their unpacked results: ``[value]`` or ``[kind, text]``.

    ``limit`` is the leader's limit of a result in bytes, which is in the header of the batch; 0 = none.
    """
    host = ActorHost({"any": Holder, "stubborn": Stubborn, "custom": Custom})
    batch = build_batch(
        [encode_command(actor, key, 1, method, args, {}) for actor, key, method, *args in calls], kind=Kind.COMMANDS
    )
    batch.stamp(term=Term(1), first_index=Index(1), previous_term=Term(1), log_time=1, first_position=Position(limit))
    return [unpack(result) for result in host.apply(batch, host.decode(batch))]


def result(*call: Any, limit: int = 0) -> Any:
    return results(call, limit=limit)[0]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("object", " is an Unknown"),
        ("enum", " is a Colour: pass its .value"),
        ("subclass", " is a Celsius: make it a plain float"),
        (
            "surrogate",
            " is no Unicode text: 'utf-8' codec can't encode character '\\ud800' in position 0: surrogates not",
        ),
        ("naive", " is a datetime without a time zone: make it aware, datetime.now(timezone.utc)"),
        (
            "zone",
            " is a datetime in the zone Europe/Paris: only fixed offsets are kept, use .astimezone(timezone.utc)",
        ),
        (
            "named offset",
            " is a datetime in the zone CET: only fixed offsets are kept, use .astimezone(timezone.utc)",
        ),
        ("inside", "['A-17'][1] key <class 'tests.actors.replicated.test_result_texts.Unknown'> is a type"),
        ("deep", "[0]" * 32 + " is nested too deep, or holds itself"),
    ],
)
def test_a_value_that_cannot_be_packed_has_the_same_text_in_every_release(name: str, reason: str) -> None:
    kind, text = result("any", "", "give", name)
    assert kind == "RequestError"
    assert text.startswith(f"the result{reason}")
    kind, text = result("any", "", "hold", name)
    assert kind == "RequestError"
    assert text.startswith(f"self.held{reason}")


@pytest.mark.parametrize("name", ["large", "aware"])
def test_a_value_that_can_be_packed_is_the_result(name: str) -> None:
    assert result("any", "", "give", name) == [WRONG[name]]


def test_a_state_of_ones_own_has_the_same_text_in_every_release() -> None:
    assert result("stubborn", "", "add") == ["RequestError", "Stubborn.get_state() raised KeyError('count')"]
    assert result("custom", "", "add") == ["RequestError", "the state[0] is an Unknown"]


def test_a_result_over_a_limit_has_the_same_text_in_every_release() -> None:
    assert result("any", "", "pad", 5000, limit=1000) == [
        "ResultTooLargeError",
        "any.pad() was carried out; its result of 5,004 bytes was dropped: a result may take 1,000 bytes",
    ]
    many = results(*[("any", "", "pad", 900)] * 60, limit=1000)
    assert many[-1][0] == "ResultTooLargeError"
    assert many[-1][1].startswith("any.pad() was carried out; its result of 904 bytes was dropped: all results of its")
    assert many[-1][1].endswith(" bytes")


def test_an_error_without_a_text_or_with_a_long_one_has_the_same_text_in_every_release() -> None:
    assert result("any", "", "fail") == ["Silent", "its text raises ValueError"]
    kind, text = result("any", "", "give", "z" * 3000, limit=1000)
    assert kind == "KeyError"
    assert text == f"{repr('z' * 3000)[:125]}... (3,002 characters)"
