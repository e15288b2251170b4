"""Values: equal by their fields, with a hash and a text, and cheap to define."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
import threading

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
    if sys.version_info >= (3, 13):
        assert copy.replace(point, y=3) == Point(x=1, y=3)
    with pytest.raises(TypeError, match="positional"):
        Point(1)  # type: ignore[misc]


@value_class
class Spot(Point):
    """Inherits two fields."""

    colour: str = "red"
    marks: list[int] = dataclasses.field(default_factory=list)

    @property
    def sum(self) -> int:
        return self.x + self.y


def test_a_value_class_has_the_fields_that_it_inherits_before_its_own() -> None:
    spot = Spot(x=1, y=2, colour="blue")
    assert repr(spot) == "Spot(x=1, y=2, colour='blue', marks=[])"
    assert spot == Spot(x=1, y=2, colour="blue") != Spot(x=1, y=3, colour="blue")
    assert spot != Point(x=1, y=2)
    assert spot.sum == 3
    assert not hasattr(spot, "__dict__")
    assert Spot(x=1).marks is not Spot(x=1).marks


def test_what_dataclasses_know_of_a_class_is_there_before_its_first_object() -> None:
    @value_class
    class Unused(Point):
        z: int = 7

    assert inspect.signature(Unused) == inspect.signature(dataclasses.make_dataclass("Like", _LIKE, kw_only=True))

    @value_class(kw_only=False)
    class Other:
        left: int
        right: int = 0

    assert [(each.name, each.default) for each in dataclasses.fields(Other)] == [
        ("left", dataclasses.MISSING),
        ("right", 0),
    ]
    assert inspect.signature(Other).parameters["right"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    match Other(1, 2):
        case Other(left, right):
            assert (left, right) == (1, 2)
    assert dataclasses.is_dataclass(value_class(type("Empty", (), {})))


_LIKE = [("x", "int"), ("y", "int", 0), ("z", "int", 7)]


def test_wrong_fields_are_errors_of_the_first_object_as_of_later_ones() -> None:
    @value_class
    class Fresh:
        x: int

    for _ in range(2):
        with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
            Fresh(x=1, y=2)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'x'"):
            Fresh()  # type: ignore[call-arg]


def test_threads_may_create_the_first_objects_at_once() -> None:
    for _ in range(20):

        @value_class
        class Fresh:
            x: int

        made: list[Fresh] = []
        threads = [threading.Thread(target=lambda cls=Fresh, made=made: made.append(cls(x=1))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [Fresh(x=1)] * 4


def test_a_value_class_inherits_from_no_other_dataclass() -> None:
    @dataclasses.dataclass
    class Plain:
        x: int

    with pytest.raises(TypeError, match="inherits fields from value classes only"):

        @value_class
        class Child(Plain):
            y: int


def test_a_plain_subclass_of_a_value_class_has_its_methods() -> None:
    class Child(Point):
        pass

    assert Child(x=1, y=2) == Child(x=1, y=2)
    assert repr(Child(x=1)) == "test_a_plain_subclass_of_a_value_class_has_its_methods.<locals>.Child(x=1, y=0)"
    assert dataclasses.replace(Child(x=1), y=3).y == 3
