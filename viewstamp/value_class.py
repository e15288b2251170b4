"""Classes of values that are never changed, and that are cheap to create: the objects, and the classes themselves.

Each round of the protocol creates many of the objects. Each start of a process creates all of the classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform, overload

__all__ = ["value_class"]

ValueT = TypeVar("ValueT")


@overload
@dataclass_transform(frozen_default=True, kw_only_default=True)
def value_class(cls: type[ValueT], /) -> type[ValueT]: ...


@overload
@dataclass_transform(frozen_default=True, kw_only_default=True)
def value_class(*, kw_only: bool) -> Callable[[type[ValueT]], type[ValueT]]: ...


@dataclass_transform(frozen_default=True, kw_only_default=True)
def value_class(
    cls: type[ValueT] | None = None, /, *, kw_only: bool = True
) -> type[ValueT] | Callable[[type[ValueT]], type[ValueT]]:
    """Decorate a class as a dataclass with slots and keyword arguments that type checkers treat as frozen.

    Two values are equal if they are of the same class and all their fields are equal. A value has a hash if each field
    has one.

    An assignment to a field is an error of ``mypy`` and not of the running program, because a dataclass that is frozen
    at run time sets each field by a call of ``object.__setattr__``. So it takes three times as long to create.

    ``dataclass`` compiles the methods of each class when it is imported, which takes 0.3 ms for a class. Here only
    ``__init__`` is compiled; the others are shared by all classes.

    Args:
      cls: the class.
      kw_only: False = the fields are also positional arguments.

    Example::

        @value_class
        class Point:
            x: int
            y: int
    """

    def decorate(cls: type[ValueT]) -> type[ValueT]:
        make: Callable[[type[ValueT]], Any] = dataclass(slots=True, kw_only=kw_only, eq=False, repr=False)
        made = make(cls)
        made.__eq__, made.__hash__, made.__repr__ = _methods_of(tuple(field.name for field in fields(made)))
        made.is_value = True  # Copies of objects may share it: see tests/explore/copies.py.
        found: type[ValueT] = made
        return found

    return decorate if cls is None else decorate(cls)


def _methods_of(
    names: tuple[str, ...],
) -> tuple[Callable[[Any, object], bool], Callable[[Any], int], Callable[[Any], str]]:
    """Return the methods ``__eq__``, ``__hash__`` and ``__repr__`` of a class with these fields."""
    values: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()

    def is_equal(self: Any, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_of(self: Any) -> int:
        return hash(values(self))

    def text_of(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return is_equal, hash_of, text_of
