"""The rules for a class of replicated actors, and the ``Interface`` that follows from it."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import (
    Callable,
    Collection,
    Container,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
    Set,
)
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from viewstamp.actors.replicated.methods import CommandMethod, QueryMethod
from viewstamp.errors import CommandError
from viewstamp.wire.commands import Interface, Method

__all__ = ["InterfaceOf", "check_class", "check_constructor", "methods_of"]

_RESERVED = frozenset(
    {"command_version", "get_state", "key", "new_id", "now", "raises", "random", "set_state", "version"}
)
_VALUES = (
    *(type(None), bool, int, float, str, bytes, bytearray, list, tuple, dict, set, frozenset),
    *(datetime, date, timedelta, Decimal, UUID, object),
)
_ABSTRACT = (
    *(Collection, Container, Hashable, Iterable, Mapping, MutableMapping),
    *(MutableSequence, MutableSet, Sequence, Set),
)


def check_class(cls: type) -> None:
    """Check that the instances of a class can be replicated.

    Raises:
      TypeError: they cannot; the message names the class, the method and the correction.
    """
    name = cls.__qualname__
    version = cls.__dict__.get("version", 1)
    if type(version) is not int or version < 1:
        raise TypeError(f"{name}.version is {version!r}, but must be a whole number from 1 on")
    if cls.__dict__.get("__slots__"):
        raise TypeError(f"{name} has __slots__, which no snapshot would hold: keep the state in plain attributes")
    for each in _RESERVED & cls.__dict__.keys() - {"version", "raises", "get_state", "set_state"}:
        raise TypeError(f"{name}.{each} would hide an attribute of ReplicatedActor: choose another name")
    check_constructor(cls)
    for method, descriptor in methods_of(cls).items():
        _check_method(cls, method, descriptor)


def check_constructor(cls: type) -> None:
    """Check that a class can be instantiated without arguments. Repeated when decorators have run.

    Raises:
      TypeError: ``__init__`` has a parameter without a default.
    """
    try:
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    except ValueError:
        return
    parameters = list(signature.parameters.values())[1:]
    asked = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if asked:
        raise TypeError(
            f"{cls.__qualname__}.__init__ has the parameters {', '.join(asked)}, but an instance is created at its"
            " first command, without arguments: pass them to a command instead"
        )


def methods_of(cls: type) -> dict[str, CommandMethod[..., Any] | QueryMethod[..., Any]]:
    """Return the commands and queries of ``cls`` and its bases by name.

    Raises:
      TypeError: a class overrides a command or a query of its base with something else.
    """
    found: dict[str, CommandMethod[..., Any] | QueryMethod[..., Any]] = {}
    for each in reversed(cls.__mro__):
        for name, value in vars(each).items():
            if isinstance(value, CommandMethod | QueryMethod):
                if name in found and type(found[name]) is not type(value):
                    raise TypeError(
                        f"{each.__qualname__}.{name} is a {value.kind}, but its base has a {found[name].kind}"
                    )
                found[name] = value
            elif name in found:
                kind = found[name].kind
                raise TypeError(f"{each.__qualname__}.{name} overrides a {kind}: decorate it with @{kind}")
    return found


def _check_method(cls: type, name: str, descriptor: CommandMethod[..., Any] | QueryMethod[..., Any]) -> None:
    where = f"{cls.__qualname__}.{name}"
    if name.startswith("_") or name in _RESERVED:
        raise TypeError(f"{where}: a {descriptor.kind} cannot have this name; choose another one")
    signature = inspect.signature(descriptor.function)
    parameters = list(signature.parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise TypeError(f"{where} has no parameter self")
    for parameter in parameters[1:]:
        if isinstance(parameter.default, list | dict | set | bytearray):
            raise TypeError(
                f"{where}({parameter.name}) has a {type(parameter.default).__name__} as its default, which survives"
                " the call and is in no snapshot: use None and create it in the method"
            )
    annotations = [(parameter.name, parameter.annotation) for parameter in parameters[1:]]
    annotations.append(("return", signature.return_annotation))
    for label, annotation in annotations:
        refused = _refused_type(_evaluated(annotation, descriptor.function, cls))
        if refused:
            raise TypeError(
                f"{where}({label}: {refused}): only plain values can be logged: None, bool, int, float, str,"
                " bytes, list, tuple, dict, set, frozenset, datetime, date, timedelta, Decimal, UUID"
            )


def _evaluated(annotation: object, function: Callable[..., Any], cls: type) -> object:
    """Return the type of an annotation; Any = not known yet, for example a name imported for ``TYPE_CHECKING``."""
    if annotation is inspect.Signature.empty:
        return Any
    if type(annotation) is not str:
        return annotation
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(
            holder, getattr(function, "__globals__", {}), dict(vars(cls)), include_extras=True
        )["it"]
    except Exception:
        return Any


def _refused_type(annotation: Any) -> str:
    """Return the name of a type in ``annotation`` that cannot be logged; "" = none."""
    if isinstance(annotation, typing.NewType):
        return _refused_type(annotation.__supertype__)
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return ""
    if origin is typing.Annotated:
        return _refused_type(annotation.__origin__)
    if origin is not None:
        parts = [*typing.get_args(annotation), *([origin] if origin not in (typing.Union, types.UnionType) else [])]
        return next(filter(None, map(_refused_type, parts)), "")
    if not isinstance(annotation, type) or annotation in _VALUES or annotation in _ABSTRACT:
        return ""
    if annotation.__module__ == "typing" or typing.is_typeddict(annotation):
        return ""
    return annotation.__qualname__


class InterfaceOf:
    """A class attribute that builds the class's ``Interface`` when it is first read."""

    def __init__(self, cls: type[Any]) -> None:
        self._cls = cls
        self._interface: Interface | None = None

    def __get__(self, instance: object, owner: type | None = None) -> Interface:
        if self._interface is None:
            self._interface = _build(self._cls)
        return self._interface


def _build(cls: type[Any]) -> Interface:
    methods = methods_of(cls)
    return Interface(
        cls.__name__,
        cls.version,
        {name: _describe(method) for name, method in methods.items() if isinstance(method, CommandMethod)},
        {name: _describe(method) for name, method in methods.items() if isinstance(method, QueryMethod)},
        dict(_errors_of(cls)),
    )


def _describe(method: CommandMethod[..., Any] | QueryMethod[..., Any]) -> Method:
    signature = inspect.signature(method.function)
    without_self = signature.replace(parameters=list(signature.parameters.values())[1:])
    summary = (inspect.getdoc(method.function) or "").partition("\n")[0]
    return Method.of(without_self, summary)


def _errors_of(cls: type) -> Iterator[tuple[str, type[CommandError]]]:
    """Yield the error classes that ``cls`` may raise, by name. Nearer definitions come later and override others."""
    for each in reversed(cls.__mro__[:-1]):
        module = sys.modules.get(each.__module__)
        for value in [*vars(module).values(), *vars(each).values(), *vars(each).get("raises", ())]:
            if isinstance(value, type) and issubclass(value, CommandError) and value is not CommandError:
                yield value.__name__, value
