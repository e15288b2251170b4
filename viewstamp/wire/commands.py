"""Calls of replicated actors as bytes: a command, its result, and the interface of an actor's class.

A COMMANDS batch holds one command a record; its result comes back as bytes of the same kind. All are packed values
(``wire/values.py``)::

    command     [actor, key, version, method, arguments, named]
    result      [value]
    failure     [kind, message]          the command raised: kind is the name of the exception's class; or its result
                                         was over the limit: kind is ResultTooLargeError
    arguments   [arguments, named]       of a query, and of a change for a watcher
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

from viewstamp.errors import CommandError, RequestError, ResultTooLargeError, UnknownActorError
from viewstamp.wire.batch import Buffer
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.spread_actors import SpreadActor
from viewstamp.wire.values import CONTAINER_CODES, UNPACK_ERRORS, count_containers, pack, unpack, unpack_all

__all__ = [
    "CONTAINERS_MAX",
    "NO_NAMED",
    "NO_RESULT",
    "TOO_LARGE_REMEDY",
    "Command",
    "Interface",
    "Method",
    "Stale",
    "check_containers",
    "decode_arguments",
    "decode_command",
    "decode_commands",
    "decode_result",
    "encode_arguments",
    "encode_command",
    "encode_failure",
    "encode_head",
    "encode_result",
    "encode_too_large",
]

CONTAINERS_MAX = 500_000
"""Limit of the lists and maps in a batch of commands. One record of 1 MiB with pairs of numbers has 350,000."""
_NO_CONTAINERS = bytes(set(range(256)) - CONTAINER_CODES)

_T = TypeVar("_T")


class Stale(NamedTuple, Generic[_T]):
    """An answer from one member's own state, which may lack the newest commits.

    Attributes:
      value: the answer.
      applied_index: the last index that the member had applied.
      age_seconds: the answer contains everything that was committed this many seconds before it, by the member's
        clock. ``math.inf`` = the member has had no contact with a leader since its start.
    """

    value: _T
    applied_index: int
    age_seconds: float


class Command(NamedTuple):
    """The call of a command. The log holds the call, never its effect.

    ``version`` is the version of the caller's class, 0 = the caller has no class. ``key`` "" is a key like any other.
    """

    actor: str
    key: str
    version: int
    method: str
    arguments: list[Any]
    named: dict[str, Any]


_new = tuple.__new__
_HEAD = b"\x96"
NO_NAMED = b"\x80"
"""No named arguments, as bytes."""
NO_RESULT = b"\x91\xc0"
"""The result of a command that returned None."""
TOO_LARGE_REMEDY = (
    "do not call a command again for its result: read what it did by a query, in pieces; or raise [limits]"
    " result_bytes_max"
)
"""The remedy of a ResultTooLargeError."""


def encode_command(
    actor: str, key: str, version: int, method: str, arguments: list[Any] | tuple[Any, ...], named: dict[str, Any]
) -> bytes:
    """Return the value of a record that invokes ``method`` of the actor's instance ``key``.

    Raises:
      RequestError: an argument is of a type that can not be packed.
    """
    try:
        return pack([actor, key, version, method, list(arguments), named])
    except RequestError:
        for number, value in enumerate(arguments, 1):
            pack(value, f"argument {number} of {actor}.{method}()")
        for name, value in named.items():
            pack(value, f"argument {name} of {actor}.{method}()")
        raise


def encode_head(actor: str, key: str, version: int, method: str) -> bytes:
    """Return the common first bytes of all commands for one method of an instance; a list and a map follow, packed."""
    return b"".join([_HEAD, pack(actor), pack(key), pack(version), pack(method)])


def decode_command(value: Buffer) -> Command:
    """Read one record of a COMMANDS batch.

    Raises:
      RequestError: the bytes are no command.
    """
    return decode_commands((0, len(value)), value)[0]


def decode_commands(offsets: tuple[int, ...], data: Buffer) -> list[Command]:
    """Read the records of a COMMANDS batch, as ``Batch.column`` returns them.

    Raises:
      RequestError: one of them is no command.
    """
    commands = []
    ends = [0]
    values = unpack_all(data)
    try:
        for fields in values:
            # One by one: this runs for every command on every member, and a loop over the types takes three times as
            # long.
            if type(fields) is list and len(fields) == 6:
                actor, key, version, method, arguments, named = fields
                if (
                    type(actor) is str
                    and type(key) is str
                    and type(version) is int
                    and type(method) is str
                    and type(arguments) is list
                    and type(named) is dict
                ):
                    commands.append(_new(Command, fields))
                    ends.append(values.tell())
                    continue
            raise RequestError(
                f"no command: {brief_repr(fields)} is not [actor, key, version, method, arguments, named]"
            )
    except UNPACK_ERRORS as error:
        raise RequestError(f"no command: {error!r}") from error
    if tuple(ends) != offsets:
        raise RequestError(
            f"{len(offsets) - 1} records are no commands: their lengths differ from those of the values in them"
        )
    return commands


def check_containers(data: Buffer) -> None:
    """Check that commands hold at most ``CONTAINERS_MAX`` lists and maps, each of which takes up to 240 B in memory.

    A leader calls it before the commands enter the log. Never awaits.

    Raises:
      RequestError: they hold more, or are no commands.
    """
    if len(data) <= CONTAINERS_MAX:
        return  # Each takes a byte at least.
    # A quick upper bound, because bytes of texts may look like a list or a map.
    if len(bytes(data).translate(None, _NO_CONTAINERS)) > CONTAINERS_MAX:
        count_containers(data, CONTAINERS_MAX)


def encode_arguments(
    arguments: list[Any] | tuple[Any, ...], named: Mapping[str, Any], path: str = "the arguments"
) -> bytes:
    """Return the arguments of a call as bytes; ``path`` is their name in errors.

    Raises:
      RequestError: an argument is of a type that can not be packed.
    """
    return pack([list(arguments), dict(named)], path)


def decode_arguments(data: Buffer) -> tuple[list[Any], dict[str, Any]]:
    """Decode the bytes from :func:`encode_arguments`. Raises RequestError if they are something else."""
    fields = unpack(data)
    if type(fields) is not list or list(map(type, fields)) != [list, dict]:
        raise RequestError(f"no arguments: {brief_repr(fields)} is not [arguments, named]")
    return fields[0], fields[1]


def encode_result(value: object) -> bytes:
    """Return the bytes of a command's or query's return value. Raises RequestError if it cannot be packed."""
    try:
        return pack([value])
    except RequestError:
        return pack(value, "the result")  # raises, with the path that the caller sees


def encode_failure(kind: str, message: str) -> bytes:
    """Return the bytes that stand for an exception: the name of its class, and its message."""
    return pack([kind, message.encode(errors="backslashreplace").decode()])


def encode_too_large(call: str, size: int, limit: int, what: str) -> bytes:
    """Return the failure for a result of ``size`` bytes, which is over ``limit``; ``what`` names the limited thing.

    Its text is part of a command's result, which members compare. So it must stay the same in every release.
    """
    message = f"{call} was carried out; its result of {size:,} bytes was dropped: {what} may take {limit:,} bytes"
    return encode_failure(ResultTooLargeError.__name__, message)


def decode_result(data: Buffer, errors: Mapping[str, type[CommandError]] | None = None) -> Any:
    """Return the value that a command or a query returned, or raise its error.

    Args:
      data: the bytes from :func:`encode_result` or :func:`encode_failure`.
      errors: classes by name, ``Interface.errors``. A class that is missing is raised as plain ``CommandError``. Only
        the message is transferred: the class is instantiated without its ``__init__``, and without its own attributes.

    Raises:
      CommandError: the command raised; ``kind`` is the name of the exception's class.
      RequestError: the bytes are not a result.
    """
    fields = unpack(data)
    if type(fields) is list and len(fields) == 1:
        return fields[0]
    if type(fields) is not list or list(map(type, fields)) != [str, str]:
        raise RequestError(f"no result: {brief_repr(fields)} is neither [value] nor [kind, message]")
    kind, message = fields
    known = (errors or {}).get(kind)
    if known is None and kind == ResultTooLargeError.__name__:
        raise ResultTooLargeError(message, kind=kind, remedy=TOO_LARGE_REMEDY)
    if known is None:
        raise CommandError(message if kind == CommandError.__name__ else f"{kind}: {message}", kind=kind)
    error = known.__new__(known, message)
    CommandError.__init__(error, message, kind=kind)
    raise error


@dataclass(frozen=True)
class Method:
    """A command or a query as its callers see it.

    ``parameters`` are as ``inspect`` counts them, without ``self``: (name, kind, whether it has a default, annotation
    as text). ``returns`` is the annotation as text. "" = not annotated.
    """

    parameters: tuple[tuple[str, int, bool, str], ...]
    returns: str = ""
    summary: str = ""

    @classmethod
    def of(cls, signature: inspect.Signature, summary: str = "") -> Method:
        """Describe a method by its signature, ``self`` left out."""
        return cls(
            tuple(
                (each.name, int(each.kind), each.default is not each.empty, _annotation(each.annotation))
                for each in signature.parameters.values()
            ),
            _annotation(signature.return_annotation),
            summary,
        )

    def accepts(self, arguments: list[Any] | tuple[Any, ...], named: Mapping[str, Any]) -> bool:
        """Return whether the method can be called with these arguments: their number and names, not their types."""
        if not named and self._simple:
            return self._required <= len(arguments) <= len(self.parameters)
        try:
            self._signature.bind(*arguments, **named)
        except TypeError:
            return False
        return True

    def __str__(self) -> str:
        return str(self._signature) + (f" -> {self.returns}" if self.returns else "")

    @cached_property
    def _simple(self) -> bool:
        return all(kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD for _, kind, _, _ in self.parameters)

    @cached_property
    def _required(self) -> int:
        return sum(not optional for _, _, optional, _ in self.parameters)

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.Signature(
            [
                inspect.Parameter(
                    name,
                    inspect._ParameterKind(kind),
                    default=_Text("...") if optional else inspect.Parameter.empty,
                    annotation=_Text(annotation) if annotation else inspect.Parameter.empty,
                )
                for name, kind, optional, annotation in self.parameters
            ]
        )


class _Text(str):
    """Text that shows itself without quotes in a signature."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _annotation(annotation: object) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    return annotation if type(annotation) is str else inspect.formatannotation(annotation)


@dataclass(frozen=True)
class Interface:
    """The commands and queries of a class of replicated actors, for callers that cannot import the class.

    It is the class's ``__viewstamp__``. ``name`` is the class's name, ``version`` the version in its commands.
    ``errors`` are the subclasses of ``CommandError`` that callers get as themselves; they are not transferred.
    ``spread`` has the owners of the instances, if the node that described the actor knows it as spread over groups.
    """

    name: str
    version: int
    commands: Mapping[str, Method]
    queries: Mapping[str, Method]
    errors: Mapping[str, type[CommandError]] = field(default_factory=dict)
    spread: SpreadActor | None = None

    def check(
        self, method: str, arguments: list[Any] | tuple[Any, ...], named: Mapping[str, Any], *, query: bool
    ) -> None:
        """Check a call before it is sent, or enters the log.

        Raises:
          UnknownActorError: no such command (or query), or it takes other arguments; the message lists the known ones.
        """
        methods = self.queries if query else self.commands
        found = methods.get(method)
        if found is None:
            raise UnknownActorError(self._explain(method, query=query))
        if not found.accepts(arguments, named):
            given = ", ".join([*map(repr, arguments), *(f"{name}={value!r}" for name, value in named.items())])
            raise UnknownActorError(f"{self.name}.{method}{found} does not take ({given:.200})")

    def _explain(self, method: str, *, query: bool) -> str:
        word, other = ("query", "command") if query else ("command", "query")
        if method in (self.commands if query else self.queries):
            return f"{self.name}.{method} is a {other}, not a {word}"
        there = [("commands", self.commands), ("queries", self.queries)]
        listed = [f"its {kind}: {', '.join(sorted(methods)) or 'none'}" for kind, methods in there]
        return f"{self.name} has no {word} {method!r}; {'; '.join(reversed(listed) if query else listed)}"

    def to_wire(self) -> dict[str, Any]:
        """Return the response to DESCRIBE_ACTOR: the interface without the classes of errors, as plain values."""
        return {
            "name": self.name,
            "version": self.version,
            "commands": {name: _to_wire(method) for name, method in self.commands.items()},
            "queries": {name: _to_wire(method) for name, method in self.queries.items()},
        }

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Interface:
        """Read the value from :meth:`to_wire`, to which a node may have added ``spread``; it has no classes of errors.

        Raises:
          RequestError: it is something else.
        """
        try:
            return cls(
                str(data["name"]),
                int(data["version"]),
                {str(name): _from_wire(method) for name, method in data["commands"].items()},
                {str(name): _from_wire(method) for name, method in data["queries"].items()},
                spread=SpreadActor.read(data["spread"]) if "spread" in data else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            raise RequestError(f"no description of an actor: {error!r:.200}") from error


def _to_wire(method: Method) -> dict[str, Any]:
    return {
        "parameters": [list(each) for each in method.parameters],
        "returns": method.returns,
        "summary": method.summary,
    }


def _from_wire(data: Mapping[str, Any]) -> Method:
    parameters = tuple(
        (str(name), int(kind), bool(optional), str(annotation))
        for name, kind, optional, annotation in data["parameters"]
    )
    method = Method(parameters, str(data["returns"]), str(data["summary"]))
    str(method)  # raises ValueError where no function can have these parameters: two of one name, or none at all
    return method
