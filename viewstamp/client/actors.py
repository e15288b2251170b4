"""Calls of replicated actors as a caller writes them: ``await inventory.reserve("A-17", 2)``. Sends nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

from viewstamp.client.checks import as_text
from viewstamp.errors import CommandError, RequestError, UnknownActorError
from viewstamp.wire.commands import NO_NAMED, Interface, Method, Stale, encode_command, encode_head
from viewstamp.wire.values import PACK_ERRORS, make_packer

__all__ = ["ActorClass", "ActorProxy", "ActorT", "Calls", "RemoteMethod", "interface_of"]

_SHAPES_MAX = 64
_NO_ERRORS: Mapping[str, type[CommandError]] = {}


class ActorClass(Protocol):
    """A class of replicated actors, as far as a caller needs it."""

    __viewstamp__: ClassVar[Interface]


ActorT = TypeVar("ActorT")


class Calls(Protocol):
    """Who carries calls to the cluster: the client."""

    def invoke(
        self, method: RemoteMethod, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        """Call a command or a query, and return its result."""
        ...

    def invoke_stale(
        self, method: RemoteMethod, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Coroutine[Any, Any, Stale[Any]]:
        """Ask a query of a node as it stands."""
        ...


class RemoteMethod:
    """One command or query of one instance of an actor.

    Invariants:
      * ``found`` is set once it is certain that the cluster's nodes know the method: from then on a command may share
        a batch with others, if ``found`` accepts its arguments
    """

    __slots__ = (
        "_accepted",
        "_calls",
        "_head",
        "_pack",
        "actor",
        "errors",
        "found",
        "interface",
        "is_query",
        "key",
        "max_staleness",
        "name",
        "node",
        "timeout",
    )

    def __init__(
        self,
        calls: Calls,
        actor: str,
        name: str,
        *,
        key: str = "",
        interface: Interface | None = None,
        is_query: bool | None = None,
        timeout: float | None = None,
        node: str | None = None,
        max_staleness: float | None = None,
    ) -> None:
        self._calls = calls
        self.actor = as_text(actor, "the name of an actor")
        self.name = name
        self.key = as_text(key, f"the key of an instance of {actor}")
        self.interface = interface
        """What the caller's class says; None = the caller has none, and what the nodes say counts."""
        self.errors: Mapping[str, type[CommandError]] = interface.errors if interface is not None else _NO_ERRORS
        """The classes of errors that the caller knows, by name."""
        self.is_query = name in interface.queries if interface is not None and is_query is None else is_query
        """None = not known yet."""
        self.found: Method | None = None
        self._accepted: set[int | tuple[object, ...]] = set()
        """Numbers and names of arguments that ``found`` takes: looking here is cheaper than there."""
        self._head = b""
        self._pack: Callable[[object], bytes] | None = None
        """Set with ``found``: the bytes that all its commands begin with, and what packs the rest of them."""
        self.timeout = timeout
        self.node = node
        """The member to ask, for queries; None = any."""
        self.max_staleness = max_staleness
        """How old a stale answer may be, in seconds; None = as old as it is."""

    def __call__(self, *arguments: Any, **named: Any) -> Coroutine[Any, Any, Any]:
        """Call it: return once a command was applied, or a query answered."""
        return self._calls.invoke(self, arguments, named)

    def stale(self, *arguments: Any, **named: Any) -> Coroutine[Any, Any, Stale[Any]]:
        """Ask a query of a node as it stands, be it behind; the answer says how far behind it may be."""
        return self._calls.invoke_stale(self, arguments, named)

    def __repr__(self) -> str:
        key = f"[{self.key!r}]" if self.key else ""
        return f"<{self.actor}{key}.{self.name}>"

    def accepts(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> bool:
        """Say whether ``found``, which must be there, takes such arguments."""
        shape = (len(arguments), *named) if named else len(arguments)
        if shape in self._accepted:
            return True
        assert self.found is not None
        if not self.found.accepts(arguments, named):
            return False
        if len(self._accepted) < _SHAPES_MAX:
            self._accepted.add(shape)
        return True

    def check(self, arguments: tuple[Any, ...], named: Mapping[str, Any], *, query: bool) -> None:
        """Check a call against the caller's class, where it has one.

        Raises:
          UnknownActorError: there is no such command, or query, or it takes other arguments.
        """
        if self.interface is not None:
            self.interface.check(self.name, arguments, named, query=query)

    def meet(self, described: Interface, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Compare a call with what a node says of the actor; afterwards it is known whether it is a query.

        Raises:
          UnknownActorError: the nodes' code does not know it, or takes other arguments.
        """
        mine = self.interface
        if mine is not None and mine.version > described.version:
            raise UnknownActorError(
                f"this program calls version {mine.version} of the actor {self.actor!r}, but a node runs version"
                f" {described.version}",
                remedy="start the nodes with the new code first",
            )
        is_query = self.is_query
        if is_query is None:
            is_query = self.name in described.queries
        described.check(self.name, arguments, named, query=is_query)
        self.is_query = is_query
        methods = (mine or described).queries if is_query else (mine or described).commands
        self.found = methods[self.name]
        if self._pack is None and not is_query:
            self._head = encode_head(self.actor, self.key, self._version, self.name)
            self._pack = make_packer()

    def encode(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> bytes:
        """Return the command as a record's value. Raises RequestError where an argument can not be packed."""
        if self._pack is not None:
            try:
                packed = self._pack(list(arguments))
                return self._head + packed + (self._pack(named) if named else NO_NAMED)
            except PACK_ERRORS:
                pass  # What follows says what is wrong.
        return encode_command(self.actor, self.key, self._version, self.name, arguments, named)

    @property
    def _version(self) -> int:
        return self.interface.version if self.interface is not None else 0


class ActorProxy:
    """One instance of an actor, wherever it lives: each attribute is a command or a query of that name.

    ``client.actor(name, cls)`` is typed as ``cls``, so that a type checker knows arguments and results.
    """

    def __init__(
        self,
        calls: Calls,
        actor: str,
        interface: Interface | None,
        *,
        key: str,
        timeout: float | None,
        node: str | None,
        max_staleness: float | None,
    ) -> None:
        self.__calls = calls
        self.__actor = actor
        self.__interface = interface
        self.__key = key
        self.__timeout = timeout
        self.__node = node
        self.__max_staleness = max_staleness

    def __getattr__(self, name: str) -> RemoteMethod:
        """Return the method of this name, without asking whether there is one: a call is told."""
        if name.startswith("_"):  # Whoever inspects objects asks for such names and means nothing by it.
            raise AttributeError(f"{self!r} has no {name!r}: commands and queries do not begin with an underscore")
        method = RemoteMethod(
            self.__calls,
            self.__actor,
            name,
            key=self.__key,
            interface=self.__interface,
            timeout=self.__timeout,
            node=self.__node,
            max_staleness=self.__max_staleness,
        )
        # The next access finds it without coming here.
        self.__dict__[name] = method
        return method

    def __repr__(self) -> str:
        key = f" key={self.__key!r}" if self.__key else ""
        return f"<actor {self.__actor!r}{key}>"


def interface_of(cls: type[Any]) -> Interface:
    """Return what a class of replicated actors understands.

    Raises:
      RequestError: it is no such class.
    """
    interface = getattr(cls, "__viewstamp__", None)
    if not isinstance(interface, Interface) or not isinstance(cls, type):
        raise RequestError(
            f"{cls!r} is no class of replicated actors",
            remedy="pass the class itself, derived from viewstamp.ReplicatedActor",
        )
    return interface
