"""Packed values are unpacked unchanged, the bytes are canonical, and a value that could not be restored is refused."""

from __future__ import annotations

import collections
import contextlib
import enum
import math
import subprocess
import sys
import threading
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewstamp.errors import RequestError
from viewstamp.wire.values import DEPTH_MAX, find_unsupported, make_packer, pack, unpack

OFFSETS = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
HASHABLE = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.datetimes(timezones=OFFSETS).map(lambda moment: moment.replace(fold=0))
    | st.dates()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
)
KEYS = st.recursive(HASHABLE, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5)
VALUES: st.SearchStrategy[Any] = st.recursive(
    KEYS | st.sets(KEYS, max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def shape(value: object) -> object:
    """Return the value with its types, so that 1, 1.0 and True differ; and so do -0.0 and 0.0."""
    match value:
        case dict():
            return dict, [(shape(key), shape(each)) for key, each in value.items()]
        case list() | tuple():
            return type(value), [shape(each) for each in value]
        case set() | frozenset():
            return type(value), sorted(repr(shape(each)) for each in value)
        case float():
            return float, value, math.copysign(1, value)
        case datetime():
            return datetime, value, value.utcoffset()
        case Decimal():
            return Decimal, value.as_tuple()
        case _:
            return type(value), value


@pytest.mark.slow
@given(VALUES)
def test_an_unpacked_value_has_its_types_and_packs_to_the_same_bytes(value: object) -> None:
    """The bytes must be equal because a member restored from a snapshot must have the same digests as the others."""
    packed = pack(value)
    assert shape(unpack(packed)) == shape(value)
    assert pack(unpack(packed)) == packed
    assert make_packer()(value) == packed


@given(st.permutations(["a", "b", 1, 2.5, None, (1, 2), frozenset({3, "x"})]))
def test_a_set_packs_alike_in_whatever_order_it_was_filled(order: list[Any]) -> None:
    assert pack(set(order)) == pack({"a", "b", 1, 2.5, None, (1, 2), frozenset({3, "x"})})


def test_a_dict_keeps_its_order_and_the_order_is_part_of_the_value() -> None:
    assert list(unpack(pack({"b": 1, "a": 2}))) == ["b", "a"]
    assert pack({"b": 1, "a": 2}) != pack({"a": 2, "b": 1})


PROGRAM = """
from viewstamp.wire.values import pack
words = {f"word {n}" for n in range(50)}
print(pack([words, {word: {word, 1} for word in sorted(words)}, frozenset({("a", 1), "b"})]).hex())
"""


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_hash_seed() -> None:
    """Two members are two processes, and each has its own hash seed."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            check=True,
            timeout=30,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) > 1000


class Colour(enum.IntEnum):
    RED = 1


class Point(NamedTuple):
    x: int


class Name(str):
    __slots__ = ()


SELF: list[object] = []
SELF.append(SELF)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (threading.Lock(), "value is a lock"),
        ({"A": [1, {"x": threading.Lock()}]}, "value['A'][1]['x'] is a lock"),
        ((1, {threading.Lock()}), "value[1] element is a lock"),
        ({Colour.RED: 1}, "value key <Colour.RED: 1> is a Colour: pass its .value"),
        (collections.defaultdict(int), "value is a defaultdict: make it a plain dict"),
        (collections.OrderedDict(), "value is an OrderedDict: make it a plain dict"),
        ([Point(1)], "value[0] is a Point: make it a plain tuple"),
        (Name("x"), "value is a Name: make it a plain str"),
        (datetime(2026, 1, 1), "value is a datetime without a time zone: make it aware, datetime.now(timezone.utc)"),
        (
            datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC")),
            "value is a datetime in the zone UTC: only fixed offsets are kept, use .astimezone(timezone.utc)",
        ),
        (
            [datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1), "CET"))],
            "value[0] is a datetime in the zone CET: only fixed offsets are kept, use .astimezone(timezone.utc)",
        ),
        (1j, "value is a complex"),
        ("\ud800", "value is no Unicode text"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) and value.isascii() else type(value).__name__,
)
def test_a_value_that_could_not_be_restored_is_refused_by_type_and_path(value: object, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        pack(value)
    assert caught.value.message.startswith(message)
    assert "Decimal" in caught.value.remedy


def test_a_value_that_holds_itself_is_refused() -> None:
    with pytest.raises(RequestError, match=r"value\[0\]\[0\].*is nested too deep, or holds itself"):
        pack(SELF)


def nested(depth: int) -> object:
    value: object = ()
    for _ in range(depth - 1):
        value = (value,)
    return value


def test_the_depth_that_is_allowed_is_a_constant() -> None:
    """If it were Python's recursion limit, it would depend on the caller's depth, and members would disagree."""
    assert unpack(pack(nested(DEPTH_MAX))) == nested(DEPTH_MAX)
    with pytest.raises(RequestError, match="nested too deep"):
        pack(nested(DEPTH_MAX + 1))

    def from_deep_inside(levels: int) -> bytes:
        return pack(nested(DEPTH_MAX)) if levels == 0 else from_deep_inside(levels - 1)

    assert from_deep_inside(300) == pack(nested(DEPTH_MAX))


def test_the_quicker_packer_goes_on_after_an_error() -> None:
    packer = make_packer()
    with pytest.raises(RequestError):
        packer([1, 2, {"x": object()}])
    assert packer([1]) == pack([1])


def test_nothing_is_found_in_a_value_that_can_be_packed() -> None:
    assert find_unsupported({"a": [(1, {2}), datetime(2026, 1, 1, tzinfo=UTC)]}) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x91",
        b"\x01\x02",
        b"\xa1\xff",
        b"\xc1",
        msgpack.packb(msgpack.ExtType(77, b"")),
        msgpack.packb(msgpack.ExtType(1, b"\x01")),
        msgpack.packb(msgpack.ExtType(5, b"yesterday")),
        msgpack.packb(msgpack.ExtType(8, b"many")),
        msgpack.packb(msgpack.ExtType(9, b"short")),
        msgpack.packb(msgpack.ExtType(2, msgpack.packb([[1]]))),
        b"\x81\x90\x01",
    ],
    ids=bytes.hex,
)
def test_bytes_that_are_no_value_are_refused(data: bytes) -> None:
    with pytest.raises(RequestError, match="no packed value"):
        unpack(data)


def test_extensions_in_extensions_are_refused_before_python_gives_up() -> None:
    data = msgpack.packb([])
    for _ in range(5000):
        data = msgpack.packb(msgpack.ExtType(1, data))
    with pytest.raises(RequestError, match="deep"):
        unpack(data)


@given(st.binary(max_size=40))
def test_no_bytes_do_worse_than_being_refused(data: bytes) -> None:
    with contextlib.suppress(RequestError):
        unpack(data)


def test_the_extremes_come_out() -> None:
    for value in (
        *(2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, -(2**71), 2**4000),
        *(datetime.max.replace(tzinfo=UTC), date.min, timedelta.max, timedelta.min, Decimal("1.00"), Decimal("-0")),
        UUID(int=0),
    ):
        assert shape(unpack(pack(value))) == shape(value)
    assert math.isnan(unpack(pack(math.nan)))
    assert unpack(pack(Decimal("sNaN"))).is_snan()
