"""Bodies of frames as dataclasses: their fields are encoded, decoded and checked by one table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from types import SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Self,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from viewstamp.errors import RequestError
from viewstamp.value_class import value_class
from viewstamp.wire.access import Need
from viewstamp.wire.batch import Kind
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.frame import FrameKind

__all__ = ["REQUESTS", "BodyField", "Range", "RequestBody", "request"]


@dataclass(frozen=True, slots=True)
class Range:
    """Inclusive bounds of a number, or of the length of bytes, and the remedy for a value outside them."""

    least: float = 0
    most: float = (1 << 63) - 1
    remedy: str = "give a number from 0 to 2^63 - 1"

    def holds(self, value: float | bytes) -> bool:
        """Return whether a value is within the bounds; NaN is not."""
        return self.least <= (len(value) if isinstance(value, bytes) else value) <= self.most


@dataclass(frozen=True, slots=True)
class BodyField:
    """One key of a body.

    A field may be missing if it may be None or has a default. A field whose value is its default is not sent.
    """

    name: str
    types: tuple[type, ...]
    range: Range
    default: Any

    def read(self, kind: FrameKind, body: Mapping[str, Any]) -> Any:
        """Return the value of this field.

        Raises:
          RequestError: it is missing, of another type or out of range.
        """
        if self.default is not MISSING and self.name not in body:
            return self.default
        value: Any = body.get(self.name)
        if type(value) not in self.types:
            raise RequestError(
                f"a {kind.name} whose {self.name} is {brief_repr(value)}", remedy="run the same release on both sides"
            )
        if type(value) in (int, float, bytes) and not self.range.holds(value):
            raise RequestError(f"a {kind.name} whose {self.name} is {brief_repr(value)}", remedy=self.range.remedy)
        return value


class RequestBody:
    """A request of a client to a node, or of a peer to a peer. Each subclass is one row of the table of requests."""

    __slots__ = ()

    kind: ClassVar[FrameKind]
    needs: ClassVar[Need]
    """The right that a client needs to send the request."""
    payload: ClassVar[Kind | None]
    """The kind of the batch that is the payload of the frame."""
    record: ClassVar[Kind | None]
    """The kind of batch that is written into the log for the request, with the fields of the body in its record."""
    fields: ClassVar[tuple[BodyField, ...]]
    sent: ClassVar[tuple[tuple[str, Any], ...]]
    """Name and default of each field, for :meth:`to_map`."""
    bare: ClassVar[Any]
    """The request whose body has the id alone, made once for all; None = a field has no default."""

    @classmethod
    def decode(cls, body: Mapping[str, Any]) -> Self:
        """Read and check a body. Keys that are not named here are ignored: a newer release may have added them.

        Raises:
          RequestError: a field is missing, of another type or out of range.
        """
        values: dict[str, Any] = {}
        for field in cls.fields:
            name = field.name
            if name in body or field.default is MISSING:
                value = body.get(name)
                # Texts have no range, and most fields are texts: for them a call is saved.
                values[name] = value if type(value) is str and str in field.types else field.read(cls.kind, body)
        return cls(**values)

    def to_map(self) -> dict[str, object]:
        """Return the fields to send, in their order, without the id."""
        body: dict[str, object] = {}
        for name, default in self.sent:
            value = getattr(self, name)
            if default is MISSING or value != default:
                body[name] = value
        return body


REQUESTS: dict[int, type[RequestBody]] = {}
"""The request of each kind of frame that is one; ``wire/requests.py`` fills it."""
RequestT = TypeVar("RequestT", bound=RequestBody)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def request(
    kind: FrameKind, *, needs: Need, payload: Kind | None = None, record: Kind | None = None
) -> Callable[[type[RequestT]], type[RequestT]]:
    """Make a class the row of the requests of this kind: a frozen dataclass whose annotations are the body's fields."""

    def decorate(cls: type[RequestT]) -> type[RequestT]:
        # Of the class alone: to evaluate the annotations of RequestBody for each row would take half of the import.
        own = SimpleNamespace(__annotations__=cls.__annotations__)
        hints = get_type_hints(own, vars(sys.modules[cls.__module__]), include_extras=True)
        # Not from dataclasses.fields(), for which each row would have to be compiled at the start of a process.
        defaults = {name: vars(cls).get(name, MISSING) for name in cls.__annotations__}
        made: Any = value_class(cls)
        assert kind not in REQUESTS, f"{kind.name} has a row already"
        REQUESTS[kind] = made
        made.kind = kind
        made.needs = needs
        made.payload = payload
        made.record = record
        made.fields = tuple(_field_of(name, hints[name], default) for name, default in defaults.items())
        made.sent = tuple((field.name, field.default) for field in made.fields)
        made.bare = made() if all(field.default is not MISSING for field in made.fields) else None
        return cast("type[RequestT]", made)

    return decorate


def _field_of(name: str, hint: Any, default: Any) -> BodyField:
    bounds = Range()
    types: list[type] = []
    for each in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        if get_origin(each) is Annotated:
            each, bounds = get_args(each)
        types.append(get_origin(each) or each)
    if float in types:
        types.append(int)
    return BodyField(name, tuple(types), bounds, default)
