"""Classes of values that are never changed and are cheap to create, for objects that each round creates many of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

__all__ = ["value_class"]

ValueT = TypeVar("ValueT")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def value_class(cls: type[ValueT]) -> type[ValueT]:
    """Decorate a class as a dataclass with slots and keyword arguments that type checkers treat as frozen.

    An assignment to a field is an error of ``mypy`` and not of the running program, because a dataclass that is frozen
    at run time sets each field by a call of ``object.__setattr__``. So it takes three times as long to create.

    Example::

        @value_class
        class Point:
            x: int
            y: int
    """
    make: Callable[[type[ValueT]], type[ValueT]] = dataclass(slots=True, kw_only=True, unsafe_hash=True)
    made = make(cls)
    made.is_value = True  # type: ignore[attr-defined]  # Copies of objects may share it: see tests/explore/copies.py.
    return made
