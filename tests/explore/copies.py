"""Copies, compares and renames the objects of a member as a whole.

The three functions walk over all attributes, so a new field of the core belongs to the explored state from the day on
which it is added.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Hashable, Mapping
from enum import Enum
from typing import Any

from viewstamp.consensus.invariants import BatchIdentity
from viewstamp.consensus.log import RaftLog
from viewstamp.consensus.membership import Membership
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.state import Core, RaftOptions
from viewstamp.consensus.term_history import TermHistory
from viewstamp.wire.batch import Batch

__all__ = ["clone", "freeze", "rename"]

_ATOMS = (int, str, bytes, type(None), Enum, TermHistory, Batch, Membership, type)
"""Types that never change after their creation; all copies share them."""

_OBJECTS = (Core, RaftLog, Raft)
"""Classes without declared fields: their attributes are in ``__dict__``."""

_SHARED = {"entropy", "options"}
"""Attributes that are not part of the state."""


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, _OBJECTS):
        return {name: each for name, each in vars(value).items() if name not in _SHARED}
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _is_immutable(kind: type) -> bool:
    if not dataclasses.is_dataclass(kind):
        return issubclass(kind, _ATOMS)
    return issubclass(kind, _ATOMS) or hasattr(kind, "is_value") or bool(kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]


_immutable: dict[type, bool] = {}


def clone(value: Any) -> Any:
    """Return a copy that shares no mutable object with ``value``."""
    kind = type(value)
    is_immutable = _immutable.get(kind)
    if is_immutable is None:
        is_immutable = _immutable[kind] = _is_immutable(kind)
    if is_immutable:
        return value
    if kind is list or kind is deque or kind is set:
        return kind([clone(each) for each in value])
    if kind is dict:
        return {key: clone(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return value  # Its keys and values are immutable.
    copy = object.__new__(kind)
    if isinstance(value, _OBJECTS):
        vars(copy).update({name: each if name in _SHARED else clone(each) for name, each in vars(value).items()})
        return copy
    for name, each in _fields(value).items():
        setattr(copy, name, clone(each))
    return copy


def freeze(value: Any) -> Hashable:
    """Return a key that is equal for two values exactly if no later step can distinguish them."""
    if value is None or isinstance(value, int | str | bytes):
        return value
    if isinstance(value, Enum | type):
        return value.name if isinstance(value, Enum) else value.__name__
    if isinstance(value, TermHistory):
        return value.starts
    if isinstance(value, Batch):
        return (value.term, value.first_index, *BatchIdentity.of(value))
    if isinstance(value, Membership):
        return value.encode()
    if isinstance(value, Mapping):
        return tuple(sorted(((freeze(key), freeze(each)) for key, each in value.items()), key=repr))
    if isinstance(value, set):
        return tuple(sorted(map(repr, map(freeze, value))))
    if isinstance(value, list | tuple | deque):
        return tuple([freeze(each) for each in value])
    if isinstance(value, RaftOptions):
        return None
    return (type(value).__name__, *[freeze(each) for each in _fields(value).values()])


def rename(value: Any, names: Mapping[str, str]) -> Any:
    """Return a copy of ``value`` in which every member name is replaced according to ``names``.

    Memberships are not changed: the caller ensures that they name all members alike.
    """
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, (*_ATOMS, RaftOptions)):
        return value
    if isinstance(value, dict):
        return {rename(key, names): rename(each, names) for key, each in value.items()}
    if isinstance(value, list | deque | set):
        return type(value)([rename(each, names) for each in value])
    if isinstance(value, tuple):
        renamed = [rename(each, names) for each in value]
        return type(value)(*renamed) if hasattr(value, "_fields") else tuple(renamed)
    copy = object.__new__(type(value))
    if isinstance(value, _OBJECTS):
        vars(copy).update(
            {name: each if name in _SHARED else rename(each, names) for name, each in vars(value).items()}
        )
        return copy
    for name, each in _fields(value).items():
        object.__setattr__(copy, name, rename(each, names))
    return copy
