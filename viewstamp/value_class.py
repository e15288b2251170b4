"""Classes of values that are never changed, and that are cheap to create: the objects, and the classes themselves.

Each round of the protocol creates many of the objects. Each start of a process creates all of the classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from operator import attrgetter
from typing import Any, Final, TypeVar, dataclass_transform, overload

__all__ = ["value_class"]

ValueT = TypeVar("ValueT")

_FIELDS: Final = "__dataclass_fields__"
_PARAMS: Final = "__dataclass_params__"
_MARK: Final = "is_value"
_OF_THE_PLAIN_CLASS: Final = ("__dict__", "__weakref__")


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

    ``dataclass`` compiles the methods of each class when it is imported, which takes 0.3 ms for a class. Here all
    classes share the methods but ``__init__``, and that is compiled when the first object is created: a process imports
    190 of these classes and uses a part of them.

    A value class has the fields of the value classes that it inherits from, and then its own. TypeError if it inherits
    from another dataclass.

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
        return _decorated(cls, kw_only)

    return decorate if cls is None else decorate(cls)


def _decorated(plain: type[ValueT], kw_only: bool) -> type[ValueT]:
    bases = [base for base in plain.__mro__[1:] if _FIELDS in vars(base)]
    if not all(_MARK in vars(base) for base in bases):
        raise TypeError(f"{plain.__qualname__}: a value class inherits fields from value classes only")
    inherited = [name for base in reversed(bases) for name in vars(base)["__slots__"]]
    own = tuple(name for name in plain.__annotations__ if name not in inherited)
    names = (*inherited, *own)
    namespace: dict[str, Any] = {name: value for name, value in vars(plain).items() if name not in _OF_THE_PLAIN_CLASS}
    defaults = {name: namespace.pop(name) for name in plain.__annotations__ if name in namespace}
    namespace["__slots__"] = own
    namespace["__qualname__"] = plain.__qualname__
    namespace["__match_args__"] = () if kw_only else names
    namespace["__eq__"], namespace["__hash__"], text_of = _methods_of(names)
    namespace.setdefault("__repr__", text_of)
    namespace[_MARK] = True  # Copies of objects may share it: see tests/explore/copies.py.

    def complete() -> None:
        """Replace what is late by what ``dataclass`` makes of the same fields. Two threads may do it at once."""
        described = {"__module__": made.__module__, "__qualname__": made.__qualname__, "__doc__": made.__doc__ or "-"}
        like: Any = type(
            made.__name__, tuple(bases), {**described, "__annotations__": made.__annotations__, **defaults}
        )
        like = dataclass(kw_only=kw_only, eq=False, repr=False, match_args=False)(like)
        for name in {_FIELDS, _PARAMS, "__init__", "__replace__"} & vars(like).keys():
            setattr(made, name, vars(like)[name])
        made.__signature__ = None  # That of __init__ holds.

    def initialise(self: Any, *arguments: Any, **fields: Any) -> None:
        complete()
        made.__init__(self, *arguments, **fields)

    namespace["__init__"] = initialise
    for name, look in ((_FIELDS, None), (_PARAMS, None), ("__signature__", signature)):
        namespace[name] = _Late(name, complete, look)
    kind: Any = type(plain)
    made = kind(plain.__name__, plain.__bases__, namespace)
    found: type[ValueT] = made
    return found


class _Late:
    """An attribute of a class that :func:`dataclass` has to make first."""

    def __init__(self, name: str, complete: Callable[[], None], look: Callable[[Any], object] | None) -> None:
        self._name = name
        self._complete = complete
        self._look = look

    def __get__(self, instance: object, owner: type) -> Any:
        self._complete()
        return self._look(owner) if self._look is not None else getattr(owner, self._name)


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
