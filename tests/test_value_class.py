"""Values: equal by their fields, with a hash and a text, and cheap to define."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from viewstamp.value_class import value_class


@value_class
class Point:
    """A point."""

    x: int
    y: int = 0


@value_class
class Other:
    """Has the same fields."""

    x: int
    y: int = 0


@value_class(kw_only=False)
class Named:
    """A value with one field."""

    name: object


@value_class
class Nothing:
    """A value without fields."""


def test_values_are_equal_if_their_class_and_all_fields_are() -> None:
    assert Point(x=1, y=2) == Point(x=1, y=2)
    assert Point(x=1, y=2) != Point(x=2, y=2)
    assert Point(x=1, y=2) != Point(x=1, y=1)
    assert Point(x=1) != Other(x=1)
    assert Point(x=1) != (1, 0)
    assert Nothing() == Nothing()
    assert Named("a") == Named("a")
    assert Named("a") != "a"


def test_equal_values_have_one_hash_and_a_field_without_one_is_an_error() -> None:
    assert len({Point(x=1), Point(x=1), Point(x=2), Nothing(), Nothing(), Named("a"), Named("a")}) == 4
    with pytest.raises(TypeError, match="unhashable"):
        hash(Named([]))


def test_a_value_is_shown_with_its_fields() -> None:
    assert repr(Point(x=1)) == "Point(x=1, y=0)"
    assert repr(Named("a")) == "Named(name='a')"
    assert repr(Nothing()) == "Nothing()"


def test_a_value_has_slots_and_is_copied_pickled_and_replaced_as_a_dataclass() -> None:
    point = Point(x=1, y=2)
    assert not hasattr(point, "__dict__")
    assert copy.deepcopy(point) == point == pickle.loads(pickle.dumps(point))
    assert dataclasses.replace(point, y=3) == Point(x=1, y=3)
    with pytest.raises(TypeError, match="positional"):
        Point(1)  # type: ignore[misc]
