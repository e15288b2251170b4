"""``@command`` and ``@query``: the methods of a replicated actor, and their types as seen through a proxy."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from types import MethodType
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, Protocol, TypeVar, overload

from viewstamp.wire.commands import Stale

__all__ = ["CommandMethod", "QueryCall", "QueryMethod", "command", "query"]

P = ParamSpec("P")
R = TypeVar("R")


class QueryCall(Protocol[P, R]):
    """A query of a proxy. Awaited, it is linearizable; with ``stale`` the asked member answers from its own state."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...  # noqa: D102

    def stale(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Stale[R]]:
        """Query one member's state without confirming that it is up to date. The answer has the bound of its age."""
        ...


class _Method:
    """Base of both kinds of method: holds the function, and raises TypeError if it is called on the class."""

    kind = ""

    def __init__(self, function: Callable[..., Any]) -> None:
        _check_plain(function, self.kind)
        self.function = function
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError(
            f"{self.__qualname__} was called on the class: a {self.kind} is called by a proxy,"
            f" node.actor(NAME, {self.__qualname__.rpartition('.')[0]}).{self.__name__}(...), or on an instance"
        )

    def __repr__(self) -> str:
        return f"<{self.kind} {self.__qualname__}>"


class CommandMethod(_Method, Generic[P, R]):
    """A method that changes state. On an instance it is the plain method; on the class it has the proxy's type."""

    kind = "command"

    def __init__(self, function: Callable[Concatenate[Any, P], R]) -> None:
        super().__init__(function)

    @overload
    def __get__(self, instance: None, owner: type[Any], /) -> Callable[P, Coroutine[Any, Any, R]]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None, /) -> Callable[P, R]: ...
    def __get__(self, instance: object, owner: type[Any] | None = None, /) -> Any:
        return self if instance is None else MethodType(self.function, instance)


class QueryMethod(_Method, Generic[P, R]):
    """A method that reads state. On an instance it is the plain method; on the class it has the proxy's type."""

    kind = "query"

    def __init__(self, function: Callable[Concatenate[Any, P], R]) -> None:
        super().__init__(function)

    @overload
    def __get__(self, instance: None, owner: type[Any], /) -> QueryCall[P, R]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None, /) -> Callable[P, R]: ...
    def __get__(self, instance: object, owner: type[Any] | None = None, /) -> Any:
        return self if instance is None else MethodType(self.function, instance)


def command(function: Callable[Concatenate[Any, P], R]) -> CommandMethod[P, R]:
    """Mark a method of a ``ReplicatedActor`` that changes its state.

    A call through a proxy is written to the log and then applied once on every member. The method must be deterministic
    and must not be ``async``: it runs in one step.

    Example::

        class Counter(viewstamp.ReplicatedActor):
            def __init__(self) -> None:
                self.count = 0

            @viewstamp.command
            def add(self, n: int) -> int:
                self.count += n
                return self.count

    Raises:
      TypeError: the method is ``async``, a generator, or not a plain method.
    """
    return CommandMethod(function)


def query(function: Callable[Concatenate[Any, P], R]) -> QueryMethod[P, R]:
    """Mark a method of a ``ReplicatedActor`` that reads its state. It runs on one member, and is not logged.

    By default the answer is linearizable: it includes every command that was acknowledged before the call.

    Example::

        class Counter(viewstamp.ReplicatedActor):
            def __init__(self) -> None:
                self.count = 0

            @viewstamp.query
            def value(self) -> int:
                return self.count

    Raises:
      TypeError: the method is ``async``, a generator, or not a plain method.
    """
    return QueryMethod(function)


def _check_plain(function: Callable[..., Any], kind: str) -> None:
    if not inspect.isfunction(function):
        raise TypeError(f"@{kind} must be the outermost decorator of a plain method, not of {function!r}")
    for each in (function, inspect.unwrap(function)):
        if inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each):
            raise TypeError(
                f"{function.__qualname__} is async: a {kind} runs in one step, alike on every member, so it can not"
                " await. Await before you call it, and pass the result as an argument"
            )
        if inspect.isgeneratorfunction(each):
            raise TypeError(f"{function.__qualname__} is a generator: a {kind} returns its result whole, as a list")
